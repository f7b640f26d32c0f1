// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The eight calls that complete requests, from one table: what each waits for, and what it answers (rows WT1-WT9).
//!
//! | call                    | ends when                                                       | answers                                  |
//! |-------------------------|-----------------------------------------------------------------|------------------------------------------|
//! | Wait, Waitany           | one is complete or has a pending failure                        | it: a good one first, then a failed one  |
//! | Waitall                 | all are complete, or one ended by a fault or has a pending failure | every one; those that go on are PENDING |
//! | Waitsome                | one is complete or has a pending failure                        | all that are                             |
//! | Test, -any, -all, -some | at once                                                         | the same, or "not yet"                   |
//!
//! A request has a *pending failure* when a possible sender of a receive from any source failed and that is not acknowledged:
//! PROC_FAILED_PENDING is answered, and the request stays as it is. Before it is answered, the engine makes progress once:
//! what has come already is received first (row PP13), and a program that waits in a loop moves on.
//!
//! The caller hands in the requests and an [`Answers`], into which each status, index and completion is written once, in the
//! order of the requests. A status holds its MPI_ERROR only where the call returns MPI_ERR_IN_STATUS (MPI-5.0 §3.2.5). The
//! failure that the error handler hears of is that of the lowest index.

use crate::engine::unsatisfiable::ends_the_wait;
use crate::{CommKey, Detail, Engine, Error, ErrorClass, RequestHandle, State};
use mend_pml::Status;
use mend_runtime::Runtime;
use mend_transport::Btl;

/// For which of its requests a call waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// Waitall, Testall.
    All,
    /// Wait, Test, Waitany, Testany.
    Any,
    /// Waitsome, Testsome.
    Some,
}

/// What a call found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Not what it is after. A call that waits goes on.
    NotYet,
    /// Every request is null.
    Nothing,
    /// All: each was answered; whether all are complete.
    All {
        /// False where some go on.
        complete: bool,
    },
    /// Any: this one was answered.
    One {
        /// Which.
        index: usize,
        /// False: it has a pending failure.
        complete: bool,
    },
    /// Some: so many were answered.
    Several {
        /// How many.
        count: usize,
    },
}

/// What a call answers, beside what went into [`Answers`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Answered {
    /// What it found.
    pub found: Found,
    /// The failure of lowest index, with that index: what the error handler is called with.
    pub failure: Option<(usize, Error)>,
    /// The communicator of that request, if it names one: the one whose error handler is called.
    pub communicator: Option<CommKey>,
}

impl Answered {
    /// The class that the call returns: of calls that answer several requests, IN_STATUS (row WT6: whether or not the program
    /// wants statuses).
    pub fn returned(&self) -> ErrorClass {
        match (self.failure, self.found) {
            (None, _) => ErrorClass::Success,
            (Some(_), Found::All { .. } | Found::Several { .. }) => ErrorClass::InStatus,
            (Some((_, error)), _) => error.class,
        }
    }
}

/// Where the answers go.
pub trait Answers {
    /// The request at `index` is complete and forgotten: the program's handle becomes null.
    fn completed(&mut self, index: usize);
    /// The status at `place`, of the request at `index`; its MPI_ERROR is written only `with_error`.
    fn status(&mut self, place: usize, index: usize, result: Result<Status, Error>, with_error: bool);
    /// The status at `place`, which was written without one, gets the MPI_ERROR MPI_SUCCESS after all.
    fn success(&mut self, place: usize);
    /// The `place`th answered request is that at `index`.
    fn index(&mut self, place: usize, index: usize);
}

/// A call that waits for requests.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    want: Want,
    /// All before it were complete at the last poll.
    first: usize,
    polls: u32,
    /// How many ends were published at the last poll; `None` before the first.
    ends: Option<usize>,
}

/// So many requests are polled every time.
const ALWAYS_POLLED: usize = 16;

/// Of a Waitall for more requests, so many polls look at the first active one only.
const POLLS_PER_SURVEY: u32 = 16;

impl Completion {
    /// Waits for `want`.
    pub fn new(want: Want) -> Self {
        Completion { want, first: 0, polls: 0, ends: None }
    }

    // Hot: per poll.
    /// The answer, once the call ends; `Err`: a handle names no request, and nothing was changed. `threads`, which is asked
    /// where nobody is left who could send: how many threads of the program may start operations.
    pub fn poll<N: Btl, R: Runtime>(
        &mut self,
        engine: &mut Engine<N, R>,
        requests: &[RequestHandle],
        threads: impl FnOnce() -> Option<u32>,
        answers: &mut impl Answers,
    ) -> Option<Result<Answered, Error>> {
        self.polls = self.polls.wrapping_add(1);
        if self.want == Want::All && requests.len() > ALWAYS_POLLED && self.is_early(engine, requests) {
            return None;
        }
        // The commonest call waits for one request, which is cheaper to poll than to count.
        match single(requests).map(|one| handle_state(engine, one)) {
            Some(HandleState::Active) => {}
            Some(HandleState::Complete(Ok(status))) => {
                return Some(Ok(answer_single(self.want, engine, requests[0], status, answers)));
            }
            _ => {
                let answered = test(self.want, engine, requests, answers);
                if !is_not_yet(&answered) {
                    return Some(answered);
                }
            }
        }
        if engine.some_may_be_unsatisfiable() && end_unsatisfiable(self.want, engine, requests, threads) {
            let answered = test(self.want, engine, requests, answers);
            return if is_not_yet(&answered) { None } else { Some(answered) };
        }
        if self.polls == 1 {
            engine.watch_requests(requests);
        }
        None
    }

    /// Spares Waitall a poll of every request after every progress: while the first that was active still is, all are polled
    /// every [`POLLS_PER_SURVEY`]th time only, and whenever the end of a peer was published: an error of a later one must end the
    /// call too, and a blocked thread is woken once for it. Where a receive may be unsatisfiable, all are polled every time: this
    /// process alone may change that.
    fn is_early<N: Btl, R: Runtime>(&mut self, engine: &Engine<N, R>, requests: &[RequestHandle]) -> bool {
        let ends = engine.ends().added();
        let changed = self.ends.replace(ends) != Some(ends);
        let is_due = self.polls.is_multiple_of(POLLS_PER_SURVEY);
        if changed || is_due || engine.some_may_be_unsatisfiable() {
            return false;
        }
        while let Some(&request) = requests.get(self.first) {
            match handle_state(engine, request) {
                HandleState::Active => return true,
                HandleState::Null | HandleState::Complete(Ok(_)) => self.first += 1,
                HandleState::Complete(Err(_)) | HandleState::PendingFailure(_) | HandleState::Stale => {
                    return false;
                }
            }
        }
        false
    }
}

// Hot: per poll.
/// Polls once: what the calls that test answer. `Err`: a handle names no request, and nothing was changed.
pub fn test<N: Btl, R: Runtime>(
    want: Want,
    engine: &mut Engine<N, R>,
    requests: &[RequestHandle],
    answers: &mut impl Answers,
) -> Result<Answered, Error> {
    if let Some(one) = single(requests)
        && let HandleState::Complete(Ok(status)) = handle_state(engine, one)
    {
        return Ok(answer_single(want, engine, one, status, answers));
    }
    let mut counts = StateCounts::of(engine, requests)?;
    if counts.pending > 0 {
        engine.progress_again();
        counts = StateCounts::of(engine, requests)?;
    }
    Ok(counts.answer(want, engine, requests, answers))
}

fn is_not_yet(answered: &Result<Answered, Error>) -> bool {
    matches!(answered, Ok(Answered { found: Found::NotYet, .. }))
}

/// Where one request stands.
#[derive(Clone, Copy, PartialEq, Debug)]
enum HandleState {
    Null,
    Active,
    PendingFailure(Error),
    Complete(Result<Status, Error>),
    /// The handle names no request.
    Stale,
}

// Hot: per poll.
fn handle_state<N: Btl, R: Runtime>(engine: &Engine<N, R>, request: RequestHandle) -> HandleState {
    let request = match request {
        RequestHandle::Null => return HandleState::Null,
        RequestHandle::Done => return HandleState::Complete(Ok(Status::EMPTY)),
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
/// The request of a call that has one.
#[inline]
fn single(requests: &[RequestHandle]) -> Option<RequestHandle> {
    if let [one] = *requests { Some(one) } else { None }
}

// Hot: per call.
/// The answer to a call of one request, which is complete without an error: what [`StateCounts::answer`] would answer.
#[inline]
fn answer_single<N: Btl, R: Runtime>(
    want: Want,
    engine: &mut Engine<N, R>,
    one: RequestHandle,
    status: Status,
    answers: &mut impl Answers,
) -> Answered {
    if let RequestHandle::Request(request) = one {
        engine.release(request);
    }
    answers.completed(0);
    answers.status(0, 0, Ok(status), false);
    let found = match want {
        Want::All => Found::All { complete: true },
        Want::Any => Found::One { index: 0, complete: true },
        Want::Some => {
            answers.index(0, 0);
            Found::Several { count: 1 }
        }
    };
    Answered { found, failure: None, communicator: None }
}

/// How many requests of a call stand where.
#[derive(Clone, Copy, Default)]
struct StateCounts {
    null: usize,
    active: usize,
    pending: usize,
    failed: usize,
    /// Some ended by a fault.
    fault: bool,
}

impl StateCounts {
    fn of<N: Btl, R: Runtime>(
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
                    counts.fault |= error.class.is_fault();
                }
                HandleState::Stale => return Err(Error::of(Detail::NoSuchRequest)),
            }
        }
        Ok(counts)
    }

    fn answer<N: Btl, R: Runtime>(
        self,
        want: Want,
        engine: &mut Engine<N, R>,
        requests: &[RequestHandle],
        answers: &mut impl Answers,
    ) -> Answered {
        let with_error = self.failed + self.pending > 0;
        let mut writer =
            Writer { engine, requests, answers, with_error, place: 0, failure: None, communicator: None };
        let found = if self.null == requests.len() {
            if want == Want::All {
                (0..requests.len()).for_each(|index| writer.empty(index));
            }
            Found::Nothing
        } else {
            match want {
                // Row WT5: waiting for the others could last for ever.
                Want::All if self.active + self.pending == 0 || self.fault || self.pending > 0 => {
                    (0..requests.len()).for_each(|index| writer.every(index));
                    Found::All { complete: self.active + self.pending == 0 }
                }
                Want::Any if self.active + self.null < requests.len() => writer.best(),
                Want::Some if self.active + self.null < requests.len() => {
                    (0..requests.len()).for_each(|index| writer.ready(index));
                    Found::Several { count: writer.place }
                }
                Want::All | Want::Any | Want::Some => Found::NotYet,
            }
        };
        Answered { found, failure: writer.failure, communicator: writer.communicator }
    }
}

/// Writes the answers of one call, in the order of its requests.
struct Writer<'a, N: Btl, R: Runtime, A> {
    engine: &'a mut Engine<N, R>,
    requests: &'a [RequestHandle],
    answers: &'a mut A,
    with_error: bool,
    place: usize,
    failure: Option<(usize, Error)>,
    communicator: Option<CommKey>,
}

impl<N: Btl, R: Runtime, A: Answers> Writer<'_, N, R, A> {
    fn empty(&mut self, index: usize) {
        self.answers.status(index, index, Ok(Status::EMPTY), self.with_error);
    }

    /// Waitall: a status for each, whatever its state.
    fn every(&mut self, index: usize) {
        let result = match handle_state(self.engine, self.requests[index]) {
            HandleState::Null => return self.empty(index),
            HandleState::Stale => self.named_twice(index),
            HandleState::Active => Err(Error::plain(ErrorClass::Pending)),
            HandleState::PendingFailure(error) => self.note(index, Err(error)),
            HandleState::Complete(result) => self.complete(index, result),
        };
        self.answers.status(index, index, result, self.with_error);
    }

    /// The handle stands twice in the call, which completed it already.
    #[cold]
    fn named_twice(&mut self, index: usize) -> Result<Status, Error> {
        if !self.with_error {
            self.with_error = true;
            (0..index).for_each(|place| self.answers.success(place));
        }
        self.note(index, Err(Error::of(Detail::NoSuchRequest)))
    }

    /// Waitsome: a status and an index for each that is complete or has a pending failure; the active are not touched
    /// (row WT8).
    fn ready(&mut self, index: usize) {
        let result = match handle_state(self.engine, self.requests[index]) {
            HandleState::Null | HandleState::Active | HandleState::Stale => return,
            HandleState::PendingFailure(error) => self.note(index, Err(error)),
            HandleState::Complete(result) => self.complete(index, result),
        };
        self.answers.status(self.place, index, result, self.with_error);
        self.answers.index(self.place, index);
        self.place += 1;
    }

    /// Waitany: a good one before a failed one, that before one with a pending failure (row WT3); of equals the first. Its
    /// status never holds an error.
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
                self.answers.status(0, index, result, false);
                Found::One { index, complete: true }
            }
            Some((index, HandleState::PendingFailure(error))) => {
                let _ = self.note(index, Err(error));
                Found::One { index, complete: false }
            }
            _ => Found::NotYet,
        }
    }

    /// The request ends with this call.
    fn complete(&mut self, index: usize, result: Result<Status, Error>) -> Result<Status, Error> {
        let result = self.note(index, result);
        if let RequestHandle::Request(request) = self.requests[index] {
            self.engine.release(request);
        }
        self.answers.completed(index);
        result
    }

    /// Notes the first failure. Comes before the release of the request, after which its communicator is not known.
    fn note(&mut self, index: usize, result: Result<Status, Error>) -> Result<Status, Error> {
        if let Err(error) = result
            && self.failure.is_none()
        {
            self.failure = Some((index, error));
            if let RequestHandle::Request(request) = self.requests[index] {
                self.communicator = self.engine.communicator_of(request);
            }
        }
        result
    }
}

/// Ends receives that only this process could serve, where no other thread can start anything meanwhile. Waitall ends each of
/// them; a call that another request may still end waits for that one, since its caller may go on and send to itself.
#[cold]
fn end_unsatisfiable<N: Btl, R: Runtime>(
    want: Want,
    engine: &mut Engine<N, R>,
    requests: &[RequestHandle],
    threads: impl FnOnce() -> Option<u32>,
) -> bool {
    let mut named = requests.iter().filter_map(|handle| match *handle {
        RequestHandle::Request(request) => Some(request),
        RequestHandle::Null | RequestHandle::Done => None,
    });
    let ends = match want {
        Want::All => named.clone().any(|request| engine.is_unsatisfiable(request)),
        Want::Any | Want::Some => named.clone().all(|request| engine.is_unsatisfiable(request)),
    };
    if !ends || !ends_the_wait(threads()) {
        return false;
    }
    mend_base::reach!("mpi.completion: an unsatisfiable wait ends");
    match want {
        Want::All => named.filter(|&request| engine.end_unsatisfiable(request)).count() > 0,
        Want::Any | Want::Some => named.next().is_some_and(|first| engine.end_unsatisfiable(first)),
    }
}

#[cfg(test)]
mod tests;
