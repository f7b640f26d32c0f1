// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A suspected peer: nothing is sent, no error is reported, and no message is lost, whether the endpoint is resumed
//! or severed.

use super::{Cluster, Fixture, Heard};
use crate::{Btl, Class, SendError};
use mend_base::PeerIndex;

/// Every send to a quarantined peer is `Busy`; neither `on_error` nor `on_severed` follows.
pub fn a_quarantined_endpoint_is_busy_and_reports_no_error<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let endpoint = cluster.endpoint(sender, receiver);
    cluster.btl(sender).quarantine(endpoint);
    for class in [Class::Data, Class::Control, Class::Mailbox] {
        assert_eq!(cluster.try_send(sender, receiver, class, 0, 8), Err(SendError::Busy), "{class:?}");
    }
    cluster.settle();
    let judged = |heard: &Heard<_>| matches!(heard, Heard::Error(..) | Heard::Severed(..));
    assert!(!cluster.heard(sender).iter().any(judged), "{:?}", cluster.heard(sender));
    assert!(cluster.heard(receiver).is_empty() || F::ALONE || !F::EXACT, "{:?}", cluster.heard(receiver));
    cluster.btl(sender).resume(endpoint);
    cluster.until("room comes after resume", |cluster| cluster.rooms(sender, receiver) > 0);
    cluster.send(sender, receiver, Class::Data, 0, 8);
    cluster.settle();
    assert_eq!(cluster.numbers(receiver, sender), [0]);
}

/// Messages in flight when the receiver quarantined its sender, and those sent meanwhile, arrive after it resumed (or
/// before): once, in order.
pub fn after_resume_everything_arrives_once_in_order<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let back = cluster.endpoint(receiver, sender);
    let mut next = 0;
    for round in 0..20 {
        let until = next + 5;
        while next < until {
            cluster.send(sender, receiver, Class::Data, next, 40);
            next += 1;
        }
        cluster.btl(receiver).quarantine(back);
        for _ in 0..round {
            if cluster.try_send(sender, receiver, Class::Data, next, 40).is_ok() {
                next += 1;
            }
            cluster.progress_all();
        }
        cluster.btl(receiver).resume(back);
    }
    cluster.send(sender, receiver, Class::Data, next, 40);
    cluster.settle();
    assert_eq!(cluster.numbers(receiver, sender), (0..=next).collect::<Vec<_>>());
}

/// The suspicion was right: complete messages arrive, then the severed report.
pub fn a_quarantined_endpoint_can_be_severed<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let back = cluster.endpoint(receiver, sender);
    for number in 0..4 {
        cluster.send(sender, receiver, Class::Data, number, 40);
    }
    cluster.btl(receiver).quarantine(back);
    for _ in 0..10 {
        cluster.progress_all();
    }
    cluster.btl(receiver).sever(back);
    cluster.until("the severed report comes", |cluster| cluster.severed_reports(receiver, sender) == 1);
    assert_eq!(cluster.numbers(receiver, sender), [0, 1, 2, 3]);
    let last = cluster.heard(receiver).iter().rfind(|heard| !matches!(heard, Heard::Room(..)));
    assert_eq!(last, Some(&Heard::Severed(PeerIndex(sender as u32), back)));
}
