// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every source file says its license in one SPDX line and then, in Rust, what it is for.

use crate::{Finding, Source, Tree};

const LICENSE: &str = "SPDX-License-Identifier: Apache-2.0 OR MIT";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.sources.iter().filter(|source| is_source(&source.path)).filter_map(finding).collect()
}

fn finding(source: &Source) -> Option<Finding> {
    let what = if !source.text.lines().take(2).any(|line| line.contains(LICENSE)) {
        format!("does not begin with '{LICENSE}'")
    } else if source.path.ends_with(".rs") && !source.text.lines().nth(1)?.starts_with("//!") {
        "does not say, in a `//!` after the license, what it is for".to_owned()
    } else {
        return None;
    };
    Some(Finding { file: source.path.clone(), line: 1, rule: "header", what })
}

fn is_source(path: &str) -> bool {
    [".rs", ".toml", ".c", ".cc", ".h", ".cpp", ".sh", ".py", ".yml", ".table"]
        .iter()
        .any(|ending| path.ends_with(ending))
        || path.starts_with(".ci/")
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    #[test]
    fn a_file_without_license_or_purpose_is_found() {
        let good = "// SPDX-License-Identifier: Apache-2.0 OR MIT\n//! What.\n";
        let script = "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0 OR MIT\n";
        let files =
            [("a.rs", good), ("b.rs", "//! What.\n"), ("c.sh", script), ("d.md", ""), ("e.toml", "[x]\n")];
        assert_eq!(places(super::check, files), ["b.rs:1", "e.toml:1"]);
        let silent = "// SPDX-License-Identifier: Apache-2.0 OR MIT\nfn f() {}\n";
        assert_eq!(places(super::check, [("a.rs", silent)]), ["a.rs:1"]);
    }
}
