// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests as programs hold them, over the engine's: handles, whose error handler hears of them, and waiting for one.

use crate::argument_error::ArgumentError;
use crate::failure::{Failure, On};
use crate::generated::constants::{COMM_WORLD, REQUEST_NULL};
use crate::handle::{Comm, Handle, REQUEST_DONE, REQUEST_DONE_PROC_NULL};
use crate::status::Status;
use core::cell::UnsafeCell;
use mend_mpi::{Blocking, Detail, Error, Request, RequestHandle, Started};
use mend_world::{Begun, Engine, World};

/// The communicator of each request, and the request's handle, by the request's place: errors of requests go to the handler
/// of their communicator (row EH4). Never cleared: a place's next request writes over it.
struct Owners(UnsafeCell<[Vec<Owned>; 3]>);

/// A request and its communicator; as handles.
#[derive(Clone, Copy)]
struct Owned {
    comm: Handle,
    request: Handle,
}

// SAFETY: reached only through `owners`, which asks for the engine: a process has one, and one thread at a time has it.
unsafe impl Sync for Owners {}

static OWNERS: Owners = Owners(UnsafeCell::new([Vec::new(), Vec::new(), Vec::new()]));

fn owners(_proof: &mut Engine) -> &mut [Vec<Owned>; 3] {
    // SAFETY: the engine's one borrower is here, and the reference lives no longer than that borrow; `World` makes one
    // engine in the life of a process.
    unsafe { &mut *OWNERS.0.get() }
}

fn place(request: Request) -> (usize, usize) {
    match request {
        Request::PointToPoint(key) => (0, key.index as usize),
        Request::Collective(key) => (1, key.index as usize),
        Request::Completed(key) => (2, key.index as usize),
    }
}

// Hot: per message that is not over at once.
/// The user's handle of a request on `comm`.
pub(crate) fn handle(engine: &mut Engine, request: Request, comm: Comm) -> Handle {
    let (kind, index) = place(request);
    let row = &mut owners(engine)[kind];
    if row.len() <= index {
        row.resize(index + 1, Owned { comm: COMM_WORLD, request: REQUEST_NULL });
    }
    let handle = request.to_bits() as Handle;
    row[index] = Owned { comm: comm.0, request: handle };
    handle
}

/// Whether a request of this communicator stands that a user may still wait for.
pub(crate) fn some_on(engine: &mut Engine, comm: Handle) -> bool {
    let owned: Vec<_> = owners(engine).iter().flatten().filter(|owned| owned.comm == comm).copied().collect();
    owned.into_iter().any(|Owned { request, .. }| {
        let request = Request::from_bits(request as u64);
        request.is_some_and(|request| engine.stands(request))
    })
}

// Hot: per message.
/// The user's handle of an operation that was started.
#[inline]
pub(crate) fn handle_of_send(engine: &mut Engine, started: Started, comm: Comm) -> Handle {
    match started {
        Started::Done(_) => REQUEST_DONE,
        Started::Running(request) => handle(engine, request, comm),
    }
}

/// The same where the status is wanted later.
#[inline]
pub(crate) fn handle_of_receive(
    engine: &mut Engine,
    started: Started,
    comm: Comm,
) -> Result<Handle, Failure> {
    let request = match started {
        Started::Done(status) => engine.complete(status)?,
        Started::Running(request) => request,
    };
    Ok(handle(engine, request, comm))
}

// Hot: per message.
/// Waits for one operation that no handle was given for.
#[inline]
pub(crate) fn finish(world: &World, started: Started) -> Result<mend_mpi::Status, Failure> {
    match started {
        Started::Done(status) => Ok(status),
        Started::Running(request) => wait(world, request),
    }
}

// Hot: per message.
/// Starts an operation and waits for it, in one entry where it is over at once or soon.
#[inline]
pub(crate) fn run(
    world: &World,
    start: impl FnOnce(&mut Engine) -> Result<Started, Failure>,
) -> Result<mend_mpi::Status, Failure> {
    let begin = |engine: &mut Engine| match start(engine) {
        Err(failure) => Begun::Over(Err(failure)),
        Ok(Started::Done(status)) => Begun::Over(Ok(status)),
        Ok(Started::Running(request)) => Begun::Waits(Blocking::new(request)),
    };
    world.begin(begin, |blocking: &mut Blocking, engine| {
        blocking.poll(engine, || world.program_threads()).map(|result| result.map_err(Failure::from))
    })
}

/// Waits for a request that no handle was given for.
pub(crate) fn wait(world: &World, request: Request) -> Result<mend_mpi::Status, Failure> {
    run(world, |engine| {
        engine.watch_request(request);
        Ok(Started::Running(request))
    })
}

/// The status that goes with an error: a message that was too long has one, otherwise there is nothing to say.
pub(crate) fn status_of_error(error: &Error) -> Status {
    match error.detail {
        Detail::Truncated(status) => Status::of(status),
        _ => Status::EMPTY,
    }
}

/// What the engine calls a request of the program's.
#[inline]
pub(crate) fn named(handle: Handle) -> Result<RequestHandle, Failure> {
    match handle {
        REQUEST_NULL => Ok(RequestHandle::Null),
        REQUEST_DONE | REQUEST_DONE_PROC_NULL => Ok(RequestHandle::Done),
        handle => match Request::from_bits(handle as u64) {
            Some(request) => Ok(RequestHandle::Request(request)),
            None => Err(ArgumentError::Request.into()),
        },
    }
}

/// Whose error handler hears of a request's failure.
#[cold]
pub(crate) fn owner(engine: &mut Engine, handle: Handle) -> On {
    let Ok(RequestHandle::Request(request)) = named(handle) else { return On::Process };
    let (kind, index) = place(request);
    On::Comm(owners(engine)[kind].get(index).map_or(COMM_WORLD, |owned| owned.comm))
}
