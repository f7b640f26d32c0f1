// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Seeded jobs in which a call waits while a rank dies, or all others leave. `MEND_SIM_SEEDS=n` runs so many,
//! `MEND_SIM_FIRST=n` begins there; `MEND_SIM_SEED=n` replays one and prints what it does. `MEND_SIM_COUNT=1` runs them all and
//! prints how many fail: of planted faults (docs/testing.md).

use mend_sim::asked;
use mend_sim::runner::{run_seeds, run_waits};

const SEEDS: u64 = 5_000;

/// What so many jobs must have met.
const MUST: [&str; 5] = [
    "mpi.completion: an unsatisfiable wait ends",
    "mpi.blocking: a pending failure ends a receive",
    "mpi.blocking: it came with the progress before the answer",
    "mpi.sendrecv: the receive is cancelled",
    "mpi.sendrecv: the send continues from a copy",
];

#[test]
fn five_thousand_seeds_of_calls_that_wait() {
    if asked::replayed(run_waits) || asked::counted(SEEDS, run_waits) {
        return;
    }
    let (first, count) = asked::seeds(SEEDS);
    let seeds = first..first + count;
    match run_seeds(run_waits, seeds) {
        Ok(tally) => {
            println!("{count} seeds from {first}\n{}", tally.table());
            let missed: Vec<_> = MUST.iter().filter(|arm| !tally.arms.contains_key(*arm)).collect();
            assert!(count < SEEDS || missed.is_empty(), "no seed met {missed:?}");
        }
        Err(failure) => panic!(
            "replay with MEND_SIM_SEED={} cargo test -p mend-sim --test waits: {}, {} ranks: {}",
            failure.seed, failure.program, failure.size, failure.what
        ),
    }
}
