// SPDX-License-Identifier: Apache-2.0 OR MIT
//! While an endpoint is quarantined, nothing is sent and no error is reported. No message is lost, whether the endpoint is then resumed
//! or severed.

use super::{Callback, Cluster, Fixture};
use crate::{Btl, MessageClass, SendError};
use mend_base::PeerIndex;

/// Every send to a quarantined peer is `Busy`; neither `on_error` nor `on_severed` follows.
pub fn a_quarantined_endpoint_is_busy_and_reports_no_error<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let endpoint = cluster.endpoint(sender, receiver);
    cluster.btl(sender).quarantine(endpoint);
    for class in [MessageClass::Data, MessageClass::Control, MessageClass::Mailbox] {
        assert_eq!(cluster.try_send(sender, receiver, class, 0, 8), Err(SendError::Busy), "{class:?}");
    }
    cluster.settle();
    let reports = |callback: &Callback<_>| matches!(callback, Callback::Error(..) | Callback::Severed(..));
    assert!(!cluster.callbacks(sender).iter().any(reports), "{:?}", cluster.callbacks(sender));
    assert!(
        cluster.callbacks(receiver).is_empty() || F::ALONE || !F::EXACT,
        "{:?}",
        cluster.callbacks(receiver)
    );
    cluster.btl(sender).resume(endpoint);
    cluster.until("on_sendable comes after resume", |cluster| cluster.sendable_reports(sender, receiver) > 0);
    cluster.send(sender, receiver, MessageClass::Data, 0, 8);
    cluster.settle();
    assert_eq!(cluster.numbers(receiver, sender), [0]);
}

/// Messages in flight when the receiver quarantines the sender, and messages that the sender sends during the quarantine, arrive once
/// and in order.
pub fn after_resume_everything_arrives_once_in_order<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let back = cluster.endpoint(receiver, sender);
    let mut next = 0;
    for round in 0..20 {
        let until = next + 5;
        while next < until {
            cluster.send(sender, receiver, MessageClass::Data, next, 40);
            next += 1;
        }
        cluster.btl(receiver).quarantine(back);
        for _ in 0..round {
            if cluster.try_send(sender, receiver, MessageClass::Data, next, 40).is_ok() {
                next += 1;
            }
            cluster.progress_all();
        }
        cluster.btl(receiver).resume(back);
    }
    cluster.send(sender, receiver, MessageClass::Data, next, 40);
    cluster.settle();
    assert_eq!(cluster.numbers(receiver, sender), (0..=next).collect::<Vec<_>>());
}

/// If the peer has failed, a quarantined endpoint is severed: complete messages arrive, then the severed report.
pub fn a_quarantined_endpoint_can_be_severed<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let back = cluster.endpoint(receiver, sender);
    for number in 0..4 {
        cluster.send(sender, receiver, MessageClass::Data, number, 40);
    }
    cluster.let_leave(sender);
    cluster.btl(receiver).quarantine(back);
    for _ in 0..10 {
        cluster.progress_all();
    }
    cluster.btl(receiver).sever(back);
    cluster.until("the severed report comes", |cluster| cluster.severed_reports(receiver, sender) == 1);
    assert_eq!(cluster.numbers(receiver, sender), [0, 1, 2, 3]);
    let last =
        cluster.callbacks(receiver).iter().rfind(|callback| !matches!(callback, Callback::Sendable(..)));
    assert_eq!(last, Some(&Callback::Severed(PeerIndex(sender as u32), back)));
}
