// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A function marked `// Hot: ...` allocates nothing, formats nothing, takes no lock, has no fence and calls through no
//! `dyn` (Rule 9). Only the function's own text is checked; functions that it calls must be marked too, or be cold.

use crate::{Finding, Function, Source, Tree};

const FORBIDDEN: &[&str] = &[
    "Box::new",
    "Arc::new",
    "Rc::new",
    "vec![",
    "format!",
    ".to_vec()",
    ".to_owned()",
    ".to_string()",
    "String::from",
    ".collect()",
    "println!",
    ".lock()",
    "dyn ",
    "fence(",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust().flat_map(of_file).collect()
}

fn of_file(source: &Source) -> Vec<Finding> {
    let functions = source.functions();
    let mut findings = Vec::new();
    for (at, comment) in source.comment_lines() {
        if comment.trim().starts_with("// Hot:") {
            let line = source.line_of(at);
            match marked(source, &functions, line) {
                Some(function) => findings.extend(violations(source, function)),
                None => findings.push(finding(
                    source,
                    line,
                    "a Hot mark without a function right after it".to_owned(),
                )),
            }
        }
    }
    findings
}

/// The function after the mark, with nothing but comments and attributes between.
fn marked<'a>(source: &Source, functions: &'a [Function], mark: usize) -> Option<&'a Function> {
    let function = functions.iter().find(|function| function.line > mark)?;
    let between = source.code.lines().skip(mark).take(function.line - mark - 1);
    let empty = between.map(str::trim).all(|line| line.is_empty() || line.starts_with("#["));
    empty.then_some(function)
}

fn violations(source: &Source, function: &Function) -> Vec<Finding> {
    let (start, end) = function.body;
    let body = &source.code[start..end];
    let mut findings = Vec::new();
    for what in FORBIDDEN {
        for (at, _) in body.match_indices(what) {
            let assertion =
                body[..at].rsplit(';').next().is_some_and(|statement| statement.contains("assert"));
            if !assertion {
                let text = format!("`{}` in `{}`, which is marked Hot", what.trim(), function.name);
                findings.push(finding(source, source.line_of(start + at), text));
            }
        }
    }
    findings
}

fn finding(source: &Source, line: usize, what: String) -> Finding {
    Finding { file: source.path.clone(), line, rule: "hot", what }
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    #[test]
    fn allocation_in_a_hot_function_is_found() {
        let text = "// Hot: per message.\n/// Doc.\n#[inline]\nfn a() {\n    b(format!(\"x\"));\n    // vec![]\n}\nfn cold() { vec![1]; }\n\
                    // Hot: per message.\nstruct S;\nfn c() {}\n";
        assert_eq!(places(super::check, [("a.rs", text)]), ["a.rs:5", "a.rs:9"]);
    }
}
