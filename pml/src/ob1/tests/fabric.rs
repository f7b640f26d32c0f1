// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes in one test: an in-memory transport whose deliveries, refusals and budgets a seed decides.

use super::remote_memory::{self, RemoteMemory};
use crate::{
    Channel, CommIndex, Config, End, Ends, Error, Lent, Ob1, Request, SendMode, Started, State, Status,
    Upcalls,
};
use mend_base::{
    ContextKind, Identity, Instant, Job, Peer, PeerIndex, Random, Rank, Source, Tag, TagSelector,
};
use mend_datatype::TypedBuffer;
use mend_transport::{
    Ability, AmId, Btl, Buffer, Card, Cause, ConnectError, Cookie, EventPending, Exposure, Limits,
    MessageClass, Payload, PayloadWriter, Rdma, Region, RegisterError, Remote, RemoteAccess, RemoteKey,
    SendError, Sink, Span, Stream, UserMemory, WakeSet,
};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// One thing on its way.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) id: AmId,
    pub(super) header: Vec<u8>,
    pub(super) payload: Vec<u8>,
    pub(super) stream: Option<Stream>,
}

/// The three queues of an ordered pair: each in order, independent of each other.
pub(super) type PairQueues = [VecDeque<Flight>; 3];

pub(super) const DATA: usize = 0;
pub(super) const CONTROL: usize = 1;
pub(super) const CHUNKS: usize = 2;

/// What is between the processes.
#[derive(Debug)]
pub(super) struct Fabric {
    pub(super) random: Random,
    /// By sender, then receiver.
    pub(super) queues: Vec<Vec<PairQueues>>,
    /// A send is refused once in so many times; 0: never.
    pub(super) busy_once_in: u64,
    /// How many entries a queue holds.
    pub(super) room: usize,
    pub(super) limits: Limits,
    pub(super) memory: RemoteMemory,
    /// Reports that a peer is sendable, which no event causes: the process, and the peer.
    pub(super) sendable: Vec<(usize, u32)>,
}

/// One process's end.
#[derive(Debug)]
pub(super) struct Port {
    me: usize,
    fabric: Rc<RefCell<Fabric>>,
    limits: Limits,
}

impl Port {
    fn push(&mut self, to: u32, queue: usize, flight: impl FnOnce() -> Flight) -> Result<(), SendError> {
        let mut fabric = self.fabric.borrow_mut();
        let (busy, room) = (fabric.busy_once_in, fabric.room);
        let refused = busy > 0 && fabric.random.once_in(busy);
        let queue = &mut fabric.queues[self.me][to as usize][queue];
        if refused || queue.len() >= room {
            return Err(SendError::Busy);
        }
        queue.push_back(flight());
        Ok(())
    }
}

fn filled(len: usize, fill: impl FnOnce(PayloadWriter<'_>)) -> Vec<u8> {
    let mut payload = vec![0xEE; len];
    fill(PayloadWriter::from(&mut payload[..]));
    payload
}

impl Rdma for Port {
    fn register(&mut self, _: u32, memory: &UserMemory) -> Result<Region, RegisterError> {
        self.fabric.borrow_mut().memory.register(self.me, memory)
    }
    fn unregister(&mut self, region: Region, done: Cookie) {
        self.fabric.borrow_mut().memory.unregister(self.me, region, done);
    }
    fn expose(
        &mut self,
        to: u32,
        local: Span,
        access: RemoteAccess,
    ) -> Result<(Exposure, RemoteKey), RegisterError> {
        assert!(access.read && !access.write && !access.atomic);
        self.fabric.borrow_mut().memory.expose(self.me, to, local)
    }
    fn unexpose(&mut self, exposure: Exposure, done: Cookie) {
        self.fabric.borrow_mut().memory.unexpose(self.me, exposure, done);
    }
    fn unexpose_unused(&mut self, exposure: Exposure, done: Cookie) {
        let memory = &mut self.fabric.borrow_mut().memory;
        memory.assert_unused(exposure);
        memory.unexpose(self.me, exposure, done);
    }
    fn import(&mut self, _: u32, key: &[u8]) -> Result<Remote, RegisterError> {
        remote_memory::import(key)
    }
    fn get(
        &mut self,
        from: u32,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        assert!(local.bytes > 0 && local.bytes <= self.limits.transfer_bytes_max);
        self.fabric.borrow_mut().memory.get(self.me, from, local, remote, remote_offset, done)
    }
}

impl Btl for Port {
    type Endpoint = u32;

    fn advertise(&self, _: &mut Card) {}
    fn connect(&mut self, peer: PeerIndex, _: &Card) -> Result<u32, ConnectError> {
        Ok(peer.0)
    }
    fn limits(&self, _: u32) -> &Limits {
        &self.limits
    }
    fn quarantine(&mut self, _: u32) {}
    fn resume(&mut self, _: u32) {}
    fn sever(&mut self, _: u32) {}

    fn send(
        &mut self,
        to: u32,
        class: MessageClass,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        let most = if class == MessageClass::Data {
            self.limits.message_bytes_max
        } else {
            self.limits.control_bytes_max
        };
        assert!(len <= most as usize && header.len() <= Limits::HEADER_BYTES_MAX);
        let queue = if class == MessageClass::Data { DATA } else { CONTROL };
        let header = header.to_vec();
        self.push(to, queue, || Flight { id, header, payload: filled(len, fill), stream: None })
    }

    fn send_chunk(
        &mut self,
        to: u32,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        assert!(len > 0 && len <= self.limits.chunk_bytes as usize);
        let flight =
            || Flight { id: AmId(0), header: vec![], payload: filled(len, fill), stream: Some(stream) };
        self.push(to, CHUNKS, flight)
    }

    fn ready(&self, _: u32) -> bool {
        false
    }
    fn has_message(&self, from: u32) -> bool {
        !self.fabric.borrow().queues[from as usize][self.me][DATA].is_empty()
    }
    fn take_message(&mut self, _: Instant, from: u32, sink: &mut impl Sink<u32>) -> u32 {
        let head = self.fabric.borrow_mut().queues[from as usize][self.me][DATA].pop_front();
        let Some(flight) = head else { return 0 };
        let payload = Payload::from(&flight.payload[..]);
        sink.on_message(PeerIndex(from), flight.id, &flight.header, payload);
        1
    }

    fn progress(&mut self, _: Instant, budget: u32, sink: &mut impl Sink<u32>) -> u32 {
        let is_own = |at: &mut (usize, u32)| at.0 == self.me;
        let sendable: Vec<_> = self.fabric.borrow_mut().sendable.extract_if(.., is_own).collect();
        sendable.into_iter().for_each(|(_, peer)| sink.on_sendable(PeerIndex(peer), peer));
        let most = self.fabric.borrow_mut().random.below(u64::from(budget).min(6) + 1) as u32;
        for done in 0..most {
            let ended = {
                let Fabric { memory, random, .. } = &mut *self.fabric.borrow_mut();
                if memory.left() > 0 && random.once_in(2) { memory.step(self.me, random) } else { None }
            };
            if let Some((cookie, result)) = ended {
                sink.on_done(cookie, result);
                // A hint, which may be wrong.
                (0..self.fabric.borrow().queues.len() as u32)
                    .for_each(|peer| sink.on_sendable(PeerIndex(peer), peer));
                continue;
            }
            let Some((from, flight)) = self.next() else { return done };
            let (from, payload) = (PeerIndex(from as u32), Payload::from(&flight.payload[..]));
            match flight.stream {
                Some(stream) => sink.on_chunk(from, stream, payload),
                None => sink.on_message(from, flight.id, &flight.header, payload),
            }
        }
        most
    }

    fn arm(&mut self, _: &mut WakeSet) -> Result<(), EventPending> {
        Ok(())
    }
    fn disarm(&mut self) {}
}

impl Port {
    /// Something that is ready for this process, as the seed says.
    fn next(&mut self) -> Option<(usize, Flight)> {
        let mut fabric = self.fabric.borrow_mut();
        let all = fabric.queues.len() * 3;
        let start = fabric.random.below(all as u64) as usize;
        (0..all).map(|step| (start + step) % all).find_map(|at| {
            let (from, queue) = (at / 3, at % 3);
            Some((from, fabric.queues[from][self.me][queue].pop_front()?))
        })
    }
}

/// The events that were reported to an engine.
#[derive(Debug, Default)]
pub(super) struct Reported {
    pub(super) errors: Vec<(PeerIndex, Cause)>,
    pub(super) others: Vec<(PeerIndex, AmId)>,
    pub(super) revoked: Vec<(PeerIndex, Identity)>,
}

impl Upcalls<u32> for Reported {
    fn on_message(&mut self, from: PeerIndex, id: AmId, _: &[u8], _: Payload<'_>) {
        self.others.push((from, id));
    }
    fn on_error(&mut self, peer: PeerIndex, _: u32, cause: Cause) {
        self.errors.push((peer, cause));
    }
    fn on_severed(&mut self, _: PeerIndex, _: u32) {}
    fn on_revoked(&mut self, from: PeerIndex, identity: Identity) {
        self.revoked.push((from, identity));
    }
}

/// A process.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) ob1: Ob1<u32>,
    pub(super) ends: Ends,
    pub(super) port: Port,
    pub(super) reported: Reported,
}

impl Node {
    pub(super) fn lend(&mut self) -> (&mut Ob1<u32>, Lent<'_, Port>) {
        (&mut self.ob1, Lent { net: &mut self.port, ends: &self.ends })
    }

    pub(super) fn poll(&self, request: Request) -> State {
        self.ob1.poll(request, &self.ends)
    }

    pub(super) fn probe(
        &mut self,
        on: Channel,
        from: Source,
        tag: TagSelector,
    ) -> Result<Option<Status>, Error> {
        self.ob1.probe(on, from, tag, &self.ends)
    }

    /// The engine publishes the end of a peer. The first end stands, as in [`Ends::add`].
    pub(super) fn end(&mut self, peer: u32, end: End) {
        if self.ends.add(PeerIndex(peer), end) {
            self.ob1.on_end(PeerIndex(peer), &self.ends);
        }
    }

    /// The program acknowledges the first `at_most` failures.
    pub(super) fn acknowledge(&mut self, on: Channel, at_most: u32) -> u32 {
        self.ob1.acknowledge(on, Some(at_most), &self.ends)
    }

    pub(super) fn unsatisfiable(&self, on: Channel) -> Option<Error> {
        self.ob1.unsatisfiable(on, &self.ends)
    }

    pub(super) fn end_unsatisfiable(&mut self, request: Request) -> bool {
        self.ob1.end_unsatisfiable(request, &self.ends)
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) nodes: Vec<Node>,
    pub(super) fabric: Rc<RefCell<Fabric>>,
    /// Whether peers are connected as soon as they are wanted.
    pub(super) connects: bool,
}

pub(super) const TEST_CONFIG: Config =
    Config { eager_bytes: 4096, held_bytes_max: 4 << 20, events_per_progress: 16, streams_max: 1 << 20 };

impl Cluster {
    pub(super) fn new(size: usize, seed: u64) -> Self {
        Self::with(size, seed, TEST_CONFIG)
    }

    pub(super) fn with(size: usize, seed: u64, config: Config) -> Self {
        let limits = Limits {
            abilities: Ability::Streams as u32 | Ability::Polling as u32,
            emulated: 0,
            control_bytes_max: 16,
            message_bytes_max: 4096,
            eager_bytes: 4096,
            chunk_bytes: 16 << 10,
            transfer_bytes_max: 0,
        };
        let fabric = Rc::new(RefCell::new(Fabric {
            random: Random(seed),
            queues: (0..size).map(|_| (0..size).map(|_| PairQueues::default()).collect()).collect(),
            busy_once_in: 0,
            room: 64,
            limits: limits.clone(),
            memory: RemoteMemory::default(),
            sendable: Vec::new(),
        }));
        let node = |me| Node {
            ob1: Ob1::new(config),
            ends: Ends::default(),
            port: Port { me, fabric: Rc::clone(&fabric), limits: limits.clone() },
            reported: Reported::default(),
        };
        Cluster { nodes: (0..size).map(node).collect(), fabric, connects: true }
    }

    /// Other limits for all, before any is connected.
    pub(super) fn limit(&mut self, change: impl Fn(&mut Limits)) {
        change(&mut self.fabric.borrow_mut().limits);
        for node in &mut self.nodes {
            change(&mut node.port.limits);
        }
    }

    /// From now on all can get, before any is connected: at most so many bytes at a time.
    pub(super) fn allow_gets(&mut self, transfer_bytes_max: u64) {
        self.limit(|limits| {
            limits.abilities |= Ability::Get as u32;
            limits.transfer_bytes_max = transfer_bytes_max;
        });
    }

    /// All open the communicator `number`; by node.
    pub(super) fn open(&mut self, number: u32, context_kind: ContextKind) -> Vec<Channel> {
        (0..self.nodes.len()).map(|at| self.open_at(at, number, context_kind)).collect()
    }

    pub(super) fn open_at(&mut self, at: usize, number: u32, context_kind: ContextKind) -> Channel {
        let members: Arc<[PeerIndex]> = (0..self.nodes.len() as u32).map(PeerIndex).collect();
        let Node { ob1, ends, .. } = &mut self.nodes[at];
        ob1.open(identity(number), context_kind, Rank(at as u32), members, CommIndex(number), ends)
    }

    pub(super) fn send(&mut self, at: usize, on: Channel, to: u32, tag: i32, bytes: &[u8]) -> Started {
        self.send_as(at, on, to, tag, bytes, SendMode::Standard)
    }

    pub(super) fn send_as(
        &mut self,
        at: usize,
        on: Channel,
        to: u32,
        tag: i32,
        bytes: &[u8],
        mode: SendMode,
    ) -> Started {
        let (ob1, lent) = self.nodes[at].lend();
        let data = TypedBuffer::bytes(UserMemory::of_buffer(&Buffer::from_bytes(bytes)));
        ob1.send(lent, on, Rank(to), Tag(tag), mode, data).unwrap()
    }

    /// A receive into a buffer of its own.
    pub(super) fn receive(
        &mut self,
        at: usize,
        on: Channel,
        from: Source,
        tag: TagSelector,
        bytes: usize,
    ) -> (Started, Arc<Buffer>) {
        let (ob1, lent) = self.nodes[at].lend();
        let buffer = Buffer::zeroed(bytes);
        let data = TypedBuffer::bytes(UserMemory::of_buffer(&buffer));
        (ob1.receive(lent, on, from, tag, data).unwrap(), buffer)
    }

    pub(super) fn probe(&mut self, at: usize, on: Channel, from: Source, tag: TagSelector) -> Option<Status> {
        self.nodes[at].probe(on, from, tag).unwrap()
    }

    /// A call of progress of one process.
    pub(super) fn progress_at(&mut self, at: usize) -> u32 {
        if self.connects {
            self.connect(at);
        }
        let Node { ob1, port, reported, .. } = &mut self.nodes[at];
        ob1.progress(port, Instant(0), reported)
    }

    /// Connects the peers that `at` wants.
    pub(super) fn connect(&mut self, at: usize) {
        let Node { ob1, port, .. } = &mut self.nodes[at];
        while let Some(peer) = ob1.next_to_connect() {
            ob1.connected(peer, peer.0, &port.limits);
        }
    }

    /// Makes progress at all, in any order, until nothing has happened for long.
    pub(super) fn settle(&mut self) {
        let mut quiet = 0;
        let mut calls = 0;
        while quiet < 40 * self.nodes.len() {
            calls += 1;
            assert!(calls < 2_000_000, "it never settles");
            let at = self.fabric.borrow_mut().random.below(self.nodes.len() as u64) as usize;
            let busy = self.progress_at(at) > 0 || self.is_anything_under_way();
            quiet = if busy { 0 } else { quiet + 1 };
        }
        self.lifecycle_check();
    }

    /// Every request so far has ended at most once, and none is lost.
    pub(super) fn lifecycle_check(&self) {
        for node in &self.nodes {
            node.ob1.lifecycle_check();
        }
    }

    pub(super) fn is_anything_under_way(&self) -> bool {
        let fabric = self.fabric.borrow();
        fabric.memory.is_busy() || fabric.queues.iter().flatten().flatten().any(|queue| !queue.is_empty())
    }

    pub(super) fn poll(&self, at: usize, started: Started) -> State {
        match started {
            Started::Done(status) => State::Done(Ok(status)),
            Started::Running(request) => self.nodes[at].poll(request),
        }
    }

    /// No process reported garbage.
    pub(super) fn assert_clean(&self) {
        for node in &self.nodes {
            assert!(node.reported.errors.is_empty(), "{:?}", node.reported.errors);
        }
    }
}

/// The identity of the communicator `number`.
pub(super) fn identity(number: u32) -> Identity {
    Identity { creator: Peer::new(Job(1), 0), number }
}

pub(super) fn request(started: Started) -> Request {
    match started {
        Started::Running(request) => request,
        Started::Done(status) => panic!("it was done at once: {status:?}"),
    }
}

pub(super) fn rank(rank: u32) -> Source {
    Source::Rank(Rank(rank))
}

pub(super) fn tag(tag: i32) -> TagSelector {
    TagSelector::Tag(Tag(tag))
}

/// Bytes that differ from seed to seed.
pub(super) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.bits().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
