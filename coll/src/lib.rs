// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collective operations: the components that offer them, and schedules: what each rank sends, receives, copies and reduces, in rounds.
//!
//! A [`Framework`] selects the components for a communicator ([`Selection`]), [`Selection::schedule`] builds a schedule, and
//! [`Schedule::progress`] executes it over a [`MessageLayer`]. None of them blocks or reads a clock, so a test can run all ranks of a job
//! in one thread (`tests/all_ranks.rs`). Read [`Collective`] and [`Framework`] first.
//!
//! | component | file | offers |
//! |---|---|---|
//! | `basic` | basic.rs | every operation, by schedules |
//! | `ftagree` | ftagree.rs | agreements that survive failures |
//!
//! Not in this crate: matching and transports (`pml`), the choice of communicator and tag, the messages of agreements (`mpi`).
#![forbid(unsafe_code)]

mod basic;
mod component;
mod error;
mod framework;
mod ftagree;
mod parameters;
mod schedule;

pub use component::{AgreeOn, Component, Facts, Operation};
pub use error::Error;
pub use framework::{Bid, COMPONENTS, Framework, Selection, SelectionError};
pub use parameters::PARAMETERS;
pub use schedule::{MessageLayer, Schedule};

use mend_base::Rank;
use mend_datatype::{Op, TypedBuffer};

/// A collective operation as one rank calls it. A buffer that is `None` means `MPI_IN_PLACE` where the standard allows that; elsewhere it
/// means that the operation uses this buffer only at other ranks (MPI-5.0 §6.2-6.9).
#[derive(Debug)]
pub enum Collective {
    /// No rank completes the operation before all ranks have called it.
    Barrier,
    /// Copies the data of the root to all ranks.
    Bcast {
        /// Read at the root, written elsewhere.
        data: TypedBuffer,
        /// The rank that sends.
        root: Rank,
    },
    /// Reduces the data of all ranks, with the result at the root.
    Reduce {
        /// `None` at the root: in place.
        send: Option<TypedBuffer>,
        /// `Some` at the root.
        receive: Option<TypedBuffer>,
        /// The reduction operation.
        op: Op,
        /// The rank that gets the result.
        root: Rank,
    },
    /// Reduces the data of all ranks, with the same result at all ranks, bit for bit.
    Allreduce {
        /// `None`: in place.
        send: Option<TypedBuffer>,
        /// Where the result goes.
        receive: TypedBuffer,
        /// The reduction operation.
        op: Op,
    },
    /// Copies one block of each rank to the root, in the order of ranks.
    Gather {
        /// `None` at the root: in place.
        send: Option<TypedBuffer>,
        /// At the root: as many elements as all blocks have.
        receive: Option<TypedBuffer>,
        /// The rank that gets the blocks.
        root: Rank,
    },
    /// Copies one block of the root to each rank, in the order of ranks.
    Scatter {
        /// At the root: as many elements as all blocks have.
        send: Option<TypedBuffer>,
        /// `None` at the root: in place.
        receive: Option<TypedBuffer>,
        /// The rank that sends the blocks.
        root: Rank,
    },
    /// Copies one block of each rank to all ranks, in the order of ranks.
    Allgather {
        /// `None`: in place.
        send: Option<TypedBuffer>,
        /// As many elements as all blocks have.
        receive: TypedBuffer,
    },
    /// Copies one block of each rank to each rank.
    Alltoall {
        /// As many elements as all blocks have. `None`: in place.
        send: Option<TypedBuffer>,
        /// As many elements as all blocks have.
        receive: TypedBuffer,
    },
}
