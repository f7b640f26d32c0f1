// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random numbers that can be repeated: every random test prints its seed, and takes another from its environment.

use std::time::{Duration, SystemTime};

use mend_base::Random;

use crate::say;

/// Random numbers from the seed in `MENDTEST_SEED`, or else from one made of the clock; the seed is printed.
pub fn drawn() -> Random {
    let seed = number("MENDTEST_SEED").unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(1, |time| time.as_nanos() as u64)
    });
    say(&format!("seed: {seed} (again: MENDTEST_SEED={seed})"));
    Random(seed)
}

/// The number in a variable, if it is set.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// A span up to `longest`.
pub fn span(random: &mut Random, longest: Duration) -> Duration {
    Duration::from_micros(random.below(longest.as_micros() as u64 + 1))
}
