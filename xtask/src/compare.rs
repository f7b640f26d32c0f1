// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo bench-compare`, `cargo bench-detect` and `cargo bench-repair`: figures of Mend, and of other MPIs if asked for, measured by
//! `mend-bench`, and those of the cost model of `cargo sim scale`. Never part of the suite, as figures depend on the machine and on its other work.

use crate::install::{Build, install, succeed};
use crate::place::Place;
use crate::{CommandError, Outcome, command_error};
use std::process::{Command, Stdio};

/// Installs Mend, then passes the prefix and the words of the command line to `mend-bench WHAT`: `compare`, `detect` or `repair`.
pub fn command(place: &Place, what: &str, words: &[&str]) -> Outcome {
    succeed(benchmarks(place, what)?.args(words), "mend-bench")
}

/// `cargo xtask scale`: measures the constants of the cost model between two processors, and executes the protocols with them.
pub fn scale(place: &Place, words: &[&str]) -> Outcome {
    let output = benchmarks(place, "constants")?.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| command_error("cannot start mend-bench", error))?;
    if !output.status.success() {
        return Err(CommandError(format!("mend-bench constants: {}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let constants = text.lines().find(|line| line.starts_with("--latency-ns")).unwrap_or_default();
    let mut cargo = place.cargo();
    cargo.args([
        "run",
        "--quiet",
        "--release",
        "--package",
        "mend-sim",
        "--features",
        "counts",
        "--bin",
        "sim",
    ]);
    cargo.args(["--", "scale"]).args(constants.split(' ')).args(words);
    succeed(&mut cargo, "sim scale")
}

/// Installs Mend. Returns the command that measures it.
fn benchmarks(place: &Place, what: &str) -> Outcome<Command> {
    if !place.root.join("bench/Cargo.toml").is_file() {
        return Err(CommandError("this checkout has no bench/ yet".to_owned()));
    }
    let prefix = place.folder("demo")?;
    install(place, &Build::release(place), &prefix)?;
    let mut cargo = place.cargo();
    cargo.args(["run", "--quiet", "--release", "--package", "mend-bench", "--", what, "--mend"]).arg(&prefix);
    Ok(cargo)
}
