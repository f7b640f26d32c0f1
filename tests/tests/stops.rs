// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stopped is not dead: 8 ranks that talk and compute, stopped and continued at random, for as long as `cargo soak stops` says
//! (`MENDTEST_SECONDS`); a short sample in the suite.

use std::time::{Duration, Instant};

use mend_base::Random;
use mend_tests::board::{Board, Word};
use mend_tests::job::Job;
use mend_tests::{chance, program, say, signal};

// Row LC6: whoever is stopped, or computes, is not declared failed.
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
    let job = Job::new(command, limit).start(|_| {});
    let there = board
        .until(&job, Duration::from_secs(30), |board| (0..RANKS).all(|rank| board.get(rank, Word::Pid) != 0));
    let pids: Vec<u32> = (0..RANKS).map(|rank| board.get(rank, Word::Pid)).collect();
    let stops = if there { stop_and_continue(&pids, total, longest, &mut random) } else { 0 };
    board.set(0, Word::Stop, 1);
    let ended = job.end();
    assert!(there && ended.is_clean(), "after {stops} stops: {}", ended.story());
    say(&format!(
        "figure: {RANKS} ranks, {seconds} s, {stops} stops of up to {} s, {} rounds: 0 declared failed",
        longest.as_secs(),
        board.get(0, Word::Ended)
    ));
}

/// How often somebody was stopped. All run again at the end.
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
                    // Mostly short, sometimes the longest.
                    let span = if random.once_in(4) { longest } else { longest / 20 };
                    *until = Some(Instant::now() + chance::span(random, span));
                    stops += 1;
                }
                _ => {}
            }
        }
        // Sleeps: chance decides in steps of this length.
        std::thread::sleep(Duration::from_millis(10));
    }
    for &pid in pids {
        signal::send(pid, signal::CONTINUE).expect("a rank is there");
    }
    stops
}

const RANKS: u32 = 8;
const LONGEST_STOP: Duration = Duration::from_secs(30);
