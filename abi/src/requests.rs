// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests as users hold them, over the engine's: handles, whose error handler hears of them, and waiting for one.

use crate::array_calls::{Look, Requests};
use crate::check::ArgumentError;
use crate::entry::{Failure, On};
use crate::generated::constants::{COMM_WORLD, REQUEST_NULL};
use crate::handle::{Comm, Handle, REQUEST_DONE, REQUEST_DONE_PROC_NULL};
use crate::status::Status;
use core::cell::UnsafeCell;
use mend_mpi::{Detail, Error, Request, Started, State};
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
        Request::Kept(key) => (2, key.index as usize),
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
        request.is_some_and(|request| match engine.poll(request) {
            State::Done(Err(error)) => error.detail != Detail::NoSuchRequest,
            _ => true,
        })
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
pub(crate) fn handle_of_receive(engine: &mut Engine, started: Started, comm: Comm) -> Handle {
    match started {
        Started::Done(status) => {
            let request = engine.keep(status);
            handle(engine, request, comm)
        }
        Started::Running(request) => handle(engine, request, comm),
    }
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
        Ok(Started::Running(request)) => Begun::Waits(Waiting::new(world, request)),
    };
    world.begin(begin, Waiting::look)
}

/// Waits for a request of our own.
pub(crate) fn wait(world: &World, request: Request) -> Result<mend_mpi::Status, Failure> {
    let mut waiting = Waiting::new(world, request);
    world.wait(|engine| waiting.look(engine))
}

/// A request that a blocking call waits for. A wildcard receive in doubt is taken back, and fails (Trap 6):
/// a blocking call leaves nothing behind.
pub(crate) struct Waiting<'world> {
    request: Request,
    doubt: bool,
    world: &'world World,
}

impl<'world> Waiting<'world> {
    pub(crate) fn new(world: &'world World, request: Request) -> Self {
        Waiting { request, doubt: false, world }
    }

    pub(crate) fn request(&self) -> Request {
        self.request
    }

    // Hot: per look.
    #[inline]
    pub(crate) fn look(&mut self, engine: &mut Engine) -> Option<Result<mend_mpi::Status, Failure>> {
        let mut state = engine.poll(self.request);
        if state == State::Stalled {
            state = self.look_in_doubt(engine);
        } else if state == State::Running && engine.is_unsatisfiable(self.request) {
            state = self.look_in_vain(engine);
        }
        match state {
            State::Running | State::Stalled => None,
            State::Done(result) => {
                let taken_back = self.doubt && result.is_ok_and(|status| status.cancelled);
                let result = if taken_back { Err(left_in_doubt(engine, self.request)) } else { result };
                engine.release(self.request);
                Some(result.map_err(Failure::from))
            }
        }
    }
}

impl Waiting<'_> {
    /// Only this process could send what is waited for: if no thread of it will, nobody does.
    #[cold]
    fn look_in_vain(&self, engine: &mut Engine) -> State {
        if self.world.is_alone() {
            engine.end_unsatisfiable(self.request);
        }
        engine.poll(self.request)
    }

    #[cold]
    fn look_in_doubt(&mut self, engine: &mut Engine) -> State {
        engine.progress_again();
        if engine.poll(self.request) == State::Stalled {
            self.doubt = true;
            engine.cancel(self.request);
        }
        engine.poll(self.request)
    }
}

/// What a blocking receive from anybody fails with that was taken back in doubt (Row PP9).
#[cold]
fn left_in_doubt(engine: &Engine, request: Request) -> Error {
    match engine.doubt(request).detail {
        Detail::SenderMayHaveFailed(Some(rank)) => Detail::ProcFailed(rank).into(),
        detail => Error { class: mend_mpi::Class::ProcFailed, detail },
    }
}

/// The status that goes with an error: a message that was too long has one, otherwise there is nothing to say.
pub(crate) fn status_of_error(error: &Error) -> Status {
    match error.detail {
        Detail::Truncated(status) => Status::of(status),
        _ => Status::EMPTY,
    }
}

/// The engine's request that a user's handle names; `None`: null, or over without a place.
pub(crate) fn named(handle: Handle) -> Result<Option<Request>, Failure> {
    match handle {
        REQUEST_NULL | REQUEST_DONE | REQUEST_DONE_PROC_NULL => Ok(None),
        handle => Request::from_bits(handle as u64).map(Some).ok_or_else(|| ArgumentError::Request.into()),
    }
}

/// The engine, as the table of all requests.
pub(crate) struct Live<'a> {
    engine: &'a mut Engine,
    /// It was turned for a request in doubt: once an answer.
    turned: bool,
}

impl<'a> Live<'a> {
    pub(crate) fn new(engine: &'a mut Engine) -> Self {
        Live { engine, turned: false }
    }

    /// Before it is said that a request is in doubt, what lies here is looked at; also so that a program that waits for it
    /// in a loop gets its message.
    #[cold]
    fn look_in_doubt(&mut self, handle: Handle, request: Request) -> Look {
        if !self.turned {
            self.turned = true;
            self.engine.progress_again();
            return self.look(handle);
        }
        Look::Stalled(self.engine.doubt(request).into())
    }
}

impl Requests for Live<'_> {
    // Hot: per look.
    fn look(&mut self, handle: Handle) -> Look {
        match handle {
            REQUEST_NULL => return Look::Null,
            REQUEST_DONE => return Look::Over(Status::EMPTY, None),
            REQUEST_DONE_PROC_NULL => return Look::Over(Status::PROC_NULL, None),
            _ => {}
        }
        let Some(request) = Request::from_bits(handle as u64) else {
            return Look::Stale(ArgumentError::Request.into());
        };
        match self.engine.poll(request) {
            State::Running => Look::Active,
            State::Stalled => self.look_in_doubt(handle, request),
            State::Done(Ok(status)) => Look::Over(Status::of(status), None),
            State::Done(Err(error)) if error.detail == Detail::NoSuchRequest => {
                Look::Stale(ArgumentError::Request.into())
            }
            State::Done(Err(error)) => Look::Over(status_of_error(&error), Some(error.into())),
        }
    }

    fn end(&mut self, handle: Handle) {
        if let Ok(Some(request)) = named(handle) {
            self.engine.release(request);
        }
    }

    fn owner(&mut self, handle: Handle) -> On {
        let Ok(Some(request)) = named(handle) else { return On::Process };
        let (kind, index) = place(request);
        On::Comm(owners(self.engine)[kind].get(index).map_or(COMM_WORLD, |owned| owned.comm))
    }
}
