// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Back-pressure: nothing overtakes, nothing grows without bound.

use super::fabric::{Cluster, TEST_CONFIG, pattern, rank, tag};
use crate::send_queues::STARTS_PER_PROGRESS;
use crate::{Config, Started, State, Status};
use mend_base::ContextKind;

#[test]
fn a_later_send_never_overtakes_one_that_waits_for_room_even_on_another_communicator() {
    let mut cluster = Cluster::new(2, 1);
    let (one, two) = (cluster.open(1, ContextKind::PointToPoint), cluster.open(2, ContextKind::PointToPoint));
    for on in [&one, &two] {
        cluster.send(0, on[0], 1, 0, b"hello");
    }
    cluster.settle();
    cluster.fabric.borrow_mut().room = 0;
    let waiting = cluster.send(0, one[0], 1, 1, b"first");
    cluster.fabric.borrow_mut().room = 1;
    let behind = cluster.send(0, two[0], 1, 1, b"second");
    assert_eq!(cluster.poll(0, waiting), State::Done(Ok(Status::EMPTY)), "its turn came with the next send");
    assert_eq!(cluster.poll(0, behind), State::Running);
    cluster.settle();
    assert_eq!(cluster.poll(0, behind), State::Done(Ok(Status::EMPTY)));
}

#[test]
fn several_large_messages_to_one_peer_go_in_turns() {
    let mut cluster = Cluster::new(2, 2);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let mut buffers = vec![];
    for label in 0..3 {
        buffers.push(cluster.receive(1, on[1], rank(0), tag(label), 1 << 20).1);
        cluster.send(0, on[0], 1, label, &pattern(9, 1 << 20));
    }
    let came = |buffer: &std::sync::Arc<mend_transport::Buffer>| {
        buffer.to_vec().iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
    };
    while buffers.iter().map(came).min().unwrap() < 200_000 {
        cluster.progress_at(0);
        cluster.progress_at(1);
    }
    let most = buffers.iter().map(came).max().unwrap();
    assert!(most < 600_000, "one got {most} before another got 200,000");
}

#[test]
fn a_receiver_that_does_not_receive_gets_rtses_instead_of_a_flood() {
    let config = Config { held_bytes_max: 100_000, ..TEST_CONFIG };
    let mut cluster = Cluster::with(2, 3, config);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let sends: Vec<_> = (0..1000)
        .map(|number| {
            let started = cluster.send(0, on[0], 1, 1, &pattern(number, 4096));
            cluster.progress_at(0);
            cluster.progress_at(1);
            started
        })
        .collect();
    cluster.settle();
    let held = cluster.nodes[1].ob1.budget.held_bytes();
    assert!(held < 100_000 + 100 * 4096 + 1000 * 128, "{held} bytes are unread");
    assert_eq!(cluster.poll(0, sends[999]), State::Running, "it waits for its match");
    for (number, &sent) in (0u64..).zip(&sends) {
        let (started, buffer) = cluster.receive(1, on[1], rank(0), tag(1), 4096);
        cluster.settle();
        assert!(matches!(cluster.poll(1, started), State::Done(Ok(_))));
        assert_eq!(buffer.to_vec(), pattern(number, 4096), "in order, eager or after an RTS");
        assert_eq!(cluster.poll(0, sent), State::Done(Ok(Status::EMPTY)));
    }
    // After the XON a message goes at once again.
    assert!(matches!(cluster.send(0, on[0], 1, 1, &pattern(1, 4096)), Started::Done(_)));
    cluster.assert_clean();
}

#[test]
fn a_sender_that_makes_no_progress_has_to_once_in_a_while() {
    let mut cluster = Cluster::new(2, 4);
    let on = cluster.open(1, ContextKind::PointToPoint);
    cluster.fabric.borrow_mut().room = 10_000;
    cluster.send(0, on[0], 1, 1, b"hello");
    cluster.settle();
    let at_once = (0..2 * STARTS_PER_PROGRESS)
        .take_while(|_| matches!(cluster.send(0, on[0], 1, 1, b"x"), Started::Done(_)))
        .count();
    assert_eq!(at_once, STARTS_PER_PROGRESS as usize);
    cluster.progress_at(0);
    assert!(matches!(cluster.send(0, on[0], 1, 1, b"x"), Started::Done(_)));
}

#[test]
fn a_long_eager_message_counts_as_several_starts() {
    let mut cluster = Cluster::with(2, 6, Config { eager_bytes: 1 << 20, ..TEST_CONFIG });
    cluster.limit(|limits| (limits.message_bytes_max, limits.eager_bytes) = (64 << 10, 64 << 10));
    let on = cluster.open(1, ContextKind::PointToPoint);
    cluster.fabric.borrow_mut().room = 10_000;
    cluster.send(0, on[0], 1, 1, b"hello");
    cluster.settle();
    let long = pattern(1, 64 << 10);
    let is_sent = |started| matches!(started, Started::Done(Status::EMPTY));
    let at_once =
        (0..STARTS_PER_PROGRESS).take_while(|_| is_sent(cluster.send(0, on[0], 1, 1, &long))).count();
    assert_eq!(at_once, STARTS_PER_PROGRESS as usize / 17 + 1, "each is 16 parts and a start");
    cluster.settle();
    let (started, buffer) = cluster.receive(1, on[1], rank(0), tag(1), 5);
    assert!(matches!(cluster.poll(1, started), State::Done(Ok(_))) && buffer.to_vec() == b"hello");
    for _ in 0..=at_once {
        let (started, buffer) = cluster.receive(1, on[1], rank(0), tag(1), 64 << 10);
        cluster.settle();
        assert!(matches!(cluster.poll(1, started), State::Done(Ok(_))) && buffer.to_vec() == long);
    }
    cluster.assert_clean();
}

#[test]
fn rtses_beyond_the_last_stream_number_wait_for_one() {
    let mut cluster = Cluster::with(2, 5, Config { streams_max: 2, ..TEST_CONFIG });
    let on = cluster.open(1, ContextKind::PointToPoint);
    let receives: Vec<_> = (0..9)
        .map(|label| {
            cluster.send(0, on[0], 1, label, &pattern(label as u64, 20_000));
            cluster.receive(1, on[1], rank(0), tag(label), 20_000)
        })
        .collect();
    cluster.settle();
    for (label, (started, buffer)) in (0u64..).zip(receives) {
        assert!(matches!(cluster.poll(1, started), State::Done(Ok(_))));
        assert_eq!(buffer.to_vec(), pattern(label, 20_000));
    }
}
