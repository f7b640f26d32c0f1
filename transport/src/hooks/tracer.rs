// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records the last events of a BTL, for the message of a test that failed.

use crate::{
    AmId, Atomic, Btl, Card, Cause, ConnectError, Cookie, EventPending, Exposure, Limits, MessageClass,
    Payload, PayloadWriter, Rdma, Region, RegisterError, Remote, RemoteAccess, RemoteKey, SendError, Sink,
    Span, Stream, UserMemory, WakeSet,
};
use core::fmt;
use mend_base::{Instant, PeerIndex};
use std::collections::VecDeque;

/// A BTL that records its last events. Its `Display` lists them, the oldest first.
#[derive(Debug)]
pub struct Tracer<B: Btl> {
    inner: B,
    log: EventLog<B::Endpoint>,
}

/// A call, with its answer, or a callback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<E> {
    /// `connect`, and its answer.
    Connect(PeerIndex, Result<E, ConnectError>),
    /// `quarantine`.
    Quarantine(E),
    /// `resume`.
    Resume(E),
    /// `on_running`.
    Running(E),
    /// `on_unheard`.
    Unheard(E),
    /// `sever`.
    Sever(E),
    /// `send`: to, class, id, bytes of the header, bytes of the payload, answer.
    Send(E, MessageClass, AmId, u32, u32, Result<(), SendError>),
    /// `send_chunk`: to, stream, bytes, answer.
    SendChunk(E, Stream, u32, Result<(), SendError>),
    /// `register`: with, bytes, answer.
    Register(E, u64, Result<Region, RegisterError>),
    /// `unregister`.
    Unregister(Region, Cookie),
    /// `expose`: to, what, answer.
    Expose(E, Span, Result<Exposure, RegisterError>),
    /// `unexpose`.
    Unexpose(Exposure, Cookie),
    /// `import`: from, answer.
    Import(E, Result<Remote, RegisterError>),
    /// `put`: to, bytes, remote offset, cookie, answer.
    Put(E, u64, u64, Cookie, Result<(), SendError>),
    /// `get`: from, bytes, remote offset, cookie, answer.
    Get(E, u64, u64, Cookie, Result<(), SendError>),
    /// `atomic`: to, operation, remote offset, cookie, answer.
    Atomic(E, Atomic, u64, Cookie, Result<(), SendError>),
    /// `flush`: to, cookie, answer.
    Flush(E, Cookie, Result<(), SendError>),
    /// `arm`.
    Arm(Result<(), EventPending>),
    /// `disarm`.
    Disarm,
    /// `on_message`: from, id, bytes of the header, bytes of the payload.
    Message(PeerIndex, AmId, u32, u32),
    /// `on_chunk`: from, stream, bytes.
    Chunk(PeerIndex, Stream, u32),
    /// `on_done`.
    Done(Cookie, Result<(), SendError>),
    /// `on_sendable`.
    Sendable(PeerIndex, E),
    /// `on_error`.
    Error(PeerIndex, E, Cause),
    /// `on_severed`.
    Severed(PeerIndex, E),
}

/// The last events, numbered.
#[derive(Debug)]
struct EventLog<E> {
    events: VecDeque<(u64, Event<E>)>,
    capacity: usize,
    /// How many events there have been.
    count: u64,
}

impl<B: Btl> Tracer<B> {
    /// Wraps `inner`, and records the last `capacity` events.
    pub fn new(inner: B, capacity: usize) -> Self {
        Tracer { inner, log: EventLog { events: VecDeque::with_capacity(capacity), capacity, count: 0 } }
    }

    /// The last events, the oldest first.
    pub fn events(&self) -> impl Iterator<Item = &Event<B::Endpoint>> {
        self.log.events.iter().map(|(_, event)| event)
    }

    /// The BTL without its tracer.
    pub fn into_inner(self) -> B {
        self.inner
    }
}

impl<B: Btl> fmt::Display for Tracer<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.log.events.iter().try_for_each(|(number, event)| writeln!(out, "{number}: {event:?}"))
    }
}

impl<E> EventLog<E> {
    fn push(&mut self, event: Event<E>) {
        if self.events.len() == self.capacity {
            self.events.pop_front();
        }
        if self.capacity > 0 {
            self.events.push_back((self.count, event));
        }
        self.count += 1;
    }
}

impl<B: Btl> Btl for Tracer<B> {
    type Endpoint = B::Endpoint;

    fn advertise(&self, card: &mut Card) {
        self.inner.advertise(card);
    }

    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<B::Endpoint, ConnectError> {
        let answer = self.inner.connect(peer, card);
        self.log.push(Event::Connect(peer, answer));
        answer
    }

    fn limits(&self, to: B::Endpoint) -> &Limits {
        self.inner.limits(to)
    }

    fn quarantine(&mut self, endpoint: B::Endpoint) {
        self.log.push(Event::Quarantine(endpoint));
        self.inner.quarantine(endpoint);
    }

    fn resume(&mut self, endpoint: B::Endpoint) {
        self.log.push(Event::Resume(endpoint));
        self.inner.resume(endpoint);
    }

    fn on_running(&mut self, endpoint: B::Endpoint) {
        self.log.push(Event::Running(endpoint));
        self.inner.on_running(endpoint);
    }

    fn on_unheard(&mut self, endpoint: B::Endpoint) {
        self.log.push(Event::Unheard(endpoint));
        self.inner.on_unheard(endpoint);
    }

    fn sever(&mut self, endpoint: B::Endpoint) {
        self.log.push(Event::Sever(endpoint));
        self.inner.sever(endpoint);
    }

    fn sever_dead(&mut self, endpoint: B::Endpoint) {
        self.log.push(Event::Sever(endpoint));
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
        let answer = self.inner.send(to, class, id, header, len, fill);
        self.log.push(Event::Send(to, class, id, header.len() as u32, len as u32, answer));
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
        self.log.push(Event::SendChunk(to, stream, len as u32, answer));
        answer
    }

    fn ready(&self, from: B::Endpoint) -> bool {
        self.inner.ready(from)
    }

    fn has_message(&self, from: B::Endpoint) -> bool {
        self.inner.has_message(from)
    }

    fn take_message(&mut self, now: Instant, from: B::Endpoint, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        self.inner.take_message(now, from, &mut TracingSink { sink, log: &mut self.log })
    }

    fn progress(&mut self, now: Instant, budget: u32, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        self.inner.progress(now, budget, &mut TracingSink { sink, log: &mut self.log })
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
        let answer = self.inner.arm(wake);
        self.log.push(Event::Arm(answer));
        answer
    }

    fn disarm(&mut self) {
        self.log.push(Event::Disarm);
        self.inner.disarm();
    }
}

impl<B: Rdma> Rdma for Tracer<B> {
    fn register(&mut self, with: B::Endpoint, memory: &UserMemory) -> Result<Region, RegisterError> {
        let answer = self.inner.register(with, memory);
        self.log.push(Event::Register(with, memory.len() as u64, answer));
        answer
    }

    fn unregister(&mut self, region: Region, done: Cookie) {
        self.log.push(Event::Unregister(region, done));
        self.inner.unregister(region, done);
    }

    fn expose(
        &mut self,
        to: B::Endpoint,
        local: Span,
        access: RemoteAccess,
    ) -> Result<(Exposure, RemoteKey), RegisterError> {
        let answer = self.inner.expose(to, local, access);
        self.log.push(Event::Expose(to, local, answer.map(|(exposure, _)| exposure)));
        answer
    }

    fn unexpose(&mut self, exposure: Exposure, done: Cookie) {
        self.log.push(Event::Unexpose(exposure, done));
        self.inner.unexpose(exposure, done);
    }

    fn unexpose_unused(&mut self, exposure: Exposure, done: Cookie) {
        self.log.push(Event::Unexpose(exposure, done));
        self.inner.unexpose_unused(exposure, done);
    }

    fn import(&mut self, from: B::Endpoint, key: &[u8]) -> Result<Remote, RegisterError> {
        let answer = self.inner.import(from, key);
        self.log.push(Event::Import(from, answer));
        answer
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
        self.log.push(Event::Put(to, local.bytes, remote_offset, done, answer));
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
        self.log.push(Event::Get(from, local.bytes, remote_offset, done, answer));
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
        self.log.push(Event::Atomic(to, operation, remote_offset, done, answer));
        answer
    }

    fn flush(&mut self, to: B::Endpoint, done: Cookie) -> Result<(), SendError> {
        let answer = self.inner.flush(to, done);
        self.log.push(Event::Flush(to, done, answer));
        answer
    }
}

/// Records each callback, and passes it on.
struct TracingSink<'a, S, E> {
    sink: &'a mut S,
    log: &'a mut EventLog<E>,
}

impl<S: Sink<E>, E: Copy> Sink<E> for TracingSink<'_, S, E> {
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
        self.log.push(Event::Message(from, id, header.len() as u32, payload.len() as u32));
        self.sink.on_message(from, id, header, payload);
    }

    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        self.log.push(Event::Chunk(from, stream, payload.len() as u32));
        self.sink.on_chunk(from, stream, payload);
    }

    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
        self.log.push(Event::Done(done, result));
        self.sink.on_done(done, result);
    }

    fn on_sendable(&mut self, to: PeerIndex, endpoint: E) {
        self.log.push(Event::Sendable(to, endpoint));
        self.sink.on_sendable(to, endpoint);
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        self.log.push(Event::Error(peer, endpoint, cause));
        self.sink.on_error(peer, endpoint, cause);
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.log.push(Event::Severed(peer, endpoint));
        self.sink.on_severed(peer, endpoint);
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Tracer};
    use crate::conformance::Recorder;
    use crate::{
        AmId, Btl, Buffer, Card, Cookie, Loopback, MessageClass, Rdma, RemoteAccess, Span, UserMemory,
    };
    use mend_base::{Instant, Job, Peer, PeerIndex};

    #[test]
    fn the_tracer_records_the_last_events_and_lists_them() {
        let mut traced = Tracer::new(Loopback::new(Peer::new(Job(1), 0)), 3);
        let mut card = Card::default();
        traced.advertise(&mut card);
        let endpoint = traced.connect(PeerIndex(5), &card).unwrap();
        let mut recorder = Recorder { callbacks: Vec::new() };
        traced.progress(Instant(0), 8, &mut recorder);
        traced.send(endpoint, MessageClass::Control, AmId(2), b"h", 4, |mut slot| slot.put(b"abcd")).unwrap();
        traced.progress(Instant(0), 8, &mut recorder);
        let events: Vec<_> = traced.events().copied().collect();
        let expected = [
            Event::Sendable(PeerIndex(5), 0),
            Event::Send(0, MessageClass::Control, AmId(2), 1, 4, Ok(())),
            Event::Message(PeerIndex(5), AmId(2), 1, 4),
        ];
        assert_eq!(events, expected);
        assert!(traced.to_string().starts_with("1: Sendable(PeerIndex(5), 0)\n"), "{traced}");
    }

    #[test]
    fn the_tracer_records_operations_on_remote_memory() {
        let mut traced = Tracer::new(Loopback::new(Peer::new(Job(1), 0)), 16);
        let mut card = Card::default();
        traced.advertise(&mut card);
        let endpoint = traced.connect(PeerIndex(5), &card).unwrap();
        let mut recorder = Recorder { callbacks: Vec::new() };
        traced.progress(Instant(0), 8, &mut recorder);
        let region = traced.register(endpoint, &UserMemory::of_buffer(&Buffer::zeroed(8))).unwrap();
        let span = Span { region, offset: 0, bytes: 4 };
        let access = RemoteAccess { read: true, write: true, atomic: true };
        let (exposure, key) = traced.expose(endpoint, span, access).unwrap();
        let remote = traced.import(endpoint, key.as_bytes()).unwrap();
        traced.put(endpoint, span, remote, 0, Cookie(1)).unwrap();
        traced.get(endpoint, span, remote, 0, Cookie(2)).unwrap();
        traced.flush(endpoint, Cookie(3)).unwrap();
        traced.unexpose(exposure, Cookie(4));
        traced.unregister(region, Cookie(5));
        let events: Vec<_> = traced.events().skip(2).copied().collect();
        let expected = [
            Event::Register(0, 8, Ok(region)),
            Event::Expose(0, span, Ok(exposure)),
            Event::Import(0, Ok(remote)),
            Event::Put(0, 4, 0, Cookie(1), Ok(())),
            Event::Get(0, 4, 0, Cookie(2), Ok(())),
            Event::Flush(0, Cookie(3), Ok(())),
            Event::Unexpose(exposure, Cookie(4)),
            Event::Unregister(region, Cookie(5)),
        ];
        assert_eq!(events, expected);
    }
}
