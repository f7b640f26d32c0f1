// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The facts as text, for people.

use crate::facts::{Facts, kind_words, origin_words};
use core::fmt::Write as _;
use mend_base::parameter::variable;

/// The facts as text.
pub fn text(facts: &Facts) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_text(&mut text, facts);
    text
}

fn write_text(text: &mut String, facts: &Facts) -> core::fmt::Result {
    writeln!(text, "Versions")?;
    for (name, value) in &facts.versions {
        writeln!(text, "  {name:<12}{value}")?;
    }
    writeln!(text, "\nThis host")?;
    for (name, value) in &facts.host {
        writeln!(text, "  {name:<12}{value}")?;
    }
    writeln!(text, "\nComponents")?;
    for each in &facts.components {
        let name = format!("{} {}", each.framework, each.name);
        let (disposition, reason) = match &each.runs {
            Ok(reason) => ("can run", reason),
            Err(reason) => ("cannot run", reason),
        };
        writeln!(text, "  {name:<14}{disposition}: {reason}\n                {}", each.description)?;
        for offer in &each.offers {
            let reason = offer.refused.as_deref().unwrap_or("chosen");
            writeln!(text, "                  {} over {}: {reason}", offer.provider, offer.interface)?;
        }
    }
    writeln!(text, "\nCollective operations on a communicator of several ranks")?;
    for each in &facts.collectives {
        writeln!(text, "  {}: {}, {}", each.operation, each.component, each.reason)?;
    }
    writeln!(text, "\nParameters")?;
    for each in &facts.parameters {
        let value = if each.value.is_empty() { "(empty)" } else { &each.value };
        let unit = if each.row.unit.is_empty() { "" } else { " " };
        writeln!(
            text,
            "  {} = {value}{unit}{}  [{}]",
            each.row.name,
            each.row.unit,
            origin_words(each.origin)
        )?;
        writeln!(text, "      {}", each.row.description)?;
        writeln!(text, "      {}; {}", kind_words(each.row.kind), variable(each.row))?;
    }
    Ok(())
}
