// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receiver's side: what its ids mean, and when one may be used again.

use mend_base::{ContextId, PeerIndex};
use std::collections::BTreeSet;

/// This process's context ids. `T` is what an id stands for here.
#[derive(Debug)]
pub struct Contexts<T> {
    entries: Vec<ContextEntry<T>>,
    free: Vec<u16>,
    ids: usize,
}

#[derive(Debug)]
enum ContextEntry<T> {
    Free,
    /// `announced`: the peers that may send with this id.
    Assigned {
        open: T,
        announced: BTreeSet<PeerIndex>,
    },
    /// `waiting`: the peers that it was announced to and that have not acknowledged its retirement. Never empty.
    Retiring {
        waiting: BTreeSet<PeerIndex>,
    },
}

/// What an id means when a message of some peer carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolved<T> {
    /// This.
    Assigned(T),
    /// What it meant has been closed here; this peer has not acknowledged that yet.
    Retiring,
    /// This id was never announced to this peer.
    Unknown,
}

impl<T: Copy> Default for Contexts<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> Contexts<T> {
    /// No id given out; allocates nothing.
    pub fn new() -> Self {
        Self::with_ids(1 << 16)
    }

    /// With only so many ids: for tests of running out of them.
    pub fn with_ids(ids: usize) -> Self {
        Contexts { entries: Vec::new(), free: Vec::new(), ids: ids.min(1 << 16) }
    }

    /// An id for `open`; `None`: all are in use, its messages must carry the full identity.
    pub fn open(&mut self, open: T) -> Option<ContextId> {
        let entry = ContextEntry::Assigned { open, announced: BTreeSet::new() };
        if let Some(id) = self.free.pop() {
            self.entries[usize::from(id)] = entry;
            return Some(ContextId(id));
        }
        if self.entries.len() == self.ids {
            return None;
        }
        self.entries.push(entry);
        Some(ContextId((self.entries.len() - 1) as u16))
    }

    // Hot: per message.
    /// What `id` means in a message of `from`. `Assigned` is the answer for every peer: the caller notes in its own tables to
    /// which peers it announced the id, where the check costs nothing.
    #[inline]
    pub fn resolve(&self, id: ContextId, from: PeerIndex) -> Resolved<T> {
        match self.entries.get(usize::from(id.0)) {
            Some(ContextEntry::Assigned { open, .. }) => Resolved::Assigned(*open),
            Some(ContextEntry::Retiring { waiting }) if waiting.contains(&from) => Resolved::Retiring,
            _ => Resolved::Unknown,
        }
    }

    /// Notes that `id` is announced to `peer`. False where it had been, or nothing open has this id.
    pub fn announce(&mut self, id: ContextId, peer: PeerIndex) -> bool {
        match self.entries.get_mut(usize::from(id.0)) {
            Some(ContextEntry::Assigned { announced, .. }) => announced.insert(peer),
            _ => false,
        }
    }

    /// What `id` means is closed: the peers that must be asked to forget it.
    pub fn close(&mut self, id: ContextId) -> Vec<PeerIndex> {
        let entry = &mut self.entries[usize::from(id.0)];
        let ContextEntry::Assigned { announced, .. } = entry else {
            panic!("context id {} was closed twice", id.0);
        };
        let waiting = core::mem::take(announced);
        let asked = waiting.iter().copied().collect();
        *entry = ContextEntry::Retiring { waiting };
        self.free_if_retired(id);
        asked
    }

    /// `from` acknowledges that it uses `id` no more. False: it was not asked, and no correct peer says so unasked.
    pub fn acknowledged(&mut self, id: ContextId, from: PeerIndex) -> bool {
        let Some(ContextEntry::Retiring { waiting }) = self.entries.get_mut(usize::from(id.0)) else {
            return false;
        };
        let asked = waiting.remove(&from);
        self.free_if_retired(id);
        asked
    }

    /// `peer` has ended, and nothing of it can arrive any more.
    pub fn ended(&mut self, peer: PeerIndex) {
        for id in 0..self.entries.len() {
            match &mut self.entries[id] {
                ContextEntry::Assigned { announced, .. } => drop(announced.remove(&peer)),
                ContextEntry::Retiring { waiting } => {
                    waiting.remove(&peer);
                    self.free_if_retired(ContextId(id as u16));
                }
                ContextEntry::Free => {}
            }
        }
    }

    /// How many ids are open or retiring.
    pub fn in_use(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    fn free_if_retired(&mut self, id: ContextId) {
        let entry = &mut self.entries[usize::from(id.0)];
        if matches!(entry, ContextEntry::Retiring { waiting } if waiting.is_empty()) {
            *entry = ContextEntry::Free;
            self.free.push(id.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Contexts, Resolved};
    use mend_base::{ContextId, PeerIndex};

    const A: PeerIndex = PeerIndex(1);
    const B: PeerIndex = PeerIndex(2);

    #[test]
    fn an_id_that_was_announced_to_no_peer_is_free_at_once() {
        let mut contexts = Contexts::with_ids(1);
        let id = contexts.open('x').unwrap();
        assert_eq!(contexts.open('y'), None);
        assert!(contexts.close(id).is_empty());
        assert_eq!(contexts.resolve(id, A), Resolved::Unknown);
        assert_eq!(contexts.open('y'), Some(id));
    }

    #[test]
    fn an_id_is_free_when_the_last_peer_has_acknowledged_or_ended() {
        let mut contexts = Contexts::with_ids(1);
        let id = contexts.open('x').unwrap();
        assert!(contexts.announce(id, A) && contexts.announce(id, B) && !contexts.announce(id, A));
        assert_eq!(contexts.close(id), [A, B]);
        assert_eq!(contexts.resolve(id, A), Resolved::Retiring);
        assert!(contexts.acknowledged(id, A));
        assert_eq!(contexts.resolve(id, A), Resolved::Unknown);
        assert_eq!(contexts.open('y'), None);
        contexts.ended(B);
        assert_eq!(contexts.open('y'), Some(id));
    }

    #[test]
    fn an_acknowledgement_that_was_not_asked_for_is_found() {
        let mut contexts = Contexts::new();
        let id = contexts.open('x').unwrap();
        contexts.announce(id, A);
        assert!(!contexts.acknowledged(id, A));
        contexts.close(id);
        assert!(!contexts.acknowledged(id, B));
        assert!(contexts.acknowledged(id, A));
        assert!(!contexts.acknowledged(id, A));
        assert!(!contexts.acknowledged(ContextId(9), A));
    }
}
