// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processes of ranks: which process belongs to which rank, which have ended, and how one is killed.
//!
//! A rank has a *child*, the process that was started for it, and, under a wrapper, a *joined process*: the descendant that
//! called MPI_Init.

use crate::kill;
use mend_daemon::{Ending, ProcessEnd};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The processes of all ranks.
#[derive(Debug)]
pub struct Processes {
    ranks: Vec<RankProcesses>,
}

#[derive(Debug, Default)]
struct RankProcesses {
    child: Option<Process>,
    /// Under a wrapper.
    joined: Option<Process>,
}

#[derive(Debug)]
struct Process {
    pid: Pid,
    /// Readable once the process has ended; `None` once its end was seen.
    pidfd: Option<OwnedFd>,
}

impl Processes {
    /// For `ranks` ranks, none of them started.
    pub fn new(ranks: u32) -> Self {
        Processes { ranks: (0..ranks).map(|_| RankProcesses::default()).collect() }
    }

    /// Notes the process that was started for `rank`, and returns the descriptor to wait for.
    pub fn started(&mut self, rank: u32, pid: Pid) -> io::Result<BorrowedFd<'_>> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let child = self.ranks[rank as usize].child.insert(Process { pid, pidfd: None });
        let pidfd: &OwnedFd = child.pidfd.insert(pidfd);
        Ok(pidfd.as_fd())
    }

    /// Notes the process that joined as `rank`. If it is not the child itself, returns another descriptor to wait for.
    pub fn join(&mut self, rank: u32, pid: Pid) -> io::Result<Option<BorrowedFd<'_>>> {
        let processes = &mut self.ranks[rank as usize];
        if processes.child.as_ref().is_some_and(|child| child.pid == pid) {
            return Ok(None);
        }
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let joined = processes.joined.insert(Process { pid, pidfd: None });
        let pidfd: &OwnedFd = joined.pidfd.insert(pidfd);
        Ok(Some(pidfd.as_fd()))
    }

    /// The process group of each rank that still runs: that of its child, or that of its joined process once the child, a
    /// wrapper, has ended. A group without a process that is known to live is left out, as its number may have been reused.
    pub fn groups(&self) -> Vec<Pid> {
        let own = rustix::process::getpgrp();
        let groups = self.ranks.iter().filter_map(|processes| match &processes.child {
            Some(child) if child.runs() => Some(child.pid),
            _ => {
                let joined = processes.joined.as_ref().filter(|joined| joined.runs())?;
                rustix::process::getpgid(Some(joined.pid)).ok()
            }
        });
        groups.filter(|group| *group != own).collect()
    }

    /// The process that is, or was, `rank`: its joined process, or else its child.
    pub fn of(&self, rank: u32) -> Option<Pid> {
        self.ranks[rank as usize].own().map(|process| process.pid)
    }

    /// Whether the process that is `rank` has not ended.
    pub fn is_alive(&self, rank: u32) -> bool {
        let process = self.ranks[rank as usize].own();
        process.and_then(|process| process.pidfd.as_ref()).is_some_and(|pidfd| !has_ended(pidfd))
    }

    /// Kills the process that is `rank`, but no wrapper that it runs under. Returns whether the process was alive until then, and
    /// not already ending.
    pub fn kill(&self, rank: u32) -> bool {
        let process = self.ranks[rank as usize].own();
        let Some((pid, pidfd)) = process.and_then(|each| Some((each.pid, each.pidfd.as_ref()?))) else {
            return false;
        };
        let lived = !has_ended(pidfd) && !kill::is_ending(pid);
        // The process may have ended just now.
        let _ = pidfd_send_signal(pidfd, Signal::KILL);
        lived
    }

    /// The end of the joined process of `rank` under a wrapper; returned once.
    pub fn wrapped_end(&mut self, rank: u32) -> Option<ProcessEnd> {
        let joined = self.ranks[rank as usize].joined.as_mut()?;
        joined.pidfd.take_if(|pidfd| has_ended(pidfd)).map(|_| ProcessEnd::Wrapped(None))
    }

    /// Reaps all children that have ended, adopted ones too, and returns the ends of processes of ranks.
    pub fn reap(&mut self) -> Vec<(u32, ProcessEnd)> {
        let mut ends = vec![];
        kill::reap(|pid, ending| ends.extend(self.end_of(pid, ending)));
        ends
    }

    /// The rank whose process `pid` is, with its end; `None` for adopted processes, which belong to no rank.
    pub fn end_of(&mut self, pid: Pid, ending: Ending) -> Option<(u32, ProcessEnd)> {
        for (rank, processes) in (0..).zip(&mut self.ranks) {
            if let Some(child) = processes.child.as_mut().filter(|child| child.pid == pid && child.runs()) {
                child.pidfd = None;
                return Some((rank, ProcessEnd::Child(ending)));
            }
            // A joined process whose wrapper has ended is adopted by the node daemon.
            if let Some(joined) = processes.joined.as_mut().filter(|joined| joined.pid == pid) {
                joined.pidfd = None;
                return Some((rank, ProcessEnd::Wrapped(Some(ending))));
            }
        }
        None
    }
}

impl RankProcesses {
    fn own(&self) -> Option<&Process> {
        self.joined.as_ref().or(self.child.as_ref())
    }
}

impl Process {
    /// Whether its end has not been seen yet.
    fn runs(&self) -> bool {
        self.pidfd.is_some()
    }
}

/// Whether the process has ended; its parent may not have reaped it yet.
fn has_ended(pidfd: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut waited = [PollFd::new(pidfd, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut waited, Some(&at_once)), Ok(1))
}

#[cfg(test)]
mod tests {
    use super::Processes;
    use mend_daemon::{Ending, ProcessEnd};
    use rustix::process::Pid;
    use std::process::{Child, Command};

    fn start() -> (Child, Pid) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        (child, pid)
    }

    #[test]
    fn a_kill_ends_the_joined_process_and_spares_its_wrapper() {
        let mut processes = Processes::new(2);
        let ((mut wrapper, wrapper_pid), (mut joined, joined_pid)) = (start(), start());
        processes.started(1, wrapper_pid).unwrap();
        assert!(processes.join(1, joined_pid).unwrap().is_some());
        assert_eq!((processes.of(0), processes.of(1)), (None, Some(joined_pid)));
        assert!(processes.is_alive(1) && !processes.is_alive(0));
        assert!(processes.kill(1) && !processes.kill(0));
        joined.wait().unwrap();
        assert_eq!(processes.wrapped_end(1), Some(ProcessEnd::Wrapped(None)));
        assert_eq!(processes.wrapped_end(1), None);
        assert!(wrapper.try_wait().unwrap().is_none());
        wrapper.kill().unwrap();
        wrapper.wait().unwrap();
    }

    #[test]
    fn an_end_is_that_of_the_rank_whose_process_it_is_and_is_said_once() {
        let mut processes = Processes::new(1);
        let (mut child, pid) = start();
        processes.started(0, pid).unwrap();
        assert!(processes.join(0, pid).unwrap().is_none());
        let killed = Ending::Signalled(9);
        assert_eq!(processes.end_of(pid, killed), Some((0, ProcessEnd::Child(killed))));
        assert_eq!(processes.end_of(pid, killed), None);
        assert!(!processes.is_alive(0) && processes.groups().is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
