// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kills ranks between any two instructions of an operation, and checks what rank 0, which communicates with them, gets.
//!
//! One job serves many points: rank 0 communicates with rank 1, then 2, and so on, and each of them is released, stepped to its
//! point and killed while rank 0's call depends on it. The instructions are counted first, on a rank that is stepped to the end.
//! `tests/deaths/operations.c` is the program.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::board::{Board, Word};
use crate::program;
use crate::signal::{self, RELEASE};
use crate::trace::{self, Stop, Tracee};
use crate::watchdog::Watchdog;
use crate::watched_command::{Running, WatchedCommand};

/// An operation of the rank that is killed, and the state of rank 0 meanwhile.
#[derive(Debug)]
pub struct Operation {
    /// Its name here.
    pub name: &'static str,
    /// A description of the operation.
    pub sentence: &'static str,
    /// Its name in the program.
    pub does: &'static str,
    /// The state of rank 0.
    pub when: When,
    /// What rank 0's call may return.
    pub may: May,
    /// The number of steps for an operation that does not end by itself.
    pub at_most: u32,
}

/// The state of rank 0 while the other rank is stepped and killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// In its call, polling or asleep.
    Waiting,
    /// In its call, asleep for certain.
    Asleep,
    /// Outside MPI: it calls when the other rank is dead, and finds the messages that it had sent.
    Late,
}

/// What rank 0's call may return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum May {
    /// Only PROC_FAILED: the message that it waits for was never sent.
    Fail,
    /// Success or PROC_FAILED; only success if the operation of the other rank had ended, as it was complete then.
    Both,
}

/// The kind of job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// So many ranks are killed, one after another; there are more ranks than processors, so no rank spins.
    ManyVictims(u32),
    /// Two ranks; rank 0 spins as long as it waits.
    Spinning,
}

/// The instructions of an operation.
#[derive(Clone, Debug)]
pub struct Path {
    /// How many instructions it executes.
    pub instructions: u32,
    /// The different instructions.
    pub distinct: Vec<Distinct>,
}

/// One instruction of an operation, which may execute it several times.
#[derive(Clone, Debug)]
pub struct Distinct {
    /// Where it is.
    pub place: String,
    /// The point of its first execution.
    pub first: u32,
    /// The point of its last execution.
    pub last: u32,
}

/// The result of one point.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The number of instructions before the kill.
    pub point: u32,
    /// The place of the next instruction at the kill.
    pub place: String,
    /// Whether the operation had ended.
    pub ended: bool,
    /// What the call for the earlier message returned.
    pub first: u32,
    /// What rank 0's call returned.
    pub class: u32,
    /// How many bytes were neither right nor untouched.
    pub wrong: u32,
    /// Whether get_failed did not name the dead rank although an error had been returned.
    pub unnamed: bool,
}

/// A job in which points are tried.
struct Scene<'a> {
    operation: &'a Operation,
    board: Board,
    job: Running,
    watchdog: Watchdog,
}

impl Operation {
    /// Records the instructions, up to the limit: steps a rank to the end.
    pub fn path(&self, shape: Shape) -> Result<Path, String> {
        let mut first_and_last: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
        let mut mappings = None;
        let mut trials = self.try_points(shape, &[self.at_most], |steps, tracee| {
            mappings.get_or_insert_with(|| tracee.mappings());
            let seen = first_and_last.entry(tracee.instruction()?).or_insert((steps, steps));
            seen.1 = steps;
            Ok(())
        })?;
        let trial = trials.pop().ok_or("one point is one trial")?;
        let instructions = if trial.ended { trial.point } else { self.at_most };
        let mappings = mappings.ok_or("an operation executes an instruction")?;
        let distinct = first_and_last.into_iter();
        let distinct =
            distinct.map(|(address, (first, last))| Distinct { place: mappings.place(address), first, last });
        Ok(Path { instructions, distinct: distinct.collect() })
    }

    /// Tries each of `points`, in jobs of this shape. `on_job` gets the results of each job.
    pub fn try_all(
        &self,
        shape: Shape,
        points: &[u32],
        mut on_job: impl FnMut(&[Trial]),
    ) -> Result<Vec<Trial>, String> {
        let each = match shape {
            Shape::ManyVictims(victims) => victims as usize,
            Shape::Spinning => 1,
        };
        let mut trials = Vec::with_capacity(points.len());
        for part in points.chunks(each) {
            let of_job = self.try_points(shape, part, |_, _| Ok(()))?;
            on_job(&of_job);
            trials.extend(of_job);
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
        // Without this, the first call of each function would spend most instructions in the dynamic linker.
        command.env("LD_BIND_NOW", "1");
        // A step of `rep movsb` is one byte: vector instructions make the same copies in the same order with fewer points.
        command.env("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=1073741824");
        // A rank that must fall asleep does not spin first.
        if shape == Shape::Spinning && self.when != When::Asleep {
            command.args(["-x", "MEND_WORLD_SPIN_US=1000000"]);
        }
        command.args(words).args([":", "-n", &victims]).args(words);
        let job = WatchedCommand::new(command, LIMIT).start(|_| {});
        let watchdog = Watchdog::new(&job, PROGRESS_LIMIT);
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

    /// `Err`: what was wrong.
    pub fn check(&self, trial: &Trial) -> Result<(), String> {
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
    /// Steps the victim to its point, kills it, and waits for the result of rank 0.
    fn kill(
        &self,
        victim: u32,
        point: u32,
        on_step: impl FnMut(u32, &Tracee) -> std::io::Result<()>,
    ) -> Result<Trial, String> {
        self.watchdog.note_progress();
        let here = |board: &Board| board.get(0, Word::Called) == victim && board.get(victim, Word::Pid) != 0;
        if !self.board.until(&self.job, PROGRESS_LIMIT, here) {
            return Err("the ranks did not get so far".to_owned());
        }
        if self.operation.when == When::Asleep {
            let survivor = self.board.get(0, Word::Pid);
            if !self.board.until(&self.job, PROGRESS_LIMIT, |_| trace::is_asleep(survivor)) {
                return Err("rank 0 did not fall asleep".to_owned());
            }
        }
        let pid = self.board.get(victim, Word::Pid);
        let (steps, ended, place) =
            step_and_kill(pid, point, on_step).map_err(|error| format!("tracing: {error}"))?;
        self.board.set(victim, Word::Dead, 1);
        if !self.board.until(&self.job, PROGRESS_LIMIT, |board| board.get(0, Word::Ended) == victim) {
            return Err(format!("HANG: killed at {place}, and rank 0's call does not return"));
        }
        let word = |word| self.board.get(victim, word);
        Ok(Trial {
            point: if ended { steps } else { point },
            place,
            ended,
            first: word(Word::First).wrapping_sub(1),
            class: word(Word::Class).wrapping_sub(1),
            wrong: word(Word::WrongBytes),
            unnamed: word(Word::Known) != 1,
        })
    }

    fn end(self, mut trials: Vec<Trial>) -> Result<Vec<Trial>, String> {
        let Scene { board, job, watchdog, .. } = self;
        let ended = job.end();
        if watchdog.fired() || !ended.is_clean() {
            return Err(format!("the job did not end well: {}", ended.report()));
        }
        if board.get(0, Word::Failed) != 1 + trials.len() as u32 {
            let counted = board.get(0, Word::Failed).wrapping_sub(1);
            return Err(format!("{} were killed, and get_failed has {counted}", trials.len()));
        }
        for (victim, trial) in (1..).zip(&mut trials) {
            // Checked again at the end of the job: nothing may have been written since.
            trial.wrong = board.get(victim, Word::WrongBytes);
        }
        Ok(trials)
    }

    fn fail(self, why: &str) -> String {
        let name = self.operation.name;
        crate::watched_command::kill(self.job.mark());
        format!("{name}: {why}: {}", self.job.end().report())
    }
}

/// Steps to the point and kills. Returns the steps made, whether the operation had ended before, and the instruction counter.
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

const fn both(name: &'static str, does: &'static str, when: When, sentence: &'static str) -> Operation {
    Operation { name, sentence, does, when, may: May::Both, at_most: ENDS_BY_ITSELF }
}

/// The operations.
pub const TABLE: &[Operation] = &[
    both("send", "send", When::Waiting, "a send of 8 B to a rank that waits"),
    both("send-late", "send", When::Late, "a send of 8 B to a rank that receives when the sender is dead"),
    both("isend", "isend", When::Waiting, "a nonblocking send of 8 B and its wait"),
    both("lines", "lines", When::Waiting, "a send of several lines"),
    both("lines-late", "lines", When::Late, "a send of several lines to a rank that receives later"),
    both("chunks", "chunks", When::Waiting, "a send of 256 KiB by chunks"),
    both("match", "match", When::Waiting, "a control message: the match of a synchronous send"),
    both("bell", "send", When::Asleep, "a send that must wake its receiver"),
    both("contact", "contact", When::Waiting, "the first message of a pair"),
    both("contact-late", "contact", When::Late, "the first message of a pair, to a rank that receives later"),
    both("large", "large", When::Waiting, "a receive of 256 KiB by chunks"),
    Operation {
        name: "receive",
        sentence: "a receive of 8 B that have arrived",
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
const PROGRESS_LIMIT: Duration = Duration::from_secs(20);
