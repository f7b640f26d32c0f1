// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Identities of communicators, and the short ids that stand for them in messages.

use crate::{Peer, Reader, Wire, Writer};

/// The globally unique id of a communicator, window or file: its creator and the creator's counter, never reused (I5). Its 96 bits
/// are sent once to each peer; after that the peer's own [`ContextId`] replaces it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Identity {
    /// The process that chose it.
    pub creator: Peer,
    /// The creator's counter.
    pub number: u32,
}

/// Messages of one kind match receives of the same kind only, so that tags of the user never match internal ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
pub enum ContextKind {
    /// The user's point-to-point messages.
    PointToPoint = 0,
    /// Messages of collective operations and of communicator creation.
    Collective = 1,
    /// Messages of creations by a group of the members. Neither a failure nor a revocation ends this context.
    /// It is retired together with the point-to-point context of its communicator, and opened only where it is needed.
    Creation = 2,
    /// Messages of agreements and shrinks by schedules, which go on where other collective operations do not. As
    /// [`Creation`](ContextKind::Creation).
    Agreement = 3,
    /// Messages between the leaders of two groups that create an intercommunicator, which may have the tags of creations by a group. As
    /// [`Creation`](ContextKind::Creation).
    Leaders = 4,
}

/// The number that one receiver chose for an identity and context kind; stands in the headers of messages to it
/// (design "Context ids").
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
            2 => Some(ContextKind::Creation),
            3 => Some(ContextKind::Agreement),
            4 => Some(ContextKind::Leaders),
            _ => None,
        }
    }
}
