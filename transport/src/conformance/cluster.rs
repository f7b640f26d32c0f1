// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A few connected BTLs, what each of them delivered, and their rounds of progress.

use super::Fixture;
use crate::{Ability, AmId, Btl, Card, Cause, Class, Cookie, Payload, SendError, Sink, Stream};
use core::fmt;
use mend_base::{Instant, PeerIndex};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Connected BTLs. Process `j` is `PeerIndex(j)` in the table of each.
pub struct Cluster<F: Fixture> {
    /// The fixture that made them.
    pub fixture: F,
    nodes: Vec<Node<F::Btl>>,
    calls: u64,
}

struct Node<B: Btl> {
    /// `None`: it was abandoned.
    btl: Option<B>,
    /// Its endpoint to each process.
    endpoints: Vec<Option<B::Endpoint>>,
    heard: Recorder<B::Endpoint>,
}

/// One callback.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard<E> {
    /// `on_message`: from, id, header, payload.
    Message(PeerIndex, AmId, Vec<u8>, Vec<u8>),
    /// `on_chunk`.
    Chunk(PeerIndex, Stream, Vec<u8>),
    /// `on_done`.
    Done(Cookie, Result<(), SendError>),
    /// `on_room`.
    Room(PeerIndex, E),
    /// `on_error`.
    Error(PeerIndex, E, Cause),
    /// `on_severed`.
    Severed(PeerIndex, E),
}

/// A sink that records everything.
#[derive(Clone, Debug)]
pub struct Recorder<E> {
    /// In the order of the callbacks.
    pub all: Vec<Heard<E>>,
}

impl<F: Fixture> Cluster<F> {
    /// `count` processes, each connected to each other.
    pub fn connected(count: usize) -> Self {
        let (fixture, btls) = F::start(count);
        let nodes: Vec<_> = btls.into_iter().map(Node::new).collect();
        assert_eq!(nodes.len(), if F::ALONE { 1 } else { count }, "the fixture made too few or too many");
        let mut cluster = Cluster { fixture, nodes, calls: 0 };
        cluster.connect_all();
        cluster
    }

    fn connect_all(&mut self) {
        let cards: Vec<Card> = self.nodes.iter_mut().map(|node| node.card()).collect();
        let pairs: Vec<_> = self.pairs().collect();
        for &(from, to) in &pairs {
            let peer = PeerIndex(to as u32);
            let endpoint = (0..STEPS).find_map(|_| self.btl(from).connect(peer, &cards[to]).ok());
            self.nodes[from].endpoints = Self::with(
                &self.nodes[from].endpoints,
                to,
                endpoint.expect("a peer of the same fixture is reachable"),
            );
        }
        let stands = |cluster: &Self| {
            pairs.iter().all(|&(from, to)| {
                let peer = PeerIndex(to as u32);
                cluster
                    .heard(from)
                    .iter()
                    .any(|heard| matches!(heard, Heard::Room(whose, _) if *whose == peer))
            })
        };
        self.until("the connections stand", stands);
        self.settle();
        self.nodes.iter_mut().for_each(|node| node.heard.all.clear());
    }

    fn with(endpoints: &[Option<Endpoint<F>>], to: usize, endpoint: Endpoint<F>) -> Vec<Option<Endpoint<F>>> {
        let mut endpoints = endpoints.to_vec();
        if endpoints.len() <= to {
            endpoints.resize(to + 1, None);
        }
        endpoints[to] = Some(endpoint);
        endpoints
    }

    /// All pairs of sender and receiver.
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<F> {
        let count = self.nodes.len();
        let all = (0..count).flat_map(move |from| (0..count).map(move |to| (from, to)));
        all.filter(|(from, to)| F::ALONE || from != to)
    }

    /// The sender and the receiver of a test of two.
    pub const SENDER: usize = 0;
    /// The receiver.
    pub const RECEIVER: usize = if F::ALONE { 0 } else { 1 };

    /// The BTL of process `index`.
    pub fn btl(&mut self, index: usize) -> &mut F::Btl {
        self.nodes[index].btl.as_mut().expect("a process that the test has not abandoned")
    }

    /// Its endpoint to process `to`.
    pub fn endpoint(&self, from: usize, to: usize) -> Endpoint<F> {
        self.nodes[from].endpoints[to].expect("an endpoint that the test connected")
    }

    /// What was delivered at `index` so far.
    pub fn heard(&self, index: usize) -> &[Heard<Endpoint<F>>] {
        &self.nodes[index].heard.all
    }

    /// Forgets what was delivered at `index`.
    pub fn forget(&mut self, index: usize) {
        self.nodes[index].heard.all.clear();
    }

    /// Process `index` ends abruptly.
    pub fn abandon(&mut self, index: usize) {
        let btl = self.nodes[index].btl.take().expect("a process ends once");
        self.fixture.abandon(index, btl);
    }

    /// One `progress` of `index`, with a budget.
    pub fn progress_with(&mut self, index: usize, budget: u32) -> u32 {
        self.calls += 1;
        let now = Instant(self.calls * NS_PER_CALL);
        let node = &mut self.nodes[index];
        let btl = node.btl.as_mut().expect("a process that the test has not abandoned");
        let before = node.heard.all.len();
        let events = btl.progress(now, budget, &mut node.heard);
        assert!(
            node.heard.all.len() - before <= budget as usize,
            "progress went over its budget of {budget}"
        );
        events
    }

    /// One `progress` of `index`.
    pub fn progress(&mut self, index: usize) -> u32 {
        self.progress_with(index, BUDGET)
    }

    /// One `progress` of `index` whose sink panics at each event once it has recorded it. Returns whether it did.
    pub fn progress_with_a_panic(&mut self, index: usize) -> bool {
        self.calls += 1;
        let now = Instant(self.calls * NS_PER_CALL);
        let node = &mut self.nodes[index];
        let btl = node.btl.as_mut().expect("a process that the test has not abandoned");
        let mut sink = Panicking(&mut node.heard);
        catch_unwind(AssertUnwindSafe(|| btl.progress(now, BUDGET, &mut sink))).is_err()
    }

    /// Takes the next message of `from`, if there is one, as a blocking receive from that peer does.
    pub fn take(&mut self, index: usize, from: usize) {
        let endpoint = self.endpoint(index, from);
        let now = Instant(self.calls * NS_PER_CALL);
        let node = &mut self.nodes[index];
        let btl = node.btl.as_mut().expect("a process that the test has not abandoned");
        if btl.has_message(endpoint) {
            let before = node.heard.all.len();
            let events = btl.take_message(now, endpoint, &mut node.heard);
            assert_eq!(node.heard.all.len() - before, events as usize, "one message, and nothing else");
        }
    }

    /// One round of all processes that live.
    pub fn progress_all(&mut self) -> u32 {
        let living: Vec<_> = (0..self.nodes.len()).filter(|&index| self.nodes[index].btl.is_some()).collect();
        living.into_iter().map(|index| self.progress(index)).sum()
    }

    /// Makes rounds until `done`.
    pub fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        for _ in 0..STEPS {
            if done(self) {
                return;
            }
            self.progress_all();
        }
        panic!("after {STEPS} rounds still not: {what}; {}", self.last_events());
    }

    /// The last events of all processes, in short.
    fn last_events(&self) -> String {
        let mut words = String::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let all = &node.heard.all;
            words += &format!("\n  process {index} heard {} events, the last being", all.len());
            all.iter().rev().take(12).rev().for_each(|heard| words += &format!(" {heard}"));
        }
        words
    }

    /// The number of events so far. Errors may repeat for ever and are not counted.
    fn news(&self) -> usize {
        let heard = self.nodes.iter().flat_map(|node| &node.heard.all);
        heard.filter(|heard| !matches!(heard, Heard::Error(..))).count()
    }

    /// Makes rounds until no process has an event any more.
    pub fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..STEPS {
            let before = self.news();
            self.progress_all();
            quiet = if self.news() == before { quiet + 1 } else { 0 };
            if quiet == QUIET_ROUNDS {
                return;
            }
        }
        panic!("after {STEPS} rounds there is still news");
    }

    /// Tries once to send message `number`: its payload and header follow from the number.
    pub fn try_send(&mut self, from: usize, to: usize, class: Class, number: u32, len: usize) -> Sent {
        let endpoint = self.endpoint(from, to);
        let mut filled = false;
        let answer = self.btl(from).send(endpoint, class, ID, &number.to_le_bytes(), len, |mut slot| {
            filled = true;
            slot.put(&pattern(number, len));
        });
        assert_eq!(filled, answer.is_ok(), "fill is called if, and only if, the message goes out");
        answer
    }

    /// Sends message `number`, with rounds while there is no room.
    pub fn send(&mut self, from: usize, to: usize, class: Class, number: u32, len: usize) {
        for _ in 0..STEPS {
            match self.try_send(from, to, class, number, len) {
                Ok(()) => return,
                Err(SendError::Busy) => self.progress_all(),
                Err(error) => panic!("message {number} from {from} to {to}: {error:?}"),
            };
        }
        panic!("no room for message {number} from {from} to {to} after {STEPS} rounds");
    }

    /// Tries once to send chunk `number` of a stream.
    pub fn try_chunk(&mut self, from: usize, to: usize, stream: Stream, number: u32, len: usize) -> Sent {
        let endpoint = self.endpoint(from, to);
        let mut filled = false;
        let answer = self.btl(from).send_chunk(endpoint, stream, len, |mut slot| {
            filled = true;
            slot.put(&pattern(number, len));
        });
        assert_eq!(filled, answer.is_ok(), "fill is called if, and only if, the chunk goes out");
        answer
    }

    /// Sends chunk `number` of a stream, with rounds while there is no room.
    pub fn chunk(&mut self, from: usize, to: usize, stream: Stream, number: u32, len: usize) {
        for _ in 0..STEPS {
            match self.try_chunk(from, to, stream, number, len) {
                Ok(()) => return,
                Err(SendError::Busy) => self.progress_all(),
                Err(error) => panic!("chunk {number} from {from} to {to}: {error:?}"),
            };
        }
        panic!("no room for chunk {number} from {from} to {to} after {STEPS} rounds");
    }

    /// Sends data messages `0..` of `len` bytes until there is no room, without a round. Returns how many went out.
    pub fn fill_up(&mut self, from: usize, to: usize, len: usize) -> u32 {
        let (mut number, mut refused) = (0, 0);
        while number < MESSAGES_MAX {
            match self.try_send(from, to, Class::Data, number, len) {
                Ok(()) => (number, refused) = (number + 1, 0),
                // Some refusals may be the fault injector's.
                Err(SendError::Busy) if F::EXACT || refused == 50 => return number,
                Err(SendError::Busy) => refused += 1,
                Err(error) => panic!("message {number} from {from} to {to}: {error:?}"),
            }
        }
        panic!("{MESSAGES_MAX} messages went out without a receiver: the queue has no bound");
    }

    /// The numbers of the messages that `at` got from `from`, in order; their headers and payloads are checked.
    pub fn numbers(&self, at: usize, from: usize) -> Vec<u32> {
        let from = PeerIndex(from as u32);
        let numbers = self.heard(at).iter().filter_map(|heard| match heard {
            Heard::Message(whose, id, header, payload) if *whose == from => {
                Some(number_of(*id, header, payload))
            }
            _ => None,
        });
        numbers.collect()
    }

    /// The bytes of a stream that `at` got, one after the other.
    pub fn stream(&self, at: usize, stream: Stream) -> Vec<u8> {
        let chunks = self.heard(at).iter().filter_map(|heard| match heard {
            Heard::Chunk(_, whose, payload) if *whose == stream => Some(payload.as_slice()),
            _ => None,
        });
        chunks.flatten().copied().collect()
    }

    /// How often `on_severed` was called at `at` for its endpoint to `peer`.
    pub fn severed_reports(&self, at: usize, peer: usize) -> usize {
        let (peer, endpoint) = (PeerIndex(peer as u32), self.endpoint(at, peer));
        self.heard(at).iter().filter(|heard| **heard == Heard::Severed(peer, endpoint)).count()
    }

    /// How often `on_room` was called at `at` for its endpoint to `peer`.
    pub fn rooms(&self, at: usize, peer: usize) -> usize {
        let (peer, endpoint) = (PeerIndex(peer as u32), self.endpoint(at, peer));
        self.heard(at).iter().filter(|heard| **heard == Heard::Room(peer, endpoint)).count()
    }

    /// Whether the endpoint between sender and receiver can do that.
    pub fn can(&mut self, ability: Ability) -> bool {
        let endpoint = self.endpoint(Self::SENDER, Self::RECEIVER);
        self.btl(Self::SENDER).limits(endpoint).can(ability)
    }

    /// The longest message and the longest chunk between sender and receiver, and what fits in one piece.
    pub fn sizes(&mut self) -> (usize, usize, usize) {
        let endpoint = self.endpoint(Self::SENDER, Self::RECEIVER);
        let limits = self.btl(Self::SENDER).limits(endpoint);
        (limits.packed_bytes_max as usize, limits.chunk_bytes as usize, limits.inline_bytes_max as usize)
    }
}

impl<E> fmt::Display for Heard<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Heard::Message(from, id, header, payload) => {
                write!(out, "Message({}, {}, {:?}+{})", from.0, id.0, header.get(..4), payload.len())
            }
            Heard::Chunk(from, stream, payload) => {
                write!(out, "Chunk({}, {}, {})", from.0, stream.0, payload.len())
            }
            Heard::Done(cookie, result) => write!(out, "Done({}, {result:?})", cookie.0),
            Heard::Room(to, _) => write!(out, "Room({})", to.0),
            Heard::Error(peer, _, cause) => write!(out, "Error({}, {cause:?})", peer.0),
            Heard::Severed(peer, _) => write!(out, "Severed({})", peer.0),
        }
    }
}

impl<B: Btl> Node<B> {
    fn new(btl: B) -> Self {
        Node { btl: Some(btl), endpoints: Vec::new(), heard: Recorder { all: Vec::new() } }
    }

    fn card(&mut self) -> Card {
        let mut card = Card { layout: Card::LAYOUT, ..Card::default() };
        self.btl.as_ref().expect("nobody is abandoned before it is connected").advertise(&mut card);
        card
    }
}

impl<E> Sink<E> for Recorder<E> {
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
        self.all.push(Heard::Message(from, id, header.to_vec(), payload.to_vec()));
    }

    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        self.all.push(Heard::Chunk(from, stream, payload.to_vec()));
    }

    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
        self.all.push(Heard::Done(done, result));
    }

    fn on_room(&mut self, to: PeerIndex, endpoint: E) {
        self.all.push(Heard::Room(to, endpoint));
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        self.all.push(Heard::Error(peer, endpoint, cause));
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.all.push(Heard::Severed(peer, endpoint));
    }
}

/// Panics at each event, once it is recorded.
struct Panicking<'a, E>(&'a mut Recorder<E>);

impl<E> Sink<E> for Panicking<'_, E> {
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
        self.0.on_message(from, id, header, payload);
        panic!("the sink fails at a message");
    }

    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        self.0.on_chunk(from, stream, payload);
        panic!("the sink fails at a chunk");
    }

    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
        self.0.on_done(done, result);
        panic!("the sink fails at a completion");
    }

    fn on_room(&mut self, to: PeerIndex, endpoint: E) {
        self.0.on_room(to, endpoint);
        panic!("the sink fails at room");
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        self.0.on_error(peer, endpoint, cause);
        panic!("the sink fails at evidence");
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.0.on_severed(peer, endpoint);
        panic!("the sink fails at the end of an endpoint");
    }
}

/// Bytes that follow from a number: another number, or a shift by one, gives others.
pub(super) fn pattern(number: u32, len: usize) -> Vec<u8> {
    let start = number.wrapping_mul(0x9E37_79B9) >> 16;
    (0..len).map(|at| (start as usize + at * 7 + (at >> 8) * 13) as u8).collect()
}

fn number_of(id: AmId, header: &[u8], payload: &[u8]) -> u32 {
    let bytes: [u8; 4] = header[..4].try_into().expect("headers of the suite begin with a number");
    let number = u32::from_le_bytes(bytes);
    assert_eq!(id, ID, "message {number} arrived under another id");
    assert_eq!(
        payload,
        pattern(number, payload.len()),
        "the payload of message {number} is not what was sent"
    );
    number
}

/// The endpoint of a fixture's BTL.
pub(super) type Endpoint<F> = <<F as Fixture>::Btl as Btl>::Endpoint;

/// The answer of a send.
pub(super) type Sent = Result<(), SendError>;

/// The suite's own active-message id.
pub(super) const ID: AmId = AmId(7);

/// The budget of a round where the requirement does not say another.
pub(super) const BUDGET: u32 = 64;

/// A bound on the rounds of any wait: more of them are a hang.
pub(super) const STEPS: usize = 100_000;

const QUIET_ROUNDS: usize = 64;
const NS_PER_CALL: u64 = 10_000;
const MESSAGES_MAX: u32 = 1 << 16;
