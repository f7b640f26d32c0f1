// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queues are bounded. `Busy` means that nothing was sent, and `on_sendable` reports when to try again.

use super::{Cluster, Fixture};
use crate::{MessageClass, SendError};

/// Without a receiver the queue becomes full; then sends answer `Busy` and do not call `fill` (the cluster checks the latter on every
/// send). The messages sent before arrive, and no others.
pub fn a_full_queue_is_busy_and_does_not_call_fill<F: Fixture>() {
    for len in [0, 8, 1000] {
        let mut cluster = Cluster::<F>::connected(2);
        let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
        let sent = cluster.fill_up(sender, receiver, len);
        assert!(sent > 0, "a connected endpoint accepts a message");
        if F::EXACT {
            for number in 0..10 {
                let again = cluster.try_send(sender, receiver, MessageClass::Data, 1000 + number, len);
                assert_eq!(again, Err(SendError::Busy));
            }
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
        while cluster.try_send(0, 2, MessageClass::Data, number, 64).is_err() {
            cluster.progress(0);
            cluster.progress(2);
        }
    }
    for _ in 0..1000 {
        cluster.progress(0);
        cluster.progress(2);
    }
    assert_eq!(cluster.numbers(2, 0), (0..500).collect::<Vec<_>>());
    cluster.settle();
    assert_eq!(cluster.numbers(1, 0), (0..sent).collect::<Vec<_>>());
}
