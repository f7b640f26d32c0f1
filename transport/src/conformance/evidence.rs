// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `on_error` is only evidence: it may be wrong, may repeat, and changes no state.

use super::injected::{FalseErrors, Injected};
use super::{Callback, Cluster, Fixture};
use crate::{Btl, Cause, MessageClass};
use mend_base::PeerIndex;

/// Wrong evidence in every second round changes nothing, also when the layer above quarantines the peer and resumes it.
pub fn an_error_report_changes_nothing<F: Fixture>() {
    let mut cluster = Cluster::<Injected<F, FalseErrors>>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let endpoint = cluster.endpoint(sender, receiver);
    for number in 0..500 {
        cluster.send(sender, receiver, MessageClass::Data, number, 100);
        cluster.progress_all();
        if number % 50 == 49 {
            cluster.btl(sender).quarantine(endpoint);
            cluster.progress_all();
            cluster.btl(sender).resume(endpoint);
        }
    }
    cluster.settle();
    let errors =
        cluster.callbacks(sender).iter().filter(|callback| matches!(callback, Callback::Error(..))).count();
    assert!(errors >= 50, "only {errors} pieces of evidence in 500 rounds");
    assert_eq!(cluster.numbers(receiver, sender), (0..500).collect::<Vec<_>>());
    assert_eq!(cluster.severed_reports(sender, receiver), 0);
    assert_eq!(cluster.severed_reports(receiver, sender), 0);
}

/// `check_peers` reports no peer that lives. If the transport can see that a peer has ended, it reports the peer once, and once more
/// after each `resume`, because the layer above may have resumed the peer too early.
pub fn check_peers_finds_the_peers_that_have_ended_and_no_others<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(3);
    check_peers::<F>(&mut cluster);
    if !F::EXACT {
        // The fault injector reports such errors of living peers too.
        return;
    }
    assert_eq!(ends(&cluster, 0), 0, "all processes live");
    if F::ALONE || !F::SEES_DEATHS {
        return;
    }
    cluster.abandon(1);
    let endpoint = cluster.endpoint(0, 1);
    for found in 1..=3 {
        (0..3).for_each(|_| check_peers::<F>(&mut cluster));
        assert_eq!((ends(&cluster, 0), ends(&cluster, 2)), (found, 1));
        cluster.btl(0).quarantine(endpoint);
        (0..3).for_each(|_| check_peers::<F>(&mut cluster));
        assert_eq!(ends(&cluster, 0), found, "a quarantined peer is not checked");
        cluster.btl(0).resume(endpoint);
    }
    cluster.btl(0).sever(endpoint);
    cluster.until("the endpoint is severed", |cluster| cluster.severed_reports(0, 1) == 1);
    cluster.clear_callbacks(0);
    check_peers::<F>(&mut cluster);
    assert_eq!(ends(&cluster, 0), 0, "a severed endpoint is not checked");
    assert_eq!(cluster.severed_reports(2, 1), 0);
}

fn check_peers<F: Fixture>(cluster: &mut Cluster<F>) {
    for index in [0, 2] {
        if !F::ALONE || index == 0 {
            cluster.btl(index).check_peers();
        }
    }
    (0..10).for_each(|_| _ = cluster.progress_all());
}

/// How often `on_error` reported at process `at` that process 1 has ended. Fails if another process was reported.
fn ends<F: Fixture>(cluster: &Cluster<F>, at: usize) -> usize {
    let ended = cluster.callbacks(at).iter().filter_map(|callback| match callback {
        Callback::Error(peer, _, Cause::Exited) => Some(*peer),
        _ => None,
    });
    ended.inspect(|peer| assert_eq!(*peer, PeerIndex(1))).count()
}
