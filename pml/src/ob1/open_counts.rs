// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many entries the tables have: for reports, and for tests that a process which has left MPI leaves none (I8).

use super::Ob1;
use mend_base::LifecycleCounts;

/// How many entries each table has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenCounts {
    /// Context kinds of communicators that are open, or go with their last operation.
    pub channels: u32,
    /// Operations that are not released.
    pub requests: u32,
    /// Messages that no receive has matched.
    pub arrived: u32,
    /// Messages for communicators that are not created here.
    pub early: u32,
    /// Streams that come in for a receive. Of one that was given up the rest is dropped, and its sender soon cancels it or
    /// comes to its end: a process that leaves need not wait for that.
    pub incoming: u32,
    /// Receives that have matched an RTS and wait for a stream.
    pub unanswered: u32,
    /// What of answers and sends has not gone out.
    pub unsent: u32,
    /// What the messages that are here unread cost, in bytes.
    pub held_bytes: u64,
}

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// The number of entries of each table now.
    pub fn open_counts(&self) -> OpenCounts {
        OpenCounts {
            channels: self.channels.len() as u32,
            requests: self.requests.len() as u32,
            arrived: self.matcher.len() as u32,
            early: self.contexts.early() as u32,
            incoming: self.rendezvous.receiving() as u32,
            unanswered: self.rendezvous.pending() as u32,
            unsent: (self.requests.sends() + self.queues.unsent()) as u32,
            held_bytes: self.budget.held_bytes(),
        }
    }

    /// Asserts that every request that has begun is in the table until it has ended, once, and is forgotten once, and that
    /// what is counted of them agrees. How many so far, in a build with `mend_base::LifecycleCheck`.
    pub fn lifecycle_check(&self) -> LifecycleCounts {
        self.requests.lifecycle_check()
    }
}
