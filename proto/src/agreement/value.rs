// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What members contribute to an agreement, and how contributions are combined.

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
}

impl Aggregate {
    pub(super) fn new(contribution: &Contribution, departed: bool) -> Self {
        let value = contribution.op.of_one(contribution.value);
        Aggregate { value, acknowledged: Some(contribution.acknowledged), departed }
    }

    pub(super) fn add(&mut self, op: Op, other: &Aggregate) {
        self.value = op.combine(self.value, other.value);
        self.acknowledged = self.acknowledged.filter(|_| self.acknowledged == other.acknowledged);
        self.departed |= other.departed;
    }
}

/// The result of an agreement.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Decision {
    /// The contributions, combined: those of all members that return, and perhaps of some that have failed since.
    pub value: u64,
    /// The members that have failed, since the first agreement. Each member that did not contribute is among them, or `departed`
    /// is set.
    pub failed: Ranks,
    /// Whether every contributor had acknowledged exactly `failed`.
    pub acknowledged: bool,
    /// Whether a member left MPI without taking part.
    pub departed: bool,
}
