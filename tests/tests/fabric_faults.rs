// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders of events on a network (docs/dev/interleavings.md, chapter 15), made by the fabric shim under jobs whose every byte is checked. The seed of a
//! failure is in its message; `MENDTEST_SEED` gives it again.

use std::path::PathBuf;
use std::time::Duration;

use mend_tests::fabric::{OVER_LIBFABRIC, missing};
use mend_tests::program;
use mend_tests::watched_command::{Ended, WatchedCommand};
use mend_tests::{chance, prefix, say, skip};

// operations that were flushed end before the one that tells why.
#[test]
fn operations_that_end_as_flushed_before_the_error_that_flushed_them_lose_nothing() {
    let rules = "site=send+inject+read,fault=error,mode=completion,code=ECANCELED,after=150,count=8;\
                 site=send+inject+read,fault=error,mode=completion,code=ECONNRESET,after=158,count=1";
    traffic(
        "operations_that_end_as_flushed_before_the_error_that_flushed_them_lose_nothing",
        rules,
        IsShown::No,
    );
}

// every rank finds its way to each peer broken at about the same time, and both connect again.
#[test]
fn ways_that_break_at_both_ends_at_once_and_again_lose_nothing() {
    let rules = "site=send+inject+read,fault=break,code=ECONNRESET,after=100,calls=15,count=4";
    traffic("ways_that_break_at_both_ends_at_once_and_again_lose_nothing", rules, IsShown::No);
}

// what had arrived before a break is reported late, when it was sent again and received already.
#[test]
fn frames_of_before_a_reconnection_that_come_late_are_received_once() {
    let rules = "site=recv,fault=delay,reads=100,one_in=25;\
                 site=send+inject,fault=break,code=ECONNRESET,after=60,calls=6,count=6";
    traffic("frames_of_before_a_reconnection_that_come_late_are_received_once", rules, IsShown::No);
}

// acknowledgements and the ends of large messages are lost with their connection.
#[test]
fn acknowledgements_and_frames_that_vanish_are_sent_again() {
    let rules = "site=send+inject,fault=drop,one_in=12";
    traffic("acknowledgements_and_frames_that_vanish_are_sent_again", rules, IsShown::No);
}

// receive buffers, which all peers share, come back with errors while a peer dies: the living must not starve.
#[test]
fn receive_buffers_that_fail_while_a_peer_dies_are_posted_again_for_the_others() {
    let rules = "site=recv,fault=error,mode=completion,code=ECANCELED,one_in=3";
    deaths("receive_buffers_that_fail_while_a_peer_dies_are_posted_again_for_the_others", rules);
}

// to silence reads of a dead peer their endpoint is closed in progress; the provider refuses that now and then.
#[test]
fn memory_of_a_dead_peers_reads_is_silent_also_when_closing_reports_an_error() {
    let rules = "site=close,fault=error,mode=call,code=EBUSY,one_in=4";
    deaths("memory_of_a_dead_peers_reads_is_silent_also_when_closing_reports_an_error", rules);
}

// the completion queue overruns, so the device is opened again.
#[test]
fn a_completion_queue_that_overruns_costs_no_message() {
    let rules = "site=cq_read,fault=error,code=EOVERRUN,after=1500,count=1";
    traffic("a_completion_queue_that_overruns_costs_no_message", rules, IsShown::Yes);
}

/// Whether an error is printed for the user: a fault of this host's device is, what fault tolerance absorbs is not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IsShown {
    Yes,
    No,
}

/// Random traffic without a death: every message comes once, and right.
fn traffic(test: &str, rules: &str, shown: IsShown) {
    let source = prefix::place().root.join("tests/c/traffic.c");
    let arguments = ["--rounds", "15", "--threads", "2"].map(str::to_owned);
    let Some((ended, seed)) = run(test, rules, 3, source, &arguments) else { return };
    let complaints = complaints(&ended);
    let is_shown = complaints.iter().any(|line| line.contains("E-OFI-001"));
    let well = ended.exited_with(0) && ended.stdout.contains("No errors");
    assert!(well && (is_shown || complaints.is_empty()), "seed {seed}: {}", ended.report());
    assert_eq!(is_shown, shown == IsShown::Yes, "seed {seed}: {complaints:?}");
}

/// Ranks that die in the middle of large messages, and memory that must be silent then (`tests/deaths/silence.c`).
fn deaths(test: &str, rules: &str) {
    let source = prefix::place().root.join("tests/deaths/silence.c");
    let seed = chance::drawn().below(1 << 30);
    let arguments = [seed.to_string(), "12".to_owned()];
    let Some((ended, _)) = run(test, rules, 6, source, &arguments) else { return };
    let well = ended.exited_with(0) && ended.stdout.contains("No errors");
    assert!(well, "seed {seed}: {}", ended.report());
}

/// Runs a program under the shim. Returns how it ended, and the seed of the rules. `None`: there is no libfabric.
fn run(test: &str, rules: &str, ranks: u32, source: PathBuf, arguments: &[String]) -> Option<(Ended, u64)> {
    if let Some(why) = missing() {
        skip(test, &why);
        return None;
    }
    let seed = chance::drawn().below(1 << 30);
    let shim = prefix::prefix().join("lib/libmend_fabric_shim.so");
    let program = program::compile(&source).unwrap_or_else(|why| panic!("{why}"));
    let mut command = program::mpiexec(ranks, LIMIT);
    command.envs([OVER_LIBFABRIC]).env("MEND_BTL_OFI_LIBRARY", shim).env("MEND_FABRIC_SHIM_REPORT", "1");
    command.env("MEND_FABRIC_SHIM_FAULTS", format!("seed={seed};{rules}")).arg(program).args(arguments);
    let ended = WatchedCommand::new(command, LIMIT).run();
    let injected: u64 = ended.stderr.lines().filter_map(injected).sum();
    assert!(injected > 0, "seed {seed}: no fault was injected: {}", ended.report());
    say(&format!("figure: {injected} faults, {:.1} s", ended.took.as_secs_f64()));
    Some((ended, seed))
}

/// How many faults a line of the shim's report names.
fn injected(line: &str) -> Option<u64> {
    line.strip_prefix(SHIM)?.split_once(" injected ")?.1.trim().parse().ok()
}

/// What was printed on stderr, without the shim's reports.
fn complaints(ended: &Ended) -> Vec<&str> {
    ended.stderr.lines().filter(|line| !line.starts_with(SHIM)).collect()
}

const SHIM: &str = "mend-fabric-shim[";
const LIMIT: Duration = Duration::from_secs(100);
