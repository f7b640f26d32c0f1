// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles of requests, and waiting for an operation of which the program has none.

use crate::argument_error::ArgumentError;
use crate::comm::Comm;
use crate::error_handlers::Action;
use crate::failure::{ErrorObject, Failure};
use crate::generated::constants::REQUEST_NULL;
use crate::handle::Handle;
use crate::status::Status;
use mend_mpi::{Blocking, CommKey, Detail, Error, Request, RequestHandle, Started};
use mend_world::{Engine, StartResult, World};

/// The handle of all requests that completed when they were started and whose status is empty, such as sends. It takes no slot in
/// any table. A number between `MPI_REQUEST_NULL` and the datatypes that the ABI does not use.
pub(crate) const REQUEST_DONE: Handle = 0x181;

/// As [`REQUEST_DONE`], for receives from `MPI_PROC_NULL`, whose status differs.
pub(crate) const REQUEST_DONE_PROC_NULL: Handle = 0x182;

// Hot: per message.
/// The program's handle of a send that was started.
#[inline]
pub(crate) fn handle_of_send(started: Started) -> Handle {
    match started {
        Started::Done(_) => REQUEST_DONE,
        Started::Running(request) => request.to_bits() as Handle,
    }
}

/// The program's handle of a receive that was started on `comm`; its status is asked for later.
#[inline]
pub(crate) fn handle_of_receive(
    engine: &mut Engine,
    comm: CommKey,
    started: Started,
) -> Result<Handle, Failure> {
    let request = match started {
        Started::Done(status) => engine.complete(comm, status)?,
        Started::Running(request) => request,
    };
    Ok(request.to_bits() as Handle)
}

// Hot: per message.
/// Waits for an operation of which the program has no handle.
#[inline]
pub(crate) fn finish(world: &World, started: Started) -> Result<mend_mpi::Status, Failure> {
    match started {
        Started::Done(status) => Ok(status),
        Started::Running(request) => wait(world, request),
    }
}

// Hot: per message.
/// Starts an operation and waits for it. Enters the engine once where the operation is over at once or soon.
#[inline]
pub(crate) fn run(
    world: &World,
    start: impl FnOnce(&mut Engine) -> Result<Started, Failure>,
) -> Result<mend_mpi::Status, Failure> {
    let begin = |engine: &mut Engine| match start(engine) {
        Err(failure) => StartResult::Complete(Err(failure)),
        Ok(Started::Done(status)) => StartResult::Complete(Ok(status)),
        Ok(Started::Running(request)) => StartResult::Incomplete(Blocking::new(request)),
    };
    world.start_and_wait(begin, |blocking: &mut Blocking, engine| {
        blocking.poll(engine, || world.program_threads()).map(|result| result.map_err(Failure::from))
    })
}

/// Waits for a request of which the program has no handle.
pub(crate) fn wait(world: &World, request: Request) -> Result<mend_mpi::Status, Failure> {
    run(world, |engine| {
        engine.watch_request(request);
        Ok(Started::Running(request))
    })
}

/// The status that goes with an error: that of a message that was too long, else an empty one.
pub(crate) fn status_of_error(error: &Error) -> Status {
    match error.detail {
        Detail::Truncated(status) => Status::of(status),
        _ => Status::EMPTY,
    }
}

/// The engine's name of a request of the program.
#[inline]
pub(crate) fn request_of(handle: Handle) -> Result<RequestHandle, Failure> {
    match handle {
        REQUEST_NULL => Ok(RequestHandle::Null),
        REQUEST_DONE | REQUEST_DONE_PROC_NULL => Ok(RequestHandle::Done),
        handle => match Request::from_bits(handle as u64) {
            Some(request) => Ok(RequestHandle::Request(request)),
            None => Err(ArgumentError::Request.into()),
        },
    }
}

/// The failure of a request on `comm`, whose handle may be freed (Row EH4). What its error handler does is looked up here, while the
/// engine is not left: the next call that makes or frees a communicator may remove this one.
#[cold]
pub(crate) fn failure_of(engine: &Engine, comm: Option<CommKey>, error: Error) -> Failure {
    let failure = Failure::from(error);
    match comm.and_then(|comm| Some((comm, engine.error_handler(comm)?))) {
        Some((comm, handler)) => {
            failure.on(ErrorObject::Request(Comm::of(engine, comm).0, Action::from(handler)))
        }
        None => failure.on(ErrorObject::Process),
    }
}
