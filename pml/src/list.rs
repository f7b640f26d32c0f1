// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queues whose links lie in the entries of a slab: an entry needs no memory to be in one, and a removal from the middle
//! costs what one from the front does.

use mend_base::{Key, Slab};

/// No entry.
pub(crate) const NONE: Key = Key { index: u32::MAX, generation: 0 };

/// An entry's neighbours in one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    before: Key,
    after: Key,
}

impl Links {
    pub(crate) const ALONE: Links = Links { before: NONE, after: NONE };
}

/// An entry that can be in the queues `QUEUE`, one at a time.
pub(crate) trait Linked<const QUEUE: u8> {
    fn links(&self) -> &Links;
    fn links_mut(&mut self) -> &mut Links;
}

/// A queue of entries of one slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List<const QUEUE: u8> {
    first: Key,
    last: Key,
}

impl<const QUEUE: u8> Default for List<QUEUE> {
    fn default() -> Self {
        List { first: NONE, last: NONE }
    }
}

impl<const QUEUE: u8> List<QUEUE> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.index == NONE.index
    }

    /// Puts the entry `key` at the end.
    pub(crate) fn push<T: Linked<QUEUE>>(&mut self, slab: &mut Slab<T>, key: Key) {
        let last = core::mem::replace(&mut self.last, key);
        match slab.get_mut(last) {
            Some(entry) => entry.links_mut().after = key,
            None => self.first = key,
        }
        *links_of(slab, key) = Links { before: last, after: NONE };
    }

    /// Puts the entry `key` before the first for which `is_behind` holds, or at the end.
    pub(crate) fn insert_before<T: Linked<QUEUE>>(
        &mut self,
        slab: &mut Slab<T>,
        key: Key,
        is_behind: impl Fn(&T) -> bool,
    ) {
        let Some((after, entry)) = self.iter(slab).find(|(_, entry)| is_behind(entry)) else {
            return self.push(slab, key);
        };
        let before = entry.links().before;
        links_of(slab, after).before = key;
        match slab.get_mut(before) {
            Some(entry) => entry.links_mut().after = key,
            None => self.first = key,
        }
        *links_of(slab, key) = Links { before, after };
    }

    /// Takes the entry `key` out, which is in this queue.
    pub(crate) fn remove<T: Linked<QUEUE>>(&mut self, slab: &mut Slab<T>, key: Key) {
        let Links { before, after } = core::mem::replace(links_of(slab, key), Links::ALONE);
        match slab.get_mut(before) {
            Some(entry) => entry.links_mut().after = after,
            None => self.first = after,
        }
        match slab.get_mut(after) {
            Some(entry) => entry.links_mut().before = before,
            None => self.last = before,
        }
    }

    /// The entries from the front.
    pub(crate) fn iter<'a, T: Linked<QUEUE>>(&self, slab: &'a Slab<T>) -> impl Iterator<Item = (Key, &'a T)> {
        let mut next = self.first;
        core::iter::from_fn(move || {
            let key = next;
            let entry = slab.get(key)?;
            next = entry.links().after;
            Some((key, entry))
        })
    }
}

fn links_of<const QUEUE: u8, T: Linked<QUEUE>>(slab: &mut Slab<T>, key: Key) -> &mut Links {
    slab.get_mut(key).expect("an entry leaves its queues before its slab").links_mut()
}

#[cfg(test)]
mod tests {
    use super::{Linked, Links, List};
    use mend_base::{Random, Slab};

    struct Node(Links, u32);

    impl Linked<0> for Node {
        fn links(&self) -> &Links {
            &self.0
        }
        fn links_mut(&mut self) -> &mut Links {
            &mut self.0
        }
    }

    #[test]
    fn a_list_holds_what_a_vector_holds_in_the_same_order() {
        for seed in 0..100 {
            let mut random = Random(seed);
            let (mut slab, mut list, mut vector) = (Slab::new(), List::<0>::default(), Vec::new());
            for number in 0..200 {
                if random.once_in(2) || vector.is_empty() {
                    let key = slab.insert(Node(Links::ALONE, number));
                    list.push(&mut slab, key);
                    vector.push((key, number));
                } else {
                    let (key, number) = vector.remove(random.below(vector.len() as u64) as usize);
                    list.remove(&mut slab, key);
                    assert_eq!(slab.remove(key).map(|node| node.1), Some(number));
                }
                let listed: Vec<_> = list.iter(&slab).map(|(key, node)| (key, node.1)).collect();
                assert_eq!(listed, vector, "seed {seed}");
                assert_eq!(list.is_empty(), vector.is_empty(), "seed {seed}");
            }
        }
    }

    #[test]
    fn entries_inserted_by_number_are_in_its_order() {
        for seed in 0..100 {
            let mut random = Random(seed);
            let (mut slab, mut list) = (Slab::new(), List::<0>::default());
            for _ in 0..50 {
                let number = random.below(1000) as u32;
                let key = slab.insert(Node(Links::ALONE, number));
                list.insert_before(&mut slab, key, |node| node.1 > number);
            }
            assert!(list.iter(&slab).map(|(_, node)| node.1).is_sorted(), "seed {seed}");
            let keys: Vec<_> = list.iter(&slab).map(|(key, _)| key).collect();
            keys.into_iter().rev().for_each(|key| list.remove(&mut slab, key));
            assert!(list.is_empty(), "seed {seed}");
        }
    }
}
