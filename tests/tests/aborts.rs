// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MPI_Abort ends every process of the job, whichever state the process table shows.

use std::process::Command;
use std::time::Duration;

use mend_tests::watched_command::WatchedCommand;
use mend_tests::{program, sandbox, skip};

// Row EH6
#[test]
fn ranks_whose_first_thread_has_ended_are_ended_too() {
    all_are_ended(three_ranks());
}

// Row EH6
#[test]
fn where_proc_is_of_another_pid_namespace_only_the_ranks_are_ended() {
    let test = "where_proc_is_of_another_pid_namespace_only_the_ranks_are_ended";
    match sandbox::unshare(&["--pid", "--fork"], "", &three_ranks()) {
        Err(why) => skip(test, &why),
        Ok(command) => all_are_ended(command),
    }
}

/// Asserts that the launcher killed all its descendants: it would report those that do not die.
fn all_are_ended(command: Command) {
    let ended = WatchedCommand::new(command, LIMIT).run();
    let immortals = ended.stderr.contains("[E-JOB-012]");
    assert!(ended.exited_with(3) && !immortals, "{}", ended.report());
}

fn three_ranks() -> Command {
    let mut command = program::mpiexec(3, LIMIT);
    command.arg(program::death_program("first_threads_end.c"));
    command
}

const LIMIT: Duration = Duration::from_secs(60);
