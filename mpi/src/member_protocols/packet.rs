// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages that members of a communicator exchange for its agreements, votes and revocation. Each is one control message.
//!
//! ```text
//!  0 protocol u8   1 identity of the communicator (creator u64, number u32)   13 rank of the sender u32   17 message of the protocol
//! ```

use crate::origin::Origin;
use mend_base::{Identity, PeerIndex, Rank, Reader, Wire, Writer};
use mend_proto::{agreement, crossing, spread, vote};
use mend_transport::{AmId, Limits};

/// The active-message id of these messages.
pub(crate) const AM_ID: AmId = AmId(2);

/// One message that is to be sent, in its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub peer: PeerIndex,
    bytes: [u8; Limits::HEADER_BYTES_MAX],
    used: u8,
}

/// One message that has arrived. It is read at once: its bytes are not copied a second time.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// Its sender.
    pub peer: PeerIndex,
    pub about: About,
    pub message: Message,
}

/// The content of a message.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Agreement(agreement::Message),
    /// About a vote over the communicator, on one that is created from it.
    Vote(vote::Message),
    /// About the vote on the communicator itself, among its members. The rank of the sender counts only if the sender knows the group.
    Creation(vote::Message),
    Spread(spread::Message),
    /// About agreements that wait for each other.
    Crossing(crossing::Message),
    /// The sender has freed the communicator, and every member has passed all its agreements.
    Gone,
    /// How the communicator was created, for a member at which that may have failed. Comes before other messages of the sender.
    Origin(Origin),
}

/// Which communicator a message is about, and the rank of its sender there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct About {
    pub identity: Identity,
    pub source: Rank,
}

const AGREEMENT: u8 = 1;
const VOTE: u8 = 2;
const SPREAD: u8 = 3;
const GONE: u8 = 4;
const CREATION: u8 = 5;
const CROSSING: u8 = 6;
const ORIGIN: u8 = 7;

const ABOUT_BYTES: usize = 1 + Identity::BYTES_MAX + 4;
const _: () = assert!(ABOUT_BYTES + agreement::Message::BYTES_MAX <= Limits::HEADER_BYTES_MAX);
const _: () = assert!(ABOUT_BYTES + vote::Message::BYTES_MAX <= Limits::HEADER_BYTES_MAX);
const _: () = assert!(ABOUT_BYTES + crossing::Message::BYTES_MAX <= Limits::HEADER_BYTES_MAX);
const _: () = assert!(ABOUT_BYTES + spread::Message::BYTES_MAX <= Limits::HEADER_BYTES_MAX);
const _: () = assert!(ABOUT_BYTES + Origin::BYTES_MAX <= Limits::HEADER_BYTES_MAX);

impl Packet {
    /// The message for or from `peer`.
    pub fn new(peer: PeerIndex, about: About, message: &Message) -> Self {
        let mut bytes = [0; Limits::HEADER_BYTES_MAX];
        let mut out = Writer::new(&mut bytes);
        out.u8(match message {
            Message::Agreement(_) => AGREEMENT,
            Message::Vote(_) => VOTE,
            Message::Creation(_) => CREATION,
            Message::Spread(_) => SPREAD,
            Message::Crossing(_) => CROSSING,
            Message::Gone => GONE,
            Message::Origin(_) => ORIGIN,
        });
        about.identity.write(&mut out);
        out.u32(about.source.0);
        match message {
            Message::Agreement(message) => message.write(&mut out),
            Message::Vote(message) | Message::Creation(message) => message.write(&mut out),
            Message::Spread(message) => message.write(&mut out),
            Message::Crossing(message) => message.write(&mut out),
            Message::Gone => {}
            Message::Origin(origin) => origin.write(&mut out),
        }
        let used = out.used() as u8;
        Packet { peer, bytes, used }
    }

    /// The bytes on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.used)]
    }
}

impl Arrival {
    /// The communicator and its origin, if the message is about that.
    pub fn origin(&self) -> Option<(Identity, Origin)> {
        match self.message {
            Message::Origin(origin) => Some((self.about.identity, origin)),
            _ => None,
        }
    }

    /// What `peer` has sent; `None`: garbage.
    pub fn read(peer: PeerIndex, header: &[u8]) -> Option<Self> {
        let mut from = Reader::new(header);
        let protocol = from.u8()?;
        let about = About { identity: Identity::read(&mut from)?, source: Rank(from.u32()?) };
        let message = match protocol {
            AGREEMENT => Message::Agreement(agreement::Message::read(&mut from)?),
            VOTE => Message::Vote(vote::Message::read(&mut from)?),
            CREATION => Message::Creation(vote::Message::read(&mut from)?),
            SPREAD => Message::Spread(spread::Message::read(&mut from)?),
            CROSSING => Message::Crossing(crossing::Message::read(&mut from)?),
            GONE => Message::Gone,
            ORIGIN => Message::Origin(Origin::read(&mut from)?),
            _ => return None,
        };
        from.rest().is_empty().then_some(Arrival { peer, about, message })
    }
}
