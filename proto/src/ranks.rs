// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small sets of ranks, such as the failed members of a communicator: sorted, so their memory grows with the failures and not
//! with the members.

use mend_base::Rank;

/// A set of ranks, sorted.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Ranks(Vec<Rank>);

/// A hash of a set of ranks: equal sets have equal hashes whatever the order of insertion. Two different sets have equal hashes by
/// chance only, since each rank adds 64 mixed bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct SetHash(pub u64);

impl SetHash {
    /// The hash of a set that contains one more member.
    #[must_use]
    pub fn with(self, item: u64) -> Self {
        // The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection, and no input but one maps to 0.
        let mut mixed = item.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        SetHash(self.0.wrapping_add(mixed ^ (mixed >> 31)))
    }
}

impl Ranks {
    /// The empty set; allocates nothing.
    pub const fn new() -> Self {
        Ranks(Vec::new())
    }

    /// Adds a rank. Returns whether it was not in the set.
    pub fn insert(&mut self, rank: Rank) -> bool {
        match self.0.binary_search(&rank) {
            Ok(_) => false,
            Err(at) => {
                self.0.insert(at, rank);
                true
            }
        }
    }

    /// Removes the ranks for which `keep` is false, and keeps the memory.
    pub fn retain(&mut self, mut keep: impl FnMut(Rank) -> bool) {
        self.0.retain(|&rank| keep(rank));
    }

    /// Removes all ranks, and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether the rank is in the set.
    pub fn contains(&self, rank: Rank) -> bool {
        !self.0.is_empty() && self.0.binary_search(&rank).is_ok()
    }

    /// The number of ranks.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set has no rank.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranks in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.0.iter().copied()
    }

    /// How many ranks of the set are below `rank`.
    pub fn below(&self, rank: Rank) -> u32 {
        self.0.partition_point(|&member| member < rank) as u32
    }

    /// The hash of the set.
    pub fn hash(&self) -> SetHash {
        self.iter().fold(SetHash::default(), |hash, rank| hash.with(u64::from(rank.0)))
    }
}

impl FromIterator<Rank> for Ranks {
    fn from_iter<I: IntoIterator<Item = Rank>>(ranks: I) -> Self {
        let mut set = Ranks::new();
        for rank in ranks {
            set.insert(rank);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::{Ranks, SetHash};
    use mend_base::Rank;

    fn set(ranks: &[u32]) -> Ranks {
        ranks.iter().copied().map(Rank).collect()
    }

    #[test]
    fn equal_sets_are_equal_whatever_the_order() {
        let (one, other) = (set(&[5, 1, 9]), set(&[9, 5, 1, 5]));
        assert_eq!((&one, one.hash(), one.len()), (&other, other.hash(), 3));
        assert_ne!(one.hash(), set(&[1, 5]).hash());
        assert_ne!(set(&[0]).hash(), SetHash::default());
        assert_eq!((one.below(Rank(5)), one.below(Rank(10)), one.below(Rank(0))), (1, 3, 0));
        assert!(one.contains(Rank(9)) && !one.contains(Rank(2)));
    }
}
