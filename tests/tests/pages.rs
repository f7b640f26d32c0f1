// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that are made from tables are current.

use mend_tests::{page, prefix};

#[test]
fn the_page_of_parameters_is_what_the_table_says() {
    let present =
        std::fs::read_to_string(prefix::place().root.join("docs/parameters.md")).unwrap_or_default();
    assert!(present == page::parameters(), "docs/parameters.md is out of date: run 'cargo xtask docs'");
}
