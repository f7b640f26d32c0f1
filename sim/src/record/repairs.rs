// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must be the same at all living members: the results of agreements, shrinks and creations of communicators.

use crate::rank_set::RankSet;
use mend_base::Identity;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// What the members of a job were told.
#[derive(Debug, Default)]
pub struct Repairs {
    agreements: BTreeMap<Call, Agreement>,
    groups: BTreeMap<Call, Returned<Vec<u32>>>,
    created: BTreeMap<Call, Returned<Option<Made>>>,
    shrunk: BTreeMap<Call, Returned<Made>>,
    /// The communicators that a process has revoked, or whose hints let a failure revoke them.
    revoked: BTreeSet<Identity>,
}

/// One call of all members: the communicator, and the number of the call among those of its kind.
pub type Call = (Identity, u64);

/// A created communicator: its identity, and the ranks of its members in WORLD.
pub type Made = (Identity, Vec<u32>);

/// What the call returned: each different result, and the ranks of WORLD that got it. There are few, however many ranks.
#[derive(Debug)]
struct Returned<T>(Vec<(T, Vec<u32>)>);

impl<T> Default for Returned<T> {
    fn default() -> Self {
        Returned(vec![])
    }
}

impl<T: PartialEq + Debug> Returned<T> {
    /// A rank returns a result, which `contradicts` says of no other result and one of the ranks that got it.
    fn add(&mut self, rank: u32, result: T, contradicts: impl Fn(&T, &T, u32) -> bool) -> Result<(), String> {
        let others = self.0.iter().filter(|(other, _)| *other != result);
        for (before, ranks) in others {
            if let Some(other) = ranks.iter().find(|other| contradicts(&result, before, **other)) {
                return Err(format!("rank {rank} got {result:?}, and rank {other} got {before:?}"));
            }
        }
        match self.0.iter_mut().find(|(other, _)| *other == result) {
            Some((_, ranks)) => ranks.push(rank),
            None => self.0.push((result, vec![rank])),
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Agreement {
    contributions: BTreeMap<u32, u32>,
    returned: Returned<(u32, bool)>,
}

impl Repairs {
    /// A rank enters an agreement with this flag.
    pub fn contribute(&mut self, call: Call, rank: u32, flag: u32) {
        self.agreements.entry(call).or_default().contributions.insert(rank, flag);
    }

    /// A rank returns from an agreement, with this flag, and with success or an error. Rows AG1 to AG4. `uniform`: the result must be that
    /// of the dead, too.
    pub fn agreed(
        &mut self,
        call: Call,
        rank: u32,
        result: (u32, bool),
        lives: impl Fn(u32) -> bool,
        uniform: bool,
    ) -> Result<(), String> {
        let agreement = self.agreements.entry(call).or_default();
        let (flag, all) = (result.0, &agreement.contributions);
        let is_missing = |other: u32, each: u32| lives(other) && flag & !each != 0;
        if let Some((other, contributed)) = all.iter().find(|(other, each)| is_missing(**other, **each)) {
            return Err(format!("rank {rank} got {flag:x}, and rank {other} contributed {contributed:x}"));
        }
        let of_all = all.values().fold(u32::MAX, |and, each| and & each);
        if of_all & !flag != 0 {
            return Err(format!("rank {rank} got {flag:x}, and all contributions are {of_all:x}"));
        }
        agreement.returned.add(rank, result, |_, _, other| uniform || lives(other))
    }

    /// A rank returns from an agreement on the failed members. Row AG15.
    pub fn agreed_on_failed(
        &mut self,
        call: Call,
        rank: u32,
        group: Vec<u32>,
        is_bound: impl Fn(u32) -> bool,
    ) -> Result<(), String> {
        self.groups.entry(call).or_default().add(rank, group, |_, _, other| is_bound(other))
    }

    /// A rank returns from the creation of a communicator: what was created, or `None` after an error. Once a member, living or dead, has
    /// returned success, so do all that live (Row CC1). Members of different parts of a split have different communicators.
    pub fn created(
        &mut self,
        call: Call,
        rank: u32,
        made: Option<Made>,
        lives: impl Fn(u32) -> bool,
    ) -> Result<(), String> {
        let mine = made.as_ref().map(|(_, members)| RankSet::from_iter(members.iter().copied()));
        let is_same_part = |members: &[u32]| {
            mine.as_ref().is_some_and(|mine| members.iter().any(|member| mine.contains(*member)))
        };
        let contradicts = |made: &Option<Made>, before: &Option<Made>, other| match (before, made) {
            (Some((_, members)), Some(_)) => is_same_part(members),
            (Some(_), None) => true,
            (None, _) => lives(other),
        };
        self.created.entry(call).or_default().add(rank, made, contradicts)
    }

    /// A rank returns from a shrink, with this communicator. Rows SH1 to SH4.
    pub fn shrunk(
        &mut self,
        call: Call,
        rank: u32,
        made: Made,
        lives: impl Fn(u32) -> bool,
    ) -> Result<(), String> {
        self.shrunk.entry(call).or_default().add(rank, made, |_, _, other| lives(other))
    }

    /// A process revokes a communicator.
    pub fn revoke(&mut self, identity: Identity) {
        self.revoked.insert(identity);
    }

    /// Whether a process has revoked the communicator.
    pub fn is_revoked(&self, identity: Identity) -> bool {
        self.revoked.contains(&identity)
    }
}

#[cfg(test)]
mod tests {
    use super::Repairs;
    use mend_base::{Identity, Job, Peer};

    const COMM: Identity = Identity { creator: Peer::new(Job(1), 0), number: 3 };
    const CHILD: Identity = Identity { creator: Peer::new(Job(1), 0), number: 4 };

    #[test]
    fn different_results_of_an_agreement_are_noticed_among_the_living() {
        for (living, agree) in [(true, false), (false, true)] {
            let mut repairs = Repairs::default();
            repairs.contribute((COMM, 1), 0, 7);
            repairs.contribute((COMM, 1), 1, 3);
            assert!(repairs.agreed((COMM, 1), 0, (3, true), |_| living, false).is_ok());
            assert_eq!(repairs.agreed((COMM, 1), 1, (3, false), |_| living, false).is_ok(), agree);
        }
    }

    #[test]
    fn a_flag_that_lacks_a_contribution_or_that_nobody_contributed_is_noticed() {
        let mut repairs = Repairs::default();
        repairs.contribute((COMM, 1), 0, 7);
        repairs.contribute((COMM, 1), 1, 3);
        assert!(repairs.agreed((COMM, 1), 0, (7, true), |_| true, false).is_err());
        assert!(repairs.agreed((COMM, 1), 0, (1, true), |_| true, false).is_err());
        assert!(repairs.agreed((COMM, 1), 0, (7, true), |rank| rank == 0, false).is_ok(), "rank 1 is dead");
    }

    // Row CC1
    #[test]
    fn a_creation_that_a_dead_member_returned_from_must_succeed_and_one_that_failed_there_need_not_fail() {
        let made = Some((CHILD, vec![0, 1]));
        for (first, second, agree) in [(made.clone(), None, false), (None, made.clone(), true)] {
            let mut repairs = Repairs::default();
            assert!(repairs.created((COMM, 0), 0, first, |_| false).is_ok());
            assert_eq!(repairs.created((COMM, 0), 1, second, |_| false).is_ok(), agree);
        }
        let mut repairs = Repairs::default();
        assert!(repairs.created((COMM, 0), 0, made, |_| true).is_ok());
        assert!(
            repairs.created((COMM, 0), 1, Some((COMM, vec![0, 1])), |_| true).is_err(),
            "another identity"
        );
    }
}
