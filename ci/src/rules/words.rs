// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No file contains a path of one machine, or the name of a tool that is not part of the project.

use crate::{Finding, Tree};

/// Written in two halves, so that the rule does not find this file.
const WORDS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("mend-", "target-"),
    concat!("fa", "rm-"),
    concat!("cla", "ude"),
    concat!("anth", "ropic"),
    concat!("chat", "gpt"),
    concat!("cop", "ilot"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        for (line, text) in (1..).zip(source.text.lines()) {
            let text = text.to_ascii_lowercase();
            for word in WORDS.iter().filter(|word| text.contains(*word)) {
                let what = format!("'{word}' belongs to one machine or to no part of the project");
                findings.push(Finding { file: source.path.clone(), line, rule: "words", what });
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    #[test]
    fn a_path_of_one_machine_is_found() {
        let text = format!("see {}x/y\nsee docs/y\n", super::WORDS[0]);
        assert_eq!(places(super::check, [("README.md", &*text)]), ["README.md:1"]);
    }
}
