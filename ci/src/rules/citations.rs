// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Citations in comments have a target: `Rule 7`, `I2`, `R-35`, `Trap 6`, `X-8.3` and `design "Heading"` are stated in
//! `docs/dev/design.md`. Documents that are not in the repository are not cited.

use crate::{Finding, Source, Tree};
use std::collections::BTreeSet;

const PAGE: &str = "docs/dev/design.md";

/// Invariants are numbered I1 to I10; I16 and above are integer types.
const LAST_INVARIANT: u32 = 10;

/// Written in two halves, so that the rule does not find this file.
const ABSENT: &[&str] = &[
    concat!("DESIGN", " section"),
    concat!("DESIGN", " rule"),
    concat!("fac", "ts 1"),
    concat!("fac", "ts 5"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.get(PAGE) else { return Vec::new() };
    let targets = targets(page);
    let mut findings = Vec::new();
    for source in
        tree.sources.iter().filter(|source| is_code(&source.path) && !source.path.starts_with("ci/"))
    {
        for (at, comment) in source.comment_lines() {
            let unknown = citations(comment).into_iter().filter(|cited| !targets.contains(cited));
            let unknown = unknown.map(|cited| format!("'{cited}' does not stand in {PAGE}"));
            let absent = ABSENT.iter().filter(|words| comment.contains(**words));
            let absent =
                absent.map(|words| format!("'{words}' names a document that the repository does not have"));
            findings.extend(unknown.chain(absent).map(|what| finding(source, at, what)));
        }
    }
    findings
}

fn is_code(path: &str) -> bool {
    [".rs", ".c", ".cc", ".h"].iter().any(|ending| path.ends_with(ending))
}

fn finding(source: &Source, at: usize, what: String) -> Finding {
    Finding { file: source.path.clone(), line: source.line_of(at), rule: "citations", what }
}

/// The targets on the page: the bold beginnings of its items, and its headings.
fn targets(page: &Source) -> BTreeSet<String> {
    let mut targets = BTreeSet::new();
    for line in page.text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            targets.insert(format!("design \"{}\"", heading.trim()));
        } else if let Some((bold, _)) = line.strip_prefix("* **").and_then(|rest| rest.split_once("**")) {
            targets.insert(bold.trim_end_matches('.').to_owned());
        }
    }
    targets
}

/// The citations in one line of a comment.
fn citations(comment: &str) -> Vec<String> {
    let words: Vec<&str> = comment.split(|c: char| c.is_whitespace() || "(),;:[]`".contains(c)).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let mut cited = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let word = word.trim_end_matches('.');
        match word {
            "Rule" | "Trap" => cited.extend(number(words.get(at + 1)).map(|n| format!("{word} {n}"))),
            "Rules" => cited.extend(
                words[at + 1..].iter().map_while(|next| number(Some(next))).map(|n| format!("Rule {n}")),
            ),
            _ if is_promise(word) || is_interleaving(word) || is_invariant(word) => {
                cited.push(word.to_owned())
            }
            _ => {}
        }
    }
    cited.extend(comment.split("design \"").skip(1).filter_map(|rest| {
        let (heading, _) = rest.split_once('"')?;
        Some(format!("design \"{heading}\""))
    }));
    cited
}

fn number(word: Option<&&str>) -> Option<u32> {
    word?.trim_end_matches('.').parse().ok()
}

fn is_promise(word: &str) -> bool {
    word.strip_prefix("R-").is_some_and(|rest| rest.parse::<u32>().is_ok())
}

fn is_interleaving(word: &str) -> bool {
    let parts = word.strip_prefix("X-").and_then(|rest| rest.split_once('.'));
    parts.is_some_and(|(chapter, number)| chapter.parse::<u32>().is_ok() && number.parse::<u32>().is_ok())
}

fn is_invariant(word: &str) -> bool {
    let number = word.strip_prefix('I').and_then(|rest| rest.parse::<u32>().ok());
    number.is_some_and(|number| (1..=LAST_INVARIANT).contains(&number))
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    const DESIGN: &str =
        "## Context ids\n* **Rule 7.** a\n* **I2** b\n* **R-35** c\n* **X-8.3** d\n* **Trap 6** e\n";

    fn found(text: &str) -> Vec<String> {
        places(super::check, [("docs/dev/design.md", DESIGN), ("a/src/x.rs", text)])
    }

    #[test]
    fn a_citation_with_a_target_is_left_alone() {
        let text = "// Rule 7, I2 (R-35), Trap 6: X-8.3; design \"Context ids\".\nfn f(a: I64) {}\n// Rules 7. The rule of I64.\n";
        assert_eq!(found(text), [""; 0]);
    }

    #[test]
    fn a_citation_without_a_target_is_found() {
        let text = "// Rule 8\n// I3\n// R-1\n// Trap 7\n// X-1.1\n// design \"Nothing\"\n// Rules 7, 9\nlet x = \"Rule 8\";\n";
        let places: Vec<String> = (1..=7).map(|line| format!("a/src/x.rs:{line}")).collect();
        assert_eq!(found(text), places);
    }

    #[test]
    fn a_document_that_is_not_in_the_repository_is_found() {
        let text = format!("// see {} 4\n", super::ABSENT[0]);
        assert_eq!(found(&text), ["a/src/x.rs:1"]);
    }
}
