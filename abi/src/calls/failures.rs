// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Failed members, and the acknowledgement of failures: the extension for fault tolerance, under `MPI_` and `MPIX_` names. All calls
//! are local, are valid on a communicator with failed members, and never return the error of a failed process.

use crate::argument_error::ArgumentError;
use crate::call_error::CallError;
use crate::comm::Comm;
use crate::generated::constants::GROUP_NULL;
use crate::handle::Handle;
use crate::pointer::Out;
use core::ffi::c_int;
use mend_base::Rank;
use mend_comm::Group;
use mend_mpi::{CommKey, Detail, Error};
use mend_world::{Engine, World};

/// The failed members, of an intercommunicator those of both groups (Row AK9), in the order in which this process learned of them (Row AK1); none: `MPI_GROUP_EMPTY` itself (Row AK2). Makes
/// progress and yields the processor, since programs call it in a loop until a failure is known.
pub(crate) fn get_failed(world: &World, comm: Comm, group: Out<Handle>) -> Result<(), CallError> {
    group.set(GROUP_NULL);
    let failed = world.with_progress(|engine| -> Result<Group, CallError> {
        let key = comm.existing(engine)?;
        let failed = engine.failed(key)?;
        of_ranks(engine, key, &failed)
    })?;
    super::group::set_group(failed, group);
    Ok(())
}

/// Acknowledges the first `count` of the known failures. `acknowledged` is set to the number of acknowledged failures (Row AK5).
pub(crate) fn ack_failed(
    world: &World,
    comm: Comm,
    count: c_int,
    acknowledged: Out<c_int>,
) -> Result<(), CallError> {
    let now = world.with(|engine| -> Result<u32, CallError> {
        let key = comm.existing(engine)?;
        let size = engine.communicator(key).map_or(0, |communicator| communicator.everyone().size());
        let count = u32::try_from(count).ok().filter(|&count| count <= size);
        Ok(engine.acknowledge(key, Some(count.ok_or(ArgumentError::Acknowledged)?))?)
    })?;
    acknowledged.set(now as c_int);
    Ok(())
}

/// Acknowledges all known failures (Row AK6).
pub(crate) fn failure_ack(world: &World, comm: Comm) -> Result<(), CallError> {
    world.with(|engine| -> Result<(), CallError> {
        let key = comm.existing(engine)?;
        engine.acknowledge(key, None)?;
        Ok(())
    })
}

/// The acknowledged members (Row AK6).
pub(crate) fn failure_get_acked(world: &World, comm: Comm, group: Out<Handle>) -> Result<(), CallError> {
    group.set(GROUP_NULL);
    let acknowledged = world.inspect(|engine| -> Result<Group, CallError> {
        let key = comm.existing(engine)?;
        let acknowledged = engine.acknowledged(key)?;
        of_ranks(engine, key, &acknowledged)
    })?;
    super::group::set_group(acknowledged, group);
    Ok(())
}

fn of_ranks(engine: &Engine, comm: CommKey, ranks: &[Rank]) -> Result<Group, CallError> {
    let communicator = engine.communicator(comm).ok_or(Error::of(Detail::NoSuchCommunicator))?;
    Ok(communicator.everyone().include(ranks)?)
}
