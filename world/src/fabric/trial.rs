// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether libfabric can be opened without ending the process, or keeping it for ever: a child tries it.

use super::NoFabric;
use core::ffi::c_int;
use mend_ffi_ofi::Ofi as Library;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use std::os::fd::{AsFd, BorrowedFd};

/// Lets a child open the library and look for providers.
pub fn try_in_a_child(name: &str) -> Result<(), NoFabric> {
    // SAFETY: the child of a process with several threads calls only the dynamic linker and the library, whose locks another thread may hold:
    // then it does not end, and is killed. The parent goes on as before.
    match unsafe { libc::fork() } {
        0 => be_the_child(name),
        pid if pid > 0 => await_child(name, pid),
        // No process can be made: that says nothing about the library.
        _ => Ok(()),
    }
}

fn be_the_child(name: &str) -> ! {
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGABRT, libc::SIGFPE] {
        // SAFETY: restores the default in this process alone.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let found = Library::open(name)
        .map(|library| library.infos(&mend_ffi_ofi::Hints { remote_memory: true }).map(|infos| infos.len()));
    // Whatever it found, the parent will find, too: this child only shows that it survives.
    drop(found);
    // SAFETY: ends the process without running handlers of the program.
    unsafe { libc::_exit(0) }
}

/// How long a child may look for providers: so many seconds of a processor's time, or so long without getting any further. The time that it waits
/// for a processor does not count: hundreds of ranks may begin at once.
const CHILD_SECONDS: u64 = 10;

fn await_child(name: &str, pid: libc::pid_t) -> Result<(), NoFabric> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(()) };
    let crashes = |how: String| Err(NoFabric::Crashes { library: name.to_owned(), how });
    let hangs = pidfd_open(pid, PidfdFlags::empty()).is_ok_and(|child| hangs(child.as_fd(), pid));
    if hangs {
        // It may end just now: then there is nobody to kill.
        let _ = kill_process(pid, Signal::KILL);
    }
    let status = waitpid(Some(pid), WaitOptions::empty());
    let Ok(Some((_, status))) = status else {
        // The program reaps all children (SIGCHLD is ignored): nothing is known of this one.
        return Ok(());
    };
    match (hangs, status.terminating_signal()) {
        (true, _) => crashes(format!("has not ended after {CHILD_SECONDS} s")),
        (_, Some(signal)) => crashes(format!("was ended by {}", signal_name(signal))),
        _ if status.exit_status() != Some(0) => crashes("ended early".to_owned()),
        _ => Ok(()),
    }
}

/// Waits until the child has ended (`false`), or has used its time.
fn hangs(child: BorrowedFd<'_>, pid: Pid) -> bool {
    let half = Timespec { tv_sec: (CHILD_SECONDS / 2) as i64, tv_nsec: 0 };
    let mut used_before = None;
    loop {
        match poll(&mut [PollFd::new(&child, PollFlags::IN)], Some(&half)) {
            Ok(0) => {}
            Err(Errno::INTR) => continue,
            Ok(_) | Err(_) => return false,
        }
        let used = processor_time(pid);
        if used == used_before && is_asleep(pid) || used.is_none_or(|used| used.as_secs() >= CHILD_SECONDS) {
            return true;
        }
        used_before = used;
    }
}

/// Whether a process sleeps, or nothing is known of it. One that waits for a processor does not.
fn is_asleep(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // The state stands behind the name, which may hold anything.
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('S'))
}

/// The processor's time that a process has used; `None`: it cannot be read.
fn processor_time(pid: Pid) -> Option<std::time::Duration> {
    let mut clock = 0;
    // SAFETY: `clock` is writable.
    if unsafe { libc::clock_getcpuclockid(pid.as_raw_nonzero().get(), &mut clock) } != 0 {
        return None;
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable; a clock of a process that has ended is an error.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

fn signal_name(signal: c_int) -> String {
    match signal {
        libc::SIGSEGV => "SIGSEGV".to_owned(),
        libc::SIGBUS => "SIGBUS".to_owned(),
        libc::SIGABRT => "SIGABRT".to_owned(),
        libc::SIGILL => "SIGILL".to_owned(),
        other => format!("signal {other}"),
    }
}
