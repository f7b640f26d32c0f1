// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MPI_COMM_GET_FAILED, MPI_COMM_ACK_FAILED and their older forms. All are local, and valid on a communicator with failed
//! members.

use super::Engine;
use crate::{CommKey, Detail, Error, Request};
use mend_base::Rank;
use mend_runtime::Runtime;
use mend_transport::Rdma;

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// The members that failed, by rank in the union, in the order of their failures. The list is current: this call takes the notices, and drains and
    /// severs the peers that they name.
    pub fn failed(&mut self, comm: CommKey) -> Result<Vec<Rank>, Error> {
        self.communicators.valid(comm)?;
        self.catch_up();
        let counting = self.communicators.valid(comm)?.acknowledging();
        Ok(self.layers.pml.failed(counting, &self.ends))
    }

    /// Acknowledges the first `at_most` members that failed, or all failed members. Returns how many are acknowledged now. Takes no
    /// notices: only published failures are acknowledged.
    pub fn acknowledge(&mut self, comm: CommKey, at_most: Option<u32>) -> Result<u32, Error> {
        let entry = self.communicators.valid(comm)?;
        let (counting, user) = (entry.acknowledging(), entry.point_to_point());
        let acknowledged = self.layers.pml.acknowledge(counting, at_most, &self.ends);
        if counting != user {
            self.layers.pml.acknowledge_as(user, counting, &self.ends);
        }
        self.wake_ups.notify_all();
        Ok(acknowledged)
    }

    /// The acknowledged members, by rank in the union, in the order of their failures.
    pub fn acknowledged(&self, comm: CommKey) -> Result<Vec<Rank>, Error> {
        let counting = self.communicators.valid(comm)?.acknowledging();
        Ok(self.layers.pml.acknowledged(counting, &self.ends))
    }

    /// The error of a receive from any source with a [pending failure](crate::State::PendingFailure): it names the first failure
    /// of the communicator that is not acknowledged.
    #[cold]
    pub(crate) fn pending_failure(&self, request: Request) -> Error {
        let entry = self.communicator_of(request).and_then(|comm| self.communicators.get(comm));
        let first =
            entry.and_then(|entry| self.layers.pml.pending_failure(entry.point_to_point(), &self.ends));
        Error::of(Detail::SenderMayHaveFailed(first))
    }
}
