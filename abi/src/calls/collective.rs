// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collective operations (MPI-5.0 chapter 6). The rank's role and `MPI_IN_PLACE` decide which buffers are significant, so counts and
//! datatypes are checked here, where the role is known.

use crate::buffer::{BufferArgument, typed};
use crate::check::{self, ArgumentError};
use crate::comm::Comm;
use crate::entry::CallError;
use crate::generated::constants::IN_PLACE;
use crate::requests::wait_until_over;
use core::ffi::c_void;
use mend_base::Rank;
use mend_comm::Communicator;
use mend_datatype::{Datatype, Op, TypedBuffer};
use mend_mpi::{Collective, DatatypeHandle, Detail, Error, OpHandle, Started};
use mend_world::{Engine, World};

/// Starts the operation that `call` returns, and waits for it.
fn run(
    world: &World,
    comm: Comm,
    call: impl FnOnce(&Engine, &Communicator) -> Result<Collective, CallError>,
) -> Result<(), CallError> {
    let started = world.with(|engine| -> Result<Started, CallError> {
        let key = comm.existing(engine)?;
        let communicator = engine.communicator(key).ok_or(ArgumentError::Communicator)?;
        if communicator.is_inter() {
            return Err(Error::of(Detail::Intercommunicator).into());
        }
        let call = call(engine, communicator)?;
        Ok(engine.collective(key, call)?)
    })?;
    wait_until_over(world, started).map(|_| ())
}

/// A buffer as the program passed it, unchecked: the rank's role decides whether it is significant.
#[derive(Clone, Copy)]
struct Part {
    address: *const c_void,
    count: i64,
    datatype: DatatypeHandle,
}

impl Part {
    fn is_in_place(self) -> bool {
        self.address as usize == IN_PLACE
    }

    /// The buffer with `blocks` blocks, checked.
    fn typed(self, engine: &Engine, blocks: u32) -> Result<TypedBuffer, CallError> {
        let count =
            check::count(self.count)?.checked_mul(u64::from(blocks)).ok_or(ArgumentError::Overlong)?;
        BufferArgument { address: self.address, count, datatype: self.datatype }.typed(engine)
    }

    /// As `typed`; `None`: the argument is MPI_IN_PLACE.
    fn unless_in_place(self, engine: &Engine, blocks: u32) -> Result<Option<TypedBuffer>, CallError> {
        if self.is_in_place() { Ok(None) } else { self.typed(engine, blocks).map(Some) }
    }
}

fn part(address: *const c_void, count: i64, datatype: DatatypeHandle) -> Part {
    Part { address, count, datatype }
}

pub(crate) fn barrier(world: &World, comm: Comm) -> Result<(), CallError> {
    run(world, comm, |_, _| Ok(Collective::Barrier))
}

pub(crate) fn bcast(
    world: &World,
    buffer: *mut c_void,
    count: u64,
    datatype: DatatypeHandle,
    root: Rank,
    comm: Comm,
) -> Result<(), CallError> {
    let buffer = BufferArgument { address: buffer, count, datatype };
    run(world, comm, |engine, _| Ok(Collective::Bcast { data: buffer.typed(engine)?, root }))
}

/// Operation and datatype of a reduction; an error if the operation is not defined for the datatype.
pub(super) fn reduction(
    engine: &Engine,
    op: OpHandle,
    datatype: DatatypeHandle,
) -> Result<(Op, Datatype), CallError> {
    let (datatype, op) = (engine.datatype(datatype)?, engine.op(op)?);
    if op.reduces() && op.takes(datatype) { Ok((op, datatype)) } else { Err(ArgumentError::OpType.into()) }
}

pub(crate) fn reduce(
    world: &World,
    send: *const c_void,
    receive: *mut c_void,
    count: u64,
    datatype: DatatypeHandle,
    op: OpHandle,
    root: Rank,
    comm: Comm,
) -> Result<(), CallError> {
    run(world, comm, |engine, communicator| {
        let (op, datatype) = reduction(engine, op, datatype)?;
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
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: Comm,
) -> Result<(), CallError> {
    run(world, comm, |engine, _| {
        let (op, datatype) = reduction(engine, op, datatype)?;
        let send = if send as usize == IN_PLACE { None } else { Some(typed(send, count, datatype)?) };
        let receive = typed(receive, count, datatype)?;
        Ok(Collective::Allreduce { send, receive, op })
    })
}

pub(crate) fn gather(
    world: &World,
    send: *const c_void,
    send_count: i64,
    send_type: DatatypeHandle,
    receive: *mut c_void,
    receive_count: i64,
    receive_type: DatatypeHandle,
    root: Rank,
    comm: Comm,
) -> Result<(), CallError> {
    let (send, receive) = (part(send, send_count, send_type), part(receive, receive_count, receive_type));
    run(world, comm, |engine, communicator| {
        let is_root = communicator.rank == root;
        let send = if is_root { send.unless_in_place(engine, 1)? } else { Some(send.typed(engine, 1)?) };
        let receive = if is_root { Some(receive.typed(engine, communicator.size())?) } else { None };
        Ok(Collective::Gather { send, receive, root })
    })
}

pub(crate) fn scatter(
    world: &World,
    send: *const c_void,
    send_count: i64,
    send_type: DatatypeHandle,
    receive: *mut c_void,
    receive_count: i64,
    receive_type: DatatypeHandle,
    root: Rank,
    comm: Comm,
) -> Result<(), CallError> {
    let (send, receive) = (part(send, send_count, send_type), part(receive, receive_count, receive_type));
    run(world, comm, |engine, communicator| {
        let is_root = communicator.rank == root;
        let send = if is_root { Some(send.typed(engine, communicator.size())?) } else { None };
        let receive =
            if is_root { receive.unless_in_place(engine, 1)? } else { Some(receive.typed(engine, 1)?) };
        Ok(Collective::Scatter { send, receive, root })
    })
}

pub(crate) fn allgather(
    world: &World,
    send: *const c_void,
    send_count: i64,
    send_type: DatatypeHandle,
    receive: *mut c_void,
    receive_count: i64,
    receive_type: DatatypeHandle,
    comm: Comm,
) -> Result<(), CallError> {
    let (send, receive) = (part(send, send_count, send_type), part(receive, receive_count, receive_type));
    run(world, comm, |engine, communicator| {
        let (send, receive) = (send.unless_in_place(engine, 1)?, receive.typed(engine, communicator.size())?);
        Ok(Collective::Allgather { send, receive })
    })
}

pub(crate) fn alltoall(
    world: &World,
    send: *const c_void,
    send_count: i64,
    send_type: DatatypeHandle,
    receive: *mut c_void,
    receive_count: i64,
    receive_type: DatatypeHandle,
    comm: Comm,
) -> Result<(), CallError> {
    let (send, receive) = (part(send, send_count, send_type), part(receive, receive_count, receive_type));
    run(world, comm, |engine, communicator| {
        let size = communicator.size();
        let (send, receive) = (send.unless_in_place(engine, size)?, receive.typed(engine, size)?);
        Ok(Collective::Alltoall { send, receive })
    })
}
