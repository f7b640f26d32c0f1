// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A message goes from rank to rank, several times around: the simplest program.

use crate::Process;
use crate::oracle::{assert_content, assert_status, content, poisoned};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_transport::Buffer;

const LAPS: u64 = 3;
const TAG: Tag = Tag(7);

/// In each lap rank 0 sends first and receives last; every other rank forwards.
pub async fn run(process: Process) {
    let (world, size) = (process.mpi.engine().comm_world(), process.size);
    let next = Rank((process.rank.0 + 1) % size);
    let before = Rank((process.rank.0 + size - 1) % size);
    for lap in 0..LAPS {
        if process.rank != Rank(0) {
            take(&process, before, lap).await;
        }
        process.at("ring: send", lap);
        let data = Buffer::from_bytes(&content(lap, bytes_of(lap)));
        let sent = process.mpi.send(world, next, TAG, &data);
        if process.rank == Rank(0) {
            take(&process, before, lap).await;
        }
        sent.await.expect("the next rank lives");
    }
}

async fn take(process: &Process, from: Rank, lap: u64) {
    process.at("ring: receive", lap);
    let world = process.mpi.engine().comm_world();
    let buffer = poisoned(bytes_of(lap) + 5);
    let status = process.mpi.receive(world, Source::Rank(from), TagSelector::Tag(TAG), &buffer).await;
    assert_status(status.expect("the rank before lives"), from, TAG, bytes_of(lap));
    assert_content(&buffer, lap, bytes_of(lap));
}

fn bytes_of(lap: u64) -> usize {
    [8, 0, 3000][lap as usize % 3]
}
