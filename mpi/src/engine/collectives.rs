// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The start and progress of collective operations and of creations of communicators.

use super::Engine;
use crate::collective::Begun;
use crate::communicator::{Contribution, DUP_NAMER, PendingCreation};
use crate::{CommKey, Error, Hints, Request, Started};
use mend_coll::Collective;
use mend_comm::Group;
use mend_runtime::Runtime;
use mend_transport::Btl;

impl<N: Btl, R: Runtime> Engine<N, R> {
    /// Starts a collective operation. All members start the same ones in the same order (MPI-5.0 §6.1).
    pub fn collective(&mut self, comm: CommKey, call: Collective) -> Result<Started, Error> {
        self.start(comm, call, None)
    }

    /// Starts the creation of a communicator with the same members (MPI_COMM_DUP), which has the hints that `comm` has now: MPI-5.0
    /// §7.4.2 leaves hints out of a duplicate, but a library that works on one is to report failures as the program asked for
    /// (Row IK4).
    pub fn dup(&mut self, comm: CommKey) -> Result<Started, Error> {
        self.dup_with_hints(comm, self.hints(comm)?)
    }

    /// As [`dup`](Engine::dup), with other hints (MPI_COMM_DUP_WITH_INFO).
    pub fn dup_with_hints(&mut self, comm: CommKey, hints: Hints) -> Result<Started, Error> {
        let parent = self.communicators.valid(comm)?.communicator();
        let (is_namer, size) = (parent.rank == DUP_NAMER, parent.size());
        let number = if is_namer { Some(self.communicators.allocate_number(size)?) } else { None };
        let (creation, call) = PendingCreation::dup(number, hints)?;
        self.start(comm, call, Some(creation))
    }

    /// Starts the creation of a communicator of the members with the same color, ordered by key (MPI_COMM_SPLIT). Color `None`:
    /// `MPI_UNDEFINED`.
    pub fn split(&mut self, comm: CommKey, color: Option<u32>, key: i32) -> Result<Started, Error> {
        let size = self.communicators.valid(comm)?.communicator().size();
        let number = match color {
            Some(_) => self.communicators.allocate_number(size)?,
            None => Contribution::NO_NUMBER,
        };
        let parent = self.communicators.valid(comm)?.communicator();
        let (creation, call) = PendingCreation::split(parent, Contribution { color, key, number })?;
        self.start(comm, call, Some(creation))
    }

    /// Starts the creation of a communicator of `group`, whose processes are members of `comm` (MPI_COMM_CREATE).
    pub fn create(&mut self, comm: CommKey, group: &Group) -> Result<Started, Error> {
        let parent = self.communicators.valid(comm)?.communicator();
        let mut mine = PendingCreation::contribution_of_member(parent, group)?;
        let size = parent.size();
        if mine.color.is_some() {
            mine.number = self.communicators.allocate_number(size)?;
        }
        let parent = self.communicators.valid(comm)?.communicator();
        let (creation, call) = PendingCreation::split(parent, mine)?;
        self.start(comm, call, Some(creation))
    }

    /// The communicator that the operation created, once the operation has ended. `None`: this process is not a member of it.
    pub fn created(&mut self, request: Request) -> Option<CommKey> {
        match request {
            Request::Collective(key) => self.collectives.take_created(key),
            Request::Agreement(key) => self.agreements.operations_mut().take_created(key),
            Request::PointToPoint(_) | Request::EndedAtStart(_) => None,
        }
    }

    fn start(
        &mut self,
        comm: CommKey,
        call: Collective,
        creation: Option<PendingCreation>,
    ) -> Result<Started, Error> {
        let (collectives, mut parts) = self.collectives_and_parts();
        let begun = collectives.start(comm, call, creation, &mut parts)?;
        self.unconnected_query.begin_wait();
        Ok(match begun {
            Begun::Done(status) => Started::Done(status),
            Begun::Running(key) => {
                self.communicators.add_request(comm);
                Started::Running(Request::Collective(key))
            }
        })
    }

    /// Makes progress on collective operations. Returns how many ended.
    pub(super) fn progress_collectives(&mut self) -> u32 {
        let (collectives, mut parts) = self.collectives_and_parts();
        let ended = collectives.progress(&mut parts);
        if let Some(collective) = self.expected_senders.collective() {
            self.expected_senders.clear();
            self.expect_rounds(collective);
        }
        ended
    }
}
