// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Error handlers of communicators (MPI-5.0 §9.3). The engine stores them and does not call them (Rule 10): the layer above gets the
//! handler of a communicator, and calls it.

use core::any::Any;
use std::sync::Arc;

/// An error handler.
#[derive(Clone, Default, Debug)]
pub enum ErrorHandler {
    /// `MPI_ERRORS_ARE_FATAL`.
    #[default]
    Fatal,
    /// `MPI_ERRORS_ABORT`.
    Abort,
    /// `MPI_ERRORS_RETURN`.
    Return,
    /// An error handler that the program created. The layer above defines its type. It exists as long as a communicator has it.
    User(Arc<dyn Any + Send + Sync>),
}
