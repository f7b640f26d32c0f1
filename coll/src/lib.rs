// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collective operations as schedules: what each rank sends, receives, copies and reduces, in rounds. [`schedule`] is pure: it
//! neither communicates nor reads a clock, so that a test can run all ranks of a job in one thread (`tests/all_ranks.rs`).
//! [`Schedule::progress`] then executes it over a [`PointToPoint`], and never blocks.
//!
//! Not here: matching and transports (`pml`), which communicator and which tag (`mpi`). Read [`Collective`] first.
#![forbid(unsafe_code)]

mod basic;
mod error;
mod parameters;
mod schedule;

pub use error::Error;
pub use parameters::PARAMETERS;
pub use schedule::{PointToPoint, Schedule};

use mend_base::Rank;
use mend_datatype::{Op, Typed};
use schedule::Builder;

/// A collective operation as one rank calls it. A missing buffer is `MPI_IN_PLACE` where the standard allows it, and
/// otherwise one that this rank's role does not have (MPI-5.0 §6.2-6.9).
#[derive(Debug)]
pub enum Collective {
    /// No rank leaves before all have entered.
    Barrier,
    /// The root's data to all ranks.
    Bcast {
        /// Read at the root, written elsewhere.
        data: Typed,
        /// The rank that sends.
        root: Rank,
    },
    /// The data of all ranks reduced, at the root.
    Reduce {
        /// `None` at the root: in place.
        send: Option<Typed>,
        /// At the root.
        receive: Option<Typed>,
        /// The reduction operation.
        op: Op,
        /// The rank that gets the result.
        root: Rank,
    },
    /// The data of all ranks reduced, at all ranks: bit for bit the same result.
    Allreduce {
        /// `None`: in place.
        send: Option<Typed>,
        /// Where the result goes.
        receive: Typed,
        /// The reduction operation.
        op: Op,
    },
    /// The block of each rank to the root, in the order of ranks.
    Gather {
        /// `None` at the root: its block lies in place.
        send: Option<Typed>,
        /// At the root: as many elements as all blocks have.
        receive: Option<Typed>,
        /// The rank that gets the blocks.
        root: Rank,
    },
    /// One block of the root's buffer to each rank, in the order of ranks.
    Scatter {
        /// At the root: as many elements as all blocks have.
        send: Option<Typed>,
        /// `None` at the root: its block stays in place.
        receive: Option<Typed>,
        /// The rank that sends the blocks.
        root: Rank,
    },
    /// The block of each rank to all ranks, in the order of ranks.
    Allgather {
        /// `None`: its block lies in place.
        send: Option<Typed>,
        /// As many elements as all blocks have.
        receive: Typed,
    },
    /// One block from each rank to each rank.
    Alltoall {
        /// As many elements as all blocks have. `None`: they lie in `receive`.
        send: Option<Typed>,
        /// As many elements as all blocks have.
        receive: Typed,
    },
}

/// What rank `me` of `size` does to carry out `call`.
pub fn schedule(me: Rank, size: u32, call: Collective) -> Result<Schedule, Error> {
    assert!(me.0 < size, "a rank of the communicator");
    let mut builder = Builder::new(me, size);
    match call {
        Collective::Barrier => basic::barrier::build(&mut builder),
        Collective::Bcast { data, root } => basic::broadcast::build(&mut builder, &data, root)?,
        Collective::Reduce { send, receive, op, root } => {
            basic::reduce::build(&mut builder, send, receive, op, root)?;
        }
        Collective::Allreduce { send, receive, op } => {
            basic::allreduce::build(&mut builder, send, receive, op)?;
        }
        Collective::Gather { send, receive, root } => {
            basic::gather::build(&mut builder, send, receive, root)?
        }
        Collective::Scatter { send, receive, root } => {
            basic::scatter::build(&mut builder, send, receive, root)?;
        }
        Collective::Allgather { send, receive } => basic::allgather::build(&mut builder, send, &receive)?,
        Collective::Alltoall { send, receive } => basic::alltoall::build(&mut builder, send, &receive)?,
    }
    Ok(builder.finish())
}
