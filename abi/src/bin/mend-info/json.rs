// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The facts as JSON, for programs.

use crate::collectives::Choice;
use crate::facts::{Component, Facts, Value, kind_words, origin_words};
use mend_base::parameter::variable;
use mend_world::FabricOffer;

/// The facts as one JSON object.
pub fn json(facts: &Facts) -> String {
    let pairs = |pairs: &[(&'static str, String)]| {
        object(&pairs.iter().map(|(name, value)| (*name, string(value))).collect::<Vec<_>>())
    };
    let whole = object(&[
        ("versions", pairs(&facts.versions)),
        ("host", pairs(&facts.host)),
        ("components", list(facts.components.iter().map(component))),
        ("collectives", list(facts.collectives.iter().map(choice))),
        ("parameters", list(facts.parameters.iter().map(value))),
        ("problems", list(facts.problems.iter().map(|problem| string(problem)))),
    ]);
    whole + "\n"
}

fn component(each: &Component) -> String {
    let (able, reason) = match &each.runs {
        Ok(reason) => (true, reason),
        Err(reason) => (false, reason),
    };
    object(&[
        ("framework", string(each.framework)),
        ("name", string(each.name)),
        ("sentence", string(each.description)),
        ("can_run", able.to_string()),
        ("reason", string(reason)),
        ("offers", list(each.offers.iter().map(offer))),
    ])
}

fn offer(each: &FabricOffer) -> String {
    object(&[
        ("provider", string(&each.provider)),
        ("interface", string(&each.interface)),
        ("chosen", each.refused.is_none().to_string()),
        ("reason", string(each.refused.as_deref().unwrap_or("the fittest"))),
    ])
}

fn choice(each: &Choice) -> String {
    object(&[
        ("operation", string(&each.operation)),
        ("component", string(each.component)),
        ("reason", string(&each.reason)),
    ])
}

fn value(each: &Value) -> String {
    object(&[
        ("name", string(each.row.name)),
        ("value", string(&each.value)),
        ("source", string(origin_words(each.origin))),
        ("unit", string(each.row.unit)),
        ("default", string(each.row.default)),
        ("takes", string(&kind_words(each.row.kind))),
        ("variable", string(&variable(each.row))),
        ("sentence", string(each.row.description)),
    ])
}

fn object(members: &[(&str, String)]) -> String {
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("{}:{value}", string(name))).collect();
    format!("{{{}}}", members.join(","))
}

fn list(members: impl Iterator<Item = String>) -> String {
    format!("[{}]", members.collect::<Vec<_>>().join(",\n "))
}

fn string(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            control if control < ' ' => quoted.push_str(&format!("\\u{:04x}", control as u32)),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::{object, string};

    #[test]
    fn what_json_keeps_for_itself_is_escaped() {
        assert_eq!(string("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
        assert_eq!(object(&[("x", string("1")), ("y", "true".to_owned())]), "{\"x\":\"1\",\"y\":true}");
    }
}
