// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a thread sleeps on while another thread makes progress or holds the guard: a binary semaphore over a private futex.

use core::num::NonZero;
use core::sync::atomic::{AtomicU32, Ordering};
use mend_base::Duration;
use mend_mpi::SleeperId;
use mend_segment::timespec;
use rustix::thread::futex;
use std::sync::Arc;

/// A binary semaphore on which one thread waits. A post before the wait is not lost: the next wait returns at once. Two posts before a
/// wait count as one.
#[derive(Debug)]
pub struct Semaphore {
    posted: AtomicU32,
    sleeper: SleeperId,
}

impl Default for Semaphore {
    fn default() -> Self {
        // Not state of an engine: each semaphore of the process gets a name. After 2^32 threads two may have the same name, and one
        // may be woken instead of the other.
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Semaphore {
            posted: AtomicU32::new(0),
            sleeper: SleeperId(NonZero::new(number).unwrap_or(NonZero::<u32>::MIN)),
        }
    }
}

thread_local! {
    // Not state of an engine: the semaphore of the running thread, whichever engine it waits for.
    static OF_THREAD: Arc<Semaphore> = Arc::new(Semaphore::default());
}

impl Semaphore {
    /// The semaphore of the running thread; a new one if the thread-local storage of the thread was destroyed already.
    pub fn of_thread() -> Arc<Semaphore> {
        OF_THREAD.try_with(Arc::clone).unwrap_or_default()
    }

    /// The number of the thread that sleeps here, as requests know it.
    pub fn sleeper_id(&self) -> SleeperId {
        self.sleeper
    }

    /// Sleeps until there is a post, and consumes it.
    pub fn wait(&self) {
        // SYNC: what was done before the post, with Semaphore::post
        while self.posted.swap(0, Ordering::Acquire) == 0 {
            // An error is EAGAIN (posted meanwhile) or EINTR: the next swap shows which.
            let _ = futex::wait(&self.posted, futex::Flags::PRIVATE, 0, None);
        }
    }

    /// Sleeps until there is a post or `span` is over. Returns whether there was a post, and consumes it.
    pub fn wait_at_most(&self, span: Duration) -> bool {
        // SYNC: what was done before the post, with Semaphore::post
        if self.posted.swap(0, Ordering::Acquire) != 0 {
            return true;
        }
        // EAGAIN, EINTR or a time-out. A post that comes now is consumed below or by the next wait.
        let _ = futex::wait(&self.posted, futex::Flags::PRIVATE, 0, Some(&timespec(span)));
        // SYNC: what was done before the post, with Semaphore::post
        self.posted.swap(0, Ordering::Acquire) != 0
    }

    /// Wakes the thread that waits here, or lets its next wait return at once.
    pub fn post(&self) {
        // SYNC: what was done before the post, with Semaphore::wait
        if self.posted.swap(1, Ordering::Release) == 0 {
            // Cannot fail: the word is in the memory of this process.
            let _ = futex::wake(&self.posted, futex::Flags::PRIVATE, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Semaphore;
    use std::sync::Arc;

    #[test]
    fn a_post_before_the_wait_is_not_lost() {
        let semaphore = Semaphore::default();
        semaphore.post();
        semaphore.post();
        semaphore.wait();
    }

    #[test]
    fn two_threads_post_alternately() {
        let (a, b) = (Arc::new(Semaphore::default()), Arc::new(Semaphore::default()));
        let other = std::thread::spawn({
            let (a, b) = (Arc::clone(&a), Arc::clone(&b));
            move || {
                for _ in 0..1_000 {
                    a.wait();
                    b.post();
                }
            }
        });
        for _ in 0..1_000 {
            a.post();
            b.wait();
        }
        other.join().unwrap();
    }
}
