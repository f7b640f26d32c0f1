// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many entries the tables have: for reports, and for tests that nothing is left after MPI_Finalize (I8).

use super::Ob1;
use mend_base::LifecycleCounts;

/// How many entries each table has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenCounts {
    /// Contexts of communicators that are open, or closed with operations that are not over.
    pub channels: u32,
    /// Operations that are not released.
    pub requests: u32,
    /// Unexpected messages.
    pub unexpected: u32,
    /// Poison and inquiries about collective operations.
    pub about_operations: u32,
    /// Messages for communicators that are not created here.
    pub early: u32,
    /// Incoming streams of receives. The stream of a receive that was given up does not count: its bytes are dropped, and
    /// MPI_Finalize need not wait for them.
    pub incoming: u32,
    /// Receives that have matched an RTS, and whose CTS waits for a stream.
    pub pending_cts: u32,
    /// Receives that take their bytes by gets.
    pub gets: u32,
    /// Sends whose memory is exposed, or is being released.
    pub exposures: u32,
    /// Answers and sends that are not sent yet.
    pub unsent: u32,
    /// The cost of all unexpected and early messages, in bytes.
    pub held_bytes: u64,
}

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// The number of entries of each table now.
    pub fn open_counts(&self) -> OpenCounts {
        OpenCounts {
            channels: self.channels.len() as u32,
            requests: self.requests.len() as u32,
            unexpected: self.matcher.len() as u32,
            about_operations: self
                .channels
                .iter()
                .map(|(_, channel)| channel.operations.stored() as u32)
                .sum(),
            early: self.contexts.early() as u32,
            incoming: self.rendezvous.receiving() as u32,
            pending_cts: self.rendezvous.pending() as u32,
            gets: self.gets.len() as u32,
            exposures: self.exposures.len() as u32,
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
