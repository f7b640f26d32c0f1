// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Only `abi` exports C symbols, and the fabric shim, which stands in for another library and is not linked to ours (Rule 8).

use crate::{Finding, Tree};

/// By the beginning of their path.
const MAY: &[&str] = &["abi/", "tests/fabric-shim/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let crates = tree.rust().filter(|source| !MAY.iter().any(|folder| source.path.starts_with(folder)));
    let all = crates.flat_map(|source| {
        let places = ["no_mangle", "export_name"].into_iter().flat_map(|word| source.words(word));
        places.map(|at| Finding {
            file: source.path.clone(),
            line: source.line_of(at),
            rule: "exports",
            what: "a C symbol exported outside `abi` and the fabric shim (Rule 8)".to_owned(),
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
        let may = [("abi/src/x.rs", text), ("tests/fabric-shim/src/x.rs", text)];
        let may_not = [("world/src/x.rs", text), ("tests/src/x.rs", text)];
        assert_eq!(places(super::check, may), [""; 0]);
        assert_eq!(places(super::check, may_not), ["tests/src/x.rs:2", "world/src/x.rs:2"]);
    }
}
