// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parameters. Each component declares its own ([`Parameter`]); the crate that names the components collects them ([`Declared`]).
//! A value comes from one of four places ([`Origin`]); a value that the parameter does not accept is refused.
//!
//! A parameter `component.noun` is `MEND_COMPONENT_NOUN` in the environment, `component.noun = value` in the file and
//! `--mca component.noun value` on the command line (`_` stands for `.`). Precedence: command line > environment >
//! file > default. A value is obeyed or refused, never changed.

use std::collections::BTreeMap;

/// The declaration of one parameter.
#[derive(Debug)]
pub struct Parameter {
    /// `component.noun`.
    pub name: &'static str,
    /// What values it takes.
    pub kind: ParameterKind,
    /// What a number counts; empty for words.
    pub unit: &'static str,
    /// Its value if it is not set.
    pub default: &'static str,
    /// What it does, in one sentence.
    pub description: &'static str,
}

/// What values a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A whole number between two bounds, both included; `k`, `m`, `g` multiply by 2^10, 2^20, 2^30.
    Number(u64, u64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Names from this list, separated by commas; a leading `^` means all but these; empty means all.
    Names(&'static [&'static str]),
    /// Several of these words, separated by commas; empty means none.
    Words(&'static [&'static str]),
    /// Any text, such as a path or names that only a library knows.
    Text,
}

/// The parameters that a set of components declares, component by component.
#[derive(Clone, Copy, Debug)]
pub struct Declared(pub &'static [&'static [Parameter]]);

impl Declared {
    /// Every parameter, by component.
    pub fn iter(self) -> impl Iterator<Item = &'static Parameter> {
        self.0.iter().flat_map(|component| component.iter())
    }

    /// The parameter called `name`, in any spelling: `pml.eager_bytes`, `pml_eager_bytes`, `PML_EAGER_BYTES`.
    pub fn find(self, name: &str) -> Option<&'static Parameter> {
        let wanted = fold(name);
        self.iter().find(|parameter| fold(parameter.name) == wanted)
    }

    fn nearest(self, name: &str) -> Option<&'static str> {
        let wanted = fold(name);
        let nearest = self.iter().min_by_key(|parameter| distance(&fold(parameter.name), &wanted))?;
        (distance(&fold(nearest.name), &wanted) <= wanted.len() / 2).then_some(nearest.name)
    }
}

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The parameter was not set.
    Default,
    /// The parameter file.
    File,
    /// A `MEND_` variable.
    Environment,
    /// `mpiexec --mca`.
    CommandLine,
}

/// The assignments of one origin: parameter names as written there, and values.
pub type Assignments = Vec<(String, String)>;

/// Why a value or a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// No parameter has this name.
    #[error("there is no parameter '{name}'{}", nearest_hint(nearest))]
    Unknown {
        /// As written.
        name: String,
        /// The nearest name that exists.
        nearest: Option<&'static str>,
    },
    /// The parameter does not take this value.
    #[error("parameter {name} does not take '{value}': {wanted}")]
    BadValue {
        /// The parameter.
        name: &'static str,
        /// As written.
        value: String,
        /// What it takes, in words.
        wanted: String,
    },
}

fn nearest_hint(nearest: &Option<&'static str>) -> String {
    nearest.map(|name| format!("; the nearest is '{name}'")).unwrap_or_default()
}

/// The values in force, each with its origin.
#[derive(Clone, Debug)]
pub struct Settings {
    declared: Declared,
    values: BTreeMap<&'static str, (String, Origin)>,
}

impl Settings {
    /// Every declared parameter at its default.
    pub fn new(declared: Declared) -> Self {
        let defaults = declared.iter().map(|row| (row.name, (row.default.to_owned(), Origin::Default)));
        let values = defaults.collect();
        Settings { declared, values }
    }

    /// Applies the assignments of one origin, unless a value of an origin with precedence is set. Every assignment is tried; all
    /// errors are returned together.
    pub fn apply(&mut self, origin: Origin, assignments: &Assignments) -> Result<(), Vec<ParameterError>> {
        let errors: Vec<_> =
            assignments.iter().filter_map(|(name, value)| self.set(origin, name, value).err()).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    fn set(&mut self, origin: Origin, name: &str, value: &str) -> Result<(), ParameterError> {
        let row = self.declared.find(name).ok_or_else(|| ParameterError::Unknown {
            name: name.to_owned(),
            nearest: self.declared.nearest(name),
        })?;
        row.kind.check(value).map_err(|wanted| ParameterError::BadValue {
            name: row.name,
            value: value.to_owned(),
            wanted,
        })?;
        let slot = self.values.get_mut(row.name).expect("Settings have every declared parameter");
        if origin >= slot.1 {
            *slot = (value.to_owned(), origin);
        }
        Ok(())
    }

    /// The value as text, and where it came from. `name` must be declared.
    pub fn text(&self, name: &str) -> (&str, Origin) {
        let (value, origin) = self.values.get(name).expect("a parameter that the code names is declared");
        (value, *origin)
    }

    /// The value of a number parameter.
    pub fn number(&self, name: &str) -> u64 {
        parse_number(self.text(name).0).expect("values are checked when they are set")
    }

    /// Whether the component list `name` lets `component` run.
    pub fn allows(&self, name: &str, component: &str) -> bool {
        let value = self.text(name).0;
        match value.strip_prefix('^') {
            Some(excluded) => !excluded.split(',').any(|word| word == component),
            None => value.is_empty() || value.split(',').any(|word| word == component),
        }
    }

    /// Whether the word list `name` holds `word`.
    pub fn has_word(&self, name: &str, word: &str) -> bool {
        self.text(name).0.split(',').any(|each| each == word)
    }
}

impl ParameterKind {
    fn check(self, value: &str) -> Result<(), String> {
        match self {
            ParameterKind::Number(least, most) => match parse_number(value) {
                Some(number) if (least..=most).contains(&number) => Ok(()),
                _ => Err(format!("a number from {least} to {most} is wanted")),
            },
            ParameterKind::Choice(words) if words.contains(&value) => Ok(()),
            ParameterKind::Choice(words) => Err(format!("one of {} is wanted", words.join(", "))),
            ParameterKind::Names(words) => check_words(words, value.strip_prefix('^').unwrap_or(value)),
            ParameterKind::Words(words) => check_words(words, value),
            ParameterKind::Text => Ok(()),
        }
    }
}

fn check_words(words: &[&str], value: &str) -> Result<(), String> {
    if value.is_empty() || value.split(',').all(|word| words.contains(&word)) {
        return Ok(());
    }
    Err(format!("a list of {} is wanted", words.join(", ")))
}

fn parse_number(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let (digits, shift) = match text.strip_suffix(['k', 'm', 'g']) {
        Some(digits) if text.ends_with('k') => (digits, 10),
        Some(digits) if text.ends_with('m') => (digits, 20),
        Some(digits) => (digits, 30),
        None => (text.as_str(), 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The environment variable of a parameter.
pub fn variable(row: &Parameter) -> String {
    format!("MEND_{}", fold(row.name).to_ascii_uppercase())
}

fn fold(name: &str) -> String {
    name.replace(['.', '-'], "_").to_ascii_lowercase()
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::{Declared, Origin, Parameter, ParameterError, ParameterKind, Settings};

    const DECLARED: Declared = Declared(&[
        &[Parameter {
            name: "btl",
            kind: ParameterKind::Names(&["self", "shm"]),
            unit: "",
            default: "",
            description: "Transports.",
        }],
        &[Parameter {
            name: "pml.eager_bytes",
            kind: ParameterKind::Number(0, 4096),
            unit: "bytes",
            default: "4096",
            description: "Eager limit.",
        }],
    ]);

    fn assigned(name: &str, value: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), value.to_owned())]
    }

    #[test]
    fn the_command_line_wins_over_the_environment_in_either_order() {
        let mut settings = Settings::new(DECLARED);
        settings.apply(Origin::CommandLine, &assigned("pml_eager_bytes", "1k")).unwrap();
        settings.apply(Origin::Environment, &assigned("PML_EAGER_BYTES", "2k")).unwrap();
        assert_eq!(settings.number("pml.eager_bytes"), 1024);
        assert_eq!(settings.text("pml.eager_bytes").1, Origin::CommandLine);
    }

    #[test]
    fn a_choice_is_obeyed_or_refused() {
        let mut settings = Settings::new(DECLARED);
        settings.apply(Origin::Environment, &assigned("btl", "^shm")).unwrap();
        assert!(!settings.allows("btl", "shm"));
        assert!(settings.allows("btl", "self"));
        let refused = settings.apply(Origin::Environment, &assigned("btl", "smh")).unwrap_err();
        assert!(matches!(refused[0], ParameterError::BadValue { name: "btl", .. }));
        let unknown = settings.apply(Origin::Environment, &assigned("pml.eager_byte", "1")).unwrap_err();
        assert!(unknown[0].to_string().contains("pml.eager_bytes"));
    }
}
