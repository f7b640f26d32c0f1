// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every relative link of a page has a file or folder of the project as its target, and its `#part` a heading of that page. Every
//! page of the manual is in `docs/SUMMARY.md`. Every page `docs/….md` that any file names exists.

use crate::{Finding, Source, Tree};

const MANUAL: &str = "docs/";
const SUMMARY: &str = "docs/SUMMARY.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let pages = || tree.sources.iter().filter(|source| source.path.ends_with(".md"));
    let mut findings: Vec<_> = pages().flat_map(|page| of_page(page, tree)).collect();
    findings.extend(unlisted(tree));
    let others = tree.sources.iter().filter(|source| source.first_folder() != "ci");
    findings.extend(others.flat_map(|source| named(source, tree)));
    findings
}

fn finding(source: &Source, line: usize, what: String) -> Finding {
    Finding { file: source.path.clone(), line, rule: "links", what }
}

fn of_page(page: &Source, tree: &Tree) -> Vec<Finding> {
    let wrong = links(page).filter_map(|(line, link)| {
        let why = broken(page, link, tree)?;
        Some(finding(page, line, format!("the link '{link}' {why}")))
    });
    wrong.collect()
}

/// Targets of `[text](target)` without a scheme, outside of code.
fn links(page: &Source) -> impl Iterator<Item = (usize, &str)> {
    let targets = prose(page).flat_map(|(line, text)| {
        text.split("](").skip(1).filter_map(move |rest| Some((line, rest.split(')').next()?)))
    });
    targets.filter(|(_, target)| !target.contains("://"))
}

/// The lines outside blocks of code.
fn prose(page: &Source) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    (1..).zip(page.text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// Why a link has no target.
fn broken(page: &Source, link: &str, tree: &Tree) -> Option<&'static str> {
    let (target, part) = link.split_once('#').map_or((link, None), |(target, part)| (target, Some(part)));
    let path = if target.is_empty() { Some(page.path.clone()) } else { resolve(&page.path, target) };
    let Some(path) = path else { return Some("leads out of the project") };
    let folder = format!("{}/", path.trim_end_matches('/'));
    match (tree.get(&path), part) {
        (Some(to), Some(part)) if !headings(to).any(|heading| heading == part) => {
            Some("names no heading of that page")
        }
        (Some(_), _) => None,
        (None, _) if tree.sources.iter().any(|source| source.path.starts_with(&folder)) => None,
        (None, _) => Some("leads to no file"),
    }
}

/// `target` as seen from `page`, relative to the project's root; `None` if it leads out of the project.
fn resolve(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<_> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The names that browsers give to the headings of a page: lower case, blanks as `-`, other marks dropped.
fn headings(page: &Source) -> impl Iterator<Item = String> {
    let titles = prose(page).filter(|(_, line)| line.starts_with('#'));
    titles.map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let name = title.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        name.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// Pages of the manual that its table of contents does not have.
fn unlisted(tree: &Tree) -> Vec<Finding> {
    let Some(summary) = tree.get(SUMMARY) else { return Vec::new() };
    let listed: Vec<_> = links(summary).filter_map(|(_, link)| resolve(SUMMARY, link)).collect();
    let pages = tree
        .sources
        .iter()
        .filter(|page| page.path.starts_with(MANUAL) && page.path.ends_with(".md") && page.path != SUMMARY);
    let missing = pages.filter(|page| !listed.contains(&page.path));
    missing.map(|page| finding(page, 1, format!("{SUMMARY} does not list this page"))).collect()
}

/// Pages that a text names by their whole path and that do not exist.
fn named(source: &Source, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(source.text.lines()) {
        for (at, _) in text.match_indices(MANUAL) {
            // Links of pages are checked above, and `share/docs/` is not in the project.
            if text[..at].ends_with(['/', '(']) {
                continue;
            }
            let path: String =
                text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || "/-_.".contains(*c)).collect();
            let Some(end) = path.find(".md") else { continue };
            let path = &path[..end + ".md".len()];
            if tree.get(path).is_none() {
                findings.push(finding(source, line, format!("there is no page '{path}'")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    fn found(text: &str) -> Vec<String> {
        let page = format!("{text}\n\n## A heading, with marks\n");
        let files = [
            ("docs/SUMMARY.md", "* [One](one.md)\n* [Two](dev/two.md)\n"),
            ("docs/dev/two.md", "# Two\n"),
            ("examples/a.c", "int main;\n"),
            ("docs/one.md", &*page),
        ];
        places(super::check, files)
    }

    #[test]
    fn links_with_a_target_are_accepted() {
        let good = "[a](dev/two.md) [b](../examples/a.c) [c](../examples) [d](https://x.y/z) [e](dev/two.md#two)\n\
                    [f](#a-heading-with-marks)\n```c\nf[i](nowhere);\n```\n";
        assert_eq!(found(good), [""; 0]);
    }

    #[test]
    fn links_without_a_target_are_found() {
        assert_eq!(found("[a](two.md)"), ["docs/one.md:1"]);
        assert_eq!(found("good\n[a](dev/two.md#three)"), ["docs/one.md:2"]);
        assert_eq!(found("[a](#nothing)"), ["docs/one.md:1"]);
        assert_eq!(found("[a](../../outside.md)"), ["docs/one.md:1"]);
    }

    #[test]
    fn a_page_that_the_table_of_contents_does_not_list_is_found() {
        let files = [("docs/SUMMARY.md", "* [One](one.md)\n"), ("docs/one.md", ""), ("docs/two.md", "")];
        assert_eq!(places(super::check, files), ["docs/two.md:1"]);
    }

    #[test]
    fn a_page_that_code_names_and_that_does_not_exist_is_found() {
        let code = "// docs/one.md is there.\n// See docs/two.md.\n";
        let files = [("docs/one.md", ""), ("a/src/x.rs", code)];
        assert_eq!(places(super::check, files), ["a/src/x.rs:2"]);
    }
}
