// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What blocking calls wait for: one operation without a handle, a probe, the making of a communicator. Each is a value that
//! is polled after progress; who polls it (`world`'s waiter, a future) decides how to wait.
//!
//! A blocking call leaves nothing behind: a receive from any source with a pending failure is cancelled and fails with
//! PROC_FAILED (row PP9), after the engine has made progress once more, so that what has come already is received first
//! (row PP13).

use crate::engine::unsatisfiable::ends_the_wait;
use crate::{CommKey, Detail, Engine, Error, ErrorClass, Request, State};
use mend_base::{Source, TagSelector};
use mend_pml::Status;
use mend_runtime::Runtime;
use mend_transport::Btl;

/// An operation that a blocking call waits for.
#[derive(Clone, Copy, Debug)]
pub struct Blocking {
    request: Request,
    /// It was cancelled because of a pending failure.
    cancelled: bool,
}

impl Blocking {
    /// Waits for `request`, which nobody else knows.
    #[inline]
    pub fn new(request: Request) -> Self {
        Blocking { request, cancelled: false }
    }

    /// Nobody waits any more: a receive that nothing has matched is cancelled, everything else goes on and vanishes.
    pub(crate) fn give_up<N: Btl, R: Runtime>(&self, engine: &mut Engine<N, R>) {
        engine.cancel(self.request);
        engine.detach(self.request);
    }

    /// Which operation.
    pub(crate) fn request(&self) -> Request {
        self.request
    }

    // Hot: per poll.
    /// How the operation ended; it is released then. `threads`: as [`Completion::poll`](crate::Completion::poll) asks.
    #[inline]
    pub fn poll<N: Btl, R: Runtime>(
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
    fn end_unsatisfiable<N: Btl, R: Runtime>(
        &self,
        engine: &mut Engine<N, R>,
        threads: impl FnOnce() -> Option<u32>,
    ) -> State {
        if ends_the_wait(threads()) {
            engine.end_unsatisfiable(self.request);
        }
        engine.poll(self.request)
    }

    /// Row PP9.
    #[cold]
    fn end_pending_failure<N: Btl, R: Runtime>(&mut self, engine: &mut Engine<N, R>) -> State {
        engine.progress_again();
        if engine.poll(self.request) == State::PendingFailure {
            mend_base::reach!("mpi.blocking: a pending failure ends a receive");
            self.cancelled = true;
            engine.cancel(self.request);
        } else {
            mend_base::reach!("mpi.blocking: it came with the progress before the answer");
        }
        engine.poll(self.request)
    }
}

/// What a receive from any source fails with that was cancelled because of a pending failure: it names the failed rank.
#[cold]
fn proc_failed<N: Btl, R: Runtime>(engine: &Engine<N, R>, request: Request) -> Error {
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
    /// For a message that such a receive would take.
    pub fn new(comm: CommKey, from: Source, tag: TagSelector) -> Self {
        Probe { comm, from, tag }
    }

    /// MPI_Probe: the message, once one is there, or why none will be (row PP14).
    pub fn poll<N: Btl, R: Runtime>(
        &mut self,
        engine: &mut Engine<N, R>,
        threads: impl FnOnce() -> Option<u32>,
    ) -> Option<Result<Status, Error>> {
        match self.find(engine) {
            // What has come already is found first (row PP13).
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

    /// MPI_Iprobe. That no message will come from a rank that has finalized is no error where nobody waits for it.
    pub fn test<N: Btl, R: Runtime>(&self, engine: &mut Engine<N, R>) -> Result<Option<Status>, Error> {
        match self.find(engine) {
            Err(error) if matches!(error.detail, Detail::PeerLeft(_)) => Ok(None),
            found => found,
        }
    }

    fn find<N: Btl, R: Runtime>(&self, engine: &mut Engine<N, R>) -> Result<Option<Status>, Error> {
        engine.probe(self.comm, self.from, self.tag)
    }
}

/// The making of a communicator.
#[derive(Clone, Copy, Debug)]
pub struct CommunicatorCreation(Request);

impl CommunicatorCreation {
    /// `request`: what `dup`, `split` or `create` started.
    pub fn new(request: Request) -> Self {
        CommunicatorCreation(request)
    }

    /// Nobody waits any more; the making goes on, since the other members wait for this one.
    pub(crate) fn give_up<N: Btl, R: Runtime>(&self, engine: &mut Engine<N, R>) {
        engine.detach(self.0);
    }

    /// What was made; `None` within: this process is no member of it. The request is released then.
    pub fn poll<N: Btl, R: Runtime>(
        &mut self,
        engine: &mut Engine<N, R>,
    ) -> Option<Result<Option<CommKey>, Error>> {
        let State::Done(result) = engine.poll(self.0) else { return None };
        let created = engine.created(self.0);
        engine.release(self.0);
        Some(result.map(|_| created))
    }
}
