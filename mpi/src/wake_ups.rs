// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which sleeping threads an event wakes: the thread whose request has ended, or all of them (X-8.3: the end of a peer or an
//! acknowledgement may change the result of any wait).
//!
//! A part of the engine; it calls no other part. Before a thread sleeps, its call is polled once more, and the requests that this
//! poll finds active are noted here: the thread waits for these.

use crate::request::Request;
use core::cell::{Cell, RefCell};

/// Active requests of the last polls, and the count of events that concern all sleepers.
#[derive(Debug, Default)]
pub(crate) struct WakeUps {
    noting: Cell<bool>,
    /// Active requests that were polled since `noting` began.
    noted: RefCell<Vec<Request>>,
    /// There was no memory to note a request.
    unnoted: Cell<bool>,
    /// The number of events that concern all sleepers; wraps.
    notify_all_count: u32,
}

impl WakeUps {
    /// From now on active requests that are polled are noted.
    pub fn begin_noting(&self) {
        self.noting.set(true);
        self.unnoted.set(false);
    }

    // Hot: per poll.
    /// An active request was polled.
    #[inline]
    pub fn note(&self, request: Request) {
        if self.noting.get() {
            let mut noted = self.noted.borrow_mut();
            match noted.try_reserve(1) {
                Ok(()) => noted.push(request),
                Err(_) => self.unnoted.set(true),
            }
        }
    }

    /// Ends the noting. Returns the noted requests, or none if one could not be noted: then any event may concern the caller.
    pub fn end_noting(&self) -> Vec<Request> {
        self.noting.set(false);
        let noted = self.noted.take();
        if self.unnoted.get() { Vec::new() } else { noted }
    }

    /// Counts an event that may concern every sleeper.
    pub fn notify_all(&mut self) {
        self.notify_all_count = self.notify_all_count.wrapping_add(1);
    }

    /// The number of events that may concern every sleeper; wraps.
    #[inline]
    pub fn notify_all_count(&self) -> u32 {
        self.notify_all_count
    }
}
