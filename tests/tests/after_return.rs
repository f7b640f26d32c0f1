// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Members that die right after their own Barrier, Allreduce, Bcast or Comm_dup has returned, many times, with the notices of deaths and
//! without. `MENDTEST_DEATHS` is the number of deaths for each operation.

use std::time::{Duration, Instant};

use mend_tests::watched_command::WatchedCommand;
use mend_tests::{chance, prefix, program, say};

// Row CO1, Row CO3, Row CC1: whoever does not need the dead any more returns success, and nobody hangs.
#[test]
fn a_member_dies_right_after_its_call_has_returned_and_the_others_complete_theirs() {
    run("with notices", false);
}

#[test]
fn the_same_when_the_notice_page_is_muted() {
    run("muted", true);
}

fn run(how: &str, is_muted: bool) {
    let wanted = chance::number("MENDTEST_DEATHS").unwrap_or(DEATHS);
    let source = prefix::place().root.join("tests/c/dead_after_return.c");
    let product = program::compile(&source).unwrap_or_else(|why| panic!("{why}"));
    let begun = Instant::now();
    let jobs = wanted.div_ceil(DEATHS_OF_A_JOB);
    for job in 0..jobs {
        let mut command = program::mpiexec(RANKS, LIMIT);
        if is_muted {
            command.arg("--test-hooks").env("MEND_TEST_MUTED", "1");
        }
        command.arg(&product);
        let ended = WatchedCommand::new(command, LIMIT).run();
        let well = ended.exited_with(0) && ended.stdout.contains("No errors");
        assert!(well, "job {job}, {how}: {}", ended.report());
    }
    say(&format!(
        "figure: {how}: {} deaths of each kind after a return, {:.1} s",
        jobs * DEATHS_OF_A_JOB,
        begun.elapsed().as_secs_f64()
    ));
}

/// Eight members die in a job: two of each operation, of which one is short and one long.
const RANKS: u32 = 10;
const DEATHS_OF_A_JOB: u64 = 2;
const DEATHS: u64 = 10;
const LIMIT: Duration = Duration::from_secs(60);
