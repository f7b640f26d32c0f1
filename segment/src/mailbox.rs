// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mailboxes: values that replace one another (such as heartbeats), one for each pair and kind.
//!
//! A double-buffered seqlock: the writer never touches the buffer that holds the newest complete value, so a kill in the
//! middle loses the new value and not the old one.
//!
//! ```text
//!   word 0 of each buffer:  version u32 (0: nothing, or being written) | id u8 | header bytes u8 | payload bytes u16
//!   words 1 to 15:         header, payload
//! ```

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::line::{Garbage, Line, Word0};
use crate::ring::{PayloadMut, PayloadRef, RingMessage, SlotHeader};

/// Two buffers, written alternately.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Mailbox([StateBuffer; 2]);

/// Room for one value: two lines.
#[repr(C)]
#[derive(Debug)]
struct StateBuffer([Line; 2]);

type Body = [u8; BODY_BYTES];
const BODY_BYTES: usize = 2 * Line::BYTES - 8;

impl StateBuffer {
    fn head(&self) -> &AtomicU64 {
        &self.0[0].0[0]
    }

    fn body(&self) -> impl Iterator<Item = &AtomicU64> {
        self.0.iter().flat_map(|line| &line.0).skip(1)
    }

    fn store(&self, body: &Body) {
        for (word, bytes) in self.body().zip(body.chunks_exact(8)) {
            let bytes = bytes.try_into().expect("chunks_exact gives chunks of eight");
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
    }

    fn load(&self) -> Body {
        let mut body = [0; BODY_BYTES];
        for (word, bytes) in self.body().zip(body.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        body
    }
}

impl Mailbox {
    /// Empties the mailbox. Called before the block is announced.
    pub(crate) fn prepare(&self) {
        for buffer in &self.0 {
            buffer.head().store(0, Ordering::Release);
        }
    }

    /// Replaces the value; `version` is one more than the last, and never 0.
    pub(crate) fn write(
        &self,
        version: u32,
        slot_header: SlotHeader<'_>,
        bytes: usize,
        fill: impl FnOnce(PayloadMut<'_>),
    ) {
        let header_bytes = slot_header.header.len();
        let mut body = [0; BODY_BYTES];
        body[..header_bytes].copy_from_slice(slot_header.header);
        fill(PayloadMut::Private(&mut body[header_bytes..header_bytes + bytes]));
        let buffer = &self.0[version as usize & 1];
        // SYNC: seqlock, with `read`: a reader that sees a word of the new value and then reads word 0 again sees it changed.
        buffer.head().store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        buffer.store(&body);
        let word = Word0 {
            sequence: version,
            id: slot_header.id,
            header_bytes: header_bytes as u8,
            chunk: false,
            payload_bytes: bytes as u16,
        };
        buffer.head().store(word.pack(), Ordering::Release);
    }

    /// Hands the newest whole value to `deliver`, if its version is another than `last` (0 at first), and stores that version
    /// in `last`, before `deliver` runs (it may panic). `false`: no new value, or it is being written at this moment.
    pub(crate) fn read(
        &self,
        last: &mut u32,
        deliver: impl FnOnce(RingMessage<'_>),
    ) -> Result<bool, Garbage> {
        let Some(buffer) = self.newest(*last) else { return Ok(false) };
        // SYNC: seqlock, with `write`.
        let packed = buffer.head().load(Ordering::Acquire);
        let body = buffer.load();
        fence(Ordering::Acquire);
        if buffer.head().load(Ordering::Relaxed) != packed || packed as u32 == 0 {
            return Ok(false);
        }
        let word = Word0::unpack(packed)?;
        let (header, rest) = body.split_at(usize::from(word.header_bytes));
        let payload = rest.get(..usize::from(word.payload_bytes)).ok_or(Garbage)?;
        if word.chunk {
            return Err(Garbage);
        }
        *last = word.sequence;
        deliver(RingMessage {
            slot_header: SlotHeader { id: word.id, header, chunk: false },
            payload: PayloadRef::Private(payload),
        });
        Ok(true)
    }

    /// The buffer with the newer version, counted from `last`, if any is newer.
    fn newest(&self, last: u32) -> Option<&StateBuffer> {
        let age = |buffer: &StateBuffer| match buffer.head().load(Ordering::Relaxed) as u32 {
            0 => 0,
            version => version.wrapping_sub(last),
        };
        let ages = self.0.each_ref().map(|buffer| match age(buffer) {
            // This buffer holds a version before the last one read: only the other buffer can be newer.
            behind if behind > u32::MAX / 2 => 0,
            ahead => ahead,
        });
        match ages {
            [0, 0] => None,
            [even, odd] => Some(&self.0[usize::from(odd > even)]),
        }
    }
}

/// The version after this one.
pub(crate) fn next_version(version: u32) -> u32 {
    // Adds 2 at the wrap-around: 0 means "nothing", and the parity must go on alternating between the buffers.
    if version == u32::MAX { 2 } else { version + 1 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Mailbox, StateBuffer, next_version};
    use crate::atomic::{AtomicU64, Ordering};
    use crate::line::{Garbage, Line};
    use crate::ring::{PayloadMut, PayloadRef, RingMessage, SlotHeader};
    use mend_base::Random;
    use std::sync::atomic::AtomicBool;

    fn mailbox() -> Mailbox {
        let line = || Line(core::array::from_fn(|_| AtomicU64::new(9)));
        let mailbox = Mailbox(core::array::from_fn(|_| StateBuffer([line(), line()])));
        mailbox.prepare();
        mailbox
    }

    fn put(mailbox: &Mailbox, version: u32, number: u64) {
        let header = number.to_le_bytes().repeat(5);
        mailbox.write(version, SlotHeader { id: 4, header: &header, chunk: false }, 64, |room| {
            let PayloadMut::Private(room) = room else { panic!("a value lies in its buffer") };
            room.copy_from_slice(&number.to_le_bytes().repeat(8));
        });
    }

    fn number(message: RingMessage<'_>) -> u64 {
        let PayloadRef::Private(payload) = message.payload else { panic!("a value lies in its buffer") };
        let mut words: Vec<u64> = [message.slot_header.header, payload]
            .concat()
            .chunks(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        words.dedup();
        assert_eq!(words.len(), 1, "a torn value");
        words[0]
    }

    #[test]
    fn the_newest_state_is_read_once() {
        let mailbox = mailbox();
        let mut last = 0;
        assert_eq!(mailbox.read(&mut last, |_| unreachable!()), Ok(false));
        put(&mailbox, 1, 10);
        put(&mailbox, 2, 20);
        put(&mailbox, 3, 30);
        let mut seen = 0;
        assert_eq!(mailbox.read(&mut last, |message| seen = number(message)), Ok(true));
        assert_eq!((seen, last), (30, 3));
        assert_eq!(mailbox.read(&mut last, |_| unreachable!()), Ok(false));
    }

    #[test]
    fn versions_go_on_over_the_wrap() {
        let mailbox = mailbox();
        let mut version = u32::MAX - 3;
        let mut last = version - 1;
        for round in 0..10 {
            put(&mailbox, version, round);
            let mut seen = None;
            assert_eq!(mailbox.read(&mut last, |message| seen = Some(number(message))), Ok(true));
            assert_eq!((last, seen), (version, Some(round)));
            version = next_version(version);
        }
    }

    #[test]
    fn a_state_that_is_being_written_hides_only_itself() {
        let mailbox = mailbox();
        put(&mailbox, 1, 10);
        mailbox.0[0].head().store(0, Ordering::Relaxed);
        let (mut seen, mut last) = (0, 0);
        assert_eq!(mailbox.read(&mut last, |message| seen = number(message)), Ok(true));
        assert_eq!((seen, last), (10, 1));
    }

    #[test]
    fn a_state_whose_reader_panics_is_not_read_again() {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        let mailbox = mailbox();
        put(&mailbox, 1, 10);
        let mut last = 0;
        let read = AssertUnwindSafe(|| mailbox.read(&mut last, |_| panic!("the reader fails")));
        assert!(catch_unwind(read).is_err());
        assert_eq!(mailbox.read(&mut last, |_| unreachable!()), Ok(false));
    }

    #[test]
    fn two_threads_never_see_a_torn_state_nor_an_older_one() {
        let mailbox = mailbox();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (1..=100_000u32).for_each(|version| put(&mailbox, version, u64::from(version)));
                done.store(true, Ordering::Release);
            });
            let mut last = 0;
            loop {
                let over = done.load(Ordering::Acquire);
                let before = u64::from(last);
                match mailbox.read(&mut last, |message| assert!(number(message) > before)).unwrap() {
                    true => {}
                    false if over => break,
                    false => std::thread::yield_now(),
                }
            }
            assert_eq!(last, 100_000);
        });
    }

    #[test]
    fn any_word_is_read_in_bounds_or_refused() {
        let mut random = Random(3);
        let mailbox = mailbox();
        let (mut read, mut refused) = (0, 0);
        for _ in 0..20_000 {
            mailbox.0.iter().for_each(|buffer| buffer.head().store(random.bits(), Ordering::Relaxed));
            match mailbox.read(&mut (random.bits() as u32), |_| ()) {
                Ok(_) => read += 1,
                Err(Garbage) => refused += 1,
            }
        }
        assert!(read > 0 && refused > 0);
    }
}
