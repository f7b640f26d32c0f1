// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A rank that forks: the memory of Mend is not mapped in the child (MADV_DONTFORK), so the child must not have pointers to it.

use core::sync::atomic::{AtomicBool, Ordering};

/// Set in a child that was forked from a process between Init and Finalize.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Lets `in_child` run first in every child that is forked from now on. Called once in a process.
pub fn register_handler() {
    // SAFETY: `in_child` only stores to atomics, which is allowed in a forked child, and it is never unloaded: the library is
    // linked with `-z nodelete`. The only error is a lack of memory; then a child that calls MPI, which the standard forbids
    // (MPI-5.0 §11.2.1), gets no error message.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// Whether this process was forked from a rank.
pub fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    crate::life::clear_in_child();
    if crate::world::clear_in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
}
