// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Some ranks finalize before others: what they sent is delivered, and later operations of other ranks with them end in an
//! error (Rule 7).

use crate::Process;
use crate::oracle::{assert_content, assert_status, content, poisoned};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_mpi::{Detail, ErrorClass};
use mend_transport::Buffer;

const TAG: Tag = Tag(1);
const MESSAGES: u64 = 3;

/// Each odd rank sends to each even rank and finalizes. The even ranks receive all of that, and try one message more.
pub async fn run(process: Process) {
    let lengths: Vec<usize> = {
        let mut shared_random = process.shared_random.borrow_mut();
        (0..MESSAGES).map(|_| [0, 9, 700, 9_000][shared_random.below(4) as usize]).collect()
    };
    if process.rank.0 % 2 == 1 {
        leave_early(&process, &lengths).await;
    } else {
        stay(&process, &lengths).await;
    }
}

async fn leave_early(process: &Process, lengths: &[usize]) {
    let world = process.mpi.engine().comm_world();
    process.at("early: send", 0);
    for to in (0..process.size).step_by(2) {
        for (id, bytes) in (0..).zip(lengths) {
            let data = Buffer::from_bytes(&content(id, *bytes));
            process.mpi.send(world, Rank(to), TAG, &data).await.expect("even ranks finalize later");
        }
    }
}

async fn stay(process: &Process, lengths: &[usize]) {
    let world = process.mpi.engine().comm_world();
    process.pause().await;
    for from in (1..process.size).step_by(2) {
        let (source, tag) = (Source::Rank(Rank(from)), TagSelector::Tag(TAG));
        for (id, bytes) in (0..).zip(lengths) {
            process.at("early: receive", id);
            let buffer = poisoned(*bytes);
            let status = process.mpi.receive(world, source, tag, &buffer).await;
            assert_status(status.expect("it was sent before its sender finalized"), Rank(from), TAG, *bytes);
            assert_content(&buffer, id, *bytes);
        }
    }
    for from in (1..process.size).step_by(2) {
        process.at("early: one more", u64::from(from));
        let wanted = process.mpi.receive(world, Source::Rank(Rank(from)), TagSelector::Any, &poisoned(1));
        let refused_send = process.mpi.ssend(world, Rank(from), TAG, &poisoned(4_000));
        for result in [wanted.await, refused_send.await] {
            let error = result.expect_err("the other rank has left");
            assert_eq!(error.class, ErrorClass::Other);
            let (Detail::PeerLeft(rank) | Detail::PeerFreed(rank)) = error.detail else { panic!("{error}") };
            assert_eq!(rank, Rank(from));
        }
    }
}
