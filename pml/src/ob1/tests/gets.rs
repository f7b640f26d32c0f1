// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages that their receivers take by gets: they end when the transports use their memory no more, and whatever cannot be
//! taken comes as a stream.

use super::fabric::{Cluster, Node, TEST_CONFIG, pattern, rank, request, tag};
use super::remote_memory;
use crate::envelope::{ChannelName, Envelope, Form, Packet};
use crate::{Channel, Config, End, Error, SendMode, Started, State, Status};
use mend_base::{ContextKind, Key, PeerIndex, Random, Rank, Source, Tag};
use mend_datatype::{Datatype, TypedBuffer};
use mend_transport::{Btl, Buffer, Cause, MessageClass, SendError, UserMemory};
use std::sync::Arc;

const LARGE: usize = 60_000;
const DONE: State = State::Done(Ok(Status::EMPTY));
const ME: PeerIndex = PeerIndex(0);
const OTHER: PeerIndex = PeerIndex(1);

/// Two processes that get at most 10,000 bytes at a time, and know each other's id of the channel.
fn known(seed: u64, context_kind: ContextKind) -> (Cluster, Vec<Channel>) {
    let mut cluster = Cluster::with(2, seed, TEST_CONFIG);
    cluster.allow_gets(10_000);
    let on = cluster.open(1, context_kind);
    for (from, to) in [(0, 1), (1, 0)] {
        let sent = cluster.send(from, on[from], to as u32, 0, b"hello");
        cluster.settle();
        cluster.receive(to, on[to], rank(from as u32), tag(0), 8);
        release(&mut cluster, from, sent);
    }
    (cluster, on)
}

fn point_to_point(seed: u64) -> (Cluster, Vec<Channel>) {
    known(seed, ContextKind::PointToPoint)
}

fn release(cluster: &mut Cluster, at: usize, started: Started) {
    if let Started::Running(request) = started {
        cluster.nodes[at].ob1.release(request);
    }
}

fn until(cluster: &mut Cluster, condition: impl Fn(&Cluster) -> bool) {
    for call in 0.. {
        if condition(cluster) {
            return;
        }
        assert!(call < 100_000, "it never comes to that");
        (0..2).for_each(|at| _ = cluster.progress_at(at));
    }
}

fn progress(cluster: &mut Cluster, times: usize) {
    (0..times).for_each(|call| _ = cluster.progress_at(call % 2));
}

/// 0 sends a large message to 1, which receives it; when gets run.
fn getting(cluster: &mut Cluster, on: &[Channel]) -> (Started, Started, Arc<Buffer>) {
    cluster.fabric.borrow_mut().memory.holds_gets = true;
    let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
    let (received, buffer) = cluster.receive(1, on[1], rank(0), tag(1), LARGE);
    until(cluster, |cluster| cluster.fabric.borrow().memory.running() == 4);
    progress(cluster, 100);
    (sent, received, buffer)
}

fn status(bytes: usize) -> Status {
    Status { source: Some(Rank(0)), tag: Tag(1), bytes: bytes as u64, cancelled: false }
}

fn is_running(cluster: &Cluster, at: usize, started: Started) -> bool {
    cluster.poll(at, started) == State::Running
}

fn assert_nothing_left(cluster: &Cluster) {
    cluster.assert_clean();
    assert_eq!(cluster.fabric.borrow().memory.left(), 0, "{:?}", cluster.fabric.borrow().memory);
    for node in &cluster.nodes {
        assert!(node.ob1.idle() && node.ob1.rendezvous.streams().is_empty());
        assert_eq!((node.ob1.gets.len(), node.ob1.exposures.len(), node.ob1.matcher.len()), (0, 0, 0));
    }
    assert_eq!(cluster.nodes[0].ob1.rendezvous.unanswered(OTHER), 0);
}

#[test]
fn a_large_message_is_taken_in_a_few_gets_at_a_time() {
    for seed in 0..30 {
        let (mut cluster, on) = point_to_point(seed);
        cluster.fabric.borrow_mut().memory.gets_max = (seed % 4) as usize;
        let unexpected = seed % 2 == 0;
        let sent = cluster.send_as(0, on[0], 1, 1, &pattern(seed, LARGE), SendMode::Synchronous);
        if unexpected {
            until(&mut cluster, |cluster| cluster.nodes[1].ob1.matcher.len() == 1);
            assert_eq!(cluster.probe(1, on[1], Source::Any, tag(1)), Some(status(LARGE)));
        }
        let (received, buffer) = cluster.receive(1, on[1], rank(0), tag(1), LARGE);
        cluster.settle();
        assert_eq!(
            (cluster.poll(0, sent), cluster.poll(1, received)),
            (DONE, State::Done(Ok(status(LARGE))))
        );
        assert_eq!(buffer.to_vec(), pattern(seed, LARGE), "seed {seed}");
        assert!(cluster.fabric.borrow().memory.most <= 4);
        assert_nothing_left(&cluster);
    }
}

#[test]
fn a_get_that_was_refused_begins_when_its_peer_is_sendable_although_no_other_get_ends() {
    let (mut cluster, on) = point_to_point(1);
    cluster.fabric.borrow_mut().memory.refuses_gets = true;
    let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
    let (received, buffer) = cluster.receive(1, on[1], rank(0), tag(1), LARGE);
    cluster.settle();
    cluster.fabric.borrow_mut().memory.refuses_gets = false;
    cluster.settle();
    assert!(is_running(&cluster, 1, received), "nobody has told it that there is room");
    cluster.fabric.borrow_mut().sendable.push((1, ME.0));
    cluster.settle();
    assert_eq!(cluster.poll(0, sent), DONE);
    assert_eq!(cluster.poll(1, received), State::Done(Ok(status(LARGE))));
    assert_eq!(buffer.to_vec(), pattern(1, LARGE));
    assert_nothing_left(&cluster);
}

#[test]
fn neither_end_is_over_before_its_memory_is_released() {
    let (mut cluster, on) = point_to_point(1);
    let (sent, received, buffer) = getting(&mut cluster, &on);
    assert!(is_running(&cluster, 0, sent) && is_running(&cluster, 1, received));
    {
        let memory = &mut cluster.fabric.borrow_mut().memory;
        (memory.holds_gets, memory.holds_ends) = (false, true);
    }
    cluster.settle();
    assert_eq!(buffer.to_vec(), pattern(1, LARGE));
    assert!(is_running(&cluster, 0, sent), "the receiver has said FIN, and the key is not taken back");
    assert!(is_running(&cluster, 1, received), "all bytes have come, and the region is registered");
    assert!(!cluster.nodes[0].ob1.idle() && !cluster.nodes[1].ob1.idle(), "MPI_Finalize waits for both");
    cluster.fabric.borrow_mut().memory.holds_ends = false;
    cluster.settle();
    assert_eq!(cluster.poll(0, sent), DONE);
    assert_eq!(cluster.poll(1, received), State::Done(Ok(status(LARGE))));
    assert_nothing_left(&cluster);
}

#[test]
fn a_shorter_buffer_takes_what_it_holds_and_an_empty_one_nothing() {
    for length in [0, 1, 10_000, 25_001] {
        let (mut cluster, on) = point_to_point(2);
        let (received, buffer) = cluster.receive(1, on[1], rank(0), tag(1), length);
        let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
        cluster.settle();
        assert_eq!(cluster.poll(0, sent), DONE);
        assert_eq!(cluster.poll(1, received), State::Done(Err(Error::Truncated(status(length)))));
        assert_eq!(buffer.to_vec(), pattern(1, LARGE)[..length]);
        assert_nothing_left(&cluster);
    }
}

#[test]
fn elements_with_gaps_come_through_a_staging_buffer_and_go_as_a_stream() {
    for (gaps_at, exposes) in [(1, true), (0, false)] {
        let (mut cluster, on) = point_to_point(3);
        let pair = Datatype::from_handle(0x22c).unwrap();
        let count = LARGE / 6;
        let buffers = [0, 1].map(|at| {
            let bytes = if at == gaps_at { 8 * count } else { 6 * count };
            let content = if at == 0 { pattern(1, bytes) } else { vec![0xee; bytes] };
            Buffer::from_bytes(&content)
        });
        let [from, into] = [0, 1].map(|at| {
            let memory = UserMemory::of_buffer(&buffers[at]);
            if at == gaps_at {
                TypedBuffer::new(memory, pair, count as u64)
            } else {
                TypedBuffer::bytes(memory)
            }
        });
        let wanted = {
            let copy = Buffer::from_bytes(&buffers[1].to_vec());
            let memory = UserMemory::of_buffer(&copy);
            let target = if gaps_at == 1 {
                TypedBuffer::new(memory, pair, count as u64)
            } else {
                TypedBuffer::bytes(memory)
            };
            target.copy_from(&from);
            copy.to_vec()
        };
        let (ob1, lent) = cluster.nodes[1].lend();
        let received = ob1.receive(lent, on[1], rank(0), tag(1), into).unwrap();
        let (ob1, lent) = cluster.nodes[0].lend();
        let sent = ob1.send(lent, on[0], Rank(1), Tag(1), SendMode::Standard, from).unwrap();
        assert_eq!(cluster.fabric.borrow().memory.exposed() > 0, exposes);
        cluster.settle();
        assert_eq!(
            (cluster.poll(0, sent), cluster.poll(1, received)),
            (DONE, State::Done(Ok(status(LARGE))))
        );
        assert!(buffers[1].to_vec() == wanted, "gaps at {gaps_at}");
        assert_nothing_left(&cluster);
    }
}

#[test]
fn what_cannot_be_registered_exposed_or_taken_comes_as_a_stream() {
    for (case, seed) in (0..4).flat_map(|case| (0..10).map(move |seed| (case, seed))) {
        let (mut cluster, on) = point_to_point(seed);
        {
            let memory = &mut cluster.fabric.borrow_mut().memory;
            match case {
                0 | 1 => memory.registers_nothing = Some(case),
                2 => memory.exposes_nothing = true,
                _ => memory.fails_gets = true,
            }
        }
        let sent = cluster.send(0, on[0], 1, 1, &pattern(seed, LARGE));
        let (received, buffer) = cluster.receive(1, on[1], rank(0), tag(1), LARGE);
        cluster.settle();
        assert_eq!(
            (cluster.poll(0, sent), cluster.poll(1, received)),
            (DONE, State::Done(Ok(status(LARGE))))
        );
        assert_eq!(buffer.to_vec(), pattern(seed, LARGE), "case {case}");
        assert_nothing_left(&cluster);
    }
}

#[test]
fn an_rts_for_whose_key_there_is_no_memory_is_one_of_a_stream() {
    let config = Config { eager_bytes: 0, ..TEST_CONFIG };
    let mut cluster = Cluster::with(2, 1, config);
    cluster.allow_gets(10_000);
    let on = cluster.open(1, ContextKind::PointToPoint);
    cluster.nodes[1].ob1.budget.refuse(true);
    let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
    until(&mut cluster, |cluster| cluster.nodes[1].ob1.matcher.len() == 1);
    let (received, buffer) = cluster.receive(1, on[1], rank(0), tag(1), LARGE);
    cluster.settle();
    assert_eq!((cluster.poll(0, sent), cluster.poll(1, received)), (DONE, State::Done(Ok(status(LARGE)))));
    assert_eq!(buffer.to_vec(), pattern(1, LARGE));
    assert_nothing_left(&cluster);
}

/// The end of the other peer, published at this one after its gets have ended.
fn end_peer(cluster: &mut Cluster, at: usize, end: End) {
    let other = 1 - at;
    for cookie in cluster.fabric.borrow_mut().memory.sever(at, other) {
        cluster.nodes[at].ob1.on_done(cookie, Err(SendError::Severed));
    }
    cluster.nodes[at].end(other as u32, end);
    for from in [0, 1] {
        cluster.fabric.borrow_mut().queues[from][1 - from].iter_mut().for_each(|queue| queue.clear());
    }
}

// Row PP2, Row PP4
#[test]
fn a_death_ends_both_ends_when_their_memory_is_released_and_not_before() {
    for at in [0, 1] {
        let (mut cluster, on) = point_to_point(4);
        let (sent, received, buffer) = getting(&mut cluster, &on);
        cluster.fabric.borrow_mut().memory.holds_ends = true;
        end_peer(&mut cluster, at, End::Failed);
        let survivor = if at == 0 { sent } else { received };
        (0..100).for_each(|_| _ = cluster.progress_at(at));
        assert!(is_running(&cluster, at, survivor), "its memory is not released");
        cluster.fabric.borrow_mut().memory.holds_ends = false;
        (0..100).for_each(|_| _ = cluster.progress_at(at));
        let error = Error::ProcFailed(Rank(1 - at as u32));
        assert_eq!(cluster.poll(at, survivor), State::Done(Err(error)));
        let before = buffer.to_vec();
        (0..100).for_each(|_| _ = cluster.progress_at(at));
        assert_eq!(buffer.to_vec(), before);
        let node = &cluster.nodes[at].ob1;
        assert_eq!((node.gets.len(), node.exposures.len(), node.idle()), (0, 0, true));
    }
}

#[test]
fn a_death_ends_a_send_that_waits_in_whatever_state_its_memory_is() {
    for case in 0..3 {
        let (mut cluster, on) = point_to_point(5);
        match case {
            // Exposed, and the RTS does not leave.
            0 => cluster.fabric.borrow_mut().room = 0,
            // Asked for as a stream, and its memory is being released.
            1 => cluster.fabric.borrow_mut().memory.registers_nothing = Some(1),
            _ => {}
        }
        cluster.fabric.borrow_mut().memory.holds_ends = true;
        let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
        if case == 1 {
            cluster.receive(1, on[1], rank(0), tag(1), LARGE);
        }
        progress(&mut cluster, 100);
        assert_eq!(cluster.fabric.borrow().memory.exposed(), 1);
        end_peer(&mut cluster, 0, End::Failed);
        (0..100).for_each(|_| _ = cluster.progress_at(0));
        assert!(is_running(&cluster, 0, sent));
        cluster.fabric.borrow_mut().memory.holds_ends = false;
        (0..100).for_each(|_| _ = cluster.progress_at(0));
        assert_eq!(cluster.poll(0, sent), State::Done(Err(Error::ProcFailed(Rank(1)))), "case {case}");
        assert!(cluster.nodes[0].ob1.idle() && cluster.fabric.borrow().memory.left() == 0);
    }
}

// Row PP23
#[test]
fn a_receive_that_is_given_up_ends_after_its_gets_and_its_sender_is_refused() {
    for context_kind in [ContextKind::PointToPoint, ContextKind::Collective] {
        let (mut cluster, on) = known(6, context_kind);
        let (sent, received, buffer) = getting(&mut cluster, &on);
        cluster.nodes[1].ob1.abandon(request(received));
        progress(&mut cluster, 200);
        assert!(!cluster.nodes[1].ob1.has_ended(request(received)), "gets run");
        assert!(is_running(&cluster, 0, sent), "its memory is read");
        cluster.fabric.borrow_mut().memory.holds_gets = false;
        until(&mut cluster, |cluster| cluster.nodes[1].ob1.has_ended(request(received)));
        let before = buffer.to_vec();
        cluster.settle();
        assert_eq!(buffer.to_vec(), before);
        let error = match context_kind {
            ContextKind::Collective => Error::Poisoned { by: Rank(1), failed: None },
            _ => Error::PeerFreed(Rank(1)),
        };
        assert_eq!(cluster.poll(0, sent), State::Done(Err(error)));
        assert_nothing_left(&cluster);
    }
}

#[test]
fn a_send_that_is_given_up_ends_when_its_key_is_taken_back_and_its_receive_is_matched_anew() {
    for (case, context_kind) in [
        (0, ContextKind::PointToPoint),
        (1, ContextKind::PointToPoint),
        (1, ContextKind::Collective),
        (2, ContextKind::PointToPoint),
    ] {
        let (mut cluster, on) = known(7, context_kind);
        let (sent, received, buffer) = match case {
            // Not matched when it is given up.
            0 => {
                let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
                until(&mut cluster, |cluster| cluster.nodes[1].ob1.matcher.len() == 1);
                (sent, None, None)
            }
            1 => {
                let (sent, received, buffer) = getting(&mut cluster, &on);
                (sent, Some(received), Some(buffer))
            }
            // Asked for as a stream when it is given up.
            _ => {
                let memory = &mut cluster.fabric.borrow_mut().memory;
                (memory.registers_nothing, memory.holds_ends) = (Some(1), true);
                (Started::Done(Status::EMPTY), None, None)
            }
        };
        let (sent, received, buffer) = if case == 2 {
            let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
            let (received, buffer) = cluster.receive(1, on[1], rank(0), tag(1), LARGE);
            progress(&mut cluster, 200);
            (sent, Some(received), Some(buffer))
        } else {
            (sent, received, buffer)
        };
        cluster.fabric.borrow_mut().memory.holds_ends = true;
        cluster.nodes[0].ob1.abandon(request(sent));
        progress(&mut cluster, 100);
        assert!(!cluster.nodes[0].ob1.has_ended(request(sent)), "its key is not taken back");
        {
            let memory = &mut cluster.fabric.borrow_mut().memory;
            (memory.holds_ends, memory.holds_gets, memory.registers_nothing) = (false, false, None);
        }
        cluster.settle();
        assert!(cluster.nodes[0].ob1.has_ended(request(sent)));
        let (received, buffer) = match (received, buffer) {
            (Some(received), Some(buffer)) => (received, buffer),
            _ => cluster.receive(1, on[1], rank(0), tag(1), LARGE),
        };
        cluster.settle();
        assert!(is_running(&cluster, 1, received), "case {case}: posted again");
        let second = cluster.send(0, on[0], 1, 1, &pattern(2, LARGE));
        cluster.settle();
        assert_eq!(
            (cluster.poll(0, second), cluster.poll(1, received)),
            (DONE, State::Done(Ok(status(LARGE))))
        );
        assert_eq!(buffer.to_vec(), pattern(2, LARGE));
        assert_eq!(cluster.nodes[0].ob1.rendezvous.owed(OTHER), 0);
        assert_nothing_left(&cluster);
    }
}

#[test]
fn a_cancelled_send_ends_when_its_key_is_taken_back_and_its_receiver_gets_the_message() {
    // Unmatched; taken by gets that run; asked for as a stream; taken, and FIN under way.
    for case in 0..4 {
        let (mut cluster, on) = point_to_point(8);
        let (sent, received) = match case {
            0 => (cluster.send(0, on[0], 1, 1, &pattern(1, LARGE)), None),
            1 => {
                let (sent, received, buffer) = getting(&mut cluster, &on);
                (sent, Some((received, buffer)))
            }
            _ => {
                cluster.fabric.borrow_mut().memory.registers_nothing = (case == 2).then_some(1);
                let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
                let received = cluster.receive(1, on[1], rank(0), tag(1), LARGE);
                // Its answer does not reach the sender.
                (0..400).for_each(|_| _ = cluster.progress_at(1));
                (sent, Some(received))
            }
        };
        cluster.fabric.borrow_mut().memory.holds_ends = true;
        (0..2).for_each(|_| cluster.nodes[0].ob1.cancel(request(sent)));
        let Node { ob1, port, .. } = &mut cluster.nodes[0];
        ob1.send_waiting(port);
        assert!(is_running(&cluster, 0, sent), "its memory is exposed");
        cluster.fabric.borrow_mut().memory.holds_ends = false;
        for _ in 0..400 {
            if is_running(&cluster, 0, sent) {
                cluster.progress_at(0);
            }
        }
        assert_eq!(cluster.poll(0, sent), DONE, "case {case}: whatever the receiver does");
        cluster.fabric.borrow_mut().memory.holds_gets = false;
        let (received, buffer) =
            received.unwrap_or_else(|| cluster.receive(1, on[1], rank(0), tag(1), LARGE));
        cluster.settle();
        assert_eq!(cluster.poll(1, received), State::Done(Ok(status(LARGE))), "case {case}");
        assert!(buffer.to_vec() == pattern(1, LARGE));
        assert_eq!(cluster.nodes[0].ob1.rendezvous.moved(), 0);
        assert_nothing_left(&cluster);
    }
}

#[test]
fn the_copy_of_a_cancelled_send_ends_with_its_receiver_or_when_it_is_refused() {
    for dies in [true, false] {
        let (mut cluster, on) = point_to_point(8);
        let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
        progress(&mut cluster, 40);
        cluster.nodes[0].ob1.cancel(request(sent));
        progress(&mut cluster, 100);
        assert_eq!(cluster.poll(0, sent), DONE);
        assert!(!cluster.nodes[0].ob1.idle(), "the copy waits for its receiver");
        if dies {
            end_peer(&mut cluster, 0, End::Failed);
        } else {
            cluster.nodes[1].ob1.close(on[1]);
        }
        progress(&mut cluster, 100);
        assert!(cluster.nodes[0].ob1.idle());
        assert_eq!(cluster.nodes[0].ob1.rendezvous.moved(), 0);
    }
}

// Row RV8
#[test]
fn a_revocation_lets_gets_end_and_refuses_what_is_unmatched() {
    let (mut cluster, on) = point_to_point(9);
    let (sent, received, buffer) = getting(&mut cluster, &on);
    let unmatched = cluster.send(0, on[0], 1, 2, &pattern(2, LARGE));
    until(&mut cluster, |cluster| cluster.nodes[1].ob1.matcher.len() == 1);
    cluster.nodes[1].ob1.revoke(on[1]);
    cluster.nodes[0].ob1.revoke(on[0]);
    progress(&mut cluster, 200);
    assert!(is_running(&cluster, 0, sent) && is_running(&cluster, 1, received));
    assert_eq!(cluster.poll(0, unmatched), State::Done(Err(Error::Revoked)));
    cluster.fabric.borrow_mut().memory.holds_gets = false;
    cluster.settle();
    assert_eq!((cluster.poll(0, sent), cluster.poll(1, received)), (DONE, State::Done(Ok(status(LARGE)))));
    assert_eq!(buffer.to_vec(), pattern(1, LARGE));
    assert_nothing_left(&cluster);
}

// Row RV10, X-4.3
#[test]
fn a_death_during_gets_ends_with_the_revocation_if_that_came_first() {
    for (at, dies_first) in [(0, true), (0, false), (1, true), (1, false)] {
        let (mut cluster, on) = point_to_point(9);
        let (sent, received, _) = getting(&mut cluster, &on);
        let survivor = if at == 0 { sent } else { received };
        let error = if dies_first { Error::ProcFailed(Rank(1 - at as u32)) } else { Error::Revoked };
        if dies_first {
            end_peer(&mut cluster, at, End::Failed);
        }
        cluster.nodes[at].ob1.revoke(on[at]);
        assert!(is_running(&cluster, at, survivor));
        if !dies_first {
            end_peer(&mut cluster, at, End::Failed);
        }
        (0..100).for_each(|_| _ = cluster.progress_at(at));
        assert_eq!(cluster.poll(at, survivor), State::Done(Err(error)));
        assert!(cluster.nodes[at].ob1.idle());
    }
}

#[test]
fn a_communicator_that_is_freed_stays_until_its_gets_have_ended() {
    let (mut cluster, on) = point_to_point(10);
    let (sent, received, _) = getting(&mut cluster, &on);
    (0..2).for_each(|at| cluster.nodes[at].ob1.close(on[at]));
    release(&mut cluster, 0, sent);
    release(&mut cluster, 1, received);
    progress(&mut cluster, 100);
    assert!(cluster.nodes.iter().all(|node| !node.ob1.channels.is_empty()));
    cluster.fabric.borrow_mut().memory.holds_gets = false;
    cluster.settle();
    assert!(cluster.nodes.iter().all(|node| node.ob1.channels.is_empty() && node.ob1.requests.len() == 0));
    assert_nothing_left(&cluster);
}

// Row PP16
#[test]
fn a_send_that_goes_on_from_a_copy_gives_its_buffer_back_when_the_key_is_taken_back() {
    // Unmatched; gets run; the RTS has not left.
    for case in 0..3 {
        let (mut cluster, on) = point_to_point(11);
        let buffer = Buffer::from_bytes(&pattern(1, LARGE));
        if case == 2 {
            cluster.fabric.borrow_mut().room = 0;
        }
        let (ob1, lent) = cluster.nodes[0].lend();
        let data = TypedBuffer::bytes(UserMemory::of_buffer(&buffer));
        let sent = request(ob1.send(lent, on[0], Rank(1), Tag(1), SendMode::Standard, data).unwrap());
        cluster.fabric.borrow_mut().memory.holds_gets = true;
        let received = (case == 1).then(|| cluster.receive(1, on[1], rank(0), tag(1), LARGE));
        progress(&mut cluster, 100);
        cluster.fabric.borrow_mut().memory.holds_ends = true;
        for _ in 0..3 {
            assert_eq!(cluster.nodes[0].ob1.continue_from_copy(sent), Err(Error::NoMemory));
            progress(&mut cluster, 20);
        }
        cluster.fabric.borrow_mut().memory.holds_ends = false;
        for call in 0.. {
            progress(&mut cluster, 2);
            if cluster.nodes[0].ob1.continue_from_copy(sent).is_ok() {
                break;
            }
            assert!(call < 1_000);
        }
        UserMemory::of_buffer(&buffer).write(0, &[0xee; LARGE]);
        cluster.fabric.borrow_mut().memory.holds_gets = false;
        cluster.fabric.borrow_mut().room = 64;
        let (received, into) = received.unwrap_or_else(|| cluster.receive(1, on[1], rank(0), tag(1), LARGE));
        cluster.settle();
        assert_eq!(cluster.poll(1, received), State::Done(Ok(status(LARGE))), "case {case}");
        assert!(into.to_vec() == pattern(1, LARGE), "case {case}");
        assert_eq!(buffer.to_vec(), [0xee; LARGE]);
        assert_nothing_left(&cluster);
    }
}

#[test]
fn a_longer_eager_limit_that_comes_late_does_not_change_what_is_exposed() {
    let (mut cluster, on) = point_to_point(12);
    cluster.fabric.borrow_mut().room = 0;
    cluster.nodes[0].ob1.peers.limit_eager(OTHER, 16);
    let sent = cluster.send(0, on[0], 1, 1, &pattern(1, 100));
    assert_eq!(cluster.fabric.borrow().memory.exposed(), 1);
    cluster.nodes[0].ob1.peers.limit_eager(OTHER, 4096);
    cluster.fabric.borrow_mut().room = 64;
    cluster.settle();
    let (_, buffer) = cluster.receive(1, on[1], rank(0), tag(1), 100);
    cluster.settle();
    assert_eq!((buffer.to_vec(), cluster.poll(0, sent)), (pattern(1, 100), DONE));
    assert_nothing_left(&cluster);
}

#[test]
fn a_fin_that_no_correct_peer_writes_is_garbage() {
    for case in 0..6 {
        let mut cluster = Cluster::new(3, 13);
        cluster.allow_gets(10_000);
        let on = cluster.open(1, ContextKind::PointToPoint);
        let (mut bytes, mut writer) = (LARGE as u64, 1);
        match case {
            0 => bytes = 0,
            1 => bytes += 1,
            2 => writer = 2,
            // Its RTS has no key.
            3 => cluster.fabric.borrow_mut().memory.registers_nothing = Some(0),
            _ => {}
        }
        // A peer that has written.
        cluster.send(2, on[2], 0, 0, b"hello");
        let sent = match case {
            4 => cluster.send_as(0, on[0], 1, 1, b"x", SendMode::Synchronous),
            _ => cluster.send(0, on[0], 1, 1, &pattern(1, LARGE)),
        };
        cluster.settle();
        let key = match case {
            5 => Key { index: request(sent).0.index, generation: request(sent).0.generation + 2 },
            _ => request(sent).0,
        };
        cluster.nodes[writer].ob1.answer(ME, Packet::Fin { key, bytes });
        cluster.settle();
        assert_eq!(cluster.nodes[0].reported.errors, [(PeerIndex(writer as u32), Cause::Garbage)], "{case}");
        assert!(is_running(&cluster, 0, sent));
    }
}

#[test]
fn a_second_fin_is_garbage_and_one_for_what_was_given_up_is_late() {
    let (mut cluster, on) = point_to_point(14);
    let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
    progress(&mut cluster, 40);
    cluster.fabric.borrow_mut().memory.holds_ends = true;
    let fin = Packet::Fin { key: request(sent).0, bytes: 1 };
    cluster.nodes[0].ob1.abandon(request(sent));
    cluster.nodes[1].ob1.answer(ME, fin);
    progress(&mut cluster, 100);
    cluster.assert_clean();
    cluster.nodes[1].ob1.answer(ME, fin);
    progress(&mut cluster, 100);
    assert_eq!(cluster.nodes[0].reported.errors, [(OTHER, Cause::Garbage)]);
}

/// 0 writes an RTS with this key to 1, for a message of so many bytes.
fn write_rts(cluster: &mut Cluster, remote_key: &[u8], bytes: u64) {
    let name = cluster.nodes[0].ob1.channels.iter().next().unwrap().1.name();
    let form = Form::Rts { key: Key { index: 0, generation: 1 }, bytes };
    let channel = ChannelName::Named(name);
    let envelope = Envelope { channel, sequence: 0, tag: Tag(1), source: Rank(0), form };
    let header = Packet::Message(envelope).write();
    let port = &mut cluster.nodes[0].port;
    let fill = |mut slot: mend_transport::PayloadWriter<'_>| slot.put(remote_key);
    port.send(1, MessageClass::Data, crate::AM_ID, header.as_bytes(), remote_key.len(), fill).unwrap();
}

#[test]
fn a_key_that_no_correct_peer_makes_is_garbage_and_no_get_is_started() {
    let good = remote_memory::key(0, LARGE as u64);
    for (key, bytes, is_matched) in [
        (&good.as_bytes()[..15], LARGE as u64, true),
        (good.as_bytes(), LARGE as u64 + 1, true),
        (&[7; 97][..], LARGE as u64, false),
    ] {
        let mut cluster = Cluster::new(2, 15);
        cluster.allow_gets(10_000);
        let on = cluster.open(1, ContextKind::PointToPoint);
        let (received, _) = cluster.receive(1, on[1], rank(0), tag(1), 100);
        cluster.nodes[1].ob1.peers.want(ME);
        cluster.connect(1);
        write_rts(&mut cluster, key, bytes);
        cluster.settle();
        assert_eq!(cluster.nodes[1].reported.errors, [(ME, Cause::Garbage)]);
        assert_eq!(cluster.fabric.borrow().memory.most, 0);
        assert_eq!(cluster.nodes[1].ob1.gets.len(), usize::from(is_matched));
        cluster.nodes[1].end(0, End::Failed);
        assert_eq!(cluster.poll(1, received), State::Done(Err(Error::ProcFailed(Rank(0)))));
        assert_eq!(cluster.nodes[1].ob1.gets.len(), 0);
    }
}

#[test]
fn both_ends_may_give_up_at_any_time() {
    for seed in 0..150 {
        let mut random = Random(seed);
        let (mut cluster, on) = known(seed, ContextKind::Collective);
        cluster.fabric.borrow_mut().busy_once_in = [0, 3][random.below(2) as usize];
        {
            let memory = &mut cluster.fabric.borrow_mut().memory;
            memory.gets_max = random.below(3) as usize;
            memory.fails_gets = random.once_in(4);
        }
        let mut running = vec![];
        let mut buffers = vec![];
        for label in 0..4 {
            running.push((0, request(cluster.send(0, on[0], 1, label, &pattern(1, LARGE)))));
            let (started, buffer) = cluster.receive(1, on[1], rank(0), tag(label), LARGE);
            running.push((1, request(started)));
            buffers.push((request(started), buffer, None));
        }
        for call in 0..400 {
            cluster.progress_at(random.below(2) as usize);
            if call % 12 == 0 && !running.is_empty() {
                let (at, request) = running.swap_remove(random.below(running.len() as u64) as usize);
                cluster.nodes[at].ob1.abandon(request);
            }
            for (request, buffer, then) in &mut buffers {
                if cluster.nodes[1].ob1.has_ended(*request) {
                    let content = buffer.to_vec();
                    assert!(*then.get_or_insert_with(|| content.clone()) == content, "seed {seed}");
                }
            }
        }
        cluster.settle();
        cluster.nodes[1].ob1.close(on[1]);
        cluster.settle();
        assert_eq!(cluster.nodes[0].ob1.rendezvous.owed(OTHER), 0, "seed {seed}");
        assert_nothing_left(&cluster);
    }
}
