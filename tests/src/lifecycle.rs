// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kills a rank at a step inside MPI_Init or MPI_Finalize, and checks the results of the others' MPI_Init, of a receive from that
//! rank, and of MPI_Finalize. The place of a kill is counted in beginnings and ends of system calls, and in instructions after the
//! last of these. There is one kill in each job. `tests/deaths/lifecycle.c` is the program.

use std::io;
use std::time::Duration;

use crate::board::{Board, Word};
use crate::program;
use crate::signal::{self, RELEASE};
use crate::trace::{self, Stop, Tracee};
use crate::watchdog::Watchdog;
use crate::watched_command::{Running, WatchedCommand};

/// The phase in which the rank is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Inside MPI_Init.
    Init,
    /// Inside MPI_Finalize.
    Finalize,
}

/// The place of a kill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// Beginnings and ends of system calls since the phase began.
    pub calls: u32,
    /// Instructions after the last of these.
    pub instructions: u32,
}

/// One kind of kill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kill {
    /// How many ranks the job has.
    pub ranks: u32,
    /// The rank that is killed.
    pub victim: u32,
    /// The phase in which it is killed.
    pub phase: Phase,
}

/// The result of a kill.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Beginnings and ends of system calls before the kill.
    pub calls: u32,
    /// Whether the phase was over before the kill.
    pub over: bool,
    /// The instruction counter at the kill.
    pub place: String,
    /// The longest MPI_Finalize of a survivor, in microseconds.
    pub finalize_us: u32,
}

impl Kill {
    /// Kills at `point`, and checks what the others got. `Err`: what was wrong.
    pub fn at(&self, point: Point) -> Result<Shown, String> {
        let board = Board::new();
        let mut command = program::mpiexec(self.ranks, LIMIT);
        command.args(["--initial-errhandler", "mpi_errors_return"]);
        command.arg(program::death_program("lifecycle.c")).arg(board.path()).arg(self.victim.to_string());
        let job = WatchedCommand::new(command, LIMIT).start(|_| {});
        let watchdog = Watchdog::new(&job, PROGRESS_LIMIT);
        let result = self.kill(&board, &job, point).and_then(|shown| self.check(&board, &job, shown));
        match result {
            Ok(shown) => self.end(&board, job, &watchdog, shown),
            Err(why) => {
                crate::watched_command::kill(job.mark());
                Err(format!("{self:?} at {point:?}: {why}: {}", job.end().report()))
            }
        }
    }

    fn kill(&self, board: &Board, job: &Running, point: Point) -> Result<Shown, String> {
        let everybody = |board: &Board| (0..self.ranks).all(|rank| board.get(rank, Word::Pid) != 0);
        if !board.until(job, PROGRESS_LIMIT, everybody) {
            return Err("the ranks did not begin".to_owned());
        }
        let pid = board.get(self.victim, Word::Pid);
        self.trace(board, pid, point).map_err(|error| format!("tracing: {error}"))
    }

    fn trace(&self, board: &Board, pid: u32, point: Point) -> io::Result<Shown> {
        let mut tracee = Tracee::seize(pid)?;
        signal::send_to_first_thread(pid, RELEASE)?;
        let mut marks = 0;
        // The marks are, in order: Init begins, Init is over, Finalize begins, Finalize is over.
        let wanted = if self.phase == Phase::Init { 1 } else { 3 };
        while marks < wanted {
            if !tracee.to_mark(marks > 0)? {
                return Err(io::Error::other("it ended before its mark"));
            }
            marks += 1;
        }
        let mut shown = Shown { calls: 0, over: false, place: String::new(), finalize_us: 0 };
        while shown.calls < point.calls && !shown.over {
            match tracee.to_system_call()? {
                Stop::SystemCall => shown.calls += 1,
                stop => shown.over = is_over(stop)?,
            }
        }
        let mut instructions = 0;
        while instructions < point.instructions && !shown.over {
            match tracee.step()? {
                Stop::Stepped => instructions += 1,
                stop => shown.over = is_over(stop)?,
            }
        }
        shown.place = trace::place(pid);
        tracee.kill()?;
        board.set(self.victim, Word::Dead, 1);
        Ok(shown)
    }

    fn survivors(&self) -> impl Iterator<Item = u32> {
        let victim = self.victim;
        (0..self.ranks).filter(move |&rank| rank != victim)
    }

    fn check(&self, board: &Board, job: &Running, shown: Shown) -> Result<Shown, String> {
        let over = |board: &Board| self.survivors().all(|rank| board.get(rank, Word::Ended) == OVER);
        if board.until(job, PROGRESS_LIMIT, over) {
            return Ok(shown);
        }
        if job.is_over() {
            return Err("the job ended before the others did".to_owned());
        }
        let stages: Vec<_> = self.survivors().map(|rank| (rank, board.get(rank, Word::Ended))).collect();
        Err(format!("HANG: killed at {}, the others' stages are {stages:?}", shown.place))
    }

    fn end(
        &self,
        board: &Board,
        job: Running,
        watchdog: &Watchdog,
        mut shown: Shown,
    ) -> Result<Shown, String> {
        let ended = job.end();
        let word = |rank, word| board.get(rank, word);
        let mut wrong = Vec::new();
        for rank in self.survivors() {
            let init = word(rank, Word::First).wrapping_sub(1);
            let class = word(rank, Word::Class).wrapping_sub(1);
            shown.finalize_us = shown.finalize_us.max(word(rank, Word::Micros));
            if init != 0 {
                // An error that names the failed rank is allowed; Mend gives a world with the dead rank in it instead.
                wrong.push(format!("rank {rank}: MPI_Init: class {init}"));
            } else if class != 0 && class != PROC_FAILED || word(rank, Word::WrongBytes) != 0 {
                wrong.push(format!("rank {rank}: its receive: class {class}"));
            } else if class == 0 && self.phase == Phase::Init {
                wrong.push(format!("rank {rank}: received what was never sent"));
            } else if class != 0 && self.phase == Phase::Finalize {
                wrong.push(format!("rank {rank}: what was sent whole did not arrive: class {class}"));
            } else if class != 0 && (word(rank, Word::Known) != 1 || word(rank, Word::Failed) != 2) {
                wrong.push(format!("rank {rank}: get_failed does not have the dead alone"));
            }
        }
        let well = ended.exited_with(0) && ended.stderr.is_empty();
        // Once the launcher has read its finalize, the rank has not failed, and its end by a signal counts.
        let left =
            self.phase == Phase::Finalize && ended.exited_with(137) && ended.stderr.contains("E-JOB-004");
        if watchdog.fired() || !well && !left {
            wrong.push("the job did not end well".to_owned());
        }
        if wrong.is_empty() {
            return Ok(shown);
        }
        Err(format!(
            "{self:?} at {} ({} calls): {}: {}",
            shown.place,
            shown.calls,
            wrong.join("; "),
            ended.report()
        ))
    }

    /// How many beginnings and ends of system calls the phase has: counted on a rank that is killed at its end.
    pub fn calls(&self) -> Result<u32, String> {
        let shown = self.at(Point { calls: u32::MAX, instructions: 0 })?;
        Ok(shown.calls)
    }
}

/// Whether this stop is the mark after the phase.
fn is_over(stop: Stop) -> io::Result<bool> {
    match stop {
        Stop::Signal(signal::MARK) => Ok(true),
        Stop::Gone => Err(io::Error::other("it ended by itself")),
        Stop::Signal(_) | Stop::Stepped | Stop::SystemCall | Stop::Other => Ok(false),
    }
}

/// The stage of a rank that has finished.
const OVER: u32 = 4;
const PROC_FAILED: u32 = 101;
const LIMIT: Duration = Duration::from_secs(60);
const PROGRESS_LIMIT: Duration = Duration::from_secs(20);
