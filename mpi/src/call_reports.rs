// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For the report about a job that may hang: for how long the program has been blocked in one call, and whether the node daemon has
//! asked where it sits.
//!
//! A part of the engine; it calls no other part.

use crate::Request;
use mend_base::{Duration, Instant};
use std::collections::VecDeque;

/// What the looks at the waiting call have found.
#[derive(Debug, Default)]
pub(crate) struct CallReports {
    /// A call that takes longer is reported, once; `None`: none is.
    limit: Option<Duration>,
    /// The requests for which the call waits, and when this was first seen.
    awaited: Vec<Request>,
    since: Option<Instant>,
    is_reported: bool,
    is_asked: bool,
    /// The collective operations that were started last, with the names of their calls.
    collectives: VecDeque<(Request, &'static str)>,
}

/// So many are kept.
const COLLECTIVES_MAX: usize = 8;

/// A report that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Due {
    /// The call has taken longer than the limit.
    pub is_blocked: bool,
    pub seconds: u32,
}

impl CallReports {
    /// Sets the limit.
    pub fn set_limit(&mut self, limit: Option<Duration>) {
        self.limit = limit;
    }

    /// Whether calls are reported.
    pub fn is_on(&self) -> bool {
        self.limit.is_some()
    }

    /// A collective operation was started by this call.
    pub fn name_collective(&mut self, request: Request, name: &'static str) {
        if self.collectives.len() == COLLECTIVES_MAX {
            self.collectives.pop_front();
        }
        self.collectives.push_back((request, name));
    }

    /// The call that started a collective operation.
    pub fn name_of_collective(&self, request: Request) -> Option<&'static str> {
        self.collectives.iter().find(|(named, _)| *named == request).map(|(_, name)| *name)
    }

    /// The node daemon asks where the program sits.
    pub fn on_asked(&mut self) {
        self.is_asked = true;
    }

    /// Whether that is not answered. Ends the question.
    pub fn take_asked(&mut self) -> bool {
        core::mem::take(&mut self.is_asked)
    }

    /// A look has found that the call waits for these requests; for none, if it is a probe, or waits for something else. `is_new`: it is
    /// the first look at this call.
    pub fn on_look(&mut self, awaited: &[Request], is_new: bool, now: Instant) -> Option<Due> {
        if is_new || self.awaited != awaited {
            self.awaited = awaited.to_vec();
            self.since = None;
        }
        let waited = now - *self.since.get_or_insert(now);
        let is_blocked = !self.is_reported && self.limit.is_some_and(|limit| waited >= limit);
        self.is_reported |= is_blocked;
        let is_due = core::mem::take(&mut self.is_asked) | is_blocked;
        is_due.then_some(Due { is_blocked, seconds: (waited.0 / 1_000_000_000) as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::{CallReports, Due};
    use crate::Request;
    use mend_base::{Duration, Instant, Key};

    const AWAITED: [Request; 1] = [Request::Collective(Key { index: 1, generation: 1 })];

    fn at(seconds: u64) -> Instant {
        Instant(7) + Duration::from_millis(1_000 * seconds)
    }

    #[test]
    fn a_call_is_reported_once_when_it_has_taken_too_long_and_whenever_it_is_asked_about() {
        let mut reports = CallReports::default();
        assert_eq!(reports.on_look(&AWAITED, true, at(0)), None);
        assert_eq!(reports.on_look(&AWAITED, false, at(99)), None, "there is no limit");
        reports.set_limit(Some(Duration::from_millis(3_000)));
        assert_eq!(reports.on_look(&AWAITED, true, at(100)), None, "another call for the same");
        assert_eq!(reports.on_look(&[], false, at(102)), None, "another wait");
        assert_eq!(reports.on_look(&[], false, at(104)), None);
        assert_eq!(reports.on_look(&[], false, at(105)), Some(Due { is_blocked: true, seconds: 3 }));
        assert_eq!(reports.on_look(&[], false, at(106)), None);
        reports.on_asked();
        assert_eq!(reports.on_look(&[], false, at(107)), Some(Due { is_blocked: false, seconds: 5 }));
        assert!(!reports.take_asked());
        reports.on_asked();
        assert!(reports.take_asked() && !reports.take_asked());
    }
}
