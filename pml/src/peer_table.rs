// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each peer: its link (by which endpoint it is reached), whether its messages are read, and whether anything is sent to it.
//! How a peer has ended is in [`Ends`](crate::Ends); the publication of its end closes the peer.

use crate::paged::Paged;
use mend_base::PeerIndex;
use mend_transport::{Ability, Cause, Limits, RemoteKey};
use std::collections::VecDeque;

/// All peers.
#[derive(Debug)]
pub(crate) struct PeerTable<E> {
    states: Paged<PeerState<E>>,
    /// Peers that the engine is to connect.
    to_connect: VecDeque<PeerIndex>,
    /// Evidence that the next call of progress reports to the engine.
    evidence: Vec<(PeerIndex, Cause)>,
    /// Whether some peer's traffic is not open.
    some_discarding: bool,
}

/// One peer.
#[derive(Debug)]
struct PeerState<E> {
    /// `None`: not connected.
    link: Option<PeerLink<E>>,
    traffic: Traffic,
    /// The engine has been asked to connect it.
    to_connect: bool,
}

/// Whether the messages of a peer are read, and whether anything is sent to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Traffic {
    /// Its messages are read, and messages are sent to it.
    #[default]
    Open,
    /// Its messages are discarded: it wrote garbage, or there was no memory for a message of it.
    Discarding,
    /// Its messages are discarded, and nothing is sent to it: its end was published.
    Closed,
}

/// How a peer is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerLink<E> {
    pub(crate) endpoint: E,
    /// The longest payload of a message.
    pub(crate) message_bytes_max: u32,
    /// The eager limit: that of the transport, or less if the peer has announced less; the own `pml.eager_bytes` counts until the peer has
    /// announced one.
    pub(crate) eager_bytes: u32,
    /// The eager limit of the transport.
    pub(crate) eager_bytes_max: u32,
    /// The longest chunk; 0: the transport has no streams.
    pub(crate) chunk_bytes: u32,
    /// The longest get; 0: large messages go as streams.
    pub(crate) get_bytes: u64,
}

impl<E> Default for PeerState<E> {
    fn default() -> Self {
        PeerState { link: None, traffic: Traffic::Open, to_connect: false }
    }
}

impl<E> Default for PeerTable<E> {
    fn default() -> Self {
        PeerTable {
            states: Paged::default(),
            to_connect: VecDeque::new(),
            evidence: Vec::new(),
            some_discarding: false,
        }
    }
}

impl<E: Copy + Eq> PeerTable<E> {
    // Hot: per message.
    /// Whether the messages of `peer` are discarded.
    #[inline(always)]
    pub(crate) fn is_discarding(&self, peer: PeerIndex) -> bool {
        self.some_discarding
            && self.states.get(peer.index()).is_some_and(|state| state.traffic != Traffic::Open)
    }

    /// Whether the end of `peer` was published: nothing is sent to it, and no more messages of it arrive.
    pub(crate) fn is_closed(&self, peer: PeerIndex) -> bool {
        self.some_discarding
            && self.states.get(peer.index()).is_some_and(|state| state.traffic == Traffic::Closed)
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
        // An RTS carries the remote key.
        let has_room_for_key = limits.message_bytes_max as usize >= RemoteKey::BYTES_MAX;
        let gets = limits.can_natively(Ability::Get) && has_room_for_key;
        let eager_bytes_max = limits.eager_bytes.min(limits.message_bytes_max);
        let link = PeerLink {
            endpoint,
            message_bytes_max: limits.message_bytes_max,
            eager_bytes: eager_bytes.min(eager_bytes_max),
            eager_bytes_max,
            chunk_bytes: if streams { limits.chunk_bytes } else { 0 },
            get_bytes: if gets { limits.transfer_bytes_max } else { 0 },
        };
        let state = self.states.at(peer.index());
        state.to_connect = false;
        let before = state.link.replace(link);
        before.is_some_and(|before| before.endpoint != endpoint)
    }

    /// The peer has announced the longest message that it accepts before a match.
    pub(crate) fn limit_eager(&mut self, peer: PeerIndex, eager_bytes: u32) {
        if let Some(link) = self.states.get_mut(peer.index()).and_then(|state| state.link.as_mut()) {
            link.eager_bytes = eager_bytes.min(link.eager_bytes_max);
        }
    }

    /// Asks the engine to connect `peer`, unless the peer is connected or closed, or the engine was asked before.
    pub(crate) fn want(&mut self, peer: PeerIndex) {
        let state = self.states.at(peer.index());
        if state.is_unconnected() && !core::mem::replace(&mut state.to_connect, true) {
            self.to_connect.push_back(peer);
        }
    }

    /// A peer to be connected, each once.
    pub(crate) fn next_to_connect(&mut self) -> Option<PeerIndex> {
        self.to_connect.pop_front()
    }

    /// Discards the messages of the peer from now on. The cause is reported to the engine as evidence.
    #[cold]
    pub(crate) fn discard(&mut self, peer: PeerIndex, cause: Cause) {
        let state = self.states.at(peer.index());
        self.some_discarding = true;
        if state.traffic == Traffic::Open {
            state.traffic = Traffic::Discarding;
            self.evidence.push((peer, cause));
        }
    }

    // Hot: per progress.
    #[inline]
    pub(crate) fn has_evidence(&self) -> bool {
        !self.evidence.is_empty()
    }

    /// Reports the evidence. Evidence against a peer that is not connected waits until the peer is connected.
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

    /// The end of `peer` is published, and nothing of it is under way. `false`: it was closed before.
    pub(crate) fn close(&mut self, peer: PeerIndex) -> bool {
        self.some_discarding = true;
        self.evidence.retain(|&(of, _)| of != peer);
        let before = core::mem::replace(&mut self.states.at(peer.index()).traffic, Traffic::Closed);
        before != Traffic::Closed
    }
}

impl<E> PeerState<E> {
    fn is_unconnected(&self) -> bool {
        self.link.is_none() && self.traffic != Traffic::Closed
    }
}

#[cfg(test)]
mod tests {
    use super::PeerTable;
    use mend_base::PeerIndex;
    use mend_transport::{Ability, Cause, Limits};

    const PEER: PeerIndex = PeerIndex(20);

    fn limits() -> Limits {
        Limits {
            abilities: Ability::Streams as u32,
            emulated: 0,
            control_bytes_max: 16,
            message_bytes_max: 4096,
            eager_bytes: 4096,
            chunk_bytes: 16 << 10,
            transfer_bytes_max: 0,
        }
    }

    #[test]
    fn the_eager_limit_is_the_lowest_of_the_transport_this_process_and_the_peer() {
        let mut peers: PeerTable<u32> = PeerTable::default();
        let limits = Limits { eager_bytes: 2000, ..limits() };
        let eager_bytes = |peers: &PeerTable<u32>| peers.link(PEER).unwrap().eager_bytes;
        peers.connect(PEER, 4, &limits, 300);
        assert_eq!(eager_bytes(&peers), 300, "the own limit, before the peer has announced one");
        for (announced, limit) in [(64, 64), (1999, 1999), (100_000, 2000)] {
            peers.limit_eager(PEER, announced);
            assert_eq!(eager_bytes(&peers), limit);
        }
    }

    #[test]
    fn a_peer_is_wanted_once_until_it_is_connected_or_closed() {
        let mut peers: PeerTable<u32> = PeerTable::default();
        (0..2).for_each(|_| peers.want(PEER));
        assert_eq!((peers.next_to_connect(), peers.next_to_connect()), (Some(PEER), None));
        assert!(peers.is_unconnected(PEER));
        assert!(!peers.connect(PEER, 4, &limits(), 100_000));
        assert_eq!(peers.link(PEER).unwrap().eager_bytes, 4096);
        peers.limit_eager(PEER, 64);
        assert_eq!(peers.link(PEER).unwrap().eager_bytes, 64);
        assert!(peers.connect(PEER, 5, &limits(), 1), "another endpoint");
        peers.want(PEER);
        peers.close(PeerIndex(1));
        peers.want(PeerIndex(1));
        assert_eq!(peers.next_to_connect(), None);
    }

    #[test]
    fn a_peer_is_closed_once_and_discarded_then_whether_it_was_before_or_not() {
        for discards in [false, true] {
            let mut peers: PeerTable<u32> = PeerTable::default();
            if discards {
                peers.discard(PEER, Cause::Garbage);
            }
            assert_eq!((peers.is_discarding(PEER), peers.is_closed(PEER)), (discards, false));
            assert!(peers.close(PEER) && !peers.close(PEER));
            peers.discard(PEER, Cause::Garbage);
            assert!(peers.is_discarding(PEER) && peers.is_closed(PEER));
            assert!(!peers.has_evidence() && !peers.is_closed(PeerIndex(21)));
        }
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
