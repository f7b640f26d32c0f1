// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file's name tells its content, and a test's name is a sentence of at least three words.

use crate::{Finding, Source, Tree};

/// Names that tell nothing about the content, and `mod`.
const EMPTY: &[&str] = &["mod", "util", "utils", "common", "misc", "prelude", "helpers"];
const WORDS_MIN: usize = 3;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let rust = tree.rust().filter(|source| !source.is_generated());
    rust.flat_map(|source| file(source).into_iter().chain(tests(source))).collect()
}

fn file(source: &Source) -> Option<Finding> {
    let stem = source.path.rsplit('/').next()?.strip_suffix(".rs")?;
    let what = format!("a file called '{stem}' does not say what is in it");
    EMPTY.contains(&stem).then(|| finding(source, 1, what))
}

fn tests(source: &Source) -> Vec<Finding> {
    let attributes = source.code.match_indices("#[test]").map(|(at, _)| at);
    let named = attributes.filter_map(|at| {
        let name = source.code[at..].split_once("fn ")?.1.split('(').next()?;
        Some((source.line_of(at), name))
    });
    let short = named.filter(|(_, name)| !name.contains('$') && name.split('_').count() < WORDS_MIN);
    short
        .map(|(line, name)| finding(source, line, format!("a test called `{name}` is no sentence")))
        .collect()
}

fn finding(source: &Source, line: usize, what: String) -> Finding {
    Finding { file: source.path.clone(), line, rule: "names", what }
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    #[test]
    fn a_name_that_says_nothing_is_found() {
        let text = "#[test]\nfn it_works() {}\n#[test]\n#[should_panic]\nfn a_stale_key_is_refused() {}\n";
        assert_eq!(
            places(super::check, [("a/src/key.rs", text), ("a/src/util.rs", "")]),
            ["a/src/key.rs:1", "a/src/util.rs:1"]
        );
    }
}
