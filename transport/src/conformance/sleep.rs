// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `arm` answers `EventPending` if, and only if, there is an event; if it succeeds, each message wakes the sleeper.

use super::cluster::STEPS;
use super::{Cluster, Fixture};
use crate::{Btl, EventPending, MessageClass, WakeSet};

/// Without messages `arm` succeeds each time, and messages arrive after `disarm` as before.
pub fn arm_succeeds_where_nothing_is_pending<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    for number in 0..50 {
        cluster.settle();
        assert_eq!(arm(&mut cluster, receiver), Ok(()), "round {number}");
        disarm_and_check_woken(&mut cluster, receiver);
        cluster.send(sender, receiver, MessageClass::Data, number, 8);
    }
    cluster.settle();
    assert_eq!(cluster.numbers(receiver, sender), (0..50).collect::<Vec<_>>());
}

/// While a message of any class is there, `arm` answers `EventPending`.
pub fn arm_is_pending_where_something_is<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    for (number, class) in
        (0..).zip([MessageClass::Data, MessageClass::Control, MessageClass::Mailbox, MessageClass::Data])
    {
        cluster.send(sender, receiver, class, number, 8);
        if sender != receiver {
            (0..100).for_each(|_| _ = cluster.progress(sender));
        }
        if cluster.numbers(receiver, sender).len() <= number as usize {
            assert_eq!(arm(&mut cluster, receiver), Err(EventPending), "a message of {class:?} is there");
            disarm_and_check_woken(&mut cluster, receiver);
        }
        cluster.settle();
        assert_eq!(arm(&mut cluster, receiver), Ok(()), "nothing is there any more");
        disarm_and_check_woken(&mut cluster, receiver);
    }
}

/// When a peer sends to a sleeper, the sleeper is woken, and its next calls of progress deliver the message.
pub fn a_message_after_arm_wakes_and_is_delivered<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let classes = [MessageClass::Data, MessageClass::Control, MessageClass::Mailbox];
    for (number, class) in (0..60).zip(classes.into_iter().cycle()) {
        cluster.settle();
        assert_eq!(arm(&mut cluster, receiver), Ok(()));
        let sent = (0..STEPS).any(|_| {
            // Only the sender makes progress: the receiver sleeps.
            if sender != receiver {
                cluster.progress(sender);
            }
            cluster.try_send(sender, receiver, class, number, 8).is_ok()
        });
        assert!(sent, "an idle endpoint accepts a message");
        if sender != receiver {
            (0..100).for_each(|_| _ = cluster.progress(sender));
        }
        let woken = disarm_and_check_woken(&mut cluster, receiver);
        assert!(sender == receiver || woken != Some(false), "{class:?} {number} did not wake the receiver");
        cluster.until("the message arrives", |cluster| {
            cluster.numbers(receiver, sender).len() == number as usize + 1
        });
    }
}

/// A sender sleeps after `Busy`: progress of the receiver wakes the sender, and `on_sendable` follows.
pub fn sendable_after_arm_wakes_and_is_reported<F: Fixture>() {
    if F::ALONE {
        return;
    }
    let mut cluster = Cluster::<F>::connected(2);
    for round in 0..10 {
        cluster.settle();
        cluster.clear_callbacks(0);
        let sent = cluster.fill_up(0, 1, 64);
        while cluster.progress(0) > 0 {}
        let reports = cluster.sendable_reports(0, 1);
        let asleep = arm(&mut cluster, 0) == Ok(()) && reports == 0;
        (0..1000).for_each(|_| _ = cluster.progress(1));
        let woken = disarm_and_check_woken(&mut cluster, 0);
        assert!(
            !asleep || woken != Some(false),
            "round {round}: {sent} messages were received, and the sender was not woken"
        );
        cluster.until("on_sendable comes", |cluster| cluster.sendable_reports(0, 1) > 0);
    }
}

fn arm<F: Fixture>(cluster: &mut Cluster<F>, index: usize) -> Result<(), EventPending> {
    let mut wake = WakeSet::default();
    cluster.fixture.announce_sleep(index);
    cluster.btl(index).arm(&mut wake)
}

/// Ends a sleep, or one that did not begin, and tells whether the process was woken.
fn disarm_and_check_woken<F: Fixture>(cluster: &mut Cluster<F>, index: usize) -> Option<bool> {
    let woken = cluster.fixture.was_woken(index);
    cluster.btl(index).disarm();
    woken
}
