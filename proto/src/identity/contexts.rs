// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The context ids that this process chose as a receiver: what each stands for, and when it may be reused.

use mend_base::{ContextId, PeerIndex};
use std::collections::BTreeSet;

/// The context ids of this process. `T` is what an id stands for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Contexts<T> {
    entries: Vec<ContextEntry<T>>,
    free: Vec<u16>,
    ids: usize,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum ContextEntry<T> {
    Free,
    /// `announced`: the peers that may send with this id.
    Assigned {
        open: T,
        announced: BTreeSet<PeerIndex>,
    },
    /// `waiting`: the peers that the id was announced to and that have not confirmed its retirement. Never empty.
    Retiring {
        waiting: BTreeSet<PeerIndex>,
    },
}

/// What an id in a message of some peer stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolved<T> {
    /// The id is in use, for this.
    Assigned(T),
    /// The communicator was closed here, and this peer has not confirmed that.
    Retiring,
    /// The id was never announced to this peer, or the peer has confirmed its retirement: garbage.
    Unknown,
}

impl<T: Copy> Default for Contexts<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> Contexts<T> {
    /// No id is in use. Allocates nothing.
    pub fn new() -> Self {
        Self::with_ids(1 << 16)
    }

    /// As [`new`](Self::new), with at most `ids` ids, for tests.
    pub fn with_ids(ids: usize) -> Self {
        Contexts { entries: Vec::new(), free: Vec::new(), ids: ids.min(1 << 16) }
    }

    /// Assigns an id to `open`. `None`: all ids are in use, so messages must carry the full identity.
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
    /// What `id` stands for in a message of `from`. Returns `Assigned` for every peer, also without an announcement: the caller checks that in
    /// its table of peers, where the check costs nothing.
    #[inline]
    pub fn resolve(&self, id: ContextId, from: PeerIndex) -> Resolved<T> {
        match self.entries.get(usize::from(id.0)) {
            Some(ContextEntry::Assigned { open, .. }) => Resolved::Assigned(*open),
            Some(ContextEntry::Retiring { waiting }) if waiting.contains(&from) => Resolved::Retiring,
            _ => Resolved::Unknown,
        }
    }

    /// Notes that `id` is announced to `peer`. `false`: it was announced before, or the id is not assigned.
    pub fn announce(&mut self, id: ContextId, peer: PeerIndex) -> bool {
        match self.entries.get_mut(usize::from(id.0)) {
            Some(ContextEntry::Assigned { announced, .. }) => announced.insert(peer),
            _ => false,
        }
    }

    /// Closes what `id` stands for. Returns the peers that must be sent `Retire`.
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

    /// Notes that `from` confirmed the retirement of `id`. `false`: `from` was not asked, so the confirmation is garbage.
    pub fn retirement_confirmed(&mut self, id: ContextId, from: PeerIndex) -> bool {
        let Some(ContextEntry::Retiring { waiting }) = self.entries.get_mut(usize::from(id.0)) else {
            return false;
        };
        let asked = waiting.remove(&from);
        self.free_if_retired(id);
        asked
    }

    /// Notes that `peer` has ended and nothing of it can arrive any more: counts as its confirmation of every id.
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

    /// How many ids are assigned or retiring.
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
    fn an_id_is_free_when_the_last_peer_has_confirmed_or_ended() {
        let mut contexts = Contexts::with_ids(1);
        let id = contexts.open('x').unwrap();
        assert!(contexts.announce(id, A) && contexts.announce(id, B) && !contexts.announce(id, A));
        assert_eq!(contexts.close(id), [A, B]);
        assert_eq!(contexts.resolve(id, A), Resolved::Retiring);
        assert!(contexts.retirement_confirmed(id, A));
        assert_eq!(contexts.resolve(id, A), Resolved::Unknown);
        assert_eq!(contexts.open('y'), None);
        contexts.ended(B);
        assert_eq!(contexts.open('y'), Some(id));
    }

    #[test]
    fn a_confirmation_that_was_not_asked_for_is_detected() {
        let mut contexts = Contexts::new();
        let id = contexts.open('x').unwrap();
        contexts.announce(id, A);
        assert!(!contexts.retirement_confirmed(id, A));
        contexts.close(id);
        assert!(!contexts.retirement_confirmed(id, B));
        assert!(contexts.retirement_confirmed(id, A));
        assert!(!contexts.retirement_confirmed(id, A));
        assert!(!contexts.retirement_confirmed(ContextId(9), A));
    }
}
