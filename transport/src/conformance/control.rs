// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A control message never waits behind data, and a mailbox holds the newest state.

use super::cluster::{Endpoint, ID, STEPS, pattern};
use super::{Callback, Cluster, Fixture};
use crate::{AmId, Btl, MessageClass, SendError};
use mend_base::PeerIndex;

/// While the data queue is full, a control message is sent. It is delivered before the last of the data, or, where all classes travel on
/// one way, before all data that is sent after it.
pub fn control_overtakes_data_that_waits<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let sent = cluster.fill_up(sender, receiver, 64);
    let (_, _, control) = cluster.sizes();
    const CONTROL: u32 = 1 << 20;
    let mut answer = cluster.try_send(sender, receiver, MessageClass::Control, CONTROL, control);
    while !F::EXACT && answer == Err(SendError::Busy) {
        answer = cluster.try_send(sender, receiver, MessageClass::Control, CONTROL, control);
    }
    assert_eq!(answer, Ok(()), "a control message waits behind data");
    let mut all = sent;
    for _ in 0..STEPS {
        if cluster.numbers(receiver, sender).contains(&CONTROL) {
            break;
        }
        cluster.progress_all();
        if F::CLASSES_SHARE_A_WAY {
            // The queue stays full.
            all = cluster.fill_up_from(all, sender, receiver, 64);
        }
    }
    cluster.settle();
    let mut numbers = cluster.numbers(receiver, sender);
    let place = numbers.iter().position(|&number| number == CONTROL);
    let place = place.expect("the control message has arrived");
    let before = if F::CLASSES_SHARE_A_WAY { sent + 1 } else { sent };
    assert!(place < before as usize, "the control message was delivered after {place} data messages");
    numbers.remove(place);
    assert_eq!(numbers, (0..all).collect::<Vec<_>>());
}

/// A state overwrites the one before and is never `Busy`; states arrive in order, and the last one arrives.
pub fn a_mailbox_holds_the_last_state<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let (_, _, control) = cluster.sizes();
    cluster.fill_up(sender, receiver, 64);
    cluster.settle();
    cluster.clear_callbacks(receiver);
    let mut last = 0;
    for round in 1..50u32 {
        for number in last + 1..=last + round {
            let len = (number as usize * 5) % (control + 1);
            let answer = cluster.try_send(sender, receiver, MessageClass::Mailbox, number, len);
            if F::EXACT {
                assert_eq!(answer, Ok(()), "a state replaces the one before and is never Busy");
            } else if answer.is_err() {
                cluster.send(sender, receiver, MessageClass::Mailbox, number, len);
            }
        }
        last += round;
        cluster.until("the last state arrives", |cluster| {
            cluster.numbers(receiver, sender).last() == Some(&last)
        });
    }
    cluster.settle();
    let numbers = cluster.numbers(receiver, sender);
    assert!(numbers.is_sorted_by(|a, b| a < b), "a state came twice, or out of order: {numbers:?}");
}

/// Each id has its own mailbox.
pub fn mailboxes_of_different_ids_are_different<F: Fixture>() {
    let mut cluster = Cluster::<F>::connected(2);
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let ids = [ID, AmId(ID.0 + 1)];
    for id in ids {
        post::<F>(&mut cluster, id);
    }
    let from = PeerIndex(sender as u32);
    let arrived = |cluster: &Cluster<F>, id| {
        let wanted: Callback<Endpoint<F>> =
            Callback::Message(from, id, vec![id.0], pattern(u32::from(id.0), 8));
        cluster.callbacks(receiver).contains(&wanted)
    };
    cluster.until("both states arrive", |cluster| ids.iter().all(|&id| arrived(cluster, id)));
}

fn post<F: Fixture>(cluster: &mut Cluster<F>, id: AmId) {
    let (sender, receiver) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let endpoint = cluster.endpoint(sender, receiver);
    let state = pattern(u32::from(id.0), 8);
    let fill = |mut slot: crate::PayloadWriter<'_>| slot.put(&state);
    while cluster.btl(sender).send(endpoint, MessageClass::Mailbox, id, &[id.0], 8, fill)
        == Err(SendError::Busy)
    {
        assert!(!F::EXACT, "a state is never Busy");
    }
}
