// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How each rank ended, derived from the same inputs that the node daemon gets, and what must follow: which processes are
//! killed, when the job ends, and with which exit code.

use mend_base::Peer;
use mend_daemon::{Counting, Ending, JobEnd, JobEndReason, RankLine, Rules};
use mend_runtime::daemon_protocol::RankMessage;
use mend_runtime::exit_code;
use mend_transport::Cause;

/// The ends of all ranks of a job.
#[derive(Debug)]
pub struct JobOracle {
    rules: Rules,
    ranks: Vec<RankRecord>,
    /// The failed ranks, in the order of their failures.
    failed: Vec<u32>,
    /// The code of the first MPI_Abort of the whole job.
    aborted: Option<i32>,
    /// The ranks whose failures were reported to the user.
    reported: Vec<u32>,
    /// The pairs that need each other and cannot connect.
    needed: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct RankRecord {
    joined: bool,
    end: Option<RankEnd>,
    /// The node daemon killed its process while it was alive.
    killed_alive: bool,
    /// How its process ended, once the node daemon was told.
    ending: Option<Ending>,
}

/// How a rank stopped using MPI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RankEnd {
    /// It finalized. Every other end is a failure.
    Left,
    /// Its process ended, or called exec.
    Died,
    /// Its MPI_Init failed, and its process goes on without MPI.
    GaveUp,
    /// It wrote garbage and was killed.
    Garbage,
    /// It and another rank, which needed each other, could not connect, and it was killed.
    Unreachable,
    /// MPI_Abort of a rank ended it with this code.
    Aborted(i32),
}

impl JobOracle {
    /// For a job of `size` ranks.
    pub fn new(size: u32, rules: Rules) -> Self {
        let ranks = vec![RankRecord::default(); size as usize];
        JobOracle { rules, ranks, failed: vec![], aborted: None, reported: vec![], needed: vec![] }
    }

    /// How the rank ended, if it has.
    pub fn end_of(&self, rank: u32) -> Option<RankEnd> {
        self.ranks[rank as usize].end
    }

    /// Whether the rank has neither left nor failed.
    pub fn is_open(&self, rank: u32) -> bool {
        self.end_of(rank).is_none()
    }

    /// Whether the rank has ever joined the job.
    pub fn has_joined(&self, rank: u32) -> bool {
        self.ranks[rank as usize].joined
    }

    /// The number of failed ranks.
    pub fn deaths(&self) -> u64 {
        self.failed.len() as u64
    }

    /// Whether the failure of this rank ends the job: a job without fault tolerance ends at the first failure. A process
    /// that never joined and ended with 0 is no failure.
    pub fn ends_the_job(&self, rank: u32) -> bool {
        let record = &self.ranks[rank as usize];
        let is_failure = record.joined || record.ending != Some(Ending::Exited(0));
        !self.rules.fault_tolerant && self.failed.contains(&rank) && is_failure
    }
}

/// The inputs of the node daemon.
impl JobOracle {
    /// The rank joins the job.
    pub fn on_joined(&mut self, rank: u32) {
        self.ranks[rank as usize].joined = true;
    }

    /// The node daemon receives a message.
    pub fn on_rank_message(&mut self, rank: u32, message: &RankMessage) {
        if let RankMessage::Abort(code) = message {
            self.aborted.get_or_insert(*code);
        }
        if !self.is_open(rank) {
            return;
        }
        match message {
            RankMessage::Finalize => self.set_end(rank, RankEnd::Left),
            RankMessage::GiveUp => self.set_end(rank, RankEnd::GaveUp),
            RankMessage::Ask(peer, Cause::Refused) => self.needed.push((rank, peer.number())),
            RankMessage::Ask(peer, Cause::Garbage) => self.set_end(peer.number(), RankEnd::Garbage),
            RankMessage::AbortSome(code, peers) => self.on_abort_some(rank, *code, peers),
            _ => {}
        }
    }

    /// A rank that names itself fails before the other ranks that it names.
    fn on_abort_some(&mut self, rank: u32, code: i32, peers: &[Peer]) {
        if peers.iter().any(|peer| peer.number() == rank) {
            self.set_end(rank, RankEnd::Aborted(code));
        }
        peers.iter().for_each(|peer| self.set_end(peer.number(), RankEnd::Aborted(code)));
    }

    /// The node daemon gets evidence that the rank has ended. `unread`: the end that follows from a message which the node
    /// daemon has not read yet.
    pub fn on_end_evidence(&mut self, rank: u32, unread: Option<RankEnd>) {
        self.set_end(rank, unread.unwrap_or(RankEnd::Died));
    }

    /// The node daemon has ended the rank, which lives, or it had ended before. Of two that need each other and cannot connect it may
    /// choose one.
    pub fn on_fenced(&mut self, rank: u32) {
        let is_apart = |&&(one, two): &&(u32, u32)| self.is_open(one) && self.is_open(two);
        if self.needed.iter().filter(is_apart).any(|&(one, two)| one == rank || two == rank) {
            self.set_end(rank, RankEnd::Unreachable);
        }
    }

    /// The first end of a rank is final.
    fn set_end(&mut self, rank: u32, end: RankEnd) {
        let record = &mut self.ranks[rank as usize];
        if record.end.is_none() {
            record.end = Some(end);
            if end != RankEnd::Left {
                self.failed.push(rank);
            }
        }
    }

    /// The node daemon is told how the process of the rank has ended.
    pub fn on_process_ended(&mut self, rank: u32, ending: Ending) {
        self.ranks[rank as usize].ending = Some(ending);
    }

    /// The node daemon has killed the process of the rank, which was alive until then.
    pub fn on_killed_alive(&mut self, rank: u32) {
        self.ranks[rank as usize].killed_alive = true;
    }

    /// The node daemon reports a failure to the user: each once.
    pub fn on_report(&mut self, line: &RankLine) {
        assert!(
            self.failed.contains(&line.rank),
            "rank {} is reported as failed, but has not failed",
            line.rank
        );
        assert!(!self.reported.contains(&line.rank), "the failure of rank {} is reported twice", line.rank);
        self.reported.push(line.rank);
    }
}

/// What the node daemon must have done.
impl JobOracle {
    /// Asserts that the process of each failed rank has `stopped`: it has ended, or writes its core. A rank whose MPI_Init
    /// failed goes on without MPI.
    pub fn assert_failed_have_stopped(&self, stopped: impl Fn(u32) -> bool) {
        let goes_on = |rank: u32| self.end_of(rank) == Some(RankEnd::GaveUp);
        let running = self.failed.iter().find(|&&rank| !goes_on(rank) && !stopped(rank));
        if let Some(rank) = running {
            panic!("rank {rank} has failed, and the node daemon has not killed its process");
        }
    }

    /// Asserts that the node daemon ends the job for a reason that exists.
    pub fn assert_may_end(&self, end: &JobEnd) {
        match (self.aborted, end.reason) {
            (Some(code), JobEndReason::Aborted) => assert_eq!(end.code, exit_code(code)),
            (None, JobEndReason::Over) => {
                let failure = self.failed.iter().any(|rank| self.ends_the_job(*rank));
                let running = self.ranks.iter().position(|record| record.ending.is_none());
                if let Some(rank) = running.filter(|_| !failure) {
                    panic!("the node daemon ends the job while rank {rank} runs");
                }
            }
            other => panic!("the node daemon ends the job without a reason: {other:?}"),
        }
    }

    /// Asserts that the node daemon has `ended` the job, if all processes have ended, a rank has aborted the job, or a
    /// failure ends it.
    pub fn assert_ended_in_time(&self, ended: bool) {
        let all_have_ended = self.ranks.iter().all(|record| record.ending.is_some());
        let over = all_have_ended || self.aborted.is_some() || self.is_ended_by_failure();
        assert!(ended || !over, "the job is over, and the node daemon has not ended it");
    }

    /// Whether a failure ends the job, and the node daemon was told how that process ended.
    fn is_ended_by_failure(&self) -> bool {
        let any_joined = self.ranks.iter().any(|record| record.joined);
        let first = self.failed.iter().find(|rank| self.ends_the_job(**rank));
        any_joined && first.is_some_and(|rank| self.ranks[*rank as usize].ending.is_some())
    }

    /// Asserts that the job ended with the right exit code and the right lines for the user.
    pub fn assert_job_end(&self, end: &JobEnd) {
        if self.aborted.is_some() {
            return assert_eq!(end.lines.len(), 1, "{end:?}");
        }
        if let Some(first) = self.failed.iter().find(|rank| self.ends_the_job(**rank)) {
            let ending_is_unknown = self.ranks[*first as usize].ending.is_none();
            let code = if ending_is_unknown { 1 } else { self.code_of(*first).1.max(1) };
            let names_a_failure = end.lines.len() == 1 && self.failed.contains(&end.lines[0].rank);
            return assert!(names_a_failure && end.code == code, "not code {code}: {end:?}, {self:?}");
        }
        assert_eq!(end.code, self.exit_code(), "{end:?}, {self:?}");
        assert!(end.code != 0 || end.lines.is_empty(), "a job that ends with 0 prints {end:?}");
        let joined = self.ranks.iter().any(|record| record.joined);
        let expected = if self.rules.reports_deaths && joined { self.failed.len() } else { 0 };
        assert_eq!(self.reported.len(), expected, "each failure is to be reported once: {self:?}");
    }

    /// Whether the rank did not fail (as in [`Counting::NotFailed`]), and its exit code.
    fn code_of(&self, rank: u32) -> (bool, u8) {
        let record = &self.ranks[rank as usize];
        let ending = record.ending.expect("all processes have ended");
        let without_mpi = !record.joined || record.end == Some(RankEnd::GaveUp);
        match (record.end, ending) {
            (Some(RankEnd::Left), _) => (true, ending.code()),
            (Some(RankEnd::Aborted(code)), _) => (true, exit_code(code)),
            (_, Ending::Exited(code)) if without_mpi => (true, code as u8),
            _ if record.killed_alive => (false, 1),
            _ => (false, ending.failure_code()),
        }
    }

    /// The exit code of a job that ended when all its processes had ended.
    fn exit_code(&self) -> u8 {
        let codes: Vec<(bool, u8)> = (0..self.ranks.len() as u32).map(|rank| self.code_of(rank)).collect();
        let largest =
            |counts: fn(&&(bool, u8)) -> bool| codes.iter().filter(counts).map(|(_, code)| *code).max();
        if !self.ranks.iter().any(|record| record.joined) {
            let endings = self.ranks.iter().filter_map(|record| record.ending);
            return endings.map(Ending::code).max().unwrap_or(0);
        }
        let not_failed = largest(|(not_failed, _)| *not_failed);
        match self.rules.counting {
            Counting::NotFailed if not_failed.is_some() => not_failed.unwrap_or(0),
            _ => largest(|_| true).unwrap_or(1),
        }
    }
}
