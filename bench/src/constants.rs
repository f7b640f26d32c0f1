// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The constants of the cost model LogGP on this host, for `cargo sim scale`: medians over rounds of `bench/c/latency.c` and
//! `bench/c/message_rate.c` between two processors. They are printed as words of its command line.
//!
//! With t(k) half a round trip of k bytes, and o one message of a stream of 8 bytes: L = t(8) - 2o, and G = (t(1024) - t(8)) / 1016 / 2,
//! since both sides copy each byte.

use crate::compare::cell::Placement;
use crate::compare::mpi::Mpi;
use crate::compare::{Outcome, folder, median, progress};
use std::path::Path;

/// `mend-bench constants`.
pub fn command(words: &[&str]) -> Outcome {
    let (prefix, pin) = match words {
        ["--mend", prefix] => (*prefix, "0,1"),
        ["--mend", prefix, "--pin", pin] => (*prefix, *pin),
        _ => return Err(super::USAGE.to_owned()),
    };
    let folder = folder()?;
    let mpis = Mpi::prepare(Some(prefix), &[], false, &["latency", "message_rate"], &folder)?;
    let mut medians: [Vec<f64>; 3] = Default::default();
    for round in 0..ROUNDS {
        progress(&format!("constants of the cost model: round {} of {ROUNDS}", round + 1));
        let half_trips = times(&mpis[0], &folder, "latency", &["--sizes", "8,1024", "--pin", pin])?;
        let windows = times(&mpis[0], &folder, "message_rate", &["--sizes", "8", "--pin", pin])?;
        let found = [half_trips.first(), half_trips.get(1), windows.first()];
        for (all, time) in medians.iter_mut().zip(found) {
            all.push(*time.ok_or("a benchmark printed no figure")?);
        }
    }
    progress("");
    let [short, long, window] = medians.map(|mut all| {
        all.sort_by(f64::total_cmp);
        median(&all).unwrap_or_default()
    });
    println!("{}", Constants::of(short, long, window / WINDOW).words());
    Ok(())
}

/// Nanoseconds, nanoseconds, picoseconds.
#[derive(Debug, PartialEq)]
struct Constants {
    latency: u64,
    overhead: u64,
    per_byte: u64,
}

impl Constants {
    /// From microseconds: t(8), t(1024), and one message of a stream.
    fn of(short: f64, long: f64, one: f64) -> Constants {
        Constants {
            latency: ((short - 2.0 * one).max(0.0) * 1e3).round() as u64,
            overhead: (one * 1e3).round() as u64,
            per_byte: ((long - short).max(0.0) / 1016.0 / 2.0 * 1e6).round() as u64,
        }
    }

    fn words(&self) -> String {
        let Constants { latency, overhead, per_byte } = self;
        format!("--latency-ns {latency} --overhead-ns {overhead} --ps-per-byte {per_byte}")
    }
}

/// The medians of a program's lines, in microseconds.
fn times(mpi: &Mpi, folder: &Path, program: &str, words: &[&str]) -> Outcome<Vec<f64>> {
    let mut command = mpi.run(folder, program, 2, Placement::Pinned);
    command.args(["--format", "csv"]).args(words);
    let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.split(',').nth(6)?.parse().ok()).collect())
}

const ROUNDS: u32 = 5;
/// The messages of a window of `message_rate.c`.
const WINDOW: f64 = 64.0;

#[cfg(test)]
mod tests {
    use super::Constants;

    #[test]
    fn the_constants_are_those_of_the_model() {
        let constants = Constants::of(0.2, 0.403_2, 0.06);
        assert_eq!(constants, Constants { latency: 80, overhead: 60, per_byte: 100 });
        assert_eq!(constants.words(), "--latency-ns 80 --overhead-ns 60 --ps-per-byte 100");
        assert_eq!(Constants::of(0.1, 0.09, 0.06), Constants { latency: 0, overhead: 60, per_byte: 0 });
    }
}
