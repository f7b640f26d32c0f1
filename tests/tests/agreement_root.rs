// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root of an agreement is killed between any two of its instructions, when it has sent the result to some of the members: those
//! compute outside MPI from then on, and the others get the same result from them. The others are asleep in their call before the root
//! begins. `MENDTEST_POINTS` is the number of such instructions.

use std::time::{Duration, Instant};

use mend_tests::board::{Board, Word};
use mend_tests::signal::{self, RELEASE};
use mend_tests::trace::{self, Stop, Tracee};
use mend_tests::watched_command::{Running, WatchedCommand};
use mend_tests::{chance, program, say, skip};

// Row AG7, Row AG1: the members that return, return the same, though the informed do not call MPI.
#[test]
fn the_root_of_an_agreement_dies_after_informing_some_and_the_others_get_the_result_from_them() {
    let test = "the_root_of_an_agreement_dies_after_informing_some_and_the_others_get_the_result_from_them";
    if let Some(why) = trace::forbidden() {
        return skip(test, &why);
    }
    let mut random = chance::drawn();
    let wanted = chance::number("MENDTEST_POINTS").unwrap_or(POINTS) as u32;
    let points = (0..wanted).map(|point| Point::Informed(1 + point % PART, random.below(BETWEEN) as u32));
    let trials: Vec<Trial> = points.chain([Point::First, Point::Last]).map(trial).collect();
    let partly = trials.iter().filter(|trial| (1..OTHERS).contains(&trial.informed)).count();
    let longest = trials.iter().map(|trial| trial.last_return_us).max().unwrap_or(0);
    let steps = trials.iter().map(|trial| trial.steps).max().unwrap_or(0);
    say(&format!(
        "figure: {RANKS} ranks, the root of an agreement killed at {} of its {steps} instructions, with a part of the others informed at \
         {partly}: the last of the others returned after {longest} us",
        trials.len()
    ));
    assert!(partly > 0, "a point had a part of the members informed");
}

/// Where in its call the root is killed.
#[derive(Clone, Copy, Debug)]
enum Point {
    First,
    /// So many instructions after so many of the others have the result.
    Informed(u32, u32),
    /// After the call.
    Last,
}

/// One job, in which the root was killed.
struct Trial {
    /// The instructions that it executed of its call.
    steps: u32,
    /// How many of the others had returned before.
    informed: u32,
    /// When the last one returned, after the kill.
    last_return_us: u32,
}

fn trial(point: Point) -> Trial {
    let board = Board::new();
    let mut command = program::mpiexec(RANKS, LIMIT);
    command.env("LD_BIND_NOW", "1").arg(program::death_program("informed.c")).arg(board.path());
    let job = WatchedCommand::new(command, LIMIT).start(|_| {});
    let others = 1..RANKS;
    let tried = kill_root(&board, &job, point);
    let returned =
        board.until(&job, LIMIT, |board| others.clone().all(|rank| board.get(rank, Word::Class) != 0));
    let words = |word| others.clone().map(|rank| board.get(rank, word)).collect::<Vec<_>>();
    let (classes, wrong, times) = (words(Word::Class), words(Word::WrongBytes), words(Word::Micros));
    let ended = job.end();
    assert!(returned && ended.is_clean(), "{point:?}, classes {classes:?}: {}", ended.report());
    let (steps, informed, killed_at) = tried.unwrap_or_else(|error| panic!("{point:?}: {error}"));
    let same = classes.iter().all(|&class| class == classes[0]);
    assert!(same && [SUCCESS, PROC_FAILED].contains(&(classes[0] - 1)), "{point:?}: {classes:?}");
    assert_eq!(wrong, [0; OTHERS as usize], "{point:?}: the flags");
    assert_eq!(words(Word::Failed), [2; OTHERS as usize], "{point:?}: one is left out by the shrink");
    // A member that had returned before has a time before the kill.
    let after = times.iter().map(|time| time.wrapping_sub(killed_at)).filter(|&after| after < u32::MAX / 2);
    Trial { steps, informed, last_return_us: after.max().unwrap_or(0) }
}

/// Steps the root to its point, and kills it. Returns the steps made, how many others had returned, and the time.
fn kill_root(board: &Board, job: &Running, point: Point) -> std::io::Result<(u32, u32, u32)> {
    let asleep = |board: &Board| board.get(0, Word::Pid) != 0 && (1..RANKS).all(|rank| sleeps(board, rank));
    if !board.until(job, LIMIT, asleep) {
        return Err(std::io::Error::other("the ranks did not get so far"));
    }
    let pid = board.get(0, Word::Pid);
    let mut tracee = Tracee::seize(pid)?;
    let _together = trace::Together::with(pid)?;
    signal::send_to_first_thread(pid, RELEASE)?;
    if !tracee.to_mark(false)? {
        return Err(std::io::Error::other("it ended before its mark"));
    }
    let mut steps = 0;
    match point {
        Point::First => {}
        Point::Informed(others, instructions) => {
            let mut goes_on = true;
            while goes_on && informed(board) < others {
                goes_on = step(&mut tracee, LOOK_EVERY, &mut steps)?;
            }
            if goes_on {
                step(&mut tracee, instructions, &mut steps)?;
            }
        }
        Point::Last => while step(&mut tracee, LOOK_EVERY, &mut steps)? {},
    }
    let informed = informed(board);
    let killed_at = micros();
    tracee.kill()?;
    Ok((steps, informed, killed_at))
}

/// Makes so many steps, or fewer if the call ends: then it returns `false`.
fn step(tracee: &mut Tracee, at_most: u32, steps: &mut u32) -> std::io::Result<bool> {
    let end = *steps + at_most;
    while *steps < end {
        match tracee.step()? {
            Stop::Stepped => *steps += 1,
            Stop::Signal(signal::MARK) => return Ok(false),
            Stop::Gone => return Err(std::io::Error::other("it ended by itself")),
            Stop::Signal(_) | Stop::SystemCall | Stop::Other => {}
        }
    }
    Ok(true)
}

/// How many of the others have returned from the agreement, once whoever was woken has returned or is asleep again.
fn informed(board: &Board) -> u32 {
    let deadline = Instant::now() + LIMIT;
    let mut before = None;
    loop {
        let settled = (1..RANKS).all(|rank| has_returned(board, rank) || sleeps(board, rank));
        let now = settled.then(|| (1..RANKS).filter(|&rank| has_returned(board, rank)).count() as u32);
        match (now, before) {
            // The second look sees those that were woken while the first one was made.
            (Some(informed), Some(before)) if informed == before => return informed,
            _ => assert!(Instant::now() < deadline, "the others neither return nor sleep"),
        }
        before = now;
    }
}

fn has_returned(board: &Board, rank: u32) -> bool {
    board.get(rank, Word::Class) != 0
}

/// Whether it is asleep in its call.
fn sleeps(board: &Board, rank: u32) -> bool {
    board.get(rank, Word::Called) != 0 && trace::is_asleep(board.get(rank, Word::Pid))
}

/// The lower 32 bits, as in `board.h`.
fn micros() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec * 1_000_000 + now.tv_nsec / 1_000) as u32
}

const RANKS: u32 = 8;
const OTHERS: u32 = RANKS - 1;
const POINTS: u64 = 10;
const SUCCESS: u32 = 0;
const PROC_FAILED: u32 = 101;
/// As many of the others may be informed without all being so.
const PART: u32 = OTHERS - 1;
/// More than the instructions from the result of one member to that of the next.
const BETWEEN: u64 = 600;
const LOOK_EVERY: u32 = 20;
const LIMIT: Duration = Duration::from_secs(60);
