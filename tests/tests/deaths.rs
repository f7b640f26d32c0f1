// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How deaths are found and notified: a rank that writes garbage is fenced; the death of a rank that dumps core is notified before
//! the dump.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mend_tests::board::{Board, Word};
use mend_tests::watched_command::{Ended, WatchedCommand};
use mend_tests::{Scratch, chance, elf, prefix, program, say, skip};

#[test]
fn a_rank_that_writes_garbage_is_fenced_and_the_others_are_not_disturbed() {
    let mut random = chance::drawn();
    for round in 0..GARBAGE_ROUNDS {
        let board = Board::new();
        let seed = random.bits() >> 1;
        let mut command = program::mpiexec(4, LIMIT);
        command.arg(program::death_program("garbage.c")).arg(board.path()).arg(seed.to_string());
        let ended = WatchedCommand::new(command, LIMIT).run();
        // The launcher may print a line about the rank that wrote garbage.
        let well =
            ended.exited_with(0) && ended.stdout.contains("No errors") && !ended.stderr.contains("wrong");
        assert!(well, "round {round}, seed {seed}: {}", ended.report());
    }
}

#[test]
fn every_survivor_is_notified_of_a_rank_of_1_gib_that_dumps_core_and_the_core_is_complete() {
    let test = "every_survivor_is_notified_of_a_rank_of_1_gib_that_dumps_core_and_the_core_is_complete";
    if let Some(why) = elf::no_cores() {
        return skip(test, &why);
    }
    let folder = Scratch::new("core-of-1-gib");
    let board = Board::new();
    let mut command: Command = program::mpiexec(RANKS, LIMIT);
    command
        .current_dir(folder.path())
        .arg(program::death_program("core.c"))
        .arg(board.path())
        .arg(MIB.to_string());
    let ended: Ended = WatchedCommand::new(command, LIMIT).run();
    let longest = (0..RANKS - 1).map(|rank| board.get(rank, Word::Micros)).max().unwrap_or(0);
    let classes: Vec<_> = (0..RANKS - 1).map(|rank| board.get(rank, Word::Class).wrapping_sub(1)).collect();
    let cores = elf::cores_in(folder.path());
    let held: Vec<_> = cores.iter().map(|core| bytes_held(core)).collect();
    assert!(ended.is_clean(), "{}", ended.report());
    assert_eq!(classes, [PROC_FAILED; RANKS as usize - 1]);
    say(&format!("figure: {RANKS} ranks, one of {MIB} MiB dumps core: told after {longest} us at most"));
    assert!(matches!(held[..], [Some(bytes)] if bytes >= MIB << 20), "{cores:?} hold {held:?} bytes");
}

// Row PP6, Row PP9, Row WT5, Row CO1, Row CO2: in every kind of call.
#[test]
fn every_blocked_call_returns_with_its_class() {
    for call in CALLS {
        blocked_in(call, 8, "told by the notice page", &["0", "3000", "20000"], &[]);
    }
}

// The same with evidence and questions only: the node daemon sends no notices of deaths by itself.
#[test]
fn every_blocked_call_returns_with_its_class_when_the_notice_page_is_muted() {
    for call in CALLS {
        blocked_in(call, 8, "muted", &["0", "3000", "20000"], &[("MEND_TEST_MUTED", "1")]);
    }
}

// As on kernels without futex_waitv, and where the node daemon cannot start threads.
#[test]
fn blocked_calls_return_with_their_class_however_the_node_daemon_watches_life_words() {
    for how in ["apart", "none"] {
        for call in ["receive", "wildcard", "barrier"] {
            blocked_in(call, 4, how, &["0", "3000", "20000"], &[("MEND_TEST_LIFE_WATCH", how)]);
        }
    }
}

// Poison and questions bring the end of a barrier to ranks that never connect to the dead one.
#[test]
fn a_barrier_in_which_all_are_asleep_returns_at_each_rank_when_the_notice_page_is_muted() {
    for ranks in [8, 256] {
        blocked_in("barrier", ranks, "muted, all asleep", &["300000"], &[("MEND_TEST_MUTED", "1")]);
    }
}

// Where the system refuses memory files, ranks start, sleep without a page of the node, and hear of deaths through their sockets.
#[test]
fn without_shared_pages_ranks_start_and_are_notified_of_a_death_and_shared_memory_is_refused() {
    let run = |btl: &str, wrapper: &[&str]| {
        let mut command = program::mpiexec(4, LIMIT);
        command.env("MEND_TEST_PAGES", "none").args(["--test-hooks", "--mca", "btl", btl]).args(wrapper);
        command.arg(program::death_program("without_pages.c"));
        WatchedCommand::new(command, LIMIT).run()
    };
    // In the second job the ranks have no life pages either.
    for wrapper in [&[][..], &["sh", "-c", "ulimit -f 1; exec \"$0\""]] {
        let alone = run("self", wrapper);
        let told = alone.stdout.lines().filter(|line| *line == "told").count();
        assert!(alone.exited_with(0) && told == 3, "{}", alone.report());
        assert!(!alone.stderr.contains("E-EXEC-003"), "shared memory is not wanted: {}", alone.report());
    }
    let refused = run("self,shm", &[]);
    assert!(
        refused.is_refused_with("E-EXEC-003") && refused.is_refused_with("E-INIT-007"),
        "{}",
        refused.report()
    );
}

/// `delays`: how long the early ones have been blocked when the victim dies, in microseconds; with one delay all are early.
fn blocked_in(call: &str, ranks: u32, how: &str, delays: &[&str], variables: &[(&str, &str)]) {
    let mut times = Vec::new();
    for delay in delays {
        let mut command = program::mpiexec(ranks, LIMIT);
        if !variables.is_empty() {
            command.arg("--test-hooks");
        }
        command.arg(prefix::prefix().join("bin/mend-detect"));
        command.args(["--samples", "--call", call, "--delay", delay]).envs(variables.iter().copied());
        if delays.len() == 1 {
            command.arg("--all-early");
        }
        let ended = WatchedCommand::new(command, LIMIT).run();
        let right = ended.stdout.lines().filter(|line| line.ends_with(",right")).count();
        assert!(ended.exited_with(0) && right + 1 == ranks as usize, "{call}, {how}: {}", ended.report());
        times.extend(ended.stdout.lines().filter_map(|line| line.split(',').nth(1)?.parse::<f64>().ok()));
    }
    let longest = times.iter().copied().fold(0.0, f64::max);
    say(&format!(
        "figure: {call}, {how}: {} calls of {} deaths returned, the last after {longest:.0} us",
        times.len(),
        delays.len()
    ));
}

/// Bytes of memory that the core holds, if the file is as long as its headers promise.
fn bytes_held(core: &Path) -> Option<u64> {
    let file = std::fs::read(core).ok()?;
    let ranges = elf::dumped(&file)?;
    let promised: u64 = ranges.iter().map(|(_, bytes)| bytes).sum();
    (file.len() as u64 >= promised).then_some(promised)
}

const CALLS: [&str; 6] = ["receive", "wildcard", "probe", "barrier", "allreduce", "waitall"];
const GARBAGE_ROUNDS: u32 = 5;
const RANKS: u32 = 4;
const MIB: u64 = 1024;
const PROC_FAILED: u32 = 101;
const LIMIT: Duration = Duration::from_secs(120);
