// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How deaths are found, notified and reported, and how they change the exit code.

use crate::run::{Ended, MPIEXEC, PROBE, run, start_command};
use std::process::Command;

/// Runs a job with every death reported.
fn reported(words: &[&str]) -> Ended {
    run(&[&["--mca", "report", "failures"], words].concat())
}

/// Asserts the exit code, and that rank 1 alone is reported, with `words`.
fn found(ended: &Ended, code: i32, words: &[&str]) {
    let reports: Vec<&str> = ended.stderr.lines().filter(|line| line.ends_with("[E-JOB-009]")).collect();
    assert!(ended.code == code && reports.len() == 1 && reports[0].contains("rank 1 "), "{ended:?}");
    for word in words {
        assert!(reports[0].contains(word), "'{word}' is missing: {reports:?}");
    }
}

#[test]
fn a_life_word_shows_a_death_before_the_process_has_ended() {
    let ended = reported(&["-n", "3", PROBE, "live", "300"]);
    found(&ended, 0, &["was killed by SIGKILL", "found by its life word"]);
    assert_eq!(ended.stdout.matches("rank 1 has failed").count(), 2, "{ended:?}");
}

/// The same with the test hook `LIFE_WATCH`, which makes the node daemon watch life words in the mode `how`.
fn watched(how: &str, words: &[&str]) -> Ended {
    let mut command = Command::new(MPIEXEC);
    command
        .args(["--test-hooks", "-n", "3", PROBE])
        .args(words)
        .env("MEND_TEST_LIFE_WATCH", how)
        .env("MEND_REPORT", "failures");
    start_command(command).end()
}

/// The lines that say that hooks of tests act.
fn hooks_lines(ended: &Ended) -> usize {
    ended.stderr.lines().filter(|line| line.ends_with("[E-JOB-015]")).count()
}

#[test]
fn hooks_of_tests_act_only_where_the_command_line_says_so() {
    // If the hook acted, another line would say that no thread watches life words.
    let mut command = Command::new(MPIEXEC);
    command.args(["-n", "3", PROBE, "live", "30"]);
    command.env("MEND_TEST_LIFE_WATCH", "none").env("MEND_REPORT", "failures");
    let ended = start_command(command).end();
    found(&ended, 0, &["was killed by SIGKILL"]);
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
}

#[test]
fn where_each_life_word_has_a_thread_of_its_own_it_shows_a_death_as_well() {
    let ended = watched("apart", &["live", "300"]);
    found(&ended, 0, &["was killed by SIGKILL", "found by its life word"]);
    assert_eq!(ended.stdout.matches("rank 1 has failed").count(), 2, "{ended:?}");
    assert_eq!((hooks_lines(&ended), ended.stderr.lines().count()), (1, 2), "{ended:?}");
}

#[test]
fn without_watcher_threads_a_line_says_so_and_deaths_are_still_found() {
    for words in [&["live", "30"][..], &["ask"], &["dying"]] {
        let ended = watched("none", words);
        found(&ended, 0, &["was killed by SIG"]);
        let reported = ended.stderr.matches("[E-JOB-014]").count();
        assert_eq!((reported, hooks_lines(&ended), ended.stderr.lines().count()), (1, 1, 3), "{ended:?}");
    }
    let mut unasked = Command::new(MPIEXEC);
    unasked.args(["--test-hooks", "-n", "3", PROBE, "live", "30"]).env("MEND_TEST_LIFE_WATCH", "none");
    let ended = start_command(unasked).end();
    let lines = (hooks_lines(&ended), ended.stderr.lines().count());
    assert_eq!((ended.code, lines), (0, (1, 1)), "{ended:?}");
}

#[test]
fn without_a_life_word_the_connection_or_the_process_shows_a_death() {
    let ended = reported(&["-n", "3", PROBE, "exit", "7"]);
    found(&ended, 0, &["ended with exit code 7", "found by its "]);
    let ended = reported(&["-n", "3", PROBE, "exec"]);
    found(&ended, 0, &["was killed by SIGKILL", "found by its closed connection"]);
}

#[test]
fn a_rank_in_its_fatal_signal_handler_has_failed_and_is_not_killed_before_its_core_is_written() {
    let ended = reported(&["-n", "3", PROBE, "dying"]);
    found(&ended, 0, &["was killed by SIGABRT", "its own handler of fatal signals"]);
    assert!(ended.stdout.contains("the core is written"), "{ended:?}");
}

#[test]
fn a_core_that_is_being_written_is_waited_for_when_another_rank_aborts() {
    let ended = run(&["-n", "3", PROBE, "dying", "7"]);
    assert!(ended.code == 7 && ended.stdout.contains("the core is written"), "{ended:?}");
    // The death, as the likely cause of the abort, is reported before it.
    let lines: Vec<&str> = ended.stderr.lines().collect();
    let named = |line: &str, rank, code| line.contains(rank) && line.ends_with(code);
    assert!(lines.len() == 2 && lines[0].contains("SIGABRT"), "{ended:?}");
    assert!(
        named(lines[0], "rank 1 (", "[E-JOB-001]") && named(lines[1], "[E-JOB-002]", "[E-JOB-002]"),
        "{ended:?}"
    );
}

#[test]
fn a_rank_that_writes_garbage_to_another_is_killed_and_the_others_go_on() {
    let ended = reported(&["-n", "4", PROBE, "accuse"]);
    found(&ended, 0, &["was killed by SIGKILL", "killed, as it wrote corrupt data to rank 0"]);
    assert_eq!(ended.stdout.matches("rank 1 has failed").count(), 3, "{ended:?}");
}

#[test]
fn where_deaths_are_muted_a_rank_that_asks_is_answered() {
    let mut command = Command::new(MPIEXEC);
    command.args(["--test-hooks", "-n", "3", PROBE, "ask"]);
    command.env("MEND_TEST_MUTED", "1").env("MEND_REPORT", "failures");
    let ended = start_command(command).end();
    found(&ended, 0, &["was killed by SIGKILL"]);
    assert_eq!(ended.stdout.matches("rank 1 has failed").count(), 2, "{ended:?}");
}

#[test]
fn a_rank_that_asks_after_the_notice_is_answered_by_another() {
    let ended = run(&["-n", "3", PROBE, "ask"]);
    assert_eq!((ended.code, ended.stdout.matches("rank 1 has failed").count()), (0, 2), "{ended:?}");
}

// Row LC6
#[test]
fn a_stopped_rank_is_not_dead_however_often_it_is_asked_about() {
    let ended = reported(&["-n", "2", PROBE, "stopped"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
}

#[test]
fn the_ranks_that_abort_some_ends_have_failed_and_count_with_its_code() {
    let ended = reported(&["-n", "4", PROBE, "abort_some", "7"]);
    let reports = ended.stderr.matches("ended by rank 1 with code 7 [E-JOB-009]").count();
    assert_eq!((ended.code, reports), (7, 2), "{ended:?}");
    assert_eq!(ended.stdout.matches("rank 1 has failed").count(), 2, "{ended:?}");
    let ours: Vec<&str> = ended.stderr.lines().filter(|line| line.ends_with("[E-JOB-002]")).collect();
    assert!(ours.len() == 1 && ours[0].contains("rank 1 (") && ours[0].contains("with code 7"), "{ended:?}");
}

// Row CN9
#[test]
fn the_exit_code_is_that_of_the_counted_ranks_without_exit_code_worst() {
    for (option, code, lines) in [("survivors", 0, 0), ("worst", 137, 1)] {
        let ended = run(&["-n", "3", "--exit-code", option, PROBE, "signal", "9"]);
        assert_eq!((ended.code, ended.stderr.lines().count()), (code, lines), "{ended:?}");
    }
}

// Row CN9
#[test]
fn a_job_without_counted_ranks_ends_with_the_largest_code_and_names_the_first_death() {
    let script = format!("exec {PROBE} die $((9 + 6 * MEND_RANK))");
    let ended = run(&["-n", "2", "sh", "-c", &script]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (143, 1), "{ended:?}");
    assert!(
        ended.stderr.contains("1 other(s) died after it") && ended.stderr.contains("[E-JOB-001]"),
        "{ended:?}"
    );
}

#[test]
fn garbage_of_a_rank_that_has_left_is_ignored() {
    let ended = run(&["-n", "2", PROBE, "garbage_after_leaving"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
}
