// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that are made from tables are current, and no page leads nowhere.

use mend_tests::{page, prefix};

#[test]
fn the_page_of_parameters_is_what_the_table_says() {
    let present =
        std::fs::read_to_string(prefix::place().root.join("docs/parameters.md")).unwrap_or_default();
    assert!(present == page::parameters(), "docs/parameters.md is out of date: run 'cargo xtask docs'");
}

#[test]
fn every_relative_link_of_a_page_leads_to_a_file() {
    let root = &prefix::place().root;
    let mut pages: Vec<_> =
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].iter().map(|name| root.join(name)).collect();
    let docs = std::fs::read_dir(root.join("docs")).expect("docs/ is there").flatten();
    pages.extend(
        docs.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|kind| kind == "md")),
    );
    let mut broken = Vec::new();
    for page in pages {
        let text =
            std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        let folder = page.parent().expect("a page lies in a folder");
        for link in links(&text).filter(|link| !folder.join(link).exists()) {
            broken.push(format!("{}: {link}", page.display()));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Targets of `[text](target)` without scheme, and without the part after `#`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let relative = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    relative.filter_map(|target| target.split('#').next())
}
