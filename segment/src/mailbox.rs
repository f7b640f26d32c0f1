// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mailboxes: states that replace one another (credits, set hashes, heartbeats), one for each pair and kind.
//!
//! A seqlock over two lines that take turns: the writer never touches the line that holds the newest whole state, so a
//! kill in the middle loses the new state and not the old one.
//!
//! ```text
//!   word 0 of each line:  version u32 (0: nothing, or being written) | id u8 | header bytes u8 | payload bytes u16
//! ```

use crate::atomic::{Ordering, fence};
use crate::ring::{Arrival, Envelope, Garbage, Image, Lent, Line, Room, Word0};

/// Two lines that take turns.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Mailbox([Line; 2]);

impl Mailbox {
    /// Before the block is announced: nothing in it.
    pub(crate) fn prepare(&self) {
        for line in &self.0 {
            line.0[0].store(0, Ordering::Release);
        }
    }

    /// Replaces the state; `version` is one more than the last, and never 0.
    pub(crate) fn write(
        &self,
        version: u32,
        envelope: Envelope<'_>,
        bytes: usize,
        fill: impl FnOnce(Room<'_>),
    ) {
        let header_bytes = envelope.header.len();
        let mut image = Image::zeroed();
        let body = image.body_mut();
        body[..header_bytes].copy_from_slice(envelope.header);
        if bytes != 0 {
            fill(Room::Private(&mut body[header_bytes..header_bytes + bytes]));
        }
        let line = &self.0[version as usize & 1];
        // SYNC: seqlock, with `read`: who sees a word of the new state and then reads word 0 again sees it changed.
        line.0[0].store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        line.store_body(&image);
        let word = Word0 {
            sequence: version,
            id: envelope.id,
            header_bytes: header_bytes as u8,
            chunk: false,
            payload_bytes: bytes as u16,
        };
        line.0[0].store(word.pack(), Ordering::Release);
    }

    /// Hands the newest whole state to `look`, if it is another than `last` (a version; 0 at first), and gives its
    /// version. `None`: nothing new, or it is being written at this moment.
    pub(crate) fn read(&self, last: u32, look: impl FnOnce(Arrival<'_>)) -> Result<Option<u32>, Garbage> {
        let Some(line) = self.newest(last) else { return Ok(None) };
        // SYNC: seqlock, with `write`.
        let packed = line.0[0].load(Ordering::Acquire);
        let mut image = Image::zeroed();
        line.load_body(&mut image);
        fence(Ordering::Acquire);
        if line.0[0].load(Ordering::Relaxed) != packed || packed as u32 == 0 {
            return Ok(None);
        }
        let word = Word0::unpack(packed)?;
        let (header, rest) = image.body().split_at(usize::from(word.header_bytes));
        let payload = rest.get(..usize::from(word.payload_bytes)).ok_or(Garbage)?;
        if word.chunk {
            return Err(Garbage);
        }
        look(Arrival {
            envelope: Envelope { id: word.id, header, chunk: false },
            payload: Lent::Private(payload),
        });
        Ok(Some(word.sequence))
    }

    /// The line with the newer version, counted from `last`, if any is newer.
    fn newest(&self, last: u32) -> Option<&Line> {
        let age = |line: &Line| match line.0[0].load(Ordering::Relaxed) as u32 {
            0 => 0,
            version => version.wrapping_sub(last),
        };
        let ages = self.0.each_ref().map(|line| match age(line) {
            // A version before the last one read: the other line's.
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
    // Two at the wrap: 0 says "nothing", and the lines must go on taking turns.
    if version == u32::MAX { 2 } else { version + 1 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Mailbox, next_version};
    use crate::atomic::{AtomicU64, Ordering};
    use crate::ring::{Arrival, Envelope, Garbage, Lent, Line, Room};
    use mend_base::Random;
    use std::sync::atomic::AtomicBool;

    fn mailbox() -> Mailbox {
        let mailbox = Mailbox(core::array::from_fn(|_| Line(core::array::from_fn(|_| AtomicU64::new(9)))));
        mailbox.prepare();
        mailbox
    }

    fn put(mailbox: &Mailbox, version: u32, number: u64) {
        let header = number.to_le_bytes().repeat(5);
        mailbox.write(version, Envelope { id: 4, header: &header, chunk: false }, 16, |room| {
            let Room::Private(room) = room else { panic!("a state lies in its line") };
            room.copy_from_slice(&number.to_le_bytes().repeat(2));
        });
    }

    fn number(arrival: Arrival<'_>) -> u64 {
        let Lent::Private(payload) = arrival.payload else { panic!("a state lies in its line") };
        let mut words: Vec<u64> = [arrival.envelope.header, payload]
            .concat()
            .chunks(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        words.dedup();
        assert_eq!(words.len(), 1, "a torn state");
        words[0]
    }

    #[test]
    fn the_newest_state_is_read_once() {
        let mailbox = mailbox();
        assert_eq!(mailbox.read(0, |_| unreachable!()), Ok(None));
        put(&mailbox, 1, 10);
        put(&mailbox, 2, 20);
        put(&mailbox, 3, 30);
        let mut seen = 0;
        assert_eq!(mailbox.read(0, |arrival| seen = number(arrival)), Ok(Some(3)));
        assert_eq!(seen, 30);
        assert_eq!(mailbox.read(3, |_| unreachable!()), Ok(None));
    }

    #[test]
    fn versions_go_on_over_the_wrap() {
        let mailbox = mailbox();
        let mut version = u32::MAX - 3;
        let mut last = version - 1;
        for round in 0..10 {
            put(&mailbox, version, round);
            let mut seen = None;
            last = mailbox.read(last, |arrival| seen = Some(number(arrival))).unwrap().unwrap();
            assert_eq!((last, seen), (version, Some(round)));
            version = next_version(version);
        }
    }

    #[test]
    fn a_state_that_is_being_written_hides_only_itself() {
        let mailbox = mailbox();
        put(&mailbox, 1, 10);
        mailbox.0[0].0[0].store(0, Ordering::Relaxed);
        let mut seen = 0;
        assert_eq!(mailbox.read(0, |arrival| seen = number(arrival)), Ok(Some(1)));
        assert_eq!(seen, 10);
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
                match mailbox.read(last, |arrival| assert!(number(arrival) > u64::from(last))).unwrap() {
                    Some(version) => last = version,
                    None if over => break,
                    None => std::thread::yield_now(),
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
            mailbox.0.iter().for_each(|line| line.0[0].store(random.bits(), Ordering::Relaxed));
            match mailbox.read(random.bits() as u32, |_| ()) {
                Ok(_) => read += 1,
                Err(Garbage) => refused += 1,
            }
        }
        assert!(read > 0 && refused > 0);
    }
}
