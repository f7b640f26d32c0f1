// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cancelled sends: their wait returns whatever the receiver does (MPI-5.0 §3.8.4), and the receiver never receives what
//! was cancelled.

use super::fabric::{CHUNKS, Cluster, DATA, TEST_CONFIG, pattern, rank, request, tag};
use crate::{Channel, Config, End, SendMode, Started, State, Status};
use mend_base::{ContextKind, Random, Source, TagSelector};
use mend_transport::Buffer;
use std::sync::Arc;

const LARGE: usize = 1 << 20;
const CANCELLED: State = State::Done(Ok(Status::CANCELLED));
const NOT_CANCELLED: State = State::Done(Ok(Status::EMPTY));

/// Two processes that know each other's id of the channel.
fn known(seed: u64) -> (Cluster, Vec<Channel>) {
    let mut cluster = Cluster::new(2, seed);
    let on = announced(&mut cluster);
    (cluster, on)
}

/// A channel whose id both processes know.
fn announced(cluster: &mut Cluster) -> Vec<Channel> {
    let on = cluster.open(1, ContextKind::PointToPoint);
    for (from, to) in [(0, 1), (1, 0)] {
        let sent = cluster.send(from, on[from], to as u32, 0, b"hello");
        cluster.settle();
        cluster.receive(to, on[to], rank(from as u32), tag(0), 8);
        if let Started::Running(request) = sent {
            cluster.nodes[from].ob1.release(request);
        }
    }
    on
}

fn cancel(cluster: &mut Cluster, at: usize, started: Started) {
    cluster.nodes[at].ob1.cancel(request(started));
}

/// Both make progress until the condition holds.
fn until(cluster: &mut Cluster, condition: impl Fn(&Cluster) -> bool) {
    for call in 0.. {
        if condition(cluster) {
            return;
        }
        assert!(call < 100_000, "it never comes to that");
        (0..2).for_each(|at| _ = cluster.progress_at(at));
    }
}

/// A message of this length goes from 0 to 1, and nothing is left.
fn assert_works(cluster: &mut Cluster, on: &[Channel]) {
    let (received, buffer) = cluster.receive(1, on[1], rank(0), tag(77), 60_000);
    let sent = cluster.send(0, on[0], 1, 77, &pattern(5, 60_000));
    cluster.settle();
    assert!(matches!(cluster.poll(1, received), State::Done(Ok(_))));
    assert_eq!((buffer.to_vec(), cluster.poll(0, sent)), (pattern(5, 60_000), NOT_CANCELLED));
    cluster.assert_clean();
    for node in &cluster.nodes {
        assert!(node.ob1.idle() && node.ob1.matcher.len() == 0 && node.ob1.rendezvous.streams().is_empty());
    }
    assert_eq!(cluster.nodes[0].ob1.rendezvous.owed(mend_base::PeerIndex(1)), 0);
}

#[test]
fn a_queued_send_that_is_cancelled_never_goes_out() {
    let (mut cluster, on) = known(1);
    cluster.fabric.borrow_mut().room = 0;
    let cancelled = cluster.send(0, on[0], 1, 1, b"first");
    let second = cluster.send(0, on[0], 1, 1, b"second");
    cancel(&mut cluster, 0, cancelled);
    assert_eq!((cluster.poll(0, cancelled), cluster.poll(0, second)), (CANCELLED, State::Running));
    cluster.fabric.borrow_mut().room = 64;
    cluster.settle();
    assert_eq!(cluster.receive(1, on[1], rank(0), tag(1), 6).1.to_vec(), b"second");
    assert_works(&mut cluster, &on);
}

#[test]
fn an_rts_that_is_cancelled_before_its_match_is_never_received_nor_probed() {
    for seed in 0..20 {
        let (mut cluster, on) = known(seed);
        let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
        until(&mut cluster, |cluster| cluster.nodes[1].ob1.matcher.len() == 1);
        cancel(&mut cluster, 0, sent);
        assert_eq!(cluster.poll(0, sent), CANCELLED, "the receiver did nothing");
        cluster.settle();
        assert_eq!(cluster.probe(1, on[1], Source::Any, TagSelector::Any), None, "seed {seed}");
        assert_works(&mut cluster, &on);
    }
}

#[test]
fn a_receive_that_had_matched_a_cancelled_rts_has_its_old_place_again() {
    for seed in 0..20 {
        let (mut cluster, on) = known(seed);
        let any = seed % 2 == 0;
        let from = if any { Source::Any } else { rank(0) };
        let receives = [0; 3].map(|_| cluster.receive(1, on[1], from, tag(1), 8));
        let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
        // The receiver has matched it; its CTS is under way.
        for _ in 0..100 {
            cluster.progress_at(1);
        }
        assert_eq!(cluster.nodes[1].ob1.rendezvous.streams().len(), 1);
        cancel(&mut cluster, 0, sent);
        assert_eq!(cluster.poll(0, sent), CANCELLED);
        cluster.settle();
        for (number, (started, buffer)) in (0u64..).zip(receives) {
            assert_eq!(cluster.poll(1, started), State::Running, "seed {seed}");
            cluster.send(0, on[0], 1, 1, &number.to_le_bytes());
            cluster.settle();
            assert!(matches!(cluster.poll(1, started), State::Done(Ok(_))), "seed {seed}: in their order");
            assert_eq!(buffer.to_vec(), number.to_le_bytes());
        }
        assert_works(&mut cluster, &on);
    }
}

#[test]
fn a_receive_that_had_matched_a_cancelled_rts_takes_what_came_behind_it() {
    for behind in [8, 4096, 60_000] {
        let (mut cluster, on) = known(3);
        let (started, buffer) = cluster.receive(1, on[1], rank(0), tag(1), LARGE);
        let cancelled = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
        let second = cluster.send_as(0, on[0], 1, 1, &pattern(2, behind), SendMode::Synchronous);
        (0..100).for_each(|_| _ = cluster.progress_at(1));
        assert_eq!(cluster.nodes[1].ob1.matcher.len(), 1);
        cancel(&mut cluster, 0, cancelled);
        cluster.settle();
        assert_eq!((cluster.poll(0, cancelled), cluster.poll(0, second)), (CANCELLED, NOT_CANCELLED));
        let State::Done(Ok(status)) = cluster.poll(1, started) else { panic!("not received") };
        assert_eq!(status.bytes, behind as u64);
        assert_eq!(buffer.to_vec()[..behind], pattern(2, behind));
        assert_works(&mut cluster, &on);
    }
}

/// A receive at 1 that has matched the RTS of 0; both operations were cancelled after that.
fn cancelled_by_both() -> (Cluster, Vec<Channel>, Started) {
    let (mut cluster, on) = known(7);
    let (receive, _) = cluster.receive(1, on[1], rank(0), tag(1), 8);
    let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
    (0..100).for_each(|_| _ = cluster.progress_at(1));
    assert_eq!(cluster.nodes[1].ob1.rendezvous.streams().len(), 1, "it has matched");
    cancel(&mut cluster, 0, sent);
    cancel(&mut cluster, 1, receive);
    (cluster, on, receive)
}

#[test]
fn a_matched_receive_that_is_cancelled_ends_cancelled_if_its_message_is_cancelled_too() {
    let (mut cluster, on, receive) = cancelled_by_both();
    cluster.settle();
    assert_eq!(cluster.poll(1, receive), CANCELLED);
    assert_works(&mut cluster, &on);
}

#[test]
fn a_receive_that_was_cancelled_and_freed_takes_no_later_message() {
    let (mut cluster, on, receive) = cancelled_by_both();
    cluster.nodes[1].ob1.free_request(request(receive));
    cluster.settle();
    cluster.send(0, on[0], 1, 1, b"later");
    cluster.settle();
    assert_eq!(cluster.receive(1, on[1], rank(0), tag(1), 5).1.to_vec(), b"later");
    assert_works(&mut cluster, &on);
}

#[test]
fn a_matched_receive_that_is_cancelled_receives_a_message_that_is_not_cancelled() {
    let (mut cluster, on) = known(8);
    let (receive, buffer) = cluster.receive(1, on[1], rank(0), tag(1), LARGE);
    let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
    (0..100).for_each(|_| _ = cluster.progress_at(1));
    cancel(&mut cluster, 1, receive);
    cluster.settle();
    assert_eq!(cluster.poll(0, sent), NOT_CANCELLED);
    assert!(matches!(cluster.poll(1, receive), State::Done(Ok(status)) if !status.cancelled));
    assert_eq!(buffer.to_vec(), pattern(1, LARGE));
    assert_works(&mut cluster, &on);
}

type Receive = (Started, Arc<Buffer>);

/// Two receives at 1, the first of which has matched an RTS of 0. The RTS is cancelled; its stream is not cancelled yet.
fn first_of_two_matched_what_is_cancelled(seed: u64, bytes: usize) -> (Cluster, Vec<Channel>, [Receive; 2]) {
    let (mut cluster, on) = known(seed);
    let receives = [bytes, 8].map(|bytes| cluster.receive(1, on[1], rank(0), tag(1), bytes));
    let cancelled = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
    (0..100).for_each(|_| _ = cluster.progress_at(1));
    cancel(&mut cluster, 0, cancelled);
    (cluster, on, receives)
}

#[test]
fn what_is_sent_after_a_cancellation_is_received_in_the_order_of_the_receives() {
    for seed in 0..20 {
        for bytes in [8, 64] {
            let (mut cluster, on, receives) = first_of_two_matched_what_is_cancelled(seed, bytes);
            cluster.send(0, on[0], 1, 1, &pattern(1, bytes));
            cluster.send(0, on[0], 1, 1, &pattern(2, 8));
            cluster.settle();
            for ((started, buffer), sent) in receives.into_iter().zip([pattern(1, bytes), pattern(2, 8)]) {
                assert!(matches!(cluster.poll(1, started), State::Done(Ok(_))), "seed {seed}");
                assert_eq!(buffer.to_vec(), sent, "seed {seed}");
            }
            assert_works(&mut cluster, &on);
        }
    }
}

#[test]
fn a_receive_that_waits_for_a_stream_number_is_matched_anew_when_its_message_is_cancelled() {
    let mut cluster = Cluster::with(2, 9, Config { streams_max: 1, ..TEST_CONFIG });
    let on = announced(&mut cluster);
    let labels = [1, 2];
    let receives = labels.map(|label| cluster.receive(1, on[1], rank(0), tag(label), LARGE));
    let sends = labels.map(|label| cluster.send(0, on[0], 1, label, &pattern(1, LARGE)));
    (0..100).for_each(|_| _ = cluster.progress_at(1));
    assert_eq!(cluster.nodes[1].ob1.rendezvous.pending(), 1);
    cancel(&mut cluster, 0, sends[1]);
    cluster.settle();
    assert!(matches!(cluster.poll(1, receives[0].0), State::Done(Ok(_))));
    assert_eq!(cluster.poll(1, receives[1].0), State::Running);
    cluster.send(0, on[0], 1, 2, b"later");
    cluster.settle();
    assert!(matches!(cluster.poll(1, receives[1].0), State::Done(Ok(status)) if status.bytes == 5));
    assert_works(&mut cluster, &on);
}

#[test]
fn a_receive_on_a_communicator_that_is_freed_takes_what_was_sent_after_a_cancelled_message() {
    let (mut cluster, on, receives) = first_of_two_matched_what_is_cancelled(1, 8);
    cancel(&mut cluster, 1, receives[1].0);
    cluster.send(0, on[0], 1, 1, &pattern(1, 8));
    // The message comes before the cancellation of the stream.
    (0..100).for_each(|_| _ = cluster.progress_at(1));
    cluster.nodes[1].ob1.close(on[1]);
    cluster.settle();
    assert!(matches!(cluster.poll(1, receives[0].0), State::Done(Ok(_))));
    assert_eq!(receives[0].1.to_vec(), pattern(1, 8));
}

#[test]
fn a_synchronous_send_whose_payload_has_gone_ends_and_is_not_cancelled() {
    let (mut cluster, on) = known(4);
    let sent = cluster.send_as(0, on[0], 1, 1, b"payload", SendMode::Synchronous);
    assert_eq!(cluster.poll(0, sent), State::Running);
    cancel(&mut cluster, 0, sent);
    assert_eq!(cluster.poll(0, sent), NOT_CANCELLED);
    cluster.settle();
    assert_eq!(cluster.receive(1, on[1], rank(0), tag(1), 7).1.to_vec(), b"payload");
    cluster.settle();
    assert_works(&mut cluster, &on);
}

#[test]
fn a_stream_whose_send_is_cancelled_goes_on_from_a_copy() {
    let (mut cluster, on) = known(5);
    let (received, buffer) = cluster.receive(1, on[1], rank(0), tag(1), LARGE);
    let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
    until(&mut cluster, |cluster| !cluster.fabric.borrow().queues[0][1][CHUNKS].is_empty());
    cancel(&mut cluster, 0, sent);
    assert_eq!(cluster.poll(0, sent), NOT_CANCELLED, "the receiver need not take the rest");
    cluster.nodes[0].ob1.release(request(sent));
    cluster.settle();
    assert!(matches!(cluster.poll(1, received), State::Done(Ok(_))));
    assert_eq!(buffer.to_vec(), pattern(1, LARGE));
    assert!(cluster.nodes[0].ob1.requests.len() == 0, "the copy is forgotten with its end");
    assert_works(&mut cluster, &on);
}

#[test]
fn a_cancelled_rts_is_gone_although_its_sender_frees_the_communicator_at_once() {
    for room in [0, 64] {
        let (mut cluster, on) = known(10);
        let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
        until(&mut cluster, |cluster| cluster.nodes[1].ob1.matcher.len() == 1);
        cluster.fabric.borrow_mut().room = room;
        cancel(&mut cluster, 0, sent);
        assert_eq!(cluster.poll(0, sent), CANCELLED);
        let ob1 = &mut cluster.nodes[0].ob1;
        ob1.release(request(sent));
        ob1.close(on[0]);
        assert!(!ob1.idle(), "MPI_Finalize waits until the cancellation has gone");
        cluster.fabric.borrow_mut().room = 64;
        cluster.settle();
        assert_eq!(cluster.probe(1, on[1], Source::Any, TagSelector::Any), None);
        cluster.assert_clean();
        let ob1 = &cluster.nodes[0].ob1;
        assert!(ob1.idle() && ob1.channels.is_empty() && ob1.requests.len() == 0);
    }
}

#[test]
fn a_cancellation_that_has_not_gone_ends_with_its_receiver() {
    let (mut cluster, on) = known(11);
    let sent = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
    cluster.fabric.borrow_mut().room = 0;
    cancel(&mut cluster, 0, sent);
    let node = &mut cluster.nodes[0];
    node.ob1.release(request(sent));
    node.ob1.close(on[0]);
    node.end(1, End::Failed);
    assert!(node.ob1.idle() && node.ob1.channels.is_empty() && node.ob1.requests.len() == 0);
}

#[test]
fn a_cancelled_rts_for_a_communicator_that_is_not_created_is_gone_when_it_is() {
    let mut cluster = Cluster::new(2, 6);
    let on = cluster.open_at(0, 5, ContextKind::PointToPoint);
    let cancelled = cluster.send(0, on, 1, 1, &pattern(1, LARGE));
    cluster.settle();
    cancel(&mut cluster, 0, cancelled);
    let second = cluster.send(0, on, 1, 1, b"next");
    cluster.settle();
    assert_eq!((cluster.poll(0, cancelled), cluster.poll(0, second)), (CANCELLED, NOT_CANCELLED));
    let late = cluster.open_at(1, 5, ContextKind::PointToPoint);
    assert_eq!(cluster.receive(1, late, rank(0), tag(1), 4).1.to_vec(), b"next");
    cluster.settle();
    assert_works(&mut cluster, &[on, late]);
}

#[test]
fn cancellations_at_any_moment_lose_nothing_that_was_not_cancelled() {
    let mut cancelled_at_all = 0;
    for seed in 0..600 {
        let mut random = Random(seed);
        let (mut cluster, on) = known(seed);
        cluster.fabric.borrow_mut().busy_once_in = [0, 3][random.below(2) as usize];
        let mut sends = vec![];
        let mut receives = vec![];
        for number in 0..12u64 {
            let length = [8, 4000, 30_000, 200_000][random.below(4) as usize];
            let mut bytes = pattern(number, length);
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            let mode = [SendMode::Standard, SendMode::Synchronous][random.below(2) as usize];
            let started = cluster.send_as(0, on[0], 1, 1, &bytes, mode);
            sends.push((number, started, bytes));
            if random.once_in(2) {
                receives.push(cluster.receive(1, on[1], rank(0), tag(1), 200_000));
            }
            (0..random.below(8)).for_each(|_| _ = cluster.progress_at(random.below(2) as usize));
            let (_, started, _) = sends[random.below(sends.len() as u64) as usize];
            if let (true, Started::Running(request)) = (random.once_in(2), started) {
                cluster.nodes[0].ob1.cancel(request);
                assert_ne!(cluster.nodes[0].poll(request), State::Running, "seed {seed}: 3.8.4");
            }
        }
        cluster.settle();
        let is_cancelled = |cluster: &Cluster, started| cluster.poll(0, started) == CANCELLED;
        let mut expected: Vec<_> =
            sends.iter().filter(|(_, started, _)| !is_cancelled(&cluster, *started)).collect();
        cancelled_at_all += sends.len() - expected.len();
        while receives.len() < expected.len() {
            receives.push(cluster.receive(1, on[1], rank(0), tag(1), 200_000));
            cluster.settle();
        }
        assert!(cluster.nodes[1].ob1.matcher.len() == 0, "seed {seed}: a cancelled message is here");
        let mut waiting = 0;
        for (started, buffer) in &receives {
            let State::Done(Ok(status)) = cluster.poll(1, *started) else {
                waiting += 1;
                continue;
            };
            let bytes = buffer.to_vec()[..status.bytes as usize].to_vec();
            let at = expected.iter().position(|(_, _, sent)| *sent == bytes);
            expected.remove(at.unwrap_or_else(|| panic!("seed {seed}: received and not sent")));
        }
        assert!(expected.is_empty(), "seed {seed}: {} were lost", expected.len());
        assert!(waiting <= sends.len(), "seed {seed}");
        cluster.assert_clean();
        assert!(cluster.nodes[0].ob1.idle() && cluster.fabric.borrow().queues[0][1][DATA].is_empty());
        assert_eq!(cluster.nodes[0].ob1.rendezvous.owed(mend_base::PeerIndex(1)), 0, "seed {seed}");
    }
    assert!(cancelled_at_all > 500, "{cancelled_at_all}");
}
