// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names, error handlers and hints of communicators, the communicator of a request, and the rank of a member in MPI_COMM_WORLD.

use super::Engine;
use crate::{CommKey, Error, ErrorHandler, Hints, Request};
use mend_base::{Identity, PeerIndex, Rank};
use mend_proto::spread::Item;
use mend_runtime::Runtime;
use mend_transport::Rdma;

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// The communicator's name (MPI_COMM_GET_NAME).
    pub fn name(&self, comm: CommKey) -> Result<&[u8], Error> {
        Ok(self.communicators.valid(comm)?.properties().name())
    }

    /// MPI_COMM_SET_NAME.
    pub fn set_name(&mut self, comm: CommKey, name: &[u8]) -> Result<(), Error> {
        self.communicators.valid_mut(comm)?.properties_mut().set_name(name)
    }

    /// The error handler of the communicator. A communicator whose handle was freed has one until its last request is released, and
    /// then until another communicator is created or freed (Row EH4): the error of the last request is reported after its release.
    pub fn error_handler(&self, comm: CommKey) -> Option<&ErrorHandler> {
        Some(self.communicators.get(comm)?.properties().error_handler())
    }

    /// MPI_COMM_SET_ERRHANDLER.
    pub fn set_error_handler(&mut self, comm: CommKey, handler: ErrorHandler) -> Result<(), Error> {
        self.communicators.valid_mut(comm)?.properties_mut().set_error_handler(handler);
        Ok(())
    }

    /// The hints of the communicator (MPI_COMM_GET_INFO).
    pub fn hints(&self, comm: CommKey) -> Result<Hints, Error> {
        Ok(self.communicators.valid(comm)?.properties().hints())
    }

    /// Sets the hints of the communicator (MPI_COMM_SET_INFO). All members set the same ones (MPI-5.0 §7.4.4); nothing is sent. They
    /// apply to operations that start later, but that failures which are known already revoke the communicator at once if the hints
    /// say so.
    pub fn set_hints(&mut self, comm: CommKey, hints: Hints) -> Result<(), Error> {
        self.communicators.valid_mut(comm)?.properties_mut().set_hints(hints);
        self.revoke_if_in_range(comm);
        Ok(())
    }

    /// Revokes a communicator whose hints say so because of a failure that is known here (rows IK1, IK2). The news goes to all members, as
    /// for MPIX_Comm_revoke.
    pub(super) fn revoke_if_in_range(&mut self, comm: CommKey) {
        let Ok(entry) = self.communicators.valid(comm) else { return };
        if self.ends.failed().iter().any(|&failed| entry.is_in_range_of(failed)) {
            mend_base::reach!("mpi.properties: revoked by a failure before");
            self.learn(entry.communicator().identity, Item::Revoked);
        }
    }

    /// The failure of a process is published: revokes the communicators whose hints say so. One that is not decided yet is looked at when
    /// the program gets it: if it never exists, no member must wait for news about it.
    pub(super) fn revoke_in_range_of(&mut self, failed: PeerIndex) {
        let hidden: Vec<Identity> =
            self.creations.hidden().filter_map(|comm| self.identity_of(comm)).collect();
        let in_range = self.communicators.in_range_of(failed).into_iter();
        for identity in in_range.filter(|identity| !hidden.contains(identity)) {
            mend_base::reach!("mpi.properties: revoked by a failure");
            self.learn(identity, Item::Revoked);
        }
    }

    /// The rank in MPI_COMM_WORLD of a member of a communicator; of a member of the remote group of an intercommunicator, whose ranks its
    /// errors name. The handle of the communicator may have been freed, as for
    /// [`error_handler`](Engine::error_handler).
    pub fn rank_in_world(&self, comm: CommKey, rank: Rank) -> Option<Rank> {
        let member = self.communicators.get(comm)?.communicator().partners().peer(rank)?;
        self.communicators.get(self.communicators.comm_world())?.communicator().group.rank_of(member)
    }

    /// The communicator of a request that is not released.
    #[inline]
    pub fn communicator_of(&self, request: Request) -> Option<CommKey> {
        match request {
            Request::PointToPoint(key) => {
                let index = self.layers.pml.comm(mend_pml::Request(key))?;
                self.communicators.with_index(index)
            }
            Request::Collective(key) => self.collectives.operations().communicator_of(key),
            Request::Agreement(key) => self.agreements.operations().communicator_of(key),
            Request::Creation(key) => self.creations.operations().communicator_of(key),
            Request::EndedAtStart(key) => self.ended_at_start.communicator_of(key),
        }
    }
}
