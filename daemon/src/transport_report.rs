// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report about transports (R-22): each rank says before it leaves MPI by which transports it has reached others, and one table is
//! printed, once for the job: when every rank has said so or has ended, at the latest when the job ends.
//!
//! ```text
//!   a rank ── parts ... End ──▶ it has said it          a death after that changes nothing
//!          └── dies, or leaves without the end ──▶ silent, named with the reason
//! ```

use crate::ranks::{FoundBy, RankState, RankTable};
use mend_runtime::transport_matrix::{SilentRank, heading, lines};
use mend_runtime::transport_view::{TransportPart, TransportView};
use std::collections::BTreeMap;

/// The report of one job.
#[derive(Debug)]
pub(crate) struct TransportReport {
    /// The user asks for it. If a rank alone does, it begins with the first part.
    is_wanted: bool,
    is_printed: bool,
    views: BTreeMap<u32, TransportView>,
}

impl TransportReport {
    pub(crate) fn new(is_wanted: bool) -> Self {
        TransportReport { is_wanted, is_printed: false, views: BTreeMap::new() }
    }

    /// A rank of a job of `size` ranks has said this. `false`: no correct rank says that, and what it had said before is dropped.
    pub(crate) fn on_part(&mut self, rank: u32, part: TransportPart, size: u32) -> bool {
        let mut view = self.views.remove(&rank).unwrap_or_default();
        let is_correct = view.take(part, size);
        if is_correct {
            self.views.insert(rank, view);
        }
        is_correct
    }

    /// The table, once: when nothing more is to come of any rank. `is_over`: the job ends.
    pub(crate) fn lines(&mut self, ranks: &RankTable, is_over: bool) -> Option<Vec<String>> {
        let has_begun = !self.views.is_empty() || self.is_wanted && ranks.any_joined();
        if self.is_printed || !has_begun {
            return None;
        }
        if !is_over && ranks.all().any(|(rank, record)| record.is_open() && !self.has_said(rank)) {
            return None;
        }
        self.is_printed = true;
        self.views.retain(|_, view| view.is_complete());
        let views = core::mem::take(&mut self.views);
        let silent = ranks.all().filter(|(rank, _)| !views.contains_key(rank));
        let silent: Vec<SilentRank> =
            silent.map(|(rank, record)| SilentRank { rank, why: why_silent(record.state()) }).collect();
        let body = lines(ranks.size(), &views, &silent);
        let heading = format!("mpiexec: {} [E-JOB-023]", heading(ranks.size()));
        let body = body.into_iter().map(|line| format!("mpiexec:   {line}"));
        Some([heading].into_iter().chain(body).collect())
    }

    fn has_said(&self, rank: u32) -> bool {
        self.views.get(&rank).is_some_and(TransportView::is_complete)
    }
}

fn why_silent(state: RankState) -> &'static str {
    match state {
        RankState::Outside => "not in MPI when the job ended",
        RankState::Inside => "still in MPI when the job ended",
        RankState::Left => "left MPI without the parameter report = transports",
        RankState::Failed(death) if death.found == FoundBy::GaveUp => "MPI_Init failed",
        RankState::Failed(death) if death.inside => "ended before MPI_Finalize",
        RankState::Failed(_) => "ended without MPI_Init",
    }
}

#[cfg(test)]
mod tests {
    use super::TransportReport;
    use crate::ending::Ending;
    use crate::ranks::{FoundBy, RankTable};
    use mend_base::Instant;
    use mend_runtime::rank_ranges::RankRange;
    use mend_runtime::transport_view::{Reached, TransportPart, TransportView};

    const NOW: Instant = Instant(0);

    fn table(ranks: u32) -> RankTable {
        let mut table = RankTable::of(ranks);
        (0..ranks).for_each(|rank| table.init(rank));
        table
    }

    /// A rank says that it has reached all ranks by shared memory.
    fn say(report: &mut TransportReport, rank: u32, size: u32) {
        let mut view = TransportView::default();
        view.add_reached("shm", 0..size);
        assert!(view.parts().all(|part| report.on_part(rank, part, size)));
    }

    // R-22
    #[test]
    fn the_table_is_printed_once_when_every_rank_has_said_its_row_or_has_ended() {
        let (mut report, mut ranks) = (TransportReport::new(true), table(4));
        for rank in [0, 3, 1] {
            say(&mut report, rank, 4);
            assert_eq!(report.lines(&ranks, false), None);
            ranks.finalize(rank);
        }
        assert_eq!(report.lines(&ranks, false), None);
        ranks.fail(2, FoundBy::LifeWord, NOW);
        let lines = report.lines(&ranks, false).unwrap();
        assert!(lines[0].starts_with("mpiexec: ") && lines[0].ends_with("[E-JOB-023]"));
        assert_eq!(lines[2], "mpiexec:    0  s s s s");
        assert_eq!(lines[4], "mpiexec:    2  ? ? ? ?");
        assert_eq!(lines.last().unwrap(), "mpiexec:   rank 2 said nothing: ended before MPI_Finalize");
        assert_eq!(report.lines(&ranks, true), None);
    }

    #[test]
    fn a_job_without_the_parameter_has_no_table() {
        let (mut report, mut ranks) = (TransportReport::new(false), table(2));
        (0..2).for_each(|rank| _ = ranks.finalize(rank));
        assert_eq!((report.lines(&ranks, false), report.lines(&ranks, true)), (None, None));
    }

    #[test]
    fn programs_without_mpi_have_no_table() {
        let (mut report, mut ranks) = (TransportReport::new(true), RankTable::of(2));
        (0..2).for_each(|rank| _ = ranks.fail(rank, FoundBy::Process, NOW));
        assert_eq!((report.lines(&ranks, false), report.lines(&ranks, true)), (None, None));
    }

    #[test]
    fn each_silent_rank_is_named_with_the_reason() {
        let (mut report, mut ranks) = (TransportReport::new(false), RankTable::of(8));
        (0..5).for_each(|rank| ranks.init(rank));
        say(&mut report, 0, 8);
        // It dies before the end of what it says.
        assert!(report.on_part(1, TransportPart::NotUsed("a reason".to_owned()), 8));
        ranks.fail(1, FoundBy::LifeWord, NOW);
        ranks.fail(2, FoundBy::GaveUp, NOW);
        ranks.finalize(3);
        ranks.child_ended(5, Ending::Exited(0));
        ranks.fail(5, FoundBy::Process, NOW);
        assert_eq!(report.lines(&ranks, false), None);
        let lines = report.lines(&ranks, true).unwrap();
        let about = |rank: u32| {
            let start = format!("mpiexec:   rank {rank} said nothing: ");
            let found = lines.iter().find_map(|line| line.strip_prefix(&start));
            found.unwrap_or_else(|| panic!("{rank}: {lines:?}"))
        };
        assert_eq!(about(1), "ended before MPI_Finalize");
        assert_eq!(about(2), "MPI_Init failed");
        assert_eq!(about(3), "left MPI without the parameter report = transports");
        assert_eq!(about(4), "still in MPI when the job ended");
        assert_eq!(about(5), "ended without MPI_Init");
        let outside = "mpiexec:   ranks 6-7 said nothing: not in MPI when the job ended";
        assert!(lines.iter().any(|line| line == outside), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("a reason")), "{lines:?}");
    }

    #[test]
    fn a_death_after_the_last_part_leaves_the_row_as_it_was_said() {
        let (mut report, mut ranks) = (TransportReport::new(true), table(1));
        say(&mut report, 0, 1);
        ranks.fail(0, FoundBy::LifeWord, NOW);
        let lines = report.lines(&ranks, false).unwrap();
        assert!(!lines.iter().any(|line| line.contains("said nothing")), "{lines:?}");
    }

    #[test]
    fn parts_about_ranks_that_the_job_does_not_have_are_refused() {
        let mut report = TransportReport::new(true);
        let ranks = vec![RankRange { first: 1, last: 2 }];
        let part = TransportPart::Reached(Reached { transport: "shm".to_owned(), ranks });
        assert!(!report.on_part(0, part.clone(), 2) && report.on_part(0, part, 3));
        assert!(report.on_part(0, TransportPart::End, 3) && !report.on_part(0, TransportPart::End, 3));
    }
}
