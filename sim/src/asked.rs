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

/// Where `MEND_SIM_COUNT` is set, runs so many seeds to the last, and prints how many went wrong, by what was found.
pub fn counted(run: impl Fn(u64, bool) -> Result<(&'static str, Summary), Failure>) -> bool {
    let Some(count) = number("MEND_SIM_COUNT") else { return false };
    let first = number("MEND_SIM_FIRST").unwrap_or(0);
    let found = count_failures(first..first + count, run);
    let wrong: u64 = found.values().map(|(times, _)| times).sum();
    found.iter().for_each(|(what, (times, seed))| println!("{times:8}  {what} (seed {seed})"));
    println!("{wrong} of {count} seeds went wrong");
    assert!(wrong == 0, "{wrong} of {count} seeds went wrong");
    true
}

/// Which seeds: the first, and how many.
pub fn seeds(count: u64) -> (u64, u64) {
    (number("MEND_SIM_FIRST").unwrap_or(0), number("MEND_SIM_SEEDS").unwrap_or(count))
}
