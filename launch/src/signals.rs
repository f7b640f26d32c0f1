// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The signals that `mpiexec` passes on, as descriptors to wait for.

use rustix::process::Signal;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;

/// One signal that is listened to, and where its arrivals are read.
#[derive(Debug)]
pub struct SignalPipe {
    /// Which.
    pub signal: Signal,
    /// Readable when it came.
    pub arrivals: UnixStream,
}

impl SignalPipe {
    /// Takes the arrivals; how many, at most as many as there were.
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

/// What `signal` is for here.
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
    let heard = wanted.into_iter().filter(|signal| ignored >> (signal.as_raw() - 1) & 1 == 0);
    heard.map(listen_to).collect()
}

fn listen_to(signal: Signal) -> io::Result<SignalPipe> {
    let (arrivals, writer) = UnixStream::pair()?;
    arrivals.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal.as_raw(), writer)?;
    Ok(SignalPipe { signal, arrivals })
}

/// The ends of our children, also where this process was started to ignore SIGCHLD (`trap '' CHLD`, some daemons): the kernel
/// would take them then, and how, or that, a rank ended would never be known. What we start has the default again.
pub fn listen_to_endings() -> io::Result<SignalPipe> {
    listen_to(Signal::CHILD)
}

/// Bit n - 1 for signal n; none where /proc does not say.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
