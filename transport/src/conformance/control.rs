// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control never waits behind data, and a mailbox holds the last state.

use super::cluster::{Endpoint, ID, pattern};
use super::{Cluster, Fixture, Heard};
use crate::{AmId, Btl, Class, SendError};
use mend_base::PeerIndex;

/// The data queue is full and nothing was received: a control message still goes out, and does not wait until all of
/// the data was delivered.
pub fn control_passes_data_that_waits<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let sent = cluster.fill_up(sender, receiver, 64);
    let (_, _, inline) = cluster.sizes();
    const CONTROL: u32 = 1 << 20;
    let mut answer = cluster.try_send(sender, receiver, Class::Control, CONTROL, inline);
    while !F::EXACT && answer == Err(SendError::Busy) {
        answer = cluster.try_send(sender, receiver, Class::Control, CONTROL, inline);
    }
    assert_eq!(answer, Ok(()), "control waits behind data");
    cluster.until("control arrives", |cluster| cluster.numbers(receiver, sender).contains(&CONTROL));
    cluster.settle();
    let mut numbers = cluster.numbers(receiver, sender);
    let place = numbers.iter().position(|&number| number == CONTROL);
    let place = place.expect("it has just arrived");
    assert!(place < sent as usize, "control was delivered after all {sent} messages before it");
    numbers.remove(place);
    assert_eq!(numbers, (0..sent).collect::<Vec<_>>());
}

/// States overwrite each other, never wait, never go back, and the last one arrives.
pub fn a_mailbox_holds_the_last_state<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let (_, _, inline) = cluster.sizes();
    cluster.fill_up(sender, receiver, 64);
    cluster.settle();
    cluster.forget(receiver);
    let mut last = 0;
    for round in 1..50u32 {
        for number in last + 1..=last + round {
            let len = (number as usize * 5) % (inline + 1);
            let answer = cluster.try_send(sender, receiver, Class::Mailbox, number, len);
            if F::EXACT {
                assert_eq!(answer, Ok(()), "a state replaces its predecessor; it does not wait");
            } else if answer.is_err() {
                cluster.send(sender, receiver, Class::Mailbox, number, len);
            }
        }
        last += round;
        cluster.until("the last state arrives", |cluster| {
            cluster.numbers(receiver, sender).last() == Some(&last)
        });
    }
    cluster.settle();
    let numbers = cluster.numbers(receiver, sender);
    assert!(numbers.is_sorted_by(|a, b| a < b), "a state came twice, or went back: {numbers:?}");
}

/// Each id has a mailbox of its own.
pub fn mailboxes_of_different_ids_are_different<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let ids = [ID, AmId(ID.0 + 1)];
    for id in ids {
        post::<F>(&mut cluster, id);
    }
    let from = PeerIndex(sender as u32);
    let arrived = |cluster: &Cluster<F>, id| {
        let wanted: Heard<Endpoint<F>> = Heard::Message(from, id, vec![id.0], pattern(u32::from(id.0), 8));
        cluster.heard(receiver).contains(&wanted)
    };
    cluster.until("both states arrive", |cluster| ids.iter().all(|&id| arrived(cluster, id)));
}

fn post<F: Fixture>(cluster: &mut Cluster<F>, id: AmId) {
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let endpoint = cluster.endpoint(sender, receiver);
    let state = pattern(u32::from(id.0), 8);
    let fill = |mut slot: crate::WriteSlot<'_>| slot.put(&state);
    while cluster.btl(sender).send(endpoint, Class::Mailbox, id, &[id.0], 8, fill) == Err(SendError::Busy) {
        assert!(!F::EXACT, "a state does not wait");
    }
}
