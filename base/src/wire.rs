// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes and reads messages: little-endian, with every length checked (Rule 11).

/// A message format. Every field is checked when it is read.
pub trait Wire: Sized {
    /// The most bytes that `write` produces.
    const BYTES_MAX: usize;

    /// Appends the message to `out`.
    fn write(&self, out: &mut Writer<'_>);

    /// Reads a message from the front of `from`; `None` if bytes are missing, or are not those of a correct writer.
    fn read(from: &mut Reader<'_>) -> Option<Self>;
}

/// Appends to a fixed buffer. Overrunning it is our own mistake and panics.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut [u8],
    used: usize,
}

impl<'a> Writer<'a> {
    /// A writer that begins at the front of `out`.
    pub fn new(out: &'a mut [u8]) -> Self {
        Writer { out, used: 0 }
    }

    /// Bytes written so far.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Appends `bytes` as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let end = self.used + bytes.len();
        self.out[self.used..end].copy_from_slice(bytes);
        self.used = end;
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    /// Appends 16 bits.
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    /// Appends 32 bits.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Appends 64 bits.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }
}

/// Reads from the front of a private copy of bytes that a peer wrote.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// What has not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    /// One byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// 16 bits.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{Reader, Wire, Writer};
    use crate::{Identity, Peer};

    #[test]
    fn what_was_written_is_read_and_a_byte_less_is_refused() {
        let identity = Identity { creator: Peer(0x1122_3344_5566_7788), number: 9 };
        let mut out = [0; Identity::BYTES_MAX];
        let mut writer = Writer::new(&mut out);
        identity.write(&mut writer);
        assert_eq!(writer.used(), Identity::BYTES_MAX);
        assert_eq!(Identity::read(&mut Reader::new(&out)), Some(identity));
        assert_eq!(Identity::read(&mut Reader::new(&out[..11])), None);
    }
}
