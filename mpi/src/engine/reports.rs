// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports about the engine, notices about the job, and aborts.

use super::Engine;
use crate::{CommKey, Detail, Error, JobNotice, PublishedGroups};
use mend_base::{LifecycleCounts, Peer};
use mend_comm::Group;
use mend_pml::Ends;
use mend_runtime::Runtime;
use mend_transport::Rdma;
use std::sync::Arc;

/// The number of entries in the tables of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenCounts {
    /// Communicators, with WORLD and SELF; none after Finalize.
    pub communicators: u32,
    /// Collective operations and creations of communicators that are not released.
    pub collectives: u32,
    /// Agreements and shrinks that are not released.
    pub agreements: u32,
    /// Communicators whose protocols are in use, or are still owed to other members.
    pub member_protocols: u32,
    /// Messages of these protocols that wait to leave.
    pub unsent_member_messages: u32,
    /// Communicators that are not created here, of whose protocols messages have come.
    pub early_communicators: u32,
    /// Creations of communicators that are not released.
    pub creations: u32,
    /// Requests of operations that had ended at their start, which are not released.
    pub ended_at_start: u32,
    /// Peers whose contact was requested from the runtime and has not arrived.
    pub requested_contacts: u32,
    /// The entries in the tables of the PML.
    pub pml: mend_pml::OpenCounts,
}

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// MPI_Abort: ends the members of the communicator, or the job if these are all its processes. The handle may have been freed:
    /// the error of a request on a freed communicator may end the members too (Row EH5).
    pub fn abort_members(&mut self, comm: CommKey, code: i32) -> Result<(), Error> {
        let members = self.members(comm).ok_or(Error::of(Detail::NoSuchCommunicator))?;
        let members: Vec<Peer> = members.iter().collect();
        let runtime = &mut self.layers.runtime;
        if members.len() as u32 == runtime.membership().size {
            runtime.abort(code);
        } else {
            runtime.abort_some(code, &members);
        }
        Ok(())
    }

    /// All members of a communicator, also if its handle was freed. Allocates nothing.
    pub fn members(&self, comm: CommKey) -> Option<&Group> {
        self.communicators.get(comm).map(|entry| &**entry.communicator().everyone())
    }

    /// The groups of the communicators whose handles are valid, which a signal handler may read.
    pub fn published_groups(&self) -> Arc<PublishedGroups> {
        Arc::clone(self.communicators.published())
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

    /// Whether there is a notice about the job, on which the layer above must act; notices about peers the engine takes itself.
    #[inline]
    pub fn has_job_notices(&self) -> bool {
        self.peer_reports.has_job_notices()
    }

    /// The next notice about the job, oldest first.
    pub fn next_job_notice(&mut self) -> Option<JobNotice> {
        self.peer_reports.next_job_notice()
    }

    /// The ends of peers that this process has published.
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

    /// The number of entries in the tables, for reports and tests.
    pub fn open_counts(&self) -> OpenCounts {
        OpenCounts {
            communicators: self.communicators.len() as u32,
            collectives: self.collectives.operations().len() as u32,
            agreements: self.agreements.operations().len() as u32,
            member_protocols: self.member_protocols.len() as u32,
            unsent_member_messages: self.member_protocols.unsent() as u32,
            early_communicators: self.member_protocols.early() as u32,
            creations: self.creations.operations().len() as u32,
            ended_at_start: self.ended_at_start.len() as u32,
            requested_contacts: self.peer_reports.requested_contacts() as u32,
            pml: self.layers.pml.open_counts(),
        }
    }

    /// Asserts that every request of point-to-point and of collective operations ends once and is released once. Returns the counts so
    /// far, which are 0 in a build that does not check lifecycles.
    pub fn lifecycle_check(&self) -> LifecycleCounts {
        let tables = [
            self.collectives.operations().lifecycle_counts(),
            self.agreements.operations().lifecycle_counts(),
            self.creations.operations().lifecycle_counts(),
            self.layers.pml.lifecycle_check(),
        ];
        let sum = |count: fn(&LifecycleCounts) -> u64| tables.iter().map(count).sum();
        LifecycleCounts {
            begun: sum(|table| table.begun),
            ended: sum(|table| table.ended),
            released: sum(|table| table.released),
        }
    }
}
