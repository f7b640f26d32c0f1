// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jobs whose ranks connect by intercommunicators while some die, one for each seed. `MEND_SIM_SEEDS=n` runs n seeds from
//! `MEND_SIM_FIRST=n` on; `MEND_SIM_SEED=n` runs one seed and prints its steps; `MEND_SIM_COUNT=1` runs n seeds, goes on after a
//! failure, and prints how many fail.

use mend_sim::environment;
use mend_sim::runner::{run_inter, run_seeds};

const SEEDS: u64 = 2_000;

/// The branches that so many jobs must reach.
const MUST: [&str; 4] = [
    "mpi.creation: refused by the group",
    "mpi.intercomm: refused after it was made",
    "mpi.intercomm: revoked while the leader waits",
    "mpi.repair: one group of an intercommunicator has failed",
];

// Row CC1, Row AK9, Row RV4, Row AG9, Row SH10, Row DY6
#[test]
fn both_groups_connect_and_merge_at_all_survivors_or_at_none() {
    if environment::replay_one(run_inter) || environment::count_failing(SEEDS, run_inter) {
        return;
    }
    let (first, count) = environment::seeds(SEEDS);
    match run_seeds(run_inter, first..first + count) {
        Ok(tally) => {
            println!("{count} seeds from {first}\n{}", tally.table());
            let missed: Vec<_> = MUST.iter().filter(|branch| !tally.branches.contains_key(*branch)).collect();
            assert!(count < SEEDS || missed.is_empty(), "no seed reached {missed:?}");
        }
        Err(failed) => panic!(
            "replay with MEND_SIM_SEED={} cargo test -p mend-sim --test inter: {}, {} ranks: {}",
            failed.seed, failed.program, failed.size, failed.what
        ),
    }
}
