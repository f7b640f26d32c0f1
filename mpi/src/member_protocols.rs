// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The protocols among the members of communicators (`mend_proto`): agreements, votes, and news of revocations and failures. This part
//! carries their messages, and hands their results to the engine as [`Event`]s.
//!
//! ```text
//!   transports ─▶ inbox ─▶ Instance of the communicator ─▶ packets ─▶ PML's control queue
//!                   │        ▲ calls of the engine     └─▶ events  ─▶ engine
//!                   └─▶ early messages, until the communicator is created here
//! ```
//!
//! An [`Instance`] exists from the first use of a protocol of its communicator on, and stays after the communicator is freed for as
//! long as another member may need an answer of this one (Trap 14).
//!
//! # Members that cannot reach each other
//!
//! The protocols are proven for channels on which each message arrives unless its sender or its receiver has failed. Two processes that
//! cannot connect, or not any more, are both alive, so neither may count as failed or departed: others would go on with it, and members
//! would decide differently. So the protocols do not learn that a peer is unreachable. They run as long as no message between the two is
//! needed. The first message that is lost, or may be, has the node daemon end one of the two ([`Event::Needed`]): from then on that member
//! has failed for everybody, and the messages that were lost are a suffix of those on a channel to or from a failed member, which the
//! proofs allow. A lost message is never followed by one that arrives, since an unreachable peer is never connected again, and since what
//! follows a message for which there is no memory is discarded. If both ask at once, the node daemon still ends one only. The sender of a
//! lost message alone must ask: a receiver that waits for it is notified of the end of the sender, or is ended. (To relay the messages through another process would spare the life of a process
//! without memory, but the order of messages on two ways, and the end of the relay, would have to be proven.) A peer that leaves MPI has
//! departed, whether it could be reached or not.
//!
//! A part of the engine: it owns the instances and all messages on their way to or from them. It calls the PML alone.

mod early;
mod instance;
pub(crate) mod left_result;
mod packet;
mod searches;

use crate::layers::Layers;
use crate::origin::Origin;
use early::EarlyMessages;
use instance::Scratch;
pub(crate) use instance::{Effects, Event, Gone, Instance};
use mend_base::{ContextKind, Identity, Peer, PeerIndex, Rank};
use mend_pml::{ControlError, End, Ends, Places, Protocol};
use mend_proto::identity::{ContextName, RetiredNames};
use mend_proto::spread;
use mend_proto::vote::{self, Ballot, Reason};
use mend_runtime::ResultKey;
use mend_transport::{Cause, Rdma};
pub(crate) use packet::{AM_ID, Arrival, Packet};
use packet::{About, Message};
use searches::CycleSearches;
pub(crate) use searches::{Absence, Place};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The protocols of all communicators.
#[derive(Default, Debug)]
pub(crate) struct MemberProtocols {
    instances: BTreeMap<Identity, Instance>,
    /// Messages that have arrived and are not handed to their instance yet.
    inbox: VecDeque<Arrival>,
    /// Messages about communicators that are not created here yet.
    early: EarlyMessages,
    /// The peers of which a message was discarded for lack of memory. They become unreachable, and what they sent later is discarded too.
    discarded: BTreeSet<PeerIndex>,
    /// Messages that leave with the next step.
    packets: VecDeque<Packet>,
    events: VecDeque<Event>,
    scratch: Scratch,
    /// Communicators with news that has not left for the neighbours.
    unflushed: BTreeSet<Identity>,
    /// Freed communicators with operations that must hear of a revocation, and with an instance.
    in_use: BTreeSet<Identity>,
    /// Whether this member will ever have the communicators of early messages is to be looked at.
    rechecks_early: bool,
    /// Communicators that this member has refused to create in a group, because their parent is revoked.
    refused_as_revoked: RetiredNames,
    /// The peers to which a message was given to the PML.
    contacted: BTreeSet<PeerIndex>,
    /// For agreements that wait for each other.
    cycle_searches: CycleSearches,
    /// As which the control queue of the PML knows these messages.
    control: Option<Protocol>,
}

/// Which communicator a message is for.
pub(crate) enum Target {
    /// It is open here, or was freed and operations on it go on.
    Open {
        me: Rank,
        members: Arc<[PeerIndex]>,
        is_freed: bool,
        is_revoked: bool,
        /// If it may exist at some members only.
        origin: Option<Origin>,
    },
    /// It is not created here yet. What is known of the process that creates it.
    NotCreated(Creator),
    /// It was freed here, or its creation failed.
    Retired {
        /// It was revoked when it was freed.
        was_revoked: bool,
    },
}

/// What this process knows of the process by which a communicator that is not created here is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Creator {
    /// No process has this name: no correct member names such a communicator.
    Nobody,
    /// It is this process itself.
    Myself,
    /// It has neither failed nor left, as far as it is published here.
    Open,
    /// It is published here that it is gone.
    Gone(Gone),
}

/// The rank, in a communicator that is decided by its members alone, of the process that creates it.
const CREATOR: Rank = Rank(0);

/// How many messages may wait for one peer in the control queue; others wait here.
const WAITING_MAX: u32 = 64;

impl MemberProtocols {
    // Hot: per progress.
    /// Whether nothing has arrived, waits or is to be told.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.inbox.is_empty()
            && self.packets.is_empty()
            && self.events.is_empty()
            && self.unflushed.is_empty()
            && self.in_use.is_empty()
            && !self.rechecks_early
            && self.cycle_searches.is_idle()
    }

    /// The number of messages of this process that wait to leave, and of communicators with news that does.
    pub fn unsent(&self) -> usize {
        self.packets.len() + self.unflushed.len()
    }

    /// The number of communicators whose protocols are in use, or are still owed to other members.
    pub fn len(&self) -> usize {
        self.instances.len()
    }

    /// Whether no message of this process waits to leave.
    pub fn has_sent_all(&self) -> bool {
        self.unsent() == 0
    }

    /// A message has arrived. `false`: garbage.
    pub fn on_message(&mut self, from: PeerIndex, header: &[u8]) -> bool {
        let Some(arrival) = Arrival::read(from, header) else { return false };
        self.inbox.push_back(arrival);
        true
    }

    /// Another member has refused a message because the communicator is revoked there: as good as the news of it.
    #[cold]
    pub fn on_refused_as_revoked(&mut self, identity: Identity) {
        self.events.push_back(Event::RefusedAsRevoked(identity));
    }

    /// The next message that has arrived.
    pub fn next_arrival(&mut self) -> Option<Arrival> {
        self.inbox.pop_front()
    }

    /// Answers a message about a communicator whose protocols are over here, though its instance may be there. Returns whether it did.
    fn answers_at_once(
        &mut self,
        from: PeerIndex,
        about: About,
        message: &Message,
        target: &impl Fn(Identity) -> Target,
    ) -> bool {
        let instance = self.instances.get(&about.identity);
        let is_news = matches!(message, Message::Spread(_));
        if !is_news && instance.is_some_and(Instance::is_closed) {
            self.answer_for_retired(from, about, message, false);
            return true;
        }
        if !is_news || !instance.is_none_or(Instance::takes_no_news) {
            return false;
        }
        // The part may have been over before: to those whom it told so this member is absent, and they answer no second one.
        match target(about.identity) {
            Target::Open { is_freed: true, is_revoked: was_revoked @ true, .. }
            // The instance is there for its results alone.
            | Target::Retired { was_revoked } => {
                self.answer_for_retired(from, about, message, was_revoked);
            }
            Target::Open { .. } | Target::NotCreated(_) => return false,
        }
        true
    }

    /// Hands a message to its instance. `Err`: evidence against its sender: no correct member sends it, or there is no memory for it.
    pub fn deliver(
        &mut self,
        arrival: Arrival,
        target: impl Fn(Identity) -> Target,
        ends: &Ends,
    ) -> Result<(), Cause> {
        let Arrival { peer, about, .. } = arrival;
        if self.discarded.contains(&peer) {
            return Ok(());
        }
        if self.instances.get(&about.identity).is_some_and(|instance| !instance.is_closing()) {
            return self.hand_over(arrival, ends);
        }
        let is_search = matches!(arrival.message, Message::Crossing(_));
        let is_news = matches!(arrival.message, Message::Spread(_));
        let is_origin = matches!(arrival.message, Message::Origin(_));
        if self.answers_at_once(peer, about, &arrival.message, &target) {
            return Ok(());
        }
        if !self.instances.contains_key(&about.identity) {
            match target(about.identity) {
                Target::Open { .. } | Target::Retired { .. } if is_origin => return Ok(()),
                Target::Open { me, members, is_freed: false, origin, .. } => {
                    self.open(about.identity, me, &members, origin);
                }
                Target::Open { me, members, origin, .. } if is_news => {
                    mend_base::reach!("mpi.member_protocols: news about a freed communicator in use");
                    self.open(about.identity, me, &members, origin);
                    self.close(about.identity, true, ends);
                }
                Target::NotCreated(_) | Target::Retired { .. } if is_search => return Ok(()),
                Target::NotCreated(creator) => return self.on_early(arrival, creator),
                // An operation on the freed communicator still runs, but its agreements and votes are over as if it were retired.
                Target::Open { is_revoked: was_revoked, .. } | Target::Retired { was_revoked } => {
                    self.answer_for_retired(peer, about, &arrival.message, was_revoked);
                    return Ok(());
                }
            }
        }
        self.hand_over(arrival, ends)
    }

    /// Hands a message to the instance of its communicator.
    fn hand_over(&mut self, arrival: Arrival, ends: &Ends) -> Result<(), Cause> {
        let Arrival { peer, about, message } = arrival;
        let Some((instance, mut effects)) = self.instance(about.identity) else { return Ok(()) };
        let source = match message {
            // Its sender does not know its rank any more, or does not know it at all.
            Message::Gone
            | Message::Creation(_)
            | Message::Spread(spread::Message::Gone | spread::Message::GoneRevoked) => instance.rank_of(peer),
            _ => Some(about.source).filter(|&source| instance.is_member(source, peer)),
        };
        let Some(source) = source else { return Err(Cause::Garbage) };
        if let Message::Crossing(message) = message {
            self.cycle_searches.on_arrival(about.identity, source, message);
            return Ok(());
        }
        let is_news = matches!(message, Message::Spread(_));
        instance.on_message(source, message, ends, &mut effects);
        let is_closing = instance.is_closing();
        if is_closing && instance.owes_results() {
            effects.events.push_back(Event::OwesResults(about.identity));
        }
        if is_news {
            self.schedule_flush(about.identity);
        }
        if is_closing {
            self.remove_if_over(about.identity);
        }
        Ok(())
    }

    /// The communicator was freed here, and every member has passed its agreements and votes; or it was never created here. Whoever asks
    /// is told so.
    fn answer_for_retired(&mut self, peer: PeerIndex, about: About, message: &Message, was_revoked: bool) {
        match message {
            Message::Gone | Message::Spread(spread::Message::Gone | spread::Message::GoneRevoked) => {}
            // A member that has not heard of the revocation learns it from the answer, whoever has failed meanwhile.
            Message::Spread(spread::Message::Items(_)) => {
                let gone = if was_revoked { spread::Message::GoneRevoked } else { spread::Message::Gone };
                self.packets.push_back(Packet::new(peer, about, &Message::Spread(gone)));
            }
            Message::Creation(message) => {
                let name = ContextName { identity: about.identity, context_kind: ContextKind::PointToPoint };
                let is_revoked = self.refused_as_revoked.contains(name);
                let reason = if is_revoked { Reason::Revoked } else { Reason::Other };
                self.refuse_creation(peer, about, message, reason);
            }
            // A search of a member that has not heard of the closing yet.
            Message::Crossing(_) | Message::Origin(_) => {}
            Message::Agreement(_) | Message::Vote(_) => {
                mend_base::reach!("mpi.member_protocols: asked about a freed communicator");
                if was_revoked {
                    // First, so that it is the reason why nothing more comes from this member.
                    let gone = Message::Spread(spread::Message::GoneRevoked);
                    self.packets.push_back(Packet::new(peer, about, &gone));
                }
                self.packets.push_back(Packet::new(peer, about, &Message::Gone));
            }
        }
    }

    /// Votes no on a communicator that does not exist here and never will.
    fn refuse_creation(&mut self, peer: PeerIndex, about: About, message: &vote::Message, reason: Reason) {
        if let &(vote::Message::Up(round, _) | vote::Message::Request(round)) = message {
            mend_base::reach!("mpi.member_protocols: asked about a creation that failed here");
            let no = Message::Creation(vote::Message::Down(round, Ballot::No(reason)));
            self.packets.push_back(Packet::new(peer, about, &no));
        }
    }

    /// A message about a communicator that is not created here. If it is about its creation, whose vote this member has not heard of, it
    /// comes from a root by succession: the creator has ended, as all members above this one in the tree. Then this member will
    /// not create it any more, even if its program never calls (X-7.4).
    fn on_early(&mut self, arrival: Arrival, creator: Creator) -> Result<(), Cause> {
        let Arrival { peer, about, message } = &arrival;
        let (peer, about) = (*peer, *about);
        match (message, creator) {
            (_, Creator::Nobody) => {
                mend_base::reach!("mpi.member_protocols: a communicator of a process that does not exist");
                return Err(Cause::Garbage);
            }
            (Message::Creation(message), Creator::Gone(how)) => {
                let reason = match how {
                    Gone::Failed => Reason::Failed(CREATOR),
                    Gone::Departed => Reason::Departed(CREATOR),
                };
                self.refuse_creation(peer, about, message, reason);
                return Ok(());
            }
            (Message::Creation(vote::Message::Request(_)), Creator::Open) => {
                self.events.push_back(Event::Suspected(about.identity.creator));
            }
            // This process has not failed, so nobody is to be asked about it.
            (_, Creator::Myself | Creator::Open | Creator::Gone(_)) => {}
        }
        let stored = self.early.store(arrival);
        self.recheck_early();
        if stored.is_err() {
            self.discarded.insert(peer);
        }
        stored
    }

    /// Calls `visit` for each peer for which a protocol waits.
    pub fn awaited(&self, visit: &mut impl FnMut(PeerIndex)) {
        self.instances.values().for_each(|instance| instance.awaited(visit));
    }

    /// The instance of a communicator that is open here, made if there is none.
    pub fn open(
        &mut self,
        identity: Identity,
        me: Rank,
        members: &Arc<[PeerIndex]>,
        origin: Option<Origin>,
    ) -> (&mut Instance, Effects<'_>) {
        let MemberProtocols { instances, packets, events, scratch, .. } = self;
        let make = || Instance::new(identity, me, Arc::clone(members), origin);
        let instance = instances.entry(identity).or_insert_with(make);
        (instance, Effects { packets, events, scratch })
    }

    /// The instance of a communicator.
    pub fn instance(&mut self, identity: Identity) -> Option<(&mut Instance, Effects<'_>)> {
        let MemberProtocols { instances, packets, events, scratch, .. } = self;
        Some((instances.get_mut(&identity)?, Effects { packets, events, scratch }))
    }

    /// A communicator with an instance was freed. `in_use`: operations on it run, and it is not revoked, so that they must hear of a revocation.
    pub fn close(&mut self, identity: Identity, in_use: bool, ends: &Ends) {
        if let Some((instance, mut fx)) = self.instance(identity) {
            instance.close(in_use, ends, &mut fx);
        }
        if in_use {
            self.in_use.insert(identity);
        }
    }

    /// The freed communicators of which operations run, as far as is known.
    pub fn in_use(&self) -> Vec<Identity> {
        self.in_use.iter().copied().collect()
    }

    /// The last operation on a freed communicator has ended, or it is revoked.
    pub fn end_use(&mut self, identity: Identity, ends: &Ends) {
        if self.in_use.remove(&identity)
            && let Some((instance, mut fx)) = self.instance(identity)
        {
            instance.end_use(ends, &mut fx);
            self.schedule_flush(identity);
        }
    }

    /// News about the communicator leaves with the next step.
    pub fn schedule_flush(&mut self, identity: Identity) {
        self.unflushed.insert(identity);
    }

    /// A communicator was created, or will never be: its early messages arrive now.
    pub fn deliver_early(&mut self, identity: Identity) {
        self.inbox.extend(self.early.take(identity));
    }

    /// A communicator of which early messages name the origin may be one that this member will never have: the owner is to look.
    pub fn recheck_early(&mut self) {
        self.rechecks_early = self.early.have_origins();
    }

    /// The origins that early messages name, each with its communicator, if they are to be looked at.
    pub fn take_origins_to_recheck(&mut self) -> Vec<(Identity, Origin)> {
        match core::mem::take(&mut self.rechecks_early) {
            true => self.early.origins().collect(),
            false => Vec::new(),
        }
    }

    /// The number of communicators that are not created here and of which messages have come.
    pub fn early(&self) -> usize {
        self.early.len()
    }

    /// The communicator will not be created here, as its parent is revoked: whoever asks is told so.
    pub fn refuse_as_revoked(&mut self, identity: Identity) {
        // Both, so that an unbroken run of identities takes no memory.
        for context_kind in [ContextKind::PointToPoint, ContextKind::Collective] {
            self.refused_as_revoked.add(ContextName { identity, context_kind });
        }
    }

    /// Removes the instance of a communicator whose creation was refused: it answers no from now on, as one that never was.
    pub fn discard(&mut self, identity: Identity) {
        self.instances.remove(&identity);
    }

    /// Removes the instance of a freed communicator if it owes nothing more to other members.
    pub fn remove_if_over(&mut self, identity: Identity) {
        if self.instances.get(&identity).is_some_and(Instance::is_over) {
            self.instances.remove(&identity);
        }
    }

    /// The end of a peer is published, after its last message was delivered.
    pub fn on_end(&mut self, (who, peer): (Peer, PeerIndex), end: End, ends: &Ends) {
        let Some(how) = Gone::of(end) else { return self.on_unreachable(peer) };
        self.deliver_early_of(who);
        let MemberProtocols { instances, packets, events, scratch, unflushed, cycle_searches, .. } = self;
        let mut effects = Effects { packets, events, scratch };
        for (&identity, instance) in instances {
            let Some(member) = instance.rank_of(peer) else { continue };
            cycle_searches.on_end(identity, member);
            instance.on_end((who, peer), how, ends, &mut effects);
            unflushed.insert(identity);
        }
        self.packets.retain(|packet| packet.peer != peer);
    }

    /// It is published that a peer cannot be reached. What was sent to it may be lost.
    fn on_unreachable(&mut self, peer: PeerIndex) {
        let before = self.packets.len();
        self.packets.retain(|packet| packet.peer != peer);
        if self.packets.len() < before || self.contacted.contains(&peer) {
            self.events.push_back(Event::Needed(peer));
        }
    }

    /// The creator of communicators that are not known here has ended: their early messages are looked at again.
    fn deliver_early_of(&mut self, creator: Peer) {
        self.inbox.extend(self.early.take_of(creator));
    }

    /// Sends what is to be sent. Messages that find no place in the control queue stay, each in its order. Returns the number of events.
    pub fn send<N: Rdma, R>(&mut self, ends: &Ends, layers: &mut Layers<N, R>) -> u32 {
        let mut events = 0;
        while let Some(identity) = self.unflushed.pop_last() {
            events += 1;
            if let Some((instance, mut effects)) = self.instance(identity) {
                instance.flush(ends, &mut effects);
                // With its last news a freed communicator is over.
                self.remove_if_over(identity);
            }
        }
        if self.packets.is_empty() {
            return events;
        }
        let Some(control) = self.control_queue(layers) else { return events };
        let before = self.packets.len();
        let mut full: Vec<PeerIndex> = Vec::new();
        let MemberProtocols { packets, contacted, events: results, .. } = self;
        packets.retain(|packet| {
            if full.contains(&packet.peer) {
                return true;
            }
            if let Some(End::Unreachable(_)) = ends.of(packet.peer) {
                results.push_back(Event::Needed(packet.peer));
                return false;
            }
            match layers.pml.send_control_at_once(&mut layers.net, packet.peer, control, packet.as_bytes()) {
                Ok(()) => {
                    contacted.insert(packet.peer);
                    false
                }
                Err(ControlError::NoMemory | ControlError::TooMany) => {
                    full.push(packet.peer);
                    true
                }
            }
        });
        events + (before - self.packets.len()) as u32
    }

    fn control_queue<N: Rdma, R>(&mut self, layers: &mut Layers<N, R>) -> Option<Protocol> {
        if self.control.is_none() {
            self.control = layers.pml.open_control(AM_ID, Places::OnDemand(WAITING_MAX)).ok();
        }
        self.control
    }

    /// Forgets all instances. Messages may still come and be answered, so the control queue stays open.
    pub fn forget_all(&mut self) {
        *self = MemberProtocols { control: self.control, ..MemberProtocols::default() };
    }

    /// The results that other members may still ask for, to be left with the node daemon.
    pub fn results_to_leave(&self) -> impl Iterator<Item = (ResultKey, Vec<u8>)> {
        self.instances.values().flat_map(Instance::results_to_leave)
    }

    /// The next result for the engine.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
