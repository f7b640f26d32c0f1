// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program is told of failures, and what it says to them: MPI_COMM_GET_FAILED, MPI_COMM_ACK_FAILED and their older
//! forms. All local, all legal on a communicator with failed members.

use super::Engine;
use crate::{CommKey, Detail, Error, Request};
use mend_base::Rank;
use mend_runtime::Runtime;
use mend_transport::Btl;

impl<N: Btl, R: Runtime> Engine<N, R> {
    /// Who of the communicator has failed, first known first. Current without any other call: notices are taken here, and the
    /// peers that they name are drained and severed, before the registry answers.
    pub fn failed(&mut self, comm: CommKey) -> Result<Vec<Rank>, Error> {
        self.communicators.valid(comm)?;
        self.catch_up();
        Ok(self.communicators.valid(comm)?.failures().known().to_vec())
    }

    /// Acknowledges the first `at_most` failures that are known, or all of them; how many are acknowledged now. Takes no
    /// notices: nobody acknowledges what was not published.
    pub fn acknowledge(&mut self, comm: CommKey, at_most: Option<u32>) -> Result<u32, Error> {
        let acknowledged = self.communicators.acknowledge(comm, at_most, &mut self.layers)?;
        self.waiters.concern_all();
        Ok(acknowledged)
    }

    /// Whose failure is acknowledged, first known first.
    pub fn acknowledged(&self, comm: CommKey) -> Result<Vec<Rank>, Error> {
        Ok(self.communicators.valid(comm)?.failures().acknowledged().to_vec())
    }

    /// The error of a receive from any source with a [pending failure](crate::State::PendingFailure): it names the first failure
    /// of the communicator that is not acknowledged.
    #[cold]
    pub(crate) fn pending_failure(&self, request: Request) -> Error {
        let entry = self.communicator_of(request).and_then(|comm| self.communicators.get(comm));
        let first = entry.and_then(|entry| entry.failures().unacknowledged().first().copied());
        Error::of(Detail::SenderMayHaveFailed(first))
    }
}
