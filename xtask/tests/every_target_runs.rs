// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every test target of every crate, and every C program, is run by a step of the suite or by a soak. A test that is never run
//! proves nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mend_xtask::install::c_programs;
use mend_xtask::place::Place;
use mend_xtask::{soak, suite};

/// One test program that cargo makes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Target {
    package: String,
    /// `lib` for the units of a package, or the name of a file in its `tests`.
    name: String,
    /// Whether it has tests that are run only with `--ignored`.
    has_ignored: bool,
    /// Whether it has other tests.
    has_plain: bool,
}

/// What one `cargo test` runs.
struct Run {
    words: Vec<String>,
}

impl Run {
    fn values(&self, option: &str) -> Vec<&str> {
        let pairs = self.words.windows(2).filter(|pair| pair[0] == option);
        pairs.map(|pair| pair[1].as_str()).collect()
    }

    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|each| each == word)
    }

    /// Whether there is a word that is neither an option nor the value of one: only tests whose names contain it are run.
    fn has_filter(&self) -> bool {
        let own = self.words.iter().take_while(|word| *word != "--");
        let mut previous = "";
        for word in own.skip(1) {
            let is_value = ["--package", "--exclude", "--test", "--target"].contains(&previous);
            if !word.starts_with('-') && !is_value {
                return true;
            }
            previous = word;
        }
        false
    }

    /// Whether it runs all tests of the target except ignored ones; with `--ignored`, all ignored ones.
    fn covers(&self, target: &Target) -> bool {
        let package = if self.has("--workspace") {
            !self.values("--exclude").contains(&target.package.as_str())
        } else {
            self.values("--package").contains(&target.package.as_str())
        };
        let named = self.values("--test");
        let everything = named.is_empty() && !self.has("--lib");
        let chosen = if target.name == "lib" { self.has("--lib") } else { named.contains(&&*target.name) };
        package && (everything || chosen) && !self.has_filter()
    }
}

/// The calls of `cargo test` in the suite, with its samples, and in every soak.
fn runs(place: &Place) -> Vec<Run> {
    let mut steps = suite::steps(place);
    steps.extend(soak::samples(place).unwrap());
    steps.extend(soak::all_steps(place).unwrap());
    let commands = steps.into_iter().filter_map(|step| step.work.ok());
    let runs = commands.map(|command| Run {
        words: command.get_args().map(|word| word.to_string_lossy().into_owned()).collect(),
    });
    runs.filter(|run| run.words.first().is_some_and(|word| word == "test")).collect()
}

/// The targets of the manifests: `tests/*.rs`, and those that `[[test]]` names.
fn targets(root: &Path) -> BTreeSet<Target> {
    let mut found = BTreeSet::new();
    for member in members(root) {
        let folder = root.join(&member);
        let manifest = read(&folder.join("Cargo.toml"));
        let package = value(&manifest, "name").unwrap_or_else(|| panic!("{member} has a name"));
        let mut target = |name: &str, text: &str| {
            let count =
                |attribute| text.lines().filter(|line| line.trim_start().starts_with(attribute)).count();
            let (tests, ignored) = (count("#[test]"), count("#[ignore"));
            let (package, name) = (package.clone(), name.to_owned());
            found.insert(Target {
                package,
                name,
                has_ignored: ignored > 0,
                has_plain: ignored == 0 || tests > ignored,
            });
        };
        if folder.join("src").is_dir() {
            target("lib", "");
        }
        if !manifest.contains("autotests = false") {
            for file in rust_files(&folder.join("tests")) {
                target(&file.file_stem().unwrap().to_string_lossy(), &read(&file));
            }
        }
        for declared in manifest.split("[[test]]").skip(1) {
            let path = value(declared, "path").unwrap_or_else(|| panic!("a [[test]] of {member} has a path"));
            target(&value(declared, "name").unwrap(), &read(&folder.join(path)));
        }
    }
    found
}

fn members(root: &Path) -> Vec<String> {
    let manifest = read(&root.join("Cargo.toml"));
    let list = manifest.split_once("members = [").unwrap().1.split(']').next().unwrap();
    list.split(',')
        .filter_map(|word| Some(word.trim().strip_prefix('"')?.strip_suffix('"')?.to_owned()))
        .collect()
}

fn value(manifest: &str, key: &str) -> Option<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_prefix('='))?;
    Some(line.trim().trim_matches('"').to_owned())
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "rs"))
        .collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_test_target_is_run_by_a_step_and_its_ignored_tests_too() {
    let place = Place::find().unwrap();
    let (runs, targets) = (runs(&place), targets(&place.root));
    // About as many as there are today; an empty list would make the test pass wrongly.
    assert!(runs.len() >= 20 && targets.len() >= 40, "{} runs, {} targets", runs.len(), targets.len());
    let is_run = |target: &Target| {
        let of_it = |ignored| runs.iter().any(|run| run.has("--ignored") == ignored && run.covers(target));
        (!target.has_ignored || of_it(true)) && (!target.has_plain || of_it(false))
    };
    let forgotten: Vec<_> = targets.iter().filter(|target| !is_run(target)).collect();
    assert!(forgotten.is_empty(), "no step of the suite and no soak runs {forgotten:#?}");
}

/// The programs of `tests/c` and `bench/c` are run by tests that list these folders, and the examples in the pages by the
/// tests that read these; all others are run by tests that name them.
#[test]
fn every_c_program_is_run_by_a_test_of_the_suite() {
    let root = Place::find().unwrap().root;
    let sources =
        rust_files(&root.join("tests/tests")).into_iter().chain(rust_files(&root.join("tests/src")));
    let mut text: String = sources.map(|file| read(&file)).collect();
    let pages = ["docs/survive.md", "docs/repair.md", "docs/patterns.md"];
    for listed in ["tests/c"].into_iter().chain(pages) {
        assert!(text.contains(&format!("\"{listed}\"")), "no test reads {listed}");
    }
    assert!(text.contains("benchmark_sources("), "no test reads bench/c");
    pages.into_iter().for_each(|page| text.push_str(&read(&root.join(page))));
    let mut programs = 0;
    for (folder, before, after) in [
        ("tests/deaths", "\"", "\""),
        ("tests/limits", "\"", "\""),
        ("tests/wires", "tests/wires/", "\""),
        ("examples", "examples/", ""),
    ] {
        for program in c_programs(&root.join(folder)) {
            let name = format!("{before}{}{after}", program.file_name().unwrap().to_string_lossy());
            assert!(text.contains(&name), "no test runs {}", program.display());
            programs += 1;
        }
    }
    assert!(programs >= 13, "{programs} programs");
}

/// Otherwise a test that was renamed would lose its limit.
#[test]
fn every_unit_with_a_longer_limit_of_its_own_exists() {
    let root = Place::find().unwrap().root;
    let folders = members(&root).into_iter().flat_map(|member| {
        ["src/tests", "src/ob1/tests", "tests", "tests/jobs"].map(|folder| root.join(&member).join(folder))
    });
    let text: String = folders.flat_map(|folder| rust_files(&folder)).map(|file| read(&file)).collect();
    for (test, _) in suite::LONG_UNITS {
        assert!(text.contains(&format!("fn {test}()")), "there is no test {test}");
    }
}

#[test]
fn a_target_that_is_named_by_no_run_or_filtered_is_not_covered() {
    let target = |name: &str| Target {
        package: "mend-x".to_owned(),
        name: name.to_owned(),
        has_ignored: false,
        has_plain: true,
    };
    let covers = |words: &str, name| {
        Run { words: words.split(' ').map(str::to_owned).collect() }.covers(&target(name))
    };
    assert!(covers("test --package mend-x", "jobs") && covers("test --package mend-x", "lib"));
    assert!(covers("test --workspace --exclude mend-y --no-fail-fast", "jobs"));
    assert!(!covers("test --workspace --exclude mend-x --no-fail-fast", "jobs"));
    assert!(covers("test --package mend-x --test jobs -- --test-threads=1", "jobs"));
    assert!(!covers("test --package mend-x --test jobs", "lib"));
    assert!(!covers("test --package mend-x --test jobs some_test", "jobs"));
    assert!(!covers("test --package mend-y --test jobs", "jobs"));
}
