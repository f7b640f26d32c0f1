// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Atomic operations on words of a peer: each sees the effect of all earlier ones.

use super::remote_memory::{ATOMIC, Operation, span, word, words};
use super::{Cluster, Fixture};
use crate::{Ability, Atomic, Buffer, UserMemory};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Each operation returns the old word and stores the new one, and changes no word beside it.
pub fn an_atomic_operation_returns_the_old_word_and_stores_the_new_one<F: Fixture>() {
    let name = "an_atomic_operation_returns_the_old_word_and_stores_the_new_one";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &[Ability::Atomics]) else { return };
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let (memory, first) = words(3);
    let there = cluster.share_part(owner, user, &memory, ATOMIC, (first, 24));
    let (own, at) = words(1);
    let local = span(cluster.register(user, owner, &own), at, 8);
    let big = 1 << 63 | 5;
    let steps = [
        (Atomic::FetchAdd(7), 0, 7),
        (Atomic::FetchAdd(u64::MAX), 7, 6),
        (Atomic::Swap(big), 6, big),
        (Atomic::CompareSwap { expected: 6, desired: 1 }, big, big),
        (Atomic::CompareSwap { expected: big, desired: 2 }, big, 2),
        (Atomic::Swap(3), 2, 3),
    ];
    for (operation, old, new) in steps {
        UserMemory::of_buffer(&own).write(0, &[0xEE; 16]);
        let answer = cluster.operate((user, owner), Operation::Atomic(operation), local, there.remote, 8);
        assert_eq!(answer, Ok(()), "{operation:?}");
        assert_eq!(word(&own, at), old, "{operation:?} returned another word");
        cluster.flush((user, owner));
        let all = [0, 8, 16].map(|offset| word(&memory, first + offset));
        assert_eq!(all, [0, new, 0], "{operation:?} stored another word");
    }
}

/// Two peers add to one word at the same time: the sum is right, and no two additions saw the same word.
pub fn additions_of_two_peers_add_up<F: Fixture>() {
    let name = "additions_of_two_peers_add_up";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 3, &[Ability::Atomics]) else { return };
    let peers: &[usize] = if F::ALONE { &[0] } else { &[1, 2] };
    const EACH: usize = 200;
    let (memory, first) = words(1);
    let sides: Vec<_> = peers
        .iter()
        .map(|&peer| {
            let there = cluster.share_part(0, peer, &memory, ATOMIC, (first, 8));
            let (own, at) = words(EACH);
            (peer, there, cluster.register(peer, 0, &own), own, at)
        })
        .collect();
    let mut cookies = Vec::new();
    for number in 0..EACH {
        for (peer, there, local, _, at) in &sides {
            let operation = Operation::Atomic(Atomic::FetchAdd(1));
            let local = span(*local, at + 8 * number, 8);
            let cookie = cluster.start((*peer, 0), operation, local, there.remote, 0);
            cookies.push((*peer, cookie.expect("a word of the region")));
        }
    }
    for (peer, cookie) in cookies {
        assert_eq!(cluster.wait_for(peer, cookie), Ok(()));
    }
    peers.iter().for_each(|&peer| cluster.flush((peer, 0)));
    assert_eq!(word(&memory, first), (EACH * peers.len()) as u64, "additions were lost");
    let seen =
        |own: &Arc<Buffer>, at: usize| (0..EACH).map(move |number| word(own, at + 8 * number)).collect();
    let seen: Vec<Vec<u64>> = sides.iter().map(|(.., own, at)| seen(own, *at)).collect();
    let different: BTreeSet<u64> = seen.iter().flatten().copied().collect();
    assert_eq!(different, (0..(EACH * peers.len()) as u64).collect(), "two additions saw the same word");
}

/// Two peers increment a word by compare-and-swap, in turns and with retries.
pub fn compare_and_swap_of_two_peers_succeeds_once_for_each_value<F: Fixture>() {
    let name = "compare_and_swap_of_two_peers_succeeds_once_for_each_value";
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 3, &[Ability::Atomics]) else { return };
    let peers: &[usize] = if F::ALONE { &[0, 0] } else { &[1, 2] };
    let (memory, first) = words(1);
    let sides: Vec<_> = peers
        .iter()
        .map(|&peer| {
            let there = cluster.share_part(0, peer, &memory, ATOMIC, (first, 8));
            let (own, at) = words(1);
            (peer, there, span(cluster.register(peer, 0, &own), at, 8), own, at)
        })
        .collect();
    for value in 0..50 {
        let operation = Operation::Atomic(Atomic::CompareSwap { expected: value, desired: value + 1 });
        let cookies: Vec<_> = sides
            .iter()
            .map(|(peer, there, local, ..)| cluster.start((*peer, 0), operation, *local, there.remote, 0))
            .collect();
        for ((peer, ..), cookie) in sides.iter().zip(cookies) {
            assert_eq!(cluster.wait_for(*peer, cookie.expect("a word of the region")), Ok(()));
        }
        let winners = sides.iter().filter(|(.., own, at)| word(own, *at) == value).count();
        assert_eq!(winners, 1, "{winners} peers replaced {value}");
        // The word has another value now: it stays.
        let (peer, there, local, own, at) = &sides[value as usize % 2];
        let late = Operation::Atomic(Atomic::CompareSwap { expected: value, desired: u64::MAX });
        assert_eq!(cluster.operate((*peer, 0), late, *local, there.remote, 0), Ok(()));
        assert_eq!(word(own, *at), value + 1, "a word that was not expected");
    }
    peers.iter().for_each(|&peer| cluster.flush((peer, 0)));
    assert_eq!(word(&memory, first), 50);
}
