// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a communicator comes from that may exist at some of its members only (`mpi_error_uniform` = `local`).
//!
//! A member whose creation failed before it learned the identity cannot know a message about the communicator from an early one. So the
//! members that have the communicator name its origin before their first message about it, and again when they learn of the first member
//! that is gone. A member that will never have a communicator of this origin answers from then on as one that has freed it.
//!
//! A value.

use mend_base::{Identity, Peer, Reader, Tag, Wire, Writer};

/// The creation that has made a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    pub parent: Identity,
    pub exchange: Exchange,
}

/// What the members have exchanged the identity by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exchange {
    /// The collective operation of the parent with this number.
    Collective(Tag),
    /// The announcement in a group of members (MPI_COMM_CREATE_GROUP). `gone`: one of them that has failed or left MPI, if any is known to
    /// the sender: no creation in this group begins where that is known.
    Group { gone: Option<Peer> },
    /// A shrink of the parent, in which some members took no part.
    Shrink,
}

const COLLECTIVE: u8 = 0;
const GROUP: u8 = 1;
const GROUP_AND_GONE: u8 = 2;
const SHRINK: u8 = 3;

impl Wire for Origin {
    const BYTES_MAX: usize = Identity::BYTES_MAX + 1 + 8;

    fn write(&self, out: &mut Writer<'_>) {
        self.parent.write(out);
        match self.exchange {
            Exchange::Collective(tag) => {
                out.u8(COLLECTIVE);
                out.u32(tag.0 as u32);
            }
            Exchange::Group { gone: None } => out.u8(GROUP),
            Exchange::Shrink => out.u8(SHRINK),
            Exchange::Group { gone: Some(peer) } => {
                out.u8(GROUP_AND_GONE);
                out.u64(peer.0);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let parent = Identity::read(from)?;
        let exchange = match from.u8()? {
            COLLECTIVE => Exchange::Collective(Tag(i32::try_from(from.u32()?).ok()?)),
            GROUP => Exchange::Group { gone: None },
            GROUP_AND_GONE => Exchange::Group { gone: Some(Peer(from.u64()?)) },
            SHRINK => Exchange::Shrink,
            _ => return None,
        };
        Some(Origin { parent, exchange })
    }
}

#[cfg(test)]
mod tests {
    use super::{Exchange, Origin};
    use mend_base::{Identity, Peer, Reader, Tag, Wire, Writer};

    #[test]
    fn an_origin_is_read_as_it_was_written() {
        let parent = Identity { creator: Peer(3), number: 8 };
        let group = |gone| Exchange::Group { gone };
        let collective = Exchange::Collective(Tag(i32::MAX));
        for exchange in [collective, group(None), group(Some(Peer(u64::MAX))), Exchange::Shrink] {
            let origin = Origin { parent, exchange };
            let mut bytes = [0; Origin::BYTES_MAX];
            let mut out = Writer::new(&mut bytes);
            origin.write(&mut out);
            let used = out.used();
            assert_eq!(Origin::read(&mut Reader::new(&bytes[..used])), Some(origin));
            assert_eq!(Origin::read(&mut Reader::new(&bytes[..used - 1])), None);
        }
    }
}
