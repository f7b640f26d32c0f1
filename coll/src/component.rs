// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a component is: its name, its priority, and its bids. A component is one file with a [`Component`] and its schedules.

use crate::schedule::Builder;
use crate::{Collective, Error};
use mend_datatype::TypedBuffer;

/// A component: what it offers for which communicator.
#[derive(Clone, Copy, Debug)]
pub struct Component {
    /// Its name in the parameter `coll`.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub description: &'static str,
    /// The parameter that has its priority.
    pub priority: &'static str,
    /// Its bid for an operation on data.
    pub(crate) bid: fn(Operation, Facts) -> Result<Build, Refusal>,
    /// Its bid for MPIX_Comm_agree and the calls that need an agreement.
    pub(crate) bid_agree: fn(Facts) -> Result<Agree, Refusal>,
}

/// What all members of a communicator know of it when it is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The number of members.
    pub size: u32,
    /// Whether the job outlives the failure of some of its ranks.
    pub fault_tolerant: bool,
}

/// The operations on data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// `MPI_Barrier`.
    Barrier,
    /// `MPI_Bcast`.
    Bcast,
    /// `MPI_Reduce`.
    Reduce,
    /// `MPI_Allreduce`.
    Allreduce,
    /// `MPI_Gather`.
    Gather,
    /// `MPI_Scatter`.
    Scatter,
    /// `MPI_Allgather`.
    Allgather,
    /// `MPI_Alltoall`.
    Alltoall,
}

/// Why a component does not bid, in words.
pub(crate) type Refusal = &'static str;

/// Adds the steps of one rank. The communicator has the facts for which the component has bid.
pub(crate) type Build = fn(&mut Builder, Collective) -> Result<(), Error>;

/// How a component agrees.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Agree {
    /// By a schedule, which ends with an error at a member that needs one that has failed: adds the steps of one rank. The int of the
    /// buffer is the contribution before, and the result afterwards.
    Schedule(fn(&mut Builder, &TypedBuffer, AgreeOn) -> Result<(), Error>),
    /// By `mend_proto::agreement`, which survives failures, and whose messages the engine carries.
    Protocol,
}

/// The AND that a member gets of an agreement. On an intercommunicator, the ranks of the schedule are those in the union of both groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AgreeOn {
    /// Over the contributions of all members.
    All,
    /// Over those of the first group: this member is of the second one.
    FirstGroup,
    /// Over those of the second group: this member is of the first one.
    SecondGroup,
}

impl Operation {
    /// All of them, in the order of their declaration.
    pub const ALL: [Operation; 8] = [
        Operation::Barrier,
        Operation::Bcast,
        Operation::Reduce,
        Operation::Allreduce,
        Operation::Gather,
        Operation::Scatter,
        Operation::Allgather,
        Operation::Alltoall,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Barrier => "barrier",
            Operation::Bcast => "bcast",
            Operation::Reduce => "reduce",
            Operation::Allreduce => "allreduce",
            Operation::Gather => "gather",
            Operation::Scatter => "scatter",
            Operation::Allgather => "allgather",
            Operation::Alltoall => "alltoall",
        }
    }
}

impl Collective {
    /// Which operation it is.
    pub fn operation(&self) -> Operation {
        match self {
            Collective::Barrier => Operation::Barrier,
            Collective::Bcast { .. } => Operation::Bcast,
            Collective::Reduce { .. } => Operation::Reduce,
            Collective::Allreduce { .. } => Operation::Allreduce,
            Collective::Gather { .. } => Operation::Gather,
            Collective::Scatter { .. } => Operation::Scatter,
            Collective::Allgather { .. } => Operation::Allgather,
            Collective::Alltoall { .. } => Operation::Alltoall,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Operation;

    #[test]
    fn operations_have_their_place_in_the_list() {
        for (at, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, at, "{}", operation.name());
        }
    }
}
