// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Revoking a communicator, agreeing on a flag, and shrinking: the calls by which survivors repair their communicator. They work on
//! communicators with failed members, and all but revocation also on revoked ones (Trap 10).

use super::Engine;
use super::origins::known_origin;
use crate::agreements::{Begun, Held, Purpose, Queued};
use crate::communicator::{self, Communicators};
use crate::layers::Layers;
use crate::member_protocols::{Creator, Event, Gone, Instance, Target};
use crate::operation_table::Ended;
use crate::origin::{Exchange, Origin};
use crate::{AgreedGroup, CommKey, Detail, Error, Hints, Request};
use mend_base::{Identity, Key, Peer, PeerIndex, Rank};
use mend_comm::{Communicator, Group, GroupError, Remote};
use mend_pml::{End, Ends, Lookup, Status};
use mend_proto::agreement::{Contribution, Decision, Op};
use mend_proto::identity::IdentityAllocator;
use mend_proto::ranks::{Ranks, SetHash};
use mend_proto::spread::Item;
use mend_runtime::{ResultKey, Runtime};
use mend_transport::{Rdma, UserMemory};
use std::sync::Arc;

/// The proposal of a member that has allocated all its numbers.
const NO_NUMBER: u32 = communicator::Contribution::NO_NUMBER;

/// The contribution to the agreement that closes a communicator: only that all have contributed matters.
const CLOSING: Contribution =
    Contribution { value: 0, op: Op::And, acknowledged: SetHash(0), uniform: false };

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// MPIX_Comm_revoke: not collective, and may be repeated (Row RV1). Operations of all members that are not local end with an
    /// error, now or when the news reaches them.
    pub fn revoke(&mut self, comm: CommKey) -> Result<(), Error> {
        let identity = self.communicators.valid(comm)?.communicator().identity;
        if !self.is_revoked(comm)? {
            self.learn(identity, Item::Revoked);
        }
        self.progress_within_a_call();
        Ok(())
    }

    /// MPIX_Comm_is_revoked: local.
    pub fn is_revoked(&self, comm: CommKey) -> Result<bool, Error> {
        Ok(self.communicators.valid(comm)?.is_revoked())
    }

    /// Starts MPIX_Comm_iagree: the 4 bytes at `flag` get the bitwise AND over the contributions of at least all living members (Row AG1),
    /// also if the result is an error. On an intercommunicator: of the members of the remote group (Row AG9).
    pub fn agree(&mut self, comm: CommKey, flag: UserMemory) -> Result<Request, Error> {
        if let Some(request) = self.agree_by_schedule(comm, &flag)? {
            return Ok(request);
        }
        let mut bytes = [0; 4];
        flag.read(0, &mut bytes);
        let remote = self.communicators.valid(comm)?.communicator().remote.as_ref();
        let value = flags(u32::from_le_bytes(bytes), remote);
        self.start_agreement(comm, Purpose::Flag(flag), value, Op::And)
    }

    /// Starts MPIX_Comm_iagree_failed: `into` gets the group of the failed members, the same at all living members (Row AG15). Every failure
    /// that any of them knows is in it.
    pub fn agree_failed(&mut self, comm: CommKey, into: AgreedGroup) -> Result<Request, Error> {
        match self.agree_failed_by_schedule(comm, &into)? {
            Some(request) => Ok(request),
            None => self.start_agreement(comm, Purpose::Failed(into), 0, Op::And),
        }
    }

    /// Starts MPIX_Comm_ishrink. [`created`](Engine::created) returns the communicator of the survivors; its handle is also written to the
    /// 8 bytes at `into`, when the operation ends.
    pub fn shrink(&mut self, comm: CommKey, into: Option<UserMemory>) -> Result<Request, Error> {
        if let Some(request) = self.shrink_by_schedule(comm, into.as_ref())? {
            return Ok(request);
        }
        let parent = self.communicators.valid(comm)?.communicator().clone();
        let (rank, size) = (parent.rank_in_union(), parent.everyone().size());
        // Without a number this member takes part all the same: the others wait for it.
        let number = self.communicators.allocate_number(size).unwrap_or(NO_NUMBER);
        let value = u64::from(rank.0) << 32 | u64::from(number);
        let begun = self.start_agreement(comm, Purpose::Shrink { number, into }, value, Op::First);
        begun.inspect_err(|_| self.communicators.return_number(&parent, number))
    }

    fn start_agreement(
        &mut self,
        comm: CommKey,
        purpose: Purpose,
        value: u64,
        op: Op,
    ) -> Result<Request, Error> {
        let entry = self.communicators.valid(comm)?;
        let (identity, counting) = (entry.communicator().identity, entry.acknowledging());
        let acknowledged = self.layers.pml.acknowledged(counting, &self.ends);
        let acknowledged =
            acknowledged.iter().fold(SetHash::default(), |hash, rank| hash.with(u64::from(rank.0)));
        let uniform = entry.properties().hints().agree_uniform;
        let contribution = Contribution { value, op, acknowledged, uniform };
        let Begun { operation, answer } = {
            let communicators = self.communicators.len();
            self.agreements.begin((comm, identity), communicators, purpose, contribution)?
        };
        if let Some(entry) = self.communicators.get_mut(comm) {
            entry.begin_operation();
        }
        self.communicators.add_request(comm);
        match answer {
            Some(cycle) => self.end_crossed(operation, &cycle, true),
            None => self.start_next_agreement(identity),
        }
        self.unconnected_query.begin_wait();
        if !self.heartbeats.decides() {
            // Before the transports are polled: the other members wait for what this one sends.
            self.progress_member_protocols();
        }
        self.progress_after_start();
        Ok(Request::Agreement(operation))
    }

    fn start_next_agreement(&mut self, identity: Identity) {
        let Some((contribution, is_closing)) = self.agreements.next_to_start(identity) else { return };
        self.with_instance(identity, |instance, ends, fx| match is_closing {
            true => instance.start_closing(contribution, ends, fx),
            false => instance.start_agreement(contribution, ends, fx),
        });
    }

    /// Lets this member know something about a communicator.
    pub(super) fn learn(&mut self, identity: Identity, item: Item) {
        if let (Target::Open { is_freed: true, .. }, None) =
            (self.target(identity), self.member_protocols.instance(identity))
        {
            // To the others this member is absent, or will be when they ask it; its operations that still run are here.
            if item == Item::Revoked {
                self.on_revoked(identity);
            }
            return self.member_protocols.schedule_flush(identity);
        }
        self.with_instance(identity, |instance, ends, fx| instance.add(item, ends, fx));
        self.member_protocols.schedule_flush(identity);
        self.apply_member_events();
    }

    /// The failure of a process is published: a communicator with it may have been revoked by one that has freed it, and all whom that one
    /// has told may be dead. The other members meet, as each has a failure to tell. A communicator that is not decided yet is looked at when
    /// the program gets it.
    pub(super) fn spread_failure(&mut self, failed: PeerIndex) {
        let hidden: Vec<Identity> =
            self.creations.hidden().filter_map(|comm| self.identity_of(comm)).collect();
        let of_failed = self.communicators.with_member(failed).into_iter();
        for identity in of_failed.filter(|identity| !hidden.contains(identity)) {
            self.spread_failures_over(identity);
        }
    }

    /// The program gets a communicator: failures of members may be known.
    pub(super) fn spread_failures_before(&mut self, comm: CommKey) {
        let Some(entry) = self.communicators.get(comm) else { return };
        if self.ends.failed().iter().any(|failed| entry.members().contains(failed)) {
            let identity = entry.communicator().identity;
            self.spread_failures_over(identity);
        }
    }

    fn spread_failures_over(&mut self, identity: Identity) {
        self.with_instance(identity, |instance, ends, fx| instance.spread_failures(ends, fx));
        self.member_protocols.schedule_flush(identity);
    }

    /// Calls `event` with the instance of a communicator, made if there is none and the communicator is open.
    pub(super) fn with_instance(
        &mut self,
        identity: Identity,
        event: impl FnOnce(&mut Instance, &Ends, &mut crate::member_protocols::Effects<'_>),
    ) {
        if let Some((instance, mut fx)) = self.member_protocols.instance(identity) {
            return event(instance, &self.ends, &mut fx);
        }
        let Target::Open { me, members, is_freed, is_revoked, origin } = self.target(identity) else {
            return;
        };
        _ = self.member_protocols.open(identity, me, &members, origin);
        if is_freed {
            self.member_protocols.close(identity, !is_revoked, &self.ends);
        }
        if let Some((instance, mut fx)) = self.member_protocols.instance(identity) {
            event(instance, &self.ends, &mut fx);
        }
    }

    /// The communicator with this identity, if it exists here; its handle may have been freed.
    pub(super) fn open_communicator(&self, identity: Identity) -> Option<CommKey> {
        let Lookup::Open(index) = self.layers.pml.find_communicator(identity) else { return None };
        self.communicators.with_identity(index, identity)
    }

    fn target(&self, identity: Identity) -> Target {
        let Engine { layers, communicators, peer_reports, ends, .. } = self;
        target(&layers.pml, communicators, ends, identity, |creator| {
            creator_of(creator, layers.runtime.membership().peer, peer_reports.find(creator), ends)
        })
    }

    /// Messages of the protocols are delivered, what is to be sent leaves, and results are applied. Returns the number of events.
    #[cold]
    pub(super) fn progress_member_protocols(&mut self) -> u32 {
        let delivered = self.deliver_member_messages();
        // Before the results are applied: to make a communicator, for example, takes longer than to decide on it.
        let mut sent = self.member_protocols.send(&self.ends, &mut self.layers);
        self.apply_member_events();
        self.end_uses();
        self.progress_searches();
        self.refuse_lost_communicators();
        sent += self.member_protocols.send(&self.ends, &mut self.layers);
        let Layers { net, pml, .. } = &mut self.layers;
        delivered + sent + pml.send_waiting(net)
    }

    /// Freed communicators whose last operation has ended need no news any more.
    fn end_uses(&mut self) {
        for identity in self.member_protocols.in_use() {
            if !matches!(self.target(identity), Target::Open { .. }) {
                mend_base::reach!("mpi.repair: the last operation on a freed communicator has ended");
                self.member_protocols.end_use(identity, &self.ends);
            }
        }
    }

    /// To be called before the end of a peer is published: everything that the peer has sent is delivered.
    pub(super) fn deliver_member_messages(&mut self) -> u32 {
        let mut delivered = 0;
        while let Some(arrival) = self.member_protocols.next_arrival() {
            let Engine { member_protocols, layers, communicators, peer_reports, ends, .. } = self;
            let me = layers.runtime.membership().peer;
            let known = |creator| creator_of(creator, me, peer_reports.find(creator), ends);
            let target = |identity| target(&layers.pml, communicators, ends, identity, known);
            let peer = arrival.peer;
            if let Err(cause) = member_protocols.deliver(arrival, target, ends) {
                self.peer_reports.on_evidence(peer, cause);
            }
            delivered += 1;
        }
        delivered
    }

    /// Applies what the protocols have decided or learned.
    pub(super) fn apply_member_events(&mut self) {
        while let Some(event) = self.member_protocols.next_event() {
            match event {
                Event::Decided(identity, decision) => self.on_decided(identity, decision),
                Event::Voted(identity, outcome) => self.on_voted(identity, outcome),
                Event::VotedOnCreation(identity, result) => self.on_voted_on_creation(identity, result),
                Event::Learned(identity, Item::Revoked) => self.on_revoked(identity),
                Event::Learned(identity, Item::Failed(rank)) => self.on_failure_reported(identity, rank),
                Event::RefusedAsRevoked(identity) => self.learn(identity, Item::Revoked),
                Event::Recall(key) => self.layers.runtime.recall_result(key),
                Event::OwesResults(identity) => self.close_member_protocols(identity),
                Event::Needed(peer) => self.peer_reports.need(peer, &mut self.layers.runtime),
                Event::Suspected(creator) => {
                    let creator = self.peer_reports.peer_index(creator);
                    self.ask_if_unknown(creator);
                }
            }
        }
    }

    /// The revocation of a communicator takes effect here (design "Revocation").
    fn on_revoked(&mut self, identity: Identity) {
        let Some(comm) = self.open_communicator(identity) else { return };
        let Some(entry) = self.communicators.get_mut(comm) else { return };
        if entry.is_revoked() {
            return;
        }
        mend_base::reach!("mpi.repair: revoked");
        entry.set_revoked();
        let (user, collective) = (entry.point_to_point(), entry.collective());
        self.layers.pml.revoke(user);
        self.layers.pml.revoke(collective);
        let (collectives, mut parts) = self.collectives_and_parts();
        collectives.revoke(comm, &mut parts);
        self.with_instance(identity, |instance, ends, fx| instance.on_revoked(ends, fx));
        // A freed one needs no more news.
        self.member_protocols.end_use(identity, &self.ends);
        self.revoke_group_creations(comm);
        self.member_protocols.recheck_early();
        self.wake_ups.notify_all();
    }

    /// Another member reports the failure of a member: evidence, on which the runtime decides.
    fn on_failure_reported(&mut self, identity: Identity, rank: Rank) {
        let Some((instance, _)) = self.member_protocols.instance(identity) else { return };
        match instance.member(rank) {
            // A member declares nobody before the lease of that one is over.
            Some(peer) if self.heartbeats.decides() => self.declare_failed(peer),
            Some(peer) => self.ask_if_unknown(peer),
            None => {}
        }
    }

    /// Asks the runtime about a peer of which another member knows that it has failed, if its end is not declared here.
    pub(super) fn ask_if_unknown(&mut self, peer: PeerIndex) {
        self.peer_reports.ask_about_failure(peer, &mut self.layers.runtime);
    }

    /// The node daemon has answered: what a member that has left MPI has left with it. An answer that is not waited for any more is
    /// ignored by the protocol.
    pub(super) fn on_recalled(&mut self, key: ResultKey, left: Option<&[u8]>) {
        mend_base::reach!("mpi.repair: a result was recalled");
        self.with_instance(key.identity, |instance, ends, fx| instance.on_recalled(key, left, ends, fx));
        self.apply_member_events();
    }

    /// MPI_Finalize: what other members may still ask this one for is left with the node daemon, before they are notified that it left.
    pub(super) fn leave_results(&mut self) {
        for (key, result) in self.member_protocols.results_to_leave() {
            self.layers.runtime.leave_result(key, &result);
        }
        self.member_protocols.forget_all();
    }

    /// The communicator was freed: what its protocols still owe to other members goes on. Another member may still ask for the result of
    /// an agreement or a vote that this one has; so all members agree on nothing, once each has freed the communicator and waits for no
    /// vote, and only then forget the results. Called again when a creation over a freed communicator has ended.
    pub(super) fn close_member_protocols(&mut self, identity: Identity) {
        self.creations.forget(identity);
        if self.creations.first(identity).is_some() {
            // Its exchange may still run here while other members vote already: to them this member is not gone.
            self.with_instance(identity, |instance, ends, fx| instance.expect_vote(ends, fx));
        }
        let in_use = matches!(self.target(identity), Target::Open { is_revoked: false, .. });
        let Some((instance, _)) = self.member_protocols.instance(identity) else { return };
        if !instance.is_closing() {
            self.member_protocols.close(identity, in_use, &self.ends);
        }
        let Some((instance, _)) = self.member_protocols.instance(identity) else { return };
        let is_voting = instance.is_voting() || self.creations.first(identity).is_some();
        if instance.owes_results() && !is_voting && !self.agreements.has_begun_closing(identity) {
            self.agreements.begin_closing(identity, CLOSING);
            self.start_next_agreement(identity);
        }
        self.member_protocols.remove_if_over(identity);
        self.apply_member_events();
    }

    fn on_decided(&mut self, identity: Identity, decision: Decision) {
        let Some(Queued { operation, is_absent, .. }) = self.agreements.take_decided(identity) else {
            return debug_assert!(false, "a decision without an agreement");
        };
        let cycle = decision.crossed.clone();
        match (operation, &cycle) {
            (Some(operation), Some(cycle)) => self.end_crossed(operation, cycle, decision.failed.is_empty()),
            (Some(operation), None) => self.conclude(operation, decision),
            (None, Some(cycle)) if is_absent => self.agreements.store_answer(identity, cycle.clone()),
            (None, None) if is_absent => {
                debug_assert!(false, "a contribution in absentia makes its agreement crossed")
            }
            (None, _) => self.on_closed(identity),
        }
        // Before a contribution in absentia, since that may be about this one.
        self.start_next_agreement(identity);
        if let Some(cycle) = cycle {
            mend_base::reach!("mpi.crossing: a decision names a cycle");
            self.on_crossed(&cycle);
        }
        self.repeat_absences();
    }

    /// All members have freed the communicator, and so have passed all its agreements and votes.
    fn on_closed(&mut self, identity: Identity) {
        if let Some((instance, _)) = self.member_protocols.instance(identity) {
            instance.forget_results();
        }
        self.agreements.forget(identity);
        self.member_protocols.remove_if_over(identity);
    }

    /// Ends an operation with its decision, or holds it until each failure that it names is published: no call returns an error that
    /// MPIX_Comm_get_failed does not explain (I2, Row AG5).
    fn conclude(&mut self, operation: Key, decision: Decision) {
        let Some(comm) = self.agreements.operations().comm_of(operation) else { return };
        let has_failed = !decision.failed.is_empty();
        let members =
            self.communicators.get(comm).filter(|_| has_failed).map(|entry| Arc::clone(entry.members()));
        let mut is_published = true;
        for peer in decision.failed.iter().filter_map(|rank| members.as_ref()?.get(rank.index()).copied()) {
            if self.ends.of(peer) != Some(End::Failed) {
                is_published = false;
                self.ask_if_unknown(peer);
            }
        }
        if !is_published {
            mend_base::reach!("mpi.repair: a decision is held until its failures are published");
            return self.agreements.hold(operation, decision);
        }
        let ended = match self.agreements.operations().running(operation) {
            Some(Purpose::Flag(flag)) => {
                let entry = self.communicators.get(comm);
                let remote = entry.and_then(|entry| entry.communicator().remote.as_ref());
                flag.write(0, &flag_for_us(decision.value, remote).to_le_bytes());
                (self.agreed(comm, &decision).map(|()| Status::EMPTY), None)
            }
            Some(Purpose::Failed(into)) => {
                let into = Arc::clone(into);
                let parent =
                    self.communicators.get(comm).map(|entry| Arc::clone(entry.communicator().everyone()));
                let failed: Vec<Rank> = decision.failed.iter().collect();
                let group = parent.and_then(|parent| parent.include(&failed).ok());
                _ = into.set(Arc::new(group.unwrap_or_default()));
                (Ok(Status::EMPTY), None)
            }
            Some(Purpose::Shrink { number, into }) => {
                let (number, into) = (*number, into.as_ref().map(UserMemory::share));
                let created = self.commit_shrink(comm, number, &decision);
                if let (Some(into), Ok(Some(created))) = (into, created) {
                    into.write(0, &created.to_bits().to_le_bytes());
                }
                (created.map(|_| Status::EMPTY), created.ok().flatten())
            }
            None => return,
        };
        self.end_agreement(comm, operation, ended);
    }

    /// Ends an operation on `comm`.
    pub(super) fn end_agreement(&mut self, comm: CommKey, operation: Key, ended: Ended) {
        self.agreements.end(operation, ended);
        if self.agreements.operations_mut().take_failed() {
            self.wake_ups.notify_all();
        }
        self.communicators.end_operation(comm, &mut self.layers);
        self.member_protocols.recheck_early();
    }

    /// The decisions that were held and whose failures are published now.
    pub(super) fn release_held_decisions(&mut self) {
        for Held { operation, decision } in self.agreements.take_held() {
            self.conclude(operation, decision);
        }
    }

    /// The result of an agreement on a flag: the same at all members (Row AG2 to AG4).
    fn agreed(&self, comm: CommKey, decision: &Decision) -> Result<(), Error> {
        if !decision.acknowledged
            && let Some(rank) = decision.failed.iter().next()
        {
            let error = Error::of(Detail::ProcFailed(rank));
            return Err(self.communicators.get(comm).map_or(error, |entry| entry.named(error)));
        }
        if decision.departed {
            let members = self.communicators.get(comm).map(|entry| entry.members());
            let left = members.and_then(|members| {
                members.iter().position(|&member| self.ends.of(member) == Some(End::Finalized))
            });
            // One that has freed the communicator, or whose end is not published here yet, is not named.
            let rank = left.map(|rank| Rank(rank as u32));
            let error = Error::of(rank.map_or(Detail::SomeMemberLeft, Detail::PeerLeft));
            return Err(self.communicators.get(comm).map_or(error, |entry| entry.named(error)));
        }
        Ok(())
    }

    /// The communicator of all members but those that the decision names, in the order of their ranks (Row SH3). Its identity is that
    /// which the lowest contributor has proposed. It has the error handler of `comm` (Row SH5). `None`: an intercommunicator of which one
    /// group has failed (Row SH10).
    fn commit_shrink(
        &mut self,
        comm: CommKey,
        proposed: u32,
        decision: &Decision,
    ) -> Result<Option<CommKey>, Error> {
        let entry = self.communicators.get(comm).ok_or(Error::of(Detail::NoSuchCommunicator))?;
        let (original, properties) =
            (entry.communicator().clone(), entry.properties().inherited(Hints::default()));
        let (creator, number) = (Rank((decision.value >> 32) as u32), decision.value as u32);
        let bad = || Error::of(Detail::BadCreation);
        let identity = Identity { creator: original.everyone().peer(creator).ok_or_else(bad)?, number };
        let (made, members) = if decision.failed.is_empty() {
            (Some(Communicator { identity, ..original.clone() }), Arc::clone(entry.members()))
        } else {
            let left = |rank: &Rank| !decision.failed.contains(*rank);
            let ranks = (0..original.everyone().size()).map(Rank).filter(left);
            let members = ranks.map(|rank| entry.members()[rank.index()]).collect();
            (without(&original, &decision.failed, identity).map_err(|_| bad())?, members)
        };
        // Aggregates go to lower ranks alone, so every root decides what it has proposed itself (`Op::First`). A member that was no such
        // root knows that nobody has used its number, whoever has failed. So no shrink leaves a gap.
        if creator != original.rank_in_union() {
            self.communicators.return_number(&original, proposed);
        }
        // A member that has freed the communicator contributes no number either.
        if number < IdentityAllocator::FIRST {
            let is_own = creator == original.rank_in_union();
            return Err(Error::of(if is_own {
                Detail::IdentitiesExhausted
            } else {
                Detail::CreationRefused
            }));
        }
        // Another member has proposed the identity, and is not trusted.
        if self.layers.pml.is_used(identity) {
            return Err(bad());
        }
        let Some(made) = made else {
            mend_base::reach!("mpi.repair: one group of an intercommunicator has failed");
            return Ok(None);
        };
        // A communicator of this process alone keeps the identity: a member that has failed may have proposed it.
        let key = match self.agreements.reserve(self.communicators.len() + 1) {
            true => self.communicators.enter(made, members, properties, &self.ends, &mut self.layers),
            false => Err(Error::of(Detail::NoMemory)),
        };
        if key.is_err() {
            // The other members have it: their messages are refused from now on.
            self.layers.pml.never_open(identity);
        }
        if let Some(entry) = key.ok().and_then(|key| self.communicators.get_mut(key)) {
            let origin = Origin { parent: original.identity, exchange: Exchange::Shrink };
            entry.set_origin(decision.departed.then_some(origin));
        }
        self.member_protocols.deliver_early(identity);
        key.map(Some)
    }
}

/// The communicator of the members that are not in `failed`, which has their ranks in the union; `None`: a group would have no member.
fn without(
    original: &Communicator,
    failed: &Ranks,
    identity: Identity,
) -> Result<Option<Communicator>, GroupError> {
    let left = |from: Rank, group: &Group| {
        let ranks: Vec<Rank> =
            (0..group.size()).filter(|rank| !failed.contains(Rank(from.0 + rank))).map(Rank).collect();
        group.include(&ranks).map(Arc::new)
    };
    let Some(remote) = &original.remote else {
        let (group, rank) = (left(Rank(0), &original.group)?, original.rank);
        let rank = Rank(rank.0 - failed.below(rank));
        return Ok(Some(Communicator { identity, rank, group, remote: None }));
    };
    let me = original.rank_in_union();
    let (local_from, remote_from) = match remote.is_local_first() {
        true => (Rank(0), Rank(original.size())),
        false => (Rank(remote.group().size()), Rank(0)),
    };
    let (group, other) = (left(local_from, &original.group)?, left(remote_from, remote.group())?);
    if other.is_empty() {
        return Ok(None);
    }
    let rank = Rank(original.rank.0 - (failed.below(me) - failed.below(local_from)));
    let remote = Remote::in_order(&group, other, remote.is_local_first())?;
    Ok(Some(Communicator { identity, rank, group, remote: Some(remote) }))
}

/// The contribution of a flag to an agreement. On an intercommunicator the flags of the two groups are apart: those of the first group of
/// the union in the lower half.
fn flags(flag: u32, remote: Option<&Remote>) -> u64 {
    match remote.map(Remote::is_local_first) {
        None => u64::from(flag),
        Some(true) => u64::from(flag) | u64::from(u32::MAX) << 32,
        Some(false) => u64::from(flag) << 32 | u64::from(u32::MAX),
    }
}

/// The flag that this process gets of a decided value. If no member of the remote group has contributed, all its bits are set.
fn flag_for_us(value: u64, remote: Option<&Remote>) -> u32 {
    match remote.map(Remote::is_local_first) {
        None | Some(false) => value as u32,
        Some(true) => (value >> 32) as u32,
    }
}

/// What the process `me` knows of the process that creates a communicator, and that has this index.
fn creator_of(creator: Peer, me: Peer, index: Option<PeerIndex>, ends: &Ends) -> Creator {
    match index.map(|index| ends.of(index).and_then(Gone::of)) {
        None => Creator::Nobody,
        Some(_) if creator == me => Creator::Myself,
        Some(None) => Creator::Open,
        Some(Some(how)) => Creator::Gone(how),
    }
}

/// Which communicator of this process has this identity. `known`: what is known of a process.
fn target<E: Copy + Eq + core::fmt::Debug>(
    pml: &mend_pml::Ob1<E>,
    communicators: &Communicators,
    ends: &Ends,
    identity: Identity,
    known: impl Fn(Peer) -> Creator,
) -> Target {
    match pml.find_communicator(identity) {
        Lookup::Open(index) => {
            let comm = communicators.with_identity(index, identity);
            match comm.and_then(|comm| communicators.get(comm)) {
                Some(entry) => Target::Open {
                    me: entry.communicator().rank_in_union(),
                    members: Arc::clone(entry.members()),
                    is_freed: entry.is_freed(),
                    is_revoked: entry.is_revoked(),
                    origin: known_origin(entry, ends),
                },
                None => Target::Retired { was_revoked: false },
            }
        }
        Lookup::NotCreated => Target::NotCreated(known(identity.creator)),
        Lookup::Retired { was_revoked } => Target::Retired { was_revoked },
    }
}

#[cfg(test)]
mod tests {
    use super::{flag_for_us, flags, without};
    use crate::scripted::{ScriptedJob, peer};
    use crate::{Detail, Error};
    use mend_base::{Identity, Instant, Job, Peer, Rank};
    use mend_comm::{Communicator, Group, Remote};
    use mend_proto::agreement::Decision;
    use mend_proto::ranks::Ranks;
    use mend_runtime::Notice;
    use std::sync::Arc;

    const IDENTITY: Identity = Identity { creator: Peer(7), number: 20 };

    fn group(numbers: &[u32]) -> Arc<Group> {
        Arc::new(Group::new(numbers.iter().map(|&number| Peer::new(Job(1), number))).unwrap())
    }

    fn inter(rank: u32, local: &[u32], remote: &[u32]) -> Communicator {
        let (group, remote) = (group(local), Remote::new(&group(local), group(remote)).unwrap());
        Communicator { identity: IDENTITY, rank: Rank(rank), group, remote: Some(remote) }
    }

    fn numbers(group: &Group) -> Vec<u32> {
        group.iter().map(Peer::number).collect()
    }

    // Row SH10
    #[test]
    fn a_shrunken_intercommunicator_keeps_both_groups_in_order_without_the_failed() {
        let (low, high) = (inter(2, &[0, 2, 4], &[5, 3, 1]), inter(1, &[5, 3, 1], &[0, 2, 4]));
        // In the union 0 2 4 5 3 1: the processes 2 and 5.
        let failed: Ranks = [Rank(1), Rank(3)].into_iter().collect();
        let sides = [(low, [0, 4], [3, 1], Rank(1)), (high, [3, 1], [0, 4], Rank(0))];
        for (side, local, remote, rank) in sides {
            let made = without(&side, &failed, IDENTITY).unwrap().unwrap();
            assert_eq!((numbers(&made.group), numbers(made.partners())), (local.to_vec(), remote.to_vec()));
            assert_eq!(made.rank, rank);
            assert_eq!(numbers(made.everyone()), [0, 4, 3, 1]);
        }
    }

    // Row SH10
    #[test]
    fn an_intercommunicator_without_one_of_its_groups_is_none() {
        let side = inter(0, &[1, 3], &[0, 2]);
        let failed: Ranks = [Rank(0), Rank(1)].into_iter().collect();
        assert!(without(&side, &failed, IDENTITY).unwrap().is_none());
        let failed: Ranks = [Rank(0), Rank(3)].into_iter().collect();
        assert!(without(&side, &failed, IDENTITY).unwrap().is_some());
    }

    // Row AG9
    #[test]
    fn each_group_gets_the_and_of_the_flags_of_the_other_one() {
        let (low, high) = (inter(0, &[0, 2], &[1]), inter(0, &[1], &[0, 2]));
        let (low, high) = (low.remote.as_ref(), high.remote.as_ref());
        let decided = flags(0b1110, low) & flags(0b0111, low) & flags(u32::MAX, high);
        assert_eq!((flag_for_us(decided, low), flag_for_us(decided, high)), (u32::MAX, 0b0110));
        assert_eq!(flag_for_us(flags(5, None) & flags(6, None), None), 4);
    }

    // Row AG4
    #[test]
    fn an_agreement_without_a_member_that_has_left_names_it_once_that_is_published_and_nobody_before() {
        let job = ScriptedJob::default();
        let mut process = job.process(0, 3);
        let decision = Decision {
            value: 0,
            failed: Ranks::default(),
            acknowledged: true,
            departed: true,
            crossed: None,
        };
        let world = process.comm_world();
        assert_eq!(process.agreed(world, &decision), Err(Error::of(Detail::SomeMemberLeft)));
        job.notify(0, Notice::Finalized(peer(2)));
        process.progress(Instant(1));
        assert_eq!(process.agreed(world, &decision), Err(Error::of(Detail::PeerLeft(Rank(2)))));
    }
}
