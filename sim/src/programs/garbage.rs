// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network turns some messages of one rank, the writer, into garbage. The node daemon kills the writer when a rank
//! notices that. Operations with the writer may fail; all other messages arrive unchanged, and all operations end.

use crate::Process;
use crate::oracle::{EndedBuffers, assert_content, assert_status, content, poisoned};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_transport::Buffer;

/// Each rank exchanges messages with each rank, in standard and synchronous mode.
pub async fn run(process: Process) {
    let world = process.mpi.engine().comm_world();
    let garbage_writer = process.garbage_writer();
    let lengths: Vec<usize> = {
        let mut shared_random = process.shared_random.borrow_mut();
        (0..1 + shared_random.below(6))
            .map(|_| [0, 12, 500, 7_000][shared_random.below(4) as usize])
            .collect()
    };
    let mut sent = Vec::new();
    let mut received = Vec::new();
    let mut ended_buffers = EndedBuffers::default();
    for (number, bytes) in (0i32..).zip(&lengths) {
        for rank in (0..process.size).map(Rank) {
            process.at("garbage: start", number as u64);
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
            let buffer = poisoned(*bytes);
            let receive = mpi.receive(world, Source::Rank(rank), TagSelector::Tag(Tag(number)), &buffer);
            received.push((rank, number, receive, buffer));
        }
        process.pause().await;
    }
    for (rank, number, receive, buffer) in received {
        process.at("garbage: receive", rank.0.into());
        let result = receive.await;
        ended_buffers.add(&buffer);
        if rank != garbage_writer && process.rank != garbage_writer {
            let id = u64::from(rank.0) * 100 + number as u64;
            assert_status(result.expect("neither rank writes garbage"), rank, Tag(number), buffer.len());
            assert_content(&buffer, id, buffer.len());
        }
    }
    for (rank, send) in sent {
        process.at("garbage: send", rank.0.into());
        let result = send.await;
        assert!(result.is_ok() || rank == garbage_writer || process.rank == garbage_writer, "{result:?}");
    }
    process.at("garbage: barrier", 0);
    let _any_end = process.mpi.barrier(world).await;
    ended_buffers.assert_unchanged();
}
