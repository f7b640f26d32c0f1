// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The helper thread: there from Init to Finalize, asleep on a word of its own, all signals blocked. It holds the life word
//! when the thread that called MPI_Init has ended; control for ranks that compute is to be its work too.
//!
//! A process ends with its last thread, and this one must not keep it: once it holds the word, it counts now and then whether
//! the program has any thread left, and ends the process as the program's last thread would have.

use crate::cell::Cell;
use crate::life::LivenessOwner;
use crate::threads;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use mend_base::Duration;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Its own frames are small, and 256 ranks have one each.
const STACK_BYTES: usize = 64 << 10;

/// The thread, joined when this is dropped.
#[derive(Debug)]
pub struct Helper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The helper as the next holder of the life word, for the thread that ends.
#[derive(Debug)]
pub struct Successor(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    cell: Cell,
    leaving: AtomicBool,
    /// What was inherited, or null: a leaked box.
    inherited: AtomicPtr<LivenessOwner>,
}

impl Helper {
    /// Starts it, with every signal blocked: handlers of the user's run on the user's threads.
    pub fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let old = block_signals();
        let thread = Builder::new()
            .name("mend-helper".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || theirs.serve());
        restore_signals(&old);
        Ok(Helper { shared, thread: Some(thread?) })
    }

    /// What makes it the successor.
    pub fn successor(&self) -> Successor {
        Successor(Arc::clone(&self.shared))
    }
}

impl Successor {
    /// The helper takes the word of `liveness_owner` next, which nobody holds now.
    pub fn inherit(&self, liveness_owner: &'static LivenessOwner) {
        // SYNC: the word that was let go, with `Shared::serve`.
        self.0.inherited.store(ptr::from_ref(liveness_owner).cast_mut(), Ordering::Release);
        self.0.cell.ring();
    }
}

impl Shared {
    fn serve(&self) {
        let mut held: Option<&LivenessOwner> = None;
        while !self.leaving.load(Ordering::Relaxed) {
            match held {
                None => self.cell.sleep(),
                Some(_) if is_last_thread() => end_with_the_last_thread(),
                Some(_) => _ = self.cell.sleep_at_most(BETWEEN_COUNTS),
            }
            // SYNC: the word that was let go, with `Successor::inherit`.
            let inherited = self.inherited.swap(ptr::null_mut(), Ordering::Acquire);
            // SAFETY: null, or what `inherit` was given, which lives for ever.
            if let Some(liveness_owner) = unsafe { inherited.as_ref() } {
                liveness_owner.take();
                held = Some(liveness_owner);
            }
        }
        held.inspect(|liveness_owner| liveness_owner.let_go());
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.shared.leaving.store(true, Ordering::Relaxed);
        self.shared.cell.ring();
        if let Some(thread) = self.thread.take() {
            // It panics nowhere; and if it had, there would be nothing left to do for it.
            let _ = thread.join();
        }
    }
}

/// Between two counts of the threads that are left.
const BETWEEN_COUNTS: Duration = Duration::from_millis(500);

/// Whether all threads of this process but the running one have ended.
fn is_last_thread() -> bool {
    threads::count().is_some_and(|threads| threads.first_has_ended && threads.alive == 1)
}

/// What the C library does when the last thread of a process ends. On a thread of its own, as what the program has registered
/// with `atexit` may need more stack than we have.
fn end_with_the_last_thread() {
    // SAFETY: ends the process from a thread of its own, while no other one of the program's is left.
    let exit = || unsafe { libc::exit(0) };
    if let Ok(thread) = Builder::new().spawn(exit) {
        // It does not come back.
        let _ = thread.join();
    }
    // SAFETY: as above, on this thread, for want of another.
    unsafe { libc::exit(0) };
}

/// Blocks all signals for the running thread, and so for the threads it starts; gives the mask from before.
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
