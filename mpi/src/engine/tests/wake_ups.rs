// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which events wake a sleeping thread.

use crate::scripted::{Process, ScriptedJob, peer};
use crate::{Collective, Request, SendMode, SleeperId, Started, State};
use core::num::NonZero;
use mend_base::{Instant, Rank, Source, Tag, TagSelector};
use mend_datatype::TypedBuffer;
use mend_runtime::Notice;
use mend_transport::{Buffer, UserMemory};
use std::sync::Arc;

const SLEEPER: SleeperId = SleeperId(NonZero::new(7).unwrap());

/// Two connected ranks.
fn pair() -> (ScriptedJob, [Process; 2]) {
    let job = ScriptedJob::default();
    let mut processes = [0, 1].map(|me| job.process(me, 2));
    job.give_contact(0, 1);
    job.give_contact(1, 0);
    (0..3).for_each(|_| progress(&mut processes));
    (job, processes)
}

fn progress(processes: &mut [Process; 2]) {
    processes.iter_mut().for_each(|process| _ = process.progress(Instant(1)));
}

fn bytes(buffer: &Arc<Buffer>) -> TypedBuffer {
    TypedBuffer::bytes(UserMemory::of_buffer(buffer))
}

fn receive(process: &mut Process, tag: i32, room: &Arc<Buffer>) -> Request {
    let (world, tag) = (process.comm_world(), TagSelector::Tag(Tag(tag)));
    running(process.receive(world, Source::Rank(Rank(1)), tag, bytes(room)).expect("arguments"))
}

fn running(started: Started) -> Request {
    match started {
        Started::Running(request) => request,
        Started::Done(status) => panic!("it is over: {status:?}"),
    }
}

fn send(process: &mut Process, tag: i32) {
    let (world, data) = (process.comm_world(), Buffer::from_bytes(&[1]));
    process.send(world, Rank(0), Tag(tag), SendMode::Standard, bytes(&data)).expect("arguments");
}

/// The calls of a thread that waits for these requests, before it sleeps. Returns whether a request was noted.
fn falls_asleep(process: &mut Process, requests: &[Request]) -> bool {
    process.note_awaited();
    for &request in requests {
        assert_eq!(process.poll(request), State::Running);
    }
    process.wake_when_over(SLEEPER)
}

#[test]
fn the_end_of_an_awaited_request_names_its_sleeper_once_and_no_other_end_does() {
    let (_job, mut processes) = pair();
    let room = Buffer::from_bytes(&[0]);
    let [awaited, other] = [1, 2].map(|tag| receive(&mut processes[0], tag, &room));
    assert!(falls_asleep(&mut processes[0], &[awaited]));
    assert_eq!(processes[0].poll(other), State::Running, "polled after the noting, it wakes no thread");
    send(&mut processes[1], 2);
    progress(&mut processes);
    progress(&mut processes);
    assert_eq!(processes[0].next_to_wake(), None);
    send(&mut processes[1], 1);
    progress(&mut processes);
    progress(&mut processes);
    assert_eq!(processes[0].next_to_wake(), Some(SLEEPER));
    assert_eq!(processes[0].next_to_wake(), None);
}

#[test]
fn the_end_of_a_collective_operation_names_its_sleeper() {
    let (_job, mut processes) = pair();
    let world = processes[0].comm_world();
    let barrier = running(processes[0].collective(world, Collective::Barrier).expect("nobody failed"));
    assert!(falls_asleep(&mut processes[0], &[barrier]));
    assert!(processes[1].collective(world, Collective::Barrier).is_ok());
    (0..4).for_each(|_| progress(&mut processes));
    assert_eq!(processes[0].next_to_wake(), Some(SLEEPER));
}

#[test]
fn a_call_that_awaits_no_request_names_none() {
    let (_job, mut processes) = pair();
    assert!(!falls_asleep(&mut processes[0], &[]));
}

// Row AK10, X-8.3
#[test]
fn the_end_of_a_peer_and_an_acknowledgement_notify_all() {
    let (job, mut processes) = pair();
    let (world, before) = (processes[0].comm_world(), processes[0].notify_all_count());
    job.notify(0, Notice::Failed(peer(1)));
    assert_eq!(processes[0].failed(world), Ok(vec![Rank(1)]));
    let published = processes[0].notify_all_count();
    assert_ne!(published, before);
    assert_eq!(processes[0].acknowledge(world, None), Ok(1));
    assert_ne!(processes[0].notify_all_count(), published);
}
