// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A call of progress obeys its budget, and no peer starves.

use super::cluster::{BUDGET, STEPS};
use super::{Callback, Cluster, Fixture, skip};
use crate::MessageClass;

/// Two peers send as much as they can to a third, whose budget is one callback a round: it receives from both.
pub fn no_peer_starves_with_a_budget_of_one<F: Fixture>() {
    if F::ALONE {
        return;
    }
    let mut cluster = Cluster::<F>::connected(3);
    let mut next = [0, 0, 0];
    for _ in 0..STEPS {
        for from in [1, 2] {
            while cluster.try_send(from, 0, MessageClass::Data, next[from], 16).is_ok() {
                next[from] += 1;
            }
            cluster.progress(from);
        }
        cluster.progress_of(&[0], 1);
        if cluster.callbacks(0).len() >= 1500 {
            break;
        }
    }
    let got = [cluster.numbers(0, 1).len(), cluster.numbers(0, 2).len()];
    let all = got[0] + got[1];
    assert!(got.iter().all(|&each| each >= all / 8), "of {all} messages {got:?} came from the two peers");
    assert!(all >= 200, "only {all} messages arrived");
    cluster.settle();
    for from in [1, 2] {
        assert_eq!(cluster.numbers(0, from), (0..next[from]).collect::<Vec<_>>(), "from {from}");
    }
}

/// Seven peers keep their queues full: of each thousand messages no peer sends more than three times as many as another. A network
/// delivers what a peer may have under way at once, some hundred messages: there the same holds of five thousand.
pub fn seven_full_queues_are_served_alike<F: Fixture>() {
    if F::ALONE {
        return;
    }
    if F::LOSES {
        return skip("seven_full_queues_are_served_alike", "connections that break are not served meanwhile");
    }
    for budget in [3, BUDGET] {
        let mut cluster = Cluster::<F>::connected(8);
        let mut next = [0u32; 8];
        while cluster.callbacks(0).len() < 5000 {
            for (from, number) in next.iter_mut().enumerate().skip(1) {
                while cluster.try_send(from, 0, MessageClass::Data, *number, 8).is_ok() {
                    *number += 1;
                }
                cluster.progress(from);
            }
            cluster.progress_of(&[0], budget);
        }
        let messages = if F::CLASSES_SHARE_A_WAY { 5000 } else { 1000 };
        for window in cluster.callbacks(0).chunks_exact(messages) {
            let of = |peer: u32| {
                let sent = |callback: &&Callback<_>| matches!(callback, Callback::Message(from, ..) if from.0 == peer);
                window.iter().filter(sent).count()
            };
            let counts: [usize; 7] = core::array::from_fn(|index| of(index as u32 + 1));
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(most < least.map(|least| 3 * least).as_ref(), "{counts:?} with a budget of {budget}");
        }
    }
}

/// `progress` makes at most as many callbacks as its budget (the cluster checks that), returns their number, and continues in the
/// next call.
pub fn progress_keeps_its_budget<F: Fixture>() {
    for budget in [1, 2, 3, 7] {
        let mut cluster = Cluster::<F>::connected(2);
        let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
        let sent = cluster.fill_up(sender, receiver, 16);
        for _ in 0..STEPS {
            if sender != receiver {
                cluster.progress(sender);
            }
            let before = cluster.callbacks(receiver).len();
            let events = cluster.progress_of(&[receiver], budget);
            assert_eq!(
                events as usize,
                cluster.callbacks(receiver).len() - before,
                "progress returned a wrong number"
            );
            if cluster.numbers(receiver, sender).len() == sent as usize {
                break;
            }
        }
        assert_eq!(cluster.numbers(receiver, sender), (0..sent).collect::<Vec<_>>());
        cluster.progress_with(receiver, 0);
    }
}
