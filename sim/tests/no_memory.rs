// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random jobs in which allocations fail, one for each seed. `MEND_SIM_SEEDS=n` runs n seeds, from `MEND_SIM_FIRST=n` on;
//! `MEND_SIM_SEED=n` runs one seed and prints its steps; `MEND_SIM_COUNT=1` goes on after a failure and prints how many fail.

use mend_sim::Summary;
use mend_sim::environment;
use mend_sim::runner::{FailedSeed, run_no_memory, run_no_memory_creations, run_seeds};

const SEEDS: u64 = 10_000;

/// The branches that 10,000 jobs must reach.
const MUST: [&str; 3] =
    ["mpi.collective: no memory", "pml.budget: a reserved buffer", "pml.peers: no memory for what it wrote"];

/// The branches that the jobs with creations must reach.
const MUST_IN_CREATIONS: [&str; 3] = [
    "mpi.announcement: no memory for the receive",
    "pml.send: no memory for a stream yet",
    "mpi.creation: prepared here, and refused by the vote",
];

#[test]
fn ten_thousand_seeds_in_which_allocations_fail() {
    pass(run_no_memory, &MUST);
}

// Row CC1
#[test]
fn ten_thousand_seeds_in_which_allocations_fail_and_ranks_die_while_communicators_are_created() {
    pass(run_no_memory_creations, &MUST_IN_CREATIONS);
}

type Run = fn(u64, bool) -> Result<(&'static str, Summary), FailedSeed>;

fn pass(run: Run, must: &[&str]) {
    if environment::replay_one(run) || environment::count_failing(SEEDS, run) {
        return;
    }
    let (first, count) = environment::seeds(SEEDS);
    match run_seeds(run, first..first + count) {
        Ok(tally) => {
            assert!(tally.total.failed_allocations > 0, "in this build no allocation fails");
            println!("{count} seeds from {first}\n{}", tally.table());
            let missed: Vec<_> = must.iter().filter(|branch| !tally.branches.contains_key(*branch)).collect();
            assert!(count < SEEDS || missed.is_empty(), "no seed reached {missed:?}");
        }
        Err(failed) => panic!(
            "replay with MEND_SIM_SEED={} cargo test -p mend-sim --test no_memory: {}, {} ranks: {}",
            failed.seed, failed.program, failed.size, failed.what
        ),
    }
}
