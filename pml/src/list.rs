// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queues whose links lie in the entries of a slab: nothing is allocated to stand in one, and leaving from the middle
//! costs what leaving from the front does.

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

/// An entry that can stand in the queues `QUEUE`, one at a time.
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
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// Puts the entry `key` at the end.
    pub(crate) fn push<T: Linked<QUEUE>>(&mut self, slab: &mut Slab<T>, key: Key) {
        let last = core::mem::replace(&mut self.last, key);
        match slab.get_mut(last) {
            Some(entry) => entry.links_mut().after = key,
            None => self.first = key,
        }
        *ours(slab, key) = Links { before: last, after: NONE };
    }

    /// Takes the entry `key` out, which stands in this queue.
    pub(crate) fn remove<T: Linked<QUEUE>>(&mut self, slab: &mut Slab<T>, key: Key) {
        let Links { before, after } = core::mem::replace(ours(slab, key), Links::ALONE);
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

fn ours<const QUEUE: u8, T: Linked<QUEUE>>(slab: &mut Slab<T>, key: Key) -> &mut Links {
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
                let flush_pending: Vec<_> = list.iter(&slab).map(|(key, node)| (key, node.1)).collect();
                assert_eq!(flush_pending, vector, "seed {seed}");
                assert_eq!(list.is_empty(), vector.is_empty(), "seed {seed}");
            }
        }
    }
}
