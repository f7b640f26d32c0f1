// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranks that find failures by themselves (parameter `detector`): the node daemon says nothing of deaths, and does not watch life words.

use std::time::Duration;

use mend_tests::program;
use mend_tests::watched_command::{Ended, WatchedCommand};

/// A safeguard: the ring finds a death within some 4 s.
const LIMIT: Duration = Duration::from_secs(120);

fn run(how: &str) -> Ended {
    let mut command = program::mpiexec(4, LIMIT);
    command.env("MEND_TEST_MUTED", "all").env("MEND_TEST_LIFE_WATCH", "none");
    command.args(["--test-hooks", "--mca", "detector", "ring", "--mca", "detector.period_ms", "50"]);
    command.args(["--mca", "detector.lease_timeouts", "4"]);
    command.arg(program::death_program("found_by_ring.c")).arg(how);
    WatchedCommand::new(command, LIMIT).run()
}

fn assert_survived(ended: &Ended) {
    assert!(ended.exited_with(0) && ended.stdout.contains("No errors"), "{}", ended.report());
    assert!(!ended.stderr.contains("rank 2 acts"), "{}", ended.report());
}

#[test]
fn four_ranks_find_a_death_without_the_node_daemon_and_doubt_nobody_who_computes() {
    let ended = run("killed");
    assert_survived(&ended);
    assert!(!ended.stderr.contains("E-JOB-021"), "{}", ended.report());
}

#[test]
fn a_rank_that_is_declared_while_it_is_stopped_ends_itself_when_it_goes_on() {
    let ended = run("stopped");
    assert_survived(&ended);
    assert!(ended.stderr.contains("E-JOB-021"), "{}", ended.report());
}
