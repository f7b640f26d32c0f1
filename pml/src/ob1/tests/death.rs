// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What ends with a peer, and what does not.

use super::fabric::{CHUNKS, CONTROL, Cluster, DATA, Node, pattern, rank, request, tag};
use crate::{Channel, Config, End, Error, SendMode, Started, State, Status};
use mend_base::{ContextKind, PeerIndex, Random, Rank, Source, TagSelector};
use mend_transport::Cause;

/// The process is cut off: nothing of it is under way any more.
fn sever(cluster: &mut Cluster, at: usize) {
    let mut fabric = cluster.fabric.borrow_mut();
    for other in 0..fabric.queues.len() {
        for queue in [DATA, CONTROL, CHUNKS] {
            fabric.queues[at][other][queue].clear();
            fabric.queues[other][at][queue].clear();
        }
    }
}

fn ranks(ranks: &[u32]) -> Vec<Rank> {
    ranks.iter().copied().map(Rank).collect()
}

fn known(cluster: &mut Cluster) -> Vec<Channel> {
    let on = cluster.open(1, ContextKind::PointToPoint);
    for (from, to) in [(0, 1), (1, 0)] {
        cluster.send(from, on[from], to as u32, 0, b"hello");
        cluster.settle();
        cluster.receive(to, on[to], rank(from as u32), tag(0), 8);
    }
    on
}

#[test]
fn a_send_to_a_peer_that_ends_ends_in_whatever_state_it_is() {
    for (why, error) in [
        (End::Failed, Error::ProcFailed(Rank(1))),
        (End::Finalized, Error::PeerLeft(Rank(1))),
        (End::Unreachable(Cause::Refused), Error::Unreachable(Rank(1), Cause::Refused)),
    ] {
        let mut cluster = Cluster::new(3, 1);
        let on = known(&mut cluster);
        let large = pattern(1, 1 << 20);
        let rts = cluster.send(0, on[0], 1, 1, &large);
        let synchronous = cluster.send_as(0, on[0], 1, 2, b"x", SendMode::Synchronous);
        let streaming = cluster.send(0, on[0], 1, 3, &large);
        cluster.receive(1, on[1], rank(0), tag(3), 1 << 20);
        while cluster.fabric.borrow().queues[0][1][CHUNKS].is_empty() {
            cluster.progress_at(0);
            cluster.progress_at(1);
        }
        cluster.fabric.borrow_mut().room = 0;
        let queued = cluster.send(0, on[0], 1, 4, b"x");
        let other = cluster.send(0, on[0], 2, 4, b"x");
        assert!(!cluster.nodes[0].ob1.idle());
        cluster.nodes[0].end(1, why);
        // Row PP2, Row PP4: the wait says it.
        for ended in [rts, synchronous, streaming, queued] {
            assert_eq!(cluster.poll(0, ended), State::Done(Err(error)));
        }
        cluster.fabric.borrow_mut().room = 64;
        sever(&mut cluster, 1);
        cluster.settle();
        assert_eq!(cluster.poll(0, other), State::Done(Ok(Status::EMPTY)), "other peers are not concerned");
        assert!(cluster.nodes[0].ob1.idle());
        // Row PP3: the call itself succeeds.
        let late = cluster.send(0, on[0], 1, 1, b"x");
        assert_eq!(cluster.poll(0, late), State::Done(Err(error)));
    }
}

#[test]
fn a_receive_from_a_peer_that_ends_ends_and_does_not_touch_its_buffer_any_more() {
    let mut cluster = Cluster::new(2, 2);
    let on = known(&mut cluster);
    let (posted, _) = cluster.receive(0, on[0], rank(1), tag(9), 8);
    let (matched, buffer) = cluster.receive(0, on[0], rank(1), tag(1), 1 << 20);
    cluster.send(1, on[1], 0, 1, &pattern(1, 1 << 20));
    while buffer.to_vec()[0] == 0 {
        cluster.progress_at(0);
        cluster.progress_at(1);
    }
    // An RTS without a receive is of no use any more.
    cluster.send(1, on[1], 0, 2, &pattern(1, 1 << 20));
    while cluster.probe(0, on[0], rank(1), tag(2)).is_none() {
        cluster.progress_at(0);
        cluster.progress_at(1);
    }
    assert!(cluster.fabric.borrow().queues[1][0][CHUNKS].len() > 1, "chunks are under way");
    cluster.nodes[0].end(1, End::Failed);
    let before = buffer.to_vec();
    // Row PP5, Row PP6.
    for ended in [posted, matched] {
        assert_eq!(cluster.poll(0, ended), State::Done(Err(Error::ProcFailed(Rank(1)))));
    }
    // Row PP23: a transport would have drained first; even so nothing is written.
    cluster.settle();
    assert_eq!(buffer.to_vec(), before);
    let late = cluster.receive(0, on[0], rank(1), tag(2), 8).0;
    assert_eq!(cluster.poll(0, late), State::Done(Err(Error::ProcFailed(Rank(1)))));
    cluster.assert_clean();
    assert!(cluster.nodes[0].ob1.rendezvous.streams().is_empty() && cluster.nodes[0].ob1.matcher.len() == 0);
}

#[test]
fn a_message_that_came_whole_is_received_after_the_end_of_its_sender() {
    // Row PP7.
    let mut cluster = Cluster::new(2, 3);
    let on = known(&mut cluster);
    cluster.send(1, on[1], 0, 1, b"last one");
    cluster.send_as(1, on[1], 0, 2, b"answer me", SendMode::Synchronous);
    cluster.settle();
    cluster.nodes[0].end(1, End::Failed);
    for (label, bytes) in [(1, &b"last one"[..]), (2, b"answer me")] {
        assert!(cluster.probe(0, on[0], rank(1), tag(label)).is_some());
        let (started, buffer) = cluster.receive(0, on[0], rank(1), tag(label), bytes.len());
        assert!(matches!(started, Started::Done(_)));
        assert_eq!(buffer.to_vec(), bytes);
    }
    let started = cluster.receive(0, on[0], rank(1), tag(1), 8).0;
    assert_eq!(cluster.poll(0, started), State::Done(Err(Error::ProcFailed(Rank(1)))));
    assert!(cluster.nodes[0].ob1.idle());
}

#[test]
fn a_wildcard_receive_goes_on_while_another_member_has_not_ended() {
    let mut cluster = Cluster::new(3, 4);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let (first, _) = cluster.receive(0, on[0], Source::Any, tag(1), 8);
    let (second, _) = cluster.receive(0, on[0], Source::Any, tag(1), 8);
    cluster.nodes[0].end(1, End::Finalized);
    cluster.settle();
    assert_eq!(cluster.poll(0, first), State::Running);
    cluster.send(2, on[2], 0, 1, b"x");
    cluster.settle();
    assert!(matches!(cluster.poll(0, first), State::Done(Ok(_))));
    cluster.nodes[0].end(2, End::Finalized);
    // Our own message may be on its way.
    cluster.send(0, on[0], 0, 1, b"mine");
    cluster.settle();
    assert!(matches!(cluster.poll(0, second), State::Done(Ok(_))));
    let (third, _) = cluster.receive(0, on[0], Source::Any, tag(1), 8);
    cluster.settle();
    assert_eq!(
        cluster.poll(0, third),
        State::Running,
        "the process may still send it to itself, unless it waits for it"
    );
    assert!(cluster.nodes[0].end_unsatisfiable(request(third)));
    assert!(matches!(cluster.poll(0, third), State::Done(Err(Error::PeerLeft(_)))));
    let again = cluster.open(2, ContextKind::PointToPoint);
    let (created_late, _) = cluster.receive(0, again[0], Source::Any, tag(1), 8);
    cluster.settle();
    assert!(cluster.nodes[0].end_unsatisfiable(request(created_late)));
    assert!(matches!(cluster.poll(0, created_late), State::Done(Err(Error::PeerLeft(_)))));
}

#[test]
fn a_wildcard_probe_ends_when_all_others_have_ended_and_not_before() {
    let mut cluster = Cluster::new(3, 8);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let probe = |cluster: &mut Cluster| {
        let node = &mut cluster.nodes[0];
        node.probe(on[0], Source::Any, tag(1))
    };
    cluster.nodes[0].end(1, End::Failed);
    assert_eq!(probe(&mut cluster), Err(Error::ProcFailed(Rank(1))), "not acknowledged");
    cluster.nodes[0].acknowledge(on[0], 1);
    assert_eq!(probe(&mut cluster), Ok(None));
    cluster.send(2, on[2], 0, 1, b"last");
    cluster.settle();
    cluster.nodes[0].end(2, End::Finalized);
    assert!(matches!(probe(&mut cluster), Ok(Some(_))), "what came whole is still found");
    cluster.receive(0, on[0], Source::Any, tag(1), 8);
    cluster.send(0, on[0], 0, 1, b"mine");
    assert_eq!(probe(&mut cluster), Ok(None), "our own message is on its way");
    cluster.settle();
    assert!(matches!(probe(&mut cluster), Ok(Some(_))));
    cluster.receive(0, on[0], Source::Any, tag(1), 8);
    assert_eq!(probe(&mut cluster), Ok(None), "a process that only probes may still send to itself");
    assert_eq!(
        cluster.nodes[0].unsatisfiable(on[0]),
        Some(Error::ProcFailed(Rank(1))),
        "a failed one is named before one that left"
    );
    cluster.send(0, on[0], 0, 1, b"mine again");
    assert_eq!(cluster.nodes[0].unsatisfiable(on[0]), None);
}

#[test]
fn a_wildcard_receive_has_a_pending_failure_until_it_is_acknowledged_and_stays_posted() {
    // Row PP10, Row AK7.
    let mut cluster = Cluster::new(4, 9);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let (first, _) = cluster.receive(0, on[0], Source::Any, tag(1), 8);
    let (second, _) = cluster.receive(0, on[0], Source::Any, tag(1), 8);
    let (named, _) = cluster.receive(0, on[0], rank(2), tag(7), 8);
    cluster.nodes[0].end(1, End::Failed);
    let (late, _) = cluster.receive(0, on[0], Source::Any, tag(1), 8);
    for pending in [first, second, late] {
        assert_eq!(cluster.poll(0, pending), State::PendingFailure);
    }
    // Row AK8.
    assert_eq!(cluster.poll(0, named), State::Running);
    cluster.send(2, on[2], 0, 1, b"x");
    cluster.settle();
    assert!(
        matches!(cluster.poll(0, first), State::Done(Ok(_))),
        "a message from another member completes it"
    );
    assert_eq!(cluster.nodes[0].acknowledge(on[0], 0), 0);
    assert_eq!(cluster.poll(0, second), State::PendingFailure, "none acknowledged");
    cluster.nodes[0].acknowledge(on[0], 1);
    assert_eq!(cluster.poll(0, second), State::Running);
    cluster.nodes[0].end(2, End::Failed);
    assert_eq!(cluster.poll(0, second), State::PendingFailure, "a new failure");
    assert_eq!(cluster.poll(0, named), State::Done(Err(Error::ProcFailed(Rank(2)))));
    let Node { ob1, ends, .. } = &cluster.nodes[0];
    assert_eq!((ob1.failed(on[0], ends), ob1.acknowledged(on[0], ends)), (ranks(&[1, 2]), ranks(&[1])));
    assert_eq!(ob1.pending_failure(on[0], ends), Some(Rank(2)));
    assert_eq!(cluster.nodes[0].acknowledge(on[0], 9), 2);
    assert_eq!(cluster.nodes[0].acknowledge(on[0], 1), 2);
    assert_eq!(cluster.poll(0, second), State::Running, "what is acknowledged stays so");
    cluster.nodes[0].end(3, End::Failed);
    // All others have ended, and still the failure is reported first; once it is acknowledged, no message can come.
    cluster.settle();
    assert!(!cluster.nodes[0].end_unsatisfiable(request(second)));
    assert_eq!(cluster.poll(0, second), State::PendingFailure);
    cluster.nodes[0].acknowledge(on[0], 3);
    cluster.settle();
    assert_eq!(
        cluster.poll(0, second),
        State::Running,
        "the process may still send it to itself, unless it waits for it"
    );
    assert!(cluster.nodes[0].end_unsatisfiable(request(second)));
    assert!(matches!(cluster.poll(0, second), State::Done(Err(Error::ProcFailed(_)))));
}

#[test]
fn a_peer_that_finalized_or_is_unreachable_is_no_pending_failure_before_it_fails() {
    let mut cluster = Cluster::new(4, 10);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let (waiting, _) = cluster.receive(0, on[0], Source::Any, tag(1), 8);
    cluster.nodes[0].end(1, End::Finalized);
    cluster.nodes[0].end(2, End::Unreachable(Cause::Refused));
    assert_eq!(cluster.poll(0, waiting), State::Running);
    // The first end stands for a peer that finalized; one that is unreachable and dies has failed.
    cluster.nodes[0].end(1, End::Failed);
    assert_eq!(cluster.poll(0, waiting), State::Running);
    cluster.nodes[0].end(2, End::Failed);
    cluster.nodes[0].end(2, End::Failed);
    assert_eq!(cluster.poll(0, waiting), State::PendingFailure);
    cluster.nodes[0].acknowledge(on[0], 1);
    assert_eq!(cluster.poll(0, waiting), State::Running);
}

#[test]
fn a_communicator_created_after_a_failure_counts_it_and_needs_its_own_acknowledgement() {
    let mut cluster = Cluster::new(3, 11);
    let first = cluster.open(1, ContextKind::PointToPoint);
    cluster.nodes[0].end(2, End::Failed);
    cluster.nodes[0].acknowledge(first[0], 1);
    let second = cluster.open(2, ContextKind::PointToPoint);
    let (fine, _) = cluster.receive(0, first[0], Source::Any, tag(1), 8);
    let (pending, _) = cluster.receive(0, second[0], Source::Any, tag(1), 8);
    assert_eq!((cluster.poll(0, fine), cluster.poll(0, pending)), (State::Running, State::PendingFailure));
    let node = &mut cluster.nodes[0];
    let identity = mend_base::Identity { creator: mend_base::Peer::new(mend_base::Job(1), 0), number: 3 };
    let others = [PeerIndex(1), PeerIndex(0)].into();
    let (kind, comm) = (ContextKind::PointToPoint, crate::CommIndex(0));
    let without = node.ob1.open(identity, kind, Rank(1), others, comm, &node.ends);
    let (unconcerned, _) = cluster.receive(0, without, Source::Any, tag(1), 8);
    assert_eq!(cluster.poll(0, unconcerned), State::Running, "the failed peer is no member");
}

#[test]
fn a_message_that_has_come_is_received_before_a_failure_is_reported() {
    // Row PP13.
    let mut cluster = Cluster::new(3, 12);
    let on = cluster.open(1, ContextKind::PointToPoint);
    cluster.send(1, on[1], 0, 1, b"of the failed");
    cluster.settle();
    cluster.send(2, on[2], 0, 1, b"of another");
    cluster.settle();
    cluster.nodes[0].end(1, End::Failed);
    for source in [1, 2] {
        let found = cluster.probe(0, on[0], Source::Any, tag(1)).expect("it is here");
        assert_eq!(found.source, Some(Rank(source)));
        assert!(matches!(cluster.receive(0, on[0], Source::Any, tag(1), 16).0, Started::Done(_)));
    }
    let node = &mut cluster.nodes[0];
    // Row PP9.
    let none = node.probe(on[0], Source::Any, tag(1));
    assert_eq!(none, Err(Error::ProcFailed(Rank(1))));
}

#[test]
fn a_failure_leaves_nothing_in_any_queue() {
    let config = Config { streams_max: 1, ..super::fabric::TEST_CONFIG };
    let mut cluster = Cluster::with(3, 13, config);
    let on = known(&mut cluster);
    // One stream of the peer comes in, another waits for its number, and one of another peer behind it.
    let large = pattern(1, 1 << 20);
    let receives = [1, 2].map(|label| {
        cluster.send(1, on[1], 0, label, &large);
        cluster.receive(0, on[0], rank(1), tag(label), 1 << 20)
    });
    let other = cluster.send(2, on[2], 0, 3, &large);
    let (receive, buffer) = cluster.receive(0, on[0], rank(2), tag(3), 1 << 20);
    while cluster.nodes[0].ob1.rendezvous.pending() < 2 || receives[0].1.to_vec()[0] == 0 {
        (0..3).for_each(|at| assert!(cluster.progress_at(at) < 1000));
    }
    // An answer and a message wait for room.
    cluster.send_as(1, on[1], 0, 4, b"answer me", SendMode::Synchronous);
    while cluster.probe(0, on[0], rank(1), tag(4)).is_none() {
        (0..2).for_each(|at| assert!(cluster.progress_at(at) < 1000));
    }
    cluster.fabric.borrow_mut().room = 0;
    cluster.receive(0, on[0], rank(1), tag(4), 16);
    let queued = cluster.send(0, on[0], 1, 5, b"x");
    assert!(!cluster.nodes[0].ob1.idle());
    cluster.nodes[0].end(1, End::Failed);
    for ended in [receives[0].0, receives[1].0, queued] {
        assert_eq!(cluster.poll(0, ended), State::Done(Err(Error::ProcFailed(Rank(1)))));
    }
    cluster.fabric.borrow_mut().room = 64;
    sever(&mut cluster, 1);
    let before = receives.each_ref().map(|(_, buffer)| buffer.to_vec());
    cluster.settle();
    // Row PP23.
    assert_eq!(receives.each_ref().map(|(_, buffer)| buffer.to_vec()), before);
    // Row PP8.
    assert!(matches!(cluster.poll(0, receive), State::Done(Ok(_))), "the next stream began");
    assert_eq!(cluster.poll(2, other), State::Done(Ok(Status::EMPTY)));
    assert_eq!(buffer.to_vec(), large);
    let ob1 = &cluster.nodes[0].ob1;
    assert!(
        ob1.idle()
            && ob1.rendezvous.pending() == 0
            && ob1.rendezvous.streams().is_empty()
            && !ob1.queues.has_flush_pending()
    );
    assert_eq!((ob1.queues.unsent(), ob1.queues.congested()), (0, 0));
}

#[test]
fn a_peer_that_fails_before_it_is_connected_leaves_nothing() {
    let mut cluster = Cluster::new(2, 14);
    cluster.connects = false;
    let on = cluster.open(1, ContextKind::PointToPoint);
    let waits = cluster.send(0, on[0], 1, 1, b"x");
    assert!(!cluster.nodes[0].ob1.idle());
    cluster.nodes[0].end(1, End::Failed);
    assert_eq!(cluster.poll(0, waits), State::Done(Err(Error::ProcFailed(Rank(1)))));
    assert!(cluster.nodes[0].ob1.idle());
    assert_eq!(cluster.nodes[0].ob1.queues.congested(), 0);
    cluster.settle();
    assert_eq!(
        cluster.nodes[0].ob1.next_to_connect(),
        Some(PeerIndex(1)),
        "the engine knows that it has failed"
    );
    assert_eq!(cluster.nodes[0].ob1.next_to_connect(), None);
}

#[test]
fn a_wildcard_receive_that_has_matched_is_one_from_its_sender() {
    let mut cluster = Cluster::new(4, 15);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let large = pattern(2, 1 << 20);
    let receives = [1, 2].map(|sender| {
        let (started, buffer) = cluster.receive(0, on[0], Source::Any, tag(1), 1 << 20);
        cluster.send(sender, on[sender], 0, 1, &large);
        while buffer.to_vec()[0] == 0 {
            (0..3).for_each(|at| assert!(cluster.progress_at(at) < 1000));
        }
        (started, buffer)
    });
    cluster.nodes[0].end(1, End::Failed);
    cluster.nodes[0].end(3, End::Failed);
    let [(from_failed, half), (from_other, whole)] = receives;
    // Row PP12.
    assert_eq!(cluster.poll(0, from_failed), State::Done(Err(Error::ProcFailed(Rank(1)))));
    let before = half.to_vec();
    // Row PP11: no failure is pending for it.
    assert_eq!(cluster.poll(0, from_other), State::Running);
    cluster.settle();
    assert!(matches!(cluster.poll(0, from_other), State::Done(Ok(_))));
    assert_eq!(whole.to_vec(), large);
    assert_eq!(half.to_vec(), before);
}

// Row PP22
#[test]
fn a_detached_request_is_forgotten_with_the_end_of_its_peer() {
    let mut cluster = Cluster::new(2, 16);
    let on = known(&mut cluster);
    let large = pattern(3, 1 << 20);
    let mut started = vec![
        cluster.receive(0, on[0], rank(1), tag(7), 8).0,
        cluster.send(0, on[0], 1, 1, &large),
        cluster.send_as(0, on[0], 1, 2, b"x", SendMode::Synchronous),
        cluster.receive(0, on[0], rank(1), tag(3), 1 << 20).0,
    ];
    cluster.send(1, on[1], 0, 3, &large);
    (0..9).for_each(|at| assert!(cluster.progress_at(at % 2) < 1000));
    cluster.fabric.borrow_mut().room = 0;
    started.push(cluster.send(0, on[0], 1, 4, b"queued"));
    let stands = cluster.nodes[0].ob1.requests.len();
    for request in started.iter().map(|&started| request(started)) {
        cluster.nodes[0].ob1.free_request(request);
    }
    cluster.nodes[0].ob1.close(on[0]);
    assert_eq!(cluster.nodes[0].ob1.channels.len(), 1, "it is still at work");
    cluster.nodes[0].end(1, End::Failed);
    assert_eq!(cluster.nodes[0].ob1.requests.len(), stands - 5);
    assert!(cluster.nodes[0].ob1.channels.is_empty() && cluster.nodes[0].ob1.idle());
}

#[test]
fn a_receive_on_a_communicator_of_one_waits_for_its_own_message() {
    let mut cluster = Cluster::new(1, 5);
    let on = cluster.open(1, ContextKind::PointToPoint);
    let (waiting, _) = cluster.receive(0, on[0], Source::Any, TagSelector::Any, 8);
    cluster.settle();
    assert_eq!(cluster.poll(0, waiting), State::Running);
}

#[test]
fn early_messages_of_a_failed_peer_arrive_at_the_creation_but_its_rtses_do_not() {
    let mut cluster = Cluster::new(2, 6);
    let on = cluster.open_at(1, 7, ContextKind::PointToPoint);
    cluster.send(1, on, 0, 1, &pattern(1, 50_000));
    cluster.send(1, on, 0, 2, b"small");
    cluster.settle();
    cluster.nodes[0].end(1, End::Failed);
    let late = cluster.open_at(0, 7, ContextKind::PointToPoint);
    assert!(matches!(cluster.receive(0, late, rank(1), tag(2), 8).0, Started::Done(_)));
    let rts = cluster.receive(0, late, rank(1), tag(1), 8).0;
    assert_eq!(cluster.poll(0, rts), State::Done(Err(Error::ProcFailed(Rank(1)))));
    cluster.assert_clean();
    // No id was announced that the failed peer would have to acknowledge.
    cluster.nodes[0].ob1.close(late);
    assert_eq!(cluster.nodes[0].ob1.contexts.ids_in_use(), 0);
}

#[test]
fn ids_that_were_announced_to_a_failed_peer_come_back() {
    let mut cluster = Cluster::new(2, 7);
    let on = known(&mut cluster);
    cluster.nodes[0].ob1.close(on[0]);
    assert_eq!(cluster.nodes[0].ob1.contexts.ids_in_use(), 1);
    cluster.nodes[0].end(1, End::Failed);
    assert_eq!(cluster.nodes[0].ob1.contexts.ids_in_use(), 0);
    assert!(cluster.nodes[0].ob1.idle());
}

/// One process fails at a random moment of random traffic: every request at the others ends, or waits for another.
#[test]
fn after_a_failure_at_any_moment_no_request_waits_for_the_failed_peer() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let mut cluster = Cluster::new(3, seed);
        cluster.fabric.borrow_mut().busy_once_in = [0, 3][random.below(2) as usize];
        let on = cluster.open(1, ContextKind::PointToPoint);
        let mut started = vec![];
        let deadline = random.below(200);
        for step in 0..260 {
            let at = if step < deadline { random.below(3) } else { random.below(2) } as usize;
            let other = random.below(3) as u32;
            let label = random.below(2) as i32;
            let length = [4, 4096, 60_000][random.below(3) as usize];
            match random.below(6) {
                0 => started.push((at, other, cluster.send(at, on[at], other, label, &pattern(1, length)))),
                1 => {
                    started.push((at, other, cluster.receive(at, on[at], rank(other), tag(label), length).0))
                }
                _ => drop(cluster.progress_at(at)),
            }
            if step == deadline {
                // Whatever it had sent whole is handed up first.
                while !cluster.fabric.borrow().queues[2][..2].iter().flatten().all(|queue| queue.is_empty()) {
                    cluster.progress_at(0);
                    cluster.progress_at(1);
                }
                sever(&mut cluster, 2);
                for at in 0..2 {
                    cluster.nodes[at].end(2, End::Failed);
                    cluster.connect(at);
                }
            }
        }
        for at in (0..800).map(|_| random.below(2) as usize) {
            cluster.progress_at(at);
        }
        for &(at, other, request) in started.iter().filter(|&&(at, other, _)| at < 2 && other == 2) {
            assert!(
                matches!(cluster.poll(at, request), State::Done(_)),
                "seed {seed}: {at} waits for {other}"
            );
        }
        for node in &cluster.nodes[..2] {
            assert!(node.reported.errors.is_empty(), "seed {seed}");
            assert!(node.ob1.rendezvous.streams().len() <= node.ob1.requests.len(), "seed {seed}");
        }
    }
}

/// Found by the simulator, deaths, seed 57: the second message came as the first.
#[test]
fn no_later_message_is_taken_for_an_rts_whose_sender_failed() {
    let mut cluster = Cluster::new(3, 9);
    let on = known(&mut cluster);
    cluster.send(1, on[1], 0, 1, &pattern(1, 50_000));
    cluster.send(1, on[1], 0, 1, b"second");
    cluster.settle();
    cluster.nodes[0].end(1, End::Failed);
    let probe = |cluster: &mut Cluster, from| {
        let node = &mut cluster.nodes[0];
        node.probe(on[0], from, tag(1))
    };
    assert_eq!(probe(&mut cluster, rank(1)), Err(Error::ProcFailed(Rank(1))));
    // Row PP9: a wildcard probe does not pass it over before the failure is acknowledged.
    assert_eq!(probe(&mut cluster, Source::Any), Err(Error::ProcFailed(Rank(1))));
    cluster.nodes[0].acknowledge(on[0], 1);
    // Row PP13
    assert!(matches!(probe(&mut cluster, Source::Any), Ok(Some(Status { bytes: 6, .. }))));
    let first = cluster.receive(0, on[0], rank(1), tag(1), 8).0;
    assert_eq!(cluster.poll(0, first), State::Done(Err(Error::ProcFailed(Rank(1)))));
    let (second, buffer) = cluster.receive(0, on[0], rank(1), tag(1), 6);
    assert!(matches!(second, Started::Done(_)));
    assert_eq!(buffer.to_vec(), b"second");
    cluster.assert_clean();
    assert!(cluster.nodes[0].ob1.matcher.len() == 0);
}

/// Rank 1 has died after it sent a large message and a short one behind it; the others are living.
fn cut_short(seed: u64, end: End) -> (Cluster, Vec<Channel>) {
    let mut cluster = Cluster::new(3, seed);
    let on = known(&mut cluster);
    cluster.send(1, on[1], 0, 1, &pattern(1, 50_000));
    cluster.send(1, on[1], 0, 1, b"end of it");
    cluster.settle();
    cluster.nodes[0].end(1, end);
    (cluster, on)
}

// Rows PP10, PP13, AK7
#[test]
fn a_wildcard_receive_takes_what_is_behind_a_lost_message_when_the_failure_is_acknowledged_and_not_before() {
    let (mut cluster, on) = cut_short(1, End::Failed);
    let waiting = [0; 2].map(|_| cluster.receive(0, on[0], Source::Any, tag(1), 9));
    let with_another_tag = cluster.receive(0, on[0], Source::Any, tag(2), 9).0;
    for (pending, _) in &waiting {
        assert_eq!(
            cluster.poll(0, *pending),
            State::PendingFailure,
            "the loss is not passed over in silence"
        );
    }
    // Messages of the living are matched, in the order of posting.
    cluster.send(2, on[2], 0, 1, b"of rank 2");
    cluster.settle();
    assert!(matches!(cluster.poll(0, waiting[0].0), State::Done(Ok(_))));
    assert_eq!(waiting[0].1.to_vec(), b"of rank 2");
    assert_eq!(cluster.nodes[0].acknowledge(on[0], 1), 1);
    assert!(matches!(cluster.poll(0, waiting[1].0), State::Done(Ok(Status { source: Some(Rank(1)), .. }))));
    assert_eq!(waiting[1].1.to_vec(), b"end of it");
    assert_eq!(cluster.poll(0, with_another_tag), State::Running);
    // The lost one ends nothing but a receive that names its sender.
    let third = cluster.receive(0, on[0], Source::Any, tag(1), 9).0;
    assert_eq!(cluster.poll(0, third), State::Running);
    let named = cluster.receive(0, on[0], rank(1), tag(1), 9).0;
    assert_eq!(cluster.poll(0, named), State::Done(Err(Error::ProcFailed(Rank(1)))));
    assert_eq!(cluster.nodes[0].ob1.open_counts().unexpected, 0);
    cluster.lifecycle_check();
}

#[test]
fn a_receive_that_names_the_sender_takes_its_lost_message_and_uncovers_what_is_behind_it() {
    let (mut cluster, on) = cut_short(2, End::Failed);
    let (waiting, buffer) = cluster.receive(0, on[0], Source::Any, tag(1), 9);
    assert_eq!(cluster.poll(0, waiting), State::PendingFailure);
    let named = cluster.receive(0, on[0], rank(1), tag(1), 9).0;
    assert_eq!(cluster.poll(0, named), State::Done(Err(Error::ProcFailed(Rank(1)))));
    assert!(matches!(cluster.poll(0, waiting), State::Done(Ok(_))));
    assert_eq!(buffer.to_vec(), b"end of it");
}

#[test]
fn a_lost_message_of_a_peer_whose_end_is_never_acknowledged_hides_nothing() {
    for end in [End::Finalized, End::Unreachable(Cause::Refused)] {
        let (mut cluster, on) = cut_short(3, end);
        let (found, buffer) = cluster.receive(0, on[0], Source::Any, tag(1), 9);
        assert!(matches!(found, Started::Done(_)), "{end:?}");
        assert_eq!(buffer.to_vec(), b"end of it");
    }
}

#[test]
fn a_lost_message_that_was_early_hides_what_is_behind_it_until_its_own_communicator_acknowledges() {
    let mut cluster = Cluster::new(2, 4);
    let on = cluster.open_at(1, 7, ContextKind::PointToPoint);
    let first = cluster.open_at(0, 6, ContextKind::PointToPoint);
    cluster.send(1, on, 0, 1, &pattern(1, 50_000));
    cluster.send(1, on, 0, 1, b"end of it");
    cluster.settle();
    cluster.nodes[0].end(1, End::Failed);
    cluster.nodes[0].acknowledge(first, 1);
    let late = cluster.open_at(0, 7, ContextKind::PointToPoint);
    let (waiting, _) = cluster.receive(0, late, Source::Any, tag(1), 9);
    assert_eq!(cluster.poll(0, waiting), State::PendingFailure);
    cluster.nodes[0].acknowledge(late, 1);
    assert!(matches!(cluster.poll(0, waiting), State::Done(Ok(_))));
}
