// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queues are bounded. `Busy` means that nothing was sent, and `on_sendable` reports when to try again.

use super::cluster::{BUDGET, STEPS};
use super::{Cluster, Fixture};
use crate::{MessageClass, SendError};

/// Without a receiver the queue becomes full; then sends answer `Busy` and do not call `fill` (the cluster checks the latter on every
/// send). The messages that were sent arrive, and no others. A transport that finds out in `send` that there is room again may send some
/// more, but not without end.
pub fn a_full_queue_is_busy_and_does_not_call_fill<F: Fixture>() {
    for len in [0, 8, 1000] {
        let mut cluster = Cluster::<F>::connected(2);
        let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
        let mut sent = cluster.fill_up(sender, receiver, len);
        assert!(sent > 0, "a connected endpoint accepts a message");
        for _ in 0..10 {
            let more = cluster.fill_up_from(sent, sender, receiver, len);
            assert!(!F::READY_IS_EXACT || !F::EXACT || more == sent, "a full queue accepts a message");
            sent = more;
        }
        cluster.settle();
        assert_eq!(
            cluster.numbers(receiver, sender),
            (0..sent).collect::<Vec<_>>(),
            "payloads of {len} bytes"
        );
    }
}

/// A sender that waits for `on_sendable` after each `Busy` sends all its messages.
pub fn on_sendable_comes_after_busy_and_nothing_is_lost<F: Fixture>() {
    for len in [8, 1000] {
        let mut cluster = Cluster::<F>::connected(2);
        let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
        let (mut next, mut waits) = (0, 0);
        while next < 3000 {
            let reports = cluster.sendable_reports(sender, receiver);
            match cluster.try_send(sender, receiver, MessageClass::Data, next, len) {
                Ok(()) => next += 1,
                Err(SendError::Busy) => {
                    waits += 1;
                    cluster.until("on_sendable comes after Busy", |cluster| {
                        cluster.sendable_reports(sender, receiver) > reports
                    });
                }
                Err(error) => panic!("message {next}: {error:?}"),
            }
        }
        cluster.settle();
        assert!(waits > 0, "the queue was never full");
        assert_eq!(cluster.numbers(receiver, sender), (0..3000).collect::<Vec<_>>());
    }
}

/// A peer that makes no progress delays only messages to itself.
pub fn one_full_peer_does_not_stop_the_others<F: Fixture>() {
    if F::ALONE {
        return;
    }
    let mut cluster = Cluster::<F>::connected(3);
    let sent = cluster.fill_up(0, 1, 64);
    for number in 0..500 {
        let sent = (0..STEPS).any(|_| {
            let answer = cluster.try_send(0, 2, MessageClass::Data, number, 64);
            if answer.is_err() {
                cluster.progress_of(&[0, 2], BUDGET);
            }
            answer.is_ok()
        });
        assert!(sent, "message {number} waits for a peer that is not its receiver");
    }
    cluster.until_of("all messages arrive", &[0, 2], BUDGET, |cluster| cluster.numbers(2, 0).len() >= 500);
    assert_eq!(cluster.numbers(2, 0), (0..500).collect::<Vec<_>>());
    cluster.settle();
    assert_eq!(cluster.numbers(1, 0), (0..sent).collect::<Vec<_>>());
}
