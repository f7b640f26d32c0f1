// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Some pairs cannot reach each other: what they want of each other ends and says so, everything else goes on, and
//! nobody waits for ever, in collective operations neither.

use crate::Process;
use crate::oracle::{Silence, content, holds, poisoned, says};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_mpi::{Detail, Error};
use mend_transport::Buffer;

const TAG: Tag = Tag(11);

/// Everybody exchanges one message with everybody, and then all meet, as far as they can.
pub async fn run(process: Process) {
    let world = process.mpi.engine().world();
    let bytes = [4, 600, 20_000][process.together.borrow_mut().below(3) as usize];
    let mut silence = Silence::default();
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
        let room = poisoned(bytes);
        let receive = process.mpi.receive(world, Source::Rank(rank), TagSelector::Tag(TAG), &room);
        received.push((rank, receive, room));
    }
    for (rank, receive, room) in received {
        process.at("refused: receive", rank.0.into());
        match receive.await {
            Ok(status) => {
                says(status, rank, TAG, bytes);
                holds(&room, rank.0.into(), bytes);
            }
            Err(error) => is_no_way(error, rank),
        }
        silence.watch(&room);
    }
    for (rank, send) in sent {
        process.at("refused: send", rank.0.into());
        if let Err(error) = send.await {
            is_no_way(error, rank);
        }
    }
    process.at("refused: barrier", 0);
    if let Err(error) = process.mpi.barrier(world).await {
        assert!(
            matches!(error.detail, Detail::Unreachable(..) | Detail::PeerLeft(_) | Detail::PeerFreed(_)),
            "{error}"
        );
    }
    silence.check();
}

fn is_no_way(error: Error, rank: Rank) {
    match error.detail {
        Detail::Unreachable(to, _) => assert_eq!(to, rank),
        other => panic!("rank {}: {other}", rank.0),
    }
}
