// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A BTL of plain queues, to test the suite itself. Without a [`Mutation`] it passes the suite. Each mutation breaks one requirement of
//! the contract, and the test of this requirement fails.

mod descriptor;
mod remote_memory;

use super::{
    Fixture, control, evidence, fairness, flow_control, limits, order, quarantine, reconnection, sever,
    sleep, streams,
};
use crate::{
    Ability, AmId, Btl, Card, Cause, ConnectError, EventPending, Limits, MessageClass, Payload,
    PayloadWriter, Regions, SendError, Sink, Stream, TransportId, WakeSet,
};
use core::cell::RefCell;
use descriptor::Descriptor;
use mend_base::{Instant, PeerIndex, Reader};
use remote_memory::Operations;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// Which requirement is broken: a number, because a fixture is a type.
pub(crate) type Mutation = u8;
pub(crate) const NONE: Mutation = 0;
const LOSES: Mutation = 1;
const DOUBLES: Mutation = 2;
const SWAPS: Mutation = 3;
const CORRUPTS: Mutation = 4;
const FILLS_WHEN_BUSY: Mutation = 5;
const NEVER_REPORTS_SENDABLE: Mutation = 6;
const HAS_NO_BOUND: Mutation = 7;
const CONTROL_WAITS: Mutation = 8;
const MAILBOX_HOLDS_THE_FIRST: Mutation = 9;
const ONE_MAILBOX_FOR_ALL: Mutation = 10;
const CHUNKS_SWAP: Mutation = 11;
const QUARANTINE_SENDS: Mutation = 12;
const QUARANTINE_DROPS: Mutation = 13;
const SEVER_FORGETS: Mutation = 14;
const REPORTS_SEVERED_TWICE: Mutation = 15;
const DELIVERS_AFTERWARDS: Mutation = 16;
const SEVERED_SENDS: Mutation = 17;
const SEVER_AFFECTS_OTHERS: Mutation = 18;
const STARVES: Mutation = 19;
const EXCEEDS_ITS_BUDGET: Mutation = 20;
const NEVER_PENDING: Mutation = 21;
const ALWAYS_PENDING: Mutation = 22;
const WAKES_NO_RECEIVER: Mutation = 23;
const WAKES_NO_SENDER: Mutation = 24;
const READY_IS_ALWAYS_TRUE: Mutation = 25;
const SHORTENS_HEADERS: Mutation = 26;
const REPORTS_LIVING_PEERS: Mutation = 27;
const REPORTS_DEATHS_TWICE: Mutation = 28;
const REPORTS_DEATHS_ONCE_ONLY: Mutation = 29;
const REPEATS_AFTER_A_PANIC: Mutation = 30;
const RESET_LOSES: Mutation = 31;
const RESET_DOUBLES: Mutation = 32;
const RESET_LOSES_AT_THE_OTHER_END: Mutation = 33;
const DESCRIPTOR_IS_SILENT: Mutation = 34;
const DESCRIPTOR_IS_NEVER_SILENT: Mutation = 35;
/// No fault: messages need time on one way for all classes, and a process learns of them, and of free send resources, in `progress`.
pub(crate) const NETWORK: Mutation = 36;
/// As `NETWORK`, and a message may be lost on its way.
const NETWORK_LOSES: Mutation = 37;
/// As `NETWORK`, and control messages need room as data do.
const NETWORK_HOLDS_CONTROL: Mutation = 38;
/// As `NETWORK`, and a message on its way wakes nobody when it arrives.
const NETWORK_IS_SILENT: Mutation = 39;
/// The first mutation of `remote_memory`.
const REMOTE_MEMORY: Mutation = 64;

pub(crate) struct MockFixture<const M: Mutation> {
    fabric: Rc<RefCell<MockFabric>>,
}

/// The state that all processes of a job share.
#[derive(Default)]
struct MockFabric {
    /// Messages in flight, by sender and receiver.
    links: BTreeMap<(u32, u32), MockLink>,
    /// The processes that sleep, and whether each was woken.
    sleepers: BTreeMap<u32, bool>,
    /// The processes that have ended.
    dead: BTreeSet<u32>,
    /// The connections that broke, by the process that finds out, and its peer.
    broken: BTreeSet<(u32, u32)>,
    /// The registered memory of each process.
    memory: BTreeMap<u32, Regions>,
    /// Time, as calls of [`Fixture::wait`]; only a network needs it.
    time: u64,
    /// The processes to which a credit came that makes no callback.
    credits: BTreeSet<u32>,
    /// The descriptor of each process.
    descriptors: BTreeMap<u32, Descriptor>,
}

#[derive(Default)]
struct MockLink {
    data: VecDeque<Item>,
    control: VecDeque<Item>,
    mailboxes: BTreeMap<u8, Item>,
    /// A send was `Busy`, and `on_sendable` was not called since.
    refused: bool,
    sent: u32,
    /// What has left and has not arrived, with the time of its arrival; only in a network.
    way: VecDeque<(u64, MessageClass, Item)>,
}

#[derive(Clone)]
enum Item {
    Message(AmId, Vec<u8>, Vec<u8>),
    Chunk(Stream, Vec<u8>),
}

pub(crate) struct MockBtl<const M: Mutation> {
    me: u32,
    fabric: Rc<RefCell<MockFabric>>,
    endpoints: Vec<MockEndpoint>,
    /// The endpoint that is polled first.
    first: usize,
    limits: Limits,
    operations: Operations,
}

struct MockEndpoint {
    peer: PeerIndex,
    slot: u32,
    state: State,
    /// What `check_peers` knows of the end of the peer.
    end: PeerEnd,
    /// That the connection broke was reported, and it was not resumed since.
    reported_break: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PeerEnd {
    Unknown,
    Found,
    Reported,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Connecting,
    Connected,
    Quarantined,
    Severing,
    Severed,
}

impl<const M: Mutation> Fixture for MockFixture<M> {
    type Btl = MockBtl<M>;
    const SEES_DEATHS: bool = true;
    const KEYS_ARE_PERSONAL: bool = true;
    const READY_IS_EXACT: bool = !is_network(M);
    const CLASSES_SHARE_A_WAY: bool = is_network(M);
    const ROUNDS_TO_LEAVE: usize = if is_network(M) { TIME_ON_THE_WAY as usize + 1 } else { 0 };

    fn start(count: usize) -> (Self, Vec<MockBtl<M>>) {
        let fabric = Rc::new(RefCell::new(MockFabric::default()));
        let limits = Limits {
            abilities: ABILITIES,
            emulated: 0,
            control_bytes_max: 100,
            message_bytes_max: 3000,
            eager_bytes: 2900,
            chunk_bytes: 2048,
            transfer_bytes_max: 64 << 10,
        };
        let mock = |me| MockBtl {
            me,
            fabric: Rc::clone(&fabric),
            endpoints: Vec::new(),
            first: 0,
            limits: limits.clone(),
            operations: Operations::default(),
        };
        let all = (0..count as u32).map(mock).collect();
        (MockFixture { fabric }, all)
    }

    fn abandon(&mut self, index: usize, _btl: MockBtl<M>) {
        self.end(index);
    }

    fn wait(&mut self) {
        self.fabric.borrow_mut().wait::<M>();
    }

    fn break_connection(&mut self, _btl: &mut MockBtl<M>, _endpoint: u32, from: usize, to: usize) -> bool {
        self.cut(from, to)
    }

    fn is_readable(&mut self, descriptors: &[i32]) -> bool {
        self.wait();
        let fabric = self.fabric.borrow();
        fabric
            .descriptors
            .values()
            .any(|descriptor| descriptor.is_one_of(descriptors) && descriptor.is_readable())
    }

    fn announce_sleep(&mut self, index: usize) {
        self.fabric.borrow_mut().sleepers.insert(index as u32, false);
    }

    fn was_woken(&mut self, index: usize) -> Option<bool> {
        self.fabric.borrow_mut().sleepers.remove(&(index as u32))
    }
}

impl<const M: Mutation> MockFixture<M> {
    /// Process `index` ends, and `check_peers` of others can see it.
    pub(crate) fn end(&mut self, index: usize) {
        self.fabric.borrow_mut().dead.insert(index as u32);
    }

    /// The connection breaks, and process `from` finds out. The queues of the fabric stay: they stand for what both ends send again.
    pub(crate) fn cut(&mut self, from: usize, to: usize) -> bool {
        let (from, to) = (from as u32, to as u32);
        let mut fabric = self.fabric.borrow_mut();
        fabric.broken.insert((from, to));
        match M {
            RESET_LOSES => fabric.link(from, to).data.clear(),
            RESET_LOSES_AT_THE_OTHER_END => fabric.link(to, from).data.clear(),
            RESET_DOUBLES => {
                let data = &mut fabric.link(from, to).data;
                if let Some(first) = data.front().cloned() {
                    data.push_front(first);
                }
            }
            _ => {}
        }
        true
    }
}

impl MockFabric {
    /// Time passes: what arrives now makes the descriptor of its receiver readable.
    fn wait<const M: Mutation>(&mut self) {
        self.time += 1;
        let due = |link: &MockLink| link.way.front().is_some_and(|(arrival, ..)| *arrival <= self.time);
        let receivers: Vec<u32> =
            self.links.iter().filter(|(_, link)| due(link)).map(|((_, to), _)| *to).collect();
        if M != NETWORK_IS_SILENT {
            receivers.into_iter().for_each(|receiver| self.wake(receiver));
        }
    }

    /// Process `to` takes what has arrived.
    fn arrive(&mut self, to: u32) {
        self.credits.remove(&to);
        for link in self.links.iter_mut().filter(|((_, receiver), _)| *receiver == to).map(|(_, link)| link) {
            while link.way.front().is_some_and(|(arrival, ..)| *arrival <= self.time) {
                link.data.extend(link.way.pop_front().map(|(_, _, item)| item));
            }
        }
    }

    /// Whether something is there that `to` has not taken: a message or a credit.
    fn has_arrived(&self, to: u32) -> bool {
        let due = |link: &MockLink| link.way.front().is_some_and(|(arrival, ..)| *arrival <= self.time);
        self.credits.contains(&to)
            || self.links.iter().any(|((_, receiver), link)| *receiver == to && due(link))
    }

    fn link(&mut self, from: u32, to: u32) -> &mut MockLink {
        self.links.entry((from, to)).or_default()
    }

    fn wake(&mut self, process: u32) {
        self.sleepers.entry(process).and_modify(|woken| *woken = true);
        if let Some(descriptor) = self.descriptors.get(&process) {
            descriptor.ring();
        }
    }
}

impl MockLink {
    fn has_space(&self) -> bool {
        let data = self.way.iter().filter(|(_, class, _)| *class == MessageClass::Data).count();
        self.data.len() + data < LINK_MESSAGES
    }

    /// A message leaves for a receiver that is far away. A state replaces one of the same id that is still on its way.
    fn leave<const M: Mutation>(&mut self, time: u64, class: MessageClass, item: Item) {
        self.sent += 1;
        if M == NETWORK_LOSES && self.sent.is_multiple_of(20) {
            return;
        }
        let id = |item: &Item| if let Item::Message(id, ..) = item { Some(*id) } else { None };
        if class == MessageClass::Mailbox {
            let new = id(&item);
            self.way.retain(|(_, class, old)| *class != MessageClass::Mailbox || id(old) != new);
        }
        self.way.push_back((time + TIME_ON_THE_WAY, class, item));
    }

    fn take<const M: Mutation>(&mut self) -> Option<Item> {
        if M == CHUNKS_SWAP
            && let Some(Item::Chunk(..)) = self.data.back()
        {
            return self.data.pop_back();
        }
        let mailbox = |link: &mut MockLink| link.mailboxes.pop_first().map(|(_, item)| item);
        self.control.pop_front().or_else(|| mailbox(self)).or_else(|| self.data.pop_front())
    }

    fn is_empty(&self) -> bool {
        self.data.is_empty() && self.control.is_empty() && self.mailboxes.is_empty()
    }

    fn put<const M: Mutation>(&mut self, class: MessageClass, item: Item) {
        self.sent += 1;
        let twentieth = self.sent.is_multiple_of(20);
        match (class, &item) {
            (MessageClass::Mailbox, Item::Message(id, ..)) => {
                let key = if M == ONE_MAILBOX_FOR_ALL { 0 } else { id.0 };
                if M != MAILBOX_HOLDS_THE_FIRST || !self.mailboxes.contains_key(&key) {
                    self.mailboxes.insert(key, item);
                }
            }
            (MessageClass::Control, _) if M != CONTROL_WAITS => self.control.push_back(item),
            _ if M == LOSES && twentieth => {}
            _ if M == DOUBLES && twentieth => self.data.extend([item.clone(), item]),
            _ if M == SWAPS && twentieth => self.data.push_front(item),
            _ => self.data.push_back(item),
        }
    }
}

impl<const M: Mutation> MockBtl<M> {
    fn admit(&mut self, endpoint: usize, data: bool) -> Result<(), SendError> {
        let state = self.endpoints[endpoint].state;
        let slot = self.endpoints[endpoint].slot;
        match state {
            State::Connecting => Err(SendError::Busy),
            State::Quarantined if M != QUARANTINE_SENDS => Err(SendError::Busy),
            State::Severing | State::Severed if M != SEVERED_SENDS => Err(SendError::Severed),
            _ if !data || M == HAS_NO_BOUND => Ok(()),
            _ => {
                let mut fabric = self.fabric.borrow_mut();
                let link = fabric.link(self.me, slot);
                link.refused |= !link.has_space();
                if link.has_space() { Ok(()) } else { Err(SendError::Busy) }
            }
        }
    }

    fn post(&mut self, endpoint: usize, class: MessageClass, item: Item) {
        let slot = self.endpoints[endpoint].slot;
        let mut fabric = self.fabric.borrow_mut();
        if is_network(M) {
            let time = fabric.time;
            return fabric.link(self.me, slot).leave::<M>(time, class, item);
        }
        fabric.link(self.me, slot).put::<M>(class, item);
        if M != WAKES_NO_RECEIVER {
            fabric.wake(slot);
        }
    }

    /// Delivers one event of this endpoint, if there is one.
    fn step(&mut self, index: usize, sink: &mut impl Sink<u32>) -> bool {
        let MockEndpoint { peer, slot, state, end, reported_break } = self.endpoints[index];
        let name = index as u32;
        if end == PeerEnd::Found {
            self.endpoints[index].end =
                if M == REPORTS_DEATHS_TWICE { PeerEnd::Unknown } else { PeerEnd::Reported };
            sink.on_error(peer, name, Cause::Exited);
            return true;
        }
        let down = self.is_down(slot);
        if state == State::Connected && self.finds_break(slot) && !reported_break {
            self.endpoints[index].reported_break = true;
            sink.on_error(peer, name, Cause::LinkDown);
            return true;
        }
        if state == State::Connecting {
            self.endpoints[index].state = State::Connected;
            sink.on_sendable(peer, name);
            return true;
        }
        if self.step_operations(index, down, sink) {
            return true;
        }
        let delivers = (state == State::Connected && !down)
            || (state == State::Severing && M != SEVER_FORGETS)
            || (state == State::Severed && M == DELIVERS_AFTERWARDS);
        if state == State::Quarantined && M == QUARANTINE_DROPS {
            self.fabric.borrow_mut().link(slot, self.me).data.clear();
        }
        let announced = state == State::Connected && self.take_sendable_report(slot);
        if announced {
            sink.on_sendable(peer, name);
            return true;
        }
        let item = if delivers { self.take(slot) } else { None };
        match item {
            Some(Item::Message(id, header, payload)) => {
                if M == REPEATS_AFTER_A_PANIC {
                    let item = Item::Message(id, header.clone(), payload.clone());
                    self.fabric.borrow_mut().link(slot, self.me).data.push_front(item);
                }
                sink.on_message(peer, id, &header, Payload::from(&payload[..]));
                if M == REPEATS_AFTER_A_PANIC {
                    self.fabric.borrow_mut().link(slot, self.me).data.pop_front();
                }
                true
            }
            Some(Item::Chunk(stream, payload)) => {
                sink.on_chunk(peer, stream, Payload::from(&payload[..]));
                true
            }
            None if state == State::Severing => {
                self.endpoints[index].state = State::Severed;
                self.end_access(slot);
                sink.on_severed(peer, name);
                if M == REPORTS_SEVERED_TWICE {
                    sink.on_severed(peer, name);
                }
                true
            }
            None => false,
        }
    }

    fn take_sendable_report(&mut self, slot: u32) -> bool {
        let mut fabric = self.fabric.borrow_mut();
        let link = fabric.link(self.me, slot);
        let sendable = link.refused && link.has_space() && M != NEVER_REPORTS_SENDABLE;
        link.refused &= !sendable;
        sendable
    }

    fn take(&mut self, slot: u32) -> Option<Item> {
        let mut fabric = self.fabric.borrow_mut();
        let item = fabric.link(slot, self.me).take::<M>();
        if item.is_some() && M != WAKES_NO_SENDER {
            fabric.wake(slot);
            fabric.credits.insert(slot);
        }
        item
    }

    /// Whether this process finds out that the connection broke.
    fn finds_break(&self, slot: u32) -> bool {
        self.fabric.borrow().broken.contains(&(self.me, slot))
    }

    /// Whether the connection is broken at either end.
    fn is_down(&self, slot: u32) -> bool {
        let broken = &self.fabric.borrow().broken;
        broken.contains(&(self.me, slot)) || broken.contains(&(slot, self.me))
    }

    fn has_events(&self) -> bool {
        if !self.operations.is_empty() {
            return true;
        }
        let mut fabric = self.fabric.borrow_mut();
        self.endpoints.iter().any(|endpoint| match endpoint.state {
            _ if endpoint.end == PeerEnd::Found => true,
            State::Connecting | State::Severing => true,
            State::Quarantined | State::Severed => false,
            State::Connected => {
                let out = fabric.link(self.me, endpoint.slot);
                let sendable = out.refused && out.has_space();
                sendable || !fabric.link(endpoint.slot, self.me).is_empty()
            }
        })
    }
}

impl Clone for MockEndpoint {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for MockEndpoint {}

impl<const M: Mutation> Btl for MockBtl<M> {
    type Endpoint = u32;

    fn advertise(&self, card: &mut Card) {
        card.entries.push((MOCK, self.me.to_le_bytes().to_vec()));
    }

    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<u32, ConnectError> {
        let entry = card.entry(MOCK).ok_or(ConnectError::Unreachable)?;
        let slot = Reader::new(entry).u32().ok_or(ConnectError::LayoutDiffers)?;
        self.endpoints.push(MockEndpoint {
            peer,
            slot,
            state: State::Connecting,
            end: PeerEnd::Unknown,
            reported_break: false,
        });
        Ok(self.endpoints.len() as u32 - 1)
    }

    fn limits(&self, _to: u32) -> &Limits {
        &self.limits
    }

    fn quarantine(&mut self, endpoint: u32) {
        self.endpoints[endpoint as usize].state = State::Quarantined;
    }

    fn resume(&mut self, endpoint: u32) {
        self.operations.resume::<M>(endpoint as usize);
        let endpoint = &mut self.endpoints[endpoint as usize];
        self.fabric.borrow_mut().broken.remove(&(self.me, endpoint.slot));
        endpoint.reported_break = false;
        endpoint.state = State::Connecting;
        if M != REPORTS_DEATHS_ONCE_ONLY {
            endpoint.end = PeerEnd::Unknown;
        }
    }

    fn sever(&mut self, endpoint: u32) {
        let endpoint = &mut self.endpoints[endpoint as usize];
        endpoint.end = PeerEnd::Reported;
        if endpoint.state != State::Severed {
            endpoint.state = State::Severing;
        }
        if M == SEVER_AFFECTS_OTHERS {
            self.fabric.borrow_mut().links.clear();
        }
    }

    fn send(
        &mut self,
        to: u32,
        class: MessageClass,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        let mut payload = vec![0; len];
        let holds_control = matches!(M, CONTROL_WAITS | NETWORK_HOLDS_CONTROL);
        let data = class == MessageClass::Data || (holds_control && class == MessageClass::Control);
        let admitted = self.admit(to as usize, data);
        if admitted.is_ok() || M == FILLS_WHEN_BUSY {
            fill(PayloadWriter::from(&mut payload[..]));
        }
        admitted?;
        if M == CORRUPTS
            && let Some(last) = payload.last_mut()
        {
            *last ^= 1;
        }
        let header_bytes = if M == SHORTENS_HEADERS { header.len().min(32) } else { header.len() };
        self.post(to as usize, class, Item::Message(id, header[..header_bytes].to_vec(), payload));
        Ok(())
    }

    fn send_chunk(
        &mut self,
        to: u32,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        self.admit(to as usize, true)?;
        let mut payload = vec![0; len];
        fill(PayloadWriter::from(&mut payload[..]));
        self.post(to as usize, MessageClass::Data, Item::Chunk(stream, payload));
        Ok(())
    }

    fn ready(&self, from: u32) -> bool {
        let slot = self.endpoints[from as usize].slot;
        M == READY_IS_ALWAYS_TRUE || !self.fabric.borrow_mut().link(slot, self.me).is_empty()
    }

    fn progress(&mut self, _now: Instant, budget: u32, sink: &mut impl Sink<u32>) -> u32 {
        let budget = if M == EXCEEDS_ITS_BUDGET { budget + 1 } else { budget };
        self.fabric.borrow_mut().arrive(self.me);
        let (mut events, mut idle) = (self.end_handles(budget, sink), 0);
        if M == STARVES {
            self.first = 0;
        }
        while events < budget && idle < self.endpoints.len() {
            let index = self.first % self.endpoints.len();
            let delivered = self.step(index, sink);
            (events, idle) = if delivered { (events + 1, 0) } else { (events, idle + 1) };
            if M != STARVES || !delivered {
                self.first = index + 1;
            }
        }
        events
    }

    fn check_peers(&mut self) {
        let dead = &self.fabric.borrow().dead;
        for endpoint in &mut self.endpoints {
            let checked = endpoint.state == State::Connected && endpoint.end == PeerEnd::Unknown;
            if checked && (dead.contains(&endpoint.slot) || M == REPORTS_LIVING_PEERS) {
                endpoint.end = PeerEnd::Found;
            }
        }
    }

    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        let arrived = is_network(M) && self.fabric.borrow().has_arrived(self.me);
        let pending = (self.has_events() && M != NEVER_PENDING) || M == ALWAYS_PENDING || arrived;
        let descriptor = Descriptor::new();
        if M == DESCRIPTOR_IS_NEVER_SILENT {
            descriptor.ring();
        }
        wake.descriptors.push(descriptor.number());
        if M == DESCRIPTOR_IS_SILENT {
            // Nobody rings it.
            wake.descriptors[0] = -1;
        }
        self.fabric.borrow_mut().descriptors.insert(self.me, descriptor);
        if pending { Err(EventPending) } else { Ok(()) }
    }

    fn disarm(&mut self) {
        self.fabric.borrow_mut().descriptors.remove(&self.me);
    }
}

const ABILITIES: u32 = Ability::Streams as u32
    | Ability::Put as u32
    | Ability::Get as u32
    | Ability::Atomics as u32
    | Ability::Flush as u32
    | Ability::SleepDescriptor as u32
    | Ability::Polling as u32;
/// Whether this mock is a network.
const fn is_network(mutation: Mutation) -> bool {
    matches!(mutation, NETWORK | NETWORK_LOSES | NETWORK_HOLDS_CONTROL | NETWORK_IS_SILENT)
}

const TIME_ON_THE_WAY: u64 = 3;
const MOCK: TransportId = TransportId(200);
const LINK_MESSAGES: usize = 40;

mod unbroken {
    crate::conformance!(super::MockFixture<{ super::NONE }>);
}

mod with_faults {
    crate::conformance!(crate::conformance::Injected<super::MockFixture<{ super::NONE }>>);
}

mod counted {
    crate::conformance!(crate::conformance::Counted<super::MockFixture<{ super::NONE }>>);
}

mod network {
    crate::conformance!(super::MockFixture<{ super::NETWORK }>);
}

mod network_with_faults {
    crate::conformance!(crate::conformance::Injected<super::MockFixture<{ super::NETWORK }>>);
}

mod network_counted {
    crate::conformance!(crate::conformance::Counted<super::MockFixture<{ super::NETWORK }>>);
}

/// Asserts that the test of the requirement fails.
fn assert_caught(mutation: Mutation, requirement: fn()) {
    let answer = std::panic::catch_unwind(requirement);
    assert!(answer.is_err(), "the suite accepts a transport with mutation {mutation}");
}

#[test]
fn a_broken_transport_of_messages_is_caught() {
    assert_caught(LOSES, order::messages_arrive_whole_and_in_order::<MockFixture<LOSES>>);
    assert_caught(DOUBLES, order::messages_arrive_whole_and_in_order::<MockFixture<DOUBLES>>);
    assert_caught(SWAPS, order::peers_do_not_disturb_each_others_order::<MockFixture<SWAPS>>);
    assert_caught(CORRUPTS, order::messages_arrive_whole_and_in_order::<MockFixture<CORRUPTS>>);
    assert_caught(
        READY_IS_ALWAYS_TRUE,
        order::ready_is_true_while_a_message_is_there::<MockFixture<READY_IS_ALWAYS_TRUE>>,
    );
    let requirement =
        order::a_sink_that_panics_gets_each_message_once_in_order::<MockFixture<REPEATS_AFTER_A_PANIC>>;
    assert_caught(REPEATS_AFTER_A_PANIC, requirement);
    assert_caught(
        SHORTENS_HEADERS,
        limits::every_length_up_to_the_limits_passes::<MockFixture<SHORTENS_HEADERS>>,
    );
    assert_caught(CHUNKS_SWAP, streams::a_full_stream_is_busy_and_loses_nothing::<MockFixture<CHUNKS_SWAP>>);
}

#[test]
fn broken_flow_control_is_caught() {
    assert_caught(
        FILLS_WHEN_BUSY,
        flow_control::a_full_queue_is_busy_and_does_not_call_fill::<MockFixture<FILLS_WHEN_BUSY>>,
    );
    assert_caught(
        HAS_NO_BOUND,
        flow_control::a_full_queue_is_busy_and_does_not_call_fill::<MockFixture<HAS_NO_BOUND>>,
    );
    let requirement =
        flow_control::on_sendable_comes_after_busy_and_nothing_is_lost::<MockFixture<NEVER_REPORTS_SENDABLE>>;
    assert_caught(NEVER_REPORTS_SENDABLE, requirement);
    assert_caught(CONTROL_WAITS, control::control_overtakes_data_that_waits::<MockFixture<CONTROL_WAITS>>);
    let requirement = control::a_mailbox_holds_the_last_state::<MockFixture<MAILBOX_HOLDS_THE_FIRST>>;
    assert_caught(MAILBOX_HOLDS_THE_FIRST, requirement);
    let requirement = control::mailboxes_of_different_ids_are_different::<MockFixture<ONE_MAILBOX_FOR_ALL>>;
    assert_caught(ONE_MAILBOX_FOR_ALL, requirement);
    assert_caught(STARVES, fairness::no_peer_starves_with_a_budget_of_one::<MockFixture<STARVES>>);
    assert_caught(STARVES, fairness::seven_full_queues_are_served_alike::<MockFixture<STARVES>>);
    assert_caught(EXCEEDS_ITS_BUDGET, fairness::progress_keeps_its_budget::<MockFixture<EXCEEDS_ITS_BUDGET>>);
}

#[test]
fn broken_quarantine_and_sever_are_caught() {
    let requirement =
        quarantine::a_quarantined_endpoint_is_busy_and_reports_no_error::<MockFixture<QUARANTINE_SENDS>>;
    assert_caught(QUARANTINE_SENDS, requirement);
    let requirement =
        quarantine::after_resume_everything_arrives_once_in_order::<MockFixture<QUARANTINE_DROPS>>;
    assert_caught(QUARANTINE_DROPS, requirement);
    assert_caught(
        SEVER_FORGETS,
        sever::complete_messages_come_before_the_severed_report::<MockFixture<SEVER_FORGETS>>,
    );
    assert_caught(
        SEVER_FORGETS,
        sever::complete_messages_of_a_dead_peer_are_delivered::<MockFixture<SEVER_FORGETS>>,
    );
    assert_caught(
        REPORTS_SEVERED_TWICE,
        sever::the_severed_report_comes_once_and_nothing_after_it::<MockFixture<REPORTS_SEVERED_TWICE>>,
    );
    assert_caught(
        DELIVERS_AFTERWARDS,
        sever::the_severed_report_comes_once_and_nothing_after_it::<MockFixture<DELIVERS_AFTERWARDS>>,
    );
    assert_caught(SEVERED_SENDS, sever::a_severed_endpoint_refuses_every_send::<MockFixture<SEVERED_SENDS>>);
    let requirement =
        sever::severing_one_peer_leaves_the_others_unharmed::<MockFixture<SEVER_AFFECTS_OTHERS>>;
    assert_caught(SEVER_AFFECTS_OTHERS, requirement);
}

#[test]
fn a_broken_check_of_peers_is_caught() {
    let requirement = evidence::check_peers_finds_the_peers_that_have_ended_and_no_others::<
        MockFixture<REPORTS_LIVING_PEERS>,
    >;
    assert_caught(REPORTS_LIVING_PEERS, requirement);
    let requirement = evidence::check_peers_finds_the_peers_that_have_ended_and_no_others::<
        MockFixture<REPORTS_DEATHS_TWICE>,
    >;
    assert_caught(REPORTS_DEATHS_TWICE, requirement);
    let requirement = evidence::check_peers_finds_the_peers_that_have_ended_and_no_others::<
        MockFixture<REPORTS_DEATHS_ONCE_ONLY>,
    >;
    assert_caught(REPORTS_DEATHS_ONCE_ONLY, requirement);
}

#[test]
fn a_broken_sleep_is_caught() {
    assert_caught(NEVER_PENDING, sleep::arm_is_pending_where_something_is::<MockFixture<NEVER_PENDING>>);
    assert_caught(
        ALWAYS_PENDING,
        sleep::arm_succeeds_where_nothing_is_pending::<MockFixture<ALWAYS_PENDING>>,
    );
    assert_caught(
        WAKES_NO_RECEIVER,
        sleep::a_message_after_arm_wakes_and_is_delivered::<MockFixture<WAKES_NO_RECEIVER>>,
    );
    assert_caught(
        WAKES_NO_SENDER,
        sleep::sendable_after_arm_wakes_and_is_reported::<MockFixture<WAKES_NO_SENDER>>,
    );
}

#[test]
fn a_descriptor_that_does_not_ring_or_rings_for_nothing_is_caught() {
    let requirement =
        sleep::a_descriptor_becomes_readable_when_a_message_comes::<MockFixture<DESCRIPTOR_IS_SILENT>>;
    assert_caught(DESCRIPTOR_IS_SILENT, requirement);
    let requirement =
        sleep::a_descriptor_becomes_readable_when_a_message_comes::<MockFixture<DESCRIPTOR_IS_NEVER_SILENT>>;
    assert_caught(DESCRIPTOR_IS_NEVER_SILENT, requirement);
}

#[test]
fn a_reset_that_loses_or_doubles_is_caught() {
    let requirement = reconnection::a_reset_at_one_end_loses_and_doubles_nothing::<MockFixture<RESET_LOSES>>;
    assert_caught(RESET_LOSES, requirement);
    let requirement =
        reconnection::a_reset_at_both_ends_loses_and_doubles_nothing::<MockFixture<RESET_DOUBLES>>;
    assert_caught(RESET_DOUBLES, requirement);
    let requirement = reconnection::a_reset_while_reconnecting_loses_and_doubles_nothing::<
        MockFixture<RESET_LOSES_AT_THE_OTHER_END>,
    >;
    assert_caught(RESET_LOSES_AT_THE_OTHER_END, requirement);
}

#[test]
fn a_broken_network_is_caught_although_it_may_take_its_time() {
    assert_caught(NETWORK_LOSES, order::messages_arrive_whole_and_in_order::<MockFixture<NETWORK_LOSES>>);
    let requirement = control::control_overtakes_data_that_waits::<MockFixture<NETWORK_HOLDS_CONTROL>>;
    assert_caught(NETWORK_HOLDS_CONTROL, requirement);
    let requirement =
        sleep::a_descriptor_becomes_readable_when_a_message_comes::<MockFixture<NETWORK_IS_SILENT>>;
    assert_caught(NETWORK_IS_SILENT, requirement);
}

/// Sends forty messages and checks the counts.
fn lifecycle_check<F: Fixture>() {
    let mut cluster = super::Cluster::<super::Counted<F>>::connected(2);
    (0..40).for_each(|number| cluster.send(0, 1, MessageClass::Data, number, 8));
    cluster.settle();
    let counts = cluster.btl(1).counts();
    cluster.btl(0).assert_conserved();
    assert_eq!((counts.messages, counts.errors), (40, 0));
}

#[test]
fn the_count_is_right_only_if_every_message_arrives_once_as_it_was_sent() {
    lifecycle_check::<MockFixture<NONE>>();
    assert_caught(LOSES, lifecycle_check::<MockFixture<LOSES>>);
    assert_caught(DOUBLES, lifecycle_check::<MockFixture<DOUBLES>>);
    assert_caught(CORRUPTS, lifecycle_check::<MockFixture<CORRUPTS>>);
}

#[test]
fn the_injector_injects_as_often_as_it_was_told_and_repeats_itself_with_the_same_seed() {
    let history = || {
        let mut cluster = super::Cluster::<super::Injected<MockFixture<NONE>>>::connected(2);
        let answers: Vec<_> =
            (0..200).map(|number| cluster.try_send(0, 1, MessageClass::Mailbox, number, 8)).collect();
        (0..200).for_each(|_| _ = cluster.progress_all());
        (answers, cluster.callbacks(0).to_vec())
    };
    let (answers, callbacks) = history();
    let refused = answers.iter().filter(|answer| answer.is_err()).count();
    assert!((10..100).contains(&refused), "{refused} of 200 sends were refused instead of one in five");
    assert!(callbacks.iter().any(|each| matches!(each, super::Callback::Error(..))));
    assert_eq!(history(), (answers, callbacks), "the same seed gives the same callbacks");
}
