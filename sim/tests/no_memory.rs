// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random jobs in which allocations fail, one for each seed. `MEND_SIM_SEEDS=n` runs n seeds, from `MEND_SIM_FIRST=n` on;
//! `MEND_SIM_SEED=n` runs one seed and prints its steps; `MEND_SIM_COUNT=1` goes on after a failure and prints how many fail.

use mend_sim::environment;
use mend_sim::runner::{run_no_memory, run_seeds};

const SEEDS: u64 = 10_000;

/// The branches that 10,000 jobs must reach.
const MUST: [&str; 3] =
    ["mpi.collective: no memory", "pml.budget: a reserved buffer", "pml.peers: no memory for what it wrote"];

#[test]
fn ten_thousand_seeds_in_which_allocations_fail() {
    if environment::replay_one(run_no_memory) || environment::count_failing(SEEDS, run_no_memory) {
        return;
    }
    let (first, count) = environment::seeds(SEEDS);
    match run_seeds(run_no_memory, first..first + count) {
        Ok(tally) => {
            assert!(tally.total.failed_allocations > 0, "in this build no allocation fails");
            println!("{count} seeds from {first}\n{}", tally.table());
            let missed: Vec<_> = MUST.iter().filter(|branch| !tally.branches.contains_key(*branch)).collect();
            assert!(count < SEEDS || missed.is_empty(), "no seed reached {missed:?}");
        }
        Err(failed) => panic!(
            "replay with MEND_SIM_SEED={} cargo test -p mend-sim --test no_memory: {}, {} ranks: {}",
            failed.seed, failed.program, failed.size, failed.what
        ),
    }
}
