// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collective calls and the making of communicators, started.

use super::Engine;
use crate::collective::Begun;
use crate::communicator::{Contribution, PendingCreation};
use crate::{CommKey, Error, Request, Started};
use mend_coll::Collective;
use mend_comm::Group;
use mend_runtime::Runtime;
use mend_transport::Btl;

impl<N: Btl, R: Runtime> Engine<N, R> {
    /// Starts a collective operation. All members start the same ones in the same order (MPI-5.0 §6.1).
    pub fn collective(&mut self, comm: CommKey, call: Collective) -> Result<Started, Error> {
        self.start(comm, call, None)
    }

    /// Starts to make a communicator with the same members (MPI_COMM_DUP).
    pub fn dup(&mut self, comm: CommKey) -> Result<Started, Error> {
        self.communicators.valid(comm)?;
        let number = self.communicators.number()?;
        let parent = self.communicators.valid(comm)?.communicator();
        let (creation, call) = PendingCreation::dup(parent, number);
        self.start(comm, call, Some(creation))
    }

    /// Starts to make a communicator of those who name the same color, ordered by key; `None`: of none (MPI_COMM_SPLIT).
    pub fn split(&mut self, comm: CommKey, color: Option<u32>, key: i32) -> Result<Started, Error> {
        self.communicators.valid(comm)?;
        let mine = Contribution { color, key, number: self.communicators.number()? };
        let parent = self.communicators.valid(comm)?.communicator();
        let (creation, call) = PendingCreation::split(parent, mine);
        self.start(comm, call, Some(creation))
    }

    /// Starts to make a communicator of `group`, which is of `comm` (MPI_COMM_CREATE).
    pub fn create(&mut self, comm: CommKey, group: &Group) -> Result<Started, Error> {
        let parent = self.communicators.valid(comm)?.communicator();
        PendingCreation::contribution_of_member(parent, group, 0)?;
        let number = self.communicators.number()?;
        let parent = self.communicators.valid(comm)?.communicator();
        let mine = PendingCreation::contribution_of_member(parent, group, number)?;
        let (creation, call) = PendingCreation::split(parent, mine);
        self.start(comm, call, Some(creation))
    }

    /// The communicator that the operation made, once it is done. `None`: this process is no member of it.
    pub fn created(&mut self, request: Request) -> Option<CommKey> {
        let Request::Collective(key) = request else { return None };
        self.collectives.take_created(key)
    }

    fn start(
        &mut self,
        comm: CommKey,
        call: Collective,
        creation: Option<PendingCreation>,
    ) -> Result<Started, Error> {
        let (collectives, mut context) = self.lend();
        let begun = collectives.start(comm, call, creation, &mut context)?;
        self.inquiry.begin_wait();
        Ok(match begun {
            Begun::Done(status) => Started::Done(status),
            Begun::Running(key) => {
                self.communicators.add_request(comm);
                Started::Running(Request::Collective(key))
            }
        })
    }

    /// Makes progress on collective operations; how many ended.
    pub(super) fn progress_collectives(&mut self) -> u32 {
        let (collectives, mut context) = self.lend();
        let ended = collectives.progress(&mut context);
        if let Some(collective) = self.watched.collective() {
            self.watched.clear();
            self.watch_rounds(collective);
        }
        ended
    }
}
