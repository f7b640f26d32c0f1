// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contact of this process with each peer: the peer index, and the state of the connection.
//!
//! ```text
//!            lookup              Notice::Contact, connect
//! unknown ───────────▶ requested ──────────────────────────▶ connected ◀── suspected (Notice::Alive resumes)
//!    │                   │                                       │ Notice::Finalized, Failed, Refused: sever
//!    └─ Refused, Finalized, Failed ─▶ drained ◀── on_severed ── severing
//!                                      │  ▲ └── all that was declared before is published ──▶ ended
//!                        the same, for │  │
//!                        Refused       ▼  │ Finalized, Failed
//!                                   unreachable
//! ```
//! Ends are published in the order of the declarations, however long it takes to drain a peer: a peer that finalizes because another
//! has failed is declared after it, and a call that waits for both must end with the failure.
//!
//! The first declaration of a peer is final, with one exception: an unreachable peer lives, and that it fails or leaves is published too.
//!
//! A peer that dies before its notice `Contact` is taken is connected and severed at once, since its outbox may have complete messages
//! (Row PP7). Notices are taken in the order in which the runtime gave them: `Contact` before the declaration.
//!
//! A peer has no entry before one side requests the contact.

use mend_base::{Job, Peer, PeerIndex};
use std::collections::{BTreeMap, BTreeSet};

/// The state of the connection to one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Contact<E> {
    /// The contact was requested from the runtime.
    Requested,
    /// The peer has an endpoint.
    Connected {
        /// Its endpoint.
        endpoint: E,
        /// There is evidence against the peer, and it is quarantined until the runtime has answered.
        suspected: bool,
    },
    /// The end of the peer is declared, and its endpoint is being severed: complete messages are handed up.
    Severing {
        /// Its endpoint.
        endpoint: E,
    },
    /// The end of the peer is declared, and all its complete messages are handed up. Its end is published after those that were
    /// declared before it.
    Drained,
    /// The end of the peer is published: [`Ends`](mend_pml::Ends) has it.
    Ended,
    /// It is published that the peer cannot be reached. It may still fail or leave.
    Unreachable,
}

/// The contacts with all peers, and their peer indices.
#[derive(Debug)]
pub(crate) struct Contacts<E> {
    job: Job,
    size: u32,
    /// Peers that are not of the first `size`, in the order in which they became known: their indices begin at `size`.
    joined: Vec<Peer>,
    states: BTreeMap<PeerIndex, Contact<E>>,
    /// The peers about which the runtime was asked and has not answered.
    queries: BTreeSet<PeerIndex>,
}

impl<E: Copy + Eq + core::fmt::Debug> Contacts<E> {
    /// The peers 0 to `size - 1` of `job` have their numbers as indices.
    pub fn new(job: Job, size: u32) -> Self {
        Contacts { job, size, joined: Vec::new(), states: BTreeMap::new(), queries: BTreeSet::new() }
    }

    /// The index of `peer`, if it has one.
    pub fn find(&self, peer: Peer) -> Option<PeerIndex> {
        if peer.job() == self.job && peer.number() < self.size {
            return Some(PeerIndex(peer.number()));
        }
        let at = self.joined.iter().position(|each| *each == peer)?;
        Some(PeerIndex(self.size + at as u32))
    }

    /// The index of `peer`. A peer that has none gets a new one.
    pub fn peer_index(&mut self, peer: Peer) -> PeerIndex {
        self.find(peer).unwrap_or_else(|| {
            self.joined.push(peer);
            PeerIndex(self.size + self.joined.len() as u32 - 1)
        })
    }

    /// The peer with this index, which must come from this table.
    pub fn peer(&self, index: PeerIndex) -> Peer {
        if index.0 < self.size {
            return Peer::new(self.job, index.0);
        }
        self.joined[index.index() - self.size as usize]
    }

    /// The state of the connection; `None`: neither side has requested the contact.
    pub fn state(&self, index: PeerIndex) -> Option<Contact<E>> {
        self.states.get(&index).copied()
    }

    /// Sets the state of the connection.
    pub fn set(&mut self, index: PeerIndex, state: Contact<E>) {
        self.states.insert(index, state);
    }

    /// The runtime is asked about the peer. One answer may be for several queries before it, so queries are not counted.
    pub fn begin_query(&mut self, index: PeerIndex) {
        self.queries.insert(index);
    }

    /// Whether the runtime was asked about the peer, and has not answered.
    pub fn has_open_query(&self, index: PeerIndex) -> bool {
        self.queries.contains(&index)
    }

    /// The runtime has answered about the peer, or declared its end.
    pub fn end_query(&mut self, index: PeerIndex) {
        self.queries.remove(&index);
    }

    /// Whether an endpoint is being severed.
    pub fn some_severing(&self) -> bool {
        self.states.values().any(|state| matches!(state, Contact::Severing { .. }))
    }

    /// The peers with an entry, and the states of their connections.
    pub fn iter(&self) -> impl Iterator<Item = (PeerIndex, Contact<E>)> {
        self.states.iter().map(|(index, state)| (*index, *state))
    }
}

#[cfg(test)]
mod tests {
    use super::Contacts;
    use mend_base::{Job, Peer, PeerIndex};

    #[test]
    fn the_index_of_a_peer_does_not_change() {
        let mut contacts: Contacts<u32> = Contacts::new(Job(7), 4);
        let outsider = Peer::new(Job(9), 2);
        assert_eq!(contacts.find(Peer::new(Job(7), 3)), Some(PeerIndex(3)));
        assert_eq!(contacts.find(outsider), None);
        let index = contacts.peer_index(outsider);
        assert_eq!(index, PeerIndex(4));
        assert_eq!(contacts.peer_index(Peer::new(Job(7), 4)), PeerIndex(5));
        assert_eq!(contacts.peer_index(outsider), index);
        assert_eq!(contacts.peer(index), outsider);
        assert_eq!(contacts.peer(PeerIndex(1)), Peer::new(Job(7), 1));
    }
}
