// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables whose handles are an index and a generation, never a pointer (I4): a handle whose entry was removed is refused.

use crate::allocation_fails;

/// A handle of a [`Slab`] entry. Also sent in messages; when it comes back, it is not trusted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Key {
    /// The index of the slot.
    pub index: u32,
    /// The generation of the slot, incremented by each insertion and removal: odd while the slot holds an entry.
    pub generation: u32,
}

/// A table that grows from empty and reuses its slots; an index is stable while its entry is there.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<SlabSlot<T>>,
    /// Empty slots. The capacity is at least the number of slots, so that a removal never allocates.
    free: Vec<u32>,
}

#[derive(Debug)]
struct SlabSlot<T> {
    generation: u32,
    entry: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// An empty table; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// How many slots there are, empty ones included; every index is below.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // Hot: per message.
    /// Adds `entry`; allocates only when there are more entries than ever before.
    ///
    /// # Panics
    /// If there is no memory. Only for tables that this process alone fills, and whose caller cannot report an error. All others
    /// call [`try_insert`](Slab::try_insert).
    #[inline]
    pub fn insert(&mut self, entry: T) -> Key {
        self.insert_if(entry, Self::grow_slots).expect("there is no memory for a table's entry")
    }

    // Hot: per message.
    /// Adds `entry`, unless it needs memory and there is none.
    #[inline]
    pub fn try_insert(&mut self, entry: T) -> Option<Key> {
        self.insert_if(entry, Self::try_reserve)
    }

    // Hot: per message.
    /// Adds `entry`, unless it needs memory that `reserve` does not give.
    #[inline]
    fn insert_if(&mut self, entry: T, reserve: fn(&mut Self, usize) -> bool) -> Option<Key> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.generation = slot.generation.wrapping_add(1);
            slot.entry = Some(entry);
            return Some(Key { index, generation: slot.generation });
        }
        self.grow(entry, reserve)
    }

    #[cold]
    fn grow(&mut self, entry: T, reserve: fn(&mut Self, usize) -> bool) -> Option<Key> {
        if !reserve(self, 1) {
            return None;
        }
        let index = u32::try_from(self.slots.len()).ok()?;
        self.slots.push(SlabSlot { generation: 1, entry: Some(entry) });
        Some(Key { index, generation: 1 })
    }

    /// As [`try_insert`](Slab::try_insert), for an entry that is made with its own key.
    pub fn try_insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Option<Key> {
        if !self.try_reserve(1) {
            return None;
        }
        let key = match self.free.last() {
            Some(&index) => Key { index, generation: self.slots[index as usize].generation.wrapping_add(1) },
            None => Key { index: u32::try_from(self.slots.len()).ok()?, generation: 1 },
        };
        let inserted = self.try_insert(make(key));
        debug_assert_eq!(inserted, Some(key));
        inserted
    }

    // Hot: per message.
    /// Whether a slot is empty, so that the next insertion needs no memory.
    #[inline]
    pub fn has_empty_slot(&self) -> bool {
        !self.free.is_empty()
    }

    /// Reserves memory for `count` more insertions. `false`: there is not enough memory, or there are not enough indices.
    pub fn try_reserve(&mut self, count: usize) -> bool {
        let missing = count.saturating_sub(self.free.len());
        let fails = self.slots.capacity() - self.slots.len() < missing && allocation_fails();
        !fails && self.grow_slots(count)
    }

    fn grow_slots(&mut self, count: usize) -> bool {
        let missing = count.saturating_sub(self.free.len());
        self.slots.len().saturating_add(missing) <= u32::MAX as usize
            && self.slots.try_reserve(missing).is_ok()
            && self.free.try_reserve(self.slots.capacity() - self.free.len()).is_ok()
    }

    // Hot: per message.
    /// The entry, unless the key is stale or was never given out.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.entry.as_ref() } else { None }
    }

    // Hot: per message.
    /// The entry, unless the key is stale or was never given out.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.entry.as_mut() } else { None }
    }

    /// Whether an entry had this key and was removed: the key is stale, and not invented by a peer.
    pub fn is_stale(&self, key: Key) -> bool {
        let Some(slot) = self.slots.get(key.index as usize) else { return false };
        let lives_since = slot.generation.wrapping_sub(key.generation);
        key.generation % 2 == 1 && lives_since > 0 && lives_since < 1 << 31
    }

    // Hot: per message.
    /// Takes the entry out; its key is stale from now on.
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let entry = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(entry)
    }

    /// All entries with their keys, by index.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        (0u32..).zip(&self.slots).filter_map(|(index, slot)| {
            Some((Key { index, generation: slot.generation }, slot.entry.as_ref()?))
        })
    }

    /// All entries with their keys, by index.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        (0u32..).zip(&mut self.slots).filter_map(|(index, slot)| {
            Some((Key { index, generation: slot.generation }, slot.entry.as_mut()?))
        })
    }

    /// The key of the entry at `index`, if there is one.
    pub fn key_at(&self, index: u32) -> Option<Key> {
        let slot = self.slots.get(index as usize)?;
        slot.entry.as_ref()?;
        Some(Key { index, generation: slot.generation })
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, Slab};

    #[test]
    fn a_key_whose_entry_was_removed_is_refused() {
        let mut slab = Slab::new();
        let first = slab.insert("a");
        assert_eq!(slab.remove(first), Some("a"));
        let second = slab.insert("b");
        assert_eq!(first.index, second.index);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"b"));
        assert_eq!(slab.get(Key { index: 7, generation: 1 }), None);
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn a_stale_key_is_told_from_an_invented_one() {
        let mut slab = Slab::new();
        let first = slab.insert("a");
        assert!(!slab.is_stale(first), "the entry is there");
        slab.remove(first);
        assert!(slab.is_stale(first));
        let second = slab.insert("b");
        assert!(slab.is_stale(first) && !slab.is_stale(second));
        for generation in [0, 2, 5, 1 << 20 | 1] {
            assert!(
                !slab.is_stale(Key { index: first.index, generation }),
                "{generation} was never given out"
            );
        }
        assert!(!slab.is_stale(Key { index: 7, generation: 1 }));
    }

    #[test]
    fn a_removal_never_allocates_because_the_free_list_grew_with_the_slots() {
        let mut slab = Slab::new();
        let keys: Vec<Key> = (0..1000).map(|number| slab.try_insert(number).unwrap()).collect();
        assert!(slab.free.capacity() >= slab.slots.len());
        assert!(slab.try_reserve(0));
        let before = slab.free.capacity();
        keys.into_iter().for_each(|key| assert!(slab.remove(key).is_some()));
        assert_eq!(slab.free.capacity(), before);
    }

    #[test]
    fn without_memory_nothing_is_reserved_and_the_table_stays_as_it_was() {
        // No address space has room for one such entry.
        struct Huge(#[expect(dead_code, reason = "its size alone counts")] [u8; 1 << 60]);
        let mut slab: Slab<Huge> = Slab::new();
        assert!(!slab.try_reserve(1));
        assert!(slab.is_empty());
    }
}
