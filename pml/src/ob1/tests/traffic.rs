// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random traffic: every message arrives once, whole, and in MPI order, whatever is refused, delayed or queued.

use super::fabric::{Cluster, TEST_CONFIG, pattern};
use crate::{Channel, Config, Request, SendMode, Started, State, Status};
use mend_base::{ContextKind, Random, Rank, Source, Tag, TagSelector};
use mend_transport::{Ability, Buffer};
use std::sync::Arc;

const TAGS: u64 = 3;

/// A message that was sent.
struct Sent {
    from: u32,
    to: u32,
    channel: usize,
    tag: i32,
    bytes: Vec<u8>,
    started: Started,
    synchronous: bool,
}

/// A receive.
struct Taken {
    at: usize,
    channel: usize,
    from: Source,
    tag: TagSelector,
    buffer: Arc<Buffer>,
    started: Started,
    message: Option<usize>,
    cancelled: bool,
}

struct Traffic {
    cluster: Cluster,
    random: Random,
    channels: Vec<Vec<Channel>>,
    sent: Vec<Sent>,
    taken: Vec<Taken>,
}

const ROOM: usize = 70_000;

impl Traffic {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed ^ 0xABCD);
        let config = Config {
            eager_bytes: [0, 64, 4096][random.below(3) as usize],
            held_bytes_max: [500, 4 << 20][random.below(2) as usize],
            streams_max: [2, 1 << 20][random.below(2) as usize],
            ..TEST_CONFIG
        };
        let size = 1 + random.below(4) as usize;
        let mut cluster = Cluster::with(size, seed, config);
        cluster.fabric.borrow_mut().busy_once_in = [0, 2, 10][random.below(3) as usize];
        cluster.fabric.borrow_mut().room = [2, 64][random.below(2) as usize];
        if random.once_in(2) {
            cluster.allow_gets([500, 20_000][random.below(2) as usize]);
            let memory = &mut cluster.fabric.borrow_mut().memory;
            memory.gets_max = random.below(4) as usize;
            memory.fails_gets = random.once_in(8);
        }
        if random.once_in(4) {
            cluster.limit(|limits| {
                limits.abilities &= !(Ability::Streams as u32);
                limits.chunk_bytes = 0;
            });
        }
        let channels = (0..3).map(|number| cluster.open(number, ContextKind::PointToPoint)).collect();
        Traffic { cluster, random, channels, sent: vec![], taken: vec![] }
    }

    fn send(&mut self) {
        let size = self.channels[0].len() as u64;
        let (from, to) = (self.random.below(size) as u32, self.random.below(size) as u32);
        let channel = self.random.below(3) as usize;
        let tag = self.random.below(TAGS) as i32;
        let length = match self.random.below(4) {
            0 => self.random.below(9),
            1 => self.random.below(5000),
            2 => 4096,
            _ => self.random.below(ROOM as u64),
        };
        // The first bytes are the number of the message.
        let number = self.sent.len() as u64;
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.extend(pattern(number, length as usize));
        bytes.truncate(ROOM);
        let mode =
            [SendMode::Standard, SendMode::Synchronous, SendMode::Ready][self.random.below(3) as usize];
        let on = self.channels[channel][from as usize];
        let started = self.cluster.send_as(from as usize, on, to, tag, &bytes, mode);
        let synchronous = mode == SendMode::Synchronous;
        self.sent.push(Sent { from, to, channel, tag, bytes, started, synchronous });
    }

    fn receive(&mut self, any: bool) {
        let size = self.channels[0].len() as u64;
        let at = self.random.below(size) as usize;
        let channel = self.random.below(3) as usize;
        let from = Source::Rank(Rank(self.random.below(size) as u32));
        let from = if any || self.random.once_in(3) { Source::Any } else { from };
        let tag = TagSelector::Tag(Tag(self.random.below(TAGS) as i32));
        let tag = if any || self.random.once_in(3) { TagSelector::Any } else { tag };
        let on = self.channels[channel][at];
        let (started, buffer) = self.cluster.receive(at, on, from, tag, ROOM);
        let (message, cancelled) = (None, false);
        self.taken.push(Taken { at, channel, from, tag, buffer, started, message, cancelled });
    }

    /// Posts wildcard receives, as many as there are messages without one.
    fn receive_the_rest(&mut self) {
        for number in 0..self.taken.len() {
            let Taken { at, started, .. } = self.taken[number];
            if let Started::Running(request) = started {
                self.cluster.nodes[at].ob1.cancel(request);
            }
        }
        self.cluster.settle();
        for at in 0..self.channels[0].len() {
            for channel in 0..3 {
                let on = self.channels[channel][at];
                while self.cluster.probe(at, on, Source::Any, TagSelector::Any).is_some() {
                    let (from, tag) = (Source::Any, TagSelector::Any);
                    let (started, buffer) = self.cluster.receive(at, on, from, tag, ROOM);
                    let (message, cancelled) = (None, false);
                    self.taken.push(Taken { at, channel, from, tag, buffer, started, message, cancelled });
                    self.cluster.settle();
                }
            }
        }
    }

    /// Says which message each receive took, having compared every byte.
    fn identify(&mut self, seed: u64) {
        for number in 0..self.taken.len() {
            let Taken { at, started, .. } = self.taken[number];
            let status = match self.cluster.poll(at, started) {
                State::Done(Ok(status)) => status,
                other => panic!("seed {seed}: receive {number} is {other:?}"),
            };
            let taken = &mut self.taken[number];
            if status.cancelled {
                taken.cancelled = true;
                continue;
            }
            let bytes = taken.buffer.to_vec();
            let message = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
            let sent = &self.sent[message];
            assert_eq!(&bytes[..sent.bytes.len()], sent.bytes, "seed {seed}");
            let expected = Status {
                source: Some(Rank(sent.from)),
                tag: Tag(sent.tag),
                bytes: sent.bytes.len() as u64,
                cancelled: false,
            };
            assert_eq!(status, expected, "seed {seed}");
            assert_eq!((sent.to as usize, sent.channel), (at, taken.channel), "seed {seed}");
            assert!(taken.from.admits(Rank(sent.from)) && taken.tag.admits(Tag(sent.tag)), "seed {seed}");
            taken.message = Some(message);
        }
    }

    /// MPI-5.0 §3.5: of two messages of one sender that both receives admit, the first goes to the receive posted first.
    fn check_order(&self, seed: u64) {
        let mut seen = vec![false; self.sent.len()];
        for (second, late) in self.taken.iter().enumerate() {
            let Some(late_message) = late.message else { continue };
            assert!(!core::mem::replace(&mut seen[late_message], true), "seed {seed}: a message came twice");
            for early in &self.taken[..second] {
                let Some(early_message) = early.message else { continue };
                if (early.at, early.channel) != (late.at, late.channel) || early_message < late_message {
                    continue;
                }
                let (first, then) = (&self.sent[late_message], &self.sent[early_message]);
                let admitted = early.from.admits(Rank(first.from)) && early.tag.admits(Tag(first.tag));
                assert!(first.from != then.from || !admitted, "seed {seed}: a message was overtaken");
            }
        }
        assert!(seen.into_iter().all(|seen| seen), "seed {seed}: a message was lost");
    }
}

fn run(seed: u64) {
    let mut traffic = Traffic::new(seed);
    for _ in 0..120 {
        match traffic.random.below(5) {
            0 | 1 => traffic.send(),
            2 => traffic.receive(false),
            _ => {
                let at = traffic.random.below(traffic.channels[0].len() as u64) as usize;
                traffic.cluster.progress_at(at);
            }
        }
    }
    traffic.cluster.settle();
    for sent in &traffic.sent {
        let received = traffic.taken.iter().any(|taken| {
            matches!(traffic.cluster.poll(taken.at, taken.started), State::Done(Ok(_)))
                && taken.buffer.to_vec().starts_with(&sent.bytes[..8])
        });
        let over = traffic.cluster.poll(sent.from as usize, sent.started) != State::Running;
        assert!(!sent.synchronous || over == received, "seed {seed}: a synchronous send ends with its match");
    }
    traffic.receive_the_rest();
    traffic.cluster.settle();
    traffic.identify(seed);
    traffic.check_order(seed);
    for sent in &traffic.sent {
        let state = traffic.cluster.poll(sent.from as usize, sent.started);
        assert_eq!(state, State::Done(Ok(Status::EMPTY)), "seed {seed}");
    }
    finish(traffic, seed);
}

/// Everything is released and closed: nothing is left.
fn finish(mut traffic: Traffic, seed: u64) {
    let request_of = |started| match started {
        Started::Running(request) => Some(request),
        Started::Done(_) => None,
    };
    let sends = traffic.sent.iter().map(|sent| (sent.from as usize, request_of(sent.started)));
    let receives = traffic.taken.iter().map(|taken| (taken.at, request_of(taken.started)));
    let requests: Vec<(usize, Option<Request>)> = sends.chain(receives).collect();
    for (at, request) in requests {
        if let Some(request) = request {
            traffic.cluster.nodes[at].ob1.release(request);
        }
    }
    for (at, channel) in traffic.channels.iter().flat_map(|channels| channels.iter().enumerate()) {
        traffic.cluster.nodes[at].ob1.close(*channel);
    }
    traffic.cluster.settle();
    traffic.cluster.assert_clean();
    for node in &traffic.cluster.nodes {
        let ob1 = &node.ob1;
        assert!(ob1.idle() && ob1.requests.len() == 0 && ob1.matcher.len() == 0, "seed {seed}");
        assert!(
            ob1.rendezvous.streams().is_empty() && ob1.rendezvous.pending() == 0 && ob1.contexts.early() == 0,
            "seed {seed}"
        );
        assert!(ob1.channels.is_empty() && ob1.contexts.open_names() == 0, "seed {seed}");
        assert_eq!((ob1.contexts.ids_in_use(), ob1.queues.congested()), (0, 0), "seed {seed}");
        assert!(!ob1.queues.has_flush_pending() && !ob1.peers.has_evidence(), "seed {seed}");
    }
}

#[test]
fn every_message_arrives_once_whole_and_in_order_and_nothing_is_left() {
    for seed in 0..600 {
        run(seed);
    }
}

#[test]
fn no_sender_starves_where_wildcard_receives_take_messages() {
    let mut cluster = Cluster::new(4, 11);
    let on = cluster.open(1, ContextKind::PointToPoint);
    // One sender's flood is here before the only message of each other: that comes next all the same.
    for _ in 0..100 {
        cluster.send(1, on[1], 0, 0, &[1]);
    }
    cluster.settle();
    cluster.send(2, on[2], 0, 0, &[2]);
    cluster.settle();
    cluster.send(3, on[3], 0, 0, &[3]);
    cluster.settle();
    for _ in 0..100 {
        cluster.send(1, on[1], 0, 0, &[1]);
    }
    cluster.settle();
    let mut order = vec![];
    for _ in 0..202 {
        let (started, buffer) = cluster.receive(0, on[0], Source::Any, TagSelector::Any, 1);
        assert!(matches!(started, Started::Done(_)));
        order.push(buffer.to_vec()[0]);
    }
    assert_eq!((order[100], order[101]), (2, 3), "in the order of arrival");
}
