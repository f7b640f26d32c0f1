// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of semantics, `docs/dev/semantics.md`, agrees with the code: `| id | rule | state | test |`.
//!
//! A row that `works` names a test, `path` or `path::name`, which exists and cites the row (`// Row PP7`, in Rust and in
//! C). A row for `later` names the work with which it comes, and one that is `not` done says why. A citation names a row that
//! exists, and a test cites no row that is `not` done.

use crate::{Finding, Source, Tree};
use std::collections::BTreeMap;

const PAGE: &str = "docs/dev/semantics.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.get(PAGE) else { return Vec::new() };
    let rows = table(page);
    let cited = citations(tree);
    let mut findings = duplicates(&rows);
    findings.extend(rows.iter().flat_map(|row| of_row(row, tree, &cited)));
    findings.extend(cited.iter().filter_map(|citation| of_citation(citation, &rows)));
    findings
}

/// How many rows the table has.
pub fn count(tree: &Tree) -> usize {
    tree.get(PAGE).map_or(0, |page| table(page).len())
}

/// How many rows work, come later, are not done, and are cited anywhere.
pub fn summary(tree: &Tree) -> String {
    let Some(page) = tree.get(PAGE) else { return "no table of semantics".to_owned() };
    let rows = table(page);
    let count = |state| rows.iter().filter(|row| row.state == state).count();
    let cited = citations(tree);
    let coded = rows.iter().filter(|row| cited.iter().any(|each| each.id == row.id && !each.in_test)).count();
    let tested = rows.iter().filter(|row| cited.iter().any(|each| each.id == row.id && each.in_test)).count();
    format!(
        "{} rows: {} work, {} later, {} not; {coded} cited by code, {tested} by tests",
        rows.len(),
        count("works"),
        count("later"),
        count("not")
    )
}

struct Row<'a> {
    line: usize,
    id: &'a str,
    rule: &'a str,
    state: &'a str,
    test: &'a str,
}

struct Citation<'a> {
    id: &'a str,
    file: &'a str,
    line: usize,
    in_test: bool,
}

fn table(page: &Source) -> Vec<Row<'_>> {
    let lines = (1..).zip(page.text.lines());
    let rows = lines.filter_map(|(line, text)| {
        let cells: Vec<_> =
            text.trim().strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
        let [id, rule, state, test] = cells[..] else { return None };
        is_id(id).then_some(Row { line, id, rule, state, test })
    });
    rows.collect()
}

/// Two capital letters and a number.
fn is_id(word: &str) -> bool {
    let letters = word.chars().take_while(char::is_ascii_uppercase).count();
    letters == 2 && word.len() > 2 && word[2..].chars().all(|c| c.is_ascii_digit())
}

/// Every `Row XX9` and `Rows XX9, XX10` in a comment.
fn citations(tree: &Tree) -> Vec<Citation<'_>> {
    let code = tree.sources.iter().filter(|source| source.first_folder() != "ci");
    let mut all = Vec::new();
    for source in code.filter(|source| source.path.ends_with(".rs") || is_c(&source.path)) {
        for (at, comment) in source.comment_lines() {
            let (file, line) = (source.path.as_str(), source.line_of(at));
            let in_test = source.is_test(at) || is_c(&source.path);
            all.extend(ids(comment).map(|id| Citation { id, file, line, in_test }));
        }
    }
    all
}

fn is_c(path: &str) -> bool {
    [".c", ".cc", ".h", ".cpp"].iter().any(|ending| path.ends_with(ending))
}

/// The ids that follow the word Row or Rows.
fn ids(comment: &str) -> impl Iterator<Item = &str> {
    let after = comment.match_indices("ow").filter_map(|(at, _)| {
        let named = at > 0 && comment[..at].ends_with(['R', 'r']);
        named.then(|| comment[at + 2..].trim_start_matches('s'))
    });
    after.flat_map(|text| {
        let words = text
            .split([' ', ',', ';', '.', ':', ')', '(', '`'])
            .filter(|word| !word.is_empty() && *word != "and");
        words.take_while(|word| is_id(word))
    })
}

fn duplicates(rows: &[Row<'_>]) -> Vec<Finding> {
    let mut seen = BTreeMap::new();
    let twice = rows.iter().filter(|row| seen.insert(row.id, row.line).is_some());
    twice.map(|row| finding(PAGE, row.line, format!("{} stands twice", row.id))).collect()
}

fn of_row(row: &Row<'_>, tree: &Tree, cited: &[Citation<'_>]) -> Vec<Finding> {
    let finding = |what: String| vec![finding(PAGE, row.line, format!("{}: {what}", row.id))];
    if row.rule.is_empty() {
        return finding("says no rule".to_owned());
    }
    match row.state {
        "works" => row.test.split([' ', ',']).filter(|test| !test.is_empty()).fold(
            if row.test.is_empty() { finding("works, and names no test".to_owned()) } else { Vec::new() },
            |mut all, test| {
                let test = test.trim_matches('`');
                all.extend(wrong_with_test(row.id, test, tree, cited).into_iter().flat_map(finding));
                all
            },
        ),
        "later" | "not" if row.test.is_empty() => {
            finding(format!("is '{}' without saying with what, or why", row.state))
        }
        "later" | "not" => Vec::new(),
        other => finding(format!("'{other}' is no state: works, later, not")),
    }
}

fn wrong_with_test(id: &str, test: &str, tree: &Tree, cited: &[Citation<'_>]) -> Option<String> {
    let (path, name) = test.split_once("::").unwrap_or((test, ""));
    let Some(source) = tree.get(path) else {
        return Some(format!("its test's file '{path}' does not exist"));
    };
    if !source.text.contains(name) {
        return Some(format!("'{path}' has no test '{name}'"));
    }
    let cites = cited.iter().any(|citation| citation.id == id && citation.file == path && citation.in_test);
    (!cites).then(|| format!("its test '{test}' does not cite it"))
}

fn of_citation(citation: &Citation<'_>, rows: &[Row<'_>]) -> Option<Finding> {
    let what = match rows.iter().find(|row| row.id == citation.id) {
        None => format!("'{}' is no row of {PAGE}", citation.id),
        Some(row) if row.state == "not" && citation.in_test => {
            format!("a test of {}, which the table says is not done", row.id)
        }
        Some(_) => return None,
    };
    Some(finding(citation.file, citation.line, what))
}

fn finding(file: &str, line: usize, what: String) -> Finding {
    Finding { file: file.to_owned(), line, rule: "rows", what }
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    const TABLE: &str = "| id | rule | state | test |\n|---|---|---|---|\n| PP1 | a | works | tests/c/a.c |\n\
                         | PP2 | b | works | a/src/x.rs::a_true_sentence |\n| PP3 | c | later | deaths |\n| PP4 | d | not | nobody asks |\n";

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let table = [("docs/dev/semantics.md", TABLE)];
        places(super::check, table.into_iter().chain(files.iter().copied()))
    }

    #[test]
    fn a_table_and_code_that_agree_are_accepted() {
        let rust = "// Row PP3\n#[test]\n// Row PP2\nfn a_true_sentence() {}\n#[cfg(test)]\nmod t {\n    // See rows PP2, PP3 and PP1.\n}\n";
        assert_eq!(found(&[("tests/c/a.c", "/* Row PP1: so */\n"), ("a/src/x.rs", rust)]), [""; 0]);
    }

    #[test]
    fn where_they_differ_both_sides_are_found() {
        let rust = "#[cfg(test)]\nmod t {\n    // Row PP9\n    // Row PP4\n    fn another() {}\n}\n";
        let places = found(&[("tests/c/a.c", "int main;\n"), ("a/src/x.rs", rust)]);
        assert_eq!(
            places,
            ["docs/dev/semantics.md:3", "docs/dev/semantics.md:4", "a/src/x.rs:3", "a/src/x.rs:4"]
        );
    }

    #[test]
    fn a_row_says_its_state_and_once() {
        let table = "| PP1 | a | perhaps | x |\n| PP1 | a | later |  |\n";
        let places = places(super::check, [("docs/dev/semantics.md", table)]);
        assert_eq!(places, ["docs/dev/semantics.md:2", "docs/dev/semantics.md:1", "docs/dev/semantics.md:2"]);
    }
}
