// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Headers: what travels before the payload. Little-endian; a header has exactly the length of its kind, and fields
//! without a meaning are zero. The layout belongs to `Card::LAYOUT`.
//!
//! ```text
//! messages, by the receiver's context id               messages, by full identity (first contact)
//!  0 kind  1 zero  2 context u16                        0 kind | 0x80  1 context kind  2 sequence u16
//!  4 sequence u16  6 zero u16                           4 tag i32   8 source rank u32
//!  8 tag i32      12 source rank u32                   12 identity (creator u64, number u32)
//! 16 sender's request key u64        synchronous, offer 24 sender's request key u64
//! 24 bytes u64                                   offer 32 bytes u64
//!
//! answers (Class::Control)
//!  ACCEPT   0 kind  1 zero u24  4 stream u32  8 sender's key u64  16 bytes wanted u64
//!  MATCHED  0 kind  1 zero u56                8 sender's key u64
//!  REFUSED  0 kind  1 reason u8  2 zero u48   8 sender's key u64
//!  TELL     0 kind  1 context kind  2 context u16  4 identity  16 rank of the teller u32  20 its eager limit u32
//!  RETIRE   0 kind  1 context kind  2 context u16  4 identity  16 rank of the teller u32
//!  CUT      0 kind  1 zero u24  4 stream u32  8 bytes sent u64
//!  HOLD, GO 0 kind
//! in the order of the messages
//!  RETIRED  0 kind  1 zero  2 context u16
//!  FRAGMENT 0 kind  1 zero u24  4 stream u32        (where the transport has no streams)
//! ```
//!
//! An eager message has 16 bytes of header, so 40 bytes of payload share its 56-byte slot; a synchronous one 24 and 32.
//! Kinds up to 0x7f are free for what comes (revoke); refusals have a reason byte.

use mend_base::{ContextId, ContextKind, Identity, Key, Rank, Reader, Tag, Wire, Writer};
use mend_proto::identity::Name;
use mend_transport::{Limits, Stream};

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

/// What a header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packet {
    /// Takes part in matching.
    Message(Envelope),
    /// Your offer is matched: send me `wanted` bytes as this stream.
    Cts { key: Key, stream: Stream, wanted: u64 },
    /// I have sent so many bytes of this stream of yours, and will send no more: I have given it up.
    Cancel { stream: Stream, sent: u64 },
    /// Your synchronous send is matched, or I want none of your offer's bytes.
    Matched { key: Key },
    /// Nobody will ever match it here.
    Refused { key: Key, reason: Reason },
    /// Call this so when you write to me; I am this rank, and take so much before a match.
    AnnounceContext { name: Name, context: ContextId, rank: Rank, eager_bytes: u32 },
    /// Do not call it so any more, and say so.
    RetireContext { name: Name, context: ContextId, rank: Rank },
    /// I call nothing so any more.
    ContextRetired { context: ContextId },
    /// A piece of a stream.
    Fragment { stream: Stream },
    /// Send nothing before a match.
    Xoff,
    /// Send before the match again.
    Xon,
}

/// What matching looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Envelope {
    pub(crate) place: Place,
    pub(crate) sequence: u16,
    pub(crate) tag: Tag,
    pub(crate) source: Rank,
    pub(crate) form: Form,
}

/// In which communicator and context kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Context(ContextId),
    Named(Name),
}

/// How the bytes come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Behind the header; nobody waits for an answer.
    Eager,
    /// Behind the header; the sender waits for the match.
    Synchronous { key: Key },
    /// When they are asked for.
    Rts { key: Key, bytes: u64 },
}

impl Form {
    /// The request that waits for an answer.
    pub(crate) fn waits(self) -> Option<Key> {
        match self {
            Form::Eager => None,
            Form::Synchronous { key } | Form::Rts { key, .. } => Some(key),
        }
    }
}

/// Why nobody will match it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Reason {
    /// The receiver has freed the communicator, or given up the operation.
    Freed = 1,
}

const EAGER: u8 = 1;
const SYNCHRONOUS: u8 = 2;
const OFFER: u8 = 3;
const ACCEPT: u8 = 4;
const MATCHED: u8 = 5;
const REFUSED: u8 = 6;
const TELL: u8 = 7;
const RETIRE: u8 = 8;
const RETIRED: u8 = 9;
const FRAGMENT: u8 = 10;
const HOLD: u8 = 11;
const GO: u8 = 12;
const CUT: u8 = 13;
const NAMED: u8 = 0x80;

/// Header bytes of the commonest message.
const SHORT_BYTES: usize = 16;
/// What synchronous sends and offers add.
const KEY_BYTES: usize = 8;
/// What offers add besides.
const LENGTH_BYTES: usize = 8;
/// What the full identity adds.
const NAME_BYTES: usize = 8;

const _: () = assert!(SHORT_BYTES + KEY_BYTES <= 24);
const _: () = assert!(SHORT_BYTES + NAME_BYTES + KEY_BYTES + LENGTH_BYTES <= Limits::HEADER_BYTES_MAX);
const _: () = assert!(Limits::HEADER_BYTES_MAX == 40);

// Hot: per message.
/// The header of the commonest message: its context is known, and nobody waits for an answer.
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
            Packet::Message(envelope) => envelope.write(&mut out),
            Packet::Cts { key, stream, wanted } => {
                out.bytes(&[ACCEPT, 0, 0, 0]);
                out.u32(stream.0);
                write_key(&mut out, key);
                out.u64(wanted);
            }
            Packet::Cancel { stream, sent } => {
                out.bytes(&[CUT, 0, 0, 0]);
                out.u32(stream.0);
                out.u64(sent);
            }
            Packet::Matched { key } => {
                out.bytes(&[MATCHED, 0, 0, 0, 0, 0, 0, 0]);
                write_key(&mut out, key);
            }
            Packet::Refused { key, reason } => {
                out.bytes(&[REFUSED, reason as u8, 0, 0, 0, 0, 0, 0]);
                write_key(&mut out, key);
            }
            Packet::AnnounceContext { name, context, rank, eager_bytes } => {
                write_naming(&mut out, TELL, name, context, rank);
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
            Packet::Xoff => out.u8(HOLD),
            Packet::Xon => out.u8(GO),
        }
        let used = out.used() as u8;
        Header { bytes, used }
    }

    // Hot: per message.
    /// What a private copy of a header says; `None`: no correct peer writes that.
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
            SYNCHRONOUS | OFFER => Packet::Message(Envelope::read(kind, &mut from)?),
            _ if kind & NAMED != 0 => Packet::Message(Envelope::read_named(kind & !NAMED, &mut from)?),
            ACCEPT => {
                zero(&mut from, 3)?;
                let stream = Stream(from.u32()?);
                Packet::Cts { stream, key: read_key(&mut from)?, wanted: from.u64()? }
            }
            CUT => {
                zero(&mut from, 3)?;
                Packet::Cancel { stream: Stream(from.u32()?), sent: from.u64()? }
            }
            MATCHED => {
                zero(&mut from, 7)?;
                Packet::Matched { key: read_key(&mut from)? }
            }
            REFUSED => {
                let reason = (from.u8()? == Reason::Freed as u8).then_some(Reason::Freed)?;
                zero(&mut from, 6)?;
                Packet::Refused { key: read_key(&mut from)?, reason }
            }
            TELL => {
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
            HOLD => Packet::Xoff,
            GO => Packet::Xon,
            _ => return None,
        };
        from.rest().is_empty().then_some(packet)
    }
}

impl Envelope {
    fn write(&self, out: &mut Writer<'_>) {
        let kind = match self.form {
            Form::Eager => EAGER,
            Form::Synchronous { .. } => SYNCHRONOUS,
            Form::Rts { .. } => OFFER,
        };
        match self.place {
            Place::Context(context) => {
                out.bytes(&[kind, 0]);
                out.u16(context.0);
                out.u16(self.sequence);
                out.u16(0);
                out.u32(self.tag.0 as u32);
                out.u32(self.source.0);
            }
            Place::Named(name) => {
                out.u8(kind | NAMED);
                name.context_kind.write(out);
                out.u16(self.sequence);
                out.u32(self.tag.0 as u32);
                out.u32(self.source.0);
                name.identity.write(out);
            }
        }
        if let Some(key) = self.form.waits() {
            write_key(out, key);
        }
        if let Form::Rts { bytes, .. } = self.form {
            out.u64(bytes);
        }
    }

    /// Behind the kind.
    fn read(kind: u8, from: &mut Reader<'_>) -> Option<Self> {
        zero(from, 1)?;
        let place = Place::Context(ContextId(from.u16()?));
        let sequence = from.u16()?;
        zero(from, 2)?;
        let (tag, source) = (read_tag(from)?, Rank(from.u32()?));
        Some(Envelope { place, sequence, tag, source, form: read_form(kind, from)? })
    }

    /// Behind the kind.
    fn read_named(kind: u8, from: &mut Reader<'_>) -> Option<Self> {
        let context_kind = ContextKind::read(from)?;
        let sequence = from.u16()?;
        let (tag, source) = (read_tag(from)?, Rank(from.u32()?));
        let place = Place::Named(Name { context_kind, identity: Identity::read(from)? });
        Some(Envelope { place, sequence, tag, source, form: read_form(kind, from)? })
    }
}

// Hot: per message.
/// The tag of the header that [`eager`] makes of these; `None` of every other header.
#[inline]
pub(crate) fn eager_tag(header: &[u8], context: ContextId, sequence: u16, source: Rank) -> Option<Tag> {
    let bytes = <&[u8; SHORT_BYTES]>::try_from(header).ok()?;
    let expected = eager(context, sequence, Tag(0), source);
    let tag = i32::from_le_bytes(*bytes[8..].first_chunk()?);
    let same = bytes[..8] == expected[..8] && bytes[12..] == expected[12..];
    (same && tag >= 0).then_some(Tag(tag))
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
        place: Place::Context(ContextId((word >> 16) as u16)),
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
        OFFER => Form::Rts { key: read_key(from)?, bytes: from.u64()? },
        _ => return None,
    })
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

fn write_naming(out: &mut Writer<'_>, kind: u8, name: Name, context: ContextId, rank: Rank) {
    out.u8(kind);
    name.context_kind.write(out);
    out.u16(context.0);
    name.identity.write(out);
    out.u32(rank.0);
}

fn read_naming(from: &mut Reader<'_>) -> Option<(Name, ContextId, Rank)> {
    let context_kind = ContextKind::read(from)?;
    let context = ContextId(from.u16()?);
    let name = Name { context_kind, identity: Identity::read(from)? };
    Some((name, context, Rank(from.u32()?)))
}

fn zero(from: &mut Reader<'_>, count: usize) -> Option<()> {
    from.bytes(count)?.iter().all(|&byte| byte == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::{Envelope, Form, Packet, Place, Reason, eager};
    use mend_base::{ContextId, ContextKind, Identity, Key, Peer, Random, Rank, Tag};
    use mend_proto::identity::Name;
    use mend_transport::Stream;

    fn packets() -> Vec<Packet> {
        let key = Key { index: 0x0102_0304, generation: 0x0506_0709 };
        let identity = Identity { creator: Peer(0x1122_3344_5566_7788), number: 0x99aa_bbcc };
        let name = Name { identity, context_kind: ContextKind::Collective };
        let (context, rank, stream) = (ContextId(0x1234), Rank(0x0a0b_0c0d), Stream(0x4567_89ab));
        let forms = [Form::Eager, Form::Synchronous { key }, Form::Rts { key, bytes: 1 << 40 }];
        let mut packets: Vec<_> = [Place::Context(context), Place::Named(name)]
            .into_iter()
            .flat_map(|place| forms.map(|form| (place, form)))
            .map(|(place, form)| {
                Packet::Message(Envelope {
                    place,
                    sequence: 0xfedc,
                    tag: Tag(0x7123_4567),
                    source: rank,
                    form,
                })
            })
            .collect();
        packets.extend([
            Packet::Cts { key, stream, wanted: 1 << 50 },
            Packet::Cancel { stream, sent: 1 << 45 },
            Packet::Matched { key },
            Packet::Refused { key, reason: Reason::Freed },
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
            Envelope { place: Place::Context(context), sequence: 5, tag, source, form: Form::Eager };
        assert_eq!(eager(context, 5, tag, source)[..], *Packet::Message(envelope).write().as_bytes());
    }

    #[test]
    fn random_headers_are_refused_or_read_as_what_writes_them() {
        let mut random = Random(1);
        for _ in 0..20_000 {
            let length = random.below(41) as usize;
            let mut bytes: Vec<u8> = (0..length).map(|_| random.bits() as u8 & random.bits() as u8).collect();
            if let Some(first) = bytes.first_mut() {
                *first = *first & 0x80 | random.below(15) as u8;
            }
            if let Some(packet) = Packet::read(&bytes) {
                assert_eq!(packet.write().as_bytes(), bytes);
            }
        }
    }

    #[test]
    fn negative_tags_and_unknown_planes_are_refused() {
        let mut short = eager(ContextId(1), 0, Tag(0), Rank(0));
        short[11] = 0x80;
        assert_eq!(Packet::read(&short), None);
        let named = packets()[3].write();
        let mut bytes = named.as_bytes().to_vec();
        assert!(Packet::read(&bytes).is_some());
        bytes[1] = 2;
        assert_eq!(Packet::read(&bytes), None);
    }
}
