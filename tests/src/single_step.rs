// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranks killed between any two instructions of an operation, and what rank 0, which has to do with them, gets.
//!
//! One job serves many points: rank 0 has to do with rank 1, then 2, and so on, and each of them is let go, stepped to its own
//! point and killed while rank 0's call depends on it. How many instructions there are is counted first, on a rank that is
//! stepped to the end. `tests/deaths/operations.c` is the program.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::board::{Board, Word};
use crate::job::{Job, Running};
use crate::program;
use crate::signal::{self, RELEASE};
use crate::trace::{self, Stop, Tracee};
use crate::watchdog::Watchdog;

/// An operation of the one that is killed, and where rank 0 is meanwhile.
#[derive(Debug)]
pub struct Operation {
    /// Its name here.
    pub name: &'static str,
    /// What is killed.
    pub sentence: &'static str,
    /// Its name in the program.
    pub does: &'static str,
    /// Where rank 0 is.
    pub when: When,
    /// What rank 0's call may return.
    pub may: May,
    /// An operation that does not end by itself is stepped so far.
    pub at_most: u32,
}

/// Where rank 0 is while the other is stepped and killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// In its call, looking or asleep.
    Waiting,
    /// In its call, asleep for certain.
    Asleep,
    /// Not in MPI: it calls when the other is dead, and finds what that has left.
    Late,
}

/// What rank 0's call may return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum May {
    /// PROC_FAILED alone: what it waits for was never begun.
    Fail,
    /// Success or PROC_FAILED, but success once the operation of the other has ended: it was whole then.
    Both,
}

/// In which kind of job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// So many ranks to be killed; more ranks than processors, so nobody spins.
    Crowd(u32),
    /// Two ranks; rank 0 spins as long as it waits.
    Spinning,
}

/// Which instructions an operation goes through.
#[derive(Clone, Debug)]
pub struct Path {
    /// How many.
    pub instructions: u32,
    /// How many different ones.
    pub places: usize,
    /// After how many instructions each of the different ones was met first, and last.
    pub telling: Vec<u32>,
}

/// One point, tried.
#[derive(Clone, Debug)]
pub struct Trial {
    /// After how many instructions it was to be killed.
    pub point: u32,
    /// The instruction counter then.
    pub place: String,
    /// It had come to the end of its operation.
    pub ended: bool,
    /// What the call for the earlier message returned.
    pub first: u32,
    /// What rank 0's call returned.
    pub class: u32,
    /// Bytes that were neither right nor untouched.
    pub wrong: u32,
    /// An error had been returned, and get_failed did not name the dead.
    pub unnamed: bool,
}

/// What a job of trials needs.
struct Scene<'a> {
    operation: &'a Operation,
    board: Board,
    job: Running,
    watchdog: Watchdog,
}

impl Operation {
    /// Its instructions, up to its limit: steps a rank to the end.
    pub fn path(&self, shape: Shape) -> Result<Path, String> {
        let mut first_and_last: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
        let mut trials = self.try_points(shape, &[self.at_most], |steps, tracee| {
            let seen = first_and_last.entry(tracee.instruction()?).or_insert((steps, steps));
            seen.1 = steps;
            Ok(())
        })?;
        let trial = trials.pop().ok_or("one point is one trial")?;
        let instructions = if trial.ended { trial.point } else { self.at_most };
        let places = first_and_last.len();
        let mut telling: Vec<u32> =
            first_and_last.into_values().flat_map(|(first, last)| [first, last]).collect();
        telling.sort_unstable();
        telling.dedup();
        Ok(Path { instructions, places, telling })
    }

    /// Tries each of `points`, in jobs of this shape.
    pub fn try_all(&self, shape: Shape, points: &[u32]) -> Result<Vec<Trial>, String> {
        let each = match shape {
            Shape::Crowd(victims) => victims as usize,
            Shape::Spinning => 1,
        };
        let mut trials = Vec::with_capacity(points.len());
        for part in points.chunks(each) {
            trials.extend(self.try_points(shape, part, |_, _| Ok(()))?);
        }
        Ok(trials)
    }

    /// One job.
    fn try_points(
        &self,
        shape: Shape,
        points: &[u32],
        mut on_step: impl FnMut(u32, &Tracee) -> std::io::Result<()>,
    ) -> Result<Vec<Trial>, String> {
        let board = Board::new();
        let program = program::death_program("operations.c");
        let late = if self.when == When::Late { "late" } else { "waiting" };
        let words = [program.as_os_str(), board.path().as_os_str(), self.does.as_ref(), late.as_ref()];
        let victims = points.len().to_string();
        let mut command = program::mpiexec(1, LIMIT);
        // Or the first call of each function would be mostly the dynamic linker's.
        command.env("LD_BIND_NOW", "1");
        // A step of `rep movsb` is one byte: copies are made of vectors instead, which have fewer points and the same order.
        command.env("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=1073741824");
        // Who must be asleep does not spin first.
        if shape == Shape::Spinning && self.when != When::Asleep {
            command.args(["-x", "MEND_WORLD_SPIN_US=1000000"]);
        }
        command.args(words).args([":", "-n", &victims]).args(words);
        let job = Job::new(command, LIMIT).start(|_| {});
        let watchdog = Watchdog::new(&job, PATIENCE);
        let scene = Scene { operation: self, board, job, watchdog };
        let mut trials = Vec::new();
        for (victim, &point) in (1..).zip(points) {
            match scene.kill(victim, point, &mut on_step) {
                Ok(trial) => trials.push(trial),
                Err(why) => return Err(scene.fail(&format!("point {point}: {why}"))),
            }
        }
        scene.end(trials)
    }

    /// What was not as it must be.
    pub fn judge(&self, trial: &Trial) -> Result<(), String> {
        let wrong = if trial.wrong > 0 {
            format!("{} wrong bytes", trial.wrong)
        } else if trial.first != SUCCESS {
            format!("what was sent whole before ended with class {}", trial.first)
        } else if trial.class != SUCCESS && trial.class != PROC_FAILED {
            format!("class {}", trial.class)
        } else if trial.class == SUCCESS && self.may == May::Fail {
            "success, although nothing was sent".to_owned()
        } else if trial.class != SUCCESS && self.may == May::Both && trial.ended {
            "not delivered, although the operation had ended".to_owned()
        } else if trial.unnamed {
            "an error, and get_failed did not name the dead".to_owned()
        } else {
            return Ok(());
        };
        Err(format!("{}, point {} (at {}): {wrong}", self.name, trial.point, trial.place))
    }
}

impl Scene<'_> {
    /// Steps the victim to its point, kills it, and waits for what rank 0 says.
    fn kill(
        &self,
        victim: u32,
        point: u32,
        on_step: impl FnMut(u32, &Tracee) -> std::io::Result<()>,
    ) -> Result<Trial, String> {
        self.watchdog.pat();
        let here = |board: &Board| board.get(0, Word::Called) == victim && board.get(victim, Word::Pid) != 0;
        if !self.board.until(&self.job, PATIENCE, here) {
            return Err("the ranks did not get so far".to_owned());
        }
        if self.operation.when == When::Asleep {
            let survivor = self.board.get(0, Word::Pid);
            if !self.board.until(&self.job, PATIENCE, |_| is_asleep(survivor)) {
                return Err("rank 0 did not fall asleep".to_owned());
            }
        }
        let pid = self.board.get(victim, Word::Pid);
        let (steps, ended, place) =
            step_and_kill(pid, point, on_step).map_err(|error| format!("tracing: {error}"))?;
        self.board.set(victim, Word::Dead, 1);
        if !self.board.until(&self.job, PATIENCE, |board| board.get(0, Word::Ended) == victim) {
            return Err(format!("HANG: killed at {place}, and rank 0's call does not return"));
        }
        let told = |word| self.board.get(victim, word);
        Ok(Trial {
            point: if ended { steps } else { point },
            place,
            ended,
            first: told(Word::First).wrapping_sub(1),
            class: told(Word::Class).wrapping_sub(1),
            wrong: told(Word::ArgumentError),
            unnamed: told(Word::Known) != 1,
        })
    }

    fn end(self, mut trials: Vec<Trial>) -> Result<Vec<Trial>, String> {
        let Scene { board, job, watchdog, .. } = self;
        let ended = job.end();
        if watchdog.barked() || !ended.is_clean() {
            return Err(format!("the job did not end well: {}", ended.story()));
        }
        if board.get(0, Word::Failed) != 1 + trials.len() as u32 {
            let counted = board.get(0, Word::Failed).wrapping_sub(1);
            return Err(format!("{} were killed, and get_failed has {counted}", trials.len()));
        }
        for (victim, trial) in (1..).zip(&mut trials) {
            // Looked at again at the very end: nothing may have been written since.
            trial.wrong = board.get(victim, Word::ArgumentError);
        }
        Ok(trials)
    }

    fn fail(self, why: &str) -> String {
        let name = self.operation.name;
        crate::job::kill(self.job.mark());
        format!("{name}: {why}: {}", self.job.end().story())
    }
}

/// The steps made, whether the operation ended before the point, and where it stood.
fn step_and_kill(
    pid: u32,
    point: u32,
    mut on_step: impl FnMut(u32, &Tracee) -> std::io::Result<()>,
) -> std::io::Result<(u32, bool, String)> {
    let mut tracee = Tracee::seize(pid)?;
    let _together = trace::Together::with(pid)?;
    signal::send_to_first_thread(pid, RELEASE)?;
    if !tracee.to_mark(false)? {
        return Err(std::io::Error::other("it ended before its mark"));
    }
    let mut steps = 0;
    let mut ended = false;
    while steps < point && !ended {
        match tracee.step()? {
            Stop::Stepped => {
                steps += 1;
                on_step(steps, &tracee)?;
            }
            Stop::Signal(signal::MARK) => ended = true,
            Stop::Gone => return Err(std::io::Error::other("it ended by itself")),
            Stop::Signal(_) | Stop::SystemCall | Stop::Other => {}
        }
    }
    let place = trace::place(pid);
    tracee.kill()?;
    Ok((steps, ended, place))
}

/// Whether a process's first thread waits in a futex.
fn is_asleep(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|place| place.contains("futex"))
}

const fn both(name: &'static str, does: &'static str, when: When, sentence: &'static str) -> Operation {
    Operation { name, sentence, does, when, may: May::Both, at_most: ENDS_BY_ITSELF }
}

/// The operations.
pub const TABLE: &[Operation] = &[
    both("send", "send", When::Waiting, "a send of 8 B to one who waits"),
    both("send-late", "send", When::Late, "a send of 8 B to one who looks when the sender is dead"),
    both("isend", "isend", When::Waiting, "a nonblocking send of 8 B and its wait"),
    both("lines", "lines", When::Waiting, "a send of several lines"),
    both("lines-late", "lines", When::Late, "a send of several lines to one who looks later"),
    both("chunks", "chunks", When::Waiting, "a send of 256 KiB by chunks"),
    both("match", "match", When::Waiting, "a control message: the match of a synchronous send"),
    both("bell", "send", When::Asleep, "a send that must wake its receiver"),
    both("contact", "contact", When::Waiting, "the first message of a pair"),
    both("contact-late", "contact", When::Late, "the first message of a pair, to one who looks later"),
    both("large", "large", When::Waiting, "a receive of 256 KiB by chunks"),
    Operation {
        name: "receive",
        sentence: "a receive of 8 B that are there",
        does: "receive",
        when: When::Waiting,
        may: May::Fail,
        at_most: ENDS_BY_ITSELF,
    },
    Operation {
        name: "sleep",
        sentence: "going to sleep in a receive",
        does: "sleep",
        when: When::Waiting,
        may: May::Fail,
        at_most: 6_000,
    },
];

const SUCCESS: u32 = 0;
const PROC_FAILED: u32 = 101;
const ENDS_BY_ITSELF: u32 = 2_000_000;
const LIMIT: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(20);
