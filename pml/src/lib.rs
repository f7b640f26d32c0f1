// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Point-to-point in MPI order: matching, eager, rendezvous, requests. Read [`Ob1`] first.
//!
//! It owns no transport: the engine lends one for the length of a call, and is told by [`Upcalls`] what is not ours.
//! Not here: what communicators mean, error classes, waiting, `MPI_PROC_NULL`.
//!
//! Nothing that a peer writes is believed: each header is checked whole (ranks against the group and against who it came
//! from, tags, sequence numbers, handles by generation, lengths), and what no correct peer writes is evidence
//! ([`Upcalls::on_error`] with [`Cause::Garbage`]), after which nothing of that peer is looked at any more.
#![forbid(unsafe_code)]

mod abandon;
mod awaited;
mod cancel;
mod census;
mod channel;
mod eager;
mod envelope;
mod failure;
mod flow;
mod list;
mod matcher;
mod naming;
mod paged;
mod parameters;
mod polling_receive;
mod probe;
mod rendezvous;
mod request;

#[cfg(test)]
mod tests;

pub use census::Census;
pub use parameters::PARAMETERS;
pub use polling_receive::Patience;
pub use request::{Error, Gone, Request, SendMode, Started, State, Status, Waiter};

use awaited::Awaited;
use channel::ChannelState;
use envelope::Packet;
use flow::PeerState;
use matcher::{EarlyMessage, Unexpected};
use mend_base::parameter::{Declared, Settings};
use mend_base::{Instant, Key, LifecycleCheck, PeerIndex, Slab};
use mend_proto::identity::{Contexts, EarlyMessages, Name};
use mend_transport::{AmId, Btl, Cause, Cookie, Payload, SendError, Sink, Stream};
use paged::Paged;
use rendezvous::Incoming;
use request::RequestEntry;
use std::collections::{BTreeMap, VecDeque};

/// The active-message id of everything that is sent from here.
pub const AM_ID: AmId = AmId(1);

/// A communicator's context kind, opened: what sends and receives name. Stale ones are refused (I4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Channel(pub Key);

/// What can be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The longest message that this process takes before its match; peers are told. Until they know, they go by their
    /// own.
    pub eager_bytes: u32,
    /// How much memory the messages of one peer that nobody has received may cost before it is told to hold.
    pub held_bytes_max: u64,
    /// The most events of one turn.
    pub events_per_progress: u32,
    /// The most streams that come in at once; further offers wait.
    pub streams_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config::from(&Settings::new(Declared(&[PARAMETERS])))
    }
}

impl From<&Settings> for Config {
    fn from(settings: &Settings) -> Self {
        Config {
            eager_bytes: settings.number("pml.eager_bytes") as u32,
            held_bytes_max: 4 << 20,
            events_per_progress: 64,
            streams_max: rendezvous::STREAMS_MAX,
        }
    }
}

/// What [`Ob1::progress`] tells the layer above.
pub trait Upcalls<E> {
    /// A message of another layer.
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>);
    /// Evidence: the transport's, or ours ([`Cause::Garbage`]).
    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause);
    /// Nothing of this endpoint can reach our memory any more.
    fn on_severed(&mut self, peer: PeerIndex, endpoint: E);
}

/// Point-to-point of one process. `E` is the transport's endpoint.
///
/// `send` and `receive` start; `progress` moves; `poll` tells; `release` or `detach` let go. `gone` ends what can never
/// be done.
#[derive(Debug)]
pub struct Ob1<E> {
    config: Config,
    channels: Slab<ChannelState<E>>,
    entries: Slab<RequestEntry>,
    /// Each entry ends once.
    lifecycle_check: LifecycleCheck,
    /// How many peers' sends must take the slow way.
    congested: u32,
    /// Immediate sends since the last turn.
    sends_since_progress: u32,
    contexts: Contexts<Key>,
    peers: Paged<PeerState<E>>,
    /// Messages not matched yet.
    arrived: Slab<Unexpected>,
    incoming: Slab<Incoming>,
    /// Receives that have matched an offer and wait for a stream's number.
    unanswered: VecDeque<(Key, PeerIndex)>,
    names: BTreeMap<Name, Key>,
    early_messages: EarlyMessages<EarlyMessage>,
    /// Nothing more will be create or.
    leaving: bool,
    /// Peers to which something waits to go.
    flush_pending: Vec<PeerIndex>,
    wanted: VecDeque<PeerIndex>,
    awaited: Awaited,
    /// Whoever sleeps until a request is over that is.
    ended_waiters: Vec<Waiter>,
    /// What the next turn tells the engine.
    evidence: Vec<(PeerIndex, Cause)>,
    /// On some channel everybody else was gone: who waits there looks closer.
    some_unsatisfiable: bool,
    /// Who failed, in the order in which we were told: what a channel opened later begins with.
    failed: Vec<PeerIndex>,
    /// Sends that are not over.
    sends: usize,
    /// Answers that have not gone out.
    queued: usize,
    spare: Vec<Vec<u8>>,
}

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// Nothing open, nobody connected; allocates nothing.
    pub fn new(config: Config) -> Self {
        assert!((1..=rendezvous::STREAMS_MAX).contains(&config.streams_max), "a stream's number has 20 bits");
        Ob1 {
            config,
            channels: Slab::new(),
            entries: Slab::new(),
            lifecycle_check: LifecycleCheck::default(),
            congested: 0,
            sends_since_progress: 0,
            contexts: Contexts::new(),
            peers: Paged::new(),
            arrived: Slab::new(),
            incoming: Slab::new(),
            unanswered: VecDeque::new(),
            names: BTreeMap::new(),
            early_messages: EarlyMessages::new(),
            leaving: false,
            flush_pending: Vec::new(),
            wanted: VecDeque::new(),
            awaited: Awaited::default(),
            ended_waiters: Vec::new(),
            evidence: Vec::new(),
            some_unsatisfiable: false,
            failed: Vec::new(),
            sends: 0,
            queued: 0,
            spare: Vec::new(),
        }
    }

    /// Polls the transport, sends what waits. Returns how many events there were.
    pub fn progress<N: Btl<Endpoint = E>>(
        &mut self,
        net: &mut N,
        now: Instant,
        up: &mut impl Upcalls<E>,
    ) -> u32 {
        self.sends_since_progress = 0;
        let budget = self.config.events_per_progress;
        let mut events = net.progress(now, budget, &mut Inlet { ob1: self, up });
        if !self.flush_pending.is_empty() {
            events += self.flush_all(net);
        }
        if !self.evidence.is_empty() {
            self.report(up);
        }
        events
    }

    /// Tells the engine what peers did wrong; of one that is not connected, when it is.
    #[cold]
    fn report(&mut self, up: &mut impl Upcalls<E>) {
        let peers = &self.peers;
        self.evidence.retain(|&(peer, cause)| match peers[peer.index()].way {
            Some(way) => {
                up.on_error(peer, way.endpoint, cause);
                false
            }
            None => true,
        });
    }

    // Hot: per message.
    #[inline]
    fn on_packet(&mut self, from: PeerIndex, header: &[u8], payload: Payload<'_>) {
        if self.is_discarding(from) {
            return;
        }
        match Packet::read(header) {
            Some(Packet::Message(envelope)) => self.on_envelope(from, envelope, payload),
            Some(Packet::Fragment { stream }) => self.on_piece(from, stream, payload),
            Some(packet) if payload.is_empty() => self.on_answer(from, packet),
            _ => self.garbage(from),
        }
    }

    fn on_answer(&mut self, from: PeerIndex, packet: Packet) {
        match packet {
            Packet::Cts { key, stream, wanted } => self.on_cts(from, key, stream, wanted),
            Packet::Cancel { stream, sent } => self.on_cancel_stream(from, stream, sent),
            Packet::Matched { key } => self.on_matched(from, key),
            Packet::Refused { key, reason: envelope::Reason::Freed } => self.on_refused(from, key),
            Packet::AnnounceContext { name, context, rank, eager_bytes } => {
                self.on_announce_context(from, name, context, rank, eager_bytes)
            }
            Packet::RetireContext { name, context, rank } => {
                self.on_retire_context(from, name, context, rank)
            }
            Packet::ContextRetired { context } => self.on_context_retired(from, context),
            Packet::Xoff => self.on_xoff(from, true),
            Packet::Xon => self.on_xoff(from, false),
            Packet::Message(_) | Packet::Fragment { .. } => unreachable!("they are no answers"),
        }
    }
}

/// What the transport calls while it is polled.
struct Inlet<'a, E, U> {
    ob1: &'a mut Ob1<E>,
    up: &'a mut U,
}

impl<E: Copy + Eq + core::fmt::Debug, U: Upcalls<E>> Sink<E> for Inlet<'_, E, U> {
    // Hot: per message.
    #[inline]
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
        if id == AM_ID {
            self.ob1.on_packet(from, header, payload);
        } else {
            self.up.on_message(from, id, header, payload);
        }
    }

    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        if !self.ob1.is_discarding(from) {
            self.ob1.on_piece(from, stream, payload);
        }
    }

    fn on_done(&mut self, _done: Cookie, _result: Result<(), SendError>) {
        // Nothing of ours has a cookie: there is no put or get yet.
    }

    fn on_room(&mut self, to: PeerIndex, _endpoint: E) {
        self.ob1.list(to);
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        self.up.on_error(peer, endpoint, cause);
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.up.on_severed(peer, endpoint);
    }
}
