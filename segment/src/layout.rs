// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where everything in an outbox lies. Offsets are constants, so none is ever read from another process.
//!
//! ```text
//!   outbox:  header page(s), then one block for each node slot, page aligned
//!   header:  0 magic, layout, slot, slots   64 directory: a word for each slot
//!   block:   what the owner writes for one peer:
//!            0       words the peer polls (state, bell       128     credits
//!                    request, waits for room)
//!            256     mailboxes (6, four lines each)          1792    control ring (16 lines)
//!            2816    control bytes (1 KiB)                   4 KiB   message ring (64 lines)
//!            8 KiB   message bytes (16 KiB)                  24 KiB  chunk ring (16 lines)
//!            28 KiB  chunk bytes (128 KiB)
//! ```
//!
//! The first 24 KiB of a block are reserved at first contact, the rest when the first large message goes.

use crate::line::Line;
use crate::mailbox::Mailbox;
use crate::mapping::whole_pages;

/// "Mend" in the first eight bytes of an outbox.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"Mend-box");
/// Version of the layout in this module. A peer with another version is refused at connection.
pub(crate) const LAYOUT: u32 = 4;

/// Slots of the control ring.
pub const CONTROL_SLOTS: usize = 16;
/// Bytes for control messages that do not fit into their line: an equal part for each slot.
pub const CONTROL_AREA: usize = CONTROL_SLOTS * CONTROL_BYTES_MAX;
/// The longest payload of a control message or of a mailbox value, with the longest header.
pub const CONTROL_BYTES_MAX: usize = 64;
/// Slots of the message ring.
pub const MESSAGE_SLOTS: usize = 64;
/// Bytes for messages that do not fit into their line.
pub const MESSAGE_AREA: usize = 16 << 10;
/// Slots of the chunk ring.
pub const CHUNK_SLOTS: usize = 16;
/// Bytes of chunks in flight: few enough to stay in a cache.
pub const CHUNK_AREA: usize = 128 << 10;
/// Kinds of mailbox values that a pair can have.
pub const MAILBOXES: usize = 6;

pub(crate) const HEADER_MAGIC: usize = 0;
pub(crate) const HEADER_LAYOUT: usize = 8;
pub(crate) const HEADER_SLOT: usize = 12;
pub(crate) const HEADER_SLOTS: usize = 16;
pub(crate) const HEADER_DIRECTORY: usize = 64;

pub(crate) const BLOCK_STATE: usize = 0;
pub(crate) const BLOCK_BELL_REQUEST: usize = 8;
pub(crate) const BLOCK_WAITS_FOR_ROOM: usize = 12;
pub(crate) const BLOCK_CREDITS: usize = 128;
pub(crate) const BLOCK_MAILBOXES: usize = 256;
pub(crate) const BLOCK_CONTROL: usize = BLOCK_MAILBOXES + MAILBOXES * size_of::<Mailbox>();
pub(crate) const BLOCK_CONTROL_AREA: usize = BLOCK_CONTROL + CONTROL_SLOTS * Line::BYTES;
pub(crate) const BLOCK_MESSAGES: usize = 4096;
pub(crate) const BLOCK_MESSAGE_AREA: usize = BLOCK_MESSAGES + MESSAGE_SLOTS * Line::BYTES;
/// From here on reserved with the first large message.
pub(crate) const BLOCK_CHUNKS: usize = BLOCK_MESSAGE_AREA + MESSAGE_AREA;
pub(crate) const BLOCK_CHUNK_AREA: usize = BLOCK_CHUNKS + 4096;
pub(crate) const BLOCK_BYTES: usize = BLOCK_CHUNK_AREA + CHUNK_AREA;

const _: () = assert!(HEADER_SLOTS + 4 <= HEADER_DIRECTORY);
const _: () = assert!(BLOCK_CREDITS + 3 * 4 <= BLOCK_MAILBOXES);
const _: () = assert!(BLOCK_CONTROL_AREA + CONTROL_AREA <= BLOCK_MESSAGES);
const _: () = assert!(CHUNK_SLOTS * Line::BYTES <= 4096);
const _: () = assert!(BLOCK_CHUNKS.is_multiple_of(4096) && BLOCK_BYTES.is_multiple_of(4096));

/// Words of the directory.
pub(crate) const NOT_MADE: u32 = 0;
pub(crate) const MADE: u32 = 1;

/// The lower half of a block's state word: whether there is a chunk ring, and which mailboxes are in use, from the first on.
/// The upper half counts what was put into mailboxes.
pub(crate) const STATE_CHUNKS: u32 = 1;
pub(crate) const STATE_KNOWN: u32 = state_mailbox(MAILBOXES) - 1;

/// The bit of a mailbox that is in use. The others are not read.
pub(crate) const fn state_mailbox(index: usize) -> u32 {
    STATE_CHUNKS << (1 + index)
}

/// The ring that a credit word belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Ring {
    /// Control messages.
    Control = 0,
    /// Messages.
    Messages = 1,
    /// Chunks of large messages.
    Chunks = 2,
}

pub(crate) fn header_bytes(slots: u32) -> usize {
    whole_pages(HEADER_DIRECTORY + 4 * slots as usize)
}

pub(crate) fn block_at(slots: u32, reader_slot: u32) -> usize {
    header_bytes(slots) + reader_slot as usize * whole_pages(BLOCK_BYTES)
}

pub(crate) fn outbox_bytes(slots: u32) -> usize {
    block_at(slots, slots)
}
