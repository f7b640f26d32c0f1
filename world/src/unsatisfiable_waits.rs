// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads that wait for what only another thread of this process could send (`mpi/src/engine/unsatisfiable.rs`). They start no
//! operation before their wait ends. So if every other thread of the program is one of them, nothing will be sent, and a wait ends.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

/// The threads in such waits. Changed by holders of the guard alone.
#[derive(Default, Debug)]
pub struct UnsatisfiableWaits {
    threads: Mutex<Vec<ThreadId>>,
    count: AtomicU32,
}

impl UnsatisfiableWaits {
    // Hot: per wait.
    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// The wait of the calling thread is unsatisfiable. Returns for how many other threads this holds.
    #[cold]
    pub fn begin(&self) -> u32 {
        let me = std::thread::current().id();
        self.change(|threads| {
            if !threads.contains(&me) {
                threads.push(me);
            }
        }) - 1
    }

    /// For how many other threads it holds, whether the calling one has begun or not.
    #[cold]
    pub fn others(&self) -> u32 {
        let me = std::thread::current().id();
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.iter().filter(|thread| **thread != me).count() as u32
    }

    /// The wait of the calling thread ends: the thread may send again. Without effect if it has not [begun](UnsatisfiableWaits::begin).
    #[cold]
    pub fn end(&self) {
        let me = std::thread::current().id();
        self.change(|threads| threads.retain(|thread| *thread != me));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<ThreadId>)) -> u32 {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut threads);
        let count = threads.len() as u32;
        self.count.store(count, Ordering::Relaxed);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::UnsatisfiableWaits;

    #[test]
    fn each_thread_counts_once_from_the_begin_to_the_end_of_its_wait() {
        let waits = UnsatisfiableWaits::default();
        assert!(waits.is_empty());
        assert_eq!([waits.begin(), waits.begin()], [0, 0]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(waits.others(), 1);
                assert_eq!(waits.begin(), 1);
                assert_eq!(waits.others(), 1);
                waits.end();
                waits.end();
            });
        });
        assert_eq!(waits.begin(), 0);
        assert_eq!(waits.others(), 0, "a thread that only counts is not one of them");
        assert!(!waits.is_empty());
        waits.end();
        assert!(waits.is_empty());
    }
}
