// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random jobs whose ranks call agreements and shrinks of several communicators in orders of their own, while some die.
//! `MEND_SIM_SEEDS=n` runs n seeds, from `MEND_SIM_FIRST=n` on; `MEND_SIM_SEED=n` runs one seed and prints its steps.

use mend_sim::environment;
use mend_sim::runner::{run_crossed, run_seeds};

const SEEDS: u64 = 1_000;

/// The branches that so many jobs must reach.
const MUST: [&str; 4] = [
    "sim.crossed: a call was crossed",
    "mpi.crossing: a cycle is proven",
    "mpi.crossing: a contribution in absentia",
    "mpi.crossing: a decision names a cycle",
];

// Row AG16
#[test]
fn a_thousand_seeds_of_recoveries_that_wait_for_each_other() {
    if environment::replay_one(run_crossed) || environment::count_failing(SEEDS, run_crossed) {
        return;
    }
    let (first, count) = environment::seeds(SEEDS);
    match run_seeds(run_crossed, first..first + count) {
        Ok(tally) => {
            println!("{count} seeds from {first}\n{}", tally.table());
            let missed: Vec<_> = MUST.iter().filter(|branch| !tally.branches.contains_key(*branch)).collect();
            assert!(count < SEEDS || missed.is_empty(), "no seed reached {missed:?}");
        }
        Err(failed) => panic!(
            "replay with MEND_SIM_SEED={} cargo test -p mend-sim --test crossed: {}, {} ranks: {}",
            failed.seed, failed.program, failed.size, failed.what
        ),
    }
}
