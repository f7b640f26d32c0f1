// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A peer that writes anything: evidence or harmless, never a crash, and the other peers go on.

use super::fabric::{CHUNKS, Cluster, Flight, pattern, rank, tag};
use crate::{AM_ID, Channel, SendMode, State};
use mend_base::{ContextKind, PeerIndex, Random, Source, TagSelector};
use mend_transport::{Cause, Stream};

/// Processes 0 and 1 have everything open towards 2, which then writes garbage.
fn busy(seed: u64) -> (Cluster, Vec<Channel>) {
    let mut cluster = Cluster::new(3, seed);
    let on = cluster.open(1, ContextKind::PointToPoint);
    cluster.open(1, ContextKind::Collective);
    for (from, to) in [(2, 0), (0, 2), (1, 0), (0, 1)] {
        cluster.send(from, on[from], to as u32, 0, b"hello");
        cluster.settle();
        cluster.receive(to, on[to], rank(from as u32), tag(0), 8);
    }
    let large = pattern(1, 20_000);
    cluster.receive(0, on[0], rank(2), tag(1), 20_000);
    cluster.send(2, on[2], 0, 1, &large);
    cluster.send(0, on[0], 2, 2, &large);
    cluster.send_as(0, on[0], 2, 3, b"x", SendMode::Synchronous);
    cluster.receive(0, on[0], Source::Any, tag(4), 16);
    for _ in 0..seed % 30 {
        cluster.progress_at(0);
        cluster.progress_at(2);
    }
    (cluster, on)
}

/// Changes one thing of something under way, or makes something up.
fn spoil(cluster: &mut Cluster, random: &mut Random) {
    let mut fabric = cluster.fabric.borrow_mut();
    let queues = &mut fabric.queues[2][0];
    let queue = random.below(3) as usize;
    let real = !queues[queue].is_empty() && random.once_in(2);
    let mut flight = if real {
        let at = random.below(queues[queue].len() as u64) as usize;
        queues[queue].remove(at).unwrap()
    } else {
        let mut header: Vec<u8> = (0..random.below(41)).map(|_| random.bits() as u8).collect();
        if let Some(kind) = header.first_mut() {
            *kind = *kind & 0x80 | random.below(15) as u8;
        }
        header.iter_mut().skip(1).for_each(|byte| *byte *= u8::from(random.once_in(3)));
        let stream = (queue == CHUNKS).then_some(Stream(random.below(1 << 22) as u32));
        Flight { id: AM_ID, header, payload: vec![7; random.below(40) as usize], stream }
    };
    if real {
        match random.below(4) {
            0 if !flight.header.is_empty() => {
                let at = random.below(flight.header.len() as u64) as usize;
                flight.header[at] = random.bits() as u8;
            }
            1 => flight.header.truncate(random.below(41) as usize),
            2 => flight.payload.resize(random.below(5000) as usize, 3),
            _ => flight.stream = flight.stream.map(|stream| Stream(stream.0 ^ 1 << random.below(32))),
        }
    }
    queues[queue].push_front(flight);
}

#[test]
fn whatever_a_peer_writes_is_evidence_or_harmless_and_the_others_go_on() {
    let mut found = 0;
    for seed in 0..10_000 {
        let mut random = Random(seed);
        let (mut cluster, on) = busy(seed);
        spoil(&mut cluster, &mut random);
        for _ in 0..60 {
            cluster.progress_at(0);
            cluster.progress_at(2);
        }
        let errors = &cluster.nodes[0].reported.errors;
        assert!(errors.len() <= 1, "seed {seed}: {errors:?}");
        assert!(errors.iter().all(|&error| error == (PeerIndex(2), Cause::Garbage)), "seed {seed}");
        found += errors.len();
        assert!(cluster.nodes[1].reported.errors.is_empty(), "seed {seed}");
        // The engine fences it.
        cluster.nodes[0].end(2, crate::End::Failed);
        let bytes = pattern(seed, 6000);
        let sent = cluster.send(1, on[1], 0, 9, &bytes);
        let (received, buffer) = cluster.receive(0, on[0], rank(1), TagSelector::Any, 6000);
        let mut turns = 0;
        while cluster.poll(0, received) == State::Running || cluster.poll(1, sent) == State::Running {
            cluster.progress_at(0);
            cluster.progress_at(1);
            turns += 1;
            assert!(turns < 10_000, "seed {seed}: the others wait");
        }
        assert_eq!(buffer.to_vec(), bytes, "seed {seed}");
    }
    assert!(found > 5_000, "only {found} of 10,000 were found");
}
