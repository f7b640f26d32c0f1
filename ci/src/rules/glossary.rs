// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One word, one meaning: words that the glossary (`docs/glossary.md`) lists as retired are in no identifier and no comment.
//!
//! The page's table `| retired | used instead |` is the list. A word is retired as a whole part of an identifier (`is_deaf`,
//! `DeafPeer`) and as a whole word of a comment.

use crate::{Finding, Source, Tree};
use std::collections::BTreeMap;

const PAGE: &str = "docs/glossary.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.get(PAGE) else { return Vec::new() };
    let retired = retired(page);
    let code = tree.sources.iter().filter(|source| is_code(&source.path) && !source.path.starts_with("ci/"));
    code.flat_map(|source| of_file(source, &retired)).collect()
}

fn is_code(path: &str) -> bool {
    [".rs", ".c", ".cc", ".h"].iter().any(|ending| path.ends_with(ending))
}

/// Each retired word with what is used instead.
fn retired(page: &Source) -> BTreeMap<&str, &str> {
    let mut table = page.text.lines().skip_while(|line| !line.starts_with("| retired |"));
    let rows = table.by_ref().skip(2).take_while(|line| line.starts_with('|'));
    let mut words = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        if let [old, new] = cells[..] {
            words.extend(old.split(',').map(|word| (word.trim(), new)));
        }
    }
    words
}

fn of_file(source: &Source, retired: &BTreeMap<&str, &str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, (code, comment)) in (1..).zip(source.code.lines().zip(source.comments.lines())) {
        let mut found: Vec<String> =
            parts(code).chain(parts(comment)).filter(|part| retired.contains_key(&**part)).collect();
        found.sort();
        found.dedup();
        findings.extend(found.iter().map(|word| Finding {
            file: source.path.clone(),
            line,
            rule: "glossary",
            what: format!("'{word}' is retired: {} ({PAGE})", retired[&**word]),
        }));
    }
    findings
}

/// The words of a line, and the parts of its identifiers, in lower case.
fn parts(line: &str) -> impl Iterator<Item = String> {
    let words = line.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.flat_map(|word| {
        let mut parts: Vec<String> = Vec::new();
        let mut after_small = true;
        for letter in word.chars() {
            if letter.is_ascii_uppercase() && after_small || parts.is_empty() {
                parts.push(String::new());
            }
            after_small = !letter.is_ascii_uppercase();
            parts.last_mut().into_iter().for_each(|part| part.push(letter.to_ascii_lowercase()));
        }
        parts
    })
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    const GLOSSARY: &str = "# Glossary\n\n| retired | used instead |\n|---|---|\n| deaf | discarding |\n| crank, cranks | progress |\n";

    fn found(text: &str) -> Vec<String> {
        places(super::check, [("docs/glossary.md", GLOSSARY), ("a/src/x.rs", text)])
    }

    #[test]
    fn retired_words_are_found_in_identifiers_and_comments() {
        let text = "fn is_deaf() {}\nstruct DeafPeer;\n// the crank\nconst CRANK: u8 = 0;\n";
        let places: Vec<String> = (1..=4).map(|line| format!("a/src/x.rs:{line}")).collect();
        assert_eq!(found(text), places);
    }

    #[test]
    fn other_words_and_texts_are_left_alone() {
        assert_eq!(found("fn deafening(cranky: u8) {}\nlet x = \"deaf\";\n"), [""; 0]);
    }
}
