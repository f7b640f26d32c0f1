// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The set of retired names. It only grows.
//!
//! A member to which this process never announced its context id may send messages with the full identity as long as the communicator is
//! open at the member, also long after it was closed here. Such a message must be refused. A message for a name that was never opened here
//! is early and must be stored. To tell the two apart, the set of retired names must be exact, and no name may be dropped from it. The
//! greatest retired number of each creator would not do: two communicators of one creator over different parents may be created here in
//! another order than that of their numbers (by two threads, or by nonblocking creation), so a lower number may still be early when a
//! higher one is retired.
//!
//! The memory of the set depends on the numbers of one creator that are *never* retired here: numbers of communicators of which this
//! process is no member, and numbers that were allocated and not used. [`IdentityAllocator`](super::IdentityAllocator) makes both rare: a
//! number that was not used is given back, and numbers of communicators with one member are allocated from the upper end. The set is stored
//! as words of 64 names: a word with a gap as 64 bits, and adjacent words without a gap as two bounds. A program that creates and frees
//! communicators of one creator in a loop needs two words, however long it runs. If this process is a member of only every second
//! communicator, it needs a word for each 32 communicators.

use super::ContextName;
use mend_base::{ContextKind, Peer};
use std::collections::BTreeMap;

/// The retired names, or those that were retired for one reason.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct RetiredNames {
    by_creator: BTreeMap<Peer, Numbers>,
}

impl RetiredNames {
    /// Whether this name is one of them.
    pub fn contains(&self, name: ContextName) -> bool {
        self.by_creator.get(&name.identity.creator).is_some_and(|numbers| numbers.contains(number(name)))
    }

    /// Adds a name.
    pub fn add(&mut self, name: ContextName) {
        self.by_creator.entry(name.identity.creator).or_default().add(number(name));
    }

    /// The number of words and pairs of bounds: the memory, up to a constant factor.
    pub fn words(&self) -> usize {
        self.by_creator.values().map(|numbers| numbers.partial.len() + numbers.full.0.len()).sum()
    }
}

/// The number of a name in the set. The point-to-point and the collective context of a communicator are retired together, so they have
/// adjacent numbers. The contexts of creations and agreements are opened for few communicators, so numbers of their own would be gaps in
/// almost all of them: they have the number of the point-to-point context.
fn number(name: ContextName) -> u64 {
    let is_collective = match name.context_kind {
        ContextKind::PointToPoint | ContextKind::Creation | ContextKind::Agreement | ContextKind::Leaders => {
            false
        }
        ContextKind::Collective => true,
    };
    u64::from(name.identity.number) << 1 | u64::from(is_collective)
}

/// A set of numbers.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Numbers {
    /// The words of 64 numbers that are all in the set.
    full: Intervals,
    /// The bits of words of which some numbers are in the set.
    partial: BTreeMap<u64, u64>,
}

impl Numbers {
    fn contains(&self, number: u64) -> bool {
        let (word, bit) = (number / 64, 1 << (number % 64));
        self.full.contains(word) || self.partial.get(&word).is_some_and(|bits| bits & bit != 0)
    }

    fn add(&mut self, number: u64) {
        let (word, bit) = (number / 64, 1 << (number % 64));
        if self.full.contains(word) {
            return;
        }
        let bits = self.partial.entry(word).or_default();
        *bits |= bit;
        if *bits == u64::MAX {
            self.partial.remove(&word);
            self.full.add(word);
        }
    }
}

/// A set of numbers, as intervals in order with a gap between any two.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Intervals(Vec<(u64, u64)>);

impl Intervals {
    fn contains(&self, number: u64) -> bool {
        let after = self.0.partition_point(|&(first, _)| first <= number);
        after > 0 && number <= self.0[after - 1].1
    }

    fn add(&mut self, number: u64) {
        if self.contains(number) {
            return;
        }
        let after = self.0.partition_point(|&(first, _)| first <= number);
        let joins_left = after > 0 && self.0[after - 1].1 + 1 == number;
        let joins_right = after < self.0.len() && number + 1 == self.0[after].0;
        match (joins_left, joins_right) {
            (true, true) => self.0[after - 1].1 = self.0.remove(after).1,
            (true, false) => self.0[after - 1].1 = number,
            (false, true) => self.0[after].0 = number,
            (false, false) => self.0.insert(after, (number, number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Intervals, Numbers, RetiredNames};
    use crate::identity::{ContextName, IdentityAllocator};
    use mend_base::{ContextKind, Identity, Job, Peer, Random};
    use std::collections::BTreeSet;

    fn retire(names: &mut RetiredNames, identity: Identity) {
        for context_kind in [ContextKind::PointToPoint, ContextKind::Collective] {
            names.add(ContextName { identity, context_kind });
        }
    }

    fn creators(count: u32) -> Vec<IdentityAllocator> {
        (0..count).map(|number| IdentityAllocator::new(Peer::new(Job(1), number))).collect()
    }

    #[test]
    fn a_million_communicators_of_one_creator_cost_two_words() {
        let (mut names, mut creator) = (RetiredNames::default(), creators(1).remove(0));
        for _ in 0..1_000_000 {
            retire(&mut names, creator.allocate().unwrap());
            assert!(names.words() <= 3);
        }
    }

    #[test]
    fn a_million_communicators_of_alternating_creators_cost_as_much_as_a_hundred() {
        let (mut names, mut creators) = (RetiredNames::default(), creators(4));
        let mut after_a_hundred = 0;
        for round in 0..1_000_000 {
            // Each member allocates an identity, as in a split; all but one are given back.
            let allocated: Vec<Identity> =
                creators.iter_mut().map(|creator| creator.allocate().unwrap()).collect();
            for (at, creator) in creators.iter_mut().enumerate() {
                if at == round % 4 {
                    retire(&mut names, allocated[at]);
                } else {
                    creator.give_back(allocated[at]);
                }
            }
            if round == 100 {
                after_a_hundred = names.words();
            }
        }
        assert!(names.words() <= after_a_hundred + 4, "{} after {after_a_hundred}", names.words());
    }

    #[test]
    fn with_communicators_of_others_between_them_names_cost_a_word_for_each_thirty_two() {
        let (mut names, mut creator) = (RetiredNames::default(), creators(1).remove(0));
        for _ in 0..32_000 {
            let _of_others = creator.allocate().unwrap();
            retire(&mut names, creator.allocate().unwrap());
        }
        assert!(names.words() <= 2 * 32_000 / 32 + 2, "{}", names.words());
    }

    #[test]
    fn a_set_holds_what_was_added_and_nothing_else() {
        for seed in 0..100 {
            let mut random = Random(seed);
            let (mut numbers, mut set) = (Numbers::default(), BTreeSet::new());
            let most = [150, 400, 5_000][random.below(3) as usize];
            for _ in 0..random.below(3_000) {
                let number = random.below(most);
                numbers.add(number);
                set.insert(number);
            }
            for number in 0..most {
                assert_eq!(numbers.contains(number), set.contains(&number), "seed {seed}");
            }
        }
    }

    #[test]
    fn intervals_hold_what_a_set_holds() {
        for seed in 0..100 {
            let mut random = Random(seed);
            let (mut intervals, mut set) = (Intervals::default(), BTreeSet::new());
            for _ in 0..200 {
                let number = random.below(150);
                intervals.add(number);
                set.insert(number);
            }
            for number in 0..150 {
                assert_eq!(intervals.contains(number), set.contains(&number), "seed {seed}");
            }
            assert!(intervals.0.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "seed {seed}");
        }
    }
}
