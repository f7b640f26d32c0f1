// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Seeded jobs in which ranks die. `MEND_SIM_SEEDS=n` runs until somebody has died in so many, `MEND_SIM_FIRST=n` begins
//! there; `MEND_SIM_SEED=n` replays one and prints what it does.

use mend_sim::runner::{run_deaths, run_until_deaths};

const SEEDS: u64 = 10_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number of seeds, or a seed"))
}

#[test]
fn ten_thousand_seeds_with_deaths() {
    if let Some(seed) = number("MEND_SIM_SEED") {
        match run_deaths(seed, true) {
            Ok((name, summary)) => println!("seed {seed}, {name}: {summary:?}"),
            Err(failure) => {
                panic!("seed {seed}, {}, {} ranks: {}", failure.program, failure.size, failure.what)
            }
        }
        return;
    }
    let first = number("MEND_SIM_FIRST").unwrap_or(0);
    let count = number("MEND_SIM_SEEDS").unwrap_or(SEEDS);
    match run_until_deaths(first, count) {
        Ok(tally) => println!("{count} seeds with deaths from {first}\n{}", tally.table()),
        Err(failure) => panic!(
            "replay with MEND_SIM_SEED={} cargo test -p mend-sim --test deaths: {}, {} ranks: {}",
            failure.seed, failure.program, failure.size, failure.what
        ),
    }
}
