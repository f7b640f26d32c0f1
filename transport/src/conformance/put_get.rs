// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts and gets copy all their bytes and no others. Each ends once, and not before its memory is free or filled.

use super::cluster::{STEPS, pattern};
use super::remote_memory::{ALL, Operation, fill, span};
use super::{Cluster, Fixture};
use crate::{Ability, Buffer, MessageClass, SendError, UserMemory};

const NEEDED: [Ability; 2] = [Ability::Put, Ability::Get];
const POISON: u8 = 0x5A;

/// Bytes of every length arrive whole, cut where the limits require it.
pub fn remote_bytes_arrive_whole_at_every_length<F: Fixture>() {
    let name = "remote_bytes_arrive_whole_at_every_length";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED) else { return };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    for (number, bytes) in (0..).zip([0, 1, 7, 4096, (1 << 20) + 3]) {
        let there = cluster.share(owner, user, &Buffer::from_bytes(&pattern(number, bytes.max(1))), ALL);
        let own = Buffer::zeroed(bytes.max(1));
        let local = span(cluster.register(user, owner, &own), 0, bytes);
        cluster.transfer((user, owner), Operation::Get, local, there.remote, 0);
        assert!(own.to_vec()[..bytes] == pattern(number, bytes), "{bytes} bytes were got wrong");
        UserMemory::of_buffer(&own).write(0, &pattern(number + 100, bytes));
        cluster.transfer((user, owner), Operation::Put, local, there.remote, 0);
        assert!(
            there.buffer.to_vec()[..bytes] == pattern(number + 100, bytes),
            "{bytes} bytes were put wrong"
        );
        cluster.clear_callbacks(user);
    }
}

/// Bytes before and behind the range stay as they were, at both ends.
pub fn bytes_beside_the_range_are_untouched<F: Fixture>() {
    let name = "bytes_beside_the_range_are_untouched";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED) else { return };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let (there_bytes, own) = (Buffer::zeroed(400), Buffer::zeroed(400));
    let there = cluster.share(owner, user, &there_bytes, ALL);
    let local = cluster.register(user, owner, &own);
    for bytes in [1, 3, 8, 15, 64, 65, 200] {
        for (operation, from, to) in
            [(Operation::Get, &there_bytes, &own), (Operation::Put, &own, &there_bytes)]
        {
            fill(from, 1);
            fill(to, POISON);
            cluster.transfer((user, owner), operation, span(local, 101, bytes), there.remote, 101);
            let after = to.to_vec();
            assert!(after[101..101 + bytes].iter().all(|&byte| byte == 1), "{operation:?} of {bytes} bytes");
            let beside = after[..101].iter().chain(&after[101 + bytes..]);
            assert!(beside.copied().all(|byte| byte == POISON), "{operation:?} of {bytes} bytes wrote more");
        }
    }
}

/// Many operations are in flight at the same time. Each ends once, and each has copied its bytes.
pub fn operations_in_flight_end_once_each<F: Fixture>() {
    let name = "operations_in_flight_end_once_each";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED) else { return };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    const BYTES: usize = 333;
    let initial: Vec<u8> = (0..100).flat_map(|number| pattern(number, BYTES)).collect();
    let there = cluster.share(owner, user, &Buffer::from_bytes(&initial), ALL);
    let own =
        Buffer::from_bytes(&(0..100).flat_map(|number| pattern(1000 + number, BYTES)).collect::<Vec<_>>());
    let local = cluster.register(user, owner, &own);
    let mut cookies = Vec::new();
    for number in 0..100 {
        let operation = if number % 2 == 0 { Operation::Get } else { Operation::Put };
        let part = span(local, number * BYTES, BYTES);
        let cookie = cluster.start((user, owner), operation, part, there.remote, number * BYTES);
        cookies.push(cookie.expect("an operation inside both memories"));
    }
    for &cookie in &cookies {
        assert_eq!(cluster.wait_for(user, cookie), Ok(()));
    }
    cluster.flush((user, owner));
    cluster.assert_each_ended_once(user, &cookies);
    for number in 0..100 {
        let expected = pattern(if number % 2 == 0 { number } else { 1000 + number } as u32, BYTES);
        let part = number * BYTES..(number + 1) * BYTES;
        assert!(own.to_vec()[part.clone()] == expected, "operation {number}, at its own end");
        assert!(there.buffer.to_vec()[part] == expected, "operation {number}, at the other end");
    }
}

/// When a get ends, its bytes are there.
pub fn a_get_ends_when_its_bytes_are_there<F: Fixture>() {
    let name = "a_get_ends_when_its_bytes_are_there";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED[1..]) else { return };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let endpoint_bytes = 50_000;
    let there = cluster.share(owner, user, &Buffer::from_bytes(&vec![7; endpoint_bytes]), ALL);
    let own = Buffer::zeroed(endpoint_bytes);
    let local = cluster.register(user, owner, &own);
    for _ in 0..50 {
        fill(&own, 0);
        // The limits hold for each operation, and 4096 bytes are within those of any transport.
        let parts = (0..endpoint_bytes).step_by(4096);
        let mut open: Vec<_> = parts
            .map(|at| {
                let part = span(local, at, 4096.min(endpoint_bytes - at));
                let cookie = cluster.start((user, owner), Operation::Get, part, there.remote, at);
                (at, part.bytes as usize, cookie.expect("a get inside both memories"))
            })
            .collect();
        for round in 0..STEPS {
            open.retain(|&(at, bytes, cookie)| {
                let Some(end) = cluster.end_of(user, cookie) else { return true };
                assert_eq!(end, Ok(()));
                assert!(own.to_vec()[at..at + bytes].iter().all(|&byte| byte == 7), "a get ended too early");
                false
            });
            if open.is_empty() {
                break;
            }
            cluster.progress(user);
            // Some devices serve gets in calls of progress of the owner only.
            if round % 8 == 0 {
                cluster.progress_all();
            }
        }
        assert!(open.is_empty(), "{} gets did not end", open.len());
        cluster.clear_callbacks(user);
    }
}

/// Puts, a flush, and then a message: when the flush has ended, and when the peer gets the message, the bytes are there.
pub fn a_flush_ends_when_earlier_puts_are_there<F: Fixture>() {
    let name = "a_flush_ends_when_earlier_puts_are_there";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &[Ability::Put, Ability::Flush]) else {
        return;
    };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let there = cluster.share(owner, user, &Buffer::zeroed(20_000), ALL);
    let own = Buffer::zeroed(20_000);
    let local = cluster.register(user, owner, &own);
    for number in 1..=20 {
        fill(&own, number);
        let parts = (0..20_000).step_by(2000);
        let cookies: Vec<_> = parts
            .map(|at| cluster.start((user, owner), Operation::Put, span(local, at, 2000), there.remote, at))
            .collect();
        cluster.flush((user, owner));
        assert!(there.buffer.to_vec().iter().all(|&byte| byte == number), "flush {number} ended too early");
        cluster.send(user, owner, MessageClass::Data, u32::from(number), 8);
        cluster
            .until("the message comes", |cluster| cluster.numbers(owner, user).contains(&u32::from(number)));
        assert!(there.buffer.to_vec().iter().all(|&byte| byte == number), "when message {number} came");
        for cookie in cookies {
            assert_eq!(cluster.wait_for(user, cookie.expect("a put inside both memories")), Ok(()));
        }
    }
}

/// An operation that is `Busy` has not started; `on_sendable` follows, and all operations that started end.
pub fn a_busy_operation_may_be_started_after_on_sendable<F: Fixture>() {
    let name = "a_busy_operation_may_be_started_after_on_sendable";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED[1..]) else { return };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let there = cluster.share(owner, user, &Buffer::zeroed(64), ALL);
    let local = span(cluster.register(user, owner, &Buffer::zeroed(64)), 0, 64);
    let (mut cookies, mut waits) = (Vec::new(), 0);
    while cookies.len() < 1000 {
        let reports = cluster.sendable_reports(user, owner);
        let done = cluster.new_cookie();
        match cluster.try_start((user, owner), Operation::Get, local, there.remote, 0, done) {
            Ok(()) => cookies.push(done),
            Err(SendError::Busy) => {
                waits += 1;
                assert!(waits < STEPS, "on_sendable was called, but the operation is Busy");
                cluster.until("on_sendable comes after Busy", |cluster| {
                    cluster.sendable_reports(user, owner) > reports
                });
                assert!(cluster.end_of(user, done).is_none(), "an operation that was Busy ended");
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    cluster.assert_each_ended_once(user, &cookies);
}

/// While the peer is quarantined no operation starts. Those in flight end once, and after `resume` the next ones do.
pub fn a_quarantined_endpoint_starts_no_operation<F: Fixture>() {
    let name = "a_quarantined_endpoint_starts_no_operation";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED) else { return };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let there = cluster.share(owner, user, &Buffer::from_bytes(&[7; 64]), ALL);
    let own = Buffer::zeroed(64);
    let local = span(cluster.register(user, owner, &own), 0, 64);
    let endpoint = cluster.endpoint(user, owner);
    let before = cluster.start((user, owner), Operation::Get, local, there.remote, 0);
    let mut cookies = vec![before.expect("a get inside both memories")];
    crate::Btl::quarantine(cluster.btl(user), endpoint);
    for operation in [Operation::Get, Operation::Put] {
        let done = cluster.new_cookie();
        let answer = cluster.try_start((user, owner), operation, local, there.remote, 0, done);
        assert_eq!(answer, Err(SendError::Busy), "{operation:?}");
    }
    (0..20).for_each(|_| _ = cluster.progress_all());
    crate::Btl::resume(cluster.btl(user), endpoint);
    let after = cluster.start((user, owner), Operation::Get, local, there.remote, 0);
    cookies.push(after.expect("a get inside both memories"));
    for &cookie in &cookies {
        assert_eq!(cluster.wait_for(user, cookie), Ok(()));
    }
    cluster.assert_each_ended_once(user, &cookies);
    assert_eq!(own.to_vec(), [7; 64]);
}
