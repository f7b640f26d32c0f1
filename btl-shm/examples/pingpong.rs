// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The latency and bandwidth of this transport alone, without the layers above, between two pinned threads with an outbox
//! each. `cargo run --release -p mend-btl-shm --example pingpong [BYTES] [ROUNDS]`
//!
//! With ROUNDS negative both ends run on one thread, alternately and without a clock: the instructions of a round trip are
//! those of 2,000 rounds less those of 1,000, divided by 1,000 (`valgrind --tool=callgrind`).

use mend_base::parameter::{Declared, Settings};
use mend_base::{Instant, PeerIndex};
use mend_btl_shm::{NodeSlot, PARAMETERS, Shm, ShmEndpoint};
use mend_segment::BellPage;
use mend_transport::{AmId, Btl, Card, Cause, Cookie, MessageClass, Payload, SendError, Sink, Stream};
use std::sync::{Arc, Barrier};
use std::time;

/// Counts what arrives.
struct Tally {
    messages: u64,
    bytes: u64,
    buffer: Vec<u8>,
}

impl Sink<ShmEndpoint> for Tally {
    fn on_message(&mut self, _: PeerIndex, _: AmId, _: &[u8], payload: Payload<'_>) {
        payload.copy_to_slice(&mut self.buffer[..payload.len()]);
        self.messages += 1;
    }

    fn on_chunk(&mut self, _: PeerIndex, _: Stream, payload: Payload<'_>) {
        let at = self.bytes as usize % (self.buffer.len() - payload.len()).max(1);
        payload.copy_to_slice(&mut self.buffer[at..at + payload.len()]);
        self.bytes += payload.len() as u64;
    }

    fn on_done(&mut self, _: Cookie, _: Result<(), SendError>) {}
    fn on_sendable(&mut self, _: PeerIndex, _: ShmEndpoint) {}
    fn on_error(&mut self, _: PeerIndex, _: ShmEndpoint, cause: Cause) {
        panic!("{cause:?}");
    }
    fn on_severed(&mut self, _: PeerIndex, _: ShmEndpoint) {}
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<i64>().expect("a number"));
    let bytes = arguments.next().unwrap_or(8) as usize;
    let rounds = arguments.next().unwrap_or(1_000_000);
    let (one_thread, rounds) = (rounds < 0, rounds.unsigned_abs());
    let bells = Arc::new(BellPage::create(2).expect("a bell page").0);
    let mut ends: Vec<Shm> = (0..2)
        .map(|slot| {
            let node = NodeSlot { slot, slots: 2, bells: Arc::clone(&bells) };
            Shm::new(node, &Settings::new(Declared(&[PARAMETERS]))).expect("an outbox")
        })
        .collect();
    let cards: Vec<Card> = ends
        .iter()
        .map(|end| {
            let mut card = Card { layout: Card::LAYOUT, ..Card::default() };
            end.advertise(&mut card);
            card
        })
        .collect();
    if one_thread {
        return on_one_thread(&mut ends, &cards, bytes, rounds);
    }
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        for (slot, mut end) in ends.drain(..).enumerate() {
            let (cards, barrier) = (&cards, &barrier);
            scope.spawn(move || {
                pin(slot);
                let endpoint = end.connect(PeerIndex(0), &cards[1 - slot]).expect("an endpoint");
                barrier.wait();
                if bytes <= 4096 {
                    ping_pong(&mut end, endpoint, slot, bytes, rounds);
                } else {
                    stream(&mut end, endpoint, slot, bytes, rounds);
                }
            });
        }
    });
}

/// Round trips of both ends on this thread: each message is received as a blocking receive from a named rank does it, and
/// then once more by `progress`.
fn on_one_thread(ends: &mut [Shm], cards: &[Card], bytes: usize, rounds: u64) {
    let mut tally = Tally { messages: 0, bytes: 0, buffer: vec![0; 1 << 20] };
    let payload = vec![7; bytes];
    let endpoint =
        [0, 1].map(|slot| ends[slot].connect(PeerIndex(0), &cards[1 - slot]).expect("an endpoint"));
    for round in 0..rounds {
        for (from, to) in [(0, 1), (1, 0)] {
            send(&mut ends[from], endpoint[from], bytes, &payload);
            if ends[to].has_message(endpoint[to]) {
                ends[to].take_message(Instant(0), endpoint[to], &mut tally);
            }
            send(&mut ends[from], endpoint[from], bytes, &payload);
            ends[to].progress(Instant(0), 64, &mut tally);
        }
        assert_eq!(tally.messages, 4 * (round + 1));
    }
}

fn send(end: &mut Shm, endpoint: ShmEndpoint, bytes: usize, payload: &[u8]) {
    end.send(endpoint, MessageClass::Data, AmId(1), &[1; 16], bytes, |mut room| room.put(payload))
        .expect("room");
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).expect("two cores");
}

/// How many round trips are timed together. The shortest batches were not interrupted.
const BATCH: u64 = 200;

fn ping_pong(end: &mut Shm, endpoint: ShmEndpoint, slot: usize, bytes: usize, rounds: u64) {
    let mut tally = Tally { messages: 0, bytes: 0, buffer: vec![0; 1 << 20] };
    let payload = vec![7; bytes];
    let header = [1; 16];
    let mut began = time::Instant::now();
    let mut batches = Vec::new();
    for round in 0..rounds {
        if round % BATCH == 0 {
            batches.push(began.elapsed().as_secs_f64());
            began = time::Instant::now();
        }
        if slot == 0 {
            end.send(endpoint, MessageClass::Data, AmId(1), &header, bytes, |mut room| room.put(&payload))
                .expect("room");
        }
        while tally.messages <= round {
            end.progress(Instant(0), 64, &mut tally);
        }
        if slot == 1 {
            end.send(endpoint, MessageClass::Data, AmId(1), &header, bytes, |mut room| room.put(&payload))
                .expect("room");
        }
    }
    if slot == 0 {
        batches.sort_by(f64::total_cmp);
        let one_way = |part: usize| batches[batches.len() * part / 100] / BATCH as f64 / 2.0 * 1e9;
        println!("{bytes} bytes: least {:.1}, median {:.1} ns one way", one_way(1), one_way(50));
        println!("{:?}", end.statistics());
    }
}

fn stream(end: &mut Shm, endpoint: ShmEndpoint, slot: usize, bytes: usize, rounds: u64) {
    let mut tally = Tally { messages: 0, bytes: 0, buffer: vec![0; (2 * bytes).max(1 << 20)] };
    let payload = vec![7; bytes];
    let chunk = end.limits(endpoint).chunk_bytes as usize;
    let mut least = f64::MAX;
    for round in 0..rounds {
        let began = time::Instant::now();
        let (mut sent, mut size) = (0, 2048.min(chunk));
        while slot == 0 && sent < bytes {
            let len = size.min(bytes - sent);
            match end.send_chunk(endpoint, Stream(1), len, |mut room| room.put(&payload[sent..sent + len])) {
                Ok(()) => (sent, size) = (sent + len, (size * 2).min(chunk)),
                Err(_) => _ = end.progress(Instant(0), 64, &mut tally),
            }
        }
        while slot == 1 && tally.bytes < (round + 1) * bytes as u64 {
            end.progress(Instant(0), 64, &mut tally);
        }
        least = least.min(began.elapsed().as_secs_f64());
    }
    if slot == 1 {
        println!("{bytes} bytes: at best {:.2} GB/s", bytes as f64 / least / 1e9);
    }
}
