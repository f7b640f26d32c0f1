// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Communicators as values.

use crate::{Comparison, Group};
use mend_base::{Identity, Peer, Rank};
use std::sync::Arc;

/// A communicator as one of its members has it: identity, members, and the rank of this process.
#[derive(Clone, Debug)]
pub struct Communicator {
    /// The identity, which is never reused (I5).
    pub identity: Identity,
    /// The rank of this process.
    pub rank: Rank,
    /// The members. Communicators with the same members share the group.
    pub group: Arc<Group>,
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

    /// MPI_COMM_COMPARE.
    pub fn compare(&self, other: &Communicator) -> Congruence {
        if self.identity == other.identity {
            return Congruence::Identical;
        }
        match self.group.compare(&other.group) {
            Comparison::Identical => Congruence::Congruent,
            Comparison::Similar => Congruence::Similar,
            Comparison::Unequal => Congruence::Unequal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Communicator, Congruence};
    use crate::Group;
    use mend_base::{Identity, Job, Peer, Rank};
    use std::sync::Arc;

    fn peer(number: u32) -> Peer {
        Peer::new(Job(7), number)
    }

    fn communicator(number: u32, members: &[u32]) -> Communicator {
        Communicator {
            identity: Identity { creator: peer(0), number },
            rank: Rank(0),
            group: Arc::new(Group::new(members.iter().map(|&member| peer(member))).unwrap()),
        }
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
}
