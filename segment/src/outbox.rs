// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The outbox of one process, which it alone writes, with one block for each peer of its node.

use crate::layout::{
    BLOCK_BELL_REQUEST, BLOCK_BYTES, BLOCK_CHUNK_AREA, BLOCK_CHUNKS, BLOCK_CONTROL, BLOCK_CONTROL_AREA,
    BLOCK_CREDITS, BLOCK_MAILBOXES, BLOCK_MESSAGE_AREA, BLOCK_MESSAGES, BLOCK_STATE, BLOCK_WAITS_FOR_ROOM,
    CHUNK_AREA, CHUNK_SLOTS, CONTROL_AREA, CONTROL_SLOTS, HEADER_DIRECTORY, HEADER_LAYOUT, HEADER_MAGIC,
    HEADER_SLOT, HEADER_SLOTS, LAYOUT, MADE, MAGIC, MAILBOXES, MESSAGE_AREA, MESSAGE_SLOTS, NOT_MADE, Ring,
    STATE_CHUNKS, block_at, header_bytes, outbox_bytes, state_mailbox,
};
use crate::line::Line;
use crate::mailbox::{Mailbox, next_version};
use crate::mapping::{self, Access, Mapping, View};
use crate::reserve::{self, Part, Reserved};
use crate::ring::{PayloadMut, Producer, START, SlotHeader, prepare};
use crate::{BellRequest, SegmentError};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The memory that this process alone can write, and that its peers on the node can read. Sparse: a block takes space
/// when it is made, and peers that never connect cost nothing.
#[derive(Debug)]
pub struct Outbox {
    mapping: Arc<Mapping>,
    file: Arc<OwnedFd>,
    slots: u32,
    keep_free: u64,
    reserved: Arc<Reserved>,
}

impl Outbox {
    /// The outbox of the process at `slot` of a node with `slots` slots. Reservations leave at least `keep_free`
    /// bytes under every memory limit, and more where so many processes could reserve more at once.
    pub fn create(slot: u32, slots: u32, keep_free: u64) -> Result<Self, SegmentError> {
        let bytes = outbox_bytes(slots);
        let keep_free = reserve::keep_free(keep_free, slots);
        let file = mapping::make_file("mend-outbox", bytes)?;
        reserve::reserve(&file, 0, header_bytes(slots) as u64, keep_free)?;
        let mapping = Mapping::new(file.as_fd(), 0, bytes, Access::Write)?;
        mapping.at::<AtomicU32>(HEADER_LAYOUT).store(LAYOUT, Ordering::Relaxed);
        mapping.at::<AtomicU32>(HEADER_SLOT).store(slot, Ordering::Relaxed);
        mapping.at::<AtomicU32>(HEADER_SLOTS).store(slots, Ordering::Relaxed);
        mapping.at::<AtomicU64>(HEADER_MAGIC).store(MAGIC, Ordering::Release);
        mapping::seal(&file, true)?;
        let (mapping, reserved) = (Arc::new(mapping), Arc::new(Reserved::nothing(slots)));
        Ok(Outbox { mapping, file: Arc::new(file), slots, keep_free, reserved })
    }

    /// The descriptor from which peers map it read-only. No process can map it writable any more.
    pub fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.file)
    }

    #[cfg(feature = "broken_peer")]
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    #[cfg(feature = "broken_peer")]
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// Makes the block for the process at node slot `reader_slot`, reserves its first part, and announces it in the directory. A
    /// block that was released before is made anew.
    pub fn make_block(&self, reader_slot: u32) -> Result<Block, SegmentError> {
        let start = block_at(self.slots, reader_slot);
        self.reserved.once(reader_slot, Part::First, || {
            reserve::reserve(&self.file, start as u64, BLOCK_CHUNKS as u64, self.keep_free)
        })?;
        let block = Block::prepare(self, reader_slot);
        // SYNC: a prepared block, with `PeerBlock::block_exists`.
        block.directory.store(MADE, Ordering::Release);
        Ok(block)
    }
}

/// What this process writes for one peer: the rings towards it, and the credit and bell request for the peer's own
/// rings.
#[derive(Debug)]
pub struct Block {
    /// The ring of control messages: they never wait behind data.
    pub control:
        Producer<View<[Line; CONTROL_SLOTS]>, View<[AtomicU8; CONTROL_AREA]>, CONTROL_SLOTS, CONTROL_AREA>,
    /// The ring of messages.
    pub messages:
        Producer<View<[Line; MESSAGE_SLOTS]>, View<[AtomicU8; MESSAGE_AREA]>, MESSAGE_SLOTS, MESSAGE_AREA>,
    chunks: Option<ChunkProducer>,
    state: View<AtomicU64>,
    bell_request: View<AtomicU32>,
    waits_for_room: View<AtomicU32>,
    credits: View<[AtomicU32; 3]>,
    mailboxes: View<[Mailbox; MAILBOXES]>,
    /// The kinds of values that have a mailbox, and the version in it.
    kinds: Vec<(u8, u32)>,
    directory: View<AtomicU32>,
    mapping: Arc<Mapping>,
    file: Arc<OwnedFd>,
    reader_slot: u32,
    start: usize,
    keep_free: u64,
    reserved: Arc<Reserved>,
}

/// The sending end of a chunk ring.
pub type ChunkProducer =
    Producer<View<[Line; CHUNK_SLOTS]>, View<[AtomicU8; CHUNK_AREA]>, CHUNK_SLOTS, CHUNK_AREA>;

impl Block {
    fn prepare(outbox: &Outbox, reader_slot: u32) -> Self {
        let (mapping, start) = (&outbox.mapping, block_at(outbox.slots, reader_slot));
        let control = View::new(mapping, start + BLOCK_CONTROL);
        let messages = View::new(mapping, start + BLOCK_MESSAGES);
        let block = Block {
            state: View::new(mapping, start + BLOCK_STATE),
            bell_request: View::new(mapping, start + BLOCK_BELL_REQUEST),
            waits_for_room: View::new(mapping, start + BLOCK_WAITS_FOR_ROOM),
            credits: View::new(mapping, start + BLOCK_CREDITS),
            mailboxes: View::new(mapping, start + BLOCK_MAILBOXES),
            kinds: Vec::new(),
            directory: View::new(mapping, HEADER_DIRECTORY + 4 * reader_slot as usize),
            mapping: Arc::clone(mapping),
            file: Arc::clone(&outbox.file),
            reader_slot,
            start,
            keep_free: outbox.keep_free,
            reserved: Arc::clone(&outbox.reserved),
            chunks: None,
            control: {
                prepare(&control);
                Producer::new(control, View::new(mapping, start + BLOCK_CONTROL_AREA))
            },
            messages: {
                prepare(&messages);
                Producer::new(messages, View::new(mapping, start + BLOCK_MESSAGE_AREA))
            },
        };
        block.state.store(0, Ordering::Relaxed);
        block.bell_request.store(BellRequest::MESSAGES.0, Ordering::Relaxed);
        block.waits_for_room.store(0, Ordering::Relaxed);
        block.credits.iter().for_each(|credit| credit.store(START, Ordering::Relaxed));
        block.mailboxes.iter().for_each(Mailbox::prepare);
        block
    }

    // Hot: per message.
    /// Publishes in the ring of messages or of control messages. Without room it returns `fill`, not called.
    #[inline(always)]
    pub fn push<F: FnOnce(PayloadMut<'_>)>(
        &mut self,
        ring: Ring,
        slot_header: SlotHeader<'_>,
        bytes: usize,
        fill: F,
    ) -> Result<(), F> {
        match ring {
            Ring::Messages => self.messages.push(slot_header, bytes, fill),
            Ring::Control => self.control.push(slot_header, bytes, fill),
            Ring::Chunks => panic!("chunks have a ring that must be made first"),
        }
    }

    // Hot: per chunk.
    /// The chunk ring. At first use its space is reserved, and it is made and announced. `NoMemory`: chunks go
    /// through the message ring.
    pub fn chunks(&mut self) -> Result<&mut ChunkProducer, SegmentError> {
        if self.chunks.is_none() {
            self.make_chunks()?;
        }
        self.chunks.as_mut().ok_or(SegmentError::NoMemory { wanted: 0, free: 0 })
    }

    /// The chunk ring, if it is made.
    pub fn chunk_ring(&mut self) -> Option<&mut ChunkProducer> {
        self.chunks.as_mut()
    }

    #[cold]
    fn make_chunks(&mut self) -> Result<(), SegmentError> {
        let (start, bytes) = (self.start + BLOCK_CHUNKS, BLOCK_BYTES - BLOCK_CHUNKS);
        self.reserved.once(self.reader_slot, Part::Chunks, || {
            reserve::reserve(&self.file, start as u64, bytes as u64, self.keep_free)
        })?;
        let area = self.start + BLOCK_CHUNK_AREA;
        let lines = View::<[Line; CHUNK_SLOTS]>::new(&self.mapping, self.start + BLOCK_CHUNKS);
        prepare(&lines);
        self.chunks = Some(Producer::new(lines, View::new(&self.mapping, area)));
        let state = self.state.load(Ordering::Relaxed);
        // SYNC: a prepared chunk ring, with `PeerBlock::take_mailboxes`.
        self.state.store(state | u64::from(STATE_CHUNKS), Ordering::Release);
        Ok(())
    }

    /// Replaces the value of this kind. Panics where there are more kinds than [`MAILBOXES`].
    pub fn put_mailbox(
        &mut self,
        slot_header: SlotHeader<'_>,
        bytes: usize,
        fill: impl FnOnce(PayloadMut<'_>),
    ) {
        let known = self.kinds.iter().position(|(kind, _)| *kind == slot_header.id);
        let index = known.unwrap_or_else(|| {
            assert!(self.kinds.len() < MAILBOXES, "a pair has more kinds of values than mailboxes");
            self.kinds.push((slot_header.id, 0));
            self.kinds.len() - 1
        });
        let version = next_version(self.kinds[index].1);
        self.kinds[index].1 = version;
        self.mailboxes[index].write(version, slot_header, bytes, fill);
        let state = self.state.load(Ordering::Relaxed) | u64::from(state_mailbox(index));
        // SYNC: mailbox content, with `PeerBlock::take_mailboxes` (the seqlock alone would be enough).
        self.state.store(state.wrapping_add(1 << 32), Ordering::Release);
    }

    /// Asks the peer to ring for these events from now on.
    pub fn set_bell_request(&self, request: BellRequest) {
        self.bell_request.store(request.0, Ordering::Release);
    }

    /// Publishes whether this process has a message for the peer that found no room. Only a hint, from which the peer
    /// decides how to share its time fairly between senders.
    pub fn set_waits_for_room(&self, waits: bool) {
        self.waits_for_room.store(u32::from(waits), Ordering::Relaxed);
    }

    /// Gives credit: this process has read every slot of the peer's ring before position `consumed`.
    pub fn set_credit(&self, ring: Ring, consumed: u32) {
        // SYNC: credit, with `PeerBlock::credit`: our reads of the slot come before its next writing.
        self.credits[ring as usize].store(consumed, Ordering::Release);
    }

    /// Removes the block from the directory, because its peer has ended. Its space stays for another peer at the same
    /// slot.
    pub fn release(self) {
        self.directory.store(NOT_MADE, Ordering::Release);
    }
}
