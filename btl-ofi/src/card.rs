// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process advertises of this BTL: who it is in this life, and for each rail the provider and the address.

use mend_base::{Reader, Wire, Writer};
use mend_transport::Card;

/// Version of the entry and of the frames.
pub const LAYOUT: u8 = 2;

/// The entry in the business card.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CardEntry {
    /// A random number, drawn anew in each life of a process: a frame to an earlier process at the same address is not taken.
    pub instance: u64,
    /// The longest payload of a message that the process accepts.
    pub message_bytes_max: u32,
    /// The eager limit of the process.
    pub eager_bytes: u32,
    /// The longest chunk that the process accepts.
    pub chunk_bytes: u32,
    /// Provider and address, by rail.
    pub rails: Vec<(String, Vec<u8>)>,
}

impl Wire for CardEntry {
    const BYTES_MAX: usize = Card::ENTRY_BYTES_MAX;

    fn write(&self, out: &mut Writer<'_>) {
        out.u8(LAYOUT);
        out.u64(self.instance);
        [self.message_bytes_max, self.eager_bytes, self.chunk_bytes]
            .into_iter()
            .for_each(|word| out.u32(word));
        out.u8(self.rails.len() as u8);
        for (provider, name) in &self.rails {
            out.u8(provider.len() as u8);
            out.bytes(provider.as_bytes());
            out.u8(name.len() as u8);
            out.bytes(name);
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        if from.u8()? != LAYOUT {
            return None;
        }
        let instance = from.u64()?;
        let (message_bytes_max, eager_bytes, chunk_bytes) = (from.u32()?, from.u32()?, from.u32()?);
        let rails = (0..from.u8()?).map(|_| read_rail(from)).collect::<Option<_>>()?;
        Some(CardEntry { instance, message_bytes_max, eager_bytes, chunk_bytes, rails })
    }
}

fn read_rail(from: &mut Reader<'_>) -> Option<(String, Vec<u8>)> {
    let len = usize::from(from.u8()?);
    let provider = String::from_utf8(from.bytes(len)?.to_vec()).ok()?;
    let len = usize::from(from.u8()?);
    Some((provider, from.bytes(len)?.to_vec()))
}

impl CardEntry {
    /// Its length, in bytes.
    pub fn bytes(&self) -> usize {
        22 + self.rails.iter().map(|(provider, name)| 2 + provider.len() + name.len()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::CardEntry;
    use mend_base::{Reader, Wire, Writer};

    #[test]
    fn what_was_written_is_read_and_a_byte_less_is_refused() {
        let entry = CardEntry {
            instance: 7,
            message_bytes_max: 4096,
            eager_bytes: 2048,
            chunk_bytes: 4000,
            rails: vec![("net".to_owned(), vec![1; 16]), ("shm".to_owned(), b"fi_shm://1:2".to_vec())],
        };
        let mut bytes = [0; CardEntry::BYTES_MAX];
        entry.write(&mut Writer::new(&mut bytes));
        let bytes = &bytes[..entry.bytes()];
        assert_eq!(CardEntry::read(&mut Reader::new(bytes)), Some(entry));
        for len in 0..bytes.len() {
            assert_eq!(CardEntry::read(&mut Reader::new(&bytes[..len])), None, "{len} bytes");
        }
    }
}
