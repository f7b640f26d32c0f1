// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checks of a step, as its log shows them: passed, failed, skipped.
//!
//! libtest prints `ok` for a test that found it cannot run on this machine. Such a test has printed `skipped: TEST: why`
//! ([`mend_testing::skip`]); it is counted as skipped and not as passed.

use std::collections::BTreeMap;
use std::time::Duration;

use mend_testing::SKIPPED;

/// How a step ended.
#[derive(Debug, Default)]
pub struct Report {
    /// The step.
    pub name: String,
    /// Checks that held.
    pub passed: u32,
    /// Checks that did not.
    pub failed: u32,
    /// Skipped tests, each as `TEST: why`.
    pub skips: Vec<String>,
    /// Tests that hung, and faults of the log itself.
    pub faults: Vec<String>,
    /// Seeds and figures to be repeated in the summary.
    pub notes: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

impl Report {
    /// Reads a log. Checks are counted from libtest's `test result:` lines and from our own `checks: N passed, N failed`.
    /// Without such lines the program itself is one check. If there are such lines and all counts are 0, a filter matches no test,
    /// and that is a failure.
    pub(super) fn read(text: &str, succeeded: bool) -> Report {
        let mut report = Report::default();
        let mut counts_checks = false;
        for line in text.lines().map(str::trim) {
            if let Some(counts) = line.strip_prefix("test result:").or_else(|| line.strip_prefix("checks:")) {
                counts_checks = true;
                report.passed += number_before(counts, "passed");
                report.failed += number_before(counts, "failed");
            } else if let Some(skip) = line.strip_prefix(SKIPPED) {
                report.skips.push(skip.to_owned());
            } else if line.starts_with("seed: ") || line.starts_with("figure: ") {
                report.notes.push(line.to_owned());
            }
        }
        report.subtract_skips(text);
        report.skips.extend(text.lines().filter_map(ignored));
        if !succeeded {
            report.failed = report.failed.max(1);
        } else if counts_checks && report.passed + report.failed == 0 && report.skips.is_empty() {
            report.fault("no test ran".to_owned());
        } else if !counts_checks && report.skips.is_empty() {
            report.passed = 1;
        }
        report
    }

    /// The report of a mutation: a protection has been removed, so the step must fail, and the log must show `sign`.
    pub(super) fn of_mutation(text: &str, succeeded: bool, sign: &str) -> Report {
        let found = !succeeded && text.contains(sign);
        Report { passed: u32::from(found), failed: u32::from(!found), ..Report::default() }
    }

    /// Counts one failure more, with its sentence.
    pub(super) fn fault(&mut self, what: String) {
        self.failed += 1;
        self.faults.push(what);
    }

    /// Subtracts skips from passed tests, as libtest counts a skipped test as passed. If a name has more skips than tests, it is
    /// wrong, which is a fault.
    fn subtract_skips(&mut self, text: &str) {
        let mut tests: BTreeMap<&str, u32> = BTreeMap::new();
        for name in text.lines().filter_map(test_in) {
            *tests.entry(name).or_default() += 1;
        }
        for skip in self.skips.clone() {
            let test = skip.split(':').next().unwrap_or_default();
            match tests.get_mut(test) {
                Some(left @ 1..) => {
                    *left -= 1;
                    self.passed = self.passed.saturating_sub(1);
                }
                _ => self.fault(format!("'{SKIPPED}{skip}': no test of this name is left to be skipped")),
            }
        }
    }
}

/// The function's name in `test path::to::name ... `, whatever follows.
fn test_in(line: &str) -> Option<&str> {
    let (path, _) = line.trim().strip_prefix("test ")?.split_once(" ...")?;
    let path = path.strip_suffix(" - should panic").unwrap_or(path);
    path.rsplit("::").next()
}

/// `name: ignored, reason`.
fn ignored(line: &str) -> Option<String> {
    let reason = line.split_once(" ... ignored")?.1;
    Some(format!("{}: ignored{reason}", test_in(line)?))
}

fn number_before(text: &str, word: &str) -> u32 {
    let words: Vec<&str> = text.split([' ', ';', ',']).filter(|word| !word.is_empty()).collect();
    let found = words.windows(2).find(|pair| pair[1].trim_end_matches('.') == word);
    found.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::Report;

    #[test]
    fn checks_are_counted_from_libtest_and_from_our_own_lines() {
        let text = "test result: ok. 12 passed; 0 failed; 0 ignored\nchecks: 30 passed, 2 failed";
        let report = Report::read(text, true);
        assert_eq!((report.passed, report.failed, report.skips.len()), (42, 2, 0));
    }

    #[test]
    fn a_skipped_test_is_no_passed_one() {
        let text = "test limits::runs_here ... ok\ntest limits::needs_a_cgroup ... \nskipped: needs_a_cgroup: there is none\nok\n\
                    test long - should panic ... ignored, a long run\ntest result: ok. 2 passed; 0 failed; 1 ignored";
        let report = Report::read(text, true);
        assert_eq!((report.passed, report.failed), (1, 0));
        assert_eq!(report.skips, ["needs_a_cgroup: there is none", "long: ignored, a long run"]);
    }

    #[test]
    fn a_skip_under_an_unknown_name_or_twice_is_a_failure() {
        let once = "test a_name ... ok\nskipped: a_name: one\ntest result: ok. 1 passed; 0 failed";
        assert_eq!(Report::read(once, true).failed, 0);
        let twice = format!("skipped: a_name: two\n{once}");
        assert_eq!(Report::read(&twice, true).failed, 1);
        let another = once.replace("skipped: a_name", "skipped: an_old_name");
        assert_eq!(Report::read(&another, true).failed, 1);
    }

    #[test]
    fn a_program_that_counts_nothing_is_one_check_and_a_run_of_no_test_is_a_failure() {
        let counts = |text, succeeded| {
            let report = Report::read(text, succeeded);
            (report.passed, report.failed)
        };
        assert_eq!(counts("", true), (1, 0));
        assert_eq!(counts("error: no", false), (0, 1));
        assert_eq!(counts("test result: ok. 0 passed; 0 failed; 0 ignored; 7 filtered out", true), (0, 1));
    }

    #[test]
    fn a_mutation_that_is_not_found_has_failed() {
        let failures = |text, succeeded| Report::of_mutation(text, succeeded, "deadlock").failed;
        assert_eq!(failures("test result: ok. 3 passed; 0 failed", true), 1);
        assert_eq!(failures("panicked: deadlock\ntest result: FAILED. 2 passed; 1 failed", false), 0);
        assert_eq!(failures("error: could not compile", false), 1);
    }
}
