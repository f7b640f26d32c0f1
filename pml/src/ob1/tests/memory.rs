// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Out of memory: an error of the operation, or of the connection, and never a panic; and what peers fill is bounded.

use super::fabric::{Cluster, TEST_CONFIG, pattern, rank, request, tag};
use crate::{Config, Error, SendMode, Started, State, Status};
use mend_base::{
    AllocationFailures, ContextKind, PeerIndex, Random, Rank, Source, Tag, TagSelector,
    replace_allocation_failures,
};
use mend_datatype::TypedBuffer;
use mend_transport::{Buffer, Cause, UserMemory};

fn bytes(bytes: &[u8]) -> TypedBuffer {
    TypedBuffer::bytes(UserMemory::of_buffer(&Buffer::from_bytes(bytes)))
}

#[test]
fn an_operation_without_memory_is_not_started_and_takes_no_message() {
    let mut cluster = Cluster::new(2, 1);
    let on = cluster.open(1, ContextKind::PointToPoint);
    cluster.send(1, on[1], 0, 5, b"here");
    cluster.send(1, on[1], 0, 6, &[6; 5000]);
    cluster.settle();
    cluster.nodes[0].ob1.requests.refuse(true);
    let (ob1, lent) = cluster.nodes[0].lend();
    let send = ob1.send(lent, on[0], Rank(1), Tag(1), SendMode::Synchronous, bytes(b"x"));
    assert_eq!(send, Err(Error::NoMemory));
    for tag in [TagSelector::Tag(Tag(6)), TagSelector::Tag(Tag(9))] {
        let (ob1, lent) = cluster.nodes[0].lend();
        assert_eq!(ob1.receive(lent, on[0], Source::Any, tag, bytes(b"....")), Err(Error::NoMemory));
    }
    let (ob1, lent) = cluster.nodes[0].lend();
    let ended = ob1.send(lent, on[0], Rank(1), Tag(1), SendMode::Standard, bytes(&[1; 5000]));
    assert_eq!(ended, Err(Error::NoMemory));
    assert!(ob1.idle());
    let (started, buffer) = cluster.receive(0, on[0], rank(1), tag(5), 4);
    assert!(matches!(started, Started::Done(_)), "a message that came whole needs no request");
    assert_eq!(buffer.to_vec(), b"here");
    cluster.nodes[0].ob1.requests.refuse(false);
    let (started, buffer) = cluster.receive(0, on[0], rank(1), tag(6), 5000);
    cluster.settle();
    assert!(matches!(cluster.poll(0, started), State::Done(Ok(_))), "the RTS was not lost");
    assert_eq!(buffer.to_vec(), [6; 5000]);
    cluster.lifecycle_check();
}

#[test]
fn without_memory_for_messages_their_sender_is_told_to_stop_before_it_is_given_up() {
    let mut cluster = Cluster::new(2, 2);
    let on = cluster.open(1, ContextKind::PointToPoint);
    for number in 0..40 {
        cluster.send(0, on[0], 1, 1, &pattern(number, 4096));
        cluster.settle();
    }
    cluster.nodes[1].ob1.budget.refuse(true);
    let sends: Vec<_> = (0..100)
        .map(|number| {
            let sent = cluster.send(0, on[0], 1, 2, &pattern(number, 4096));
            cluster.settle();
            sent
        })
        .collect();
    cluster.assert_clean();
    assert_eq!(cluster.poll(0, sends[99]), State::Running, "an XOFF came, and the rest are RTSes");
    cluster.nodes[1].ob1.budget.refuse(false);
    for (number, &sent) in (0..).zip(&sends) {
        let (started, buffer) = cluster.receive(1, on[1], rank(0), tag(2), 4096);
        cluster.settle();
        assert!(matches!(cluster.poll(1, started), State::Done(Ok(_))));
        assert_eq!(
            (buffer.to_vec(), cluster.poll(0, sent)),
            (pattern(number, 4096), State::Done(Ok(Status::EMPTY)))
        );
    }
}

/// While the value lives, every reported allocation of this thread fails.
struct NoMemory;

impl NoMemory {
    fn begin() -> NoMemory {
        let failures = AllocationFailures { random: Random(1), once_in: 1, failed: 0 };
        replace_allocation_failures(Some(failures));
        NoMemory
    }
}

impl Drop for NoMemory {
    fn drop(&mut self) {
        replace_allocation_failures(None);
    }
}

/// Asserts that a message of 5,000 threes has come from node 0 to node 1, and both ends are over.
fn assert_delivered(cluster: &Cluster, send: Started, (receive, received): (Started, &Buffer)) {
    cluster.assert_clean();
    assert_eq!(cluster.poll(0, send), State::Done(Ok(Status::EMPTY)));
    assert!(matches!(cluster.poll(1, receive), State::Done(Ok(_))));
    assert_eq!(received.to_vec(), [3; 5000]);
}

#[test]
fn once_an_rts_is_sent_or_a_receive_posted_neither_needs_memory() {
    let mut cluster = Cluster::new(2, 6);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let (receive, received) = cluster.receive(1, on[1], rank(0), tag(1), 5000);
    // The queues of control messages get their memory.
    for at in 0..2 {
        let (ob1, lent) = cluster.nodes[at].lend();
        let (to, data) = (Rank(1 - at as u32), bytes(b"x"));
        ob1.send(lent, on[at], to, Tag(2), SendMode::Synchronous, data).expect("there is memory");
        cluster.receive(1 - at, on[1 - at], Source::Any, tag(2), 1);
        cluster.settle();
    }
    let send = cluster.send(0, on[0], 1, 1, &[3; 5000]);
    {
        let _failing = NoMemory::begin();
        cluster.settle();
    }
    assert_delivered(&cluster, send, (receive, &received));
}

#[test]
fn an_rts_for_whose_stream_there_is_no_memory_waits_for_some() {
    let mut cluster = Cluster::new(2, 7);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let (receive, received) = cluster.receive(1, on[1], rank(0), tag(1), 5000);
    // A queued send: requests and the queue of messages get their memory.
    cluster.send(0, on[0], 1, 2, &[2; 10]);
    cluster.settle();
    let send = {
        let _failing = NoMemory::begin();
        let send = cluster.send(0, on[0], 1, 1, &[3; 5000]);
        (0..4).for_each(|at| _ = cluster.progress_at(at % 2));
        send
    };
    assert_eq!(cluster.poll(1, receive), State::Running, "no RTS was sent");
    cluster.settle();
    assert_delivered(&cluster, send, (receive, &received));
}

#[test]
fn a_peer_whose_message_cannot_be_kept_is_unreachable_for_lack_of_memory() {
    let mut cluster = Cluster::new(3, 3);
    let on = cluster.open(1, ContextKind::PointToPoint);
    cluster.nodes[1].ob1.budget.refuse(true);
    // The receiver has nothing in reserve: it has stored no message before.
    cluster.send(0, on[0], 1, 1, b"too much");
    cluster.settle();
    assert_eq!(cluster.nodes[1].reported.errors, [(PeerIndex(0), Cause::NoMemory)]);
    // A posted receive needs no memory for its message.
    let (started, _) = cluster.receive(1, on[1], rank(2), tag(1), 8);
    cluster.send(2, on[2], 1, 1, b"posted");
    cluster.settle();
    assert!(matches!(cluster.poll(1, started), State::Done(Ok(_))));
}

#[test]
fn a_peer_that_reads_no_xoff_becomes_unreachable_and_what_it_sent_is_bounded() {
    let config = Config { held_bytes_max: 10_000, eager_bytes: 64, ..TEST_CONFIG };
    let mut cluster = Cluster::with(2, 4, config);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let most = 10_000 + 16 * (256 * (64 + 128) + 64) + 64;
    for number in 0..10_000 {
        cluster.send(0, on[0], 1, 1, &[number as u8; 64]);
        // The sender never reads its control queue.
        cluster.fabric.borrow_mut().queues[1][0][super::fabric::CONTROL].clear();
        (0..2).for_each(|at| _ = cluster.progress_at(at));
        assert!(cluster.nodes[1].ob1.budget.held_bytes() <= most);
        if !cluster.nodes[1].reported.errors.is_empty() {
            break;
        }
    }
    assert_eq!(cluster.nodes[1].reported.errors, [(PeerIndex(0), Cause::NoMemory)]);
}

#[test]
fn a_thousand_rtses_after_an_xoff_cost_their_headers_alone() {
    let config = Config { held_bytes_max: 10_000, ..TEST_CONFIG };
    let mut cluster = Cluster::with(2, 5, config);
    let on = cluster.open(1, ContextKind::PointToPoint);
    cluster.fabric.borrow_mut().room = 4;
    let sends: Vec<_> = (0..2000).map(|_| cluster.send(0, on[0], 1, 1, &[7; 4096])).collect();
    cluster.settle();
    let held = cluster.nodes[1].ob1.budget.held_bytes();
    assert!((2000 * 128..2000 * 128 + 300_000).contains(&held), "{held}");
    let last = request(sends[1999]);
    assert_eq!(cluster.nodes[0].poll(last), State::Running);
    cluster.nodes[0].ob1.cancel(last);
    assert_eq!(cluster.nodes[0].poll(last), State::Done(Ok(Status::CANCELLED)));
    cluster.assert_clean();
}
