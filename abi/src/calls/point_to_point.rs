// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends, receives and probes (MPI-5.0 chapter 3). `MPI_PROC_NULL` is answered here (§3.10); the engine knows ranks only.

use crate::argument_error::ArgumentError;
use crate::comm::Comm;
use crate::failure::Failure;
use crate::generated::constants::{IN_PLACE, REQUEST_NULL};
use crate::handle::Handle;
use crate::pointer::Out;
use crate::requests::{
    self, REQUEST_DONE, REQUEST_DONE_PROC_NULL, finish, handle_of_receive, handle_of_send,
};
use crate::status::{Status, Statuses};
use core::ffi::{c_int, c_void};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_datatype::{Datatype, Typed};
use mend_mpi::{Probe, SendMode, Sendrecv, Started};
use mend_transport::UserMemory;
use mend_world::World;

// Hot: per message.
/// The user's buffer. Null is an address like any other where no byte of it is used.
#[inline]
pub(crate) fn typed(buffer: *const c_void, count: u64, datatype: Datatype) -> Result<Typed, Failure> {
    let bytes = datatype.span(count).ok_or(ArgumentError::Overlong)?;
    if buffer as usize <= IN_PLACE && bytes > 0 {
        return Err(if buffer.is_null() { ArgumentError::NullBuffer } else { ArgumentError::InPlace }.into());
    }
    // SAFETY: the user names a buffer of `count` elements and keeps it until the request completes (MPI-5.0 §3.7.2);
    // `span` gives no more than isize::MAX.
    let memory = unsafe { UserMemory::from_user(buffer.cast::<u8>().cast_mut(), bytes) };
    Ok(Typed::new(memory, datatype, count))
}

// Hot: per message.
#[inline(always)]
fn start_send(
    world: &World,
    mode: SendMode,
    data: Typed,
    dest: Rank,
    tag: Tag,
    comm: Comm,
) -> Result<Started, Failure> {
    world.with(|engine| Ok(engine.send(comm.key(engine)?, dest, tag, mode, data)?))
}

// Hot: per message.
#[inline(always)]
fn blocking(
    world: &World,
    mode: SendMode,
    buffer: *const c_void,
    count: u64,
    datatype: Datatype,
    dest: Option<Rank>,
    tag: Tag,
    comm: Comm,
) -> Result<(), Failure> {
    let data = typed(buffer, count, datatype)?;
    let Some(dest) = dest else { return comm.check(world) };
    finish(world, start_send(world, mode, data, dest, tag, comm)?).map(|_| ())
}

// Hot: per message.
#[inline]
fn immediate(
    world: &World,
    mode: SendMode,
    buffer: *const c_void,
    count: u64,
    datatype: Datatype,
    dest: Option<Rank>,
    tag: Tag,
    comm: Comm,
    request: Out<Handle>,
) -> Result<(), Failure> {
    request.set(REQUEST_NULL);
    let data = typed(buffer, count, datatype)?;
    let Some(dest) = dest else {
        comm.check(world)?;
        request.set(REQUEST_DONE);
        return Ok(());
    };
    let handle = world.with(|engine| -> Result<Handle, Failure> {
        Ok(handle_of_send(engine.send(comm.key(engine)?, dest, tag, mode, data)?))
    })?;
    request.set(handle);
    Ok(())
}

/// The calls by mode: one that waits, one that gives a request.
macro_rules! sends {
    ($($send:ident $isend:ident $mode:ident;)*) => { $(
        pub(crate) fn $send(
            world: &World,
            buffer: *const c_void,
            count: u64,
            datatype: Datatype,
            dest: Option<Rank>,
            tag: Tag,
            comm: Comm,
        ) -> Result<(), Failure> {
            blocking(world, SendMode::$mode, buffer, count, datatype, dest, tag, comm)
        }

        pub(crate) fn $isend(
            world: &World,
            buffer: *const c_void,
            count: u64,
            datatype: Datatype,
            dest: Option<Rank>,
            tag: Tag,
            comm: Comm,
            request: Out<Handle>,
        ) -> Result<(), Failure> {
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
    datatype: Datatype,
    source: Option<Source>,
    tag: TagSelector,
    comm: Comm,
    status: Statuses,
) -> Result<(), Failure> {
    let data = typed(buffer, count, datatype)?;
    let Some(source) = source else {
        comm.check(world)?;
        status.set_one(Status::PROC_NULL);
        return Ok(());
    };
    received(world.receive(|engine| comm.key(engine), source, tag, data), status)
}

// Hot: per message.
#[inline]
fn received(result: Result<mend_mpi::Status, Failure>, status: Statuses) -> Result<(), Failure> {
    match result {
        Ok(said) => {
            status.set_one(Status::of(said));
            Ok(())
        }
        Err(failure) => {
            if let crate::failure::Why::Engine(error) = &failure.why {
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
    datatype: Datatype,
    source: Option<Source>,
    tag: TagSelector,
    comm: Comm,
    request: Out<Handle>,
) -> Result<(), Failure> {
    request.set(REQUEST_NULL);
    let data = typed(buffer, count, datatype)?;
    let Some(source) = source else {
        comm.check(world)?;
        request.set(REQUEST_DONE_PROC_NULL);
        return Ok(());
    };
    let handle = world.with(|engine| -> Result<Handle, Failure> {
        let key = comm.key(engine)?;
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
    send_type: Datatype,
    dest: Option<Rank>,
    send_tag: Tag,
    receive_buffer: *mut c_void,
    receive_count: u64,
    receive_type: Datatype,
    source: Option<Source>,
    receive_tag: TagSelector,
    comm: Comm,
    status: Statuses,
) -> Result<(), Failure> {
    let send_data = typed(send_buffer, send_count, send_type)?;
    let receive_data = typed(receive_buffer, receive_count, receive_type)?;
    let mut sendrecv = world.with(|engine| -> Result<Sendrecv, Failure> {
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
        Some(result) => received(result.map_err(Failure::from), status),
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
) -> Result<(), Failure> {
    let Some(source) = source else {
        comm.check(world)?;
        status.set_one(Status::PROC_NULL);
        return Ok(());
    };
    let mut probe = world.with(|engine| Ok::<_, Failure>(Probe::new(comm.key(engine)?, source, tag)))?;
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
) -> Result<(), Failure> {
    flag.set(0);
    let Some(source) = source else {
        comm.check(world)?;
        flag.set(1);
        status.set_one(Status::PROC_NULL);
        return Ok(());
    };
    let found = world.with_progress(|engine| -> Result<_, Failure> {
        Ok(Probe::new(comm.key(engine)?, source, tag).test(engine)?)
    })?;
    if let Some(found) = found {
        flag.set(1);
        status.set_one(Status::of(found));
    }
    Ok(())
}
