// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that every message is delivered exactly once and unchanged, and that no callback follows `on_severed`.
//!
//! The BTLs of one job share an [`InFlight`]. A message or chunk is recorded there when its send succeeds, and removed, by its
//! contents, when it is delivered. An operation with a cookie is recorded when it starts, and removed when it ends; none of an endpoint may
//! be left when that endpoint is severed. A delivery without a record fails the test: the message was never sent, came twice, or was
//! changed. [`InFlight::assert_conserved`] checks at the end that nothing is missing. `mend_base::LifecycleCheck` checks that each
//! request ends once.

use crate::{
    AmId, Atomic, Btl, Card, Cause, ConnectError, Cookie, EventPending, Exposure, Limits, MessageClass,
    Payload, PayloadWriter, Rdma, Region, RegisterError, Remote, RemoteAccess, RemoteKey, SendError, Sink,
    Span, Stream, UserMemory, WakeSet,
};
use core::cell::RefCell;
use mend_base::{Instant, PeerIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A BTL whose messages are recorded in an [`InFlight`].
#[derive(Debug)]
pub struct Counter<B: Btl> {
    inner: B,
    in_flight: InFlight,
    counts: Counts,
    endpoints: Vec<Tracked<B::Endpoint>>,
    /// The operations of this BTL that have started and not ended, with their endpoints.
    operations: Vec<(Cookie, B::Endpoint)>,
}

/// How many events of each kind this BTL has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Messages sent.
    pub sent: u64,
    /// Messages and chunks that were answered `Busy`.
    pub busy: u64,
    /// Chunks sent.
    pub chunks_sent: u64,
    /// Messages delivered.
    pub messages: u64,
    /// Chunks delivered.
    pub chunks: u64,
    /// Operations that ended.
    pub done: u64,
    /// `on_sendable`.
    pub sendable: u64,
    /// `on_error`.
    pub errors: u64,
    /// `on_severed`.
    pub severed: u64,
}

/// What all BTLs of one job have in flight. A clone is the same record.
#[derive(Clone, Debug, Default)]
pub struct InFlight(Rc<RefCell<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    /// Number of messages in flight, by digest: each must arrive.
    messages: BTreeMap<u64, u64>,
    /// Number of states in flight, by digest: each may be replaced by a later one.
    states: BTreeMap<u64, u64>,
    /// Bytes in flight, by stream.
    streams: BTreeMap<Stream, u64>,
    /// Operations that have started and not ended.
    open: BTreeSet<Cookie>,
    /// An endpoint was severed: messages in flight on it may be lost.
    severed: bool,
}

#[derive(Debug)]
struct Tracked<E> {
    peer: PeerIndex,
    endpoint: E,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    Severing,
    Severed,
}

impl InFlight {
    /// Nothing in flight.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that an operation was started: its cookie must end, once.
    pub fn start(&self, cookie: Cookie) {
        assert!(self.0.borrow_mut().open.insert(cookie), "{cookie:?} was started twice");
    }

    /// Asserts that nothing is in flight. Call it when no process sends and all progress was made. If an endpoint was severed,
    /// messages may be missing.
    pub fn assert_conserved(&self) {
        let entries = self.0.borrow();
        assert!(entries.open.is_empty(), "operations that never ended: {:?}", entries.open);
        if !entries.severed {
            let missing: u64 = entries.messages.values().sum();
            assert_eq!(missing, 0, "messages that were sent and never arrived");
            let streams: Vec<_> = entries.streams.iter().filter(|(_, bytes)| **bytes > 0).collect();
            assert!(streams.is_empty(), "bytes of streams that never arrived: {streams:?}");
        }
    }
}

impl Entries {
    fn send(&mut self, class: MessageClass, digest: u64) {
        let counts = if class == MessageClass::Mailbox { &mut self.states } else { &mut self.messages };
        *counts.entry(digest).or_default() += 1;
    }

    fn arrive(&mut self, digest: u64) -> bool {
        take(&mut self.messages, digest) || take(&mut self.states, digest)
    }
}

/// Removes one entry, if there is one.
fn take(counts: &mut BTreeMap<u64, u64>, digest: u64) -> bool {
    match counts.get_mut(&digest) {
        Some(1) => counts.remove(&digest).is_some(),
        Some(count) => {
            *count -= 1;
            true
        }
        None => false,
    }
}

impl<B: Btl> Counter<B> {
    /// Wraps `inner`, and records its messages in `in_flight`.
    pub fn new(inner: B, in_flight: &InFlight) -> Self {
        Counter {
            inner,
            in_flight: in_flight.clone(),
            counts: Counts::default(),
            endpoints: Vec::new(),
            operations: Vec::new(),
        }
    }

    /// What this BTL has seen.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The BTL inside.
    pub fn inner_mut(&mut self) -> &mut B {
        &mut self.inner
    }

    /// The BTL without its counter. Its messages in flight may be missing at the end, as after `sever`.
    pub fn into_inner(self) -> B {
        let mut entries = self.in_flight.0.borrow_mut();
        entries.severed = true;
        // They end with the process.
        self.operations.iter().for_each(|(cookie, _)| _ = entries.open.remove(cookie));
        drop(entries);
        self.inner
    }

    /// Asserts that `on_severed` followed every `sever`, and that nothing is in flight.
    pub fn assert_conserved(&self) {
        let waiting: Vec<_> =
            self.endpoints.iter().filter(|tracked| tracked.state == State::Severing).collect();
        assert!(waiting.is_empty(), "no on_severed after sever: {waiting:?}");
        self.in_flight.assert_conserved();
    }

    fn answered(&mut self, answer: Result<(), SendError>) -> bool {
        self.counts.busy += u64::from(answer == Err(SendError::Busy));
        answer.is_ok()
    }

    /// Records an operation that was answered.
    fn started(&mut self, to: B::Endpoint, done: Cookie, answer: Result<(), SendError>) {
        self.assert_refused(to, answer);
        if self.answered(answer) {
            self.in_flight.start(done);
            self.operations.push((done, to));
        }
    }

    /// The inner BTL, and a sink that counts its callbacks.
    fn counting<'a, S: Sink<B::Endpoint>>(
        &'a mut self,
        sink: &'a mut S,
    ) -> (&'a mut B, CountingSink<'a, S, B::Endpoint>) {
        let sink = CountingSink {
            sink,
            entries: &self.in_flight.0,
            counts: &mut self.counts,
            endpoints: &mut self.endpoints,
            operations: &mut self.operations,
        };
        (&mut self.inner, sink)
    }

    fn assert_refused(&self, to: B::Endpoint, answer: Result<(), SendError>) {
        let open =
            self.endpoints.iter().all(|tracked| tracked.endpoint != to || tracked.state == State::Open);
        assert!(
            open || answer == Err(SendError::Severed),
            "a send to a severed endpoint answered {answer:?}"
        );
    }
}

impl<B: Btl> Counter<B> {
    fn note_sever(&mut self, endpoint: B::Endpoint) {
        self.in_flight.0.borrow_mut().severed = true;
        let tracked = self
            .endpoints
            .iter_mut()
            .find(|tracked| tracked.endpoint == endpoint && tracked.state == State::Open);
        if let Some(tracked) = tracked {
            tracked.state = State::Severing;
        }
    }
}

impl<B: Btl> Btl for Counter<B> {
    type Endpoint = B::Endpoint;

    fn advertise(&self, card: &mut Card) {
        self.inner.advertise(card);
    }

    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<B::Endpoint, ConnectError> {
        let endpoint = self.inner.connect(peer, card)?;
        if !self.endpoints.iter().any(|tracked| tracked.endpoint == endpoint) {
            self.endpoints.push(Tracked { peer, endpoint, state: State::Open });
        }
        Ok(endpoint)
    }

    fn limits(&self, to: B::Endpoint) -> &Limits {
        self.inner.limits(to)
    }

    fn quarantine(&mut self, endpoint: B::Endpoint) {
        self.inner.quarantine(endpoint);
    }

    fn resume(&mut self, endpoint: B::Endpoint) {
        self.inner.resume(endpoint);
    }

    fn on_running(&mut self, endpoint: B::Endpoint) {
        self.inner.on_running(endpoint);
    }

    fn on_unheard(&mut self, endpoint: B::Endpoint) {
        self.inner.on_unheard(endpoint);
    }

    fn sever(&mut self, endpoint: B::Endpoint) {
        self.note_sever(endpoint);
        self.inner.sever(endpoint);
    }

    fn sever_dead(&mut self, endpoint: B::Endpoint) {
        self.note_sever(endpoint);
        self.inner.sever_dead(endpoint);
    }

    fn send(
        &mut self,
        to: B::Endpoint,
        class: MessageClass,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        let mut copy = vec![0; len];
        let answer = self.inner.send(to, class, id, header, len, |mut slot| {
            fill(PayloadWriter::from(&mut copy[..]));
            slot.put(&copy);
        });
        self.assert_refused(to, answer);
        if self.answered(answer) {
            self.counts.sent += 1;
            self.in_flight.0.borrow_mut().send(class, digest(id, header, &copy));
        }
        answer
    }

    fn send_chunk(
        &mut self,
        to: B::Endpoint,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        let answer = self.inner.send_chunk(to, stream, len, fill);
        self.assert_refused(to, answer);
        if self.answered(answer) {
            self.counts.chunks_sent += 1;
            *self.in_flight.0.borrow_mut().streams.entry(stream).or_default() += len as u64;
        }
        answer
    }

    fn ready(&self, from: B::Endpoint) -> bool {
        self.inner.ready(from)
    }

    fn has_message(&self, from: B::Endpoint) -> bool {
        self.inner.has_message(from)
    }

    fn take_message(&mut self, now: Instant, from: B::Endpoint, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        let (inner, mut sink) = self.counting(sink);
        inner.take_message(now, from, &mut sink)
    }

    fn progress(&mut self, now: Instant, budget: u32, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        let (inner, mut sink) = self.counting(sink);
        inner.progress(now, budget, &mut sink)
    }

    fn check_peers(&mut self) {
        self.inner.check_peers();
    }

    fn call_helpers(&mut self) {
        self.inner.call_helpers();
    }

    fn is_flushed(&mut self, needs: &mut dyn FnMut(PeerIndex) -> bool) -> bool {
        self.inner.is_flushed(needs)
    }

    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        self.inner.arm(wake)
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }
}

impl<B: Rdma> Rdma for Counter<B> {
    fn register(&mut self, with: B::Endpoint, memory: &UserMemory) -> Result<Region, RegisterError> {
        self.inner.register(with, memory)
    }

    fn unregister(&mut self, region: Region, done: Cookie) {
        self.in_flight.start(done);
        self.inner.unregister(region, done);
    }

    fn expose(
        &mut self,
        to: B::Endpoint,
        local: Span,
        access: RemoteAccess,
    ) -> Result<(Exposure, RemoteKey), RegisterError> {
        self.inner.expose(to, local, access)
    }

    fn unexpose(&mut self, exposure: Exposure, done: Cookie) {
        self.in_flight.start(done);
        self.inner.unexpose(exposure, done);
    }

    fn unexpose_unused(&mut self, exposure: Exposure, done: Cookie) {
        self.in_flight.start(done);
        self.inner.unexpose_unused(exposure, done);
    }

    fn import(&mut self, from: B::Endpoint, key: &[u8]) -> Result<Remote, RegisterError> {
        self.inner.import(from, key)
    }

    fn put(
        &mut self,
        to: B::Endpoint,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        let answer = self.inner.put(to, local, remote, remote_offset, done);
        self.started(to, done, answer);
        answer
    }

    fn get(
        &mut self,
        from: B::Endpoint,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        let answer = self.inner.get(from, local, remote, remote_offset, done);
        self.started(from, done, answer);
        answer
    }

    fn atomic(
        &mut self,
        to: B::Endpoint,
        operation: Atomic,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        let answer = self.inner.atomic(to, operation, local, remote, remote_offset, done);
        self.started(to, done, answer);
        answer
    }

    fn flush(&mut self, to: B::Endpoint, done: Cookie) -> Result<(), SendError> {
        let answer = self.inner.flush(to, done);
        self.started(to, done, answer);
        answer
    }
}

/// Checks and counts each callback, and passes it on.
struct CountingSink<'a, S, E> {
    sink: &'a mut S,
    entries: &'a RefCell<Entries>,
    counts: &'a mut Counts,
    endpoints: &'a mut [Tracked<E>],
    operations: &'a mut Vec<(Cookie, E)>,
}

impl<S, E: Copy + Eq> CountingSink<'_, S, E> {
    /// Asserts that the peer has an endpoint that is not severed.
    fn assert_peer_not_severed(&self, peer: PeerIndex, what: &str) {
        let mut endpoints = self.endpoints.iter().filter(|tracked| tracked.peer == peer).peekable();
        let severed = endpoints.peek().is_some() && endpoints.all(|tracked| tracked.state == State::Severed);
        assert!(!severed, "{what} of {peer:?} after on_severed");
    }

    fn assert_not_severed(&self, endpoint: E, what: &str) {
        let severed = self
            .endpoints
            .iter()
            .any(|tracked| tracked.endpoint == endpoint && tracked.state == State::Severed);
        assert!(!severed, "{what} of an endpoint after on_severed");
    }
}

impl<S: Sink<E>, E: Copy + Eq> Sink<E> for CountingSink<'_, S, E> {
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
        self.assert_peer_not_severed(from, "a message");
        self.counts.messages += 1;
        let known = self.entries.borrow_mut().arrive(digest(id, header, &payload.to_vec()));
        assert!(known, "a message of {from:?} with {id:?} was never sent, or came twice");
        self.sink.on_message(from, id, header, payload);
    }

    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        self.assert_peer_not_severed(from, "a chunk");
        self.counts.chunks += 1;
        let bytes = self.entries.borrow().streams.get(&stream).copied().unwrap_or(0);
        let left = bytes.checked_sub(payload.len() as u64);
        assert!(left.is_some(), "more bytes of {stream:?} arrived than were sent");
        self.entries.borrow_mut().streams.insert(stream, left.unwrap_or(0));
        self.sink.on_chunk(from, stream, payload);
    }

    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
        self.counts.done += 1;
        assert!(self.entries.borrow_mut().open.remove(&done), "{done:?} ended twice, or was never started");
        self.operations.retain(|(open, _)| *open != done);
        self.sink.on_done(done, result);
    }

    fn on_sendable(&mut self, to: PeerIndex, endpoint: E) {
        self.assert_not_severed(endpoint, "on_sendable");
        self.counts.sendable += 1;
        self.sink.on_sendable(to, endpoint);
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        self.assert_not_severed(endpoint, "on_error");
        self.counts.errors += 1;
        self.sink.on_error(peer, endpoint, cause);
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.assert_not_severed(endpoint, "a second on_severed");
        self.counts.severed += 1;
        let left = self.operations.iter().find(|(_, whose)| *whose == endpoint);
        assert!(left.is_none(), "on_severed before the end of an operation");
        let tracked = self.endpoints.iter_mut().find(|tracked| tracked.endpoint == endpoint);
        let was_severing = tracked.is_some_and(|tracked| {
            let was_severing = tracked.state == State::Severing;
            tracked.state = State::Severed;
            was_severing
        });
        assert!(was_severing, "on_severed without sever");
        self.sink.on_severed(peer, endpoint);
    }
}

/// FNV-1a of the id, the lengths, the header and the payload.
fn digest(id: AmId, header: &[u8], payload: &[u8]) -> u64 {
    let lengths = [header.len() as u64, payload.len() as u64].map(u64::to_le_bytes);
    let bytes = [id.0].into_iter().chain(lengths.into_iter().flatten());
    let bytes = bytes.chain(header.iter().copied()).chain(payload.iter().copied());
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}
