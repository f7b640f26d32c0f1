// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guard at the entry: the one place of Mend where threads exclude each other (Rule 5).
//!
//! An entry takes two locked instructions where threads may meet, none where the program promised that they do not.
//! Biasing the guard to the first thread comes later and changes no caller. A thread that finds it held queues a [`Cell`]
//! and sleeps there. Entering does not queue behind sleepers (a thread that is running already is cheaper than one that
//! must be woken), so a holder that means to come back at once, as the thread that makes progress does, calls
//! [`Entered::hand_over`] instead: it queues itself last.

use crate::cell::Cell;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Which threads may enter: what the program promised in `MPI_Init_thread` (MPI-5.0 §11.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threads {
    /// One at a time, by the program's own care: below `MPI_THREAD_MULTIPLE`. Entering costs nothing.
    Ordered,
    /// Several at once.
    Any,
}

/// Lets one thread at a time at `T`.
#[derive(Debug)]
pub struct Guard<T> {
    threads: Threads,
    /// 1 while a thread is inside.
    held: AtomicU32,
    /// Cells in the queue, and threads about to queue: never less than the queue is long.
    waiting: AtomicU32,
    queue: Mutex<VecDeque<Arc<Cell>>>,
    inside: UnsafeCell<T>,
}

// SAFETY: `inside` is only reached through `Entered`, of which at most one is used at a time: `held` sees to it, or, with
// `Threads::Ordered`, the program does, as it promised. So threads take turns at a `T` that may move between threads.
unsafe impl<T: Send> Sync for Guard<T> {}

/// The way to what the guard keeps, until it is dropped.
#[derive(Debug)]
pub struct Entered<'a, T> {
    guard: &'a Guard<T>,
    /// Not `Sync` by accident where `T` is not.
    not_shared: PhantomData<*const T>,
}

impl<T> Guard<T> {
    /// Keeps `inside`.
    pub fn new(threads: Threads, inside: T) -> Self {
        Guard {
            threads,
            held: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            queue: Mutex::new(VecDeque::new()),
            inside: UnsafeCell::new(inside),
        }
    }

    // Hot: per message.
    /// Waits until nobody is inside, and goes in.
    #[inline]
    pub fn enter(&self) -> Entered<'_, T> {
        match self.threads {
            Threads::Ordered => self.hold(),
            Threads::Any if self.try_take() => {}
            Threads::Any => self.enter_slowly(),
        }
        Entered { guard: self, not_shared: PhantomData }
    }

    /// Only so that a signal handler can see that it interrupted somebody inside: the fence keeps the compiler from moving
    /// what is done inside before the store, where a handler would find the guard free and the engine half changed. It is no
    /// instruction.
    #[inline]
    fn hold(&self) {
        self.held.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    /// Goes in if nobody is inside: for `MPI_Abort`, which programs call from signal handlers that may have interrupted
    /// this very thread inside.
    pub fn try_enter(&self) -> Option<Entered<'_, T>> {
        let free = match self.threads {
            Threads::Ordered if self.held.load(Ordering::Relaxed) == 0 => {
                self.hold();
                true
            }
            Threads::Ordered => false,
            Threads::Any => self.try_take(),
        };
        free.then_some(Entered { guard: self, not_shared: PhantomData })
    }

    /// Whether threads take turns by the program's own care.
    pub fn is_for_one(&self) -> bool {
        self.threads == Threads::Ordered
    }

    #[inline]
    fn try_take(&self) -> bool {
        // SYNC: what the last holder did, with Guard::release
        self.held.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    #[cold]
    fn enter_slowly(&self) {
        let cell = Cell::mine();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // Counted first, tried then: `release` clears `held` first and reads the count then, so one of the two sees the
        // other (both SeqCst), and nobody sleeps beside a free guard.
        while !self.try_take() {
            self.lock_queue().push_back(Arc::clone(&cell));
            if self.try_take() {
                self.leave_queue(&cell);
                break;
            }
            cell.sleep();
            self.leave_queue(&cell);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// A cell that stays in the queue without a sleeper would swallow the ring meant for the next one.
    fn leave_queue(&self, cell: &Arc<Cell>) {
        self.lock_queue().retain(|queued| !Arc::ptr_eq(queued, cell));
    }

    #[inline]
    fn release(&self) {
        if self.threads == Threads::Ordered {
            // What was done inside stays before the store, as in `hold`.
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
        if let Some(cell) = first {
            cell.ring();
        }
    }

    fn lock_queue(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Cell>>> {
        // Nothing panics while it is locked; a queue of cells has no broken state anyway.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Entered<'_, T> {
    /// Whether a thread waits to come in.
    pub fn is_wanted(&self) -> bool {
        self.guard.waiting.load(Ordering::Relaxed) != 0
    }

    // Hot: per call of progress.
    /// Lets those who wait go first, and comes back behind them. Returns at once when nobody waits.
    #[inline]
    pub fn hand_over(&mut self) {
        if self.is_wanted() {
            self.queue_last();
        }
    }

    #[cold]
    fn queue_last(&mut self) {
        self.outside(|guard| {
            let cell = Cell::mine();
            guard.waiting.fetch_add(1, Ordering::SeqCst);
            guard.lock_queue().push_back(Arc::clone(&cell));
            guard.release();
            cell.sleep();
            guard.leave_queue(&cell);
            guard.waiting.fetch_sub(1, Ordering::SeqCst);
        });
    }

    /// Leaves, runs `work` while others may enter, and comes back.
    pub fn while_out<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let mut result = None;
        self.outside(|guard| {
            guard.release();
            result = Some(work());
        });
        result.expect("outside runs what it is given")
    }

    /// Runs `work`, which releases the guard, and enters again, also when `work` panics: dropping an `Entered` that does
    /// not hold the guard would let two threads in.
    fn outside(&mut self, work: impl FnOnce(&Guard<T>)) {
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

impl<T> Deref for Entered<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this `Entered` holds the guard, so no other thread has a reference; ours are bound to `self`.
        unsafe { &*self.guard.inside.get() }
    }
}

impl<T> DerefMut for Entered<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` rules out a second reference through this `Entered`.
        unsafe { &mut *self.guard.inside.get() }
    }
}

impl<T> Drop for Entered<'_, T> {
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
    fn no_two_threads_are_inside_together() {
        let guard = Arc::new(Guard::new(Threads::Any, 0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let guard = Arc::clone(&guard);
                std::thread::spawn(move || {
                    for _ in 0..20_000 {
                        let mut inside = guard.enter();
                        *inside += 1;
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
    fn a_holder_that_hands_over_starves_nobody() {
        let guard = Arc::new(Guard::new(Threads::Any, 0u64));
        let done = Arc::new(AtomicBool::new(false));
        let holder = std::thread::spawn({
            let (guard, done) = (Arc::clone(&guard), Arc::clone(&done));
            move || {
                let mut inside = guard.enter();
                while !done.load(Ordering::Relaxed) {
                    inside.hand_over();
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
    fn a_thread_that_interrupted_itself_inside_cannot_enter() {
        for threads in [Threads::Any, Threads::Ordered] {
            let guard = Guard::new(threads, 0);
            let inside = guard.enter();
            assert!(guard.try_enter().is_none());
            drop(inside);
            assert!(guard.try_enter().is_some());
        }
    }

    #[test]
    fn others_enter_while_the_holder_is_out() {
        let guard = Guard::new(Threads::Any, 1);
        let mut inside = guard.enter();
        inside.while_out(|| *guard.enter() += 1);
        assert_eq!(*inside, 2);
    }
}
