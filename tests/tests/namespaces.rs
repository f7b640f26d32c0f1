// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranks in different namespaces of one host: they work through shared memory, or are told why not.

use std::process::Command;
use std::time::Duration;

use mend_tests::job::Job;
use mend_tests::{program, sandbox, skip};

#[test]
fn ranks_in_different_pid_namespaces_work_or_are_told_why_not() {
    apart("ranks_in_different_pid_namespaces_work_or_are_told_why_not", &["--pid", "--fork"]);
}

#[test]
fn ranks_in_different_ipc_namespaces_work_or_are_told_why_not() {
    apart("ranks_in_different_ipc_namespaces_work_or_are_told_why_not", &["--ipc"]);
}

#[test]
fn ranks_in_different_user_namespaces_work_or_are_told_why_not() {
    apart("ranks_in_different_user_namespaces_work_or_are_told_why_not", &["--user"]);
}

#[test]
fn ranks_in_different_pid_ipc_and_user_namespaces_work_or_are_told_why_not() {
    let test = "ranks_in_different_pid_ipc_and_user_namespaces_work_or_are_told_why_not";
    apart(test, &["--user", "--ipc", "--pid", "--fork"]);
}

/// Each rank enters namespaces of its own, so no two share one.
fn apart(test: &str, flags: &[&str]) {
    let exchange = program::limit_program("exchange.c");
    if let Err(why) = sandbox::unshare(flags, "", &Command::new("true")) {
        return skip(test, &why);
    }
    let mut command = program::mpiexec(2, LIMIT);
    command.arg("unshare").args(flags).arg(exchange);
    let ended = Job::new(command, LIMIT).run();
    assert!(ended.is_clean() || ended.is_clear_refusal(), "{}", ended.story());
}

const LIMIT: Duration = Duration::from_secs(60);
