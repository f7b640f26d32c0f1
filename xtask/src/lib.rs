// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The project's commands. `cargo xtask` lists them; `cargo demo`, `cargo suite`, `cargo soak` and `cargo bench-compare`
//! are short for four of them (`.cargo/config.toml`).
//!
//! This crate depends only on std and the small `testing`, so that the first command answers a few seconds after a fresh clone. It
//! starts other programs and reads what they print; it never links the library that it builds. Read [`place::Place`] first, then
//! [`step`]: a step is one program run with a log and a time limit, which passes or fails. `tests` uses [`install`] too, so that
//! tests run against exactly what a user would install.
#![forbid(unsafe_code)]

pub mod compare;
pub mod demo;
pub mod docs;
pub mod install;
pub mod man;
pub mod mutants;
pub mod place;
pub mod processes;
pub mod skips;
pub mod soak;
pub mod step;
pub mod suite;

/// Why a command failed, in one sentence for its user.
#[derive(Debug)]
pub struct CommandError(pub String);

impl std::fmt::Display for CommandError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for CommandError {}

/// The result of a command.
pub type Outcome<T = ()> = Result<T, CommandError>;

/// Puts the sentence that `what` begins before an error of the operating system.
pub fn command_error(what: impl std::fmt::Display, error: impl std::fmt::Display) -> CommandError {
    CommandError(format!("{what}: {error}"))
}
