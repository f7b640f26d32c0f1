// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that are given up, at either end and in every state; and contexts that a failure has broken.

use super::fabric::{CHUNKS, CONTROL, Cluster, DATA, pattern, rank, request, tag};
use crate::envelope::Packet;
use crate::{Channel, Config, End, Error, Ob1, SendMode, Started, State, Status};
use mend_base::{ContextKind, PeerIndex, Random, Rank, Source};
use mend_transport::{Buffer, Cause};
use std::sync::Arc;

const LARGE: usize = 1 << 20;

/// Every process knows by which id each other knows the channel.
fn known(cluster: &mut Cluster, context_kind: ContextKind) -> Vec<Channel> {
    let on = cluster.open(1, context_kind);
    for (from, to) in (0..on.len()).flat_map(|from| (0..on.len()).map(move |to| (from, to))) {
        let sent = cluster.send(from, on[from], to as u32, 0, b"hello");
        cluster.settle();
        cluster.receive(to, on[to], rank(from as u32), tag(0), 8);
        release(cluster, from, sent);
    }
    on
}

fn release(cluster: &mut Cluster, at: usize, started: Started) {
    if let Started::Running(request) = started {
        cluster.nodes[at].ob1.release(request);
    }
}

fn abandon(cluster: &mut Cluster, at: usize, started: Started) {
    cluster.nodes[at].ob1.abandon(request(started));
    assert_eq!(cluster.poll(at, started), State::Done(Err(Error::NoSuchRequest)), "it is forgotten");
}

/// Makes progress at two of them until the condition holds.
fn until(cluster: &mut Cluster, pair: [usize; 2], condition: impl Fn(&Cluster) -> bool) {
    for call in 0.. {
        if condition(cluster) {
            return;
        }
        assert!(call < 100_000, "it never comes to that");
        for at in pair {
            cluster.progress_at(at);
        }
    }
}

/// Nothing is left over at any process in `nodes`.
fn assert_nothing_left(cluster: &Cluster, nodes: impl IntoIterator<Item = usize>, seed: u64) {
    for at in nodes {
        let ob1: &Ob1<u32> = &cluster.nodes[at].ob1;
        assert!(ob1.idle(), "seed {seed}: {at} has something to send");
        assert!(ob1.requests.len() == 0, "seed {seed}: {at} keeps {:?}", ob1.requests);
        assert!(ob1.rendezvous.streams().is_empty(), "seed {seed}: {at} keeps streams");
        assert!(ob1.matcher.len() == 0 && ob1.rendezvous.pending() == 0, "seed {seed}: {at} keeps messages");
        assert!(
            cluster.nodes[at].reported.errors.is_empty(),
            "seed {seed}: {:?}",
            cluster.nodes[at].reported
        );
    }
}

/// What a pair can still do with each other.
fn assert_talks(cluster: &mut Cluster, on: &[Channel], from: usize, to: usize) {
    let bytes = pattern(77, 50_000);
    let sent = cluster.send(from, on[from], to as u32, 99, &bytes);
    let (received, buffer) = cluster.receive(to, on[to], rank(from as u32), tag(99), 50_000);
    cluster.settle();
    assert_eq!(cluster.poll(from, sent), State::Done(Ok(Status::EMPTY)));
    let State::Done(Ok(_)) = cluster.poll(to, received) else { panic!("not received") };
    release(cluster, to, received);
    assert_eq!(buffer.to_vec(), bytes);
    release(cluster, from, sent);
}

#[test]
fn a_queued_send_that_is_given_up_leaves_no_hole_for_those_behind_it() {
    let mut cluster = Cluster::new(2, 1);
    let on = known(&mut cluster, ContextKind::PointToPoint);
    cluster.fabric.borrow_mut().room = 0;
    let given_up = cluster.send(0, on[0], 1, 1, b"first");
    let second = cluster.send(0, on[0], 1, 1, b"second");
    abandon(&mut cluster, 0, given_up);
    cluster.fabric.borrow_mut().room = 64;
    cluster.settle();
    let (_, buffer) = cluster.receive(1, on[1], rank(0), tag(1), 6);
    assert_eq!(buffer.to_vec(), b"second");
    cluster.nodes[0].ob1.release(request(second));
    assert_nothing_left(&cluster, 0..2, 1);
}

#[test]
fn a_send_to_a_peer_that_is_never_connected_can_be_given_up() {
    let mut cluster = Cluster::new(2, 2);
    cluster.connects = false;
    let on = cluster.open(1, ContextKind::PointToPoint);
    let sends = [1, 2].map(|label| cluster.send(0, on[0], 1, label, b"x"));
    assert!(!cluster.nodes[0].ob1.idle());
    sends.iter().for_each(|&send| abandon(&mut cluster, 0, send));
    assert_nothing_left(&cluster, 0..1, 2);
    assert_eq!(cluster.nodes[0].ob1.queues.congested(), 0);
}

#[test]
fn an_rts_that_is_given_up_meets_its_late_answer_and_the_receive_goes_on() {
    use ContextKind::{Agreement, Collective, Creation, Leaders, PointToPoint};
    let kinds = [PointToPoint, Collective, Creation, Agreement, Leaders];
    for (seed, context_kind) in (0..20).flat_map(|seed| kinds.map(|kind| (seed, kind))) {
        let mut cluster = Cluster::new(2, seed);
        let on = known(&mut cluster, context_kind);
        let rts = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
        let synchronous = cluster.send_as(0, on[0], 1, 2, b"x", SendMode::Synchronous);
        until(&mut cluster, [0, 1], |cluster| cluster.nodes[1].ob1.matcher.len() == 2);
        for given_up in [rts, synchronous] {
            abandon(&mut cluster, 0, given_up);
        }
        assert!(cluster.nodes[0].ob1.idle(), "Finalize would not wait for an answer");
        // The receiver takes them as if nothing had happened: Cts, and Matched.
        let (matched, buffer) = cluster.receive(1, on[1], rank(0), tag(1), LARGE);
        let (whole, _) = cluster.receive(1, on[1], rank(0), tag(2), 1);
        assert!(matches!(whole, Started::Done(_)));
        cluster.settle();
        // It is posted again, as if nothing had been sent; in a collective operation poison follows.
        let expected = match context_kind {
            PointToPoint | Collective | Agreement => State::Running,
            Creation | Leaders => State::Done(Err(Error::PeerFreed(Rank(0)))),
        };
        assert_eq!(cluster.poll(1, matched), expected);
        abandon(&mut cluster, 1, matched);
        assert_eq!(buffer.to_vec(), vec![0; LARGE]);
        assert_eq!(cluster.nodes[0].ob1.rendezvous.owed(PeerIndex(1)), 0, "both were answered");
        assert_talks(&mut cluster, &on, 0, 1);
        assert_talks(&mut cluster, &on, 1, 0);
        assert_nothing_left(&cluster, 0..2, seed);
    }
}

#[test]
fn a_stream_that_its_sender_gives_up_is_cancelled_and_its_number_comes_back() {
    for (seed, context_kind) in
        (0..40).flat_map(|seed| [(seed, ContextKind::PointToPoint), (seed, ContextKind::Collective)])
    {
        let mut cluster = Cluster::with(2, seed, Config { streams_max: 1, ..super::fabric::TEST_CONFIG });
        let on = known(&mut cluster, context_kind);
        let streaming = cluster.send(0, on[0], 1, 1, &pattern(1, LARGE));
        let (matched, buffer) = cluster.receive(1, on[1], rank(0), tag(1), LARGE);
        let chunks = (seed % 5) as usize;
        until(&mut cluster, [0, 1], |cluster| {
            let under_way = cluster.fabric.borrow().queues[0][1][CHUNKS].len();
            cluster.nodes[1].ob1.rendezvous.streams().len() == 1 && under_way >= chunks
        });
        let sent = match cluster.nodes[0].ob1.requests.get(request(streaming).0).unwrap().phase() {
            crate::request_table::Phase::Streaming { sent, .. } => *sent,
            _ => 0,
        };
        abandon(&mut cluster, 0, streaming);
        assert!(cluster.nodes[0].ob1.rendezvous.owed(PeerIndex(1)) <= 1);
        let untouched = cluster.nodes[0].ob1.rendezvous.owed(PeerIndex(1)) > 0 || sent == 0;
        let posted_again = untouched || context_kind == ContextKind::Collective;
        until(&mut cluster, [0, 1], |cluster| posted_again || cluster.poll(1, matched) != State::Running);
        let before = buffer.to_vec();
        if !posted_again {
            assert_eq!(cluster.poll(1, matched), State::Done(Err(Error::PeerFreed(Rank(0)))));
            cluster.settle();
            // Row PP23: what was under way is dropped.
            assert_eq!(buffer.to_vec(), before, "seed {seed}");
        }
        cluster.settle();
        abandon(&mut cluster, 1, matched);
        assert_talks(&mut cluster, &on, 0, 1);
        assert_nothing_left(&cluster, 0..2, seed);
    }
}

#[test]
fn a_receive_that_is_given_up_does_not_touch_its_buffer_any_more() {
    for (seed, context_kind) in
        (0..40).flat_map(|seed| [(seed, ContextKind::PointToPoint), (seed, ContextKind::Collective)])
    {
        let mut cluster = Cluster::with(2, seed, Config { streams_max: 1, ..super::fabric::TEST_CONFIG });
        let on = known(&mut cluster, context_kind);
        let (posted, never) = cluster.receive(1, on[1], rank(0), tag(9), 8);
        let sends = [1, 2].map(|label| cluster.send(0, on[0], 1, label, &pattern(1, LARGE)));
        let receives = [1, 2].map(|label| cluster.receive(1, on[1], rank(0), tag(label), LARGE));
        until(&mut cluster, [0, 1], |cluster| {
            let came = receives.iter().any(|(_, buffer)| buffer.to_vec()[0] != 0);
            came && cluster.nodes[1].ob1.rendezvous.pending() == 1
        });
        for started in [posted, receives[0].0, receives[1].0] {
            abandon(&mut cluster, 1, started);
        }
        let before = receives.each_ref().map(|(_, buffer)| buffer.to_vec());
        cluster.send(0, on[0], 1, 9, b"late");
        cluster.settle();
        assert_eq!(receives.each_ref().map(|(_, buffer)| buffer.to_vec()), before, "seed {seed}");
        assert_eq!(never.to_vec(), [0; 8]);
        // The stream went on to its end; the other was refused.
        let [streamed, refused] = sends.map(|send| cluster.poll(0, send));
        // A collective operation sends on to its other members then.
        let ended = State::Done(Err(match context_kind {
            ContextKind::Collective => Error::Poisoned { by: Rank(1), failed: None },
            _ => Error::PeerFreed(Rank(1)),
        }));
        let done = State::Done(Ok(Status::EMPTY));
        assert!([streamed, refused] == [done, ended] || [streamed, refused] == [ended, done], "seed {seed}");
        assert!(cluster.nodes[0].ob1.idle());
        sends.iter().for_each(|&send| abandon(&mut cluster, 0, send));
        // A message that no receive takes stays a message.
        assert!(matches!(cluster.receive(1, on[1], rank(0), tag(9), 8).0, Started::Done(_)));
        assert_talks(&mut cluster, &on, 0, 1);
        assert_nothing_left(&cluster, 0..2, seed);
    }
}

#[test]
fn both_ends_may_give_up_at_the_same_time() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut cluster = Cluster::with(2, seed, Config { streams_max: 2, ..super::fabric::TEST_CONFIG });
        cluster.fabric.borrow_mut().busy_once_in = [0, 3][random.below(2) as usize];
        let on = known(&mut cluster, ContextKind::Collective);
        let mut running = vec![];
        for label in 0..4 {
            running.push((0, cluster.send(0, on[0], 1, label, &pattern(1, 60_000))));
            running.push((1, cluster.receive(1, on[1], rank(0), tag(label), 60_000).0));
        }
        while !running.is_empty() {
            for _ in 0..random.below(12) {
                cluster.progress_at(random.below(2) as usize);
            }
            let (at, started) = running.swap_remove(random.below(running.len() as u64) as usize);
            cluster.nodes[at].ob1.abandon(request(started));
        }
        cluster.settle();
        // What no receive took is dropped with the communicator, and its sender is refused.
        cluster.nodes[1].ob1.close(on[1]);
        cluster.settle();
        assert_nothing_left(&cluster, 0..2, seed);
        assert_eq!(cluster.nodes[0].ob1.rendezvous.owed(PeerIndex(1)), 0, "seed {seed}");
    }
}

#[test]
fn an_answer_is_late_only_where_something_was_given_up_and_else_garbage() {
    let evidence = |label: i32, twice: bool| {
        let mut cluster = Cluster::new(2, 3);
        let on = known(&mut cluster, ContextKind::PointToPoint);
        let rts = cluster.send(0, on[0], 1, label, &pattern(1, LARGE));
        until(&mut cluster, [0, 1], |cluster| cluster.nodes[1].ob1.matcher.len() == 1);
        let key = request(rts).0;
        abandon(&mut cluster, 0, rts);
        let mut answer = |packet: Packet| {
            cluster.nodes[1].ob1.answer(PeerIndex(0), packet);
            cluster.settle();
            cluster.nodes[0].reported.errors.len()
        };
        let made_up = mend_base::Key { index: key.index, generation: key.generation + 2 };
        if twice {
            assert_eq!(answer(Packet::Matched { key }), 0, "late");
            answer(Packet::Matched { key })
        } else {
            answer(Packet::Matched { key: made_up })
        }
    };
    assert_eq!(evidence(1, true), 1, "answered twice");
    assert_eq!(evidence(1, false), 1, "never given out");
}

#[test]
fn a_cancelled_stream_of_another_peer_or_of_more_than_was_sent_is_garbage() {
    for (more, other) in [(true, false), (false, true)] {
        let mut cluster = Cluster::new(3, 4);
        let on = known(&mut cluster, ContextKind::PointToPoint);
        cluster.receive(0, on[0], rank(1), tag(1), LARGE);
        cluster.send(1, on[1], 0, 1, &pattern(1, LARGE));
        until(&mut cluster, [0, 1], |cluster| cluster.nodes[0].ob1.rendezvous.streams().len() == 1);
        let stream = cluster.nodes[0].ob1.rendezvous.streams()[0];
        let (from, sent) = if other { (2, 0) } else { (1, LARGE as u64 * u64::from(more)) };
        cluster.nodes[from].ob1.answer(PeerIndex(0), Packet::Cancel { stream, sent });
        cluster.settle();
        assert_eq!(cluster.nodes[0].reported.errors, [(PeerIndex(from as u32), Cause::Garbage)]);
    }
}

#[test]
fn an_operation_of_a_collective_asks_about_members_that_are_not_connected() {
    let mut cluster = Cluster::new(3, 8);
    let (user, on) = (cluster.open(2, ContextKind::PointToPoint), cluster.open(1, ContextKind::Collective));
    for (from, to) in [(0, 1), (1, 0)] {
        cluster.send(from, user[from], to as u32, 0, b"hello");
        cluster.settle();
        cluster.receive(to, user[to], rank(from as u32), tag(0), 8);
    }
    let unconnected = |cluster: &mut Cluster| (0..9).find_map(|_| cluster.nodes[0].ob1.next_unconnected());
    let (named, _) = cluster.receive(0, user[0], rank(1), tag(1), 8);
    assert_eq!(unconnected(&mut cluster), None, "it waits for 1 alone");
    for receives in [true, false] {
        let waiting = match receives {
            true => cluster.receive(0, on[0], rank(1), tag(1), 8).0,
            false => cluster.send(0, on[0], 1, 1, &pattern(1, LARGE)),
        };
        cluster.settle();
        assert_eq!(unconnected(&mut cluster), Some(PeerIndex(2)), "1 may have given up because of 2");
        abandon(&mut cluster, 0, waiting);
    }
    assert_eq!(cluster.poll(0, named), State::Running);
}

#[test]
fn messages_for_a_communicator_created_elsewhere_alone_are_refused_at_finalize() {
    let mut cluster = Cluster::new(2, 7);
    let on = cluster.open_at(0, 5, ContextKind::PointToPoint);
    let before = cluster.send(0, on, 1, 1, &pattern(1, LARGE));
    cluster.settle();
    cluster.nodes[1].ob1.begin_finalize();
    let after = cluster.send_as(0, on, 1, 1, b"x", SendMode::Synchronous);
    cluster.settle();
    for refused in [before, after] {
        assert_eq!(cluster.poll(0, refused), State::Done(Err(Error::PeerFreed(Rank(1)))));
        cluster.nodes[0].ob1.release(request(refused));
    }
    assert!(cluster.nodes[1].ob1.contexts.early() == 0);
    assert_nothing_left(&cluster, 0..2, 7);
}

/// One operation of a rank.
struct Operation {
    at: usize,
    /// [`ANY`]: a wildcard receive.
    other: u32,
    context_kind: ContextKind,
    started: Started,
    buffer: Option<Arc<Buffer>>,
}

const ANY: u32 = 9;

/// Traffic of three; the last one fails, and the two others are notified at different moments.
struct Traffic {
    seed: u64,
    random: Random,
    cluster: Cluster,
    collective: Vec<Channel>,
    user: Vec<Channel>,
    operations: Vec<Operation>,
    /// Buffers of what has ended, as they were then.
    ended_buffers: Vec<(Arc<Buffer>, Vec<u8>)>,
}

impl Traffic {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let streams_max = [1, 2, 1 << 10][random.below(3) as usize];
        let mut cluster = Cluster::with(3, seed, Config { streams_max, ..super::fabric::TEST_CONFIG });
        cluster.fabric.borrow_mut().busy_once_in = [0, 3][random.below(2) as usize];
        let (collective, user) =
            (cluster.open(1, ContextKind::Collective), cluster.open(2, ContextKind::PointToPoint));
        Traffic { seed, random, cluster, collective, user, operations: vec![], ended_buffers: vec![] }
    }

    /// One rank does something.
    fn step(&mut self, at: usize, is_notified: bool) {
        // A rank that is notified starts nothing on the collective context any more.
        let context_kind = if self.random.once_in(2) || is_notified {
            ContextKind::PointToPoint
        } else {
            ContextKind::Collective
        };
        let on = if context_kind == ContextKind::PointToPoint { self.user[at] } else { self.collective[at] };
        let (other, label) = (self.random.below(3) as u32, self.random.below(2) as i32);
        let length = [4, 4096, 60_000][self.random.below(3) as usize];
        let (other, started, buffer) = match self.random.below(6) {
            0 => (other, self.cluster.send(at, on, other, label, &pattern(1, length)), None),
            1 => {
                let any = self.random.once_in(4) && context_kind == ContextKind::PointToPoint;
                let (from, other) = if any { (Source::Any, ANY) } else { (rank(other), other) };
                let (started, buffer) = self.cluster.receive(at, on, from, tag(label), length);
                (other, started, Some(buffer))
            }
            _ => return self.progress_at(at, 1),
        };
        self.operations.push(Operation { at, other, context_kind, started, buffer });
    }

    fn progress_at(&mut self, at: usize, times: u32) {
        for _ in 0..times {
            self.cluster.progress_at(at);
        }
    }

    /// It fails: nothing reaches it any more. What it had sent whole is still under way.
    fn die(&mut self) {
        let mut fabric = self.cluster.fabric.borrow_mut();
        for (from, queue) in (0..3).flat_map(|from| [DATA, CONTROL, CHUNKS].map(|queue| (from, queue))) {
            fabric.queues[from][2][queue].clear();
        }
    }

    /// One of the others is notified, and gives up its operations on the collective context.
    fn notify(&mut self, at: usize) {
        while !self.cluster.fabric.borrow().queues[2][at].iter().all(|queue| queue.is_empty()) {
            self.cluster.progress_at(at);
        }
        self.cluster.nodes[at].end(2, End::Failed);
        let over: Vec<_> = self
            .operations
            .extract_if(.., |operation| {
                operation.at == at && operation.context_kind == ContextKind::Collective
            })
            .collect();
        for Operation { started, buffer, .. } in over {
            if let Started::Running(request) = started {
                self.cluster.nodes[at].ob1.abandon(request);
            }
            self.ended_buffers.extend(buffer.map(|buffer| (Arc::clone(&buffer), buffer.to_vec())));
        }
    }

    /// What the failure must have ended has ended; what may go on, goes on.
    fn check_living(&mut self) {
        let seed = self.seed;
        for operation in self.operations.iter().filter(|operation| operation.at < 2) {
            let state = self.cluster.poll(operation.at, operation.started);
            match operation.other {
                2 => assert!(
                    matches!(state, State::Done(_)),
                    "seed {seed}: something waits for the failed rank"
                ),
                ANY => assert!(state != State::Running, "seed {seed}: no failure is pending"),
                _ => {}
            }
        }
        (0..2).for_each(|at| assert_eq!(self.cluster.nodes[at].acknowledge(self.user[at], 1), 1));
        let (cluster, on) = (&mut self.cluster, &self.user);
        let sent = cluster.send(0, on[0], 1, 1234, &pattern(seed, 9_000));
        let (received, buffer) = cluster.receive(1, on[1], rank(0), tag(1234), 9_000);
        until(cluster, [0, 1], |cluster| {
            cluster.poll(0, sent) != State::Running && cluster.poll(1, received) != State::Running
        });
        assert_eq!(buffer.to_vec(), pattern(seed, 9_000), "seed {seed}");
        release(cluster, 0, sent);
        release(cluster, 1, received);
    }

    /// The rest is given up too, and all is closed: nothing is left over.
    fn check_end(mut self) {
        let seed = self.seed;
        for Operation { at, started, .. } in self.operations.drain(..) {
            if let (true, Started::Running(request)) = (at < 2, started) {
                self.cluster.nodes[at].ob1.abandon(request);
            }
        }
        for at in 0..2 {
            self.cluster.nodes[at].ob1.close(self.collective[at]);
            self.cluster.nodes[at].ob1.close(self.user[at]);
        }
        for _ in 0..2_000 {
            let at = self.random.below(2) as usize;
            self.progress_at(at, 1);
        }
        assert_nothing_left(&self.cluster, 0..2, seed);
        for (buffer, then) in &self.ended_buffers {
            assert!(buffer.to_vec() == *then, "seed {seed}: a buffer changed after its end");
        }
        for node in &self.cluster.nodes[..2] {
            assert!(node.ob1.channels.is_empty() && node.ob1.contexts.ids_in_use() == 0, "seed {seed}");
        }
    }
}

#[test]
fn a_failure_that_is_learned_late_and_unequally_ends_everything_and_leaves_nothing() {
    for seed in 0..600 {
        let mut traffic = Traffic::new(seed);
        let death = traffic.random.below(150);
        let notified = [0, 1].map(|_| death + traffic.random.below(80));
        for step in 0..300 {
            let at = traffic.random.below(if step < death { 3 } else { 2 }) as usize;
            traffic.step(at, at < 2 && step > notified[at]);
            if step == death {
                traffic.die();
            }
            (0..2).filter(|&at| step == notified[at]).for_each(|at| traffic.notify(at));
        }
        traffic.die();
        (0..40).for_each(|call| traffic.progress_at(call % 2, 1));
        traffic.check_living();
        traffic.check_end();
    }
}
