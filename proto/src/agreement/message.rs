// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages of an agreement. The owner adds the communicator and the sender.

use super::crossed::AgreementId;
use super::value::Aggregate;
use crate::ranks::{Ranks, SetHash};
use mend_base::{Rank, Reader, Wire, Writer};

/// A message between two members.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Message {
    /// The agreement that it belongs to.
    pub sequence: u32,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Body {
    /// To the parent: the aggregate of the sender and of all members below it.
    Up(Aggregate),
    /// The decision. Goes from lower to higher ranks, except where it answers a request.
    Down(Down),
    /// To the parent, in uniform mode: the sender and all members below it have stored the decision.
    Confirm,
    /// From a root by succession: whoever has stored or passed the agreement answers with the decision.
    Request,
    /// Failed members. Those of an `Up` or `Down` precede it, if there are any that are not excluded from the tree of the
    /// agreement.
    Failures {
        /// The failed members: those before the first `None`.
        ranks: [Option<Rank>; FAILURES_MAX],
        /// Whether they belong to a `Down`, which makes them part of the decision.
        decided: bool,
    },
    /// An agreement of a proven cycle. The list precedes each `Up` and `Down` that carries the mark `crossed`.
    Listed {
        /// The agreement.
        agreement: AgreementId,
        /// Whether it belongs to a `Down`.
        decided: bool,
    },
}

/// A decision, without its failed members.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Down {
    /// `Decision::value`.
    pub value: u64,
    /// The hash of `Decision::failed`, all of it.
    pub failed: SetHash,
    /// `Decision::acknowledged`.
    pub acknowledged: bool,
    /// `Decision::departed`.
    pub departed: bool,
    /// Whether a member has contributed in absentia.
    pub crossed: bool,
    /// Whether the receiver may return it. If not, it stores the decision, and waits until everybody has.
    pub released: bool,
}

impl Body {
    /// The bodies that list these failed members.
    pub(super) fn failures(failed: &Ranks, decided: bool) -> impl Iterator<Item = Body> + '_ {
        let mut failed = failed.iter();
        std::iter::from_fn(move || {
            let ranks = std::array::from_fn(|_| failed.next());
            ranks[0].map(|_: Rank| Body::Failures { ranks, decided })
        })
    }
}

impl Wire for Message {
    const BYTES_MAX: usize = 1 + 4 + 4 * FAILURES_MAX;

    fn write(&self, out: &mut Writer<'_>) {
        let kind = match &self.body {
            Body::Up(up) => {
                let flags = flag(FLAG_DEPARTED, up.departed) | flag(FLAG_EQUAL, up.acknowledged.is_some());
                UP | flags | flag(FLAG_CROSSED, up.crossed)
            }
            Body::Down(down) => {
                let flags = flag(FLAG_DEPARTED, down.departed) | flag(FLAG_EQUAL, down.acknowledged);
                DOWN | flags | flag(FLAG_RELEASED, down.released) | flag(FLAG_CROSSED, down.crossed)
            }
            Body::Confirm => CONFIRM,
            Body::Request => REQUEST,
            Body::Failures { ranks, decided } => {
                let count = ranks.iter().flatten().count() as u8;
                (if *decided { DECIDED } else { FAILURES }) | count << FLAG_DEPARTED.trailing_zeros()
            }
            Body::Listed { decided, .. } => LISTED | flag(FLAG_DECIDED, *decided),
        };
        out.u8(kind);
        out.u32(self.sequence);
        match &self.body {
            Body::Up(up) => {
                out.u64(up.value);
                if let Some(hash) = up.acknowledged {
                    out.u64(hash.0);
                }
            }
            Body::Down(down) => {
                out.u64(down.value);
                out.u64(down.failed.0);
            }
            Body::Confirm | Body::Request => {}
            Body::Failures { ranks, .. } => ranks.iter().flatten().for_each(|rank| out.u32(rank.0)),
            Body::Listed { agreement, .. } => agreement.write(out),
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let kind = from.u8()?;
        let sequence = from.u32()?;
        let (flags, has) = (kind & !KINDS, |flag| kind & flag != 0);
        let body = match kind & KINDS {
            UP if flags & FLAG_RELEASED == 0 => {
                let value = from.u64()?;
                let acknowledged = if has(FLAG_EQUAL) { Some(SetHash(from.u64()?)) } else { None };
                Body::Up(Aggregate {
                    value,
                    acknowledged,
                    departed: has(FLAG_DEPARTED),
                    crossed: has(FLAG_CROSSED),
                })
            }
            DOWN => Body::Down(Down {
                value: from.u64()?,
                failed: SetHash(from.u64()?),
                acknowledged: has(FLAG_EQUAL),
                departed: has(FLAG_DEPARTED),
                crossed: has(FLAG_CROSSED),
                released: has(FLAG_RELEASED),
            }),
            LISTED if flags & !FLAG_DECIDED == 0 => {
                Body::Listed { agreement: AgreementId::read(from)?, decided: has(FLAG_DECIDED) }
            }
            CONFIRM if flags == 0 => Body::Confirm,
            REQUEST if flags == 0 => Body::Request,
            kind @ (FAILURES | DECIDED) => {
                let count = usize::from(flags >> FLAG_DEPARTED.trailing_zeros());
                let mut ranks = [None; FAILURES_MAX];
                for rank in ranks.get_mut(..count).filter(|ranks| !ranks.is_empty())? {
                    *rank = Some(Rank(from.u32()?));
                }
                Body::Failures { ranks, decided: kind == DECIDED }
            }
            _ => return None,
        };
        (flags & !FLAGS == 0).then_some(Message { sequence, body })
    }
}

fn flag(flag: u8, set: bool) -> u8 {
    if set { flag } else { 0 }
}

/// Failed members in one message.
pub const FAILURES_MAX: usize = 4;

/// The bits of the first byte that tell the kind. In lists of failures the other bits are their number, else flags.
const KINDS: u8 = 0x07;
const FLAGS: u8 = FLAG_DEPARTED | FLAG_EQUAL | FLAG_RELEASED | FLAG_CROSSED;
const UP: u8 = 1;
const DOWN: u8 = 2;
const CONFIRM: u8 = 3;
const REQUEST: u8 = 4;
const FAILURES: u8 = 5;
const DECIDED: u8 = 6;
const LISTED: u8 = 7;
const FLAG_DEPARTED: u8 = 0x08;
const FLAG_EQUAL: u8 = 0x10;
/// Of a listed agreement.
const FLAG_DECIDED: u8 = 0x08;
const FLAG_RELEASED: u8 = 0x20;
const FLAG_CROSSED: u8 = 0x40;

#[cfg(test)]
mod tests {
    use super::{Aggregate, AgreementId, Body, Down, Message};
    use crate::ranks::SetHash;
    use mend_base::{Identity, Peer, Random, Rank, Reader, Wire, Writer};

    fn bytes(message: &Message) -> Vec<u8> {
        let mut bytes = [0; Message::BYTES_MAX];
        let mut out = Writer::new(&mut bytes);
        message.write(&mut out);
        let used = out.used();
        bytes[..used].to_vec()
    }

    fn read(bytes: &[u8]) -> Option<Message> {
        Message::read(&mut Reader::new(bytes))
    }

    #[test]
    fn every_message_is_read_as_it_was_written() {
        let communicator = Identity { creator: Peer(u64::MAX), number: 3 };
        let agreement = AgreementId { communicator, sequence: u32::MAX };
        let listed = |decided| Body::Listed { agreement, decided };
        let mut bodies = vec![Body::Confirm, Body::Request, listed(false), listed(true)];
        for flags in 0..16 {
            let has = |bit: u8| flags & bit != 0;
            let (departed, acknowledged, crossed) = (has(1), has(2), has(8));
            let hash = acknowledged.then_some(SetHash(u64::MAX));
            bodies.push(Body::Up(Aggregate { value: 1 << 63, acknowledged: hash, departed, crossed }));
            let failed = SetHash(9);
            let released = has(4);
            bodies.push(Body::Down(Down { value: 7, failed, acknowledged, departed, crossed, released }));
        }
        for count in 1..=4 {
            for decided in [false, true] {
                let ranks = std::array::from_fn(|at| (at < count).then_some(Rank(u32::MAX - at as u32)));
                bodies.push(Body::Failures { ranks, decided });
            }
        }
        for body in bodies {
            let message = Message { sequence: 0x8000_0001, body };
            let bytes = bytes(&message);
            assert_eq!(read(&bytes), Some(message));
            for length in 0..bytes.len() {
                assert_eq!(read(&bytes[..length]), None, "{message:?} cut to {length} bytes");
            }
        }
        const { assert!(Message::BYTES_MAX <= 23) };
    }

    #[test]
    fn bytes_that_are_read_as_a_message_are_those_of_that_message() {
        let mut random = Random(6);
        let mut count = 0;
        for _ in 0..100_000 {
            let bytes_in: [u8; Message::BYTES_MAX] = std::array::from_fn(|_| random.bits() as u8);
            if let Some(message) = read(&bytes_in) {
                let bytes = bytes(&message);
                assert_eq!(bytes[..], bytes_in[..bytes.len()]);
                count += 1;
            }
        }
        assert!(count > 1_000);
        assert_eq!(read(&[5, 0, 0, 0, 0]), None, "a list of no failures");
        assert_eq!(read(&[5 | 5 << 3; 25]), None, "a list of five failures");
    }
}
