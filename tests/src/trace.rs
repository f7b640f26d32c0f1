// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stopping a rank between any two instructions: ptrace(2) on its first thread. Its other threads run on.
//!
//! ```text
//!   seize ─▶ running ── mark, one step, one system call ─▶ stopped ─┬─ resume, step, to_system_call ─▶ running
//!                                                                    └─ kill ─▶ gone
//! ```
//!
//! All calls for one tracee must come from the thread that seized it; the kernel requires that.
#![allow(unsafe_code, reason = "ptrace and waitpid for processes that are not our children are C alone")]

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use rustix::thread::CpuSet;

use crate::signal;

/// A process whose first thread is traced. Killed when dropped, as it cannot go on after its trace was interrupted.
#[derive(Debug)]
pub struct Tracee {
    pid: libc::pid_t,
    gone: bool,
}

/// Why it stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// After a step.
    Stepped,
    /// At the beginning or the end of a system call.
    SystemCall,
    /// Before a signal is delivered.
    Signal(i32),
    /// Another event of ptrace, which is not needed here.
    Other,
    /// It has ended.
    Gone,
}

impl Tracee {
    /// Begins to trace a process that runs, and lets it run.
    pub fn seize(pid: u32) -> io::Result<Tracee> {
        let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
        // SAFETY: PTRACE_SEIZE takes no address and reads its options as a number.
        let result = unsafe {
            libc::ptrace(
                libc::PTRACE_SEIZE,
                pid,
                ptr::null_mut::<c_void>(),
                ptr::without_provenance_mut::<c_void>(options as usize),
            )
        };
        if result == 0 { Ok(Tracee { pid, gone: false }) } else { Err(io::Error::last_os_error()) }
    }

    /// Lets it go on until it marks a place; all other signals are delivered. `false`: it ended before.
    pub fn to_mark(&mut self, already_stopped: bool) -> io::Result<bool> {
        if already_stopped {
            self.go(libc::PTRACE_CONT, 0)?;
        }
        loop {
            match self.wait()? {
                Stop::Signal(signal::MARK) => return Ok(true),
                Stop::Signal(other) => self.go(libc::PTRACE_CONT, other)?,
                Stop::Gone => return Ok(false),
                Stop::Stepped | Stop::SystemCall | Stop::Other => self.go(libc::PTRACE_CONT, 0)?,
            }
        }
    }

    /// One instruction, or a whole system call.
    pub fn step(&mut self) -> io::Result<Stop> {
        self.go(libc::PTRACE_SINGLESTEP, 0)?;
        self.wait()
    }

    /// To the next beginning or end of a system call.
    pub fn to_system_call(&mut self) -> io::Result<Stop> {
        self.go(libc::PTRACE_SYSCALL, 0)?;
        self.wait()
    }

    /// The files that it has mapped.
    pub fn mappings(&self) -> Mappings {
        Mappings::of(self.pid.cast_unsigned())
    }

    /// The address of the next instruction, while it is stopped.
    pub fn instruction(&self) -> io::Result<u64> {
        let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
        let bytes = size_of::<libc::user_regs_struct>();
        let mut place = libc::iovec { iov_base: registers.as_mut_ptr().cast::<c_void>(), iov_len: bytes };
        // SAFETY: `place` names memory of ours, as long as it says, and both live through the call.
        let result = unsafe {
            libc::ptrace(
                libc::PTRACE_GETREGSET,
                self.pid,
                ptr::without_provenance_mut::<c_void>(libc::NT_PRSTATUS as usize),
                (&raw mut place).cast::<c_void>(),
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: numbers alone, zeroed above: every bit pattern is one.
        let registers = unsafe { registers.assume_init() };
        #[cfg(target_arch = "x86_64")]
        return Ok(registers.rip);
        #[cfg(not(target_arch = "x86_64"))]
        return Ok(registers.pc);
    }

    /// Kills it at the current instruction, and ends the trace, so that its parent can reap it.
    pub fn kill(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        if !self.gone {
            signal::send(self.pid.cast_unsigned(), signal::KILL)?;
            while self.wait()? != Stop::Gone {}
        }
        Ok(())
    }

    fn go(&mut self, how: libc::c_uint, signal: i32) -> io::Result<()> {
        // SAFETY: these requests take no address and read the signal as a number.
        let result = unsafe {
            libc::ptrace(
                how,
                self.pid,
                ptr::null_mut::<c_void>(),
                ptr::without_provenance_mut::<c_void>(signal as usize),
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn wait(&mut self) -> io::Result<Stop> {
        let mut status = 0;
        loop {
            // SAFETY: `status` is ours and lives through the call.
            let found = unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) };
            if found == self.pid {
                break;
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINTR) {
                self.gone = true;
                return Err(error);
            }
        }
        let stop = stop_of(status);
        self.gone = stop == Stop::Gone;
        Ok(stop)
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.end();
    }
}

/// Pins this thread and a traced one to one processor, until it is dropped: then a step needs a context switch, but no interrupt
/// to another processor.
#[derive(Debug)]
pub struct Together {
    before: CpuSet,
}

impl Together {
    /// Pins this thread and the first thread of `pid`, which stays pinned.
    pub fn with(pid: u32) -> io::Result<Together> {
        let before = rustix::thread::sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        let last = (0..CpuSet::MAX_CPU).rev().find(|&processor| before.is_set(processor));
        one.set(last.unwrap_or(0));
        rustix::thread::sched_setaffinity(rustix::process::Pid::from_raw(pid.cast_signed()), &one)?;
        rustix::thread::sched_setaffinity(None, &one)?;
        Ok(Together { before })
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        // These processors were allowed before.
        let _ = rustix::thread::sched_setaffinity(None, &self.before);
    }
}

fn stop_of(status: i32) -> Stop {
    if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
        return Stop::Gone;
    }
    match libc::WSTOPSIG(status) {
        _ if status >> 16 != 0 => Stop::Other,
        signal if signal == libc::SIGTRAP | 0x80 => Stop::SystemCall,
        libc::SIGTRAP => Stop::Stepped,
        signal => Stop::Signal(signal),
    }
}

/// The place in its file of the next instruction of a stopped process, or `?`.
pub fn place(pid: u32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let address = text.split_whitespace().last().and_then(|word| word.strip_prefix("0x"));
    let address = address.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    address.map_or_else(|| "?".to_owned(), |address| Mappings::of(pid).place(address))
}

/// Which files a process has mapped.
#[derive(Debug)]
pub struct Mappings(Vec<Mapping>);

#[derive(Debug)]
struct Mapping {
    addresses: std::ops::Range<u64>,
    offset: u64,
    file: String,
}

impl Mappings {
    /// Those of a process; none if it has ended.
    pub fn of(pid: u32) -> Mappings {
        let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        Mappings(text.lines().filter_map(Mapping::parse).collect())
    }

    /// The same for an instruction in all processes that run the same files: `libmpi_abi.so.1+0x1234`.
    pub fn place(&self, address: u64) -> String {
        let mapping = self.0.iter().find(|mapping| mapping.addresses.contains(&address));
        mapping.map_or_else(
            || format!("{address:#x}"),
            |mapping| format!("{}+{:#x}", mapping.file, address - mapping.addresses.start + mapping.offset),
        )
    }
}

impl Mapping {
    /// `start-end rights offset device inode path`, in hexadecimal.
    fn parse(line: &str) -> Option<Mapping> {
        let hexadecimal = |digits| u64::from_str_radix(digits, 16).ok();
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let offset = hexadecimal(words.nth(1)?)?;
        let file = words.nth(2)?.rsplit('/').next()?.to_owned();
        Some(Mapping { addresses: hexadecimal(start)?..hexadecimal(end)?, offset, file })
    }
}

/// Whether a process's first thread waits in a futex.
pub fn is_asleep(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|place| place.contains("futex"))
}

/// Why processes cannot be traced on this machine; `None` if they can. Tried on a process of our own.
pub fn forbidden() -> Option<String> {
    let mut child = match std::process::Command::new("sleep").arg("1000").spawn() {
        Ok(child) => child,
        Err(error) => return Some(format!("sleep cannot be started: {error}")),
    };
    let result = Tracee::seize(child.id()).and_then(Tracee::kill);
    // The process is killed in either case; it does not matter which of the two reaps it.
    let _ = child.kill();
    let _ = child.wait();
    result.err().map(|error| format!("no process can be traced here: {error}"))
}
