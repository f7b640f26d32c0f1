// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How two processes of a node come together: the card's entry, the outbox behind its descriptor, and what is refused.

use crate::endpoint::{Endpoint, Link};
use crate::polling::Polling;
use crate::{NOBODY, Place, Report, Shm, ShmEndpoint, Statistics};
use mend_base::parameter::Settings;
use mend_base::{PeerIndex, Reader, Wire, Writer};
use mend_segment::{
    Bounds, CONTROL_BYTES_MAX, HEADER_BYTES_MAX, MESSAGE_AREA, Outbox, PeerBlock, SegmentError, Site,
};
use mend_transport::{Ability, Card, ConnectError, Limits, TransportId};
use std::collections::VecDeque;
use std::os::fd::AsFd;

/// Why shared memory cannot be used by this process at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShmError {
    /// The outbox could not be made.
    #[error("{0}")]
    Segment(#[from] SegmentError),
    /// What the launcher said about this node does not hold together.
    #[error("the launcher gave node slot {slot} of {slots}, and bells for {bells}")]
    NoSuchSlot {
        /// Ours, it said.
        slot: u32,
        /// So many has the node, it said.
        slots: u32,
        /// So many has the bell page.
        bells: u32,
    },
}

/// What this transport advertises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    layout: u32,
    slot: u32,
    slots: u32,
    /// The longest message that its owner takes.
    packed_bytes_max: u32,
    /// The longest chunk that its owner takes.
    chunk_bytes: u32,
}

impl Wire for Entry {
    const BYTES_MAX: usize = 20;

    fn write(&self, out: &mut Writer<'_>) {
        for word in [self.layout, self.slot, self.slots, self.packed_bytes_max, self.chunk_bytes] {
            out.u32(word);
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(Entry {
            layout: from.u32()?,
            slot: from.u32()?,
            slots: from.u32()?,
            packed_bytes_max: from.u32()?,
            chunk_bytes: from.u32()?,
        })
    }
}

/// Version of the card's entry and of what the rings carry.
const LAYOUT: u32 = 1;
/// What upper layers add to an eager payload of their own.
const HEADROOM_BYTES: u32 = 64;
/// No receiver takes less: internal messages need that much.
const PACKED_BYTES_LEAST: u32 = 256;
/// The longest chunk whatever the receiver takes: without space for a chunk ring it goes through the message ring.
pub(crate) const CHUNK_BYTES_MAX: u32 = MESSAGE_AREA as u32;
/// The longest message whatever the receiver takes: two of them always fit.
const PACKED_BYTES_MAX: u32 = MESSAGE_AREA as u32 / 2;

const _: () = assert!(HEADER_BYTES_MAX == Limits::HEADER_BYTES_MAX);

impl Shm {
    /// Creates this process's outbox. `eager_bytes`: the longest eager message that it receives.
    pub fn new(place: Place, eager_bytes: u32, settings: &Settings) -> Result<Self, ShmError> {
        let Place { slot, slots, .. } = place;
        let bells = place.bells.slots();
        // Another number of bells lays out another page.
        if slot >= slots || bells != slots {
            return Err(ShmError::NoSuchSlot { slot, slots, bells });
        }
        let message_bytes = eager_bytes.saturating_add(HEADROOM_BYTES);
        let bounds = Bounds {
            message_bytes: message_bytes.clamp(PACKED_BYTES_LEAST, PACKED_BYTES_MAX),
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
            severing: Vec::new(),
            reports: VecDeque::new(),
            checked: 0,
            statistics: Statistics::default(),
            place,
        })
    }

    pub(crate) fn put_card(&self, card: &mut Card) {
        let entry = Entry {
            layout: LAYOUT,
            slot: self.place.slot,
            slots: self.place.slots,
            packed_bytes_max: self.bounds.message_bytes,
            chunk_bytes: self.bounds.chunk_bytes,
        };
        let mut bytes = [0; Entry::BYTES_MAX];
        entry.write(&mut Writer::new(&mut bytes));
        card.entries.push((TransportId::SHM, bytes.to_vec()));
        card.descriptor = Some(self.outbox.descriptor());
    }

    pub(crate) fn connect_to(&mut self, peer: PeerIndex, card: &Card) -> Result<ShmEndpoint, ConnectError> {
        let entry = self.read_card(card)?;
        // Another node's outbox cannot be passed on.
        let descriptor = card.descriptor.as_ref().ok_or(ConnectError::Unreachable)?;
        // Ourselves, or a second process in a slot whose first has not been severed.
        if entry.slot == self.place.slot || self.by_slot[entry.slot as usize] != NOBODY {
            return Err(ConnectError::Unreachable);
        }
        let site = Site { owner: entry.slot, reader: self.place.slot, slots: self.place.slots };
        let theirs = PeerBlock::map(descriptor.as_fd(), site, self.bounds).map_err(refusal)?;
        let mine = self.outbox.make_block(entry.slot).map_err(refusal)?;
        let index = u32::try_from(self.endpoints.len()).map_err(|_| ConnectError::NoMemory)?;
        self.endpoints.push(Endpoint::new(peer, entry.slot, limits(entry), Link::new(mine, theirs)));
        self.by_slot[entry.slot as usize] = index;
        // Polled at first: a bell of whoever had this slot before may have been cleared a moment ago, and that store still be
        // on its way when the new one rings.
        self.promote(index as usize);
        self.reports.push_back((ShmEndpoint(index), Report::Room));
        Ok(ShmEndpoint(index))
    }

    fn read_card(&self, card: &Card) -> Result<Entry, ConnectError> {
        if card.layout != Card::LAYOUT {
            return Err(ConnectError::LayoutDiffers);
        }
        let bytes = card.entry(TransportId::SHM).ok_or(ConnectError::Unreachable)?;
        let mut reader = Reader::new(bytes);
        let entry = Entry::read(&mut reader).ok_or(ConnectError::LayoutDiffers)?;
        let fits = entry.layout == LAYOUT
            && entry.slots == self.place.slots
            && entry.slot < entry.slots
            && entry.packed_bytes_max >= PACKED_BYTES_LEAST
            && entry.chunk_bytes > 0
            && reader.rest().is_empty();
        if fits { Ok(entry) } else { Err(ConnectError::LayoutDiffers) }
    }
}

/// The receiver's words, as far as this version can send at all.
fn limits(entry: Entry) -> Limits {
    Limits {
        abilities: Ability::Streams as u32,
        inline_bytes_max: CONTROL_BYTES_MAX as u32,
        packed_bytes_max: entry.packed_bytes_max.min(PACKED_BYTES_MAX),
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
