// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The communicators of one process, with the channels of each at the PML, one for each context. [`create`] creates
//! communicators; freeing one is local (design "Context ids"): without a barrier or an agreement on a number.
//!
//! A part of the engine: it owns the table of communicators and allocates the identities of this process; it opens and closes
//! channels at the PML.

mod create;
mod properties;

use crate::layers::Layers;
use crate::origin::Origin;
use crate::published_groups::PublishedGroups;
use crate::{CommKey, Detail, Error, ErrorRange};
pub(crate) use create::{Contribution, Created, DUP_NAMER, PendingCreation};
use mend_base::{ContextKind, Identity, Key, Peer, PeerIndex, Rank, Slab};
use mend_coll::{Framework, Selection};
use mend_comm::{Communicator, Group, Remote};
use mend_pml::{Channel, CommIndex, Ends};
use mend_proto::identity::IdentityAllocator;
use mend_transport::Rdma;
pub(crate) use properties::Properties;
use std::sync::Arc;

/// A communicator in the table of this process.
#[derive(Debug)]
pub(crate) struct CommEntry {
    communicator: Communicator,
    /// The peer indices of all members, by rank; shared by the communicators with the same members. Those of both groups of an
    /// intercommunicator, by rank in the union.
    members: Arc<[PeerIndex]>,
    /// The number of ranks to which the program can send.
    partners: u32,
    /// For messages of the program.
    user: Channel,
    /// For messages of collective operations and creations, among all members.
    collective: Channel,
    /// For creations among some members; opened when it is needed.
    creation: Option<Channel>,
    /// For agreements by schedules; opened when it is needed.
    agreement: Option<Channel>,
    /// For leaders that create an intercommunicator; opened when it is needed.
    leaders: Option<Channel>,
    /// The components that serve its collective operations.
    selection: Arc<Selection>,
    /// The number of collective operations that run on it.
    running: u32,
    /// The number of requests on it of all kinds that are not released: its error handler gets their errors (Row EH4).
    requests: u32,
    /// The handle was freed. The channels are closed when no collective operation runs any more.
    freed: bool,
    revoked: bool,
    properties: Properties,
    /// If it may exist at some members only.
    origin: Option<Origin>,
    /// The next in the list [`Communicators::unused`].
    next_unused: Option<CommKey>,
}

impl CommEntry {
    // Hot: per message.
    /// The channel for messages of the program; `Err`: the communicator has no such rank.
    #[inline]
    pub fn channel_to(&self, rank: Rank) -> Result<Channel, Error> {
        let size = self.partners;
        if rank.0 < size { Ok(self.user) } else { Err(Error::of(Detail::NoSuchRank(rank, Some(size)))) }
    }

    /// The channel for messages of the program.
    #[inline]
    pub fn point_to_point(&self) -> Channel {
        self.user
    }

    /// The channel for messages of collective operations.
    pub fn collective(&self) -> Channel {
        self.collective
    }

    /// The components that serve its collective operations.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Identity, rank and group.
    pub fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// The channel that counts the acknowledged failures: that of all members.
    pub fn acknowledging(&self) -> Channel {
        if self.communicator.is_inter() { self.collective } else { self.user }
    }

    /// The error for arguments of calls that Mend does not support on an intercommunicator.
    pub fn require_intra(&self) -> Result<(), Error> {
        if self.communicator.is_inter() { Err(Error::of(Detail::Intercommunicator)) } else { Ok(()) }
    }

    /// How it was created, if it may exist at some members only.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// It may exist at some members only.
    pub fn set_origin(&mut self, origin: Option<Origin>) {
        self.origin = origin;
    }

    /// The peer indices of all members, by rank in the union.
    pub fn members(&self) -> &Arc<[PeerIndex]> {
        &self.members
    }

    /// Name, error handler and hints.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Name, error handler and hints, to be changed.
    pub fn properties_mut(&mut self) -> &mut Properties {
        &mut self.properties
    }

    /// Whether its revocation has reached this process.
    pub fn is_revoked(&self) -> bool {
        self.revoked
    }

    /// The revocation has reached this process.
    pub fn set_revoked(&mut self) {
        self.revoked = true;
    }

    /// An error whose cause names a member by its rank in the union, as the program gets it: the ranks of an intercommunicator are those
    /// of the remote group, so there the cause names the process.
    pub fn named(&self, error: Error) -> Error {
        if !self.communicator.is_inter() {
            return error;
        }
        let member = |rank| self.communicator.everyone().peer(rank);
        match error.detail {
            Detail::ProcFailed(rank) => {
                member(rank).map_or(error, |peer| Error::of(Detail::MemberFailed(peer)))
            }
            Detail::PeerLeft(rank) => member(rank).map_or(error, |peer| Error::of(Detail::MemberLeft(peer))),
            Detail::PeerFreed(_) | Detail::NotCreated(_) | Detail::Unreachable(..) => {
                Error::of(Detail::CreationRefused)
            }
            _ => error,
        }
    }

    /// The rank of a peer in the union.
    pub fn rank_of(&self, peer: PeerIndex) -> Option<Rank> {
        self.members.iter().position(|member| *member == peer).map(|at| Rank(at as u32))
    }

    /// Whether its handle was freed, no operation runs on it, and no request on it is left.
    fn is_unused(&self) -> bool {
        self.freed && self.running == 0 && self.requests == 0
    }

    /// Counts a collective operation that runs.
    pub fn begin_operation(&mut self) {
        self.running += 1;
    }

    /// Whether a collective operation, a creation or an agreement runs on it.
    pub fn has_running_operations(&self) -> bool {
        self.running > 0
    }

    /// Whether the failure of this process revokes it, and has not yet.
    pub fn is_in_range_of(&self, failed: PeerIndex) -> bool {
        let is_in_range = match self.properties.hints().error_range {
            ErrorRange::Local => false,
            ErrorRange::Group => self.members.contains(&failed),
            ErrorRange::Universe => true,
        };
        is_in_range && !self.revoked
    }

    /// Whether the handle was freed.
    pub fn is_freed(&self) -> bool {
        self.freed
    }

    fn close<N: Rdma, R>(&self, layers: &mut Layers<N, R>) {
        let opened_late = [self.creation, self.agreement, self.leaders].into_iter().flatten();
        for channel in [self.user, self.collective].into_iter().chain(opened_late) {
            layers.pml.close(channel);
        }
    }
}

/// The communicators of this process.
#[derive(Debug)]
pub(crate) struct Communicators {
    table: Slab<CommEntry>,
    world: CommKey,
    myself: CommKey,
    identities: IdentityAllocator,
    framework: Framework,
    /// The first of a list of communicators whose handle was freed and whose last request was released. They are removed when the
    /// next communicator is created or freed.
    unused: Option<CommKey>,
    published: Arc<PublishedGroups>,
}

/// The number of the identity of WORLD, whose creator is its rank 0. It needs no exchange, as that of SELF.
const WORLD_NUMBER: u32 = 0;
/// The number of the identity of SELF.
const SELF_NUMBER: u32 = 1;
const _: () = assert!(WORLD_NUMBER < IdentityAllocator::FIRST && SELF_NUMBER < IdentityAllocator::FIRST);

impl Communicators {
    /// No communicators yet; the process is `me`. The framework selects the components of each communicator.
    pub fn new(me: Peer, framework: Framework) -> Self {
        let none = CommKey(Key { index: 0, generation: 0 });
        Communicators {
            table: Slab::new(),
            world: none,
            myself: none,
            identities: IdentityAllocator::new(me),
            framework,
            unused: None,
            published: Arc::default(),
        }
    }

    /// Creates WORLD of `size` ranks, and SELF, whose member has the peer index `index`.
    pub fn open_predefined<N: Rdma, R>(
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
            remote: None,
        };
        let no_ends = Ends::default();
        let properties = Properties::predefined("MPI_COMM_WORLD");
        let members = (0..size).map(PeerIndex).collect();
        self.world = self.enter(world, members, properties, &no_ends, layers)?;
        let myself = Communicator {
            identity: Identity { creator: me, number: SELF_NUMBER },
            rank: Rank(0),
            group: Arc::new(Group::consecutive(me, 1)),
            remote: None,
        };
        let properties = Properties::predefined("MPI_COMM_SELF");
        self.myself = self.enter(myself, Arc::new([index]), properties, &no_ends, layers)?;
        Ok(())
    }

    /// The groups of these communicators, for readers outside the engine.
    pub fn published(&self) -> &Arc<PublishedGroups> {
        &self.published
    }

    /// MPI_COMM_WORLD.
    pub fn comm_world(&self) -> CommKey {
        self.world
    }

    /// MPI_COMM_SELF.
    pub fn comm_self(&self) -> CommKey {
        self.myself
    }

    /// Reserves memory for so many more communicators in the tables. `false`: there is none.
    pub fn reserve(&mut self, count: usize) -> bool {
        self.table.try_reserve(count) && self.published.reserve(self.table.slots() as usize + count)
    }

    /// The number of communicators.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    // Hot: per message.
    /// The communicator, if its handle is valid.
    #[inline]
    pub fn valid(&self, comm: CommKey) -> Result<&CommEntry, Error> {
        match self.table.get(comm.0) {
            Some(entry) if !entry.freed => Ok(entry),
            _ => Err(Error::of(Detail::NoSuchCommunicator)),
        }
    }

    /// As [`valid`](Communicators::valid), to be changed.
    pub fn valid_mut(&mut self, comm: CommKey) -> Result<&mut CommEntry, Error> {
        match self.table.get_mut(comm.0) {
            Some(entry) if !entry.freed => Ok(entry),
            _ => Err(Error::of(Detail::NoSuchCommunicator)),
        }
    }

    // Hot: per blocking receive.
    /// The communicator, if it exists; its handle may have been freed.
    #[inline]
    pub fn get(&self, comm: CommKey) -> Option<&CommEntry> {
        self.table.get(comm.0)
    }

    /// As [`get`](Communicators::get), to be changed.
    pub fn get_mut(&mut self, comm: CommKey) -> Option<&mut CommEntry> {
        self.table.get_mut(comm.0)
    }

    /// Under which the PML stores the requests on this communicator: its index, which no other communicator gets
    /// before all these requests are released.
    fn index_of(comm: Key) -> CommIndex {
        CommIndex(comm.index)
    }

    /// The communicator of a request of the PML that is not released.
    #[inline]
    pub fn with_index(&self, index: CommIndex) -> Option<CommKey> {
        self.table.key_at(index.0).map(CommKey)
    }

    /// The communicator with this identity, which the PML finds at `index`. `None`: only a channel of it is left, for operations whose
    /// requests the program has freed, and the index may be that of another communicator.
    pub fn with_identity(&self, index: CommIndex, identity: Identity) -> Option<CommKey> {
        let comm = self.with_index(index)?;
        (self.get(comm)?.communicator().identity == identity).then_some(comm)
    }

    /// Counts a request on this communicator.
    #[inline]
    pub fn add_request(&mut self, comm: CommKey) {
        if let Some(entry) = self.table.get_mut(comm.0) {
            entry.requests += 1;
        }
    }

    /// Counts down for a request on this communicator that was released.
    #[inline]
    pub fn release_request(&mut self, comm: CommKey) {
        let Some(entry) = self.table.get_mut(comm.0) else { return };
        debug_assert!(entry.requests > 0, "a request is released once");
        entry.requests = entry.requests.saturating_sub(1);
        if entry.is_unused() {
            entry.next_unused = self.unused.replace(comm);
        }
    }

    /// Removes the unused communicators.
    fn remove_unused(&mut self) {
        while let Some(comm) = self.unused
            && let Some(entry) = self.table.remove(comm.0)
        {
            self.unused = entry.next_unused;
        }
    }

    /// MPI_Comm_free, which is local: the handle is invalid at once; operations that run on the communicator go on. Its time does not
    /// depend on the number of communicators or requests.
    pub fn free<N: Rdma, R>(&mut self, comm: CommKey, layers: &mut Layers<N, R>) -> Result<(), Error> {
        if comm == self.world || comm == self.myself {
            return Err(Error::of(Detail::PredefinedCommunicator));
        }
        self.valid_mut(comm)?.freed = true;
        self.published.remove(comm);
        self.remove_unused();
        self.close_if_idle(comm, layers);
        Ok(())
    }

    /// Counts down for a collective operation that has ended.
    pub fn end_operation<N: Rdma, R>(&mut self, comm: CommKey, layers: &mut Layers<N, R>) {
        if let Some(entry) = self.table.get_mut(comm.0) {
            entry.running -= 1;
        }
        self.close_if_idle(comm, layers);
    }

    /// Closes the channels of a freed communicator if no collective operation runs on it, and removes the communicator if no request
    /// on it is left.
    fn close_if_idle<N: Rdma, R>(&mut self, comm: CommKey, layers: &mut Layers<N, R>) {
        let Some(entry) = self.table.get(comm.0).filter(|entry| entry.freed && entry.running == 0) else {
            return;
        };
        entry.close(layers);
        if entry.is_unused() {
            self.table.remove(comm.0);
        }
    }

    /// Closes and removes all communicators: from now on messages of other processes are refused.
    pub fn close_all<N: Rdma, R>(&mut self, layers: &mut Layers<N, R>) {
        self.unused = None;
        for (_, entry) in core::mem::take(&mut self.table).iter() {
            entry.close(layers);
        }
        layers.pml.begin_finalize();
    }

    /// A number for the identity of a communicator that is created over one of `size` ranks. It is never allocated again (I5), unless
    /// it is [unused](PendingCreation::unused_number).
    pub fn allocate_number(&mut self, size: u32) -> Result<u32, Detail> {
        let identity = match size {
            1 => self.identities.allocate_alone(),
            _ => self.identities.allocate(),
        };
        identity.map(|identity| identity.number).ok_or(Detail::IdentitiesExhausted)
    }

    /// All numbers are allocated.
    #[cfg(test)]
    pub fn exhaust_numbers(&mut self, me: Peer) {
        self.identities = IdentityAllocator::with_end(me, IdentityAllocator::FIRST);
    }

    /// Takes back a number that this process allocated for a creation over `parent` and that no communicator got, so that it is
    /// allocated again. Otherwise other processes would store the gap among the retired identities of this process for ever.
    pub fn return_number(&mut self, parent: &Communicator, number: u32) {
        if let Some(creator) = parent.peer(parent.rank).filter(|_| number != Contribution::NO_NUMBER) {
            self.identities.give_back(Identity { creator, number });
        }
    }

    /// The communicators that are to be revoked because a process has failed (rows IK1, IK2).
    pub fn in_range_of(&self, failed: PeerIndex) -> Vec<Identity> {
        let entries = self.table.iter().filter(|(_, entry)| !entry.freed && entry.is_in_range_of(failed));
        entries.map(|(_, entry)| entry.communicator.identity).collect()
    }

    /// The communicators whose handle is not freed that have this member.
    pub fn with_member(&self, member: PeerIndex) -> Vec<Identity> {
        let entries = self.table.iter().filter(|(_, entry)| !entry.freed && entry.members.contains(&member));
        entries.map(|(_, entry)| entry.communicator.identity).collect()
    }

    /// Creates the communicator after the exchange over `parent`. `None`: this process is not a member of it.
    pub fn commit<N: Rdma, R>(
        &mut self,
        parent: CommKey,
        creation: &PendingCreation,
        ends: &Ends,
        layers: &mut Layers<N, R>,
    ) -> Result<Option<CommKey>, Error> {
        let Some(entry) = self.table.get(parent.0) else { return Ok(None) };
        let original = entry.communicator.clone();
        let parent = original.union();
        let created = creation.finish(&parent)?;
        let unused = creation.unused_number(&parent, created.as_ref());
        let members = created.as_ref().map(|created| match &created.ranks {
            None => Arc::clone(&entry.members),
            Some(ranks) => ranks.iter().map(|rank| entry.members[rank.index()]).collect(),
        });
        let properties = entry.properties.inherited(creation.hints());
        if let Some(number) = unused {
            self.return_number(&parent, number);
        }
        let (Some(Created { mut communicator, .. }), Some(members)) = (created, members) else {
            return Ok(None);
        };
        if creation.keeps_groups() {
            communicator = Communicator { identity: communicator.identity, ..original };
        }
        if communicator.everyone().size() == 1 && parent.size() > 1 {
            self.rename_alone(&parent, &mut communicator);
        }
        // No correct member gives two communicators one identity: their messages could not be distinguished.
        if layers.pml.is_used(communicator.identity) {
            return Err(Error::of(Detail::BadCreation));
        }
        self.enter(communicator, members, properties, ends, layers).map(Some)
    }

    /// Gives a communicator of this process alone another identity, which no other process learns, and which leaves no gap.
    fn rename_alone(&mut self, parent: &Communicator, communicator: &mut Communicator) {
        if let Some(identity) = self.identities.allocate_alone() {
            let before = core::mem::replace(&mut communicator.identity, identity);
            self.return_number(parent, before.number);
        }
    }

    /// The creation of a communicator has failed here. If its identity has arrived, other members may have created it: messages that
    /// they send on it are refused.
    ///
    /// Returns the identity, if messages on it are refused from now on.
    pub fn roll_back<N: Rdma, R>(
        &self,
        parent: CommKey,
        creation: &PendingCreation,
        layers: &mut Layers<N, R>,
    ) -> Option<Identity> {
        let identity = creation.identity(&self.table.get(parent.0)?.communicator.union())?;
        self.never_create(identity, layers)
    }

    /// A communicator with this identity is not created here: messages that other members send on it are refused.
    ///
    /// Returns the identity, if messages on it are refused from now on.
    pub fn never_create<N: Rdma, R>(
        &self,
        identity: Identity,
        layers: &mut Layers<N, R>,
    ) -> Option<Identity> {
        if layers.pml.is_used(identity) {
            return None;
        }
        mend_base::reach!("mpi.collective: not created here, and perhaps by another member");
        layers.pml.never_open(identity);
        Some(identity)
    }

    /// The channel for creations among some members of `comm`.
    pub fn creation_channel<N: Rdma, R>(
        &mut self,
        comm: CommKey,
        ends: &Ends,
        layers: &mut Layers<N, R>,
    ) -> Result<Channel, Error> {
        self.late_channel(comm, ContextKind::Creation, |entry| &mut entry.creation, ends, layers)
    }

    /// The channel for two leaders that are members of `comm`. Notes of leaders and announcements must not match each other's receives:
    /// threads may use one tag for both at a time.
    pub fn leaders_channel<N: Rdma, R>(
        &mut self,
        comm: CommKey,
        ends: &Ends,
        layers: &mut Layers<N, R>,
    ) -> Result<Channel, Error> {
        let entry = self.valid_mut(comm)?;
        let open =
            || open_late(comm, ContextKind::Leaders, &entry.communicator, &entry.members, ends, layers);
        Ok(*entry.leaders.get_or_insert_with(open))
    }

    /// The channel for agreements of the members of `comm` by schedules.
    pub fn agreement_channel<N: Rdma, R>(
        &mut self,
        comm: CommKey,
        ends: &Ends,
        layers: &mut Layers<N, R>,
    ) -> Result<Channel, Error> {
        self.late_channel(comm, ContextKind::Agreement, |entry| &mut entry.agreement, ends, layers)
    }

    /// A channel of `comm` that is opened when it is first used, and then is in `slot`.
    fn late_channel<N: Rdma, R>(
        &mut self,
        comm: CommKey,
        kind: ContextKind,
        slot: fn(&mut CommEntry) -> &mut Option<Channel>,
        ends: &Ends,
        layers: &mut Layers<N, R>,
    ) -> Result<Channel, Error> {
        let entry = self.valid_mut(comm)?;
        if let Some(channel) = *slot(entry) {
            return Ok(channel);
        }
        let channel = open_late(comm, kind, &entry.communicator, &entry.members, ends, layers);
        *slot(entry) = Some(channel);
        Ok(channel)
    }

    /// Adds the communicator to the table and opens its two channels. Early messages for it are delivered to them.
    pub fn enter<N: Rdma, R>(
        &mut self,
        communicator: Communicator,
        members: Arc<[PeerIndex]>,
        properties: Properties,
        ends: &Ends,
        layers: &mut Layers<N, R>,
    ) -> Result<CommKey, Error> {
        let (identity, rank) = (communicator.identity, communicator.rank_in_union());
        let group = Arc::clone(communicator.everyone());
        self.remove_unused();
        // Before the channels are opened: a communicator that was closed counts as one that this process has had.
        if !self.reserve(1) {
            return Err(Error::of(Detail::NoMemory));
        }
        let selection = self.framework.select(communicator.everyone().size());
        let make = |key| {
            let (index, user, other) =
                (Communicators::index_of(key), ContextKind::PointToPoint, ContextKind::Collective);
            let user = match &communicator.remote {
                None => layers.pml.open(identity, user, rank, Arc::clone(&members), index, ends),
                Some(remote) => {
                    let remote = remote_members(remote, &members);
                    layers.pml.open_remote(identity, user, communicator.rank, remote, index, ends)
                }
            };
            CommEntry {
                user,
                collective: layers.pml.open(identity, other, rank, Arc::clone(&members), index, ends),
                creation: None,
                agreement: None,
                leaders: None,
                selection,
                partners: communicator.partners().size(),
                communicator,
                members,
                running: 0,
                requests: 0,
                freed: false,
                revoked: false,
                properties,
                origin: None,
                next_unused: None,
            }
        };
        let comm = self.table.try_insert_with(make).map(CommKey).ok_or(Error::of(Detail::NoMemory))?;
        self.published.publish(comm, &group);
        Ok(comm)
    }
}

/// Opens a context that most communicators do not need.
fn open_late<N: Rdma, R>(
    comm: CommKey,
    context_kind: ContextKind,
    communicator: &Communicator,
    members: &Arc<[PeerIndex]>,
    ends: &Ends,
    layers: &mut Layers<N, R>,
) -> Channel {
    let index = Communicators::index_of(comm.0);
    let (identity, rank) = (communicator.identity, communicator.rank_in_union());
    layers.pml.open(identity, context_kind, rank, Arc::clone(members), index, ends)
}

/// The members of the remote group, of those of both groups.
fn remote_members(remote: &Remote, members: &[PeerIndex]) -> Arc<[PeerIndex]> {
    let count = remote.group().size() as usize;
    let (first, last) = (&members[..count], &members[members.len() - count..]);
    if remote.is_local_first() { last.into() } else { first.into() }
}

#[cfg(test)]
mod tests {
    use super::{Communicators, Properties};
    use crate::layers::Layers;
    use crate::scripted::{ScriptedJob, ScriptedRuntime, ScriptedTransport, peer};
    use crate::{CommKey, Detail};
    use mend_base::{Identity, PeerIndex, Rank};
    use mend_coll::Framework;
    use mend_comm::Communicator;
    use mend_pml::Ends;

    /// Rank 0 of three.
    fn communicators() -> (Communicators, Layers<ScriptedTransport, ScriptedRuntime>) {
        let (mut communicators, mut layers) = (
            Communicators::new(peer(0), Framework::with_defaults(true)),
            ScriptedJob::default().layers(0, 3),
        );
        communicators.open_predefined(peer(0), 3, PeerIndex(0), &mut layers).unwrap();
        (communicators, layers)
    }

    fn duplicate(
        communicators: &mut Communicators,
        layers: &mut Layers<ScriptedTransport, ScriptedRuntime>,
    ) -> CommKey {
        let entry = communicators.get(communicators.comm_world()).unwrap();
        let (identity, members) = (Identity { creator: peer(0), number: 9 }, entry.members().clone());
        let communicator = Communicator { identity, ..entry.communicator().clone() };
        communicators.enter(communicator, members, Properties::default(), &Ends::default(), layers).unwrap()
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
        for comm in [communicators.comm_world(), communicators.comm_self()] {
            let refused = communicators.free(comm, &mut layers).unwrap_err();
            assert_eq!(refused.detail, Detail::PredefinedCommunicator);
        }
    }

    #[test]
    fn a_rank_beyond_the_size_is_refused_at_the_engine() {
        let (communicators, _layers) = communicators();
        let world = communicators.valid(communicators.comm_world()).unwrap();
        assert!(world.channel_to(Rank(2)).is_ok());
        assert_eq!(world.channel_to(Rank(3)).unwrap_err().detail, Detail::NoSuchRank(Rank(3), Some(3)));
    }
}
