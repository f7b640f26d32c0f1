// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A set of ranks, one bit for each: oracles and the scheduler ask of every rank in jobs of many.

/// A set of ranks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RankSet(Vec<u64>);

const BITS: u32 = u64::BITS;

impl RankSet {
    /// Adds a rank.
    pub fn insert(&mut self, rank: u32) {
        let word = (rank / BITS) as usize;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (rank % BITS);
    }

    /// Removes a rank. Returns whether it was in the set.
    pub fn remove(&mut self, rank: u32) -> bool {
        let was_in = self.contains(rank);
        if was_in {
            self.0[(rank / BITS) as usize] &= !(1 << (rank % BITS));
        }
        was_in
    }

    /// Whether the rank is in the set.
    pub fn contains(&self, rank: u32) -> bool {
        self.0.get((rank / BITS) as usize).is_some_and(|word| word >> (rank % BITS) & 1 == 1)
    }

    /// The lowest rank of the set from `first` on.
    pub fn next_from(&self, first: u32) -> Option<u32> {
        let at = (first / BITS) as usize;
        let rest = self.0.get(at)? & (u64::MAX << (first % BITS));
        let later = self.0.iter().enumerate().skip(at + 1).map(|(at, word)| (at, *word));
        let found = std::iter::once((at, rest)).chain(later).find(|(_, word)| *word != 0);
        found.map(|(at, word)| at as u32 * BITS + word.trailing_zeros())
    }
}

impl FromIterator<u32> for RankSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        let mut set = RankSet::default();
        ranks.into_iter().for_each(|rank| set.insert(rank));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::RankSet;

    #[test]
    fn it_has_the_ranks_that_were_added_and_not_removed_in_ascending_order() {
        let mut set: RankSet = [3, 64, 200].into_iter().collect();
        assert!(set.remove(64) && !set.remove(64) && !set.remove(5_000));
        assert!(set.contains(200) && !set.contains(64) && !set.contains(5_000));
        let found: Vec<_> = [0, 3, 4, 200, 201, 5_000].map(|first| set.next_from(first)).into();
        assert_eq!(found, [Some(3), Some(3), Some(200), Some(200), None, None]);
    }
}
