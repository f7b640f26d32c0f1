// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The header of every frame: what one BTL sends to the other in one message of libfabric.
//!
//! ```text
//!   0        8          12             16                20    21  22            23     24             28      32
//!   │ tag    │ sequence │ data_acked   │ control_acked   │kind │id │header_bytes │flags │ payload_bytes│ probe │ header, payload
//! ```

use mend_base::{Reader, Writer};

/// The length of the header, in bytes.
pub const HEADER_BYTES: usize = 32;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A message of class data.
    Data = 1,
    /// A chunk of a stream; the header is the stream's number.
    Chunk = 2,
    /// A piece of an emulated put, which goes behind data.
    Piece = 3,
    /// A message of class control.
    Control = 4,
    /// A message of class mailbox.
    Mailbox = 5,
    /// A request or an answer of an emulated operation.
    Remote = 6,
    /// Asks for an answer, and says at which address the sender is.
    Probe = 7,
    /// Answers a probe, or tells without one how far frames have arrived.
    Answer = 8,
}

/// The two sequences of frames of a connection; control frames never wait behind data frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum FrameClass {
    /// Data, chunks, pieces.
    Data = 0,
    /// Control messages, mailboxes, emulated operations.
    Control = 1,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        use Kind::{Answer, Chunk, Control, Data, Mailbox, Piece, Probe, Remote};
        [Data, Chunk, Piece, Control, Mailbox, Remote, Probe, Answer]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    /// The sequence that the frame belongs to; `None`: probes and answers are in none, and may be lost.
    pub fn class(self) -> Option<FrameClass> {
        match self {
            Kind::Data | Kind::Chunk | Kind::Piece => Some(FrameClass::Data),
            Kind::Control | Kind::Mailbox | Kind::Remote => Some(FrameClass::Control),
            Kind::Probe | Kind::Answer => None,
        }
    }
}

/// The flag of an answer: a frame is missing, so those from the acknowledged ones on must be sent again.
pub const FLAG_GAP: u8 = 1;

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// Names sender and receiver, each in this life of its process: [`tag`].
    pub tag: u64,
    /// The number of the frame in its class.
    pub sequence: u32,
    /// For each class, the number of the next frame that the sender of this one expects.
    pub acknowledged: [u32; 2],
    /// What it is.
    pub kind: Kind,
    /// The active-message id.
    pub id: u8,
    /// The length of the message's header.
    pub header_bytes: u8,
    /// [`FLAG_GAP`].
    pub flags: u8,
    /// The length of the payload.
    pub payload_bytes: u32,
    /// The number of a probe, or of the probe that is answered; 0: none.
    pub probe: u32,
}

impl FrameHeader {
    /// Writes it to the front of `out`.
    pub fn write(&self, out: &mut [u8]) {
        let mut writer = Writer::new(out);
        writer.u64(self.tag);
        writer.u32(self.sequence);
        self.acknowledged.iter().for_each(|&next| writer.u32(next));
        writer.u8(self.kind as u8);
        writer.u8(self.id);
        writer.u8(self.header_bytes);
        writer.u8(self.flags);
        writer.u32(self.payload_bytes);
        writer.u32(self.probe);
    }

    /// The tag of a frame; `None`: it is too short for one.
    pub fn tag_of(frame: &[u8]) -> Option<u64> {
        if frame.len() < HEADER_BYTES { None } else { Reader::new(frame).u64() }
    }

    /// Reads it, and splits what follows into header and payload.
    pub fn read(frame: &[u8]) -> Result<(FrameHeader, &[u8], &[u8]), Malformed> {
        let mut reader = Reader::new(frame);
        let header = Self::read_fields(&mut reader).ok_or(Malformed::Garbage)?;
        let mut rest = Reader::new(reader.rest());
        let missing = Malformed::Truncated;
        let own = rest.bytes(usize::from(header.header_bytes)).ok_or(missing)?;
        let payload = rest.bytes(header.payload_bytes as usize).ok_or(missing)?;
        if rest.rest().is_empty() { Ok((header, own, payload)) } else { Err(Malformed::Garbage) }
    }

    fn read_fields(reader: &mut Reader<'_>) -> Option<FrameHeader> {
        Some(FrameHeader {
            tag: reader.u64()?,
            sequence: reader.u32()?,
            acknowledged: [reader.u32()?, reader.u32()?],
            kind: Kind::from_byte(reader.u8()?)?,
            id: reader.u8()?,
            header_bytes: reader.u8()?,
            flags: reader.u8()?,
            payload_bytes: reader.u32()?,
            probe: reader.u32()?,
        })
    }
}

/// Why a frame is not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// Its end is missing: the provider has cut it, so it counts as lost.
    Truncated,
    /// No correct peer sends it.
    Garbage,
}

/// The tag of the frames from the process with one instance number to that with another. Instances are random numbers of 64 bits, one for each
/// life of a process, so a frame to an earlier life, or from one, is not taken for another's.
pub fn tag(from: u64, to: u64) -> u64 {
    mix(from ^ mix(to).rotate_left(17))
}

/// The finalizer of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::{FrameClass, FrameHeader, HEADER_BYTES, Kind, Malformed, tag};

    fn header() -> FrameHeader {
        FrameHeader {
            tag: 0x1122_3344_5566_7788,
            sequence: 9,
            acknowledged: [3, u32::MAX],
            kind: Kind::Control,
            id: 7,
            header_bytes: 2,
            flags: 1,
            payload_bytes: 3,
            probe: 77,
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let mut frame = [0; HEADER_BYTES + 5];
        header().write(&mut frame);
        frame[HEADER_BYTES..].copy_from_slice(b"hepay");
        assert_eq!(FrameHeader::read(&frame), Ok((header(), &b"he"[..], &b"pay"[..])));
        assert_eq!(FrameHeader::tag_of(&frame), Some(header().tag));
        assert_eq!(FrameHeader::tag_of(&frame[..HEADER_BYTES - 1]), None);
    }

    #[test]
    fn a_frame_that_was_cut_differs_from_garbage() {
        let mut frame = [0; HEADER_BYTES + 6];
        header().write(&mut frame);
        assert_eq!(FrameHeader::read(&frame[..HEADER_BYTES + 4]), Err(Malformed::Truncated));
        assert_eq!(FrameHeader::read(&frame), Err(Malformed::Garbage), "a byte too many");
        frame[20] = 99;
        assert_eq!(FrameHeader::read(&frame[..HEADER_BYTES + 5]), Err(Malformed::Garbage), "no such kind");
    }

    #[test]
    fn control_frames_are_not_behind_data_frames() {
        assert_eq!(Kind::Chunk.class(), Some(FrameClass::Data));
        assert_eq!(Kind::Mailbox.class(), Some(FrameClass::Control));
        assert_eq!(Kind::Probe.class(), None);
    }

    #[test]
    fn tags_differ_by_direction_and_by_life() {
        let all = [tag(1, 2), tag(2, 1), tag(1, 3), tag(3, 2), tag(0, 0)];
        let distinct: std::collections::BTreeSet<_> = all.into_iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
