// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program is told of failures, and what it says to them: MPI_COMM_GET_FAILED, MPI_COMM_ACK_FAILED and their elder
//! sisters. All local, all true of a communicator whoever of it is dead.

use crate::{CommKey, Detail, Engine, Error, Request};
use mend_base::{PeerIndex, Rank};
use mend_comm::Failures;
use mend_runtime::Runtime;
use mend_transport::Btl;

impl<N: Btl, R: Runtime> Engine<N, R> {
    /// Who of the communicator has failed, first known first. Current without any other call: news are taken here, and
    /// whoever they name is drained and severed, before the registry answers.
    pub fn failed(&mut self, comm: CommKey) -> Result<Vec<Rank>, Error> {
        self.entry(comm)?;
        self.catch_up();
        Ok(self.entry(comm)?.failures.known().to_vec())
    }

    /// Acknowledges the first `at_most` failures that are known, or all of them; how many are acknowledged now. Takes no
    /// news: nobody acknowledges what was not published.
    pub fn acknowledge(&mut self, comm: CommKey, at_most: Option<u32>) -> Result<u32, Error> {
        self.entry(comm)?;
        let Some(entry) = self.communicators.get_mut(comm.0) else { return Ok(0) };
        let (acknowledged, channel) = (entry.failures.acknowledge(at_most), entry.user);
        self.pml.acknowledge(channel, acknowledged);
        self.waiters.concern_all();
        Ok(acknowledged)
    }

    /// Whose failure is acknowledged, first known first.
    pub fn acknowledged(&self, comm: CommKey) -> Result<Vec<Rank>, Error> {
        Ok(self.entry(comm)?.failures.acknowledged().to_vec())
    }

    /// The error of a receive from any source with a [pending failure](crate::State::PendingFailure): it names the first failure
    /// of the communicator that is not acknowledged. On a freed communicator nobody can acknowledge any more, and none is
    /// named.
    #[cold]
    pub(crate) fn pending_failure(&self, request: Request) -> Error {
        let channel = match request {
            Request::PointToPoint(key) => self.pml.channel_of(mend_pml::Request(key)),
            Request::Collective(_) | Request::Completed(_) => None,
        };
        let mut entries = self.communicators.iter().map(|(_, entry)| entry);
        let entry = entries.find(|entry| Some(entry.user) == channel);
        let first = entry.and_then(|entry| entry.failures.unacknowledged().first().copied());
        Error::of(Detail::SenderMayHaveFailed(first))
    }

    /// What this process knows of the failures among `members`, for a communicator that is made now.
    pub(crate) fn failures_among(&self, members: &[PeerIndex]) -> Failures {
        let mut failures = Failures::default();
        for failed in self.registry.failed() {
            let at = members.iter().position(|member| member == failed);
            at.into_iter().for_each(|at| failures.add(Rank(at as u32)));
        }
        failures
    }

    /// The second step of publishing a death, after the registry: every communicator that holds the dead knows of it.
    pub(crate) fn update_views(&mut self, dead: PeerIndex) {
        for (_, entry) in self.communicators.iter_mut() {
            let at = entry.members.iter().position(|member| *member == dead);
            at.into_iter().for_each(|at| entry.failures.add(Rank(at as u32)));
        }
    }
}
