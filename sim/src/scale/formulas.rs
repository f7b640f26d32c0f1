// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the executions must count, for n members.

/// The radix of the tree of agreements (`Shape::Nomial`).
const RADIX: u64 = 8;

/// The depth of the tree of an agreement: the most digits other than 0 that a rank below n has to the base 8.
pub fn tree_depth(n: u64) -> u64 {
    let (mut depth, mut ones) = (0, 1);
    // The lowest rank with one more such digit is 1, 11, 111, ... to the base.
    while ones < n {
        depth += 1;
        ones = ones * RADIX + 1;
    }
    depth
}

/// The neighbours of a member in the graph of the reliable broadcast: at distances of +-2^i, where 2^i <= n/2.
pub fn neighbours(n: u64) -> u64 {
    match n {
        0 | 1 => 0,
        // n/2 before is n/2 after.
        _ if n.is_power_of_two() => 2 * u64::from(n.ilog2()) - 1,
        _ => 2 * u64::from(n.ilog2()),
    }
}

/// The most hops to a member along these neighbours: no more than half the bits of a distance, rounded up, are sums or
/// differences of powers of two (its non-adjacent form).
pub fn broadcast_depth_max(n: u64) -> u64 {
    match n {
        0 | 1 => 0,
        _ => u64::from(n.ilog2()).div_ceil(2) + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::{neighbours, tree_depth};

    #[test]
    fn the_depth_is_the_most_digits_other_than_zero() {
        let digits = |mut rank: u64| {
            let mut count = 0;
            while rank > 0 {
                count += u64::from(!rank.is_multiple_of(8));
                rank /= 8;
            }
            count
        };
        for n in 1..5_000 {
            assert_eq!(tree_depth(n), (0..n).map(digits).max().unwrap(), "{n}");
        }
    }

    #[test]
    fn neighbours_are_counted_once() {
        for n in 1..2_000_u64 {
            let mut all: Vec<u64> = (0..64)
                .map(|power| 1_u64 << power)
                .take_while(|distance| distance * 2 <= n)
                .flat_map(|distance| [distance % n, (n - distance) % n])
                .filter(|&distance| distance != 0)
                .collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(neighbours(n), all.len() as u64, "{n}");
        }
    }
}
