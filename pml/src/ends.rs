// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which peers have ended, how, and which of them failed, in order: the one place where a process stores this (I1). The
//! engine owns it and lends it to each call that depends on it.

use crate::request::Error;
use mend_base::{PeerIndex, Rank};
use mend_transport::Cause;
use std::collections::BTreeMap;

/// How a peer has ended: it will never send or answer again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It has called `MPI_Finalize`.
    Finalized,
    /// The node daemon declared it failed.
    Failed,
    /// No transport reaches it.
    Unreachable(Cause),
}

/// The peers that have ended. Only they take memory.
#[derive(Debug, Default)]
pub struct Ends {
    by_peer: BTreeMap<PeerIndex, End>,
    /// The failed peers in the order in which this process learned of them. Append-only.
    failed: Vec<PeerIndex>,
    added: usize,
}

impl Ends {
    /// Adds the end of `peer`: the first step of publishing it (I2). `false`: nothing is new, since the first end stands. The
    /// exception is a peer that was unreachable and now has failed or left.
    pub fn add(&mut self, peer: PeerIndex, end: End) -> bool {
        let is_new = match (self.of(peer), end) {
            (None, _) | (Some(End::Unreachable(_)), End::Failed | End::Finalized) => true,
            (Some(_), _) => false,
        };
        if is_new {
            self.by_peer.insert(peer, end);
            self.added += 1;
            if end == End::Failed {
                self.failed.push(peer);
            }
        }
        is_new
    }

    /// How `peer` has ended, if it has.
    #[inline]
    pub fn of(&self, peer: PeerIndex) -> Option<End> {
        if self.none() { None } else { self.find(peer) }
    }

    #[cold]
    fn find(&self, peer: PeerIndex) -> Option<End> {
        self.by_peer.get(&peer).copied()
    }

    /// Whether no peer has ended.
    #[inline]
    pub fn none(&self) -> bool {
        self.by_peer.is_empty()
    }

    /// How many ends were added: it grows with each, also where an unreachable peer has failed or left.
    #[inline]
    pub fn added(&self) -> usize {
        self.added
    }

    /// The failed peers, in the order in which this process learned of them. Every result is a prefix of all later results.
    #[inline]
    pub fn failed(&self) -> &[PeerIndex] {
        &self.failed
    }
}

impl End {
    /// The error of an operation that needs the peer at `rank`.
    pub fn error(self, rank: Rank) -> Error {
        match self {
            End::Finalized => Error::PeerLeft(rank),
            End::Failed => Error::ProcFailed(rank),
            End::Unreachable(cause) => Error::Unreachable(rank, cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{End, Ends};
    use mend_base::PeerIndex;
    use mend_transport::Cause;

    const UNREACHABLE: End = End::Unreachable(Cause::Refused);

    // Row AK1
    #[test]
    fn failed_peers_are_listed_once_in_the_order_of_their_failures() {
        let mut ends = Ends::default();
        assert!(ends.none() && ends.failed().is_empty());
        for (peer, end, is_new) in [
            (3, End::Failed, true),
            (2, End::Finalized, true),
            (1, End::Failed, true),
            (3, End::Failed, false),
        ] {
            assert_eq!(ends.add(PeerIndex(peer), end), is_new, "{peer}");
        }
        assert!(!ends.none());
        assert_eq!(ends.failed(), [PeerIndex(3), PeerIndex(1)]);
        assert_eq!(ends.of(PeerIndex(2)), Some(End::Finalized));
        assert_eq!(ends.of(PeerIndex(0)), None);
    }

    #[test]
    fn the_first_end_stands_except_that_an_unreachable_peer_may_fail_or_leave() {
        for (first, second, stands) in [
            (End::Finalized, End::Failed, End::Finalized),
            (End::Finalized, UNREACHABLE, End::Finalized),
            (End::Failed, End::Finalized, End::Failed),
            (End::Failed, UNREACHABLE, End::Failed),
            (UNREACHABLE, End::Finalized, End::Finalized),
            (UNREACHABLE, UNREACHABLE, UNREACHABLE),
            (UNREACHABLE, End::Failed, End::Failed),
        ] {
            let (mut ends, peer) = (Ends::default(), PeerIndex(7));
            assert!(ends.add(peer, first));
            assert_eq!(ends.add(peer, second), stands != first, "{first:?}, then {second:?}");
            assert_eq!(ends.of(peer), Some(stands));
            assert!(!ends.add(peer, second), "nothing is new");
            assert_eq!(ends.failed().len(), usize::from(stands == End::Failed));
        }
    }

    #[test]
    fn an_unreachable_peer_that_fails_is_last_in_the_order() {
        let mut ends = Ends::default();
        for (peer, end) in [(1, UNREACHABLE), (2, End::Failed), (1, End::Failed)] {
            assert!(ends.add(PeerIndex(peer), end));
        }
        assert_eq!(ends.failed(), [PeerIndex(2), PeerIndex(1)]);
        assert_eq!(ends.added(), 3);
    }
}
