// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In which agreements the program of this process is blocked, for the search for recoveries that wait for each other
//! ([`mend_proto::crossing`]).
//!
//! A part of the engine; it calls no other part. The waiter looks at its call from time to time: the call is polled, and the requests
//! that this poll finds active are what it waits for. Most waits are over before the first look.

use mend_base::{Identity, Key};

/// The wait in which the program was blocked at the last look.
#[derive(Debug, Default)]
pub(crate) struct ProgramWaits {
    /// Looks at this wait.
    looks: u32,
    awaited: Vec<Awaited>,
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

impl ProgramWaits {
    /// A look has found these operations. Returns whether a search is due.
    pub fn on_look(&mut self, awaited: Vec<Awaited>) -> bool {
        if awaited != self.awaited {
            *self = ProgramWaits { looks: 0, awaited, number: 0, last: self.last };
        }
        self.looks = self.looks.saturating_add(1);
        !self.awaited.is_empty() && self.looks >= FIRST_SEARCH && self.looks.is_power_of_two()
    }

    /// The program has one thread, which waits. So nothing but the end of one of the operations ends this wait.
    pub fn note_only_thread(&mut self) {
        if self.number == 0 {
            self.last = self.last.wrapping_add(1).max(1);
            self.number = self.last;
        }
    }

    /// The number of the wait and its operations, if all of them run (`runs`). One that has ended may have ended the wait.
    pub fn current(&self, runs: impl Fn(Key) -> bool) -> Option<(u32, &[Awaited])> {
        let is_current = self.number != 0 && self.awaited.iter().all(|awaited| runs(awaited.operation));
        is_current.then_some((self.number, &self.awaited))
    }
}

#[cfg(test)]
mod tests {
    use super::{Awaited, ProgramWaits};
    use mend_base::{Identity, Key, Peer};

    fn awaited(index: u32) -> Awaited {
        let communicator = Identity { creator: Peer(1), number: 1 };
        Awaited { operation: Key { index, generation: 1 }, communicator }
    }

    #[test]
    fn searches_begin_at_the_fourth_look_and_then_ever_more_rarely() {
        let mut waits = ProgramWaits::default();
        let due: Vec<u32> = (1..=200).filter(|_| waits.on_look(vec![awaited(3)])).collect();
        assert_eq!(due, [4, 8, 16, 32, 64, 128]);
        assert!((0..200).all(|_| !waits.on_look(Vec::new())), "it waits for something else");
    }

    #[test]
    fn a_wait_lasts_until_one_of_its_operations_ends_and_has_a_number_of_its_own() {
        let mut waits = ProgramWaits::default();
        waits.on_look(vec![awaited(3), awaited(4)]);
        assert_eq!(waits.current(|_| true), None, "other threads may end it");
        waits.note_only_thread();
        let (first, operations) = waits.current(|_| true).unwrap();
        assert_eq!(operations.len(), 2);
        assert_eq!(waits.current(|operation| operation.index == 3), None);
        waits.on_look(vec![awaited(4)]);
        waits.note_only_thread();
        assert_ne!(waits.current(|_| true).unwrap().0, first);
    }
}
