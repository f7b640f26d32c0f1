// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The environment variables that select the seeds of a test run.

use crate::runner::{RunSeed, count_failed_seeds};

/// The number in an environment variable, if it is set.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number of seeds, or a seed"))
}

/// Runs the seed that `MEND_SIM_SEED` names and prints its steps. False where the variable is not set.
pub fn replay_one(run: RunSeed) -> bool {
    let Some(seed) = number("MEND_SIM_SEED") else { return false };
    match run(seed, true) {
        Ok((name, summary)) => println!("seed {seed}, {name}: {summary:?}"),
        Err(failure) => {
            panic!("seed {seed}, {}, {} ranks: {}", failure.program, failure.size, failure.what)
        }
    }
    true
}

/// Where `MEND_SIM_COUNT` is set, runs all seeds and prints how many fail, by kind of failure. For planted faults.
/// False where the variable is not set.
pub fn count_failing(default_count: u64, run: RunSeed) -> bool {
    if std::env::var_os("MEND_SIM_COUNT").is_none() {
        return false;
    }
    let (first, count) = seeds(default_count);
    let found = count_failed_seeds(first..first + count, run);
    let failed: u64 = found.values().map(|(times, _)| times).sum();
    found.iter().for_each(|(what, (times, seed))| println!("{times:8}  {what} (seed {seed})"));
    println!("{failed} of {count} seeds fail");
    assert!(failed == 0, "{failed} of {count} seeds fail");
    true
}

/// The first seed (`MEND_SIM_FIRST`) and the number of seeds (`MEND_SIM_SEEDS`) of this run.
pub fn seeds(default_count: u64) -> (u64, u64) {
    (number("MEND_SIM_FIRST").unwrap_or(0), number("MEND_SIM_SEEDS").unwrap_or(default_count))
}
