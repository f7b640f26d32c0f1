// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The states of the ranks: which are in MPI, have left it, or have failed, and how their processes ended.
//!
//! A rank has a *child*, the process that was started for it, and, once a program under it has sent hello, a *joined process*:
//! the same process, or, under a wrapper, a descendant.
//!
//! ```text
//!   Outside ── hello ──▶ Inside ── finalize ──▶ Left          from here on only its exit code counts
//!      │                    │
//!      └────────────────────┴── its end, however it was found ──▶ Failed: final
//! ```

use crate::ending::Ending;
use mend_base::Instant;
use mend_runtime::daemon_protocol::HelloRefused;
use mend_runtime::exit_code;

/// All ranks.
#[derive(Debug)]
pub(crate) struct RankTable {
    ranks: Vec<RankRecord>,
    /// The ranks that have failed, in the order of declaration.
    failed: Vec<u32>,
    any_joined: bool,
}

/// What is known of one rank.
#[derive(Debug, Default)]
pub(crate) struct RankRecord {
    child: Process,
    state: RankState,
    /// The joined process under a wrapper.
    wrapped: Option<Process>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Process {
    /// Its process id.
    number: u32,
    end: ProcessState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum ProcessState {
    #[default]
    Runs,
    /// The process has ended; how, if that is known. Only the wrapper of a wrapped process learns how it ended.
    Ended(Option<Ending>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum RankState {
    /// No program of the rank has called Init.
    #[default]
    Outside,
    /// A program of the rank is in MPI.
    Inside,
    /// The rank has left MPI.
    Left,
    /// The rank has failed.
    Failed(Death),
}

/// The death of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Death {
    /// What showed it first.
    pub(crate) found: FoundBy,
    /// The rank was in MPI.
    pub(crate) inside: bool,
    /// The process of the rank was alive until the node daemon killed it.
    pub(crate) lived: bool,
    /// When the death was declared.
    pub(crate) at: Instant,
}

/// A line for the user about one rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankLine {
    /// The rank.
    pub rank: u32,
    /// A sentence, whose subject is the rank.
    pub words: String,
}

/// How a death was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FoundBy {
    /// The kernel marked its life word.
    LifeWord,
    /// Its own signal handler marked its life word.
    DyingMark,
    /// Its process has ended.
    Process,
    /// It closed its connection.
    Connection,
    /// This rank asked, and the examination showed the death.
    Question(u32),
    /// It reported that its MPI_Init failed. Its process lives on, without MPI.
    GaveUp,
    /// It is killed because it wrote garbage to this rank, or to the node daemon.
    Garbage(Option<u32>),
    /// It is killed because it and this rank cannot exchange messages, and a protocol among members of a communicator needs one.
    Unreachable(u32),
    /// This rank ended it, perhaps itself, with this code.
    Aborted {
        /// Which rank.
        by: u32,
        /// The code as the caller gave it.
        code: i32,
    },
}

impl FoundBy {
    /// Whether the process of the rank is killed. A process that dies by itself is not, as it may be writing its core; nor is one
    /// that goes on without MPI.
    pub(crate) fn is_killed(self) -> bool {
        !matches!(self, FoundBy::DyingMark | FoundBy::GaveUp)
    }
}

impl RankTable {
    pub(crate) fn new(ranks: u32) -> Self {
        RankTable {
            ranks: (0..ranks).map(|_| RankRecord::default()).collect(),
            failed: vec![],
            any_joined: false,
        }
    }

    pub(crate) fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &RankRecord)> {
        (0..).zip(&self.ranks)
    }

    pub(crate) fn get(&self, rank: u32) -> &RankRecord {
        &self.ranks[rank as usize]
    }

    /// Whether any rank has joined MPI.
    pub(crate) fn any_joined(&self) -> bool {
        self.any_joined
    }

    /// The failed ranks, in the order of declaration.
    pub(crate) fn deaths(&self) -> impl Iterator<Item = (u32, &RankRecord, &Death)> {
        self.failed.iter().filter_map(|&rank| match &self.get(rank).state {
            RankState::Failed(death) => Some((rank, self.get(rank), death)),
            _ => None,
        })
    }

    /// Whether `rank` failed, but its death ends no job.
    pub(crate) fn is_harmless(&self, rank: u32) -> bool {
        matches!(&self.get(rank).state, RankState::Failed(death) if self.get(rank).is_harmless(death))
    }

    /// The process of `rank` has been started.
    pub(crate) fn started(&mut self, rank: u32, process: u32) {
        self.ranks[rank as usize].child.number = process;
    }

    /// Whether a process may join as `rank`.
    pub(crate) fn admit(&self, rank: u32) -> Result<(), HelloRefused> {
        match self.get(rank).state {
            RankState::Outside => Ok(()),
            RankState::Inside => Err(HelloRefused::Taken(self.get(rank).process())),
            RankState::Left => Err(HelloRefused::Over),
            RankState::Failed(_) => Err(HelloRefused::Failed),
        }
    }

    /// A process is `rank` from now on: the child itself, or a descendant of it.
    pub(crate) fn joined(&mut self, rank: u32, process: u32) {
        let record = &mut self.ranks[rank as usize];
        assert!(record.state == RankState::Outside, "rank {rank} was admitted");
        if process != record.child.number {
            record.wrapped = Some(Process { number: process, end: ProcessState::Runs });
        }
        record.state = RankState::Inside;
        self.any_joined = true;
    }

    /// `rank` leaves MPI. `false`: it was not in MPI.
    pub(crate) fn finalize(&mut self, rank: u32) -> bool {
        let record = &mut self.ranks[rank as usize];
        let inside = record.state == RankState::Inside;
        if inside {
            record.state = RankState::Left;
        }
        inside
    }

    /// Declares the failure of `rank`, found in that way. `false`: it had failed before, or has left MPI, and nothing has changed.
    pub(crate) fn fail(&mut self, rank: u32, found: FoundBy, now: Instant) -> bool {
        let record = &mut self.ranks[rank as usize];
        let inside = match record.state {
            RankState::Outside => false,
            RankState::Inside => found != FoundBy::GaveUp,
            RankState::Left | RankState::Failed(_) => return false,
        };
        record.state = RankState::Failed(Death { found, inside, lived: false, at: now });
        self.failed.push(rank);
        true
    }

    /// The process of the failed `rank` was alive until it was killed.
    pub(crate) fn had_lived(&mut self, rank: u32) {
        if let RankState::Failed(death) = &mut self.ranks[rank as usize].state {
            death.lived = true;
        }
    }

    /// The child of `rank` has ended.
    pub(crate) fn child_ended(&mut self, rank: u32, ending: Ending) {
        let child = &mut self.ranks[rank as usize].child;
        if child.end == ProcessState::Runs {
            child.end = ProcessState::Ended(Some(ending));
        }
    }

    /// The joined process of `rank` under a wrapper has ended; how, where that is known.
    pub(crate) fn wrapped_ended(&mut self, rank: u32, ending: Option<Ending>) {
        if let Some(wrapped) = &mut self.ranks[rank as usize].wrapped {
            wrapped.end = match wrapped.end {
                ProcessState::Ended(Some(known)) => ProcessState::Ended(Some(known)),
                ProcessState::Runs | ProcessState::Ended(None) => ProcessState::Ended(ending),
            };
        }
    }
}

impl RankRecord {
    pub(crate) fn state(&self) -> RankState {
        self.state
    }

    pub(crate) fn is_inside(&self) -> bool {
        self.state == RankState::Inside
    }

    /// Whether the rank has neither left nor failed.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, RankState::Outside | RankState::Inside)
    }

    /// The id of the process that is, or was, this rank: its joined process, or else its child; 0 if none was started.
    pub(crate) fn process(&self) -> u32 {
        self.wrapped.map_or(self.child.number, |wrapped| wrapped.number)
    }

    /// How the process that was started for the rank ended, once it has.
    pub(crate) fn child_ending(&self) -> Option<Ending> {
        self.child.ending()
    }

    /// Whether the rank's process is not the one that was started for it.
    pub(crate) fn has_wrapper(&self) -> bool {
        self.wrapped.is_some()
    }

    /// How the process that is, or was, this rank ended, if that is known.
    pub(crate) fn own_ending(&self) -> Option<Ending> {
        self.wrapped.unwrap_or(self.child).ending()
    }

    /// Whether the process that is, or was, this rank has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.wrapped.unwrap_or(self.child).end != ProcessState::Runs
    }

    /// Whether there is a process under a wrapper that has not ended.
    pub(crate) fn wrapped_lives(&self) -> bool {
        self.wrapped.is_some_and(|wrapped| wrapped.end == ProcessState::Runs)
    }

    /// Whether the rank is in MPI, or may still join it, but its process has ended.
    pub(crate) fn is_lost(&self) -> bool {
        match self.state {
            RankState::Outside => self.child_ending().is_some(),
            RankState::Inside => self.has_ended(),
            RankState::Left | RankState::Failed(_) => false,
        }
    }

    /// The exit code of a failed rank that is treated as if the rank had not failed: the code given to MPI_Abort or by an error
    /// handler, or the exit code of a program that ended before it joined MPI. `None`: this rank has no such code.
    pub(crate) fn counted_code(&self, death: &Death) -> Option<u8> {
        match (death.found, death.inside, self.child_ending()) {
            (FoundBy::Aborted { code, .. }, ..) => Some(exit_code(code)),
            (_, false, Some(ending @ Ending::Exited(_))) => Some(ending.code()),
            _ => None,
        }
    }

    /// The exit code with which a dead rank counts: never 0.
    pub(crate) fn code_of_dead(&self, death: &Death) -> u8 {
        if death.lived {
            return 1;
        }
        // In most cases a wrapper passes the exit code of its program on.
        self.own_ending().or(self.child_ending()).map_or(1, Ending::failure_code)
    }

    /// Whether the death is no error, and does not end a job without fault tolerance: the rank never joined, and exited with 0.
    pub(crate) fn is_harmless(&self, death: &Death) -> bool {
        let never_joined = !death.inside && death.found != FoundBy::GaveUp;
        never_joined && self.child_ending() == Some(Ending::Exited(0))
    }
}

impl Process {
    fn ending(&self) -> Option<Ending> {
        match self.end {
            ProcessState::Runs => None,
            ProcessState::Ended(ending) => ending,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{FoundBy, RankState, RankTable};
    use crate::ending::Ending;
    use mend_base::Instant;
    use mend_runtime::daemon_protocol::HelloRefused;

    const NOW: Instant = Instant(0);

    impl RankTable {
        /// A table of `ranks` ranks, whose children are the processes 100, 101, and so on.
        pub(crate) fn of(ranks: u32) -> RankTable {
            let mut table = RankTable::new(ranks);
            (0..ranks).for_each(|rank| table.started(rank, 100 + rank));
            table
        }

        /// The child of this rank calls Init.
        pub(crate) fn init(&mut self, rank: u32) {
            assert_eq!(self.admit(rank), Ok(()));
            self.joined(rank, 100 + rank);
        }
    }

    #[test]
    fn a_second_program_under_one_rank_is_told_why_it_cannot_join() {
        let mut table = RankTable::of(3);
        table.init(0);
        assert_eq!(table.admit(0), Err(HelloRefused::Taken(100)));
        assert!(table.finalize(0));
        assert!(!table.finalize(0), "a correct rank finalizes once");
        assert_eq!(table.admit(0), Err(HelloRefused::Over));
        assert_eq!(table.get(1).state(), RankState::Outside);
        assert!(table.fail(2, FoundBy::Process, NOW));
        assert_eq!(table.admit(2), Err(HelloRefused::Failed));
    }

    #[test]
    fn a_death_is_final_and_a_rank_that_has_left_cannot_fail() {
        let mut table = RankTable::of(2);
        table.init(0);
        table.init(1);
        assert!(table.finalize(0));
        assert!(!table.fail(0, FoundBy::Process, NOW));
        assert!(table.fail(1, FoundBy::LifeWord, NOW));
        assert!(!table.fail(1, FoundBy::Process, NOW) && !table.finalize(1));
        assert_eq!(table.deaths().map(|(rank, ..)| rank).collect::<Vec<_>>(), [1]);
        assert!(!table.get(0).is_open() && !table.get(1).is_open());
    }

    #[test]
    fn a_rank_is_lost_when_its_process_ends_before_it_has_left() {
        let mut table = RankTable::of(4);
        table.init(0);
        table.init(1);
        table.joined(3, 7);
        table.finalize(1);
        assert!(!(0..4).any(|rank| table.get(rank).is_lost()));
        (0..4).for_each(|rank| table.child_ended(rank, Ending::Exited(0)));
        assert_eq!([0, 1, 2, 3].map(|rank| table.get(rank).is_lost()), [true, false, true, false]);
        table.wrapped_ended(3, None);
        assert!(table.get(3).is_lost() && table.get(3).own_ending().is_none());
        table.wrapped_ended(3, Some(Ending::Signalled(9)));
        assert_eq!(table.get(3).own_ending(), Some(Ending::Signalled(9)));
    }
}
