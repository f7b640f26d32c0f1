// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations in flight when their endpoint is severed: each ends once before the severed report, and after it the memory of this process
//! is silent (I7).

use super::cluster::{BUDGET, Endpoint};
use super::remote_memory::{ALL, Operation, Shared, end_in, fill, span};
use super::{Callback, Cluster, Fixture};
use crate::{Ability, Btl, Buffer, Cookie, Region, SendError};
use std::sync::Arc;

const NEEDED: [Ability; 2] = [Ability::Put, Ability::Get];
const POISON: u8 = 0xC3;
const BYTES: usize = 4096;
const COUNT: usize = 16;

/// Operations of one process in flight.
struct InFlight {
    own: Arc<Buffer>,
    local: Region,
    there: Shared,
    cookies: Vec<Cookie>,
}

/// Starts gets and puts, as many as fit, without a round.
fn start_some<F: Fixture>(cluster: &mut Cluster<F>) -> InFlight {
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let there = cluster.share(owner, user, &Buffer::from_bytes(&vec![1; COUNT * BYTES]), ALL);
    let own = Buffer::zeroed(COUNT * BYTES);
    let local = cluster.register(user, owner, &own);
    let mut cookies = Vec::new();
    for number in 0..COUNT {
        // The puts begin behind the gets, so that they read and write what no get does.
        let operation = if number < COUNT / 2 { Operation::Get } else { Operation::Put };
        let part = span(local, number * BYTES, BYTES);
        let done = cluster.new_cookie();
        match cluster.try_start((user, owner), operation, part, there.remote, number * BYTES, done) {
            Ok(()) => cookies.push(done),
            Err(error) => assert_eq!(error, SendError::Busy),
        }
    }
    assert!(!F::EXACT || !cookies.is_empty(), "a connected endpoint starts an operation");
    InFlight { own, local, there, cookies }
}

/// Asserts that each operation ended once, by its result or by the death, and before the severed report.
fn assert_ended_before_the_report<F: Fixture>(callbacks: &[Callback<Endpoint<F>>], cookies: &[Cookie]) {
    let report = callbacks.iter().position(|callback| matches!(callback, Callback::Severed(..)));
    let (before, after) = callbacks.split_at(report.expect("the severed report came"));
    for &cookie in cookies {
        let end = end_in::<F>(before, cookie);
        assert!(
            matches!(end, Some(Ok(()) | Err(SendError::Severed))),
            "before the severed report, {cookie:?} ended with {end:?}"
        );
        assert!(end_in::<F>(after, cookie).is_none(), "{cookie:?} ended after the severed report");
    }
}

/// Each operation in flight ends once, with its result or `Severed`, before the severed report, with any budget.
pub fn each_operation_ends_once_before_the_severed_report<F: Fixture>() {
    let name = "each_operation_ends_once_before_the_severed_report";
    for (rounds, budget) in [(0, BUDGET), (0, 1), (1, BUDGET), (3, 2)] {
        let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED) else { return };
        let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
        let some = start_some(&mut cluster);
        (0..rounds).for_each(|_| _ = cluster.progress_with(user, 1));
        let endpoint = cluster.endpoint(user, owner);
        cluster.btl(user).sever(endpoint);
        cluster.until_of("the severed report comes", &[user], budget, |cluster| {
            cluster.severed_reports(user, owner) == 1
        });
        cluster.settle();
        assert_ended_before_the_report::<F>(cluster.callbacks(user), &some.cookies);
        for operation in [Operation::Get, Operation::Put] {
            let done = cluster.new_cookie();
            let part = span(some.local, 0, 8);
            let answer = cluster.try_start((user, owner), operation, part, some.there.remote, 0, done);
            assert_eq!(answer, Err(SendError::Severed), "{operation:?} on a severed endpoint");
        }
    }
}

/// The same when the peer has ended abruptly.
pub fn operations_with_a_dead_peer_end_when_it_is_severed<F: Fixture>() {
    let name = "operations_with_a_dead_peer_end_when_it_is_severed";
    if F::ALONE {
        return;
    }
    for rounds in [0, 1, 5] {
        let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED) else { return };
        let some = start_some(&mut cluster);
        let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
        cluster.abandon(owner);
        (0..rounds).for_each(|_| _ = cluster.progress(user));
        let endpoint = cluster.endpoint(user, owner);
        cluster.btl(user).sever(endpoint);
        cluster.until("the severed report comes", |cluster| cluster.severed_reports(user, owner) == 1);
        let ends = cluster.callbacks(user).to_vec();
        for &cookie in &some.cookies {
            assert!(end_in::<F>(&ends, cookie).is_some(), "{cookie:?} never ended");
        }
    }
}

/// After the severed report no byte is written to local memory: neither by gets that were in flight, nor by the peer.
pub fn memory_is_silent_after_the_severed_report<F: Fixture>() {
    let name = "memory_is_silent_after_the_severed_report";
    for rounds in 0..6 {
        let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED) else { return };
        let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
        // The peer reads and writes memory of the process that severs, too.
        let exposed = cluster.share(user, owner, &Buffer::zeroed(BYTES), ALL);
        let theirs = cluster.register(owner, user, &Buffer::from_bytes(&[2; BYTES]));
        let some = start_some(&mut cluster);
        let put = |cluster: &mut Cluster<F>| {
            let done = cluster.new_cookie();
            // Busy or Severed are as good: the peer does not know of the sever.
            _ = cluster.try_start(
                (owner, user),
                Operation::Put,
                span(theirs, 0, BYTES),
                exposed.remote,
                0,
                done,
            );
        };
        put(&mut cluster);
        (0..rounds).for_each(|_| _ = cluster.progress_all());
        let endpoint = cluster.endpoint(user, owner);
        cluster.btl(user).sever(endpoint);
        cluster.until_of("the severed report comes", &[user], BUDGET, |cluster| {
            cluster.severed_reports(user, owner) == 1
        });
        for memory in [&some.own, &exposed.buffer] {
            fill(memory, POISON);
        }
        for _ in 0..100 {
            put(&mut cluster);
            cluster.progress_all();
        }
        cluster.settle();
        for memory in [&some.own, &exposed.buffer] {
            assert!(
                memory.to_vec().iter().all(|&byte| byte == POISON),
                "memory was written after the severed report"
            );
        }
    }
}
