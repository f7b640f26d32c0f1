// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends every descendant of this process, also those in other sessions or process groups and after double forks: the
//! caller is a subreaper, which adopts descendants whose parent has ended.
//!
//! Process ids in this module are those in /proc, which differ from those of system calls where /proc belongs to another PID
//! namespace (`unshare --pid` without `--mount-proc`). So a process to be killed is named by its folder in /proc, not by its id.

use mend_daemon::{Ending, KILL_TIME_LIMIT};
use mend_runtime::Stat;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, pidfd_open, pidfd_send_signal};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A process in the kernel's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TableEntry {
    pid: i32,
    parent: i32,
    /// All threads of the process have ended. (After pthread_exit of the first thread the kernel reports a zombie too early.)
    zombie: bool,
}

/// How long a process may take to die.
pub const TIME_LIMIT: Duration = KILL_TIME_LIMIT.to_std();

/// How long a dying process may take to write its core before it is killed with the others.
const CORE_TIME_LIMIT: Duration = Duration::from_secs(60);

/// Kills every descendant and reaps our children, until none is left. The processes in `dying`, which write a core, are killed
/// only after [`CORE_TIME_LIMIT`]. `ended` is called for each child that was reaped. Returns the processes that the kernel did not
/// end within [`TIME_LIMIT`].
pub fn kill_all(dying: &[Pid], mut ended: impl FnMut(Pid, Ending)) -> Vec<i32> {
    let own = own_number();
    // In a /proc of another PID namespace the ids are not those of this process's children.
    let dying = dying.iter().filter(|_| own == own_pid()).map(|pid| pid.as_raw_nonzero().get());
    let mut spared: HashSet<i32> = dying.collect();
    let began = Instant::now();
    let mut give_up = began + TIME_LIMIT;
    loop {
        reap(&mut ended);
        if began.elapsed() >= CORE_TIME_LIMIT {
            spared.clear();
        }
        let left = descendants(&process_table(), own).into_iter();
        let (writing, others): (Vec<TableEntry>, Vec<TableEntry>) =
            left.partition(|entry| spared.contains(&entry.pid) && !entry.zombie);
        let Some(first) = others.first().or(writing.first()) else { return vec![] };
        let now = Instant::now();
        match others.is_empty() {
            true => give_up = now + TIME_LIMIT,
            false if now >= give_up => return others.iter().map(|entry| entry.pid).collect(),
            false => others.iter().filter(|entry| !entry.zombie).for_each(|entry| kill(*entry)),
        }
        wait_a_little(first.pid);
    }
}

/// Takes the status of every child that has ended.
pub fn reap(mut ended: impl FnMut(Pid, Ending)) {
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if let Some(ending) = ending_of(status) {
            ended(pid, ending);
        }
    }
}

/// The ending that `waitpid` reported; `None` if the process was only stopped or continued.
fn ending_of(status: WaitStatus) -> Option<Ending> {
    let exited = status.exit_status().map(Ending::Exited);
    exited.or_else(|| status.terminating_signal().map(Ending::Signalled))
}

/// The line for the user about processes that could not be killed, if there are any.
pub fn unkillable(left: &[i32]) -> Option<String> {
    let first = left.first()?;
    Some(format!(
        "mpiexec: {} process(es) of the job would not die in 5 s, process {first} among them; \
         see what they wait for in /proc/{first}/stack [E-JOB-012]",
        left.len()
    ))
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// The id of this process in /proc.
fn own_number() -> i32 {
    let link = std::fs::read_link("/proc/self").ok();
    link.and_then(|number| number.to_str()?.parse().ok()).unwrap_or_else(own_pid)
}

/// Kills a process, unless its id has been reused: an open folder of /proc always refers to the same process, and the parent is
/// compared again through it.
fn kill(entry: TableEntry) {
    let sent = open_folder(entry.pid).and_then(|folder| {
        let same = read_entry_in(&folder, entry.pid).is_some_and(|now| now.parent == entry.parent);
        if same { pidfd_send_signal(&folder, Signal::KILL) } else { Err(Errno::SRCH) }
    });
    match (sent, Pid::from_raw(entry.pid)) {
        // The process has ended, or was adopted by another parent: then the next scan of the table finds it.
        (Ok(()) | Err(Errno::NOENT | Errno::SRCH), _) => {}
        // The folder cannot be used (seccomp, no descriptor left): the id is used instead, if /proc is of our PID namespace.
        (Err(_), Some(pid)) if own_number() == own_pid() => {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        (Err(_), _) => {}
    }
}

fn open_folder(pid: i32) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(format!("/proc/{pid}"), flags, Mode::empty())
}

fn read_entry_in(folder: &OwnedFd, pid: i32) -> Option<TableEntry> {
    let stat = rustix::fs::openat(folder, "stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = vec![];
    File::from(stat).read_to_end(&mut bytes).ok()?;
    parse_stat(pid, &String::from_utf8_lossy(&bytes))
}

/// Waits until the process has ended, at most 20 ms.
fn wait_a_little(pid: i32) {
    let pidfd = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let mut waited: Vec<PollFd<'_>> = pidfd.iter().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)).collect();
    let at_most = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let _ = poll(&mut waited, Some(&at_most));
    // A zombie that another process has to reap counts as ended: without a pause the caller would spin.
    if waited.iter().any(|each| !each.revents().is_empty()) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The processes whose chain of parents leads to `root`, without `root` itself.
fn descendants(table: &[TableEntry], root: i32) -> Vec<TableEntry> {
    let mut children: HashMap<i32, Vec<TableEntry>> = HashMap::new();
    for entry in table {
        children.entry(entry.parent).or_default().push(*entry);
    }
    let mut found: Vec<TableEntry> = Vec::new();
    let mut seen = HashSet::from([root]);
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for entry in children.get(&parent).into_iter().flatten() {
            // The table is read one process after another, so a reused id could make the chain of parents a cycle.
            if seen.insert(entry.pid) {
                found.push(*entry);
                open.push(entry.pid);
            }
        }
    }
    found
}

/// Whether the process is ending or has ended: its first thread exits, or will do so because another thread ends the process.
pub fn is_ending(pid: Pid) -> bool {
    let read = |name: &str| {
        let bytes = std::fs::read(format!("/proc/{}/{name}", pid.as_raw_nonzero()))?;
        std::io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let stat = read("stat").ok().and_then(|line| Stat::parse(&line));
    stat.is_none_or(|stat| stat.flags & EXITING != 0) || read("status").is_ok_and(|status| is_killed(&status))
}

/// Whether a process that a fatal signal was to end runs on, as a debugger may let it: it has not ended, writes no core, and no thread of it
/// is stopped. `false` if that is not known.
pub fn runs_on(pid: Pid) -> bool {
    let folder = format!("/proc/{}", pid.as_raw_nonzero());
    let status = std::fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
    let threads = std::fs::read_dir(format!("{folder}/task")).into_iter().flatten().flatten();
    let mut stats =
        threads.filter_map(|thread| Stat::parse(&std::fs::read_to_string(thread.path().join("stat")).ok()?));
    own_number() == own_pid()
        && writes_no_core(&status)
        && !is_ending(pid)
        && stats.all(|stat| !stat.is_stopped)
}

/// As the kernel says since Linux 4.15.
fn writes_no_core(status: &str) -> bool {
    status.lines().any(|line| line.strip_prefix("CoreDumping:").is_some_and(|flag| flag.trim() == "0"))
}

/// Whether SIGKILL is pending for the thread or the process. (The kernel also ends the threads of a process with SIGKILL.)
fn is_killed(status: &str) -> bool {
    let pending =
        status.lines().filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    let mut sets = pending.filter_map(|set| u64::from_str_radix(set.trim(), 16).ok());
    sets.any(|set| set & 1 << (Signal::KILL.as_raw() - 1) != 0)
}

/// PF_EXITING of the kernel's own flags.
const EXITING: u64 = 4;

fn process_table() -> Vec<TableEntry> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return vec![] };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(read_entry).collect()
}

fn read_entry(pid: i32) -> Option<TableEntry> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(pid, &String::from_utf8_lossy(&stat))
}

fn parse_stat(pid: i32, line: &str) -> Option<TableEntry> {
    let Stat { first_has_ended, parent, threads, .. } = Stat::parse(line)?;
    Some(TableEntry { pid, parent, zombie: first_has_ended && threads <= 1 })
}

#[cfg(test)]
mod tests {
    use super::{TableEntry, descendants, is_ending, is_killed, parse_stat};

    fn entry(pid: i32, parent: i32) -> TableEntry {
        TableEntry { pid, parent, zombie: false }
    }

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        let stat =
            |front: &str, threads| format!("{front} 3 7 7 0 -1 4194560 1 0 0 0 2 3 0 0 20 0 {threads} 0 9");
        assert_eq!(parse_stat(7, &stat("7 (a) Z 99 (b)) S", 2)), Some(entry(7, 3)));
        assert_eq!(parse_stat(7, "7 (a) Z"), None);
        // The first thread has ended; with it all have, or not.
        assert_eq!(parse_stat(7, &stat("7 (a) Z", 1)), Some(TableEntry { zombie: true, ..entry(7, 3) }));
        assert_eq!(parse_stat(7, &stat("7 (a) Z", 2)), Some(entry(7, 3)));
    }

    #[test]
    fn a_running_process_is_not_ending_and_one_that_was_reaped_is() {
        assert!(is_killed("Name:\tx\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(!is_killed("SigPnd:\t0000000000004002\nShdPnd:\t0000000000000001\n"));
        assert!(!is_ending(rustix::process::getpid()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        child.wait().unwrap();
        assert!(is_ending(pid));
    }

    #[test]
    fn descendants_are_found_through_any_chain_and_cycles_end() {
        let table =
            [entry(1, 0), entry(5, 1), entry(6, 5), entry(9, 6), entry(7, 1), entry(30, 31), entry(31, 30)];
        let mut found: Vec<i32> = descendants(&table, 5).iter().map(|entry| entry.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [6, 9]);
        assert_eq!(descendants(&table, 30).len(), 1);
    }
}
