// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exposed memory is accessed in its range, with its rights, by its peer, and not after its end.

use super::cluster::pattern;
use super::remote_memory::{ALL, Operation, Shared, fill, span};
use super::{Cluster, Fixture, skip};
use crate::{Ability, Btl, Buffer, Rdma, RegisterError, RemoteAccess, SendError, UserMemory};
use std::sync::Arc;

const NEEDED: [Ability; 2] = [Ability::Put, Ability::Get];
const POISON: u8 = 0xA5;

/// All bytes of a region, and parts of it at odd offsets with odd lengths, are got and put.
pub fn a_region_is_got_and_put_whole_and_in_part<F: Fixture>() {
    let name = "a_region_is_got_and_put_whole_and_in_part";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED) else { return };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let mut expected = pattern(1, 5000);
    let there = cluster.share(owner, user, &Buffer::from_bytes(&expected), ALL);
    let own = Buffer::zeroed(5000);
    let local = cluster.register(user, owner, &own);
    for (number, (from, to, bytes)) in (10..).zip(PARTS) {
        fill(&own, 0);
        cluster.transfer((user, owner), Operation::Get, span(local, to, bytes), there.remote, from);
        assert_eq!(own.to_vec()[to..to + bytes], expected[from..from + bytes], "{bytes} bytes from {from}");
        let news = pattern(number, bytes);
        UserMemory::of_buffer(&own).write(to, &news);
        cluster.transfer((user, owner), Operation::Put, span(local, to, bytes), there.remote, from);
        expected[from..from + bytes].copy_from_slice(&news);
        assert_eq!(there.buffer.to_vec(), expected, "{bytes} bytes to {from}");
    }
}

/// Where to get from, where to put it, and how many bytes.
const PARTS: [(usize, usize, usize); 7] =
    [(0, 0, 5000), (0, 4999, 1), (4999, 0, 1), (1, 3, 7), (13, 1, 4097), (4001, 17, 999), (777, 778, 64)];

/// Regions and exposures are told apart, however many there are.
pub fn many_regions_are_used_at_once<F: Fixture>() {
    let name = "many_regions_are_used_at_once";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED) else { return };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let mut all: Vec<_> = (0..60u32)
        .map(|number| {
            let there = Buffer::from_bytes(&pattern(number, 100));
            let own = Buffer::zeroed(100);
            (cluster.share(owner, user, &there, ALL), cluster.register(user, owner, &own), own)
        })
        .collect();
    for number in (0..60).rev() {
        let (there, local, own) = &all[number];
        cluster.transfer((user, owner), Operation::Get, span(*local, 0, 100), there.remote, 0);
        assert_eq!(own.to_vec(), pattern(number as u32, 100), "region {number}");
    }
    let (first, ..) = all.remove(0);
    assert_eq!(cluster.unexpose(owner, first.exposure), Ok(()));
    assert_eq!(cluster.unregister(owner, first.region), Ok(()));
    for (number, (there, local, own)) in (1..).zip(&all) {
        fill(own, number as u8);
        cluster.transfer((user, owner), Operation::Put, span(*local, 0, 100), there.remote, 0);
        assert_eq!(there.buffer.to_vec(), own.to_vec(), "region {number}");
    }
}

/// A range past the end of the exposed or of the local memory is refused, and nothing is copied.
pub fn a_range_past_the_end_is_refused<F: Fixture>() {
    let Some(mut cluster) = Cluster::<F>::with_abilities("a_range_past_the_end_is_refused", 2, &NEEDED)
    else {
        return;
    };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let there = cluster.share_part(owner, user, &poisoned(300), ALL, (100, 100));
    let own = Buffer::zeroed(200);
    let local = cluster.register(user, owner, &own);
    for operation in [Operation::Put, Operation::Get] {
        for (offset, bytes) in [(100, 1), (99, 2), (0, 101), (1 << 40, 8), (usize::MAX - 3, 8)] {
            let answer =
                cluster.operate((user, owner), operation, span(local, 0, bytes), there.remote, offset);
            assert!(is_error(answer), "{operation:?} of {bytes} bytes from {offset} ended with {answer:?}");
        }
        for (offset, bytes) in [(200, 1), (150, 51), (usize::MAX - 3, 8)] {
            let answer =
                cluster.operate((user, owner), operation, span(local, offset, bytes), there.remote, 0);
            assert!(is_error(answer), "{operation:?}: local {bytes} bytes from {offset}: {answer:?}");
        }
    }
    let there_endpoint = cluster.endpoint(owner, user);
    for (offset, bytes) in [(300, 1), (200, 101), (usize::MAX - 3, 8)] {
        let answer = cluster.btl(owner).expose(there_endpoint, span(there.region, offset, bytes), ALL);
        assert_eq!(answer.map(|_| ()), Err(RegisterError::NoSuchRegion), "{bytes} bytes from {offset}");
    }
    cluster.flush((user, owner));
    assert!(there.buffer.to_vec().iter().all(|&byte| byte == POISON), "bytes were put");
    assert!(own.to_vec().iter().all(|&byte| byte == 0), "bytes were got");
}

/// A region that was unregistered is refused, also when another region has taken its place.
pub fn a_region_that_has_ended_is_refused<F: Fixture>() {
    let name = "a_region_that_has_ended_is_refused";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED) else { return };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let there = cluster.share(owner, user, &poisoned(64), ALL);
    let first = cluster.register(user, owner, &Buffer::zeroed(64));
    assert_eq!(cluster.unregister(user, first), Ok(()));
    let other = Buffer::zeroed(64);
    let others: Vec<_> = (0..8).map(|_| cluster.register(user, owner, &other)).collect();
    assert!(!others.contains(&first), "a handle was given out twice");
    let endpoint = cluster.endpoint(user, owner);
    let answer = cluster.btl(user).expose(endpoint, span(first, 0, 8), ALL);
    assert_eq!(answer.map(|_| ()), Err(RegisterError::NoSuchRegion));
    for operation in [Operation::Get, Operation::Put] {
        let answer = cluster.operate((user, owner), operation, span(first, 0, 64), there.remote, 0);
        assert!(is_error(answer), "{operation:?} with a region that has ended: {answer:?}");
    }
    cluster.unregister(user, first).expect_err("a region ends once");
    cluster.settle();
    assert!(other.to_vec().iter().all(|&byte| byte == 0), "another region was written");
    assert!(there.buffer.to_vec().iter().all(|&byte| byte == POISON), "the peer's memory was written");
}

/// After `unexpose` has ended, the key gives no access, also when another exposure has taken its place.
pub fn a_key_that_was_taken_back_gives_no_access<F: Fixture>() {
    let name = "a_key_that_was_taken_back_gives_no_access";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED) else { return };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let there = cluster.share(owner, user, &poisoned(64), ALL);
    let own = Buffer::zeroed(64);
    let local = cluster.register(user, owner, &own);
    cluster.transfer((user, owner), Operation::Get, span(local, 0, 64), there.remote, 0);
    assert_eq!(own.to_vec(), [POISON; 64]);
    assert_eq!(cluster.unexpose(owner, there.exposure), Ok(()));
    for again in 0..3 {
        let others: Vec<Shared> =
            (0..again).map(|_| cluster.share(owner, user, &poisoned(64), ALL)).collect();
        assert!(others.iter().all(|other| other.exposure != there.exposure), "a handle was given out twice");
        fill(&own, 0);
        for operation in [Operation::Get, Operation::Put] {
            let answer = cluster.operate((user, owner), operation, span(local, 0, 64), there.remote, 0);
            assert!(is_error(answer), "{operation:?} with a key that was taken back: {answer:?}");
        }
        cluster.flush((user, owner));
        assert!(own.to_vec().iter().all(|&byte| byte == 0), "bytes were got");
        for memory in others.iter().chain([&there]) {
            assert!(memory.buffer.to_vec().iter().all(|&byte| byte == POISON), "bytes were put");
        }
    }
    cluster.unexpose(owner, there.exposure).expect_err("an exposure ends once");
    assert_eq!(cluster.unregister(owner, there.region), Ok(()));
}

/// Memory that is exposed to be read is not written, and the reverse.
pub fn access_is_what_was_exposed_and_nothing_more<F: Fixture>() {
    let name = "access_is_what_was_exposed_and_nothing_more";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED) else { return };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let own = Buffer::zeroed(32);
    let local = span(cluster.register(user, owner, &own), 0, 32);
    for (read, write) in [(true, false), (false, true)] {
        let access = RemoteAccess { read, write, atomic: false };
        let there = cluster.share(owner, user, &poisoned(32), access);
        let refused = if read { Operation::Put } else { Operation::Get };
        let answer = cluster.operate((user, owner), refused, local, there.remote, 0);
        assert!(is_error(answer), "{refused:?} with {access:?} ended with {answer:?}");
        cluster.flush((user, owner));
        assert_eq!((own.to_vec(), there.buffer.to_vec()), (vec![0; 32], vec![POISON; 32]));
    }
}

/// A key that is too short or too long is refused. Any other bytes are no reason to panic.
pub fn a_key_of_another_length_is_garbage<F: Fixture>() {
    let name = "a_key_of_another_length_is_garbage";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED[1..]) else { return };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let there = cluster.share(owner, user, &poisoned(32), ALL);
    let back = cluster.endpoint(user, owner);
    let mut key = there.key.as_bytes().to_vec();
    for bytes in 0..key.len() {
        assert_eq!(cluster.btl(user).import(back, &key[..bytes]), Err(RegisterError::BadKey), "{bytes}");
    }
    key.push(0);
    assert_eq!(cluster.btl(user).import(back, &key), Err(RegisterError::BadKey));
    for byte in 0..key.len() - 1 {
        let mut changed = there.key.as_bytes().to_vec();
        changed[byte] ^= 0x81;
        // Whether it is refused now, or in the operation, is the transport's decision.
        let _ = cluster.btl(user).import(back, &changed);
    }
}

/// A key gives access to the peer for which it was made, and to no other.
pub fn a_key_works_for_its_peer_alone<F: Fixture>() {
    let name = "a_key_works_for_its_peer_alone";
    if F::ALONE {
        return;
    }
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 3, &NEEDED) else { return };
    if !F::KEYS_ARE_PERSONAL {
        return skip(name, "no personal keys");
    }
    let there = cluster.share(0, 1, &poisoned(32), ALL);
    let endpoint = cluster.endpoint(2, 0);
    let own = Buffer::zeroed(32);
    let local = span(cluster.register(2, 0, &own), 0, 32);
    if let Ok(remote) = cluster.btl(2).import(endpoint, there.key.as_bytes()) {
        for operation in [Operation::Get, Operation::Put] {
            let answer = cluster.operate((2, 0), operation, local, remote, 0);
            assert!(is_error(answer), "{operation:?} with the key of another peer: {answer:?}");
        }
    }
    cluster.settle();
    assert_eq!((own.to_vec(), there.buffer.to_vec()), (vec![0; 32], vec![POISON; 32]));
}

/// Memory that is registered, exposed, unexposed and unregistered again and again leaks nothing.
pub fn registering_again_and_again_leaks_nothing<F: Fixture>() {
    let name = "registering_again_and_again_leaks_nothing";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED[1..]) else { return };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let buffer = Buffer::zeroed(4096);
    for _ in 0..2000 {
        cluster.clear_callbacks(owner);
        let there = cluster.share(owner, user, &buffer, ALL);
        assert_eq!(cluster.unexpose(owner, there.exposure), Ok(()));
        assert_eq!(cluster.unregister(owner, there.region), Ok(()));
    }
    let shares = Arc::strong_count(&buffer);
    assert_eq!(shares, 1, "{} regions still hold the memory", shares - 1);
}

/// The ends of `unexpose` and `unregister` come although the peer is dead and its endpoint was severed.
pub fn memory_is_given_back_after_the_severed_report<F: Fixture>() {
    let name = "memory_is_given_back_after_the_severed_report";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &NEEDED[1..]) else { return };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let buffer = Buffer::zeroed(64);
    let (first, second) =
        (cluster.share(owner, user, &buffer, ALL), cluster.share(owner, user, &buffer, ALL));
    if !F::ALONE {
        cluster.abandon(user);
    }
    let endpoint = cluster.endpoint(owner, user);
    let done = cluster.new_cookie();
    cluster.btl(owner).unexpose(second.exposure, done);
    cluster.btl(owner).sever(endpoint);
    cluster.until("the severed report comes", |cluster| cluster.severed_reports(owner, user) == 1);
    assert_eq!(cluster.wait_for(owner, done), Ok(()));
    assert_eq!(cluster.unregister(owner, second.region), Ok(()));
    assert_eq!(cluster.unexpose(owner, first.exposure), Ok(()));
    assert_eq!(cluster.unregister(owner, first.region), Ok(()));
    drop((first, second));
    assert_eq!(Arc::strong_count(&buffer), 1, "the memory is still used");
}

/// Refused, or ended by an error that is no death.
fn is_error(answer: Result<(), SendError>) -> bool {
    !matches!(answer, Ok(()) | Err(SendError::Severed | SendError::Busy))
}

fn poisoned(bytes: usize) -> Arc<Buffer> {
    Buffer::from_bytes(&vec![POISON; bytes])
}
