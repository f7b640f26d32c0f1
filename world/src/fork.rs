// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A rank that forks: the child has none of our mappings (they are MADV_DONTFORK), so it must have none of our pointers.

use core::sync::atomic::{AtomicBool, Ordering};

/// Set in a child that was forked from a process between Init and Finalize.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Has `forget` run in every child from now on, before anything else there. Once a process.
pub fn watch() {
    // SAFETY: `in_child` is a plain function that only stores to atomics, which is allowed in a forked child, and it
    // stays where it is: the library is linked with `-z nodelete`. Out of memory is the only error; then a child that
    // calls MPI against the standard's rules (MPI-5.0 §11.2.1) goes without our message.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// Whether this process was forked from a rank.
pub fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    crate::life::forget();
    if crate::world::forget() {
        FORKED.store(true, Ordering::Relaxed);
    }
}
