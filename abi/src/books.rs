// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the C interface keeps beside the engine: groups, error handlers and what they are attached to, names, error classes
//! that users added. Nothing of it is looked at on the way of a message.
//!
//! One lock over all of it, never held while the engine runs or user code does. It stands outside Init and Finalize too,
//! where some of its calls are legal.

use crate::error_handler::{Handler, Handlers};
use crate::handle::Handle;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The books.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// Error handlers, and who has which.
    pub(crate) handlers: Handlers,
    /// Communicators that are freed, and that a request may still run on: their handlers are attached yet.
    pub(crate) retired: Vec<Handle>,
    /// Names that users gave to communicators, in whatever encoding.
    pub(crate) names: HashMap<Handle, Vec<u8>>,
}

static BOOKS: LazyLock<Mutex<Books>> = LazyLock::new(Mutex::default);

/// Works on the books. `work` runs nobody else's code.
pub(crate) fn with<R>(work: impl FnOnce(&mut Books) -> R) -> R {
    // A panic while it was locked was our bug, and was reported as such; the books have no half-done states.
    work(&mut BOOKS.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Books {
    /// A communicator was made from another: it inherits the error handler (MPI-5.0 §9.3.1).
    pub(crate) fn made(&mut self, comm: Handle, parent: Handle) {
        let handler = self.handlers.of_comm(parent);
        self.handlers.attach(comm, handler);
    }
}

impl Default for Handler {
    /// What communicators have that nobody said anything about: what the launcher said.
    fn default() -> Self {
        Handler::initial()
    }
}
