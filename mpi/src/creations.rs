// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creations of communicators that run (MPI_Comm_dup, _split, _create and others). The members exchange what the communicator is made of,
//! by a collective operation on the parent; then they vote whether it exists, so that it exists at all survivors or at none (Row CC1).
//!
//! ```text
//!   start ─▶ exchange ─▶ prepared: the communicator is made, and hidden ─▶ yes ─┐ vote   ┌─▶ yes: the program gets it
//!               │    └─▶ failed here ─────────────────────────────────────▶ no  ─┴────────┴─▶ no: removed again, error
//!               └─── a member voted no: the exchange is given up ───────────────────────────▶ error
//! ```
//!
//! A member votes yes only when it has everything that the communicator needs: after yes nothing can fail. A member that knows of
//! a failed member, or of the parent's revocation, votes no even if its program never calls (X-7.4); `mend_proto::vote` says why no
//! member waits for another one that has left for recovery.
//!
//! Creations over one parent run their exchanges at the same time, and vote one after the other, in the order of the calls.
//!
//! Where a group of members creates a communicator (MPI_COMM_CREATE_GROUP), the others have no part in it. Its exchange is an
//! [`Announcement`] on the creation context of the parent, and the group votes under the identity of the new communicator, for which each
//! creation has a vote of its own. A member of the group that knows of a failed member of the group, or of the parent's revocation, gives
//! the announcement up or votes no. Failures of other processes change nothing (Row CC2).
//!
//! The creation of an intercommunicator has three votes (`engine/intercomm_creation`).
//!
//! A part of the engine: it owns the creations and their order. It calls no other part.

use crate::announcement::Announcement;
use crate::collective::LivenessQuery;
use crate::communicator::PendingCreation;
use crate::inter_creation::{InterCreation, InterStep, LeaderSide};
use crate::operation_table::OperationTable;
use crate::origin::{Exchange, Origin};
use crate::{CommKey, Error};
use mend_base::{Identity, Key, PeerIndex, Rank, Tag};
use mend_transport::UserMemory;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

/// A creation that runs.
#[derive(Debug)]
pub(crate) struct Creation {
    /// The parent.
    pub parent: Identity,
    pub pending: PendingCreation,
    /// This place gets the handle of the communicator.
    pub into: Option<UserMemory>,
    pub stage: Stage,
    /// This member has voted.
    pub has_voted: bool,
    /// How other members name this creation, if it is decided without a vote.
    pub origin: Option<Origin>,
    /// Of the creation of an intercommunicator.
    pub inter: Option<Box<InterCreation>>,
}

/// How far a creation is at this member.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The leader waits for the group of the other one (MPI_INTERCOMM_CREATE).
    Leaders,
    /// The collective operation with this key runs.
    Exchange(Key),
    /// The members of the group learn the identity.
    Announcement(Announcement),
    /// The communicator is made (`None`: this process is no member of it), or cannot be made here.
    Prepared(Result<Option<CommKey>, Error>),
    /// The vote is over; the error is reported when the failure that it names is published (I2).
    Held(Error),
    /// The vote is over; whether a failure is the cause of the error is known when the query is answered.
    Asking(Error, LivenessQuery),
}

impl Creation {
    /// Whether this process is a leader and waits for the other one.
    pub fn is_leader_waiting(&self) -> bool {
        let waits = |inter: &InterCreation| {
            let waits = match self.stage {
                Stage::Leaders => true,
                Stage::Prepared(_) => inter.step == InterStep::OtherGroup,
                _ => false,
            };
            waits && inter.side.is_some()
        };
        self.inter.as_deref().is_some_and(waits)
    }
}

impl Stage {
    /// The collective operation that runs.
    pub fn exchange(&self) -> Option<Key> {
        match *self {
            Stage::Exchange(exchange) => Some(exchange),
            Stage::Leaders
            | Stage::Announcement(_)
            | Stage::Prepared(_)
            | Stage::Held(_)
            | Stage::Asking(..) => None,
        }
    }
}

/// All creations that are not released.
#[derive(Default, Debug)]
pub(crate) struct Creations {
    operations: OperationTable<Creation>,
    /// Those that exchange, or hold an error. A look takes out one after the other: what it does with one may interrupt those behind it.
    active: VecDeque<Key>,
    /// Those whose vote is not over, in the order of the calls, by parent.
    queues: BTreeMap<Identity, VecDeque<Key>>,
    /// Those on which a group votes, or the two groups of an intercommunicator, by the identity of the new communicator.
    groups: BTreeMap<Identity, Key>,
    /// How often this process was a leader, by peer communicator, other leader and tag, since such a call last succeeded.
    calls: BTreeMap<(Identity, Rank, i32), u32>,
    /// Of leaders whose creations have ended, and whose last notes have not left.
    left: Vec<LeaderSide>,
}

impl Creations {
    // Hot: per progress.
    /// Whether none exchanges or holds an error.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.active.is_empty() && self.left.is_empty()
    }

    /// Begins a creation over the communicator `comm`. It votes behind those that began before.
    pub fn begin(&mut self, comm: CommKey, creation: Creation) -> Result<Key, Error> {
        let parent = creation.parent;
        let is_queued = !creation.has_voted && creation.pending.group().is_none();
        let key = self.operations.begin(comm, creation)?;
        if is_queued {
            self.queues.entry(parent).or_default().push_back(key);
        }
        self.active.push_back(key);
        Ok(key)
    }

    /// How many creations exchange or hold an error.
    pub fn active(&self) -> usize {
        self.active.len()
    }

    /// Takes out the next of these, to be looked at.
    pub fn take_active(&mut self) -> Option<Key> {
        self.active.pop_front()
    }

    /// The creation is to be looked at again.
    pub fn keep_active(&mut self, key: Key) {
        if !self.active.contains(&key) {
            self.active.push_back(key);
        }
    }

    /// The creation over this parent whose vote is next.
    pub fn first(&self, parent: Identity) -> Option<Key> {
        self.queues.get(&parent)?.front().copied()
    }

    /// The vote of the first creation over this parent is over.
    pub fn take_first(&mut self, parent: Identity) -> Option<Key> {
        let queue = self.queues.get_mut(&parent)?;
        // The queue keeps its memory for the next creation.
        queue.pop_front()
    }

    /// The parent was freed, and no creation over it is left.
    pub fn forget(&mut self, parent: Identity) {
        if self.queues.get(&parent).is_some_and(VecDeque::is_empty) {
            self.queues.remove(&parent);
        }
        self.calls.retain(|&(peer_comm, ..), _| peer_comm != parent);
    }

    /// The communicators that are made here and hidden, as the vote is not over.
    pub fn hidden(&self) -> impl Iterator<Item = CommKey> {
        let queued = self.queues.values().flatten().chain(self.groups.values());
        queued.filter_map(|&key| {
            let creation = self.operations.running(key)?;
            match creation.stage {
                Stage::Prepared(Ok(made)) => made,
                _ => creation.inter.as_ref()?.made,
            }
        })
    }

    /// The group votes on a creation.
    pub fn begin_group_vote(&mut self, identity: Identity, key: Key) {
        self.groups.insert(identity, key);
    }

    /// The vote of the group is over.
    pub fn end_group_vote(&mut self, identity: Identity) -> Option<Key> {
        self.groups.remove(&identity)
    }

    /// The creations over `comm` on which groups vote.
    pub fn group_votes(&self, comm: CommKey) -> Vec<Identity> {
        let groups = self.groups.iter();
        let over = groups.filter(|&(_, &key)| self.operations.comm_of(key) == Some(comm));
        over.map(|(&identity, _)| identity).collect()
    }

    /// The creations whose identity is being announced, with their parents.
    pub fn announcements(&self) -> Vec<(Key, CommKey)> {
        let is_announced = |key| {
            let creation = self.operations.running(key)?;
            matches!(creation.stage, Stage::Announcement(_)).then(|| self.operations.comm_of(key))?
        };
        self.active.iter().filter_map(|&key| Some((key, is_announced(key)?))).collect()
    }

    /// Whether a creation that runs may make a communicator of this origin.
    pub fn may_make(&self, origin: Origin) -> bool {
        let may = |creation: &Creation| match (&creation.stage, origin.exchange) {
            (Stage::Exchange(_), Exchange::Collective(_)) => creation.origin == Some(origin),
            (Stage::Announcement(_), Exchange::Group { .. }) => creation.parent == origin.parent,
            _ => false,
        };
        self.active.iter().filter_map(|&key| self.operations.running(key)).any(may)
    }

    /// The number of a leader's call: calls with the same peer communicator, other leader and tag pair in their order.
    pub fn next_call(&mut self, peer_comm: Identity, other: Rank, tag: Tag) -> u32 {
        let call = self.calls.entry((peer_comm, other, tag.0)).or_default();
        *call = call.wrapping_add(1);
        *call
    }

    /// This call of a leader has succeeded: so has that of the other leader, and both have read all notes of it and of earlier calls. So the
    /// next call may have the first number again, unless one has begun, and nothing is stored for a tag that is used once.
    pub fn forget_call(&mut self, peer_comm: Identity, other: Rank, tag: Tag, call: u32) {
        if let Entry::Occupied(entry) = self.calls.entry((peer_comm, other, tag.0))
            && *entry.get() == call
        {
            entry.remove();
        }
    }

    /// The creations whose leader is this process and waits for the other one, with their local and peer communicators.
    pub fn leaders(&self) -> Vec<(Key, CommKey, CommKey)> {
        let waits = |key| {
            let creation = self.operations.running(key).filter(|creation| creation.is_leader_waiting())?;
            let side = creation.inter.as_ref()?.side.as_ref()?;
            Some((key, self.operations.comm_of(key)?, side.peer_comm))
        };
        self.active.iter().filter_map(|&key| waits(key)).collect()
    }

    /// The creation of this leader has ended.
    pub fn leave(&mut self, side: LeaderSide) {
        self.left.push(side);
    }

    /// The leaders whose creations have ended, to be looked at.
    pub fn take_left(&mut self) -> Vec<LeaderSide> {
        core::mem::take(&mut self.left)
    }

    /// The runtime has answered that a peer lives. Returns whether it must be asked again.
    pub fn on_alive(&mut self, member: PeerIndex) -> bool {
        let Creations { operations, active, .. } = self;
        active.iter().fold(false, |again, &key| match operations.running_mut(key) {
            Some(Creation { stage: Stage::Asking(_, query), .. }) => query.on_alive(member) | again,
            _ => again,
        })
    }

    /// The operations.
    pub fn operations(&self) -> &OperationTable<Creation> {
        &self.operations
    }

    /// The operations, to be changed.
    pub fn operations_mut(&mut self) -> &mut OperationTable<Creation> {
        &mut self.operations
    }
}

#[cfg(test)]
mod tests {
    use super::{Creation, Creations, Stage};
    use crate::CommKey;
    use crate::announcement::Announcement;
    use crate::communicator::PendingCreation;
    use mend_base::{Identity, Key, Peer, Rank, Tag};
    use mend_pml::Channel;
    use std::sync::Arc;

    /// What is done with the first may revoke the parent of the last.
    #[test]
    fn a_creation_that_waits_for_its_look_can_be_interrupted() {
        let mut creations = Creations::default();
        let key = Key { index: 1, generation: 1 };
        let mut announced = || {
            let parent = Identity { creator: Peer(1), number: 1 };
            let ranks: Arc<[Rank]> = [Rank(0), Rank(1)].into();
            let announcement = Announcement::new(Channel(key), Tag(7), Arc::clone(&ranks), Rank(1), 1);
            let stage = Stage::Announcement(announcement.expect("memory"));
            let pending = PendingCreation::Group { ranks, number: None };
            let creation =
                Creation { parent, pending, into: None, stage, has_voted: false, origin: None, inter: None };
            creations.begin(CommKey(key), creation).expect("memory")
        };
        let [first, second, third] = [announced(), announced(), announced()];
        let mut seen = Vec::new();
        for _ in 0..creations.active() {
            let looked_at = creations.take_active().expect("one is left");
            let waiting: Vec<Key> = creations.announcements().into_iter().map(|(key, _)| key).collect();
            seen.push((looked_at, waiting));
            if looked_at == first {
                creations.keep_active(first);
            }
        }
        let expected = [(first, vec![second, third]), (second, vec![third, first]), (third, vec![first])];
        assert_eq!(seen, expected);
        assert_eq!(creations.active(), 1);
    }

    #[test]
    fn calls_of_leaders_are_counted_until_one_succeeds_and_no_other_has_begun() {
        let mut creations = Creations::default();
        let peer_comm = Identity { creator: Peer(1), number: 1 };
        let next = |creations: &mut Creations, tag| creations.next_call(peer_comm, Rank(1), Tag(tag));
        assert_eq!([next(&mut creations, 7), next(&mut creations, 7), next(&mut creations, 8)], [1, 2, 1]);
        creations.forget_call(peer_comm, Rank(1), Tag(7), 1);
        assert_eq!(next(&mut creations, 7), 3, "a later call has begun");
        creations.forget_call(peer_comm, Rank(1), Tag(7), 3);
        creations.forget_call(peer_comm, Rank(1), Tag(8), 1);
        assert!(creations.calls.is_empty());
        assert_eq!(next(&mut creations, 7), 1);
    }
}
