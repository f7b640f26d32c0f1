// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the four files of the table.

use crate::model::{Argument, ArgumentKind, Call, Constant, Direction, Legal, Table, Type};
use core::fmt;
use std::collections::BTreeMap;

/// What cannot be read, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    file: &'static str,
    line: usize,
    what: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "abi/table/{}:{}: {}", self.file, self.line, self.what)
    }
}

impl core::error::Error for ParseError {}

impl Table {
    /// The table of this crate.
    pub fn ours() -> Result<Table, ParseError> {
        let kinds = lines("kinds.table", include_str!("../kinds.table"), kind)?.into_iter().collect();
        let calls = lines("calls.table", include_str!("../calls.table"), |line| call(line, &kinds))?;
        let types = lines("types.table", include_str!("../types.table"), type_of_line)?;
        Ok(Table { types, constants: constants(include_str!("../constants.table"))?, kinds, calls })
    }
}

/// Every line that is neither empty nor a comment, parsed.
fn lines<T>(
    file: &'static str,
    text: &str,
    mut parse: impl FnMut(&str) -> Result<T, &'static str>,
) -> Result<Vec<T>, ParseError> {
    (1..)
        .zip(text.lines().map(str::trim))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| parse(line).map_err(|what| ParseError { file, line: number, what }))
        .collect()
}

/// `name direction type [| type]`
fn kind(line: &str) -> Result<(String, ArgumentKind), &'static str> {
    let (name, rest) = line.split_once(' ').ok_or("a kind needs a direction")?;
    let (direction, types) = rest.trim_start().split_once(' ').ok_or("a kind needs a type")?;
    let direction = match direction {
        "in" => Direction::In,
        "out" => Direction::Out,
        "inout" => Direction::InOut,
        _ => return Err("a direction is in, out or inout"),
    };
    let (small, large) = types.split_once('|').unwrap_or((types, types));
    let kind = ArgumentKind { direction, small: small.trim().to_owned(), large: large.trim().to_owned() };
    Ok((name.to_owned(), kind))
}

/// `Name [+c] [+x] (arguments) [-> result] [= implementation [anytime | plain]]`
fn call(line: &str, kinds: &BTreeMap<String, ArgumentKind>) -> Result<Call, &'static str> {
    let (head, rest) = line.split_once('(').ok_or("a call needs arguments in brackets")?;
    let (inside, tail) = rest.split_once(')').ok_or("the bracket is not closed")?;
    let (head, is_extension) = marked(head, "+x");
    let (stem, has_large) = marked(head, "+c");
    let words = inside.split(',').map(str::trim).filter(|word| !word.is_empty());
    let arguments = words.map(|word| argument(word, kinds)).collect::<Result<_, _>>()?;
    let (result, body) = match tail.split_once('=') {
        Some((result, body)) => (result, Some(body)),
        None => (tail, None),
    };
    let result = result.trim().strip_prefix("->").map_or("int", str::trim);
    let mut words = body.unwrap_or_default().split_whitespace();
    let implementation = words.next().map(str::to_owned);
    let legal = match words.next() {
        None => Legal::Initialized,
        Some("anytime") => Legal::Anytime,
        Some("plain") => Legal::Plain,
        Some(_) => return Err("after the implementation stands anytime, plain or nothing"),
    };
    Ok(Call {
        stem: stem.to_owned(),
        has_large,
        is_extension,
        result: result.to_owned(),
        arguments,
        implementation,
        legal,
    })
}

/// What stands before the mark, and whether it stands there.
fn marked<'a>(head: &'a str, mark: &str) -> (&'a str, bool) {
    let head = head.trim();
    head.strip_suffix(mark).map_or((head, false), |before| (before.trim(), true))
}

/// `name:kind`, `kind`, or `...`
fn argument(word: &str, kinds: &BTreeMap<String, ArgumentKind>) -> Result<Argument, &'static str> {
    let (name, kind) = match word {
        "..." => ("...", "variadic"),
        word => word.split_once(':').unwrap_or((word, word)),
    };
    if !kinds.contains_key(kind) {
        return Err("an argument's kind is not in kinds.table");
    }
    Ok(Argument { name: name.to_owned(), kind: kind.to_owned() })
}

fn type_of_line(line: &str) -> Result<Type, &'static str> {
    let (word, rest) = line.split_once(' ').ok_or("a type needs a name")?;
    if word == "handle" {
        return Ok(Type::Handle(rest.to_owned()));
    }
    let (name, meaning) = rest.split_once(" = ").ok_or("a type needs a meaning")?;
    let (name, meaning) = (name.to_owned(), meaning.to_owned());
    match word {
        "integer" => Ok(Type::Integer(name, meaning)),
        "record" => Ok(Type::Record(name, meaning)),
        "alias" => Ok(Type::Alias(name, meaning)),
        "words" => Ok(Type::Words(name, meaning)),
        "callback" => {
            let (result, parameters) = meaning.split_once(" (").ok_or("a callback needs parameters")?;
            let parameters = parameters.strip_suffix(')').ok_or("the bracket is not closed")?;
            Ok(Type::Callback(name, result.to_owned(), parameters.to_owned()))
        }
        _ => Err("no such kind of type"),
    }
}

/// `[type]`, `# heading`, and `NAME value`.
fn constants(text: &str) -> Result<Vec<Constant>, ParseError> {
    let mut constants = Vec::new();
    let (mut c_type, mut heading) = (String::new(), None);
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        let error = |what| ParseError { file: "constants.table", line: number, what };
        if let Some(comment) = line.strip_prefix("# ") {
            heading = Some(comment.to_owned());
        } else if let Some(named) = line.strip_prefix('[') {
            c_type = named.trim_end_matches(']').to_owned();
        } else if !line.is_empty() {
            let (name, written) = line.split_once(' ').ok_or_else(|| error("a constant needs a value"))?;
            let value = value(written).ok_or_else(|| error("a value is a decimal or 0x number"))?;
            let (name, written) = (name.to_owned(), written.to_owned());
            constants.push(Constant {
                name,
                c_type: c_type.clone(),
                value,
                written,
                heading: heading.take(),
            });
        }
    }
    Ok(constants)
}

fn value(written: &str) -> Option<i64> {
    match written.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => written.parse().ok(),
    }
}
