// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts processes: the node daemon, and the ranks. The one place of this crate with `unsafe`: the step between fork and
//! exec.

use crate::arguments::{App, Binding, JobDescription};
use mend_runtime::environment::{self, Address};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// What a rank is started with.
#[derive(Debug)]
pub struct RankStart {
    /// Its rank, and the address of the node daemon.
    pub address: Address,
    /// Which of the job's programs it runs, from 0.
    pub app_number: usize,
    /// The processor that it is pinned to.
    pub pinned: Option<CpuSet>,
    /// The limit on descriptors to restore; that of the node daemon was raised.
    pub descriptor_limit: Rlimit,
}

/// A rank that has been started.
#[derive(Debug)]
pub struct StartedRank {
    /// Its process.
    pub pid: Pid,
    /// The end of its standard output to read from.
    pub stdout: OwnedFd,
    /// The end of its standard error to read from.
    pub stderr: OwnedFd,
    /// The end of its standard input to write to; rank 0 alone.
    pub stdin: Option<OwnedFd>,
}

/// Starts one rank. The kernel kills it when the calling thread ends.
pub fn rank(job: &JobDescription, app: &App, start: &RankStart) -> io::Result<StartedRank> {
    let rank = start.address.rank;
    let (stdout, stdout_end) = pipe()?;
    let (stderr, stderr_end) = pipe()?;
    let mut command = Command::new(&app.program);
    command.args(&app.arguments).stdout(stdout_end).stderr(stderr_end).process_group(0);
    let stdin = match rank {
        0 => {
            let (stdin_end, stdin) = pipe()?;
            command.stdin(stdin_end);
            Some(stdin)
        }
        _ => {
            command.stdin(Stdio::null());
            None
        }
    };
    set_environment(&mut command, job, app, start);
    if let Some(directory) = &app.directory {
        command.current_dir(directory);
    }
    let parent = rustix::process::getpid();
    let (pinned, limit) = (start.pinned, start.descriptor_limit);
    let step = move || before_exec(parent, pinned.as_ref(), limit);
    // SAFETY: `before_exec` makes bare system calls on values made before the fork: it allocates nothing and takes no
    // lock, so it may run in the child of a process that had threads.
    unsafe { command.pre_exec(step) };
    let child = command.spawn()?;
    let pid = Pid::from_child(&child);
    Ok(StartedRank { pid, stdout, stderr, stdin })
}

/// Runs in the child: arranges that it dies with its parent, pins it, and restores the limit on descriptors.
fn before_exec(parent: Pid, pinned: Option<&CpuSet>, limit: Rlimit) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the call above.
    if rustix::process::getppid() != Some(parent) {
        return Err(rustix::io::Errno::SRCH.into());
    }
    if let Some(processors) = pinned {
        sched_setaffinity(None, processors)?;
    }
    setrlimit(Resource::Nofile, limit)?;
    Ok(())
}

fn set_environment(command: &mut Command, job: &JobDescription, app: &App, start: &RankStart) {
    let (rank, size) = (start.address.rank.to_string(), job.ranks().to_string());
    // These come from an outer mpiexec, and are not meant for our ranks. An error handler that the user set by hand is.
    command.env_remove(environment::COMMAND_LINE);
    if std::env::var_os(environment::DAEMON).is_some() {
        command.env_remove(environment::INITIAL_ERROR_HANDLER);
    }
    command.envs(app.environment.iter().map(|(name, value)| (name, value)));
    command.env(environment::DAEMON, start.address.to_text());
    command.env(environment::RANK, &rank).env(environment::SIZE, &size);
    command.env(environment::APP_NUMBER, start.app_number.to_string());
    command.env(environment::APP_SIZE, app.ranks.to_string());
    command.env("MPI_LOCALRANKID", &rank).env("MPI_LOCALNRANKS", &size);
    if job.test_hooks {
        // Test hooks act only in the node daemon; the library would report them as unknown variables.
        for hook in environment::TEST_HOOKS {
            command.env_remove(hook);
        }
    }
    if !job.settings.is_empty() {
        command.env(environment::COMMAND_LINE, environment::write_assignments(&job.settings));
    }
    if let Some(handler) = job.error_handler {
        command.env(environment::INITIAL_ERROR_HANDLER, handler);
    }
    if std::env::var_os(environment::TRACE).is_some_and(|name| !name.is_empty())
        && let Some(preloaded) = with_trace_library(std::env::var_os(PRELOAD))
    {
        command.env(PRELOAD, preloaded);
    }
}

/// The libraries that the dynamic linker loads first, with the one that records calls; `None`: it is not installed.
fn with_trace_library(others: Option<OsString>) -> Option<OsString> {
    let program = std::env::current_exe().ok()?;
    let library = program.parent()?.parent()?.join("lib").join(environment::TRACE_LIBRARY);
    if !library.is_file() {
        return None;
    }
    let mut all = library.into_os_string();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    Some(all)
}

const PRELOAD: &str = "LD_PRELOAD";

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// The first word of the node daemon's command line; the words of `mpiexec`'s own follow.
pub const NODE_DAEMON_WORD: &str = "--mend-node-daemon";

/// Starts the node daemon: this program again with the same arguments, in a separate session, so that the terminal's signals
/// reach `mpiexec` alone, and with the original limit on descriptors. `socket` becomes its standard input.
pub fn node_daemon(socket: OwnedFd, limit: Rlimit) -> io::Result<Pid> {
    let mut command = Command::new("/proc/self/exe");
    let name = std::env::args_os().next().unwrap_or_else(|| "mpiexec".into());
    command.arg0(name).arg(NODE_DAEMON_WORD).args(std::env::args_os().skip(1));
    command.stdin(socket).stdout(File::open("/dev/null")?);
    let step = move || {
        rustix::process::setsid()?;
        Ok(setrlimit(Resource::Nofile, limit)?)
    };
    // SAFETY: two bare system calls: they allocate nothing and take no lock.
    unsafe { command.pre_exec(step) };
    let child = command.spawn()?;
    Ok(Pid::from_child(&child))
}

/// The processors to pin ranks to: rank i gets the i-th that this process may use, counted round robin.
pub fn pins(binding: Binding) -> io::Result<Pins> {
    match binding {
        Binding::None => Ok(Pins(vec![])),
        Binding::Core => {
            let allowed = sched_getaffinity(None)?;
            Ok(Pins((0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor)).collect()))
        }
    }
}

/// The processors that ranks are pinned to; none where they are not.
#[derive(Debug)]
pub struct Pins(Vec<usize>);

impl Pins {
    /// Where `rank` runs, if it is pinned.
    pub fn of(&self, rank: u32) -> Option<CpuSet> {
        let processor = *self.0.get(rank as usize % self.0.len().max(1))?;
        let mut set = CpuSet::new();
        set.set(processor);
        Some(set)
    }
}

/// Raises the limit on descriptors to `needed`. Returns the limit before; `Err` holds the largest limit that is possible.
pub fn raise_descriptor_limit(needed: u64) -> Result<Rlimit, u64> {
    let before = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if enough(before.current) {
        return Ok(before);
    }
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    if enough(before.maximum) && setrlimit(Resource::Nofile, raised).is_ok() {
        return Ok(before);
    }
    Err(before.maximum.or(before.current).unwrap_or(0))
}

/// Takes the descriptor of standard input, and puts /dev/null in its place.
pub fn take_standard_input() -> io::Result<OwnedFd> {
    let taken = io::stdin().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::{Pins, pins};
    use crate::arguments::Binding;

    #[test]
    fn pinned_ranks_go_round_the_processors() {
        let pins = Pins(vec![2, 5]);
        let of = |rank| (0..8).find(|&processor| pins.of(rank).unwrap().is_set(processor));
        assert_eq!([of(0), of(1), of(2)], [Some(2), Some(5), Some(2)]);
    }

    #[test]
    fn ranks_are_not_pinned_unless_asked() {
        assert!(pins(Binding::None).unwrap().of(0).is_none());
        assert!(pins(Binding::Core).unwrap().of(7).is_some());
    }
}
