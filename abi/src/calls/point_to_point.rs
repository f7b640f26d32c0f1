// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends, receives and probes (MPI-5.0 chapter 3). `MPI_PROC_NULL` is answered here (§3.10); the engine knows ranks only.

use crate::array_calls::is_fault;
use crate::check::ArgumentError;
use crate::entry::Failure;
use crate::generated::constants::{IN_PLACE, REQUEST_NULL};
use crate::handle::{Comm, Handle, REQUEST_DONE, REQUEST_DONE_PROC_NULL};
use crate::pointer::Out;
use crate::requests::{self, Waiting, finish, handle_of_receive, handle_of_send};
use crate::status::{Status, Statuses};
use core::ffi::{c_int, c_void};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_datatype::{Datatype, Typed};
use mend_mpi::{Detail, SendMode, Started};
use mend_transport::UserMemory;
use mend_world::{Engine, World};

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

/// That the communicator stands, where nothing else looks at it.
fn check_comm(world: &World, comm: Comm) -> Result<(), Failure> {
    world.look(|engine| comm.existing(engine)).map(|_| ())
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
    let Some(dest) = dest else { return check_comm(world, comm) };
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
        check_comm(world, comm)?;
        request.set(REQUEST_DONE);
        return Ok(());
    };
    let handle = world.with(|engine| -> Result<Handle, Failure> {
        let started = engine.send(comm.key(engine)?, dest, tag, mode, data)?;
        Ok(handle_of_send(engine, started, comm))
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
        check_comm(world, comm)?;
        status.set_one(Status::PROC_NULL);
        return Ok(());
    };
    let result = requests::run(world, |engine| {
        let key = comm.key(engine)?;
        let started = engine.polling_receive(key, source, tag, data, world.looks())?;
        if let Started::Running(_) = started {
            engine.watch(key, source);
        }
        Ok(started)
    });
    received(result, status)
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
            if let crate::entry::Why::Engine(error) = &failure.why {
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
        check_comm(world, comm)?;
        request.set(REQUEST_DONE_PROC_NULL);
        return Ok(());
    };
    let handle = world.with(|engine| -> Result<Handle, Failure> {
        let started = engine.receive(comm.key(engine)?, source, tag, data)?;
        Ok(handle_of_receive(engine, started, comm))
    })?;
    request.set(handle);
    Ok(())
}

/// The receive is started first, so that two ranks that exchange long messages need no memory in between.
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
    let mut halves = world.with(|engine| -> Result<Halves, Failure> {
        let key = comm.existing(engine)?;
        let receive = match source {
            None => Half::Nobody,
            Some(source) => Half::begun(world, engine.receive(key, source, receive_tag, receive_data)?),
        };
        let send = match dest {
            None => Half::Nobody,
            Some(dest) => match engine.send(key, dest, send_tag, SendMode::Standard, send_data) {
                Ok(started) => Half::begun(world, started),
                Err(error) => Half::Over(Err(error.into())),
            },
        };
        Ok(Halves { send, receive })
    })?;
    world.wait(|engine| halves.are_over(engine).then_some(()));
    let taken = match halves.receive {
        Half::Nobody => {
            status.set_one(Status::PROC_NULL);
            Ok(())
        }
        Half::Over(result) => received(result, status),
        Half::Running(_) => unreachable!("both are over"),
    };
    if let Half::Over(sent) = halves.send { sent.and(taken) } else { taken }
}

/// The two operations of a Sendrecv. Where one fails, nothing of the other goes on in the user's buffers when the call
/// returns, and what the living have matched already they get (Row PP16): a receive that nothing has matched is taken back,
/// one that has ends; a send goes on from a copy.
struct Halves<'world> {
    send: Half<'world>,
    receive: Half<'world>,
}

enum Half<'world> {
    Nobody,
    Running(Waiting<'world>),
    Over(Result<mend_mpi::Status, Failure>),
}

impl<'world> Half<'world> {
    fn begun(world: &'world World, started: Started) -> Self {
        match started {
            Started::Done(status) => Half::Over(Ok(status)),
            Started::Running(request) => Half::Running(Waiting::new(world, request)),
        }
    }

    /// Moves on if its operation has; whether there is nothing to wait for.
    fn is_over(&mut self, engine: &mut Engine) -> bool {
        if let Half::Running(waiting) = self {
            match waiting.look(engine) {
                Some(result) => *self = Half::Over(result),
                None => return false,
            }
        }
        true
    }

    fn failure(&self) -> Option<&Failure> {
        if let Half::Over(Err(failure)) = self { Some(failure) } else { None }
    }
}

impl Halves<'_> {
    fn are_over(&mut self, engine: &mut Engine) -> bool {
        let (sent, received) = (self.send.is_over(engine), self.receive.is_over(engine));
        if self.send.failure().is_some()
            && let Half::Running(waiting) = &self.receive
        {
            engine.cancel(waiting.request());
            return self.receive.is_over(engine);
        }
        // Another failure of the receive, a message too long say, lets the send end as ever.
        if self.receive.failure().is_some_and(|failure| is_fault(failure.code))
            && let Half::Running(waiting) = &self.send
            && engine.continue_from_copy(waiting.request())
        {
            self.send = Half::Nobody;
            return true;
        }
        sent && received
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
        check_comm(world, comm)?;
        status.set_one(Status::PROC_NULL);
        return Ok(());
    };
    let look = |engine: &mut Engine| -> Option<Result<mend_mpi::Status, Failure>> {
        comm.key(engine).and_then(|key| Ok(engine.probe(key, source, tag)?)).transpose()
    };
    let found = world.wait(|engine| match look(engine) {
        // What lies here already is found first, whoever has failed (Row PP13).
        Some(Err(_)) => {
            engine.progress_again();
            look(engine)
        }
        // Nobody is left who could send, and this thread waits here.
        None => {
            let never = comm.key(engine).ok().and_then(|key| engine.unsatisfiable(key, source));
            never.filter(|_| world.is_alone()).map(|error| Err(error.into()))
        }
        found => found,
    })?;
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
        check_comm(world, comm)?;
        flag.set(1);
        status.set_one(Status::PROC_NULL);
        return Ok(());
    };
    let found = world.with_progress(|engine| -> Result<_, Failure> {
        match engine.probe(comm.key(engine)?, source, tag) {
            // Nobody waits here: that nothing will come from those who have finalized is no error of the program's.
            Err(error) if matches!(error.detail, Detail::PeerLeft(_)) => Ok(None),
            looked => Ok(looked?),
        }
    })?;
    if let Some(found) = found {
        flag.set(1);
        status.set_one(Status::of(found));
    }
    Ok(())
}
