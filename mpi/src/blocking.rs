// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocking calls: one operation without a handle, a probe, the creation of a communicator. Each is a value that is polled after
//! progress. Its caller (`world`'s waiter, a future) decides how to wait.
//!
//! When a blocking call returns, its operation has ended: a receive from any source with a pending failure is cancelled and fails
//! with PROC_FAILED (row PP9). Before that the engine makes progress once more, so that a message that has arrived is received
//! first (row PP13).

use crate::engine::unsatisfiable::ends_the_wait;
use crate::{CommKey, Detail, Engine, Error, ErrorClass, Request, State};
use mend_base::{Source, TagSelector};
use mend_pml::Status;
use mend_runtime::Runtime;
use mend_transport::Rdma;

/// An operation that a blocking call waits for.
#[derive(Clone, Copy, Debug)]
pub struct BlockingOperation {
    request: Request,
    /// The receive was cancelled because of its pending failure.
    cancelled: bool,
}

impl BlockingOperation {
    /// Waits for `request`, which the caller must not use elsewhere.
    #[inline]
    pub fn new(request: Request) -> Self {
        BlockingOperation { request, cancelled: false }
    }

    /// Ends the wait before the operation ends: a receive that no message has matched is cancelled, and every other operation goes on
    /// and is removed when it ends.
    pub(crate) fn give_up<N: Rdma, R: Runtime>(&self, engine: &mut Engine<N, R>) {
        engine.cancel(self.request);
        engine.free_request(self.request);
    }

    /// The operation that is waited for.
    pub(crate) fn request(&self) -> Request {
        self.request
    }

    // Hot: per poll.
    /// The result of the operation, which is released, once it has ended. `threads`: as for
    /// [`CompletionCall::poll`](crate::CompletionCall::poll).
    #[inline]
    pub fn poll<N: Rdma, R: Runtime>(
        &mut self,
        engine: &mut Engine<N, R>,
        threads: impl FnOnce() -> Option<u32>,
    ) -> Option<Result<Status, Error>> {
        let mut state = engine.poll(self.request);
        if state == State::PendingFailure {
            state = self.end_pending_failure(engine);
        } else if state == State::Running && engine.is_unsatisfiable(self.request) {
            state = self.end_unsatisfiable(engine, threads);
        }
        let State::Done(result) = state else { return None };
        let given_up = self.cancelled && result.is_ok_and(|status| status.cancelled);
        let result = if given_up { Err(proc_failed(engine, self.request)) } else { result };
        engine.release(self.request);
        Some(result)
    }

    #[cold]
    fn end_unsatisfiable<N: Rdma, R: Runtime>(
        &self,
        engine: &mut Engine<N, R>,
        threads: impl FnOnce() -> Option<u32>,
    ) -> State {
        if ends_the_wait(threads()) {
            engine.end_unsatisfiable(self.request);
        }
        engine.poll(self.request)
    }

    /// Cancels the receive, unless a message has arrived for it (row PP9).
    #[cold]
    fn end_pending_failure<N: Rdma, R: Runtime>(&mut self, engine: &mut Engine<N, R>) -> State {
        engine.progress_again();
        if engine.poll(self.request) == State::PendingFailure {
            mend_base::reach!("mpi.blocking: a pending failure ends a receive");
            self.cancelled = true;
            engine.cancel(self.request);
        } else {
            mend_base::reach!("mpi.blocking: progress before the answer ended a pending failure");
        }
        engine.poll(self.request)
    }
}

/// The error of a receive from any source that was cancelled because of its pending failure. It names the failed rank.
#[cold]
fn proc_failed<N: Rdma, R: Runtime>(engine: &Engine<N, R>, request: Request) -> Error {
    match engine.pending_failure(request).detail {
        Detail::SenderMayHaveFailed(Some(rank)) => Detail::ProcFailed(rank).into(),
        detail => Error { class: ErrorClass::ProcFailed, detail },
    }
}

/// A probe.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    comm: CommKey,
    from: Source,
    tag: TagSelector,
}

impl Probe {
    /// Probes for a message that a receive with these arguments would match.
    pub fn new(comm: CommKey, from: Source, tag: TagSelector) -> Self {
        Probe { comm, from, tag }
    }

    /// MPI_Probe: the status of the message, once there is one, or the reason why none will arrive (row PP14).
    pub fn poll<N: Rdma, R: Runtime>(
        &mut self,
        engine: &mut Engine<N, R>,
        threads: impl FnOnce() -> Option<u32>,
    ) -> Option<Result<Status, Error>> {
        match self.find(engine) {
            // A message that has arrived is found first (row PP13).
            Err(_) => {
                engine.progress_again();
                self.find(engine).transpose()
            }
            Ok(None) => {
                let error = engine.unsatisfiable_probe(self.comm, self.from)?;
                ends_the_wait(threads()).then_some(Err(error))
            }
            Ok(found) => found.map(Ok),
        }
    }

    /// MPI_Iprobe. A source that has finalized is not an error here, since the call does not wait for a message.
    pub fn test<N: Rdma, R: Runtime>(&self, engine: &mut Engine<N, R>) -> Result<Option<Status>, Error> {
        match self.find(engine) {
            Err(error) if matches!(error.detail, Detail::PeerLeft(_)) => Ok(None),
            found => found,
        }
    }

    fn find<N: Rdma, R: Runtime>(&self, engine: &mut Engine<N, R>) -> Result<Option<Status>, Error> {
        engine.probe(self.comm, self.from, self.tag)
    }
}

/// The creation of a communicator.
#[derive(Clone, Copy, Debug)]
pub struct CommunicatorCreation(Request);

impl CommunicatorCreation {
    /// Waits for `request`, which `dup`, `split` or `create` has started.
    pub fn new(request: Request) -> Self {
        CommunicatorCreation(request)
    }

    /// Ends the wait before the creation ends. The creation goes on, since the other members wait for this one.
    pub(crate) fn give_up<N: Rdma, R: Runtime>(&self, engine: &mut Engine<N, R>) {
        engine.free_request(self.0);
    }

    /// The communicator, once it is created; `Ok(None)`: this process is not a member of it. Releases the request.
    pub fn poll<N: Rdma, R: Runtime>(
        &mut self,
        engine: &mut Engine<N, R>,
    ) -> Option<Result<Option<CommKey>, Error>> {
        let State::Done(result) = engine.poll(self.0) else { return None };
        let created = engine.created(self.0);
        engine.release(self.0);
        Some(result.map(|_| created))
    }
}
