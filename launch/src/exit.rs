// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How processes and jobs end, in numbers and in words.

use rustix::process::{Signal, WaitStatus};

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// By itself, with this exit code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
}

impl Ending {
    /// What `waitpid` said; `None` where the process has only stopped or gone on.
    pub fn from_status(status: WaitStatus) -> Option<Self> {
        status
            .exit_status()
            .map(Ending::Exited)
            .or_else(|| status.terminating_signal().map(Ending::Signalled))
    }

    /// As a shell has it: the exit code, or 128 + signal.
    pub fn code(self) -> u8 {
        match self {
            Ending::Exited(code) => code as u8,
            Ending::Signalled(signal) => signal_code(signal),
        }
    }

    /// The exit code of a job that this ending ended: never 0.
    pub fn failure_code(self) -> u8 {
        self.code().max(1)
    }

    /// What the process did, as the end of a sentence about it.
    pub fn words(self) -> String {
        match self {
            Ending::Exited(code) => format!("ended with exit code {code}"),
            Ending::Signalled(signal) => format!("was killed by {}", signal_name(signal)),
        }
    }
}

/// What a shell's exit code for that signal is.
pub fn signal_code(signal: i32) -> u8 {
    (128 + signal) as u8
}

/// The usual name of a signal.
pub fn signal_name(signal: i32) -> String {
    let known = NAMES.iter().find(|(each, _)| each.as_raw() == signal);
    known.map_or_else(|| format!("signal {signal}"), |(_, name)| format!("SIG{name}"))
}

const NAMES: [(Signal, &str); 24] = [
    (Signal::HUP, "HUP"),
    (Signal::INT, "INT"),
    (Signal::QUIT, "QUIT"),
    (Signal::ILL, "ILL"),
    (Signal::TRAP, "TRAP"),
    (Signal::ABORT, "ABRT"),
    (Signal::BUS, "BUS"),
    (Signal::FPE, "FPE"),
    (Signal::KILL, "KILL"),
    (Signal::USR1, "USR1"),
    (Signal::SEGV, "SEGV"),
    (Signal::USR2, "USR2"),
    (Signal::PIPE, "PIPE"),
    (Signal::ALARM, "ALRM"),
    (Signal::TERM, "TERM"),
    (Signal::XCPU, "XCPU"),
    (Signal::XFSZ, "XFSZ"),
    (Signal::VTALARM, "VTALRM"),
    (Signal::PROF, "PROF"),
    (Signal::IO, "IO"),
    (Signal::POWER, "PWR"),
    (Signal::SYS, "SYS"),
    (Signal::TSTP, "TSTP"),
    (Signal::STOP, "STOP"),
];

#[cfg(test)]
mod tests {
    use super::{Ending, signal_name};

    #[test]
    fn a_failure_never_looks_like_success() {
        assert_eq!(Ending::Exited(0).failure_code(), 1);
        assert_eq!(Ending::Exited(256 + 7).failure_code(), 7);
        assert_eq!(Ending::Signalled(9).failure_code(), 137);
    }

    #[test]
    fn signals_have_their_usual_names() {
        assert_eq!(signal_name(11), "SIGSEGV");
        assert_eq!(signal_name(40), "signal 40");
        assert_eq!(Ending::Signalled(9).words(), "was killed by SIGKILL");
    }
}
