// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Detection of failures by the ranks themselves (`heartbeats`): the ring starts, its outcomes are applied, and the failures that it finds
//! are published and spread.

use super::Engine;
use crate::peer_reports::{EndState, JobNotice};
use crate::{Error, Started, State};
use mend_base::{Instant, PeerIndex, Rank};
use mend_coll::Collective;
use mend_pml::End;
use mend_proto::detector::{Config, Outcome};
use mend_proto::spread::Item;
use mend_runtime::{Notice, Runtime};
use mend_transport::Rdma;

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// Lets the ranks find failures by a ring of heartbeats with leases, from the moment at which all have called MPI_Init. All ranks of the
    /// job call it, before any communication. With a lease, a failure is declared without the runtime.
    pub fn detect_failures(&mut self, now: Instant, config: Config) -> Result<(), Error> {
        // Progress within calls that do not wait has this time, until the layer above reads the clock again.
        self.now = now;
        let world = self.comm_world();
        if self.layers.runtime.membership().size < 2 {
            return Ok(());
        }
        match self.collective(world, Collective::Barrier)? {
            Started::Running(crate::Request::Collective(barrier)) => {
                self.heartbeats.start(now, config, barrier)
            }
            Started::Running(_) | Started::Done(_) => debug_assert!(false, "a barrier of several ranks runs"),
        }
        Ok(())
    }

    /// The configuration of the ring, before it has started.
    pub fn detector_config(&self) -> Option<Config> {
        self.heartbeats.starting()
    }

    /// Whether the ring decides who has failed.
    #[inline]
    pub fn detects_failures(&self) -> bool {
        self.heartbeats.decides()
    }

    /// Before anything else: a process whose lease has ended fences itself, before it handles a message. Returns whether this process
    /// does nothing any more.
    #[cold]
    pub(super) fn fence_if_late(&mut self) -> bool {
        if !self.heartbeats.is_fenced() && self.heartbeats.lease_is_over(self.now) {
            self.fence();
        }
        self.heartbeats.is_fenced()
    }

    /// What is due in the ring, after the transports were polled: the beats that have arrived count. Returns whether this process has
    /// fenced itself, and does nothing any more.
    #[cold]
    pub(super) fn advance_detection(&mut self) -> bool {
        if let Some(barrier) = self.heartbeats.barrier()
            && let State::Done(_) = self.collectives.operations().poll(barrier)
        {
            // A failure before the start is left to the launcher, and so is a rank that never starts.
            self.release(crate::Request::Collective(barrier));
            self.heartbeats.on_barrier();
        }
        let membership = self.layers.runtime.membership();
        let (me, size) = (Rank(membership.peer.number()), membership.size);
        if self.heartbeats.begin_if_all_started(self.now, me, size) {
            self.catch_up_detection();
        }
        while let Some(outcome) = self.heartbeats.advance(self.now, &mut self.layers) {
            match outcome {
                // An authority may know, and decide at once.
                Outcome::Suspect(rank) => self.ask_if_unknown(PeerIndex(rank.0)),
                Outcome::Expired(rank) => self.declare_failed(PeerIndex(rank.0)),
                Outcome::Fence => self.fence(),
            }
        }
        self.heartbeats.is_fenced()
    }

    /// The ring hears of the ends that were published before it started.
    fn catch_up_detection(&mut self) {
        for peer in (0..self.layers.runtime.membership().size).map(PeerIndex) {
            if let Some(end) = self.ends.of(peer) {
                self.heartbeats.on_end(self.now, peer, end == End::Failed, &mut self.layers);
            }
        }
    }

    /// The lease of a member is over here, or at another member that says so.
    pub(super) fn declare_failed(&mut self, peer: PeerIndex) {
        if self.peer_reports.peer(peer) == self.layers.runtime.membership().peer {
            return self.fence();
        }
        let is_declared = !matches!(self.peer_reports.end_state(peer), EndState::NotDeclared { .. });
        if is_declared && !matches!(self.ends.of(peer), Some(End::Unreachable(_))) {
            // It is told already; or it has finalized, and is silent for that reason.
            return;
        }
        mend_base::reach!("mpi.detection: declared by the ring");
        let failed = Notice::Failed(self.peer_reports.peer(peer));
        self.peer_reports.on_notice(failed, &mut self.layers);
        self.publish_ends();
        // Only its observers hear that a member is silent: they tell the others.
        let world = self.communicators.get(self.comm_world());
        if let Some(identity) = world.map(|entry| entry.communicator().identity) {
            self.learn(identity, Item::Failed(Rank(peer.0)));
        }
    }

    /// This process must act on nothing any more: others have declared it failed, or may do so.
    fn fence(&mut self) {
        mend_base::reach!("mpi.detection: fenced");
        self.heartbeats.fence();
        self.peer_reports.add_job_notice(JobNotice::Fenced);
    }
}
