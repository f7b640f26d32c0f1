// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a waiter needs of the engine: which rings to poll, whether progress is worth a call, what to sleep on, and what to
//! check from time to time. The waiter itself is `world`'s, or a simulator's.

use super::Engine;
use crate::{CommKey, Request, RequestHandle};
use mend_base::{Instant, Key, Source};
use mend_pml::Waiter;
use mend_runtime::Runtime;
use mend_transport::{Btl, Cause, Pending, WakeSet};

impl<N: Btl, R: Runtime> Engine<N, R> {
    /// The waiting call does not say from whom it expects something: [`is_ready`](Engine::is_ready) says yes.
    pub fn unwatch(&mut self) {
        self.watched.clear();
        self.unconnected_query.begin_wait();
    }

    // Hot: per blocking receive.
    /// A blocking call waits for `from`: its ring is what [`is_ready`](Engine::is_ready) polls until the next call.
    #[inline]
    pub fn watch(&mut self, comm: CommKey, from: Source) {
        self.unconnected_query.begin_wait();
        self.watched.only(match (from, self.communicators.get(comm)) {
            (Source::Rank(rank), Some(entry)) => self.layers.pml.endpoint(entry.user(), rank),
            _ => None,
        });
    }

    /// A blocking call waits for this operation: the rings of those from whom it expects something are polled.
    pub fn watch_request(&mut self, request: Request) {
        self.watch_requests(&[RequestHandle::Request(request)]);
    }

    /// The same of several.
    pub(crate) fn watch_requests(&mut self, requests: &[RequestHandle]) {
        self.unwatch();
        for &handle in requests {
            match handle {
                RequestHandle::Request(Request::PointToPoint(key)) => {
                    let request = mend_pml::Request(key);
                    if !matches!(self.layers.pml.poll(request, &self.ends), mend_pml::State::Done(_)) {
                        self.watched.add(self.layers.pml.awaited_from(request));
                    }
                }
                RequestHandle::Request(Request::Collective(key)) => self.watch_rounds(key),
                RequestHandle::Request(Request::Completed(_)) | RequestHandle::Null | RequestHandle::Done => {
                }
            }
        }
    }

    /// Adds those from whom a collective operation expects something in this round.
    pub(super) fn watch_rounds(&mut self, collective: Key) {
        self.watched.follow(collective);
        for &request in self.collectives.awaited_by(collective) {
            if let Some(endpoint) = self.layers.pml.awaited_from(request) {
                self.watched.add(Some(endpoint));
            }
        }
    }

    // Hot: per poll of a waiter.
    /// Whether a call of progress is worth it now: something lies in a ring that is watched, or any counts; there are notices;
    /// or something of ours is still to be sent.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.watched.is_ready(|endpoint| self.layers.net.ready(endpoint))
            || self.funnel.has_notices(&self.layers.runtime)
            || !self.layers.pml.idle()
    }

    /// Before sleeping: adds what to sleep on. `Pending`: progress would find something.
    pub fn arm(&mut self, wake: &mut WakeSet) -> Result<(), Pending> {
        if self.funnel.has_notices(&self.layers.runtime) || !self.funnel.is_empty() {
            return Err(Pending);
        }
        self.layers.net.arm(wake)
    }

    /// After sleeping, or instead of it.
    pub fn disarm(&mut self) {
        self.layers.net.disarm();
    }

    /// The timed check, between sleeps and about once a millisecond while waiting without one: does the daemon live, and do
    /// our peers? Of peers that are waited for and that nobody has connected it asks, or has them connected. What it finds comes
    /// with the next progress.
    pub fn check(&mut self) {
        self.layers.runtime.check();
        self.layers.net.check_peers();
        if self.unconnected_query.is_due()
            && let Some(peer) = self.layers.pml.next_unconnected()
            && self.funnel.is_unknown(peer)
        {
            self.funnel.ask(peer, Cause::Silent, &mut self.layers.runtime);
        }
        self.layers.pml.want_awaited();
    }

    /// Before a thread sleeps its call is polled between this and [`wake_when_over`](Engine::wake_when_over): the requests that
    /// this poll finds active are those that the thread waits for.
    pub fn note_awaited(&mut self) {
        self.waiters.begin_noting();
    }

    /// The end of each request that was noted wakes `waiter`. `false`: none was, so what the call waits for is no request,
    /// and may come with any event.
    pub fn wake_when_over(&mut self, waiter: Waiter) -> bool {
        let noted = self.waiters.end_noting();
        for &request in &noted {
            match request {
                Request::PointToPoint(key) => self.layers.pml.wake_at_end(mend_pml::Request(key), waiter),
                Request::Collective(key) => self.collectives.wake_at_end(key, waiter),
                Request::Completed(_) => {}
            }
        }
        !noted.is_empty()
    }

    /// A waiter whose request has ended; each comes once for each end.
    #[inline]
    pub fn next_ended_waiter(&mut self) -> Option<Waiter> {
        self.layers.pml.next_ended_waiter().or_else(|| self.collectives.next_ended_waiter())
    }

    /// Changes whenever something happened that may concern every waiter; wraps.
    #[inline]
    pub fn notify_all_count(&self) -> u32 {
        self.waiters.notify_all_count()
    }

    /// Of the last progress.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }
}
