// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random jobs without deaths, one for each seed. `MEND_SIM_SEEDS=n` runs n seeds, from `MEND_SIM_FIRST=n` on;
//! `MEND_SIM_SEED=n` runs one seed and prints its steps; `MEND_SIM_COUNT=1` goes on after a failure and prints how many fail.

use mend_sim::coverage::named_branches;
use mend_sim::environment;
use mend_sim::runner::{run_seed, run_seeds};

const SEEDS: u64 = 10_000;

#[test]
fn ten_thousand_seeds() {
    if environment::replay_one(run_seed) || environment::count_failing(SEEDS, run_seed) {
        return;
    }
    let (first, count) = environment::seeds(SEEDS);
    match run_seeds(run_seed, first..first + count) {
        Ok(mut tally) => {
            assert!(tally.total.requests > 0, "this build does not check the lifecycle of requests");
            let branches = named_branches();
            assert!(branches.len() >= 20, "the sources name {} branches", branches.len());
            for branch in branches {
                tally.branches.entry(branch.leak()).or_default();
            }
            println!("{count} seeds from {first}\n{}", tally.table());
        }
        Err(failed) => panic!(
            "replay with MEND_SIM_SEED={}: {}, {} ranks: {}",
            failed.seed, failed.program, failed.size, failed.what
        ),
    }
}
