// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The communicators of one process: what each is, and the channels its two context kinds have at the PML. Making them is
//! [`create`]'s; freeing one is local (design "Context ids"): no barrier, no agreement on a number.
//!
//! A part of the engine: it owns the table of communicators and this process's identities; it calls the PML, at which it opens
//! and closes channels.

mod attributes;
mod create;

use crate::layers::Layers;
use crate::{CommKey, Detail, Error};
pub(crate) use attributes::Attributes;
pub(crate) use create::{Contribution, Created, DUP_NAMER, PendingCreation};
use mend_base::{ContextKind, Identity, Key, Peer, PeerIndex, Rank, Slab, Tag};
use mend_comm::{Communicator, Group};
use mend_pml::{Channel, Ends, Owner};
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
    /// Requests on it that are not released, of all kinds: their errors go to its error handler (Row EH4).
    requests: u32,
    /// The handle was freed; the channels are closed with the last collective operation that runs.
    freed: bool,
    attributes: Attributes,
    /// The next in the list of those that are unused.
    next_unused: Option<CommKey>,
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

    /// Name and error handler.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The same, to change them.
    pub fn attributes_mut(&mut self) -> &mut Attributes {
        &mut self.attributes
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

    /// Its handle was freed, and nothing needs it any more.
    fn is_unused(&self) -> bool {
        self.freed && self.running == 0 && self.requests == 0
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
    /// The first of those whose handle was freed and whose last request was released; they are removed when the next communicator
    /// is made or freed.
    unused: Option<CommKey>,
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
            unused: None,
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
        let attributes = Attributes::predefined("MPI_COMM_WORLD");
        let members = (0..size).map(PeerIndex).collect();
        self.world = self.enter(world, members, attributes, &no_ends, layers)?;
        let myself = Communicator {
            identity: Identity { creator: me, number: SELF_NUMBER },
            rank: Rank(0),
            group: Arc::new(Group::consecutive(me, 1)),
        };
        let attributes = Attributes::predefined("MPI_COMM_SELF");
        self.myself = self.enter(myself, Arc::new([index]), attributes, &no_ends, layers)?;
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

    /// The same, to change it.
    pub fn valid_mut(&mut self, comm: CommKey) -> Result<&mut CommEntry, Error> {
        match self.table.get_mut(comm.0) {
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

    /// To whom the PML's requests on this communicator belong: its place in the table, which no other communicator has as long
    /// as one of them is not released.
    fn owner(comm: Key) -> Owner {
        Owner(comm.index)
    }

    /// The communicator of a request of the PML that is not released.
    #[inline]
    pub fn of_owner(&self, owner: Owner) -> Option<CommKey> {
        self.table.key_at(owner.0).map(CommKey)
    }

    /// A request on this communicator was given to the caller.
    #[inline]
    pub fn add_request(&mut self, comm: CommKey) {
        if let Some(entry) = self.table.get_mut(comm.0) {
            entry.requests += 1;
        }
    }

    /// The caller gave a request on this communicator back.
    #[inline]
    pub fn release_request(&mut self, comm: CommKey) {
        let Some(entry) = self.table.get_mut(comm.0) else { return };
        debug_assert!(entry.requests > 0, "a request is released once");
        entry.requests = entry.requests.saturating_sub(1);
        if entry.is_unused() {
            entry.next_unused = self.unused.replace(comm);
        }
    }

    /// Removes those that no request needs any more.
    fn remove_unused(&mut self) {
        while let Some(comm) = self.unused
            && let Some(entry) = self.table.remove(comm.0)
        {
            self.unused = entry.next_unused;
        }
    }

    /// MPI_Comm_free as this process sees it: the handle is invalid at once, operations that run on it go on. Takes a time that
    /// no other communicator or request counts in.
    pub fn free<N: Btl, R>(&mut self, comm: CommKey, layers: &mut Layers<N, R>) -> Result<(), Error> {
        if comm == self.world || comm == self.myself {
            return Err(Error::of(Detail::PredefinedCommunicator));
        }
        self.valid_mut(comm)?.freed = true;
        self.remove_unused();
        self.close_if_idle(comm, layers);
        Ok(())
    }

    /// A collective operation on it has ended.
    pub fn end_operation<N: Btl, R>(&mut self, comm: CommKey, layers: &mut Layers<N, R>) {
        if let Some(entry) = self.table.get_mut(comm.0) {
            entry.running -= 1;
        }
        self.close_if_idle(comm, layers);
    }

    /// Closes the channels of a freed communicator when no collective operation runs on it any more, and removes it where no
    /// request on it is left.
    fn close_if_idle<N: Btl, R>(&mut self, comm: CommKey, layers: &mut Layers<N, R>) {
        let Some(entry) = self.table.get(comm.0).filter(|entry| entry.freed && entry.running == 0) else {
            return;
        };
        layers.pml.close(entry.user);
        layers.pml.close(entry.collective);
        if entry.is_unused() {
            self.table.remove(comm.0);
        }
    }

    /// Closes every communicator: nothing is received any more, and what is offered is refused.
    pub fn close_all<N: Btl, R>(&mut self, layers: &mut Layers<N, R>) {
        self.unused = None;
        for (_, entry) in core::mem::take(&mut self.table).iter() {
            layers.pml.close(entry.user);
            layers.pml.close(entry.collective);
        }
        layers.pml.leave();
    }

    /// A number of this process for the identity of a communicator made over one of `size` ranks: no other ever gets it (I5),
    /// unless it is [unused](PendingCreation::unused_number).
    pub fn allocate_number(&mut self, size: u32) -> Result<u32, Error> {
        let identity = match size {
            1 => self.identities.allocate_alone(),
            _ => self.identities.allocate(),
        };
        identity.map(|identity| identity.number).ok_or(Error::of(Detail::IdentitiesExhausted))
    }

    /// A number that this process drew over `parent`, and that named nothing, is drawn again later: without that, processes that
    /// retire the names of this one's communicators would store the gaps for ever.
    fn return_number(&mut self, parent: &Communicator, number: u32) {
        if let Some(creator) = parent.peer(parent.rank) {
            self.identities.give_back(Identity { creator, number });
        }
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
        let created = creation.finish(&entry.communicator)?;
        let parent = entry.communicator.clone();
        let unused = creation.unused_number(&parent, created.as_ref());
        let members = created.as_ref().map(|created| match &created.ranks {
            None => Arc::clone(&entry.members),
            Some(ranks) => ranks.iter().map(|rank| entry.members[rank.index()]).collect(),
        });
        let attributes = entry.attributes.inherited();
        if let Some(number) = unused {
            self.return_number(&parent, number);
        }
        let (Some(Created { mut communicator, .. }), Some(members)) = (created, members) else {
            return Ok(None);
        };
        if communicator.size() == 1 && parent.size() > 1 {
            self.rename_alone(&parent, &mut communicator);
        }
        // No correct member gives two communicators one identity; their messages could not be told apart.
        if layers.pml.is_used(communicator.identity) {
            return Err(Error::of(Detail::BadCreation));
        }
        self.enter(communicator, members, attributes, ends, layers).map(Some)
    }

    /// A communicator of this process alone needs no name that others know: it gets one that leaves no gap.
    fn rename_alone(&mut self, parent: &Communicator, communicator: &mut Communicator) {
        if let Some(identity) = self.identities.allocate_alone() {
            let drawn = core::mem::replace(&mut communicator.identity, identity);
            self.return_number(parent, drawn.number);
        }
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
        attributes: Attributes,
        ends: &Ends,
        layers: &mut Layers<N, R>,
    ) -> Result<CommKey, Error> {
        let (identity, rank) = (communicator.identity, communicator.rank);
        self.remove_unused();
        let make = |key| {
            let owner = Communicators::owner(key);
            let mut open = |kind| layers.pml.open(identity, kind, rank, Arc::clone(&members), owner, ends);
            CommEntry {
                user: open(ContextKind::PointToPoint),
                collective: open(ContextKind::Collective),
                communicator,
                members,
                operations: 0,
                running: 0,
                requests: 0,
                freed: false,
                attributes,
                next_unused: None,
            }
        };
        self.table.try_insert_with(make).map(CommKey).ok_or(Error::of(Detail::NoMemory))
    }
}

#[cfg(test)]
mod tests {
    use super::{Attributes, Communicators};
    use crate::layers::Layers;
    use crate::scripted::{ScriptedJob, ScriptedRuntime, ScriptedTransport, peer};
    use crate::{CommKey, Detail};
    use mend_base::{Identity, PeerIndex, Rank};
    use mend_comm::Communicator;
    use mend_pml::Ends;

    /// Rank 0 of three.
    fn communicators() -> (Communicators, Layers<ScriptedTransport, ScriptedRuntime>) {
        let (mut communicators, mut layers) =
            (Communicators::new(peer(0)), ScriptedJob::default().layers(0, 3));
        communicators.open_predefined(peer(0), 3, PeerIndex(0), &mut layers).unwrap();
        (communicators, layers)
    }

    fn duplicate(
        communicators: &mut Communicators,
        layers: &mut Layers<ScriptedTransport, ScriptedRuntime>,
    ) -> CommKey {
        let entry = communicators.get(communicators.world()).unwrap();
        let (identity, members) = (Identity { creator: peer(0), number: 9 }, entry.members().clone());
        let communicator = Communicator { identity, ..entry.communicator().clone() };
        communicators.enter(communicator, members, Attributes::default(), &Ends::default(), layers).unwrap()
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
