// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles of requests, and the wait for an operation without a handle.

use crate::argument_error::ArgumentError;
use crate::call_error::{CallError, ErrorObject};
use crate::comm::Comm;
use crate::error_handlers::Action;
use crate::generated::constants::REQUEST_NULL;
use crate::handle::Handle;
use crate::status::Status;
use mend_mpi::{BlockingOperation, CommKey, Detail, Error, Request, RequestHandle, Started};
use mend_world::{Engine, StartResult, World};

/// The handle of all requests that were complete at their start and whose status is empty, such as sends. It needs no entry in a
/// table. A number between `MPI_REQUEST_NULL` and the datatypes that the ABI does not use.
pub(crate) const REQUEST_DONE: Handle = 0x181;

/// As [`REQUEST_DONE`], for receives from `MPI_PROC_NULL`, whose status differs.
pub(crate) const REQUEST_DONE_PROC_NULL: Handle = 0x182;

// Hot: per message.
/// The handle of a send that was started.
#[inline]
pub(crate) fn handle_of_send(started: Started) -> Handle {
    match started {
        Started::Done(_) => REQUEST_DONE,
        Started::Running(request) => request.to_bits() as Handle,
    }
}

/// The handle of a receive that was started on `comm`. A complete receive has an entry too, for its status.
#[inline]
pub(crate) fn handle_of_receive(
    engine: &mut Engine,
    comm: CommKey,
    started: Started,
) -> Result<Handle, CallError> {
    let request = match started {
        Started::Done(status) => engine.add_ended_at_start(comm, status)?,
        Started::Running(request) => request,
    };
    Ok(request.to_bits() as Handle)
}

// Hot: per message.
/// Waits for an operation without a handle.
#[inline]
pub(crate) fn wait_until_over(world: &World, started: Started) -> Result<mend_mpi::Status, CallError> {
    match started {
        Started::Done(status) => Ok(status),
        Started::Running(request) => wait(world, request),
    }
}

// Hot: per message.
/// Starts an operation and waits for it. Enters the engine only once if the operation ends at once or soon.
#[inline]
pub(crate) fn run(
    world: &World,
    start: impl FnOnce(&mut Engine) -> Result<Started, CallError>,
) -> Result<mend_mpi::Status, CallError> {
    let begin = |engine: &mut Engine| match start(engine) {
        Err(failure) => StartResult::Complete(Err(failure)),
        Ok(Started::Done(status)) => StartResult::Complete(Ok(status)),
        Ok(Started::Running(request)) => StartResult::Incomplete(BlockingOperation::new(request)),
    };
    world.start_and_wait(begin, |blocking: &mut BlockingOperation, engine| {
        blocking.poll(engine, || world.program_threads()).map(|result| result.map_err(CallError::from))
    })
}

/// Waits for a request without a handle.
pub(crate) fn wait(world: &World, request: Request) -> Result<mend_mpi::Status, CallError> {
    run(world, |engine| {
        engine.expect_request(request);
        Ok(Started::Running(request))
    })
}

/// The status for an error: that of the message if it was too long, else an empty one.
pub(crate) fn status_of_error(error: &Error) -> Status {
    match error.detail {
        Detail::Truncated(status) => Status::of(status),
        _ => Status::EMPTY,
    }
}

/// The request of the engine with this handle.
#[inline]
pub(crate) fn request_of(handle: Handle) -> Result<RequestHandle, CallError> {
    match handle {
        REQUEST_NULL => Ok(RequestHandle::Null),
        REQUEST_DONE | REQUEST_DONE_PROC_NULL => Ok(RequestHandle::EndedAtStart),
        handle => match Request::from_bits(handle as u64) {
            Some(request) => Ok(RequestHandle::Request(request)),
            None => Err(ArgumentError::Request.into()),
        },
    }
}

/// The error of a request on `comm`, whose handle may have been freed (Row EH4). The action of its error handler is read here,
/// before the engine is left: the next call that creates or frees a communicator may remove this one.
#[cold]
pub(crate) fn error_of(engine: &Engine, comm: Option<CommKey>, error: Error) -> CallError {
    let failure = CallError::from(error);
    match comm.and_then(|comm| Some((comm, engine.error_handler(comm)?))) {
        Some((comm, handler)) => {
            failure.on(ErrorObject::Request(Comm::of(engine, comm).0, Action::from(handler)))
        }
        None => failure.on(ErrorObject::Process),
    }
}
