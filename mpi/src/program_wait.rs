// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In which agreements the program of this process is blocked, for the search for recoveries that wait for each other
//! ([`mend_proto::crossing`]).
//!
//! A part of the engine; it calls no other part. The waiter looks at its call from time to time: the call is polled, and the requests
//! that this poll finds active are what it waits for. Most waits are over before the first look.

use crate::Request;
use mend_base::{Identity, Key};

/// The wait in which the program was blocked at the last look.
#[derive(Debug, Default)]
pub(crate) struct ProgramWaits {
    /// Looks at this wait.
    looks: u32,
    awaited: Vec<Awaited>,
    /// All requests of the call: the end of any of them may end the wait.
    requests: Vec<Request>,
    /// The number of the wait, if no other thread of the program can end it; else 0.
    number: u32,
    /// The number of the last wait that had one; wraps.
    last: u32,
}

/// An operation that must end before the wait does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Awaited {
    pub operation: Key,
    pub communicator: Identity,
}

/// A search begins at the look of this number, and then at twice as many each time, without a bound: at some time a search has longer
/// than its messages need. Who has become blocked last searches first.
const FIRST_SEARCH: u32 = 4;

/// The threads of the program are counted at each look of so many, so that others' searches meet this wait soon after the last other
/// thread has ended.
const COUNTING_PERIOD: u32 = 64;

/// What is due after a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    Nothing,
    /// Whether the program has other threads is to be found out.
    Counting,
    /// That, and a search if it has none.
    Search,
}

impl ProgramWaits {
    /// A look has found these operations, which must end, among these requests of the call.
    pub fn on_look(&mut self, awaited: Vec<Awaited>, requests: &[Request]) -> Due {
        if awaited != self.awaited || self.requests != requests {
            let requests = if awaited.is_empty() { Vec::new() } else { requests.to_vec() };
            *self = ProgramWaits { looks: 0, awaited, requests, number: 0, last: self.last };
        }
        self.looks = self.looks.saturating_add(1);
        if self.awaited.is_empty() {
            Due::Nothing
        } else if self.looks >= FIRST_SEARCH && self.looks.is_power_of_two() {
            Due::Search
        } else if self.looks.is_multiple_of(COUNTING_PERIOD) {
            Due::Counting
        } else {
            Due::Nothing
        }
    }

    /// The wait has ended: the next one has a number of its own, though it may be for the same operations.
    pub fn end(&mut self) {
        *self = ProgramWaits { last: self.last, ..ProgramWaits::default() };
    }

    /// The program has one thread, which waits. So nothing but the end of one of the operations ends this wait.
    pub fn note_only_thread(&mut self) {
        if self.number == 0 {
            self.last = self.last.wrapping_add(1).max(1);
            self.number = self.last;
        }
    }

    /// The number of the wait and its operations, if all requests of the call run (`runs`). One that has ended may have ended the wait.
    pub fn current(&self, runs: impl Fn(Request) -> bool) -> Option<(u32, &[Awaited])> {
        let is_current = self.number != 0 && self.requests.iter().all(|request| runs(*request));
        is_current.then_some((self.number, &self.awaited))
    }
}

#[cfg(test)]
mod tests {
    use super::{Awaited, Due, ProgramWaits};
    use crate::Request;
    use mend_base::{Identity, Key, Peer};

    fn awaited(index: u32) -> Awaited {
        let communicator = Identity { creator: Peer(1), number: 1 };
        Awaited { operation: Key { index, generation: 1 }, communicator }
    }

    fn request(index: u32) -> Request {
        Request::Agreement(Key { index, generation: 1 })
    }

    fn look(waits: &mut ProgramWaits) -> Due {
        waits.on_look(vec![awaited(3)], &[request(3)])
    }

    #[test]
    fn searches_begin_at_the_fourth_look_and_then_ever_more_rarely_and_threads_are_counted_between() {
        let mut waits = ProgramWaits::default();
        let found: Vec<(u32, Due)> = (1..=200).map(|number| (number, look(&mut waits))).collect();
        let of = |wanted| found.iter().filter(move |(_, due)| *due == wanted).map(|(number, _)| *number);
        assert_eq!(of(Due::Search).collect::<Vec<_>>(), [4, 8, 16, 32, 64, 128]);
        assert_eq!(of(Due::Counting).collect::<Vec<_>>(), [192]);
        let other = |waits: &mut ProgramWaits| waits.on_look(Vec::new(), &[request(3)]);
        assert!((0..200).all(|_| other(&mut waits) == Due::Nothing), "it waits for something else");
    }

    #[test]
    fn a_wait_lasts_until_one_of_its_requests_ends_and_has_a_number_of_its_own() {
        let mut waits = ProgramWaits::default();
        // Only the first one must end before the wait does; but if the second one ends with an error, so does the wait.
        waits.on_look(vec![awaited(3)], &[request(3), request(4)]);
        assert_eq!(waits.current(|_| true), None, "other threads may end it");
        waits.note_only_thread();
        let (first, operations) = waits.current(|_| true).unwrap();
        assert_eq!(operations.len(), 1);
        assert_eq!(waits.current(|ended| ended != request(4)), None);
        waits.end();
        assert_eq!(waits.current(|_| true), None);
        waits.on_look(vec![awaited(3)], &[request(3), request(4)]);
        waits.note_only_thread();
        assert_ne!(waits.current(|_| true).unwrap().0, first);
    }
}
