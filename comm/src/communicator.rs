// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Communicators as values.

use crate::{Comparison, Group, GroupError};
use mend_base::{Identity, Peer, Rank};
use std::sync::Arc;

/// A communicator as one of its members has it: identity, members, and the rank of this process.
#[derive(Clone, Debug)]
pub struct Communicator {
    /// The identity, which is never reused (I5).
    pub identity: Identity,
    /// The rank of this process in `group`.
    pub rank: Rank,
    /// The members; of an intercommunicator the local group. Communicators with the same members share the group.
    pub group: Arc<Group>,
    /// Of an intercommunicator (MPI-5.0 §7.6).
    pub remote: Option<Remote>,
}

/// The other side of an intercommunicator.
///
/// Agreements, votes and news concern the members of both groups. For these the members have ranks in the *union*: one group first, then
/// the other one, in the same order at all members.
#[derive(Clone, Debug)]
pub struct Remote {
    group: Arc<Group>,
    union: Arc<Group>,
    is_local_first: bool,
}

impl Remote {
    /// The other side of `local`. The first of two groups is the one whose first process is lower, so that both sides name the same.
    /// `Err`: one is empty, or they have a process in common.
    pub fn new(local: &Group, remote: Arc<Group>) -> Result<Self, GroupError> {
        let no_process = Err(GroupError::NoSuchRank(Rank(0)));
        let (Some(first), Some(other)) = (local.peer(Rank(0)), remote.peer(Rank(0))) else {
            return no_process;
        };
        let is_local_first = first < other;
        Self::in_order(local, remote, is_local_first)
    }

    /// As [`new`](Remote::new), in a given order.
    pub fn in_order(local: &Group, remote: Arc<Group>, is_local_first: bool) -> Result<Self, GroupError> {
        let (first, second) = if is_local_first { (local, &*remote) } else { (&*remote, local) };
        let union = Arc::new(Group::new(first.iter().chain(second.iter()))?);
        Ok(Remote { group: remote, union, is_local_first })
    }

    /// The remote group.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Whether the local group comes first in the union.
    pub fn is_local_first(&self) -> bool {
        self.is_local_first
    }
}

/// How two communicators compare (MPI-5.0 §7.4.1, MPI_COMM_COMPARE).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Congruence {
    /// The same communicator.
    Identical,
    /// The same processes in the same order, other contexts.
    Congruent,
    /// The same processes in another order.
    Similar,
    /// Other processes.
    Unequal,
}

impl Communicator {
    /// The number of members.
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// The process with this rank; `None`: there is no such rank.
    pub fn peer(&self, rank: Rank) -> Option<Peer> {
        self.group.peer(rank)
    }

    /// Whether it is an intercommunicator.
    pub fn is_inter(&self) -> bool {
        self.remote.is_some()
    }

    /// The group whose ranks messages name: the remote group of an intercommunicator, else the members.
    pub fn partners(&self) -> &Arc<Group> {
        self.remote.as_ref().map_or(&self.group, |remote| &remote.group)
    }

    /// All members: the union of both groups of an intercommunicator.
    pub fn everyone(&self) -> &Arc<Group> {
        self.remote.as_ref().map_or(&self.group, |remote| &remote.union)
    }

    /// The rank of this process among [all members](Communicator::everyone).
    pub fn rank_in_union(&self) -> Rank {
        match &self.remote {
            Some(remote) if !remote.is_local_first => Rank(remote.group.size() + self.rank.0),
            _ => self.rank,
        }
    }

    /// All members, as those of an intracommunicator.
    pub fn union(&self) -> Communicator {
        let (identity, rank, group) = (self.identity, self.rank_in_union(), Arc::clone(self.everyone()));
        Communicator { identity, rank, group, remote: None }
    }

    /// MPI_COMM_COMPARE. Of intercommunicators both groups are compared (MPI-5.0 §7.6.1).
    pub fn compare(&self, other: &Communicator) -> Congruence {
        if self.identity == other.identity {
            return Congruence::Identical;
        }
        if self.is_inter() != other.is_inter() {
            return Congruence::Unequal;
        }
        let local = self.group.compare(&other.group);
        match (local, self.partners().compare(other.partners())) {
            (Comparison::Unequal, _) | (_, Comparison::Unequal) => Congruence::Unequal,
            (Comparison::Identical, Comparison::Identical) => Congruence::Congruent,
            _ => Congruence::Similar,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Communicator, Congruence, Remote};
    use crate::{Group, GroupError};
    use mend_base::{Identity, Job, Peer, Rank};
    use std::sync::Arc;

    fn peer(number: u32) -> Peer {
        Peer::new(Job(7), number)
    }

    fn communicator(number: u32, members: &[u32]) -> Communicator {
        Communicator {
            identity: Identity { creator: peer(0), number },
            rank: Rank(0),
            group: group(members),
            remote: None,
        }
    }

    fn group(members: &[u32]) -> Arc<Group> {
        Arc::new(Group::new(members.iter().map(|&member| peer(member))).unwrap())
    }

    /// The intercommunicator as the first process of `local` has it.
    fn inter(number: u32, local: &[u32], remote: &[u32]) -> Communicator {
        let remote = Remote::new(&group(local), group(remote)).unwrap();
        Communicator { remote: Some(remote), ..communicator(number, local) }
    }

    #[test]
    fn a_duplicate_is_congruent_and_only_the_same_is_identical() {
        let world = communicator(1, &[0, 1, 2]);
        assert_eq!(world.compare(&world.clone()), Congruence::Identical);
        assert_eq!(world.compare(&communicator(2, &[0, 1, 2])), Congruence::Congruent);
        assert_eq!(world.compare(&communicator(3, &[2, 1, 0])), Congruence::Similar);
        assert_eq!(world.compare(&communicator(4, &[2, 1])), Congruence::Unequal);
        assert_eq!(world.peer(Rank(2)), Some(peer(2)));
        assert_eq!(world.size(), 3);
    }
    #[test]
    fn both_sides_of_an_intercommunicator_number_all_members_alike() {
        let (low, high) = (inter(1, &[3, 1], &[4, 0, 7]), inter(1, &[4, 0, 7], &[3, 1]));
        let ranks = |side: &Communicator| side.everyone().iter().map(Peer::number).collect::<Vec<_>>();
        assert_eq!((ranks(&low), ranks(&high)), (vec![3, 1, 4, 0, 7], vec![3, 1, 4, 0, 7]));
        assert_eq!((low.rank_in_union(), high.rank_in_union()), (Rank(0), Rank(2)));
        assert_eq!((low.size(), low.partners().size(), low.union().size()), (2, 3, 5));
        assert!(low.is_inter() && !low.union().is_inter());
        let intra = communicator(1, &[2, 5]);
        assert_eq!(intra.partners().compare(&intra.group), crate::Comparison::Identical);
        assert_eq!((intra.rank_in_union(), intra.everyone().size()), (Rank(0), 2));
    }

    #[test]
    fn the_groups_of_an_intercommunicator_have_members_and_none_in_common() {
        assert_eq!(Remote::new(&group(&[1, 2]), group(&[0, 2])).unwrap_err(), GroupError::PeerTwice(peer(2)));
        assert!(Remote::new(&group(&[1, 2]), group(&[])).is_err());
        assert!(Remote::new(&group(&[]), group(&[3])).is_err());
    }

    #[test]
    fn intercommunicators_are_compared_by_both_groups() {
        let one = inter(1, &[0, 1], &[2, 3]);
        assert_eq!(one.compare(&one.clone()), Congruence::Identical);
        assert_eq!(one.compare(&inter(2, &[0, 1], &[2, 3])), Congruence::Congruent);
        assert_eq!(one.compare(&inter(2, &[0, 1], &[3, 2])), Congruence::Similar);
        assert_eq!(one.compare(&inter(2, &[1, 0], &[2, 3])), Congruence::Similar);
        assert_eq!(one.compare(&inter(2, &[0, 1], &[2, 4])), Congruence::Unequal);
        assert_eq!(one.compare(&inter(2, &[2, 3], &[0, 1])), Congruence::Unequal);
        assert_eq!(one.compare(&communicator(2, &[0, 1])), Congruence::Unequal);
    }
}
