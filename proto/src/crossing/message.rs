// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages of searches. Each is about a communicator, which the owner adds with the sender.

use crate::agreement::AgreementId;
use mend_base::{Peer, Reader, Wire, Writer};

/// One search.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SearchId {
    /// The process that began it.
    pub initiator: Peer,
    /// Its number at that process; wraps.
    pub number: u32,
}

/// A message between two members.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// The sender, which the search has visited, waits for the receiver.
    Search {
        /// The search.
        search: SearchId,
        /// The number of the agreement in which it waits.
        sequence: u32,
        /// So many crossings may still come, the one back to the initiator among them.
        crossings: u8,
    },
    /// An agreement of the cycle. The list precedes each `Check` and `Conclude`.
    Listed(AgreementId),
    /// The search has come back to its initiator: the way is checked, backwards.
    Check(SearchId),
    /// All was checked: the cycle is proven.
    Conclude(SearchId),
}

const SEARCH: u8 = 1;
const LISTED: u8 = 2;
const CHECK: u8 = 3;
const CONCLUDE: u8 = 4;

impl Wire for SearchId {
    const BYTES_MAX: usize = 12;

    fn write(&self, out: &mut Writer<'_>) {
        out.u64(self.initiator.0);
        out.u32(self.number);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(SearchId { initiator: Peer(from.u64()?), number: from.u32()? })
    }
}

impl Wire for Message {
    const BYTES_MAX: usize = 2 + SearchId::BYTES_MAX + 4;

    fn write(&self, out: &mut Writer<'_>) {
        match self {
            Message::Search { search, sequence, crossings } => {
                out.u8(SEARCH);
                search.write(out);
                out.u32(*sequence);
                out.u8(*crossings);
            }
            Message::Listed(agreement) => {
                out.u8(LISTED);
                agreement.write(out);
            }
            Message::Check(search) => {
                out.u8(CHECK);
                search.write(out);
            }
            Message::Conclude(search) => {
                out.u8(CONCLUDE);
                search.write(out);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(match from.u8()? {
            SEARCH => Message::Search {
                search: SearchId::read(from)?,
                sequence: from.u32()?,
                crossings: from.u8()?,
            },
            LISTED => Message::Listed(AgreementId::read(from)?),
            CHECK => Message::Check(SearchId::read(from)?),
            CONCLUDE => Message::Conclude(SearchId::read(from)?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Message, SearchId};
    use crate::agreement::AgreementId;
    use mend_base::{Identity, Peer, Reader, Wire, Writer};

    #[test]
    fn every_message_is_read_as_it_was_written() {
        let search = SearchId { initiator: Peer(u64::MAX - 1), number: 7 };
        let communicator = Identity { creator: Peer(3), number: u32::MAX };
        let messages = [
            Message::Search { search, sequence: 5, crossings: 8 },
            Message::Listed(AgreementId { communicator, sequence: 9 }),
            Message::Check(search),
            Message::Conclude(search),
        ];
        for message in messages {
            let mut bytes = [0; Message::BYTES_MAX];
            let mut out = Writer::new(&mut bytes);
            message.write(&mut out);
            let used = out.used();
            assert_eq!(Message::read(&mut Reader::new(&bytes[..used])), Some(message));
            for length in 0..used {
                assert_eq!(Message::read(&mut Reader::new(&bytes[..length])), None);
            }
        }
        assert_eq!(Message::read(&mut Reader::new(&[5; 18])), None);
    }
}
