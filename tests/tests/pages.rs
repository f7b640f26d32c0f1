// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that repeat facts of the code are current: parameters, options, man pages. (`ci/tidy` checks their links.)

use std::collections::BTreeSet;
use std::process::Command;

use mend_tests::{page, prefix, skip};
use mend_xtask::install::benchmark_sources;
use mend_xtask::man;

#[test]
fn the_page_of_parameters_agrees_with_the_declarations() {
    assert!(
        read("docs/parameters.md") == page::parameters(),
        "docs/parameters.md is out of date: run 'cargo xtask docs'"
    );
}

#[test]
fn the_page_of_mpiexec_has_the_options_that_it_takes_and_no_others() {
    let source = read("launch/src/arguments.rs");
    let arms = between(&source, "match name {", "_ => return Err(");
    let patterns = arms.lines().filter_map(|line| line.split_once("=>")).map(|(pattern, _)| pattern);
    let taken: BTreeSet<_> = patterns.flat_map(|pattern| pattern.split('"').skip(1).step_by(2)).collect();
    assert!(taken.len() > 25, "{taken:?}");

    let page = read("docs/mpiexec.md");
    let described: BTreeSet<_> = options(&page).map(|option| option.trim_start_matches('-')).collect();
    assert_eq!(described, taken);
}

#[test]
fn the_page_of_the_wrappers_has_the_options_that_they_take_and_no_others() {
    let page = read("docs/wrappers.md");
    let described: BTreeSet<_> = options(&page).collect();
    for wrapper in ["mpicc", "mpicxx"] {
        let script = read(&format!("abi/wrappers/{wrapper}"));
        let cases = script.lines().filter(|line| line.contains(") mode=") || line.contains(") show "));
        let patterns = cases.filter_map(|line| line.split_once(')')).map(|(patterns, _)| patterns);
        // Two dashes are as good as one.
        let taken: BTreeSet<_> = patterns
            .flat_map(|words| words.split('|'))
            .map(str::trim)
            .filter(|word| word.starts_with('-') && !word.starts_with("--"))
            .collect();
        assert!(taken.len() >= 12, "{wrapper}: {taken:?}");
        assert_eq!(described, taken, "{wrapper}");
    }
}

#[test]
fn every_program_that_is_installed_has_its_man_page() {
    let benchmarks = benchmark_sources(&prefix::place().root);
    let benchmarks: BTreeSet<_> = benchmarks
        .iter()
        .map(|path| format!("mend-{}", path.file_stem().unwrap_or_default().to_string_lossy()))
        .collect();
    // Another process may be installing the next version of one, under a hidden name.
    let programs = std::fs::read_dir(prefix::prefix().join("bin")).expect("bin is installed").flatten();
    let programs: BTreeSet<_> = programs
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    let described: BTreeSet<_> =
        man::PAGES.iter().flat_map(|page| page.names).map(|name| (*name).to_owned()).collect();
    assert_eq!(programs.difference(&benchmarks).cloned().collect::<BTreeSet<_>>(), described);
    for name in &described {
        let text = man_page(name);
        assert!(text.contains(".SH NAME\n") && text.contains(".SH SYNOPSIS\n"), "{name}: {text}");
    }
}

#[test]
fn man_pages_agree_with_the_manual() {
    for page in &man::PAGES {
        let made = man::roff(page, &read(page.source));
        assert!(man_page(page.names[0]) == made, "{} is not what {} says", page.names[0], page.source);
    }
}

#[test]
fn groff_finds_nothing_wrong_with_a_man_page() {
    if let Err(error) = Command::new("groff").arg("--version").output() {
        return skip(
            "groff_finds_nothing_wrong_with_a_man_page",
            &format!("groff cannot be started: {error}"),
        );
    }
    for page in &man::PAGES {
        let file = prefix::prefix().join(format!("share/man/man1/{}.1", page.names[0]));
        let output = Command::new("groff").args(["-man", "-ww", "-z", "-Tutf8"]).arg(&file).output();
        let output = output.expect("groff was there a moment ago");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && printed.is_empty(), "{}: {printed}", file.display());
    }
}

/// A file of the checkout.
fn read(path: &str) -> String {
    std::fs::read_to_string(prefix::place().root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn man_page(name: &str) -> String {
    let path = prefix::prefix().join(format!("share/man/man1/{name}.1"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("there is no '{from}'"));
    rest.split_once(to).unwrap_or_else(|| panic!("there is no '{to}' behind '{from}'")).0
}

/// Options in code, as `--option` or `-option VALUE`: those of the tables' first columns, and those that the sentence on several
/// nodes lists.
fn options(page: &str) -> impl Iterator<Item = &str> {
    let tables = page.lines().filter_map(|line| line.strip_prefix("| `-").map(|_| line.split('|').nth(1)));
    let refused = page.lines().filter(|line| line.starts_with("Options about several nodes"));
    let code = tables.flatten().chain(refused).flat_map(|text| text.split('`').skip(1).step_by(2));
    code.filter(|word| word.starts_with('-')).map(|word| word.split(' ').next().unwrap_or(word))
}
