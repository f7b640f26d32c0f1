// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The helper thread. It exists from Init to Finalize, sleeps on its own semaphore, and blocks all signals. When the thread that called
//! MPI_Init ends, the helper takes over the life word.
//!
//! A process ends with its last thread, and the helper must not prevent that. While the helper holds the life word, it counts the threads of
//! the process periodically. If none of the program is left, the helper ends the process as the last thread of the program would have.

use crate::life::RegisteredLife;
use crate::semaphore::Semaphore;
use crate::threads;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use mend_base::Duration;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// The frames of the helper are small, and 256 ranks of a node have a helper each.
const STACK_BYTES: usize = 64 << 10;

/// The helper thread. Dropping this ends the thread and joins it.
#[derive(Debug)]
pub struct Helper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The helper as seen by the holder of the life word: the thread that takes the word over.
#[derive(Debug)]
pub struct Successor(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    semaphore: Semaphore,
    leaving: AtomicBool,
    /// The life word that the helper shall take, or null; a leaked box.
    transferred: AtomicPtr<RegisteredLife>,
}

impl Helper {
    /// Starts the helper with every signal blocked, so that signal handlers of the user run on threads of the user.
    pub fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let old = block_signals();
        let thread =
            Builder::new().name("mend-helper".to_owned()).stack_size(STACK_BYTES).spawn(move || theirs.run());
        restore_signals(&old);
        Ok(Helper { shared, thread: Some(thread?) })
    }

    /// The helper as successor of the liveness owner.
    pub fn successor(&self) -> Successor {
        Successor(Arc::clone(&self.shared))
    }
}

impl Successor {
    /// Lets the helper take the life word of `registered_life`, which no thread holds now.
    pub fn transfer(&self, registered_life: &'static RegisteredLife) {
        // SYNC: the word that was released, with `Shared::run`.
        self.0.transferred.store(ptr::from_ref(registered_life).cast_mut(), Ordering::Release);
        self.0.semaphore.post();
    }
}

impl Shared {
    fn run(&self) {
        let mut held: Option<&RegisteredLife> = None;
        while !self.leaving.load(Ordering::Relaxed) {
            match held {
                None => self.semaphore.wait(),
                Some(_) if is_last_thread() => end_with_the_last_thread(),
                Some(_) => _ = self.semaphore.wait_at_most(COUNT_PERIOD),
            }
            // SYNC: the word that was released, with `Successor::transfer`.
            let transferred = self.transferred.swap(ptr::null_mut(), Ordering::Acquire);
            // SAFETY: null, or what `Successor::transfer` was given, which is never freed.
            if let Some(registered_life) = unsafe { transferred.as_ref() } {
                registered_life.take();
                held = Some(registered_life);
            }
        }
        held.inspect(|registered_life| registered_life.release_if_held());
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.shared.leaving.store(true, Ordering::Relaxed);
        self.shared.semaphore.post();
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked. It is ended in any case.
            let _ = thread.join();
        }
    }
}

/// Time between two counts of the threads of the process.
const COUNT_PERIOD: Duration = Duration::from_millis(500);

/// Whether all threads of this process except the running one have ended.
fn is_last_thread() -> bool {
    threads::count().is_some_and(|threads| threads.first_has_ended && threads.alive == 1)
}

/// Ends the process as the C library does when the last thread ends. Does so on another thread, because functions that the program
/// registered with `atexit` may need a larger stack than the helper has.
fn end_with_the_last_thread() {
    // SAFETY: ends the process; no thread of the program is left.
    let exit = || unsafe { libc::exit(0) };
    if let Ok(thread) = Builder::new().spawn(exit) {
        // Does not return: the process ends.
        let _ = thread.join();
    }
    // SAFETY: as above, on this thread, because no other could be started.
    unsafe { libc::exit(0) };
}

/// Blocks all signals for the running thread, and so for the threads that it starts. Returns the mask from before.
fn block_signals() -> libc::sigset_t {
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut old = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` writes the whole set it is given.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: `all` was filled above; `old` is written on success, and the call cannot fail with SIG_SETMASK.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr()) };
    // SAFETY: the call above has written it.
    unsafe { old.assume_init() }
}

fn restore_signals(old: &libc::sigset_t) {
    // SAFETY: `old` is a set that the kernel gave; the third argument may be null.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old, core::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::Helper;

    #[test]
    fn the_helper_sleeps_until_it_is_dropped() {
        drop(Helper::start().unwrap());
    }
}
