// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guard at the entry to the engine: the one place of Mend with mutual exclusion of threads (Rule 5).
//!
//! To enter and leave takes two locked instructions with `MPI_THREAD_MULTIPLE`, and none below. A thread that finds the guard held queues
//! its [`Semaphore`] and sleeps. The guard is not fair: a thread that is running may enter before the threads in the queue, which must be
//! woken first. So a thread that would leave and enter again at once, as the owner of progress would, calls
//! [`CriticalSection::yield_to_contenders`], which puts the thread at the end of the queue.

use crate::semaphore::Semaphore;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// How many threads may call MPI at the same time: what the program asked of `MPI_Init_thread` (MPI-5.0 §11.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threads {
    /// One at a time, which the program ensures: below `MPI_THREAD_MULTIPLE`. The guard excludes nothing.
    Serialized,
    /// Several: `MPI_THREAD_MULTIPLE`.
    Multiple,
}

/// A mutex around `T`.
#[derive(Debug)]
pub struct Guard<T> {
    threads: Threads,
    /// 1 while a thread holds the guard.
    held: AtomicU32,
    /// The number of threads that wait to enter: at least the length of the queue.
    waiting: AtomicU32,
    queue: Mutex<VecDeque<Arc<Semaphore>>>,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is only accessed through a `CriticalSection`, of which at most one is used at a time: `held` ensures that, or, with
// `Threads::Serialized`, the program does, as it promised. So one thread at a time accesses a `T` that may move between threads.
unsafe impl<T: Send> Sync for Guard<T> {}

/// Holds the guard, and gives access to its value, until it is dropped.
#[derive(Debug)]
pub struct CriticalSection<'a, T> {
    guard: &'a Guard<T>,
    /// Makes this type `!Send` and `!Sync`.
    not_shared: PhantomData<*const T>,
}

impl<T> Guard<T> {
    /// A guard around `value`, which no thread holds.
    pub fn new(threads: Threads, value: T) -> Self {
        Guard {
            threads,
            held: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            queue: Mutex::new(VecDeque::new()),
            value: UnsafeCell::new(value),
        }
    }

    // Hot: per message.
    /// Waits until no thread holds the guard, and takes it.
    #[inline]
    pub fn enter(&self) -> CriticalSection<'_, T> {
        match self.threads {
            Threads::Serialized => self.hold(),
            Threads::Multiple if self.try_take() => {}
            Threads::Multiple => self.enter_slowly(),
        }
        CriticalSection { guard: self, not_shared: PhantomData }
    }

    /// Marks the guard as held, so that a signal handler can see that it interrupted a thread in the critical section. The fence keeps the
    /// compiler from moving changes of the engine before the store, where a handler would find the guard free. It is no instruction.
    #[inline]
    fn hold(&self) {
        self.held.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    /// Takes the guard if no thread holds it. For `MPI_Abort`: programs call it from signal handlers, which may have interrupted
    /// this thread in the critical section.
    pub fn try_enter(&self) -> Option<CriticalSection<'_, T>> {
        let free = match self.threads {
            Threads::Serialized if self.held.load(Ordering::Relaxed) == 0 => {
                self.hold();
                true
            }
            Threads::Serialized => false,
            Threads::Multiple => self.try_take(),
        };
        free.then_some(CriticalSection { guard: self, not_shared: PhantomData })
    }

    /// Whether the program ensures that one thread at a time calls MPI.
    pub fn is_serialized(&self) -> bool {
        self.threads == Threads::Serialized
    }

    #[inline]
    fn try_take(&self) -> bool {
        // SYNC: what the last holder did, with Guard::release
        self.held.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    #[cold]
    fn enter_slowly(&self) {
        let semaphore = Semaphore::of_thread();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // This thread counts itself before it tries; `release` clears `held` before it reads the count. All are SeqCst, so one of the
        // two sees the other, and no thread sleeps while the guard is free.
        while !self.try_take() {
            self.lock_queue().push_back(Arc::clone(&semaphore));
            if self.try_take() {
                self.leave_queue(&semaphore);
                break;
            }
            semaphore.wait();
            self.leave_queue(&semaphore);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes the semaphore out of the queue: in the queue without a sleeper it would take the post meant for the next thread.
    fn leave_queue(&self, semaphore: &Arc<Semaphore>) {
        self.lock_queue().retain(|queued| !Arc::ptr_eq(queued, semaphore));
    }

    #[inline]
    fn release(&self) {
        if self.threads == Threads::Serialized {
            // Keeps the changes of the engine before the store, as in `hold`.
            compiler_fence(Ordering::SeqCst);
            return self.held.store(0, Ordering::Relaxed);
        }
        // SYNC: what the last holder did, with Guard::try_take
        self.held.swap(0, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) != 0 {
            self.wake_first();
        }
    }

    #[cold]
    fn wake_first(&self) {
        let first = self.lock_queue().pop_front();
        if let Some(semaphore) = first {
            semaphore.post();
        }
    }

    fn lock_queue(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Semaphore>>> {
        // Nothing panics while the queue is locked, and a queue of semaphores has no invalid state.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> CriticalSection<'_, T> {
    /// Whether there are contenders: threads that wait to enter.
    pub fn has_contenders(&self) -> bool {
        self.guard.waiting.load(Ordering::Relaxed) != 0
    }

    // Hot: per call of progress.
    /// Lets the threads that wait to enter go first, and enters again after them. Returns at once if no thread waits.
    #[inline]
    pub fn yield_to_contenders(&mut self) {
        if self.has_contenders() {
            self.queue_last();
        }
    }

    #[cold]
    fn queue_last(&mut self) {
        self.released(|guard| {
            let semaphore = Semaphore::of_thread();
            guard.waiting.fetch_add(1, Ordering::SeqCst);
            guard.lock_queue().push_back(Arc::clone(&semaphore));
            guard.release();
            semaphore.wait();
            guard.leave_queue(&semaphore);
            guard.waiting.fetch_sub(1, Ordering::SeqCst);
        });
    }

    /// Releases the guard, runs `work`, and enters again.
    pub fn while_released<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let mut result = None;
        self.released(|guard| {
            guard.release();
            result = Some(work());
        });
        result.expect("released runs its argument")
    }

    /// Runs `work`, which releases the guard, and enters again, also if `work` panics: dropping a `CriticalSection` that does not hold the
    /// guard would release the guard of another thread.
    fn released(&mut self, work: impl FnOnce(&Guard<T>)) {
        struct Back<'a, T>(&'a Guard<T>);
        impl<T> Drop for Back<'_, T> {
            fn drop(&mut self) {
                core::mem::forget(self.0.enter());
            }
        }
        let back = Back(self.guard);
        work(back.0);
    }
}

impl<T> Deref for CriticalSection<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this `CriticalSection` holds the guard, so no other thread has a reference; ours are bound to `self`.
        unsafe { &*self.guard.value.get() }
    }
}

impl<T> DerefMut for CriticalSection<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` rules out a second reference through this `CriticalSection`.
        unsafe { &mut *self.guard.value.get() }
    }
}

impl<T> Drop for CriticalSection<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.guard.release();
    }
}

#[cfg(test)]
mod tests {
    use super::{Guard, Threads};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn no_two_threads_hold_the_guard() {
        let guard = Arc::new(Guard::new(Threads::Multiple, 0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let guard = Arc::clone(&guard);
                std::thread::spawn(move || {
                    for _ in 0..20_000 {
                        let mut section = guard.enter();
                        *section += 1;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*guard.enter(), 80_000);
    }

    #[test]
    fn a_holder_that_yields_starves_no_thread() {
        let guard = Arc::new(Guard::new(Threads::Multiple, 0u64));
        let done = Arc::new(AtomicBool::new(false));
        let holder = std::thread::spawn({
            let (guard, done) = (Arc::clone(&guard), Arc::clone(&done));
            move || {
                let mut section = guard.enter();
                while !done.load(Ordering::Relaxed) {
                    section.yield_to_contenders();
                }
            }
        });
        for _ in 0..2_000 {
            *guard.enter() += 1;
        }
        done.store(true, Ordering::Relaxed);
        holder.join().unwrap();
        assert_eq!(*guard.enter(), 2_000);
    }

    #[test]
    fn a_signal_handler_cannot_enter_while_its_thread_holds_the_guard() {
        for threads in [Threads::Multiple, Threads::Serialized] {
            let guard = Guard::new(threads, 0);
            let section = guard.enter();
            assert!(guard.try_enter().is_none());
            drop(section);
            assert!(guard.try_enter().is_some());
        }
    }

    #[test]
    fn others_enter_while_the_guard_is_released() {
        let guard = Guard::new(Threads::Multiple, 1);
        let mut section = guard.enter();
        section.while_released(|| *guard.enter() += 1);
        assert_eq!(*section, 2);
    }
}
