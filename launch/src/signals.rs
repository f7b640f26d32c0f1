// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The signals that `mpiexec` passes on, as descriptors to wait for.

use rustix::process::Signal;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;

/// One signal that is caught, and the socket from which its arrivals are read.
#[derive(Debug)]
pub struct SignalPipe {
    /// The signal.
    pub signal: Signal,
    /// Readable when the signal has arrived.
    pub arrivals: UnixStream,
}

impl SignalPipe {
    /// Takes the arrivals, and returns how many there were. Signals that arrive close together may count as one.
    pub fn take(&mut self) -> usize {
        self.arrivals.read(&mut [0; 64]).unwrap_or(0)
    }
}

/// What a signal to the launcher is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalRole {
    /// The job is to end: passed on, and enforced soon after.
    End,
    /// For the ranks alone.
    PassOn,
    /// All are to stop, and `mpiexec` with them.
    Stop,
    /// All go on.
    Continue,
}

/// The role of `signal`.
pub fn role(signal: Signal) -> SignalRole {
    match signal {
        Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT => SignalRole::End,
        Signal::TSTP => SignalRole::Stop,
        Signal::CONT => SignalRole::Continue,
        _ => SignalRole::PassOn,
    }
}

/// Listens to all of them from now on, except those that this process was started to ignore (as `nohup` does with SIGHUP).
pub fn listen() -> io::Result<Vec<SignalPipe>> {
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
    let caught = wanted.into_iter().filter(|signal| ignored >> (signal.as_raw() - 1) & 1 == 0);
    caught.map(listen_to).collect()
}

fn listen_to(signal: Signal) -> io::Result<SignalPipe> {
    let (arrivals, writer) = UnixStream::pair()?;
    arrivals.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal.as_raw(), writer)?;
    Ok(SignalPipe { signal, arrivals })
}

/// Catches SIGCHLD, also where this process was started with SIGCHLD ignored (`trap '' CHLD`, some daemons): the kernel would
/// then reap our children, and their exit status would be lost. Processes that we start get the default action again.
pub fn listen_to_endings() -> io::Result<SignalPipe> {
    listen_to(Signal::CHILD)
}

/// Bit n - 1 for signal n; 0 if /proc cannot be read.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
