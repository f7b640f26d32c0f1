// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Some pairs of ranks cannot connect: messages between them end with `Unreachable`, all other messages arrive, and every
//! collective operation ends.

use crate::Process;
use crate::oracle::{EndedBuffers, assert_content, assert_status, content, poisoned};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_mpi::{Detail, Error};
use mend_transport::Buffer;

const TAG: Tag = Tag(11);

/// Each rank exchanges one message with each rank, and then enters a barrier, which may fail.
pub async fn run(process: Process) {
    let world = process.mpi.engine().comm_world();
    let bytes = [4, 600, 20_000][process.shared_random.borrow_mut().below(3) as usize];
    let mut ended_buffers = EndedBuffers::default();
    let mut sent = Vec::new();
    let mut received = Vec::new();
    for rank in (0..process.size).map(Rank) {
        let data = Buffer::from_bytes(&content(u64::from(process.rank.0), bytes));
        let mode = process.below(2) == 0;
        let send = if mode {
            process.mpi.send(world, rank, TAG, &data)
        } else {
            process.mpi.ssend(world, rank, TAG, &data)
        };
        sent.push((rank, send));
        let buffer = poisoned(bytes);
        let receive = process.mpi.receive(world, Source::Rank(rank), TagSelector::Tag(TAG), &buffer);
        received.push((rank, receive, buffer));
    }
    for (rank, receive, buffer) in received {
        process.at("refused: receive", rank.0.into());
        match receive.await {
            Ok(status) => {
                assert_status(status, rank, TAG, bytes);
                assert_content(&buffer, rank.0.into(), bytes);
            }
            Err(error) => assert_unreachable(&process, error, rank),
        }
        ended_buffers.add(&buffer);
    }
    for (rank, send) in sent {
        process.at("refused: send", rank.0.into());
        if let Err(error) = send.await {
            assert_unreachable(&process, error, rank);
        }
    }
    process.at("refused: barrier", 0);
    if let Err(error) = process.mpi.barrier(world).await {
        assert!(
            matches!(error.detail, Detail::Unreachable(..) | Detail::PeerLeft(_) | Detail::PeerFreed(_)),
            "{error}"
        );
    }
    ended_buffers.assert_unchanged();
}

fn assert_unreachable(process: &Process, error: Error, rank: Rank) {
    let is_refused = process.network.borrow().is_refused(process.rank.0, rank.0);
    match error.detail {
        Detail::Unreachable(to, _) => assert_eq!(to, rank),
        // It has left since.
        Detail::PeerLeft(left) if is_refused => assert_eq!(left, rank),
        other => panic!("rank {}: {other}", rank.0),
    }
}
