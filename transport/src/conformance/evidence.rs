// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `on_error` is evidence: it may be mistaken and repeat, and decides nothing.

use super::injected::{Injected, Noisy};
use super::{Cluster, Fixture, Heard};
use crate::{Btl, Class};

/// False evidence in every other turn: everything goes on as if nothing had been said, also after the layer above
/// suspected somebody for it and took that back.
pub fn evidence_decides_nothing<F: Fixture>() {
    let mut cluster = Cluster::<Injected<F, Noisy>>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let way = cluster.way(sender, receiver);
    for number in 0..500 {
        cluster.send(sender, receiver, Class::Data, number, 100);
        cluster.turn_all();
        if number % 50 == 49 {
            cluster.btl(sender).quarantine(way);
            cluster.turn_all();
            cluster.btl(sender).resume(way);
        }
    }
    cluster.settle();
    let errors = cluster.heard(sender).iter().filter(|heard| matches!(heard, Heard::Error(..))).count();
    assert!(errors >= 50, "only {errors} pieces of evidence in 500 turns");
    assert_eq!(cluster.numbers(receiver, sender), (0..500).collect::<Vec<_>>());
    assert_eq!(cluster.certificates(sender, receiver), 0);
    assert_eq!(cluster.certificates(receiver, sender), 0);
}
