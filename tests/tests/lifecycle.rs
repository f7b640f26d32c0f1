// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kills a rank at each system call of MPI_Init and MPI_Finalize, and at instructions between them, on 2 to 5 ranks. The suite
//! tries a sample, `cargo soak init-finalize` every system call (`MENDTEST_POINTS=all`).

use std::time::Instant;

use mend_base::Random;
use mend_tests::lifecycle::{Kill, Phase, Point};
use mend_tests::{chance, say, skip, trace};

// Row LC3: the others' MPI_Init gives a world with the dead rank in it, and operations that need it raise.
#[test]
fn a_rank_that_dies_in_init_holds_nobody_up() {
    try_phase("a_rank_that_dies_in_init_holds_nobody_up", Phase::Init);
}

// Row LC1, Row LC2: the others' MPI_Finalize returns.
#[test]
fn a_rank_that_dies_in_finalize_holds_nobody_up() {
    try_phase("a_rank_that_dies_in_finalize_holds_nobody_up", Phase::Finalize);
}

fn try_phase(test: &str, phase: Phase) {
    if let Some(why) = trace::forbidden() {
        return skip(test, &why);
    }
    let mut random = chance::drawn();
    let mut failures = Vec::new();
    let mut tried = 0;
    for ranks in 2..=5 {
        let kill = Kill { ranks, victim: random.below(u64::from(ranks)) as u32, phase };
        let (number, wrong) = try_kill(kill, &mut random);
        tried += number;
        failures.extend(wrong);
    }
    say(&format!("checks: {} passed, {} failed", tried - failures.len().min(tried), failures.len()));
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Returns how many kills were tried, and what was wrong.
fn try_kill(kill: Kill, random: &mut Random) -> (usize, Vec<String>) {
    let begun = Instant::now();
    let calls = match kill.calls() {
        Ok(calls) => calls,
        Err(why) => return (1, vec![why]),
    };
    let points = choose(calls, random);
    let mut failures = Vec::new();
    let mut longest = 0;
    for &point in &points {
        match kill.at(point) {
            Ok(shown) => longest = longest.max(shown.finalize_us),
            Err(why) => failures.push(why),
        }
    }
    let between = points.iter().filter(|point| point.instructions > 0).count();
    say(&format!(
        "figure: {:?} of {} ranks, rank {} killed at {} of {} beginnings and ends of system calls, {between} between them: {} \
         wrong, the longest Finalize {:.1} ms, {:.1} s",
        kill.phase,
        kill.ranks,
        kill.victim,
        points.len() - between,
        calls + 1,
        failures.len(),
        f64::from(longest) / 1000.0,
        begun.elapsed().as_secs_f64()
    ));
    (points.len(), failures)
}

/// All system calls and one point after each, or a sample of both.
fn choose(calls: u32, random: &mut Random) -> Vec<Point> {
    let behind =
        |calls, random: &mut Random| Point { calls, instructions: 1 + random.below(SHORT_WAY) as u32 };
    let mut points = Vec::new();
    if std::env::var("MENDTEST_POINTS").is_ok_and(|choice| matches!(choice.as_str(), "all" | "different")) {
        for calls in 0..=calls {
            points.extend([Point { calls, instructions: 0 }, behind(calls, random)]);
        }
        return points;
    }
    for _ in 0..SAMPLE {
        let drawn = |random: &mut Random| random.below(u64::from(calls) + 1) as u32;
        points.push(Point { calls: drawn(random), instructions: 0 });
        points.push(behind(drawn(random), random));
    }
    points
}

/// The number of points for each number of ranks, in the suite.
const SAMPLE: u32 = 8;
/// Most distances between two system calls have fewer instructions.
const SHORT_WAY: u64 = 2_000;
