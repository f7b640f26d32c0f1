// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root of an agreement is killed between any two of its instructions, when it has sent the result to some of the members: those
//! compute outside MPI from then on, and the others get the same result from them. `MENDTEST_POINTS` is the number of such instructions.

use std::time::Duration;

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
    let mut looks = Vec::new();
    let last = trial(u32::MAX, |looked| looks.push(looked)).steps;
    // The number of members that have the result never falls.
    let first_of =
        |holds: fn(u32) -> bool| looks.iter().find(|look| holds(look.1)).map_or(last, |look| look.0);
    let first_informed = first_of(|informed| informed > 0).saturating_sub(LOOK_EVERY);
    let all_informed = first_of(|informed| informed == OTHERS);
    let wanted = chance::number("MENDTEST_POINTS").unwrap_or(POINTS);
    let points = (0..wanted)
        .map(|_| first_informed + random.below(u64::from(all_informed - first_informed) + 1) as u32);
    let trials: Vec<Trial> = points.chain([0, last]).map(|point| trial(point, |_| {})).collect();
    let partly = trials.iter().filter(|trial| (1..OTHERS).contains(&trial.informed)).count();
    let longest = trials.iter().map(|trial| trial.last_return_us).max().unwrap_or(0);
    say(&format!(
        "figure: {RANKS} ranks, the root of an agreement killed at {} of its {last} instructions, with a part of the others informed at \
         {partly}: the last of the others returned after {longest} us",
        trials.len()
    ));
    assert!(partly > 0, "a point had a part of the members informed");
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

/// `look` gets, now and then, how many instructions the root has executed, and how many of the others have returned.
fn trial(point: u32, look: impl FnMut((u32, u32))) -> Trial {
    let board = Board::new();
    let mut command = program::mpiexec(RANKS, LIMIT);
    command.env("LD_BIND_NOW", "1").arg(program::death_program("informed.c")).arg(board.path());
    let job = WatchedCommand::new(command, LIMIT).start(|_| {});
    let others = 1..RANKS;
    let tried = kill_root(&board, &job, point, look);
    let returned =
        board.until(&job, LIMIT, |board| others.clone().all(|rank| board.get(rank, Word::Class) != 0));
    let words = |word| others.clone().map(|rank| board.get(rank, word)).collect::<Vec<_>>();
    let (classes, wrong, times) = (words(Word::Class), words(Word::WrongBytes), words(Word::Micros));
    let ended = job.end();
    assert!(returned && ended.is_clean(), "point {point}, classes {classes:?}: {}", ended.report());
    let (steps, informed, killed_at) = tried.unwrap_or_else(|error| panic!("point {point}: {error}"));
    let same = classes.iter().all(|&class| class == classes[0]);
    assert!(same && [SUCCESS, PROC_FAILED].contains(&(classes[0] - 1)), "point {point}: {classes:?}");
    assert_eq!(wrong, [0; OTHERS as usize], "point {point}: the flags");
    assert_eq!(words(Word::Failed), [2; OTHERS as usize], "point {point}: one is left out by the shrink");
    // A member that had returned before has a time before the kill.
    let after = times.iter().map(|time| time.wrapping_sub(killed_at)).filter(|&after| after < u32::MAX / 2);
    Trial { steps, informed, last_return_us: after.max().unwrap_or(0) }
}

/// Steps the root to its point, or to the end of its call, and kills it. Returns the steps made, how many others had returned, and the
/// time.
fn kill_root(
    board: &Board,
    job: &Running,
    point: u32,
    mut look: impl FnMut((u32, u32)),
) -> std::io::Result<(u32, u32, u32)> {
    let waiting = |board: &Board| {
        board.get(0, Word::Pid) != 0 && (1..RANKS).all(|rank| board.get(rank, Word::Called) != 0)
    };
    if !board.until(job, LIMIT, waiting) {
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
    while steps < point {
        if point == u32::MAX && steps % LOOK_EVERY == 0 {
            look((steps, informed(board)));
        }
        match tracee.step()? {
            Stop::Stepped => steps += 1,
            Stop::Signal(signal::MARK) => break,
            Stop::Gone => return Err(std::io::Error::other("it ended by itself")),
            Stop::Signal(_) | Stop::SystemCall | Stop::Other => {}
        }
    }
    let informed = informed(board);
    let killed_at = micros();
    tracee.kill()?;
    Ok((steps, informed, killed_at))
}

/// How many of the others have returned from the agreement.
fn informed(board: &Board) -> u32 {
    // Sleeps: whoever has the result returns meanwhile; nothing tells those that have it from those that wait.
    std::thread::sleep(SETTLE);
    (1..RANKS).filter(|&rank| board.get(rank, Word::Class) != 0).count() as u32
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
const LOOK_EVERY: u32 = 500;
const SETTLE: Duration = Duration::from_millis(5);
const LIMIT: Duration = Duration::from_secs(60);
