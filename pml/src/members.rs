// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The members of one channel: which peer is which rank, and two positions. One is in the order of the
//! failures: the program has acknowledged all before it. The other is in the order of the ranks: all other members before it have
//! ended. The ends themselves are in [`Ends`], which is lent.

use crate::ends::Ends;
use mend_base::{PeerIndex, Rank};
use std::sync::Arc;

/// The members of one channel.
#[derive(Debug)]
pub(crate) struct Members {
    /// The rank that messages of this process name as their source.
    me: Rank,
    /// By rank.
    peers: Arc<[PeerIndex]>,
    /// The place of this process in `peers`; `None`: they are the remote group of an intercommunicator, and `me` is the rank in the local
    /// group.
    own: Option<Rank>,
    /// Index into [`Ends::failed`]. Each member that failed before it is acknowledged. The failure at it, if there is one, is
    /// of a member and is not acknowledged.
    acknowledged: usize,
    /// Rank of the first other member that has not ended; the number of members where all others have ended.
    first_living: u32,
    /// The rank that [`next_other`](Members::next_other) looked at last.
    last_given: u32,
}

impl Members {
    /// The rank `r` is `peers[r]`. Failures that were published before are not acknowledged.
    pub(crate) fn new(me: Rank, peers: Arc<[PeerIndex]>, ends: &Ends) -> Self {
        assert!(me.index() < peers.len(), "a process that opens a channel is in it");
        Self::with_own(me, Some(me), peers, ends)
    }

    /// The remote group of an intercommunicator: `me` is the rank of this process in the local group.
    pub(crate) fn remote(me: Rank, peers: Arc<[PeerIndex]>, ends: &Ends) -> Self {
        Self::with_own(me, None, peers, ends)
    }

    fn with_own(me: Rank, own: Option<Rank>, peers: Arc<[PeerIndex]>, ends: &Ends) -> Self {
        let mut members = Members { me, peers, own, acknowledged: 0, first_living: 0, last_given: 0 };
        members.on_end(ends);
        members
    }

    /// This process, as the source of its messages.
    #[inline(always)]
    pub(crate) fn me(&self) -> Rank {
        self.me
    }

    /// This process as a receiver of its own messages; `None`: it cannot send to itself here.
    #[inline]
    pub(crate) fn own(&self) -> Option<Rank> {
        self.own
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

    /// The rank of `peer`, if it is a member. Linear in the number of members, except where rank and index agree, as in WORLD.
    pub(crate) fn rank_of(&self, peer: PeerIndex) -> Option<Rank> {
        if self.peers.get(peer.index()) == Some(&peer) {
            return Some(Rank(peer.0));
        }
        self.peers.iter().position(|member| *member == peer).map(|rank| Rank(rank as u32))
    }

    /// The end of a peer is published. Both positions move over what needs no further attention. Idempotent.
    pub(crate) fn on_end(&mut self, ends: &Ends) {
        self.pass_other_failures(ends);
        while let Some(&peer) = self.peers.get(self.first_living as usize)
            && (self.own == Some(Rank(self.first_living)) || ends.of(peer).is_some())
        {
            self.first_living += 1;
        }
    }

    /// Passes over failures of peers that are no members: they need no acknowledgement.
    fn pass_other_failures(&mut self, ends: &Ends) {
        while let Some(&peer) = ends.failed().get(self.acknowledged)
            && self.rank_of(peer).is_none()
        {
            self.acknowledged += 1;
        }
    }

    /// Whether no other member can send here any more, and there are other members.
    pub(crate) fn all_others_ended(&self) -> bool {
        let others = self.peers.len() - usize::from(self.own.is_some());
        others > 0 && self.first_living as usize == self.peers.len()
    }

    /// Whether a member has failed and is not acknowledged.
    #[inline]
    pub(crate) fn has_pending_failure(&self, ends: &Ends) -> bool {
        self.acknowledged < ends.failed().len()
    }

    /// The first member whose failure is not acknowledged: it may be the sender that a wildcard receive waits for.
    pub(crate) fn pending_failure(&self, ends: &Ends) -> Option<Rank> {
        self.rank_of(*ends.failed().get(self.acknowledged)?)
    }

    /// Whether `peer` has failed and is not acknowledged.
    pub(crate) fn is_pending(&self, peer: PeerIndex, ends: &Ends) -> bool {
        ends.failed()[self.acknowledged..].contains(&peer)
    }

    /// The members that failed, in the order of their failures.
    pub(crate) fn failed(&self, ends: &Ends) -> Vec<Rank> {
        ends.failed().iter().filter_map(|&peer| self.rank_of(peer)).collect()
    }

    /// Those of them that are acknowledged: a prefix.
    pub(crate) fn acknowledged(&self, ends: &Ends) -> Vec<Rank> {
        ends.failed()[..self.acknowledged].iter().filter_map(|&peer| self.rank_of(peer)).collect()
    }

    /// Acknowledges the first `at_most` members that failed, or all of them. Returns how many are acknowledged now, never fewer
    /// than before.
    pub(crate) fn acknowledge(&mut self, at_most: Option<u32>, ends: &Ends) -> u32 {
        let mut acknowledged = self.acknowledged(ends).len() as u32;
        while self.has_pending_failure(ends) && at_most.is_none_or(|most| acknowledged < most) {
            acknowledged += 1;
            self.acknowledged += 1;
            self.pass_other_failures(ends);
        }
        acknowledged
    }

    /// How many of all failures are acknowledged or need no acknowledgement: an index into [`Ends::failed`].
    pub(crate) fn passed_failures(&self) -> usize {
        self.acknowledged
    }

    /// Acknowledges the members among the first `passed` of all failures.
    pub(crate) fn acknowledge_before(&mut self, passed: usize, ends: &Ends) {
        self.acknowledged = self.acknowledged.max(passed);
        self.pass_other_failures(ends);
    }

    /// The next other member for which `is_wanted` holds, among the next `most`; each call begins after the member that the last one returned.
    pub(crate) fn next_other(
        &mut self,
        most: u32,
        is_wanted: impl Fn(PeerIndex) -> bool,
    ) -> Option<PeerIndex> {
        let count = self.peers.len() as u32;
        (0..most.min(count)).find_map(|_| {
            self.last_given = (self.last_given + 1) % count;
            let peer = self.peers[self.last_given as usize];
            (self.own != Some(Rank(self.last_given)) && is_wanted(peer)).then_some(peer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Members;
    use crate::ends::{End, Ends};
    use mend_base::{PeerIndex, Rank};

    /// Rank 1 of three.
    fn members(ends: &Ends) -> Members {
        Members::new(Rank(1), [7, 8, 9].map(PeerIndex).into(), ends)
    }

    fn failures(peers: &[u32]) -> Ends {
        let mut ends = Ends::default();
        peers.iter().for_each(|&peer| assert!(ends.add(PeerIndex(peer), End::Failed)));
        ends
    }

    #[test]
    fn all_others_ended_when_each_other_member_has_and_this_process_does_not_count() {
        let mut ends = Ends::default();
        let mut members = members(&ends);
        for (peer, end, all) in [(9, End::Failed, false), (5, End::Failed, false), (7, End::Finalized, true)]
        {
            ends.add(PeerIndex(peer), end);
            members.on_end(&ends);
            assert_eq!(members.all_others_ended(), all, "{peer}");
        }
        assert!(self::members(&ends).all_others_ended());
        assert!(!Members::new(Rank(0), [PeerIndex(7)].into(), &ends).all_others_ended(), "there is no other");
    }

    #[test]
    fn in_a_remote_group_the_rank_of_this_process_is_that_of_another_one() {
        let mut ends = failures(&[7]);
        let mut remote = Members::remote(Rank(1), [7, 8].map(PeerIndex).into(), &ends);
        assert!(!remote.all_others_ended() && remote.own().is_none());
        assert_eq!(
            [0; 3].map(|_| remote.next_other(9, |_| true)),
            [8, 7, 8].map(|peer| Some(PeerIndex(peer)))
        );
        ends.add(PeerIndex(8), End::Finalized);
        remote.on_end(&ends);
        assert!(remote.all_others_ended());
        let one = Members::remote(Rank(0), [PeerIndex(7)].into(), &ends);
        assert!(one.all_others_ended(), "this process is no member");
    }

    // Row AK9
    #[test]
    fn what_is_acknowledged_in_both_groups_is_acknowledged_in_the_remote_group() {
        let ends = failures(&[3, 8, 7]);
        // The local group has the peer 3.
        let mut union = Members::new(Rank(0), [2, 3, 7, 8].map(PeerIndex).into(), &ends);
        let mut remote = Members::remote(Rank(0), [7, 8].map(PeerIndex).into(), &ends);
        for (most, pending) in [(1, Some(Rank(1))), (2, Some(Rank(0))), (3, None)] {
            assert_eq!(union.acknowledge(Some(most), &ends), most);
            remote.acknowledge_before(union.passed_failures(), &ends);
            assert_eq!(remote.pending_failure(&ends), pending);
        }
        let local = failures(&[3]);
        assert!(!Members::remote(Rank(0), [7, 8].map(PeerIndex).into(), &local).has_pending_failure(&local));
    }

    // Row AK5
    #[test]
    fn acknowledging_goes_from_the_first_failure_as_far_as_is_known_and_never_back() {
        let mut members = members(&Ends::default());
        assert_eq!(members.acknowledge(Some(3), &Ends::default()), 0);
        // Peers 4, 5 and 6 are no members.
        let ends = failures(&[4, 9, 5, 8, 6, 7]);
        members.on_end(&ends);
        assert_eq!(members.acknowledge(Some(0), &ends), 0);
        assert_eq!(members.pending_failure(&ends), Some(Rank(2)));
        assert_eq!(members.acknowledge(Some(2), &ends), 2);
        assert_eq!(members.acknowledge(Some(1), &ends), 2);
        assert_eq!(members.acknowledged(&ends), [Rank(2), Rank(1)]);
        assert_eq!(members.pending_failure(&ends), Some(Rank(0)));
        assert_eq!(members.acknowledge(Some(u32::MAX), &ends), 3);
        assert!(!members.has_pending_failure(&ends) && members.pending_failure(&ends).is_none());
    }

    // Row AK6, Row AK7
    #[test]
    fn a_later_failure_is_pending_and_what_is_acknowledged_stays() {
        let mut ends = failures(&[8]);
        let mut members = members(&ends);
        assert_eq!(members.acknowledge(None, &ends), 1);
        ends.add(PeerIndex(9), End::Failed);
        members.on_end(&ends);
        assert_eq!(members.acknowledged(&ends), [Rank(1)]);
        assert_eq!(members.pending_failure(&ends), Some(Rank(2)));
        assert_eq!(members.acknowledge(None, &ends), 2);
    }

    // Row AK4
    #[test]
    fn failures_of_other_peers_are_never_pending() {
        let mut ends = Ends::default();
        let mut members = members(&ends);
        for peer in [1, 2, 0] {
            ends.add(PeerIndex(peer), End::Failed);
            members.on_end(&ends);
            assert!(!members.has_pending_failure(&ends) && members.failed(&ends).is_empty());
        }
        ends.add(PeerIndex(7), End::Failed);
        members.on_end(&ends);
        assert_eq!((members.failed(&ends), members.pending_failure(&ends)), (vec![Rank(0)], Some(Rank(0))));
        assert_eq!(members.acknowledge(Some(1), &ends), 1);
        ends.add(PeerIndex(3), End::Failed);
        members.on_end(&ends);
        assert!(!members.has_pending_failure(&ends));
    }

    #[test]
    fn a_channel_that_is_opened_after_failures_has_them_pending() {
        let ends = failures(&[3, 8, 7]);
        let mut members = members(&ends);
        assert_eq!(members.failed(&ends), [Rank(1), Rank(0)]);
        assert!(members.acknowledged(&ends).is_empty());
        assert_eq!(members.pending_failure(&ends), Some(Rank(1)));
        assert_eq!(members.acknowledge(Some(1), &ends), 1);
        assert_eq!(members.pending_failure(&ends), Some(Rank(0)));
    }

    #[test]
    fn the_rank_of_a_peer_is_found_wherever_it_is() {
        let world = Members::new(Rank(0), [0, 1, 2].map(PeerIndex).into(), &Ends::default());
        assert_eq!(world.rank_of(PeerIndex(2)), Some(Rank(2)));
        let reversed = Members::new(Rank(0), [2, 1, 0].map(PeerIndex).into(), &Ends::default());
        assert_eq!(
            [0, 1, 2, 3].map(|peer| reversed.rank_of(PeerIndex(peer))),
            [Some(Rank(2)), Some(Rank(1)), Some(Rank(0)), None]
        );
    }

    #[test]
    fn other_members_are_given_in_a_round() {
        let mut members = members(&Ends::default());
        let given: Vec<_> = (0..4).filter_map(|_| members.next_other(64, |_| true)).collect();
        assert_eq!(given, [9, 7, 9, 7].map(PeerIndex));
        assert_eq!(members.next_other(64, |peer| peer == PeerIndex(8)), None, "this process is no other");
    }
}
