// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How processes end, in numbers and in words.

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// By itself, with this exit code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
}

impl Ending {
    /// The exit code as a shell reports it: the process's own, or 128 + signal.
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

    /// The ending in words, as the end of a sentence whose subject is the process.
    pub fn words(self) -> String {
        match self {
            Ending::Exited(code) => format!("ended with exit code {code}"),
            Ending::Signalled(signal) => format!("was killed by {}", signal_name(signal)),
        }
    }
}

/// The exit code of a shell for that signal.
pub fn signal_code(signal: i32) -> u8 {
    (128 + signal) as u8
}

/// The usual name of a signal.
pub fn signal_name(signal: i32) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == signal);
    known.map_or_else(|| format!("signal {signal}"), |(_, name)| format!("SIG{name}"))
}

/// As Linux numbers them on all machines that Mend runs on.
const NAMES: [(i32, &str); 24] = [
    (1, "HUP"),
    (2, "INT"),
    (3, "QUIT"),
    (4, "ILL"),
    (5, "TRAP"),
    (6, "ABRT"),
    (7, "BUS"),
    (8, "FPE"),
    (9, "KILL"),
    (10, "USR1"),
    (11, "SEGV"),
    (12, "USR2"),
    (13, "PIPE"),
    (14, "ALRM"),
    (15, "TERM"),
    (19, "STOP"),
    (20, "TSTP"),
    (24, "XCPU"),
    (25, "XFSZ"),
    (26, "VTALRM"),
    (27, "PROF"),
    (29, "IO"),
    (30, "PWR"),
    (31, "SYS"),
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
