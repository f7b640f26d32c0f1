// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The eight calls that end requests, from one table: what each waits for, and what it answers (rows WT1-WT9).
//!
//! | call               | waits until                                         | answers                                    |
//! |--------------------|-----------------------------------------------------|--------------------------------------------|
//! | Wait, Waitany      | one is over or in doubt                             | it: a good one first, then a failed one    |
//! | Waitall            | all are over, or one ended by a fault or is in doubt| every one; those that go on are PENDING    |
//! | Waitsome           | one is over or in doubt                             | all that are                               |
//! | Test, -any, -all, -some | looks once                                     | the same, or "not yet"                     |
//!
//! A request is *in doubt* (stalled) when a wildcard receive's sender may have failed: PROC_FAILED_PENDING is answered, and
//! the request stays as it is. The caller hands in copies of the user's handles: the user's array is written, never read
//! again. By the time this returns, all handles and statuses are final; the error handler comes after it (row WT12), once,
//! with the class of the failed request of lowest index, on that request's communicator.

use crate::entry::{Failure, On};
use crate::generated::constants::{
    ERR_IN_STATUS, ERR_PENDING, ERR_PROC_FAILED, ERR_PROC_FAILED_PENDING, ERR_REVOKED, SUCCESS,
};
use crate::handle::Handle;
use crate::status::Status;
use core::ffi::c_int;

/// Where a request stands.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Look {
    /// `MPI_REQUEST_NULL`.
    Null,
    /// It goes on.
    Active,
    /// In doubt; the failure says so.
    Stalled(Failure),
    /// It is over, with this status; an error where there is one.
    Over(Status, Option<Failure>),
    /// No such request: a mistake of the caller.
    Stale(Failure),
}

/// The requests of a process.
pub(crate) trait Requests {
    /// Where it stands.
    fn look(&mut self, request: Handle) -> Look;
    /// Forgets it: it is over, and its handle becomes null.
    fn end(&mut self, request: Handle);
    /// Whose error handler hears of it.
    fn owner(&mut self, request: Handle) -> On;
}

/// Where the answers go: places count from 0 in the order of the answers.
pub(crate) trait Answers {
    /// The handle at `index` of the user's array is null from now on.
    fn ended(&mut self, index: usize);
    /// The status at `place`, whole.
    fn status(&mut self, place: usize, status: Status);
    /// The index at `place` of the indices.
    fn index(&mut self, place: usize, index: usize);
}

/// What a call is after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Want {
    All,
    Any,
    Some,
}

/// What a call found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Found {
    /// Not what it is after. The calls that wait go on.
    NotYet,
    /// Every request is null.
    Nothing,
    /// All: each was answered; whether all are over. Any, Some: how many were answered.
    All { over: bool },
    /// Any: this one; whether it is over.
    One { index: usize, over: bool },
    /// Some: this many.
    Several { count: usize },
}

/// What a call found, and what went wrong, for the error handler.
pub(crate) type Answered = (Found, Option<Failure>);

/// Looks once. `Err`: a handle is none; nothing was changed.
pub(crate) fn attempt(
    want: Want,
    requests: &[Handle],
    table: &mut impl Requests,
    answers: &mut impl Answers,
) -> Result<Answered, Failure> {
    let seen = survey(requests, table)?;
    if seen.null == requests.len() {
        if want == Want::All {
            (0..requests.len()).for_each(|place| answers.status(place, Status::EMPTY));
        }
        return Ok((Found::Nothing, None));
    }
    match want {
        Want::All if seen.active + seen.stalled == 0 || seen.urgent => {
            Ok(answer_all(requests, table, answers))
        }
        Want::Any if seen.active + seen.null < requests.len() => Ok(answer_any(requests, table, answers)),
        Want::Some if seen.active + seen.null < requests.len() => Ok(answer_some(requests, table, answers)),
        Want::All | Want::Any | Want::Some => Ok((Found::NotYet, None)),
    }
}

#[derive(Default)]
struct Seen {
    null: usize,
    active: usize,
    stalled: usize,
    /// One ended by a fault, or is in doubt: waiting for the others could last for ever (row WT5).
    urgent: bool,
}

fn survey(requests: &[Handle], table: &mut impl Requests) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    for &request in requests {
        match table.look(request) {
            Look::Null => seen.null += 1,
            Look::Active => seen.active += 1,
            Look::Stalled(_) => {
                seen.stalled += 1;
                seen.urgent = true;
            }
            Look::Over(_, failure) => seen.urgent |= failure.is_some_and(|failure| is_fault(failure.code)),
            Look::Stale(failure) => return Err(failure),
        }
    }
    Ok(seen)
}

/// Whether a class says that others failed, or that somebody gave them up.
pub(crate) fn is_fault(code: c_int) -> bool {
    matches!(code, ERR_PROC_FAILED | ERR_PROC_FAILED_PENDING | ERR_REVOKED)
}

/// Remembers the failure of lowest index.
fn note(first: &mut Option<Failure>, failure: Failure, owner: On) {
    first.get_or_insert(failure.on(owner));
}

/// The handler hears the class of the request, the caller that the statuses hold it (Trap 2).
fn in_status(first: Option<Failure>) -> Option<Failure> {
    first.map(|failure| Failure { returned: ERR_IN_STATUS, ..failure })
}

fn answer_all(requests: &[Handle], table: &mut impl Requests, answers: &mut impl Answers) -> Answered {
    let (mut first, mut over) = (None, true);
    for (index, &request) in requests.iter().enumerate() {
        let mut status = Status::EMPTY;
        match table.look(request) {
            Look::Null => {}
            Look::Active => {
                status.error = ERR_PENDING;
                over = false;
            }
            Look::Stalled(failure) | Look::Stale(failure) => {
                note(&mut first, failure, table.owner(request));
                status.error = failure.code;
                over = false;
            }
            Look::Over(said, failure) => {
                if let Some(failure) = failure {
                    note(&mut first, failure, table.owner(request));
                }
                status = Status { error: failure.map_or(SUCCESS, |failure| failure.code), ..said };
                table.end(request);
                answers.ended(index);
            }
        }
        answers.status(index, status);
    }
    (Found::All { over }, in_status(first))
}

fn answer_any(requests: &[Handle], table: &mut impl Requests, answers: &mut impl Answers) -> Answered {
    // A good one before a failed one, that before one in doubt; of equals the first.
    let rank = |look: &Look| match look {
        Look::Over(_, None) => 0,
        Look::Over(_, Some(_)) => 1,
        Look::Stalled(_) => 2,
        Look::Null | Look::Active | Look::Stale(_) => 3,
    };
    let looks = requests.iter().enumerate().map(|(index, &request)| (index, request, table.look(request)));
    let Some((index, request, look)) = looks.min_by_key(|(_, _, look)| rank(look)) else {
        return (Found::Nothing, None);
    };
    let (mut first, mut over) = (None, false);
    match look {
        Look::Over(status, failure) => {
            if let Some(failure) = failure {
                note(&mut first, failure, table.owner(request));
            }
            answers.status(0, status);
            table.end(request);
            answers.ended(index);
            over = true;
        }
        Look::Stalled(failure) => note(&mut first, failure, table.owner(request)),
        Look::Null | Look::Active | Look::Stale(_) => return (Found::NotYet, None),
    }
    (Found::One { index, over }, first)
}

fn answer_some(requests: &[Handle], table: &mut impl Requests, answers: &mut impl Answers) -> Answered {
    let (mut first, mut count) = (None, 0);
    for (index, &request) in requests.iter().enumerate() {
        let status = match table.look(request) {
            Look::Null | Look::Active | Look::Stale(_) => continue,
            Look::Stalled(failure) => {
                note(&mut first, failure, table.owner(request));
                Status { error: failure.code, ..Status::EMPTY }
            }
            Look::Over(status, failure) => {
                if let Some(failure) = failure {
                    note(&mut first, failure, table.owner(request));
                }
                table.end(request);
                answers.ended(index);
                Status { error: failure.map_or(SUCCESS, |failure| failure.code), ..status }
            }
        };
        answers.status(count, status);
        answers.index(count, index);
        count += 1;
    }
    (Found::Several { count }, in_status(first))
}

#[cfg(test)]
mod tests {
    use super::{Answers, Found, Look, Requests, Want, attempt};
    use crate::entry::{Failure, On, Why};
    use crate::generated::constants::{
        ERR_IN_STATUS, ERR_PENDING, ERR_PROC_FAILED, ERR_PROC_FAILED_PENDING, ERR_REQUEST, ERR_TRUNCATE,
        SUCCESS,
    };
    use crate::handle::Handle;
    use crate::status::Status;
    use core::ffi::c_int;

    fn failure(code: c_int) -> Failure {
        Failure::new(code, Why::User)
    }

    /// Each request's handle is its index; what stands at it is a letter: C good, E failed by a fault, T failed otherwise,
    /// P in doubt, A active, I null, anything else stale.
    struct Fake {
        letters: Vec<char>,
    }

    impl Requests for Fake {
        fn look(&mut self, request: Handle) -> Look {
            match self.letters[request] {
                'C' => Look::Over(Status::EMPTY, None),
                'E' => Look::Over(Status::EMPTY, Some(failure(ERR_PROC_FAILED))),
                'T' => Look::Over(Status::EMPTY, Some(failure(ERR_TRUNCATE))),
                'P' => Look::Stalled(failure(ERR_PROC_FAILED_PENDING)),
                'A' => Look::Active,
                'I' => Look::Null,
                _ => Look::Stale(failure(ERR_REQUEST)),
            }
        }

        fn end(&mut self, request: Handle) {
            assert!(matches!(self.letters[request], 'C' | 'E' | 'T'));
        }

        fn owner(&mut self, request: Handle) -> On {
            On::Comm(0x1000 + request)
        }
    }

    #[derive(Default)]
    struct Told {
        ended: Vec<usize>,
        statuses: Vec<(usize, c_int)>,
        indices: Vec<usize>,
    }

    impl Answers for Told {
        fn ended(&mut self, index: usize) {
            self.ended.push(index);
        }

        fn status(&mut self, place: usize, status: Status) {
            self.statuses.push((place, status.error));
        }

        fn index(&mut self, place: usize, index: usize) {
            assert_eq!(place, self.indices.len());
            self.indices.push(index);
        }
    }

    struct Run {
        found: Found,
        failure: Option<Failure>,
        told: Told,
    }

    fn run(want: Want, letters: &str) -> Run {
        let mut table = Fake { letters: letters.chars().collect() };
        let requests: Vec<Handle> = (0..table.letters.len()).collect();
        let mut told = Told::default();
        let (found, failure) = attempt(want, &requests, &mut table, &mut told).unwrap();
        Run { found, failure, told }
    }

    // Row WT5
    #[test]
    fn waitall_ends_with_a_fault_and_leaves_what_goes_on() {
        let run = run(Want::All, "CAEPI");
        assert_eq!(run.found, Found::All { over: false });
        assert_eq!(run.told.ended, [0, 2]);
        let errors: Vec<c_int> = run.told.statuses.iter().map(|(_, error)| *error).collect();
        assert_eq!(errors, [SUCCESS, ERR_PENDING, ERR_PROC_FAILED, ERR_PROC_FAILED_PENDING, SUCCESS]);
        let failure = run.failure.unwrap();
        assert_eq!((failure.code, failure.returned), (ERR_PROC_FAILED, ERR_IN_STATUS));
        assert_eq!(failure.on, Some(On::Comm(0x1002)));
    }

    #[test]
    fn waitall_waits_on_after_an_error_that_is_no_fault() {
        assert_eq!(run(Want::All, "TA").found, Found::NotYet);
        let run = run(Want::All, "TC");
        assert_eq!(run.found, Found::All { over: true });
        assert_eq!(run.failure.map(|failure| failure.code), Some(ERR_TRUNCATE));
    }

    // Row WT3
    #[test]
    fn waitany_prefers_a_good_one_then_a_failed_one_then_one_in_doubt() {
        assert_eq!(run(Want::Any, "APEC").found, Found::One { index: 3, over: true });
        let failed = run(Want::Any, "APE");
        assert_eq!(failed.found, Found::One { index: 2, over: true });
        let failure = failed.failure.unwrap();
        assert_eq!((failure.code, failure.returned), (ERR_PROC_FAILED, ERR_PROC_FAILED));
        let doubtful = run(Want::Any, "AP");
        assert_eq!(doubtful.found, Found::One { index: 1, over: false });
        assert!(doubtful.told.ended.is_empty());
        assert_eq!(run(Want::Any, "AA").found, Found::NotYet);
        assert_eq!(run(Want::Any, "II").found, Found::Nothing);
    }

    // Row WT8
    #[test]
    fn waitsome_answers_all_that_are_over_or_in_doubt_and_never_touches_the_active() {
        let run = run(Want::Some, "ACIEP");
        assert_eq!(run.found, Found::Several { count: 3 });
        assert_eq!(run.told.indices, [1, 3, 4]);
        assert_eq!(run.told.ended, [1, 3]);
        assert_eq!(run.failure.map(|failure| failure.returned), Some(ERR_IN_STATUS));
    }

    #[test]
    fn a_stale_handle_is_an_error_before_anything_changes() {
        let mut table = Fake { letters: vec!['C', 'x'] };
        let mut told = Told::default();
        let refused = attempt(Want::All, &[0, 1], &mut table, &mut told).unwrap_err();
        assert_eq!(refused.code, ERR_REQUEST);
        assert!(told.ended.is_empty() && told.statuses.is_empty());
    }

    #[test]
    fn null_requests_alone_are_answered_with_empty_statuses() {
        let run = run(Want::All, "II");
        assert_eq!((run.found, run.told.statuses.len()), (Found::Nothing, 2));
    }
}
