// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mpiexec` (also called `mpirun`), and the node daemon.
//!
//! Two processes for each job: [`front`] is what the user started: it prints, passes signals on and gives the exit
//! code. The *node daemon* ([`daemon`]) is the parent of all ranks: it exchanges their cards and monitors them. Either
//! ends the job when the other is gone, with every process that the ranks started.
//!
//! Not here: what a rank does with what it is told ([`mend_runtime`]), messages. Read [`arguments::JobDescription`] first.
#![deny(unsafe_code)]

pub mod arguments;
pub mod control;
pub mod daemon;
pub mod front;
pub mod kill;
pub mod launch_error;
pub mod output;
pub mod signals;
#[expect(unsafe_code, reason = "the step between fork and exec")]
pub mod spawn;
pub mod stdin;

use arguments::{HELP, Invocation};
use launch_error::LaunchError;
use std::ffi::OsString;
use std::process::ExitCode;

/// What both programs are.
pub fn main() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let node_daemon = words.first().is_some_and(|word| word == spawn::NODE_DAEMON_WORD);
    if node_daemon {
        words.remove(0);
    }
    let result = match arguments::parse(words) {
        Err(error) => Err(LaunchError::Arguments(error)),
        Ok(Invocation::Help) => Ok(say(HELP)),
        Ok(Invocation::Version) => Ok(say(concat!("mpiexec (Mend) ", env!("CARGO_PKG_VERSION"), "\n"))),
        Ok(Invocation::Run(job)) if node_daemon => daemon::run(job),
        Ok(Invocation::Run(job)) => front::run(&job),
    };
    result.map_or_else(complain, ExitCode::from)
}

/// Prints to stdout; EPIPE is no error.
fn say(text: &str) -> u8 {
    use std::io::Write;
    let _ = std::io::stdout().write_all(text.as_bytes());
    0
}

fn complain(error: LaunchError) -> ExitCode {
    eprintln!("mpiexec: {error}");
    ExitCode::from(match error {
        LaunchError::Arguments(_) => 2,
        _ => 1,
    })
}
