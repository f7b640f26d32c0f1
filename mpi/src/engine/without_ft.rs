// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Agreements and shrinks in a job that is not fault tolerant (`mpiexec --with-ft no`): a component that agrees by a schedule has won, and
//! nobody fails, since the first failure ends the job. So the members agree by a collective operation, and a shrink is a duplicate. Both
//! run on the agreement context, which a revocation does not end (Trap 10).

use super::Engine;
use crate::communicator::{DUP_NAMER, PendingCreation};
use crate::{CommKey, Detail, Error, Hints, Request, Started};
use mend_coll::AgreeOn;
use mend_comm::{Group, Remote};
use mend_datatype::{Datatype, TypedBuffer};
use mend_runtime::Runtime;
use mend_transport::{Buffer, Rdma, UserMemory};
use std::sync::Arc;

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// Starts the agreement on the int at `flag`. `None`: the members agree by the protocol.
    pub(super) fn agree_by_schedule(
        &mut self,
        comm: CommKey,
        flag: &UserMemory,
    ) -> Result<Option<Request>, Error> {
        let entry = self.communicators.valid(comm)?;
        if entry.selection().agrees_by_protocol() {
            return Ok(None);
        }
        let (me, size) = (entry.communicator().rank_in_union(), entry.members().len() as u32);
        let on = match entry.communicator().remote.as_ref().map(Remote::is_local_first) {
            None => AgreeOn::All,
            Some(true) => AgreeOn::SecondGroup,
            Some(false) => AgreeOn::FirstGroup,
        };
        let flag = TypedBuffer::new(flag.share(), Datatype::INT, 1);
        let Some(schedule) = entry.selection().agree(me, size, &flag, on) else { return Ok(None) };
        let channel = self.communicators.agreement_channel(comm, &self.ends, &mut self.layers)?;
        let started = self.start_schedule(comm, channel, schedule)?;
        self.request_of(comm, started).map(Some)
    }

    /// Starts the agreement on the failed members, of which there are none. `None`: the members agree by the protocol.
    pub(super) fn agree_failed_by_schedule(
        &mut self,
        comm: CommKey,
        into: &crate::AgreedGroup,
    ) -> Result<Option<Request>, Error> {
        // What the protocol agrees on begins without memory, so nothing is reserved for it here.
        if self.communicators.valid(comm)?.selection().agrees_by_protocol() {
            return Ok(None);
        }
        let flag = Buffer::try_zeroed(size_of::<u32>()).ok_or(Error::of(Detail::NoMemory))?;
        let request = self.agree_by_schedule(comm, &UserMemory::of_buffer(&flag))?;
        if request.is_some() {
            _ = into.set(Arc::new(Group::default()));
        }
        Ok(request)
    }

    /// Starts a shrink, which keeps all members. `None`: the members agree by the protocol.
    pub(super) fn shrink_by_schedule(
        &mut self,
        comm: CommKey,
        into: Option<&UserMemory>,
    ) -> Result<Option<Request>, Error> {
        let entry = self.communicators.valid(comm)?;
        if entry.selection().agrees_by_protocol() {
            return Ok(None);
        }
        let parent = entry.communicator();
        let (is_namer, size) = (parent.rank_in_union() == DUP_NAMER, parent.everyone().size());
        let channel = self.communicators.agreement_channel(comm, &self.ends, &mut self.layers)?;
        let number = is_namer.then(|| self.communicators.allocate_number(size)).transpose();
        let begun = number.and_then(|number| PendingCreation::dup(number, Hints::default()));
        let started = self.start_creation_on(comm, channel, true, begun, into.map(UserMemory::share))?;
        self.request_of(comm, started).map(Some)
    }

    /// A request also for an operation that is over.
    fn request_of(&mut self, comm: CommKey, started: Started) -> Result<Request, Error> {
        match started {
            Started::Done(status) => self.add_ended_at_start(comm, status),
            Started::Running(request) => Ok(request),
        }
    }
}
