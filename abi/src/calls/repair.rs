// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Revoking, agreeing and shrinking: the calls by which survivors repair a communicator, under `MPI_` and `MPIX_` names. All work on
//! communicators with failed members; agreeing and shrinking on revoked ones too (Trap 10).

use crate::call_error::CallError;
use crate::comm::Comm;
use crate::generated::constants::{COMM_NULL, GROUP_NULL, REQUEST_NULL};
use crate::handle::Handle;
use crate::pointer::Out;
use core::ffi::c_int;
use mend_comm::Group;
use mend_mpi::{AgreedGroup, CommunicatorCreation, Request, Started};
use mend_world::World;

/// Not collective (Row RV1).
pub(crate) fn revoke(world: &World, comm: Comm) -> Result<(), CallError> {
    world.with(|engine| Ok(engine.revoke(comm.existing(engine)?)?))
}

/// Local. Makes progress, since programs call it in a loop until the revocation has arrived (Row RV7).
pub(crate) fn is_revoked(world: &World, comm: Comm, flag: Out<c_int>) -> Result<(), CallError> {
    let revoked = world.with_progress(|engine| -> Result<bool, CallError> {
        let key = comm.existing(engine)?;
        Ok(engine.is_revoked(key)?)
    })?;
    flag.set(c_int::from(revoked));
    Ok(())
}

/// The flag is set also if the call returns an error (Row AG2).
pub(crate) fn agree(world: &World, comm: Comm, flag: Out<c_int>) -> Result<(), CallError> {
    let agreed = crate::requests::run(world, |engine| {
        let request = engine.agree(comm.existing(engine)?, flag.memory())?;
        engine.expect_request(request);
        Ok(Started::Running(request))
    });
    agreed.map(|_| ())
}

pub(crate) fn iagree(
    world: &World,
    comm: Comm,
    flag: Out<c_int>,
    request: Out<Handle>,
) -> Result<(), CallError> {
    request.set(REQUEST_NULL);
    let started = world.with(|engine| -> Result<Request, CallError> {
        let key = comm.existing(engine)?;
        Ok(engine.agree(key, flag.memory())?)
    })?;
    request.set(started.to_bits() as Handle);
    Ok(())
}

/// The failed members, the same group at all living members (Row AG15).
pub(crate) fn agree_failed(world: &World, comm: Comm, failed: Out<Handle>) -> Result<(), CallError> {
    failed.set(GROUP_NULL);
    let group = AgreedGroup::default();
    let request = world.with(|engine| -> Result<Request, CallError> {
        let key = comm.existing(engine)?;
        Ok(engine.agree_failed(key, AgreedGroup::clone(&group))?)
    })?;
    crate::requests::wait(world, request)?;
    super::group::set_group(group.get().map_or_else(Group::default, |group| Group::clone(group)), failed);
    Ok(())
}

/// The handle is written at once; the group has its members when the operation has ended.
pub(crate) fn iagree_failed(
    world: &World,
    comm: Comm,
    failed: Out<Handle>,
    request: Out<Handle>,
) -> Result<(), CallError> {
    failed.set(GROUP_NULL);
    request.set(REQUEST_NULL);
    let group = AgreedGroup::default();
    let started = world.with(|engine| -> Result<Request, CallError> {
        let key = comm.existing(engine)?;
        Ok(engine.agree_failed(key, AgreedGroup::clone(&group))?)
    })?;
    failed.set(super::group::insert_agreed(group));
    request.set(started.to_bits() as Handle);
    Ok(())
}

pub(crate) fn shrink(world: &World, comm: Comm, made: Out<Handle>) -> Result<(), CallError> {
    made.set(COMM_NULL);
    let request = world.with(|engine| -> Result<Request, CallError> {
        let key = comm.existing(engine)?;
        Ok(engine.shrink(key, None)?)
    })?;
    let mut creation = CommunicatorCreation::new(request);
    let key = world.wait(|engine| creation.poll(engine))?;
    made.set(Comm::created(key).0);
    Ok(())
}

/// The handle of the communicator is written when the operation ends.
pub(crate) fn ishrink(
    world: &World,
    comm: Comm,
    made: Out<Handle>,
    request: Out<Handle>,
) -> Result<(), CallError> {
    made.set(COMM_NULL);
    request.set(REQUEST_NULL);
    let started = world.with(|engine| -> Result<Request, CallError> {
        let key = comm.existing(engine)?;
        Ok(engine.shrink(key, Some(made.memory()))?)
    })?;
    request.set(started.to_bits() as Handle);
    Ok(())
}
