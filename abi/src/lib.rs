// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `libmpi_abi.so.1`: the C interface of MPI-5.0 with its standard ABI, a thin skin over `world`.
//!
//! The exported functions are generated from `abi/table` ([`generated`]); each checks its arguments by their kinds
//! ([`check`]), runs the call's own code ([`calls`]) under `catch_unwind` ([`entry`]), and leaves what went wrong to the
//! error handler of the object it went wrong on ([`error_handler`]), last, from a frame with nothing to drop: handlers
//! longjmp and throw. Not here: what MPI means (that is `mpi`), waiting and exclusion (that is `world`).
//!
//! Read [`entry`] first, then one of [`calls`].
#![allow(clippy::too_many_arguments, reason = "the calls of MPI have as many as they have")]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("handles of Mend need 64 bits");

mod argument_error;
mod buffer;
mod calls;
mod check;
mod comm;
mod entry;
mod error_class;
mod error_handler;
mod error_handlers;
mod failure;
mod generated;
mod handle;
mod pointer;
mod report;
mod requests;
mod status;
