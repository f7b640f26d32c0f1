// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The creation of communicators: the exchange over the parent, the vote, and the result (`creations` draws it).

use super::Engine;
use crate::collective::Begun;
use crate::communicator::{Contribution, DUP_NAMER, PendingCreation};
use crate::creations::{Creation, Stage};
use crate::origin::{Exchange, Origin};
use crate::{CommKey, Detail, Error, Hints, Request, Started, State, Uniform};
use mend_base::{Identity, Key, Rank};
use mend_coll::Collective;
use mend_comm::Group;
use mend_pml::{Channel, End, Status};
use mend_proto::spread::Item;
use mend_proto::vote::{Ballot, Outcome, Reason};
use mend_runtime::Runtime;
use mend_transport::{Rdma, UserMemory};

/// What the members of a communicator share that MPI_COMM_SPLIT_TYPE creates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shared {
    /// They can share memory.
    Memory,
    /// Nothing: each process gets a communicator of its own.
    Nothing,
}

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// Starts the creation of a communicator with the same members (MPI_COMM_DUP), which has the hints that `comm` has now: MPI-5.0
    /// §7.4.2 leaves hints out of a duplicate, but a library that works on one is to report failures as the program asked for
    /// (Row IK4).
    pub fn dup(&mut self, comm: CommKey) -> Result<Started, Error> {
        self.dup_with_hints(comm, self.hints(comm)?, None)
    }

    /// As [`dup`](Engine::dup), with other hints (MPI_COMM_DUP_WITH_INFO). The 8 bytes at `into` get the handle of the communicator when
    /// the operation ends.
    pub fn dup_with_hints(
        &mut self,
        comm: CommKey,
        hints: Hints,
        into: Option<UserMemory>,
    ) -> Result<Started, Error> {
        let parent = self.communicators.valid(comm)?.communicator();
        let (is_namer, size) = (parent.rank_in_union() == DUP_NAMER, parent.everyone().size());
        let number = is_namer.then(|| self.communicators.allocate_number(size)).transpose();
        self.start_creation(comm, number.and_then(|number| PendingCreation::dup(number, hints)), into)
    }

    /// Starts the creation of a communicator of the members with the same color, ordered by key (MPI_COMM_SPLIT). Color `None`:
    /// `MPI_UNDEFINED`.
    pub fn split(&mut self, comm: CommKey, color: Option<u32>, key: i32) -> Result<Started, Error> {
        self.split_with_hints(comm, color, key, Hints::default())
    }

    fn split_with_hints(
        &mut self,
        comm: CommKey,
        color: Option<u32>,
        key: i32,
        hints: Hints,
    ) -> Result<Started, Error> {
        let entry = self.communicators.valid(comm)?;
        entry.require_intra()?;
        let size = entry.communicator().size();
        let number = match color {
            Some(_) => self.communicators.allocate_number(size),
            None => Ok(Contribution::NO_NUMBER),
        };
        let parent = self.communicators.valid(comm)?.communicator();
        let split = |number| PendingCreation::split(parent, Contribution { color, key, number }, hints);
        let begun = number.and_then(split);
        self.start_creation(comm, begun, None)
    }

    /// Starts the creation of communicators of the members that share something (MPI_COMM_SPLIT_TYPE), ordered by key. `None`:
    /// `MPI_UNDEFINED`, or something that this process does not share with any process. A job runs on one host.
    pub fn split_by(
        &mut self,
        comm: CommKey,
        shared: Option<Shared>,
        key: i32,
        hints: Hints,
    ) -> Result<Started, Error> {
        let me = self.communicators.valid(comm)?.communicator().rank;
        let color = shared.map(|shared| match shared {
            Shared::Memory => 0,
            Shared::Nothing => me.0,
        });
        self.split_with_hints(comm, color, key, hints)
    }

    /// Starts the creation of a communicator of `group`, whose processes are members of `comm` (MPI_COMM_CREATE).
    pub fn create(&mut self, comm: CommKey, group: &Group) -> Result<Started, Error> {
        let entry = self.communicators.valid(comm)?;
        entry.require_intra()?;
        let parent = entry.communicator();
        let mine = PendingCreation::contribution_of_member(parent, group)?;
        let size = parent.size();
        let number = match mine.color {
            Some(_) => self.communicators.allocate_number(size),
            None => Ok(Contribution::NO_NUMBER),
        };
        let parent = self.communicators.valid(comm)?.communicator();
        let split =
            |number| PendingCreation::split(parent, Contribution { number, ..mine }, Hints::default());
        let begun = number.and_then(split);
        self.start_creation(comm, begun, None)
    }

    /// Starts the creation of an intracommunicator of both groups of `comm` (MPI_INTERCOMM_MERGE): the group with `is_high` comes last. If both
    /// groups have the same value, the first group of the union comes first.
    pub fn merge(&mut self, comm: CommKey, is_high: bool) -> Result<Started, Error> {
        let parent = self.communicators.valid(comm)?.communicator();
        if !parent.is_inter() {
            return Err(Error::of(Detail::Intracommunicator));
        }
        let parent = parent.union();
        let number = self.communicators.allocate_number(parent.size());
        let (color, key) = (Some(0), i32::from(is_high));
        let split =
            |number| PendingCreation::split(&parent, Contribution { color, key, number }, Hints::default());
        self.start_creation(comm, number.and_then(split), None)
    }

    /// The communicator that the operation created, once the operation has ended. `None`: this process is not a member of it.
    pub fn created(&mut self, request: Request) -> Option<CommKey> {
        match request {
            Request::Creation(key) => self.creations.operations_mut().take_created(key),
            Request::Agreement(key) => self.agreements.operations_mut().take_created(key),
            Request::PointToPoint(_) | Request::Collective(_) | Request::EndedAtStart(_) => None,
        }
    }

    fn start_creation(
        &mut self,
        comm: CommKey,
        begun: Result<(PendingCreation, Collective), Detail>,
        into: Option<UserMemory>,
    ) -> Result<Started, Error> {
        let entry = self.communicators.valid(comm)?;
        // Without the vote, each member goes by its own exchange.
        let has_voted = entry.properties().hints().uniform == Uniform::Local;
        self.start_creation_on(comm, entry.collective(), has_voted, begun, into)
    }

    /// Starts a creation whose exchange runs on this context of the parent. `has_voted`: it is decided without a vote.
    pub(super) fn start_creation_on(
        &mut self,
        comm: CommKey,
        channel: Channel,
        has_voted: bool,
        begun: Result<(PendingCreation, Collective), Detail>,
        into: Option<UserMemory>,
    ) -> Result<Started, Error> {
        let entry = self.communicators.valid(comm)?;
        let (parent, rank) = (entry.communicator().identity, entry.communicator().rank_in_union());
        let size = entry.members().len() as u32;
        // Without a contribution to the exchange this member takes part all the same: the others are poisoned, and its ballot is no.
        let (pending, call) = match begun {
            Ok((pending, call)) => (pending, entry.selection().schedule(rank, size, call)),
            Err(why) => (PendingCreation::NoContribution(why), Err(mend_coll::Error::NoMemory)),
        };
        // On the channel of agreements by schedules nobody looks for communicators that do not exist everywhere.
        let exchange = Exchange::Collective(self.layers.pml.next_operation(channel));
        let origin = (has_voted && channel == entry.collective()).then_some(Origin { parent, exchange });
        let (collectives, mut parts) = self.collectives_and_parts();
        let stage = match collectives.start(comm, channel, call, &mut parts) {
            Ok(Begun::Running(exchange)) => Stage::Exchange(exchange),
            Ok(Begun::Done(_)) => Stage::Prepared(self.prepare(comm, &pending, origin)),
            Err(error) => Stage::Prepared(Err(match pending {
                PendingCreation::NoContribution(why) if error.detail == Detail::NoMemory => Error::of(why),
                _ => error,
            })),
        };
        let creation = Creation { parent, pending, into, stage, has_voted, origin, inter: None };
        let key = self.begin_creation(comm, creation)?;
        if let Some(entry) = self.communicators.get_mut(comm) {
            entry.begin_operation();
        }
        self.communicators.add_request(comm);
        self.unconnected_query.begin_wait();
        self.progress_creations();
        self.apply_member_events();
        self.progress_after_start();
        Ok(Started::Running(Request::Creation(key)))
    }

    /// Without memory for the creation, this member never votes yes again, as if it had left: the others must not wait for it.
    pub(super) fn begin_creation(&mut self, comm: CommKey, creation: Creation) -> Result<Key, Error> {
        let (parent, exchange) = (creation.parent, creation.stage.exchange());
        let made = match creation.stage {
            Stage::Prepared(Ok(made)) => made,
            _ => None,
        };
        let begun = self.creations.begin(comm, creation);
        if begun.is_err() {
            if let Some(exchange) = exchange {
                // The others may be in the exchange, where no vote reaches them.
                let (collectives, mut parts) = self.collectives_and_parts();
                collectives.give_up(exchange, true, &mut parts);
            }
            if let Some(made) = made {
                _ = self.free(made);
            }
            self.with_instance(parent, |instance, ends, fx| instance.leave_votes(ends, fx));
            self.member_protocols.recheck_early();
            self.apply_member_events();
        }
        begun
    }

    /// Makes the communicator after its exchange. The program does not get it yet. `origin`: if it may exist at some members only.
    pub(super) fn prepare(
        &mut self,
        comm: CommKey,
        pending: &PendingCreation,
        origin: Option<Origin>,
    ) -> Result<Option<CommKey>, Error> {
        self.reserve_for_communicator()?;
        let made = self.communicators.commit(comm, pending, &self.ends, &mut self.layers)?;
        if let Some(entry) = made.and_then(|made| self.communicators.get_mut(made)) {
            entry.set_origin(origin);
        }
        if let Some(identity) = made.and_then(|made| self.identity_of(made)) {
            self.member_protocols.deliver_early(identity);
        }
        Ok(made)
    }

    /// Reserves what one more communicator needs later, when it is too late for an error, and one that a shrink makes: others may have
    /// that one already. A shrink uses the latter, and the communicator that it replaces gives it back when it is freed.
    pub(super) fn reserve_for_communicator(&mut self) -> Result<(), Error> {
        let agreements = self.agreements.reserve(self.communicators.len() + 2);
        match agreements && self.communicators.reserve(2) {
            true => Ok(()),
            false => Err(Error::of(Detail::NoMemory)),
        }
    }

    pub(super) fn identity_of(&self, comm: CommKey) -> Option<Identity> {
        self.communicators.get(comm).map(|entry| entry.communicator().identity)
    }

    /// Looks at the creations that exchange, and at those whose error is held. Returns how many changed.
    pub(super) fn progress_creations(&mut self) -> u32 {
        let mut changed = 0;
        self.release_left_exchanges();
        for _ in 0..self.creations.active() {
            let Some(key) = self.creations.take_active() else { break };
            let Some(comm) = self.creations.operations().comm_of(key) else { continue };
            self.send_notes(key);
            let creation = self.creations.operations().running(key);
            let is_leader_waiting = creation.is_some_and(Creation::is_leader_waiting);
            match creation.map(|creation| &creation.stage) {
                Some(Stage::Leaders | Stage::Prepared(_)) if is_leader_waiting => {
                    changed += self.progress_leader(key, comm);
                }
                Some(Stage::Leaders) => {}
                Some(&Stage::Exchange(exchange)) => match self.collectives.operations().poll(exchange) {
                    State::Running | State::PendingFailure => self.creations.keep_active(key),
                    State::Done(result) => {
                        self.collectives.operations_mut().release(exchange);
                        self.end_exchange(key, comm, result.map(|_| ()));
                        changed += 1;
                    }
                },
                Some(Stage::Announcement(_)) => changed += self.progress_announcement(key, comm),
                Some(Stage::Prepared(_)) => self.vote_or_end(key),
                Some(&Stage::Held(error)) if self.is_explained(comm, error) => {
                    self.end_creation(key, Err(error));
                    changed += 1;
                }
                Some(Stage::Held(_)) => self.creations.keep_active(key),
                Some(Stage::Asking(..)) => changed += self.progress_query(key, comm),
                None => {}
            }
        }
        changed
    }

    /// The same, and what the votes bring.
    pub(super) fn progress_creations_and_votes(&mut self) -> u32 {
        let changed = self.progress_creations();
        if !self.member_protocols.is_idle() {
            return changed + self.progress_member_protocols();
        }
        changed
    }

    fn end_exchange(&mut self, key: Key, comm: CommKey, result: Result<(), Error>) {
        let Some(creation) = self.creations.operations().running(key) else { return };
        if creation.inter.is_some() {
            return self.end_broadcast(key, comm, result);
        }
        let (pending, origin) = (creation.pending.clone(), creation.origin);
        let prepared = result.and_then(|()| self.prepare(comm, &pending, origin));
        if prepared.is_err() {
            self.roll_back(comm, &pending);
        }
        if let Some(creation) = self.creations.operations_mut().running_mut(key) {
            creation.stage = Stage::Prepared(prepared);
        }
        self.vote_or_end(key);
    }

    /// Casts the ballot of a creation that is prepared, when it is its turn; a creation without a vote ends.
    pub(super) fn vote_or_end(&mut self, key: Key) {
        let Some(creation) = self.creations.operations_mut().running_mut(key) else { return };
        let Stage::Prepared(prepared) = creation.stage else { return };
        let parent = creation.parent;
        if creation.has_voted && creation.inter.is_some() {
            return;
        }
        if creation.has_voted {
            return self.end_creation(key, prepared);
        }
        if self.creations.first(parent) != Some(key) {
            return;
        }
        if let Some(creation) = self.creations.operations_mut().running_mut(key) {
            creation.has_voted = true;
        }
        let ballot = prepared.map_or_else(|error| Ballot::No(reason(error)), |_| Ballot::Yes);
        self.with_instance(parent, |instance, ends, fx| instance.cast(ballot, ends, fx));
    }

    /// The vote of the first creation over this parent is over.
    pub(super) fn on_voted(&mut self, parent: Identity, outcome: Outcome) {
        let Some(key) = self.creations.first(parent) else {
            return debug_assert!(false, "a vote without a creation");
        };
        let creation = self.creations.operations().running(key);
        if creation.is_some_and(|creation| creation.inter.is_some()) {
            if self.on_voted_locally(key, parent, outcome) {
                return;
            }
            self.creations.take_first(parent);
        } else {
            self.creations.take_first(parent);
            self.on_voted_once(key, parent, outcome);
        }
        match self.creations.first(parent) {
            Some(next) => self.vote_or_end(next),
            None => self.close_if_freed(parent),
        }
    }

    /// The one vote on a creation is over.
    fn on_voted_once(&mut self, key: Key, parent: Identity, outcome: Outcome) {
        let Some(creation) = self.creations.operations().running(key) else { return };
        let prepared = match creation.stage {
            Stage::Prepared(prepared) => prepared,
            // A vote has no result before this member has cast its ballot, which it does after the exchange.
            Stage::Exchange(_)
            | Stage::Leaders
            | Stage::Announcement(_)
            | Stage::Held(_)
            | Stage::Asking(..) => return,
        };
        match (outcome.result, prepared) {
            (Ballot::Yes, prepared) => self.end_creation(key, prepared),
            (Ballot::No(reason), Ok(made)) => {
                mend_base::reach!("mpi.creation: prepared here, and refused by the vote");
                if let Some(made) = made {
                    // Nobody has used it: no member has returned from its creation.
                    _ = self.free(made);
                }
                self.hold(key, error(reason));
            }
            // The own error says more than the result of the vote.
            (Ballot::No(_), Err(error)) => self.hold(key, error),
        }
        if outcome.result == Ballot::No(Reason::Revoked) {
            self.learn(parent, Item::Revoked);
        }
    }

    /// The last creation over a communicator has ended: if the communicator was freed meanwhile, its protocols close.
    fn close_if_freed(&mut self, identity: Identity) {
        let entry = self.open_communicator(identity).and_then(|comm| self.communicators.get(comm));
        let is_open = entry.is_some_and(|entry| !entry.is_freed());
        if !is_open {
            self.close_member_protocols(identity);
        }
    }

    /// The communicator is not created here: from now on messages on it are refused, also those that have come.
    pub(super) fn roll_back(&mut self, comm: CommKey, pending: &PendingCreation) {
        if let Some(identity) = self.communicators.roll_back(comm, pending, &mut self.layers) {
            self.member_protocols.deliver_early(identity);
        }
    }

    /// Ends a creation with an error: when the failure that the error names is published, or when it is known that no failure is its cause.
    pub(super) fn hold(&mut self, key: Key, error: Error) {
        let Some(comm) = self.creations.operations().comm_of(key) else { return };
        let stage = match error.detail {
            Detail::PeerLeft(_) | Detail::MemberLeft(_) | Detail::PeerFreed(_) | Detail::CreationRefused => {
                Stage::Asking(error, self.query_for(key, comm))
            }
            _ if self.is_explained(comm, error) => return self.end_creation(key, Err(error)),
            _ => {
                mend_base::reach!("mpi.creation: an error is held until its failure is published");
                if let Some(peer) = self.failed_peer(comm, error) {
                    self.ask_if_unknown(peer);
                }
                Stage::Held(error)
            }
        };
        if let Some(creation) = self.creations.operations_mut().running_mut(key) {
            creation.stage = stage;
        }
        self.creations.keep_active(key);
    }

    /// Ends a creation whose liveness query is answered: with the failure of a member that it concerns, if there is one, and otherwise with
    /// its own error. Returns how many creations ended.
    fn progress_query(&mut self, key: Key, comm: CommKey) -> u32 {
        let Some(creation) = self.creations.operations().running(key) else { return 0 };
        let Stage::Asking(error, query) = &creation.stage else { return 0 };
        if !query.is_answered(&self.peer_reports) {
            self.creations.keep_active(key);
            return 0;
        }
        let (error, group) = (*error, creation.pending.group().cloned());
        let members = self.communicators.get(comm).map(|entry| entry.members());
        let failed = members.and_then(|members| {
            let is_concerned = |rank| group.as_ref().is_none_or(|group| group.contains(&rank));
            let mut ranks = (0u32..).map(Rank).zip(members.iter());
            ranks.find(|&(rank, &peer)| is_concerned(rank) && self.ends.of(peer) == Some(End::Failed))
        });
        let failed = failed.map(|(rank, _)| Error::of(Detail::ProcFailed(rank)));
        let is_revoked = self.communicators.get(comm).is_some_and(|entry| entry.is_revoked());
        let failed = failed.or_else(|| self.failure_in_plan(key));
        // A member that heard of the revocation first may have left.
        let revoked = is_revoked.then_some(Error::of(Detail::Revoked));
        let error = revoked.or(failed).unwrap_or(error);
        self.end_creation(key, Err(error));
        1
    }

    /// Whether the failure that an error names is published here (I2).
    fn is_explained(&self, comm: CommKey, error: Error) -> bool {
        self.failed_peer(comm, error).is_none_or(|peer| self.ends.of(peer) == Some(End::Failed))
    }

    fn failed_peer(&self, comm: CommKey, error: Error) -> Option<mend_base::PeerIndex> {
        match error.detail {
            Detail::ProcFailed(rank) => self.communicators.get(comm)?.members().get(rank.index()).copied(),
            Detail::MemberFailed(peer) => self.peer_reports.find(peer),
            _ => None,
        }
    }

    pub(super) fn end_creation(&mut self, key: Key, result: Result<Option<CommKey>, Error>) {
        self.end_exchange_of_leaders(key, result.is_ok());
        let operations = self.creations.operations_mut();
        let Some(comm) = operations.comm_of(key) else { return };
        let into = operations.running(key).and_then(|creation| creation.into.as_ref().map(UserMemory::share));
        if let (Some(into), Ok(Some(made))) = (into, result) {
            into.write(0, &made.to_bits().to_le_bytes());
        }
        let made = result.ok().flatten();
        let result = match (result, self.communicators.get(comm)) {
            (Err(error), Some(entry)) => Err(entry.named(error)),
            (result, _) => result,
        };
        operations.end(key, (result.map(|_| Status::EMPTY), made));
        if operations.take_failed() {
            self.wake_ups.notify_all();
        }
        self.communicators.end_operation(comm, &mut self.layers);
        self.member_protocols.recheck_early();
        if let Some(made) = made {
            self.spread_failures_before(made);
            self.revoke_if_in_range(made);
        }
    }
}

/// Why this member votes no.
pub(super) fn reason(error: Error) -> Reason {
    match error.detail {
        Detail::ProcFailed(rank) => Reason::Failed(rank),
        Detail::Revoked => Reason::Revoked,
        Detail::PeerLeft(rank) => Reason::Departed(rank),
        _ => Reason::Other,
    }
}

/// The error of a creation that another member refused.
pub(super) fn error(reason: Reason) -> Error {
    Error::of(match reason {
        Reason::Failed(rank) => Detail::ProcFailed(rank),
        Reason::Revoked => Detail::Revoked,
        Reason::Departed(rank) => Detail::PeerLeft(rank),
        Reason::Other => Detail::CreationRefused,
    })
}
