// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of an 8-byte message in the PML, in instructions: `valgrind --tool=callgrind` on
//! `message_cost CASE N`, once with N and once with 2 N; the cost of one message is the difference divided by N.
//!
//! CASE is `idle` (only the loop and the queue), `send`, `polling` (a blocking receive whose message is in the ring), `posted`
//! (a receive that is posted before its message comes) or `unexpected` (a receive that is started afterwards).

use mend_base::{ContextKind, Identity, Instant, Job, Peer, PeerIndex, Rank, Source, Tag, TagSelector};
use mend_datatype::TypedBuffer;
use mend_pml::{Channel, CommIndex, Config, Ends, Lent, Ob1, SendMode, Started, Upcalls};
use mend_transport::{
    Ability, AmId, Btl, Buffer, Card, Cause, ConnectError, EventPending, Limits, MessageClass, Payload,
    PayloadWriter, SendError, Sink, Stream, UserMemory, WakeSet,
};
use std::collections::VecDeque;
use std::sync::Arc;

const BYTES: usize = 8;

/// One slot of a ring.
struct Slot {
    class: MessageClass,
    id: AmId,
    header: [u8; Limits::HEADER_BYTES_MAX],
    header_bytes: usize,
    payload: [u8; BYTES],
    payload_bytes: usize,
}

/// The rings between two processes, simulated in one program; `me` is the process whose end is used now.
struct Rings {
    me: usize,
    slots: [VecDeque<Slot>; 2],
    limits: Limits,
}

impl mend_transport::Rdma for Rings {}

impl Btl for Rings {
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
        let mut slot = Slot {
            class,
            id,
            header: [0; Limits::HEADER_BYTES_MAX],
            header_bytes: header.len(),
            payload: [0; BYTES],
            payload_bytes: len,
        };
        slot.header[..header.len()].copy_from_slice(header);
        fill(PayloadWriter::from(&mut slot.payload[..len]));
        self.slots[to as usize].push_back(slot);
        Ok(())
    }

    fn send_chunk(
        &mut self,
        _: u32,
        _: Stream,
        _: usize,
        _: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        Err(SendError::Busy)
    }

    fn ready(&self, _: u32) -> bool {
        !self.slots[self.me].is_empty()
    }

    fn has_message(&self, _: u32) -> bool {
        self.slots[self.me].front().is_some_and(|slot| slot.class == MessageClass::Data)
    }

    fn take_message(&mut self, _: Instant, from: u32, sink: &mut impl Sink<u32>) -> u32 {
        let Some(slot) = self.slots[self.me].pop_front() else { return 0 };
        let payload = Payload::from(&slot.payload[..slot.payload_bytes]);
        sink.on_message(PeerIndex(from), slot.id, &slot.header[..slot.header_bytes], payload);
        1
    }

    fn progress(&mut self, now: Instant, _: u32, sink: &mut impl Sink<u32>) -> u32 {
        self.take_message(now, 1 - self.me as u32, sink)
    }

    fn arm(&mut self, _: &mut WakeSet) -> Result<(), EventPending> {
        Ok(())
    }
    fn disarm(&mut self) {}
}

struct Nothing;

impl Upcalls<u32> for Nothing {
    fn on_message(&mut self, _: PeerIndex, _: AmId, _: &[u8], _: Payload<'_>) {}
    fn on_error(&mut self, _: PeerIndex, _: u32, cause: Cause) {
        panic!("{cause:?}");
    }
    fn on_severed(&mut self, _: PeerIndex, _: u32) {}
}

struct Pair {
    rings: Rings,
    sides: [Ob1<u32>; 2],
    ends: Ends,
    on: Vec<Channel>,
    memory: Arc<Buffer>,
}

impl Pair {
    fn new() -> Self {
        let limits = Limits {
            abilities: Ability::Streams as u32 | Ability::Polling as u32,
            emulated: 0,
            control_bytes_max: 16,
            message_bytes_max: 4096,
            eager_bytes: 4096,
            chunk_bytes: 4096,
            transfer_bytes_max: 0,
        };
        let config = Config::default();
        let mut sides = [Ob1::new(config), Ob1::new(config)];
        let ends = Ends::default();
        let members: Arc<[PeerIndex]> = [PeerIndex(0), PeerIndex(1)].into();
        let identity = Identity { creator: Peer::new(Job(1), 0), number: 1 };
        let open = |(rank, side): (u32, &mut Ob1<u32>)| {
            side.connected(PeerIndex(1 - rank), 1 - rank, &limits);
            let (kind, members) = (ContextKind::PointToPoint, Arc::clone(&members));
            side.open(identity, kind, Rank(rank), members, CommIndex(0), &ends)
        };
        let on = (0..).zip(&mut sides).map(open).collect();
        let slots = [VecDeque::with_capacity(64), VecDeque::with_capacity(64)];
        let mut pair =
            Pair { rings: Rings { me: 0, slots, limits }, sides, ends, on, memory: Buffer::zeroed(BYTES) };
        // The receiver announces its context id; the sender stores it, and sends once by the slow path.
        for _ in 0..3 {
            pair.send();
            pair.progress(1);
            pair.receive();
            pair.progress(1);
            pair.progress(0);
        }
        pair
    }

    fn data(&self) -> TypedBuffer {
        TypedBuffer::bytes(UserMemory::of_buffer(&self.memory))
    }

    fn send(&mut self) -> Started {
        self.rings.me = 0;
        let data = self.data();
        let Pair { rings, sides, ends, on, .. } = self;
        let lent = Lent { net: rings, ends };
        sides[0].send(lent, on[0], Rank(1), Tag(7), SendMode::Standard, data).expect("rank 1 exists")
    }

    fn receive(&mut self) -> Started {
        self.rings.me = 1;
        let data = self.data();
        let Pair { rings, sides, ends, on, .. } = self;
        let lent = Lent { net: rings, ends };
        sides[1]
            .receive(lent, on[1], Source::Rank(Rank(0)), TagSelector::Tag(Tag(7)), data)
            .expect("rank 0 exists")
    }

    fn polling_receive(&mut self) -> Started {
        self.rings.me = 1;
        let data = self.data();
        let Pair { rings, sides, ends, on, .. } = self;
        let mut polling =
            sides[1].begin_polling(on[1], Source::Rank(Rank(0)), TagSelector::Tag(Tag(7)), data);
        sides[1]
            .poll_once(Lent { net: rings, ends }, Instant(0), &mut polling, &mut Nothing)
            .expect("a message has come")
            .expect("rank 0 exists")
    }

    fn progress(&mut self, at: usize) {
        self.rings.me = at;
        self.sides[at].progress(&mut self.rings, Instant(0), &mut Nothing);
    }
}

fn assert_done(started: Started) {
    assert!(matches!(started, Started::Done(_)), "{started:?}");
}

/// Runs the case once; the sender makes progress in between, as programs do.
fn run(pair: &mut Pair, case: &str) {
    match case {
        "idle" => {}
        "send" => {
            assert_done(pair.send());
            pair.rings.slots[1].clear();
        }
        "polling" => {
            assert_done(pair.send());
            assert_done(pair.polling_receive());
        }
        "posted" => {
            let Started::Running(request) = pair.receive() else { panic!("nothing has come") };
            assert_done(pair.send());
            pair.progress(1);
            assert!(matches!(pair.sides[1].poll(request, &pair.ends), mend_pml::State::Done(Ok(_))));
            pair.sides[1].release(request);
        }
        "unexpected" => {
            assert_done(pair.send());
            pair.progress(1);
            assert_done(pair.receive());
        }
        _ => panic!("no case {case}"),
    }
    pair.progress(0);
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, case, times] = &words[..] else { panic!("message_cost CASE N") };
    let mut pair = Pair::new();
    for _ in 0..times.parse().expect("N is a number") {
        run(&mut pair, case);
    }
}
