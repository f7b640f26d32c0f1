// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How jobs end, and which lines they print then.

use crate::run::{Ended, MPIEXEC, PROBE, run, shell, start, start_command, until};
use rustix::process::Signal;
use std::io::Read;
use std::process::Command;

fn one_line(ended: &Ended, code: i32, words: &[&str]) {
    // A wrapper may print a line of its own.
    let ours = ended.stderr.lines().filter(|line| line.starts_with("mpiexec: ")).count();
    assert_eq!((ended.code, ours), (code, 1), "{}", ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "'{word}' is missing: {}", ended.stderr);
    }
}

#[test]
fn the_exit_code_of_programs_without_mpi_is_the_largest() {
    assert_eq!(shell("4", "exit 0").code, 0);
    let ended = shell("4", "exit $MEND_RANK");
    assert_eq!((ended.code, ended.stderr.as_str()), (3, ""));
}

#[test]
fn a_program_without_mpi_that_a_signal_kills_does_not_end_the_others() {
    let ended = shell("3", "test $MEND_RANK = 1 && kill -SEGV $$; echo survived");
    assert_eq!(ended.stdout.lines().count(), 2);
    one_line(&ended, 139, &["rank 1", "SIGSEGV", "[E-JOB-004]"]);
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    one_line(&run(&["-n", "2", "/no/such/program"]), 127, &["/no/such/program", "[E-JOB-007]"]);
    one_line(&run(&["/"]), 126, &["[E-JOB-007]"]);
    one_line(&run(&["-wdir", "/no/such/place", "true"]), 127, &["/no/such/place"]);
}

// Row CN6
#[test]
fn without_fault_tolerance_a_rank_that_dies_in_mpi_ends_the_job_also_those_that_spin() {
    let without =
        |words: &[&str]| run(&[&["-n", "4", "--with-ft", "no", PROBE][..], words, &["spin"]].concat());
    one_line(&without(&["signal", "9"]), 137, &["rank 1", "SIGKILL", "has been ended", "[E-JOB-001]"]);
    one_line(&without(&["signal", "6"]), 134, &["rank 1", "SIGABRT"]);
    one_line(&without(&["exit", "7"]), 7, &["rank 1", "exit code 7"]);
    one_line(&without(&["exit", "0"]), 1, &["rank 1", "exit code 0"]);
    one_line(&without(&["exec", "0"]), 1, &["rank 1", "as exec does"]);
    one_line(&without(&["abort_some", "5"]), 5, &["rank 1", "with code 5", "[E-JOB-002]"]);
    let script = format!("test $MEND_RANK = 1 && exit 5; exec {PROBE} wait");
    let ended = run(&["-n", "3", "--with-ft", "no", "sh", "-c", &script]);
    one_line(&ended, 5, &["rank 1", "exit code 5", "MPI_Init", "[E-JOB-003]"]);
}

// Row CN6: rank 1 lives on until the others have ended, and they wait for it.
#[test]
fn without_fault_tolerance_a_rank_whose_init_fails_ends_the_job() {
    let ended = run(&["-n", "3", "--with-ft", "no", PROBE, "give_up", "0"]);
    one_line(&ended, 1, &["rank 1", "could not join MPI", "has been ended", "[E-JOB-003]"]);
}

/// Asserts that the job ends with 0 and without a line of ours, and that `notified` ranks were notified of the death.
fn survived(ended: &Ended, notified: usize) {
    // A shell may print a line of its own.
    assert!(ended.code == 0 && !ended.stderr.contains("mpiexec: "), "{ended:?}");
    assert_eq!(ended.stdout.matches("rank 1 has failed").count(), notified, "{ended:?}");
}

// Row CN8
#[test]
fn a_rank_that_ends_in_mpi_in_any_way_has_failed_and_the_others_live() {
    for how in [&["signal", "9"], &["signal", "6"], &["exit", "7"], &["exit", "0"], &["exec", "0"]] {
        survived(&run(&[&["-n", "4", PROBE][..], how].concat()), 3);
    }
}

// Row CN8
#[test]
fn a_rank_under_a_wrapper_is_watched_too() {
    survived(&shell("3", &format!("{PROBE} signal 9; exit 0")), 2);
    // The wrapper is not killed.
    let ended = shell("2", &format!("{PROBE} signal 9; echo the wrapper of $MEND_RANK goes on"));
    assert_eq!((ended.code, ended.stdout.matches("goes on").count()), (0, 2), "{ended:?}");
    let script = format!("{PROBE} leave 3; exit $?");
    assert_eq!(shell("2", &script).code, 3);
}

// Row LC3
#[test]
fn a_rank_that_ends_before_init_has_failed_for_ranks_that_wait_for_it() {
    for (before, code) in [("kill -9 $$", 0), ("exit 0", 0), ("exit 5", 5)] {
        let script = format!("test $MEND_RANK = 1 && {before}; exec {PROBE} await");
        let ended = shell("2", &script);
        assert!(ended.code == code && ended.stdout.contains("Failed"), "{before}: {ended:?}");
        assert_eq!(ended.stderr.matches("[E-JOB-003]").count(), usize::from(code != 0), "{ended:?}");
    }
}

// Row LC3
#[test]
fn a_rank_that_dies_in_init_has_failed_for_ranks_that_wait_for_it() {
    let ended = shell("2", &format!("test $MEND_RANK = 1 && exec {PROBE} die; exec {PROBE} await"));
    assert!(ended.code == 0 && ended.stdout.contains("Failed"), "{ended:?}");
}

// Row LC3
#[test]
fn a_rank_whose_init_fails_has_failed_for_the_others_and_may_go_on_without_mpi() {
    for (code, lines) in [("0", 0), ("16", 1)] {
        let ended = run(&["-n", "3", PROBE, "give_up", code]);
        assert_eq!(
            (ended.code.to_string().as_str(), ended.stderr.lines().count()),
            (code, lines),
            "{ended:?}"
        );
        assert_eq!(ended.stdout.matches("rank 1 has failed").count(), 2, "{ended:?}");
        assert!(ended.stdout.contains("without MPI"), "{ended:?}");
    }
}

// Row LC3
#[test]
fn a_rank_that_joins_late_is_notified_of_earlier_ends() {
    let folder = mend_testing::Scratch::new("late");
    let file = folder.join("there");
    let there = file.display();
    // Rank 2 joins when rank 0 has been notified of the death of rank 1, and has left.
    let script = format!(
        "if test $MEND_RANK = 2; then until test -e {there}; do sleep 0.01; done; exec {PROBE} late; fi; \
         test $MEND_RANK = 1 && exec {PROBE} die; {PROBE} hear && touch {there}"
    );
    let ended = shell("3", &script);
    assert!(file.exists(), "{ended:?}");
    let lines: Vec<&str> = ended.stdout.lines().filter(|line| line.contains("Peer")).collect();
    let of = |what: &str| lines.iter().filter(|line| line.starts_with(what)).count();
    assert_eq!((ended.code, of("Failed("), of("Finalized(")), (0, 1, 1), "{ended:?}");
}

#[test]
fn a_second_process_cannot_take_the_place_of_a_rank_that_failed() {
    let script = format!("test $MEND_RANK = 0 && exec {PROBE} hear; {PROBE} die; {PROBE} wait");
    let ended = shell("2", &script);
    assert!(ended.code == 0 && ended.stderr.contains("[E-START-018]"), "{ended:?}");
}

#[test]
fn the_exit_code_after_finalize_is_the_programs_own_and_nothing_is_printed() {
    let ended = run(&["-n", "4", PROBE, "leave", "6"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (6, ""));
}

// A process that ignores SIGCHLD passes that on to its children; the kernel then discards the exit codes of theirs.
#[test]
fn where_sigchld_is_ignored_the_ends_of_ranks_are_noticed_all_the_same() {
    let ignoring = |words: &[&str]| {
        let mut command = Command::new("env");
        command.args(["--ignore-signal=CHLD", MPIEXEC, "-n", "3"]).args(words);
        start_command(command).end()
    };
    assert_eq!(ignoring(&["sh", "-c", "exit $MEND_RANK"]).code, 2);
    survived(&ignoring(&[PROBE, "signal", "9"]), 2);
    // Ranks are started with the default action of SIGCHLD, as they may have children too.
    let ended = ignoring(&["grep", "SigIgn", "/proc/self/status"]);
    let masks =
        ended.stdout.lines().filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok());
    assert_eq!(masks.filter(|mask| mask & 1 << 16 == 0).count(), 3, "{ended:?}");
}

#[test]
fn a_timeout_ends_the_job() {
    one_line(&run(&["-n", "2", "--timeout", "0.2", "sleep", "1000"]), 124, &["--timeout", "[E-JOB-010]"]);
    assert_eq!(run(&["-n", "2", "--timeout", "50", "true"]).code, 0);
}

#[test]
fn a_timeout_names_a_death_that_may_have_caused_it() {
    let script = format!("test $MEND_RANK = 1 && exec {PROBE} die; {PROBE} hear; exec sleep 1000");
    let ended = run(&["-n", "3", "--timeout", "1", "sh", "-c", &script]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (124, 2), "{ended:?}");
    assert!(ended.stderr.contains("[E-JOB-010]") && ended.stderr.contains("[E-JOB-001]"), "{ended:?}");
    assert!(ended.stderr.contains("rank 1 (") && ended.stderr.contains("SIGKILL"), "{ended:?}");
}

#[test]
fn signals_that_end_jobs_are_passed_on_and_the_code_is_a_shells() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let run = start(&["-n", "3", "sleep", "1000"]);
        run.until_processes(5);
        run.signal(signal);
        run.until_nothing_is_left();
        let ended = run.end();
        assert_eq!((ended.code, ended.stderr.as_str()), (code, ""));
    }
}

#[test]
fn a_rank_whose_wrapper_has_ended_receives_the_signal_too() {
    let script = format!("trap 'exit 0' USR1; {PROBE} tidy & wait");
    let mut job = start(&["-n", "2", "sh", "-c", &script]);
    let mut stdout = job.child.stdout.take().unwrap();
    let mut ready = [0; 12];
    stdout.read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"ready\nready\n");
    until("ranks without their wrappers", || job.processes().len() == 4);
    // Not SIGINT, which background processes of a shell ignore.
    job.signal(Signal::TERM);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!((job.end().code, rest.as_str()), (143, "tidied\ntidied\n"));
}

#[test]
fn a_rank_that_catches_the_signal_may_clean_up_first() {
    let job =
        start(&["-n", "2", "sh", "-c", "trap 'echo tidied; exit 0' INT; echo; while :; do sleep 0.05; done"]);
    until("a shell with its trap set", || job.processes().len() >= 6);
    job.signal(Signal::INT);
    let ended = job.end();
    assert_eq!((ended.code, ended.stdout.matches("tidied").count()), (130, 2), "{}", ended.stderr);
}

#[test]
fn a_rank_that_ignores_the_signal_is_killed_at_the_second_one_or_after_two_seconds() {
    for again in [true, false] {
        let run = start(&["-n", "2", "sh", "-c", "trap '' INT TERM; while :; do sleep 0.05; done"]);
        run.until_processes(6);
        run.signal(Signal::INT);
        if again {
            run.signal(Signal::INT);
        }
        run.until_nothing_is_left();
        assert_eq!(run.end().code, 130);
    }
}

#[test]
fn user_signals_are_for_the_ranks_and_stopping_stops_them_all() {
    let script = "trap 'echo notified; exit 4' USR1; while :; do sleep 0.05; done";
    let run = start(&["-n", "2", "sh", "-c", script]);
    run.until_processes(6);
    run.signal(Signal::TSTP);
    let is_stopped = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains(") T "))
    };
    let stopped = || run.processes().into_iter().filter(|&pid| is_stopped(pid)).count();
    // Both shells and mpiexec stop; a shell may be between two sleeps. mpiexec stops last, and SIGCONT before that would be lost.
    until("stopped ranks", || stopped() >= 3 && is_stopped(run.child.id() as i32));
    run.signal(Signal::CONT);
    until("ranks that go on", || stopped() == 0);
    run.signal(Signal::USR1);
    let ended = run.end();
    assert_eq!((ended.code, ended.stdout.as_str()), (4, "notified\nnotified\n"));
}

#[test]
fn whatever_ranks_leave_behind_is_ended_with_the_job() {
    let run = start(&["-n", "2", "sh", "-c", "setsid sleep 1000 & exit 0"]);
    run.until_nothing_is_left();
    assert_eq!(run.end().code, 0);
}
