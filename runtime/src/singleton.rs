// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A job of one: a process that no launcher started.

use crate::runtime::{Membership, Notice, Runtime, RuntimeError};
use crate::start_error::StartError;
use mend_base::{Job, Peer};
use mend_segment::BellPage;
use mend_transport::{Card, Cause};

/// A job of one, without a daemon: there are no notices.
#[derive(Debug)]
pub struct Singleton {
    membership: Membership,
    published: bool,
}

impl Singleton {
    /// Rank 0 of 1 in a job of its own, with a bell page of its own.
    pub fn new() -> Result<(Self, BellPage), StartError> {
        let (bells, _) = BellPage::create(1)?;
        let peer = Peer::new(Job(crate::entropy::random_u32()), 0);
        let membership =
            Membership { peer, size: 1, node_slot: 0, node_slots: 1, local_ranks: 1, fault_tolerant: true };
        Ok((Singleton { membership, published: false }, bells))
    }
}

impl Runtime for Singleton {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn publish(&mut self, _card: &Card) -> Result<(), RuntimeError> {
        if self.published {
            return Err(RuntimeError::PublishedTwice);
        }
        self.published = true;
        Ok(())
    }

    /// There is no other process to look up.
    fn lookup(&mut self, _peer: Peer) -> Result<(), RuntimeError> {
        Err(RuntimeError::NoSuchPeer)
    }

    /// There is no other process.
    fn refuse(&mut self, _peer: Peer, _cause: Cause) {}

    /// There is no other process.
    fn ask(&mut self, _peer: Peer, _cause: Cause) {}

    fn notice_version(&self) -> u32 {
        0
    }

    fn notice(&mut self) -> Option<Notice> {
        None
    }

    fn finalize(&mut self) {}

    /// There is no other process to end: the caller ends itself.
    fn abort(&mut self, _code: i32) {}

    /// As [`abort`](Runtime::abort): the caller ends itself, if it is among them.
    fn abort_some(&mut self, _code: i32, _peers: &[Peer]) {}
}
