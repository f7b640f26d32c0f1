// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Knows how the ranks' processes fare, and judges what an ending means for the job.
//!
//! A rank has a *child*, the process that was started for it, and, once a program under it has said hello, a *member*:
//! the same process, or, under a wrapper, a descendant.
//!
//! ```text
//!   Outside ── hello ──▶ Inside ── finalize ──▶ Left          ends by itself: its exit code counts, no more
//!                          └── ends, or closes its connection ──▶ lost: the job ends with it
//! ```

use crate::daemon::kill;
use crate::exit::Ending;
use mend_runtime::daemon_protocol::TurnedAway;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long the wrapper of a rank that is gone has to say how it ended, and a process that closed its connection to
/// end.
const GRACE: Duration = Duration::from_secs(1);

/// The processes of all ranks.
#[derive(Debug)]
pub struct Watch {
    ranks: Vec<Record>,
    /// A signal asked the job to end: deaths are no news.
    wanted: bool,
    /// Somebody has been in MPI.
    any_member: bool,
}

#[derive(Debug, Default)]
struct Record {
    child: Option<Process>,
    child_ended: Option<Ending>,
    stage: Stage,
    /// The member under a wrapper.
    member: Option<Process>,
    member_ended: Option<Ending>,
    /// Since when the member is silent, or its process gone, without a word of why.
    silent_since: Option<Instant>,
}

#[derive(Debug)]
struct Process {
    pid: Pid,
    /// Readable once it has ended; given up then.
    pidfd: Option<OwnedFd>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    /// No program under it has called Init.
    #[default]
    Outside,
    /// One is in MPI.
    Inside,
    /// It has left MPI.
    Left,
}

/// What has become of the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All have ended by themselves.
    Done {
        /// The largest of their exit codes.
        code: u8,
        /// What is said of the first one that a signal killed.
        killed: Option<(u32, String)>,
    },
    /// A rank's end ends the job.
    Failed {
        /// Which.
        rank: u32,
        /// The job's exit code.
        code: u8,
        /// What is said of it.
        words: String,
    },
}

impl Watch {
    /// For so many ranks, none of them started.
    pub fn new(ranks: u32) -> Self {
        Watch { ranks: (0..ranks).map(|_| Record::default()).collect(), wanted: false, any_member: false }
    }

    /// The process of `rank` has been started; what to wait for.
    pub fn started(&mut self, rank: u32, pid: Pid) -> io::Result<BorrowedFd<'_>> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let child = self.ranks[rank as usize].child.insert(Process { pid, pidfd: None });
        let pidfd: &OwnedFd = child.pidfd.insert(pidfd);
        Ok(pidfd.as_fd())
    }

    /// From now on deaths are what was asked for.
    pub fn deaths_are_wanted(&mut self) {
        self.wanted = true;
    }

    /// The process groups of the ranks that still run: each its child's, or, once that was a wrapper that has ended, its
    /// member's. A group of which nobody is known to live may be a stranger's by now.
    pub fn groups(&self) -> Vec<Pid> {
        let own = rustix::process::getpgrp();
        let groups = self.ranks.iter().filter_map(|record| match record.child_ended {
            None => record.child.as_ref().map(|child| child.pid),
            Some(_) if record.member_lives() => {
                let member = record.member.as_ref()?;
                rustix::process::getpgid(Some(member.pid)).ok()
            }
            Some(_) => None,
        });
        groups.filter(|group| *group != own).collect()
    }

    /// The process that is, or was, `rank`: its member, or else its child.
    pub fn process(&self, rank: u32) -> Option<Pid> {
        let record = &self.ranks[rank as usize];
        record.member.as_ref().or(record.child.as_ref()).map(|process| process.pid)
    }

    /// A process says that it is `rank`. If it is not the child itself, what to wait for besides.
    pub fn join(&mut self, rank: u32, process: i32) -> Result<Option<BorrowedFd<'_>>, TurnedAway> {
        let pid = Pid::from_raw(process).ok_or(TurnedAway::NotVisible)?;
        let taken = self.process(rank).map_or(0, |pid| pid.as_raw_nonzero().get() as u32);
        let record = &mut self.ranks[rank as usize];
        match record.stage {
            Stage::Outside => {}
            Stage::Inside => return Err(TurnedAway::Taken(taken)),
            Stage::Left => return Err(TurnedAway::Over),
        }
        let own_child = record.child.as_ref().is_some_and(|child| child.pid == pid);
        if !own_child {
            let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| TurnedAway::NotVisible)?;
            record.member = Some(Process { pid, pidfd: Some(pidfd) });
        }
        record.stage = Stage::Inside;
        self.any_member = true;
        let member = self.ranks[rank as usize].member.as_ref();
        Ok(member.and_then(|member| member.pidfd.as_ref()).map(OwnedFd::as_fd))
    }

    /// `rank` leaves MPI. `false`: it was not in it.
    pub fn finalize(&mut self, rank: u32) -> bool {
        let record = &mut self.ranks[rank as usize];
        let inside = record.stage == Stage::Inside;
        if inside {
            record.stage = Stage::Left;
        }
        inside
    }

    /// The connection of `rank` is closed.
    pub fn on_silence(&mut self, rank: u32, now: Instant) {
        let record = &mut self.ranks[rank as usize];
        if record.stage == Stage::Inside {
            record.silent_since.get_or_insert(now);
        }
    }

    /// A process of `rank` may have ended: takes the status of all that have. The ranks that this is news of.
    pub fn look(&mut self, rank: u32, now: Instant) -> Vec<u32> {
        let mut news = vec![];
        kill::reap(|pid, ending| news.extend(self.ended(pid, ending)));
        let record = &mut self.ranks[rank as usize];
        let member = record.member.as_mut().and_then(|member| member.pidfd.take_if(|pidfd| has_ended(pidfd)));
        if member.is_some() {
            news.push(rank);
            record.silent_since.get_or_insert(now);
        }
        news
    }

    /// Whether the process that is `rank` has not ended, as far as a look tells.
    pub fn lives(&self, rank: u32) -> bool {
        let record = &self.ranks[rank as usize];
        let process = record.member.as_ref().or(record.child.as_ref());
        process.and_then(|process| process.pidfd.as_ref()).is_some_and(|pidfd| !has_ended(pidfd))
    }

    /// Whose process has ended; orphans of ranks come to us too, and are nobody's.
    fn ended(&mut self, pid: Pid, ending: Ending) -> Option<u32> {
        for (record, rank) in self.ranks.iter_mut().zip(0..) {
            if let Some(child) =
                record.child.as_mut().filter(|child| child.pid == pid && record.child_ended.is_none())
            {
                child.pidfd = None;
                record.child_ended.get_or_insert(ending);
                return Some(rank);
            }
            // A member whose wrapper ended before it comes to us.
            if let Some(member) = record.member.as_mut().filter(|member| member.pid == pid) {
                member.pidfd = None;
                record.member_ended.get_or_insert(ending);
                return Some(rank);
            }
        }
        None
    }

    /// Whether nothing of `rank` is in MPI any more, or ever will be.
    pub fn is_gone(&self, rank: u32) -> bool {
        let record = &self.ranks[rank as usize];
        match record.stage {
            Stage::Outside => record.child_ended.is_some(),
            Stage::Inside => record.own_ending().is_some(),
            Stage::Left => true,
        }
    }

    /// When to judge again, whatever happens before.
    pub fn look_again_at(&self) -> Option<Instant> {
        if self.wanted {
            return None;
        }
        let inside = self.ranks.iter().filter(|record| record.stage == Stage::Inside);
        inside.filter_map(|record| record.silent_since).min().map(|since| since + GRACE)
    }

    /// What has become of the job by now, if it is over.
    pub fn verdict(&self, now: Instant) -> Option<Verdict> {
        if !self.wanted {
            let mut failed = self.ranks.iter().zip(0..);
            if let Some(verdict) =
                failed.find_map(|(record, rank)| record.failure(rank, self.any_member, now))
            {
                return Some(verdict);
            }
        }
        let over = self.ranks.iter().all(|record| record.is_over(self.wanted));
        over.then(|| self.done())
    }

    fn done(&self) -> Verdict {
        let endings = || self.ranks.iter().filter_map(|record| record.child_ended);
        let code = endings().map(Ending::code).max().unwrap_or(0);
        let is_killed = |ending: &&Ending| matches!(ending, Ending::Signalled(_));
        let killed_count = endings().filter(|ending| is_killed(&ending)).count();
        let first = self.ranks.iter().zip(0..).find_map(|(record, rank)| {
            record.child_ended.as_ref().filter(is_killed).map(|ending| (rank, ending.words()))
        });
        let killed = first.filter(|_| !self.wanted).map(|(rank, words)| {
            let others = match killed_count - 1 {
                0 => String::new(),
                others => format!(", and {others} other(s) were killed too"),
            };
            (rank, format!("{words} outside MPI{others}; look at what its program does there [E-JOB-004]"))
        });
        Verdict::Done { code, killed }
    }
}

impl Record {
    /// How the member ended, if we know.
    fn own_ending(&self) -> Option<Ending> {
        if self.member.is_some() { self.member_ended } else { self.child_ended }
    }

    /// Whether nothing of it is waited for: where deaths are wanted, a member without its wrapper may still tidy up.
    fn is_over(&self, wanted: bool) -> bool {
        let inside = self.stage == Stage::Inside;
        self.child_ended.is_some() && (!inside || (wanted && !self.member_lives()))
    }

    /// Whether there is a process under a wrapper that has not ended, as far as the last look told.
    fn member_lives(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.pidfd.is_some())
    }

    /// Why the job cannot go on, if this rank is to blame.
    fn failure(&self, rank: u32, any_member: bool, now: Instant) -> Option<Verdict> {
        match self.stage {
            Stage::Outside => {
                self.child_ended.filter(|ending| any_member && ending.code() != 0).map(|ending| {
                    let words = format!(
                        "{} before it called MPI_Init, while other ranks are in MPI; the job has been ended. \
                     Look at its own messages [E-JOB-003]",
                        ending.words()
                    );
                    Verdict::Failed { rank, code: ending.failure_code(), words }
                })
            }
            Stage::Inside => self.loss(now).map(|(code, how)| {
                let words = format!(
                    "{how} before it called MPI_Finalize; the job has been ended. \
                     Look at its own messages, or run it in a debugger [E-JOB-001]"
                );
                Verdict::Failed { rank, code, words }
            }),
            Stage::Left => None,
        }
    }

    /// How a member was lost: the exit code of the job, and words.
    fn loss(&self, now: Instant) -> Option<(u8, String)> {
        if let Some(ending) = self.own_ending() {
            return Some((ending.failure_code(), ending.words()));
        }
        let since = self.silent_since?;
        if let Some(ending) = self.child_ended {
            // The member is gone, and its wrapper passes its exit code on, mostly.
            return Some((ending.failure_code(), format!("ended (its wrapper {})", ending.words())));
        }
        let process_is_gone = self.member.as_ref().is_some_and(|member| member.pidfd.is_none());
        let how =
            if process_is_gone { "ended" } else { "closed its connection to the daemon (as exec does)" };
        (now.saturating_duration_since(since) >= GRACE).then(|| (1, how.to_owned()))
    }
}

/// Whether the process has ended (and may still have to be reaped by its parent).
fn has_ended(pidfd: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut waited = [PollFd::new(pidfd, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut waited, Some(&at_once)), Ok(1))
}

#[cfg(test)]
mod tests {
    use super::{GRACE, Process, Stage, Verdict, Watch};
    use crate::exit::Ending;
    use mend_runtime::daemon_protocol::TurnedAway;
    use rustix::process::Pid;
    use std::time::Instant;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    /// Two ranks, whose children are the processes 100 and 101.
    fn two() -> Watch {
        let mut watch = Watch::new(2);
        for (record, number) in watch.ranks.iter_mut().zip(100..) {
            record.child = Some(Process { pid: pid(number), pidfd: None });
        }
        watch
    }

    fn failed(watch: &Watch, now: Instant) -> Option<(u32, u8, bool)> {
        match watch.verdict(now) {
            Some(Verdict::Failed { rank, code, words }) => Some((rank, code, words.contains("E-JOB-001"))),
            _ => None,
        }
    }

    #[test]
    fn programs_without_mpi_are_judged_by_their_exit_codes_alone() {
        let (mut watch, now) = (two(), Instant::now());
        watch.ended(pid(100), Ending::Exited(3));
        assert_eq!(watch.verdict(now), None);
        watch.ended(pid(101), Ending::Exited(2));
        assert_eq!(watch.verdict(now), Some(Verdict::Done { code: 3, killed: None }));
    }

    #[test]
    fn a_rank_that_dies_in_mpi_ends_the_job_with_a_code_that_is_not_0() {
        for (ending, code) in [(Ending::Signalled(11), 139), (Ending::Exited(0), 1), (Ending::Exited(5), 5)] {
            let (mut watch, now) = (two(), Instant::now());
            assert!(watch.join(1, 101).unwrap().is_none());
            watch.ended(pid(101), ending);
            assert_eq!(failed(&watch, now), Some((1, code, true)));
        }
    }

    #[test]
    fn a_rank_that_left_mpi_is_judged_by_its_exit_code() {
        let (mut watch, now) = (two(), Instant::now());
        for (rank, number) in [(0, 100), (1, 101)] {
            assert!(watch.join(rank, number).is_ok());
            assert!(watch.finalize(rank));
            assert!(!watch.finalize(rank), "twice is no correct rank's");
            watch.on_silence(rank, now);
            watch.ended(pid(number), Ending::Exited(number - 100));
        }
        assert_eq!(watch.verdict(now + GRACE), Some(Verdict::Done { code: 1, killed: None }));
    }

    #[test]
    fn a_failure_before_init_ends_a_job_only_if_somebody_is_in_mpi() {
        let (mut watch, now) = (two(), Instant::now());
        watch.ended(pid(100), Ending::Exited(7));
        assert_eq!(watch.verdict(now), None);
        assert!(watch.join(1, 101).is_ok());
        assert_eq!(failed(&watch, now), Some((0, 7, false)));
    }

    #[test]
    fn closing_the_connection_is_a_death_if_the_process_does_not_end_soon() {
        let (mut watch, now) = (two(), Instant::now());
        assert!(watch.join(0, 100).is_ok());
        watch.on_silence(0, now);
        assert_eq!(watch.verdict(now), None);
        assert_eq!(watch.look_again_at(), Some(now + GRACE));
        assert_eq!(failed(&watch, now + GRACE), Some((0, 1, true)));
    }

    #[test]
    fn a_second_program_under_one_rank_is_told_why_it_cannot_be_it() {
        let mut watch = two();
        assert!(watch.join(0, 100).is_ok());
        assert_eq!(watch.join(0, 100).unwrap_err(), TurnedAway::Taken(100));
        watch.finalize(0);
        assert_eq!(watch.join(0, 100).unwrap_err(), TurnedAway::Over);
        assert_eq!(watch.join(1, 0).unwrap_err(), TurnedAway::NotVisible);
        assert_eq!(watch.ranks[1].stage, Stage::Outside);
    }

    #[test]
    fn after_a_signal_that_ends_jobs_deaths_are_no_news() {
        let (mut watch, now) = (two(), Instant::now());
        assert!(watch.join(0, 100).is_ok());
        watch.deaths_are_wanted();
        watch.ended(pid(100), Ending::Signalled(2));
        assert_eq!(watch.verdict(now), None);
        watch.ended(pid(101), Ending::Signalled(2));
        assert_eq!(watch.verdict(now), Some(Verdict::Done { code: 130, killed: None }));
    }
}
