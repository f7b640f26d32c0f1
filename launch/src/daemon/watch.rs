// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Knows how the ranks' processes fare: who is in MPI, who has left it, who has failed, and how each ended.
//!
//! A rank has a *child*, the process that was started for it, and, once a program under it has said hello, a *member*:
//! the same process, or, under a wrapper, a descendant.
//!
//! ```text
//!   Outside ── hello ──▶ Inside ── finalize ──▶ Left          its exit code counts, no more
//!      │                    │
//!      └────────────────────┴── its end, in whatever way it was found ──▶ Failed: final
//! ```
//!
//! What endings mean for the job is [`verdict`](crate::daemon::exit_policy)'s.

use crate::daemon::exit_policy::{Death, Found};
use crate::daemon::kill;
use crate::exit::Ending;
use mend_runtime::daemon_protocol::TurnedAway;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long the end of a process that is dead may take to show how it was, where the job waits for it.
pub const GRACE: Duration = Duration::from_secs(1);

/// The processes of all ranks.
#[derive(Debug)]
pub struct Watch {
    pub(super) ranks: Vec<Record>,
    /// Who has failed, in that order.
    pub(super) failed: Vec<u32>,
    /// A signal asked the job to end: deaths are no news.
    pub(super) wanted: bool,
    /// Somebody has been in MPI.
    pub(super) any_member: bool,
}

/// What is known of one rank.
#[derive(Debug, Default)]
pub(super) struct Record {
    child: Option<Process>,
    pub(super) child_ended: Option<Ending>,
    pub(super) stage: Stage,
    /// The member under a wrapper.
    member: Option<Process>,
    member_ended: Option<Ending>,
}

#[derive(Debug)]
struct Process {
    pid: Pid,
    /// Readable once it has ended; given up then.
    pidfd: Option<OwnedFd>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Stage {
    /// No program under it has called Init.
    #[default]
    Outside,
    /// One is in MPI.
    Inside,
    /// It has left MPI.
    Left,
    /// It is dead.
    Failed(Death),
}

impl Watch {
    /// For so many ranks, none of them started.
    pub fn new(ranks: u32) -> Self {
        Watch {
            ranks: (0..ranks).map(|_| Record::default()).collect(),
            failed: vec![],
            wanted: false,
            any_member: false,
        }
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

    /// Whether deaths are what was asked for.
    pub fn wanted(&self) -> bool {
        self.wanted
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
        self.ranks[rank as usize].process().map(|process| process.pid)
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
            Stage::Failed(_) => return Err(TurnedAway::Failed),
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

    /// `rank` is dead, as was found in that way. `false`: it was before, or has left MPI, and nothing has changed.
    pub fn fail(&mut self, rank: u32, found: Found, now: Instant) -> bool {
        let record = &mut self.ranks[rank as usize];
        let inside = match record.stage {
            Stage::Outside => false,
            Stage::Inside => found != Found::GaveUp,
            Stage::Left | Stage::Failed(_) => return false,
        };
        record.stage = Stage::Failed(Death { found, inside, lived: false, at: now });
        self.failed.push(rank);
        true
    }

    /// Makes sure that the process which is `rank` is dead: it, and no wrapper that it runs under.
    pub fn kill(&mut self, rank: u32) {
        let record = &mut self.ranks[rank as usize];
        let process = record.member.as_ref().or(record.child.as_ref());
        let Some((pid, pidfd)) = process.and_then(|each| Some((each.pid, each.pidfd.as_ref()?))) else {
            return;
        };
        if let Stage::Failed(death) = &mut record.stage {
            death.lived = !has_ended(pidfd) && !kill::is_ending(pid);
        }
        // It may have ended just now.
        let _ = pidfd_send_signal(pidfd, Signal::KILL);
    }

    /// The processes that are dying by themselves, as they said, and may be writing their cores.
    pub fn dying(&self) -> Vec<Pid> {
        let dying = self.ranks.iter().filter(|record| match record.stage {
            Stage::Failed(death) => death.found == Found::EmergencyChannel && !record.has_ended(),
            _ => false,
        });
        dying.filter_map(|record| record.process().map(|process| process.pid)).collect()
    }

    /// A process of `rank` may have ended: takes the status of all that have. The ranks that this is news of.
    pub fn look(&mut self, rank: u32) -> Vec<u32> {
        let mut news = self.reap();
        let record = &mut self.ranks[rank as usize];
        let member = record.member.as_mut().and_then(|member| member.pidfd.take_if(|pidfd| has_ended(pidfd)));
        if member.is_some() {
            news.push(rank);
        }
        news
    }

    /// Takes the status of all children that have ended, of orphans too. The ranks that this is news of.
    pub fn reap(&mut self) -> Vec<u32> {
        let mut news = vec![];
        kill::reap(|pid, ending| news.extend(self.ended(pid, ending)));
        news
    }

    /// Whether the process that is `rank` has not ended, as far as a look tells.
    pub fn lives(&self, rank: u32) -> bool {
        let process = self.ranks[rank as usize].process();
        process.and_then(|process| process.pidfd.as_ref()).is_some_and(|pidfd| !has_ended(pidfd))
    }

    /// Whether `rank` is in MPI.
    pub fn is_inside(&self, rank: u32) -> bool {
        self.ranks[rank as usize].stage == Stage::Inside
    }

    /// Whether `rank` has neither left nor failed.
    pub fn is_open(&self, rank: u32) -> bool {
        matches!(self.ranks[rank as usize].stage, Stage::Outside | Stage::Inside)
    }

    /// Whether the death of `rank` ends a job that does not outlive deaths: not if it never was in MPI, and is content.
    pub fn ends_a_job(&self, rank: u32) -> bool {
        let record = &self.ranks[rank as usize];
        let inside = matches!(record.stage, Stage::Failed(death) if death.inside);
        inside || record.child_ended != Some(Ending::Exited(0))
    }

    /// Whether `rank` is, or may still come to be, in MPI, but its process has ended, as far as was told.
    pub fn is_lost(&self, rank: u32) -> bool {
        let record = &self.ranks[rank as usize];
        match record.stage {
            Stage::Outside => record.child_ended.is_some(),
            Stage::Inside => record.has_ended(),
            Stage::Left | Stage::Failed(_) => false,
        }
    }

    /// How a process ended, when the job is over.
    pub fn note(&mut self, pid: Pid, ending: Ending) {
        self.ended(pid, ending);
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

    /// How the process that is, or was, `rank` ended, in words, once that is known.
    pub fn ending_words(&self, rank: u32) -> Option<String> {
        let record = &self.ranks[rank as usize];
        if let Some(ending) = record.own_ending() {
            return Some(ending.words());
        }
        if !record.has_ended() {
            return None;
        }
        // Only its wrapper knows, which passes the exit code on, mostly.
        Some(match record.child_ended {
            Some(ending) => format!("ended (its wrapper {})", ending.words()),
            None => "ended under its wrapper".to_owned(),
        })
    }
}

impl Record {
    fn process(&self) -> Option<&Process> {
        self.member.as_ref().or(self.child.as_ref())
    }

    /// Whether its process is not the one that was started for it.
    pub(super) fn has_wrapper(&self) -> bool {
        self.member.is_some()
    }

    /// How the member ended, if we know.
    pub(super) fn own_ending(&self) -> Option<Ending> {
        if self.member.is_some() { self.member_ended } else { self.child_ended }
    }

    /// Whether the process that is, or was, this rank has ended, as far as was told.
    pub(super) fn has_ended(&self) -> bool {
        if self.member.is_some() { !self.member_lives() } else { self.child_ended.is_some() }
    }

    /// Whether there is a process under a wrapper that has not ended, as far as the last look told.
    pub(super) fn member_lives(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.pidfd.is_some())
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
pub(super) mod tests {
    use super::{Process, Stage, Watch};
    use crate::daemon::exit_policy::Found;
    use crate::exit::Ending;
    use mend_runtime::daemon_protocol::TurnedAway;
    use rustix::process::Pid;
    use std::time::Instant;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    impl Watch {
        /// So many ranks, whose children are the processes 100, 101, and so on.
        pub(crate) fn of(ranks: u32) -> Watch {
            let mut watch = Watch::new(ranks);
            for (record, number) in watch.ranks.iter_mut().zip(100..) {
                record.child = Some(Process { pid: pid(number), pidfd: None });
            }
            watch
        }

        /// This rank calls Init.
        pub(crate) fn init(&mut self, rank: u32) {
            assert!(self.join(rank, 100 + rank as i32).unwrap().is_none());
        }

        /// The process of this rank ends.
        pub(crate) fn end(&mut self, rank: u32, ending: Ending) {
            assert_eq!(self.ended(pid(100 + rank as i32), ending), Some(rank));
        }
    }

    #[test]
    fn a_second_program_under_one_rank_is_told_why_it_cannot_be_it() {
        let mut watch = Watch::of(3);
        watch.init(0);
        assert_eq!(watch.join(0, 100).unwrap_err(), TurnedAway::Taken(100));
        assert!(watch.finalize(0));
        assert!(!watch.finalize(0), "twice is no correct rank's");
        assert_eq!(watch.join(0, 100).unwrap_err(), TurnedAway::Over);
        assert_eq!(watch.join(1, 0).unwrap_err(), TurnedAway::NotVisible);
        assert_eq!(watch.ranks[1].stage, Stage::Outside);
        assert!(watch.fail(2, Found::Process, Instant::now()));
        assert_eq!(watch.join(2, 102).unwrap_err(), TurnedAway::Failed);
    }

    #[test]
    fn a_death_is_final_and_who_has_left_cannot_fail() {
        let (mut watch, now) = (Watch::of(2), Instant::now());
        watch.init(0);
        watch.init(1);
        assert!(watch.finalize(0));
        assert!(!watch.fail(0, Found::Process, now));
        assert!(watch.fail(1, Found::LifeWord, now));
        assert!(!watch.fail(1, Found::Process, now) && !watch.finalize(1));
        assert_eq!(watch.failed, [1]);
        assert!(!watch.is_open(0) && !watch.is_open(1));
    }

    #[test]
    fn a_rank_is_lost_when_its_process_ends_before_it_has_left() {
        let mut watch = Watch::of(3);
        watch.init(0);
        watch.init(1);
        watch.finalize(1);
        assert!(!(0..3).any(|rank| watch.is_lost(rank)));
        (0..3).for_each(|rank| watch.end(rank, Ending::Exited(0)));
        assert_eq!([0, 1, 2].map(|rank| watch.is_lost(rank)), [true, false, true]);
    }
}
