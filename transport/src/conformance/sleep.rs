// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Before sleep `arm` is `Pending` if, and only if, something is there; afterwards each message wakes the sleeper.

use super::cluster::STEPS;
use super::{Cluster, Fixture};
use crate::{Btl, Class, Pending, WakeSet};

/// Without messages all may sleep, again and again, and messages arrive after `disarm` as before.
pub fn arm_succeeds_where_nothing_is_pending<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    for number in 0..50 {
        cluster.settle();
        assert_eq!(arm(&mut cluster, receiver), Ok(()), "round {number}");
        disarm_and_check_woken(&mut cluster, receiver);
        cluster.send(sender, receiver, Class::Data, number, 8);
    }
    cluster.settle();
    assert_eq!(cluster.numbers(receiver, sender), (0..50).collect::<Vec<_>>());
}

/// There is a message of some class: `Pending` until it is delivered.
pub fn arm_is_pending_where_something_is<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    for (number, class) in (0..).zip([Class::Data, Class::Control, Class::Mailbox, Class::Data]) {
        cluster.send(sender, receiver, class, number, 8);
        if sender != receiver {
            (0..100).for_each(|_| _ = cluster.progress(sender));
        }
        if cluster.numbers(receiver, sender).len() <= number as usize {
            assert_eq!(arm(&mut cluster, receiver), Err(Pending), "a message of {class:?} lies there");
            disarm_and_check_woken(&mut cluster, receiver);
        }
        cluster.settle();
        assert_eq!(arm(&mut cluster, receiver), Ok(()), "nothing lies there any more");
        disarm_and_check_woken(&mut cluster, receiver);
    }
}

/// The peer of a sleeper sends: the sleeper is woken, and its next rounds deliver the message.
pub fn a_message_after_arm_wakes_and_is_delivered<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let classes = [Class::Data, Class::Control, Class::Mailbox];
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
        assert!(sent, "an idle endpoint takes a message");
        if sender != receiver {
            (0..100).for_each(|_| _ = cluster.progress(sender));
        }
        let woken = disarm_and_check_woken(&mut cluster, receiver);
        assert!(sender == receiver || woken != Some(false), "{class:?} {number} woke nobody");
        cluster.until("the message arrives", |cluster| {
            cluster.numbers(receiver, sender).len() == number as usize + 1
        });
    }
}

/// A sender sleeps because there was no room: the receiver's rounds wake it, and `on_room` follows.
pub fn room_after_arm_wakes_and_is_reported<F: Fixture>() {
    if F::ALONE {
        return;
    }
    let mut cluster = Cluster::<F>::connected(2);
    for round in 0..10 {
        cluster.settle();
        cluster.forget(0);
        let sent = cluster.fill_up(0, 1, 64);
        while cluster.progress(0) > 0 {}
        let rooms = cluster.rooms(0, 1);
        let asleep = arm(&mut cluster, 0) == Ok(()) && rooms == 0;
        (0..1000).for_each(|_| _ = cluster.progress(1));
        let woken = disarm_and_check_woken(&mut cluster, 0);
        assert!(
            !asleep || woken != Some(false),
            "round {round}: {sent} messages were received and nobody woken"
        );
        cluster.until("room comes", |cluster| cluster.rooms(0, 1) > 0);
    }
}

fn arm<F: Fixture>(cluster: &mut Cluster<F>, index: usize) -> Result<(), Pending> {
    let mut wake = WakeSet::default();
    cluster.fixture.announce_sleep(index);
    cluster.btl(index).arm(&mut wake)
}

/// Ends a sleep, real or not, and tells whether the process was woken.
fn disarm_and_check_woken<F: Fixture>(cluster: &mut Cluster<F>, index: usize) -> Option<bool> {
    let woken = cluster.fixture.was_woken(index);
    cluster.btl(index).disarm();
    woken
}
