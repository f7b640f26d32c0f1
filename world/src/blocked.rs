// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads that are blocked in a call while another thread makes progress. Each sleeps on its own semaphore, and is woken by the end
//! of a request that it waits for, and by ends of peers and acknowledgements, which wake all.

use crate::semaphore::Semaphore;
use mend_mpi::SleeperId;
use std::sync::Arc;

/// The blocked threads, in the order in which they were blocked.
#[derive(Debug, Default)]
pub struct BlockedThreads {
    threads: Vec<BlockedThread>,
    /// How many of them wait for any event.
    any_event_count: usize,
    /// How often a blocked thread was woken, since Init.
    wakes: u64,
}

#[derive(Debug)]
struct BlockedThread {
    semaphore: Arc<Semaphore>,
    condition: WakeCondition,
}

/// What wakes a blocked thread, besides [`BlockedThreads::wake_all`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WakeCondition {
    /// The end of a request of which the thread is the sleeper.
    RequestEnd,
    /// Any event.
    AnyEvent,
}

impl BlockedThreads {
    /// Whether no thread is blocked.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// How many threads are blocked.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// How often a blocked thread was woken.
    pub fn wakes(&self) -> u64 {
        self.wakes
    }

    /// Adds the thread of this semaphore, which is about to sleep.
    pub fn add(&mut self, semaphore: &Arc<Semaphore>, condition: WakeCondition) {
        self.any_event_count += usize::from(condition == WakeCondition::AnyEvent);
        self.threads.push(BlockedThread { semaphore: Arc::clone(semaphore), condition });
    }

    /// Removes the thread of this semaphore; no effect if a wake-up has removed it.
    pub fn remove(&mut self, semaphore: &Semaphore) {
        self.take_out(|thread| thread.semaphore.sleeper_id() == semaphore.sleeper_id(), |_| ());
    }

    /// Wakes the thread with this number; no effect if the thread is not blocked.
    pub fn wake(&mut self, sleeper: SleeperId) {
        self.wake_each(|thread| thread.semaphore.sleeper_id() == sleeper);
    }

    /// Wakes the threads that wait for any event.
    pub fn wake_for_event(&mut self) {
        if self.any_event_count > 0 {
            self.wake_each(|thread| thread.condition == WakeCondition::AnyEvent);
        }
    }

    /// Wakes all blocked threads.
    pub fn wake_all(&mut self) {
        self.wake_each(|_| true);
    }

    /// Wakes the thread that was blocked first, and returns its name.
    pub fn wake_first(&mut self) -> Option<SleeperId> {
        let first = self.threads.first()?.semaphore.sleeper_id();
        self.wake(first);
        Some(first)
    }

    /// Wakes the threads for which `is_meant` holds, and removes them, so that each is woken once.
    fn wake_each(&mut self, is_meant: impl Fn(&BlockedThread) -> bool) {
        let mut wakes = 0;
        self.take_out(is_meant, |thread| {
            wakes += 1;
            thread.semaphore.post();
        });
        self.wakes += wakes;
    }

    fn take_out(&mut self, is_meant: impl Fn(&BlockedThread) -> bool, mut taken: impl FnMut(&BlockedThread)) {
        let any_event_count = &mut self.any_event_count;
        self.threads.retain(|thread| {
            let meant = is_meant(thread);
            if meant {
                *any_event_count -= usize::from(thread.condition == WakeCondition::AnyEvent);
                taken(thread);
            }
            !meant
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockedThreads, WakeCondition};
    use crate::semaphore::Semaphore;
    use mend_base::Duration;
    use std::sync::Arc;

    const ONE_MS: Duration = Duration::from_millis(1);

    fn three() -> (BlockedThreads, [Arc<Semaphore>; 3]) {
        let semaphores = [(); 3].map(|()| Arc::new(Semaphore::default()));
        let mut blocked = BlockedThreads::default();
        blocked.add(&semaphores[0], WakeCondition::RequestEnd);
        blocked.add(&semaphores[1], WakeCondition::AnyEvent);
        blocked.add(&semaphores[2], WakeCondition::RequestEnd);
        (blocked, semaphores)
    }

    fn rung(semaphores: &[Arc<Semaphore>; 3]) -> [bool; 3] {
        [0, 1, 2].map(|at| semaphores[at].wait_at_most(ONE_MS))
    }

    #[test]
    fn the_end_of_a_request_wakes_its_sleeper_alone_and_once() {
        let (mut blocked, semaphores) = three();
        blocked.wake(semaphores[2].sleeper_id());
        blocked.wake(semaphores[2].sleeper_id());
        assert_eq!(rung(&semaphores), [false, false, true]);
        assert_eq!(blocked.wakes(), 1);
    }

    #[test]
    fn an_event_wakes_the_threads_that_wait_for_any_event() {
        let (mut blocked, semaphores) = three();
        blocked.wake_for_event();
        assert_eq!(rung(&semaphores), [false, true, false]);
        blocked.add(&semaphores[1], WakeCondition::AnyEvent);
        blocked.remove(&semaphores[1]);
        blocked.add(&semaphores[1], WakeCondition::AnyEvent);
        blocked.wake_for_event();
        assert_eq!(rung(&semaphores), [false, true, false]);
    }

    #[test]
    fn wake_all_wakes_every_blocked_thread() {
        let (mut blocked, semaphores) = three();
        assert_eq!(blocked.wake_first(), Some(semaphores[0].sleeper_id()));
        blocked.wake_all();
        assert_eq!(rung(&semaphores), [true, true, true]);
        assert!(blocked.is_empty());
    }

    #[test]
    fn a_thread_that_was_removed_is_not_woken() {
        let (mut blocked, semaphores) = three();
        blocked.remove(&semaphores[0]);
        blocked.wake(semaphores[0].sleeper_id());
        assert_eq!((rung(&semaphores), blocked.wakes()), ([false, false, false], 0));
    }
}
