// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What members contribute to an agreement, and how contributions are combined.

use super::crossed::AgreementId;
use crate::ranks::{Ranks, SetHash};

/// How the values of the contributions are combined. All members give the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// The largest; values are `i64`.
    Max,
    /// The smallest; values are `i64`.
    Min,
    /// The sum modulo 2^64, which is that of `u64` and of `i64`.
    Sum,
    /// The product modulo 2^64.
    Prod,
    /// 1 if all values differ from 0, else 0.
    LogicalAnd,
    /// 1 if any value differs from 0, else 0.
    LogicalOr,
    /// 1 if an odd number of values differ from 0, else 0.
    LogicalXor,
    /// The value of the lowest rank among the contributors that are counted.
    First,
}

impl Op {
    /// The aggregate of one contribution.
    fn of_one(self, value: u64) -> u64 {
        match self {
            Op::LogicalAnd | Op::LogicalOr | Op::LogicalXor => u64::from(value != 0),
            _ => value,
        }
    }

    /// The aggregate of a member's own and of another one that the member was sent.
    fn combine(self, own: u64, other: u64) -> u64 {
        match self {
            Op::And | Op::LogicalAnd => own & other,
            Op::Or | Op::LogicalOr => own | other,
            Op::Xor | Op::LogicalXor => own ^ other,
            Op::Max => (own as i64).max(other as i64) as u64,
            Op::Min => (own as i64).min(other as i64) as u64,
            Op::Sum => own.wrapping_add(other),
            Op::Prod => own.wrapping_mul(other),
            // Aggregates are sent to lower ranks only, so the lowest rank of an aggregate is the member that made it.
            Op::First => own,
        }
    }
}

/// What one member gives to an agreement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Contribution {
    /// The value.
    pub value: u64,
    /// How values are combined.
    pub op: Op,
    /// The hash of the failed members that the program has acknowledged.
    pub acknowledged: SetHash,
    /// Whether a decision that any member returned, even one that failed then, is that of all survivors. All members give the
    /// same.
    pub uniform: bool,
}

/// The contributions of a member and of all members below it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aggregate {
    /// The values, combined.
    pub value: u64,
    /// What every contributor has acknowledged; `None` if two of them differ.
    pub acknowledged: Option<SetHash>,
    /// Whether a member is missing because it had left MPI.
    pub departed: bool,
    /// Whether a member has contributed in absentia.
    pub crossed: bool,
}

impl Aggregate {
    pub(super) fn new(contribution: &Contribution, departed: bool, crossed: bool) -> Self {
        let value = contribution.op.of_one(contribution.value);
        Aggregate { value, acknowledged: Some(contribution.acknowledged), departed, crossed }
    }

    pub(super) fn add(&mut self, op: Op, other: &Aggregate) {
        self.value = op.combine(self.value, other.value);
        self.acknowledged = self.acknowledged.filter(|_| self.acknowledged == other.acknowledged);
        self.departed |= other.departed;
        self.crossed |= other.crossed;
    }
}

/// The result of an agreement.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Decision {
    /// The contributions, combined: those of all members that return, and perhaps of some that have failed since.
    pub value: u64,
    /// The members that have failed, since the first agreement. Each member that did not contribute is among them, or
    /// `departed` is set.
    pub failed: Ranks,
    /// Whether every contributor had acknowledged exactly `failed`.
    pub acknowledged: bool,
    /// Whether a member left MPI without taking part.
    pub departed: bool,
    /// The agreements, this one among them, that waited for each other in a cycle, if a member has contributed in absentia. Then the
    /// value means nothing.
    pub crossed: Option<Vec<AgreementId>>,
}

#[cfg(test)]
mod tests {
    use super::{Aggregate, Contribution, Op};
    use crate::ranks::SetHash;

    fn combined(op: Op, values: &[i64]) -> i64 {
        let of_one = |&value: &i64| {
            let contribution =
                Contribution { value: value as u64, op, acknowledged: SetHash(1), uniform: false };
            Aggregate::new(&contribution, false, false)
        };
        let mut aggregates = values.iter().map(of_one);
        let mut whole = aggregates.next().unwrap();
        aggregates.for_each(|other| whole.add(op, &other));
        whole.value as i64
    }

    #[test]
    fn values_are_combined_as_their_operation_says() {
        assert_eq!(combined(Op::And, &[6, 3]), 2);
        assert_eq!(combined(Op::Or, &[6, 3]), 7);
        assert_eq!(combined(Op::Xor, &[6, 3]), 5);
        assert_eq!(combined(Op::Max, &[-6, 3, -1]), 3);
        assert_eq!(combined(Op::Min, &[6, -3, 1]), -3);
        assert_eq!(combined(Op::Sum, &[6, -3, i64::MAX, i64::MAX]), 1);
        assert_eq!(combined(Op::Prod, &[6, -3]), -18);
        assert_eq!((combined(Op::LogicalAnd, &[6]), combined(Op::LogicalAnd, &[1, 6, 0])), (1, 0));
        assert_eq!((combined(Op::LogicalOr, &[0, 6]), combined(Op::LogicalOr, &[0])), (1, 0));
        assert_eq!((combined(Op::LogicalXor, &[2, 4]), combined(Op::LogicalXor, &[4, 4, 4])), (0, 1));
        assert_eq!(combined(Op::First, &[6, 3]), 6);
    }

    #[test]
    fn acknowledged_sets_that_differ_once_differ_for_ever() {
        let one = |hash: Option<u64>| Aggregate {
            value: 0,
            acknowledged: hash.map(SetHash),
            departed: false,
            crossed: false,
        };
        let mut whole = one(Some(1));
        for (other, expected) in [(Some(1), Some(1)), (Some(2), None), (Some(1), None), (None, None)] {
            whole.add(Op::And, &one(other));
            assert_eq!(whole.acknowledged, expected.map(SetHash));
        }
    }
}
