// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How this process stands to each other one: who has which place in the tables, and the way to it.
//!
//! ```text
//!            lookup              Notice::Contact, connect
//! unknown ───────────▶ asked ──────────────────────────────▶ connected ◀── suspected (Notice::Alive resumes)
//!    │                   │                                       │ Notice::Finalized, Failed, Refused: sever
//!    └─ Refused, Finalized, Failed ─▶ drained ◀── on_severed ── severing
//!                                        └── all that was declared before is published ──▶ ended
//! ```
//! Ends are published in the order of the declarations, however long each takes to drain: a peer that finalizes because another
//! failed is declared after that one, and a call that waits for both must end with the failure.
//! The first declaration stands, with one exception: an unreachable peer may still fail, and its failure is published too.
//! A peer that dies before its notice `Contact` was taken is connected and severed at once, since the messages that it had sent
//! completely lie in its outbox (Row PP7). Notices come in the order in which the runtime gave them: Contact before the
//! declaration.
//! A peer that neither side has asked for has no entry.

use mend_base::{Job, Peer, PeerIndex};
use std::collections::{BTreeMap, BTreeSet};

/// The way to one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Contact<E> {
    /// The runtime was asked how to reach it.
    Asked,
    /// There is a way.
    Connected {
        /// The way.
        endpoint: E,
        /// Evidence lies against it, and the runtime was asked: nothing goes out until it answers.
        suspected: bool,
    },
    /// The endpoint is being severed: messages that the peer had sent completely are handed up. Its end is declared.
    Severing {
        /// The way.
        endpoint: E,
    },
    /// Nothing of it is under way any more. Its end is declared, and published after those that were declared before.
    Drained,
    /// Its end is published: how it ended stands in [`Ends`](mend_pml::Ends).
    Ended,
}

/// All contacts, and the places of peers.
#[derive(Debug)]
pub(crate) struct Contacts<E> {
    job: Job,
    size: u32,
    /// Peers that were not of the first `size`, in the order they became known: their places begin at `size`.
    joined: Vec<Peer>,
    states: BTreeMap<PeerIndex, Contact<E>>,
    /// The peers that the runtime was asked about and has not answered for since.
    queries: BTreeSet<PeerIndex>,
}

impl<E: Copy + Eq + core::fmt::Debug> Contacts<E> {
    /// The places 0 to `size - 1` are those of the peers that `job` numbered so.
    pub fn new(job: Job, size: u32) -> Self {
        Contacts { job, size, joined: Vec::new(), states: BTreeMap::new(), queries: BTreeSet::new() }
    }

    /// The place of `peer`, if it ever got one.
    pub fn find(&self, peer: Peer) -> Option<PeerIndex> {
        if peer.job() == self.job && peer.number() < self.size {
            return Some(PeerIndex(peer.number()));
        }
        let at = self.joined.iter().position(|each| *each == peer)?;
        Some(PeerIndex(self.size + at as u32))
    }

    /// The place of `peer`; a new one where it has none yet.
    pub fn peer_index(&mut self, peer: Peer) -> PeerIndex {
        self.find(peer).unwrap_or_else(|| {
            self.joined.push(peer);
            PeerIndex(self.size + self.joined.len() as u32 - 1)
        })
    }

    /// Who has this place. Places come from this table alone.
    pub fn peer(&self, index: PeerIndex) -> Peer {
        if index.0 < self.size {
            return Peer::new(self.job, index.0);
        }
        self.joined[index.index() - self.size as usize]
    }

    /// How we stand to it; `None`: neither side has asked for the other.
    pub fn state(&self, index: PeerIndex) -> Option<Contact<E>> {
        self.states.get(&index).copied()
    }

    /// Moves on.
    pub fn set(&mut self, index: PeerIndex, state: Contact<E>) {
        self.states.insert(index, state);
    }

    /// The runtime is asked about it. One answer may stand for all questions before it, so how many come nobody knows.
    pub fn begin_query(&mut self, index: PeerIndex) {
        self.queries.insert(index);
    }

    /// Whether a question about it waits for its answer.
    pub fn has_open_query(&self, index: PeerIndex) -> bool {
        self.queries.contains(&index)
    }

    /// The runtime has said something of it.
    pub fn end_query(&mut self, index: PeerIndex) {
        self.queries.remove(&index);
    }

    /// Whether somebody is being cut off.
    pub fn some_severing(&self) -> bool {
        self.states.values().any(|state| matches!(state, Contact::Severing { .. }))
    }

    /// Every contact.
    pub fn iter(&self) -> impl Iterator<Item = (PeerIndex, Contact<E>)> {
        self.states.iter().map(|(index, state)| (*index, *state))
    }
}

#[cfg(test)]
mod tests {
    use super::Contacts;
    use mend_base::{Job, Peer, PeerIndex};

    #[test]
    fn a_peer_keeps_its_place() {
        let mut contacts: Contacts<u32> = Contacts::new(Job(7), 4);
        let outsider = Peer::new(Job(9), 2);
        assert_eq!(contacts.find(Peer::new(Job(7), 3)), Some(PeerIndex(3)));
        assert_eq!(contacts.find(outsider), None);
        let place = contacts.peer_index(outsider);
        assert_eq!(place, PeerIndex(4));
        assert_eq!(contacts.peer_index(Peer::new(Job(7), 4)), PeerIndex(5));
        assert_eq!(contacts.peer_index(outsider), place);
        assert_eq!(contacts.peer(place), outsider);
        assert_eq!(contacts.peer(PeerIndex(1)), Peer::new(Job(7), 1));
    }
}
