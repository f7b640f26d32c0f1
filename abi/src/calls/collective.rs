// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collective operations (MPI-5.0 chapter 6). Which buffers matter depends on the rank's role and on `MPI_IN_PLACE`, so
//! counts and datatypes are checked here, where the role is known.

use crate::calls::point_to_point::typed;
use crate::check::{self, ArgumentError};
use crate::comm::Comm;
use crate::entry::Failure;
use crate::generated::constants::IN_PLACE;
use crate::handle::Handle;
use crate::requests::finish;
use core::ffi::c_void;
use mend_base::Rank;
use mend_comm::Communicator;
use mend_datatype::{Datatype, Op, Typed};
use mend_mpi::{Collective, Started};
use mend_world::World;

/// Starts what `call` makes of the communicator, and waits for it.
fn run(
    world: &World,
    comm: Comm,
    call: impl FnOnce(&Communicator) -> Result<Collective, Failure>,
) -> Result<(), Failure> {
    let started = world.with(|engine| -> Result<Started, Failure> {
        let key = comm.existing(engine)?;
        let Some(communicator) = engine.communicator(key) else { return Err(ArgumentError::Group.into()) };
        let call = call(communicator)?;
        Ok(engine.collective(key, call)?)
    })?;
    finish(world, started).map(|_| ())
}

/// A buffer with count and datatype as the user gave them, not yet looked at.
#[derive(Clone, Copy)]
struct Part {
    buffer: *const c_void,
    count: i64,
    datatype: Handle,
}

impl Part {
    fn is_in_place(self) -> bool {
        self.buffer as usize == IN_PLACE
    }

    /// `blocks` blocks of it.
    fn typed(self, blocks: u32) -> Result<Typed, Failure> {
        let count = check::count(self.count)?;
        let datatype = check::datatype(self.datatype)?;
        let total = count.checked_mul(u64::from(blocks)).ok_or(ArgumentError::Overlong)?;
        typed(self.buffer, total, datatype)
    }

    /// The same, or `None` in place.
    fn unless_in_place(self, blocks: u32) -> Result<Option<Typed>, Failure> {
        if self.is_in_place() { Ok(None) } else { self.typed(blocks).map(Some) }
    }
}

fn part(buffer: *const c_void, count: i64, datatype: Handle) -> Part {
    Part { buffer, count, datatype }
}

pub(crate) fn barrier(world: &World, comm: Comm) -> Result<(), Failure> {
    run(world, comm, |_| Ok(Collective::Barrier))
}

pub(crate) fn bcast(
    world: &World,
    buffer: *mut c_void,
    count: u64,
    datatype: Datatype,
    root: Rank,
    comm: Comm,
) -> Result<(), Failure> {
    let data = typed(buffer, count, datatype)?;
    run(world, comm, |_| Ok(Collective::Bcast { data, root }))
}

fn takes(op: Op, datatype: Datatype) -> Result<(), Failure> {
    if op.reduces() && op.takes(datatype) { Ok(()) } else { Err(ArgumentError::OpType.into()) }
}

pub(crate) fn reduce(
    world: &World,
    send: *const c_void,
    receive: *mut c_void,
    count: u64,
    datatype: Datatype,
    op: Op,
    root: Rank,
    comm: Comm,
) -> Result<(), Failure> {
    takes(op, datatype)?;
    run(world, comm, |communicator| {
        let is_root = communicator.rank == root;
        let in_place = is_root && send as usize == IN_PLACE;
        let send = if in_place { None } else { Some(typed(send, count, datatype)?) };
        let receive = if is_root { Some(typed(receive, count, datatype)?) } else { None };
        Ok(Collective::Reduce { send, receive, op, root })
    })
}

pub(crate) fn allreduce(
    world: &World,
    send: *const c_void,
    receive: *mut c_void,
    count: u64,
    datatype: Datatype,
    op: Op,
    comm: Comm,
) -> Result<(), Failure> {
    takes(op, datatype)?;
    let send = if send as usize == IN_PLACE { None } else { Some(typed(send, count, datatype)?) };
    let receive = typed(receive, count, datatype)?;
    run(world, comm, |_| Ok(Collective::Allreduce { send, receive, op }))
}

pub(crate) fn gather(
    world: &World,
    send: *const c_void,
    send_count: i64,
    send_type: Handle,
    receive: *mut c_void,
    receive_count: i64,
    receive_type: Handle,
    root: Rank,
    comm: Comm,
) -> Result<(), Failure> {
    let (send, receive) = (part(send, send_count, send_type), part(receive, receive_count, receive_type));
    run(world, comm, |communicator| {
        let is_root = communicator.rank == root;
        let send = if is_root { send.unless_in_place(1)? } else { Some(send.typed(1)?) };
        let receive = if is_root { Some(receive.typed(communicator.size())?) } else { None };
        Ok(Collective::Gather { send, receive, root })
    })
}

pub(crate) fn scatter(
    world: &World,
    send: *const c_void,
    send_count: i64,
    send_type: Handle,
    receive: *mut c_void,
    receive_count: i64,
    receive_type: Handle,
    root: Rank,
    comm: Comm,
) -> Result<(), Failure> {
    let (send, receive) = (part(send, send_count, send_type), part(receive, receive_count, receive_type));
    run(world, comm, |communicator| {
        let is_root = communicator.rank == root;
        let send = if is_root { Some(send.typed(communicator.size())?) } else { None };
        let receive = if is_root { receive.unless_in_place(1)? } else { Some(receive.typed(1)?) };
        Ok(Collective::Scatter { send, receive, root })
    })
}

pub(crate) fn allgather(
    world: &World,
    send: *const c_void,
    send_count: i64,
    send_type: Handle,
    receive: *mut c_void,
    receive_count: i64,
    receive_type: Handle,
    comm: Comm,
) -> Result<(), Failure> {
    let (send, receive) = (part(send, send_count, send_type), part(receive, receive_count, receive_type));
    run(world, comm, |communicator| {
        let (send, receive) = (send.unless_in_place(1)?, receive.typed(communicator.size())?);
        Ok(Collective::Allgather { send, receive })
    })
}

pub(crate) fn alltoall(
    world: &World,
    send: *const c_void,
    send_count: i64,
    send_type: Handle,
    receive: *mut c_void,
    receive_count: i64,
    receive_type: Handle,
    comm: Comm,
) -> Result<(), Failure> {
    let (send, receive) = (part(send, send_count, send_type), part(receive, receive_count, receive_type));
    run(world, comm, |communicator| {
        let size = communicator.size();
        let (send, receive) = (send.unless_in_place(size)?, receive.typed(size)?);
        Ok(Collective::Alltoall { send, receive })
    })
}
