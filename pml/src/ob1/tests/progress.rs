// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that start operations and never wait: progress is made all the same, and nothing grows for ever.

use super::fabric::{Cluster, pattern, rank, request, tag};
use crate::send_queues::STARTS_PER_PROGRESS;
use crate::{Channel, End, Started, State};
use mend_base::ContextKind;

/// What the engine does after a start: progress, where it is due.
fn after_start(cluster: &mut Cluster, at: usize) {
    if cluster.nodes[at].ob1.must_progress() {
        cluster.progress_at(at);
    }
}

fn known() -> (Cluster, Vec<Channel>) {
    let mut cluster = Cluster::new(2, 1);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let sent = cluster.send(0, on[0], 1, 0, b"hello");
    cluster.settle();
    cluster.receive(1, on[1], rank(0), tag(0), 8);
    cluster.nodes[0].ob1.release(request(sent));
    (cluster, on)
}

#[test]
fn a_loop_of_immediate_sends_and_request_free_sends_every_message() {
    let (mut cluster, on) = known();
    for number in 0..10_000u32 {
        if let Started::Running(request) = cluster.send(0, on[0], 1, 1, &number.to_le_bytes()) {
            cluster.nodes[0].ob1.free_request(request);
        }
        after_start(&mut cluster, 0);
        assert!(cluster.nodes[0].ob1.requests.len() <= 2 * STARTS_PER_PROGRESS as usize, "{number}");
        if number % 16 == 0 {
            (0..8).for_each(|_| _ = cluster.progress_at(1));
        }
        // The receiver takes what has come.
        while cluster.probe(1, on[1], rank(0), tag(1)).is_some() {
            cluster.receive(1, on[1], rank(0), tag(1), 4);
        }
    }
    cluster.settle();
    cluster.assert_clean();
}

#[test]
fn a_loop_of_receives_and_cancellations_receives_what_was_sent_long_ago() {
    let (mut cluster, on) = known();
    cluster.send(0, on[0], 1, 1, b"long ago");
    let received = (0..100_000).any(|_| {
        let (started, _) = cluster.receive(1, on[1], rank(0), tag(1), 8);
        if let Started::Running(request) = started {
            cluster.nodes[1].ob1.cancel(request);
            cluster.nodes[1].ob1.release(request);
        }
        after_start(&mut cluster, 1);
        matches!(started, Started::Done(_))
    });
    assert!(received);
}

// Row PP22
#[test]
fn a_loop_of_detached_sends_to_a_failed_peer_leaves_no_request() {
    let (mut cluster, on) = known();
    let detach = |cluster: &mut Cluster| {
        for _ in 0..1_000 {
            if let Started::Running(request) = cluster.send(0, on[0], 1, 1, &pattern(1, 8000)) {
                cluster.nodes[0].ob1.free_request(request);
            }
            after_start(cluster, 0);
        }
    };
    detach(&mut cluster);
    assert_eq!(
        cluster.nodes[0].ob1.requests.len(),
        1_000,
        "the peer makes no progress, and may receive them later"
    );
    cluster.nodes[0].end(1, End::Failed);
    assert_eq!(cluster.nodes[0].ob1.requests.len(), 0);
    detach(&mut cluster);
    assert_eq!(cluster.nodes[0].ob1.requests.len(), 0, "it ends at once, and is forgotten");
    assert!(cluster.nodes[0].ob1.idle());
}

#[test]
fn four_thousand_closed_channels_with_open_requests_end_with_their_last_request() {
    let mut cluster = Cluster::new(2, 3);
    let mut open: Vec<_> = (0..4_000)
        .map(|number| {
            let on = cluster.open_at(0, number, ContextKind::PointToPoint);
            let (started, _) = cluster.receive(0, on, rank(1), tag(1), 8);
            assert_eq!(cluster.nodes[0].ob1.active(on), 1);
            cluster.nodes[0].ob1.close(on);
            (on, started)
        })
        .collect();
    assert_eq!(cluster.nodes[0].ob1.channels.len(), 4_000);
    while let Some((on, started)) = open.pop() {
        let Started::Running(request) = started else { panic!("no message has come") };
        cluster.nodes[0].ob1.cancel(request);
        assert!(matches!(cluster.nodes[0].poll(request), State::Done(Ok(_))));
        cluster.nodes[0].ob1.release(request);
        assert_eq!((cluster.nodes[0].ob1.active(on), cluster.nodes[0].ob1.channels.len()), (0, open.len()));
    }
    assert!(cluster.nodes[0].ob1.contexts.ids_in_use() == 0 && cluster.nodes[0].ob1.requests.len() == 0);
}
