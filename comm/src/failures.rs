// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process knows of the failures in one communicator: who, in the order in which it learned it, and how many of
//! them from the front its program has acknowledged (design "One list of failures").

use mend_base::Rank;

/// The failures of one communicator. Only grows, and so does what is acknowledged of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Failures {
    known: Vec<Rank>,
    acknowledged: usize,
}

impl Failures {
    /// The member at `rank` has failed. Argument once of each.
    pub fn learn(&mut self, rank: Rank) {
        assert!(!self.known.contains(&rank), "a member fails once");
        self.known.push(rank);
    }

    /// Who is known to have failed: a later answer begins with an earlier one.
    pub fn known(&self) -> &[Rank] {
        &self.known
    }

    /// Those of them that are acknowledged.
    pub fn acknowledged(&self) -> &[Rank] {
        &self.known[..self.acknowledged]
    }

    /// Those of them that are not.
    pub fn unacknowledged(&self) -> &[Rank] {
        &self.known[self.acknowledged..]
    }

    /// Acknowledges the first `at_most` known failures, or all of them, never fewer than before; how many are acknowledged
    /// now.
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
        failures.learn(Rank(5));
        let earlier = failures.known().to_vec();
        failures.learn(Rank(2));
        assert!(failures.known().starts_with(&earlier));
        assert_eq!(failures.known(), [Rank(5), Rank(2)]);
    }

    // Row AK5
    #[test]
    fn acknowledging_goes_from_the_front_as_far_as_is_known_and_never_back() {
        let mut failures = Failures::default();
        assert_eq!(failures.acknowledge(Some(3)), 0);
        [4, 1, 7].into_iter().for_each(|rank| failures.learn(Rank(rank)));
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
        failures.learn(Rank(1));
        assert_eq!(failures.acknowledge(None), 1);
        failures.learn(Rank(0));
        assert_eq!(failures.acknowledged(), [Rank(1)]);
        assert_eq!(failures.acknowledge(None), 2);
    }
}
