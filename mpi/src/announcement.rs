// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the members of a group learn the identity of the communicator that they create (MPI_COMM_CREATE_GROUP): the first process of the
//! group sends its number down the tree along which they vote afterwards, on the creation context of the parent, since a collective
//! operation of the parent would need members that are not in the group.
//!
//! ```text
//!   start ─┬─ first process of the group ───────────────────────────────▶ number: sent to the children
//!          └─ receive from the parent in the tree ─┬─ number of this group ─▶ number: sent to the children
//!               ▲                                  ├─ of another group ──┐
//!               └──────────────────────────────────┼──────────────────────┘
//!                                                  └─ error, or no number ──▶ error: the children get no number
//! ```
//!
//! Because the trees are the same, a member that has the number knows that all members above it in the tree have it: whoever votes, votes
//! below members that know the vote.
//!
//! A member that gives up because of a failure, a departure or a revocation tells nobody: each of these reaches all members by itself.
//! Then a message may stay unread on the context. The next creation with the same tag ignores it: its group has no failed process, so it
//! is another group, and the message says of which group it is.
//!
//! A value of a creation that runs.

use crate::layers::Layers;
use crate::{Detail, Error};
use mend_base::{Peer, Rank, Reader, Source, Tag, TagSelector, Writer};
use mend_datatype::TypedBuffer;
use mend_pml::{Channel, Ends, Error as PmlError, Lent, Request, SendMode, Started, State};
use mend_proto::ranks::{Ranks, SetHash};
use mend_proto::tree::{Shape, Tree};
use mend_transport::{Buffer, Rdma, UserMemory};
use std::sync::Arc;

/// The part of one member of the group.
#[derive(Debug)]
pub(crate) struct Announcement {
    channel: Channel,
    tag: Tag,
    /// The ranks of the members in the parent, in the order of the group.
    ranks: Arc<[Rank]>,
    /// The rank of this process in the group.
    me: Rank,
    group: u64,
    message: Arc<Buffer>,
    receive: Option<Request>,
    /// The number, or why it will not come here.
    result: Option<Result<u32, Error>>,
    /// The children to which the result is not sent yet.
    unsent: Vec<Rank>,
}

/// On the wire: the group u64, the number u32.
const MESSAGE_BYTES: usize = 12;
/// Instead of a number: the sender gets none. No identity has this number.
const NO_NUMBER: u32 = 0;

/// A hash of the processes of a group and their order.
pub(crate) fn hash(group: impl Iterator<Item = Peer>) -> u64 {
    // An odd factor: peers that differ give products that differ.
    let place = |(at, peer): (u64, Peer)| peer.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(at);
    (0..).zip(group).map(place).fold(SetHash::default(), SetHash::with).0
}

impl Announcement {
    /// Reserves the memory that it needs. `group`: the [`hash`] of the group.
    pub fn new(
        channel: Channel,
        tag: Tag,
        ranks: Arc<[Rank]>,
        me: Rank,
        group: u64,
    ) -> Result<Announcement, Error> {
        let no_memory = || Error::of(Detail::NoMemory);
        let message = Buffer::try_zeroed(MESSAGE_BYTES).ok_or_else(no_memory)?;
        let mut children = 0;
        let tree = Tree::new(ranks.len() as u32, Shape::USUAL);
        tree.children(me, &Ranks::new(), &mut |_| children += 1);
        let mut unsent = Vec::new();
        unsent.try_reserve_exact(children).map_err(|_| no_memory())?;
        tree.children(me, &Ranks::new(), &mut |child| unsent.push(ranks[child.index()]));
        Ok(Announcement { channel, tag, ranks, me, group, message, receive: None, result: None, unsent })
    }

    /// Begins. `number`: that of the first process of the group, or why it has none. `Err`: nothing was begun.
    pub fn start<N: Rdma, R>(
        &mut self,
        number: Option<Result<u32, Detail>>,
        layers: &mut Layers<N, R>,
        ends: &Ends,
    ) -> Result<(), Error> {
        match number {
            Some(number) => self.finish(number.map_err(Error::of)),
            None => self.post(layers, ends)?,
        }
        Ok(())
    }

    /// Whether it has begun and waits for memory for its receive. The member above it in the tree does not wait for one that gives up.
    fn lacks_receive(&self) -> bool {
        self.receive.is_none() && self.result.is_none()
    }

    /// The number, once it is known here and the children get it.
    pub fn progress<N: Rdma, R>(
        &mut self,
        layers: &mut Layers<N, R>,
        ends: &Ends,
    ) -> Option<Result<u32, Error>> {
        if self.lacks_receive()
            && let Err(error) = self.post(layers, ends)
        {
            self.finish(Err(error));
        }
        while let Some(receive) = self.receive {
            let State::Done(result) = layers.pml.poll(receive, ends) else { return None };
            layers.pml.release(receive);
            self.receive = None;
            self.on_received(result.map(|_| ()), layers, ends);
        }
        if self.lacks_receive() {
            return None;
        }
        self.forward(layers, ends);
        self.result.filter(|_| self.unsent.is_empty())
    }

    /// The number, if it is known here.
    pub fn number(&self) -> Option<u32> {
        self.result?.ok()
    }

    /// Ends it before it is over.
    pub fn give_up<N: Rdma, R>(&mut self, layers: &mut Layers<N, R>) {
        if let Some(receive) = self.receive.take() {
            layers.pml.abandon(receive);
        }
    }

    fn on_received<N: Rdma, R>(
        &mut self,
        result: Result<(), PmlError>,
        layers: &mut Layers<N, R>,
        ends: &Ends,
    ) {
        match (result, read(&self.message)) {
            (Err(error), _) => self.finish(Err(error.into())),
            (Ok(()), (group, _)) if group != self.group => {
                mend_base::reach!("mpi.announcement: of another group");
                if let Err(error) = self.post(layers, ends) {
                    self.finish(Err(error));
                }
            }
            (Ok(()), (_, NO_NUMBER)) => self.finish(Err(Error::of(Detail::CreationRefused))),
            (Ok(()), (_, number)) => self.finish(Ok(number)),
        }
    }

    /// Posts the receive of the parent's message.
    fn post<N: Rdma, R>(&mut self, layers: &mut Layers<N, R>, ends: &Ends) -> Result<(), Error> {
        let tree = Tree::new(self.ranks.len() as u32, Shape::USUAL);
        let Some(parent) = tree.parent(self.me, &Ranks::new()) else {
            // The first process of the group allocates the number.
            return Err(Error::of(Detail::BadCreation));
        };
        let from = Source::Rank(self.ranks[parent.index()]);
        let into = TypedBuffer::bytes(UserMemory::of_buffer(&self.message));
        let lent = Lent { net: &mut layers.net, ends };
        match layers.pml.receive(lent, self.channel, from, TagSelector::Tag(self.tag), into) {
            Ok(Started::Running(receive)) => self.receive = Some(receive),
            Ok(Started::Done(_)) => self.on_received(Ok(()), layers, ends),
            // At the next call of progress: a message that has come needs no memory.
            Err(PmlError::NoMemory) => mend_base::reach!("mpi.announcement: no memory for the receive"),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// What is sent to the children. They learn of a failure or a departure by themselves, and of other reasons from this member alone.
    fn finish(&mut self, result: Result<u32, Error>) {
        let number = match result {
            Ok(number) => number,
            Err(Error { detail: Detail::ProcFailed(_) | Detail::PeerLeft(_), .. }) => {
                self.unsent.clear();
                NO_NUMBER
            }
            Err(_) => {
                mend_base::reach!("mpi.announcement: the children get no number");
                NO_NUMBER
            }
        };
        let mut bytes = [0; MESSAGE_BYTES];
        let mut out = Writer::new(&mut bytes);
        out.u64(self.group);
        out.u32(number);
        UserMemory::of_buffer(&self.message).write(0, &bytes);
        self.result = Some(result);
    }

    /// Sends to the children. A child for which there is no memory now has its turn later; one that cannot be reached votes no, as this
    /// member does.
    fn forward<N: Rdma, R>(&mut self, layers: &mut Layers<N, R>, ends: &Ends) {
        let Announcement { channel, tag, message, unsent, .. } = self;
        let Layers { net, pml, .. } = layers;
        unsent.retain(|&to| {
            let data = TypedBuffer::bytes(UserMemory::of_buffer(message));
            match pml.send(Lent { net: &mut *net, ends }, *channel, to, *tag, SendMode::Standard, data) {
                Ok(Started::Done(_)) => false,
                Ok(Started::Running(send)) => {
                    pml.release(send);
                    false
                }
                Err(error) => error == PmlError::NoMemory,
            }
        });
    }
}

fn read(message: &Arc<Buffer>) -> (u64, u32) {
    let mut bytes = [0; MESSAGE_BYTES];
    UserMemory::of_buffer(message).read(0, &mut bytes);
    let mut from = Reader::new(&bytes);
    (from.u64().unwrap_or(0), from.u32().unwrap_or(NO_NUMBER))
}

#[cfg(test)]
mod tests {
    use super::hash;
    use mend_base::{Job, Peer};

    #[test]
    fn the_hash_of_a_group_depends_on_processes_and_order() {
        let of = |numbers: &[u32]| hash(numbers.iter().map(|&number| Peer::new(Job(1), number)));
        let all = [of(&[0, 1, 2]), of(&[0, 2, 1]), of(&[1, 0, 2]), of(&[0, 1]), of(&[0, 1, 3]), of(&[1, 2])];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
        }
        assert_eq!(of(&[0, 1, 2]), all[0]);
    }
}
