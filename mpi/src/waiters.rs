// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which sleeping threads an event concerns: the one whose request has ended, or all of them (X-8.3: a death, another end
//! of a peer, an acknowledgement may change what any wait is to answer).
//!
//! Whoever is about to put a thread to sleep has its call polled once more between [`note_awaited`](Engine::note_awaited)
//! and [`wake_when_over`](Engine::wake_when_over): the requests that this poll finds active are those that the thread
//! waits for.

use crate::{Engine, Request};
use core::cell::{Cell, RefCell};
use mend_pml::Waiter;
use mend_runtime::Runtime;
use mend_transport::Btl;

/// What the engine keeps of it.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    noting: Cell<bool>,
    /// Active requests that were polled since `noting` began.
    noted: RefCell<Vec<Request>>,
    /// Waiters of collective operations that have ended.
    ended: Vec<Waiter>,
    /// How often something happened that concerns all; wraps.
    concern_all: u32,
}

impl Waiters {
    #[inline]
    pub(crate) fn note(&self, request: Request) {
        if self.noting.get() {
            self.noted.borrow_mut().push(request);
        }
    }

    pub(crate) fn ended(&mut self, waiter: Option<Waiter>) {
        self.ended.extend(waiter);
    }

    pub(crate) fn concern_all(&mut self) {
        self.concern_all = self.concern_all.wrapping_add(1);
    }
}

impl<N: Btl, R: Runtime> Engine<N, R> {
    /// From now on active requests that are polled are noted.
    pub fn note_awaited(&mut self) {
        self.waiters.noting.set(true);
    }

    /// The end of each request that was noted wakes `waiter`. `false`: none was, so what the call waits for is no request,
    /// and may come with any event.
    pub fn wake_when_over(&mut self, waiter: Waiter) -> bool {
        self.waiters.noting.set(false);
        let noted = self.waiters.noted.take();
        for &request in &noted {
            match request {
                Request::PointToPoint(key) => self.pml.wake_at_end(mend_pml::Request(key), waiter),
                Request::Collective(key) => self.set_collective_waiter(key, waiter),
                Request::Completed(_) => {}
            }
        }
        !noted.is_empty()
    }

    /// A waiter whose request has ended; each comes once for each end.
    #[inline]
    pub fn next_ended_waiter(&mut self) -> Option<Waiter> {
        self.pml.next_ended_waiter().or_else(|| self.waiters.ended.pop())
    }

    /// Changes whenever something happened that may concern every waiter; wraps.
    #[inline]
    pub fn concerns_all(&self) -> u32 {
        self.waiters.concern_all
    }
}
