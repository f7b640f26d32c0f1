// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control messages and notices are served while a rank computes outside MPI (R-5, Trap 13): another rank sees what its helper thread
//! has done. No time-out decides: without a helper thread the job hangs.

use std::time::Duration;

use mend_tests::board::Board;
use mend_tests::program;
use mend_tests::watched_command::{Ended, WatchedCommand};

#[test]
fn a_rank_that_computes_answers_a_control_message_whose_sender_waits_in_mpi() {
    serves("control");
}

#[test]
fn a_rank_that_computes_answers_a_control_message_whose_sender_computes_too() {
    serves("both");
}

#[test]
fn a_rank_that_computes_makes_progress_when_it_is_notified_of_a_death() {
    serves("notice");
}

fn serves(how: &str) {
    for level in ["single", "multiple"] {
        for round in 0..ROUNDS {
            let board = Board::new();
            let mut command = program::mpiexec(4, LIMIT);
            command.arg(program::death_program("computes.c")).arg(board.path()).args([how, level]);
            let ended = WatchedCommand::new(command, LIMIT).run();
            let well = ended.exited_with(0) && ended.stdout.contains("No errors");
            assert!(well, "{how}, {level}, round {round}: {}", ended.report());
        }
    }
}

const ROUNDS: u32 = 5;
const LIMIT: Duration = Duration::from_secs(60);

// the helper thread of a rank that sleeps outside MPI answers, too.
#[test]
fn a_report_of_a_hang_names_the_rank_that_skips_the_barrier() {
    let ended = hangs("outside", Some("1"));
    let table: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(table.len(), 3, "{}", ended.report());
    assert!(table[0].contains(" has been blocked in MPI for "), "{}", ended.report());
    assert!(
        table[1].starts_with("mpiexec:   ranks 0-1, 3: MPI_Barrier on MPI_COMM_WORLD, for "),
        "{}",
        ended.report()
    );
    assert_eq!(table[2], "mpiexec:   rank 2: outside MPI   <- differs", "{}", ended.report());
}

#[test]
fn a_report_of_a_hang_names_a_receive_with_its_sender_and_tag() {
    let ended = hangs("receive", Some("1"));
    let table = &ended.stderr;
    assert!(
        table.contains("rank 2: a receive from rank 0, tag 14 on MPI_COMM_WORLD, for "),
        "{}",
        ended.report()
    );
    assert!(table.contains("rank 0: outside MPI"), "{}", ended.report());
    assert!(table.contains("ranks 1, 3: MPI_Barrier on MPI_COMM_WORLD"), "{}", ended.report());
}

// each poll of such a call is part of the same wait.
#[test]
fn a_report_of_a_hang_names_a_rank_that_waits_in_a_disconnect() {
    let ended = hangs("disconnect", Some("1"));
    assert!(
        ended.stderr.contains("rank 2: MPI_Probe, MPI_Comm_disconnect or MPI_Finalize, for "),
        "{}",
        ended.report()
    );
}

#[test]
fn a_job_that_does_not_hang_for_so_long_prints_no_report() {
    for limit in [None, Some("60")] {
        let ended = hangs("outside", limit);
        assert!(ended.stderr.is_empty(), "{}", ended.report());
    }
}

fn hangs(how: &str, limit: Option<&str>) -> Ended {
    let mut command = program::mpiexec(4, LIMIT);
    command.env_remove("MEND_HANG_REPORT_S");
    command.envs(limit.map(|limit| ("MEND_HANG_REPORT_S", limit)));
    // The table is printed about a second after the barrier has begun. A machine that is too slow for that in so many
    // seconds fails the test.
    command.arg(program::death_program("hangs.c")).args([how, if limit == Some("1") { "8" } else { "1" }]);
    let ended = WatchedCommand::new(command, LIMIT).run();
    assert!(ended.exited_with(0) && ended.stdout.contains("No errors"), "{}", ended.report());
    ended
}
