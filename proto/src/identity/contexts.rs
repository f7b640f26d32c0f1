// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receiver's side: what its ids mean, and when one may be used again.

use mend_base::{ContextId, PeerIndex};
use std::collections::BTreeSet;

/// This process's context ids. `T` is what an id stands for here.
#[derive(Debug)]
pub struct Contexts<T> {
    places: Vec<Place<T>>,
    free: Vec<u16>,
    ids: usize,
}

#[derive(Debug)]
enum Place<T> {
    Free,
    /// `told`: who may send with this id.
    Open {
        open: T,
        told: BTreeSet<PeerIndex>,
    },
    /// `waiting`: who was told, and has not said yet that it uses the id no more. Never empty.
    Retiring {
        waiting: BTreeSet<PeerIndex>,
    },
}

/// What an id means when a message of some peer carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning<T> {
    /// This.
    Open(T),
    /// What it meant has been closed here; this peer does not know yet.
    Retiring,
    /// Nothing that this peer was ever told.
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
        Contexts { places: Vec::new(), free: Vec::new(), ids: ids.min(1 << 16) }
    }

    /// An id for `open`; `None`: all are in use, its messages must carry the full identity.
    pub fn open(&mut self, open: T) -> Option<ContextId> {
        let place = Place::Open { open, told: BTreeSet::new() };
        if let Some(id) = self.free.pop() {
            self.places[usize::from(id)] = place;
            return Some(ContextId(id));
        }
        if self.places.len() == self.ids {
            return None;
        }
        self.places.push(place);
        Some(ContextId((self.places.len() - 1) as u16))
    }

    // Hot: per message.
    /// What `id` means in a message of `from`. `Open` is said to anybody: the caller keeps beside its own tables whom it
    /// told, where a look costs nothing.
    pub fn meaning(&self, id: ContextId, from: PeerIndex) -> Meaning<T> {
        match self.places.get(usize::from(id.0)) {
            Some(Place::Open { open, .. }) => Meaning::Open(*open),
            Some(Place::Retiring { waiting }) if waiting.contains(&from) => Meaning::Retiring,
            _ => Meaning::Unknown,
        }
    }

    /// Notes that `peer` is told `id`. False where it had been, or nothing open is called so.
    pub fn tell(&mut self, id: ContextId, peer: PeerIndex) -> bool {
        match self.places.get_mut(usize::from(id.0)) {
            Some(Place::Open { told, .. }) => told.insert(peer),
            _ => false,
        }
    }

    /// What `id` means is closed: who must be told to forget it.
    pub fn close(&mut self, id: ContextId) -> Vec<PeerIndex> {
        let place = &mut self.places[usize::from(id.0)];
        let Place::Open { told, .. } = place else {
            panic!("context id {} was closed twice", id.0);
        };
        let waiting = core::mem::take(told);
        let tell = waiting.iter().copied().collect();
        *place = Place::Retiring { waiting };
        self.settle(id);
        tell
    }

    /// `from` says that it uses `id` no more. False: nobody asked it, which no correct peer answers.
    pub fn acknowledged(&mut self, id: ContextId, from: PeerIndex) -> bool {
        let Some(Place::Retiring { waiting }) = self.places.get_mut(usize::from(id.0)) else {
            return false;
        };
        let asked = waiting.remove(&from);
        self.settle(id);
        asked
    }

    /// Nothing of `peer` can arrive any more.
    pub fn gone(&mut self, peer: PeerIndex) {
        for id in 0..self.places.len() {
            match &mut self.places[id] {
                Place::Open { told, .. } => drop(told.remove(&peer)),
                Place::Retiring { waiting } => {
                    waiting.remove(&peer);
                    self.settle(ContextId(id as u16));
                }
                Place::Free => {}
            }
        }
    }

    /// How many ids are open or retiring.
    pub fn in_use(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn settle(&mut self, id: ContextId) {
        let place = &mut self.places[usize::from(id.0)];
        if matches!(place, Place::Retiring { waiting } if waiting.is_empty()) {
            *place = Place::Free;
            self.free.push(id.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Contexts, Meaning};
    use mend_base::{ContextId, PeerIndex};

    const A: PeerIndex = PeerIndex(1);
    const B: PeerIndex = PeerIndex(2);

    #[test]
    fn an_id_that_nobody_was_told_is_free_at_once() {
        let mut contexts = Contexts::with_ids(1);
        let id = contexts.open('x').unwrap();
        assert_eq!(contexts.open('y'), None);
        assert!(contexts.close(id).is_empty());
        assert_eq!(contexts.meaning(id, A), Meaning::Unknown);
        assert_eq!(contexts.open('y'), Some(id));
    }

    #[test]
    fn an_id_is_free_when_the_last_who_was_told_has_answered_or_is_gone() {
        let mut contexts = Contexts::with_ids(1);
        let id = contexts.open('x').unwrap();
        assert!(contexts.tell(id, A) && contexts.tell(id, B) && !contexts.tell(id, A));
        assert_eq!(contexts.close(id), [A, B]);
        assert_eq!(contexts.meaning(id, A), Meaning::Retiring);
        assert!(contexts.acknowledged(id, A));
        assert_eq!(contexts.meaning(id, A), Meaning::Unknown);
        assert_eq!(contexts.open('y'), None);
        contexts.gone(B);
        assert_eq!(contexts.open('y'), Some(id));
    }

    #[test]
    fn an_answer_that_nobody_asked_for_is_noticed() {
        let mut contexts = Contexts::new();
        let id = contexts.open('x').unwrap();
        contexts.tell(id, A);
        assert!(!contexts.acknowledged(id, A));
        contexts.close(id);
        assert!(!contexts.acknowledged(id, B));
        assert!(contexts.acknowledged(id, A));
        assert!(!contexts.acknowledged(id, A));
        assert!(!contexts.acknowledged(ContextId(9), A));
    }
}
