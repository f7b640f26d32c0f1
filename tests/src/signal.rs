// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals to processes by their number.

use std::io;

/// SIGKILL.
pub const KILL: i32 = libc::SIGKILL;
/// SIGSTOP.
pub const STOP: i32 = libc::SIGSTOP;
/// SIGCONT.
pub const CONTINUE: i32 = libc::SIGCONT;
/// Releases a rank of `tests/deaths`.
pub const RELEASE: i32 = libc::SIGUSR1;
/// With this signal a rank of `tests/deaths` marks a place.
pub const MARK: i32 = libc::SIGUSR2;

/// Sends `signal`; an error if the process has ended.
pub fn send(pid: u32, signal: i32) -> io::Result<()> {
    let pid = i32::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: `kill` takes two numbers and touches no memory of ours.
    #[allow(unsafe_code, reason = "std has no kill for processes that are not our children")]
    let result = unsafe { libc::kill(pid, signal) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends `signal` to the first thread of a process.
pub fn send_to_first_thread(pid: u32, signal: i32) -> io::Result<()> {
    // SAFETY: `tgkill` takes three numbers and touches no memory of ours.
    #[allow(unsafe_code, reason = "std has no tgkill")]
    let result = unsafe { libc::syscall(libc::SYS_tgkill, pid, pid, signal) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
