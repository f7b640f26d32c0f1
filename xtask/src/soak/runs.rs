// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Soaks that run what the ordinary build made, for longer.

use std::time::{Duration, SystemTime};

use crate::Outcome;
use crate::place::Place;
use crate::step::Step;

/// Half the time on two cores with a rank each, half on one core with eight.
pub fn wakeups(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let each = (time / 2).as_secs().max(1).to_string();
    let stress = |name: &str, sentence: &str, words: &[&str]| {
        let mut cargo = place.cargo();
        cargo.args(["run", "--quiet", "--release", "--package", "mend-btl-shm", "--example", "stress", "--"]);
        cargo.args(words).args(["--seconds", &each]);
        Step::new(name, sentence, cargo).within(time + COMPILING)
    };
    Ok(vec![
        stress("wakeups-2x2", "2 ranks, each on its own core", &["--ranks", "2", "--cores", "2"]),
        stress("wakeups-8x1", "8 ranks on one core", &["--ranks", "8", "--cores", "1"]),
    ])
}

/// A job a second, counted generously; `launch` has the test.
pub fn jobs(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let number = time.as_secs();
    let seed = drawn_seed();
    let mut cargo = place.cargo();
    cargo.args([
        "test",
        "--package",
        "mend-launch",
        "--test",
        "jobs",
        "jobs_ended_at_random",
        "--",
        "--nocapture",
    ]);
    cargo.env("MEND_SOAK_JOBS", number.to_string()).env("MEND_SOAK_SEED", seed.to_string());
    let sentence = format!("{number} jobs ended at random moments leave nothing behind");
    let step = Step::new("jobs", &sentence, cargo).within(10 * time + COMPILING);
    Ok(vec![Step { seed: Some(seed), ..step }])
}

/// `tests/c/traffic.c` on 8 ranks.
pub fn traffic(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let mut cargo = place.cargo();
    cargo.args(["test", "--package", "mend-tests", "--test", "traffic", "--", "--ignored", "--nocapture"]);
    cargo.env("MENDTEST_TRAFFIC_SECONDS", time.as_secs().to_string());
    Ok(vec![
        Step::new("traffic", "random traffic between 8 ranks, every byte checked", cargo)
            .within(time + COMPILING),
    ])
}

/// The conformance of the ring's reader against a writer that lies.
pub fn garbage(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let mut cargo = place.cargo();
    cargo.args(["test", "--release", "--package", "mend-btl-shm", "garbage", "--", "--nocapture"]);
    cargo.env("MEND_GARBAGE", "10000");
    Ok(vec![Step::new("garbage", "10,000 single random values, each judged", cargo).within(time + COMPILING)])
}

/// As many seeds as fit, from one that the clock draws, so that no two soaks repeat each other.
pub fn seeds(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let number = time.as_secs().saturating_mul(SEEDS_PER_SECOND);
    let first = drawn_seed();
    let mut cargo = place.cargo();
    cargo.args(["test", "--release", "--package", "mend-sim", "--", "--nocapture"]);
    cargo.env("MEND_SIM_SEEDS", number.to_string()).env("MEND_SIM_FIRST", first.to_string());
    let sentence = format!("{number} seeds of the simulated cluster from {first} on");
    let step = Step::new("seeds", &sentence, cargo).within(10 * time + COMPILING);
    Ok(vec![Step { seed: Some(first), ..step }])
}

fn drawn_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(1, |time| time.as_secs() << 20)
}

const SEEDS_PER_SECOND: u64 = 300;
const COMPILING: Duration = Duration::from_secs(600);
