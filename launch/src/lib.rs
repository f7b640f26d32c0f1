// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mpiexec` (also called `mpirun`), and the node daemon.
//!
//! Two processes for each job: [`front`] is what the user started: it prints, passes signals on and gives the exit
//! code. The *node daemon* ([`daemon`]) is the parent of all ranks: it introduces them to each other and watches them. Either
//! ends the job when the other is gone, whatever the ranks started themselves included.
//!
//! Not here: what a rank does with what it is told ([`mend_runtime`]), messages. Read [`arguments::Job`] first.
#![deny(unsafe_code)]

pub mod arguments;
pub mod control;
pub mod daemon;
pub mod exit;
pub mod front;
pub mod output;
pub mod signals;
#[expect(unsafe_code, reason = "the step between fork and exec")]
pub mod spawn;
pub mod stdin;

use arguments::{HELP, Invocation, UsageError};
use std::ffi::OsString;
use std::process::ExitCode;

/// What both programs are.
pub fn main() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let node_daemon = words.first().is_some_and(|word| word == spawn::KEEPER_WORD);
    if node_daemon {
        words.remove(0);
    }
    let result = match arguments::parse(words) {
        Err(error) => Err(Failure::Arguments(error)),
        Ok(Invocation::Help) => Ok(say(HELP)),
        Ok(Invocation::Version) => Ok(say(concat!("mpiexec (Mend) ", env!("CARGO_PKG_VERSION"), "\n"))),
        Ok(Invocation::Run(job)) if node_daemon => daemon::run(job),
        Ok(Invocation::Run(job)) => front::run(&job),
    };
    result.map_or_else(complain, ExitCode::from)
}

/// Prints to stdout; a reader who left is nobody's error.
fn say(text: &str) -> u8 {
    use std::io::Write;
    let _ = std::io::stdout().write_all(text.as_bytes());
    0
}

fn complain(failure: Failure) -> ExitCode {
    eprintln!("mpiexec: {failure}");
    ExitCode::from(match failure {
        Failure::Arguments(_) => 2,
        _ => 1,
    })
}

/// Why a job could not be run at all.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line is refused.
    #[error(transparent)]
    Arguments(#[from] UsageError),
    /// The limit on descriptors is too low for so many ranks.
    #[error(
        "so many ranks need {wanted} file descriptors here, and the limit is {limit}; \
         raise it ('ulimit -Hn', limits.conf) or start fewer [E-EXEC-001]"
    )]
    Descriptors {
        /// So many are needed.
        wanted: u64,
        /// So many may be had.
        limit: u64,
    },
    /// The system refused something that is always needed.
    #[error("the system refuses what every job needs: {0} [E-EXEC-002]")]
    System(std::io::Error),
    /// The pages that all ranks of a node share cannot be made.
    #[error("{0} [E-EXEC-003]")]
    Pages(#[from] mend_segment::SegmentError),
}

impl Failure {
    fn system(errno: rustix::io::Errno) -> Self {
        Failure::System(errno.into())
    }
}
