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
    /// peers that they name are drained and severed, before the answer.
    pub fn failed(&mut self, comm: CommKey) -> Result<Vec<Rank>, Error> {
        self.communicators.valid(comm)?;
        self.catch_up();
        let user = self.communicators.valid(comm)?.user();
        Ok(self.layers.pml.failed(user, &self.ends))
    }

    /// Acknowledges the first `at_most` failures that are known, or all of them; how many are acknowledged now. Takes no
    /// notices: nobody acknowledges what was not published.
    pub fn acknowledge(&mut self, comm: CommKey, at_most: Option<u32>) -> Result<u32, Error> {
        let user = self.communicators.valid(comm)?.user();
        let acknowledged = self.layers.pml.acknowledge(user, at_most, &self.ends);
        self.waiters.concern_all();
        Ok(acknowledged)
    }

    /// Whose failure is acknowledged, first known first.
    pub fn acknowledged(&self, comm: CommKey) -> Result<Vec<Rank>, Error> {
        let user = self.communicators.valid(comm)?.user();
        Ok(self.layers.pml.acknowledged(user, &self.ends))
    }

    /// The error of a receive from any source with a [pending failure](crate::State::PendingFailure): it names the first failure
    /// of the communicator that is not acknowledged. On a freed communicator nobody can acknowledge any more, and none is
    /// named.
    #[cold]
    pub(crate) fn pending_failure(&self, request: Request) -> Error {
        let channel = match request {
            Request::PointToPoint(key) => self.layers.pml.channel_of(mend_pml::Request(key)),
            Request::Collective(_) | Request::Completed(_) => None,
        };
        let entry = channel.and_then(|channel| self.communicators.of_channel(channel));
        let first = entry.and_then(|entry| self.layers.pml.pending_failure(entry.user(), &self.ends));
        Error::of(Detail::SenderMayHaveFailed(first))
    }
}
