// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Communicators that are not created yet, or freed; ids that are used again.

use super::fabric::{Cluster, DATA, pattern, rank, tag};
use crate::{Error, SendMode, Started, State, Status};
use mend_base::{ContextKind, Random, Rank, Source, TagSelector};

#[test]
fn messages_for_a_communicator_that_is_not_created_wait_for_it_in_order() {
    let mut cluster = Cluster::new(2, 1);
    let on = cluster.open_at(0, 5, ContextKind::PointToPoint);
    let large = pattern(1, 30_000);
    cluster.send(0, on, 1, 1, b"first");
    let rts = cluster.send(0, on, 1, 1, &large);
    let synchronous = cluster.send_as(0, on, 1, 1, b"third", SendMode::Synchronous);
    cluster.settle();
    assert_eq!(cluster.poll(0, rts), State::Running);
    let late = cluster.open_at(1, 5, ContextKind::PointToPoint);
    let mut received = vec![];
    for _ in 0..3 {
        let (started, buffer) = cluster.receive(1, late, Source::Any, TagSelector::Any, 30_000);
        cluster.settle();
        let State::Done(Ok(status)) = cluster.poll(1, started) else { panic!("not received") };
        received.push(buffer.to_vec()[..status.bytes as usize].to_vec());
    }
    assert_eq!(received, [b"first".to_vec(), large, b"third".to_vec()]);
    assert_eq!(cluster.poll(0, synchronous), State::Done(Ok(Status::EMPTY)));
    cluster.assert_clean();
}

#[test]
fn a_send_that_waits_on_a_communicator_that_its_peer_freed_is_refused_and_the_rest_is_dropped() {
    for (seed, wait) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut cluster = Cluster::new(2, seed);
        let on = cluster.open(1, ContextKind::PointToPoint);
        if wait {
            // By context id, not by full identity.
            cluster.send(0, on[0], 1, 0, b"known");
            cluster.settle();
            cluster.receive(1, on[1], rank(0), tag(0), 8);
        }
        let early = cluster.send_as(0, on[0], 1, 1, b"unread", SendMode::Synchronous);
        cluster.settle();
        cluster.nodes[1].ob1.close(on[1]);
        let eager = cluster.send(0, on[0], 1, 1, b"for no one");
        let rts = cluster.send(0, on[0], 1, 1, &pattern(1, 30_000));
        cluster.settle();
        assert_eq!(cluster.poll(0, eager), State::Done(Ok(Status::EMPTY)));
        for refused in [early, rts] {
            assert_eq!(cluster.poll(0, refused), State::Done(Err(Error::PeerFreed(Rank(1)))), "seed {seed}");
        }
        cluster.assert_clean();
        assert_eq!(cluster.nodes[1].ob1.contexts.ids_in_use(), 0, "seed {seed}");
    }
}

#[test]
fn a_communicator_that_will_never_be_created_refuses_the_sends_that_wait() {
    let mut cluster = Cluster::new(2, 1);
    let on = cluster.open_at(0, 5, ContextKind::PointToPoint);
    let before = cluster.send(0, on, 1, 1, &pattern(1, 30_000));
    cluster.settle();
    let identity = cluster.nodes[0].ob1.channels.get(on.0).unwrap().name().identity;
    cluster.nodes[1].ob1.never_open(identity);
    let after = cluster.send_as(0, on, 1, 1, b"x", SendMode::Synchronous);
    cluster.settle();
    for refused in [before, after] {
        assert_eq!(cluster.poll(0, refused), State::Done(Err(Error::NotCreated(Rank(1)))));
    }
    assert!(cluster.nodes[1].ob1.contexts.early() == 0);
}

#[test]
fn a_communicator_freed_under_way_goes_when_its_last_operation_is_over() {
    let mut cluster = Cluster::new(2, 2);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let bytes = pattern(3, 200_000);
    let sent = cluster.send(0, on[0], 1, 1, &bytes);
    let (received, buffer) = cluster.receive(1, on[1], rank(0), tag(1), 200_000);
    for (at, &channel) in on.iter().enumerate() {
        cluster.nodes[at].ob1.close(channel);
        assert_eq!(cluster.nodes[at].ob1.channels.len(), 1, "an operation is active");
    }
    cluster.settle();
    assert_eq!(cluster.poll(0, sent), State::Done(Ok(Status::EMPTY)));
    assert!(matches!(cluster.poll(1, received), State::Done(Ok(_))));
    assert_eq!(buffer.to_vec(), bytes);
    assert!(cluster.nodes.iter().all(|node| node.ob1.channels.is_empty()));
}

#[test]
fn a_thousand_communicators_come_and_go_with_late_messages_and_leave_nothing() {
    for seed in 0..30 {
        let mut random = Random(seed);
        let mut cluster = Cluster::new(3, seed);
        cluster.fabric.borrow_mut().busy_once_in = 3;
        for number in 0..100 {
            let on = cluster.open(number, ContextKind::PointToPoint);
            let mut sent = 0;
            for _ in 0..random.below(6) {
                let at = random.below(3) as usize;
                sent += cluster
                    .send(at, on[at], (at as u32 + 1) % 3, number as i32, &number.to_le_bytes())
                    .is_running();
            }
            // Some are received, the others are under way when the communicator is freed.
            for (at, &channel) in on.iter().enumerate() {
                cluster.progress_at(at);
                let (started, buffer) = cluster.receive(at, channel, Source::Any, TagSelector::Any, 4);
                if let Started::Running(request) = started {
                    cluster.nodes[at].ob1.cancel(request);
                    cluster.nodes[at].ob1.release(request);
                } else {
                    assert_eq!(buffer.to_vec(), number.to_le_bytes(), "seed {seed}: of another communicator");
                }
                cluster.nodes[at].ob1.close(channel);
            }
            assert!(sent < 7);
        }
        cluster.settle();
        cluster.assert_clean();
        for node in &cluster.nodes {
            assert_eq!(node.ob1.contexts.ids_in_use(), 0, "seed {seed}");
            assert!(node.ob1.channels.is_empty() && node.ob1.contexts.early() == 0, "seed {seed}");
            assert!(node.ob1.idle(), "seed {seed}");
        }
    }
}

#[test]
fn where_ids_run_out_messages_carry_the_full_identity() {
    let mut cluster = Cluster::new(2, 4);
    cluster.nodes[1].ob1.contexts = crate::context_table::ContextTable::with_ids(1);
    let first = cluster.open(1, ContextKind::PointToPoint);
    let second = cluster.open(2, ContextKind::PointToPoint);
    for _ in 0..3 {
        for on in [&first, &second] {
            cluster.send(0, on[0], 1, 1, b"x");
            cluster.settle();
            assert!(matches!(cluster.receive(1, on[1], rank(0), tag(1), 1).0, Started::Done(_)));
        }
    }
    cluster.send(0, second[0], 1, 1, b"x");
    assert_eq!(cluster.fabric.borrow().queues[0][1][DATA][0].header.len(), 24);
    cluster.settle();
    cluster.assert_clean();
}

impl Started {
    fn is_running(self) -> u32 {
        u32::from(matches!(self, Started::Running(_)))
    }
}
