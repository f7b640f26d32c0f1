// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Severing an endpoint: the complete messages of the peer are delivered, then `on_severed` is called once (the severed report), then
//! nothing follows. Complete is what has left the peer: over a network, what the kernel of the receiver has taken
//! ([`Fixture::ROUNDS_TO_LEAVE`]).

use super::cluster::pattern;
use super::{Callback, Cluster, Fixture, skip};
use crate::{Ability, Btl, MessageClass, SendError, Stream};

const STREAM: Stream = Stream(9);

/// All messages of all classes that were sent before `sever` are delivered before `on_severed`.
pub fn complete_messages_come_before_the_severed_report<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let expected = send_some_of_each::<F>(&mut cluster);
    let back = cluster.endpoint(receiver, sender);
    cluster.btl(receiver).sever(back);
    cluster.until("the severed report comes", |cluster| cluster.severed_reports(receiver, sender) == 1);
    assert_some_of_each::<F>(&cluster, &expected);
}

/// Sends data messages 0..20, control messages 100..104, state 200, and chunks 0..4 of one stream, without progress of the
/// receiver, and lets them leave. Returns the bytes of the stream.
fn send_some_of_each<F: Fixture>(cluster: &mut Cluster<F>) -> Vec<u8> {
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let mut send = |class, number| {
        while cluster.try_send(sender, receiver, class, number, 48) == Err(SendError::Busy) {
            assert!(!F::EXACT, "{class:?} {number} is Busy");
        }
    };
    (0..20).for_each(|number| send(MessageClass::Data, number));
    (100..104).for_each(|number| send(MessageClass::Control, number));
    send(MessageClass::Mailbox, 200);
    let mut bytes = Vec::new();
    if cluster.can(Ability::Streams) {
        let (_, chunk, _) = cluster.sizes();
        for number in 0..4 {
            let len = (chunk / 4).max(1);
            while cluster.try_chunk(sender, receiver, STREAM, number, len) == Err(SendError::Busy) {
                assert!(!F::EXACT, "chunk {number} is Busy");
            }
            bytes.extend(pattern(number, len));
        }
    }
    cluster.let_leave(sender);
    bytes
}

fn assert_some_of_each<F: Fixture>(cluster: &Cluster<F>, stream: &[u8]) {
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let (data, mut rest): (Vec<_>, Vec<_>) =
        cluster.numbers(receiver, sender).into_iter().partition(|&number| number < 100);
    rest.sort_unstable();
    assert_eq!(data, (0..20).collect::<Vec<_>>(), "data");
    assert_eq!(rest, [100, 101, 102, 103, 200], "control and the mailbox");
    assert!(cluster.stream(receiver, STREAM) == stream, "chunks");
    let last = cluster.callbacks(receiver).last();
    assert!(
        matches!(last, Some(Callback::Severed(..))),
        "the last callback is {last:?} instead of the severed report"
    );
}

/// There is one severed report and nothing after it, if `sever` is called twice and the other end goes on sending.
pub fn the_severed_report_comes_once_and_nothing_after_it<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let back = cluster.endpoint(receiver, sender);
    cluster.fill_up(receiver, sender, 64);
    cluster.btl(receiver).sever(back);
    cluster.btl(receiver).sever(back);
    cluster.until("the severed report comes", |cluster| cluster.severed_reports(receiver, sender) == 1);
    cluster.clear_callbacks(receiver);
    for number in 0..100 {
        // The other end does not know of it: its send may succeed, be Busy or fail.
        let _ = cluster.try_send(sender, receiver, MessageClass::Data, number, 64);
        let _ = cluster.try_send(sender, receiver, MessageClass::Mailbox, number, 64);
        cluster.progress_all();
    }
    cluster.settle();
    assert!(
        cluster.callbacks(receiver).is_empty(),
        "after the severed report: {:?}",
        cluster.callbacks(receiver)
    );
}

/// Every send after `sever` fails.
pub fn a_severed_endpoint_refuses_every_send<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let endpoint = cluster.endpoint(sender, receiver);
    cluster.btl(sender).sever(endpoint);
    for _ in 0..2 {
        for class in [MessageClass::Data, MessageClass::Control, MessageClass::Mailbox] {
            let answer = cluster.try_send(sender, receiver, class, 0, 8);
            assert_eq!(answer, Err(SendError::Severed), "{class:?}");
        }
        if cluster.can(Ability::Streams) {
            assert_eq!(cluster.try_chunk(sender, receiver, STREAM, 0, 8), Err(SendError::Severed));
        }
        cluster.settle();
    }
}

/// After a process ended abruptly, its complete messages arrive (Row PP7), then the severed report.
pub fn complete_messages_of_a_dead_peer_are_delivered<F: Fixture>() {
    if F::ALONE {
        return;
    }
    if !F::KEEPS_WHAT_THE_DEAD_SENT {
        let name = "complete_messages_of_a_dead_peer_are_delivered";
        return skip(name, "the device drops what it has not read of a connection that ends");
    }
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let expected = send_some_of_each::<F>(&mut cluster);
    cluster.abandon(sender);
    let back = cluster.endpoint(receiver, sender);
    cluster.btl(receiver).sever(back);
    cluster.until("the severed report comes", |cluster| cluster.severed_reports(receiver, sender) == 1);
    let evidence = |callback: &Callback<_>| matches!(callback, Callback::Error(..));
    assert!(
        !F::EXACT || !cluster.callbacks(receiver).iter().any(evidence),
        "a complete message is not garbage"
    );
    assert_some_of_each::<F>(&cluster, &expected);
}

/// With a budget of one, severing takes several calls of progress and delivers the same.
pub fn severing_with_a_budget_of_one_ends_too<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let expected = send_some_of_each::<F>(&mut cluster);
    let back = cluster.endpoint(receiver, sender);
    cluster.btl(receiver).sever(back);
    cluster.until_of("the severed report comes", &[receiver], 1, |cluster| {
        cluster.severed_reports(receiver, sender) == 1
    });
    assert_some_of_each::<F>(&cluster, &expected);
}

/// Of three processes that all send, the first severs its endpoint to the second: the other pairs are not affected.
pub fn severing_one_peer_leaves_the_others_unharmed<F: Fixture>() {
    if F::ALONE {
        return;
    }
    let mut cluster = Cluster::<F>::connected(3);
    let dead = cluster.endpoint(0, 1);
    let living = [(0, 2), (2, 0), (1, 2), (2, 1)];
    for number in 0..400 {
        if number == 100 {
            cluster.btl(0).sever(dead);
        }
        for (from, to) in living {
            cluster.send(from, to, MessageClass::Data, number, 32);
        }
        let _ = cluster.try_send(1, 0, MessageClass::Data, number, 32);
    }
    cluster.settle();
    assert_eq!(cluster.severed_reports(0, 1), 1);
    for (from, to) in living {
        assert_eq!(cluster.numbers(to, from), (0..400).collect::<Vec<_>>(), "from {from} to {to}");
    }
}

/// A living process whose peer has severed the endpoint may still send, without effect, and may sever its own end later.
pub fn the_other_end_of_a_severed_endpoint_goes_on<F: Fixture>() {
    if F::ALONE {
        return;
    }
    let mut cluster = Cluster::<F>::connected(2);
    let there = cluster.endpoint(0, 1);
    cluster.btl(0).sever(there);
    cluster.until("the severed report comes", |cluster| cluster.severed_reports(0, 1) == 1);
    for number in 0..5000 {
        let answer = cluster.try_send(1, 0, MessageClass::Data, number, 32);
        assert!(matches!(answer, Ok(()) | Err(SendError::Busy | SendError::Severed)), "{answer:?}");
        cluster.progress(1);
    }
    let back = cluster.endpoint(1, 0);
    cluster.btl(1).sever(back);
    cluster.until("the other severed report comes", |cluster| cluster.severed_reports(1, 0) == 1);
}
