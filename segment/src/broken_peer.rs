// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fault injection for tests: a corrupted process writes anything into its own outbox and into the bell page
//! (feature `broken_peer`).

use crate::layout::{
    BLOCK_BELL_REQUEST, BLOCK_CHUNKS, BLOCK_CONTROL, BLOCK_CREDITS, BLOCK_MAILBOXES, BLOCK_MESSAGES,
    BLOCK_STATE, HEADER_DIRECTORY, Ring, block_at,
};
use crate::{BellPage, Outbox};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// A word that another process reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Whether the block is made.
    Directory,
    /// The state word of the block.
    State,
    /// The events for which the owner asks for a bell.
    BellRequest,
    /// How far the owner has read this ring.
    Credit(Ring),
    /// This word (of 32) of this mailbox.
    Mailbox(usize, usize),
    /// This word (of 8) of this slot of this ring.
    Slot(Ring, usize, usize),
}

impl Outbox {
    /// Overwrites a word of the block for the process at `reader_slot`, as much of `value` as fits into it.
    pub fn overwrite(&self, reader_slot: u32, target: Target, value: u64) {
        let block = block_at(self.slots(), reader_slot);
        match target {
            Target::Directory => self.narrow(HEADER_DIRECTORY + 4 * reader_slot as usize, value),
            Target::BellRequest => self.narrow(block + BLOCK_BELL_REQUEST, value),
            Target::Credit(ring) => self.narrow(block + BLOCK_CREDITS + 4 * ring as usize, value),
            Target::State => self.wide(block + BLOCK_STATE, value),
            Target::Mailbox(index, word) => {
                self.wide(block + BLOCK_MAILBOXES + 256 * index + 8 * word, value);
            }
            Target::Slot(ring, slot, word) => {
                let ring = match ring {
                    Ring::Control => BLOCK_CONTROL,
                    Ring::Messages => BLOCK_MESSAGES,
                    Ring::Chunks => BLOCK_CHUNKS,
                };
                self.wide(block + ring + 64 * slot + 8 * word, value);
            }
        }
    }

    fn narrow(&self, offset: usize, value: u64) {
        self.mapping().at::<AtomicU32>(offset).store(value as u32, Ordering::Release);
    }

    fn wide(&self, offset: usize, value: u64) {
        self.mapping().at::<AtomicU64>(offset).store(value, Ordering::Release);
    }
}

impl BellPage {
    /// Overwrites a byte of the page. Returns the length of the page.
    pub fn overwrite(&self, at: usize, value: u8) -> usize {
        let bytes = self.mapping().bytes();
        self.mapping().at::<AtomicU8>(at % bytes).store(value, Ordering::Release);
        bytes
    }
}
