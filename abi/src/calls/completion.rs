// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls that wait for requests, test, free and cancel them (MPI-5.0 §3.7.3-3.8.4). `completion` of the crate `mpi` has the rules of
//! the eight calls that wait and test; here their results are written to the arrays of the program.

use crate::argument_error::ArgumentError;
use crate::call_error::CallError;
use crate::generated::constants::{REQUEST_NULL, UNDEFINED};
use crate::handle::Handle;
use crate::pointer::{Out, OutArray};
use crate::requests::{self, REQUEST_DONE_PROC_NULL, request_of, status_of_error};
use crate::status::{Status, Statuses};
use core::ffi::c_int;
use mend_mpi::{
    CompletionCall, CompletionResult, Detail, Error, Found, OutArguments, Request, RequestHandle, WaitMode,
};
use mend_world::{Engine, World};

/// The arrays of the program into which a call writes.
struct Users<'a> {
    handles: &'a [Handle],
    requests: OutArray<Handle>,
    statuses: Statuses,
    indices: Option<OutArray<c_int>>,
}

impl OutArguments for Users<'_> {
    fn completed(&mut self, index: usize) {
        self.requests.set(index, REQUEST_NULL);
    }

    fn status(
        &mut self,
        position: usize,
        index: usize,
        result: Result<mend_mpi::Status, Error>,
        with_error: bool,
    ) {
        if self.statuses.are_ignored() {
            return;
        }
        let status = match result {
            Ok(_) if self.handles[index] == REQUEST_DONE_PROC_NULL => Status::PROC_NULL,
            Ok(status) => Status::of(status),
            Err(error) => Status { error: error.class.number(), ..status_of_error(&error) },
        };
        if with_error {
            self.statuses.set(position, status);
        } else {
            self.statuses.set_without_error(position, status);
        }
    }

    fn success(&mut self, position: usize) {
        self.statuses.set_success(position);
    }

    fn index(&mut self, position: usize, index: usize) {
        if let Some(indices) = self.indices {
            indices.set(position, index as c_int);
        }
    }
}

/// Copies of handles, in the forms of the program and of the engine: the array of the program is read only once.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives in the call's frame, so that few handles need no heap"
)]
enum Copied {
    One(Handle, RequestHandle),
    Few([Handle; FEW], [RequestHandle; FEW], usize),
    Many(Vec<Handle>, Vec<RequestHandle>),
}

/// So many handles are copied without memory from the heap.
const FEW: usize = 64;

impl Copied {
    fn of(requests: OutArray<Handle>, count: usize) -> Result<Copied, CallError> {
        requests.check(count)?;
        if count > FEW {
            return Copied::many(requests, count);
        }
        let (mut handles, mut names) = ([REQUEST_NULL; FEW], [RequestHandle::Null; FEW]);
        for index in 0..count {
            handles[index] = requests.get(index);
            names[index] = request_of(handles[index])?;
        }
        Ok(Copied::Few(handles, names, count))
    }

    /// On the heap. Without memory the call fails, and the program can wait for fewer requests at a time.
    fn many(requests: OutArray<Handle>, count: usize) -> Result<Copied, CallError> {
        let (mut handles, mut names) = (Vec::new(), Vec::new());
        handles.try_reserve_exact(count).map_err(|_| Error::of(Detail::NoMemory))?;
        names.try_reserve_exact(count).map_err(|_| Error::of(Detail::NoMemory))?;
        for index in 0..count {
            let handle = requests.get(index);
            handles.push(handle);
            names.push(request_of(handle)?);
        }
        Ok(Copied::Many(handles, names))
    }

    fn handles(&self) -> &[Handle] {
        match self {
            Copied::One(handle, _) => core::slice::from_ref(handle),
            Copied::Few(handles, _, count) => &handles[..*count],
            Copied::Many(handles, _) => handles,
        }
    }

    fn requests(&self) -> &[RequestHandle] {
        match self {
            Copied::One(_, request) => core::slice::from_ref(request),
            Copied::Few(_, requests, count) => &requests[..*count],
            Copied::Many(_, requests) => requests,
        }
    }
}

/// The result of a call, and its error, which goes to the error handler of the communicator of the failed request.
fn found_and_error(
    engine: &Engine,
    result: Result<CompletionResult, Error>,
) -> Result<(Found, Option<CallError>), CallError> {
    let result = result.map_err(|_| CallError::from(ArgumentError::Request))?;
    let error = result.first_error.map(|(_, error)| {
        let error = requests::error_of(engine, result.communicator, error);
        // The error handler gets the class of the request; the call returns that the statuses hold it (Trap 2).
        CallError { returned: result.returned().number(), ..error }
    });
    Ok((result.found, error))
}

/// Waits until the call returns a result.
fn waited(
    world: &World,
    want: WaitMode,
    copied: &Copied,
    users: &mut Users<'_>,
) -> Result<(Found, Option<CallError>), CallError> {
    let mut call = CompletionCall::new(want);
    world.wait(|engine| {
        let result = call.poll(engine, copied.requests(), || world.program_threads(), users)?;
        Some(found_and_error(engine, result))
    })
}

/// Polls once, after progress.
fn tested(
    world: &World,
    want: WaitMode,
    copied: &Copied,
    users: &mut Users<'_>,
) -> Result<(Found, Option<CallError>), CallError> {
    world.with_progress(|engine| {
        let result = mend_mpi::test(want, engine, copied.requests(), users);
        found_and_error(engine, result)
    })
}

fn outcome(error: Option<CallError>) -> Result<(), CallError> {
    error.map_or(Ok(()), Err)
}

// Hot: per message.
fn one(request: Out<Handle>) -> Result<Copied, CallError> {
    let handle = request.get();
    Ok(Copied::One(handle, request_of(handle)?))
}

// Row WT1
pub(crate) fn wait(world: &World, request: Out<Handle>, status: Statuses) -> Result<(), CallError> {
    let copied = one(request)?;
    let requests = request.as_array();
    let mut users = Users { handles: copied.handles(), requests, statuses: status, indices: None };
    let (found, error) = waited(world, WaitMode::Any, &copied, &mut users)?;
    if found == Found::Nothing {
        status.set_one(Status::EMPTY);
    }
    outcome(error)
}

// Row WT2
pub(crate) fn test(
    world: &World,
    request: Out<Handle>,
    flag: Out<c_int>,
    status: Statuses,
) -> Result<(), CallError> {
    flag.set(0);
    let copied = one(request)?;
    let requests = request.as_array();
    let mut users = Users { handles: copied.handles(), requests, statuses: status, indices: None };
    let (found, error) = tested(world, WaitMode::Any, &copied, &mut users)?;
    match found {
        Found::Nothing => {
            flag.set(1);
            status.set_one(Status::EMPTY);
        }
        Found::One { complete, .. } => flag.set(c_int::from(complete)),
        Found::NotYet | Found::All { .. } | Found::Several { .. } => {}
    }
    outcome(error)
}

// Rows WT5, WT6
pub(crate) fn waitall(
    world: &World,
    count: usize,
    requests: OutArray<Handle>,
    statuses: Statuses,
) -> Result<(), CallError> {
    let copied = Copied::of(requests, count)?;
    let mut users = Users { handles: copied.handles(), requests, statuses, indices: None };
    outcome(waited(world, WaitMode::All, &copied, &mut users)?.1)
}

// Row WT7
pub(crate) fn testall(
    world: &World,
    count: usize,
    requests: OutArray<Handle>,
    flag: Out<c_int>,
    statuses: Statuses,
) -> Result<(), CallError> {
    flag.set(0);
    let copied = Copied::of(requests, count)?;
    let mut users = Users { handles: copied.handles(), requests, statuses, indices: None };
    let (found, error) = tested(world, WaitMode::All, &copied, &mut users)?;
    flag.set(c_int::from(matches!(found, Found::Nothing | Found::All { complete: true })));
    outcome(error)
}

// Row WT3
pub(crate) fn waitany(
    world: &World,
    count: usize,
    requests: OutArray<Handle>,
    index: Out<c_int>,
    status: Statuses,
) -> Result<(), CallError> {
    index.set(UNDEFINED);
    let copied = Copied::of(requests, count)?;
    let mut users = Users { handles: copied.handles(), requests, statuses: status, indices: None };
    let (found, error) = waited(world, WaitMode::Any, &copied, &mut users)?;
    match found {
        Found::One { index: at, .. } => index.set(at as c_int),
        Found::Nothing | Found::NotYet | Found::All { .. } | Found::Several { .. } => {
            status.set_one(Status::EMPTY)
        }
    }
    outcome(error)
}

// Row WT4
pub(crate) fn testany(
    world: &World,
    count: usize,
    requests: OutArray<Handle>,
    index: Out<c_int>,
    flag: Out<c_int>,
    status: Statuses,
) -> Result<(), CallError> {
    flag.set(0);
    index.set(UNDEFINED);
    let copied = Copied::of(requests, count)?;
    let mut users = Users { handles: copied.handles(), requests, statuses: status, indices: None };
    let (found, error) = tested(world, WaitMode::Any, &copied, &mut users)?;
    match found {
        Found::One { index: at, complete } => {
            index.set(at as c_int);
            flag.set(c_int::from(complete));
        }
        Found::Nothing => {
            flag.set(1);
            status.set_one(Status::EMPTY);
        }
        Found::NotYet | Found::All { .. } | Found::Several { .. } => {}
    }
    outcome(error)
}

// Row WT8
pub(crate) fn waitsome(
    world: &World,
    count: usize,
    requests: OutArray<Handle>,
    out_count: Out<c_int>,
    indices: OutArray<c_int>,
    statuses: Statuses,
) -> Result<(), CallError> {
    let copied = Copied::of(requests, count)?;
    indices.check(count)?;
    let mut users = Users { handles: copied.handles(), requests, statuses, indices: Some(indices) };
    let (found, error) = waited(world, WaitMode::Some, &copied, &mut users)?;
    out_count.set(counted(found));
    outcome(error)
}

// Row WT9
pub(crate) fn testsome(
    world: &World,
    count: usize,
    requests: OutArray<Handle>,
    out_count: Out<c_int>,
    indices: OutArray<c_int>,
    statuses: Statuses,
) -> Result<(), CallError> {
    let copied = Copied::of(requests, count)?;
    indices.check(count)?;
    let mut users = Users { handles: copied.handles(), requests, statuses, indices: Some(indices) };
    let (found, error) = tested(world, WaitMode::Some, &copied, &mut users)?;
    out_count.set(counted(found));
    outcome(error)
}

fn counted(found: Found) -> c_int {
    match found {
        Found::Several { count } => count as c_int,
        Found::Nothing => UNDEFINED,
        Found::NotYet | Found::All { .. } | Found::One { .. } => 0,
    }
}

pub(crate) fn request_free(world: &World, request: Out<Handle>) -> Result<(), CallError> {
    let handle = request_of(request.get())?;
    world.with(|engine| {
        if let Some(request) = open_request(handle, engine)? {
            engine.free_request(request);
        }
        Ok::<(), CallError>(())
    })?;
    request.set(REQUEST_NULL);
    Ok(())
}

/// Cancels a receive that no message has matched, or a send whose bytes have not left (MPI-5.0 §3.8.4). Other operations go on.
pub(crate) fn cancel(world: &World, request: Out<Handle>) -> Result<(), CallError> {
    let handle = request_of(request.get())?;
    world.with(|engine| {
        if let Some(request) = open_request(handle, engine)? {
            engine.cancel(request);
        }
        Ok(())
    })
}

/// The request of the engine; `None`: the request was complete at its start, and has no entry. An error if the handle is null or stale.
fn open_request(handle: RequestHandle, engine: &Engine) -> Result<Option<Request>, CallError> {
    match handle {
        RequestHandle::EndedAtStart => Ok(None),
        RequestHandle::Request(request) if engine.has_request(request) => Ok(Some(request)),
        RequestHandle::Null | RequestHandle::Request(_) => Err(ArgumentError::Request.into()),
    }
}
