// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A key that is taken back while gets by it are under way: a get that succeeds has brought what was in the memory before, never what its
//! owner wrote afterwards.

use super::cluster::BUDGET;
use super::remote_memory::{Operation, Shared, fill, span};
use super::{Cluster, Fixture};
use crate::{Ability, Btl, Buffer, Cookie, Rdma, RemoteAccess, SendError};
use std::sync::Arc;

const READ: RemoteAccess = RemoteAccess { read: true, write: false, atomic: false };
const BEFORE: u8 = 1;
const AFTER: u8 = 0xC3;
/// More than a provider over sockets can have on the way: so some gets are in the middle of their bytes.
const BYTES: usize = 12 << 20;
/// The most operations.
const COUNT: usize = 16;

/// Gets of one process that are under way.
struct UnderWay {
    own: Arc<Buffer>,
    there: Shared,
    /// Each with its offset and length.
    gets: Vec<(Cookie, usize, usize)>,
}

/// Starts gets, and lets the owner alone make progress, so that it has begun to answer.
fn start<F: Fixture>(cluster: &mut Cluster<F>, rounds: usize) -> UnderWay {
    let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
    let endpoint = cluster.endpoint(user, owner);
    let most = cluster.btl(user).limits(endpoint).transfer_bytes_max.min(1 << 20) as usize;
    let bytes = BYTES.min(COUNT * most);
    let there = cluster.share(owner, user, &Buffer::from_bytes(&vec![BEFORE; bytes]), READ);
    let own = Buffer::zeroed(bytes);
    let local = cluster.register(user, owner, &own);
    // Some devices connect for their first get.
    cluster.transfer((user, owner), Operation::Get, span(local, 0, 1), there.remote, 0);
    let mut gets = Vec::new();
    for at in (0..bytes).step_by(most) {
        let (done, length) = (cluster.new_cookie(), most.min(bytes - at));
        match cluster.try_start(
            (user, owner),
            Operation::Get,
            span(local, at, length),
            there.remote,
            at,
            done,
        ) {
            Ok(()) => gets.push((done, at, length)),
            Err(error) => {
                assert_eq!(error, SendError::Busy);
                break;
            }
        }
    }
    (0..rounds).for_each(|_| _ = cluster.progress_with(owner, BUDGET));
    UnderWay { own, there, gets }
}

fn assert_nothing_came_that_was_written_afterwards<F: Fixture>(cluster: &Cluster<F>, under_way: &UnderWay) {
    let bytes = under_way.own.to_vec();
    for &(done, at, length) in &under_way.gets {
        if cluster.end_of(Cluster::<F>::SENDER, done) == Some(Ok(())) {
            let is_right = bytes[at..at + length].iter().all(|&byte| byte == BEFORE);
            assert!(is_right, "{done:?} succeeded with what was written after the key was taken back");
        }
    }
}

/// From the end of `unexpose` on the owner may write: no get that succeeds brings that.
pub fn a_get_brings_nothing_that_was_written_after_its_key_was_taken_back<F: Fixture>() {
    let name = "a_get_brings_nothing_that_was_written_after_its_key_was_taken_back";
    for rounds in [0, 2, 20] {
        let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &[Ability::Get]) else { return };
        let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
        let under_way = start(&mut cluster, rounds);
        let done = cluster.new_cookie();
        cluster.btl(owner).unexpose(under_way.there.exposure, done);
        // A peer that makes no progress may delay the end, or not.
        for _ in 0..50 {
            if cluster.end_of(owner, done).is_none() {
                cluster.progress_with(owner, BUDGET);
            }
        }
        cluster.until("the key is taken back", |cluster| cluster.end_of(owner, done).is_some());
        fill(&under_way.there.buffer, AFTER);
        cluster.until("all gets end", |cluster| {
            under_way.gets.iter().all(|&(done, ..)| cluster.end_of(user, done).is_some())
        });
        assert_nothing_came_that_was_written_afterwards(&cluster, &under_way);
    }
}

/// The same when the owner severs a peer that lives, which does not know of it.
pub fn a_get_brings_nothing_that_was_written_after_its_peer_was_severed<F: Fixture>() {
    let name = "a_get_brings_nothing_that_was_written_after_its_peer_was_severed";
    for rounds in [0, 2, 20] {
        let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &[Ability::Get]) else { return };
        let (user, owner) = (Cluster::<F>::SENDER, Cluster::<F>::RECEIVER);
        let under_way = start(&mut cluster, rounds);
        let (there, back) = (cluster.endpoint(owner, user), cluster.endpoint(user, owner));
        cluster.btl(owner).sever(there);
        cluster.until_of("the severed report comes", &[owner], BUDGET, |cluster| {
            cluster.severed_reports(owner, user) == 1
        });
        fill(&under_way.there.buffer, AFTER);
        (0..100).for_each(|_| _ = cluster.progress_all());
        cluster.btl(user).sever(back);
        cluster.until("its gets end", |cluster| cluster.severed_reports(user, owner) == 1);
        assert_nothing_came_that_was_written_afterwards(&cluster, &under_way);
    }
}
