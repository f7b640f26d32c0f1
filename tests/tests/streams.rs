// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs and `mpiexec` that are started without standard input, output or error; and limits on what a rank may open or write.

use std::process::Command;
use std::time::Duration;

use mend_tests::program;
use mend_tests::watched_command::{Ended, WatchedCommand};

const CLOSINGS: [&str; 5] = ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"];

#[test]
fn ranks_run_without_standard_streams() {
    for closing in CLOSINGS {
        let mut command = program::mpiexec(2, LIMIT);
        command.args(["sh", "-c", &format!("exec \"$0\" {closing}")]).arg(closed_streams());
        runs(command, closing);
    }
}

#[test]
fn mpiexec_runs_without_standard_streams() {
    for closing in CLOSINGS {
        let mpiexec = program::mpiexec(2, LIMIT);
        let mut command = Command::new("sh");
        command.env_remove("LD_LIBRARY_PATH");
        command.args(["-c", &format!("exec \"$@\" {closing}"), "sh"]).arg(mpiexec.get_program());
        command.args(mpiexec.get_args()).arg(closed_streams());
        runs(command, closing);
    }
}

#[test]
fn a_program_without_mpiexec_runs_without_standard_streams() {
    for closing in CLOSINGS {
        let mut command = Command::new("sh");
        command.env_remove("LD_LIBRARY_PATH");
        command.args(["-c", &format!("exec \"$0\" {closing}")]).arg(closed_streams());
        runs(command, closing);
    }
}

#[test]
fn a_limit_on_file_sizes_is_named_as_such_where_it_refuses_shared_memory() {
    let of_mpiexec = program::mpiexec(2, LIMIT);
    let mut limited = Command::new("sh");
    limited.env_remove("LD_LIBRARY_PATH");
    limited.args(["-c", "ulimit -f 1; exec \"$@\"", "sh"]).arg(of_mpiexec.get_program());
    limited.args(of_mpiexec.get_args()).arg(closed_streams());
    names_the_limit(limited, "[E-EXEC-004]");
    let mut of_ranks = program::mpiexec(2, LIMIT);
    of_ranks.args(["sh", "-c", "ulimit -f 1; exec \"$0\""]).arg(closed_streams());
    names_the_limit(of_ranks, "E-INIT-005");
}

#[test]
fn a_program_without_mpiexec_and_one_that_uses_no_shared_memory_need_no_memory_file() {
    let limited = |words: &[&str]| {
        let mut command = Command::new("sh");
        command.env_remove("LD_LIBRARY_PATH").args(["-c", "ulimit -f 1; exec \"$@\"", "sh"]);
        command.args(words).arg(closed_streams());
        command
    };
    runs(limited(&[]), "without mpiexec");
    let mpiexec = program::mpiexec(2, LIMIT);
    let name = mpiexec.get_program().to_str().expect("the prefix has a name in UTF-8");
    runs(limited(&[name, "-n", "1", "--mca", "btl", "self"]), "without shared memory");
}

fn names_the_limit(mut command: Command, code: &str) {
    // libfabric would stand in for shared memory where it is installed.
    command.env("MEND_BTL", "^ofi");
    let ended = WatchedCommand::new(command, LIMIT).run();
    let named = ended.stderr.contains("limit on file sizes") && ended.stderr.contains("ulimit -f");
    assert!(ended.is_refused_with(code) && named, "{}", ended.report());
    assert!(!ended.stderr.contains("memory limit"), "{}", ended.report());
}

fn runs(command: Command, closing: &str) {
    let ended: Ended = WatchedCommand::new(command, LIMIT).run();
    let printed = closing.contains(">&-") && !closing.starts_with('2') || ended.stdout.contains("No errors");
    assert!(ended.exited_with(0) && printed && ended.stderr.is_empty(), "{closing}: {}", ended.report());
}

fn closed_streams() -> std::path::PathBuf {
    program::limit_program("closed_streams.c")
}

const LIMIT: Duration = Duration::from_secs(60);
