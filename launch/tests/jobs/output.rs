// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What ranks read and print.

use crate::run::{MPIEXEC, run, run_with_input, shell, start, start_command, until};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::Command;

#[test]
fn a_program_without_mpi_runs_on_every_rank_and_nothing_is_printed_on_stderr() {
    let ended = run(&["-n", "3", "hostname"]);
    assert_eq!((ended.code, ended.stdout.lines().count(), ended.stderr.as_str()), (0, 3, ""));
}

#[test]
fn standard_input_goes_to_rank_0_its_end_included() {
    let ended = run_with_input(&["-n", "3", "-l", "wc", "-c"], &vec![b'x'; 300_000]);
    let mut lines: Vec<_> = ended.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] 300000", "[1] 0", "[2] 0"]);
}

#[test]
fn lines_are_never_mixed_and_keep_their_order() {
    let script = "i=0; while [ $i -lt 400 ]; do printf '%s:%0200d\\n' $MEND_RANK $i; i=$((i+1)); done";
    let ended = shell("8", script);
    let mut next: BTreeMap<&str, usize> = BTreeMap::new();
    for line in ended.stdout.lines() {
        let (rank, number) = line.split_once(':').unwrap_or_else(|| panic!("mixed: {line}"));
        assert_eq!(number.len(), 200, "mixed: {line}");
        let expected = next.entry(rank).or_default();
        assert_eq!(number.parse::<usize>().unwrap(), *expected);
        *expected += 1;
    }
    assert!(next.len() == 8 && next.values().all(|&count| count == 400));
}

#[test]
fn a_line_of_64_kib_stays_whole() {
    let ended = shell("4", "printf '%065535d\\n' $MEND_RANK; printf '%065535d\\n' $MEND_RANK");
    assert_eq!(ended.stdout.lines().count(), 8);
    assert!(ended.stdout.lines().all(|line| line.len() == 65_535));
}

#[test]
fn what_one_rank_prints_comes_out_byte_by_byte_the_same() {
    let ended = run(&["-n", "1", "printf", "a\\nb without an end"]);
    assert_eq!(ended.stdout, "a\nb without an end");
    let ended = shell("2", "printf 'rest of %s' $MEND_RANK");
    let mut lines: Vec<_> = ended.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["rest of 0", "rest of 1"]);
}

#[test]
fn a_prompt_is_shown_before_it_is_answered_also_where_others_print() {
    let script = "test $MEND_RANK = 0 || exec cat; printf 'name? '; read name; echo hello $name";
    let mut run = start(&["-n", "3", "sh", "-c", script]);
    let mut stdout = run.child.stdout.take().unwrap();
    let mut question = [0; 6];
    stdout.read_exact(&mut question).unwrap();
    assert_eq!(&question, b"name? ");
    run.child.stdin.take().unwrap().write_all(b"Ada\n").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), run.end().code), ("hello Ada\n", 0));
}

#[test]
fn standard_error_of_ranks_comes_out_on_stderr() {
    let ended = shell("2", "echo out; echo complaint >&2");
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\nout\n", "complaint\ncomplaint\n"));
}

#[test]
fn a_slow_reader_slows_the_job_down_and_memory_does_not_grow() {
    let mut command = Command::new(MPIEXEC);
    command.args(["-n", "2", "sh", "-c", "head -c 30000000 /dev/zero | tr '\\0' 'x' | fold -w 99"]);
    let mut run = start_command(command);
    let mut stdout = run.child.stdout.take().unwrap();
    let status = || std::fs::read_to_string(format!("/proc/{}/status", run.child.id())).unwrap();
    let resident = || {
        let line = status().lines().find(|line| line.starts_with("VmRSS")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let (mut bytes, mut total, mut most) = (vec![0; 1 << 20], 0, 0);
    loop {
        let count = stdout.read(&mut bytes).unwrap();
        if count == 0 {
            break;
        }
        total += count;
        if total < 50_000_000 {
            most = most.max(resident());
        }
    }
    let lines = 30_000_000_usize.div_ceil(99);
    // The last line of each rank has no end; the first of the two that ends is given one.
    assert!((2 * (30_000_000 + lines - 1)..=2 * (30_000_000 + lines)).contains(&total), "{total}");
    assert!(most < 32 << 10, "{most} KiB");
    assert_eq!(run.end().code, 0);
}

#[test]
fn a_job_whose_output_is_not_read_can_be_ended_by_a_signal_or_a_timeout() {
    let script = "cat; head -c 500000 /dev/zero | tr '\\0' 'x'; echo";
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut run = start(&["-n", "2", "sh", "-c", script]);
        run.node_daemon();
        drop(run.child.stdin.take());
        until("an end of all ranks", || run.processes().len() == 1);
        run.signal(signal);
        run.until_nothing_is_left();
        assert_eq!(run.end().code, code);
    }
    let mut run = start(&["-n", "2", "--timeout", "1", "sh", "-c", script]);
    // Before that, mpiexec may not have its environment yet, by which it is found.
    run.node_daemon();
    drop(run.child.stdin.take());
    until("an end of all", || run.processes().is_empty());
    let ended = run.end();
    assert!(ended.code == 124 && ended.stderr.contains("[E-JOB-010]"), "{}", ended.stderr);
}

#[test]
fn a_reader_who_leaves_ends_the_job() {
    let mut run = start_command({
        let mut command = Command::new(MPIEXEC);
        command.args(["-n", "2", "yes"]);
        command
    });
    drop(run.child.stdout.take());
    run.until_nothing_is_left();
    let ended = run.end();
    assert_eq!((ended.code, ended.stderr.as_str()), (128 + 13, ""));
}

#[test]
fn a_full_disk_is_named_and_is_no_success() {
    for words in ["yes", "echo"] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {MPIEXEC} -n 2 {words} > /dev/full")]);
        let ended = start_command(command).end();
        assert_eq!((ended.code, ended.stderr.lines().count()), (1, 1), "{}", ended.stderr);
        assert!(ended.stderr.contains("No space left") && ended.stderr.contains("[E-JOB-013]"));
    }
}

#[test]
fn variables_directories_and_programs_are_per_app() {
    let ended = run(&[
        "-n",
        "1",
        "-x",
        "WORD=a b",
        "-wdir",
        "/",
        "sh",
        "-c",
        "echo \"$WORD\" $(pwd) $MEND_RANK/$MEND_SIZE app $MEND_APPNUM of $MEND_APPSIZE",
        ":",
        "-np",
        "2",
        "sh",
        "-c",
        "echo \"$WORD\" $MPI_LOCALRANKID/$MPI_LOCALNRANKS app $MEND_APPNUM of $MEND_APPSIZE",
    ]);
    let mut lines: Vec<_> = ended.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, [" 1/3 app 1 of 2", " 2/3 app 1 of 2", "a b / 0/3 app 0 of 1"]);
}

#[test]
fn a_job_within_a_job_inherits_neither_parameters_nor_the_error_handler() {
    let handler = ["--initial-errhandler", "mpi_errors_return"];
    let show = "echo ${MEND_INITIAL_ERRHANDLER-none}";
    let nested = format!("{show}; exec {MPIEXEC} -n 1 sh -c '{show}'");
    let ended = run(&[handler[0], handler[1], "sh", "-c", &nested]);
    assert_eq!(ended.stdout, "mpi_errors_return\nnone\n");
    let mut by_hand = Command::new(MPIEXEC);
    by_hand.env("MEND_INITIAL_ERRHANDLER", "mpi_errors_abort").args(["sh", "-c", show]);
    assert_eq!(start_command(by_hand).end().stdout, "mpi_errors_abort\n");
}

#[test]
fn help_version_and_refusals_are_short_and_clear() {
    let help = run(&["--help"]);
    assert!(help.code == 0 && help.stdout.contains("usage: mpiexec") && help.stderr.is_empty());
    assert!(run(&["--version"]).stdout.starts_with("mpiexec (Mend) "));
    for words in [&["--frobnicate", "a"][..], &["--mca", "bttl", "shm", "a"], &["-n", "2"]] {
        let refused = run(words);
        assert_eq!((refused.code, refused.stdout.as_str(), refused.stderr.lines().count()), (2, "", 1));
        assert!(refused.stderr.contains("[E-ARG-"), "{}", refused.stderr);
    }
}
