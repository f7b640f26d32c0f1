// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All other ranks send to rank 0, which receives from any source: no sender starves.

use crate::Process;
use crate::oracle::{content, poisoned};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_transport::Buffer;

const MESSAGES_EACH: u64 = 120;

/// The bound of starvation: between two messages of one sender rank 0 completes at most this many receives per sender.
const RECEIVES_BETWEEN_MAX: u64 = 80;

/// Each sender waits for each of its sends, so it always has one message in flight.
pub async fn run(process: Process) {
    let world = process.mpi.engine().comm_world();
    if process.rank != Rank(0) {
        for id in 0..MESSAGES_EACH {
            process.at("fairness: send", id);
            let data = Buffer::from_bytes(&content(id, 8));
            process.mpi.send(world, Rank(0), Tag(0), &data).await.expect("rank 0 stays");
        }
        return;
    }
    let senders = u64::from(process.size) - 1;
    let mut taken = vec![0; process.size as usize];
    let mut last = vec![0; process.size as usize];
    for receive in 0..MESSAGES_EACH * senders {
        process.at("fairness: receive", receive);
        let status = process.mpi.receive(world, Source::Any, TagSelector::Any, &poisoned(8)).await;
        let from = status.expect("senders live").source.expect("a message has a source").index();
        taken[from] += 1;
        last[from] = receive;
        for rank in 1..process.size as usize {
            let waits = receive - last[rank];
            assert!(
                taken[rank] == MESSAGES_EACH || taken[rank] == 0 || waits <= RECEIVES_BETWEEN_MAX * senders,
                "rank {rank} has waited for {waits} receives"
            );
        }
    }
    assert!(taken[1..].iter().all(|count| *count == MESSAGES_EACH));
}
