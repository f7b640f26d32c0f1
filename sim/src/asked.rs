// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What whoever runs seeds may ask for, by environment variables.

use crate::Summary;
use crate::runner::{Failure, count_failures};

/// A number that somebody asked for.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number of seeds, or a seed"))
}

/// Replays the one seed that `MEND_SIM_SEED` names, printing what it does; false where none is named.
pub fn replayed(run: impl Fn(u64, bool) -> Result<(&'static str, Summary), Failure>) -> bool {
    let Some(seed) = number("MEND_SIM_SEED") else { return false };
    match run(seed, true) {
        Ok((name, summary)) => println!("seed {seed}, {name}: {summary:?}"),
        Err(failure) => {
            panic!("seed {seed}, {}, {} ranks: {}", failure.program, failure.size, failure.what)
        }
    }
    true
}

/// Where `MEND_SIM_COUNT` is set, runs all seeds, and prints how many fail, by what was found: of planted faults, mostly.
pub fn counted(count: u64, run: impl Fn(u64, bool) -> Result<(&'static str, Summary), Failure>) -> bool {
    if std::env::var_os("MEND_SIM_COUNT").is_none() {
        return false;
    }
    let (first, count) = seeds(count);
    let found = count_failures(first..first + count, run);
    let failed: u64 = found.values().map(|(times, _)| times).sum();
    found.iter().for_each(|(what, (times, seed))| println!("{times:8}  {what} (seed {seed})"));
    println!("{failed} of {count} seeds fail");
    assert!(failed == 0, "{failed} of {count} seeds fail");
    true
}

/// Which seeds: the first, and how many.
pub fn seeds(count: u64) -> (u64, u64) {
    (number("MEND_SIM_FIRST").unwrap_or(0), number("MEND_SIM_SEEDS").unwrap_or(count))
}
