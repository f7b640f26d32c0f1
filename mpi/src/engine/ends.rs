// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the end of a peer is published: evidence and notices go through `PeerReports`; each end that `PeerReports` returns is added to
//! [`Ends`](mend_pml::Ends), then ends requests, then collective operations (I2, design "How a death travels"). Waiting calls poll
//! again, since the end of a peer counts as an event.

use super::Engine;
use crate::collective::ask_again;
use mend_base::PeerIndex;
use mend_pml::End;
use mend_runtime::{Notice, Runtime};
use mend_transport::Rdma;

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// Examines the evidence of the last progress. Returns the number of endpoints that were severed.
    #[cold]
    pub(super) fn examine_evidence(&mut self) -> u32 {
        let severed = self.peer_reports.examine(&mut self.layers);
        self.publish_ends();
        severed
    }

    /// Takes all notices of the runtime. Returns how many.
    #[cold]
    pub(super) fn take_notices(&mut self) -> u32 {
        let mut taken = self.peer_reports.begin_notices(&self.layers.runtime);
        while let Some(notice) = self.layers.runtime.notice() {
            taken += 1;
            if let Notice::WhereAreYou = notice {
                self.call_reports.on_asked();
                continue;
            }
            if let Notice::Recalled { key, result } = notice {
                self.on_recalled(key, result.as_deref());
                continue;
            }
            if let Some(alive) = self.peer_reports.on_notice(notice, &mut self.layers) {
                let asks_again = self.creations.on_alive(alive);
                let (collectives, mut parts) = self.collectives_and_parts();
                collectives.on_alive(alive, &mut parts);
                if asks_again {
                    ask_again(alive, &mut parts);
                }
            }
            self.publish_ends();
        }
        taken
    }

    /// Requests from the runtime the contact of a peer to which a message is sent.
    #[cold]
    pub(super) fn look_up(&mut self, peer: PeerIndex) {
        self.peer_reports.look_up(peer, &mut self.layers);
        self.publish_ends();
    }

    /// Takes the notices, and severs the peers that they name: at most one lap of each of their rings is read, or less if the
    /// transport makes no more progress now.
    #[cold]
    pub(super) fn catch_up(&mut self) {
        if self.peer_reports.has_notices(&self.layers.runtime) {
            self.take_notices();
        }
        while self.peer_reports.some_severing() {
            let events = self.poll_transports();
            if events + self.examine_evidence() == 0 {
                mend_base::reach!("mpi.peer_reports: severing takes longer");
                break;
            }
        }
        self.peer_reports.announce_job_notices(&self.layers.runtime);
    }

    /// Progress within a call that is about to report the pending failure of a receive: messages that have arrived are received first
    /// (Row PP13), and a program that calls it in a loop makes progress.
    #[cold]
    pub(crate) fn progress_again(&mut self) {
        self.repeated_progress = self.repeated_progress.wrapping_add(1);
        self.progress_within_a_call();
    }

    /// Progress within a call that does not wait. If it takes notices about the job, the next progress of a waiter reports them.
    #[cold]
    pub(super) fn progress_within_a_call(&mut self) {
        self.progress(self.now);
        self.peer_reports.announce_job_notices(&self.layers.runtime);
    }

    /// Progress in a call that has started what all members decide. Where the ring decides who has failed, this process may have been
    /// stopped and declared failed, and the engine does not know the time: it decides nothing before the next progress of the layer
    /// above, which does, has looked at the lease.
    #[cold]
    pub(super) fn progress_after_start(&mut self) {
        if !self.heartbeats.decides() {
            self.progress_within_a_call();
        }
    }

    /// The number of calls of [`progress_again`](Engine::progress_again); wraps.
    pub(crate) fn repeated_progress(&self) -> u32 {
        self.repeated_progress
    }

    /// Publishes the ends that `PeerReports` returns, in the order of I2: no error names a failed process that `ends` does not list
    /// (Row AK3).
    pub(super) fn publish_ends(&mut self) {
        let mut published = false;
        while let Some((peer, end)) = self.peer_reports.next_end() {
            self.deliver_member_messages();
            if !self.ends.add(peer, end) {
                continue;
            }
            published = true;
            if end == End::Failed {
                // Before any request ends with the failure: where both apply, the revocation has precedence (Row RV10).
                self.revoke_in_range_of(peer);
            }
            self.layers.pml.on_end(peer, &self.ends);
            self.heartbeats.on_end(self.now, peer, end == End::Failed, &mut self.layers);
            if end == End::Failed {
                let (collectives, mut parts) = self.collectives_and_parts();
                collectives.on_death(peer, &mut parts);
            }
            self.interrupt_group_creations(peer, end);
            self.interrupt_leaders(peer, end);
            self.member_protocols.on_end((self.peer_reports.peer(peer), peer), end, &self.ends);
            if end == End::Failed {
                self.spread_failure(peer);
            }
            self.wake_ups.notify_all();
        }
        if published {
            self.member_protocols.recheck_early();
            self.progress_creations();
            self.apply_member_events();
            self.release_held_decisions();
        }
    }
}
