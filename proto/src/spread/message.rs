// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What members tell each other about the items of one communicator, and the format of it.

use super::Item;
use crate::ranks::{Ranks, SetHash};
use core::iter::Peekable;
use mend_base::{Rank, Reader, Writer};

/// A message of [`Spread`](super::Spread).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// Items, and what set the sender has.
    Items(Batch),
    /// The sender has freed the communicator, and forgets it or has forgotten it: its last message, and its answer to any
    /// [`Items`](Self::Items) after that. No message answers this one.
    Gone,
    /// [`Gone`](Self::Gone), and the communicator was revoked when the sender freed it.
    GoneRevoked,
}

/// Items that are new at the receiver in the view of the sender.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Batch {
    /// The first message of an enumeration of all items of the sender. Otherwise the items add to those that it sent before.
    pub(super) all: bool,
    pub(super) revoked: bool,
    pub(super) failed: Runs,
    /// The set of the sender, up to the items of this message.
    pub(super) digest: Digest,
    pub(super) want: Want,
}

/// What the sender wants to be sent. Ordered: the answer to a greater one answers a smaller one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Want {
    Nothing = 0,
    /// Any message, as each tells the digest of its sender.
    Answer = 1,
    /// All items, because the sender lacks some.
    All = 2,
}

/// Stands for a set of items: equal sets have equal digests, and different sets by chance only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Digest {
    hash: SetHash,
    /// The number of items, modulo 2^16.
    count: u16,
}

/// Up to three words for ranks in ascending order: a rank, or the first and the last rank of a run, so that a node of 128 ranks
/// takes two words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Runs {
    words: [u32; WORDS],
    used: u8,
}

const WORDS: usize = 3;
/// Marks the first rank of a run. No rank has this bit.
const RUN: u32 = 1 << 31;

impl Message {
    /// The most bytes of a message.
    pub const BYTES_MAX: usize = 1 + Digest::BYTES + WORDS * size_of::<u32>();

    /// Appends the message to `out`.
    pub fn write(&self, out: &mut Writer<'_>) {
        out.u8(self.first_byte());
        match self {
            Message::Items(batch) => {
                batch.digest.write(out);
                batch.failed.words().iter().for_each(|&word| out.u32(word));
            }
            Message::Gone | Message::GoneRevoked => {}
        }
    }

    /// Reads a message from the front of `from`; `None` if bytes are missing, or are not those of a correct writer.
    pub fn read(from: &mut Reader<'_>) -> Option<Self> {
        let first = from.u8()?;
        let message = match first & bits::KIND {
            bits::ITEMS => Message::Items(Batch {
                all: first & bits::ALL != 0,
                revoked: first & bits::REVOKED != 0,
                want: Want::read((first & bits::WANT) >> bits::WANT_SHIFT)?,
                digest: Digest::read(from)?,
                failed: Runs::read(usize::from(first >> bits::WORDS_SHIFT), from)?,
            }),
            bits::GONE if first & bits::REVOKED != 0 => Message::GoneRevoked,
            bits::GONE => Message::Gone,
            _ => return None,
        };
        (message.first_byte() == first).then_some(message)
    }

    fn first_byte(&self) -> u8 {
        let when = |condition: bool, bit: u8| if condition { bit } else { 0 };
        match self {
            Message::Items(batch) => {
                let flags = when(batch.revoked, bits::REVOKED) | when(batch.all, bits::ALL);
                let want = (batch.want as u8) << bits::WANT_SHIFT;
                bits::ITEMS | flags | want | batch.failed.used << bits::WORDS_SHIFT
            }
            Message::Gone => bits::GONE,
            Message::GoneRevoked => bits::GONE | bits::REVOKED,
        }
    }
}

/// The first byte of a message.
mod bits {
    pub(super) const KIND: u8 = 0b11;
    pub(super) const ITEMS: u8 = 0;
    pub(super) const GONE: u8 = 1;
    pub(super) const REVOKED: u8 = 1 << 2;
    pub(super) const ALL: u8 = 1 << 3;
    pub(super) const WANT: u8 = 0b11 << WANT_SHIFT;
    pub(super) const WANT_SHIFT: u32 = 4;
    pub(super) const WORDS_SHIFT: u32 = 6;
}

impl Batch {
    /// Whether all its ranks are members of a communicator of `size` members.
    pub(super) fn fits(&self, size: u32) -> bool {
        self.failed.last().is_none_or(|last| last.0 < size)
    }

    /// What the message tells.
    pub fn items(&self) -> impl Iterator<Item = Item> + use<> {
        let revoked = self.revoked.then_some(Item::Revoked);
        revoked.into_iter().chain(self.failed.iter().map(Item::Failed))
    }
}

impl Want {
    fn read(bits: u8) -> Option<Self> {
        [Want::Nothing, Want::Answer, Want::All].get(usize::from(bits)).copied()
    }
}

impl Digest {
    const BYTES: usize = size_of::<u64>() + size_of::<u16>();

    pub(super) fn with(self, item: Item) -> Self {
        let code = match item {
            Item::Revoked => u64::MAX,
            Item::Failed(rank) => u64::from(rank.0),
        };
        Digest { hash: self.hash.with(code), count: self.count.wrapping_add(1) }
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.u64(self.hash.0);
        out.u16(self.count);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(Digest { hash: SetHash(from.u64()?), count: from.u16()? })
    }
}

impl Runs {
    /// Takes as many ranks from the front of `ranks` as fit.
    pub(super) fn take(ranks: &mut Peekable<impl Iterator<Item = Rank>>) -> Self {
        let mut runs = Runs::default();
        while usize::from(runs.used) < WORDS
            && let Some(first) = ranks.next()
        {
            let mut last = first;
            let is_room_for_run = usize::from(runs.used) + 2 <= WORDS;
            while is_room_for_run && ranks.next_if_eq(&Rank(last.0 + 1)).is_some() {
                last.0 += 1;
            }
            if last == first {
                runs.push(first.0);
            } else {
                runs.push(first.0 | RUN);
                runs.push(last.0);
            }
        }
        runs
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Rank> + use<> {
        let Runs { words, used } = *self;
        let mut at = 0;
        let runs = core::iter::from_fn(move || {
            let word = (at < usize::from(used)).then(|| words[at])?;
            at += 1;
            if word & RUN == 0 {
                return Some(word..=word);
            }
            at += 1;
            Some(word & !RUN..=words[at - 1])
        });
        runs.flatten().map(Rank)
    }

    fn last(&self) -> Option<Rank> {
        self.words().last().copied().map(Rank)
    }

    fn words(&self) -> &[u32] {
        &self.words[..usize::from(self.used)]
    }

    fn push(&mut self, word: u32) {
        self.words[usize::from(self.used)] = word;
        self.used += 1;
    }

    fn read(used: usize, from: &mut Reader<'_>) -> Option<Self> {
        let mut runs = Runs::default();
        for _ in 0..used {
            runs.push(from.u32()?);
        }
        let ascend = runs.words().windows(2).all(|pair| pair[0] & !RUN < pair[1] & !RUN);
        // A run ends with a plain word.
        let pairs = runs.words().windows(2).all(|pair| pair[0] & pair[1] & RUN == 0);
        let ends = runs.last().is_none_or(|last| last.0 & RUN == 0);
        (ascend && pairs && ends).then_some(runs)
    }
}

impl FromIterator<Rank> for Runs {
    fn from_iter<I: IntoIterator<Item = Rank>>(ranks: I) -> Self {
        Runs::take(&mut ranks.into_iter().peekable())
    }
}

/// The two sets.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Items {
    pub(super) revoked: bool,
    pub(super) failed: Ranks,
}

impl Items {
    pub(super) fn insert(&mut self, item: Item) -> bool {
        match item {
            Item::Revoked => !core::mem::replace(&mut self.revoked, true),
            Item::Failed(rank) => self.failed.insert(rank),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.revoked && self.failed.is_empty()
    }

    /// Removes all items, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.revoked = false;
        self.failed.clear();
    }

    /// Calls `visit` with the messages that carry these items on top of a set with digest `base`: at least one. The last has
    /// the `want`.
    pub(super) fn batches(&self, base: Digest, all: bool, want: Want, mut visit: impl FnMut(Batch)) {
        let mut ranks = self.failed.iter().peekable();
        let mut batch =
            Batch { all, revoked: self.revoked, failed: Runs::default(), digest: base, want: Want::Nothing };
        loop {
            batch.failed = Runs::take(&mut ranks);
            batch.digest = batch.items().fold(batch.digest, Digest::with);
            if ranks.peek().is_none() {
                return visit(Batch { want, ..batch });
            }
            visit(batch);
            (batch.all, batch.revoked) = (false, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Item;
    use super::{Batch, Digest, Items, Message, Runs, Want};
    use mend_base::{Random, Rank, Reader, Writer};

    fn written(message: Message) -> Vec<u8> {
        let mut bytes = [0; Message::BYTES_MAX];
        let mut writer = Writer::new(&mut bytes);
        message.write(&mut writer);
        let used = writer.used();
        bytes[..used].to_vec()
    }

    #[test]
    fn what_was_written_is_read_and_a_byte_less_is_refused() {
        let digest = Digest::default().with(Item::Revoked).with(Item::Failed(Rank(7)));
        let mut messages = vec![Message::Gone, Message::GoneRevoked];
        for revoked in [false, true] {
            for (want, all) in [(Want::Nothing, true), (Want::Answer, false), (Want::All, true)] {
                for ranks in [&[][..], &[5], &[1, 2], &[1, 2, 3, 4, 9], &[1, 4, 9], &[1, 4, 5]] {
                    let failed = ranks.iter().copied().map(Rank).collect();
                    messages.push(Message::Items(Batch { all, revoked, failed, digest, want }));
                }
            }
        }
        for message in messages {
            let bytes = written(message);
            assert!(bytes.len() <= Message::BYTES_MAX);
            assert_eq!(Message::read(&mut Reader::new(&bytes)), Some(message));
            assert_eq!(Message::read(&mut Reader::new(&bytes[..bytes.len() - 1])), None, "{message:?}");
        }
        assert_eq!(Message::BYTES_MAX, 23);
    }

    #[test]
    fn bytes_that_no_correct_writer_writes_are_refused_or_harmless() {
        let mut random = Random(1);
        let mut read = 0;
        for _ in 0..200_000 {
            let bytes: Vec<u8> = (0..Message::BYTES_MAX).map(|_| random.bits() as u8).collect();
            let mut reader = Reader::new(&bytes);
            if let Some(message) = Message::read(&mut reader) {
                read += 1;
                let length = bytes.len() - reader.rest().len();
                assert_eq!(written(message), bytes[..length], "one form for each message");
                if let Message::Items(batch) = message
                    && batch.fits(1_000)
                {
                    assert!(batch.failed.iter().all(|rank| rank.0 < 1_000));
                }
            }
        }
        assert!(read > 1_000, "{read}");
    }

    #[test]
    fn items_are_split_into_batches_whose_digests_add_up() {
        let mut random = Random(2);
        for round in 0..2_000 {
            let mut items = Items::default();
            for _ in 0..random.below(20) {
                items.insert(Item::Failed(Rank(random.below(40) as u32)));
            }
            items.revoked = round % 2 == 0;
            let (mut read, mut digest, mut count) = (Items::default(), Digest::default(), 0);
            items.batches(digest, true, Want::All, |batch| {
                assert_eq!(batch.all, count == 0);
                for item in batch.items() {
                    assert!(read.insert(item), "{item:?} twice");
                    digest = digest.with(item);
                }
                assert_eq!(batch.digest, digest);
                count += 1;
            });
            assert_eq!(read, items);
            assert!(count >= 1 && count <= 1 + items.failed.len() / 2);
        }
    }

    #[test]
    fn a_node_of_128_ranks_is_one_message() {
        let items = Items { revoked: true, failed: (256..384).map(Rank).collect() };
        let mut count = 0;
        items.batches(Digest::default(), false, Want::Nothing, |_| count += 1);
        assert_eq!(count, 1);
        assert_eq!((256..384).map(Rank).collect::<Runs>().iter().count(), 128);
    }

    // a collision of hashes is found by the count, if the counts differ.
    #[test]
    fn sets_with_equal_hashes_and_different_counts_are_different() {
        let one = Digest::default().with(Item::Revoked);
        assert_ne!(one, Digest { count: 2, ..one });
        assert_ne!(one, Digest::default().with(Item::Failed(Rank(u32::MAX))));
    }
}
