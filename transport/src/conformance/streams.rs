// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Large messages in chunks: in order within a stream, whatever else is in flight.

use super::cluster::{STEPS, pattern};
use super::{Cluster, Fixture};
use crate::{Ability, Class, SendError, Stream};
use mend_base::Random;

const STREAMS: [Stream; 2] = [Stream(3), Stream(0xFFFF_FFF0)];

fn two_with_streams<F: Fixture>() -> Option<Cluster<F>> {
    let mut cluster = Cluster::connected(2);
    cluster.can(Ability::Streams).then_some(cluster)
}

/// Two streams and messages at once; each is in order.
pub fn streams_interleave_each_in_order<F: Fixture>() {
    let Some(mut cluster) = two_with_streams::<F>() else { return };
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let (_, chunk, _) = cluster.sizes();
    let mut random = Random(3);
    let mut expected = [Vec::new(), Vec::new()];
    for number in 0..400 {
        let which = random.below(2) as usize;
        let len = 1 + random.below(chunk as u64) as usize;
        cluster.chunk(sender, receiver, STREAMS[which], number, len);
        expected[which].extend(pattern(number, len));
        cluster.send(sender, receiver, Class::Data, number, 16);
    }
    cluster.settle();
    for (stream, bytes) in STREAMS.into_iter().zip(expected) {
        assert!(cluster.stream(receiver, stream) == bytes, "{stream:?} is not what was sent");
    }
    assert_eq!(cluster.numbers(receiver, sender), (0..400).collect::<Vec<_>>());
}

/// Chunks go out until there is no room; `Busy`, then `on_room`, and more chunks.
pub fn a_full_stream_is_busy_and_loses_nothing<F: Fixture>() {
    let Some(mut cluster) = two_with_streams::<F>() else { return };
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let (_, chunk, _) = cluster.sizes();
    let (mut next, mut waits, mut expected) = (0, 0, Vec::new());
    while next < 200 {
        let rooms = cluster.rooms(sender, receiver);
        match cluster.try_chunk(sender, receiver, STREAMS[0], next, chunk) {
            Ok(()) => {
                expected.extend(pattern(next, chunk));
                next += 1;
            }
            Err(SendError::Busy) => {
                waits += 1;
                assert!(waits < STEPS, "room is announced but there is none");
                cluster.until("room comes", |cluster| cluster.rooms(sender, receiver) > rooms);
            }
            Err(error) => panic!("chunk {next}: {error:?}"),
        }
    }
    cluster.settle();
    assert!(waits > 0, "200 chunks went out without a receiver: the stream has no bound");
    assert!(cluster.stream(receiver, STREAMS[0]) == expected, "the stream is not what was sent");
}

/// From one byte to the whole chunk.
pub fn a_chunk_may_have_any_length_up_to_the_limit<F: Fixture>() {
    let Some(mut cluster) = two_with_streams::<F>() else { return };
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
