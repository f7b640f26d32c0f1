// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `arm` answers `EventPending` if, and only if, there is an event; if it succeeds, each message wakes the sleeper. A transport that cannot
//! tell an event from what makes no callback ([`Fixture::READY_IS_EXACT`]) may be pending until a `progress` has consumed that.

use super::cluster::{BUDGET, STEPS};
use super::{Cluster, Fixture};
use crate::{Ability, Btl, EventPending, MessageClass, WakeSet};

/// Without messages `arm` succeeds each time, and messages arrive after `disarm` as before.
pub fn arm_succeeds_where_nothing_is_pending<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    for number in 0..50 {
        cluster.settle();
        arm_at_rest(&mut cluster, receiver, &format!("round {number}"));
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
            (0..100).for_each(|_| _ = cluster.progress_of(&[sender], BUDGET));
        }
        if cluster.numbers(receiver, sender).len() <= number as usize {
            let tries = if F::READY_IS_EXACT { 1 } else { STEPS };
            let pending = (0..tries).any(|_| {
                // Over a network the message may still be on its way.
                let pending = arm(&mut cluster, receiver).is_err();
                disarm_and_check_woken(&mut cluster, receiver);
                if !pending && sender != receiver {
                    cluster.progress_of(&[sender], BUDGET);
                }
                pending
            });
            assert!(pending, "a message of {class:?} is there");
        }
        cluster.settle();
        arm_at_rest(&mut cluster, receiver, "nothing is there any more");
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
        arm_at_rest(&mut cluster, receiver, "nothing is pending");
        send_to_a_sleeper(&mut cluster, class, number);
        if sender != receiver {
            (0..100).for_each(|_| _ = cluster.progress_of(&[sender], BUDGET));
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
        (0..1000).for_each(|_| _ = cluster.progress_of(&[1], BUDGET));
        let woken = disarm_and_check_woken(&mut cluster, 0);
        assert!(
            !asleep || woken != Some(false),
            "round {round}: {sent} messages were received, and the sender was not woken"
        );
        cluster.until("on_sendable comes", |cluster| cluster.sendable_reports(0, 1) > 0);
    }
}

/// Where the transport wakes a sleeper at a descriptor: it becomes readable when a message comes, and after `disarm` and progress `arm`
/// succeeds again. Without a message a sleep is possible.
pub fn a_descriptor_becomes_readable_when_a_message_comes<F: Fixture>() {
    let name = "a_descriptor_becomes_readable_when_a_message_comes";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &[Ability::SleepDescriptor]) else {
        return;
    };
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let classes = [MessageClass::Data, MessageClass::Control, MessageClass::Mailbox];
    for (number, class) in (0..30).zip(classes.into_iter().cycle()) {
        cluster.settle();
        let sleeps = (0..ATTEMPTS).any(|_| {
            let descriptors = arm_at_rest(&mut cluster, receiver, "nothing is pending");
            assert!(!descriptors.is_empty(), "arm adds a descriptor");
            let asleep = !cluster.fixture.is_readable(&descriptors);
            disarm_and_check_woken(&mut cluster, receiver);
            cluster.progress_all();
            asleep
        });
        assert!(sleeps, "a descriptor is readable although there is nothing");
        let descriptors = arm_at_rest(&mut cluster, receiver, "nothing is pending");
        send_to_a_sleeper(&mut cluster, class, number);
        let woken = (0..ATTEMPTS).any(|_| {
            cluster.progress(sender);
            cluster.fixture.is_readable(&descriptors)
        });
        assert!(woken, "{class:?} {number} did not wake the receiver");
        disarm_and_check_woken(&mut cluster, receiver);
        cluster.until("the message arrives", |cluster| {
            cluster.numbers(receiver, sender).len() == number as usize + 1
        });
    }
}

/// The helper thread arms a process whose program computes, and nothing ends that: messages go on as before, and the next `arm` is as good
/// as the first.
pub fn a_process_that_is_armed_goes_on_and_can_be_armed_again<F: Fixture>() {
    let name = "a_process_that_is_armed_goes_on_and_can_be_armed_again";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &[Ability::SleepDescriptor]) else {
        return;
    };
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    for round in 0..10 {
        cluster.settle();
        arm_at_rest(&mut cluster, receiver, "nothing is pending");
        cluster.send(sender, receiver, MessageClass::Data, 2 * round, 8);
        cluster.settle();
        assert_eq!(cluster.numbers(receiver, sender).len() as u32, 2 * round + 1);
        let descriptors = arm_at_rest(&mut cluster, receiver, "its message has arrived");
        send_to_a_sleeper(&mut cluster, MessageClass::Data, 2 * round + 1);
        let woken = (0..ATTEMPTS).any(|_| {
            cluster.progress(sender);
            cluster.fixture.is_readable(&descriptors)
        });
        assert!(woken, "round {round}: a message did not wake the receiver");
        disarm_and_check_woken(&mut cluster, receiver);
    }
    cluster.settle();
    assert_eq!(cluster.numbers(receiver, sender), (0..20).collect::<Vec<_>>());
}

/// Sends to a process that sleeps: only the sender makes progress.
fn send_to_a_sleeper<F: Fixture>(cluster: &mut Cluster<F>, class: MessageClass, number: u32) {
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let sent = (0..STEPS).any(|_| {
        if sender != receiver {
            cluster.progress_of(&[sender], BUDGET);
        }
        cluster.try_send(sender, receiver, class, number, 8).is_ok()
    });
    assert!(sent, "an idle endpoint accepts a message");
}

/// Arms where nothing is pending, which must succeed, and returns the descriptors.
fn arm_at_rest<F: Fixture>(cluster: &mut Cluster<F>, index: usize, when: &str) -> Vec<i32> {
    let tries = if F::READY_IS_EXACT { 1 } else { STEPS };
    for _ in 0..tries {
        let mut wake = WakeSet::default();
        cluster.fixture.announce_sleep(index);
        if cluster.btl(index).arm(&mut wake).is_ok() {
            return wake.descriptors;
        }
        disarm_and_check_woken(cluster, index);
        cluster.progress_of(&[index], BUDGET);
    }
    panic!("{when}: arm is pending");
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

/// How often a descriptor is looked at before it counts as silent, or as never silent.
const ATTEMPTS: usize = 1000;
