// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random jobs in which one call waits while a rank dies, or while all other ranks finalize. `MEND_SIM_SEEDS=n` runs n seeds,
//! from `MEND_SIM_FIRST=n` on; `MEND_SIM_SEED=n` runs one seed and prints its steps; `MEND_SIM_COUNT=1` goes on after a failure
//! and prints how many fail (planted faults: docs/dev/testing.md).

use mend_sim::environment;
use mend_sim::runner::{run_seeds, run_waits};

const SEEDS: u64 = 5_000;

/// The branches that 5,000 jobs must reach.
const MUST: [&str; 5] = [
    "mpi.completion: an unsatisfiable wait ends",
    "mpi.blocking: a pending failure ends a receive",
    "mpi.blocking: progress before the answer ended a pending failure",
    "mpi.sendrecv: the receive is cancelled",
    "mpi.sendrecv: the send continues from a copy",
];

#[test]
fn five_thousand_seeds_of_calls_that_wait() {
    if environment::replay_one(run_waits) || environment::count_failing(SEEDS, run_waits) {
        return;
    }
    let (first, count) = environment::seeds(SEEDS);
    let seeds = first..first + count;
    match run_seeds(run_waits, seeds) {
        Ok(tally) => {
            println!("{count} seeds from {first}\n{}", tally.table());
            let missed: Vec<_> = MUST.iter().filter(|branch| !tally.branches.contains_key(*branch)).collect();
            assert!(count < SEEDS || missed.is_empty(), "no seed reached {missed:?}");
        }
        Err(failed) => panic!(
            "replay with MEND_SIM_SEED={} cargo test -p mend-sim --test waits: {}, {} ranks: {}",
            failed.seed, failed.program, failed.size, failed.what
        ),
    }
}
