// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The signals that `mpiexec` passes on, as descriptors to wait for.

use rustix::process::Signal;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;

/// One signal that was asked for, and where its arrivals are read.
#[derive(Debug)]
pub struct Heard {
    /// Which.
    pub signal: Signal,
    /// Readable when it came.
    pub arrivals: UnixStream,
}

impl Heard {
    /// Takes what has come, as far as one look does; how often, at most so many times as it did.
    pub fn take(&mut self) -> usize {
        self.arrivals.read(&mut [0; 64]).unwrap_or(0)
    }
}

/// What a signal to the launcher means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// The job is to end: passed on, and enforced soon after.
    End,
    /// For the ranks alone.
    PassOn,
    /// All are to stop, and we with them.
    Stop,
    /// All go on.
    Continue,
}

/// What `signal` means here.
pub fn meaning(signal: Signal) -> Meaning {
    match signal {
        Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT => Meaning::End,
        Signal::TSTP => Meaning::Stop,
        Signal::CONT => Meaning::Continue,
        _ => Meaning::PassOn,
    }
}

/// Listens to all of them from now on, except those that whoever started us has us ignore (as `nohup` does with SIGHUP).
pub fn listen() -> io::Result<Vec<Heard>> {
    let ignored = ignored_signals();
    let wanted = [
        Signal::INT,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
        Signal::TSTP,
        Signal::CONT,
    ];
    let heard = wanted.into_iter().filter(|signal| ignored >> (signal.as_raw() - 1) & 1 == 0);
    heard.map(listen_to).collect()
}

fn listen_to(signal: Signal) -> io::Result<Heard> {
    let (arrivals, told) = UnixStream::pair()?;
    arrivals.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal.as_raw(), told)?;
    Ok(Heard { signal, arrivals })
}

/// The endings of our children, also where whoever started us ignores SIGCHLD (`trap '' CHLD`, some daemons): the kernel would
/// take them then, and nobody would ever know how, or that, a rank ended. What we start has the default again.
pub fn listen_to_endings() -> io::Result<Heard> {
    listen_to(Signal::CHILD)
}

/// Bit n - 1 for signal n; none where /proc does not say.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
