// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chunks of a stream arrive in order, whatever else is in flight.

use super::cluster::{STEPS, pattern};
use super::{Cluster, Fixture};
use crate::{Ability, MessageClass, SendError, Stream};
use mend_base::Random;

const STREAMS: [Stream; 2] = [Stream(3), Stream(0xFFFF_FFF0)];

fn two_with_streams<F: Fixture>(requirement: &str) -> Option<Cluster<F>> {
    Cluster::with_abilities(requirement, 2, &[Ability::Streams])
}

/// Two streams and messages are in flight at the same time; each arrives in order.
pub fn streams_interleave_each_in_order<F: Fixture>() {
    let Some(mut cluster) = two_with_streams::<F>("streams_interleave_each_in_order") else { return };
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let (_, chunk, _) = cluster.sizes();
    let mut random = Random(3);
    let mut expected = [Vec::new(), Vec::new()];
    for number in 0..400 {
        let which = random.below(2) as usize;
        let len = 1 + random.below(chunk as u64) as usize;
        cluster.chunk(sender, receiver, STREAMS[which], number, len);
        expected[which].extend(pattern(number, len));
        cluster.send(sender, receiver, MessageClass::Data, number, 16);
    }
    cluster.settle();
    for (stream, bytes) in STREAMS.into_iter().zip(expected) {
        assert!(cluster.stream(receiver, stream) == bytes, "{stream:?} is not what was sent");
    }
    assert_eq!(cluster.numbers(receiver, sender), (0..400).collect::<Vec<_>>());
}

/// A sender that waits for `on_sendable` after each `Busy` sends all its chunks.
pub fn a_full_stream_is_busy_and_loses_nothing<F: Fixture>() {
    let Some(mut cluster) = two_with_streams::<F>("a_full_stream_is_busy_and_loses_nothing") else { return };
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let (_, chunk, _) = cluster.sizes();
    let (mut next, mut waits, mut expected) = (0, 0, Vec::new());
    while next < 200 {
        let reports = cluster.sendable_reports(sender, receiver);
        match cluster.try_chunk(sender, receiver, STREAMS[0], next, chunk) {
            Ok(()) => {
                expected.extend(pattern(next, chunk));
                next += 1;
            }
            Err(SendError::Busy) => {
                waits += 1;
                assert!(waits < STEPS, "on_sendable was called, but the send is Busy");
                cluster.until("on_sendable comes", |cluster| {
                    cluster.sendable_reports(sender, receiver) > reports
                });
            }
            Err(error) => panic!("chunk {next}: {error:?}"),
        }
    }
    cluster.settle();
    assert!(waits > 0, "no chunk was Busy: the queue of chunks has no bound");
    assert!(cluster.stream(receiver, STREAMS[0]) == expected, "the stream is not what was sent");
}

/// Chunks of one byte up to the limit arrive as they were sent.
pub fn a_chunk_may_have_any_length_up_to_the_limit<F: Fixture>() {
    let Some(mut cluster) = two_with_streams::<F>("a_chunk_may_have_any_length_up_to_the_limit") else {
        return;
    };
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let (_, chunk, _) = cluster.sizes();
    let lengths = [1, 2, 7, 8, 9, 63, 64, 65, 127, 128, chunk - 65, chunk - 1, chunk];
    let mut expected = Vec::new();
    for (number, len) in (0..).zip(lengths) {
        cluster.chunk(sender, receiver, STREAMS[1], number, len);
        expected.extend(pattern(number, len));
    }
    cluster.settle();
    assert!(cluster.stream(receiver, STREAMS[1]) == expected, "the stream is not what was sent");
}
