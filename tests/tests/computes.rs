// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control messages and notices are served while a rank computes outside MPI (R-5, Trap 13): another rank sees what its helper thread
//! has done. No time-out decides: without a helper thread the job hangs.

use std::time::Duration;

use mend_tests::board::Board;
use mend_tests::program;
use mend_tests::watched_command::WatchedCommand;

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
