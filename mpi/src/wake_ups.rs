// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which sleeping threads an event wakes: the thread whose request has ended, or all of them (X-8.3: the end of a peer or an
//! acknowledgement may change the result of any wait).
//!
//! A part of the engine; it calls no other part. Before a thread sleeps, its call is polled once more, and the requests that this
//! poll finds active are noted here: the thread waits for these.

use crate::request::Request;
use core::cell::{Cell, RefCell};
use std::collections::HashSet;

/// Active requests of the last polls, and the count of events that concern all sleepers.
#[derive(Debug, Default)]
pub(crate) struct WakeUps {
    noting: Cell<bool>,
    /// Active requests that were polled since `noting` began.
    noted: RefCell<Vec<Request>>,
    /// There was no memory to note a request, or the end of one of them ends the call.
    unnoted: Cell<bool>,
    /// All requests of the call are to be polled, since the waiter looks at what it waits for.
    looking: Cell<bool>,
    /// The number of events that concern all sleepers; wraps.
    notify_all_count: u32,
}

impl WakeUps {
    /// From now on active requests that are polled are noted.
    pub fn begin_noting(&self) {
        self.noting.set(true);
        self.unnoted.set(false);
    }

    /// As [`begin_noting`](WakeUps::begin_noting), but all requests of the call are noted.
    pub fn begin_look(&self) {
        self.begin_noting();
        self.looking.set(true);
    }

    /// Whether all requests of the call are to be polled.
    #[inline]
    pub fn is_looking(&self) -> bool {
        self.looking.get()
    }

    /// The call may end when one of its requests does, and the others run.
    #[cold]
    pub fn note_alternatives(&self) {
        self.unnoted.set(true);
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

    /// Ends a look. Returns the noted requests, and whether all of them must end before the call does.
    pub fn end_look(&self) -> (Vec<Request>, bool) {
        self.noting.set(false);
        self.looking.set(false);
        let mut noted = self.noted.take();
        let mut seen = HashSet::new();
        noted.retain(|&request| seen.insert(request));
        (noted, !self.unnoted.get())
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
