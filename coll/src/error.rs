// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why an operation has no schedule.

use std::fmt;

/// Why there is no schedule: nothing was sent, and the buffers are as they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The root is no rank of the communicator (`MPI_ERR_ROOT`).
    Root,
    /// The operation does not take this datatype, or is none for reductions (`MPI_ERR_OP`).
    Operation,
    /// This rank's role needs a buffer that is missing: in place is not for it (`MPI_ERR_BUFFER`).
    Buffer,
    /// The buffers do not divide into blocks, or differ in type or length where they may not (`MPI_ERR_COUNT`).
    Count,
    /// No memory for a temporary buffer (`MPI_ERR_NO_MEM`).
    NoMemory,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Error::Root => "the root is no rank of the communicator",
            Error::Operation => "the operation does not take this datatype",
            Error::Buffer => "this rank needs a buffer here: in place is not allowed",
            Error::Count => "send and receive buffers do not fit together",
            Error::NoMemory => "there is no memory for the operation",
        })
    }
}

impl std::error::Error for Error {}
