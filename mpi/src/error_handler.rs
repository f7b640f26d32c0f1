// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Error handlers as a communicator has them (MPI-5.0 §9.3). The engine calls none of them (Rule 10): the layer above asks which
//! one a communicator has, and does what it says.

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
    /// One that the program made. What is in it, the layer above knows; it exists as long as a communicator has it.
    User(Arc<dyn Any + Send + Sync>),
}
