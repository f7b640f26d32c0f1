// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of [`schedule`](crate::schedule).

use std::fmt;

/// Why a schedule could not be built. Nothing was sent, and the buffers are unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The root is no rank of the communicator (`MPI_ERR_ROOT`).
    Root,
    /// The operation does not accept this datatype, or is not allowed in reductions (`MPI_ERR_OP`).
    Operation,
    /// A buffer is missing that this rank needs: `MPI_IN_PLACE` is not allowed here (`MPI_ERR_BUFFER`).
    Buffer,
    /// A buffer does not divide into one block for each rank, or two buffers differ in datatype or length (`MPI_ERR_COUNT`).
    Count,
    /// There is no memory for a temporary buffer (`MPI_ERR_NO_MEM`).
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
