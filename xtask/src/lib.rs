// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a developer types. `cargo xtask` lists the words; `cargo demo`, `cargo suite`, `cargo soak` and
//! `cargo bench-compare` are short for four of them (`.cargo/config.toml`).
//!
//! This crate depends on std and the small `testing` alone, so that the first word answers a few seconds after a fresh clone. It starts
//! other programs and reads what they print; it never links the library it builds. Read [`place::Place`] first, then
//! [`step`]: a step is one program run with a log, a time limit and a verdict. `tests` uses [`install`] too, so that
//! tests run against exactly what a user would install.
#![forbid(unsafe_code)]

pub mod compare;
pub mod demo;
pub mod docs;
pub mod install;
pub mod man;
pub mod place;
pub mod processes;
pub mod skips;
pub mod soak;
pub mod step;
pub mod suite;

/// Why a command of ours could not do its work, in one sentence for the person who typed it.
#[derive(Debug)]
pub struct Failure(pub String);

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// What commands of ours return.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Puts the sentence that `what` begins before an error of the operating system.
pub fn failure(what: impl std::fmt::Display, error: impl std::fmt::Display) -> Failure {
    Failure(format!("{what}: {error}"))
}
