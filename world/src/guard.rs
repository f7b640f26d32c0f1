// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guard at the entry to the engine: the one place of Mend with mutual exclusion of threads (Rule 5).
//!
//! Below `MPI_THREAD_MULTIPLE` one thread of the program at a time enters, which the program ensures, and besides it only the helper
//! thread: the guard is [biased](crate::bias) to the program. To enter takes it four instructions: a store, a load, a test, a branch; to
//! leave takes as many.
//!
//! With `MPI_THREAD_MULTIPLE` to enter and leave takes two locked instructions, and the helper thread enters like any other. A thread that
//! finds the guard held queues its [`Semaphore`] and sleeps. The guard is not fair: a thread that is running may enter before the threads
//! in the queue, which must be woken first. So a thread that would leave and enter again at once, as the owner of progress would, calls
//! [`CriticalSection::yield_to_contenders`], which puts the thread at the end of the queue.

use crate::bias::{AWAITED, Bias, Entry};
use crate::semaphore::Semaphore;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::thread::futex;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// How many threads may call MPI at the same time: what the program asked of `MPI_Init_thread` (MPI-5.0 §11.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threads {
    /// One at a time, which the program ensures: below `MPI_THREAD_MULTIPLE`. The guard excludes the helper thread alone.
    Serialized,
    /// Several: `MPI_THREAD_MULTIPLE`.
    Multiple,
}

/// A mutex around `T`.
#[derive(Debug)]
pub struct Guard<T> {
    /// Excludes program and helper thread with [`Threads::Serialized`]; otherwise not used.
    bias: Bias,
    threads: Threads,
    /// 1 while a thread holds the guard, with [`Threads::Multiple`].
    held: AtomicU32,
    /// The number of threads that wait to enter: at least the length of the queue.
    waiting: AtomicU32,
    queue: Mutex<VecDeque<Arc<Semaphore>>>,
    /// What the program does for the helper thread, as its last act before it leaves, if the helper found it inside.
    serve: fn(&mut T),
    value: UnsafeCell<T>,
}

// SAFETY: `value` is only accessed through a `CriticalSection` or by `enter_as_helper`, of which at most one is used at a time: `held`
// ensures that, or, with `Threads::Serialized`, the program among its threads, as it promised, and `bias` between program and helper.
// So one thread at a time accesses a `T` that may move between threads.
unsafe impl<T: Send> Sync for Guard<T> {}

/// Holds the guard, and gives access to its value, until it is dropped.
#[derive(Debug)]
pub struct CriticalSection<'a, T> {
    guard: &'a Guard<T>,
    /// Makes this type `!Send` and `!Sync`.
    not_shared: PhantomData<*const T>,
}

impl<T> Guard<T> {
    /// A guard around `value`, which no thread holds. `serve` makes progress; it does not block and calls no user code.
    pub fn new(threads: Threads, value: T, serve: fn(&mut T)) -> Self {
        Guard {
            bias: if threads == Threads::Serialized { Bias::new() } else { Bias::not_used() },
            threads,
            held: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            queue: Mutex::new(VecDeque::new()),
            serve,
            value: UnsafeCell::new(value),
        }
    }

    // Hot: per message.
    /// Waits until no thread holds the guard, and takes it. Not for the helper thread.
    #[inline(always)]
    pub fn enter(&self) -> CriticalSection<'_, T> {
        self.bias.mark_inside();
        if self.bias.is_claimed() {
            self.enter_claimed();
        }
        CriticalSection { guard: self, not_shared: PhantomData }
    }

    #[inline(never)]
    fn enter_claimed(&self) {
        match self.threads {
            Threads::Multiple if self.try_take() => {}
            Threads::Multiple => self.enter_slowly(),
            Threads::Serialized => self.enter_after_helper(),
        }
    }

    /// Waits until the helper thread has left, or takes its claim over.
    #[cold]
    fn enter_after_helper(&self) {
        let mut spins = 0;
        while self.bias.enter_slowly() == Entry::HelperInside {
            if spins < SPINS_BEFORE_SLEEP {
                spins += 1;
                core::hint::spin_loop();
            } else if self.bias.await_release() {
                // An error is EAGAIN (released meanwhile) or EINTR: the next turn shows which.
                let _ = futex::wait(self.bias.claim_word(), futex::Flags::PRIVATE, AWAITED, None);
            }
        }
    }

    /// Takes the guard if no thread holds it. For `MPI_Abort`: programs call it from signal handlers, which may have interrupted
    /// this thread in the critical section.
    pub fn try_enter(&self) -> Option<CriticalSection<'_, T>> {
        let free = match self.threads {
            Threads::Serialized if self.bias.is_program_inside() => false,
            Threads::Serialized => {
                self.bias.mark_inside();
                let entered = !self.bias.is_claimed() || self.bias.enter_slowly() == Entry::Entered;
                if !entered {
                    self.bias.mark_outside();
                }
                entered
            }
            Threads::Multiple => self.try_take(),
        };
        free.then_some(CriticalSection { guard: self, not_shared: PhantomData })
    }

    /// Whether the helper thread is inside, with [`Threads::Serialized`].
    pub fn is_held_by_helper(&self) -> bool {
        self.bias.is_held()
    }

    /// Helper thread only: runs `work` while the program is kept outside, and returns true. If the program is inside, it serves before it
    /// leaves, and `work` is not run. `settle` lets 1 ms pass, by a clock that it reads first; if it returns false, this gives up.
    pub fn enter_as_helper(&self, settle: impl FnOnce() -> bool, work: impl FnOnce(&mut T)) -> bool {
        if self.threads == Threads::Multiple {
            work(&mut self.enter());
            return true;
        }
        self.bias.claim();
        if !settle() || !self.bias.try_hold() {
            return false;
        }
        let held = HeldByHelper(&self.bias);
        // SAFETY: `bias` is held: the program does not enter before it is released. There is one helper thread.
        work(unsafe { &mut *self.value.get() });
        drop(held);
        true
    }

    /// Helper thread only: whether the program seems to be outside. A hint, which has no effect on the program.
    pub fn seems_outside(&self) -> bool {
        self.bias.seems_outside()
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

    // Hot: per message.
    #[inline(always)]
    fn leave(&self) {
        self.bias.mark_outside();
        if self.bias.is_claimed() {
            self.leave_claimed();
        }
    }

    #[inline(never)]
    fn leave_claimed(&self) {
        match self.threads {
            Threads::Multiple => self.release(),
            Threads::Serialized => self.serve_and_leave(),
        }
    }

    /// Makes progress for the helper thread, which has found the program inside.
    #[cold]
    fn serve_and_leave(&self) {
        // The engine of a call that panics is in no state to be used again; the claim waits for the next call.
        while !std::thread::panicking() && self.bias.leave_slowly() {
            // SAFETY: the calling thread is dropping its `CriticalSection`, and is inside again.
            (self.serve)(unsafe { &mut *self.value.get() });
            if self.bias.end_serving() {
                break;
            }
        }
    }

    /// Releases the guard with [`Threads::Multiple`].
    #[inline]
    fn release(&self) {
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

/// How often the program looks whether the helper thread has left, before it sleeps: some microseconds, as a call of progress takes.
const SPINS_BEFORE_SLEEP: u32 = 100;

/// The helper thread is inside until this is dropped.
struct HeldByHelper<'a>(&'a Bias);

impl Drop for HeldByHelper<'_> {
    fn drop(&mut self) {
        if self.0.release() {
            // Cannot fail: the word is in the memory of this process.
            let _ = futex::wake(self.0.claim_word(), futex::Flags::PRIVATE, 1);
        }
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
        let back = Back(self.guard);
        let guard = back.0;
        let semaphore = Semaphore::of_thread();
        guard.waiting.fetch_add(1, Ordering::SeqCst);
        guard.lock_queue().push_back(Arc::clone(&semaphore));
        guard.release();
        semaphore.wait();
        guard.leave_queue(&semaphore);
        guard.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Runs `work`, with which this thread waits in its call, and which does not use the engine. Other threads may enter meanwhile, but
    /// with [`Threads::Serialized`] not the helper thread: the events are for this thread.
    pub fn while_released<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let back = Back(self.guard);
        match self.guard.threads {
            Threads::Serialized => back.0.bias.mark_waiting(),
            Threads::Multiple => back.0.release(),
        }
        work()
    }
}

/// Enters again when it is dropped, also by unwinding: dropping a `CriticalSection` that does not hold the guard would release the guard of
/// another thread.
struct Back<'a, T>(&'a Guard<T>);

impl<T> Drop for Back<'_, T> {
    fn drop(&mut self) {
        match self.0.threads {
            // The helper has not entered since.
            Threads::Serialized => self.0.bias.mark_inside(),
            Threads::Multiple if self.0.try_take() => {}
            Threads::Multiple => self.0.enter_slowly(),
        }
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
    // Hot: per message.
    #[inline(always)]
    fn drop(&mut self) {
        self.guard.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::{Guard, Threads};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    #[derive(Default)]
    struct Counts {
        calls: u64,
        served: u64,
    }

    fn guard(threads: Threads) -> Arc<Guard<Counts>> {
        Arc::new(Guard::new(threads, Counts::default(), |counts| counts.served += 1))
    }

    /// Lets 1 ms pass.
    fn settle() -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1) {
            std::thread::yield_now();
        }
        true
    }

    fn serve(guard: &Guard<Counts>) -> bool {
        guard.enter_as_helper(settle, |counts| counts.served += 1)
    }

    #[test]
    fn no_two_threads_hold_the_guard() {
        let guard = guard(Threads::Multiple);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let guard = Arc::clone(&guard);
                std::thread::spawn(move || {
                    for _ in 0..20_000 {
                        guard.enter().calls += 1;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(guard.enter().calls, 80_000);
    }

    #[test]
    fn a_holder_that_yields_starves_no_thread() {
        let guard = guard(Threads::Multiple);
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
            guard.enter().calls += 1;
        }
        done.store(true, Ordering::Relaxed);
        holder.join().unwrap();
        assert_eq!(guard.enter().calls, 2_000);
    }

    #[test]
    fn a_signal_handler_cannot_enter_while_its_thread_holds_the_guard() {
        for threads in [Threads::Multiple, Threads::Serialized] {
            let guard = guard(threads);
            let section = guard.enter();
            assert!(guard.try_enter().is_none());
            drop(section);
            assert!(guard.try_enter().is_some());
        }
    }

    #[test]
    fn a_signal_handler_enters_while_its_thread_waits() {
        for threads in [Threads::Multiple, Threads::Serialized] {
            let guard = guard(threads);
            guard.enter().while_released(|| assert!(guard.try_enter().is_some()));
        }
    }

    #[test]
    fn others_enter_while_the_guard_is_released() {
        let guard = guard(Threads::Multiple);
        let mut section = guard.enter();
        section.while_released(|| guard.enter().calls += 2);
        assert_eq!(section.calls, 2);
    }

    #[test]
    fn the_helper_enters_while_the_program_is_outside() {
        for threads in [Threads::Multiple, Threads::Serialized] {
            let guard = guard(threads);
            assert!(serve(&guard) && serve(&guard));
            assert_eq!(guard.enter().served, 2);
        }
    }

    #[test]
    fn the_program_serves_before_it_leaves_if_the_helper_found_it_inside() {
        let guard = guard(Threads::Serialized);
        let mut section = guard.enter();
        std::thread::scope(|scope| {
            let helper = || assert!(!serve(&guard));
            scope.spawn(helper).join().unwrap();
            section.while_released(|| scope.spawn(helper).join().unwrap());
        });
        assert_eq!(section.served, 0);
        drop(section);
        assert_eq!(guard.enter().served, 1);
    }

    #[test]
    fn a_program_that_enters_takes_the_claim_over() {
        let guard = guard(Threads::Serialized);
        let entered = || {
            guard.enter().calls += 1;
            true
        };
        assert!(!guard.enter_as_helper(entered, |_| unreachable!("the program has served")));
        let counts = guard.enter();
        assert_eq!((counts.calls, counts.served), (1, 1));
    }

    #[test]
    fn a_signal_handler_does_not_enter_while_the_helper_is_inside() {
        let guard = guard(Threads::Serialized);
        let inside = |_: &mut Counts| {
            assert!(guard.try_enter().is_none());
            assert!(guard.is_held_by_helper());
        };
        assert!(guard.enter_as_helper(settle, inside));
        assert!(!guard.is_held_by_helper() && guard.try_enter().is_some());
    }

    #[test]
    fn the_program_sleeps_until_the_helper_has_left() {
        let guard = guard(Threads::Serialized);
        let (inside, about_to_enter) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                guard.enter_as_helper(settle, |counts| {
                    inside.store(true, Ordering::SeqCst);
                    while !about_to_enter.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                    // Long enough for the program to fall asleep; it need not.
                    settle();
                    counts.served = 7;
                });
            });
            while !inside.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            about_to_enter.store(true, Ordering::SeqCst);
            assert_eq!(guard.enter().served, 7);
        });
    }

    #[test]
    fn program_and_helper_never_hold_the_guard_together() {
        let guard = guard(Threads::Serialized);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let helper = scope.spawn(|| {
                let mut turns = 0_u64;
                while !done.load(Ordering::Relaxed) {
                    turns += u64::from(guard.enter_as_helper(settle, |counts| counts.calls += 1));
                }
                turns
            });
            let (mut calls, begun) = (0, Instant::now());
            while begun.elapsed() < Duration::from_millis(200) {
                // Bursts of calls, and pauses between them in which the helper finds the program outside.
                for _ in 0..500 {
                    guard.enter().calls += 1;
                    calls += 1;
                }
                settle();
                settle();
            }
            done.store(true, Ordering::Relaxed);
            let turns = helper.join().unwrap();
            assert_eq!(guard.enter().calls, calls + turns);
        });
    }
}
