// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Revoking a communicator, agreeing on a flag, and shrinking: the calls by which survivors repair their communicator. They work on
//! communicators with failed members, and all but revocation also on revoked ones (Trap 10).

use super::Engine;
use crate::agreements::{Held, Purpose, Queued};
use crate::communicator::Communicators;
use crate::layers::Layers;
use crate::member_protocols::{Event, Instance, Target};
use crate::{AgreedGroup, CommKey, Detail, Error, Hints, Request};
use mend_base::{Identity, Key, Peer, PeerIndex, Rank};
use mend_comm::Communicator;
use mend_pml::{End, Lookup, Status};
use mend_proto::agreement::{Contribution, Decision, Op};
use mend_proto::ranks::SetHash;
use mend_proto::spread::Item;
use mend_runtime::{ResultKey, Runtime};
use mend_transport::{Btl, Cause, UserMemory};
use std::sync::Arc;

/// The contribution to the agreement that closes a communicator: only that all have contributed matters.
const CLOSING: Contribution =
    Contribution { value: 0, op: Op::And, acknowledged: SetHash(0), uniform: false };

impl<N: Btl, R: Runtime> Engine<N, R> {
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
    /// also if the result is an error.
    pub fn agree(&mut self, comm: CommKey, flag: UserMemory) -> Result<Request, Error> {
        let mut bytes = [0; 4];
        flag.read(0, &mut bytes);
        let value = u64::from(u32::from_le_bytes(bytes));
        self.start_agreement(comm, Purpose::Flag(flag), value, Op::And)
    }

    /// Starts MPIX_Comm_iagree_failed: `into` gets the group of the failed members, the same at all living members (Row AG15). Every failure
    /// that any of them knows is in it.
    pub fn agree_failed(&mut self, comm: CommKey, into: AgreedGroup) -> Result<Request, Error> {
        self.start_agreement(comm, Purpose::Failed(into), 0, Op::And)
    }

    /// Starts MPIX_Comm_ishrink. [`created`](Engine::created) returns the communicator of the survivors; its handle is also written to the
    /// 8 bytes at `into`, when the operation ends.
    pub fn shrink(&mut self, comm: CommKey, into: Option<UserMemory>) -> Result<Request, Error> {
        let parent = self.communicators.valid(comm)?.communicator();
        let (rank, size) = (parent.rank, parent.size());
        let number = self.communicators.allocate_number(size)?;
        let value = u64::from(rank.0) << 32 | u64::from(number);
        self.start_agreement(comm, Purpose::Shrink { number, into }, value, Op::First)
    }

    fn start_agreement(
        &mut self,
        comm: CommKey,
        purpose: Purpose,
        value: u64,
        op: Op,
    ) -> Result<Request, Error> {
        let entry = self.communicators.valid(comm)?;
        let (identity, user) = (entry.communicator().identity, entry.point_to_point());
        let acknowledged = self.layers.pml.acknowledged(user, &self.ends);
        let acknowledged =
            acknowledged.iter().fold(SetHash::default(), |hash, rank| hash.with(u64::from(rank.0)));
        let uniform = entry.properties().hints().agree_uniform;
        let contribution = Contribution { value, op, acknowledged, uniform };
        let key = self.agreements.begin(comm, identity, purpose, contribution)?;
        if let Some(entry) = self.communicators.get_mut(comm) {
            entry.begin_operation();
        }
        self.communicators.add_request(comm);
        self.start_next_agreement(identity);
        self.unconnected_query.begin_wait();
        self.progress_within_a_call();
        Ok(Request::Agreement(key))
    }

    fn start_next_agreement(&mut self, identity: Identity) {
        let Some(contribution) = self.agreements.next_to_start(identity) else { return };
        self.with_instance(identity, |instance, ends, fx| instance.start_agreement(contribution, ends, fx));
    }

    /// Lets this member know something about a communicator.
    pub(super) fn learn(&mut self, identity: Identity, item: Item) {
        self.with_instance(identity, |instance, ends, fx| instance.add(item, ends, fx));
        self.member_protocols.schedule_flush(identity);
        self.apply_member_events();
    }

    /// Calls `event` with the instance of a communicator, made if there is none and the communicator is open.
    pub(super) fn with_instance(
        &mut self,
        identity: Identity,
        event: impl FnOnce(&mut Instance, &mend_pml::Ends, &mut crate::member_protocols::Effects<'_>),
    ) {
        if let Some((instance, mut fx)) = self.member_protocols.instance(identity) {
            return event(instance, &self.ends, &mut fx);
        }
        let Target::Open(me, members) = self.target(identity) else { return };
        let (instance, mut fx) = self.member_protocols.open(identity, me, &members);
        event(instance, &self.ends, &mut fx);
    }

    fn target(&self, identity: Identity) -> Target {
        target(&self.layers.pml, &self.communicators, identity, |creator| {
            self.ends.of(self.peer_reports.find(creator)?)
        })
    }

    /// Messages of the protocols are delivered, their results applied, and what is to be sent leaves. Returns the number of events.
    #[cold]
    pub(super) fn progress_member_protocols(&mut self) -> u32 {
        let delivered = self.deliver_member_messages();
        self.apply_member_events();
        let sent = self.member_protocols.send(&self.ends, &mut self.layers);
        let Layers { net, pml, .. } = &mut self.layers;
        delivered + sent + pml.send_waiting(net)
    }

    /// To be called before the end of a peer is published: everything that the peer has sent is delivered.
    pub(super) fn deliver_member_messages(&mut self) -> u32 {
        let mut delivered = 0;
        while let Some(packet) = self.member_protocols.next_arrival() {
            let Engine { member_protocols, layers, communicators, peer_reports, ends, .. } = self;
            let end_of = |creator| ends.of(peer_reports.find(creator)?);
            let target = |identity| target(&layers.pml, communicators, identity, end_of);
            if !member_protocols.deliver(packet, target, ends) {
                self.peer_reports.on_evidence(packet.peer, Cause::Garbage);
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
                Event::Gone(identity, rank) => self.on_gone(identity, rank),
                Event::Suspected(creator) => {
                    let creator = self.peer_reports.peer_index(creator);
                    self.ask_if_unknown(creator);
                }
            }
        }
    }

    /// The revocation of a communicator takes effect here (design "Revocation").
    fn on_revoked(&mut self, identity: Identity) {
        let Lookup::Open(index) = self.layers.pml.find_communicator(identity) else { return };
        let Some(comm) = self.communicators.with_index(index) else { return };
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
        self.revoke_group_creations(comm);
        self.wake_ups.notify_all();
    }

    /// Another member reports the failure of a member: evidence, on which the runtime decides.
    fn on_failure_reported(&mut self, identity: Identity, rank: Rank) {
        let Some((instance, _)) = self.member_protocols.instance(identity) else { return };
        if let Some(peer) = instance.member(rank) {
            self.ask_if_unknown(peer);
        }
    }

    /// Asks the runtime about a peer whose end is neither declared nor asked about.
    pub(super) fn ask_if_unknown(&mut self, peer: PeerIndex) {
        if self.peer_reports.end_state(peer)
            == (crate::peer_reports::EndState::NotDeclared { query_open: false })
        {
            self.peer_reports.ask(peer, Cause::NoEvidence, &mut self.layers.runtime);
        }
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

    /// Another member has freed the communicator and all its agreements were passed.
    fn on_gone(&mut self, identity: Identity, rank: Rank) {
        if self.agreements.is_closing(identity) {
            self.agreements.take_decided(identity);
            self.on_closed(identity);
        } else if let Some((instance, mut fx)) = self.member_protocols.instance(identity) {
            instance.on_gone(rank, &self.ends, &mut fx);
        }
    }

    /// The communicator was freed: what its protocols still owe to other members goes on. Another member may still ask for the result of
    /// an agreement or a vote that this one has; so all members agree on nothing, once each has freed the communicator and waits for no
    /// vote, and only then forget the results. Called again when a creation over a freed communicator has ended.
    pub(super) fn close_member_protocols(&mut self, identity: Identity) {
        self.creations.forget(identity);
        let Some((instance, mut fx)) = self.member_protocols.instance(identity) else { return };
        if !instance.is_closing() {
            instance.close(&self.ends, &mut fx);
        }
        let is_voting = instance.is_voting() || self.creations.first(identity).is_some();
        if instance.owes_results() && !is_voting && !self.agreements.has_begun_closing(identity) {
            self.agreements.begin_closing(identity, CLOSING);
            self.start_next_agreement(identity);
        }
        self.member_protocols.remove_if_over(identity);
        self.apply_member_events();
    }

    fn on_decided(&mut self, identity: Identity, decision: Decision) {
        let Some(Queued { operation, .. }) = self.agreements.take_decided(identity) else {
            return debug_assert!(false, "a decision without an agreement");
        };
        match operation {
            Some(operation) => self.conclude(operation, decision),
            None => self.on_closed(identity),
        }
        self.start_next_agreement(identity);
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
        let members = self.communicators.get(comm).map(|entry| Arc::clone(entry.members()));
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
                flag.write(0, &(decision.value as u32).to_le_bytes());
                (self.agreed(comm, &decision).map(|()| Status::EMPTY), None)
            }
            Some(Purpose::Failed(into)) => {
                let into = Arc::clone(into);
                let parent =
                    self.communicators.get(comm).map(|entry| Arc::clone(&entry.communicator().group));
                let failed: Vec<Rank> = decision.failed.iter().collect();
                let group = parent.and_then(|parent| parent.include(&failed).ok());
                _ = into.set(Arc::new(group.unwrap_or_default()));
                (Ok(Status::EMPTY), None)
            }
            Some(Purpose::Shrink { number, into }) => {
                let (number, into) = (*number, into.as_ref().map(UserMemory::share));
                let created = self.commit_shrink(comm, number, &decision);
                if let (Some(into), Ok(created)) = (into, created) {
                    into.write(0, &created.to_bits().to_le_bytes());
                }
                (created.map(|_| Status::EMPTY), created.ok())
            }
            None => return,
        };
        self.agreements.end(operation, ended);
        self.communicators.end_operation(comm, &mut self.layers);
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
            return Err(Error::of(Detail::ProcFailed(rank)));
        }
        if decision.departed {
            let members = self.communicators.get(comm).map(|entry| entry.members());
            let left = members.and_then(|members| {
                members.iter().position(|&member| self.ends.of(member) == Some(End::Finalized))
            });
            return Err(Error::of(Detail::PeerLeft(Rank(left.unwrap_or(0) as u32))));
        }
        Ok(())
    }

    /// The communicator of all members but those that the decision names, in the order of their ranks (Row SH3). Its identity is that
    /// which the lowest contributor has proposed. It has the error handler of `comm` (Row SH5).
    fn commit_shrink(&mut self, comm: CommKey, proposed: u32, decision: &Decision) -> Result<CommKey, Error> {
        let entry = self.communicators.get(comm).ok_or(Error::of(Detail::NoSuchCommunicator))?;
        let parent = entry.communicator().clone();
        let properties = entry.properties().inherited(Hints::default());
        let (creator, number) = (Rank((decision.value >> 32) as u32), decision.value as u32);
        let bad = || Error::of(Detail::BadCreation);
        let identity = Identity { creator: parent.peer(creator).ok_or_else(bad)?, number };
        let (rank, group, members) = if decision.failed.is_empty() {
            (parent.rank, Arc::clone(&parent.group), Arc::clone(entry.members()))
        } else {
            let left = |rank: &Rank| !decision.failed.contains(*rank);
            let ranks: Vec<Rank> = (0..parent.size()).map(Rank).filter(left).collect();
            let group = Arc::new(parent.group.include(&ranks).map_err(|_| bad())?);
            let members = ranks.iter().map(|rank| entry.members()[rank.index()]).collect();
            (Rank(parent.rank.0 - decision.failed.below(parent.rank)), group, members)
        };
        // After a failure, a member that has failed since may have used the number: another root may have decided so.
        if creator != parent.rank && decision.failed.is_empty() {
            self.communicators.return_number(&parent, proposed);
        }
        // A communicator of this process alone keeps the identity: a member that has failed may have proposed it.
        let made = Communicator { identity, rank, group };
        let key = self.communicators.enter(made, members, properties, &self.ends, &mut self.layers)?;
        self.member_protocols.deliver_early(identity);
        Ok(key)
    }
}

/// Which communicator of this process has this identity. `end_of`: how a process has ended, if that is published.
fn target<E: Copy + Eq + core::fmt::Debug>(
    pml: &mend_pml::Ob1<E>,
    communicators: &Communicators,
    identity: Identity,
    end_of: impl FnOnce(Peer) -> Option<End>,
) -> Target {
    match pml.find_communicator(identity) {
        Lookup::Open(index) => match communicators.with_index(index).and_then(|comm| communicators.get(comm))
        {
            Some(entry) => Target::Open(entry.communicator().rank, Arc::clone(entry.members())),
            None => Target::Retired { was_revoked: false },
        },
        Lookup::NotCreated => Target::NotCreated(end_of(identity.creator)),
        Lookup::Retired { was_revoked } => Target::Retired { was_revoked },
    }
}
