// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connected transports and a sink that records, for this crate's unit tests.

use crate::{NodeSlot, PARAMETERS, Shm, ShmEndpoint};
use mend_base::parameter::{Declared, Settings};
use mend_base::{Instant, PeerIndex};
use mend_segment::BellPage;
use mend_transport::{AmId, Btl, Card, Cause, Cookie, MessageClass, Payload, SendError, Sink, Stream};
use std::sync::Arc;

/// What was delivered, in order.
#[derive(Default)]
pub(crate) struct Delivered {
    pub(crate) messages: Vec<Vec<u8>>,
    pub(crate) chunks: Vec<Vec<u8>>,
    pub(crate) room: u32,
}

impl Sink<ShmEndpoint> for Delivered {
    fn on_message(&mut self, _: PeerIndex, _: AmId, _: &[u8], payload: Payload<'_>) {
        self.messages.push(payload.to_vec());
    }

    fn on_chunk(&mut self, _: PeerIndex, _: Stream, payload: Payload<'_>) {
        self.chunks.push(payload.to_vec());
    }

    fn on_done(&mut self, _: Cookie, _: Result<(), SendError>) {}

    fn on_sendable(&mut self, _: PeerIndex, _: ShmEndpoint) {
        self.room += 1;
    }

    fn on_error(&mut self, _: PeerIndex, _: ShmEndpoint, cause: Cause) {
        panic!("{cause:?}");
    }

    fn on_severed(&mut self, _: PeerIndex, _: ShmEndpoint) {}
}

/// Two connected transports; endpoint 0 of each leads to the other.
pub(crate) fn pair() -> ([Shm; 2], ShmEndpoint) {
    let (receiver, mut senders, endpoint) = star(2);
    let sender = senders.pop().expect("a star of two has one");
    ([receiver, sender], endpoint)
}

/// One transport, and others that are each connected to it alone: their endpoint 0.
pub(crate) fn star(count: u32) -> (Shm, Vec<Shm>, ShmEndpoint) {
    let bells = Arc::new(BellPage::create(count).unwrap().0);
    let make = |slot| {
        let node = NodeSlot { slot, slots: count, bells: Arc::clone(&bells) };
        Shm::new(node, &Settings::new(Declared(&[PARAMETERS]))).unwrap()
    };
    let card = |shm: &Shm| {
        let mut card = Card { layout: Card::LAYOUT, ..Card::default() };
        shm.advertise(&mut card);
        card
    };
    let mut centre = make(0);
    let mut others: Vec<Shm> = (1..count).map(make).collect();
    let mut endpoint = None;
    for (number, other) in (1..).zip(&mut others) {
        centre.connect(PeerIndex(number), &card(other)).unwrap();
        endpoint = Some(other.connect(PeerIndex(0), &card(&centre)).unwrap());
    }
    (centre, others, endpoint.expect("a star has two at least"))
}

/// Sends one message of one byte.
pub(crate) fn send_one(sender: &mut Shm, endpoint: ShmEndpoint) {
    sender.send(endpoint, MessageClass::Data, AmId(1), b"", 1, |mut slot| slot.put(&[1])).unwrap();
}

/// Makes progress until one more message is delivered.
pub(crate) fn receive_one(receiver: &mut Shm, delivered: &mut Delivered) {
    let before = delivered.messages.len();
    while delivered.messages.len() == before {
        receiver.progress(Instant(0), 100, delivered);
    }
}
