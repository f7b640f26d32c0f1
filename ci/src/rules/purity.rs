// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protocols, matching, schedules, packing, communicators and the node daemon's decisions read no clock, no environment and no
//! randomness, and do no I/O (Rule 2), so that the production code runs in the simulator. Below `world` there are no globals
//! (Rule 5).

use crate::{Finding, Source, Tree};

const PURE: &[&str] = &["base", "proto", "pml", "coll", "datatype", "comm", "daemon"];
const IMPURE: &[&str] = &[
    "std::time",
    "std::env",
    "std::fs",
    "std::net",
    "std::io",
    "std::process",
    "std::thread",
    "SystemTime",
    "rand",
    "getrandom",
    "println",
    "eprintln",
    "rustix",
    "libc",
];

/// Folders of crates at and above the one engine of a process.
const MAY_HAVE_GLOBALS: &[&str] = &["world", "abi", "launch", "xtask", "ci", "examples"];
const CELLS: &[&str] =
    &["Atomic", "Mutex", "RwLock", "OnceLock", "LazyLock", "OnceCell", "RefCell", "Cell<", "UnsafeCell"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let pure = tree.rust().filter(|source| PURE.contains(&source.first_folder())).flat_map(reads);
    let global =
        tree.rust().filter(|source| !MAY_HAVE_GLOBALS.contains(&source.first_folder())).flat_map(globals);
    pure.chain(global).collect()
}

fn reads(source: &Source) -> Vec<Finding> {
    let all = IMPURE.iter().flat_map(|word| source.words(word).map(move |at| (at, word)));
    let outside_tests = all.filter(|(at, _)| !source.is_test(*at));
    outside_tests
        .map(|(at, word)| finding(source, at, format!("`{word}` in a crate without a clock or I/O (Rule 2)")))
        .collect()
}

fn globals(source: &Source) -> Vec<Finding> {
    let statics = source.words("static").filter(|at| !source.is_test(*at)).filter(|at| {
        let before = source.code[..*at].trim_end();
        let declaration = source.code[*at..].split(['=', ';']).next().unwrap_or("");
        // Not the lifetime `'static`.
        !before.ends_with('\'') && CELLS.iter().any(|cell| declaration.contains(cell))
    });
    let findings = statics.filter(|at| !has_excuse(source, *at));
    findings
        .map(|at| finding(source, at, "a global that can change, below `world` (Rule 5)".to_owned()))
        .collect()
}

/// Whether the comment before a global says that it is not state of an engine (a tally of tests, for instance).
fn has_excuse(source: &Source, at: usize) -> bool {
    let line = source.line_of(at);
    let mut comments = source.comment_lines().filter(|(start, _)| source.line_of(*start) + 1 == line);
    comments.any(|(_, comment)| comment.contains("Not state of an engine"))
}

fn finding(source: &Source, at: usize, what: String) -> Finding {
    Finding { file: source.path.clone(), line: source.line_of(at), rule: "purity", what }
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    #[test]
    fn clocks_and_globals_are_found_where_they_must_not_be() {
        let text = "use std::time::Instant;\nfn f(x: &'static str) { operand(rand) }\nstatic COUNT: AtomicU32 = X;\n\
                    static NAMES: &[&str] = &[];\n// Not state of an engine: a tally.\nstatic T: AtomicU32 = X;\n";
        assert_eq!(
            places(super::check, [("pml/src/x.rs", text)]),
            ["pml/src/x.rs:1", "pml/src/x.rs:2", "pml/src/x.rs:3"]
        );
        assert_eq!(places(super::check, [("runtime/src/x.rs", text)]), ["runtime/src/x.rs:3"]);
        assert_eq!(places(super::check, [("world/src/x.rs", text)]), [""; 0]);
    }
}
