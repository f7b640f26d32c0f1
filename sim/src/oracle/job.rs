// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What has become of each rank, as the simulator knows it, and what must follow for the job: who is killed, when it ends, with
//! which exit code.

use mend_daemon::{Counting, Ending, JobEnd, JobEndReason, RankLine, Rules};
use mend_runtime::daemon_protocol::Request;
use mend_runtime::exit_code;

/// What has become of every rank.
#[derive(Debug)]
pub struct Ledger {
    rules: Rules,
    ranks: Vec<RankRecord>,
    /// Who has failed, in that order.
    failed: Vec<u32>,
    /// A rank ended the job with this code.
    aborted: Option<i32>,
    reports: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct RankRecord {
    joined: bool,
    fate: Option<Fate>,
    /// It lived on until it was killed.
    lived: bool,
    ending: Option<Ending>,
}

/// How a rank's time in MPI ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It left.
    Left,
    /// Its process ended, or lost MPI.
    Died,
    /// It could not begin.
    GaveUp,
    /// It was fenced.
    Garbage,
    /// A rank ended it, with this code.
    Aborted(i32),
}

impl Ledger {
    /// For so many ranks.
    pub fn new(size: u32, rules: Rules) -> Self {
        let ranks = vec![RankRecord::default(); size as usize];
        Ledger { rules, ranks, failed: vec![], aborted: None, reports: vec![] }
    }

    /// What has become of it, if its time in MPI has ended.
    pub fn fate(&self, rank: u32) -> Option<Fate> {
        self.ranks[rank as usize].fate
    }

    /// Whether it has neither left nor failed.
    pub fn is_open(&self, rank: u32) -> bool {
        self.fate(rank).is_none()
    }

    /// Whether it has been in MPI.
    pub fn has_joined(&self, rank: u32) -> bool {
        self.ranks[rank as usize].joined
    }

    /// How many have failed.
    pub fn deaths(&self) -> u64 {
        self.failed.len() as u64
    }

    /// It joins.
    pub fn joined(&mut self, rank: u32) {
        self.ranks[rank as usize].joined = true;
    }

    fn set(&mut self, rank: u32, fate: Fate) {
        let record = &mut self.ranks[rank as usize];
        if record.fate.is_none() {
            record.fate = Some(fate);
            if fate != Fate::Left {
                self.failed.push(rank);
            }
        }
    }

    /// The daemon hears this.
    pub fn on_request(&mut self, rank: u32, request: &Request) {
        if let Request::Abort(code) = request {
            self.aborted.get_or_insert(*code);
        }
        if !self.is_open(rank) {
            return;
        }
        match request {
            Request::Finalize => self.set(rank, Fate::Left),
            Request::GiveUp => self.set(rank, Fate::GaveUp),
            Request::Ask(peer, mend_transport::Cause::Garbage) => self.set(peer.number(), Fate::Garbage),
            Request::AbortSome(code, peers) => {
                let named = |peer: &&mend_base::Peer| peer.number() == rank;
                peers.iter().filter(named).for_each(|peer| self.set(peer.number(), Fate::Aborted(*code)));
                peers.iter().for_each(|peer| self.set(peer.number(), Fate::Aborted(*code)));
            }
            _ => {}
        }
    }

    /// The end of the rank was seen; `said`: what it had said before of its end, which was not heard yet.
    pub fn on_end_seen(&mut self, rank: u32, said: Option<Fate>) {
        self.set(rank, said.unwrap_or(Fate::Died));
    }

    /// Its process was seen to have ended.
    pub fn on_process_ended(&mut self, rank: u32, ending: Ending) {
        self.ranks[rank as usize].ending = Some(ending);
    }

    /// It was killed, and had lived.
    pub fn on_killed(&mut self, rank: u32) {
        self.ranks[rank as usize].lived = true;
    }

    /// The user is told of a death.
    pub fn on_report(&mut self, line: &RankLine) {
        assert!(self.failed.contains(&line.rank), "rank {} is reported as failed, and is not", line.rank);
        assert!(!self.reports.contains(&line.rank), "rank {} is reported twice", line.rank);
        self.reports.push(line.rank);
    }

    /// Each rank that has failed is dead, but for one that goes on without MPI, and one that writes its core.
    pub fn dead_are_killed(&self, stopped: impl Fn(u32) -> bool) {
        let alive = self.failed.iter().find(|&&rank| self.fate(rank) != Some(Fate::GaveUp) && !stopped(rank));
        assert!(alive.is_none(), "rank {} has failed, and is not killed", alive.expect("some"));
    }

    /// Whether the death of the rank ends a job that does not outlive deaths.
    pub fn ends_the_job(&self, rank: u32) -> bool {
        let record = &self.ranks[rank as usize];
        let counts = record.joined || record.ending != Some(Ending::Exited(0));
        !self.rules.fault_tolerant && self.failed.contains(&rank) && counts
    }

    /// The first death that ends a job without fault tolerance, once it is known how that process ended.
    fn first_fatal(&self) -> Option<u32> {
        let any_joined = self.ranks.iter().any(|record| record.joined);
        let first = self.failed.iter().copied().find(|rank| self.ends_the_job(*rank))?;
        (any_joined && self.ranks[first as usize].ending.is_some()).then_some(first)
    }

    fn all_have_ended(&self) -> bool {
        self.ranks.iter().all(|record| record.ending.is_some())
    }

    /// Asserts that the job may end now.
    pub fn may_end(&self, end: &JobEnd) {
        match (self.aborted, end.reason) {
            (Some(code), JobEndReason::Aborted) => assert_eq!(end.code, exit_code(code)),
            (None, JobEndReason::Over) => {
                let fatal = self.failed.iter().any(|rank| self.ends_the_job(*rank));
                let running = self.ranks.iter().position(|record| record.ending.is_none());
                assert!(fatal || running.is_none(), "the job ends, and rank {} runs", running.unwrap_or(0));
            }
            other => panic!("the job ends for no reason: {other:?}"),
        }
    }

    /// Asserts that a job that is over has been ended.
    pub fn is_over_in_time(&self, ended: bool) {
        let over = self.all_have_ended() || self.aborted.is_some() || self.first_fatal().is_some();
        assert!(ended || !over, "the job is over, and goes on");
    }

    /// Asserts that the job ended with the right code and lines.
    pub fn ends_right(&self, end: &JobEnd) {
        if self.aborted.is_some() {
            return assert_eq!(end.lines.len(), 1, "{end:?}");
        }
        if let Some(first) = self.failed.iter().find(|rank| self.ends_the_job(**rank)) {
            let late = self.ranks[*first as usize].ending.is_none();
            let code = if late { 1 } else { self.code_of(*first).1.max(1) };
            let names_a_death = end.lines.len() == 1 && self.failed.contains(&end.lines[0].rank);
            return assert!(names_a_death && end.code == code, "not {code}: {end:?}, {self:?}");
        }
        assert_eq!(end.code, self.exit_code(), "{end:?}, {self:?}");
        assert!(end.code != 0 || end.lines.is_empty(), "a job that ends with 0 says {end:?}");
        let joined = self.ranks.iter().any(|record| record.joined);
        let reported = if self.rules.reports_deaths && joined { self.failed.len() } else { 0 };
        assert_eq!(self.reports.len(), reported, "not each death is reported once: {self:?}");
    }

    /// Whether the code of a rank counts while somebody survives, and which it is.
    fn code_of(&self, rank: u32) -> (bool, u8) {
        let record = &self.ranks[rank as usize];
        let ending = record.ending.expect("its process has ended");
        let outside = !record.joined || record.fate == Some(Fate::GaveUp);
        match (record.fate, ending) {
            (Some(Fate::Left), _) => (true, ending.code()),
            (Some(Fate::Aborted(code)), _) => (true, exit_code(code)),
            (_, Ending::Exited(code)) if outside => (true, code as u8),
            _ if record.lived => (false, 1),
            _ => (false, ending.failure_code()),
        }
    }

    /// The exit code of a job that outlived its deaths.
    fn exit_code(&self) -> u8 {
        let codes: Vec<(bool, u8)> = (0..self.ranks.len() as u32).map(|rank| self.code_of(rank)).collect();
        let largest =
            |counts: fn(&&(bool, u8)) -> bool| codes.iter().filter(counts).map(|(_, code)| *code).max();
        if !self.ranks.iter().any(|record| record.joined) {
            let endings = self.ranks.iter().filter_map(|record| record.ending);
            return endings.map(Ending::code).max().unwrap_or(0);
        }
        let survivors = largest(|(survives, _)| *survives);
        match self.rules.counting {
            Counting::Survivors if survivors.is_some() => survivors.unwrap_or(0),
            _ => largest(|_| true).unwrap_or(1),
        }
    }
}
