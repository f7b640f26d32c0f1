// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was sent and not delivered yet: the queues of each ordered pair of processes. An endpoint finds those of its two pairs by number,
//! since every call of progress looks at the queues of every endpoint.

use super::Sizes;
use mend_base::{PeerIndex, Random};
use mend_transport::{AmId, Limits, MessageClass, Payload, Sink, Stream};
use std::collections::{BTreeMap, VecDeque};

/// The queues of all pairs.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// The pairs by sender and receiver.
    pairs: BTreeMap<(u32, u32), Pair>,
    /// By pair.
    all: Vec<Slot>,
    /// By process: its endpoints for which something was sent since [`Queues::take_arrivals`].
    arrivals: Vec<Vec<u32>>,
}

/// The number of a pair in [`Queues`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pair(u32);

/// What belongs to a pair.
#[derive(Debug, Default)]
struct Slot {
    /// `None` until the sender sends something, and again when the receiver has severed its endpoint.
    queues: Option<Box<PairQueues>>,
    /// The endpoint of the receiver.
    endpoint: Option<u32>,
    /// This endpoint is in the arrivals of the receiver.
    has_arrived: bool,
}

impl Queues {
    /// The number of a pair.
    pub fn pair(&mut self, from: u32, to: u32) -> Pair {
        let next = Pair(self.all.len() as u32);
        let pair = *self.pairs.entry((from, to)).or_insert(next);
        if pair == next {
            self.all.push(Slot::default());
        }
        pair
    }

    /// The receiver of a pair gets this endpoint for it.
    pub fn connect(&mut self, pair: Pair, endpoint: u32) {
        self.all[pair.0 as usize].endpoint = Some(endpoint);
    }

    pub fn get(&self, pair: Pair) -> Option<&PairQueues> {
        self.all[pair.0 as usize].queues.as_deref()
    }

    pub fn get_mut(&mut self, pair: Pair) -> Option<&mut PairQueues> {
        self.all[pair.0 as usize].queues.as_deref_mut()
    }

    pub fn get_or_create(&mut self, pair: Pair) -> &mut PairQueues {
        self.all[pair.0 as usize].queues.get_or_insert_default()
    }

    pub fn remove(&mut self, pair: Pair) -> Option<Box<PairQueues>> {
        self.all[pair.0 as usize].queues.take()
    }

    /// What this process has sent and nobody has received is lost.
    pub fn lose_from(&mut self, number: u32) {
        for ((_, _), pair) in self.pairs.range((number, 0)..=(number, u32::MAX)) {
            self.all[pair.0 as usize].queues = None;
        }
    }

    /// Something was sent to the receiver of a pair.
    pub fn on_sent(&mut self, pair: Pair, to: u32) {
        let slot = &mut self.all[pair.0 as usize];
        let Some(endpoint) = slot.endpoint.filter(|_| !slot.has_arrived) else { return };
        slot.has_arrived = true;
        if self.arrivals.len() <= to as usize {
            self.arrivals.resize(to as usize + 1, vec![]);
        }
        self.arrivals[to as usize].push(endpoint);
    }

    /// The endpoints of a process for which something was sent since the last call. Each must be given to [`Queues::on_noticed`].
    pub fn take_arrivals(&mut self, to: u32) -> Vec<u32> {
        self.arrivals.get_mut(to as usize).map(std::mem::take).unwrap_or_default()
    }

    /// The receiver knows that something was sent.
    pub fn on_noticed(&mut self, pair: Pair) {
        self.all[pair.0 as usize].has_arrived = false;
    }

    /// The queues that are not empty, by sender and receiver.
    pub fn busy(&self) -> impl Iterator<Item = ((u32, u32), &PairQueues)> {
        let all = self.pairs.iter().filter_map(|(names, pair)| Some((*names, self.get(*pair)?)));
        all.filter(|(_, queues)| !queues.is_empty())
    }
}

/// What one process has sent to another, and was not delivered yet.
#[derive(Debug, Default)]
pub(super) struct PairQueues {
    /// How many messages and chunks there are in all.
    count: u32,
    data: VecDeque<Message>,
    control: VecDeque<Message>,
    /// Of which queue each message or chunk is, in the order in which they were sent ([`super::Faults::one_queue`]).
    order: VecDeque<Queue>,
    chunks: VecDeque<(Stream, Vec<u8>)>,
    /// By the id with which they were sent, at most one of each.
    mailboxes: Vec<(AmId, Message)>,
}

/// A message in flight.
#[derive(Debug)]
pub(super) struct Message {
    pub id: AmId,
    pub header: Vec<u8>,
    pub payload: Vec<u8>,
}

/// One of the queues of a pair that keep their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Queue {
    Data,
    Control,
    Chunks,
}

/// What a queue delivers.
#[derive(Debug)]
pub(super) enum Delivery {
    Message(Message),
    Chunk(Stream, Vec<u8>),
}

impl Delivery {
    pub fn hand_up(self, from: PeerIndex, sink: &mut impl Sink<u32>) {
        match self {
            Delivery::Message(message) => message.hand_up(from, sink),
            Delivery::Chunk(stream, bytes) => sink.on_chunk(from, stream, Payload::from(&bytes[..])),
        }
    }
}

/// For the sender.
impl PairQueues {
    pub fn data_is_full(&self, sizes: &Sizes) -> bool {
        self.data.len() >= sizes.data_depth as usize
    }

    pub fn control_is_full(&self, sizes: &Sizes) -> bool {
        self.control.len() >= sizes.control_depth as usize
    }

    pub fn chunks_are_full(&self, sizes: &Sizes) -> bool {
        self.chunks.len() >= sizes.chunk_depth as usize
    }

    pub fn has_room(&self, sizes: &Sizes) -> bool {
        !self.data_is_full(sizes) && !self.control_is_full(sizes) && !self.chunks_are_full(sizes)
    }

    /// Adds a message, which was sent with this id. Returns whether it replaces another one.
    pub fn push(&mut self, class: MessageClass, id: AmId, message: Message, in_order: bool) -> bool {
        match class {
            MessageClass::Data => {
                self.data.push_back(message);
                self.order.extend(in_order.then_some(Queue::Data));
            }
            MessageClass::Control => {
                self.control.push_back(message);
                self.order.extend(in_order.then_some(Queue::Control));
            }
            MessageClass::Mailbox => {
                if let Some((_, before)) = self.mailboxes.iter_mut().find(|(other, _)| *other == id) {
                    *before = message;
                    return true;
                }
                self.mailboxes.push((id, message));
            }
        }
        self.count += 1;
        false
    }

    pub fn push_chunk(&mut self, stream: Stream, bytes: Vec<u8>, in_order: bool) {
        self.count += 1;
        self.chunks.push_back((stream, bytes));
        self.order.extend(in_order.then_some(Queue::Chunks));
    }
}

/// For the receiver.
impl PairQueues {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes the first message or chunk of a queue that `random` selects.
    pub fn take(&mut self, random: &mut Random, in_order: bool) -> Option<Delivery> {
        let first = random.below(4);
        if self.is_empty() {
            return None;
        }
        let taken = if in_order { self.take_in_order(first == 0) } else { self.take_any(first) };
        self.count -= u32::from(taken.is_some());
        taken
    }

    /// A mailbox has one state, and so no place in the order.
    fn take_in_order(&mut self, mailbox_first: bool) -> Option<Delivery> {
        let looks = mailbox_first || self.order.is_empty();
        let mailbox = if looks { self.take_mailbox() } else { None };
        mailbox.or_else(|| self.take_oldest())
    }

    fn take_oldest(&mut self) -> Option<Delivery> {
        match self.order.pop_front()? {
            Queue::Data => self.data.pop_front().map(Delivery::Message),
            Queue::Control => self.control.pop_front().map(Delivery::Message),
            Queue::Chunks => self.chunks.pop_front().map(|(stream, bytes)| Delivery::Chunk(stream, bytes)),
        }
    }

    fn take_any(&mut self, first: u64) -> Option<Delivery> {
        (0..4).find_map(|step| match (first + step) % 4 {
            0 => self.data.pop_front().map(Delivery::Message),
            1 => self.control.pop_front().map(Delivery::Message),
            2 => self.take_mailbox(),
            _ => self.chunks.pop_front().map(|(stream, bytes)| Delivery::Chunk(stream, bytes)),
        })
    }

    /// The one with the lowest id.
    fn take_mailbox(&mut self) -> Option<Delivery> {
        let (at, _) = self.mailboxes.iter().enumerate().min_by_key(|(_, (id, _))| *id)?;
        Some(Delivery::Message(self.mailboxes.swap_remove(at).1))
    }

    /// Whether a data message is the next one that may be taken.
    pub fn data_is_first(&self) -> bool {
        !self.data.is_empty() && !matches!(self.order.front(), Some(Queue::Control | Queue::Chunks))
    }

    /// Takes the first data message. Where there is an order, [`PairQueues::data_is_first`] has found it to be the first.
    pub fn take_data(&mut self) -> Option<Message> {
        let message = self.data.pop_front()?;
        self.order.pop_front();
        self.count -= 1;
        Some(message)
    }
}

impl core::fmt::Display for PairQueues {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (data, control, chunks) = (self.data.len(), self.control.len(), self.chunks.len());
        write!(f, "{data} messages, {control} control, {chunks} chunks")
    }
}

impl Message {
    /// The receiver gets the message.
    pub fn hand_up(self, from: PeerIndex, sink: &mut impl Sink<u32>) {
        sink.on_message(from, self.id, &self.header, Payload::from(&self.payload[..]));
    }

    /// Changes what its receiver reads: the id, one byte of the header, or the length of header or payload.
    pub fn garble(&mut self, random: &mut Random) {
        match random.below(16) {
            0 => self.header.truncate(random.below(self.header.len() as u64 + 1) as usize),
            1 => self.header.resize(Limits::HEADER_BYTES_MAX, 7),
            2 => self.payload.truncate(random.below(self.payload.len() as u64 + 1) as usize),
            3 => self.payload.push(0),
            4 => self.id = AmId(random.bits() as u8),
            _ if self.header.is_empty() => {}
            kind => {
                let at = random.below(self.header.len() as u64) as usize;
                let noise = if kind < 10 { 1 << random.below(8) } else { random.bits() as u8 };
                self.header[at] ^= noise;
            }
        }
    }
}
