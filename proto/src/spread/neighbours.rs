// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The neighbours of a member: in the circulant graph over the members that are there, those at a distance of 2^i, to both sides.

use crate::ranks::Ranks;
use mend_base::Rank;

/// The neighbours of one member, each once.
#[derive(Clone, Debug)]
pub(super) struct Neighbours {
    ranks: [Rank; MAX],
    count: usize,
}

/// Two for each power of two up to half of 2^31 members.
const MAX: usize = 2 * 31;

/// The way around the ring in which a neighbour is looked for.
#[derive(Clone, Copy)]
enum Way {
    Up,
    Down,
}

impl Neighbours {
    /// The neighbours of `me`. In each direction: the first member at a distance of 2^i or more that is not absent.
    pub(super) fn new(me: Rank, size: u32, absent: &Ranks) -> Self {
        let mut found = Neighbours { ranks: [me; MAX], count: 0 };
        let mut distance = 1;
        while distance <= size / 2 {
            let up = present(me, size, distance, Way::Up, absent);
            let down = present(me, size, distance, Way::Down, absent);
            up.into_iter().chain(down).for_each(|rank| found.add(rank));
            distance *= 2;
        }
        found
    }

    pub(super) fn as_slice(&self) -> &[Rank] {
        &self.ranks[..self.count]
    }

    pub(super) fn contains(&self, rank: Rank) -> bool {
        self.as_slice().contains(&rank)
    }

    fn add(&mut self, rank: Rank) {
        if !self.contains(rank) {
            self.ranks[self.count] = rank;
            self.count += 1;
        }
    }
}

/// The first member at a distance of `distance` or more from `me` that is not absent.
fn present(me: Rank, size: u32, distance: u32, way: Way, absent: &Ranks) -> Option<Rank> {
    let at = |distance: u32| match way {
        Way::Up => Rank((me.0 + distance) % size),
        Way::Down => Rank((me.0 + size - distance) % size),
    };
    (distance..size).map(at).find(|&rank| !absent.contains(rank))
}

#[cfg(test)]
mod tests {
    use super::Neighbours;
    use crate::ranks::Ranks;
    use mend_base::{Random, Rank};

    fn of(me: u32, size: u32, absent: &[u32]) -> Vec<u32> {
        let absent = absent.iter().copied().map(Rank).collect();
        let mut ranks: Vec<u32> =
            Neighbours::new(Rank(me), size, &absent).as_slice().iter().map(|r| r.0).collect();
        ranks.sort_unstable();
        ranks
    }

    #[test]
    fn neighbours_are_at_powers_of_two_and_an_absent_one_is_replaced_by_the_next() {
        assert!(of(0, 1, &[]).is_empty());
        assert_eq!(of(0, 2, &[]), [1]);
        assert_eq!(of(1, 3, &[]), [0, 2]);
        assert_eq!(of(0, 4, &[]), [1, 2, 3]);
        assert_eq!(of(0, 16, &[]), [1, 2, 4, 8, 12, 14, 15]);
        assert_eq!(of(0, 16, &[1, 8, 9]), [2, 4, 7, 10, 12, 14, 15]);
        assert_eq!(of(0, 4, &[1, 2, 3]), [0; 0]);
        let all = Neighbours::new(Rank(0), 1 << 31, &Ranks::new());
        assert_eq!(all.as_slice().len(), 61);
    }

    /// BAR-2.1: from one member to another at distance d <= n/2, the neighbour at the greatest 2^i <= d, or the next one present,
    /// is not beyond the other member, and leaves less than d/2. So floor(log2 n) hops suffice, whoever is absent.
    #[test]
    fn every_member_reaches_every_other_in_log2_hops_whoever_is_absent() {
        let mut random = Random(3);
        for _ in 0..300 {
            let size = 1 + random.below(70) as u32;
            let dead = random.below(u64::from(size)) as usize;
            let absent: Ranks = (0..dead).map(|_| Rank(random.below(u64::from(size)) as u32)).collect();
            let present: Vec<Rank> = (0..size).map(Rank).filter(|&rank| !absent.contains(rank)).collect();
            let of = |rank| Neighbours::new(rank, size, &absent);
            for &source in &present {
                assert!(of(source).as_slice().len() as u32 <= 2 * size.ilog2());
                let mut reached: Vec<Rank> = vec![source];
                for _ in 0..size.ilog2() {
                    let next: Vec<Rank> = reached.iter().flat_map(|&r| of(r).as_slice().to_vec()).collect();
                    reached.extend(next);
                    reached.sort_unstable();
                    reached.dedup();
                }
                assert_eq!(reached, present, "{source:?} of {size}, without {absent:?}");
            }
        }
    }
}
