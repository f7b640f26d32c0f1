// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one thread sleeps on while another cranks, or holds the guard: a word of its own that remembers being rung.

use core::sync::atomic::{AtomicU32, Ordering};
use mend_base::Duration;
use mend_segment::timespec;
use rustix::thread::futex;
use std::sync::Arc;

/// One thread's place to sleep. A ring before the sleep is not lost: the next sleep returns at once.
#[derive(Debug, Default)]
pub struct Cell {
    rung: AtomicU32,
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

    /// Sleeps until rung, and takes the ring back.
    pub fn sleep(&self) {
        // SYNC: what was done before the ring, with Cell::ring
        while self.rung.swap(0, Ordering::Acquire) == 0 {
            // An error is EAGAIN (rung meanwhile) or EINTR: both are seen by the next look.
            let _ = futex::wait(&self.rung, futex::Flags::PRIVATE, 0, None);
        }
    }

    /// The same, but not longer than `span`.
    pub fn sleep_at_most(&self, span: Duration) {
        // SYNC: what was done before the ring, with Cell::ring
        if self.rung.swap(0, Ordering::Acquire) == 0 {
            // As above, or over; a sleeper that was rung meanwhile takes the ring back the next time, or here.
            let _ = futex::wait(&self.rung, futex::Flags::PRIVATE, 0, Some(&timespec(span)));
            // SYNC: what was done before the ring, with Cell::ring
            self.rung.swap(0, Ordering::Acquire);
        }
    }

    /// Ends the sleep of whoever sleeps here, or the next one.
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
