// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The communicators of one process: what each is, and the channels its two context kinds have at the PML. Making them is
//! [`create`]'s; freeing one is local (design "Context ids"): no barrier, no agreement on a number.

pub(crate) mod create;
mod failures;

use crate::{CommKey, Detail, Engine, Error};
use create::Created;
use mend_base::{ContextKind, Identity, PeerIndex, Rank};
use mend_comm::{Communicator, Failures};
use mend_pml::Channel;
use mend_runtime::Runtime;
use mend_transport::Btl;
use std::sync::Arc;

/// A communicator in this process's table.
#[derive(Debug)]
pub(crate) struct CommEntry {
    /// As a value.
    pub communicator: Communicator,
    /// Its members' places in our tables; shared by the communicators that have the same ones.
    pub members: Arc<[PeerIndex]>,
    /// The user's messages.
    pub user: Channel,
    /// Collective operations' messages.
    pub collective: Channel,
    /// Who of them has failed, and of whom the program has said that it knows.
    pub failures: Failures,
    /// How many collective operations were started on it: the next one's tag.
    pub operations: u32,
    /// Collective operations that still run on it.
    pub running: u32,
    /// The handle is gone; the entry goes with the last operation that runs.
    pub freed: bool,
}

impl CommEntry {
    /// The rank, if it is one of this communicator.
    #[inline]
    pub fn check(&self, rank: Rank) -> Result<Rank, Error> {
        let size = self.communicator.size();
        if rank.0 < size { Ok(rank) } else { Err(Error::of(Detail::NoSuchRank(rank, Some(size)))) }
    }
}

impl<N: Btl, R: Runtime> Engine<N, R> {
    /// The communicator, while its handle stands.
    pub fn communicator(&self, comm: CommKey) -> Option<&Communicator> {
        self.entry(comm).ok().map(|entry| &entry.communicator)
    }

    // Hot: per message.
    #[inline]
    pub(crate) fn entry(&self, comm: CommKey) -> Result<&CommEntry, Error> {
        match self.communicators.get(comm.0) {
            Some(entry) if !entry.freed => Ok(entry),
            _ => Err(Error::of(Detail::NoSuchCommunicator)),
        }
    }

    /// MPI_Comm_free as this process sees it: the handle is gone at once, operations that run on it go on.
    pub fn free(&mut self, comm: CommKey) -> Result<(), Error> {
        if comm == self.world || comm == self.myself {
            return Err(Error::of(Detail::PredefinedCommunicator));
        }
        self.entry(comm)?;
        if let Some(entry) = self.communicators.get_mut(comm.0) {
            entry.freed = true;
        }
        self.release_if_unused(comm);
        Ok(())
    }

    /// Takes a freed communicator out when nothing runs on it any more.
    pub(crate) fn release_if_unused(&mut self, comm: CommKey) {
        if !self.communicators.get(comm.0).is_some_and(|entry| entry.freed && entry.running == 0) {
            return;
        }
        let entry = self.communicators.remove(comm.0).expect("it was found above");
        self.pml.close(entry.user);
        self.pml.close(entry.collective);
    }

    /// Closes every communicator: nothing is received any more, and what is offered is refused.
    pub(crate) fn close_all(&mut self) {
        let entries = core::mem::take(&mut self.communicators);
        for (_, entry) in entries.iter() {
            self.pml.close(entry.user);
            self.pml.close(entry.collective);
        }
        self.pml.leave();
    }

    /// The next number of this process for an identity: never given twice (I5).
    pub(crate) fn number(&mut self) -> Result<u32, Error> {
        let identity = self.identities.allocate().ok_or(Error::of(Detail::IdentitiesExhausted))?;
        Ok(identity.number)
    }

    /// A communicator that the exchange over `parent` has brought forth.
    pub(crate) fn commit(&mut self, parent: CommKey, created: Created) -> Result<CommKey, Error> {
        let parents = &self.communicators.get(parent.0).ok_or(Error::of(Detail::NoSuchCommunicator))?.members;
        let members = match &created.ranks {
            None => Arc::clone(parents),
            Some(ranks) => ranks.iter().map(|rank| parents[rank.index()]).collect(),
        };
        let identity = created.communicator.identity;
        // A member that names two communicators alike is out of its mind; their messages could not be told apart.
        if self.pml.is_used(identity) {
            return Err(Error::of(Detail::BadCreation));
        }
        Ok(self.enter(created.communicator, members))
    }

    /// Opens both context kinds, and enters the communicator into the table. Messages that came before go to it now.
    pub(crate) fn enter(&mut self, communicator: Communicator, members: Arc<[PeerIndex]>) -> CommKey {
        let (identity, rank): (Identity, Rank) = (communicator.identity, communicator.rank);
        let user = self.pml.open(identity, ContextKind::PointToPoint, rank, Arc::clone(&members));
        let collective = self.pml.open(identity, ContextKind::Collective, rank, Arc::clone(&members));
        let failures = self.failures_among(&members);
        let (operations, running, freed) = (0, 0, false);
        let entry =
            CommEntry { communicator, members, user, collective, failures, operations, running, freed };
        CommKey(self.communicators.insert(entry))
    }
}
