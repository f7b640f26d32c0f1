// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo bench-compare`, `cargo bench-detect` and `cargo bench-repair`: figures of Mend, and of other MPIs if asked for, measured by
//! `mend-bench`. Never part of the suite, as figures depend on the machine and on its other work.

use crate::install::{Build, install, succeed};
use crate::place::Place;
use crate::{CommandError, Outcome};

/// Installs Mend, then passes the prefix and the words of the command line to `mend-bench WHAT`: `compare`, `detect` or `repair`.
pub fn command(place: &Place, what: &str, words: &[&str]) -> Outcome {
    if !place.root.join("bench/Cargo.toml").is_file() {
        return Err(CommandError("this checkout has no bench/ yet".to_owned()));
    }
    let prefix = place.folder("demo")?;
    install(place, &Build::release(place), &prefix)?;
    let mut cargo = place.cargo();
    cargo.args(["run", "--quiet", "--release", "--package", "mend-bench", "--", what, "--mend"]).arg(&prefix);
    succeed(cargo.args(words), "mend-bench")
}
