// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether libfabric can be opened without ending the process, or keeping it for ever: a child tries it.
//!
//! The end of the child is seen by its process descriptor (Linux 5.3), or else by a pipe of which the child holds the other end. Whatever the
//! library does in the child, it is waited for until it has used its time, and killed then.

use super::NoFabric;
use core::ffi::c_int;
use core::time::Duration;
use mend_ffi_ofi::Ofi as Library;
use mend_segment::above_standard_streams;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, pidfd_open, waitid, waitpid,
};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Lets a child open the library and look for providers.
pub fn try_in_a_child(name: &str) -> Result<(), NoFabric> {
    // The child holds the second end until it ends.
    let (pipe, held) = pipe().ok().unzip();
    // SAFETY: the child of a process with several threads calls only the dynamic linker and the library, whose locks another thread may hold:
    // then it does not end, and is killed. The parent goes on as before.
    match unsafe { libc::fork() } {
        0 => be_the_child(name),
        pid if pid > 0 => {
            drop(held);
            let Some(pid) = Pid::from_raw(pid) else { return Ok(()) };
            let process = pidfd_open(pid, PidfdFlags::empty()).map(Watch::Process);
            let watch = process.ok().or(pipe.map(Watch::Pipe));
            await_child(name, pid, watch.as_ref(), CHILD_LIMIT)
        }
        // No process can be made: that says nothing about the library.
        _ => Ok(()),
    }
}

/// A pipe that programs which other threads start do not inherit. The library may write to the standard streams, which it must not be.
fn pipe() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((above_standard_streams(read)?, above_standard_streams(write)?))
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

/// How long a child may look for providers: so much of a processor's time, or so long without getting any further. The time that it waits
/// for a processor does not count: hundreds of ranks may begin at once.
const CHILD_LIMIT: Duration = Duration::from_secs(10);

/// What shows the end of a child.
enum Watch {
    /// Its process descriptor.
    Process(OwnedFd),
    /// A pipe whose other end the child holds. The library may close that and run on; and a process that another thread forks meanwhile
    /// may hold it for longer than the child lives.
    Pipe(OwnedFd),
}

/// What was seen of a child.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It has ended.
    End,
    /// It has closed the pipe: it ends, or runs on where nothing shows its end.
    ClosedPipe,
    /// It has used its time.
    Hang,
    /// Nothing can be seen of it.
    Nothing,
}

fn await_child(name: &str, pid: Pid, watch: Option<&Watch>, limit: Duration) -> Result<(), NoFabric> {
    let seen = watch.map_or(Seen::Nothing, |watch| watch.await_end(pid, limit));
    if seen != Seen::End {
        // No effect on the exit status of a child that is about to end. If it has ended just now, there is nobody to kill.
        let _ = kill_process(pid, Signal::KILL);
    }
    // It has ended, or was killed: this does not take long.
    let status = retry_on_intr(|| waitpid(Some(pid), WaitOptions::empty())).ok().flatten();
    let how = match (seen, status) {
        (Seen::Hang, _) => format!("has not ended after {} s", limit.as_secs()),
        (Seen::Nothing, _) => "could not be watched".to_owned(),
        // The program reaps all children (SIGCHLD is ignored): nothing is known of this one.
        (Seen::End | Seen::ClosedPipe, None) => return Ok(()),
        (Seen::End | Seen::ClosedPipe, Some((_, status))) => match status.terminating_signal() {
            Some(signal) => format!("was ended by {}", signal_name(signal)),
            None if status.exit_status() != Some(0) => "ended early".to_owned(),
            None => return Ok(()),
        },
    };
    Err(NoFabric::Crashes { library: name.to_owned(), how })
}

impl Watch {
    /// Waits until the child has ended, or has used its time.
    fn await_end(&self, pid: Pid, limit: Duration) -> Seen {
        let mut used_before = None;
        loop {
            match self.await_event(Instant::now() + limit / 2) {
                Ok(true) if matches!(self, Watch::Pipe(_)) => return Seen::ClosedPipe,
                Ok(true) => return Seen::End,
                Ok(false) if has_ended(pid) => return Seen::End,
                Ok(false) => {}
                Err(_) => return Seen::Nothing,
            }
            let used = processor_time(pid);
            if used == used_before && is_asleep(pid) || used.is_none_or(|used| used >= limit) {
                return Seen::Hang;
            }
            used_before = used;
        }
    }

    /// Whether the descriptor shows an end before that time, however many signals come.
    fn await_event(&self, until: Instant) -> rustix::io::Result<bool> {
        // What the library writes into the pipe is no end; that the other end is closed is always seen.
        let (descriptor, events) = match self {
            Watch::Process(descriptor) => (descriptor, PollFlags::IN),
            Watch::Pipe(descriptor) => (descriptor, PollFlags::empty()),
        };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::new(descriptor, events)], Some(&left)) {
                Err(Errno::INTR) => {}
                result => return result.map(|count| count > 0),
            }
        }
    }
}

/// Whether the child has ended, or was reaped. It is not reaped here.
fn has_ended(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}

/// Whether a process sleeps, or nothing is known of it. One that waits for a processor does not.
fn is_asleep(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // The state stands behind the name, which may hold anything.
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('S'))
}

/// The processor's time that a process has used; `None`: it cannot be read.
fn processor_time(pid: Pid) -> Option<Duration> {
    let mut clock = 0;
    // SAFETY: `clock` is writable.
    if unsafe { libc::clock_getcpuclockid(pid.as_raw_nonzero().get(), &mut clock) } != 0 {
        return None;
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable; a clock of a process that has ended is an error.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
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

#[cfg(test)]
mod tests {
    use super::{NoFabric, Watch, await_child, pipe};
    use core::ffi::c_int;
    use core::time::Duration;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use std::os::fd::OwnedFd;
    use std::sync::mpsc::{RecvTimeoutError, channel};

    /// What a child does that holds the second end of the pipe.
    type Body = fn(OwnedFd);

    fn exit(code: c_int) -> ! {
        // SAFETY: ends the process without the exit functions of the test harness.
        unsafe { libc::_exit(code) }
    }

    fn hang() -> ! {
        loop {
            // SAFETY: takes nothing.
            unsafe { libc::pause() };
        }
    }

    fn spin() -> ! {
        loop {
            core::hint::spin_loop();
        }
    }

    fn kill_oneself() -> ! {
        // SAFETY: takes numbers only.
        unsafe { libc::raise(libc::SIGKILL) };
        exit(0)
    }

    /// A child, the pipe to it, and the end that it holds, too.
    fn child(body: Body) -> (Pid, OwnedFd, OwnedFd) {
        let (pipe, held) = pipe().unwrap();
        // SAFETY: the child takes no lock that another thread of the harness may hold, and ends by `_exit` or a signal.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: takes numbers only.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            body(held);
            exit(0);
        }
        (Pid::from_raw(pid).unwrap(), pipe, held)
    }

    fn by_process(pid: Pid, _pipe: OwnedFd) -> Option<Watch> {
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Watch::Process)
    }

    fn by_pipe(_pid: Pid, pipe: OwnedFd) -> Option<Watch> {
        Some(Watch::Pipe(pipe))
    }

    /// How the parent sees such a child. Nothing is left of it.
    fn seen(body: Body, watch: fn(Pid, OwnedFd) -> Option<Watch>, limit: Duration) -> Result<(), String> {
        let (pid, pipe, held) = child(body);
        drop(held);
        let result = await_child("a library", pid, watch(pid, pipe).as_ref(), limit);
        assert!(super::has_ended(pid) && rustix::process::test_kill_process(pid).is_err());
        result.map_err(|error| match error {
            NoFabric::Crashes { how, .. } => how,
            other => panic!("{other}"),
        })
    }

    /// Longer than a child of a test needs that ends, whatever else runs: it is not asleep for half of it.
    const LONG: Duration = Duration::from_secs(4);
    const SHORT: Duration = Duration::from_millis(50);

    #[test]
    fn each_end_of_a_child_is_seen_with_and_without_a_process_descriptor() {
        for watch in [by_process, by_pipe] {
            for _ in 0..50 {
                assert_eq!(seen(|_| exit(0), watch, LONG), Ok(()));
            }
            assert_eq!(seen(|_| exit(1), watch, LONG), Err("ended early".to_owned()));
            assert_eq!(seen(|_| kill_oneself(), watch, LONG), Err("was ended by signal 9".to_owned()));
            for hangs in [(|_| hang()) as Body, |_| spin()] {
                assert_eq!(seen(hangs, watch, SHORT), Err("has not ended after 0 s".to_owned()));
            }
        }
    }

    #[test]
    fn a_child_that_closes_the_pipe_and_runs_on_is_killed() {
        let closes = |held| {
            drop(held);
            hang()
        };
        assert_eq!(seen(closes, by_pipe, LONG), Err("was ended by signal 9".to_owned()));
    }

    #[test]
    fn what_a_library_writes_into_the_pipe_is_no_end() {
        let writes = |held: OwnedFd| {
            let _ = rustix::io::write(&held, b"a warning");
            hang()
        };
        assert_eq!(seen(writes, by_pipe, SHORT), Err("has not ended after 0 s".to_owned()));
    }

    #[test]
    fn a_child_that_nothing_shows_is_killed_at_once() {
        assert_eq!(seen(|_| hang(), |_, _| None, LONG), Err("could not be watched".to_owned()));
    }

    #[test]
    fn the_end_of_a_child_is_found_although_another_process_holds_the_pipe() {
        for (body, expected) in [((|_| exit(0)) as Body, true), (|_| kill_oneself(), false)] {
            let (pid, pipe, held) = child(body);
            let result = await_child("a library", pid, Some(&Watch::Pipe(pipe)), 4 * SHORT);
            drop(held);
            assert_eq!(result.is_ok(), expected, "{result:?}");
        }
    }

    #[test]
    fn signals_that_the_program_handles_do_not_prolong_the_wait() {
        extern "C" fn nothing(_: c_int) {}
        // SAFETY: the handler does nothing; no other test uses the signal.
        unsafe { libc::signal(libc::SIGUSR2, nothing as *const () as libc::sighandler_t) };
        // SAFETY: takes nothing.
        let waiter = unsafe { libc::pthread_self() };
        let (done, is_done) = channel::<()>();
        let sender = std::thread::spawn(move || {
            while is_done.recv_timeout(SHORT / 50) == Err(RecvTimeoutError::Timeout) {
                // SAFETY: the thread waits for this one below.
                unsafe { libc::pthread_kill(waiter, libc::SIGUSR2) };
            }
        });
        let how = seen(|_| hang(), by_pipe, SHORT);
        drop(done);
        sender.join().unwrap();
        assert_eq!(how, Err("has not ended after 0 s".to_owned()));
    }
}
