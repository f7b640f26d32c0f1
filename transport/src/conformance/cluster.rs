// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connected BTLs, the callbacks that each of them made, and rounds of progress. A round is one call of `progress` of every process.

use super::Fixture;
use crate::{Ability, AmId, Btl, Card, Cause, Cookie, MessageClass, Payload, SendError, Sink, Stream};
use core::fmt;
use mend_base::{Instant, PeerIndex};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Connected BTLs, one for each process. Process `j` has the index `PeerIndex(j)` at every process.
pub struct Cluster<F: Fixture> {
    /// The fixture that made them.
    pub fixture: F,
    nodes: Vec<Node<F::Btl>>,
    calls: u64,
    /// How many cookies the tests have used.
    pub(super) cookies: u64,
}

struct Node<B: Btl> {
    /// `None`: the process has ended.
    btl: Option<B>,
    /// The endpoints of this process, by peer.
    endpoints: Vec<Option<B::Endpoint>>,
    recorder: Recorder<B::Endpoint>,
}

/// A callback that was recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Callback<E> {
    /// `on_message`: from, id, header, payload.
    Message(PeerIndex, AmId, Vec<u8>, Vec<u8>),
    /// `on_chunk`.
    Chunk(PeerIndex, Stream, Vec<u8>),
    /// `on_done`.
    Done(Cookie, Result<(), SendError>),
    /// `on_sendable`.
    Sendable(PeerIndex, E),
    /// `on_error`.
    Error(PeerIndex, E, Cause),
    /// `on_severed`.
    Severed(PeerIndex, E),
}

/// A sink that records every callback.
#[derive(Clone, Debug)]
pub struct Recorder<E> {
    /// In the order of the callbacks.
    pub callbacks: Vec<Callback<E>>,
}

impl<F: Fixture> Cluster<F> {
    /// Starts `count` processes and connects each to each other.
    pub fn connected(count: usize) -> Self {
        let (fixture, btls) = F::start(count);
        let nodes: Vec<_> = btls.into_iter().map(Node::new).collect();
        assert_eq!(nodes.len(), if F::ALONE { 1 } else { count }, "the fixture made another number of BTLs");
        let mut cluster = Cluster { fixture, nodes, calls: 0, cookies: 0 };
        cluster.connect_all();
        cluster
    }

    fn connect_all(&mut self) {
        let cards: Vec<Card> = self.nodes.iter_mut().map(|node| node.card()).collect();
        let pairs: Vec<_> = self.pairs().collect();
        for &(from, to) in &pairs {
            let peer = PeerIndex(to as u32);
            let endpoint = (0..STEPS).find_map(|_| self.btl(from).connect(peer, &cards[to]).ok());
            self.nodes[from].endpoints = Self::with_endpoint(
                &self.nodes[from].endpoints,
                to,
                endpoint.expect("a peer of the same fixture is reachable"),
            );
        }
        let connected = |cluster: &Self| {
            pairs.iter().all(|&(from, to)| {
                let peer = PeerIndex(to as u32);
                cluster
                    .callbacks(from)
                    .iter()
                    .any(|callback| matches!(callback, Callback::Sendable(to, _) if *to == peer))
            })
        };
        self.until("all endpoints are connected", connected);
        self.settle();
        self.nodes.iter_mut().for_each(|node| node.recorder.callbacks.clear());
    }

    fn with_endpoint(
        endpoints: &[Option<Endpoint<F>>],
        to: usize,
        endpoint: Endpoint<F>,
    ) -> Vec<Option<Endpoint<F>>> {
        let mut endpoints = endpoints.to_vec();
        if endpoints.len() <= to {
            endpoints.resize(to + 1, None);
        }
        endpoints[to] = Some(endpoint);
        endpoints
    }

    /// All pairs of a sender and a receiver.
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<F> {
        let count = self.nodes.len();
        let all = (0..count).flat_map(move |from| (0..count).map(move |to| (from, to)));
        all.filter(|(from, to)| F::ALONE || from != to)
    }

    /// The sender in a test with two processes.
    pub const SENDER: usize = 0;
    /// The receiver in a test with two processes.
    pub const RECEIVER: usize = if F::ALONE { 0 } else { 1 };

    /// The BTL of process `index`.
    pub fn btl(&mut self, index: usize) -> &mut F::Btl {
        self.nodes[index].btl.as_mut().expect("a process that the test has not abandoned")
    }

    /// The endpoint of process `from` to process `to`.
    pub fn endpoint(&self, from: usize, to: usize) -> Endpoint<F> {
        self.nodes[from].endpoints[to].expect("an endpoint that the test connected")
    }

    /// The callbacks at `index` so far.
    pub fn callbacks(&self, index: usize) -> &[Callback<Endpoint<F>>] {
        &self.nodes[index].recorder.callbacks
    }

    /// Clears the record of callbacks at `index`.
    pub fn clear_callbacks(&mut self, index: usize) {
        self.nodes[index].recorder.callbacks.clear();
    }

    /// Process `index` ends abruptly.
    pub fn abandon(&mut self, index: usize) {
        let btl = self.nodes[index].btl.take().expect("a process ends once");
        self.fixture.abandon(index, btl);
    }

    /// Breaks the connection as process `from` has it to `to`, as a reset does. `false`: the fixture cannot.
    pub fn break_connection(&mut self, from: usize, to: usize) -> bool {
        let endpoint = self.endpoint(from, to);
        let btl = self.nodes[from].btl.as_mut().expect("a process that the test has not abandoned");
        self.fixture.break_connection(btl, endpoint, from, to)
    }

    fn next_instant(&mut self) -> Instant {
        self.calls += 1;
        self.fixture.now(self.calls)
    }

    /// Calls `progress` of `index` with this budget.
    pub fn progress_with(&mut self, index: usize, budget: u32) -> u32 {
        let now = self.next_instant();
        let node = &mut self.nodes[index];
        let btl = node.btl.as_mut().expect("a process that the test has not abandoned");
        let before = node.recorder.callbacks.len();
        let events = btl.progress(now, budget, &mut node.recorder);
        assert!(
            node.recorder.callbacks.len() - before <= budget as usize,
            "progress exceeded its budget of {budget}"
        );
        events
    }

    /// Calls `progress` of `index` once.
    pub fn progress(&mut self, index: usize) -> u32 {
        self.progress_with(index, BUDGET)
    }

    /// Calls `progress` of `index` with a sink that records the first callback and then panics. Returns whether it panicked.
    pub fn progress_with_a_panic(&mut self, index: usize) -> bool {
        let now = self.next_instant();
        let node = &mut self.nodes[index];
        let btl = node.btl.as_mut().expect("a process that the test has not abandoned");
        let mut sink = Panicking(&mut node.recorder);
        catch_unwind(AssertUnwindSafe(|| btl.progress(now, BUDGET, &mut sink))).is_err()
    }

    /// Takes the next message of `from`, if there is one, as a blocking receive from that peer does.
    pub fn take(&mut self, index: usize, from: usize) {
        let endpoint = self.endpoint(index, from);
        let now = self.next_instant();
        let node = &mut self.nodes[index];
        let btl = node.btl.as_mut().expect("a process that the test has not abandoned");
        if btl.has_message(endpoint) {
            let before = node.recorder.callbacks.len();
            let events = btl.take_message(now, endpoint, &mut node.recorder);
            assert_eq!(
                node.recorder.callbacks.len() - before,
                events as usize,
                "one message, and nothing else"
            );
        }
    }

    /// Makes one round: `progress` of every living process.
    pub fn progress_all(&mut self) -> u32 {
        let living: Vec<_> = (0..self.nodes.len()).filter(|&index| self.nodes[index].btl.is_some()).collect();
        self.progress_of(&living, BUDGET)
    }

    /// Makes one round of these processes alone: the others make no progress.
    pub fn progress_of(&mut self, processes: &[usize], budget: u32) -> u32 {
        let events = processes.iter().map(|&index| self.progress_with(index, budget)).sum();
        if events == 0 {
            self.fixture.wait();
        }
        events
    }

    /// Makes the rounds of `sender` after which all that it sent has left it: it is where the peer finds it also if `sender` dies. What may be
    /// lost on its way has left when the peer has it.
    pub fn let_leave(&mut self, sender: usize) {
        for _ in 0..UNSETTLED_ROUNDS {
            if !F::LOSES || self.is_settled() {
                break;
            }
            self.progress_all();
        }
        for _ in 0..F::ROUNDS_TO_LEAVE {
            self.progress(sender);
            self.fixture.wait();
        }
    }

    /// Makes rounds until `done`; `what` describes that.
    pub fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let living: Vec<_> = (0..self.nodes.len()).filter(|&index| self.nodes[index].btl.is_some()).collect();
        self.until_of(what, &living, BUDGET, done);
    }

    /// Makes rounds of these processes alone until `done`; `what` describes that.
    pub fn until_of(&mut self, what: &str, processes: &[usize], budget: u32, done: impl Fn(&Self) -> bool) {
        for _ in 0..STEPS {
            if done(self) {
                return;
            }
            self.progress_of(processes, budget);
        }
        panic!("after {STEPS} rounds it is not true that {what}; {}", self.last_events());
    }

    /// Describes the last callbacks of all processes.
    fn last_events(&self) -> String {
        let mut words = String::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let all = &node.recorder.callbacks;
            words += &format!("\n  process {index} got {} callbacks, the last being", all.len());
            all.iter().rev().take(12).rev().for_each(|callback| words += &format!(" {callback}"));
        }
        words
    }

    /// The number of callbacks so far, without `on_error`, which may repeat for ever.
    fn callback_count(&self) -> usize {
        let callbacks = self.nodes.iter().flat_map(|node| &node.recorder.callbacks);
        callbacks.filter(|callback| !matches!(callback, Callback::Error(..))).count()
    }

    /// Makes rounds until no process makes a callback any more.
    pub fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..STEPS {
            let before = self.callback_count();
            self.progress_all();
            quiet = if self.callback_count() == before { quiet + 1 } else { 0 };
            if quiet >= F::QUIET_ROUNDS && (quiet >= UNSETTLED_ROUNDS || self.is_settled()) {
                return;
            }
        }
        panic!("after {STEPS} rounds there are still callbacks");
    }

    fn is_settled(&mut self) -> bool {
        let btls = self.nodes.iter_mut().filter_map(|node| node.btl.as_mut());
        btls.into_iter().all(|btl| self.fixture.is_settled(btl))
    }

    /// Tries once to send message `number`. The number determines header and payload.
    pub fn try_send(&mut self, from: usize, to: usize, class: MessageClass, number: u32, len: usize) -> Sent {
        let endpoint = self.endpoint(from, to);
        let mut filled = false;
        let answer = self.btl(from).send(endpoint, class, ID, &number.to_le_bytes(), len, |mut slot| {
            filled = true;
            slot.put(&pattern(number, len));
        });
        assert_eq!(filled, answer.is_ok(), "fill is called if, and only if, the message is sent");
        answer
    }

    /// Sends message `number`; makes a round after each `Busy`.
    pub fn send(&mut self, from: usize, to: usize, class: MessageClass, number: u32, len: usize) {
        for _ in 0..STEPS {
            match self.try_send(from, to, class, number, len) {
                Ok(()) => return,
                Err(SendError::Busy) => self.progress_all(),
                Err(error) => panic!("message {number} from {from} to {to}: {error:?}"),
            };
        }
        panic!("message {number} from {from} to {to} is still Busy after {STEPS} rounds");
    }

    /// Tries once to send chunk `number` of a stream.
    pub fn try_chunk(&mut self, from: usize, to: usize, stream: Stream, number: u32, len: usize) -> Sent {
        let endpoint = self.endpoint(from, to);
        let mut filled = false;
        let answer = self.btl(from).send_chunk(endpoint, stream, len, |mut slot| {
            filled = true;
            slot.put(&pattern(number, len));
        });
        assert_eq!(filled, answer.is_ok(), "fill is called if, and only if, the chunk is sent");
        answer
    }

    /// Sends chunk `number` of a stream; makes a round after each `Busy`.
    pub fn chunk(&mut self, from: usize, to: usize, stream: Stream, number: u32, len: usize) {
        for _ in 0..STEPS {
            match self.try_chunk(from, to, stream, number, len) {
                Ok(()) => return,
                Err(SendError::Busy) => self.progress_all(),
                Err(error) => panic!("chunk {number} from {from} to {to}: {error:?}"),
            };
        }
        panic!("chunk {number} from {from} to {to} is still Busy after {STEPS} rounds");
    }

    /// Sends data messages `0..` of `len` bytes until `Busy`, without a round. Returns how many were sent.
    pub fn fill_up(&mut self, from: usize, to: usize, len: usize) -> u32 {
        self.fill_up_from(0, from, to, len)
    }

    /// As [`fill_up`](Cluster::fill_up), with message `first` as the first. Returns the number after the last that was sent.
    pub fn fill_up_from(&mut self, first: u32, from: usize, to: usize, len: usize) -> u32 {
        let (mut number, mut refused) = (first, 0);
        while number - first < MESSAGES_MAX {
            match self.try_send(from, to, MessageClass::Data, number, len) {
                Ok(()) => (number, refused) = (number + 1, 0),
                // The fault injector may have made some of the refusals.
                Err(SendError::Busy) if F::EXACT || refused == 50 => return number,
                Err(SendError::Busy) => refused += 1,
                Err(error) => panic!("message {number} from {from} to {to}: {error:?}"),
            }
        }
        panic!("{MESSAGES_MAX} messages were sent without a receiver: the queue has no bound");
    }

    /// Checks headers and payloads of the messages that `at` got from `from`, and returns their numbers in order.
    pub fn numbers(&self, at: usize, from: usize) -> Vec<u32> {
        let from = PeerIndex(from as u32);
        let numbers = self.callbacks(at).iter().filter_map(|callback| match callback {
            Callback::Message(whose, id, header, payload) if *whose == from => {
                Some(number_of(*id, header, payload))
            }
            _ => None,
        });
        numbers.collect()
    }

    /// The bytes of a stream that `at` got, in order.
    pub fn stream(&self, at: usize, stream: Stream) -> Vec<u8> {
        let chunks = self.callbacks(at).iter().filter_map(|callback| match callback {
            Callback::Chunk(_, whose, payload) if *whose == stream => Some(payload.as_slice()),
            _ => None,
        });
        chunks.flatten().copied().collect()
    }

    /// How often `on_severed` was called at `at` for its endpoint to `peer`.
    pub fn severed_reports(&self, at: usize, peer: usize) -> usize {
        let (peer, endpoint) = (PeerIndex(peer as u32), self.endpoint(at, peer));
        self.callbacks(at).iter().filter(|callback| **callback == Callback::Severed(peer, endpoint)).count()
    }

    /// How often `on_sendable` was called at `at` for its endpoint to `peer`.
    pub fn sendable_reports(&self, at: usize, peer: usize) -> usize {
        let (peer, endpoint) = (PeerIndex(peer as u32), self.endpoint(at, peer));
        self.callbacks(at).iter().filter(|callback| **callback == Callback::Sendable(peer, endpoint)).count()
    }

    /// Whether the endpoint of the sender to the receiver has this ability.
    pub fn can(&mut self, ability: Ability) -> bool {
        let endpoint = self.endpoint(Self::SENDER, Self::RECEIVER);
        self.btl(Self::SENDER).limits(endpoint).can(ability)
    }

    /// The limits of the endpoint of the sender to the receiver: `message_bytes_max`, `chunk_bytes`, `control_bytes_max`.
    pub fn sizes(&mut self) -> (usize, usize, usize) {
        let endpoint = self.endpoint(Self::SENDER, Self::RECEIVER);
        let limits = self.btl(Self::SENDER).limits(endpoint);
        (limits.message_bytes_max as usize, limits.chunk_bytes as usize, limits.control_bytes_max as usize)
    }
}

impl<E> fmt::Display for Callback<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Callback::Message(from, id, header, payload) => {
                write!(out, "Message({}, {}, {:?}+{})", from.0, id.0, header.get(..4), payload.len())
            }
            Callback::Chunk(from, stream, payload) => {
                write!(out, "Chunk({}, {}, {})", from.0, stream.0, payload.len())
            }
            Callback::Done(cookie, result) => write!(out, "Done({}, {result:?})", cookie.0),
            Callback::Sendable(to, _) => write!(out, "Sendable({})", to.0),
            Callback::Error(peer, _, cause) => write!(out, "Error({}, {cause:?})", peer.0),
            Callback::Severed(peer, _) => write!(out, "Severed({})", peer.0),
        }
    }
}

impl<B: Btl> Node<B> {
    fn new(btl: B) -> Self {
        Node { btl: Some(btl), endpoints: Vec::new(), recorder: Recorder { callbacks: Vec::new() } }
    }

    fn card(&mut self) -> Card {
        let mut card = Card { layout: Card::LAYOUT, ..Card::default() };
        self.btl.as_ref().expect("no process ends before it is connected").advertise(&mut card);
        card
    }
}

impl<E> Sink<E> for Recorder<E> {
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
        self.callbacks.push(Callback::Message(from, id, header.to_vec(), payload.to_vec()));
    }

    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        self.callbacks.push(Callback::Chunk(from, stream, payload.to_vec()));
    }

    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
        self.callbacks.push(Callback::Done(done, result));
    }

    fn on_sendable(&mut self, to: PeerIndex, endpoint: E) {
        self.callbacks.push(Callback::Sendable(to, endpoint));
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        self.callbacks.push(Callback::Error(peer, endpoint, cause));
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.callbacks.push(Callback::Severed(peer, endpoint));
    }
}

/// Panics without the report of the panic handler: its lines would fall between the words of the test harness, from which the suite
/// counts tests.
fn fail(what: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(what))
}

/// Records each callback, and then panics.
struct Panicking<'a, E>(&'a mut Recorder<E>);

impl<E> Sink<E> for Panicking<'_, E> {
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
        self.0.on_message(from, id, header, payload);
        fail("the sink fails at a message");
    }

    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        self.0.on_chunk(from, stream, payload);
        fail("the sink fails at a chunk");
    }

    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
        self.0.on_done(done, result);
        fail("the sink fails at on_done");
    }

    fn on_sendable(&mut self, to: PeerIndex, endpoint: E) {
        self.0.on_sendable(to, endpoint);
        fail("the sink fails at on_sendable");
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        self.0.on_error(peer, endpoint, cause);
        fail("the sink fails at on_error");
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.0.on_severed(peer, endpoint);
        fail("the sink fails at on_severed");
    }
}

/// The bytes that a number determines. Another number, or a shift by one byte, gives other bytes.
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

/// The active-message id of the suite.
pub(super) const ID: AmId = AmId(7);

/// The budget of `progress`, if a requirement is not about budgets.
pub(super) const BUDGET: u32 = 64;

/// The bound of rounds of any wait: more are taken for a hang.
pub(super) const STEPS: usize = 100_000;

/// After so many rounds without a callback nothing comes any more, although something is under way: to a process that has ended, for instance.
const UNSETTLED_ROUNDS: usize = 8_000;

const MESSAGES_MAX: u32 = 1 << 16;
