// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which tests may be skipped: `cargo suite --allow-skips FILE`. Without the option every skip is allowed.
//!
//! A line of the file is `STEP: TEST`, or `STEP: TEST: how the reason begins`; a `#` begins a comment. It is no error if a named
//! test is not skipped, as machines differ.

use std::path::{Path, PathBuf};

use crate::step::Report;
use crate::{Outcome, command_error};

/// The lines of a file.
#[derive(Debug)]
pub struct AllowedSkips {
    file: PathBuf,
    entries: Vec<String>,
}

impl AllowedSkips {
    /// Reads the file.
    pub fn read(file: &Path) -> Outcome<AllowedSkips> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| command_error(format!("cannot read {}", file.display()), error))?;
        Ok(AllowedSkips { file: file.to_owned(), entries: entries(&text) })
    }

    /// The file's name.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The skips of `reports` that no line names.
    pub fn missing_in(&self, reports: &[Report]) -> Vec<String> {
        let skips = reports
            .iter()
            .flat_map(|report| report.skips.iter().map(move |skip| format!("{}: {skip}", report.name)));
        skips.filter(|skip| !self.entries.iter().any(|entry| names(entry, skip))).collect()
    }
}

fn entries(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Whether the entry is the beginning of the skip, up to the end of a word.
fn names(entry: &str, skip: &str) -> bool {
    skip.strip_prefix(entry).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::{AllowedSkips, entries};
    use crate::step::Report;

    #[test]
    fn a_skip_that_no_line_names_is_found() {
        let text = "# a machine without control groups\nlimits: a_test   # always\nunits: huge: no file of";
        let allowed = AllowedSkips { file: "skips".into(), entries: entries(text) };
        let report = |name: &str, skips: &[&str]| Report {
            name: name.to_owned(),
            skips: skips.iter().map(|&skip| skip.to_owned()).collect(),
            ..Report::default()
        };
        let limits = report("limits", &["a_test: no cgroup", "a_test_more: no cgroup"]);
        let units = report("units", &["huge: no file of huge pages", "huge: other", "a_test: no cgroup"]);
        let missing = allowed.missing_in(&[limits, units]);
        assert_eq!(
            missing,
            ["limits: a_test_more: no cgroup", "units: huge: other", "units: a_test: no cgroup"]
        );
    }
}
