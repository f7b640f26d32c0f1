// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ring of an ordered pair: one producer, one consumer, one cache line a slot. A block has three rings of this type: for
//! control messages, for messages, and, from the first large message on, for chunks of large messages. If there is no memory
//! for the third, chunks go through the second.
//!
//! ```text
//!   word 0, stored last with Release:  sequence u32 | id u8 | header bytes u6, chunk u1, 0 | payload bytes u16
//!   words 1 to 7:                      header, then the payload where both fit (56 bytes)
//! ```
//!
//! A longer payload lies in the ring's byte area, at an offset that the consumer computes for itself: payloads follow
//! one another in whole lines, and begin at the front again where the rest is too short. No offset is read from the
//! peer.
//!
//! The producer goes round the slots in *laps*: position `p` is in slot `p` modulo the number of slots. The sequence of position
//! `p` is `p + 1`. A slot that is not ready for position `p` still holds the sequence of the previous lap, which is less by the
//! number of slots (for the first lap the producer writes these before it announces the ring). A kill between any two
//! instructions leaves a slot either published or not. No locked instruction, no fence, no system call, no allocation on either
//! side.
//!
//! Positions are 32 bits and wrap around at 2^32; they begin at [`START`], shortly before that, so that every test exercises
//! it.

use crate::atomic::{AtomicU8, Ordering};
use crate::line::Line;
pub use crate::line::{Garbage, HEADER_BYTES_MAX};
use crate::line::{Image, Word0};
use core::ops::Deref;

/// Where the positions of every ring begin: the largest ring is filled four times before they wrap around at 2^32.
pub(crate) const START: u32 = 0u32.wrapping_sub(4 * 64);

/// The fields of a slot's first word, and the message's header.
#[derive(Clone, Copy, Debug)]
pub struct SlotHeader<'a> {
    /// The identifier of the layer above.
    pub id: u8,
    /// At most [`HEADER_BYTES_MAX`] bytes.
    pub header: &'a [u8],
    /// A chunk of a large message rather than a message.
    pub chunk: bool,
}

/// Where the producer writes a payload: all of it, from the front.
#[derive(Debug)]
pub enum PayloadMut<'a> {
    /// A private buffer, published as one line.
    Private(&'a mut [u8]),
    /// The byte area of our own outbox, which the peer can already read.
    Shared(&'a [AtomicU8]),
}

/// A payload that arrived.
#[derive(Clone, Copy, Debug)]
pub enum PayloadRef<'a> {
    /// A private copy.
    Private(&'a [u8]),
    /// In the peer's outbox: it may change while it is copied. Read-only: the type has stores, and one of them would
    /// end the process by SIGSEGV. A receiver makes a `Payload` of it at once, which can only be copied out.
    Shared(&'a [AtomicU8]),
}

/// One complete message or chunk, valid during the call.
#[derive(Clone, Copy, Debug)]
pub struct RingMessage<'a> {
    /// Identifier, header, kind.
    pub slot_header: SlotHeader<'a>,
    /// The payload.
    pub payload: PayloadRef<'a>,
}

/// Prepares a ring before it is announced: every slot is free.
pub(crate) fn prepare<const SLOTS: usize>(lines: &[Line; SLOTS]) {
    for (slot, line) in (0u32..).zip(lines) {
        let a_lap_earlier = START.wrapping_add(slot).wrapping_add(1).wrapping_sub(SLOTS as u32);
        line.0[0].store(u64::from(a_lap_earlier), Ordering::Release);
    }
}

/// The sending end. `L` and `A` lead to the slots and the byte area in the block that this process writes for the peer.
#[derive(Debug)]
pub struct Producer<L, A, const SLOTS: usize, const AREA: usize> {
    lines: L,
    area: A,
    /// The next slot to publish.
    position: u32,
    /// The consumer has given credit for every slot before this one.
    credited: u32,
    /// Where the next payload begins in the byte area, as a byte offset that only grows.
    head: u32,
    /// The consumer has given credit for every byte before this one.
    tail: u32,
    /// Where the payload of each slot ends.
    ends: [u32; SLOTS],
}

impl<L, A, const SLOTS: usize, const AREA: usize> Producer<L, A, SLOTS, AREA>
where
    L: Deref<Target = [Line; SLOTS]>,
    A: Deref<Target = [AtomicU8; AREA]>,
{
    pub(crate) fn new(lines: L, area: A) -> Self {
        const { assert!(SLOTS.is_power_of_two() && SLOTS <= 64 && (AREA == 0 || AREA.is_power_of_two())) };
        Producer { lines, area, position: START, credited: START, head: 0, tail: 0, ends: [0; SLOTS] }
    }

    // Hot: per message.
    /// Publishes one message whose payload of `bytes` bytes `fill` writes. Without room it returns `fill`, not
    /// called.
    #[inline(always)]
    pub fn push<F: FnOnce(PayloadMut<'_>)>(
        &mut self,
        slot_header: SlotHeader<'_>,
        bytes: usize,
        fill: F,
    ) -> Result<(), F> {
        if self.in_flight() >= SLOTS as u32 {
            return Err(fill);
        }
        let mut image = Image::zeroed();
        let header_bytes = slot_header.header.len();
        let body = image.body_mut();
        body[..header_bytes].copy_from_slice(slot_header.header);
        if header_bytes + bytes <= Line::INLINE_BYTES {
            fill(PayloadMut::Private(&mut body[header_bytes..header_bytes + bytes]));
        } else {
            let Some((start, base)) = self.place(bytes) else { return Err(fill) };
            let at = start as usize & (AREA - 1);
            fill(PayloadMut::Shared(&self.area[at..at + bytes]));
            self.head = start.wrapping_add(whole_lines(bytes));
            self.tail = base;
        }
        self.publish(slot_header, bytes, &image);
        Ok(())
    }

    // Hot: per message.
    #[inline(always)]
    fn publish(&mut self, slot_header: SlotHeader<'_>, bytes: usize, image: &Image) {
        let slot = self.position as usize & (SLOTS - 1);
        self.ends[slot] = self.head;
        self.position = self.position.wrapping_add(1);
        let word = Word0 {
            sequence: self.position,
            id: slot_header.id,
            header_bytes: slot_header.header.len() as u8,
            chunk: slot_header.chunk,
            payload_bytes: bytes as u16,
        };
        let line = &self.lines[slot];
        line.store_body(image);
        // SYNC: slot content, with `Consumer::take`.
        line.0[0].store(word.pack(), Ordering::Release);
    }

    /// Where a payload of `bytes` bytes would begin, and the oldest byte then in use; `None` where there is no room.
    fn place(&self, bytes: usize) -> Option<(u32, u32)> {
        let start = payload_start(self.head, bytes, AREA);
        // With no byte in flight the bytes skipped at the end are free too. (Slots may be in flight: messages that
        // lie in their lines are credited only a quarter of the ring at a time, and a payload as long as the area
        // cannot wait for that.)
        let base = if self.head == self.tail { start } else { self.tail };
        let used = start.wrapping_sub(base) as usize + whole_lines(bytes) as usize;
        (used <= AREA).then_some((start, base))
    }

    /// Whether the consumer has given credit for everything that was published.
    pub fn is_idle(&self) -> bool {
        self.in_flight() == 0
    }

    /// The position before which the consumer has given credit for every slot. It wraps.
    pub fn credited(&self) -> u32 {
        self.credited
    }

    /// Whether a payload of `bytes` bytes, with the longest header, has room now.
    pub fn has_room(&self, bytes: usize) -> bool {
        let inline = HEADER_BYTES_MAX + bytes <= Line::INLINE_BYTES;
        self.in_flight() < SLOTS as u32 && (inline || self.place(bytes).is_some())
    }

    // Hot: per message.
    fn in_flight(&self) -> u32 {
        self.position.wrapping_sub(self.credited)
    }

    /// Takes credit: the consumer has read every slot before `consumed`. Refuses a position that it cannot have read.
    pub fn credit(&mut self, consumed: u32) -> Result<(), Garbage> {
        let newly = consumed.wrapping_sub(self.credited);
        if newly > self.in_flight() {
            return Err(Garbage);
        }
        if newly != 0 {
            self.credited = consumed;
            let end = self.ends[consumed.wrapping_sub(1) as usize & (SLOTS - 1)];
            // After the end of the area was skipped, the ends of older slots are stale.
            if end.wrapping_sub(self.tail) as i32 > 0 {
                self.tail = end;
            }
        }
        Ok(())
    }
}

/// The receiving end. `L` and `A` lead to the slots and the byte area in the block that the peer writes for this process.
#[derive(Debug)]
pub struct Consumer<L, A, const SLOTS: usize, const AREA: usize> {
    lines: L,
    area: A,
    /// The next slot to read.
    position: u32,
    /// The last position for which credit was given.
    credited: u32,
    /// Where the next payload begins in the byte area, as a byte offset that only grows.
    head: u32,
    head_credited: u32,
    bounds: Bounds,
}

/// The longest payloads that a correct peer sends, as our own card states them.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The longest payload of a message.
    pub message_bytes: u32,
    /// The longest chunk; 0 where none may come.
    pub chunk_bytes: u32,
}

impl<L, A, const SLOTS: usize, const AREA: usize> Consumer<L, A, SLOTS, AREA>
where
    L: Deref<Target = [Line; SLOTS]>,
    A: Deref<Target = [AtomicU8; AREA]>,
{
    pub(crate) fn new(lines: L, area: A, bounds: Bounds) -> Self {
        const { assert!(SLOTS.is_power_of_two() && SLOTS <= 64 && (AREA == 0 || AREA.is_power_of_two())) };
        Consumer { lines, area, position: START, credited: START, head: 0, head_credited: 0, bounds }
    }

    // Hot: per poll.
    /// Whether `take` would find a message, or garbage.
    #[inline]
    pub fn is_ready(&self) -> bool {
        // In most cases the slot holds the sequence of the previous lap. Garbage counts as ready, so that `take` finds it.
        self.head_word().0 as u32 != self.not_yet()
    }

    /// The number of slots read, modulo 2^32, from a start that is the same in every ring.
    pub fn consumed(&self) -> u32 {
        self.position
    }

    // Hot: per poll.
    #[inline]
    fn head_word(&self) -> (u64, &Line) {
        let line = &self.lines[self.position as usize & (SLOTS - 1)];
        // SYNC: slot content, with `Producer::publish`.
        (line.0[0].load(Ordering::Acquire), line)
    }

    // Hot: per poll.
    fn not_yet(&self) -> u32 {
        self.position.wrapping_add(1).wrapping_sub(SLOTS as u32)
    }

    // Hot: per message.
    /// Hands the next message to `deliver`, if there is one. Its slot is free afterwards (see [`owed`](Self::owed)).
    #[inline(always)]
    pub fn take(&mut self, deliver: impl FnOnce(RingMessage<'_>)) -> Result<bool, Garbage> {
        let (word, line) = self.head_word();
        if word as u32 == self.not_yet() {
            return Ok(false);
        }
        let word = Word0::unpack(word)?;
        let next = self.position.wrapping_add(1);
        if word.sequence != next {
            return Err(Garbage);
        }
        let mut image = Image::zeroed();
        line.load_body(&mut image);
        let (header_bytes, bytes) = (usize::from(word.header_bytes), usize::from(word.payload_bytes));
        let (header, rest) = image.body().split_at(header_bytes);
        let slot_header = SlotHeader { id: word.id, header, chunk: word.chunk };
        let longest = if word.chunk { self.bounds.chunk_bytes } else { self.bounds.message_bytes };
        if bytes > longest as usize {
            return Err(Garbage);
        }
        // The slot is consumed before `deliver` runs: one that panics, and whose caller goes on, must not see it again.
        if let Some(inline) = rest.get(..bytes) {
            self.position = next;
            deliver(RingMessage { slot_header, payload: PayloadRef::Private(inline) });
        } else {
            let start = payload_start(self.head, bytes, AREA);
            let at = start as usize & (AREA.wrapping_sub(1));
            // Out of bounds where the peer's word claims a longer payload than the area has room for.
            let lent = self.area.get(at..at + bytes).ok_or(Garbage)?;
            self.head = start.wrapping_add(whole_lines(bytes));
            self.position = next;
            deliver(RingMessage { slot_header, payload: PayloadRef::Shared(lent) });
        }
        Ok(true)
    }

    // Hot: per poll.
    /// Whether credit is worth publishing: a quarter of the slots or of the bytes has been read, or, with an empty
    /// ring, any bytes at all (a payload as long as the area needs all of it).
    pub fn owed(&self, empty: bool) -> bool {
        let slots = self.position.wrapping_sub(self.credited);
        let bytes = self.head.wrapping_sub(self.head_credited) as usize;
        slots >= SLOTS as u32 / 4 || bytes != 0 && (empty || bytes >= AREA / 4)
    }

    /// Whether a slot was read for which no credit was given.
    pub fn owes_any(&self) -> bool {
        self.position != self.credited
    }

    /// The credit to publish now: every slot before it has been read.
    pub fn give_credit(&mut self) -> u32 {
        self.credited = self.position;
        self.head_credited = self.head;
        self.position
    }
}

/// Where a payload begins that may not cross the end of the area.
fn payload_start(head: u32, bytes: usize, area: usize) -> u32 {
    let at = head as usize & area.wrapping_sub(1);
    if at + bytes > area { head.wrapping_add((area.wrapping_sub(at)) as u32) } else { head }
}

fn whole_lines(bytes: usize) -> u32 {
    (bytes.next_multiple_of(Line::BYTES)) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{
        Bounds, Consumer, Garbage, HEADER_BYTES_MAX, Line, PayloadMut, PayloadRef, Producer, RingMessage,
        SlotHeader, prepare,
    };
    use crate::atomic::{AtomicU8, AtomicU64, Ordering};
    use mend_base::Random;
    use std::collections::VecDeque;
    use std::sync::Arc;

    const SLOTS: usize = 8;
    const AREA: usize = 1024;
    type Lines = Arc<[Line; SLOTS]>;
    type Area = Arc<[AtomicU8; AREA]>;

    fn memory() -> (Lines, Area) {
        let lines: Lines =
            Arc::new(core::array::from_fn(|_| Line(core::array::from_fn(|_| AtomicU64::new(0)))));
        prepare(&lines);
        (lines, Arc::new(core::array::from_fn(|_| AtomicU8::new(0))))
    }

    type Ends = (Producer<Lines, Area, SLOTS, AREA>, Consumer<Lines, Area, SLOTS, AREA>, Lines);

    fn ring() -> Ends {
        let (lines, area) = memory();
        let bounds = Bounds { message_bytes: 512, chunk_bytes: 1024 };
        (Producer::new(lines.clone(), area.clone()), Consumer::new(lines.clone(), area, bounds), lines)
    }

    fn write(room: PayloadMut<'_>, bytes: &[u8]) {
        match room {
            PayloadMut::Private(to) => to.copy_from_slice(bytes),
            PayloadMut::Shared(to) => {
                assert_eq!(to.len(), bytes.len());
                to.iter().zip(bytes).for_each(|(to, &byte)| to.store(byte, Ordering::Relaxed));
            }
        }
    }

    fn copy(message: RingMessage<'_>) -> (u8, Vec<u8>, Vec<u8>) {
        let payload = match message.payload {
            PayloadRef::Private(bytes) => bytes.to_vec(),
            PayloadRef::Shared(bytes) => bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect(),
        };
        (message.slot_header.id, message.slot_header.header.to_vec(), payload)
    }

    fn slot_header(id: u8, header: &[u8]) -> SlotHeader<'_> {
        SlotHeader { id, header, chunk: false }
    }

    #[test]
    fn what_is_pushed_is_taken_in_order_over_many_wraps() {
        let (mut producer, mut consumer, _) = ring();
        let mut random = Random(1);
        let mut sent = VecDeque::new();
        let (mut pushed, mut refused) = (0, 0);
        while pushed < 20_000 {
            let header = vec![pushed as u8; random.below(HEADER_BYTES_MAX as u64 + 1) as usize];
            let bytes = if random.once_in(2) { random.below(17) } else { random.below(513) };
            let payload: Vec<u8> = (0..bytes).map(|_| random.bits() as u8).collect();
            let id = random.bits() as u8;
            match producer.push(slot_header(id, &header), payload.len(), |room| write(room, &payload)) {
                Ok(()) => {
                    sent.push_back((id, header, payload));
                    pushed += 1;
                }
                Err(_) => {
                    refused += 1;
                    while consumer.take(|message| assert_eq!(Some(copy(message)), sent.pop_front())).unwrap()
                    {
                    }
                    assert!(sent.is_empty());
                    assert!(consumer.owed(true));
                    producer.credit(consumer.give_credit()).unwrap();
                }
            }
        }
        assert!(refused > 1000);
    }

    #[test]
    fn a_message_whose_reader_panics_is_consumed_and_the_next_one_follows() {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        let (mut producer, mut consumer, _) = ring();
        for (id, bytes) in [(1, 8), (2, 100), (3, 8), (4, 100)] {
            producer.push(slot_header(id, b""), bytes, |room| write(room, &vec![id; bytes])).ok().unwrap();
        }
        for id in [1, 2] {
            let read = AssertUnwindSafe(|| consumer.take(|_| panic!("the reader of message {id} fails")));
            assert!(catch_unwind(read).is_err());
        }
        for (id, bytes) in [(3, 8), (4, 100)] {
            let expected = (id, Vec::new(), vec![id; bytes]);
            assert_eq!(consumer.take(|message| assert_eq!(copy(message), expected)), Ok(true));
        }
        assert_eq!(consumer.take(|_| unreachable!()), Ok(false));
    }

    #[test]
    fn a_payload_as_long_as_the_area_fits_once_all_has_been_read() {
        let (mut producer, mut consumer, _) = ring();
        producer.push(slot_header(1, b""), 100, |room| write(room, &[1; 100])).ok().unwrap();
        let chunk = SlotHeader { id: 0, header: b"abcd", chunk: true };
        assert!(producer.push(chunk, AREA, |_| unreachable!()).is_err());
        assert!(!producer.has_room(AREA));
        assert!(consumer.take(|_| ()).unwrap());
        assert!(consumer.owed(true) && !consumer.owed(false));
        producer.credit(consumer.give_credit()).unwrap();
        assert!(producer.has_room(AREA));
        producer.push(chunk, AREA, |room| write(room, &[7; AREA])).ok().unwrap();
        assert!(consumer.take(|message| assert_eq!(copy(message).2, [7; AREA])).ok().unwrap());
    }

    #[test]
    fn a_payload_as_long_as_the_area_fits_while_messages_without_bytes_are_not_credited() {
        let (mut producer, mut consumer, _) = ring();
        for bytes in [AREA / 8, AREA / 4, AREA / 2] {
            producer.push(slot_header(1, b""), bytes, |room| write(room, &vec![1; bytes])).ok().unwrap();
        }
        while consumer.take(|_| ()).unwrap() {}
        producer.credit(consumer.give_credit()).unwrap();
        producer.push(slot_header(2, b"in its line"), 0, |_| ()).ok().unwrap();
        assert!(consumer.take(|_| ()).unwrap());
        assert!(!consumer.owed(true), "one slot is not worth credit");
        assert!(producer.has_room(AREA));
        let chunk = SlotHeader { id: 0, header: b"abcd", chunk: true };
        producer.push(chunk, AREA, |room| write(room, &[7; AREA])).ok().unwrap();
        // Credit for the message alone frees nothing of what the chunk uses, and takes nothing back.
        producer.credit(consumer.give_credit()).unwrap();
        assert!(!producer.has_room(17));
        assert!(consumer.take(|message| assert_eq!(copy(message).2, [7; AREA])).unwrap());
        producer.credit(consumer.give_credit()).unwrap();
        assert!(producer.has_room(AREA));
    }

    #[test]
    fn a_full_ring_takes_nothing_until_it_gets_credit() {
        let (mut producer, mut consumer, _) = ring();
        for _ in 0..SLOTS {
            producer.push(slot_header(1, b"h"), 0, |_| ()).ok().unwrap();
        }
        assert!(producer.push(slot_header(1, b"h"), 0, |_| ()).is_err());
        while consumer.take(|_| ()).unwrap() {}
        assert!(producer.push(slot_header(1, b"h"), 0, |_| ()).is_err());
        producer.credit(consumer.give_credit()).unwrap();
        producer.push(slot_header(1, b"h"), 0, |_| ()).ok().unwrap();
    }

    #[test]
    fn credit_for_what_was_not_sent_or_was_credited_before_is_garbage() {
        let (mut producer, mut consumer, _) = ring();
        producer.push(slot_header(1, b""), 0, |_| ()).ok().unwrap();
        consumer.take(|_| ()).unwrap();
        let right = consumer.give_credit();
        for wrong in [right.wrapping_add(1), right.wrapping_sub(2), !right, right ^ 1 << 31] {
            assert_eq!(producer.credit(wrong), Err(Garbage), "{wrong}");
        }
        producer.credit(right).unwrap();
        producer.credit(right).unwrap();
    }

    #[test]
    fn a_word_that_no_correct_producer_writes_is_garbage_and_others_are_bounded() {
        let mut random = Random(7);
        for _ in 0..20_000 {
            let (_, mut consumer, lines) = ring();
            let old = lines[0].0[0].load(Ordering::Relaxed);
            let (expected, last) = (consumer.position.wrapping_add(1), old as u32);
            let sequence = [random.bits() as u32, expected, last][random.below(3) as usize];
            let word = u64::from(sequence) | random.bits() << 32;
            lines[0].0[0].store(word, Ordering::Relaxed);
            for body in &lines[0].0[1..] {
                body.store(random.bits(), Ordering::Relaxed);
            }
            let lengths = (word >> 40) as u8;
            let (header, payload) = (usize::from(lengths & 0xbf), (word >> 48) as usize);
            let longest = if lengths & 0x40 != 0 { 1024 } else { 512 };
            let fine = header <= HEADER_BYTES_MAX && payload <= longest;
            let taken = consumer.take(|message| {
                let (_, seen_header, seen_payload) = copy(message);
                assert_eq!((seen_header.len(), seen_payload.len()), (header, payload));
            });
            let wanted = match sequence {
                _ if sequence == last => Ok(false),
                _ if sequence == expected && fine => Ok(true),
                _ => Err(Garbage),
            };
            assert_eq!(taken, wanted, "{word:#x}");
            assert_eq!(consumer.take(|_| ()).is_err(), wanted.is_err());
        }
    }

    #[test]
    fn two_threads_see_every_message_whole() {
        let (mut producer, mut consumer, _) = ring();
        let credit = AtomicU64::new(u64::from(super::START));
        let total = 200_000u64;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..total {
                    let bytes = (number % 300) as usize + 8;
                    let fill = |room: PayloadMut<'_>| {
                        let mut payload = vec![number as u8; bytes];
                        payload[..8].copy_from_slice(&number.to_le_bytes());
                        write(room, &payload);
                    };
                    while !producer.has_room(bytes) {
                        producer.credit(credit.load(Ordering::Acquire) as u32).unwrap();
                        std::thread::yield_now();
                    }
                    producer.push(slot_header(3, b"x"), bytes, fill).ok().unwrap();
                }
            });
            let mut expected = 0u64;
            while expected < total {
                let taken = consumer.take(|message| {
                    let (_, _, payload) = copy(message);
                    assert_eq!(payload[..8], expected.to_le_bytes());
                    assert!(payload[8..].iter().all(|&byte| byte == expected as u8));
                    assert_eq!(payload.len(), (expected % 300) as usize + 8);
                });
                match taken.unwrap() {
                    true => expected += 1,
                    false => std::thread::yield_now(),
                }
                if consumer.owed(false) || consumer.owed(true) {
                    credit.store(u64::from(consumer.give_credit()), Ordering::Release);
                }
            }
        });
    }
}
