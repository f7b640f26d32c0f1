// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How jobs end, and what they say then.

use crate::run::{Ended, PROBE, run, shell, start, until};
use rustix::process::Signal;
use std::io::Read;

fn one_line(ended: &Ended, code: i32, words: &[&str]) {
    // A wrapper may have a word of its own.
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

#[test]
fn a_rank_that_dies_in_mpi_ends_the_job_also_those_that_spin() {
    one_line(&run(&["-n", "4", PROBE, "signal", "9"]), 137, &["rank 1", "SIGKILL", "[E-JOB-001]"]);
    one_line(&run(&["-n", "4", PROBE, "signal", "6"]), 134, &["rank 1", "SIGABRT"]);
    one_line(&run(&["-n", "4", PROBE, "exit", "7"]), 7, &["rank 1", "exit code 7"]);
    one_line(&run(&["-n", "4", PROBE, "exit", "0"]), 1, &["rank 1", "exit code 0"]);
}

#[test]
fn abort_ends_the_job_also_those_that_spin() {
    one_line(
        &run(&["-n", "4", PROBE, "abort", "7"]),
        7,
        &["rank 1", "MPI_Abort", "with code 7", "[E-JOB-002]"],
    );
    assert_eq!(run(&["-n", "2", PROBE, "abort", "0"]).code, 1);
    assert_eq!(run(&["-n", "2", PROBE, "abort", "257"]).code, 1);
    assert_eq!(run(&["-n", "2", PROBE, "abort", "-1"]).code, 255);
}

#[test]
fn exec_without_finalize_is_a_death() {
    one_line(&run(&["-n", "2", PROBE, "exec"]), 1, &["rank 1", "closed its connection", "[E-JOB-001]"]);
}

#[test]
fn a_rank_under_a_wrapper_is_watched_too() {
    let script = format!("{PROBE} signal 9; exit $?");
    one_line(&shell("2", &script), 137, &["rank 1", "wrapper", "[E-JOB-001]"]);
    let script = format!("{PROBE} leave 3; exit $?");
    assert_eq!(shell("2", &script).code, 3);
}

#[test]
fn a_failure_before_init_ends_a_job_that_others_wait_in() {
    let script = format!("test $MEND_RANK = 1 && exit 5; exec {PROBE} wait");
    one_line(&shell("3", &script), 5, &["rank 1", "exit code 5", "MPI_Init", "[E-JOB-003]"]);
}

#[test]
fn the_exit_code_after_finalize_is_the_programs_own_and_nothing_is_said() {
    let ended = run(&["-n", "4", PROBE, "leave", "6"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (6, ""));
}

#[test]
fn a_timeout_ends_the_job() {
    one_line(&run(&["-n", "2", "--timeout", "0.2", "sleep", "1000"]), 124, &["--timeout", "[E-JOB-010]"]);
    assert_eq!(run(&["-n", "2", "--timeout", "50", "true"]).code, 0);
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
fn a_rank_whose_wrapper_has_ended_hears_the_signal_too() {
    let script = format!("trap 'exit 0' USR1; {PROBE} tidy & wait");
    let mut job = start(&["-n", "2", "sh", "-c", &script]);
    let mut stdout = job.child.stdout.take().unwrap();
    let mut ready = [0; 12];
    stdout.read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"ready\nready\n");
    until("ranks without their wrappers", || job.processes().len() == 4);
    // Not SIGINT, which a shell has its background ignore.
    job.signal(Signal::TERM);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!((job.end().code, rest.as_str()), (143, "tidied\ntidied\n"));
}

#[test]
fn who_catches_the_signal_may_tidy_up_first() {
    let job =
        start(&["-n", "2", "sh", "-c", "trap 'echo tidied; exit 0' INT; echo; while :; do sleep 0.05; done"]);
    until("a shell with its trap set", || job.processes().len() >= 6);
    job.signal(Signal::INT);
    let ended = job.end();
    assert_eq!((ended.code, ended.stdout.matches("tidied").count()), (130, 2), "{}", ended.stderr);
}

#[test]
fn who_ignores_the_signal_is_killed_at_the_second_or_after_two_seconds() {
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
    let script = "trap 'echo heard; exit 4' USR1; while :; do sleep 0.05; done";
    let run = start(&["-n", "2", "sh", "-c", script]);
    run.until_processes(6);
    run.signal(Signal::TSTP);
    let stopped = || {
        let states = run
            .processes()
            .into_iter()
            .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok());
        states.filter(|stat| stat.contains(") T ")).count()
    };
    // Both shells and mpiexec; a shell may be between two sleeps.
    until("stopped ranks", || stopped() >= 3);
    run.signal(Signal::CONT);
    until("ranks that go on", || stopped() == 0);
    run.signal(Signal::USR1);
    let ended = run.end();
    assert_eq!((ended.code, ended.stdout.as_str()), (4, "heard\nheard\n"));
}

#[test]
fn whatever_ranks_leave_behind_is_ended_with_the_job() {
    let run = start(&["-n", "2", "sh", "-c", "setsid sleep 1000 & exit 0"]);
    run.until_nothing_is_left();
    assert_eq!(run.end().code, 0);
}
