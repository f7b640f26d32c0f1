// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report about a job that may hang: a rank says that it has been blocked for as long as the parameter `hang_report_s`
//! allows. Then every rank is asked in which call it sits, and one table is printed, once for the job. Nothing else depends on it.

use mend_base::{Duration, Instant};
use mend_runtime::rank_ranges::in_words;
use std::collections::BTreeMap;

/// The report of one job.
#[derive(Debug, Default)]
pub(crate) struct HangReport {
    state: State,
    /// Where each rank sits that has said so.
    calls: BTreeMap<u32, Call>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    NotAsked,
    /// All ranks were asked, the first because of this one. Those that have not answered then get no more time.
    Asked {
        by: u32,
        until: Instant,
    },
    Printed,
}

/// Where a rank sits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub what: String,
    /// For how long; 0: not known.
    pub seconds: u32,
}

/// How long the table waits for ranks that do not answer, such as stopped ones.
const ANSWER_TIME: Duration = Duration::from_millis(2_000);

impl HangReport {
    /// A rank says where it sits. Returns whether all ranks are to be asked now. `is_blocked`: it says so because it has been blocked for
    /// too long.
    pub(crate) fn on_call(&mut self, rank: u32, is_blocked: bool, call: Call, now: Instant) -> bool {
        let asks = self.state == State::NotAsked && is_blocked;
        if asks {
            self.state = State::Asked { by: rank, until: now + ANSWER_TIME };
        }
        if matches!(self.state, State::Asked { .. }) {
            self.calls.insert(rank, call);
        }
        asks
    }

    /// When [`lines`](HangReport::lines) must be called at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Asked { until, .. } => Some(until),
            State::NotAsked | State::Printed => None,
        }
    }

    /// The table, once: when all of these ranks, which are in MPI, have answered, or have had their time.
    pub(crate) fn lines(&mut self, ranks: impl Iterator<Item = u32>, now: Instant) -> Option<Vec<String>> {
        let State::Asked { by, until } = self.state else { return None };
        let ranks: Vec<u32> = ranks.collect();
        if now < until && !ranks.iter().all(|rank| self.calls.contains_key(rank)) {
            return None;
        }
        self.state = State::Printed;
        let seconds = self.calls.get(&by).map_or(0, |call| call.seconds);
        let mut lines = vec![format!(
            "mpiexec: rank {by} has been blocked in MPI for {seconds} s (hang_report_s). Where the ranks are: [E-JOB-022]"
        )];
        lines.extend(self.table(&ranks));
        self.calls.clear();
        Some(lines)
    }

    /// One line for all ranks at the same place, the larger groups first. The largest one is where ranks wait; the others differ.
    fn table(&self, ranks: &[u32]) -> Vec<String> {
        let mut groups: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for &rank in ranks {
            let what = self.calls.get(&rank).map_or(NO_ANSWER, |call| &call.what);
            groups.entry(what).or_default().push(rank);
        }
        let mut groups: Vec<(&str, Vec<u32>)> = groups.into_iter().collect();
        groups.sort_by_key(|(_, ranks)| std::cmp::Reverse(ranks.len()));
        let largest = groups.first().map_or(0, |(_, ranks)| ranks.len());
        let is_only = groups.iter().filter(|(_, ranks)| ranks.len() == largest).count() == 1;
        let line = |(what, ranks): &(&str, Vec<u32>)| {
            let seconds = ranks.iter().filter_map(|rank| self.calls.get(rank)).map(|call| call.seconds).max();
            let since = seconds.filter(|&seconds| seconds > 0).map(|seconds| format!(", for {seconds} s"));
            let differs = if ranks.len() < largest || !is_only { "   <- differs" } else { "" };
            format!("mpiexec:   {}: {what}{}{differs}", in_words(ranks), since.unwrap_or_default())
        };
        let differ = groups.len() > 1;
        let lines = groups.iter().map(line);
        if differ { lines.collect() } else { lines.map(|line| line.replace("   <- differs", "")).collect() }
    }
}

const NO_ANSWER: &str = "no answer (stopped, or in a signal handler)";

#[cfg(test)]
mod tests {
    use super::{ANSWER_TIME, Call, HangReport};
    use mend_base::{Duration, Instant};

    fn call(what: &str, seconds: u32) -> Call {
        Call { what: what.to_owned(), seconds }
    }

    //
    #[test]
    fn the_table_names_the_rank_that_is_somewhere_else_once_all_have_answered() {
        let mut report = HangReport::default();
        let now = Instant(5);
        assert!(!report.on_call(1, false, call("an answer to no question", 0), now));
        assert!(report.on_call(2, true, call("MPI_Barrier", 4), now));
        assert!(!report.on_call(0, true, call("MPI_Barrier", 5), now), "once for the job");
        assert_eq!(report.lines(0..4, now), None);
        report.on_call(1, false, call("outside MPI", 0), now);
        report.on_call(3, false, call("MPI_Barrier", 4), now);
        let lines = report.lines(0..4, now).unwrap();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[0].contains("rank 2 has been blocked in MPI for 4 s") && lines[0].contains("E-JOB-022")
        );
        assert_eq!(lines[1], "mpiexec:   ranks 0, 2-3: MPI_Barrier, for 5 s");
        assert_eq!(lines[2], "mpiexec:   rank 1: outside MPI   <- differs");
        assert_eq!(report.lines(0..4, now + ANSWER_TIME), None);
        assert!(!report.on_call(0, true, call("MPI_Barrier", 50), now), "once for the job");
    }

    #[test]
    fn a_rank_that_does_not_answer_is_named_after_a_while() {
        let mut report = HangReport::default();
        let now = Instant(5);
        assert_eq!(report.deadline(), None);
        report.on_call(0, true, call("a receive", 4), now);
        assert_eq!(report.deadline(), Some(now + ANSWER_TIME));
        assert_eq!(report.lines(0..2, now + Duration::from_millis(1)), None);
        let lines = report.lines(0..2, now + ANSWER_TIME).unwrap();
        assert!(lines[2].starts_with("mpiexec:   rank 1: no answer") && lines[2].ends_with("<- differs"));
        assert_eq!(report.deadline(), None);
    }

    #[test]
    fn where_all_ranks_are_at_one_place_none_differs() {
        let mut report = HangReport::default();
        report.on_call(0, true, call("MPI_Finalize", 4), Instant(5));
        report.on_call(1, false, call("MPI_Finalize", 3), Instant(5));
        let lines = report.lines(0..2, Instant(5)).unwrap();
        assert_eq!(lines[1..], ["mpiexec:   ranks 0-1: MPI_Finalize, for 4 s".to_owned()]);
    }
}
