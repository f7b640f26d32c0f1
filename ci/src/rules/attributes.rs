// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lint is silenced with a reason, or not at all; generated files are exempt.

use crate::source::closing;
use crate::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.rust().filter(|source| !source.is_generated()) {
        for name in ["allow(", "expect("] {
            let attributes = source.code.match_indices(name).filter(|(at, _)| {
                let before = &source.code[..*at];
                before.ends_with("#[") || before.ends_with("#![") || is_in_cfg_attr(before)
            });
            for (at, _) in attributes {
                let end = closing(&source.code, at + name.len() - 1).unwrap_or(source.code.len());
                if !source.code[at..end].contains("reason =") {
                    let what = format!("`#[{name}...)]` without a reason");
                    findings.push(Finding {
                        file: source.path.clone(),
                        line: source.line_of(at),
                        rule: "attributes",
                        what,
                    });
                }
            }
        }
    }
    findings
}

/// Whether the position is inside an attribute `cfg_attr(`.
fn is_in_cfg_attr(before: &str) -> bool {
    before
        .rfind("#[")
        .is_some_and(|at| before[at..].contains("cfg_attr(") && closing(before, at + 1).is_none())
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    #[test]
    fn a_lint_silenced_without_a_reason_is_found() {
        let text = "#![allow(unsafe_code, reason = \"it holds it\")]\n#[allow(dead_code)]\nfn f() {}\n\
                    #[expect(\n    unused,\n    reason = \"(so)\"\n)]\nfn g() { x.expect(\"a reason of another kind\") }\n\
                    #[cfg_attr(test, allow(dead_code))]\nfn h() {}\n";
        assert_eq!(places(super::check, [("a.rs", text)]), ["a.rs:2", "a.rs:9"]);
    }
}
