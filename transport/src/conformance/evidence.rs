// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `on_error` is evidence: it may be mistaken and repeat, and decides nothing.

use super::injected::{Injected, Noisy};
use super::{Cluster, Fixture, Heard};
use crate::{Btl, Cause, Class};
use mend_base::PeerIndex;

/// False evidence in every other turn: everything goes on as if nothing had been said, also after the layer above
/// suspected somebody for it and took that back.
pub fn evidence_decides_nothing<F: Fixture>() {
    let mut cluster = Cluster::<Injected<F, Noisy>>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let way = cluster.way(sender, receiver);
    for number in 0..500 {
        cluster.send(sender, receiver, Class::Data, number, 100);
        cluster.progress_all();
        if number % 50 == 49 {
            cluster.btl(sender).quarantine(way);
            cluster.progress_all();
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

/// A timed look says nothing of those who live; who has ended it finds, where it can, once; and once more after a resume,
/// so that a verdict that came too early is not the last one.
pub fn a_look_at_its_peers_finds_who_has_ended_and_nobody_else<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(3);
    look::<F>(&mut cluster);
    if !F::EXACT {
        // The fault injector's evidence says such things of the living too.
        return;
    }
    assert_eq!(ends(&cluster, 0), 0, "everybody lives");
    if F::ALONE || !F::SEES_DEATHS {
        return;
    }
    cluster.abandon(1);
    let way = cluster.way(0, 1);
    for found in 1..=3 {
        (0..3).for_each(|_| look::<F>(&mut cluster));
        assert_eq!((ends(&cluster, 0), ends(&cluster, 2)), (found, 1));
        cluster.btl(0).quarantine(way);
        (0..3).for_each(|_| look::<F>(&mut cluster));
        assert_eq!(ends(&cluster, 0), found, "who is quarantined is suspected already");
        cluster.btl(0).resume(way);
    }
    cluster.btl(0).sever(way);
    cluster.until("the way is severed", |cluster| cluster.certificates(0, 1) == 1);
    cluster.forget(0);
    look::<F>(&mut cluster);
    assert_eq!(ends(&cluster, 0), 0, "nothing is looked at of a way that is gone");
    assert_eq!(cluster.certificates(2, 1), 0);
}

fn look<F: Fixture>(cluster: &mut Cluster<F>) {
    for index in [0, 2] {
        if !F::ALONE || index == 0 {
            cluster.btl(index).check_peers();
        }
    }
    (0..10).for_each(|_| _ = cluster.progress_all());
}

/// How often process `at` heard that process 1 has ended. No other's end may be said.
fn ends<F: Fixture>(cluster: &Cluster<F>, at: usize) -> usize {
    let said = cluster.heard(at).iter().filter_map(|heard| match heard {
        Heard::Error(peer, _, Cause::Exited) => Some(*peer),
        _ => None,
    });
    said.inspect(|peer| assert_eq!(*peer, PeerIndex(1))).count()
}
