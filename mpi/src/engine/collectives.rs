// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The start and progress of collective operations.

use super::Engine;
use super::call_report::name_of;
use crate::collective::Begun;
use crate::{CommKey, Error, Request, Started};
use mend_coll::{Collective, Schedule};
use mend_pml::Channel;
use mend_runtime::Runtime;
use mend_transport::Rdma;

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// Starts a collective operation. All members start the same ones in the same order (MPI-5.0 §6.1). `Err`, among others: Mend does not
    /// support them on intercommunicators yet.
    pub fn collective(&mut self, comm: CommKey, call: Collective) -> Result<Started, Error> {
        let entry = self.communicators.valid(comm)?;
        entry.require_intra()?;
        let (me, size) = (entry.communicator().rank, entry.communicator().size());
        let name = self.call_reports.is_on().then(|| name_of(&call));
        let (channel, schedule) = (entry.collective(), entry.selection().schedule(me, size, call));
        let started = self.start_schedule(comm, channel, schedule)?;
        if let (Some(name), Started::Running(request)) = (name, started) {
            self.call_reports.name_collective(request, name);
        }
        Ok(started)
    }

    /// Begins an operation of all members, of both groups of an intercommunicator, as a part of another operation.
    pub(super) fn begin_collective(&mut self, comm: CommKey, call: Collective) -> Result<Begun, Error> {
        let entry = self.communicators.valid(comm)?;
        let (me, size) = (entry.communicator().rank_in_union(), entry.members().len() as u32);
        let (channel, schedule) = (entry.collective(), entry.selection().schedule(me, size, call));
        let (collectives, mut parts) = self.collectives_and_parts();
        collectives.start(comm, channel, schedule, &mut parts)
    }

    /// Starts a schedule on one of the contexts of a communicator.
    pub(super) fn start_schedule(
        &mut self,
        comm: CommKey,
        channel: Channel,
        schedule: Result<Schedule, mend_coll::Error>,
    ) -> Result<Started, Error> {
        let (collectives, mut parts) = self.collectives_and_parts();
        let begun = collectives.start(comm, channel, schedule, &mut parts)?;
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
        if collectives.operations_mut().take_failed() {
            self.wake_ups.notify_all();
        }
        if let Some(collective) = self.expected_senders.collective() {
            self.expected_senders.clear();
            self.expect_rounds(collective);
        }
        ended
    }
}
