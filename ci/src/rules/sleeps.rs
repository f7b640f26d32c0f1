// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No test sleeps to wait for something: it waits for the condition, and a watchdog ends tests that hang. Where time itself is
//! tested (a sleeping rank must not use a processor), `// Sleeps: why` on one of the three lines before gives the reason.

use crate::{Finding, Source, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust().flat_map(of_file).collect()
}

fn of_file(source: &Source) -> Vec<Finding> {
    let sleeps = source.code.match_indices("thread::sleep").filter(|(at, _)| source.is_test(*at));
    let unsaid = sleeps.filter(|(at, _)| !says_why(source, source.line_of(*at)));
    unsaid
        .map(|(at, _)| Finding {
            file: source.path.clone(),
            line: source.line_of(at),
            rule: "sleeps",
            what: "a test sleeps; it should wait for a condition, or say `// Sleeps: why`".to_owned(),
        })
        .collect()
}

fn says_why(source: &Source, line: usize) -> bool {
    let mut comments = source.comment_lines().filter(|(_, comment)| comment.contains("Sleeps: "));
    comments.any(|(at, _)| (source.line_of(at)..=source.line_of(at) + 3).contains(&line))
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    #[test]
    fn a_test_that_sleeps_without_saying_why_is_found() {
        let text = "use std::thread;\n#[cfg(test)]\nmod tests {\n    fn a() { thread::sleep(x) }\n    // Sleeps: its processor time is measured.\n    fn b() { thread::sleep(x) }\n}\n";
        assert_eq!(places(super::check, [("a/src/x.rs", text)]), ["a/src/x.rs:4"]);
        assert_eq!(places(super::check, [("a/src/x.rs", "fn a() { std::thread::sleep(x) }")]), [""; 0]);
    }
}
