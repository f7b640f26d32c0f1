// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a thread sleeps on while another makes progress or holds the guard: a word of its own that remembers being rung.

use core::num::NonZero;
use core::sync::atomic::{AtomicU32, Ordering};
use mend_base::Duration;
use mend_mpi::Waiter;
use mend_segment::timespec;
use rustix::thread::futex;
use std::sync::Arc;

/// One thread's place to sleep. A ring before the sleep is not lost: the next sleep returns at once.
#[derive(Debug)]
pub struct Cell {
    rung: AtomicU32,
    number: Waiter,
}

impl Default for Cell {
    fn default() -> Self {
        // Not state of an engine: a name for each cell of the process. After 2^32 threads two may have the same, and one
        // of them is woken for the other.
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Cell { rung: AtomicU32::new(0), number: Waiter(NonZero::new(number).unwrap_or(NonZero::<u32>::MIN)) }
    }
}

thread_local! {
    // Not state of an engine: where the running thread sleeps, whichever engine it waits for.
    static MINE: Arc<Cell> = Arc::new(Cell::default());
}

impl Cell {
    /// The running thread's; a fresh one in a thread that is being torn down.
    pub fn mine() -> Arc<Cell> {
        MINE.try_with(Arc::clone).unwrap_or_default()
    }

    /// What requests call the thread that sleeps here.
    pub fn number(&self) -> Waiter {
        self.number
    }

    /// Sleeps until rung, and takes the ring back.
    pub fn sleep(&self) {
        // SYNC: what was done before the ring, with Cell::ring
        while self.rung.swap(0, Ordering::Acquire) == 0 {
            // An error is EAGAIN (rung meanwhile) or EINTR: both are seen by the next look.
            let _ = futex::wait(&self.rung, futex::Flags::PRIVATE, 0, None);
        }
    }

    /// The same, but not longer than `span`. Whether it was rung.
    pub fn sleep_at_most(&self, span: Duration) -> bool {
        // SYNC: what was done before the ring, with Cell::ring
        if self.rung.swap(0, Ordering::Acquire) != 0 {
            return true;
        }
        // As above, or the time is over; a sleeper that is rung meanwhile takes the ring back here or the next time.
        let _ = futex::wait(&self.rung, futex::Flags::PRIVATE, 0, Some(&timespec(span)));
        // SYNC: what was done before the ring, with Cell::ring
        self.rung.swap(0, Ordering::Acquire) != 0
    }

    /// Ends the sleep of the thread that sleeps here, or its next one.
    pub fn ring(&self) {
        // SYNC: what was done before the ring, with Cell::sleep
        if self.rung.swap(1, Ordering::Release) == 0 {
            // Nothing to do about an error: the word lies in our own memory.
            let _ = futex::wake(&self.rung, futex::Flags::PRIVATE, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cell;
    use std::sync::Arc;

    #[test]
    fn a_ring_before_the_sleep_is_not_lost() {
        let cell = Cell::default();
        cell.ring();
        cell.ring();
        cell.sleep();
    }

    #[test]
    fn two_threads_ring_each_other_in_turn() {
        let (a, b) = (Arc::new(Cell::default()), Arc::new(Cell::default()));
        let other = std::thread::spawn({
            let (a, b) = (Arc::clone(&a), Arc::clone(&b));
            move || {
                for _ in 0..1_000 {
                    a.sleep();
                    b.ring();
                }
            }
        });
        for _ in 0..1_000 {
            a.ring();
            b.sleep();
        }
        other.join().unwrap();
    }
}
