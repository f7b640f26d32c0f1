// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a communicator is for ever, and what it is called on the wire.

use crate::{Peer, Reader, Wire, Writer};

/// A communicator, window or file for ever: its creator and the creator's counter (I5). 96 bits, never used again, sent
/// once to each peer; after that the peer's own [`ContextId`] stands for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Identity {
    /// Who made it.
    pub creator: Peer,
    /// The creator's counter.
    pub number: u32,
}

/// Whose messages these are: each context kind of a communicator matches for itself, so user tags never meet internal ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
pub enum ContextKind {
    /// The user's point-to-point messages.
    PointToPoint = 0,
    /// Collective operations and the making of communicators.
    Collective = 1,
}

/// What one receiver calls an identity and context kind on the wire: its own choice, retired when the sender knows (design "Context ids").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ContextId(pub u16);

impl Wire for Identity {
    const BYTES_MAX: usize = 12;

    fn write(&self, out: &mut Writer<'_>) {
        out.u64(self.creator.0);
        out.u32(self.number);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(Identity { creator: Peer(from.u64()?), number: from.u32()? })
    }
}

impl Wire for ContextKind {
    const BYTES_MAX: usize = 1;

    fn write(&self, out: &mut Writer<'_>) {
        out.u8(*self as u8);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        match from.u8()? {
            0 => Some(ContextKind::PointToPoint),
            1 => Some(ContextKind::Collective),
            _ => None,
        }
    }
}
