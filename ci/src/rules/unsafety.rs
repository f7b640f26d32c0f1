// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unsafe` only where Rule 4 permits it; every other crate forbids it in its first lines.

use crate::{Finding, Source, Tree};

/// Folders and files that may contain it, by the beginning of their path: code that shares memory, drives devices, calls C, or
/// forks; access to the user's memory; test programs that act as broken peers; and the fabric shim, which stands in for a C library.
const PERMITTED: &[&str] = &[
    "segment/",
    "ffi-",
    "btl-verbs/",
    "btl-ofi/",
    "world/",
    "abi/",
    "launch/src/spawn",
    "transport/src/memory.rs",
    "tests/",
    "bench/",
];

/// Crates that forbid it except in such a file, and therefore say `deny`.
const PARTLY: &[&str] = &["launch", "transport"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let uses = tree.rust().filter(|source| !may(&source.path)).flat_map(uses);
    let roots = tree.rust().filter(|source| is_root(source) && !may(&source.path)).filter_map(root);
    uses.chain(roots).collect()
}

fn may(path: &str) -> bool {
    PERMITTED.iter().any(|prefix| path.starts_with(prefix)) || path.contains("/tests/")
}

fn uses(source: &Source) -> impl Iterator<Item = Finding> {
    source.words("unsafe").map(|at| Finding {
        file: source.path.clone(),
        line: source.line_of(at),
        rule: "unsafe",
        what: "`unsafe` outside its crates (Rule 4)".to_owned(),
    })
}

fn is_root(source: &Source) -> bool {
    let in_crate = source.path.split_once('/').map_or("", |(_, rest)| rest);
    in_crate == "src/lib.rs" || in_crate == "src/main.rs"
}

fn root(source: &Source) -> Option<Finding> {
    let wanted = if PARTLY.contains(&source.first_folder()) {
        "#![deny(unsafe_code)]"
    } else {
        "#![forbid(unsafe_code)]"
    };
    let says = source.code.contains(wanted) || source.code.contains("#![forbid(unsafe_code)]");
    let what = format!("a crate that needs no `unsafe` says `{wanted}`");
    (!says).then(|| Finding { file: source.path.clone(), line: 1, rule: "unsafe", what })
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    #[test]
    fn unsafe_outside_its_crates_is_found_and_similar_words_are_not() {
        let files = [
            ("pml/src/lib.rs", "#![forbid(unsafe_code)]\nfn f() {}\n// unsafe\n"),
            ("coll/src/lib.rs", "fn f() {}\n"),
            ("comm/src/group.rs", "\nfn f() { unsafe { g() } }\n"),
            ("segment/src/ring.rs", "unsafe { g() }\n"),
            ("transport/src/memory.rs", "unsafe { g() }\n"),
            ("transport/src/lib.rs", "#![deny(unsafe_code)]\n"),
        ];
        assert_eq!(places(super::check, files), ["comm/src/group.rs:2", "coll/src/lib.rs:1"]);
    }
}
