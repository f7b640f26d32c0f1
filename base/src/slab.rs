// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables whose handles are an index and a generation, never a pointer (I4): a handle that outlived its entry is
//! refused, not followed.

/// A handle of a [`Slab`] entry. Also travels in messages, where it comes back unbelieved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Key {
    /// Which place.
    pub index: u32,
    /// Which of the entries that have stood there: odd while one does.
    pub generation: u32,
}

/// A table that grows from empty and uses its places again; an index is stable while its entry lives.
#[derive(Debug)]
pub struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    entry: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// An empty table; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many entries stand.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// How many places there are, empty ones among them: indices are below.
    pub fn places(&self) -> u32 {
        self.places.len() as u32
    }

    /// Whether none stands.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // Hot: per message.
    /// Keeps `entry`; allocates only when more stand than ever before.
    pub fn insert(&mut self, entry: T) -> Key {
        if let Some(index) = self.free.pop() {
            let place = &mut self.places[index as usize];
            place.generation = place.generation.wrapping_add(1);
            place.entry = Some(entry);
            return Key { index, generation: place.generation };
        }
        self.grow(entry)
    }

    #[cold]
    fn grow(&mut self, entry: T) -> Key {
        let index = u32::try_from(self.places.len()).expect("2^32 entries do not fit into memory");
        self.places.push(Place { generation: 1, entry: Some(entry) });
        Key { index, generation: 1 }
    }

    // Hot: per message.
    /// The entry, unless the key is stale or was never given out.
    pub fn get(&self, key: Key) -> Option<&T> {
        let place = self.places.get(key.index as usize)?;
        if place.generation == key.generation { place.entry.as_ref() } else { None }
    }

    // Hot: per message.
    /// The entry, unless the key is stale or was never given out.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation == key.generation { place.entry.as_mut() } else { None }
    }

    /// Whether an entry stood under this key, and stands no more: the key is stale, and was not made up.
    pub fn stood(&self, key: Key) -> bool {
        let Some(place) = self.places.get(key.index as usize) else { return false };
        let lives_since = place.generation.wrapping_sub(key.generation);
        key.generation % 2 == 1 && lives_since > 0 && lives_since < 1 << 31
    }

    // Hot: per message.
    /// Takes the entry out; its key is stale from now on.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation != key.generation {
            return None;
        }
        let entry = place.entry.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(entry)
    }

    /// All entries with their keys, by index.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        (0u32..).zip(&self.places).filter_map(|(index, place)| {
            Some((Key { index, generation: place.generation }, place.entry.as_ref()?))
        })
    }

    /// All entries with their keys, by index.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        (0u32..).zip(&mut self.places).filter_map(|(index, place)| {
            Some((Key { index, generation: place.generation }, place.entry.as_mut()?))
        })
    }

    /// The key of the entry at `index`, if one stands there.
    pub fn key_at(&self, index: u32) -> Option<Key> {
        let place = self.places.get(index as usize)?;
        place.entry.as_ref()?;
        Some(Key { index, generation: place.generation })
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, Slab};

    #[test]
    fn a_key_that_outlived_its_entry_is_refused() {
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
    fn a_stale_key_is_told_from_one_that_was_made_up() {
        let mut slab = Slab::new();
        let first = slab.insert("a");
        assert!(!slab.stood(first), "it stands");
        slab.remove(first);
        assert!(slab.stood(first));
        let second = slab.insert("b");
        assert!(slab.stood(first) && !slab.stood(second));
        for generation in [0, 2, 5, 1 << 20 | 1] {
            assert!(!slab.stood(Key { index: first.index, generation }), "{generation} was never given out");
        }
        assert!(!slab.stood(Key { index: 7, generation: 1 }));
    }
}
