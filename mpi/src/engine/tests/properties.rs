// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Properties of communicators, and how long a freed communicator exists.

use crate::scripted::{Process, ScriptedJob};
use crate::{
    BlockingOperation, CommKey, CommunicatorCreation, Detail, Error, ErrorHandler, ErrorRange, Hints,
    OutArguments, Request, RequestHandle, SendMode, Started, Status, Uniform, WaitMode, test,
};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_datatype::TypedBuffer;
use mend_transport::{Buffer, UserMemory};
use std::sync::Arc;

fn alone() -> Process {
    ScriptedJob::default().process(0, 1)
}

fn dup(process: &mut Process, parent: CommKey) -> CommKey {
    let started = process.dup(parent).unwrap();
    created(process, started)
}

fn created(process: &mut Process, started: Started) -> CommKey {
    let Started::Running(request) = started else { panic!("a creation has a request") };
    CommunicatorCreation::new(request).poll(process).unwrap().unwrap().unwrap()
}

fn bytes(length: usize) -> TypedBuffer {
    TypedBuffer::bytes(UserMemory::of_buffer(&Buffer::zeroed(length)))
}

/// A receive of at most four bytes from this process.
fn receive(process: &mut Process, comm: CommKey) -> Request {
    let (from, tag) = (Source::Rank(Rank(0)), TagSelector::Tag(Tag(1)));
    match process.receive(comm, from, tag, bytes(4)).unwrap() {
        Started::Running(request) => request,
        Started::Done(_) => panic!("nothing was sent"),
    }
}

/// An error handler of the program, and its reference count.
fn handler() -> (ErrorHandler, impl Fn() -> usize) {
    let object = Arc::new(7u32);
    let counted = Arc::downgrade(&object);
    (ErrorHandler::User(object), move || counted.strong_count())
}

#[test]
fn a_child_inherits_the_error_handler_and_not_the_name() {
    let mut process = alone();
    let (handler, references) = handler();
    let world = process.comm_world();
    assert_eq!(process.name(world).unwrap(), b"MPI_COMM_WORLD");
    let parent = dup(&mut process, world);
    process.set_name(parent, b"caf\xe9").unwrap();
    process.set_error_handler(parent, handler).unwrap();
    let child = dup(&mut process, parent);
    assert_eq!((process.name(parent).unwrap(), process.name(child).unwrap()), (&b"caf\xe9"[..], &b""[..]));
    assert_eq!(references(), 2);
    process.set_error_handler(parent, ErrorHandler::Return).unwrap();
    assert!(matches!(process.error_handler(child), Some(ErrorHandler::User(_))));
    process.free(child).unwrap();
    assert_eq!(references(), 0);
    assert!(process.error_handler(child).is_none());
    assert_eq!(process.set_name(child, b"x").unwrap_err().detail, Detail::NoSuchCommunicator);
}

// Row IK4
#[test]
fn a_duplicate_inherits_the_hints_of_its_start_and_other_children_do_not() {
    let mut process = alone();
    let world = process.comm_world();
    assert_eq!(process.hints(world), Ok(Hints::default()));
    let mut hints = Hints::default();
    (hints.error_range, hints.uniform) = (ErrorRange::Group, Uniform::Local);
    process.set_hints(world, hints).unwrap();
    let started = process.dup(world).unwrap();
    let mut changed = hints;
    changed.agree_uniform = true;
    process.set_hints(world, changed).unwrap();
    let duplicate = created(&mut process, started);
    assert_eq!(process.hints(duplicate), Ok(hints));
    let started = process.dup_with_hints(duplicate, changed, None).unwrap();
    let other = created(&mut process, started);
    assert_eq!((process.hints(other), process.hints(duplicate)), (Ok(changed), Ok(hints)));
    let started = process.split(world, Some(0), 0).unwrap();
    let part = created(&mut process, started);
    assert_eq!(process.hints(part), Ok(Hints::default()));
    process.free(part).unwrap();
    assert_eq!(process.hints(part).unwrap_err().detail, Detail::NoSuchCommunicator);
    assert_eq!(process.set_hints(part, hints).unwrap_err().detail, Detail::NoSuchCommunicator);
}

// Row EH4
#[test]
fn a_freed_communicator_exists_until_its_last_request_of_whatever_kind_is_released() {
    let mut process = alone();
    let world = process.comm_world();
    let comm = dup(&mut process, world);
    let (handler, references) = handler();
    process.set_error_handler(comm, handler).unwrap();
    let posted = receive(&mut process, comm);
    let detached = receive(&mut process, comm);
    let over = receive(&mut process, comm);
    process.send(comm, Rank(0), Tag(1), SendMode::Standard, bytes(2)).unwrap();
    process.cancel(over);
    let completed = process.add_ended_at_start(comm, Status::EMPTY).unwrap();
    let Started::Running(creation) = process.dup(comm).unwrap() else { panic!("a creation has a request") };
    process.free(comm).unwrap();
    process.free_request(detached);
    for request in [over, completed, creation, posted] {
        // Another communicator gets neither its index nor its handler.
        let other = dup(&mut process, world);
        assert_ne!(other.0.index, comm.0.index);
        process.free(other).unwrap();
        assert_eq!(process.communicator_of(request), Some(comm));
        assert!(matches!(process.error_handler(comm), Some(ErrorHandler::User(_))));
        process.release(request);
        assert_eq!(process.communicator_of(request), None);
    }
    // The error of the last request is still to be reported: the handler goes with the next communicator.
    assert!(matches!(process.error_handler(comm), Some(ErrorHandler::User(_))));
    let child = dup(&mut process, world);
    assert!(process.error_handler(comm).is_none());
    assert_eq!((child.0.index, references()), (comm.0.index, 1), "the child of the freed one has it too");
}

// Row EH4
#[test]
fn four_thousand_freed_communicators_are_removed_with_their_requests_in_any_order() {
    let mut process = alone();
    let world = process.comm_world();
    let count = process.open_counts().communicators;
    let open: Vec<_> = (0..4000)
        .map(|_| {
            let comm = dup(&mut process, world);
            let request = receive(&mut process, comm);
            process.free(comm).unwrap();
            (comm, request)
        })
        .collect();
    for &(comm, request) in open.iter().step_by(2).chain(open.iter().skip(1).step_by(2)) {
        assert_eq!(process.communicator_of(request), Some(comm));
        process.cancel(request);
        BlockingOperation::new(request).poll(&mut process, || None).unwrap().unwrap();
    }
    let last = dup(&mut process, world);
    process.free(last).unwrap();
    assert_eq!(process.open_counts().communicators, count);
    process.lifecycle_check();
}

/// Discards all answers.
struct Unread;

impl OutArguments for Unread {
    fn completed(&mut self, _: usize) {}
    fn status(&mut self, _: usize, _: usize, _: Result<Status, Error>, _: bool) {}
    fn success(&mut self, _: usize) {}
    fn index(&mut self, _: usize, _: usize) {}
}

#[test]
fn a_failed_call_for_several_requests_names_the_communicator_of_the_first_that_failed() {
    let mut process = alone();
    let world = process.comm_world();
    let (good, bad) = (dup(&mut process, world), dup(&mut process, world));
    let requests = [good, bad].map(|comm| receive(&mut process, comm));
    process.send(good, Rank(0), Tag(1), SendMode::Standard, bytes(4)).unwrap();
    process.send(bad, Rank(0), Tag(1), SendMode::Standard, bytes(8)).unwrap();
    process.free(bad).unwrap();
    for _ in 0..3 {
        process.progress(mend_base::Instant(1));
    }
    let handles = requests.map(RequestHandle::Request);
    let answered = test(WaitMode::All, &mut process, &handles, &mut Unread).unwrap();
    assert_eq!(answered.first_error.map(|(index, _)| index), Some(1));
    assert_eq!(answered.communicator, Some(bad));
    assert!(process.error_handler(bad).is_some());
}
