// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What others ask the engine, and the end of the job.

use super::Engine;
use crate::{CommKey, Detail, Error, JobNotice};
use mend_base::{LifecycleCounts, Peer};
use mend_pml::Ends;
use mend_runtime::Runtime;
use mend_transport::Btl;

/// What stands in an engine's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenCounts {
    /// Communicators, WORLD and SELF included; after Finalize none.
    pub communicators: u32,
    /// Collective operations, and communicators being made, that nobody released.
    pub collectives: u32,
    /// Requests that were complete when they were started.
    pub completed: u32,
    /// Peers that we asked the runtime for, and that have not answered yet.
    pub asked: u32,
    /// What stands in the PML's.
    pub pml: mend_pml::OpenCounts,
}

impl<N: Btl, R: Runtime> Engine<N, R> {
    /// MPI_Abort: ends the members of the communicator; where these are all processes, the job. The handle
    /// may be freed: the error of a request may end the members (Row EH5).
    pub fn abort_members(&mut self, comm: CommKey, code: i32) -> Result<(), Error> {
        let entry = self.communicators.get(comm).ok_or(Error::of(Detail::NoSuchCommunicator))?;
        let members: Vec<Peer> = entry.communicator().group.iter().collect();
        let runtime = &mut self.layers.runtime;
        if members.len() as u32 == runtime.membership().size {
            runtime.abort(code);
        } else {
            runtime.abort_some(code, &members);
        }
        Ok(())
    }

    /// Ends this process alone.
    pub fn abort_alone(&mut self, code: i32) {
        let me = self.layers.runtime.membership().peer;
        self.layers.runtime.abort_some(code, &[me]);
    }

    /// Ends the job.
    pub fn abort(&mut self, code: i32) {
        self.layers.runtime.abort(code);
    }

    /// Whether there is something that the shell must act on.
    #[inline]
    pub fn has_notices(&self) -> bool {
        self.funnel.has_job_notices()
    }

    /// What the shell must act on, oldest first.
    pub fn notices(&mut self) -> Option<JobNotice> {
        self.funnel.next_job_notice()
    }

    /// Which peers have ended, as this process knows.
    pub fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Whether the job outlives the death of some of its ranks.
    pub fn is_fault_tolerant(&self) -> bool {
        self.layers.runtime.membership().fault_tolerant
    }

    /// The transports, for reports.
    pub fn net(&self) -> &N {
        &self.layers.net
    }

    /// The runtime, for reports.
    pub fn runtime(&self) -> &R {
        &self.layers.runtime
    }

    /// What stands in the tables: for reports and tests.
    pub fn open_counts(&self) -> OpenCounts {
        OpenCounts {
            communicators: self.communicators.len() as u32,
            collectives: self.collectives.len() as u32,
            completed: self.completed.len() as u32,
            asked: self.funnel.asked() as u32,
            pml: self.layers.pml.open_counts(),
        }
    }

    /// Asserts that every request, of messages and of collective operations, ends once and is released once. How many so far,
    /// together, where a build checks lifecycles.
    pub fn lifecycle_check(&self) -> LifecycleCounts {
        let (ours, messages) = (self.collectives.lifecycle_counts(), self.layers.pml.lifecycle_check());
        LifecycleCounts {
            begun: ours.begun + messages.begun,
            ended: ours.ended + messages.ended,
            released: ours.released + messages.released,
        }
    }
}
