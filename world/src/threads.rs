// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of this process: how the library starts its own, and how many there are, as the kernel counts them. Each count reads a file.

use mend_runtime::Stat;
use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread with every signal blocked, so that signal handlers of the user run on threads of the user.
pub fn spawn_without_signals(
    name: &str,
    stack_bytes: usize,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let old = block_signals();
    let thread = Builder::new().name(name.to_owned()).stack_size(stack_bytes).spawn(run);
    restore_signals(&old);
    thread
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

/// What /proc/self/stat says of the threads of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessThreads {
    /// Threads that have not ended.
    pub alive: u32,
    /// Whether the first thread of the process has ended. The kernel still counts it.
    pub first_has_ended: bool,
}

impl ProcessThreads {
    fn of(stat: Stat) -> Option<Self> {
        let Stat { first_has_ended, threads, .. } = stat;
        Some(ProcessThreads { alive: threads.checked_sub(u32::from(first_has_ended))?, first_has_ended })
    }
}

/// Counts the threads of this process, with those of the library; `None`: /proc cannot be read.
pub fn count() -> Option<ProcessThreads> {
    ProcessThreads::of(Stat::parse(&std::fs::read_to_string("/proc/self/stat").ok()?)?)
}

#[cfg(test)]
mod tests {
    use super::{ProcessThreads, count};
    use mend_runtime::Stat;

    #[test]
    fn a_first_thread_that_has_ended_is_not_alive() {
        let stat = |first_has_ended, threads| Stat {
            first_has_ended,
            is_stopped: false,
            parent: 3,
            flags: 0,
            threads,
        };
        assert_eq!(
            ProcessThreads::of(stat(false, 5)),
            Some(ProcessThreads { alive: 5, first_has_ended: false })
        );
        assert_eq!(
            ProcessThreads::of(stat(true, 5)),
            Some(ProcessThreads { alive: 4, first_has_ended: true })
        );
        assert_eq!(ProcessThreads::of(stat(true, 0)), None);
    }

    #[test]
    fn a_thread_that_waits_is_counted() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || ended.recv().is_err());
        assert!(count().is_some_and(|threads| threads.alive >= 2 && !threads.first_has_ended));
        drop(end);
        assert!(thread.join().unwrap());
    }
}
