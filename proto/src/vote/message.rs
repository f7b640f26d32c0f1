// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the members tell each other about a vote, and its form on the wire.

use mend_base::{Rank, Reader, Wire, Writer};

/// What a member votes for, and what was decided.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ballot {
    /// The communicator is created.
    Yes,
    /// It is not created.
    No(Reason),
}

/// Why a communicator is not created.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// A member has failed. Permanent: the results of all later rounds are no, too.
    Failed(Rank),
    /// The parent communicator is revoked. Permanent.
    Revoked,
    /// A member has left MPI. Permanent.
    Departed(Rank),
    /// A reason of one member in one round, such as a lack of memory. Not permanent.
    Other,
}

/// What one member tells another about the round of a vote.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// To the parent: the ballots of the sender and of all members below it. Where the reason is permanent: from this round on
    /// the sender votes no.
    Up(u32, Ballot),
    /// From a root by succession: the receiver reports the result of this round as soon as it has it.
    Request(u32),
    /// The result, for a member that sent an Up or a Request.
    Down(u32, Ballot),
}

impl Ballot {
    /// The reason, if the ballot is no for this round and all later ones.
    pub fn permanent(self) -> Option<Reason> {
        match self {
            Ballot::Yes | Ballot::No(Reason::Other) => None,
            Ballot::No(reason) => Some(reason),
        }
    }

    /// The rank in the reason.
    pub(super) fn rank(self) -> Option<Rank> {
        match self {
            Ballot::No(Reason::Failed(rank) | Reason::Departed(rank)) => Some(rank),
            Ballot::Yes | Ballot::No(Reason::Revoked | Reason::Other) => None,
        }
    }
}

impl Wire for Ballot {
    const BYTES_MAX: usize = 5;

    fn write(&self, out: &mut Writer<'_>) {
        out.u8(match self {
            Ballot::Yes => YES,
            Ballot::No(Reason::Failed(_)) => FAILED,
            Ballot::No(Reason::Revoked) => REVOKED,
            Ballot::No(Reason::Departed(_)) => DEPARTED,
            Ballot::No(Reason::Other) => OTHER,
        });
        if let Some(rank) = self.rank() {
            out.u32(rank.0);
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(match from.u8()? {
            YES => Ballot::Yes,
            FAILED => Ballot::No(Reason::Failed(Rank(from.u32()?))),
            REVOKED => Ballot::No(Reason::Revoked),
            DEPARTED => Ballot::No(Reason::Departed(Rank(from.u32()?))),
            OTHER => Ballot::No(Reason::Other),
            _ => return None,
        })
    }
}

impl Wire for Message {
    const BYTES_MAX: usize = 1 + 4 + Ballot::BYTES_MAX;

    fn write(&self, out: &mut Writer<'_>) {
        let (kind, round, ballot) = match *self {
            Message::Up(round, ballot) => (UP, round, Some(ballot)),
            Message::Request(round) => (REQUEST, round, None),
            Message::Down(round, result) => (DOWN, round, Some(result)),
        };
        out.u8(kind);
        out.u32(round);
        if let Some(ballot) = ballot {
            ballot.write(out);
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (kind, round) = (from.u8()?, from.u32()?);
        Some(match kind {
            UP => Message::Up(round, Ballot::read(from)?),
            REQUEST => Message::Request(round),
            DOWN => Message::Down(round, Ballot::read(from)?),
            _ => return None,
        })
    }
}

const UP: u8 = 1;
const REQUEST: u8 = 2;
const DOWN: u8 = 3;

const YES: u8 = 1;
const FAILED: u8 = 2;
const REVOKED: u8 = 3;
const DEPARTED: u8 = 4;
const OTHER: u8 = 5;

/// A message fits into a control message with an identity beside it.
const _: () = assert!(Message::BYTES_MAX <= 23);

#[cfg(test)]
mod tests {
    use super::{Ballot, Message, Reason};
    use mend_base::{Rank, Reader, Wire, Writer};

    #[test]
    fn every_message_is_read_as_it_was_written_and_nothing_shorter_is() {
        let reasons =
            [Reason::Failed(Rank(7)), Reason::Revoked, Reason::Departed(Rank(1 << 20)), Reason::Other];
        let ballots = reasons.map(Ballot::No).into_iter().chain([Ballot::Yes]);
        let messages = ballots.flat_map(|ballot| [Message::Up(u32::MAX, ballot), Message::Down(3, ballot)]);
        for message in messages.chain([Message::Request(9)]) {
            let mut bytes = [0; Message::BYTES_MAX];
            let mut writer = Writer::new(&mut bytes);
            message.write(&mut writer);
            let used = writer.used();
            assert_eq!(Message::read(&mut Reader::new(&bytes[..used])), Some(message));
            for shorter in 0..used {
                assert_eq!(Message::read(&mut Reader::new(&bytes[..shorter])), None);
            }
        }
        assert_eq!(Message::read(&mut Reader::new(&[9; Message::BYTES_MAX])), None);
        assert_eq!(Message::read(&mut Reader::new(&[super::UP, 0, 0, 0, 0, 9, 0, 0, 0, 0])), None);
    }
}
