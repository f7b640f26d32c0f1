// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How communicators are made without agreeing on a number (facts 7.3): the identity is drawn by one member and travels
//! with the exchange that the call needs anyway. Members that are ahead send at once; where the communicator is not
//! born yet, their messages wait for it under its identity.
//!
//! Values only: the engine runs the exchange, as a collective operation on the parent's own plane.

use crate::Detail;
use mend_base::{Identity, Rank, Reader, Writer};
use mend_coll::Collective;
use mend_comm::{Communicator, Group};
use mend_datatype::Typed;
use mend_transport::{Buffer, UserMemory};
use std::sync::Arc;

/// A communicator being made: what is exchanged, and so what decides who is in it.
#[derive(Debug)]
pub(crate) enum Birth {
    /// Rank 0 tells its number (MPI-5.0 §7.4.2, MPI_COMM_DUP).
    Dup { words: Arc<Buffer> },
    /// Everybody tells color, key and number (MPI_COMM_SPLIT, MPI_COMM_CREATE).
    Split { words: Arc<Buffer>, mine: Word },
}

/// What one member tells about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word {
    /// Which of the new communicators; `None`: none of them (`MPI_UNDEFINED`).
    pub color: Option<u32>,
    /// Where in it; among equals the rank in the parent decides.
    pub key: i32,
    /// The identity's number, should this member be the one to name it.
    pub number: u32,
}

/// A communicator that was made, as this process sees it.
#[derive(Debug)]
pub(crate) struct Born {
    /// As a value.
    pub communicator: Communicator,
    /// The ranks in the parent, in order; `None`: exactly the parent's, so that tables can be shared.
    pub ranks: Option<Vec<Rank>>,
}

impl Birth {
    /// A duplicate of `parent`; `number` counts if we are its rank 0.
    pub fn dup(parent: &Communicator, number: u32) -> (Birth, Collective) {
        let words = Buffer::zeroed(Word::BYTES);
        if parent.rank == Rank(0) {
            Word { color: Some(0), key: 0, number }.write(&words);
        }
        let data = Typed::bytes(UserMemory::of_buffer(&words));
        (Birth::Dup { words }, Collective::Bcast { data, root: Rank(0) })
    }

    /// A part of `parent`, or none.
    pub fn split(parent: &Communicator, mine: Word) -> (Birth, Collective) {
        let words = Buffer::zeroed(Word::BYTES * parent.size() as usize);
        let sent = Buffer::zeroed(Word::BYTES);
        mine.write(&sent);
        let send = Some(Typed::bytes(UserMemory::of_buffer(&sent)));
        let receive = Typed::bytes(UserMemory::of_buffer(&words));
        (Birth::Split { words, mine }, Collective::Allgather { send, receive })
    }

    /// The word of a member of `group`, for MPI_COMM_CREATE: a split in which the group's first member is the color and
    /// the place in the group the key. Groups that different members name may differ where they have no member in
    /// common.
    pub fn word_of_member(parent: &Communicator, group: &Group, number: u32) -> Result<Word, Detail> {
        let rank_in_parent = |peer| parent.group.rank_of(peer).ok_or(Detail::NotInCommunicator);
        let nobody = Word { color: None, key: 0, number };
        let Some(first) = group.peer(Rank(0)) else { return Ok(nobody) };
        let color = rank_in_parent(first)?.0;
        for peer in group.iter() {
            rank_in_parent(peer)?;
        }
        let me = parent.peer(parent.rank).and_then(|me| group.rank_of(me));
        Ok(me.map_or(nobody, |rank| Word { color: Some(color), key: rank.0 as i32, number }))
    }

    /// What the communicator would be called, if the words that say so have come: the exchange may have failed.
    pub fn identity(&self, parent: &Communicator) -> Option<Identity> {
        let (Birth::Dup { words } | Birth::Split { words, .. }) = self;
        // No number is 0, so a word that has not come says none.
        let came = Word::all(words).all(|word| word.is_some_and(|word| word.number != 0));
        let born = if came { self.finish(parent).ok()? } else { None };
        born.map(|born| born.communicator.identity)
    }

    /// After the exchange: what was born. `None`: a communicator that we are no member of.
    pub fn finish(&self, parent: &Communicator) -> Result<Option<Born>, Detail> {
        match self {
            Birth::Dup { words } => {
                let word = Word::all(words).next().flatten().ok_or(Detail::BadCreation)?;
                Ok(Some(same_members(parent, Rank(0), word.number)))
            }
            Birth::Split { words, mine } => split_group(parent, words, *mine),
        }
    }
}

fn same_members(parent: &Communicator, namer: Rank, number: u32) -> Born {
    let creator = parent.peer(namer).expect("a communicator has the ranks below its size");
    let communicator = Communicator { identity: Identity { creator, number }, ..parent.clone() };
    Born { communicator, ranks: None }
}

/// The members of our color, ordered by key and then by rank in the parent. The lowest rank of the parent among them
/// names the communicator: one that all of them find without asking.
fn split_group(parent: &Communicator, words: &Arc<Buffer>, mine: Word) -> Result<Option<Born>, Detail> {
    let Some(color) = mine.color else { return Ok(None) };
    let mut members = Vec::new();
    for (rank, word) in (0u32..).zip(Word::all(words)) {
        let word = word.ok_or(Detail::BadCreation)?;
        if word.color == Some(color) {
            members.push((word.key, Rank(rank), word.number));
        }
    }
    let &(_, namer, number) = members.first().ok_or(Detail::BadCreation)?;
    members.sort_unstable();
    let ranks: Vec<Rank> = members.iter().map(|&(_, rank, _)| rank).collect();
    if ranks.len() == parent.size() as usize && ranks.is_sorted() {
        return Ok(Some(same_members(parent, namer, number)));
    }
    let creator = parent.peer(namer).ok_or(Detail::BadCreation)?;
    let group = Arc::new(parent.group.include(&ranks).map_err(|_| Detail::BadCreation)?);
    let rank = ranks.iter().position(|rank| *rank == parent.rank).ok_or(Detail::BadCreation)?;
    let communicator =
        Communicator { identity: Identity { creator, number }, rank: Rank(rank as u32), group };
    Ok(Some(Born { communicator, ranks: Some(ranks) }))
}

impl Word {
    const BYTES: usize = 16;

    fn write(self, into: &Arc<Buffer>) {
        let mut out = [0; Word::BYTES];
        let mut writer = Writer::new(&mut out);
        writer.u32(u32::from(self.color.is_some()));
        writer.u32(self.color.unwrap_or(0));
        writer.u32(self.key as u32);
        writer.u32(self.number);
        UserMemory::of_buffer(into).write(0, &out);
    }

    /// What each member told; `None` where no correct member says so.
    fn all(words: &Arc<Buffer>) -> impl Iterator<Item = Option<Word>> + use<> {
        let memory = UserMemory::of_buffer(words);
        (0..words.len() / Word::BYTES).map(move |at| {
            let mut bytes = [0; Word::BYTES];
            memory.read(at * Word::BYTES, &mut bytes);
            Word::read(&mut Reader::new(&bytes))
        })
    }

    fn read(from: &mut Reader<'_>) -> Option<Word> {
        let (has_color, color) = (from.u32()?, from.u32()?);
        let (key, number) = (from.u32()? as i32, from.u32()?);
        let color = match has_color {
            0 => None,
            1 => Some(color),
            _ => return None,
        };
        Some(Word { color, key, number })
    }
}

#[cfg(test)]
mod tests {
    use super::{Birth, Word};
    use crate::Detail;
    use mend_base::{Identity, Job, Peer, Rank};
    use mend_comm::{Communicator, Group};
    use mend_transport::{Buffer, UserMemory};
    use std::sync::Arc;

    fn peer(number: u32) -> Peer {
        Peer::new(Job(1), number)
    }

    fn parent(rank: u32, size: u32) -> Communicator {
        let group = Arc::new(Group::consecutive(peer(0), size));
        Communicator { identity: Identity { creator: peer(0), number: 0 }, rank: Rank(rank), group }
    }

    /// What `rank` makes of the words of all.
    fn split(words: &[Word], rank: usize) -> Result<Option<super::Born>, Detail> {
        let parent = parent(rank as u32, words.len() as u32);
        let (birth, _) = Birth::split(&parent, words[rank]);
        let Birth::Split { words: all, .. } = &birth else { unreachable!() };
        for (at, word) in words.iter().enumerate() {
            let one = Buffer::zeroed(Word::BYTES);
            word.write(&one);
            UserMemory::of_buffer(all).write(at * Word::BYTES, &one.to_vec());
        }
        birth.finish(&parent)
    }

    fn word(color: Option<u32>, key: i32, number: u32) -> Word {
        Word { color, key, number }
    }

    #[test]
    fn members_are_ordered_by_key_and_named_by_the_lowest_parent_rank() {
        let words = [
            word(Some(5), 9, 10),
            word(None, 0, 11),
            word(Some(5), -1, 12),
            word(Some(6), 0, 13),
            word(Some(5), 9, 14),
        ];
        for (rank, new_rank) in [(0, 1), (2, 0), (4, 2)] {
            let born = split(&words, rank).unwrap().unwrap();
            assert_eq!(born.communicator.rank, Rank(new_rank));
            assert_eq!(born.communicator.identity, Identity { creator: peer(0), number: 10 });
            assert_eq!(born.communicator.group.iter().collect::<Vec<_>>(), [peer(2), peer(0), peer(4)]);
        }
        assert!(split(&words, 1).unwrap().is_none());
        assert_eq!(split(&words, 3).unwrap().unwrap().communicator.size(), 1);
    }

    #[test]
    fn a_split_that_keeps_everybody_in_order_shares_the_parents_tables() {
        let born = split(&[word(Some(1), 0, 3), word(Some(1), 0, 4)], 1).unwrap().unwrap();
        assert!(born.ranks.is_none());
        assert_eq!(born.communicator.identity.number, 3);
    }

    #[test]
    fn a_member_of_a_group_speaks_with_its_place_and_others_with_none() {
        let parent = parent(2, 4);
        let group = Group::new([peer(3), peer(2)]).unwrap();
        assert_eq!(Birth::word_of_member(&parent, &group, 7), Ok(word(Some(3), 1, 7)));
        let others = Group::new([peer(3)]).unwrap();
        assert_eq!(Birth::word_of_member(&parent, &others, 7), Ok(word(None, 0, 7)));
        let stranger = Group::new([peer(9)]).unwrap();
        assert_eq!(Birth::word_of_member(&parent, &stranger, 7), Err(Detail::NotInCommunicator));
    }

    #[test]
    fn words_that_no_member_writes_end_the_creation() {
        let parent = parent(0, 2);
        let (birth, _) = Birth::split(&parent, word(Some(0), 0, 0));
        let Birth::Split { words, .. } = &birth else { unreachable!() };
        UserMemory::of_buffer(words).write(0, &[7]);
        assert_eq!(birth.finish(&parent).unwrap_err(), Detail::BadCreation);
    }
}
