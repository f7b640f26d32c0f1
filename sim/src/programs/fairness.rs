// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everybody floods rank 0, which takes from anybody: no sender starves.

use crate::Process;
use crate::oracle::{content, poisoned};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_transport::Buffer;

const EACH: u64 = 120;

/// While a sender still has messages to send, it must not wait for longer than this many receives per sender.
const PATIENCE: u64 = 80;

/// Senders wait for each message, so each always has one under way.
pub async fn run(process: Process) {
    let world = process.mpi.engine().world();
    if process.rank != Rank(0) {
        for id in 0..EACH {
            process.at("fairness: send", id);
            let data = Buffer::from_bytes(&content(id, 8));
            process.mpi.send(world, Rank(0), Tag(0), &data).await.expect("rank 0 stays");
        }
        return;
    }
    let senders = u64::from(process.size) - 1;
    let mut taken = vec![0; process.size as usize];
    let mut last = vec![0; process.size as usize];
    for turn in 0..EACH * senders {
        process.at("fairness: receive", turn);
        let status = process.mpi.receive(world, Source::Any, TagSelector::Any, &poisoned(8)).await;
        let from = status.expect("senders live").source.expect("a sender").index();
        taken[from] += 1;
        last[from] = turn;
        for rank in 1..process.size as usize {
            let waits = turn - last[rank];
            assert!(
                taken[rank] == EACH || taken[rank] == 0 || waits <= PATIENCE * senders,
                "rank {rank} has waited for {waits} receives"
            );
        }
    }
    assert!(taken[1..].iter().all(|count| *count == EACH));
}
