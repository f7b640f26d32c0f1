// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `docs/parameters.md`, made from the table of parameters.

use mend_base::parameter::{Kind, Parameter, TABLE, variable};

/// The whole page.
pub fn parameters() -> String {
    let mut page = String::from(OPENING);
    for row in TABLE {
        page.push_str(&section(row));
    }
    page
}

fn section(row: &Parameter) -> String {
    let default = if row.default.is_empty() { "(empty)".to_owned() } else { format!("`{}`", row.default) };
    let unit = if row.unit.is_empty() { String::new() } else { format!(", in {}", row.unit) };
    format!(
        "\n## `{}`\n\n{}\n\n* takes {}{unit}\n* default: {default}\n* in the environment: `{}`\n",
        row.name,
        row.sentence,
        takes(row.kind),
        variable(row),
    )
}

fn takes(kind: Kind) -> String {
    let list = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    match kind {
        Kind::Number(least, most) => format!("a number from {least} to {most}"),
        Kind::Choice(words) => format!("one of {}", list(words)),
        Kind::Names(words) => format!("a list of {}, or `^` and a list of those to leave out", list(words)),
        Kind::Words(words) => format!("a list of {}", list(words)),
    }
}

const OPENING: &str = "\
<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->
<!-- Made by `cargo xtask docs` from base/src/parameter.rs; a test says when it is out of date. -->
# Parameters

A parameter `component.noun` is set, from the strongest place to the weakest,

* on the command line: `mpiexec --mca component.noun value` (`component_noun` is taken too),
* in the environment: `MEND_COMPONENT_NOUN=value`,
* in the parameter file: a line `component.noun = value`.

Numbers may end in `k`, `m` or `g` (2^10, 2^20, 2^30). A value is obeyed or refused with the reason, never
re-interpreted. `mend-info` prints every parameter with its value and the place it came from.
";
