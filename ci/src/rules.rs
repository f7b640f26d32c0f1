// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules, one file each: what the rule requires, why, and an example that breaks it.

mod attributes;
mod circles;
mod citations;
mod dependencies;
mod exports;
mod glossary;
mod header;
mod hot;
mod leftovers;
mod links;
mod names;
mod panics;
mod purity;
pub mod rows;
mod size;
mod sleeps;
mod sync;
mod unsafety;
mod words;

use crate::{Finding, Tree};

/// Checks every rule on `tree`, and returns the findings in the order of the files.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<_> = ALL.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort();
    findings
}

/// A rule: returns the places in a tree that break it.
type Rule = fn(&Tree) -> Vec<Finding>;

const ALL: &[Rule] = &[
    attributes::check,
    circles::check,
    citations::check,
    dependencies::check,
    exports::check,
    glossary::check,
    header::check,
    hot::check,
    leftovers::check,
    links::check,
    names::check,
    panics::check,
    purity::check,
    rows::check,
    size::check,
    sleeps::check,
    sync::check,
    unsafety::check,
    words::check,
];

/// For tests of the rules: the findings of `rule` in these files, as `file:line`.
#[cfg(test)]
fn places<'a>(rule: Rule, texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let findings = rule(&Tree::from_texts(texts));
    findings.iter().map(|finding| format!("{}:{}", finding.file, finding.line)).collect()
}
