// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The code has no unfinished parts: no marks of unfinished work, no macros for it, no tests that do not run. (Plans are issues.)
//! A test that is too long for the suite names the soak that runs it:
//! `#[ignore = "a long run: cargo soak NAME"]`.

use crate::{Finding, Source, Tree, source};

/// Written in two halves, so that the rule does not find this file.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const MACROS: &[&str] = &["todo!", "unimplemented!", "dbg!"];
const NOT_RUN: &str = concat!("#[ig", "nore");
const BY_SOAK: &str = " = \"a long run: cargo soak ";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let code = tree.sources.iter().filter(|source| !source.path.ends_with(".md"));
    code.flat_map(|source| marks(source).into_iter().chain(macros(source))).collect()
}

fn marks(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(source.text.lines()) {
        for mark in MARKS.iter().filter(|mark| source::has_word(line, mark)) {
            findings.push(finding(
                source,
                number,
                format!("'{mark}' in the code; what comes later is an issue"),
            ));
        }
    }
    findings
}

fn macros(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in MACROS {
        let bare = name.trim_end_matches('!');
        let uses = source.words(bare).filter(|at| source.code[*at..].starts_with(name));
        findings.extend(
            uses.map(|at| finding(source, source.line_of(at), format!("`{name}` is left in the code"))),
        );
    }
    let ignored = source
        .code
        .match_indices(NOT_RUN)
        .filter(|(at, _)| !source.text[at + NOT_RUN.len()..].starts_with(BY_SOAK));
    findings.extend(
        ignored.map(|(at, _)| finding(source, source.line_of(at), "a test that does not run".to_owned())),
    );
    findings
}

fn finding(source: &Source, line: usize, what: String) -> Finding {
    Finding { file: source.path.clone(), line, rule: "leftovers", what }
}

#[cfg(test)]
mod tests {
    use super::{BY_SOAK, MARKS, NOT_RUN};
    use crate::rules::places;

    #[test]
    fn unfinished_work_is_found() {
        let text = format!(
            "// {}: later\nfn f() {{ todo!() }}\n{NOT_RUN}]\nfn g() {{ \"todo!\"; my_todo() }}\n",
            MARKS[0]
        );
        assert_eq!(places(super::check, [("a.rs", &*text)]), ["a.rs:1", "a.rs:2", "a.rs:3"]);
        assert_eq!(places(super::check, [("a.md", &*text)]), [""; 0]);
        let long = format!("{NOT_RUN}{BY_SOAK}jobs\"]\nfn f() {{}}\n");
        assert_eq!(places(super::check, [("a.rs", &*long)]), [""; 0]);
    }
}
