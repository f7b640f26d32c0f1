// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that every message is delivered exactly once and unchanged, and that no callback follows `on_severed`.
//!
//! The BTLs of one job share a [`Ledger`]. A message or chunk is recorded when its send succeeds and removed, by its
//! contents, when it is delivered: one that was never sent, comes twice or was changed fails the test at that moment.
//! [`Ledger::assert_conserved`] checks that nothing is missing at the end. That each request ends once is checked by
//! `mend_base::LifecycleCheck`.

use crate::{
    AmId, Btl, Card, Cause, Class, ConnectError, Cookie, Limits, Payload, Pending, SendError, Sink, Stream,
    WakeSet, WriteSlot,
};
use core::cell::RefCell;
use mend_base::{Instant, PeerIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A BTL whose events are recorded in a ledger.
#[derive(Debug)]
pub struct Counter<B: Btl> {
    inner: B,
    ledger: Ledger,
    counts: Counts,
    endpoints: Vec<Tracked<B::Endpoint>>,
}

/// How many events of each kind this BTL has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Messages that went out.
    pub sent: u64,
    /// Sends and chunks answered `Busy`.
    pub busy: u64,
    /// Chunks that went out.
    pub chunks_sent: u64,
    /// Messages delivered.
    pub messages: u64,
    /// Chunks delivered.
    pub chunks: u64,
    /// Operations that ended.
    pub done: u64,
    /// `on_room`.
    pub rooms: u64,
    /// `on_error`.
    pub errors: u64,
    /// `on_severed`.
    pub severed: u64,
}

/// The record of all BTLs of one job. A clone is the same ledger.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Rc<RefCell<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    /// In flight, by digest: each must arrive.
    messages: BTreeMap<u64, u64>,
    /// In flight, by digest: each may be replaced by a later one.
    states: BTreeMap<u64, u64>,
    /// Bytes in flight, by stream.
    streams: BTreeMap<Stream, u64>,
    /// Operations that have begun and not ended.
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

impl Ledger {
    /// An empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// An operation begins: its cookie must end, once. For [`Rdma`](crate::Rdma) operations and whatever else ends in
    /// `on_done`.
    pub fn begin(&self, cookie: Cookie) {
        assert!(self.0.borrow_mut().open.insert(cookie), "{cookie:?} began while it was open");
    }

    /// Asserts that nothing is missing, once nobody sends and everything was delivered. Where an endpoint was
    /// severed, messages in flight on it may be missing.
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
    fn send(&mut self, class: Class, digest: u64) {
        let counts = if class == Class::Mailbox { &mut self.states } else { &mut self.messages };
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
    /// `inner`, counted in `ledger`.
    pub fn new(inner: B, ledger: &Ledger) -> Self {
        Counter { inner, ledger: ledger.clone(), counts: Counts::default(), endpoints: Vec::new() }
    }

    /// What this BTL has seen.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The BTL without its counter. Messages that it still held are lost to the ledger, as if it had been severed.
    pub fn into_inner(self) -> B {
        self.ledger.0.borrow_mut().severed = true;
        self.inner
    }

    /// Asserts that every `sever` was answered by `on_severed`, and [`Ledger::assert_conserved`].
    pub fn assert_conserved(&self) {
        let waiting: Vec<_> =
            self.endpoints.iter().filter(|tracked| tracked.state == State::Severing).collect();
        assert!(waiting.is_empty(), "severed without a certificate: {waiting:?}");
        self.ledger.assert_conserved();
    }

    fn answered(&mut self, answer: Result<(), SendError>) -> bool {
        self.counts.busy += u64::from(answer == Err(SendError::Busy));
        answer.is_ok()
    }

    fn assert_refused(&self, to: B::Endpoint, answer: Result<(), SendError>) {
        let open =
            self.endpoints.iter().all(|tracked| tracked.endpoint != to || tracked.state == State::Open);
        assert!(
            open || answer == Err(SendError::PeerFailed),
            "a send to a severed tracked answered {answer:?}"
        );
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

    fn sever(&mut self, endpoint: B::Endpoint) {
        self.ledger.0.borrow_mut().severed = true;
        let tracked = self
            .endpoints
            .iter_mut()
            .find(|tracked| tracked.endpoint == endpoint && tracked.state == State::Open);
        if let Some(tracked) = tracked {
            tracked.state = State::Severing;
        }
        self.inner.sever(endpoint);
    }

    fn send(
        &mut self,
        to: B::Endpoint,
        class: Class,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> Result<(), SendError> {
        let mut copy = vec![0; len];
        let answer = self.inner.send(to, class, id, header, len, |mut slot| {
            fill(WriteSlot::from(&mut copy[..]));
            slot.put(&copy);
        });
        self.assert_refused(to, answer);
        if self.answered(answer) {
            self.counts.sent += 1;
            self.ledger.0.borrow_mut().send(class, digest(id, header, &copy));
        }
        answer
    }

    fn send_chunk(
        &mut self,
        to: B::Endpoint,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> Result<(), SendError> {
        let answer = self.inner.send_chunk(to, stream, len, fill);
        self.assert_refused(to, answer);
        if self.answered(answer) {
            self.counts.chunks_sent += 1;
            *self.ledger.0.borrow_mut().streams.entry(stream).or_default() += len as u64;
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
        let (entries, counts, endpoints) = (&self.ledger.0, &mut self.counts, &mut self.endpoints[..]);
        self.inner.take_message(now, from, &mut Auditor { sink, entries, counts, endpoints })
    }

    fn progress(&mut self, now: Instant, budget: u32, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        let (entries, counts, endpoints) = (&self.ledger.0, &mut self.counts, &mut self.endpoints[..]);
        self.inner.progress(now, budget, &mut Auditor { sink, entries, counts, endpoints })
    }

    fn check_peers(&mut self) {
        self.inner.check_peers();
    }

    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), Pending> {
        self.inner.arm(wake)
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }
}

struct Auditor<'a, S, E> {
    sink: &'a mut S,
    entries: &'a RefCell<Entries>,
    counts: &'a mut Counts,
    endpoints: &'a mut [Tracked<E>],
}

impl<S, E: Copy + Eq> Auditor<'_, S, E> {
    /// No message comes from a peer all of whose endpoints are severed.
    fn assert_peer_not_severed(&self, peer: PeerIndex, what: &str) {
        let mut endpoints = self.endpoints.iter().filter(|tracked| tracked.peer == peer).peekable();
        let gone = endpoints.peek().is_some() && endpoints.all(|tracked| tracked.state == State::Severed);
        assert!(!gone, "{what} of {peer:?} after its certificate");
    }

    fn assert_not_severed(&self, endpoint: E, what: &str) {
        let gone = self
            .endpoints
            .iter()
            .any(|tracked| tracked.endpoint == endpoint && tracked.state == State::Severed);
        assert!(!gone, "{what} of a tracked after its certificate");
    }
}

impl<S: Sink<E>, E: Copy + Eq> Sink<E> for Auditor<'_, S, E> {
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
        self.assert_peer_not_severed(from, "a message");
        self.counts.messages += 1;
        let known = self.entries.borrow_mut().arrive(digest(id, header, &payload.to_vec()));
        assert!(known, "a message of {from:?} with {id:?} that nobody sent, or that came twice");
        self.sink.on_message(from, id, header, payload);
    }

    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        self.assert_peer_not_severed(from, "a chunk");
        self.counts.chunks += 1;
        let bytes = self.entries.borrow().streams.get(&stream).copied().unwrap_or(0);
        let rest = bytes.checked_sub(payload.len() as u64);
        assert!(rest.is_some(), "more bytes of {stream:?} arrive than were sent");
        self.entries.borrow_mut().streams.insert(stream, rest.unwrap_or(0));
        self.sink.on_chunk(from, stream, payload);
    }

    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
        self.counts.done += 1;
        assert!(self.entries.borrow_mut().open.remove(&done), "{done:?} ended twice, or never began");
        self.sink.on_done(done, result);
    }

    fn on_room(&mut self, to: PeerIndex, endpoint: E) {
        self.assert_not_severed(endpoint, "room");
        self.counts.rooms += 1;
        self.sink.on_room(to, endpoint);
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        self.assert_not_severed(endpoint, "evidence");
        self.counts.errors += 1;
        self.sink.on_error(peer, endpoint, cause);
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.assert_not_severed(endpoint, "a second certificate");
        self.counts.severed += 1;
        let tracked = self.endpoints.iter_mut().find(|tracked| tracked.endpoint == endpoint);
        let asked = tracked.is_some_and(|tracked| {
            let asked = tracked.state == State::Severing;
            tracked.state = State::Severed;
            asked
        });
        assert!(asked, "a certificate that nobody asked for");
        self.sink.on_severed(peer, endpoint);
    }
}

/// FNV-1a over all of a message, lengths included.
fn digest(id: AmId, header: &[u8], payload: &[u8]) -> u64 {
    let lengths = [header.len() as u64, payload.len() as u64].map(u64::to_le_bytes);
    let bytes = [id.0].into_iter().chain(lengths.into_iter().flatten());
    let bytes = bytes.chain(header.iter().copied()).chain(payload.iter().copied());
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}
