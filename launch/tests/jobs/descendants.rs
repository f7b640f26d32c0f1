// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No process of a job outlives `mpiexec` or the node daemon by 5 seconds, in whichever session or process group it is.

use crate::run::{MPIEXEC, PROBE, signal, start, start_command, until};
use rustix::process::Signal;
use std::process::{Command, Stdio};

/// Each rank: itself, a child in a session of its own, and one that was forked twice.
const FAMILY: &str = "setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; exec sleep 1000";
const FAMILY_SIZE: usize = 5;

#[test]
fn when_mpiexec_is_killed_nothing_is_left() {
    let run = start(&["-n", "3", "sh", "-c", FAMILY]);
    run.until_processes(2 + 3 * FAMILY_SIZE);
    run.signal(Signal::KILL);
    run.until_nothing_is_left();
    assert_eq!(run.end().code, 1009);
}

#[test]
fn when_the_node_daemon_is_killed_nothing_is_left_and_one_line_says_so() {
    for how in [Signal::KILL, Signal::TERM, Signal::ABORT] {
        let run = start(&["-n", "3", "sh", "-c", FAMILY]);
        run.until_processes(2 + 3 * FAMILY_SIZE);
        signal(run.node_daemon(), how);
        run.until_nothing_is_left();
        let ended = run.end();
        // A shell that outlives its sleep for a moment prints a line of its own.
        let ours = ended.stderr.lines().filter(|line| *line != "Killed").count();
        assert_eq!((ended.code, ours), (1, 1), "{}", ended.stderr);
        assert!(ended.stderr.contains("[E-JOB-011]"));
    }
}

#[test]
fn when_either_is_killed_while_ranks_start_nothing_is_left() {
    for kill_the_node_daemon in [true, false] {
        let run = start(&["-n", "100", "sh", "-c", "setsid sleep 1000 & exec sleep 1000"]);
        let node_daemon = run.node_daemon();
        run.until_processes(6);
        signal(if kill_the_node_daemon { node_daemon } else { run.child.id() as i32 }, Signal::KILL);
        run.until_nothing_is_left();
        run.end();
    }
}

#[test]
fn ranks_in_mpi_and_their_children_are_ended_too() {
    let script = format!("setsid sleep 1000 & {PROBE} wait");
    let run = start(&["-n", "2", "sh", "-c", &script]);
    run.until_processes(2 + 2 * 3);
    run.signal(Signal::KILL);
    run.until_nothing_is_left();
    run.end();
}

#[test]
fn a_job_of_ranks_that_are_stopped_can_be_ended() {
    let run = start(&["-n", "2", "sh", "-c", "kill -STOP $$"]);
    run.until_processes(4);
    run.signal(Signal::INT);
    run.until_nothing_is_left();
    assert_eq!(run.end().code, 130);
}

#[test]
fn a_job_whose_node_daemon_is_stopped_can_be_ended() {
    let run = start(&["-n", "2", "--timeout", "0.3", "sh", "-c", FAMILY]);
    run.until_processes(2 + 2 * FAMILY_SIZE);
    signal(run.node_daemon(), Signal::STOP);
    until("an end of the job", || run.processes().is_empty());
    assert_eq!(run.end().code, 124);
}

#[test]
fn after_ctrl_c_nothing_is_left_of_a_job_whose_node_daemon_is_stopped() {
    let run = start(&["-n", "2", "sh", "-c", "trap '' INT; exec sleep 1000"]);
    run.until_processes(4);
    signal(run.node_daemon(), Signal::STOP);
    run.signal(Signal::INT);
    run.until_nothing_is_left();
    assert_eq!(run.end().code, 130);
}

/// How many children of that process have ended and were not reaped.
fn zombies_of(parent: i32) -> usize {
    let stats = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        Some(stat.rsplit_once(')')?.1.to_owned())
    });
    let stats: Vec<_> = stats.collect();
    assert!(stats.len() >= 2, "/proc shows {} processes", stats.len());
    stats.iter().filter(|stat| stat.starts_with(&format!(" Z {parent} "))).count()
}

// The node daemon adopts processes that ranks start in the background and leave. In a long job they may outnumber all process ids.
#[test]
fn adopted_processes_that_end_are_reaped_while_the_job_runs() {
    let script = "for i in 1 2 3 4 5 6 7 8; do (true & true); done; exec sleep 1000";
    let run = start(&["-n", "2", "sh", "-c", script]);
    let node_daemon = run.node_daemon();
    let sleeps = |pid: &i32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"sleep"))
    };
    until("two ranks that have started all", || {
        run.processes().iter().filter(|pid| sleeps(pid)).count() == 2
    });
    until("an end of all zombies", || zombies_of(node_daemon) == 0);
    run.signal(Signal::TERM);
    assert_eq!(run.end().code, 143);
}

// The next parent may be the first process of a container, which may not reap processes that it did not start.
#[test]
fn mpiexec_leaves_no_zombie_of_its_node_daemon() {
    for words in [
        &["-n", "2", "true"][..],
        &["-n", "1", "false"],
        &["/no/such/program"],
        &["--timeout", "0.1", "sleep", "9"],
    ] {
        let mut reaper = Command::new(PROBE);
        let output = reaper.args(["reaper", MPIEXEC]).args(words).stdin(Stdio::null()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "left: \n", "{words:?}");
    }
}

#[test]
fn ranks_have_no_descriptor_of_the_launcher_and_the_usual_limit() {
    // Descriptors that the caller of this test left open are inherited by all ranks alike.
    let script = "ulimit -Sn 50; ls /proc/self/fd | wc -l; ulimit -Sn";
    let alone = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).output();
    let alone = String::from_utf8(alone.unwrap().stdout).unwrap();
    let inner = "ls /proc/self/fd | wc -l; ulimit -Sn";
    let job = format!("ulimit -Sn 50; exec {MPIEXEC} -n 1 sh -c '{inner}' : -n 30 true");
    let mut command = Command::new("sh");
    command.args(["-c", &job]);
    assert_eq!(start_command(command).end().stdout, alone);
}

#[test]
fn a_limit_on_descriptors_that_is_too_low_is_reported_before_any_rank_starts() {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n 60; exec {MPIEXEC} -n 30 echo started")]);
    let ended = start_command(command).end();
    assert_eq!((ended.code, ended.stdout.as_str()), (1, ""));
    assert!(ended.stderr.contains("[E-EXEC-001]"), "{}", ended.stderr);
}
