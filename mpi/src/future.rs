// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MPI for Rust: futures over the requests of the engine. An operation starts when its method is called. Awaiting it is MPI_Wait: a
//! receive from any source with a pending failure returns the error and goes on, and may be awaited again by reference. Dropping an
//! operation cancels a receive that no message has matched; every other operation goes on and is removed when it ends. Buffers are
//! shared ([`Buffer`]), so a dropped operation does not dangle.
//!
//! The rules are those of the C calls, from the same modules: [`completion`](crate::completion), [`blocking`](crate::blocking),
//! [`sendrecv`](crate::sendrecv). The executor of the futures calls [`Mpi::progress`], which wakes them after an event.

use crate::blocking::{BlockingOperation, CommunicatorCreation, Probe};
use crate::completion::{self, CompletionCall, CompletionResult, OutArguments, WaitMode};
use crate::sendrecv::{Exchanged, Sendrecv};
use crate::{AgreedGroup, CommKey, Engine, Error, Hints, RequestHandle, Started, State};
use core::cell::{Cell, Ref, RefCell, RefMut};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use mend_base::{Instant, Rank, Source, Tag, TagSelector};
use mend_coll::Collective;
use mend_comm::Group;
use mend_datatype::{Op, TypedBuffer};
use mend_pml::{SendMode, Status};
use mend_runtime::Runtime;
use mend_transport::{Buffer, Rdma, UserMemory};
use std::rc::Rc;
use std::sync::Arc;

/// The MPI of one process, shared by its tasks on one thread.
#[derive(Debug)]
pub struct Mpi<N: Rdma, R: Runtime>(Rc<Shared<N, R>>);

#[derive(Debug)]
struct Shared<N: Rdma, R: Runtime> {
    engine: RefCell<Engine<N, R>>,
    /// The wakers of all futures that wait. All are woken together: an engine has few tasks, and each polls its own request.
    waiting: RefCell<Vec<Waker>>,
    /// The number of tasks that may start operations, as the threads of a C program do.
    tasks: Cell<u32>,
    /// The next poll of a future that waits is a look ([`Engine::begin_look`]).
    looks: Cell<bool>,
}

impl<N: Rdma, R: Runtime> Clone for Mpi<N, R> {
    fn clone(&self) -> Self {
        Mpi(Rc::clone(&self.0))
    }
}

impl<N: Rdma, R: Runtime> Mpi<N, R> {
    /// Shares this engine; one task may start operations.
    pub fn new(engine: Engine<N, R>) -> Self {
        Mpi(Rc::new(Shared {
            engine: RefCell::new(engine),
            waiting: RefCell::new(Vec::new()),
            tasks: Cell::new(1),
            looks: Cell::new(false),
        }))
    }

    /// Sets the number of tasks that may start operations: more than 1 if futures are awaited concurrently.
    pub fn set_tasks(&self, tasks: u32) {
        self.0.tasks.set(tasks);
    }

    /// Makes progress once. Returns the number of events, and wakes all futures that wait if there was one.
    pub fn progress(&self, now: Instant) -> u32 {
        let events = self.engine_mut().progress(now);
        if events > 0 {
            self.wake();
        }
        events
    }

    /// The timed check of a process that waits. The caller polls its future then, and makes progress.
    pub fn check(&self) {
        self.engine_mut().check();
        self.0.looks.set(true);
    }

    /// The engine, to be read.
    pub fn engine(&self) -> Ref<'_, Engine<N, R>> {
        self.0.engine.borrow()
    }

    /// The engine, to be called. No method here holds it across an await.
    pub fn engine_mut(&self) -> RefMut<'_, Engine<N, R>> {
        self.0.engine.borrow_mut()
    }

    /// The rank of this process.
    pub fn rank(&self, comm: CommKey) -> Option<Rank> {
        self.engine().communicator(comm).map(|communicator| communicator.rank)
    }

    /// The number of ranks.
    pub fn size(&self, comm: CommKey) -> Option<u32> {
        self.engine().communicator(comm).map(|communicator| communicator.size())
    }

    /// A standard send of all of `data`.
    pub fn send(&self, comm: CommKey, to: Rank, tag: Tag, data: &Arc<Buffer>) -> Operation<N, R> {
        self.send_as(SendMode::Standard, comm, to, tag, data)
    }

    /// A synchronous send, which ends when a receive has matched it.
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
        self.begin(comm, |engine| engine.send(comm, to, tag, mode, bytes(data)))
    }

    /// A receive into `data`.
    pub fn receive(
        &self,
        comm: CommKey,
        from: Source,
        tag: TagSelector,
        data: &Arc<Buffer>,
    ) -> Operation<N, R> {
        self.begin(comm, |engine| {
            engine.reserve_request()?;
            poll_then_post(engine, comm, from, tag, data)
        })
    }

    /// MPI_Recv: a receive with a pending failure is cancelled, and fails (row PP9).
    pub fn blocking_receive(
        &self,
        comm: CommKey,
        from: Source,
        tag: TagSelector,
        data: &Arc<Buffer>,
    ) -> BlockingCall<N, R, BlockingOperation> {
        self.block(|engine| {
            engine.reserve_request()?;
            match poll_then_post(engine, comm, from, tag, data)? {
                Started::Running(request) => Ok(BlockingOperation::new(request)),
                Started::Done(status) => Ok(BlockingOperation::new(engine.add_ended_at_start(comm, status)?)),
            }
        })
    }

    /// MPI_Sendrecv; `None`: to or from `MPI_PROC_NULL`.
    pub fn sendrecv(
        &self,
        comm: CommKey,
        send: Option<(Rank, Tag, &Arc<Buffer>)>,
        receive: Option<(Source, TagSelector, &Arc<Buffer>)>,
    ) -> BlockingCall<N, R, Sendrecv> {
        let send = send.map(|(to, tag, data)| (to, tag, bytes(data)));
        let receive = receive.map(|(from, tag, data)| (from, tag, bytes(data)));
        self.block(|engine| Sendrecv::start(engine, comm, send, receive))
    }

    /// MPI_Probe: waits for a message that a receive would match.
    pub fn probe(&self, comm: CommKey, from: Source, tag: TagSelector) -> BlockingCall<N, R, Probe> {
        self.block(|_| Ok(Probe::new(comm, from, tag)))
    }

    /// MPI_Iprobe.
    pub fn iprobe(&self, comm: CommKey, from: Source, tag: TagSelector) -> Result<Option<Status>, Error> {
        self.progress_now();
        Probe::new(comm, from, tag).test(&mut self.engine_mut())
    }

    /// Waitall, Waitany, Waitsome.
    pub async fn wait_for(&self, want: WaitMode, operations: &mut [Operation<N, R>]) -> CompletionReport {
        let handles: Vec<RequestHandle> = operations.iter().map(|operation| operation.handle).collect();
        let mut call = CompletionCall::new(want);
        core::future::poll_fn(|context| {
            let mut statuses = Vec::new();
            let mut collector = Collector { operations: &mut *operations, statuses: &mut statuses };
            let result =
                self.poll(|engine, tasks| call.poll(engine, &handles, || Some(tasks), &mut collector));
            match result {
                Some(result) => Poll::Ready(CompletionReport { result, statuses }),
                None => self.wait(context),
            }
        })
        .await
    }

    /// Testall, Testany, Testsome.
    pub fn test_for(&self, want: WaitMode, operations: &mut [Operation<N, R>]) -> CompletionReport {
        self.progress_now();
        let handles: Vec<RequestHandle> = operations.iter().map(|operation| operation.handle).collect();
        let mut statuses = Vec::new();
        let mut collector = Collector { operations, statuses: &mut statuses };
        let result =
            self.wake_if_progressed(|engine| completion::test(want, engine, &handles, &mut collector));
        CompletionReport { result, statuses }
    }

    /// Any collective operation.
    pub fn collective(&self, comm: CommKey, call: Collective) -> Operation<N, R> {
        self.begin(comm, |engine| engine.collective(comm, call))
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
    pub fn allreduce(
        &self,
        comm: CommKey,
        op: Op,
        send: Option<TypedBuffer>,
        receive: TypedBuffer,
    ) -> Operation<N, R> {
        self.collective(comm, Collective::Allreduce { send, receive, op })
    }

    /// MPI_Comm_dup.
    pub fn dup(&self, comm: CommKey) -> Creation<N, R> {
        self.create_by(comm, |engine| engine.dup(comm))
    }

    /// MPI_Comm_dup_with_info.
    pub fn dup_with_hints(&self, comm: CommKey, hints: Hints) -> Creation<N, R> {
        self.create_by(comm, |engine| engine.dup_with_hints(comm, hints, None))
    }

    /// MPI_Comm_set_info: local.
    pub fn set_hints(&self, comm: CommKey, hints: Hints) -> Result<(), Error> {
        self.engine_mut().set_hints(comm, hints)
    }

    /// MPI_Comm_split; no color is MPI_UNDEFINED.
    pub fn split(&self, comm: CommKey, color: Option<u32>, key: i32) -> Creation<N, R> {
        self.create_by(comm, |engine| engine.split(comm, color, key))
    }

    /// MPI_Comm_create.
    pub fn create(&self, comm: CommKey, group: &Group) -> Creation<N, R> {
        self.create_by(comm, |engine| engine.create(comm, group))
    }

    /// MPI_Comm_create_group.
    pub fn create_group(&self, comm: CommKey, group: &Group, tag: Tag) -> Creation<N, R> {
        self.create_by(comm, |engine| engine.create_group(comm, group, tag))
    }

    /// MPI_Intercomm_create. `other`: at the leader, the peer communicator and the rank of the other leader there.
    pub fn create_inter(
        &self,
        comm: CommKey,
        leader: Rank,
        other: Option<(CommKey, Rank)>,
        tag: Tag,
    ) -> Creation<N, R> {
        self.create_by(comm, |engine| engine.create_inter(comm, leader, other.map(Ok), tag))
    }

    /// MPI_Intercomm_merge.
    pub fn merge(&self, comm: CommKey, is_high: bool) -> Creation<N, R> {
        self.create_by(comm, |engine| engine.merge(comm, is_high))
    }

    /// MPIX_Comm_revoke.
    pub fn revoke(&self, comm: CommKey) -> Result<(), Error> {
        let revoked = self.engine_mut().revoke(comm);
        self.wake();
        revoked
    }

    /// MPIX_Comm_iagree on the 4 bytes of `flag`, little-endian.
    pub fn agree(&self, comm: CommKey, flag: &Arc<Buffer>) -> Operation<N, R> {
        let flag = UserMemory::of_buffer(flag);
        self.begin(comm, |engine| engine.agree(comm, flag).map(Started::Running))
    }

    /// MPIX_Comm_iagree_failed: `into` gets the group of the failed members.
    pub fn agree_failed(&self, comm: CommKey, into: &AgreedGroup) -> Operation<N, R> {
        let into = Arc::clone(into);
        self.begin(comm, |engine| engine.agree_failed(comm, into).map(Started::Running))
    }

    /// MPIX_Comm_shrink.
    pub fn shrink(&self, comm: CommKey) -> Creation<N, R> {
        self.create_by(comm, |engine| engine.shrink(comm, None).map(Started::Running))
    }

    /// MPI_Comm_free: local.
    pub fn free(&self, comm: CommKey) -> Result<(), Error> {
        self.engine_mut().free(comm)
    }

    /// MPI_Comm_get_failed. Takes notices, which may end operations of other tasks.
    pub fn failed(&self, comm: CommKey) -> Result<Vec<Rank>, Error> {
        let failed = self.engine_mut().failed(comm);
        self.wake();
        failed
    }

    /// MPI_Comm_ack_failed of the first `at_most` failures; `None`: of all that are published.
    pub fn acknowledge(&self, comm: CommKey, at_most: Option<u32>) -> Result<u32, Error> {
        let count = self.engine_mut().acknowledge(comm, at_most);
        self.wake();
        count
    }

    /// MPI_Finalize: waits until this process has nothing to send.
    pub async fn finish(&self) {
        core::future::poll_fn(|context| {
            let finished = self.engine_mut().finish();
            if self.engine().is_flushing() {
                context.waker().wake_by_ref();
            }
            if finished { Poll::Ready(()) } else { self.wait(context) }
        })
        .await
    }

    /// Waits until a condition holds. It is looked at again after each progress with an event.
    pub async fn wait_until(&self, mut holds: impl FnMut() -> bool) {
        core::future::poll_fn(|context| if holds() { Poll::Ready(()) } else { self.wait(context) }).await
    }

    fn begin(
        &self,
        comm: CommKey,
        start: impl FnOnce(&mut Engine<N, R>) -> Result<Started, Error>,
    ) -> Operation<N, R> {
        let started = start(&mut self.engine_mut());
        // The start of an operation may end another: a send to this process, or a receive of a message that has arrived.
        self.wake();
        let (handle, result) = match started {
            Ok(Started::Running(request)) => (RequestHandle::Request(request), None),
            Ok(Started::Done(Status::EMPTY)) => (RequestHandle::EndedAtStart, None),
            Ok(Started::Done(status)) => match self.engine_mut().add_ended_at_start(comm, status) {
                Ok(request) => (RequestHandle::Request(request), None),
                Err(error) => (RequestHandle::Null, Some(Err(error))),
            },
            Err(error) => (RequestHandle::Null, Some(Err(error))),
        };
        Operation { mpi: self.clone(), handle, result }
    }

    fn block<W: Wait<N, R>>(
        &self,
        start: impl FnOnce(&mut Engine<N, R>) -> Result<W, Error>,
    ) -> BlockingCall<N, R, W> {
        let wait = start(&mut self.engine_mut());
        self.wake();
        BlockingCall { mpi: self.clone(), wait: Some(wait) }
    }

    fn create_by(
        &self,
        comm: CommKey,
        start: impl FnOnce(&mut Engine<N, R>) -> Result<Started, Error>,
    ) -> Creation<N, R> {
        self.block(|engine| {
            let request = match start(engine)? {
                Started::Running(request) => request,
                Started::Done(status) => engine.add_ended_at_start(comm, status)?,
            };
            Ok(CommunicatorCreation::new(request))
        })
    }

    /// Progress at the time of the last progress: the calls that test begin with it.
    fn progress_now(&self) {
        let now = self.engine().now();
        self.progress(now);
    }

    /// Calls `work` on the engine. If this made progress, wakes the futures that wait, since operations of other tasks may have ended.
    fn wake_if_progressed<T>(&self, work: impl FnOnce(&mut Engine<N, R>) -> T) -> T {
        let mut engine = self.engine_mut();
        let before = engine.repeated_progress();
        let result = work(&mut engine);
        let progressed = engine.repeated_progress() != before;
        drop(engine);
        if progressed {
            self.wake();
        }
        result
    }

    /// Polls a call. The first poll after a timed check is a look.
    fn poll<T>(
        &self,
        poll: impl FnOnce(&mut Engine<N, R>, u32) -> Option<Result<T, Error>>,
    ) -> Option<Result<T, Error>> {
        let (looks, tasks) = (self.0.looks.take(), self.0.tasks.get());
        self.wake_if_progressed(|engine| {
            if looks {
                engine.begin_look();
            }
            let result = poll(engine, tasks);
            if looks {
                engine.end_look(result.is_none(), engine.now(), || Some(tasks));
            }
            if result.is_some() {
                engine.end_wait();
            }
            result
        })
    }

    fn wake(&self) {
        self.0.waiting.borrow_mut().drain(..).for_each(Waker::wake);
    }

    fn wait<T>(&self, context: &Context<'_>) -> Poll<T> {
        let mut waiting = self.0.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}

/// An operation, as a request of a C program: awaiting it is MPI_Wait. Awaited again, it gives the same result.
#[must_use = "an operation that is dropped is cancelled or detached"]
#[derive(Debug)]
pub struct Operation<N: Rdma, R: Runtime> {
    mpi: Mpi<N, R>,
    handle: RequestHandle,
    /// The result, once the handle is null.
    result: Option<Result<Status, Error>>,
}

impl<N: Rdma, R: Runtime> Operation<N, R> {
    /// MPI_Test.
    pub fn test(&mut self) -> Option<Result<Status, Error>> {
        let mpi = self.mpi.clone();
        let completed = mpi.test_for(WaitMode::Any, core::slice::from_mut(self));
        self.outcome(completed.result)
    }

    /// The error of an operation that could not be started, until it is awaited.
    pub fn start_error(&self) -> Option<Error> {
        match self.handle {
            RequestHandle::Null => self.result.and_then(Result::err),
            RequestHandle::EndedAtStart | RequestHandle::Request(_) => None,
        }
    }

    /// MPI_Cancel, for a receive. The operation must still be awaited; its status says whether it was cancelled.
    pub fn cancel(&mut self) {
        if let RequestHandle::Request(request) = self.handle {
            self.mpi.engine_mut().cancel(request);
        }
    }

    /// MPI_Request_get_status: the result, if the operation has ended; the request is not released.
    pub fn get_status(&self) -> Option<Result<Status, Error>> {
        match self.handle {
            RequestHandle::Null => self.result,
            RequestHandle::EndedAtStart => Some(Ok(Status::EMPTY)),
            RequestHandle::Request(request) => match self.mpi.engine().poll(request) {
                State::Done(result) => Some(result),
                State::Running | State::PendingFailure => None,
            },
        }
    }

    /// Whether the request is null: the operation has ended, and a call has returned its result.
    pub fn is_null(&self) -> bool {
        self.handle == RequestHandle::Null
    }

    /// The result of a call for this operation alone.
    fn outcome(&self, result: Result<CompletionResult, Error>) -> Option<Result<Status, Error>> {
        match result {
            Err(error) => Some(Err(error)),
            Ok(CompletionResult { first_error: Some((_, error)), .. }) => Some(Err(error)),
            Ok(_) => self.result,
        }
    }
}

impl<N: Rdma, R: Runtime> Future for Operation<N, R> {
    type Output = Result<Status, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.result {
            return Poll::Ready(result);
        }
        let mpi = self.mpi.clone();
        let handles = [self.handle];
        let mut statuses = Vec::new();
        let mut collector =
            Collector { operations: core::slice::from_mut(&mut *self), statuses: &mut statuses };
        let result = mpi.poll(|engine, tasks| {
            CompletionCall::new(WaitMode::Any).poll(engine, &handles, || Some(tasks), &mut collector)
        });
        match result.and_then(|result| self.outcome(result)) {
            Some(result) => Poll::Ready(result),
            None => mpi.wait(context),
        }
    }
}

impl<N: Rdma, R: Runtime> Drop for Operation<N, R> {
    fn drop(&mut self) {
        if let RequestHandle::Request(request) = self.handle {
            BlockingOperation::new(request).give_up(&mut self.mpi.engine_mut());
        }
    }
}

/// What a call for several operations reports.
#[derive(Clone, PartialEq, Debug)]
pub struct CompletionReport {
    /// What the call found; `Err`: a request does not exist.
    pub result: Result<CompletionResult, Error>,
    /// The statuses, in the order in which the call wrote them.
    pub statuses: Vec<WrittenStatus>,
}

/// One status of a call for several operations.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WrittenStatus {
    /// The index of the operation.
    pub index: usize,
    /// The result of the operation.
    pub result: Result<Status, Error>,
    /// Whether MPI_ERROR was written.
    pub with_error: bool,
}

/// Collects the statuses that one call writes.
struct Collector<'a, N: Rdma, R: Runtime> {
    operations: &'a mut [Operation<N, R>],
    statuses: &'a mut Vec<WrittenStatus>,
}

impl<N: Rdma, R: Runtime> OutArguments for Collector<'_, N, R> {
    fn completed(&mut self, index: usize) {
        self.operations[index].handle = RequestHandle::Null;
    }

    fn status(&mut self, position: usize, index: usize, result: Result<Status, Error>, with_error: bool) {
        assert_eq!(position, self.statuses.len(), "statuses are written in order");
        self.statuses.push(WrittenStatus { index, result, with_error });
        if self.operations[index].is_null() {
            self.operations[index].result.get_or_insert(result);
        }
    }

    fn success(&mut self, position: usize) {
        self.statuses[position].with_error = true;
    }

    fn index(&mut self, position: usize, index: usize) {
        assert_eq!(
            self.statuses[position].index, index,
            "an index belongs to the status at the same position"
        );
    }
}

/// What a blocking call waits for.
pub trait Wait<N: Rdma, R: Runtime>: Unpin {
    /// The result of the call.
    type Output;
    /// Polls the call after progress.
    fn poll(&mut self, engine: &mut Engine<N, R>, tasks: u32) -> Option<Result<Self::Output, Error>>;
    /// Ends the wait before the call has ended.
    fn give_up(&self, engine: &mut Engine<N, R>);
}

impl<N: Rdma, R: Runtime> Wait<N, R> for BlockingOperation {
    type Output = Status;

    fn poll(&mut self, engine: &mut Engine<N, R>, tasks: u32) -> Option<Result<Status, Error>> {
        BlockingOperation::poll(self, engine, || Some(tasks))
    }

    fn give_up(&self, engine: &mut Engine<N, R>) {
        BlockingOperation::give_up(self, engine);
    }
}

impl<N: Rdma, R: Runtime> Wait<N, R> for Sendrecv {
    type Output = Exchanged;

    fn poll(&mut self, engine: &mut Engine<N, R>, tasks: u32) -> Option<Result<Exchanged, Error>> {
        Sendrecv::poll(self, engine, || Some(tasks)).map(Ok)
    }

    fn give_up(&self, engine: &mut Engine<N, R>) {
        Sendrecv::give_up(self, engine);
    }
}

impl<N: Rdma, R: Runtime> Wait<N, R> for Probe {
    type Output = Status;

    fn poll(&mut self, engine: &mut Engine<N, R>, tasks: u32) -> Option<Result<Status, Error>> {
        Probe::poll(self, engine, || Some(tasks))
    }

    fn give_up(&self, _engine: &mut Engine<N, R>) {}
}

impl<N: Rdma, R: Runtime> Wait<N, R> for CommunicatorCreation {
    type Output = Option<CommKey>;

    fn poll(&mut self, engine: &mut Engine<N, R>, _tasks: u32) -> Option<Result<Option<CommKey>, Error>> {
        CommunicatorCreation::poll(self, engine)
    }

    fn give_up(&self, engine: &mut Engine<N, R>) {
        CommunicatorCreation::give_up(self, engine);
    }
}

/// A blocking call. Dropping it ends the wait: its operations are cancelled, or go on and are removed when they end.
#[must_use = "a call that is dropped does not wait"]
#[derive(Debug)]
pub struct BlockingCall<N: Rdma, R: Runtime, W: Wait<N, R>> {
    mpi: Mpi<N, R>,
    /// `Err`: an argument is invalid. `None`: the call is over.
    wait: Option<Result<W, Error>>,
}

/// A creation of a communicator; its result is `None` if this process is not a member of it.
pub type Creation<N, R> = BlockingCall<N, R, CommunicatorCreation>;

impl<N: Rdma, R: Runtime, W: Wait<N, R>> Future for BlockingCall<N, R, W> {
    type Output = Result<W::Output, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let BlockingCall { mpi, wait } = &mut *self;
        let result = match wait.as_mut().expect("a call that is over is not awaited again") {
            Ok(wait) => mpi.poll(|engine, tasks| wait.poll(engine, tasks)),
            Err(error) => Some(Err(*error)),
        };
        let Some(result) = result else { return mpi.wait(context) };
        *wait = None;
        Poll::Ready(result)
    }
}

impl<N: Rdma, R: Runtime, W: Wait<N, R>> Drop for BlockingCall<N, R, W> {
    fn drop(&mut self) {
        if let Some(Ok(wait)) = &self.wait {
            wait.give_up(&mut self.mpi.engine_mut());
        }
    }
}

/// Starts a receive as a blocking receive of a C program does, but polls the ring only once.
fn poll_then_post<N: Rdma, R: Runtime>(
    engine: &mut Engine<N, R>,
    comm: CommKey,
    from: Source,
    tag: TagSelector,
    data: &Arc<Buffer>,
) -> Result<Started, Error> {
    let mut polling = engine.begin_polling(comm, from, tag, bytes(data))?;
    match engine.poll_once(&mut polling) {
        Some(started) => started,
        None => engine.post(polling),
    }
}

fn bytes(buffer: &Arc<Buffer>) -> TypedBuffer {
    TypedBuffer::bytes(UserMemory::of_buffer(buffer))
}
