// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The component `basic`: one textbook algorithm for each operation, for any number of ranks and any length. It bids for every operation
//! of every communicator. Its agreement is not fault tolerant.

mod agree;
mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
mod broadcast;
mod gather;
mod reduce;
mod scatter;

use crate::component::{Agree, Build, Component, Facts, Operation, Refusal};
use crate::schedule::Builder;
use crate::{Collective, Error};

pub(crate) const COMPONENT: Component = Component {
    name: "basic",
    description: "simple schedules for every operation, and an agreement that is not fault tolerant",
    priority: "coll.basic_priority",
    bid,
    bid_agree,
};

fn bid(_: Operation, _: Facts) -> Result<Build, Refusal> {
    Ok(build)
}

fn bid_agree(_: Facts) -> Result<Agree, Refusal> {
    Ok(Agree::Schedule(agree::build))
}

fn build(builder: &mut Builder, call: Collective) -> Result<(), Error> {
    match call {
        Collective::Barrier => {
            barrier::build(builder);
            Ok(())
        }
        Collective::Bcast { data, root } => broadcast::build(builder, &data, root),
        Collective::Reduce { send, receive, op, root } => reduce::build(builder, send, receive, op, root),
        Collective::Allreduce { send, receive, op } => allreduce::build(builder, send, receive, op),
        Collective::Gather { send, receive, root } => gather::build(builder, send, receive, root),
        Collective::Scatter { send, receive, root } => scatter::build(builder, send, receive, root),
        Collective::Allgather { send, receive } => allgather::build(builder, send, &receive),
        Collective::Alltoall { send, receive } => alltoall::build(builder, send, &receive),
    }
}
