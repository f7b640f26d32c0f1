// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random jobs whose ranks find failures by themselves, one for each seed: every crash is found, and nobody who acts is declared failed.
//! `MEND_SIM_SEEDS=n` runs n seeds from `MEND_SIM_FIRST=n` on; `MEND_SIM_SEED=n` runs one seed and prints its steps.

use mend_sim::environment;
use mend_sim::runner::{run_detector, run_seeds};

const SEEDS: u64 = 1_000;

/// The branches that these jobs must reach.
const MUST: [&str; 4] = [
    "mpi.detection: declared by the ring",
    "sim.detection: a dead rank is declared",
    "sim.detection: a stopped rank is declared",
    "sim.detection: fenced",
];

#[test]
fn every_crash_is_found_and_a_rank_that_is_declared_while_it_is_stopped_never_acts_again() {
    if environment::replay_one(run_detector) {
        return;
    }
    let (first, count) = environment::seeds(SEEDS);
    match run_seeds(run_detector, first..first + count) {
        Ok(tally) => {
            println!("{count} seeds from {first}\n{}", tally.table());
            assert!(tally.total.deaths > 0 || count < SEEDS, "nobody died");
            let missed: Vec<_> = MUST.iter().filter(|branch| !tally.branches.contains_key(*branch)).collect();
            assert!(missed.is_empty() || count < SEEDS, "no seed reached {missed:?}");
        }
        Err(failed) => panic!(
            "replay with MEND_SIM_SEED={} cargo test -p mend-sim --test detector: {}, {} ranks: {}",
            failed.seed, failed.program, failed.size, failed.what
        ),
    }
}
