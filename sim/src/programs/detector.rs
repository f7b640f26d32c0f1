// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranks that find failures by themselves: rounds of a barrier and an agreement on its result. When a member is missing, the others shrink
//! the communicator and go on. Messages from any source would wait for ever for a member that no other finds.

use crate::Process;
use mend_transport::Buffer;

const ROUNDS: u64 = 40;

pub(super) async fn run(process: Process) {
    // Deaths before the start of the ring are left to the launcher.
    process.at("detector: start", 0);
    while !process.mpi.engine().detects_failures() {
        process.next_step().await;
    }
    process.ready();
    let world = process.mpi.engine().comm_world();
    let mut comm = world;
    for round in 0..ROUNDS {
        process.at("detector: barrier", round);
        let passed = process.mpi.barrier(comm).await.is_ok();
        process.at("detector: agree", round);
        let flag = Buffer::from_bytes(&u32::from(passed).to_le_bytes());
        let agreed = process.mpi.agree(comm, &flag).await;
        if agreed.is_ok() && flag.to_vec() == 1u32.to_le_bytes() {
            continue;
        }
        process.at("detector: shrink", round);
        let made = process.mpi.shrink(comm).await.expect("a shrink succeeds").expect("this rank is a member");
        let size = process.mpi.size(made).expect("it exists");
        assert!(size < process.mpi.size(comm).expect("it exists") || agreed.is_ok(), "nobody was left out");
        if comm != world {
            process.mpi.free(comm).expect("it exists");
        }
        comm = made;
        if process.below(2) == 0 {
            process.pause().await;
        }
    }
    process.at("detector: the end", 0);
}
