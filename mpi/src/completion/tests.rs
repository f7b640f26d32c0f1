// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of each row of the table, with requests of a production engine.

use super::{CompletionCall, CompletionResult, Found, OutArguments, RequestHandle, WaitMode, test};
use crate::scripted::{Process, ScriptedJob, peer};
use crate::{CommunicatorCreation, Error, ErrorClass, Started, Status};
use mend_base::{Instant, Rank, Source, Tag, TagSelector};
use mend_datatype::TypedBuffer;
use mend_pml::SendMode;
use mend_runtime::Notice;
use mend_transport::{Buffer, UserMemory};

/// Rank 0 of three, of which rank 2 has failed.
fn process() -> Process {
    let job = ScriptedJob::default();
    let mut process = job.process(0, 3);
    job.notify(0, Notice::Failed(peer(2)));
    progress(&mut process);
    process
}

fn progress(process: &mut Process) {
    for _ in 0..3 {
        process.progress(Instant(1));
    }
}

/// A request in the state that `letter` means: C successful, E failed by a fault, T truncated, P with a pending failure, A active,
/// I null, D ended at its start, any other letter stale.
fn request(process: &mut Process, letter: char) -> RequestHandle {
    let (world, room) = (process.comm_world(), TypedBuffer::bytes(UserMemory::of_buffer(&Buffer::zeroed(4))));
    let own = |from| Source::Rank(Rank(from));
    let started = match letter {
        'C' => {
            Started::Running(process.add_ended_at_start(world, Status { bytes: 9, ..Status::EMPTY }).unwrap())
        }
        'E' => process.receive(world, own(2), TagSelector::Tag(Tag(1)), room).unwrap(),
        'T' => {
            let long = TypedBuffer::bytes(UserMemory::of_buffer(&Buffer::zeroed(8)));
            let started = process.receive(world, own(0), TagSelector::Tag(Tag(3)), room).unwrap();
            process.send(world, Rank(0), Tag(3), SendMode::Standard, long).unwrap();
            progress(process);
            started
        }
        'P' => process.receive(world, Source::Any, TagSelector::Tag(Tag(2)), room).unwrap(),
        'A' => process.receive(world, own(1), TagSelector::Tag(Tag(1)), room).unwrap(),
        'I' => return RequestHandle::Null,
        'D' => return RequestHandle::EndedAtStart,
        _ => {
            let request = process.add_ended_at_start(world, Status::EMPTY).unwrap();
            process.release(request);
            return RequestHandle::Request(request);
        }
    };
    match started {
        Started::Running(request) => RequestHandle::Request(request),
        Started::Done(status) => panic!("{letter} was over at once: {status:?}"),
    }
}

#[derive(Default, Debug)]
struct Written {
    completed: Vec<usize>,
    statuses: Vec<(usize, usize, Result<Status, Error>, bool)>,
    indices: Vec<usize>,
}

impl OutArguments for Written {
    fn completed(&mut self, index: usize) {
        self.completed.push(index);
    }

    fn status(&mut self, position: usize, index: usize, result: Result<Status, Error>, with_error: bool) {
        self.statuses.push((position, index, result, with_error));
    }

    fn success(&mut self, position: usize) {
        self.statuses[position].3 = true;
    }

    fn index(&mut self, position: usize, index: usize) {
        assert_eq!(position, self.indices.len());
        self.indices.push(index);
    }
}

impl Written {
    fn classes(&self) -> Vec<ErrorClass> {
        let class =
            |result: Result<Status, Error>| result.map_or_else(|error| error.class, |_| ErrorClass::Success);
        self.statuses.iter().map(|(_, _, result, _)| class(*result)).collect()
    }
}

fn run(want: WaitMode, letters: &str) -> (CompletionResult, Written) {
    let mut process = process();
    let requests: Vec<_> = letters.chars().map(|letter| request(&mut process, letter)).collect();
    let mut written = Written::default();
    let result = test(want, &mut process, &requests, &mut written).unwrap();
    for &index in &written.completed {
        let RequestHandle::Request(request) = requests[index] else { continue };
        assert!(!process.has_request(request), "request {index} is complete, and was not released");
    }
    (result, written)
}

fn failure(result: CompletionResult) -> Option<(usize, ErrorClass)> {
    result.first_error.map(|(index, error)| (index, error.class))
}

// Row WT5
#[test]
fn waitall_ends_with_a_fault_and_does_not_change_active_requests() {
    let (result, written) = run(WaitMode::All, "CAEPI");
    assert_eq!(result.found, Found::All { complete: false });
    assert_eq!(written.completed, [0, 2]);
    let classes = [
        ErrorClass::Success,
        ErrorClass::Pending,
        ErrorClass::ProcFailed,
        ErrorClass::ProcFailedPending,
        ErrorClass::Success,
    ];
    assert_eq!(written.classes(), classes);
    assert_eq!(
        (failure(result), result.returned()),
        (Some((2, ErrorClass::ProcFailed)), ErrorClass::InStatus)
    );
}

// Row WT5
#[test]
fn waitall_ends_with_a_pending_failure() {
    let (result, written) = run(WaitMode::All, "AP");
    assert_eq!(result.found, Found::All { complete: false });
    assert!(written.completed.is_empty());
    assert_eq!(failure(result), Some((1, ErrorClass::ProcFailedPending)));
}

#[test]
fn waitall_waits_on_after_an_error_that_is_no_fault() {
    assert_eq!(run(WaitMode::All, "TA").0.found, Found::NotYet);
    let (result, _) = run(WaitMode::All, "TC");
    assert_eq!(result.found, Found::All { complete: true });
    assert_eq!(failure(result), Some((0, ErrorClass::Truncate)));
}

// Row WT3
#[test]
fn waitany_prefers_success_to_failure_and_this_to_a_pending_failure() {
    assert_eq!(run(WaitMode::Any, "APEC").0.found, Found::One { index: 3, complete: true });
    assert_eq!(run(WaitMode::Any, "APED").0.found, Found::One { index: 3, complete: true });
    let (failed, _) = run(WaitMode::Any, "APE");
    assert_eq!(failed.found, Found::One { index: 2, complete: true });
    assert_eq!(
        (failure(failed), failed.returned()),
        (Some((2, ErrorClass::ProcFailed)), ErrorClass::ProcFailed)
    );
    let (pending, written) = run(WaitMode::Any, "AP");
    assert_eq!(pending.found, Found::One { index: 1, complete: false });
    assert_eq!(pending.returned(), ErrorClass::ProcFailedPending);
    assert!(written.completed.is_empty() && written.statuses.is_empty());
    assert_eq!(run(WaitMode::Any, "AA").0.found, Found::NotYet);
    assert_eq!(run(WaitMode::Any, "II").0.found, Found::Nothing);
}

// Row WT8
#[test]
fn waitsome_reports_complete_and_pending_requests_and_no_active_one() {
    let (result, written) = run(WaitMode::Some, "ACIEP");
    assert_eq!(result.found, Found::Several { count: 3 });
    assert_eq!(written.indices, [1, 3, 4]);
    assert_eq!(written.completed, [1, 3]);
    assert_eq!(result.returned(), ErrorClass::InStatus);
}

/// MPI-5.0 §3.2.5
#[test]
fn statuses_hold_an_error_only_where_the_call_returns_in_status() {
    for (want, letters, expected) in [
        (WaitMode::All, "CDI", false),
        (WaitMode::All, "CEC", true),
        (WaitMode::Some, "CAD", false),
        (WaitMode::Some, "CAP", true),
        (WaitMode::Any, "E", false),
    ] {
        let (result, written) = run(want, letters);
        assert!(!written.statuses.is_empty());
        for (position, .., with_error) in &written.statuses {
            assert_eq!(*with_error, expected, "{want:?} of {letters}, status {position}");
        }
        assert_eq!(result.returned() == ErrorClass::InStatus, expected);
    }
}

#[test]
fn a_stale_handle_is_an_error_before_anything_changes() {
    let mut process = process();
    let requests = ['C', 'x'].map(|letter| request(&mut process, letter));
    let mut written = Written::default();
    let refused = test(WaitMode::All, &mut process, &requests, &mut written).unwrap_err();
    assert_eq!(refused.class, ErrorClass::Request);
    assert!(written.completed.is_empty() && written.statuses.is_empty());
}

#[test]
fn a_request_that_occurs_twice_in_a_waitall_is_an_error_of_the_second() {
    let mut process = process();
    let twice = request(&mut process, 'C');
    let mut written = Written::default();
    let result = test(WaitMode::All, &mut process, &[twice, twice], &mut written).unwrap();
    assert_eq!((failure(result), result.returned()), (Some((1, ErrorClass::Request)), ErrorClass::InStatus));
    assert_eq!(written.classes(), [ErrorClass::Success, ErrorClass::Request]);
    assert!(written.statuses.iter().all(|(.., with_error)| *with_error));
}

#[test]
fn null_requests_alone_are_reported_with_empty_statuses() {
    let (result, written) = run(WaitMode::All, "II");
    assert_eq!((result.found, written.statuses.len()), (Found::Nothing, 2));
    assert_eq!(written.statuses[1].2, Ok(Status::EMPTY));
}

/// A poll of many requests polls the first active one only, but a published failure ends the call at once.
#[test]
fn a_death_ends_a_waitall_for_many_at_the_next_poll() {
    let job = ScriptedJob::default();
    let mut process = job.process(0, 3);
    let mut requests: Vec<_> = (0..40).map(|_| request(&mut process, 'A')).collect();
    requests.push(request(&mut process, 'E'));
    let (mut call, mut written) = (CompletionCall::new(WaitMode::All), Written::default());
    let mut poll = |process: &mut Process, written: &mut Written| {
        call.poll(process, &requests, || Some(1), written).map(Result::unwrap)
    };
    (0..3).for_each(|_| assert!(poll(&mut process, &mut written).is_none()));
    job.notify(0, Notice::Failed(peer(2)));
    process.progress(Instant(1));
    let result = poll(&mut process, &mut written).expect("a fault ends the call");
    assert_eq!(failure(result), Some((40, ErrorClass::ProcFailed)));
}

/// The poll that follows a revocation finds the request of the revoked communicator, wherever it stands.
#[test]
fn a_revocation_ends_a_waitall_for_many_at_the_next_poll() {
    let mut process = ScriptedJob::default().process(0, 2);
    let (world, myself) = (process.comm_world(), process.comm_self());
    let Started::Running(dup) = process.dup(myself).unwrap() else { panic!("a creation has a request") };
    let revoked = CommunicatorCreation::new(dup).poll(&mut process).unwrap().unwrap().unwrap();
    let receive = |process: &mut Process, comm, from| {
        let room = TypedBuffer::bytes(UserMemory::of_buffer(&Buffer::zeroed(4)));
        match process.receive(comm, Source::Rank(Rank(from)), TagSelector::Tag(Tag(1)), room).unwrap() {
            Started::Running(request) => RequestHandle::Request(request),
            Started::Done(status) => panic!("{status:?}"),
        }
    };
    let mut requests: Vec<_> = (0..40).map(|_| receive(&mut process, world, 1)).collect();
    requests.push(receive(&mut process, revoked, 0));
    let (mut call, mut written) = (CompletionCall::new(WaitMode::All), Written::default());
    for _ in 0..3 {
        assert!(call.poll(&mut process, &requests, || Some(2), &mut written).is_none());
    }
    process.revoke(revoked).unwrap();
    let result =
        call.poll(&mut process, &requests, || Some(2), &mut written).expect("an error ends the call");
    assert_eq!(failure(result.unwrap()), Some((40, ErrorClass::Revoked)));
}

/// The other processes finalize one after the other; the poll after the last one ends the call.
#[test]
fn a_waitall_for_many_ends_when_no_process_is_left_that_could_send() {
    let job = ScriptedJob::default();
    let mut process = job.process(0, 3);
    let requests: Vec<_> = (0..40).map(|_| request(&mut process, 'P')).collect();
    let (mut call, mut written) = (CompletionCall::new(WaitMode::All), Written::default());
    let mut result = vec![];
    for number in [1, 2] {
        assert!(call.poll(&mut process, &requests, || Some(1), &mut written).is_none());
        job.notify(0, Notice::Finalized(peer(number)));
        process.progress(Instant(1));
        result.push(call.poll(&mut process, &requests, || Some(1), &mut written).map(Result::unwrap));
    }
    assert!(result[0].is_none(), "rank 2 may still send");
    assert_eq!(result[1].expect("no process can send").found, Found::All { complete: true });
}

/// All other members have left: the receives that a waiting call ends, and when it ends them.
#[test]
fn a_call_ends_unsatisfiable_receives_only_if_it_waits_for_nothing_else() {
    let unsatisfiable = |want, letters: &str, threads: Option<u32>| {
        let job = ScriptedJob::default();
        let mut process = job.process(0, 3);
        for number in [1, 2] {
            job.notify(0, Notice::Finalized(peer(number)));
        }
        process.progress(Instant(1));
        let requests: Vec<_> = letters
            .chars()
            .map(|letter| match letter {
                // A receive from this process, which has not sent yet.
                'S' => {
                    let (world, room) =
                        (process.comm_world(), TypedBuffer::bytes(UserMemory::of_buffer(&Buffer::zeroed(4))));
                    let own = Source::Rank(Rank(0));
                    match process.receive(world, own, TagSelector::Any, room).unwrap() {
                        Started::Running(request) => RequestHandle::Request(request),
                        Started::Done(_) => panic!("nothing was sent"),
                    }
                }
                letter => request(&mut process, letter),
            })
            .collect();
        let mut written = Written::default();
        let result = CompletionCall::new(want).poll(&mut process, &requests, || threads, &mut written);
        result.map(|result| result.unwrap().found)
    };
    assert_eq!(unsatisfiable(WaitMode::Any, "PP", Some(1)), Some(Found::One { index: 0, complete: true }));
    assert_eq!(unsatisfiable(WaitMode::All, "PP", Some(1)), Some(Found::All { complete: true }));
    assert_eq!(unsatisfiable(WaitMode::Some, "PP", Some(1)), Some(Found::Several { count: 1 }));
    assert_eq!(unsatisfiable(WaitMode::Any, "PS", Some(1)), None);
    // The first receive ends, which is not a fault: the call waits for the other.
    assert_eq!(unsatisfiable(WaitMode::All, "PS", Some(1)), None);
    assert_eq!(unsatisfiable(WaitMode::Any, "PP", Some(2)), None);
    assert_eq!(unsatisfiable(WaitMode::Any, "PP", None), None);
}
