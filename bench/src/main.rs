// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mend's figures beside those of other MPIs. `bench/c` holds the benchmarks themselves, in C that any MPI compiles;
//! this program compiles them with each MPI's own `mpicc`, runs them in turns, and prints medians and ratios.
//!
//! Usually called as `cargo bench-compare`, which installs Mend first. Figures depend on the machine and on what else
//! runs on it: they are printed, never asserted. Depends on nothing but std.
#![forbid(unsafe_code)]

mod compare;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["compare", rest @ ..] => compare::command(rest),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

const USAGE: &str =
    "usage: mend-bench compare [--mend PREFIX] [--rounds N] [--only NAME] [--rival NAME=PREFIX]...
  --mend PREFIX          where Mend is installed; without it only the others are measured
  --rounds N             how often each MPI runs each benchmark, in turns (default 7)
  --only NAME            only benchmarks whose name begins so, as in --only latency
  --rival NAME=PREFIX    another MPI that is installed already; may be repeated
Open MPI from PyPI is always measured: the first time it is downloaded into target/compare.";
