// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process knows of the failures in one communicator: the failed members in the order in which it learned of them, and
//! how many of the first ones its program has acknowledged (design "One list of failures").

use mend_base::Rank;

/// The failures of one communicator, append-only; the number of acknowledged ones never decreases.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Failures {
    known: Vec<Rank>,
    acknowledged: usize,
}

impl Failures {
    /// The member at `rank` has failed. Called once per member.
    pub fn add(&mut self, rank: Rank) {
        assert!(!self.known.contains(&rank), "a member fails once");
        self.known.push(rank);
    }

    /// The failed members. Every result is a prefix of all later results.
    pub fn known(&self) -> &[Rank] {
        &self.known
    }

    /// The acknowledged ones, a prefix of [`known`](Failures::known).
    pub fn acknowledged(&self) -> &[Rank] {
        &self.known[..self.acknowledged]
    }

    /// The others.
    pub fn unacknowledged(&self) -> &[Rank] {
        &self.known[self.acknowledged..]
    }

    /// Acknowledges the first `at_most` known failures, or all of them; returns the number acknowledged now, never less than before.
    pub fn acknowledge(&mut self, at_most: Option<u32>) -> u32 {
        let wanted = at_most.map_or(self.known.len(), |most| self.known.len().min(most as usize));
        self.acknowledged = self.acknowledged.max(wanted);
        self.acknowledged as u32
    }
}

#[cfg(test)]
mod tests {
    use super::Failures;
    use mend_base::Rank;

    // Row AK1
    #[test]
    fn a_later_list_begins_with_the_earlier_one() {
        let mut failures = Failures::default();
        assert!(failures.known().is_empty());
        failures.add(Rank(5));
        let earlier = failures.known().to_vec();
        failures.add(Rank(2));
        assert!(failures.known().starts_with(&earlier));
        assert_eq!(failures.known(), [Rank(5), Rank(2)]);
    }

    // Row AK5
    #[test]
    fn acknowledging_goes_from_the_front_as_far_as_is_known_and_never_back() {
        let mut failures = Failures::default();
        assert_eq!(failures.acknowledge(Some(3)), 0);
        [4, 1, 7].into_iter().for_each(|rank| failures.add(Rank(rank)));
        assert_eq!(failures.acknowledge(Some(0)), 0);
        assert_eq!(failures.acknowledge(Some(2)), 2);
        assert_eq!(failures.acknowledge(Some(1)), 2);
        assert_eq!(failures.acknowledged(), [Rank(4), Rank(1)]);
        assert_eq!(failures.unacknowledged(), [Rank(7)]);
        assert_eq!(failures.acknowledge(Some(u32::MAX)), 3);
    }

    // Row AK6
    #[test]
    fn what_is_acknowledged_does_not_grow_by_later_failures() {
        let mut failures = Failures::default();
        failures.add(Rank(1));
        assert_eq!(failures.acknowledge(None), 1);
        failures.add(Rank(0));
        assert_eq!(failures.acknowledged(), [Rank(1)]);
        assert_eq!(failures.acknowledge(None), 2);
    }
}
