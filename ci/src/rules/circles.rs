// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No more than [`FILES_MAX`] files of a crate refer to each other in a circle: whoever reads one of them would have to read
//! all. Where a larger circle is right, a comment `Circle: why` in one of its files says why.
//!
//! A file refers to another where its code, tests apart, names a path below `crate`, `super` or a module of its own. A name that a
//! module exports again is taken for a reference to the file that defines it; the exporting `pub use` is none.

use crate::{Finding, Source, Tree};
use std::collections::{BTreeMap, BTreeSet};

const FILES_MAX: usize = 3;

/// What excuses a circle.
const REASON: &str = "Circle:";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let folders: BTreeSet<_> = tree.rust().map(Source::first_folder).collect();
    folders.into_iter().flat_map(|folder| of_crate(tree, folder)).collect()
}

fn of_crate(tree: &Tree, folder: &str) -> Vec<Finding> {
    let crate_ = Crate::read(tree, folder);
    let excused = |path: &&str| {
        let source = tree.get(path);
        source.is_some_and(|source| source.comment_lines().any(|(_, comment)| comment.contains(REASON)))
    };
    let circles = crate_.circles().into_iter().filter(|circle| circle.len() > FILES_MAX);
    circles
        .filter(|circle| !circle.iter().any(excused))
        .map(|circle| {
            let what =
                format!("{} files refer to each other in a circle: {}", circle.len(), circle.join(", "));
            Finding { file: circle[0].to_owned(), line: 1, rule: "circles", what }
        })
        .collect()
}

/// The modules of one crate.
struct Crate<'a> {
    /// By the segments of its path below the crate.
    modules: BTreeMap<Vec<String>, Module<'a>>,
}

struct Module<'a> {
    file: &'a str,
    /// Names that it exports again, and the paths that they stand for, from the root of the crate.
    exports: BTreeMap<String, Vec<String>>,
    /// Paths that its code names, from the root of the crate.
    named: Vec<Vec<String>>,
}

impl<'a> Crate<'a> {
    fn read(tree: &'a Tree, folder: &str) -> Self {
        let prefix = format!("{folder}/src/");
        let files = tree.rust().filter(|source| source.path.starts_with(&prefix) && !source.all_test);
        let paths = files.filter_map(|source| Some((module_path(&source.path[prefix.len()..])?, source)));
        let sources: BTreeMap<_, _> = paths.collect();
        let children = |path: &[String]| {
            let below = sources.keys().filter(|each| each.len() == path.len() + 1 && each.starts_with(path));
            below.filter_map(|each| each.last().cloned()).collect::<Vec<_>>()
        };
        let module = |(path, source): (&Vec<String>, &&'a Source)| {
            let (exports, named) = references(source, path, &children(path));
            (path.clone(), Module { file: &source.path, exports, named })
        };
        Crate { modules: sources.iter().map(module).collect() }
    }

    /// The file that defines what the path names.
    fn file_of(&self, path: &[String]) -> Option<&'a str> {
        let (mut path, mut steps) = (path.to_vec(), 0);
        loop {
            let known = (0..=path.len()).rev().find(|&length| self.modules.contains_key(&path[..length]))?;
            let module = &self.modules[&path[..known]];
            match path.get(known).and_then(|name| module.exports.get(name)) {
                Some(meant) if steps < EXPORT_STEPS_MAX => {
                    path = meant.iter().chain(&path[known + 1..]).cloned().collect();
                    steps += 1;
                }
                _ => return Some(module.file),
            }
        }
    }

    /// Sets of files each of which refers to all others, directly or through them.
    fn circles(&self) -> Vec<Vec<&'a str>> {
        let files: Vec<_> = self.modules.values().map(|module| module.file).collect();
        let place: BTreeMap<_, _> = files.iter().enumerate().map(|(at, file)| (*file, at)).collect();
        let count = files.len();
        let mut reaches = vec![vec![false; count]; count];
        for (from, module) in self.modules.values().enumerate() {
            let targets = module.named.iter().filter_map(|path| self.file_of(path));
            targets.for_each(|file| reaches[from][place[file]] = true);
        }
        for via in 0..count {
            for from in 0..count {
                if reaches[from][via] {
                    (0..count).for_each(|to| reaches[from][to] |= reaches[via][to]);
                }
            }
        }
        let in_circle = |one: usize, other: usize| one == other || reaches[one][other] && reaches[other][one];
        let first = |one: &usize| !(0..*one).any(|before| in_circle(before, *one));
        let circle =
            |one: usize| (one..count).filter(|&other| in_circle(one, other)).map(|at| files[at]).collect();
        (0..count).filter(first).map(circle).collect()
    }
}

/// No chain of exports is longer.
const EXPORT_STEPS_MAX: u32 = 8;

/// `["a", "b"]` of `a/b.rs`; a program of its own has no path.
fn module_path(file: &str) -> Option<Vec<String>> {
    match file.strip_suffix(".rs")? {
        "lib" => Some(Vec::new()),
        "main" => None,
        stem if stem.starts_with("bin/") => None,
        stem => Some(stem.split('/').map(str::to_owned).collect()),
    }
}

/// What a file exports again, and what else it names.
fn references(
    source: &Source,
    module: &[String],
    children: &[String],
) -> (BTreeMap<String, Vec<String>>, Vec<Vec<String>>) {
    let (mut exports, mut named) = (BTreeMap::new(), Vec::new());
    let starts = ["crate", "super"].into_iter().chain(children.iter().map(String::as_str));
    for word in starts {
        for at in source.words(word) {
            if source.is_test(at) || !is_path_start(&source.code, at, word) {
                continue;
            }
            let base = base(word, module, children);
            let is_export = is_export(&source.code, at);
            for (mut path, alias) in expand(&source.code[at + word.len() + 2..]) {
                let mut from = base.clone();
                while path.first().is_some_and(|first| first == "super") {
                    path.remove(0);
                    from.pop();
                }
                from.extend(path);
                match alias.or_else(|| from.last().cloned()) {
                    Some(name) if is_export => _ = exports.insert(name, from),
                    _ => named.push(from),
                }
            }
        }
    }
    (exports, named)
}

/// Whether a path begins with this word, and not only goes on with it.
fn is_path_start(code: &str, at: usize, word: &str) -> bool {
    code[at + word.len()..].starts_with("::")
        && !code[..at].trim_end().ends_with("::")
        && !in_visibility(code, at)
}

/// `pub(in super::x)`.
fn in_visibility(code: &str, at: usize) -> bool {
    code[..at].trim_end().ends_with("(in")
}

fn base(word: &str, module: &[String], children: &[String]) -> Vec<String> {
    match word {
        "crate" => Vec::new(),
        "super" => module[..module.len().saturating_sub(1)].to_vec(),
        child => {
            debug_assert!(children.iter().any(|each| each == child));
            module.iter().cloned().chain([child.to_owned()]).collect()
        }
    }
}

/// Whether the statement that holds this place is `pub use` in one of its forms.
fn is_export(code: &str, at: usize) -> bool {
    let statement = code[..at].rsplit([';', '}']).next().unwrap_or("");
    let mut lines = statement.lines().map(str::trim_start).filter(|line| !line.starts_with("#["));
    lines.any(|line| line.starts_with("pub") && line.contains("use "))
}

/// The paths of `a::{b, c::{d, e as f}}`, with the name that replaces the last segment.
fn expand(text: &str) -> Vec<(Vec<String>, Option<String>)> {
    let text = text.trim_start();
    if let Some(list) = text.strip_prefix('{') {
        let list = &list[..matching_brace(list)];
        return split_top(list).into_iter().flat_map(expand).collect();
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() {
        return Vec::new();
    }
    if let Some(rest) = rest.strip_prefix("::")
        && rest.trim_start().starts_with(|c: char| c.is_alphabetic() || c == '{' || c == '_')
    {
        let below = expand(rest).into_iter();
        return below
            .map(|(path, alias)| ([name.to_owned()].into_iter().chain(path).collect(), alias))
            .collect();
    }
    let alias = rest.trim_start().strip_prefix("as ").map(|alias| {
        let alias = alias.trim_start();
        alias[..alias.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(alias.len())].to_owned()
    });
    let path = if name == "self" { Vec::new() } else { vec![name.to_owned()] };
    vec![(path, alias)]
}

/// Where the brace that was opened before `text` closes.
fn matching_brace(text: &str) -> usize {
    let mut depth = 1;
    let close = text.char_indices().find(|(_, c)| {
        depth += match c {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        depth == 0
    });
    close.map_or(text.len(), |(at, _)| at)
}

/// The parts between the commas that are in no inner braces.
fn split_top(list: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[from..]);
    parts
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    const FOUR: [(&str, &str); 5] = [
        ("x/src/lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\n#[cfg(x)]\npub use a::{A, Other as Renamed};"),
        ("x/src/a.rs", "use crate::b::B;"),
        ("x/src/b.rs", "use crate::{c::{C, D}, e};"),
        ("x/src/c.rs", "fn f() -> super::d::D { super::d::D::new() }"),
        ("x/src/d.rs", "use crate::Renamed;"),
    ];

    #[test]
    fn a_circle_of_four_files_is_found_through_exported_names() {
        assert_eq!(places(super::check, FOUR), ["x/src/a.rs:1"]);
    }

    #[test]
    fn a_circle_of_three_files_or_one_with_a_reason_is_none() {
        let mut three = FOUR;
        three[3].1 = "use crate::a::A;";
        assert_eq!(places(super::check, three), [""; 0]);
        let mut excused = FOUR;
        excused[1].1 = "//! Circle: they are one thing.\nuse crate::b::B;";
        assert_eq!(places(super::check, excused), [""; 0]);
    }

    #[test]
    fn tests_and_comments_refer_to_nothing() {
        let mut files = FOUR;
        files[4].1 = "// crate::a::A\n#[cfg(test)]\nmod tests {\nuse crate::Renamed;\n}";
        assert_eq!(places(super::check, files), [""; 0]);
    }
}
