// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers that stop in the middle of a frame, while another one fills all receive buffers several times.

use super::{TURN, open};
use crate::connection::State;
use crate::{Ofi, Statistics};
use mend_base::{Instant, PeerIndex};
use mend_ffi_ofi::Ofi as Library;
use mend_transport::{AmId, Btl, Card, Cause, Cookie, MessageClass, Payload, SendError, Sink, Stream};
use std::sync::PoisonError;

const SENDERS: usize = 3;

/// What is sent over a provider.
#[derive(Clone, Copy)]
struct Traffic {
    provider: &'static str,
    /// The longest message; `None`: what suits the provider.
    frame_bytes: Option<u32>,
    message_bytes: usize,
    /// So many messages fill the receive buffers several times.
    meanwhile: u32,
}

/// 64 messages are more than sockets take, so that one of them is half in the socket.
const TCP: Traffic =
    Traffic { provider: "tcp", frame_bytes: Some(1 << 18), message_bytes: 250_000, meanwhile: 70 };

/// Messages of two senders that this provider kept buffers for would take all of them.
const RXM: Traffic =
    Traffic { provider: "tcp;ofi_rxm", frame_bytes: None, message_bytes: 15 << 10, meanwhile: 500 };

/// Byte `at` of message `number` of a sender.
fn byte(sender: usize, number: u32, at: usize) -> u8 {
    let message = number * SENDERS as u32 + sender as u32;
    let word = (at as u32 / 4).wrapping_add(message << 16).wrapping_mul(0x9e37_79b1);
    word.to_ne_bytes()[3 - at % 4]
}

/// What has come to a process: all bytes are compared at once.
#[derive(Default)]
struct Checked {
    /// By sender: the number that comes next.
    next: [u32; SENDERS],
    wrong: u32,
    message_bytes: usize,
}

impl Sink<u32> for Checked {
    fn on_message(&mut self, peer: PeerIndex, _: AmId, _: &[u8], payload: Payload<'_>) {
        let mut bytes = vec![0; payload.len()];
        payload.copy_to_slice(&mut bytes);
        let sender = peer.0 as usize - 1;
        let number = self.next[sender];
        let is_right = |(at, value): (usize, &u8)| *value == byte(sender, number, at);
        self.wrong += u32::from(bytes.len() != self.message_bytes || !bytes.iter().enumerate().all(is_right));
        self.next[sender] += 1;
    }
    fn on_chunk(&mut self, _: PeerIndex, _: Stream, _: Payload<'_>) {}
    fn on_done(&mut self, _: Cookie, _: Result<(), SendError>) {}
    fn on_sendable(&mut self, _: PeerIndex, _: u32) {}
    fn on_error(&mut self, _: PeerIndex, _: u32, cause: Cause) {
        panic!("{cause:?}");
    }
    fn on_severed(&mut self, _: PeerIndex, _: u32) {}
}

/// Process 0, and senders that are connected with it alone.
struct Star {
    traffic: Traffic,
    receiver: Ofi,
    checked: Checked,
    senders: Vec<Ofi>,
    /// The number that each sends next.
    sent: [u32; SENDERS],
    /// A clock that runs with the calls: no probe is late however slow the machine is.
    now: Instant,
}

impl Star {
    fn new(library: &std::sync::Arc<Library>, traffic: Traffic) -> Star {
        let open = |instance| open(library, traffic.provider, instance, traffic.frame_bytes);
        let mut receiver = open(100);
        let mut senders: Vec<Ofi> = (101..).take(SENDERS).map(open).collect();
        let card_of = |btl: &Ofi| {
            let mut card = Card { layout: Card::LAYOUT, ..Card::default() };
            btl.advertise(&mut card);
            card
        };
        let card = card_of(&receiver);
        for (at, sender) in senders.iter_mut().enumerate() {
            assert_eq!(receiver.connect(PeerIndex(1 + at as u32), &card_of(sender)), Ok(at as u32));
            assert_eq!(sender.connect(PeerIndex(0), &card), Ok(0));
        }
        let checked = Checked { message_bytes: traffic.message_bytes, ..Checked::default() };
        let sent = [0; SENDERS];
        let mut star = Star { traffic, receiver, checked, senders, sent, now: Instant(0) };
        star.until("all are connected", |star| {
            (0..SENDERS).for_each(|at| star.progress_sender(at));
            star.receiver.connections.iter().all(|connection| connection.state == State::Connected)
                && star.senders.iter().all(|sender| sender.connections[0].state == State::Connected)
        });
        star
    }

    fn tick(&mut self) -> Instant {
        self.now = Instant(self.now.0 + 1_000);
        self.now
    }

    fn progress_sender(&mut self, at: usize) {
        let now = self.tick();
        self.senders[at].progress(now, 64, &mut Checked::default());
    }

    /// The receiver makes progress until the condition holds.
    fn until(&mut self, what: &str, mut condition: impl FnMut(&mut Star) -> bool) {
        let begun = std::time::Instant::now();
        while !condition(self) {
            assert!(begun.elapsed().as_secs() < 60, "{what}: not within 60 s; {:?}", self.checked.next);
            let now = self.tick();
            self.receiver.progress(now, 64, &mut self.checked);
            std::thread::yield_now();
        }
    }

    /// Sends as much as the sender takes.
    fn send(&mut self, at: usize) {
        loop {
            let number = self.sent[at];
            let bytes: Vec<u8> =
                (0..self.traffic.message_bytes).map(|place| byte(at, number, place)).collect();
            let sent = self.senders[at]
                .send(0, MessageClass::Data, AmId(1), &[], bytes.len(), |mut out| out.put(&bytes));
            match sent {
                Ok(()) => self.sent[at] += 1,
                Err(SendError::Busy) => return,
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    /// All senders but one stop, with full sockets; the one goes on, and then they do.
    fn stop_all_but(&mut self, one: usize) {
        let enough = self.checked.next[one] + self.traffic.meanwhile;
        for stopped in (0..SENDERS).filter(|at| *at != one) {
            // The receiver takes nothing, so the last frame that the socket takes is half in it.
            self.send(stopped);
            (0..100).for_each(|_| self.progress_sender(stopped));
        }
        self.until("the one goes on", |star| {
            star.send(one);
            star.progress_sender(one);
            star.checked.next[one] >= enough
        });
        self.until("all has come", |star| {
            (0..SENDERS).for_each(|at| star.progress_sender(at));
            star.checked.next == star.sent
        });
    }
}

fn frames_are_neither_lost_nor_wrong(test: &str, traffic: Traffic) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let library = match Library::open(Library::DEFAULT_NAME) {
        Ok(library) => library,
        Err(why) => return mend_testing::skip(test, &format!("{why} (Debian: apt-get install libfabric1)")),
    };
    let mut star = Star::new(&library, traffic);
    for turn in 0..2 * SENDERS {
        star.stop_all_but(turn % SENDERS);
    }
    assert_eq!(star.checked.wrong, 0, "messages with wrong bytes");
    let Statistics { duplicates, rewinds, reopened, .. } = star.receiver.statistics();
    let rewound: u64 = star.senders.iter().map(|sender| sender.statistics().rewinds).sum();
    assert_eq!((duplicates, rewinds + rewound, reopened), (0, 0, 0), "frames were lost, and sent again");
}

#[test]
fn a_frame_that_is_half_received_while_others_fill_the_buffers_is_right_over_tcp() {
    let test = "a_frame_that_is_half_received_while_others_fill_the_buffers_is_right_over_tcp";
    frames_are_neither_lost_nor_wrong(test, TCP);
}

#[test]
fn a_frame_that_is_half_received_while_others_fill_the_buffers_is_right_over_rxm() {
    let test = "a_frame_that_is_half_received_while_others_fill_the_buffers_is_right_over_rxm";
    frames_are_neither_lost_nor_wrong(test, RXM);
}
