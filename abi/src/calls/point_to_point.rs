// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends, receives and probes (MPI-5.0 chapter 3). Calls with `MPI_PROC_NULL` (§3.10) complete here; the engine has ranks only.

use crate::buffer::BufferArgument;
use crate::call_error::CallError;
use crate::comm::Comm;
use crate::generated::constants::REQUEST_NULL;
use crate::handle::Handle;
use crate::pointer::Out;
use crate::requests::{
    self, REQUEST_DONE, REQUEST_DONE_PROC_NULL, handle_of_receive, handle_of_send, wait_until_over,
};
use crate::status::{Status, Statuses};
use core::ffi::{c_int, c_void};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_mpi::{DatatypeHandle, Probe, SendMode, Sendrecv, Started};
use mend_world::World;

// Hot: per message.
/// Starts a send. `map` makes of it, inside the engine's guard, what the caller needs.
#[inline(always)]
fn start_send<R>(
    world: &World,
    mode: SendMode,
    buffer: BufferArgument,
    dest: Rank,
    tag: Tag,
    comm: Comm,
    map: impl FnOnce(Started) -> R,
) -> Result<R, CallError> {
    world.with(|engine| {
        let data = buffer.typed(engine)?;
        Ok(map(engine.send(comm.key(engine)?, dest, tag, mode, data)?))
    })
}

/// An operation with `MPI_PROC_NULL`: its arguments are checked like any other's. They are passed one by one, since a
/// [`BufferArgument`] would be passed in memory, which the callers would fill for every message.
#[cold]
#[inline(never)]
fn check(
    world: &World,
    address: *const c_void,
    count: u64,
    datatype: DatatypeHandle,
    comm: Comm,
) -> Result<(), CallError> {
    world.inspect(|engine| {
        BufferArgument { address, count, datatype }.typed(engine)?;
        comm.existing(engine).map(|_| ())
    })
}

// Hot: per message.
#[inline(always)]
fn blocking(
    world: &World,
    mode: SendMode,
    buffer: *const c_void,
    count: u64,
    datatype: DatatypeHandle,
    dest: Option<Rank>,
    tag: Tag,
    comm: Comm,
) -> Result<(), CallError> {
    let Some(dest) = dest else { return check(world, buffer, count, datatype, comm) };
    let buffer = BufferArgument { address: buffer, count, datatype };
    wait_until_over(world, start_send(world, mode, buffer, dest, tag, comm, |started| started)?).map(|_| ())
}

// Hot: per message.
#[inline]
fn immediate(
    world: &World,
    mode: SendMode,
    buffer: *const c_void,
    count: u64,
    datatype: DatatypeHandle,
    dest: Option<Rank>,
    tag: Tag,
    comm: Comm,
    request: Out<Handle>,
) -> Result<(), CallError> {
    request.set(REQUEST_NULL);
    let Some(dest) = dest else {
        check(world, buffer, count, datatype, comm)?;
        request.set(REQUEST_DONE);
        return Ok(());
    };
    let buffer = BufferArgument { address: buffer, count, datatype };
    request.set(start_send(world, mode, buffer, dest, tag, comm, handle_of_send)?);
    Ok(())
}

/// The calls of each send mode: one blocks, one returns a request.
macro_rules! sends {
    ($($send:ident $isend:ident $mode:ident;)*) => { $(
        pub(crate) fn $send(
            world: &World,
            buffer: *const c_void,
            count: u64,
            datatype: DatatypeHandle,
            dest: Option<Rank>,
            tag: Tag,
            comm: Comm,
        ) -> Result<(), CallError> {
            blocking(world, SendMode::$mode, buffer, count, datatype, dest, tag, comm)
        }

        pub(crate) fn $isend(
            world: &World,
            buffer: *const c_void,
            count: u64,
            datatype: DatatypeHandle,
            dest: Option<Rank>,
            tag: Tag,
            comm: Comm,
            request: Out<Handle>,
        ) -> Result<(), CallError> {
            immediate(world, SendMode::$mode, buffer, count, datatype, dest, tag, comm, request)
        }
    )* };
}

sends! {
    send isend Standard;
    ssend issend Synchronous;
    rsend irsend Ready;
}

// Hot: per message.
pub(crate) fn recv(
    world: &World,
    buffer: *mut c_void,
    count: u64,
    datatype: DatatypeHandle,
    source: Option<Source>,
    tag: TagSelector,
    comm: Comm,
    status: Statuses,
) -> Result<(), CallError> {
    let Some(source) = source else {
        check(world, buffer, count, datatype, comm)?;
        status.set_one(Status::PROC_NULL);
        return Ok(());
    };
    let buffer = BufferArgument { address: buffer, count, datatype };
    received(world.receive(|engine| comm.key(engine), source, tag, |engine| buffer.typed(engine)), status)
}

// Hot: per message.
#[inline]
fn received(result: Result<mend_mpi::Status, CallError>, status: Statuses) -> Result<(), CallError> {
    match result {
        Ok(received) => {
            status.set_one(Status::of(received));
            Ok(())
        }
        Err(failure) => {
            if let crate::call_error::Why::Engine(error) = &failure.why {
                status.set_one(requests::status_of_error(error));
            }
            Err(failure)
        }
    }
}

// Hot: per message.
pub(crate) fn irecv(
    world: &World,
    buffer: *mut c_void,
    count: u64,
    datatype: DatatypeHandle,
    source: Option<Source>,
    tag: TagSelector,
    comm: Comm,
    request: Out<Handle>,
) -> Result<(), CallError> {
    request.set(REQUEST_NULL);
    let Some(source) = source else {
        check(world, buffer, count, datatype, comm)?;
        request.set(REQUEST_DONE_PROC_NULL);
        return Ok(());
    };
    let buffer = BufferArgument { address: buffer, count, datatype };
    let handle = world.with(|engine| -> Result<Handle, CallError> {
        let (key, data) = (comm.key(engine)?, buffer.typed(engine)?);
        engine.reserve_request()?;
        let started = engine.receive(key, source, tag, data)?;
        handle_of_receive(engine, key, started)
    })?;
    request.set(handle);
    Ok(())
}

pub(crate) fn sendrecv(
    world: &World,
    send_buffer: *const c_void,
    send_count: u64,
    send_type: DatatypeHandle,
    dest: Option<Rank>,
    send_tag: Tag,
    receive_buffer: *mut c_void,
    receive_count: u64,
    receive_type: DatatypeHandle,
    source: Option<Source>,
    receive_tag: TagSelector,
    comm: Comm,
    status: Statuses,
) -> Result<(), CallError> {
    let send_buffer = BufferArgument { address: send_buffer, count: send_count, datatype: send_type };
    let receive_buffer =
        BufferArgument { address: receive_buffer, count: receive_count, datatype: receive_type };
    let mut sendrecv = world.with(|engine| -> Result<Sendrecv, CallError> {
        let (send_data, receive_data) = (send_buffer.typed(engine)?, receive_buffer.typed(engine)?);
        let send = dest.map(|dest| (dest, send_tag, send_data));
        let receive = source.map(|source| (source, receive_tag, receive_data));
        Ok(Sendrecv::start(engine, comm.existing(engine)?, send, receive)?)
    })?;
    let exchanged = world.wait(|engine| sendrecv.poll(engine, || world.program_threads()));
    let taken = match exchanged.received {
        None => {
            status.set_one(Status::PROC_NULL);
            Ok(())
        }
        Some(result) => received(result.map_err(CallError::from), status),
    };
    match exchanged.sent {
        Some(Err(error)) => Err(error.into()),
        Some(Ok(_)) | None => taken,
    }
}

pub(crate) fn probe(
    world: &World,
    source: Option<Source>,
    tag: TagSelector,
    comm: Comm,
    status: Statuses,
) -> Result<(), CallError> {
    let Some(source) = source else {
        comm.check(world)?;
        status.set_one(Status::PROC_NULL);
        return Ok(());
    };
    let mut probe = world.with(|engine| Ok::<_, CallError>(Probe::new(comm.key(engine)?, source, tag)))?;
    let found = world.wait(|engine| probe.poll(engine, || world.program_threads()))?;
    status.set_one(Status::of(found));
    Ok(())
}

pub(crate) fn iprobe(
    world: &World,
    source: Option<Source>,
    tag: TagSelector,
    comm: Comm,
    flag: Out<c_int>,
    status: Statuses,
) -> Result<(), CallError> {
    flag.set(0);
    let Some(source) = source else {
        comm.check(world)?;
        flag.set(1);
        status.set_one(Status::PROC_NULL);
        return Ok(());
    };
    let found = world.with_progress(|engine| -> Result<_, CallError> {
        Ok(Probe::new(comm.key(engine)?, source, tag).test(engine)?)
    })?;
    if let Some(found) = found {
        flag.set(1);
        status.set_one(Status::of(found));
    }
    Ok(())
}
