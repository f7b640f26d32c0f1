// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The block that a peer writes for this process, mapped read-only. Its contents are untrusted and validated.

use crate::header::map_header;
use crate::layout::{
    BLOCK_BELL_REQUEST, BLOCK_BYTES, BLOCK_CHUNK_AREA, BLOCK_CHUNKS, BLOCK_CONTROL, BLOCK_CONTROL_AREA,
    BLOCK_CREDITS, BLOCK_MAILBOXES, BLOCK_MESSAGE_AREA, BLOCK_MESSAGES, BLOCK_STATE, BLOCK_WAITS_FOR_ROOM,
    CHUNK_AREA, CHUNK_SLOTS, CONTROL_AREA, CONTROL_BYTES_MAX, CONTROL_SLOTS, HEADER_DIRECTORY, MADE,
    MAILBOXES, MESSAGE_AREA, MESSAGE_SLOTS, NOT_MADE, Ring, STATE_CHUNKS, STATE_KNOWN, block_at,
    state_mailbox,
};
use crate::line::{Garbage, Line};
use crate::mailbox::Mailbox;
use crate::mapping::{Access, Mapping, View, whole_pages};
use crate::ring::{Bounds, Consumer, RingMessage, START};
use crate::{BellRequest, SegmentError};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// One peer's block for this process: the rings towards it, and the credit and bell request for its own rings.
#[derive(Debug)]
pub struct PeerBlock {
    /// The peer's control messages.
    pub control:
        Consumer<View<[Line; CONTROL_SLOTS]>, View<[AtomicU8; CONTROL_AREA]>, CONTROL_SLOTS, CONTROL_AREA>,
    /// The peer's messages.
    pub messages:
        Consumer<View<[Line; MESSAGE_SLOTS]>, View<[AtomicU8; MESSAGE_AREA]>, MESSAGE_SLOTS, MESSAGE_AREA>,
    /// The peer's chunks, once it has made that ring.
    pub chunks: Option<ChunkConsumer>,
    made: bool,
    directory: View<AtomicU32>,
    state: View<AtomicU64>,
    seen: u64,
    bell_request: View<AtomicU32>,
    waits_for_room: View<AtomicU32>,
    credits: View<[AtomicU32; 3]>,
    mailboxes: View<[Mailbox; MAILBOXES]>,
    versions: [u32; MAILBOXES],
    bounds: Bounds,
    mapping: Arc<Mapping>,
}

/// The receiving end of a chunk ring.
pub type ChunkConsumer =
    Consumer<View<[Line; CHUNK_SLOTS]>, View<[AtomicU8; CHUNK_AREA]>, CHUNK_SLOTS, CHUNK_AREA>;

/// Which block of which segment.
#[derive(Clone, Copy, Debug)]
pub struct BlockAddress {
    /// The node slot of the process that writes it.
    pub owner_slot: u32,
    /// The node slot of the process that reads it.
    pub reader_slot: u32,
    /// The number of node slots.
    pub slots: u32,
}

impl PeerBlock {
    /// Maps the block that the process at node slot `address.owner_slot` writes for us. The owner need not have made it yet. The
    /// descriptor may be closed afterwards.
    pub fn map(
        descriptor: BorrowedFd<'_>,
        address: BlockAddress,
        bounds: Bounds,
    ) -> Result<Self, SegmentError> {
        assert!(address.reader_slot < address.slots, "a slot that the node does not have");
        let header = map_header(descriptor, address.owner_slot, address.slots)?;
        let start = block_at(address.slots, address.reader_slot) as u64;
        let block = Mapping::new(descriptor, start, whole_pages(BLOCK_BYTES), Access::Read)?;
        Ok(Self::over(&Arc::new(header), &Arc::new(block), address, bounds))
    }

    fn over(header: &Arc<Mapping>, block: &Arc<Mapping>, address: BlockAddress, bounds: Bounds) -> Self {
        let short = Bounds { message_bytes: CONTROL_BYTES_MAX as u32, chunk_bytes: 0 };
        PeerBlock {
            control: Consumer::new(
                View::new(block, BLOCK_CONTROL),
                View::new(block, BLOCK_CONTROL_AREA),
                short,
            ),
            messages: Consumer::new(
                View::new(block, BLOCK_MESSAGES),
                View::new(block, BLOCK_MESSAGE_AREA),
                bounds,
            ),
            chunks: None,
            made: false,
            directory: View::new(header, HEADER_DIRECTORY + 4 * address.reader_slot as usize),
            state: View::new(block, BLOCK_STATE),
            seen: 0,
            bell_request: View::new(block, BLOCK_BELL_REQUEST),
            waits_for_room: View::new(block, BLOCK_WAITS_FOR_ROOM),
            credits: View::new(block, BLOCK_CREDITS),
            mailboxes: View::new(block, BLOCK_MAILBOXES),
            versions: [0; MAILBOXES],
            bounds,
            mapping: Arc::clone(block),
        }
    }

    // Hot: per poll.
    /// Whether the peer has made its block for us. Before that nothing of it may be read, because reading an
    /// unallocated page of a memfd allocates it.
    pub fn block_exists(&mut self) -> Result<bool, Garbage> {
        if self.made { Ok(true) } else { self.read_directory() }
    }

    /// As `block_exists`, but without the check: garbage counts as made, so that `block_exists` is called and finds it.
    pub fn block_may_exist(&self) -> bool {
        self.made || self.directory.load(Ordering::Acquire) != NOT_MADE
    }

    #[cold]
    fn read_directory(&mut self) -> Result<bool, Garbage> {
        // SYNC: a prepared block, with `Outbox::make_block`.
        match self.directory.load(Ordering::Acquire) {
            NOT_MADE => Ok(false),
            MADE => {
                self.made = true;
                Ok(true)
            }
            _ => Err(Garbage),
        }
    }

    // Hot: per poll.
    /// Whether the word of the mailboxes has changed: `take_mailboxes` reads it.
    pub fn mailbox_changed(&self) -> bool {
        self.state.load(Ordering::Relaxed) != self.seen
    }

    /// Reads the state word: the chunk ring if it was made, and at most `at_most` new mailbox values, each of which is handed
    /// to `value`. Returns how many mailbox values that were.
    #[cold]
    pub fn take_mailboxes(
        &mut self,
        at_most: u32,
        mut value: impl FnMut(RingMessage<'_>),
    ) -> Result<u32, Garbage> {
        // SYNC: a prepared chunk ring, with `Block::make_chunks`.
        // SYNC: mailbox content, with `Block::put_mailbox`.
        let word = self.state.load(Ordering::Acquire);
        if word as u32 & !STATE_KNOWN != 0 {
            return Err(Garbage);
        }
        if word as u32 & STATE_CHUNKS != 0 && self.chunks.is_none() {
            let (lines, area) =
                (View::new(&self.mapping, BLOCK_CHUNKS), View::new(&self.mapping, BLOCK_CHUNK_AREA));
            self.chunks = Some(Consumer::new(lines, area, self.bounds));
        }
        let mut count = 0;
        for (index, (mailbox, last)) in self.mailboxes.iter().zip(&mut self.versions).enumerate() {
            if word as u32 & state_mailbox(index) == 0 {
                break;
            }
            if count == at_most {
                return Ok(count);
            }
            count += u32::from(mailbox.read(last, &mut value)?);
        }
        self.seen = word;
        Ok(count)
    }

    // Hot: per message.
    /// The events for which the peer asks for a bell. All of them before it has made its block.
    pub fn bell_request(&mut self) -> BellRequest {
        if self.made {
            // A hint; no order is needed (see `sleep`).
            return BellRequest(self.bell_request.load(Ordering::Relaxed));
        }
        self.first_bell_request()
    }

    #[cold]
    fn first_bell_request(&mut self) -> BellRequest {
        // Garbage in the directory is found where the peer's rings are read.
        let made = self.block_exists().unwrap_or(false);
        if made { BellRequest(self.bell_request.load(Ordering::Relaxed)) } else { BellRequest::ALL }
    }

    /// Whether the peer claims to have a message for us that found no room. Only a hint: see
    /// `Block::set_waits_for_room`.
    pub fn waits_for_room(&self) -> bool {
        self.made && self.waits_for_room.load(Ordering::Relaxed) != 0
    }

    /// The peer's claim of how far it has read our ring.
    pub fn credit(&mut self, ring: Ring) -> u32 {
        if !self.block_exists().unwrap_or(false) {
            return START;
        }
        // SYNC: credit, with `Block::set_credit`.
        self.credits[ring as usize].load(Ordering::Acquire)
    }
}
