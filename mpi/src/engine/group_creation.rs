// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MPI_COMM_CREATE_GROUP: a group of members creates a communicator, and the other members have no part in it (`creations`).
//!
//! What holds for a member of the group that never calls: if it knows of a failed member of the group or of the parent's revocation, then
//! so will all others, and their calls end with an error. Otherwise they wait for it, as in every collective call.

use super::{Engine, check_tag};
use crate::announcement::{self, Announcement};
use crate::communicator::{CommEntry, PendingCreation};
use crate::creations::{Creation, Stage};
use crate::origin::{Exchange, Origin};
use crate::{CommKey, Detail, Error, Request, Started, Uniform};
use mend_base::{Identity, Key, PeerIndex, Rank, Tag};
use mend_comm::{Communicator, Group};
use mend_pml::{End, Status};
use mend_proto::spread::Item;
use mend_proto::vote::{Ballot, Reason};
use mend_runtime::Runtime;
use mend_transport::Rdma;
use std::sync::Arc;

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// Starts the creation of a communicator of `group`, whose processes are members of `comm` (MPI_COMM_CREATE_GROUP). Only processes of
    /// the group take part. The tag distinguishes this call from others by other threads. `Err`: this process has not begun, and may
    /// call again.
    pub fn create_group(&mut self, comm: CommKey, group: &Group, tag: Tag) -> Result<Started, Error> {
        check_tag(tag)?;
        let entry = self.communicators.valid(comm)?;
        entry.require_intra()?;
        let parent = entry.communicator();
        let ranks = ranks_in(parent, group)?;
        let Some(me) = ranks.iter().position(|&rank| rank == parent.rank) else {
            return Ok(Started::Done(Status::EMPTY));
        };
        let (identity, size) = (parent.identity, parent.size());
        let has_voted = entry.properties().hints().uniform == Uniform::Local;
        let refused = self.known_refusal(entry, &ranks);
        let me = Rank(me as u32);
        let is_first = me == Rank(0) && refused.is_none();
        let stage = match refused {
            Some(error) => Stage::Prepared(Err(error)),
            None => {
                let channel = self.communicators.creation_channel(comm, &self.ends, &mut self.layers)?;
                let hash = announcement::hash(group.iter());
                Stage::Announcement(Announcement::new(channel, tag, Arc::clone(&ranks), me, hash)?)
            }
        };
        let number = is_first.then(|| self.communicators.allocate_number(size));
        let pending = PendingCreation::Group { ranks, number: None };
        let exchange = Exchange::Group { gone: None };
        let origin = has_voted.then_some(Origin { parent: identity, exchange });
        let creation =
            Creation { parent: identity, pending, into: None, stage, has_voted, origin, inter: None };
        let key = self.creations.begin(comm, creation).inspect_err(|_| {
            if let (Some(Ok(number)), Some(entry)) = (number, self.communicators.get(comm)) {
                let parent = entry.communicator().clone();
                self.communicators.return_number(&parent, number);
            }
        })?;
        if let Some(entry) = self.communicators.get_mut(comm) {
            entry.begin_operation();
        }
        self.communicators.add_request(comm);
        self.unconnected_query.begin_wait();
        match refused {
            Some(error) => self.leave_group_creation(key, comm, error),
            None => self.start_announcement(key, number),
        }
        self.progress_creations();
        self.apply_member_events();
        self.progress_after_start();
        Ok(Started::Running(Request::Creation(key)))
    }

    /// Why this member does not take part in the creation of a communicator of these members of a parent.
    fn known_refusal(&self, parent: &CommEntry, ranks: &[Rank]) -> Option<Error> {
        if parent.is_revoked() {
            return Some(Error::of(Detail::Revoked));
        }
        let end_of = |rank: Rank| self.ends.of(parent.members()[rank.index()]);
        let ended = ranks.iter().find_map(|&rank| Some((rank, end_of(rank)?)));
        ended.map(|(rank, end)| end.error(rank).into())
    }

    fn start_announcement(&mut self, key: Key, number: Option<Result<u32, Detail>>) {
        let Engine { creations, layers, ends, .. } = self;
        let Some(creation) = creations.operations_mut().running_mut(key) else { return };
        if let Stage::Announcement(announcement) = &mut creation.stage
            && let Err(error) = announcement.start(number, layers, ends)
        {
            self.end_creation(key, Err(error));
        }
    }

    /// Returns how many creations have changed.
    pub(super) fn progress_announcement(&mut self, key: Key, comm: CommKey) -> u32 {
        let Engine { creations, layers, ends, .. } = self;
        let Some(creation) = creations.operations_mut().running_mut(key) else { return 0 };
        let Stage::Announcement(announcement) = &mut creation.stage else { return 0 };
        match announcement.progress(layers, ends) {
            None => {
                self.creations.keep_active(key);
                return 0;
            }
            Some(Err(error)) => self.leave_group_creation(key, comm, error),
            Some(Ok(number)) => {
                if let PendingCreation::Group { number: known, .. } = &mut creation.pending {
                    *known = Some(number);
                }
                let pending = creation.pending.clone();
                self.vote_in_group(key, comm, &pending);
            }
        }
        1
    }

    /// The identity is known here: makes the communicator, and votes on it.
    fn vote_in_group(&mut self, key: Key, comm: CommKey, pending: &PendingCreation) {
        let Some(entry) = self.communicators.get(comm) else { return };
        let (parent, members) = (entry.communicator().clone(), Arc::clone(entry.members()));
        let origin = self.creations.operations().running(key).and_then(|creation| creation.origin);
        let prepared = self.prepare(comm, pending, origin);
        let (Some(identity), Some(ranks)) = (pending.identity(&parent), pending.group()) else { return };
        let Some(creation) = self.creations.operations_mut().running_mut(key) else { return };
        creation.stage = Stage::Prepared(prepared);
        let is_used_elsewhere = prepared.is_err() && self.layers.pml.is_used(identity);
        if core::mem::replace(&mut creation.has_voted, true) || ranks.len() == 1 || is_used_elsewhere {
            if prepared.is_err() {
                self.roll_back(comm, pending);
            }
            return self.end_creation(key, prepared);
        }
        self.creations.begin_group_vote(identity, key);
        if prepared.is_ok() {
            return self.with_instance(identity, |instance, ends, fx| {
                instance.cast_on_creation(Ballot::Yes, ends, fx);
            });
        }
        let me = ranks.iter().position(|&rank| rank == parent.rank).unwrap_or(0);
        let members = ranks.iter().map(|rank| members[rank.index()]).collect();
        let (instance, mut fx) = self.member_protocols.open(identity, Rank(me as u32), &members, None);
        instance.cast_on_creation(Ballot::No(Reason::Other), &self.ends, &mut fx);
        self.roll_back(comm, pending);
    }

    /// The vote of a group on a communicator is over.
    pub(super) fn on_voted_on_creation(&mut self, identity: Identity, result: Ballot) {
        let Some(key) = self.creations.end_group_vote(identity) else {
            return debug_assert!(false, "a vote without a creation");
        };
        let operations = self.creations.operations();
        let (Some(comm), Some(creation)) = (operations.comm_of(key), operations.running(key)) else { return };
        let Stage::Prepared(prepared) = creation.stage else { return };
        let (parent, ranks) = (creation.parent, creation.pending.group().cloned());
        let is_inter = creation.inter.is_some();
        let Ballot::No(reason) = result else { return self.end_creation(key, prepared) };
        mend_base::reach!("mpi.creation: refused by the group");
        self.member_protocols.discard(identity);
        if reason == Reason::Revoked {
            self.member_protocols.refuse_as_revoked(identity);
        }
        if let Ok(Some(made)) = prepared {
            // Nobody has used it: no member has returned from its creation.
            _ = self.free(made);
        }
        let error = match prepared {
            Err(error) => error,
            Ok(_) if is_inter => self.refusal_by_both(key, reason),
            Ok(_) => self.refusal(comm, &ranks.unwrap_or_default(), reason),
        };
        self.hold(key, error);
        if reason == Reason::Revoked && !is_inter {
            self.learn(parent, Item::Revoked);
        }
    }

    /// The error of a creation that a member of the group refused.
    fn refusal(&self, comm: CommKey, ranks: &[Rank], reason: Reason) -> Error {
        let in_parent = |rank: Rank| ranks.get(rank.index()).copied().unwrap_or(rank);
        let is_revoked = self.communicators.get(comm).is_some_and(|entry| entry.is_revoked());
        Error::of(match reason {
            Reason::Failed(rank) => Detail::ProcFailed(in_parent(rank)),
            Reason::Departed(rank) => Detail::PeerLeft(in_parent(rank)),
            Reason::Revoked => Detail::Revoked,
            Reason::Other if is_revoked => Detail::Revoked,
            Reason::Other => Detail::CreationRefused,
        })
    }

    /// The end of a peer is published: announcements in groups with it end. Their votes learn of it by themselves.
    pub(super) fn interrupt_group_creations(&mut self, peer: PeerIndex, end: End) {
        for (key, comm) in self.creations.announcements() {
            let Some(rank) = self.communicators.get(comm).and_then(|entry| entry.rank_of(peer)) else {
                continue;
            };
            let creation = self.creations.operations().running(key);
            if creation
                .and_then(|creation| creation.pending.group())
                .is_some_and(|group| group.contains(&rank))
            {
                mend_base::reach!("mpi.creation: a member of the group has ended");
                self.end_announcement(key, end.error(rank).into());
            }
        }
    }

    /// The communicator is revoked: creations of groups over it end.
    pub(super) fn revoke_group_creations(&mut self, comm: CommKey) {
        for (key, over) in self.creations.announcements() {
            if over == comm {
                self.end_announcement(key, Error::of(Detail::Revoked));
            }
        }
        self.revoke_leaders(comm);
        for identity in self.creations.group_votes(comm) {
            self.with_instance(identity, |instance, ends, fx| instance.on_parent_revoked(ends, fx));
        }
    }

    fn end_announcement(&mut self, key: Key, error: Error) {
        let Engine { creations, layers, .. } = self;
        let comm = creations.operations().comm_of(key);
        if let Some(creation) = creations.operations_mut().running_mut(key)
            && let Stage::Announcement(announcement) = &mut creation.stage
        {
            announcement.give_up(layers);
            if let PendingCreation::Group { number, .. } = &mut creation.pending {
                // Some children may have it, and vote.
                *number = announcement.number();
            }
            let pending = creation.pending.clone();
            let parent = comm.and_then(|comm| self.communicators.get(comm));
            let identity = parent.and_then(|parent| pending.identity(&parent.communicator().union()));
            if error.detail == Detail::Revoked
                && let Some(identity) = identity
            {
                self.member_protocols.refuse_as_revoked(identity);
            }
            if let Some(comm) = comm {
                self.roll_back(comm, &pending);
                self.leave_group_creation(key, comm, error);
            }
        }
    }

    /// This member ends a creation in a group without a vote: each other member learns the reason by itself, and refuses. That a member is
    /// unreachable here no other member would learn, so it or this process must be ended.
    fn leave_group_creation(&mut self, key: Key, comm: CommKey, error: Error) {
        if let Detail::Unreachable(rank, _) = error.detail
            && let Some(&peer) =
                self.communicators.get(comm).and_then(|entry| entry.members().get(rank.index()))
        {
            self.peer_reports.need(peer, &mut self.layers.runtime);
        }
        self.hold(key, error);
    }
}

/// The ranks in `parent` of the processes of `group`.
fn ranks_in(parent: &Communicator, group: &Group) -> Result<Arc<[Rank]>, Error> {
    let mut ranks = Vec::new();
    ranks.try_reserve_exact(group.size() as usize).map_err(|_| Error::of(Detail::NoMemory))?;
    for peer in group.iter() {
        ranks.push(parent.group.rank_of(peer).ok_or(Error::of(Detail::NotInCommunicator))?);
    }
    Ok(ranks.into())
}
