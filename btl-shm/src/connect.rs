// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How two processes of a node connect: the entry in the card, the outbox behind its descriptor, and the reasons for
//! which a card is refused.

use crate::block_pair::BlockPair;
use crate::control_watch::UnconsumedControl;
use crate::endpoint::Endpoint;
use crate::polling::Polling;
use crate::{Callback, NOBODY, NodeSlot, Shm, ShmEndpoint, Statistics};
use mend_base::parameter::Settings;
use mend_base::{PeerIndex, Reader, Wire, Writer};
use mend_segment::{
    BlockAddress, Bounds, CONTROL_BYTES_MAX, HEADER_BYTES_MAX, MESSAGE_AREA, Outbox, PeerBlock, SegmentError,
};
use mend_transport::{Ability, Card, ConnectError, Limits, TransportId};
use std::collections::VecDeque;
use std::os::fd::AsFd;

/// Why this process cannot use shared memory at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShmError {
    /// The outbox could not be created.
    #[error("{0}")]
    Segment(#[from] SegmentError),
    /// The launcher's data about this node are contradictory.
    #[error("invalid data from the launcher: node slot {slot} of {slots}, and a bell page for {bells} slots")]
    NoSuchSlot {
        /// The node slot of this process.
        slot: u32,
        /// The number of node slots.
        slots: u32,
        /// The number of slots of the bell page.
        bells: u32,
    },
}

/// The entry of this transport in a card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CardEntry {
    layout: u32,
    slot: u32,
    slots: u32,
    /// The longest message that its owner accepts.
    message_bytes_max: u32,
    /// The longest chunk that its owner accepts.
    chunk_bytes: u32,
}

impl Wire for CardEntry {
    const BYTES_MAX: usize = 20;

    fn write(&self, out: &mut Writer<'_>) {
        for word in [self.layout, self.slot, self.slots, self.message_bytes_max, self.chunk_bytes] {
            out.u32(word);
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(CardEntry {
            layout: from.u32()?,
            slot: from.u32()?,
            slots: from.u32()?,
            message_bytes_max: from.u32()?,
            chunk_bytes: from.u32()?,
        })
    }
}

/// Version of the card's entry and of the format in the rings.
const LAYOUT: u32 = 1;
/// Room for the bytes that upper layers add to an eager payload.
const HEADROOM_BYTES: u32 = 64;
/// Every receiver accepts messages of this length, which internal messages need.
const MESSAGE_BYTES_LEAST: u32 = 256;
/// The longest chunk, whatever the receiver accepts: without space for a chunk ring it goes through the message ring.
pub(crate) const CHUNK_BYTES_MAX: u32 = MESSAGE_AREA as u32;
/// The longest message, whatever the receiver accepts: two of them always fit.
const MESSAGE_BYTES_MAX: u32 = MESSAGE_AREA as u32 / 2;
/// The longest eager limit that can be chosen.
pub(crate) const EAGER_BYTES_MAX: u32 = MESSAGE_BYTES_MAX - HEADROOM_BYTES;

const _: () = assert!(HEADER_BYTES_MAX == Limits::HEADER_BYTES_MAX);

impl Shm {
    /// Creates the outbox of this process.
    pub fn new(node: NodeSlot, settings: &Settings) -> Result<Self, ShmError> {
        let NodeSlot { slot, slots, .. } = node;
        let bells = node.bells.slots();
        // A bell page for another number of slots has another layout.
        if slot >= slots || bells != slots {
            return Err(ShmError::NoSuchSlot { slot, slots, bells });
        }
        let message_bytes = settings.number("btl_shm.eager_bytes") as u32 + HEADROOM_BYTES;
        let bounds = Bounds {
            message_bytes: message_bytes.clamp(MESSAGE_BYTES_LEAST, MESSAGE_BYTES_MAX),
            chunk_bytes: settings.number("btl_shm.chunk_bytes") as u32,
        };
        Ok(Shm {
            outbox: Outbox::create(slot, slots, settings.number("btl_shm.memory_reserve_bytes"))?,
            bounds,
            endpoints: Vec::new(),
            by_slot: vec![NOBODY; slots as usize],
            polling: Polling::new(),
            blocked: Vec::new(),
            waiting: Vec::new(),
            unconsumed: UnconsumedControl::default(),
            severing: Vec::new(),
            callbacks: VecDeque::new(),
            statistics: Statistics::default(),
            node,
        })
    }

    pub(crate) fn put_card(&self, card: &mut Card) {
        let entry = CardEntry {
            layout: LAYOUT,
            slot: self.node.slot,
            slots: self.node.slots,
            message_bytes_max: self.bounds.message_bytes,
            chunk_bytes: self.bounds.chunk_bytes,
        };
        let mut bytes = [0; CardEntry::BYTES_MAX];
        entry.write(&mut Writer::new(&mut bytes));
        card.entries.push((TransportId::SHM, bytes.to_vec()));
        card.descriptor = Some(self.outbox.descriptor());
    }

    pub(crate) fn connect_to(&mut self, peer: PeerIndex, card: &Card) -> Result<ShmEndpoint, ConnectError> {
        let entry = self.read_card(card)?;
        // A process of another node cannot pass on its descriptor.
        let descriptor = card.descriptor.as_ref().ok_or(ConnectError::Unreachable)?;
        // This process itself, or a second process in a slot whose first one is not severed yet.
        if entry.slot == self.node.slot || self.by_slot[entry.slot as usize] != NOBODY {
            return Err(ConnectError::Unreachable);
        }
        let address =
            BlockAddress { owner_slot: entry.slot, reader_slot: self.node.slot, slots: self.node.slots };
        let theirs = PeerBlock::map(descriptor.as_fd(), address, self.bounds).map_err(refusal)?;
        let mine = self.outbox.make_block(entry.slot).map_err(refusal)?;
        let index = u32::try_from(self.endpoints.len()).map_err(|_| ConnectError::NoMemory)?;
        self.endpoints.push(Endpoint::new(peer, entry.slot, limits(entry), BlockPair::new(mine, theirs)));
        self.unconsumed.reserve(self.endpoints.len());
        self.by_slot[entry.slot as usize] = index;
        // The endpoint is polled at first: the bell of an earlier process in this slot may just have been cleared, and that
        // store may become visible only after the new process has rung.
        self.promote(index as usize);
        self.callbacks.push_back((ShmEndpoint(index), Callback::Room));
        Ok(ShmEndpoint(index))
    }

    fn read_card(&self, card: &Card) -> Result<CardEntry, ConnectError> {
        if card.layout != Card::LAYOUT {
            return Err(ConnectError::LayoutDiffers);
        }
        let bytes = card.entry(TransportId::SHM).ok_or(ConnectError::Unreachable)?;
        let mut reader = Reader::new(bytes);
        let entry = CardEntry::read(&mut reader).ok_or(ConnectError::LayoutDiffers)?;
        let fits = entry.layout == LAYOUT
            && entry.slots == self.node.slots
            && entry.slot < entry.slots
            && entry.message_bytes_max >= MESSAGE_BYTES_LEAST
            && entry.chunk_bytes > 0
            && reader.rest().is_empty();
        if fits { Ok(entry) } else { Err(ConnectError::LayoutDiffers) }
    }
}

/// The limits of the receiver, reduced to what this version can send.
fn limits(entry: CardEntry) -> Limits {
    let message_bytes_max = entry.message_bytes_max.min(MESSAGE_BYTES_MAX);
    Limits {
        abilities: Ability::Streams as u32 | Ability::Polling as u32,
        emulated: 0,
        control_bytes_max: CONTROL_BYTES_MAX as u32,
        message_bytes_max,
        eager_bytes: message_bytes_max - HEADROOM_BYTES,
        chunk_bytes: entry.chunk_bytes.min(CHUNK_BYTES_MAX),
        transfer_bytes_max: 0,
    }
}

fn refusal(error: SegmentError) -> ConnectError {
    match error {
        SegmentError::LayoutDiffers => ConnectError::LayoutDiffers,
        SegmentError::NoMemory { .. }
        | SegmentError::FileSizeLimit { .. }
        | SegmentError::NoMapping(_)
        | SegmentError::NoDescriptor(_) => ConnectError::NoMemory,
        SegmentError::NoMemfd(_) | SegmentError::NoSeals(_) | SegmentError::NoLifeWord(_) => {
            ConnectError::Unreachable
        }
    }
}
