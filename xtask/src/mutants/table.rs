// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of mutants, as `xtask/mutants.table` has it.

use crate::place::Place;
use crate::{CommandError, Outcome};

use super::copy;

/// One change of the sources that some test must detect.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Mutant {
    /// One word.
    pub name: String,
    /// The file, from the root of the checkout.
    pub file: String,
    /// What is broken.
    pub rule: String,
    /// The arguments of `cargo test`, after assignments of environment variables.
    pub test: String,
    /// Why it is equivalent, so that no test can detect it.
    pub survives: Option<String>,
    old: String,
    new: String,
}

impl Mutant {
    /// The text of its file with the change.
    pub fn apply(&self, text: &str) -> Outcome<String> {
        match text.matches(&self.old).count() {
            1 => Ok(text.replacen(&self.old, &self.new, 1)),
            number => Err(CommandError(format!(
                "mutant '{}': the text that it replaces is found {number} times in {}, and not once: mend the table",
                self.name, self.file
            ))),
        }
    }
}

/// All mutants, in the order of the table.
pub fn read(place: &Place) -> Outcome<Vec<Mutant>> {
    parse(&copy::read(&place.root.join("xtask/mutants.table"))?)
}

fn parse(text: &str) -> Outcome<Vec<Mutant>> {
    let mut mutants: Vec<Mutant> = Vec::new();
    let (mut file, mut test) = (String::new(), String::new());
    for (number, line) in (1..).zip(text.lines()) {
        let wrong =
            || CommandError(format!("xtask/mutants.table, line {number}: '{line}' is not understood"));
        let last = mutants.last_mut();
        match (line.split_once(' ').unwrap_or((line, "")), last) {
            (("" | "#", _), _) => {}
            (("file", path), _) => path.clone_into(&mut file),
            (("test", words), _) => words.clone_into(&mut test),
            (("mutant", name), _) => mutants.push(Mutant {
                name: name.to_owned(),
                file: file.clone(),
                test: test.clone(),
                ..Mutant::default()
            }),
            (("rule", rule), Some(mutant)) => rule.clone_into(&mut mutant.rule),
            (("survives", why), Some(mutant)) => mutant.survives = Some(why.to_owned()),
            (("-", old), Some(mutant)) => add_line(&mut mutant.old, old),
            (("+", new), Some(mutant)) => add_line(&mut mutant.new, new),
            _ => return Err(wrong()),
        }
    }
    let incomplete = mutants.iter().find(|mutant| {
        [&mutant.name, &mutant.file, &mutant.rule, &mutant.test, &mutant.old]
            .iter()
            .any(|text| text.is_empty())
    });
    match incomplete {
        None => Ok(mutants),
        Some(mutant) => Err(CommandError(format!("mutant '{}' lacks something", mutant.name))),
    }
}

fn add_line(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
}

#[cfg(test)]
mod tests {
    use super::parse;

    const TABLE: &str =
        "# A comment\nfile a.rs\ntest -p a\n\nmutant one\nrule it counts\n- x += 1;\n-     y();\n+ x += 2;\n";

    #[test]
    fn a_mutant_replaces_lines_that_are_found_once_and_no_others() {
        let mutants = parse(TABLE).unwrap();
        let [one] = &mutants[..] else { panic!("one mutant") };
        assert_eq!((&*one.file, &*one.test, &one.survives), ("a.rs", "-p a", &None));
        assert_eq!(one.apply("f();\nx += 1;\n    y();\n").unwrap(), "f();\nx += 2;\n");
        assert!(one.apply("x += 1;\n").is_err());
        assert!(one.apply("x += 1;\n    y();\nx += 1;\n    y();\n").is_err());
    }

    #[test]
    fn a_line_that_is_no_part_of_a_mutant_is_refused() {
        assert!(parse("- x\n").is_err());
        assert!(parse(&format!("{TABLE}old\n")).is_err());
        assert!(parse("file a.rs\nmutant one\nrule r\n- x\n").is_err(), "without a test");
    }
}
