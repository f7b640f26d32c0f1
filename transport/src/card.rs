// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Business cards: what a process publishes so that others can connect to it.

use mend_base::{Reader, Wire, Writer};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The business card of a process: its layout version, one entry for each transport, and the descriptors of its outbox and its
/// life page, which the node daemon passes on.
#[derive(Default, Debug, Clone)]
pub struct Card {
    /// Version of everything that two processes share: the layout of outboxes and shared pages, headers, protocols.
    pub layout: u32,
    /// What each transport advertises, at most [`ENTRY_BYTES_MAX`](Card::ENTRY_BYTES_MAX) bytes; in no order.
    pub entries: Vec<(TransportId, Vec<u8>)>,
    /// The outbox. Passed separately from the bytes of the card (SCM_RIGHTS), and only to processes of the same node.
    pub descriptor: Option<Arc<OwnedFd>>,
    /// The life page, passed in the same way. The runtime of the process adds it, and that of the peer takes it; transports see none.
    pub life: Option<Arc<OwnedFd>>,
}

/// Which transport an entry belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct TransportId(pub u8);

impl TransportId {
    /// Messages of a process to itself.
    pub const SELF: TransportId = TransportId(1);
    /// Shared memory of one node.
    pub const SHM: TransportId = TransportId(2);
    /// libfabric.
    pub const OFI: TransportId = TransportId(3);
}

impl Card {
    /// The longest entry, in bytes.
    pub const ENTRY_BYTES_MAX: usize = 256;
    /// The most entries of a card.
    pub const ENTRIES_MAX: usize = 8;
    /// The layout that this version of Mend writes. A connection to a process with another layout is refused.
    pub const LAYOUT: u32 = 5;

    /// The entry of `transport`.
    pub fn entry(&self, transport: TransportId) -> Option<&[u8]> {
        self.entries.iter().find(|(id, _)| *id == transport).map(|(_, bytes)| bytes.as_slice())
    }
}

impl Wire for Card {
    const BYTES_MAX: usize = 5 + Card::ENTRIES_MAX * (3 + Card::ENTRY_BYTES_MAX);

    fn write(&self, out: &mut Writer<'_>) {
        assert!(self.entries.len() <= Card::ENTRIES_MAX);
        out.u32(self.layout);
        out.u8(self.entries.len() as u8);
        for (id, bytes) in &self.entries {
            assert!(bytes.len() <= Card::ENTRY_BYTES_MAX);
            out.u8(id.0);
            out.u16(bytes.len() as u16);
            out.bytes(bytes);
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let layout = from.u32()?;
        let count = usize::from(from.u8()?);
        if count > Card::ENTRIES_MAX {
            return None;
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let id = TransportId(from.u8()?);
            let len = usize::from(from.u16()?);
            if len > Card::ENTRY_BYTES_MAX {
                return None;
            }
            entries.push((id, from.bytes(len)?.to_vec()));
        }
        Some(Card { layout, entries, descriptor: None, life: None })
    }
}
