// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What another process writes for this one: its block for us, mapped read-only. Nothing in it is believed.

use crate::layout::{
    BLOCK_BYTES, BLOCK_CHUNK_AREA, BLOCK_CHUNKS, BLOCK_CONTROL, BLOCK_CONTROL_AREA, BLOCK_CREDITS,
    BLOCK_MAILBOXES, BLOCK_MESSAGE_AREA, BLOCK_MESSAGES, BLOCK_STATE, BLOCK_WAITS_FOR_ROOM, BLOCK_WISH,
    CHUNK_AREA, CHUNK_SLOTS, CONTROL_AREA, CONTROL_BYTES_MAX, CONTROL_SLOTS, HEADER_DIRECTORY, HEADER_LAYOUT,
    HEADER_MAGIC, HEADER_SLOT, HEADER_SLOTS, LAYOUT, MADE, MAGIC, MAILBOXES, MESSAGE_AREA, MESSAGE_SLOTS,
    NOT_MADE, Ring, STATE_CHUNKS, STATE_KNOWN, block_at, header_bytes, outbox_bytes, state_mailbox,
};
use crate::life::{LifeState, LifeView};
use crate::line::{Garbage, Line};
use crate::mailbox::Mailbox;
use crate::mapping::{self, Access, Mapping, View, whole_pages};
use crate::ring::{Arrival, Bounds, Consumer, START};
use crate::{SegmentError, Wish};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// One peer's block for us: its rings towards us, its credits and wishes for ours.
#[derive(Debug)]
pub struct PeerBlock {
    /// From the peer.
    pub control:
        Consumer<View<[Line; CONTROL_SLOTS]>, View<[AtomicU8; CONTROL_AREA]>, CONTROL_SLOTS, CONTROL_AREA>,
    /// From the peer.
    pub messages:
        Consumer<View<[Line; MESSAGE_SLOTS]>, View<[AtomicU8; MESSAGE_AREA]>, MESSAGE_SLOTS, MESSAGE_AREA>,
    /// From the peer, once it has made it.
    pub chunks: Option<ChunkConsumer>,
    made: bool,
    directory: View<AtomicU32>,
    state: View<AtomicU64>,
    seen: u64,
    wish: View<AtomicU32>,
    waits_for_room: View<AtomicU32>,
    credits: View<[AtomicU32; 3]>,
    mailboxes: View<[Mailbox; MAILBOXES]>,
    versions: [u32; MAILBOXES],
    bounds: Bounds,
    life: LifeView,
    mapping: Arc<Mapping>,
}

/// The chunk ring of a peer.
pub type ChunkConsumer =
    Consumer<View<[Line; CHUNK_SLOTS]>, View<[AtomicU8; CHUNK_AREA]>, CHUNK_SLOTS, CHUNK_AREA>;

/// Where a peer's outbox is, and how we fit into it.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// The peer's slot.
    pub owner: u32,
    /// Our own.
    pub reader: u32,
    /// Slots of the node.
    pub slots: u32,
}

impl PeerBlock {
    /// Maps what the process at `site.owner` writes for us. Nothing of it need be made yet. The descriptor may be
    /// closed afterwards.
    pub fn map(descriptor: BorrowedFd<'_>, site: Site, bounds: Bounds) -> Result<Self, SegmentError> {
        assert!(site.reader < site.slots, "a slot that the node does not have");
        let header = map_header(descriptor, site.owner, site.slots)?;
        let start = block_at(site.slots, site.reader) as u64;
        let block = Mapping::new(descriptor, start, whole_pages(BLOCK_BYTES), Access::Read)?;
        Ok(Self::over(&Arc::new(header), &Arc::new(block), site, bounds))
    }

    fn over(header: &Arc<Mapping>, block: &Arc<Mapping>, site: Site, bounds: Bounds) -> Self {
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
            directory: View::new(header, HEADER_DIRECTORY + 4 * site.reader as usize),
            state: View::new(block, BLOCK_STATE),
            seen: 0,
            wish: View::new(block, BLOCK_WISH),
            waits_for_room: View::new(block, BLOCK_WAITS_FOR_ROOM),
            credits: View::new(block, BLOCK_CREDITS),
            mailboxes: View::new(block, BLOCK_MAILBOXES),
            versions: [0; MAILBOXES],
            bounds,
            life: LifeView::of(header),
            mapping: Arc::clone(block),
        }
    }

    /// How it stands with the peer: one look at a line that nobody writes while it lives.
    pub fn life(&self) -> LifeState {
        self.life.state()
    }

    // Hot: per look.
    /// Whether the peer has made its block for us; before that nothing of it may be touched (a look at a hole takes
    /// memory).
    pub fn is_made(&mut self) -> Result<bool, Garbage> {
        if self.made { Ok(true) } else { self.look_at_directory() }
    }

    /// As `is_made`, for who only looks; garbage counts as made, so that `is_made` finds it.
    pub fn stands(&self) -> bool {
        self.made || self.directory.load(Ordering::Acquire) != NOT_MADE
    }

    #[cold]
    fn look_at_directory(&mut self) -> Result<bool, Garbage> {
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

    // Hot: per look.
    /// Whether the state word says something new: `look` reads it.
    pub fn has_news(&self) -> bool {
        self.state.load(Ordering::Relaxed) != self.seen
    }

    /// Takes what the state word says: a chunk ring that was made, states in mailboxes, each handed to `state`: at
    /// most `at_most`. Gives how many those were.
    #[cold]
    pub fn look(&mut self, at_most: u32, mut state: impl FnMut(Arrival<'_>)) -> Result<u32, Garbage> {
        // SYNC: a prepared chunk ring, with `Block::make_chunks`.
        // SYNC: mailbox content, with `Block::put_state`.
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
            count += u32::from(mailbox.read(last, &mut state)?);
        }
        self.seen = word;
        Ok(count)
    }

    // Hot: per message.
    /// What the peer wishes to be rung for. Before it has made its block: everything.
    pub fn wish(&mut self) -> Wish {
        if self.made {
            // A hint; no order is needed (see `sleep`).
            return Wish(self.wish.load(Ordering::Relaxed));
        }
        self.first_wish()
    }

    #[cold]
    fn first_wish(&mut self) -> Wish {
        // Garbage in the directory is found where the peer's rings are read.
        let made = self.is_made().unwrap_or(false);
        if made { Wish(self.wish.load(Ordering::Relaxed)) } else { Wish::EVERYTHING }
    }

    /// Whether the peer claims to have something for us that found no room. Only a hint: see `Block::set_waits_for_room`.
    pub fn waits_for_room(&self) -> bool {
        self.made && self.waits_for_room.load(Ordering::Relaxed) != 0
    }

    /// The peer's claim of how far it has read our ring.
    pub fn credit(&mut self, ring: Ring) -> u32 {
        if !self.is_made().unwrap_or(false) {
            return START;
        }
        // SYNC: credit, with `Block::set_credit`.
        self.credits[ring as usize].load(Ordering::Acquire)
    }
}

/// Maps the head of the outbox of the process at `owner`, once it is known for one.
pub(crate) fn map_header(
    descriptor: BorrowedFd<'_>,
    owner: u32,
    slots: u32,
) -> Result<Mapping, SegmentError> {
    assert!(owner < slots, "a slot that the node does not have");
    mapping::check_file(descriptor, outbox_bytes(slots), true)?;
    let header = Mapping::new(descriptor, 0, header_bytes(slots), Access::Read)?;
    let stands = header.at::<AtomicU64>(HEADER_MAGIC).load(Ordering::Acquire) == MAGIC
        && header.at::<AtomicU32>(HEADER_LAYOUT).load(Ordering::Relaxed) == LAYOUT
        && header.at::<AtomicU32>(HEADER_SLOT).load(Ordering::Relaxed) == owner
        && header.at::<AtomicU32>(HEADER_SLOTS).load(Ordering::Relaxed) == slots;
    if stands { Ok(header) } else { Err(SegmentError::LayoutDiffers) }
}
