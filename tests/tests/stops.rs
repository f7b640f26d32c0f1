// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stopped is not dead: 8 ranks that talk and compute, stopped and continued at random, for as long as `cargo soak stops` says
//! (`MENDTEST_SECONDS`); a short sample in the suite.

use std::time::{Duration, Instant};

use mend_base::Random;
use mend_tests::board::{Board, Word};
use mend_tests::trace::{self, Tracee};
use mend_tests::watched_command::WatchedCommand;
use mend_tests::{chance, live, program, say, signal, skip};

// Row LC6: a rank that is stopped, or computes, is not declared failed.
#[test]
fn ranks_that_are_stopped_or_compute_are_not_taken_for_dead() {
    let seconds = chance::number("MENDTEST_SECONDS").unwrap_or(10);
    let mut random = chance::drawn();
    let total = Duration::from_secs(seconds);
    let longest = LONGEST_STOP.min(total / 3);
    let limit = total + Duration::from_secs(120);
    let board = Board::new();
    let mut command = program::mpiexec(RANKS, limit);
    command.arg(program::death_program("stops.c")).arg(board.path());
    let job = WatchedCommand::new(command, limit).start(|_| {});
    let there = board
        .until(&job, Duration::from_secs(30), |board| (0..RANKS).all(|rank| board.get(rank, Word::Pid) != 0));
    let pids: Vec<u32> = (0..RANKS).map(|rank| board.get(rank, Word::Pid)).collect();
    let stops = if there { stop_and_continue(&pids, total, longest, &mut random) } else { 0 };
    board.set(0, Word::Stop, 1);
    let ended = job.end();
    assert!(there && ended.is_clean(), "after {stops} stops: {}", ended.report());
    say(&format!(
        "figure: {RANKS} ranks, {seconds} s, {stops} stops of up to {} s, {} rounds: 0 declared failed",
        longest.as_secs(),
        board.get(0, Word::Ended)
    ));
}

// A debugger is notified of the end of a traced process before the parent, and may delay the parent's notice for any time.
#[test]
fn a_dead_rank_that_a_debugger_holds_does_not_keep_the_node_daemon_busy_and_is_reaped_when_it_lets_go() {
    let test =
        "a_dead_rank_that_a_debugger_holds_does_not_keep_the_node_daemon_busy_and_is_reaped_when_it_lets_go";
    if let Some(why) = trace::forbidden() {
        return skip(test, &why);
    }
    if live::processor_time(std::process::id()).is_none() {
        return skip(test, live::NOT_COUNTED);
    }
    let limit = Duration::from_secs(60);
    let mut command = program::mpiexec(2, limit);
    command.args(["sleep", "1000"]);
    let job = WatchedCommand::new(command, limit).start(|_| {});
    while job.processes("sleep").len() < 2 && !job.is_over() {
        std::thread::yield_now();
    }
    let node_daemon =
        job.processes("mpiexec").into_iter().find(|pid| *pid != job.first()).expect("a node_daemon");
    let [rank, other] = job.processes("sleep")[..] else { panic!("{}", job.end().report()) };
    let held = Tracee::seize(rank).expect("a rank can be traced, as a process of ours can");
    signal::send(rank, signal::KILL).expect("a rank is there");
    let is_zombie =
        || std::fs::read_to_string(format!("/proc/{rank}/stat")).is_ok_and(|stat| stat.contains(") Z "));
    while !is_zombie() {
        std::thread::yield_now();
    }
    let (spent, begun) = (live::processor_time(node_daemon), Instant::now());
    // A node daemon that sleeps uses no processor time in this span; one that spins does.
    while begun.elapsed() < Duration::from_millis(300) {
        std::hint::spin_loop();
    }
    let spent = live::processor_time(node_daemon).zip(spent).map(|(after, before)| after - before);
    let spent = spent.expect("the daemon is there, and its time was counted");
    drop(held);
    signal::send(other, signal::KILL).expect("a rank is there");
    let ended = job.end();
    assert!(ended.exited_with(137), "{}", ended.report());
    assert!(spent < Duration::from_millis(20), "the node daemon ran for {spent:?} of 300 ms");
}

/// Returns how many stops there were. All processes run again at the end.
fn stop_and_continue(pids: &[u32], total: Duration, longest: Duration, random: &mut Random) -> u32 {
    let begun = Instant::now();
    let mut wake: Vec<Option<Instant>> = vec![None; pids.len()];
    let mut stops = 0;
    while begun.elapsed() < total {
        for (pid, until) in pids.iter().zip(&mut wake) {
            match *until {
                Some(moment) if moment <= Instant::now() => {
                    signal::send(*pid, signal::CONTINUE).expect("a stopped rank is there");
                    *until = None;
                }
                None if random.once_in(400) => {
                    signal::send(*pid, signal::STOP).expect("a rank is there");
                    // Most stops are short, some the longest.
                    let span = if random.once_in(4) { longest } else { longest / 20 };
                    *until = Some(Instant::now() + chance::span(random, span));
                    stops += 1;
                }
                _ => {}
            }
        }
        // Sleeps: each step of the random schedule has this length.
        std::thread::sleep(Duration::from_millis(10));
    }
    for &pid in pids {
        signal::send(pid, signal::CONTINUE).expect("a rank is there");
    }
    stops
}

const RANKS: u32 = 8;
const LONGEST_STOP: Duration = Duration::from_secs(30);
