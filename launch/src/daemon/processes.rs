// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processes of ranks: which is whose, whether they have ended, and killing one.
//!
//! A rank has a *child*, the process that was started for it, and, under a wrapper, a *member*: the descendant that joined.

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
    member: Option<Process>,
}

#[derive(Debug)]
struct Process {
    pid: Pid,
    /// Readable once it has ended; closed once that was seen.
    pidfd: Option<OwnedFd>,
}

impl Processes {
    /// For so many ranks, none of them started.
    pub fn new(ranks: u32) -> Self {
        Processes { ranks: (0..ranks).map(|_| RankProcesses::default()).collect() }
    }

    /// The process of `rank` has been started; what to wait for.
    pub fn started(&mut self, rank: u32, pid: Pid) -> io::Result<BorrowedFd<'_>> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let child = self.ranks[rank as usize].child.insert(Process { pid, pidfd: None });
        let pidfd: &OwnedFd = child.pidfd.insert(pidfd);
        Ok(pidfd.as_fd())
    }

    /// A process joins as `rank`. If it is not the child itself, what to wait for besides.
    pub fn join(&mut self, rank: u32, pid: Pid) -> io::Result<Option<BorrowedFd<'_>>> {
        let processes = &mut self.ranks[rank as usize];
        if processes.child.as_ref().is_some_and(|child| child.pid == pid) {
            return Ok(None);
        }
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let member = processes.member.insert(Process { pid, pidfd: None });
        let pidfd: &OwnedFd = member.pidfd.insert(pidfd);
        Ok(Some(pidfd.as_fd()))
    }

    /// The process groups of the ranks that still run: each its child's, or, once that was a wrapper that has ended, its
    /// member's. A group of which no process is known to live may be another program's by now.
    pub fn groups(&self) -> Vec<Pid> {
        let own = rustix::process::getpgrp();
        let groups = self.ranks.iter().filter_map(|processes| match &processes.child {
            Some(child) if child.runs() => Some(child.pid),
            _ => {
                let member = processes.member.as_ref().filter(|member| member.runs())?;
                rustix::process::getpgid(Some(member.pid)).ok()
            }
        });
        groups.filter(|group| *group != own).collect()
    }

    /// The process that is, or was, `rank`: its member, or else its child.
    pub fn of(&self, rank: u32) -> Option<Pid> {
        self.ranks[rank as usize].own().map(|process| process.pid)
    }

    /// Whether the process that is `rank` has not ended.
    pub fn lives(&self, rank: u32) -> bool {
        let process = self.ranks[rank as usize].own();
        process.and_then(|process| process.pidfd.as_ref()).is_some_and(|pidfd| !has_ended(pidfd))
    }

    /// Makes sure that the process which is `rank` is dead: it alone, and no wrapper that it runs under. Whether it had lived
    /// until then, and not been dying.
    pub fn kill(&self, rank: u32) -> bool {
        let process = self.ranks[rank as usize].own();
        let Some((pid, pidfd)) = process.and_then(|each| Some((each.pid, each.pidfd.as_ref()?))) else {
            return false;
        };
        let lived = !has_ended(pidfd) && !kill::is_ending(pid);
        // It may have ended just now.
        let _ = pidfd_send_signal(pidfd, Signal::KILL);
        lived
    }

    /// Whether the member of `rank` under a wrapper has ended: said once.
    pub fn wrapped_end(&mut self, rank: u32) -> Option<ProcessEnd> {
        let member = self.ranks[rank as usize].member.as_mut()?;
        member.pidfd.take_if(|pidfd| has_ended(pidfd)).map(|_| ProcessEnd::Wrapped(None))
    }

    /// Takes the status of all children that have ended, of orphans too. The ends of ranks' processes among them.
    pub fn reap(&mut self) -> Vec<(u32, ProcessEnd)> {
        let mut ends = vec![];
        kill::reap(|pid, ending| ends.extend(self.end_of(pid, ending)));
        ends
    }

    /// Whose process has ended: orphans of ranks come to us too, and are of no rank.
    pub fn end_of(&mut self, pid: Pid, ending: Ending) -> Option<(u32, ProcessEnd)> {
        for (rank, processes) in (0..).zip(&mut self.ranks) {
            if let Some(child) = processes.child.as_mut().filter(|child| child.pid == pid && child.runs()) {
                child.pidfd = None;
                return Some((rank, ProcessEnd::Child(ending)));
            }
            // A member whose wrapper ended before it comes to us.
            if let Some(member) = processes.member.as_mut().filter(|member| member.pid == pid) {
                member.pidfd = None;
                return Some((rank, ProcessEnd::Wrapped(Some(ending))));
            }
        }
        None
    }
}

impl RankProcesses {
    fn own(&self) -> Option<&Process> {
        self.member.as_ref().or(self.child.as_ref())
    }
}

impl Process {
    /// Whether its end was not seen yet.
    fn runs(&self) -> bool {
        self.pidfd.is_some()
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
    fn a_kill_ends_the_member_and_spares_its_wrapper() {
        let mut processes = Processes::new(2);
        let ((mut wrapper, wrapper_pid), (mut member, member_pid)) = (start(), start());
        processes.started(1, wrapper_pid).unwrap();
        assert!(processes.join(1, member_pid).unwrap().is_some());
        assert_eq!((processes.of(0), processes.of(1)), (None, Some(member_pid)));
        assert!(processes.lives(1) && !processes.lives(0));
        assert!(processes.kill(1) && !processes.kill(0));
        member.wait().unwrap();
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
        assert!(!processes.lives(0) && processes.groups().is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
