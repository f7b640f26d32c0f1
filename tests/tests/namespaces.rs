// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranks in different namespaces of one host: they use shared memory, except those in another network namespace, which cannot reach
//! their node daemon and are told so.

use std::process::Command;
use std::time::Duration;

use mend_tests::watched_command::{Ended, WatchedCommand};
use mend_tests::{program, sandbox, skip};

#[test]
fn ranks_in_different_pid_namespaces_work() {
    work_apart("ranks_in_different_pid_namespaces_work", &["--pid", "--fork"]);
}

#[test]
fn ranks_in_different_ipc_namespaces_work() {
    work_apart("ranks_in_different_ipc_namespaces_work", &["--ipc"]);
}

#[test]
fn ranks_in_different_user_namespaces_work() {
    work_apart("ranks_in_different_user_namespaces_work", &["--user"]);
}

#[test]
fn ranks_in_different_pid_ipc_and_user_namespaces_work() {
    let test = "ranks_in_different_pid_ipc_and_user_namespaces_work";
    work_apart(test, &["--user", "--ipc", "--pid", "--fork"]);
}

#[test]
fn ranks_in_different_network_namespaces_are_told_why_they_cannot_work() {
    let test = "ranks_in_different_network_namespaces_are_told_why_they_cannot_work";
    if let Some(ended) = apart(test, &["--net"]) {
        assert!(ended.is_refused_with("[E-START-004]"), "{}", ended.report());
    }
}

fn work_apart(test: &str, flags: &[&str]) {
    if let Some(ended) = apart(test, flags) {
        assert!(ended.is_clean(), "{}", ended.report());
    }
}

/// Each rank enters separate namespaces, so that no two share one. `None`: not permitted here, and reported as a skip.
fn apart(test: &str, flags: &[&str]) -> Option<Ended> {
    let exchange = program::limit_program("exchange.c");
    if let Err(why) = sandbox::unshare(flags, "", &Command::new("true")) {
        skip(test, &why);
        return None;
    }
    let mut command = program::mpiexec(2, LIMIT);
    command.arg("unshare").args(flags).arg(exchange);
    Some(WatchedCommand::new(command, LIMIT).run())
}

const LIMIT: Duration = Duration::from_secs(60);
