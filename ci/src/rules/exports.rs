// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Only `abi` exports C symbols (Rule 8).

use crate::{Finding, Tree};

const MAY: &[&str] = &["abi", "tests", "bench"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let crates = tree.rust().filter(|source| !MAY.contains(&source.first_folder()));
    let all = crates.flat_map(|source| {
        let places = ["no_mangle", "export_name"].into_iter().flat_map(|word| source.words(word));
        places.map(|at| Finding {
            file: source.path.clone(),
            line: source.line_of(at),
            rule: "exports",
            what: "a C symbol exported outside `abi` (Rule 8)".to_owned(),
        })
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    #[test]
    fn a_symbol_exported_elsewhere_is_found() {
        let text = "\n#[unsafe(no_mangle)]\nextern \"C\" fn f() {}\n// no_mangle\n";
        assert_eq!(
            places(super::check, [("world/src/x.rs", text), ("abi/src/x.rs", text)]),
            ["world/src/x.rs:2"]
        );
    }
}
