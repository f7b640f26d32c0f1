// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `libmpi_abi.so.1`: the C interface of MPI-5.0 with its standard ABI, over `world`.
//!
//! The exported functions are generated from `abi/table` ([`generated`]); each checks its arguments by their kinds
//! ([`check`]), runs the call's own code ([`calls`]) under `catch_unwind` ([`entry`]), and passes an error to the error handler
//! of its object ([`disposition`]), last, from a frame with nothing to drop: handlers longjmp and throw.
//!
//! The engine has the objects: communicators with names and error handlers, requests, datatypes. This crate has tables only of objects
//! that exist before Init and after Finalize too: error handlers of the program ([`error_handlers`]), info objects ([`info`]), error codes,
//! groups, memory of `MPI_Alloc_mem`. Each table has its own lock. Not here: the semantics of MPI (`mpi`), waiting and mutual exclusion (`world`).
//!
//! Read [`entry`] first, then one of [`calls`].
#![allow(clippy::too_many_arguments, reason = "functions of MPI have so many arguments")]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("handles of Mend need 64 bits");

mod argument_error;
mod buffer;
mod call_error;
mod calls;
mod check;
mod comm;
mod disposition;
mod entry;
mod error_class;
mod error_handlers;
mod generated;
mod handle;
mod info;
mod pointer;
mod report;
mod requests;
mod status;
