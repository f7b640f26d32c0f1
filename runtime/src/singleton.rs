// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A job of one: a process that no launcher started.

use crate::runtime::{Membership, Notice, ResultKey, Runtime, RuntimeError};
use mend_base::{Job, Peer};
use mend_transport::{Card, Cause};
use std::collections::VecDeque;

/// A job of one, without a daemon: the only notices are the answers about results, of which there are none.
#[derive(Debug)]
pub struct Singleton {
    membership: Membership,
    published: bool,
    /// Unanswered questions for results.
    recalls: VecDeque<ResultKey>,
    /// See [`Runtime::notice_version`].
    version: u32,
}

impl Singleton {
    /// Rank 0 of 1 in a job of its own.
    pub fn start() -> Self {
        let peer = Peer::new(Job(crate::entropy::random_u32()), 0);
        let membership =
            Membership { peer, size: 1, node_slot: 0, node_slots: 1, local_ranks: 1, fault_tolerant: true };
        Singleton { membership, published: false, recalls: VecDeque::new(), version: 0 }
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

    #[inline]
    fn notice_version(&self) -> u32 {
        self.version
    }

    fn notice(&mut self) -> Option<Notice> {
        self.recalls.pop_front().map(|key| Notice::Recalled { key, result: None })
    }

    /// There is no other process that could ask.
    fn leave_result(&mut self, _key: ResultKey, _result: &[u8]) {}

    /// There is no other process that could have left a result.
    fn recall_result(&mut self, key: ResultKey) {
        self.recalls.push_back(key);
        self.version = self.version.wrapping_add(1);
    }

    fn finalize(&mut self) {}

    /// There is no other process to end: the caller ends itself.
    fn abort(&mut self, _code: i32) {}

    /// As [`abort`](Runtime::abort): the caller ends itself, if it is among them.
    fn abort_some(&mut self, _code: i32, _peers: &[Peer]) {}
}

#[cfg(test)]
mod tests {
    use super::Singleton;
    use crate::{Notice, ResultKey, Runtime};
    use mend_base::{Identity, Job, Peer};

    #[test]
    fn a_job_of_one_answers_that_nobody_has_left_a_result() {
        let mut singleton = Singleton::start();
        let identity = Identity { creator: Peer::new(Job(1), 0), number: 0 };
        let key = ResultKey { identity, protocol: 0, sequence: 4 };
        let before = singleton.notice_version();
        singleton.leave_result(key, b"a result");
        assert!(singleton.notice().is_none());
        singleton.recall_result(key);
        assert_ne!(singleton.notice_version(), before);
        assert!(
            matches!(singleton.notice(), Some(Notice::Recalled { key: asked, result: None }) if asked == key)
        );
        assert!(singleton.notice().is_none());
    }
}
