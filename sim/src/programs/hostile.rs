// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One rank writes garbage into what it sends (the network does it, in its name). It may spoil what it takes part in, and
//! is fenced when it is caught; among all others everything arrives as it was sent, and everybody's operations end.

use crate::Process;
use crate::oracle::{Silence, content, holds, poisoned, says};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_transport::Buffer;

/// Everybody exchanges some messages with everybody, in all modes.
pub async fn run(process: Process) {
    let world = process.mpi.engine().world();
    let liar = process.liar();
    let lengths: Vec<usize> = {
        let mut together = process.together.borrow_mut();
        (0..1 + together.below(6)).map(|_| [0, 12, 500, 7_000][together.below(4) as usize]).collect()
    };
    let mut sent = Vec::new();
    let mut received = Vec::new();
    let mut silence = Silence::default();
    for (number, bytes) in (0i32..).zip(&lengths) {
        for rank in (0..process.size).map(Rank) {
            process.at("hostile: start", number as u64);
            let id = u64::from(process.rank.0) * 100 + number as u64;
            let data = Buffer::from_bytes(&content(id, *bytes));
            let mpi = &process.mpi;
            let synchronous = process.below(3) == 0;
            let send = if synchronous {
                mpi.ssend(world, rank, Tag(number), &data)
            } else {
                mpi.send(world, rank, Tag(number), &data)
            };
            sent.push((rank, send));
            let room = poisoned(*bytes);
            let receive = mpi.receive(world, Source::Rank(rank), TagSelector::Tag(Tag(number)), &room);
            received.push((rank, number, receive, room));
        }
        process.pause().await;
    }
    for (rank, number, receive, room) in received {
        process.at("hostile: receive", rank.0.into());
        let result = receive.await;
        silence.watch(&room);
        if rank != liar && process.rank != liar {
            let id = u64::from(rank.0) * 100 + number as u64;
            says(result.expect("honest ranks live"), rank, Tag(number), room.len());
            holds(&room, id, room.len());
        }
    }
    for (rank, send) in sent {
        process.at("hostile: send", rank.0.into());
        let result = send.await;
        assert!(result.is_ok() || rank == liar || process.rank == liar, "{result:?}");
    }
    process.at("hostile: barrier", 0);
    let _any_end = process.mpi.barrier(world).await;
    silence.check();
}
