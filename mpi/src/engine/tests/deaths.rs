// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Deaths of peers, one at a time: the test makes each step.

use crate::communicator::Properties;
use crate::scripted::{Process, ScriptedJob, peer};
use crate::{CommKey, Detail, ErrorClass, Request, Started, State};
use mend_base::{Identity, Instant, PeerIndex, Rank, Source, Tag, TagSelector};
use mend_comm::Communicator;
use mend_datatype::TypedBuffer;
use mend_pml::SendMode;
use mend_runtime::Notice;
use mend_transport::{Buffer, Cause, UserMemory};
use std::sync::Arc;

const TAG: Tag = Tag(4);

fn progress(process: &mut Process) -> u32 {
    process.progress(Instant(1))
}

fn progress_times(count: u32, process: &mut Process) {
    for _ in 0..count {
        progress(process);
    }
}

/// Two connected ranks of a job of three.
fn pair() -> (ScriptedJob, Process, Process) {
    let job = ScriptedJob::default();
    let (mut zero, mut one) = (job.process(0, 3), job.process(1, 3));
    job.give_contact(0, 1);
    job.give_contact(1, 0);
    for _ in 0..3 {
        progress_times(1, &mut zero);
        progress_times(1, &mut one);
    }
    (job, zero, one)
}

fn bytes(buffer: &Arc<Buffer>) -> TypedBuffer {
    TypedBuffer::bytes(UserMemory::of_buffer(buffer))
}

fn receive(process: &mut Process, from: Source, room: &Arc<Buffer>) -> Started {
    let world = process.comm_world();
    process.receive(world, from, TagSelector::Tag(TAG), bytes(room)).expect("the arguments are right")
}

fn running(started: Started) -> Request {
    match started {
        Started::Running(request) => request,
        Started::Done(status) => panic!("it is over: {status:?}"),
    }
}

fn send(process: &mut Process, to: u32, data: &[u8]) -> Started {
    let world = process.comm_world();
    let data = bytes(&Buffer::from_bytes(data));
    process.send(world, Rank(to), TAG, SendMode::Standard, data).expect("the arguments are right")
}

fn failed(process: &mut Process) -> Vec<Rank> {
    let world = process.comm_world();
    process.failed(world).expect("WORLD exists")
}

fn ended_with(process: &Process, request: Request) -> Detail {
    match process.poll(request) {
        State::Done(Err(error)) => error.detail,
        other => panic!("{other:?}"),
    }
}

// Row AK3
#[test]
fn an_error_names_only_processes_that_are_listed() {
    let (job, mut zero, _one) = pair();
    let waiting = running(receive(&mut zero, Source::Rank(Rank(1)), &Buffer::zeroed(8)));
    job.notify(0, Notice::Failed(peer(1)));
    while zero.poll(waiting) == State::Running {
        assert!(progress(&mut zero) > 0, "a published death is an event: waiting calls poll again");
    }
    assert_eq!(ended_with(&zero, waiting), Detail::ProcFailed(Rank(1)));
    assert_eq!(zero.ends().failed(), [PeerIndex(1)]);
    assert_eq!(failed(&mut zero), [Rank(1)]);
}

// Rows AK1, AK11, PP7
#[test]
fn a_failure_is_known_without_progress_and_complete_messages_are_received() {
    let (job, mut zero, mut one) = pair();
    assert!(failed(&mut zero).is_empty());
    for _ in 0..3 {
        send(&mut one, 0, b"whole");
        progress(&mut one);
        progress(&mut zero);
    }
    drop(one);
    job.notify(0, Notice::Failed(peer(1)));
    assert_eq!(failed(&mut zero), [Rank(1)]);
    for _ in 0..3 {
        let room = Buffer::zeroed(5);
        assert!(matches!(receive(&mut zero, Source::Rank(Rank(1)), &room), Started::Done(_)));
        assert_eq!(room.to_vec(), b"whole");
    }
    let never = running(receive(&mut zero, Source::Rank(Rank(1)), &Buffer::zeroed(5)));
    assert_eq!(ended_with(&zero, never), Detail::ProcFailed(Rank(1)));
    job.notify(0, Notice::Failed(peer(2)));
    assert_eq!(failed(&mut zero), [Rank(1), Rank(2)]);
}

// Row PP7
#[test]
fn a_peer_that_died_or_left_before_its_contact_was_taken_is_drained_first() {
    for declaration in [Notice::Failed(peer(1)), Notice::Finalized(peer(1))] {
        let job = ScriptedJob::default();
        let (mut zero, mut one) = (job.process(0, 2), job.process(1, 2));
        job.give_contact(0, 1);
        job.give_contact(1, 0);
        let sent = send(&mut one, 0, b"before the end");
        progress_times(3, &mut one);
        assert!(matches!(sent, Started::Done(_)) || one.layers.pml.idle());
        drop(one);
        job.notify(0, declaration);
        // The receiver has taken no notice yet.
        progress(&mut zero);
        progress(&mut zero);
        let room = Buffer::zeroed(14);
        assert!(matches!(receive(&mut zero, Source::Rank(Rank(1)), &room), Started::Done(_)));
        assert_eq!(room.to_vec(), b"before the end");
    }
}

#[test]
fn evidence_asks_once_and_a_peer_that_lives_goes_on() {
    let (job, mut zero, mut one) = pair();
    zero.layers.net.evidence = vec![(1, Cause::Silent), (1, Cause::Exited)];
    progress(&mut zero);
    zero.layers.net.evidence = vec![(1, Cause::Exited)];
    progress(&mut zero);
    assert_eq!(job.asked(), [(0, peer(1))]);
    send(&mut one, 0, b"I live");
    progress(&mut one);
    let room = Buffer::zeroed(6);
    let waiting = running(receive(&mut zero, Source::Rank(Rank(1)), &room));
    progress(&mut zero);
    assert_eq!(zero.poll(waiting), State::Running);
    job.notify(0, Notice::Alive(peer(1)));
    progress_times(2, &mut zero);
    assert!(matches!(zero.poll(waiting), State::Done(Ok(_))));
    assert!(failed(&mut zero).is_empty());
}

#[test]
fn evidence_against_a_peer_whose_end_is_declared_is_ignored() {
    let (job, mut zero, _one) = pair();
    job.notify(0, Notice::Failed(peer(1)));
    progress(&mut zero);
    zero.layers.net.evidence = vec![(1, Cause::Exited)];
    progress_times(3, &mut zero);
    assert_eq!(job.asked(), []);
    job.notify(0, Notice::Finalized(peer(1)));
    job.notify(0, Notice::Failed(peer(1)));
    assert_eq!(failed(&mut zero), [Rank(1)]);
    assert_eq!(zero.ends().failed(), [PeerIndex(1)]);
}

#[test]
fn an_unreachable_peer_that_fails_is_listed() {
    let (job, mut zero, _one) = pair();
    for other in [1, 2] {
        job.notify(0, Notice::Refused { peer: peer(other), cause: Cause::NoMemory });
    }
    assert!(failed(&mut zero).is_empty());
    for other in [1, 2] {
        job.notify(0, Notice::Failed(peer(other)));
    }
    assert_eq!(failed(&mut zero), [Rank(1), Rank(2)]);
}

#[test]
fn a_peer_that_finalized_has_not_failed() {
    let (job, mut zero, _one) = pair();
    job.notify(0, Notice::Finalized(peer(1)));
    job.notify(0, Notice::Failed(peer(1)));
    assert!(failed(&mut zero).is_empty());
}

// Row AK4
#[test]
fn only_members_are_listed_and_a_communicator_created_later_lists_them() {
    let (job, mut zero, _one) = pair();
    [2, 1].into_iter().for_each(|dead| job.notify(0, Notice::Failed(peer(dead))));
    assert_eq!(failed(&mut zero), [Rank(2), Rank(1)]);
    let myself = zero.comm_self();
    assert_eq!(zero.failed(myself).unwrap(), []);
    let later = duplicate(&mut zero);
    assert_eq!(zero.failed(later).unwrap(), [Rank(2), Rank(1)]);
    assert_eq!(zero.acknowledged(later).unwrap(), []);
}

fn duplicate(process: &mut Process) -> CommKey {
    let entry = process.communicators.get(process.comm_world()).unwrap();
    let identity = Identity { creator: peer(0), number: 77 };
    let again = Communicator { identity, ..entry.communicator().clone() };
    let members = Arc::clone(entry.members());
    process
        .communicators
        .enter(again, members, Properties::default(), &process.ends, &mut process.layers)
        .unwrap()
}

// Rows AK5, AK6
#[test]
fn the_program_acknowledges_published_failures_of_one_communicator_at_a_time() {
    let (job, mut zero, _one) = pair();
    let (world, other) = (zero.comm_world(), duplicate(&mut zero));
    assert_eq!(zero.acknowledge(world, None).unwrap(), 0);
    job.notify(0, Notice::Failed(peer(1)));
    assert_eq!(zero.acknowledge(world, Some(3)).unwrap(), 0, "it was not published yet");
    assert_eq!(failed(&mut zero), [Rank(1)]);
    assert_eq!(zero.acknowledge(world, Some(3)).unwrap(), 1);
    job.notify(0, Notice::Failed(peer(2)));
    assert_eq!(failed(&mut zero), [Rank(1), Rank(2)]);
    assert_eq!(zero.acknowledged(world).unwrap(), [Rank(1)]);
    assert_eq!(zero.acknowledged(other).unwrap(), []);
    assert_eq!(zero.failed(other).unwrap(), [Rank(1), Rank(2)]);
    assert_eq!(zero.acknowledge(other, Some(0)).unwrap(), 0);
}

#[test]
fn the_abort_of_the_job_is_reported_although_get_failed_took_the_notice() {
    let (job, mut zero, _one) = pair();
    job.notify(0, Notice::JobAborted { code: 3 });
    assert!(failed(&mut zero).is_empty());
    assert!(progress(&mut zero) > 0 && zero.has_job_notices());
}

#[test]
fn a_stale_communicator_is_refused() {
    let (_job, mut zero, _one) = pair();
    let stale = CommKey(mend_base::Key { index: 900, generation: 1 });
    assert_eq!(zero.failed(stale).unwrap_err().class, ErrorClass::Comm);
    assert_eq!(zero.acknowledge(stale, None).unwrap_err().class, ErrorClass::Comm);
    assert_eq!(zero.acknowledged(stale).unwrap_err().class, ErrorClass::Comm);
}

// Row EH6
#[test]
fn an_abort_ends_the_members_or_the_job_if_these_are_all_processes() {
    let (job, mut zero, _one) = pair();
    let (world, myself) = (zero.comm_world(), zero.comm_self());
    zero.abort_members(myself, 4).unwrap();
    zero.abort_members(world, 5).unwrap();
    zero.abort_alone(6);
    assert_eq!(job.aborted(), [(4, vec![peer(0)]), (5, vec![]), (6, vec![peer(0)])]);
}

/// A peer that leaves because another failed is declared after it: a collective operation that waits for both ends with the failure.
#[test]
fn ends_are_published_in_the_order_of_the_declarations() {
    let (job, mut zero, _one) = pair();
    let room = Buffer::zeroed(8);
    let of_one = running(receive(&mut zero, Source::Rank(Rank(1)), &room));
    let of_two = running(receive(&mut zero, Source::Rank(Rank(2)), &room));
    job.notify(0, Notice::Failed(peer(1)));
    job.notify(0, Notice::Finalized(peer(2)));
    while zero.poll(of_two) == State::Running {
        progress(&mut zero);
    }
    assert_eq!(ended_with(&zero, of_one), Detail::ProcFailed(Rank(1)));
    assert_eq!(ended_with(&zero, of_two), Detail::PeerLeft(Rank(2)));
}
