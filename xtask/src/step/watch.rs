// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the test that hangs, from what libtest prints while it runs.
//!
//! With several threads libtest prints a test's name when it has ended, and `test NAME has been running for over 60 seconds` for
//! one that has not. With one thread it prints no times, but `test NAME ... ` when the test begins. So a test is running if one of
//! these lines was printed, and no result.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a test of a step may run.
#[derive(Clone, Copy, Debug)]
pub struct TestLimits {
    /// The limit of all tests but those in `longer`.
    pub each: Duration,
    /// Longer limits, by the names of test functions.
    pub longer: &'static [(&'static str, Duration)],
}

impl TestLimits {
    fn of(&self, test: &str) -> Duration {
        let name = test.rsplit("::").next().unwrap_or(test);
        let declared = self.longer.iter().find(|(long, _)| *long == name);
        declared.map_or(self.each, |(_, limit)| *limit)
    }
}

/// The tests that run.
#[derive(Debug)]
pub struct Watch {
    limits: TestLimits,
    /// Tests that libtest reported as running for long, and when they began.
    long: BTreeMap<String, Instant>,
    /// The test that was named last, without a result, and when its name was first seen.
    begun: Option<(String, Instant)>,
}

impl Watch {
    /// Watches a program that has not printed anything yet.
    pub fn new(limits: TestLimits) -> Watch {
        Watch { limits, long: BTreeMap::new(), begun: None }
    }

    /// Reads a line, which may be unfinished; the same line may come again, longer.
    pub fn see(&mut self, line: &str, now: Instant) {
        if let Some((test, _)) = line.split_once(WARNING) {
            let test = test.rsplit("test ").next().unwrap_or(test);
            self.long.entry(test.to_owned()).or_insert(now.checked_sub(WARNED_AFTER).unwrap_or(now));
        } else if let Some((test, result)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ..."))
        {
            let is_new = self.begun.as_ref().is_none_or(|(begun, _)| begun != test);
            if is_result(result.trim_start()) {
                self.begun = None;
                self.long.remove(test);
            } else if is_new {
                self.begun = Some((test.to_owned(), now));
            }
        } else if line.starts_with("test result:") {
            self.forget();
        } else if is_result(line)
            && let Some((test, _)) = self.begun.take()
        {
            self.long.remove(&test);
        }
    }

    /// The tests that have run for longer than they may.
    pub fn overdue(&self, now: Instant) -> Vec<String> {
        let running = self.long.iter().chain(self.begun.as_ref().map(|(test, since)| (test, since)));
        let late = running.filter(|(test, since)| now.duration_since(**since) >= self.limits.of(test));
        let mut late: Vec<String> = late.map(|(test, _)| test.clone()).collect();
        late.dedup();
        late
    }

    /// The program has ended, so no test of it runs any more.
    pub fn forget(&mut self) {
        self.long.clear();
        self.begun = None;
    }
}

/// Whether the text is libtest's result of a test.
fn is_result(text: &str) -> bool {
    ["ok", "FAILED", "ignored"].iter().any(|word| text.starts_with(word))
}

const WARNING: &str = " has been running for over ";
/// libtest's own limit, which a stable toolchain cannot change.
const WARNED_AFTER: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::{TestLimits, Watch};
    use std::time::{Duration, Instant};

    const LIMITS: TestLimits =
        TestLimits { each: Duration::from_secs(60), longer: &[("a_long_one", Duration::from_secs(90))] };

    fn after(begin: Instant, seconds: u64) -> Instant {
        begin + Duration::from_secs(seconds)
    }

    #[test]
    fn a_test_that_libtest_says_runs_for_long_is_overdue_unless_it_may() {
        let (mut watch, begin) = (Watch::new(LIMITS), Instant::now());
        watch.see("test ring::short ... ok", begin);
        assert_eq!(watch.overdue(after(begin, 600)), [""; 0]);
        watch.see("test ring::hangs has been running for over 60 seconds", after(begin, 60));
        watch.see("test ring::a_long_one has been running for over 60 seconds", after(begin, 60));
        assert_eq!(watch.overdue(after(begin, 61)), ["ring::hangs"]);
        assert_eq!(watch.overdue(after(begin, 91)), ["ring::a_long_one", "ring::hangs"]);
        watch.see("test ring::a_long_one ... ok", after(begin, 92));
        assert_eq!(watch.overdue(after(begin, 93)), ["ring::hangs"]);
    }

    #[test]
    fn with_one_thread_a_test_runs_from_its_name_to_its_result() {
        let (mut watch, begin) = (Watch::new(LIMITS), Instant::now());
        watch.see("test first ...", begin);
        watch.see("test first ... ", after(begin, 50));
        assert_eq!(watch.overdue(after(begin, 60)), ["first"]);
        watch.see("figure: printed by the test", after(begin, 61));
        watch.see("ok", after(begin, 62));
        assert_eq!(watch.overdue(after(begin, 200)), [""; 0]);
        watch.see("test second ... ", after(begin, 200));
        watch.see("test result: FAILED. 1 passed; 1 failed", after(begin, 210));
        assert_eq!(watch.overdue(after(begin, 400)), [""; 0]);
    }
}
