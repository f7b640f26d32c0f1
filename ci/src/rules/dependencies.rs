// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dependencies point down only, as the table in ARCHITECTURE.md says: lines `crate: what it may use` in the code block
//! that begins with `may use`. No crate depends on `tests`, `bench`, `sim` or `ci`; only `world`, `bench` and `tests` name
//! a concrete BTL; no BTL depends on another BTL, `pml` or `mpi`. A foreign crate has a line with the reason for it in
//! `docs/dev/dependencies.md`.

use crate::{Finding, Source, Tree};
use std::collections::BTreeMap;

const TABLE_PAGE: &str = "ARCHITECTURE.md";
const REASONS_PAGE: &str = "docs/dev/dependencies.md";
const TABLE_FIRST_LINE: &str = "may use";

/// Crates that no other may depend on, whatever the table says.
const TOPS: &[&str] = &["tests", "bench", "sim", "ci", "abi", "launch", "xtask"];
const ABOVE_ALL: &[&str] = &["tests", "xtask"];
const MAY_NAME_A_BTL: &[&str] = &["world", "bench", "tests"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let table = tree.get(TABLE_PAGE).map(read_table).unwrap_or_default();
    let manifests =
        tree.sources.iter().filter(|source| source.path == format!("{}/Cargo.toml", source.first_folder()));
    let reasons = tree.get(REASONS_PAGE).map_or("", |page| &page.text);
    let findings = manifests.flat_map(|manifest| {
        let mut findings = of_crate(manifest, &table);
        findings.extend(without_reason(manifest, reasons));
        findings
    });
    findings.collect()
}

/// Foreign crates in a manifest for which no reason is given.
fn without_reason<'a>(manifest: &'a Source, reasons: &'a str) -> impl Iterator<Item = Finding> + 'a {
    let foreign = entries(&manifest.text).filter(|(_, name, _)| !name.starts_with("mend-"));
    let silent = foreign.filter(|(_, name, _)| !reasons.contains(&format!("| `{name}` |")));
    silent.map(|(line, name, _)| {
        let what = format!("`{name}` has no line in {REASONS_PAGE}");
        Finding { file: manifest.path.clone(), line, rule: "dependencies", what }
    })
}

/// The crates that each crate may use.
type Table<'a> = BTreeMap<&'a str, Vec<&'a str>>;

fn read_table(page: &Source) -> Table<'_> {
    let block = page
        .text
        .split("```")
        .skip(1)
        .step_by(2)
        .find(|block| block.trim_start().starts_with(TABLE_FIRST_LINE));
    let rows = block.unwrap_or("").lines().filter_map(|line| line.split_once(':'));
    rows.map(|(name, uses)| (name.trim(), uses.split_whitespace().collect())).collect()
}

fn of_crate(manifest: &Source, table: &Table<'_>) -> Vec<Finding> {
    let Some(name) = manifest.text.lines().find_map(package_name) else { return Vec::new() };
    let finding = |line, what| Finding { file: manifest.path.clone(), line, rule: "dependencies", what };
    let Some(allowed) = table.get(name) else {
        return vec![finding(1, format!("{TABLE_PAGE} does not say what `{name}` may use"))];
    };
    let found = uses(&manifest.text).filter_map(|(line, used, for_tests)| {
        let listed = for_tests || allowed.contains(&"*") || allowed.contains(&used);
        refuse(name, used, listed).map(|what| finding(line, what))
    });
    found.collect()
}

/// `pml` of `name = "mend-pml"`.
fn package_name(line: &str) -> Option<&str> {
    line.strip_prefix("name = \"mend-")?.strip_suffix('"')
}

/// Why `name` must not use `used`.
fn refuse(name: &str, used: &str, listed: bool) -> Option<String> {
    let is_btl = |each: &str| each.starts_with("btl-");
    if TOPS.contains(&used) && !ABOVE_ALL.contains(&name) {
        return Some(format!("nothing depends on `{used}`"));
    }
    if is_btl(name) && (is_btl(used) || used == "pml" || used == "mpi") {
        return Some(format!("a BTL does not know `{used}` (Rule 1)"));
    }
    if is_btl(used) && !MAY_NAME_A_BTL.contains(&name) {
        return Some(format!("only {} name a concrete BTL (Rule 1)", MAY_NAME_A_BTL.join(", ")));
    }
    (!listed).then(|| format!("`{name}` may not use `{used}`: not in the table of {TABLE_PAGE}"))
}

/// The crates of this project that a manifest names: line, folder, and whether for tests alone.
fn uses(manifest: &str) -> impl Iterator<Item = (usize, &str, bool)> {
    entries(manifest)
        .filter_map(|(line, name, for_tests)| Some((line, name.strip_prefix("mend-")?, for_tests)))
}

/// The lines under headings of dependencies.
fn entries(manifest: &str) -> impl Iterator<Item = (usize, &str, bool)> {
    let mut section = "";
    (1..).zip(manifest.lines()).filter_map(move |(number, line)| {
        if line.starts_with('[') {
            section = line.trim();
            return None;
        }
        let (name, _) = line.split_once(['.', '=', ' '])?;
        let counts =
            section.contains("dependencies") && !name.is_empty() && !name.starts_with(['#', '"', '}']);
        counts.then_some((number, name, section.contains("dev-dependencies")))
    })
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    const PAGE: &str =
        "text\n```\nmay use\nbase:\nbtl-a: base\nbtl-b: base\nworld: base btl-a\ntests: *\n```\n";

    fn found(path: &str, dependency: &str) -> Vec<String> {
        let name = path.strip_suffix("/Cargo.toml").unwrap();
        let manifest =
            format!("name = \"mend-{name}\"\n[dependencies]\nmend-{dependency}.workspace = true\n");
        places(super::check, [("ARCHITECTURE.md", PAGE), (path, &manifest)])
    }

    #[test]
    fn a_dependency_that_the_table_does_not_have_is_found() {
        assert_eq!(found("world/Cargo.toml", "btl-a"), [""; 0]);
        assert_eq!(found("tests/Cargo.toml", "btl-b"), [""; 0]);
        assert_eq!(found("base/Cargo.toml", "world"), ["base/Cargo.toml:3"]);
        assert_eq!(found("btl-a/Cargo.toml", "btl-b"), ["btl-a/Cargo.toml:3"]);
        assert_eq!(found("world/Cargo.toml", "tests"), ["world/Cargo.toml:3"]);
        assert_eq!(found("unknown/Cargo.toml", "base"), ["unknown/Cargo.toml:1"]);
    }

    #[test]
    fn tests_of_a_crate_may_use_more_but_no_concrete_btl() {
        let manifest = "name = \"mend-base\"\n[dependencies]\n[dev-dependencies]\nmend-world = { workspace = true }\nmend-btl-a.workspace = true\n";
        let files = [("ARCHITECTURE.md", PAGE), ("base/Cargo.toml", manifest)];
        assert_eq!(places(super::check, files), ["base/Cargo.toml:5"]);
    }

    #[test]
    fn a_foreign_crate_without_a_reason_is_found() {
        let manifest = "name = \"mend-base\"\n[dependencies]\nknown = \"1\"\nunknown.workspace = true\n[features]\nx = []\n";
        let reasons = "| crate | for what |\n|---|---|\n| `known` | things |\n";
        let files =
            [("ARCHITECTURE.md", PAGE), ("docs/dev/dependencies.md", reasons), ("base/Cargo.toml", manifest)];
        assert_eq!(places(super::check, files), ["base/Cargo.toml:4"]);
    }
}
