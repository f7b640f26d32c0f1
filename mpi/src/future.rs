// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MPI for Rust: futures over the engine's requests. An operation starts when its method is called; awaiting it is
//! MPI_Wait (a receive from anybody that is in doubt gives its error and stays: await it again by reference), and dropping
//! it gives it up: a receive that nothing matched is taken back, everything else goes on and
//! vanishes. Buffers are shared ([`Buffer`]), so nothing dangles whichever way it ends.
//!
//! Who runs the futures turns the crank ([`Mpi::turn`]): it wakes them whenever something happened.

use crate::{CommKey, Engine, Error, Request, Started, State};
use core::cell::{Cell, Ref, RefCell, RefMut};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use mend_base::{Instant, Rank, Source, Tag, TagSelector};
use mend_coll::Collective;
use mend_comm::Group;
use mend_datatype::{Op, Typed};
use mend_pml::{SendMode, Status};
use mend_runtime::Runtime;
use mend_transport::{Btl, Buffer, UserMemory};
use std::rc::Rc;
use std::sync::Arc;

/// One process's MPI, shared by its tasks on one thread.
#[derive(Debug)]
pub struct Mpi<N: Btl, R: Runtime>(Rc<Shared<N, R>>);

#[derive(Debug)]
struct Shared<N: Btl, R: Runtime> {
    engine: RefCell<Engine<N, R>>,
    /// Of every future that waits. Woken together: an engine serves few tasks, and each looks at its own request.
    waiting: RefCell<Vec<Waker>>,
    /// What the futures that wait have waited for since they were last woken.
    awaited: RefCell<Vec<Request>>,
    /// Where a probe waits.
    probing: Cell<Option<(CommKey, Source)>>,
    /// That probe waits in vain.
    in_vain: Cell<bool>,
}

impl<N: Btl, R: Runtime> Clone for Mpi<N, R> {
    fn clone(&self) -> Self {
        Mpi(Rc::clone(&self.0))
    }
}

impl<N: Btl, R: Runtime> Mpi<N, R> {
    /// Tasks may share this engine from now on.
    pub fn new(engine: Engine<N, R>) -> Self {
        Mpi(Rc::new(Shared {
            engine: RefCell::new(engine),
            waiting: RefCell::new(Vec::new()),
            awaited: RefCell::new(Vec::new()),
            probing: Cell::new(None),
            in_vain: Cell::new(false),
        }))
    }

    /// Turns the crank once and wakes whoever waits, if anything happened.
    pub fn turn(&self, now: Instant) -> u32 {
        let events = self.engine_mut().turn(now);
        if events > 0 {
            self.wake();
        }
        events
    }

    /// Every task waits for this engine, and the last turn moved nothing: where all of it are receives and probes from
    /// anybody that only they could serve, one of them ends. How many did.
    pub fn end_unsatisfiable(&self) -> u32 {
        let mut awaited = self.0.awaited.borrow_mut();
        awaited.retain(|&request| self.engine().poll(request) == State::Running);
        let probing = self.0.probing.get();
        let unsatisfiable = (!awaited.is_empty() || probing.is_some())
            && awaited.iter().all(|&request| self.engine().is_unsatisfiable(request))
            && probing.is_none_or(|(comm, from)| self.engine().unsatisfiable(comm, from).is_some());
        if !unsatisfiable {
            return 0;
        }
        match awaited.first() {
            Some(&request) => _ = self.engine_mut().end_unsatisfiable(request),
            None => self.0.in_vain.set(true),
        }
        drop(awaited);
        self.wake();
        1
    }

    /// The engine, for a look.
    pub fn engine(&self) -> Ref<'_, Engine<N, R>> {
        self.0.engine.borrow()
    }

    /// The engine, for a call. Nothing here holds it across an await.
    pub fn engine_mut(&self) -> RefMut<'_, Engine<N, R>> {
        self.0.engine.borrow_mut()
    }

    /// Our rank.
    pub fn rank(&self, comm: CommKey) -> Option<Rank> {
        self.engine().communicator(comm).map(|communicator| communicator.rank)
    }

    /// How many ranks.
    pub fn size(&self, comm: CommKey) -> Option<u32> {
        self.engine().communicator(comm).map(|communicator| communicator.size())
    }

    /// A standard send of all of `data`.
    pub fn send(&self, comm: CommKey, to: Rank, tag: Tag, data: &Arc<Buffer>) -> Operation<N, R> {
        self.send_as(SendMode::Standard, comm, to, tag, data)
    }

    /// A synchronous send: over when a receive has matched it.
    pub fn ssend(&self, comm: CommKey, to: Rank, tag: Tag, data: &Arc<Buffer>) -> Operation<N, R> {
        self.send_as(SendMode::Synchronous, comm, to, tag, data)
    }

    /// A send in any mode.
    pub fn send_as(
        &self,
        mode: SendMode,
        comm: CommKey,
        to: Rank,
        tag: Tag,
        data: &Arc<Buffer>,
    ) -> Operation<N, R> {
        self.begin(|engine| engine.send(comm, to, tag, mode, bytes(data)))
    }

    /// A receive into `data`.
    pub fn receive(
        &self,
        comm: CommKey,
        from: Source,
        tag: TagSelector,
        data: &Arc<Buffer>,
    ) -> Operation<N, R> {
        self.begin(|engine| engine.polling_receive(comm, from, tag, bytes(data), 1))
    }

    /// Waits for a message that a receive would match (MPI_Probe).
    pub async fn probe(&self, comm: CommKey, from: Source, tag: TagSelector) -> Result<Status, Error> {
        core::future::poll_fn(|context| {
            let (in_vain, looked) = (self.0.in_vain.take(), self.engine_mut().probe(comm, from, tag));
            self.0.probing.set(None);
            if let Some(result) = looked.transpose() {
                return Poll::Ready(result);
            }
            if in_vain && let Some(error) = self.engine().unsatisfiable(comm, from) {
                return Poll::Ready(Err(error));
            }
            self.0.probing.set(Some((comm, from)));
            self.wait(context)
        })
        .await
    }

    /// Any collective operation.
    pub fn collective(&self, comm: CommKey, call: Collective) -> Operation<N, R> {
        self.begin(|engine| engine.collective(comm, call))
    }

    /// MPI_Barrier.
    pub fn barrier(&self, comm: CommKey) -> Operation<N, R> {
        self.collective(comm, Collective::Barrier)
    }

    /// MPI_Bcast of bytes.
    pub fn bcast(&self, comm: CommKey, root: Rank, data: &Arc<Buffer>) -> Operation<N, R> {
        self.collective(comm, Collective::Bcast { data: bytes(data), root })
    }

    /// MPI_Allreduce.
    pub fn allreduce(&self, comm: CommKey, op: Op, send: Option<Typed>, receive: Typed) -> Operation<N, R> {
        self.collective(comm, Collective::Allreduce { send, receive, op })
    }

    /// MPI_Comm_dup.
    pub fn dup(&self, comm: CommKey) -> Creation<N, R> {
        Creation(self.begin(|engine| engine.dup(comm)))
    }

    /// MPI_Comm_split; no color is MPI_UNDEFINED.
    pub fn split(&self, comm: CommKey, color: Option<u32>, key: i32) -> Creation<N, R> {
        Creation(self.begin(|engine| engine.split(comm, color, key)))
    }

    /// MPI_Comm_create.
    pub fn create(&self, comm: CommKey, group: &Group) -> Creation<N, R> {
        Creation(self.begin(|engine| engine.create(comm, group)))
    }

    /// MPI_Comm_free: local.
    pub fn free(&self, comm: CommKey) -> Result<(), Error> {
        self.engine_mut().free(comm)
    }

    /// MPI_Comm_get_failed. Takes the news, which may end operations of other tasks.
    pub fn failed(&self, comm: CommKey) -> Result<Vec<Rank>, Error> {
        let failed = self.engine_mut().failed(comm);
        self.wake();
        failed
    }

    /// MPI_Comm_ack_failed; all that are known where `at_most` is not said.
    pub fn acknowledge(&self, comm: CommKey, at_most: Option<u32>) -> Result<u32, Error> {
        let count = self.engine_mut().acknowledge(comm, at_most);
        self.wake();
        count
    }

    /// MPI_Finalize: waits until nothing of ours is still to be sent.
    pub async fn finish(&self) {
        core::future::poll_fn(|context| {
            let finished = self.engine_mut().finish();
            if finished { Poll::Ready(()) } else { self.wait(context) }
        })
        .await
    }

    fn begin(&self, start: impl FnOnce(&mut Engine<N, R>) -> Result<Started, Error>) -> Operation<N, R> {
        let started = start(&mut self.engine_mut());
        // Starting one may end another: a message to ourselves, or one that lay here already.
        self.wake();
        let stage = match started {
            Ok(Started::Running(request)) => Stage::Running(request),
            Ok(Started::Done(status)) => Stage::Done(Ok(status)),
            Err(error) => Stage::Done(Err(error)),
        };
        Operation { mpi: self.clone(), stage }
    }

    fn wake(&self) {
        self.0.awaited.borrow_mut().clear();
        self.0.waiting.borrow_mut().drain(..).for_each(Waker::wake);
    }

    fn wait_for<T>(&self, stage: &Stage, context: &Context<'_>) -> Poll<T> {
        if let Stage::Running(request) = *stage {
            self.0.awaited.borrow_mut().push(request);
        }
        self.wait(context)
    }

    fn wait<T>(&self, context: &Context<'_>) -> Poll<T> {
        let mut waiting = self.0.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}

/// An operation under way: awaiting it is MPI_Wait. Awaited again, it gives the same result.
#[must_use = "an operation that is dropped is given up"]
#[derive(Debug)]
pub struct Operation<N: Btl, R: Runtime> {
    mpi: Mpi<N, R>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Running(Request),
    Done(Result<Status, Error>),
}

impl<N: Btl, R: Runtime> Operation<N, R> {
    /// MPI_Test.
    pub fn test(&mut self) -> Option<Result<Status, Error>> {
        if let Stage::Running(request) = self.stage {
            let mut engine = self.mpi.engine_mut();
            let result = match engine.poll(request) {
                State::Running => return None,
                State::Stalled => return Some(Err(engine.doubt(request))),
                State::Done(result) => result,
            };
            engine.release(request);
            self.stage = Stage::Done(result);
        }
        match self.stage {
            Stage::Running(_) => None,
            Stage::Done(result) => Some(result),
        }
    }

    /// MPI_Cancel, of a receive. It must still be awaited; its status says whether it was taken back.
    pub fn cancel(&mut self) {
        if let Stage::Running(request) = self.stage {
            self.mpi.engine_mut().cancel(request);
        }
    }
}

impl<N: Btl, R: Runtime> Future for Operation<N, R> {
    type Output = Result<Status, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.test() {
            Some(result) => Poll::Ready(result),
            None => self.mpi.wait_for(&self.stage, context),
        }
    }
}

impl<N: Btl, R: Runtime> Drop for Operation<N, R> {
    fn drop(&mut self) {
        if let Stage::Running(request) = self.stage {
            let mut engine = self.mpi.engine_mut();
            engine.cancel(request);
            engine.detach(request);
        }
    }
}

/// A communicator being made; `None` for who is no member of it.
#[must_use = "the other members wait for this one"]
#[derive(Debug)]
pub struct Creation<N: Btl, R: Runtime>(Operation<N, R>);

impl<N: Btl, R: Runtime> Future for Creation<N, R> {
    type Output = Result<Option<CommKey>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let operation = &mut self.0;
        let created = match operation.stage {
            Stage::Running(request) => operation.mpi.engine_mut().created(request),
            Stage::Done(_) => None,
        };
        match operation.test() {
            Some(result) => Poll::Ready(result.map(|_| created)),
            None => operation.mpi.wait_for(&operation.stage, context),
        }
    }
}

fn bytes(buffer: &Arc<Buffer>) -> Typed {
    Typed::bytes(UserMemory::of_buffer(buffer))
}
