// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of each peer: how it is reached, whether it has ended, and whether what it writes is discarded.

use crate::paged::Paged;
use crate::request::Gone;
use mend_base::PeerIndex;
use mend_transport::{Ability, Cause, Limits};
use std::collections::VecDeque;

/// All peers.
#[derive(Debug)]
pub(crate) struct PeerTable<E> {
    states: Paged<PeerState<E>>,
    /// Peers that the engine is to connect.
    wanted: VecDeque<PeerIndex>,
    /// What the next call of progress tells the engine.
    evidence: Vec<(PeerIndex, Cause)>,
    /// The peers that failed, in the order in which this process learned it: what a channel opened later begins with.
    failed: Vec<PeerIndex>,
    some_ended: bool,
    some_discarding: bool,
}

/// One peer.
#[derive(Debug)]
struct PeerState<E> {
    /// `None`: not connected.
    link: Option<PeerLink<E>>,
    ended: Option<Gone>,
    /// Nothing it writes is read any more: it wrote garbage, could not be heard for lack of memory, or has ended.
    discarding: bool,
    /// The engine has been asked to connect it.
    wanted: bool,
}

/// How a peer is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerLink<E> {
    pub(crate) endpoint: E,
    /// The longest payload of a message.
    pub(crate) packed_bytes: u32,
    /// The longest message that it takes before a match, as far as we know.
    pub(crate) eager_bytes: u16,
    /// The longest chunk; 0: the transport has no streams.
    pub(crate) chunk_bytes: u32,
}

/// What the end of a peer changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// It had not ended before.
    First,
    /// It could not be reached, and now it has failed.
    NowFailed,
    /// Nothing: the first end stands.
    Known,
}

impl<E> Default for PeerState<E> {
    fn default() -> Self {
        PeerState { link: None, ended: None, discarding: false, wanted: false }
    }
}

impl<E> Default for PeerTable<E> {
    fn default() -> Self {
        PeerTable {
            states: Paged::default(),
            wanted: VecDeque::new(),
            evidence: Vec::new(),
            failed: Vec::new(),
            some_ended: false,
            some_discarding: false,
        }
    }
}

impl<E: Copy + Eq> PeerTable<E> {
    // Hot: per message.
    /// Whether what `peer` writes is not read any more.
    #[inline(always)]
    pub(crate) fn is_discarding(&self, peer: PeerIndex) -> bool {
        self.some_discarding && self.states.get(peer.index()).is_some_and(|state| state.discarding)
    }

    // Hot: per message.
    /// How `peer` is reached.
    #[inline(always)]
    pub(crate) fn endpoint(&self, peer: PeerIndex) -> Option<E> {
        Some(self.states.get(peer.index())?.link.as_ref()?.endpoint)
    }

    /// How `peer` is reached.
    pub(crate) fn link(&self, peer: PeerIndex) -> Option<PeerLink<E>> {
        self.states.get(peer.index())?.link
    }

    /// Why `peer` will never send or answer again, if it has ended.
    pub(crate) fn ended(&self, peer: PeerIndex) -> Option<Gone> {
        self.states.get(peer.index())?.ended
    }

    /// Whether any peer has ended.
    pub(crate) fn some_ended(&self) -> bool {
        self.some_ended
    }

    /// The peers that failed, in order.
    pub(crate) fn failed(&self) -> &[PeerIndex] {
        &self.failed
    }

    /// Whether the peer is not connected, and could be.
    pub(crate) fn is_unconnected(&self, peer: PeerIndex) -> bool {
        self.states.get(peer.index()).is_none_or(PeerState::is_unconnected)
    }

    /// `peer` can be reached by `endpoint`. Whether it was reached by another one before.
    pub(crate) fn connect(
        &mut self,
        peer: PeerIndex,
        endpoint: E,
        limits: &Limits,
        eager_bytes: u32,
    ) -> bool {
        let streams = limits.can(Ability::Streams);
        let link = PeerLink {
            endpoint,
            packed_bytes: limits.packed_bytes_max,
            eager_bytes: eager_most(eager_bytes, limits.packed_bytes_max),
            chunk_bytes: if streams { limits.chunk_bytes } else { 0 },
        };
        let state = self.states.at(peer.index());
        state.wanted = false;
        let before = state.link.replace(link);
        before.is_some_and(|before| before.endpoint != endpoint)
    }

    /// The peer says how long a message it takes before a match.
    pub(crate) fn limit_eager(&mut self, peer: PeerIndex, eager_bytes: u32) {
        if let Some(link) = self.states.get_mut(peer.index()).and_then(|state| state.link.as_mut()) {
            link.eager_bytes = eager_most(eager_bytes, link.packed_bytes);
        }
    }

    /// The engine is to connect `peer`, unless it has, or was asked to, or the peer has ended.
    pub(crate) fn want(&mut self, peer: PeerIndex) {
        let state = self.states.at(peer.index());
        if state.is_unconnected() && !core::mem::replace(&mut state.wanted, true) {
            self.wanted.push_back(peer);
        }
    }

    /// A peer to be connected, each once.
    pub(crate) fn next_wanted(&mut self) -> Option<PeerIndex> {
        self.wanted.pop_front()
    }

    /// Nothing more that the peer writes is read, and the engine hears why.
    #[cold]
    pub(crate) fn discard(&mut self, peer: PeerIndex, cause: Cause) {
        let state = self.states.at(peer.index());
        self.some_discarding = true;
        if !core::mem::replace(&mut state.discarding, true) {
            self.evidence.push((peer, cause));
        }
    }

    // Hot: per progress.
    #[inline]
    pub(crate) fn has_evidence(&self) -> bool {
        !self.evidence.is_empty()
    }

    /// Gives the evidence; that against a peer that is not connected waits until it is.
    #[cold]
    pub(crate) fn report(&mut self, mut on_error: impl FnMut(PeerIndex, E, Cause)) {
        let states = &self.states;
        self.evidence.retain(|&(peer, cause)| {
            match states.get(peer.index()).and_then(|state| state.link.as_ref()) {
                Some(link) => {
                    on_error(peer, link.endpoint, cause);
                    false
                }
                None => true,
            }
        });
    }

    /// `peer` has ended, and nothing of it is under way.
    pub(crate) fn end(&mut self, peer: PeerIndex, why: Gone) -> Ending {
        let state = self.states.at(peer.index());
        let ending = match (state.ended, why) {
            (None, _) => Ending::First,
            (Some(Gone::Unreachable(_)), Gone::Failed) => Ending::NowFailed,
            (Some(_), _) => return Ending::Known,
        };
        state.ended = Some(why);
        state.discarding = true;
        (self.some_ended, self.some_discarding) = (true, true);
        if why == Gone::Failed {
            self.failed.push(peer);
        }
        self.evidence.retain(|&(of, _)| of != peer);
        ending
    }
}

impl<E> PeerState<E> {
    fn is_unconnected(&self) -> bool {
        self.link.is_none() && self.ended.is_none()
    }
}

fn eager_most(eager_bytes: u32, packed_bytes: u32) -> u16 {
    eager_bytes.min(packed_bytes).min(u32::from(u16::MAX)) as u16
}

#[cfg(test)]
mod tests {
    use super::{Ending, PeerTable};
    use crate::request::Gone;
    use mend_base::PeerIndex;
    use mend_transport::{Ability, Cause, Limits};

    const PEER: PeerIndex = PeerIndex(20);

    fn limits() -> Limits {
        Limits {
            abilities: Ability::Streams as u32,
            inline_bytes_max: 16,
            packed_bytes_max: 4096,
            chunk_bytes: 16 << 10,
            transfer_bytes_max: 0,
        }
    }

    #[test]
    fn a_peer_is_wanted_once_until_it_is_connected_or_ends() {
        let mut peers: PeerTable<u32> = PeerTable::default();
        (0..2).for_each(|_| peers.want(PEER));
        assert_eq!((peers.next_wanted(), peers.next_wanted()), (Some(PEER), None));
        assert!(peers.is_unconnected(PEER));
        assert!(!peers.connect(PEER, 4, &limits(), 100_000));
        assert_eq!(peers.link(PEER).unwrap().eager_bytes, 4096);
        peers.limit_eager(PEER, 64);
        assert_eq!(peers.link(PEER).unwrap().eager_bytes, 64);
        assert!(peers.connect(PEER, 5, &limits(), 1), "another endpoint");
        peers.want(PEER);
        peers.end(PeerIndex(1), Gone::Failed);
        peers.want(PeerIndex(1));
        assert_eq!(peers.next_wanted(), None);
    }

    #[test]
    fn the_first_end_stands_but_that_an_unreachable_peer_may_fail() {
        let mut peers: PeerTable<u32> = PeerTable::default();
        assert_eq!(peers.end(PEER, Gone::Unreachable(Cause::Refused)), Ending::First);
        assert_eq!(peers.end(PEER, Gone::Failed), Ending::NowFailed);
        assert_eq!(peers.end(PEER, Gone::Finalized), Ending::Known);
        assert_eq!((peers.ended(PEER), peers.failed()), (Some(Gone::Failed), &[PEER][..]));
        assert!(peers.some_ended() && peers.is_discarding(PEER));
    }

    #[test]
    fn evidence_is_given_once_and_not_before_the_peer_is_connected() {
        let mut peers: PeerTable<u32> = PeerTable::default();
        (0..2).for_each(|_| peers.discard(PEER, Cause::Garbage));
        let mut given = vec![];
        peers.report(|peer, endpoint, cause| given.push((peer, endpoint, cause)));
        assert!(given.is_empty() && peers.has_evidence());
        peers.connect(PEER, 4, &limits(), 1);
        assert_eq!((peers.endpoint(PEER), peers.is_discarding(PEER)), (Some(4), true));
        peers.report(|peer, endpoint, cause| given.push((peer, endpoint, cause)));
        assert_eq!(given, [(PEER, 4, Cause::Garbage)]);
        assert!(!peers.has_evidence());
    }
}
