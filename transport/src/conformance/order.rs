// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages arrive complete, once, and in the order in which they were sent.

use super::{Callback, Cluster, Fixture};
use crate::{Btl, MessageClass};
use mend_base::Random;

/// A thousand messages of all sizes between two processes.
pub fn messages_arrive_whole_and_in_order<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let (message, _, _) = cluster.sizes();
    let mut random = Random(1);
    for number in 0..1000 {
        let most = if random.once_in(4) { message } else { message.min(200) };
        cluster.send(sender, receiver, MessageClass::Data, number, random.below(most as u64 + 1) as usize);
    }
    cluster.settle();
    assert_eq!(cluster.numbers(receiver, sender), (0..1000).collect::<Vec<_>>());
}

/// All processes send to all others at once.
pub fn peers_do_not_disturb_each_others_order<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(3);
    let pairs: Vec<_> = cluster.pairs().collect();
    let mut random = Random(2);
    for number in 0..300 {
        for &(from, to) in &pairs {
            cluster.send(from, to, MessageClass::Data, number, random.below(100) as usize);
        }
    }
    cluster.settle();
    for (from, to) in pairs {
        assert_eq!(cluster.numbers(to, from), (0..300).collect::<Vec<_>>(), "from {from} to {to}");
    }
}

/// `ready` is false without a message, true when a message has arrived, and false again after its delivery. Where `ready` answers what the
/// last `progress` learnt, a `progress` without a budget lets it learn.
pub fn ready_is_true_while_a_message_is_there<F: Fixture>() {
    if !F::EXACT {
        return;
    }
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let back = cluster.endpoint(receiver, sender);
    for number in 0..200 {
        assert!(!cluster.btl(receiver).ready(back), "before message {number}");
        cluster.send(sender, receiver, MessageClass::Data, number, 8);
        let is_there = (0..super::cluster::STEPS).any(|_| {
            if sender != receiver {
                cluster.progress(sender);
            }
            if !F::READY_IS_EXACT {
                cluster.progress_of(&[receiver], 0);
            }
            cluster.btl(receiver).ready(back)
        });
        assert!(is_there, "message {number} is there and ready answers false");
        cluster.until("the message is delivered", |cluster| {
            cluster.numbers(receiver, sender).len() == number as usize + 1
        });
    }
}

/// A receiver may take the messages of one peer one by one, also between calls of progress.
pub fn a_message_that_is_taken_comes_once_in_its_order<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let (message, _, _) = cluster.sizes();
    let mut random = Random(3);
    for number in 0..1000 {
        let most = if random.once_in(8) { message } else { message.min(60) };
        cluster.send(sender, receiver, MessageClass::Data, number, random.below(most as u64 + 1) as usize);
        if random.once_in(3) {
            cluster.progress(receiver);
        }
        for _ in 0..random.below(4) {
            cluster.take(receiver, sender);
        }
    }
    cluster.settle();
    assert_eq!(cluster.numbers(receiver, sender), (0..1000).collect::<Vec<_>>());
}

/// A sink may panic and its caller go on: the message of that callback is not delivered again, and the next ones follow.
pub fn a_sink_that_panics_gets_each_message_once_in_order<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let (message, _, _) = cluster.sizes();
    let mut random = Random(4);
    let mut panics = 0;
    for number in 0..500 {
        let most = if random.once_in(4) { message } else { message.min(60) };
        cluster.send(sender, receiver, MessageClass::Data, number, random.below(most as u64 + 1) as usize);
        while random.once_in(2) {
            if cluster.progress_with_a_panic(receiver) {
                panics += 1;
            } else {
                // Perhaps nothing has arrived yet.
                cluster.let_leave(sender);
            }
        }
    }
    cluster.settle();
    assert!(panics > 50, "the sink panicked {panics} times");
    assert_eq!(cluster.numbers(receiver, sender), (0..500).collect::<Vec<_>>());
    let evidence = |callback: &Callback<_>| matches!(callback, Callback::Error(..));
    assert!(
        !F::EXACT || !cluster.callbacks(receiver).iter().any(evidence),
        "evidence against a correct peer"
    );
}
