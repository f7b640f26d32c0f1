// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What stands in the tables, for reports, and for tests that a process which has left leaves nothing behind (I8).

use crate::Ob1;
use crate::list::NONE;
use crate::request::{Phase, RequestEntry};
use mend_base::LifecycleCounts;

/// How many entries each table has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Planes of communicators that are open, or close when their last operation ends.
    pub channels: u32,
    /// Operations that nobody has released.
    pub requests: u32,
    /// Messages that no receive has matched.
    pub arrived: u32,
    /// Messages for communicators that are not made here.
    pub early: u32,
    /// Streams that come in for a receive. Of one that was given up the rest is dropped, and its sender soon cuts it or
    /// comes to its end: a process that leaves need not wait for that.
    pub incoming: u32,
    /// Receives that have matched an offer and wait for a stream.
    pub unanswered: u32,
    /// What of answers and sends has not gone out.
    pub unsent: u32,
    /// What the messages that lie here unread cost, in bytes.
    pub held_bytes: u64,
}

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// Counts.
    pub fn census(&self) -> Census {
        Census {
            channels: self.channels.len() as u32,
            requests: self.entries.len() as u32,
            arrived: self.arrived.len() as u32,
            early: self.early_messages.len() as u32,
            incoming: self.incoming.iter().filter(|(_, incoming)| incoming.request != NONE).count() as u32,
            unanswered: self.unanswered.len() as u32,
            unsent: (self.sends + self.queued) as u32,
            held_bytes: self.peers.iter().map(|peer| peer.held_bytes).sum(),
        }
    }

    /// Asserts that every request that has begun stands until it has ended, once, and is forgotten once, and that whatever
    /// is counted of them is what stands there. How many so far, where a build keeps books (`mend_base::LifecycleCheck`).
    pub fn lifecycle_check(&self) -> LifecycleCounts {
        let is_over = |phase: &Phase| matches!(phase, Phase::Done(_));
        self.lifecycle_check
            .assert_agrees(self.entries.iter().map(|(key, entry)| (key, is_over(&entry.phase))));
        let sends = self.entries.iter().filter(|(_, entry)| entry.phase.is_send()).count();
        assert_eq!(self.sends, sends, "sends that are not over");
        for (key, open) in self.channels.iter() {
            let active = |entry: &RequestEntry| entry.channel == key && !is_over(&entry.phase);
            let standing = self.entries.iter().filter(|(_, entry)| active(entry)).count();
            assert_eq!(open.active as usize, standing, "operations on {:?} that are not over", open.name);
        }
        self.lifecycle_check.counts()
    }
}
