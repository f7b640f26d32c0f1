// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads that are blocked in a call while another makes progress: each sleeps on a cell of its own and is woken for what
//! it waits for alone.

use crate::cell::Cell;
use mend_mpi::Waiter;
use std::sync::Arc;

/// The blocked threads, in the order in which they came.
#[derive(Debug, Default)]
pub struct BlockedThreads {
    threads: Vec<BlockedThread>,
    /// How many of them any event wakes.
    await_events: usize,
    /// How often one was woken.
    wakes: u64,
}

#[derive(Debug)]
struct BlockedThread {
    cell: Arc<Cell>,
    awaits: Awaits,
}

/// What wakes a blocked thread, besides what concerns all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaits {
    /// The end of requests, which name it as their waiter.
    Requests,
    /// Any event.
    AnyEvent,
}

impl BlockedThreads {
    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// How often a blocked thread was woken.
    pub fn wakes(&self) -> u64 {
        self.wakes
    }

    /// The thread of this cell is about to sleep.
    pub fn add(&mut self, cell: &Arc<Cell>, awaits: Awaits) {
        self.await_events += usize::from(awaits == Awaits::AnyEvent);
        self.threads.push(BlockedThread { cell: Arc::clone(cell), awaits });
    }

    /// It does not sleep any more, whether it was woken or not.
    pub fn remove(&mut self, cell: &Cell) {
        self.take_out(|thread| thread.cell.number() == cell.number(), |_| ());
    }

    /// Wakes the thread that waits under this name; nothing where it does not sleep.
    pub fn wake(&mut self, waiter: Waiter) {
        self.wake_each(|thread| thread.cell.number() == waiter);
    }

    /// Wakes those for which any event may be what they wait for.
    pub fn wake_for_event(&mut self) {
        if self.await_events > 0 {
            self.wake_each(|thread| thread.awaits == Awaits::AnyEvent);
        }
    }

    /// Wakes all.
    pub fn wake_all(&mut self) {
        self.wake_each(|_| true);
    }

    /// Wakes the one that came first; its name.
    pub fn wake_first(&mut self) -> Option<Waiter> {
        let first = self.threads.first()?.cell.number();
        self.wake(first);
        Some(first)
    }

    /// A woken thread is taken out: it is woken once.
    fn wake_each(&mut self, is_meant: impl Fn(&BlockedThread) -> bool) {
        let mut wakes = 0;
        self.take_out(is_meant, |thread| {
            wakes += 1;
            thread.cell.ring();
        });
        self.wakes += wakes;
    }

    fn take_out(&mut self, is_meant: impl Fn(&BlockedThread) -> bool, mut taken: impl FnMut(&BlockedThread)) {
        let await_events = &mut self.await_events;
        self.threads.retain(|thread| {
            let meant = is_meant(thread);
            if meant {
                *await_events -= usize::from(thread.awaits == Awaits::AnyEvent);
                taken(thread);
            }
            !meant
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Awaits, BlockedThreads};
    use crate::cell::Cell;
    use mend_base::Duration;
    use std::sync::Arc;

    const ONE_MS: Duration = Duration::from_millis(1);

    fn three() -> (BlockedThreads, [Arc<Cell>; 3]) {
        let cells = [(); 3].map(|()| Arc::new(Cell::default()));
        let mut blocked = BlockedThreads::default();
        blocked.add(&cells[0], Awaits::Requests);
        blocked.add(&cells[1], Awaits::AnyEvent);
        blocked.add(&cells[2], Awaits::Requests);
        (blocked, cells)
    }

    fn rung(cells: &[Arc<Cell>; 3]) -> [bool; 3] {
        [0, 1, 2].map(|at| cells[at].sleep_at_most(ONE_MS))
    }

    #[test]
    fn the_end_of_a_request_wakes_its_waiter_alone_and_once() {
        let (mut blocked, cells) = three();
        blocked.wake(cells[2].number());
        blocked.wake(cells[2].number());
        assert_eq!(rung(&cells), [false, false, true]);
        assert_eq!(blocked.wakes(), 1);
    }

    #[test]
    fn an_event_wakes_those_that_wait_for_no_request() {
        let (mut blocked, cells) = three();
        blocked.wake_for_event();
        assert_eq!(rung(&cells), [false, true, false]);
        blocked.add(&cells[1], Awaits::AnyEvent);
        blocked.remove(&cells[1]);
        blocked.add(&cells[1], Awaits::AnyEvent);
        blocked.wake_for_event();
        assert_eq!(rung(&cells), [false, true, false]);
    }

    #[test]
    fn what_concerns_all_wakes_all() {
        let (mut blocked, cells) = three();
        assert_eq!(blocked.wake_first(), Some(cells[0].number()));
        blocked.wake_all();
        assert_eq!(rung(&cells), [true, true, true]);
        assert!(blocked.is_empty());
    }

    #[test]
    fn a_thread_that_has_left_is_not_woken() {
        let (mut blocked, cells) = three();
        blocked.remove(&cells[0]);
        blocked.wake(cells[0].number());
        assert_eq!((rung(&cells), blocked.wakes()), ([false, false, false], 0));
    }
}
