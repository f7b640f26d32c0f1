// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The eight calls that complete requests, by one table: when each returns, and of which requests it reports the result (rows
//! WT1-WT9).
//!
//! | call                    | returns when                                                    | reports                                  |
//! |-------------------------|-----------------------------------------------------------------|------------------------------------------|
//! | Wait, Waitany           | one is complete or has a pending failure                        | one: a successful one before a failed one |
//! | Waitall                 | all are complete, or one ended with a fault-tolerance error or has a pending failure | all; those that go on with PENDING      |
//! | Waitsome                | one is complete or has a pending failure                        | all of which this is true                |
//! | Test, -any, -all, -some | at once                                                         | as the waiting call, or "not yet"        |
//!
//! A receive from any source has a *pending failure* when a possible sender has failed and the failure is not acknowledged. What
//! the call reports of it is PROC_FAILED_PENDING, and the request is not changed. Before that the engine makes progress once:
//! messages that have arrived are received first (row PP13), and a program that calls in a loop makes progress.
//!
//! The caller passes the requests and [`OutArguments`], into which each status, each index and each handle that becomes null is
//! written once, in the order of the requests. MPI_ERROR of a status is written only if the call returns MPI_ERR_IN_STATUS
//! (MPI-5.0 §3.2.5). The error handler is called for the failed request with the lowest index.

use crate::engine::unsatisfiable::ends_the_wait;
use crate::{CommKey, Detail, Engine, Error, ErrorClass, RequestHandle, State};
use mend_pml::Status;
use mend_runtime::Runtime;
use mend_transport::Rdma;

/// For which of its requests a call waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitMode {
    /// Waitall, Testall.
    All,
    /// Wait, Test, Waitany, Testany.
    Any,
    /// Waitsome, Testsome.
    Some,
}

/// The requests of which a call has reported the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// None: the call must wait on, or returns `flag = false`.
    NotYet,
    /// Every request is null.
    Nothing,
    /// All.
    All {
        /// False: some requests are not complete, and go on.
        complete: bool,
    },
    /// One.
    One {
        /// Its index.
        index: usize,
        /// False: the request has a pending failure, and goes on.
        complete: bool,
    },
    /// Some.
    Several {
        /// The number of requests that are reported.
        count: usize,
    },
}

/// The result of a call, in addition to what it wrote into [`OutArguments`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CompletionResult {
    /// The requests that are reported.
    pub found: Found,
    /// The error of the failed request with the lowest index, and this index: the error handler is called for it.
    pub first_error: Option<(usize, Error)>,
    /// The communicator of the failed request, whose error handler is called; `None`: the request does not exist.
    pub communicator: Option<CommKey>,
}

impl CompletionResult {
    /// The class that the call returns. A call that reports several requests returns IN_STATUS, also if the program ignores the
    /// statuses (row WT6).
    pub fn returned(&self) -> ErrorClass {
        match (self.first_error, self.found) {
            (None, _) => ErrorClass::Success,
            (Some(_), Found::All { .. } | Found::Several { .. }) => ErrorClass::InStatus,
            (Some((_, error)), _) => error.class,
        }
    }
}

/// The OUT arguments of a call: the handles, statuses and indices of the program.
pub trait OutArguments {
    /// The request at `index` is complete and released: the handle of the program becomes null.
    fn completed(&mut self, index: usize);
    /// The status at `position` of the array of statuses is that of the request at `index`. `with_error`: whether its MPI_ERROR is
    /// written.
    fn status(&mut self, position: usize, index: usize, result: Result<Status, Error>, with_error: bool);
    /// The status at `position`, which was written without MPI_ERROR, gets MPI_SUCCESS as its MPI_ERROR.
    fn success(&mut self, position: usize);
    /// The request at `index` is written at `position` of the array of indices.
    fn index(&mut self, position: usize, index: usize);
}

/// A call that waits for requests, or tests them: one of the eight.
#[derive(Clone, Copy, Debug)]
pub struct CompletionCall {
    want: WaitMode,
    /// All requests before this index are null or complete, without an error.
    first: usize,
    /// The number of null ones among them.
    nulls: usize,
    polls: u32,
    /// Whether the engine knows from which peers the requests expect messages.
    expects_set: bool,
    /// [`Engine::notify_all_count`] at the last poll; `None` before the first poll.
    notified: Option<u32>,
}

/// A Waitall for at most this many requests polls all of them each time.
const ALWAYS_POLLED: usize = 16;

/// A Waitall for more requests polls all of them once every this many polls, and otherwise only the first that is active.
const POLLS_PER_SURVEY: u32 = 16;

impl CompletionCall {
    /// Waits for `want`.
    pub fn new(want: WaitMode) -> Self {
        CompletionCall { want, first: 0, nulls: 0, polls: 0, expects_set: false, notified: None }
    }

    // Hot: per poll.
    /// The result, once the call returns; `Err`: a request does not exist, and nothing was changed. `threads`: the number of threads of
    /// the program that may start operations; called for unsatisfiable receives only.
    pub fn poll<N: Rdma, R: Runtime>(
        &mut self,
        engine: &mut Engine<N, R>,
        requests: &[RequestHandle],
        threads: impl FnOnce() -> Option<u32>,
        out: &mut impl OutArguments,
    ) -> Option<Result<CompletionResult, Error>> {
        self.polls = self.polls.wrapping_add(1);
        if self.want == WaitMode::All && requests.len() > ALWAYS_POLLED {
            match self.first_states(engine, requests) {
                FirstStates::Active => {
                    self.expect(engine, requests);
                    return None;
                }
                FirstStates::AllComplete => {
                    let counts = StateCounts { null: self.nulls, ..StateCounts::default() };
                    return Some(Ok(counts.report(self.want, engine, requests, out)));
                }
                FirstStates::Unknown => {}
            }
        }
        // Most calls wait for one request. To poll it costs less than to count states.
        match single(requests).map(|one| handle_state(engine, one)) {
            Some(HandleState::Active) => {}
            Some(HandleState::Complete(Ok(status))) => {
                return Some(Ok(report_single(self.want, engine, requests[0], status, out)));
            }
            _ => {
                let result = test(self.want, engine, requests, out);
                if !is_not_yet(&result) {
                    return Some(result);
                }
            }
        }
        if engine.some_may_be_unsatisfiable() && end_unsatisfiable(self.want, engine, requests, threads) {
            let result = test(self.want, engine, requests, out);
            return if is_not_yet(&result) { None } else { Some(result) };
        }
        if engine.is_looking() {
            self.note_alternatives(engine, requests);
        }
        self.expect(engine, requests);
        None
    }

    /// The waiter looks at what the call waits for: whether one of several requests may end it.
    #[cold]
    fn note_alternatives<N: Rdma, R: Runtime>(&self, engine: &Engine<N, R>, requests: &[RequestHandle]) {
        let active = requests.iter().filter(|&&request| handle_state(engine, request) == HandleState::Active);
        if self.want != WaitMode::All && active.count() > 1 {
            engine.note_alternatives();
        }
    }

    /// From the second poll on, [`Engine::is_ready`] polls the rings of the peers from which the requests expect messages. The first call
    /// of progress polls all rings, and often completes the call.
    fn expect<N: Rdma, R: Runtime>(&mut self, engine: &mut Engine<N, R>, requests: &[RequestHandle]) {
        if self.polls > 1 && !self.expects_set {
            self.expects_set = true;
            engine.expect_requests(requests);
        }
    }

    /// Polls the requests of a Waitall up to the first that is active. All requests are polled instead at every
    /// [`POLLS_PER_SURVEY`]th poll, and after every event that may end many requests with an error (the end of a peer, a revocation, an
    /// operation that failed), because an error of a later request must end the call too, and a blocked thread is woken only once
    /// for it. If a receive may be unsatisfiable, all requests are polled every time,
    /// since only this process can change that.
    fn first_states<N: Rdma, R: Runtime>(
        &mut self,
        engine: &Engine<N, R>,
        requests: &[RequestHandle],
    ) -> FirstStates {
        let notified = engine.notify_all_count();
        let changed = self.notified.replace(notified) != Some(notified);
        let is_due = self.polls.is_multiple_of(POLLS_PER_SURVEY);
        if changed || is_due || engine.is_looking() || engine.some_may_be_unsatisfiable() {
            return FirstStates::Unknown;
        }
        while let Some(&request) = requests.get(self.first) {
            match handle_state(engine, request) {
                HandleState::Active => return FirstStates::Active,
                HandleState::Null => self.nulls += 1,
                HandleState::Complete(Ok(_)) => {}
                HandleState::Complete(Err(_)) | HandleState::PendingFailure(_) | HandleState::Stale => {
                    return FirstStates::Unknown;
                }
            }
            self.first += 1;
        }
        FirstStates::AllComplete
    }
}

/// The states of the first requests of a Waitall.
enum FirstStates {
    /// One is active, and those before it are null or complete without an error.
    Active,
    /// All requests are null or complete without an error.
    AllComplete,
    /// All requests must be polled.
    Unknown,
}

// Hot: per poll.
/// The calls that test: polls the requests once. `Err`: a request does not exist, and nothing was changed.
pub fn test<N: Rdma, R: Runtime>(
    want: WaitMode,
    engine: &mut Engine<N, R>,
    requests: &[RequestHandle],
    out: &mut impl OutArguments,
) -> Result<CompletionResult, Error> {
    if let Some(one) = single(requests)
        && let HandleState::Complete(Ok(status)) = handle_state(engine, one)
    {
        return Ok(report_single(want, engine, one, status, out));
    }
    let mut counts = StateCounts::of(engine, requests)?;
    if counts.pending > 0 {
        engine.progress_again();
        counts = StateCounts::of(engine, requests)?;
    }
    Ok(counts.report(want, engine, requests, out))
}

fn is_not_yet(result: &Result<CompletionResult, Error>) -> bool {
    matches!(result, Ok(CompletionResult { found: Found::NotYet, .. }))
}

/// The state of one request of a call.
#[derive(Clone, Copy, PartialEq, Debug)]
enum HandleState {
    Null,
    Active,
    PendingFailure(Error),
    Complete(Result<Status, Error>),
    /// The request does not exist.
    Stale,
}

// Hot: per poll.
fn handle_state<N: Rdma, R: Runtime>(engine: &Engine<N, R>, request: RequestHandle) -> HandleState {
    let request = match request {
        RequestHandle::Null => return HandleState::Null,
        RequestHandle::EndedAtStart => return HandleState::Complete(Ok(Status::EMPTY)),
        RequestHandle::Request(request) => request,
    };
    match engine.poll(request) {
        State::Running => HandleState::Active,
        State::PendingFailure => HandleState::PendingFailure(engine.pending_failure(request)),
        State::Done(Err(error)) if error.detail == Detail::NoSuchRequest => HandleState::Stale,
        State::Done(result) => HandleState::Complete(result),
    }
}

// Hot: per poll.
/// The request of a call for one request.
#[inline]
fn single(requests: &[RequestHandle]) -> Option<RequestHandle> {
    if let [one] = *requests { Some(one) } else { None }
}

// Hot: per call.
/// Reports the one request of a call, which is complete without an error, as [`StateCounts::report`] would.
#[inline]
fn report_single<N: Rdma, R: Runtime>(
    want: WaitMode,
    engine: &mut Engine<N, R>,
    one: RequestHandle,
    status: Status,
    out: &mut impl OutArguments,
) -> CompletionResult {
    if let RequestHandle::Request(request) = one {
        engine.release(request);
    }
    out.completed(0);
    out.status(0, 0, Ok(status), false);
    let found = match want {
        WaitMode::All => Found::All { complete: true },
        WaitMode::Any => Found::One { index: 0, complete: true },
        WaitMode::Some => {
            out.index(0, 0);
            Found::Several { count: 1 }
        }
    };
    CompletionResult { found, first_error: None, communicator: None }
}

/// The number of requests of a call in each state.
#[derive(Clone, Copy, Default)]
struct StateCounts {
    null: usize,
    active: usize,
    pending: usize,
    failed: usize,
    /// Whether some ended with a fault-tolerance error.
    fault: bool,
}

impl StateCounts {
    fn of<N: Rdma, R: Runtime>(
        engine: &Engine<N, R>,
        requests: &[RequestHandle],
    ) -> Result<StateCounts, Error> {
        let mut counts = StateCounts::default();
        for &request in requests {
            match handle_state(engine, request) {
                HandleState::Null => counts.null += 1,
                HandleState::Active => counts.active += 1,
                HandleState::PendingFailure(_) => counts.pending += 1,
                HandleState::Complete(Ok(_)) => {}
                HandleState::Complete(Err(error)) => {
                    counts.failed += 1;
                    counts.fault |= error.class.is_fault_tolerance_error();
                }
                HandleState::Stale => return Err(Error::of(Detail::NoSuchRequest)),
            }
        }
        Ok(counts)
    }

    fn report<N: Rdma, R: Runtime>(
        self,
        want: WaitMode,
        engine: &mut Engine<N, R>,
        requests: &[RequestHandle],
        out: &mut impl OutArguments,
    ) -> CompletionResult {
        let with_error = self.failed + self.pending > 0;
        let mut writer =
            Writer { engine, requests, out, with_error, position: 0, failure: None, communicator: None };
        let found = if self.null == requests.len() {
            if want == WaitMode::All {
                (0..requests.len()).for_each(|index| writer.empty(index));
            }
            Found::Nothing
        } else {
            match want {
                // Row WT5: a wait for the other requests might never end.
                WaitMode::All if self.active + self.pending == 0 || self.fault || self.pending > 0 => {
                    (0..requests.len()).for_each(|index| writer.every(index));
                    Found::All { complete: self.active + self.pending == 0 }
                }
                WaitMode::Any if self.active + self.null < requests.len() => writer.best(),
                WaitMode::Some if self.active + self.null < requests.len() => {
                    (0..requests.len()).for_each(|index| writer.ready(index));
                    Found::Several { count: writer.position }
                }
                WaitMode::All | WaitMode::Any | WaitMode::Some => Found::NotYet,
            }
        };
        CompletionResult { found, first_error: writer.failure, communicator: writer.communicator }
    }
}

/// Writes the OUT arguments of one call, in the order of its requests.
struct Writer<'a, N: Rdma, R: Runtime, A> {
    engine: &'a mut Engine<N, R>,
    requests: &'a [RequestHandle],
    out: &'a mut A,
    with_error: bool,
    position: usize,
    failure: Option<(usize, Error)>,
    communicator: Option<CommKey>,
}

impl<N: Rdma, R: Runtime, A: OutArguments> Writer<'_, N, R, A> {
    fn empty(&mut self, index: usize) {
        self.out.status(index, index, Ok(Status::EMPTY), self.with_error);
    }

    /// Waitall: writes a status for the request, whatever its state is.
    fn every(&mut self, index: usize) {
        // Most sends end at their start. To report them here costs less than by their state.
        if self.requests[index] == RequestHandle::EndedAtStart {
            self.out.completed(index);
            return self.empty(index);
        }
        let result = match handle_state(self.engine, self.requests[index]) {
            HandleState::Null => return self.empty(index),
            HandleState::Stale => self.named_twice(index),
            HandleState::Active => Err(Error::plain(ErrorClass::Pending)),
            HandleState::PendingFailure(error) => self.note(index, Err(error)),
            HandleState::Complete(result) => self.complete(index, result),
        };
        self.out.status(index, index, result, self.with_error);
    }

    /// The request occurs twice in the call, which has completed it before.
    #[cold]
    fn named_twice(&mut self, index: usize) -> Result<Status, Error> {
        if !self.with_error {
            self.with_error = true;
            (0..index).for_each(|position| self.out.success(position));
        }
        self.note(index, Err(Error::of(Detail::NoSuchRequest)))
    }

    /// Waitsome: writes a status and an index for the request if it is complete or has a pending failure. An active request is not
    /// changed (row WT8).
    fn ready(&mut self, index: usize) {
        let result = match handle_state(self.engine, self.requests[index]) {
            HandleState::Null | HandleState::Active | HandleState::Stale => return,
            HandleState::PendingFailure(error) => self.note(index, Err(error)),
            HandleState::Complete(result) => self.complete(index, result),
        };
        self.out.status(self.position, index, result, self.with_error);
        self.out.index(self.position, index);
        self.position += 1;
    }

    /// Waitany: reports a successful request before a failed one, and this before one with a pending failure (row WT3); among
    /// equals the first. MPI_ERROR of its status is not written.
    fn best(&mut self) -> Found {
        let order = |state: &HandleState| match state {
            HandleState::Complete(Ok(_)) => 0,
            HandleState::Complete(Err(_)) => 1,
            HandleState::PendingFailure(_) => 2,
            HandleState::Null | HandleState::Active | HandleState::Stale => 3,
        };
        let states = self.requests.iter().map(|&request| handle_state(self.engine, request)).enumerate();
        match states.min_by_key(|(_, state)| order(state)) {
            Some((index, HandleState::Complete(result))) => {
                let result = self.complete(index, result);
                self.out.status(0, index, result, false);
                Found::One { index, complete: true }
            }
            Some((index, HandleState::PendingFailure(error))) => {
                let _ = self.note(index, Err(error));
                Found::One { index, complete: false }
            }
            _ => Found::NotYet,
        }
    }

    /// Completes the request with this result.
    fn complete(&mut self, index: usize, result: Result<Status, Error>) -> Result<Status, Error> {
        let result = self.note(index, result);
        if let RequestHandle::Request(request) = self.requests[index] {
            self.engine.release(request);
        }
        self.out.completed(index);
        result
    }

    /// Notes the first failure. To be called before the release of the request, after which its communicator is not known.
    #[inline]
    fn note(&mut self, index: usize, result: Result<Status, Error>) -> Result<Status, Error> {
        if let Err(error) = result {
            self.note_error(index, error);
        }
        result
    }

    #[cold]
    fn note_error(&mut self, index: usize, error: Error) {
        if self.failure.is_some() {
            return;
        }
        self.failure = Some((index, error));
        if let RequestHandle::Request(request) = self.requests[index] {
            self.communicator = self.engine.communicator_of(request);
        }
    }
}

/// Ends unsatisfiable receives, if no other thread can start a send. Waitall ends each of them. The other calls end one only if all
/// requests are unsatisfiable: else another request may end the call, and its caller may then send to itself.
#[cold]
fn end_unsatisfiable<N: Rdma, R: Runtime>(
    want: WaitMode,
    engine: &mut Engine<N, R>,
    requests: &[RequestHandle],
    threads: impl FnOnce() -> Option<u32>,
) -> bool {
    let mut named = requests.iter().filter_map(|handle| match *handle {
        RequestHandle::Request(request) => Some(request),
        RequestHandle::Null | RequestHandle::EndedAtStart => None,
    });
    let ends = match want {
        WaitMode::All => named.clone().any(|request| engine.is_unsatisfiable(request)),
        WaitMode::Any | WaitMode::Some => named.clone().all(|request| engine.is_unsatisfiable(request)),
    };
    if !ends || !ends_the_wait(threads()) {
        return false;
    }
    mend_base::reach!("mpi.completion: an unsatisfiable wait ends");
    match want {
        WaitMode::All => named.filter(|&request| engine.end_unsatisfiable(request)).count() > 0,
        WaitMode::Any | WaitMode::Some => named.next().is_some_and(|first| engine.end_unsatisfiable(first)),
    }
}

#[cfg(test)]
mod tests;
