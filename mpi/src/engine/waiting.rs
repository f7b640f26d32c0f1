// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface of the engine for a waiter, the code that waits for a call and makes progress: the rings to poll, whether a call
//! of progress is worth it, the addresses to sleep on, and the timed check. The waiter itself is in `world`, or in the simulator.

use super::Engine;
use crate::{CommKey, Request, RequestHandle};
use mend_base::{Instant, Key, Source};
use mend_pml::SleeperId;
use mend_runtime::Runtime;
use mend_transport::{Ability, Cause, EventPending, Rdma, WakeSet};

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// Begins a wait for a message from any peer, as the caller names no sender: [`is_ready`](Engine::is_ready) returns true.
    pub fn expect_any(&mut self) {
        self.expected_senders.clear();
        self.unconnected_query.begin_wait();
    }

    // Hot: per blocking receive.
    /// Begins a wait for a message from `from`: [`is_ready`](Engine::is_ready) polls the ring of this rank.
    #[inline]
    pub fn expect_from(&mut self, comm: CommKey, from: Source) {
        self.unconnected_query.begin_wait();
        let endpoint = match (from, self.communicators.get(comm)) {
            (Source::Rank(rank), Some(entry)) => self.layers.pml.endpoint(entry.point_to_point(), rank),
            _ => None,
        };
        self.expected_senders.only(pollable(&self.layers.net, endpoint));
    }

    /// Begins a wait for an operation: [`is_ready`](Engine::is_ready) polls the rings of the peers from which it expects messages.
    pub fn expect_request(&mut self, request: Request) {
        self.expect_requests(&[RequestHandle::Request(request)]);
    }

    /// As [`expect_request`](Engine::expect_request), for several requests.
    pub(crate) fn expect_requests(&mut self, requests: &[RequestHandle]) {
        self.expect_any();
        for &handle in requests {
            match handle {
                RequestHandle::Request(Request::PointToPoint(key)) => {
                    let request = mend_pml::Request(key);
                    if !matches!(self.layers.pml.poll(request, &self.ends), mend_pml::State::Done(_)) {
                        let endpoint = self.layers.pml.awaited_from(request);
                        self.expected_senders.add(pollable(&self.layers.net, endpoint));
                    }
                }
                RequestHandle::Request(Request::Collective(key)) => self.expect_rounds(key),
                // Trees change when members fail.
                RequestHandle::Request(Request::Agreement(_) | Request::Creation(_)) => {
                    self.expected_senders.add(None);
                }
                RequestHandle::Request(Request::EndedAtStart(_))
                | RequestHandle::Null
                | RequestHandle::EndedAtStart => {}
            }
        }
    }

    /// Adds the endpoints from which a collective operation expects messages in its present round.
    pub(super) fn expect_rounds(&mut self, collective: Key) {
        self.expected_senders.follow(collective);
        for request in self.collectives.awaited_by(collective) {
            if let Some(endpoint) = self.layers.pml.awaited_from(request) {
                self.expected_senders.add(pollable(&self.layers.net, Some(endpoint)));
            }
        }
    }

    // Hot: per poll of a waiter.
    /// Whether a call of progress is worth it now: the ring of an expected sender holds a message, or a message from any peer is
    /// expected; there are notices; or this process has something to send.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.expected_senders.is_ready(|endpoint| self.layers.net.ready(endpoint))
            || self.peer_reports.has_notices(&self.layers.runtime)
            || !self.layers.pml.idle()
            || !self.member_protocols.is_idle()
    }

    /// To be called before a thread sleeps: adds the addresses to sleep on. `EventPending`: progress would find an event.
    pub fn arm(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        if self.peer_reports.has_notices(&self.layers.runtime) || !self.peer_reports.is_empty() {
            return Err(EventPending);
        }
        self.layers.net.arm(wake)
    }

    /// As [`arm`](Engine::arm), for the helper thread, which watches the descriptors of networks while the program computes. Nothing ends
    /// this.
    pub fn arm_descriptors(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        if self.peer_reports.has_notices(&self.layers.runtime) || !self.peer_reports.is_empty() {
            return Err(EventPending);
        }
        self.layers.net.arm_descriptors(wake)
    }

    /// A descriptor that is readable while there are notices of the runtime, for a sleeper that is not woken at its sleep word.
    pub fn notice_descriptor(&self) -> Option<i32> {
        self.layers.runtime.notice_descriptor()
    }

    /// To be called after the sleep, or after `EventPending`.
    pub fn disarm(&mut self) {
        self.layers.net.disarm();
    }

    /// The timed check, between two sleeps, and about once a millisecond in a wait without sleep: whether the node daemon and the
    /// connected peers live. It also asks the node daemon about unconnected peers for which a receive or a protocol waits, or requests a
    /// contact. The next progress reports what the check finds.
    pub fn check(&mut self) {
        let Engine { layers, peer_reports, .. } = self;
        layers.runtime.check();
        layers.runtime.check_peers(&mut |peer| peer_reports.on_exited(peer));
        layers.net.check_peers();
        if self.unconnected_query.is_due() {
            if let Some(peer) = self.layers.pml.next_unconnected()
                && self.peer_reports.is_unknown(peer)
            {
                self.peer_reports.ask(peer, Cause::NoEvidence, &mut self.layers.runtime);
            }
            self.ask_about_awaited_members();
        }
        self.layers.pml.want_awaited();
    }

    /// Asks the runtime about the members for which agreements and votes wait and with which this process has no connection: no transport
    /// finds their deaths, and no message to them has made the runtime look.
    #[cold]
    fn ask_about_awaited_members(&mut self) {
        let Engine { member_protocols, peer_reports, layers, .. } = self;
        member_protocols.awaited(&mut |peer| {
            if peer_reports.is_unknown(peer) {
                mend_base::reach!("mpi.waiting: asked about a member for which a protocol waits");
                peer_reports.ask(peer, Cause::NoEvidence, &mut layers.runtime);
            }
        });
    }

    /// Wakes the helper threads of peers that have not consumed a control message. For the helper thread of this process, while the
    /// program is outside MPI.
    pub fn call_helpers(&mut self) {
        self.layers.net.call_helpers();
    }

    /// Begins to note active requests. Before a thread sleeps, its call is polled once between this and
    /// [`wake_when_over`](Engine::wake_when_over): the requests that this poll finds active are those that the thread waits for.
    pub fn note_awaited(&mut self) {
        self.wake_ups.begin_noting();
    }

    /// The end of each noted request wakes `sleeper`. `false`: no request was noted, so the call may end with any event.
    pub fn wake_when_over(&mut self, sleeper: SleeperId) -> bool {
        let noted = self.wake_ups.end_noting();
        for &request in &noted {
            match request {
                Request::PointToPoint(key) => self.layers.pml.wake_at_end(mend_pml::Request(key), sleeper),
                Request::Collective(key) => self.collectives.operations_mut().wake_at_end(key, sleeper),
                Request::Agreement(key) => self.agreements.operations_mut().wake_at_end(key, sleeper),
                Request::Creation(key) => self.creations.operations_mut().wake_at_end(key, sleeper),
                Request::EndedAtStart(_) => {}
            }
        }
        !noted.is_empty()
    }

    /// The sleeper of a request that has ended, to be woken. Each is returned once for each end.
    #[inline]
    pub fn next_to_wake(&mut self) -> Option<SleeperId> {
        let next =
            self.layers.pml.next_to_wake().or_else(|| self.collectives.operations_mut().next_to_wake());
        next.or_else(|| self.agreements.operations_mut().next_to_wake())
            .or_else(|| self.creations.operations_mut().next_to_wake())
    }

    /// The number of events that may concern every sleeper; wraps.
    #[inline]
    pub fn notify_all_count(&self) -> u32 {
        self.wake_ups.notify_all_count()
    }

    /// The time of the last call of progress.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }
}

// Hot: per blocking receive that waits.
/// The endpoint, if polling it tells of messages. `None`: a call of progress must ask its device, so a message from any peer is expected.
#[inline]
fn pollable<N: Rdma>(net: &N, endpoint: Option<N::Endpoint>) -> Option<N::Endpoint> {
    endpoint.filter(|&endpoint| net.limits(endpoint).can(Ability::Polling))
}
