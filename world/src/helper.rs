// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The helper thread: there from Init to Finalize, asleep on a word of its own, all signals blocked. In this slice nobody
//! wakes it but the end; control for ranks that compute is its first work, in the next issue.

use crate::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Its own frames are small, and 256 ranks have one each.
const STACK_BYTES: usize = 64 << 10;

/// The thread, joined when this is dropped.
#[derive(Debug)]
pub struct Helper {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Desk {
    cell: Cell,
    leaving: AtomicBool,
}

impl Helper {
    /// Starts it, with every signal blocked: handlers of the user's run on the user's threads.
    pub fn start() -> io::Result<Self> {
        let desk = Arc::new(Desk::default());
        let theirs = Arc::clone(&desk);
        let old = block_signals();
        let thread = Builder::new()
            .name("mend-helper".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || theirs.serve());
        restore_signals(&old);
        Ok(Helper { desk, thread: Some(thread?) })
    }
}

impl Desk {
    fn serve(&self) {
        while !self.leaving.load(Ordering::Relaxed) {
            self.cell.sleep();
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.desk.leaving.store(true, Ordering::Relaxed);
        self.desk.cell.ring();
        if let Some(thread) = self.thread.take() {
            // It panics nowhere; and if it had, there would be nothing left to do for it.
            let _ = thread.join();
        }
    }
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
