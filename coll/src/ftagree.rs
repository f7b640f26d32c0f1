// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The component `ftagree`: agreements that survive the failure of members, by `mend_proto::agreement`. It has no schedules: the engine
//! carries the messages of the protocol, since a member that has returned must still answer (`mend_mpi`'s member protocols).

use crate::component::{Agree, Build, Component, Facts, Operation, Refusal};

pub(crate) const COMPONENT: Component = Component {
    name: "ftagree",
    description: "agreements that survive failures: 2(n-1) messages, early returning",
    priority: "coll.ftagree_priority",
    bid,
    bid_agree,
};

fn bid(_: Operation, _: Facts) -> Result<Build, Refusal> {
    Err("it only agrees")
}

fn bid_agree(facts: Facts) -> Result<Agree, Refusal> {
    if facts.fault_tolerant { Ok(Agree::Protocol) } else { Err("the job is not fault tolerant") }
}
