// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The communicators of one process: what each is, and the channels its two context kinds have at the PML. Making them is
//! [`create`]'s; freeing one is local (design "Context ids"): no barrier, no agreement on a number.
//!
//! A part of the engine: it owns the table of communicators and this process's identities; it calls the PML, at which it opens
//! and closes channels.

mod create;

use crate::layers::Layers;
use crate::{CommKey, Detail, Error};
pub(crate) use create::{Contribution, Created, PendingCreation};
use mend_base::{ContextKind, Identity, Key, Peer, PeerIndex, Rank, Slab, Tag};
use mend_comm::{Communicator, Group};
use mend_pml::{Channel, Ends};
use mend_proto::identity::IdentityAllocator;
use mend_transport::Btl;
use std::sync::Arc;

/// A communicator in this process's table.
#[derive(Debug)]
pub(crate) struct CommEntry {
    communicator: Communicator,
    /// Its members' places in our tables; shared by the communicators that have the same ones.
    members: Arc<[PeerIndex]>,
    /// The user's messages.
    user: Channel,
    /// Collective operations' messages.
    collective: Channel,
    /// How many collective operations were started on it: the next one's tag.
    operations: u32,
    /// Collective operations that still run on it.
    running: u32,
    /// The handle was freed; the entry goes with the last operation that runs.
    freed: bool,
}

impl CommEntry {
    // Hot: per message.
    /// The channel of the user's messages, for a rank that must be one of this communicator.
    #[inline]
    pub fn channel_to(&self, rank: Rank) -> Result<Channel, Error> {
        let size = self.communicator.size();
        if rank.0 < size { Ok(self.user) } else { Err(Error::of(Detail::NoSuchRank(rank, Some(size)))) }
    }

    /// The channel of the user's messages.
    #[inline]
    pub fn user(&self) -> Channel {
        self.user
    }

    /// The channel of collective operations.
    pub fn collective(&self) -> Channel {
        self.collective
    }

    /// As a value.
    pub fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// Its members' places.
    pub fn members(&self) -> &Arc<[PeerIndex]> {
        &self.members
    }

    /// The rank of a peer in it.
    pub fn rank_of(&self, peer: PeerIndex) -> Option<Rank> {
        self.members.iter().position(|member| *member == peer).map(|at| Rank(at as u32))
    }

    /// The tag of the collective operation that is started now.
    pub fn tag(&self) -> Tag {
        Tag((self.operations % (1 << 31)) as i32)
    }

    /// All members have started this operation: the next one has another tag.
    pub fn count_operation(&mut self) {
        self.operations = self.operations.wrapping_add(1);
    }

    /// A collective operation runs from now on.
    pub fn begin_operation(&mut self) {
        self.running += 1;
    }
}

/// The communicators of this process.
#[derive(Debug)]
pub(crate) struct Communicators {
    table: Slab<CommEntry>,
    world: CommKey,
    myself: CommKey,
    identities: IdentityAllocator,
}

/// The numbers of WORLD, whose creator is its rank 0, and SELF: everybody knows them without asking.
const WORLD_NUMBER: u32 = 0;
const SELF_NUMBER: u32 = 1;
const _: () = assert!(WORLD_NUMBER < IdentityAllocator::FIRST && SELF_NUMBER < IdentityAllocator::FIRST);

impl Communicators {
    /// None yet, of this process.
    pub fn new(me: Peer) -> Self {
        let nobody = CommKey(Key { index: 0, generation: 0 });
        Communicators {
            table: Slab::new(),
            world: nobody,
            myself: nobody,
            identities: IdentityAllocator::new(me),
        }
    }

    /// WORLD of `size` ranks and SELF, whose member has the place `index`.
    pub fn open_predefined<N: Btl, R>(
        &mut self,
        me: Peer,
        size: u32,
        index: PeerIndex,
        layers: &mut Layers<N, R>,
    ) -> Result<(), Error> {
        let first = Peer::new(me.job(), 0);
        let world = Communicator {
            identity: Identity { creator: first, number: WORLD_NUMBER },
            rank: Rank(me.number()),
            group: Arc::new(Group::consecutive(first, size)),
        };
        let no_ends = Ends::default();
        self.world = self.enter(world, (0..size).map(PeerIndex).collect(), &no_ends, layers)?;
        let myself = Communicator {
            identity: Identity { creator: me, number: SELF_NUMBER },
            rank: Rank(0),
            group: Arc::new(Group::consecutive(me, 1)),
        };
        self.myself = self.enter(myself, Arc::new([index]), &no_ends, layers)?;
        Ok(())
    }

    /// MPI_COMM_WORLD.
    pub fn world(&self) -> CommKey {
        self.world
    }

    /// MPI_COMM_SELF.
    pub fn myself(&self) -> CommKey {
        self.myself
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    // Hot: per message.
    /// One whose handle is valid.
    #[inline]
    pub fn valid(&self, comm: CommKey) -> Result<&CommEntry, Error> {
        match self.table.get(comm.0) {
            Some(entry) if !entry.freed => Ok(entry),
            _ => Err(Error::of(Detail::NoSuchCommunicator)),
        }
    }

    // Hot: per blocking receive.
    /// One that exists; its handle may have been freed.
    #[inline]
    pub fn get(&self, comm: CommKey) -> Option<&CommEntry> {
        self.table.get(comm.0)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, comm: CommKey) -> Option<&mut CommEntry> {
        self.table.get_mut(comm.0)
    }

    /// The one whose user's messages go over this channel.
    pub fn of_channel(&self, channel: Channel) -> Option<&CommEntry> {
        self.table.iter().map(|(_, entry)| entry).find(|entry| entry.user == channel)
    }

    /// MPI_Comm_free as this process sees it: the handle is invalid at once, operations that run on it go on.
    pub fn free<N: Btl, R>(&mut self, comm: CommKey, layers: &mut Layers<N, R>) -> Result<(), Error> {
        if comm == self.world || comm == self.myself {
            return Err(Error::of(Detail::PredefinedCommunicator));
        }
        self.valid(comm)?;
        if let Some(entry) = self.table.get_mut(comm.0) {
            entry.freed = true;
        }
        self.release_if_unused(comm, layers);
        Ok(())
    }

    /// A collective operation on it has ended.
    pub fn end_operation<N: Btl, R>(&mut self, comm: CommKey, layers: &mut Layers<N, R>) {
        if let Some(entry) = self.table.get_mut(comm.0) {
            entry.running -= 1;
        }
        self.release_if_unused(comm, layers);
    }

    /// Takes a freed communicator out when nothing runs on it any more.
    fn release_if_unused<N: Btl, R>(&mut self, comm: CommKey, layers: &mut Layers<N, R>) {
        if self.table.get(comm.0).is_some_and(|entry| entry.freed && entry.running == 0)
            && let Some(entry) = self.table.remove(comm.0)
        {
            layers.pml.close(entry.user);
            layers.pml.close(entry.collective);
        }
    }

    /// Closes every communicator: nothing is received any more, and what is offered is refused.
    pub fn close_all<N: Btl, R>(&mut self, layers: &mut Layers<N, R>) {
        for (_, entry) in core::mem::take(&mut self.table).iter() {
            layers.pml.close(entry.user);
            layers.pml.close(entry.collective);
        }
        layers.pml.leave();
    }

    /// The next number of this process for an identity: never given twice (I5).
    pub fn number(&mut self) -> Result<u32, Error> {
        let identity = self.identities.allocate().ok_or(Error::of(Detail::IdentitiesExhausted))?;
        Ok(identity.number)
    }

    /// The communicator that the exchange over `parent` has made; `None`: this process is no member of it.
    pub fn commit<N: Btl, R>(
        &mut self,
        parent: CommKey,
        creation: &PendingCreation,
        ends: &Ends,
        layers: &mut Layers<N, R>,
    ) -> Result<Option<CommKey>, Error> {
        let Some(entry) = self.table.get(parent.0) else { return Ok(None) };
        let Some(Created { communicator, ranks }) = creation.finish(&entry.communicator)? else {
            return Ok(None);
        };
        let members = match &ranks {
            None => Arc::clone(&entry.members),
            Some(ranks) => ranks.iter().map(|rank| entry.members[rank.index()]).collect(),
        };
        // No correct member gives two communicators one identity; their messages could not be told apart.
        if layers.pml.is_used(communicator.identity) {
            return Err(Error::of(Detail::BadCreation));
        }
        self.enter(communicator, members, ends, layers).map(Some)
    }

    /// The making of a communicator has failed here. Where its name had come already, others may have it, and what they
    /// send on it is refused.
    pub fn roll_back<N: Btl, R>(
        &self,
        parent: CommKey,
        creation: &PendingCreation,
        layers: &mut Layers<N, R>,
    ) {
        let Some(entry) = self.table.get(parent.0) else { return };
        if let Some(identity) = creation.identity(&entry.communicator)
            && !layers.pml.is_used(identity)
        {
            mend_base::reach!("mpi.collective: created elsewhere, perhaps, and not here");
            layers.pml.never(identity);
        }
    }

    /// Opens both context kinds, and enters the communicator into the table. Messages that came before go to it now.
    pub fn enter<N: Btl, R>(
        &mut self,
        communicator: Communicator,
        members: Arc<[PeerIndex]>,
        ends: &Ends,
        layers: &mut Layers<N, R>,
    ) -> Result<CommKey, Error> {
        let (identity, rank) = (communicator.identity, communicator.rank);
        let mut open = |kind| layers.pml.open(identity, kind, rank, Arc::clone(&members), ends);
        let user = open(ContextKind::PointToPoint);
        let collective = open(ContextKind::Collective);
        let (operations, running, freed) = (0, 0, false);
        let entry = CommEntry { communicator, members, user, collective, operations, running, freed };
        match self.table.try_insert(entry) {
            Some(key) => Ok(CommKey(key)),
            None => {
                layers.pml.close(user);
                layers.pml.close(collective);
                Err(Error::of(Detail::NoMemory))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Communicators;
    use crate::layers::Layers;
    use crate::scripted::{Rehearsal, Script, Wires, peer};
    use crate::{CommKey, Detail};
    use mend_base::{Identity, PeerIndex, Rank};
    use mend_comm::Communicator;
    use mend_pml::Ends;

    /// Rank 0 of three.
    fn communicators() -> (Communicators, Layers<Wires, Script>) {
        let (mut communicators, mut layers) =
            (Communicators::new(peer(0)), Rehearsal::default().layers(0, 3));
        communicators.open_predefined(peer(0), 3, PeerIndex(0), &mut layers).unwrap();
        (communicators, layers)
    }

    fn duplicate(communicators: &mut Communicators, layers: &mut Layers<Wires, Script>) -> CommKey {
        let entry = communicators.get(communicators.world()).unwrap();
        let (identity, members) = (Identity { creator: peer(0), number: 9 }, entry.members().clone());
        let communicator = Communicator { identity, ..entry.communicator().clone() };
        communicators.enter(communicator, members, &Ends::default(), layers).unwrap()
    }

    #[test]
    fn a_freed_communicator_goes_with_its_last_operation() {
        let (mut communicators, mut layers) = communicators();
        let comm = duplicate(&mut communicators, &mut layers);
        communicators.get_mut(comm).unwrap().begin_operation();
        communicators.free(comm, &mut layers).unwrap();
        assert_eq!(communicators.valid(comm).unwrap_err().detail, Detail::NoSuchCommunicator);
        assert!(communicators.get(comm).is_some());
        communicators.end_operation(comm, &mut layers);
        assert!(communicators.get(comm).is_none());
    }

    #[test]
    fn predefined_communicators_are_not_freed() {
        let (mut communicators, mut layers) = communicators();
        for comm in [communicators.world(), communicators.myself()] {
            let refused = communicators.free(comm, &mut layers).unwrap_err();
            assert_eq!(refused.detail, Detail::PredefinedCommunicator);
        }
    }

    #[test]
    fn a_rank_beyond_the_size_is_refused_at_the_engine() {
        let (communicators, _layers) = communicators();
        let world = communicators.valid(communicators.world()).unwrap();
        assert!(world.channel_to(Rank(2)).is_ok());
        assert_eq!(world.channel_to(Rank(3)).unwrap_err().detail, Detail::NoSuchRank(Rank(3), Some(3)));
    }
}
