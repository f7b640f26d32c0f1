// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One slot of a ring or a mailbox: a cache line, a private copy of it, and the fields of its first word.

use crate::atomic::{AtomicU64, Ordering};

/// What no correct peer writes (Rule 11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Garbage;

/// One slot.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Line(pub(crate) [AtomicU64; Line::WORDS]);

impl Line {
    pub(crate) const WORDS: usize = 8;
    pub(crate) const BYTES: usize = 64;
    /// Bytes for header and inline payload.
    pub(crate) const INLINE_BYTES: usize = Line::BYTES - 8;

    // Hot: per message.
    /// Writes words 1 to 7.
    #[inline]
    pub(crate) fn store_body(&self, image: &Image) {
        for word in 1..Line::WORDS {
            self.0[word].store(image.word(word), Ordering::Relaxed);
        }
    }

    // Hot: per message.
    /// Copies words 1 to 7.
    #[inline]
    pub(crate) fn load_body(&self, image: &mut Image) {
        for word in 1..Line::WORDS {
            image.0[8 * word..8 * word + 8]
                .copy_from_slice(&self.0[word].load(Ordering::Relaxed).to_ne_bytes());
        }
    }
}

/// A private copy of a slot.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Image([u8; Line::BYTES]);

impl Image {
    // Hot: per message.
    pub(crate) fn zeroed() -> Self {
        Image([0; Line::BYTES])
    }

    // Hot: per message.
    pub(crate) fn body(&self) -> &[u8; Line::INLINE_BYTES] {
        self.0.last_chunk().expect("a line is longer than its body")
    }

    // Hot: per message.
    pub(crate) fn body_mut(&mut self) -> &mut [u8; Line::INLINE_BYTES] {
        self.0.last_chunk_mut().expect("a line is longer than its body")
    }

    // Hot: per message.
    fn word(&self, index: usize) -> u64 {
        let bytes = self.0[8 * index..8 * index + 8].try_into().expect("a range of eight has eight bytes");
        u64::from_ne_bytes(bytes)
    }
}

/// The first word of a slot, in parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word0 {
    pub(crate) sequence: u32,
    pub(crate) id: u8,
    pub(crate) header_bytes: u8,
    pub(crate) chunk: bool,
    pub(crate) payload_bytes: u16,
}

const CHUNK: u8 = 0x40;

impl Word0 {
    // Hot: per message.
    pub(crate) fn pack(self) -> u64 {
        let lengths = self.header_bytes | if self.chunk { CHUNK } else { 0 };
        u64::from(self.sequence)
            | u64::from(self.id) << 32
            | u64::from(lengths) << 40
            | u64::from(self.payload_bytes) << 48
    }

    // Hot: per message.
    /// Refuses a header that is longer than [`HEADER_BYTES_MAX`].
    pub(crate) fn unpack(word: u64) -> Result<Self, Garbage> {
        let lengths = (word >> 40) as u8;
        let header_bytes = lengths & !CHUNK;
        if usize::from(header_bytes) > HEADER_BYTES_MAX {
            return Err(Garbage);
        }
        Ok(Word0 {
            sequence: word as u32,
            id: (word >> 32) as u8,
            header_bytes,
            chunk: lengths & CHUNK != 0,
            payload_bytes: (word >> 48) as u16,
        })
    }
}

/// The longest header, in bytes.
pub const HEADER_BYTES_MAX: usize = 40;
