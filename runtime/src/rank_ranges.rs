// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranks as ranges: in messages, and in lines for the user.

/// The ranks from `first` to `last`, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankRange {
    /// The lowest.
    pub first: u32,
    /// The highest.
    pub last: u32,
}

impl RankRange {
    /// How many ranks it has. `first` is not above `last`.
    pub fn count(self) -> u32 {
        (self.last - self.first).saturating_add(1)
    }
}

/// The ranges of these ranks, which are in ascending order.
pub fn ranges(ranks: impl IntoIterator<Item = u32>) -> Vec<RankRange> {
    let mut ranges: Vec<RankRange> = Vec::new();
    for rank in ranks {
        match ranges.last_mut() {
            Some(range) if range.last.checked_add(1) == Some(rank) => range.last = rank,
            _ => ranges.push(RankRange { first: rank, last: rank }),
        }
    }
    ranges
}

/// `rank 3`, or `ranks 0-2, 5`. The ranks are in ascending order. Of more than [`RANGES_SHOWN_MAX`] ranges the last ones are a number.
pub fn in_words(ranks: &[u32]) -> String {
    let ranges = ranges(ranks.iter().copied());
    let shown = ranges.iter().take(RANGES_SHOWN_MAX);
    let mut words: Vec<String> = shown
        .map(|range| match range.count() {
            1 => range.first.to_string(),
            _ => format!("{}-{}", range.first, range.last),
        })
        .collect();
    let others: u32 = ranges.iter().skip(RANGES_SHOWN_MAX).map(|range| range.count()).sum();
    if others > 0 {
        words.push(format!("and {others} more"));
    }
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", words.join(", "))
}

/// How many ranges a line shows.
const RANGES_SHOWN_MAX: usize = 24;

#[cfg(test)]
mod tests {
    use super::{RankRange, in_words, ranges};

    #[test]
    fn neighbours_share_a_range() {
        let range = |first, last| RankRange { first, last };
        assert_eq!(ranges([0, 1, 2, 5, 7, 8]), [range(0, 2), range(5, 5), range(7, 8)]);
        assert_eq!(ranges([u32::MAX]), [range(u32::MAX, u32::MAX)]);
        assert_eq!(ranges([]), []);
    }

    #[test]
    fn a_line_names_single_ranks_and_ranges_and_counts_what_it_has_no_room_for() {
        assert_eq!(in_words(&[3]), "rank 3");
        assert_eq!(in_words(&[0, 1, 2, 5]), "ranks 0-2, 5");
        let even: Vec<u32> = (0..1024).filter(|rank| rank % 2 == 0).collect();
        let words = in_words(&even);
        assert!(words.starts_with("ranks 0, 2, 4, ") && words.ends_with(", 46, and 488 more"), "{words}");
    }
}
