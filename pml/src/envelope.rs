// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Headers: what travels before the payload. Little-endian; a header has exactly the length of its kind, and fields
//! without a meaning are zero. `Card::LAYOUT` numbers this layout.
//!
//! ```text
//! messages, by the receiver's context id               messages, by full identity (until it announces its id)
//!  0 kind  1 zero  2 context u16                        0 kind | 0x80  1 context kind  2 sequence u16
//!  4 sequence u16  6 zero u16                           4 tag i32   8 source rank u32
//!  8 tag i32      12 source rank u32                   12 identity (creator u64, number u32)
//! 16 sender's request key u64   synchronous, RTS       24 sender's request key u64
//! 24 bytes u64                               RTS       32 bytes u64
//!
//! CANCEL_RTS is a message too, with the layout of a synchronous one and tag 0: the key is that of the cancelled RTS
//! INQUIRY is one with that layout: the key is that of a receive
//! The payload of an RTS is the remote key of the sender's buffer, or empty: then the bytes are to be sent as a stream
//! POISON is one with the layout of an eager one, and behind it: failed rank u32 (2^32 - 1: none), and later operations too u32
//!
//! control messages (MessageClass::Control)
//!  CTS       0 kind  1 zero u24  4 stream u32  8 sender's key u64  16 bytes wanted u64
//!  MATCHED   0 kind  1 zero u56                8 sender's key u64
//!  FIN       0 kind  1 zero u56                8 sender's key u64  16 bytes taken u64
//!  REFUSED   0 kind  1 reason u8  2 zero u16  4 failed rank u32, zero where the reason has none   8 request's key u64
//!  ANNOUNCE  0 kind  1 context kind  2 context u16  4 identity  16 receiver's rank u32  20 its eager limit u32
//!  RETIRE    0 kind  1 context kind  2 context u16  4 identity  16 receiver's rank u32
//!  CANCEL    0 kind  1 zero u24  4 stream u32  8 bytes sent u64
//!  XOFF, XON 0 kind
//! in the order of the messages
//!  RETIRED   0 kind  1 zero  2 context u16
//!  FRAGMENT  0 kind  1 zero u24  4 stream u32        (where the transport has no streams)
//! ```
//!
//! An eager message has 16 bytes of header, so 40 bytes of payload share its 56-byte slot; a synchronous one 24 and 32.
//! Kinds up to 0x7f are free for what comes; refusals have a reason byte.

use mend_base::{ContextId, ContextKind, Identity, Key, Rank, Reader, Tag, Wire, Writer};
use mend_proto::identity::ContextName;
use mend_transport::{AmId, Limits, Stream};

/// The active-message id of everything that is sent from here.
pub const AM_ID: AmId = AmId(1);

/// A header in its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    bytes: [u8; Limits::HEADER_BYTES_MAX],
    used: u8,
}

impl Header {
    // Hot: per message.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.used)]
    }
}

/// The content of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packet {
    /// Takes part in matching.
    Message(Envelope),
    /// The sender has cancelled the RTS whose key the form holds: in the order of the channel's messages, behind that RTS.
    CancelRts(Envelope),
    /// Poison or an inquiry: about a collective operation, in the order of the channel's messages.
    AboutOperation(Envelope, Note),
    /// The RTS `key` is matched: its sender is to send `bytes_wanted` bytes as this stream.
    Cts { key: Key, stream: Stream, bytes_wanted: u64 },
    /// The receiver has taken so many bytes of the RTS `key` with its remote key, and takes no more.
    Fin { key: Key, bytes: u64 },
    /// So many bytes of this stream were sent, and no more will be: its sender has given it up.
    Cancel { stream: Stream, sent: u64 },
    /// The synchronous send is matched, or the RTS is and none of its bytes are wanted.
    Matched { key: Key },
    /// No receive will ever match the send, or no message will ever come for the receive of an inquiry.
    Refused { key: Key, reason: Reason },
    /// The writer, which has this rank, announces its context id of the channel, and the longest message that it accepts before a
    /// match.
    AnnounceContext { name: ContextName, context: ContextId, rank: Rank, eager_bytes: u32 },
    /// The writer has closed the channel: its id must not be used any more. The receiver answers `ContextRetired`.
    RetireContext { name: ContextName, context: ContextId, rank: Rank },
    /// The writer uses this id no more.
    ContextRetired { context: ContextId },
    /// A piece of a stream.
    Fragment { stream: Stream },
    /// From now on send RTSes only.
    Xoff,
    /// Eager messages may be sent again.
    Xon,
}

/// What matching compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Envelope {
    pub(crate) channel: ChannelName,
    pub(crate) sequence: u16,
    pub(crate) tag: Tag,
    pub(crate) source: Rank,
    pub(crate) form: Form,
}

/// In which communicator and context kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChannelName {
    Context(ContextId),
    Named(ContextName),
}

/// How the payload is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Behind the header, without an answer.
    Eager,
    /// Behind the header; the sender waits for the match.
    Synchronous { key: Key },
    /// Taken by the receiver, with the remote key in the payload, or sent as a stream, after the CTS.
    Rts { key: Key, bytes: u64 },
}

impl Form {
    /// The request that waits for an answer.
    pub(crate) fn request_awaiting_answer(self) -> Option<Key> {
        match self {
            Form::Eager => None,
            Form::Synchronous { key } | Form::Rts { key, .. } => Some(key),
        }
    }
}

/// What is sent about the collective operation that the tag of the envelope names. The envelope has the form of an eager message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Note {
    /// The sender has given the operation up, and sends nothing more for it, nor for later operations if `and_later`. `failed`: the failed
    /// member that is the cause.
    Poison { failed: Option<Rank>, and_later: bool },
    /// The receive `key` waits for a message of the operation from the receiver of the inquiry, and a member has failed.
    Inquiry { key: Key },
}

impl Note {
    /// The request that waits for an answer.
    pub(crate) fn request_awaiting_answer(self) -> Option<Key> {
        match self {
            Note::Poison { .. } => None,
            Note::Inquiry { key } => Some(key),
        }
    }

    fn kind(self) -> u8 {
        match self {
            Note::Poison { .. } => POISON,
            Note::Inquiry { .. } => INQUIRY,
        }
    }

    fn write(self, out: &mut Writer<'_>) {
        match self {
            Note::Poison { failed, and_later } => {
                write_failed(out, failed);
                out.u32(u32::from(and_later));
            }
            Note::Inquiry { key } => write_key(out, key),
        }
    }

    /// Behind the envelope.
    fn read(kind: u8, from: &mut Reader<'_>) -> Option<Self> {
        if kind == INQUIRY {
            return Some(Note::Inquiry { key: read_key(from)? });
        }
        let failed = read_failed(from)?;
        let and_later = from.u32()?;
        (and_later <= 1).then_some(Note::Poison { failed, and_later: and_later == 1 })
    }
}

/// Why no receive will match it, or no message will come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// The receiver has freed the communicator, or has no memory for it.
    Freed,
    /// The communicator is revoked at the receiver, or was when the receiver freed it.
    Revoked,
    /// The receiver never created the communicator, and will not.
    Unknown,
    /// The receiver has given up the collective operation, or will never begin it; the failed member that is the cause.
    GivenUp { failed: Option<Rank> },
    /// The answer to an inquiry: the operation will never begin here; the failed member that is the cause.
    NeverBegins { failed: Option<Rank> },
}

impl Reason {
    fn code(self) -> u8 {
        match self {
            Reason::Freed => FREED,
            Reason::Revoked => REVOKED,
            Reason::Unknown => UNKNOWN,
            Reason::GivenUp { .. } => GIVEN_UP,
            Reason::NeverBegins { .. } => NEVER_BEGINS,
        }
    }

    fn write(self, out: &mut Writer<'_>) {
        out.u8(self.code());
        out.u16(0);
        match self {
            Reason::Freed | Reason::Revoked | Reason::Unknown => out.u32(0),
            Reason::GivenUp { failed } | Reason::NeverBegins { failed } => write_failed(out, failed),
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let code = from.u8()?;
        zero(from, 2)?;
        match code {
            FREED => zero(from, 4).map(|()| Reason::Freed),
            REVOKED => zero(from, 4).map(|()| Reason::Revoked),
            UNKNOWN => zero(from, 4).map(|()| Reason::Unknown),
            GIVEN_UP => Some(Reason::GivenUp { failed: read_failed(from)? }),
            NEVER_BEGINS => Some(Reason::NeverBegins { failed: read_failed(from)? }),
            _ => None,
        }
    }
}

const FREED: u8 = 1;
const REVOKED: u8 = 2;
const UNKNOWN: u8 = 3;
const GIVEN_UP: u8 = 4;
const NEVER_BEGINS: u8 = 5;

const EAGER: u8 = 1;
const SYNCHRONOUS: u8 = 2;
const RTS: u8 = 3;
const CTS: u8 = 4;
const MATCHED: u8 = 5;
const REFUSED: u8 = 6;
const ANNOUNCE: u8 = 7;
const RETIRE: u8 = 8;
const RETIRED: u8 = 9;
const FRAGMENT: u8 = 10;
const XOFF: u8 = 11;
const XON: u8 = 12;
const CANCEL: u8 = 13;
const CANCEL_RTS: u8 = 14;
const POISON: u8 = 15;
const INQUIRY: u8 = 16;
const FIN: u8 = 17;
const NAMED: u8 = 0x80;

/// Header bytes of the commonest message.
pub(crate) const SHORT_BYTES: usize = 16;
/// What synchronous sends and RTSes add.
const KEY_BYTES: usize = 8;
/// What RTSes add besides.
const LENGTH_BYTES: usize = 8;
/// What the full identity adds.
const NAME_BYTES: usize = 8;

const _: () = assert!(SHORT_BYTES + KEY_BYTES <= 24);
const _: () = assert!(SHORT_BYTES + NAME_BYTES + KEY_BYTES + LENGTH_BYTES <= Limits::HEADER_BYTES_MAX);
const _: () = assert!(Limits::HEADER_BYTES_MAX == 40);

// Hot: per message.
/// The header of the commonest message: its context is known, and its sender waits for no answer.
#[inline]
pub(crate) fn eager(context: ContextId, sequence: u16, tag: Tag, source: Rank) -> [u8; SHORT_BYTES] {
    let word = u64::from(EAGER) | u64::from(context.0) << 16 | u64::from(sequence) << 32;
    let label = u64::from(tag.0 as u32) | u64::from(source.0) << 32;
    let mut bytes = [0; SHORT_BYTES];
    bytes[..8].copy_from_slice(&word.to_le_bytes());
    bytes[8..].copy_from_slice(&label.to_le_bytes());
    bytes
}

impl Packet {
    pub(crate) fn write(&self) -> Header {
        let mut bytes = [0; Limits::HEADER_BYTES_MAX];
        let mut out = Writer::new(&mut bytes);
        match *self {
            Packet::Message(envelope) => envelope.write(envelope.kind(), &mut out),
            Packet::CancelRts(envelope) => envelope.write(CANCEL_RTS, &mut out),
            Packet::AboutOperation(envelope, note) => {
                envelope.write(note.kind(), &mut out);
                note.write(&mut out);
            }
            Packet::Cts { key, stream, bytes_wanted } => {
                out.bytes(&[CTS, 0, 0, 0]);
                out.u32(stream.0);
                write_key(&mut out, key);
                out.u64(bytes_wanted);
            }
            Packet::Cancel { stream, sent } => {
                out.bytes(&[CANCEL, 0, 0, 0]);
                out.u32(stream.0);
                out.u64(sent);
            }
            Packet::Matched { key } => {
                out.bytes(&[MATCHED, 0, 0, 0, 0, 0, 0, 0]);
                write_key(&mut out, key);
            }
            Packet::Fin { key, bytes } => {
                out.bytes(&[FIN, 0, 0, 0, 0, 0, 0, 0]);
                write_key(&mut out, key);
                out.u64(bytes);
            }
            Packet::Refused { key, reason } => {
                out.u8(REFUSED);
                reason.write(&mut out);
                write_key(&mut out, key);
            }
            Packet::AnnounceContext { name, context, rank, eager_bytes } => {
                write_naming(&mut out, ANNOUNCE, name, context, rank);
                out.u32(eager_bytes);
            }
            Packet::RetireContext { name, context, rank } => {
                write_naming(&mut out, RETIRE, name, context, rank)
            }
            Packet::ContextRetired { context } => {
                out.bytes(&[RETIRED, 0]);
                out.u16(context.0);
            }
            Packet::Fragment { stream } => {
                out.bytes(&[FRAGMENT, 0, 0, 0]);
                out.u32(stream.0);
            }
            Packet::Xoff => out.u8(XOFF),
            Packet::Xon => out.u8(XON),
        }
        let used = out.used() as u8;
        Header { bytes, used }
    }

    // Hot: per message.
    /// The content of a private copy of a header; `None`: garbage.
    #[inline]
    pub(crate) fn read(header: &[u8]) -> Option<Packet> {
        if let Ok(bytes) = <&[u8; SHORT_BYTES]>::try_from(header)
            && bytes[0] == EAGER
        {
            return read_eager(bytes);
        }
        Self::read_any(header)
    }

    fn read_any(header: &[u8]) -> Option<Packet> {
        let mut from = Reader::new(header);
        let kind = from.u8()?;
        let packet = match kind {
            SYNCHRONOUS | RTS => Packet::Message(Envelope::read(kind, &mut from)?),
            POISON | INQUIRY => {
                Packet::AboutOperation(Envelope::read(EAGER, &mut from)?, Note::read(kind, &mut from)?)
            }
            _ if matches!(kind & !NAMED, POISON | INQUIRY) => Packet::AboutOperation(
                Envelope::read_named(EAGER, &mut from)?,
                Note::read(kind & !NAMED, &mut from)?,
            ),
            CANCEL_RTS => Packet::CancelRts(Envelope::read(SYNCHRONOUS, &mut from)?.without_tag()?),
            _ if kind == CANCEL_RTS | NAMED => {
                Packet::CancelRts(Envelope::read_named(SYNCHRONOUS, &mut from)?.without_tag()?)
            }
            _ if kind & NAMED != 0 => Packet::Message(Envelope::read_named(kind & !NAMED, &mut from)?),
            CTS => {
                zero(&mut from, 3)?;
                let stream = Stream(from.u32()?);
                Packet::Cts { stream, key: read_key(&mut from)?, bytes_wanted: from.u64()? }
            }
            CANCEL => {
                zero(&mut from, 3)?;
                Packet::Cancel { stream: Stream(from.u32()?), sent: from.u64()? }
            }
            MATCHED => {
                zero(&mut from, 7)?;
                Packet::Matched { key: read_key(&mut from)? }
            }
            FIN => {
                zero(&mut from, 7)?;
                Packet::Fin { key: read_key(&mut from)?, bytes: from.u64()? }
            }
            REFUSED => {
                let reason = Reason::read(&mut from)?;
                Packet::Refused { key: read_key(&mut from)?, reason }
            }
            ANNOUNCE => {
                let (name, context, rank) = read_naming(&mut from)?;
                Packet::AnnounceContext { name, context, rank, eager_bytes: from.u32()? }
            }
            RETIRE => {
                let (name, context, rank) = read_naming(&mut from)?;
                Packet::RetireContext { name, context, rank }
            }
            RETIRED => {
                zero(&mut from, 1)?;
                Packet::ContextRetired { context: ContextId(from.u16()?) }
            }
            FRAGMENT => {
                zero(&mut from, 3)?;
                Packet::Fragment { stream: Stream(from.u32()?) }
            }
            XOFF => Packet::Xoff,
            XON => Packet::Xon,
            _ => return None,
        };
        from.rest().is_empty().then_some(packet)
    }
}

impl Envelope {
    fn kind(&self) -> u8 {
        match self.form {
            Form::Eager => EAGER,
            Form::Synchronous { .. } => SYNCHRONOUS,
            Form::Rts { .. } => RTS,
        }
    }

    fn write(&self, kind: u8, out: &mut Writer<'_>) {
        match self.channel {
            ChannelName::Context(context) => {
                out.bytes(&[kind, 0]);
                out.u16(context.0);
                out.u16(self.sequence);
                out.u16(0);
                out.u32(self.tag.0 as u32);
                out.u32(self.source.0);
            }
            ChannelName::Named(name) => {
                out.u8(kind | NAMED);
                name.context_kind.write(out);
                out.u16(self.sequence);
                out.u32(self.tag.0 as u32);
                out.u32(self.source.0);
                name.identity.write(out);
            }
        }
        if let Some(key) = self.form.request_awaiting_answer() {
            write_key(out, key);
        }
        if let Form::Rts { bytes, .. } = self.form {
            out.u64(bytes);
        }
    }

    fn without_tag(self) -> Option<Self> {
        (self.tag == Tag(0)).then_some(self)
    }

    /// Behind the kind.
    fn read(kind: u8, from: &mut Reader<'_>) -> Option<Self> {
        zero(from, 1)?;
        let channel = ChannelName::Context(ContextId(from.u16()?));
        let sequence = from.u16()?;
        zero(from, 2)?;
        let (tag, source) = (read_tag(from)?, Rank(from.u32()?));
        Some(Envelope { channel, sequence, tag, source, form: read_form(kind, from)? })
    }

    /// Behind the kind.
    fn read_named(kind: u8, from: &mut Reader<'_>) -> Option<Self> {
        let context_kind = ContextKind::read(from)?;
        let sequence = from.u16()?;
        let (tag, source) = (read_tag(from)?, Rank(from.u32()?));
        let channel = ChannelName::Named(ContextName { context_kind, identity: Identity::read(from)? });
        Some(Envelope { channel, sequence, tag, source, form: read_form(kind, from)? })
    }
}

// Hot: per message.
/// Sequence number and tag of a message of the commonest kind from `source` in `context`; `None` of every other header.
#[inline(always)]
pub(crate) fn eager_of(header: &[u8], context: ContextId, source: Rank) -> Option<(u16, Tag)> {
    let bytes = <&[u8; SHORT_BYTES]>::try_from(header).ok()?;
    let word = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
    let label = u64::from_le_bytes(*bytes.last_chunk::<8>()?);
    let sequence = (word >> 32) as u16;
    let same = word as u32 == u32::from(EAGER) | u32::from(context.0) << 16
        && word >> 48 == 0
        && (label >> 32) as u32 == source.0;
    let tag = label as u32 as i32;
    (same && tag >= 0).then_some((sequence, Tag(tag)))
}

// Hot: per message.
#[inline]
fn read_eager(bytes: &[u8; SHORT_BYTES]) -> Option<Packet> {
    let word = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
    let label = u64::from_le_bytes(*bytes.last_chunk::<8>()?);
    let tag = label as u32 as i32;
    if word & 0xffff_0000_0000_ff00 != 0 || tag < 0 {
        return None;
    }
    Some(Packet::Message(Envelope {
        channel: ChannelName::Context(ContextId((word >> 16) as u16)),
        sequence: (word >> 32) as u16,
        tag: Tag(tag),
        source: Rank((label >> 32) as u32),
        form: Form::Eager,
    }))
}

fn read_form(kind: u8, from: &mut Reader<'_>) -> Option<Form> {
    Some(match kind {
        EAGER => Form::Eager,
        SYNCHRONOUS => Form::Synchronous { key: read_key(from)? },
        RTS => Form::Rts { key: read_key(from)?, bytes: from.u64()? },
        _ => return None,
    })
}

/// No rank: a group has fewer members.
const NOBODY: u32 = u32::MAX;

fn write_failed(out: &mut Writer<'_>, failed: Option<Rank>) {
    out.u32(failed.map_or(NOBODY, |rank| rank.0));
}

fn read_failed(from: &mut Reader<'_>) -> Option<Option<Rank>> {
    let rank = from.u32()?;
    Some((rank != NOBODY).then_some(Rank(rank)))
}

fn read_tag(from: &mut Reader<'_>) -> Option<Tag> {
    let tag = from.u32()? as i32;
    (tag >= 0).then_some(Tag(tag))
}

fn write_key(out: &mut Writer<'_>, key: Key) {
    out.u32(key.index);
    out.u32(key.generation);
}

fn read_key(from: &mut Reader<'_>) -> Option<Key> {
    Some(Key { index: from.u32()?, generation: from.u32()? })
}

fn write_naming(out: &mut Writer<'_>, kind: u8, name: ContextName, context: ContextId, rank: Rank) {
    out.u8(kind);
    name.context_kind.write(out);
    out.u16(context.0);
    name.identity.write(out);
    out.u32(rank.0);
}

fn read_naming(from: &mut Reader<'_>) -> Option<(ContextName, ContextId, Rank)> {
    let context_kind = ContextKind::read(from)?;
    let context = ContextId(from.u16()?);
    let name = ContextName { context_kind, identity: Identity::read(from)? };
    Some((name, context, Rank(from.u32()?)))
}

fn zero(from: &mut Reader<'_>, count: usize) -> Option<()> {
    from.bytes(count)?.iter().all(|&byte| byte == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::{ChannelName, Envelope, Form, Note, Packet, Reason, eager, eager_of};
    use mend_base::{ContextId, ContextKind, Identity, Key, Peer, Random, Rank, Tag};
    use mend_proto::identity::ContextName;
    use mend_transport::Stream;

    fn packets() -> Vec<Packet> {
        let key = Key { index: 0x0102_0304, generation: 0x0506_0709 };
        let identity = Identity { creator: Peer(0x1122_3344_5566_7788), number: 0x99aa_bbcc };
        let name = ContextName { identity, context_kind: ContextKind::Collective };
        let (context, rank, stream) = (ContextId(0x1234), Rank(0x0a0b_0c0d), Stream(0x4567_89ab));
        let forms = [Form::Eager, Form::Synchronous { key }, Form::Rts { key, bytes: 1 << 40 }];
        let mut packets: Vec<_> = [ChannelName::Context(context), ChannelName::Named(name)]
            .into_iter()
            .flat_map(|channel| forms.map(|form| (channel, form)))
            .map(|(channel, form)| {
                Packet::Message(Envelope {
                    channel,
                    sequence: 0xfedc,
                    tag: Tag(0x7123_4567),
                    source: rank,
                    form,
                })
            })
            .collect();
        let about = [
            Note::Poison { failed: Some(Rank(7)), and_later: false },
            Note::Poison { failed: None, and_later: true },
            Note::Inquiry { key },
        ];
        for channel in [ChannelName::Context(context), ChannelName::Named(name)] {
            for note in about {
                let (sequence, tag, form) = (7, Tag(9), Form::Eager);
                let envelope = Envelope { channel, sequence, tag, source: rank, form };
                packets.push(Packet::AboutOperation(envelope, note));
            }
            let form = Form::Synchronous { key };
            packets.push(Packet::CancelRts(Envelope {
                channel,
                sequence: 7,
                tag: Tag(0),
                source: rank,
                form,
            }));
        }
        packets.extend([
            Packet::Cts { key, stream, bytes_wanted: 1 << 50 },
            Packet::Cancel { stream, sent: 1 << 45 },
            Packet::Matched { key },
            Packet::Fin { key, bytes: 1 << 50 },
            Packet::Refused { key, reason: Reason::Freed },
            Packet::Refused { key, reason: Reason::Revoked },
            Packet::Refused { key, reason: Reason::Unknown },
            Packet::Refused { key, reason: Reason::GivenUp { failed: Some(Rank(0)) } },
            Packet::Refused { key, reason: Reason::GivenUp { failed: None } },
            Packet::Refused { key, reason: Reason::NeverBegins { failed: Some(Rank(5)) } },
            Packet::AnnounceContext { name, context, rank, eager_bytes: 4096 },
            Packet::RetireContext { name, context, rank },
            Packet::ContextRetired { context },
            Packet::Fragment { stream },
            Packet::Xoff,
            Packet::Xon,
        ]);
        packets
    }

    #[test]
    fn every_header_is_read_as_it_was_written_and_no_other_length_is_taken() {
        for packet in packets() {
            let header = packet.write();
            assert_eq!(Packet::read(header.as_bytes()), Some(packet));
            for length in 0..header.as_bytes().len() {
                assert_eq!(Packet::read(&header.as_bytes()[..length]), None, "{packet:?} at {length}");
            }
            let mut longer = header.as_bytes().to_vec();
            longer.push(0);
            assert_eq!(Packet::read(&longer), None, "{packet:?}");
        }
    }

    #[test]
    fn the_short_way_to_write_the_commonest_header_is_the_long_one() {
        let (context, tag, source) = (ContextId(77), Tag(i32::MAX), Rank(0xffff_fffe));
        let envelope =
            Envelope { channel: ChannelName::Context(context), sequence: 5, tag, source, form: Form::Eager };
        assert_eq!(eager(context, 5, tag, source)[..], *Packet::Message(envelope).write().as_bytes());
    }

    #[test]
    fn an_eager_header_is_recognised_only_with_its_own_context_and_source() {
        let (context, source) = (ContextId(0xfedc), Rank(0x8765_4321));
        let header = eager(context, 0xabcd, Tag(0x7fff_0001), source);
        assert_eq!(eager_of(&header, context, source), Some((0xabcd, Tag(0x7fff_0001))));
        assert_eq!(eager_of(&header, ContextId(0xfedd), source), None);
        assert_eq!(eager_of(&header, context, Rank(1)), None);
        for (at, change) in [(0, 2), (1, 1), (6, 1), (7, 0x80), (11, 0x80)] {
            let mut spoiled = header;
            spoiled[at] ^= change;
            assert_eq!(eager_of(&spoiled, context, source), None, "byte {at}");
        }
    }

    #[test]
    fn random_headers_are_refused_or_read_as_what_writes_them() {
        let mut random = Random(1);
        for _ in 0..20_000 {
            let length = random.below(41) as usize;
            let mut bytes: Vec<u8> = (0..length).map(|_| random.bits() as u8 & random.bits() as u8).collect();
            if let Some(first) = bytes.first_mut() {
                *first = *first & 0x80 | random.below(18) as u8;
            }
            if let Some(packet) = Packet::read(&bytes) {
                assert_eq!(packet.write().as_bytes(), bytes);
            }
        }
    }

    #[test]
    fn negative_tags_and_unknown_context_kinds_and_reasons_are_refused() {
        let mut short = eager(ContextId(1), 0, Tag(0), Rank(0));
        short[11] = 0x80;
        assert_eq!(Packet::read(&short), None);
        let named = packets()[3].write();
        let mut bytes = named.as_bytes().to_vec();
        for context_kind in [
            ContextKind::PointToPoint,
            ContextKind::Collective,
            ContextKind::Creation,
            ContextKind::Agreement,
            ContextKind::Leaders,
        ] {
            bytes[1] = context_kind as u8;
            assert!(Packet::read(&bytes).is_some(), "{context_kind:?}");
        }
        bytes[1] = 5;
        assert_eq!(Packet::read(&bytes), None);
        let key = Key { index: 1, generation: 1 };
        let mut bytes = Packet::Refused { key, reason: Reason::Freed }.write().as_bytes().to_vec();
        for unknown in [0, 6] {
            bytes[1] = unknown;
            assert_eq!(Packet::read(&bytes), None);
        }
    }
}
