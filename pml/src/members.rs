// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The members of one channel: which peer is which rank, how many have ended, and which failures are acknowledged.

use mend_base::{PeerIndex, Rank};
use std::sync::Arc;

/// The members of one channel.
#[derive(Debug)]
pub(crate) struct Members {
    me: Rank,
    /// By rank.
    peers: Arc<[PeerIndex]>,
    /// How many other members will never send again.
    ended: u32,
    /// The members that failed, in the order in which this process learned it.
    failed: Vec<Rank>,
    /// So many of them are acknowledged, from the first on.
    acknowledged: u32,
    /// The rank that [`next_other`](Members::next_other) gave last.
    last_given: u32,
}

impl Members {
    /// The rank `r` is `peers[r]`.
    pub(crate) fn new(me: Rank, peers: Arc<[PeerIndex]>) -> Self {
        assert!(me.index() < peers.len(), "a process that opens a channel is in it");
        Members { me, peers, ended: 0, failed: Vec::new(), acknowledged: 0, last_given: 0 }
    }

    /// This process.
    #[inline(always)]
    pub(crate) fn me(&self) -> Rank {
        self.me
    }

    // Hot: per message.
    /// The peer at `rank`.
    #[inline(always)]
    pub(crate) fn peer(&self, rank: Rank) -> Option<PeerIndex> {
        self.peers.get(rank.index()).copied()
    }

    /// All of them, with their ranks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Rank, PeerIndex)> {
        (0u32..).map(Rank).zip(self.peers.iter().copied())
    }

    /// Every rank that is `peer`: one, in an intracommunicator.
    pub(crate) fn ranks_of(&self, peer: PeerIndex) -> impl Iterator<Item = Rank> {
        self.iter().filter(move |(_, member)| *member == peer).map(|(rank, _)| rank)
    }

    /// `peer` will never send again.
    pub(crate) fn on_ended(&mut self, peer: PeerIndex) {
        let is_other = self.ranks_of(peer).any(|rank| rank != self.me);
        self.ended += u32::from(is_other);
    }

    /// `peer` has failed.
    pub(crate) fn on_failed(&mut self, peer: PeerIndex) {
        let ranks: Vec<_> = self.ranks_of(peer).filter(|rank| *rank != self.me).collect();
        self.failed.extend(ranks);
    }

    /// Whether no other member can send here any more, and there are other members.
    pub(crate) fn all_others_ended(&self) -> bool {
        let others = self.peers.len() as u32 - 1;
        others > 0 && self.ended >= others
    }

    /// The first member that failed.
    #[inline]
    pub(crate) fn first_failed(&self) -> Option<Rank> {
        self.failed.first().copied()
    }

    /// The first member whose failure is not acknowledged: it may be the sender that a wildcard receive waits for.
    #[inline]
    pub(crate) fn unacknowledged(&self) -> Option<Rank> {
        self.failed.get(self.acknowledged as usize).copied()
    }

    /// The first `failed` failures are acknowledged: never fewer than before, and never more than have failed.
    pub(crate) fn acknowledge(&mut self, failed: u32) {
        self.acknowledged = self.acknowledged.max(failed.min(self.failed.len() as u32));
    }

    /// The next other member for which `is_wanted` holds, among the next `most`; at each call it goes on where it ended.
    pub(crate) fn next_other(
        &mut self,
        most: u32,
        is_wanted: impl Fn(PeerIndex) -> bool,
    ) -> Option<PeerIndex> {
        let count = self.peers.len() as u32;
        (0..most.min(count)).find_map(|_| {
            self.last_given = (self.last_given + 1) % count;
            let peer = self.peers[self.last_given as usize];
            (self.last_given != self.me.0 && is_wanted(peer)).then_some(peer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Members;
    use mend_base::{PeerIndex, Rank};

    fn members() -> Members {
        Members::new(Rank(1), [7, 8, 9].map(PeerIndex).into())
    }

    #[test]
    fn all_others_ended_when_each_other_member_has_and_this_process_does_not_count() {
        let mut members = members();
        for (peer, all) in [(8, false), (7, false), (5, false), (9, true)] {
            members.on_ended(PeerIndex(peer));
            assert_eq!(members.all_others_ended(), all, "{peer}");
        }
        assert!(!Members::new(Rank(0), [PeerIndex(7)].into()).all_others_ended(), "there is no other");
    }

    #[test]
    fn failures_are_acknowledged_in_their_order_and_stay_so() {
        let mut members = members();
        for peer in [9, 5, 7] {
            members.on_failed(PeerIndex(peer));
        }
        assert_eq!((members.first_failed(), members.unacknowledged()), (Some(Rank(2)), Some(Rank(2))));
        members.acknowledge(1);
        members.acknowledge(0);
        assert_eq!(members.unacknowledged(), Some(Rank(0)));
        members.acknowledge(9);
        assert_eq!(members.unacknowledged(), None);
        members.on_failed(PeerIndex(9));
        assert_eq!(members.unacknowledged(), Some(Rank(2)), "only those that had failed were acknowledged");
    }

    #[test]
    fn other_members_are_given_in_a_round() {
        let mut members = members();
        let given: Vec<_> = (0..4).filter_map(|_| members.next_other(64, |_| true)).collect();
        assert_eq!(given, [9, 7, 9, 7].map(PeerIndex));
        assert_eq!(members.next_other(64, |peer| peer == PeerIndex(8)), None, "this process is no other");
    }
}
