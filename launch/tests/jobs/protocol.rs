// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranks and their node daemon: hello, publish, lookup, contact, finalize, and refusals.

use crate::run::{Ended, PROBE, run, shell};

fn well(ended: &Ended, lines: usize) {
    assert_eq!((ended.code, ended.stdout.lines().count(), ended.stderr.as_str()), (0, lines, ""));
}

#[test]
fn four_ranks_meet_each_other_read_each_others_outbox_and_leave() {
    well(&run(&["-n", "4", PROBE, "meet"]), 4);
    well(&shell("2", &format!("{PROBE} meet")), 2);
}

#[test]
fn many_ranks_meet_each_other() {
    well(&run(&["-n", "64", PROBE, "meet"]), 64);
}

#[test]
fn many_ranks_run() {
    well(&run(&["-n", "256", "true"]), 0);
}

#[test]
fn a_rank_that_writes_garbage_is_fenced_and_the_others_are_notified_and_go_on() {
    for which in ["0", "1", "2", "3", "4", "5", "6", "7", "8"] {
        let ended = run(&["-n", "3", PROBE, "garbage", which]);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{which}: {ended:?}");
        assert_eq!(ended.stdout.matches("rank 1 has failed").count(), 2, "{which}: {ended:?}");
    }
    let ended = run(&["-n", "3", "--with-ft", "no", PROBE, "garbage"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (1, 1), "{ended:?}");
    assert!(ended.stderr.contains("rank 1") && ended.stderr.contains("[E-JOB-006]"), "{}", ended.stderr);
}

#[test]
fn libraries_of_another_version_or_layout_are_refused_and_the_user_is_told() {
    for (layout, reason) in [("0", "VersionDiffers"), ("77", "LayoutDiffers")] {
        let ended = run(&["-n", "2", PROBE, "mixed", layout]);
        assert_eq!((ended.code, ended.stdout.matches(reason).count()), (9, 2), "{ended:?}");
        assert!(ended.stderr.lines().count() == 1 && ended.stderr.contains("[E-JOB-008]"), "{ended:?}");
    }
}

#[test]
fn a_second_program_under_one_rank_is_told_why_it_cannot_join() {
    let ended = run(&["-n", "1", PROBE, "again"]);
    assert!(ended.stdout.contains("[E-START-014]") && ended.stdout.contains("[E-START-015]"), "{ended:?}");
    let ended = shell("1", &format!("{PROBE} leave; {PROBE} leave"));
    assert_eq!(ended.code, 42);
    assert!(ended.stderr.contains("[E-START-015]"), "{}", ended.stderr);
}

#[test]
fn the_command_line_reaches_the_ranks() {
    let words =
        ["--mca", "btl", "^shm", "--initial-errhandler", "mpi_errors_return", "--bind-to", "core", PROBE];
    let ended = run(&[&words[..], &["settings"]].concat());
    assert_eq!(ended.stdout, "[(\"btl\", \"^shm\")] Return 1\n");
}

#[test]
fn an_mpiexec_inside_a_job_starts_a_job_of_its_own() {
    let script = format!("{} -n 2 {PROBE} meet", crate::run::MPIEXEC);
    well(&shell("2", &script), 4);
}

#[test]
fn without_mpiexec_a_process_is_a_job_of_one_and_a_foreign_launcher_is_refused() {
    let alone = std::process::Command::new(PROBE).arg("settings").output().unwrap();
    assert!(alone.status.success(), "{alone:?}");
    let foreign = std::process::Command::new(PROBE).arg("settings").env("PMI_RANK", "1").output().unwrap();
    let message = String::from_utf8(foreign.stderr).unwrap();
    assert!(
        foreign.status.code() == Some(42)
            && message.contains("mpiexec -n")
            && message.contains("[E-START-001]"),
        "{message}"
    );
}

#[test]
fn ranks_in_other_ipc_namespaces_are_ranks_like_others() {
    apart("ranks_in_other_ipc_namespaces_are_ranks_like_others", &["--ipc"]);
}

#[test]
fn ranks_in_other_user_namespaces_are_ranks_like_others() {
    apart("ranks_in_other_user_namespaces_are_ranks_like_others", &["--user"]);
}

#[test]
fn ranks_in_other_pid_and_user_namespaces_are_ranks_like_others() {
    let test = "ranks_in_other_pid_and_user_namespaces_are_ranks_like_others";
    apart(test, &["--pid", "--fork", "--user"]);
}

fn apart(test: &str, kind: &[&str]) {
    let trial = std::process::Command::new("unshare").args(kind).arg("true").output();
    if !trial.is_ok_and(|trial| trial.status.success()) {
        return mend_testing::skip(test, &format!("unshare {} is not allowed here", kind.join(" ")));
    }
    let words = [&["-n", "1", PROBE, "meet", ":", "-n", "2", "unshare"], kind, &[PROBE, "meet"]].concat();
    well(&run(&words), 3);
}
