// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nothing that a peer, a provider, a launcher or the user can cause panics (Rule 6). A program cannot check causes, but it can
//! check that an author considered them: outside tests `unwrap` is refused, and an `expect` states the invariant, in a sentence
//! of at least four words (or a constant that holds one): `expect("Settings hold every row")`.

use crate::{Finding, Source, Tree};

const WORDS_MIN: usize = 4;

/// Tools for developing the project, examples of crates among them.
const TOOLS: &[&str] = &["ci", "xtask", "examples"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let crates = tree
        .rust()
        .filter(|source| !TOOLS.contains(&source.first_folder()) && !source.path.contains("/examples/"));
    crates
        .flat_map(|source| unwraps(source).into_iter().chain(expects(source)).chain(unreachables(source)))
        .collect()
}

fn outside_tests<'a>(source: &'a Source, what: &'a str) -> impl Iterator<Item = usize> + 'a {
    source.code.match_indices(what).map(|(at, _)| at).filter(|at| !source.is_test(*at))
}

fn unwraps(source: &Source) -> Vec<Finding> {
    let places = outside_tests(source, ".unwrap()").chain(outside_tests(source, ".unwrap_err()"));
    places
        .map(|at| finding(source, at, "`unwrap` outside tests: an error, or an `expect` that says why not"))
        .collect()
}

fn expects(source: &Source) -> Vec<Finding> {
    let places = outside_tests(source, ".expect(").filter(|at| {
        let argument = source.text[at + ".expect(".len()..].trim_start();
        argument.strip_prefix('"').is_some_and(|rest| {
            let message = rest.split('"').next().unwrap_or("");
            message.split_whitespace().count() < WORDS_MIN
        })
    });
    places
        .map(|at| finding(source, at, "an `expect` that does not say, in a sentence, why the value is there"))
        .collect()
}

fn unreachables(source: &Source) -> Vec<Finding> {
    let places = outside_tests(source, "unreachable!()").chain(outside_tests(source, "panic!()"));
    places.map(|at| finding(source, at, "a panic that does not say why it cannot happen")).collect()
}

fn finding(source: &Source, at: usize, what: &str) -> Finding {
    Finding { file: source.path.clone(), line: source.line_of(at), rule: "panics", what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    #[test]
    fn panics_without_an_invariant_are_found() {
        let text = "fn f() {\n    a.unwrap();\n    b.expect(\"table holds every row\");\n    c.expect(\"no c\");\n    \
                    d.expect(WHY);\n    btl.expect(way, true);\n    unreachable!();\n    e.expect(\n        \"said on the next line\",\n    );\n    \
                    g.unwrap_or(1);\n}\n#[cfg(test)]\nmod tests {\n    fn f() { a.unwrap() }\n}\n";
        assert_eq!(
            places(super::check, [("a/src/x.rs", text)]),
            ["a/src/x.rs:2", "a/src/x.rs:4", "a/src/x.rs:7"]
        );
        assert_eq!(places(super::check, [("tests/src/x.rs", text)]), [""; 0]);
    }
}
