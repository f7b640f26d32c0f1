// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MPI_INTERCOMM_CREATE: two groups create an intercommunicator, so that it exists at all survivors of both or at none
//! (`creations` has the common part).
//!
//! ```text
//!   leaders exchange the groups over the peer communicator             (leader_exchange)
//!     ▼
//!   each leader broadcasts the other group, or why there will be no communicator, in its local communicator
//!     ▼
//!   1. vote in each local communicator: all members have made it, hidden
//!     ▼
//!   leaders tell each other the results, and broadcast them
//!     ▼
//!   2. vote in each local communicator: the other group has made it, too
//!     ▼
//!   3. vote of both groups, under the identity of the new communicator
//! ```
//!
//! A member that knows of a failure in its local communicator, or of the revocation of that, votes no in 1 and 2 even if its program
//! never calls, as in every vote over a parent. It knows nothing of the identity, so it could not answer in 3. Nor need it: whoever votes
//! yes in 3 knows that both groups have passed 1, so every member of both has entered and has made the communicator. And whoever has
//! made it and does not pass 2 votes no in 3, without waiting for anybody. So in 3 every member answers, and its argument
//! (`mend_proto::vote`) holds.
//!
//! A leader that gives up tells the other one. What a leader cannot know is that the other one will never call: it waits for that call
//! as for any message, until the other leader fails or leaves, or the peer communicator is revoked.

use super::{Engine, check_tag};
use crate::collective::{Begun, Collectives, LivenessQuery};
use crate::communicator::{CommEntry, PendingCreation};
use crate::creations::{Creation, Stage};
use crate::inter_creation::{InterCreation, InterStep, LeaderSide, Plan};
use crate::leader_exchange::{LeaderExchange, Note, Received, WhyNot, list_of, processes_in};
use crate::{CommKey, Detail, Error, Hints, Request, Started};
use mend_base::{Identity, Key, Peer, PeerIndex, Rank, Tag};
use mend_coll::Collective;
use mend_comm::{Communicator, Group, Remote};
use mend_datatype::TypedBuffer;
use mend_pml::End;
use mend_proto::spread::Item;
use mend_proto::vote::{Ballot, Outcome, Reason};
use mend_runtime::Runtime;
use mend_transport::{Rdma, UserMemory};
use std::sync::Arc;

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// Starts the creation of an intercommunicator (MPI_INTERCOMM_CREATE) of the members of `comm` and those of the communicator that the
    /// other leader gives. `other`: the peer communicator and the rank of the other leader there, which the leader alone gives; `Err`: why
    /// there is none, with which the leader's group gives up. The creation is uniform whatever the hints of `comm` are.
    pub fn create_inter(
        &mut self,
        comm: CommKey,
        leader: Rank,
        other: Option<Result<(CommKey, Rank), Error>>,
        tag: Tag,
    ) -> Result<Started, Error> {
        check_tag(tag)?;
        let entry = self.communicators.valid(comm)?;
        entry.require_intra()?;
        let local = entry.communicator();
        let (identity, size, is_leader) = (local.identity, local.size(), local.rank == leader);
        if leader.0 >= size {
            return Err(Error::of(Detail::NoSuchRank(leader, Some(size))));
        }
        // What only the leader gives, only the leader can refuse: its group waits for it, so it begins in any case.
        let mut obstacle = None;
        let mut side = None;
        if is_leader {
            let other = other.unwrap_or(Err(Error::of(Detail::NoSuchCommunicator)));
            match other.and_then(|other| self.begin_exchange(comm, other, tag)) {
                Ok(begun) => {
                    obstacle = begun.obstacle.or_else(|| self.known_obstacle(comm, begun.side.peer_comm));
                    side = Some(begun.side);
                }
                Err(error) => obstacle = Some(error),
            }
        }
        let key = match self.begin_inter(comm, leader, identity) {
            Ok(key) => key,
            Err(error) => {
                self.leave_inter(comm, identity, side);
                return Err(error);
            }
        };
        if let Some(inter) = self.creations.operations_mut().running_mut(key).and_then(|c| c.inter.as_mut()) {
            inter.side = side;
        }
        if let Some(entry) = self.communicators.get_mut(comm) {
            entry.begin_operation();
        }
        self.communicators.add_request(comm);
        self.unconnected_query.begin_wait();
        match (is_leader, obstacle) {
            (true, Some(error)) => {
                self.take_back_group(key, comm);
                self.lead(key, comm, Err(error));
            }
            (true, None) => {}
            (false, _) => self.broadcast(key, comm),
        }
        self.progress_creations();
        self.apply_member_events();
        self.progress_after_start();
        Ok(Started::Running(Request::Creation(key)))
    }

    fn begin_inter(&mut self, comm: CommKey, leader: Rank, parent: Identity) -> Result<Key, Error> {
        let (pending, stage) = (PendingCreation::Inter { identity: None }, Stage::Leaders);
        let inter = Some(Box::new(InterCreation::new(leader)?));
        self.begin_creation(
            comm,
            Creation { parent, pending, into: None, stage, has_voted: false, origin: None, inter },
        )
    }

    /// Without memory for the creation this member takes no part in it: neither the local communicator nor the other leader waits for it.
    fn leave_inter(&mut self, comm: CommKey, identity: Identity, side: Option<LeaderSide>) {
        if let Some(mut side) = side {
            side.exchange.conclude(Note::GivenUp(WhyNot::Other));
            self.creations.leave(side);
            self.release_left_exchanges();
        }
        let (_, mut parts) = self.collectives_and_parts();
        _ = Collectives::skip(comm, &mut parts);
        self.leave_list(comm);
        self.with_instance(identity, |instance, ends, fx| instance.leave_votes(ends, fx));
        self.apply_member_events();
    }

    /// Why a leader need not begin.
    fn known_obstacle(&self, comm: CommKey, peer_comm: CommKey) -> Option<Error> {
        let entry = self.communicators.get(comm)?;
        if entry.is_revoked() {
            return Some(Error::of(Detail::Revoked));
        }
        if self.communicators.get(peer_comm).is_some_and(CommEntry::is_revoked) {
            return Some(Error::of(Detail::OtherRevoked));
        }
        let ranks = (0u32..).map(Rank).zip(entry.members().iter());
        let ended = ranks.filter_map(|(rank, &member)| Some((rank, self.ends.of(member)?)));
        // A failure first: others may have left because of it, which the other group cannot find out.
        let first = ended.min_by_key(|&(rank, end)| (end != End::Failed, rank));
        first.map(|(rank, end)| end.error(rank).into())
    }

    /// `Err`: the other leader cannot be told anything.
    fn begin_exchange(
        &mut self,
        comm: CommKey,
        (peer_comm, other): (CommKey, Rank),
        tag: Tag,
    ) -> Result<BegunExchange, Error> {
        let between = self.communicators.valid(peer_comm)?;
        between.require_intra()?;
        let peer_communicator = between.communicator();
        let size = peer_communicator.size();
        if other.0 >= size {
            return Err(Error::of(Detail::NoSuchRank(other, Some(size))));
        }
        if other == peer_communicator.rank {
            return Err(Error::of(Detail::GroupsOverlap));
        }
        let identity = peer_communicator.identity;
        let channel = self.communicators.leaders_channel(peer_comm, &self.ends, &mut self.layers)?;
        let call = self.creations.next_call(identity, other, tag);
        let exchange = LeaderExchange::new((channel, other, tag), call);
        if let Some(entry) = self.communicators.get_mut(peer_comm) {
            entry.begin_operation();
        }
        let mut side = LeaderSide { exchange, peer_comm, number: None };
        let obstacle = self.say_group(comm, &mut side).err();
        Ok(BegunExchange { side, obstacle })
    }

    /// The first note of this leader: its group, and the number that it has drawn.
    fn say_group(&mut self, comm: CommKey, side: &mut LeaderSide) -> Result<(), Error> {
        let group = Arc::clone(&self.communicators.valid(comm)?.communicator().group);
        let number = self.communicators.allocate_number(2).map_err(Error::of)?;
        side.number = Some(number);
        let note = Note::Group { creator: self.me(), number, count: group.size() };
        side.exchange.say_group(note, group.iter())
    }

    /// The leader gives up before it has sent anything.
    fn take_back_group(&mut self, key: Key, comm: CommKey) {
        let creation = self.creations.operations_mut().running_mut(key);
        if let Some(side) = creation.and_then(|creation| creation.inter.as_mut()?.side.as_mut()) {
            side.exchange.take_back_group();
        }
        self.return_number(key, comm);
    }

    /// No other process will use the number that this leader has drawn.
    fn return_number(&mut self, key: Key, comm: CommKey) {
        let creation = self.creations.operations_mut().running_mut(key);
        let number = creation.and_then(|creation| creation.inter.as_mut()?.side.as_mut()?.number.take());
        if let (Some(number), Some(entry)) = (number, self.communicators.get(comm)) {
            let local = entry.communicator().clone();
            self.communicators.return_number(&local, number);
        }
    }

    fn me(&self) -> Peer {
        self.layers.runtime.membership().peer
    }

    /// Returns how many creations have changed.
    pub(super) fn progress_leader(&mut self, key: Key, comm: CommKey) -> u32 {
        let Engine { creations, layers, ends, .. } = self;
        let Some(creation) = creations.operations_mut().running_mut(key) else { return 0 };
        let is_at_start = matches!(creation.stage, Stage::Leaders);
        let Some(side) = creation.inter.as_mut().and_then(|inter| inter.side.as_mut()) else { return 0 };
        let Some(received) = side.exchange.progress(layers, ends) else {
            self.creations.keep_active(key);
            return 0;
        };
        match received {
            Ok(Received { note: Note::GivenUp(why), .. }) => {
                if is_at_start {
                    // That leader has read nothing, so it has not learned the number.
                    self.return_number(key, comm);
                }
                self.on_other_gave_up(key, comm, why.error());
            }
            Err(error) => {
                let error = self.of_other_leader(key, error);
                self.on_other_gave_up(key, comm, error);
            }
            Ok(Received { note: Note::Group { creator, number, .. }, processes }) if is_at_start => {
                let plan = self.plan(key, comm, (creator, number), &processes);
                self.lead(key, comm, plan);
            }
            Ok(Received { note: Note::Ready, .. }) if !is_at_start => {
                self.broadcast_result(key, comm, Note::Ready);
            }
            Ok(_) => self.on_other_gave_up(key, comm, Error::of(Detail::BadCreation)),
        }
        1
    }

    fn on_other_gave_up(&mut self, key: Key, comm: CommKey, error: Error) {
        let Some(creation) = self.creations.operations_mut().running_mut(key) else { return };
        if matches!(creation.stage, Stage::Leaders) {
            return self.lead(key, comm, Err(error));
        }
        if let Some(inter) = &mut creation.inter {
            inter.error = Some(error);
        }
        let group = self.communicators.get(comm).map(|entry| Arc::clone(&entry.communicator().group));
        self.broadcast_result(key, comm, Note::GivenUp(why_not(error, &group.unwrap_or_default())));
    }

    /// This leader broadcasts the result of the other group.
    fn broadcast_result(&mut self, key: Key, comm: CommKey, note: Note) {
        let creation = self.creations.operations().running(key);
        let Some(inter) = creation.and_then(|creation| creation.inter.as_deref()) else { return };
        UserMemory::of_buffer(&inter.header).write(0, &note.to_bytes(0));
        self.broadcast(key, comm);
    }

    /// The other leader has ended: an error that names its process, since it has no rank in the local communicator.
    fn of_other_leader(&self, key: Key, error: Error) -> Error {
        let creation = self.creations.operations().running(key);
        let peer_comm = creation.and_then(|creation| Some(creation.inter.as_ref()?.side.as_ref()?.peer_comm));
        let peer = |rank| self.communicators.get(peer_comm?)?.communicator().peer(rank);
        match error.detail {
            Detail::ProcFailed(rank) => {
                peer(rank).map_or(error, |peer| Error::of(Detail::MemberFailed(peer)))
            }
            Detail::PeerLeft(rank) => peer(rank).map_or(error, |peer| Error::of(Detail::MemberLeft(peer))),
            Detail::NoMemory => error,
            _ => Error::of(Detail::CreationRefused),
        }
    }

    /// What the two groups create: the leader of the first one has drawn the identity. The number of the other leader is not used.
    fn plan(
        &mut self,
        key: Key,
        comm: CommKey,
        (creator, number): (Peer, u32),
        processes: &[Peer],
    ) -> Result<(Identity, Arc<Group>), Error> {
        let overlap = || Error::of(Detail::GroupsOverlap);
        let group = Arc::new(Group::new(processes.iter().copied()).map_err(|_| overlap())?);
        let entry = self.communicators.get(comm).ok_or(Error::of(Detail::NoSuchCommunicator))?;
        let local = entry.communicator().clone();
        let remote = Remote::new(&local.group, Arc::clone(&group)).map_err(|_| overlap())?;
        let creation = self.creations.operations().running(key);
        let own = creation.and_then(|creation| creation.inter.as_ref()?.side.as_ref()?.number);
        let own = own.ok_or(Error::of(Detail::BadCreation))?;
        if remote.is_local_first() {
            return Ok((Identity { creator: self.me(), number: own }, group));
        }
        self.return_number(key, comm);
        Ok((Identity { creator, number }, group))
    }

    /// This leader broadcasts what is created, or why there will be no communicator.
    fn lead(&mut self, key: Key, comm: CommKey, plan: Result<(Identity, Arc<Group>), Error>) {
        let group = self.communicators.get(comm).map(|entry| Arc::clone(&entry.communicator().group));
        let Some(creation) = self.creations.operations_mut().running_mut(key) else { return };
        let (Some(inter), Some(group)) = (creation.inter.as_deref_mut(), group) else { return };
        let listed = plan.and_then(|(identity, remote)| {
            let list = list_of(remote.iter(), remote.size()).ok_or(Error::of(Detail::NoMemory))?;
            Ok((identity, remote.size(), list))
        });
        let note = match listed {
            Ok((Identity { creator, number }, count, list)) => {
                inter.list = Some(list);
                Note::Group { creator, number, count }
            }
            Err(error) => {
                inter.error = Some(error);
                Note::GivenUp(why_not(error, &group))
            }
        };
        UserMemory::of_buffer(&inter.header).write(0, &note.to_bytes(0));
        if let Note::GivenUp(_) = note {
            self.say_last(key, note);
        }
        self.broadcast(key, comm);
    }

    /// Says the last note to the other leader, if this process is a leader and has not said it.
    fn say_last(&mut self, key: Key, note: Note) {
        let creation = self.creations.operations_mut().running_mut(key);
        if let Some(side) = creation.and_then(|creation| creation.inter.as_mut()?.side.as_mut()) {
            side.exchange.conclude(note);
        }
        self.send_notes(key);
    }

    /// Sends what this leader has said. It is looked at again if there is no memory for a note: the other leader waits.
    pub(super) fn send_notes(&mut self, key: Key) {
        let Engine { creations, layers, ends, .. } = self;
        let creation = creations.operations_mut().running_mut(key);
        let side = creation.and_then(|creation| creation.inter.as_mut()?.side.as_mut());
        let Some(side) = side.filter(|side| !side.exchange.has_sent_all()) else { return };
        side.exchange.send(layers, ends);
        if !side.exchange.has_sent_all() {
            mend_base::reach!("mpi.creation: no memory for a leader's note");
            self.creations.keep_active(key);
        }
    }

    /// Starts the broadcast of the present step in the local communicator.
    fn broadcast(&mut self, key: Key, comm: CommKey) {
        let creation = self.creations.operations().running(key);
        let Some(inter) = creation.and_then(|creation| creation.inter.as_deref()) else { return };
        let buffer = match (&inter.step, &inter.list) {
            (InterStep::List, Some(list)) => list,
            _ => &inter.header,
        };
        let data = TypedBuffer::bytes(UserMemory::of_buffer(buffer));
        let call = Collective::Bcast { data, root: inter.leader };
        match self.begin_collective(comm, call) {
            Ok(Begun::Running(exchange)) => {
                if let Some(creation) = self.creations.operations_mut().running_mut(key) {
                    creation.stage = Stage::Exchange(exchange);
                }
                self.creations.keep_active(key);
            }
            Ok(Begun::Done(_)) => self.end_broadcast(key, comm, Ok(())),
            Err(error) => self.end_broadcast(key, comm, Err(error)),
        }
    }

    /// A broadcast in the local communicator is over.
    pub(super) fn end_broadcast(&mut self, key: Key, comm: CommKey, result: Result<(), Error>) {
        let Some(creation) = self.creations.operations_mut().running_mut(key) else { return };
        let Some(inter) = creation.inter.as_deref_mut() else { return };
        if inter.step == InterStep::OtherGroup {
            return self.end_result(key, result);
        }
        if let Err(error) = result {
            if inter.step == InterStep::Header {
                self.leave_list(comm);
            }
            return self.end_preparation(key, comm, Err(error));
        }
        if inter.step == InterStep::List {
            let prepared = self.make_inter(key, comm);
            return self.end_preparation(key, comm, prepared);
        }
        match Note::read(&inter.header.to_vec()) {
            Some((_, Note::Group { creator, number, count })) => {
                creation.pending = PendingCreation::Inter { identity: Some(Identity { creator, number }) };
                inter.step = InterStep::List;
                if inter.list.is_none() {
                    inter.list = list_of(core::iter::empty(), count);
                }
                if inter.list.is_none() {
                    let (_, mut parts) = self.collectives_and_parts();
                    let error = Collectives::skip(comm, &mut parts);
                    return self.end_preparation(key, comm, Err(error));
                }
                self.broadcast(key, comm);
            }
            Some((_, Note::GivenUp(why))) => {
                let error = inter.error.unwrap_or_else(|| why.error());
                // No member begins the second broadcast; one that did not get this note has skipped it.
                if let Some(entry) = self.communicators.get(comm) {
                    self.layers.pml.skip_operation(entry.collective());
                }
                self.end_preparation(key, comm, Err(error));
            }
            _ => self.end_preparation(key, comm, Err(Error::of(Detail::BadCreation))),
        }
    }

    /// This member does not have the first broadcast, and others may have it and begin the second one: they are poisoned. So all members
    /// begin or skip both, and their next collective operation is the same.
    fn leave_list(&mut self, comm: CommKey) {
        let Some(entry) = self.communicators.get(comm) else { return };
        let is_broken = entry.is_revoked() || self.layers.pml.broken_by(entry.collective()).is_some();
        if !is_broken {
            mend_base::reach!("mpi.creation: the second broadcast is skipped");
            let (_, mut parts) = self.collectives_and_parts();
            _ = Collectives::skip(comm, &mut parts);
        }
    }

    /// The result of the other group is here, or will not come: the second ballot in the local communicator.
    fn end_result(&mut self, key: Key, result: Result<(), Error>) {
        let Some(creation) = self.creations.operations_mut().running_mut(key) else { return };
        let parent = creation.parent;
        let Some(inter) = creation.inter.as_deref_mut() else { return };
        creation.stage = Stage::Prepared(Ok(inter.made));
        inter.step = InterStep::Second;
        let result = match (result, Note::read(&inter.header.to_vec())) {
            (Err(error), _) => Err(error),
            (Ok(()), Some((_, Note::Ready))) => Ok(()),
            (Ok(()), Some((_, Note::GivenUp(why)))) => Err(inter.error.unwrap_or_else(|| why.error())),
            (Ok(()), _) => Err(Error::of(Detail::BadCreation)),
        };
        inter.error = result.err().or(inter.error);
        let ballot = result.map_or_else(|error| Ballot::No(super::creation::reason(error)), |()| Ballot::Yes);
        self.with_instance(parent, |instance, ends, fx| instance.cast(ballot, ends, fx));
    }

    /// Makes the intercommunicator. The program does not get it yet.
    fn make_inter(&mut self, key: Key, comm: CommKey) -> Result<Option<CommKey>, Error> {
        let bad = || Error::of(Detail::BadCreation);
        let creation = self.creations.operations_mut().running_mut(key).ok_or_else(bad)?;
        let PendingCreation::Inter { identity: Some(identity) } = creation.pending else { return Err(bad()) };
        let list = creation.inter.as_ref().and_then(|inter| inter.list.as_ref()).ok_or_else(bad)?;
        let remote = Arc::new(Group::new(processes_in(list, 0)).map_err(|_| bad())?);
        let entry = self.communicators.get(comm).ok_or_else(bad)?;
        let local = entry.communicator().clone();
        let properties = entry.properties().inherited(Hints::default());
        let remote = Remote::new(&local.group, remote).map_err(|_| bad())?;
        let made = Communicator { identity, rank: local.rank, group: local.group, remote: Some(remote) };
        let mut members: Vec<PeerIndex> = Vec::new();
        members
            .try_reserve_exact(made.everyone().size() as usize)
            .map_err(|_| Error::of(Detail::NoMemory))?;
        members.extend(made.everyone().iter().map(|peer| self.peer_reports.peer_index(peer)));
        let members: Arc<[PeerIndex]> = members.into();
        if let Some(inter) = self.creations.operations_mut().running_mut(key).and_then(|c| c.inter.as_mut()) {
            inter.plan = Some(Plan { communicator: made.clone(), members: Arc::clone(&members) });
        }
        // No correct member gives two communicators one identity.
        if self.layers.pml.is_used(identity) {
            return Err(bad());
        }
        self.reserve_for_communicator()?;
        let made = self.communicators.enter(made, members, properties, &self.ends, &mut self.layers)?;
        self.member_protocols.deliver_early(identity);
        Ok(Some(made))
    }

    /// This member has made the communicator, or cannot: its first vote.
    fn end_preparation(&mut self, key: Key, comm: CommKey, prepared: Result<Option<CommKey>, Error>) {
        let Some(creation) = self.creations.operations_mut().running_mut(key) else { return };
        creation.stage = Stage::Prepared(prepared);
        creation.inter.iter_mut().for_each(|inter| {
            inter.step = InterStep::First;
            inter.made = prepared.ok().flatten();
        });
        let pending = creation.pending.clone();
        if prepared.is_err() {
            self.roll_back(comm, &pending);
        }
        self.vote_or_end(key);
    }

    /// A vote in the local communicator is over. Returns whether the creation still votes there.
    pub(super) fn on_voted_locally(&mut self, key: Key, parent: Identity, outcome: Outcome) -> bool {
        let Some(comm) = self.creations.operations().comm_of(key) else { return false };
        let Some(creation) = self.creations.operations_mut().running_mut(key) else { return false };
        let (PendingCreation::Inter { identity }, Stage::Prepared(prepared)) =
            (&creation.pending, &creation.stage)
        else {
            return false;
        };
        let (identity, prepared) = (*identity, *prepared);
        let Some(inter) = creation.inter.as_deref_mut() else { return false };
        match (inter.step, outcome.result, identity) {
            (InterStep::First, Ballot::Yes, _) => {
                inter.step = InterStep::OtherGroup;
                if inter.side.is_none() {
                    self.broadcast(key, comm);
                } else {
                    self.say_last(key, Note::Ready);
                    self.progress_leader(key, comm);
                }
                return true;
            }
            (InterStep::Second, Ballot::Yes, Some(identity)) => {
                inter.step = InterStep::Both;
                self.vote_of_both(key, identity, Ballot::Yes);
            }
            (InterStep::Second, Ballot::No(reason), Some(identity)) => {
                mend_base::reach!("mpi.intercomm: refused after it was made");
                let error = inter.error.unwrap_or_else(|| local_refusal(reason));
                (inter.step, inter.error) = (InterStep::Both, Some(error));
                let reason = inter.plan.as_ref().map_or(Reason::Revoked, |plan| in_union(error, plan));
                self.vote_of_both(key, identity, Ballot::No(reason));
            }
            (_, Ballot::No(reason), _) => {
                let error = inter.error.or(prepared.err()).unwrap_or_else(|| local_refusal(reason));
                let group = self.communicators.get(comm).map(|entry| Arc::clone(&entry.communicator().group));
                self.say_last(key, Note::GivenUp(why_not(error, &group.unwrap_or_default())));
                self.discard_made(identity, prepared);
                self.hold(key, error);
            }
            (_, Ballot::Yes, _) => debug_assert!(false, "a member without the communicator votes no"),
        }
        if outcome.result == Ballot::No(Reason::Revoked) {
            self.learn(parent, Item::Revoked);
        }
        false
    }

    fn vote_of_both(&mut self, key: Key, identity: Identity, ballot: Ballot) {
        self.creations.begin_group_vote(identity, key);
        self.with_instance(identity, |instance, ends, fx| instance.cast_on_creation(ballot, ends, fx));
    }

    /// The communicator will not exist: whoever asks this member about it is told so.
    fn discard_made(&mut self, identity: Option<Identity>, prepared: Result<Option<CommKey>, Error>) {
        if let Some(identity) = identity {
            self.member_protocols.discard(identity);
        }
        if let Ok(Some(made)) = prepared {
            // Nobody has used it: no member has returned from its creation.
            _ = self.free(made);
        }
    }

    /// The error of a creation that the vote of both groups refused.
    pub(super) fn refusal_by_both(&self, key: Key, reason: Reason) -> Error {
        let refused = Error::of(Detail::CreationRefused);
        let creation = self.creations.operations().running(key);
        let Some(inter) = creation.and_then(|creation| creation.inter.as_deref()) else { return refused };
        if let Some(error) = inter.error {
            return error;
        }
        let Some(Plan { communicator, members }) = &inter.plan else { return refused };
        let (Reason::Failed(rank) | Reason::Departed(rank)) = reason else {
            return if reason == Reason::Revoked { Error::of(Detail::OtherRevoked) } else { refused };
        };
        let (Some(&member), Some(peer)) = (members.get(rank.index()), communicator.everyone().peer(rank))
        else {
            return refused;
        };
        match (reason, self.ends.of(member)) {
            (Reason::Failed(_), _) | (_, Some(End::Failed)) => failure_of(peer, &communicator.group),
            (_, Some(End::Finalized)) => Error::of(Detail::MemberLeft(peer)),
            _ => refused,
        }
    }

    /// The query by which an error without a failure is explained: about both groups, where they are known.
    pub(super) fn query_for(&mut self, key: Key, comm: CommKey) -> LivenessQuery {
        let creation = self.creations.operations().running(key);
        let plan = creation.and_then(|creation| creation.inter.as_ref()?.plan.as_ref());
        let members = plan.map(|plan| Arc::clone(&plan.members));
        let (_, mut parts) = self.collectives_and_parts();
        match members {
            Some(members) => LivenessQuery::about_all(&members, &mut parts),
            None => LivenessQuery::begin(comm, &mut parts),
        }
    }

    /// A failure that explains the error of a creation of an intercommunicator.
    pub(super) fn failure_in_plan(&self, key: Key) -> Option<Error> {
        let plan = self.creations.operations().running(key)?.inter.as_ref()?.plan.as_ref()?;
        let all = plan.members.iter().zip(plan.communicator.everyone().iter());
        let mut failed = all.filter(|&(&member, _)| self.ends.of(member) == Some(End::Failed));
        failed.next().map(|(_, peer)| failure_of(peer, &plan.communicator.group))
    }

    /// The end of a peer is published: leaders do not wait for the other group any more if the peer is a member of their own. The votes
    /// learn of it by themselves.
    pub(super) fn interrupt_leaders(&mut self, peer: PeerIndex, end: End) {
        for (key, comm, _) in self.creations.leaders() {
            if let Some(rank) = self.communicators.get(comm).and_then(|entry| entry.rank_of(peer)) {
                mend_base::reach!("mpi.intercomm: a member of the leader's group has ended");
                self.on_other_gave_up(key, comm, end.error(rank).into());
            }
        }
    }

    /// A communicator is revoked: leaders that wait do not, if it is theirs or the one between them. That one is no reason to revoke
    /// theirs.
    pub(super) fn revoke_leaders(&mut self, revoked: CommKey) {
        for (key, comm, peer_comm) in self.creations.leaders() {
            let detail = match revoked {
                _ if comm == revoked => Detail::Revoked,
                _ if peer_comm == revoked => Detail::OtherRevoked,
                _ => continue,
            };
            mend_base::reach!("mpi.intercomm: revoked while the leader waits");
            self.on_other_gave_up(key, comm, Error::of(detail));
        }
    }

    /// The creation ends: its leader says its last note, if it has not.
    pub(super) fn end_exchange_of_leaders(&mut self, key: Key, succeeded: bool) {
        self.say_last(key, Note::GivenUp(WhyNot::Other));
        let creation = self.creations.operations_mut().running_mut(key);
        let Some(mut side) = creation.and_then(|creation| creation.inter.as_mut()?.side.take()) else {
            return;
        };
        side.exchange.stop_receiving(&mut self.layers);
        if succeeded && let Some(peer_comm) = self.identity_of(side.peer_comm) {
            let (other, tag, call) = side.exchange.call();
            self.creations.forget_call(peer_comm, other, tag, call);
        }
        self.creations.leave(side);
        self.release_left_exchanges();
    }

    /// The exchanges of creations that have ended stay until there was memory to send their last note.
    pub(super) fn release_left_exchanges(&mut self) {
        for mut side in self.creations.take_left() {
            side.exchange.send(&mut self.layers, &self.ends);
            if side.exchange.has_sent_all() {
                self.communicators.end_operation(side.peer_comm, &mut self.layers);
            } else {
                self.creations.leave(side);
            }
        }
    }
}

/// What a leader has begun, and why it gives up at once if it does.
struct BegunExchange {
    side: LeaderSide,
    obstacle: Option<Error>,
}

/// A failed process, by its rank in the local communicator if it has one.
fn failure_of(peer: Peer, local: &Group) -> Error {
    Error::of(local.rank_of(peer).map_or(Detail::MemberFailed(peer), Detail::ProcFailed))
}

/// Why this member votes no in the vote of both groups: a reason that waits for nobody.
fn in_union(error: Error, plan: &Plan) -> Reason {
    let Communicator { group, .. } = &plan.communicator;
    let everyone = plan.communicator.everyone();
    let rank_of = |peer: Option<Peer>| peer.and_then(|peer| everyone.rank_of(peer));
    let failed = match error.detail {
        Detail::ProcFailed(rank) => rank_of(group.peer(rank)),
        Detail::MemberFailed(peer) => rank_of(Some(peer)),
        _ => None,
    };
    match error.detail {
        Detail::Revoked | Detail::OtherRevoked => Reason::Revoked,
        // For any other reason it takes part no more, as if it had left.
        _ => failed.map_or(Reason::Departed(plan.communicator.rank_in_union()), Reason::Failed),
    }
}

/// The error of a creation that another member of the local communicator refused.
fn local_refusal(reason: Reason) -> Error {
    super::creation::error(reason)
}

/// The reason of an error in a local communicator of this group, as the other group understands it.
fn why_not(error: Error, local: &Group) -> WhyNot {
    let peer = |rank| local.peer(rank);
    match error.detail {
        Detail::ProcFailed(rank) => peer(rank).map_or(WhyNot::Other, WhyNot::Failed),
        Detail::MemberFailed(peer) => WhyNot::Failed(peer),
        Detail::PeerLeft(rank) => peer(rank).map_or(WhyNot::Other, WhyNot::Left),
        Detail::MemberLeft(peer) => WhyNot::Left(peer),
        Detail::Revoked | Detail::OtherRevoked => WhyNot::Revoked,
        Detail::GroupsOverlap => WhyNot::Overlap,
        _ => WhyNot::Other,
    }
}
