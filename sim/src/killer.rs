// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Planned deaths: which ranks die, how, and when. A rank dies between two steps of the scheduler, or between two calls of
//! its engine to transports and runtime: only these calls have effects that other processes can observe. The production
//! code does not know about planned deaths. Once a process is dead, its calls have no effect, and the scheduler drops its
//! engine when the interrupted call returns.
//!
//! ```text
//!   alive ── the planned moment ──▶ dying ── after `calls_while_dying` calls (mostly 0) ──▶ dead
//!     └── its program has ended ──▶ exited: the planned death does not happen
//! ```
//! A dying process models one whose first thread has died while the kernel still runs its other threads: the life word is
//! marked, so other ranks may know of the death, and the process can still write.

use mend_base::{Random, reach};
use mend_daemon::Ending;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// When a rank dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Before this step of the scheduler. The rank may not have started yet.
    Step(u64),
    /// After this many calls to transports and runtime since the process reached the milestone.
    Call(Milestone, u64),
    /// After this many calls to transports and runtime since the program began the MPI call with this number
    /// ([`Process::call`](crate::Process::call)).
    During(u64, u64),
}

/// A point that each process reaches once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Milestone {
    /// It begins MPI_Init.
    Started,
    /// Every process has created the communicators that the program needs first.
    Ready,
    /// It begins MPI_Finalize.
    Finishing,
}

/// How a process dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// By SIGKILL, or by exit without MPI_Finalize.
    Ends(Ending),
    /// By a signal after which it writes its core.
    WritesCore,
    /// It calls exec.
    Execs,
    /// It calls MPI_Abort.
    Aborts {
        /// The argument of MPI_Abort.
        code: i32,
        /// The abort scope is the whole job, not this process.
        everybody: bool,
    },
    /// Its MPI_Init fails, and it goes on without MPI.
    GivesUp,
}

/// The planned death of one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedDeath {
    /// The rank in WORLD.
    pub number: u32,
    /// How it dies.
    pub manner: Manner,
    /// When it dies.
    pub when: When,
    /// How many calls it makes between the time when other ranks may know of its death and its last effect.
    pub calls_while_dying: u64,
}

/// The planned deaths of one job, shared by launcher, network and scheduler.
#[derive(Debug, Default)]
pub struct Killer {
    victims: RefCell<Victims>,
    /// A process has died since the last [`Killer::take_has_died`].
    has_died: Cell<bool>,
    /// No rank dies before this step because of [`When::Step`].
    next_step: Cell<u64>,
    /// Victims whose death has begun since the last [`Killer::take_new_deaths`].
    new_deaths: RefCell<Vec<u32>>,
    /// How many processes have not reached [`Milestone::Ready`].
    not_ready: Cell<u32>,
}

/// The ranks with planned deaths, and those that have died without a plan.
#[derive(Debug, Default)]
struct Victims {
    all: Vec<Victim>,
    /// By rank: its place in `all`. Ranks behind the end are no victims.
    places: Vec<Option<u32>>,
}

impl Victims {
    fn push(&mut self, victim: Victim) {
        let number = victim.death.number as usize;
        if self.places.len() <= number {
            self.places.resize(number + 1, None);
        }
        // Of several plans for one rank the first counts.
        self.places[number].get_or_insert(self.all.len() as u32);
        self.all.push(victim);
    }

    fn get(&self, number: u32) -> Option<&Victim> {
        let place = (*self.places.get(number as usize)?)?;
        Some(&self.all[place as usize])
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Victim> {
        let place = (*self.places.get(number as usize)?)?;
        Some(&mut self.all[place as usize])
    }
}

/// A rank with a planned death.
#[derive(Debug)]
struct Victim {
    death: PlannedDeath,
    state: VictimState,
    /// The milestones it has reached.
    milestones: Vec<Milestone>,
    /// Its calls since the milestone or MPI call of its planned death.
    calls: u64,
    /// The number of MPI calls that its program has begun.
    program_calls: u64,
    /// What its engine did when its death began.
    point: Point,
}

/// What an engine does when its process dies: the kind of its call to transports or runtime.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Point {
    /// Nothing: between two steps of the scheduler.
    BetweenSteps,
    /// It sends a message, or uses registered memory.
    Send,
    /// It sends a chunk of a stream, or starts a get.
    SendChunk,
    /// It looks at an endpoint.
    Poll,
    /// It takes a message that has arrived.
    Deliver,
    /// It takes a message of a peer that has ended.
    Drain,
    /// It takes a notice.
    Notice,
    /// It sends a message to the node daemon.
    Runtime,
    /// It leaves MPI.
    Leave,
}

impl Point {
    /// All points.
    pub const ALL: [Point; 9] = [
        Point::BetweenSteps,
        Point::Send,
        Point::SendChunk,
        Point::Poll,
        Point::Deliver,
        Point::Drain,
        Point::Notice,
        Point::Runtime,
        Point::Leave,
    ];
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum VictimState {
    Alive,
    Dying { calls_left: u64 },
    Dead,
    Exited,
}

impl Victim {
    fn new(death: PlannedDeath, state: VictimState) -> Self {
        Victim {
            death,
            state,
            milestones: Vec::new(),
            calls: 0,
            program_calls: 0,
            point: Point::BetweenSteps,
        }
    }
}

impl Killer {
    /// A job without deaths.
    pub fn none() -> Rc<Killer> {
        Rc::default()
    }

    /// The planned deaths of a job of `size` ranks.
    pub fn new(size: u32, planned: Vec<PlannedDeath>) -> Rc<Killer> {
        let mut victims = Victims::default();
        planned.into_iter().for_each(|death| victims.push(Victim::new(death, VictimState::Alive)));
        Rc::new(Killer { victims: RefCell::new(victims), not_ready: Cell::new(size), ..Killer::default() })
    }

    /// Draws the planned deaths of a job of `size` ranks: at least one, half of the time only one, seldom all.
    pub fn draw(random: &mut Random, size: u32) -> Rc<Killer> {
        let most = u64::from(size) - u64::from(!random.once_in(10));
        let count = if random.once_in(2) { 1 } else { 1 + random.below(most) };
        // In half of the jobs no rank dies before all are ready: more operations are then in progress at a death.
        let only_when_ready = random.once_in(2);
        let mut numbers: Vec<u32> = (0..size).collect();
        let mut death = |_| {
            let number = numbers.swap_remove(random.below(numbers.len() as u64) as usize);
            let manner = draw_manner(random);
            // A process that ends with 0 before it joins is no failure. Half of those that end with 0 may be such.
            let when = match manner {
                Manner::Ends(Ending::Exited(0)) if random.once_in(2) => When::Step(random.below(6)),
                _ => draw_when(random, only_when_ready),
            };
            let calls_while_dying = if random.once_in(8) { random.below(40) } else { 0 };
            PlannedDeath { number, manner, when, calls_while_dying }
        };
        let planned = (0..count).map(&mut death).collect();
        Killer::new(size, planned)
    }

    /// The ranks that may fail in this job.
    pub fn victims(&self) -> Vec<u32> {
        self.victims.borrow().all.iter().map(|victim| victim.death.number).collect()
    }

    /// The ranks whose planned death can happen before they begin MPI_Finalize.
    pub fn victims_before_finalize(&self) -> Vec<u32> {
        let victims = self.victims.borrow();
        let early =
            victims.all.iter().filter(|each| !matches!(each.death.when, When::Call(Milestone::Finishing, _)));
        early.map(|victim| victim.death.number).collect()
    }

    /// Whether `number` is dying or dead: other ranks may know of its death.
    pub fn death_has_begun(&self, number: u32) -> bool {
        self.is(number, |state| matches!(state, VictimState::Dying { .. } | VictimState::Dead))
    }

    /// Whether the calls of `number` have no effect any more.
    pub fn is_dead(&self, number: u32) -> bool {
        self.is(number, |state| state == VictimState::Dead)
    }

    fn is(&self, number: u32, matches: impl Fn(VictimState) -> bool) -> bool {
        self.victims.borrow().get(number).is_some_and(|victim| matches(victim.state))
    }

    /// How `number` dies, if its death is planned.
    pub fn manner(&self, number: u32) -> Option<Manner> {
        self.victims.borrow().get(number).map(|victim| victim.death.manner)
    }

    /// What the engine of `number` did when its death began.
    pub fn point(&self, number: u32) -> Option<Point> {
        self.victims.borrow().get(number).map(|victim| victim.point)
    }

    /// The victims whose death has begun since the last call.
    pub fn take_new_deaths(&self) -> Vec<u32> {
        self.new_deaths.take()
    }

    /// Whether a process has died since the last call.
    pub fn take_has_died(&self) -> bool {
        self.has_died.take()
    }
}

/// What happens to processes.
impl Killer {
    /// `number` reaches a milestone; each once.
    pub fn on_milestone(&self, number: u32, milestone: Milestone) {
        let not_ready = self.not_ready.get() - u32::from(milestone == Milestone::Ready);
        self.not_ready.set(not_ready);
        for victim in self.victims.borrow_mut().all.iter_mut() {
            let reached =
                if milestone == Milestone::Ready { not_ready == 0 } else { victim.death.number == number };
            if reached {
                victim.milestones.push(milestone);
            }
        }
    }

    /// The program of `number` begins an MPI call.
    pub fn on_program_call(&self, number: u32) {
        let mut victims = self.victims.borrow_mut();
        if let Some(victim) = victims.get_mut(number) {
            victim.program_calls += 1;
        }
    }

    /// `number` calls a transport or the runtime. Returns whether the call has an effect.
    pub fn on_call(&self, number: u32, point: Point) -> bool {
        let mut victims = self.victims.borrow_mut();
        let Some(victim) = victims.get_mut(number) else {
            return true;
        };
        match victim.state {
            VictimState::Alive => {
                let (is_counted, calls) = match victim.death.when {
                    When::Step(_) => (false, 0),
                    When::Call(milestone, calls) => (victim.milestones.contains(&milestone), calls),
                    When::During(program_call, calls) => (victim.program_calls > program_call, calls),
                };
                victim.calls += u64::from(is_counted);
                if is_counted && victim.calls > calls {
                    victim.point = point;
                    self.begin_death(victim);
                }
            }
            VictimState::Dying { calls_left: 0 } => {
                self.has_died.set(true);
                victim.state = VictimState::Dead;
            }
            VictimState::Dying { calls_left } => {
                reach!("sim.killer: a call while dying");
                victim.state = VictimState::Dying { calls_left: calls_left - 1 };
            }
            VictimState::Dead | VictimState::Exited => {}
        }
        victim.state != VictimState::Dead
    }

    /// The scheduler begins a step: the deaths that are planned for it begin.
    pub fn on_step(&self, step: u64) {
        if step < self.next_step.get() {
            return;
        }
        let mut next = u64::MAX;
        for victim in self.victims.borrow_mut().all.iter_mut() {
            let When::Step(at) = victim.death.when else { continue };
            if victim.state == VictimState::Alive && at <= step {
                self.begin_death(victim);
            } else if at > step {
                next = next.min(at);
            }
        }
        self.next_step.set(next);
    }

    fn begin_death(&self, victim: &mut Victim) {
        match victim.milestones.last() {
            None => reach!("sim.killer: before MPI_Init"),
            Some(Milestone::Started) => reach!("sim.killer: before all are ready"),
            Some(Milestone::Ready) => reach!("sim.killer: when all are ready"),
            Some(Milestone::Finishing) => reach!("sim.killer: in MPI_Finalize"),
        }
        match (victim.death.when, victim.calls) {
            (When::Step(_), _) => reach!("sim.killer: between two steps"),
            (When::Call(Milestone::Started, _), 1) => reach!("sim.killer: before its card is published"),
            (When::Call(..) | When::During(..), _) => reach!("sim.killer: between two calls of its engine"),
        }
        self.new_deaths.borrow_mut().push(victim.death.number);
        self.has_died.set(self.has_died.get() || victim.death.calls_while_dying == 0);
        victim.state = match victim.death.calls_while_dying {
            0 => VictimState::Dead,
            calls_left => VictimState::Dying { calls_left },
        };
    }

    /// The program of `number` kills its own process now, as by SIGKILL.
    pub fn die_now(&self, number: u32) {
        self.new_deaths.borrow_mut().push(number);
        self.set_dead(number);
    }

    /// The program of `number` has ended and its process has exited: a death that was planned for later does not happen.
    pub fn on_exit(&self, number: u32) {
        let mut victims = self.victims.borrow_mut();
        if let Some(victim) = victims.get_mut(number) {
            reach!("sim.killer: it exited before its planned death");
            victim.state = VictimState::Exited;
        }
    }

    /// `number` is dead, whether its death was planned or not.
    pub fn set_dead(&self, number: u32) {
        self.has_died.set(true);
        let mut victims = self.victims.borrow_mut();
        match victims.get_mut(number) {
            Some(victim) => victim.state = VictimState::Dead,
            None => {
                let (manner, when) = (Manner::Ends(Ending::Signalled(9)), When::Step(0));
                let death = PlannedDeath { number, manner, when, calls_while_dying: 0 };
                victims.push(Victim::new(death, VictimState::Dead));
            }
        }
    }
}

/// Mostly SIGKILL: other ranks cannot distinguish it from SIGSTOP until they have evidence.
fn draw_manner(random: &mut Random) -> Manner {
    match random.below(40) {
        0..5 => Manner::Ends(Ending::Exited(0)),
        5..8 => Manner::Ends(Ending::Exited(random.below(256) as i32)),
        8..13 => Manner::WritesCore,
        13..16 => Manner::Execs,
        16..20 => Manner::Aborts { code: draw_abort_code(random), everybody: false },
        20 => Manner::Aborts { code: draw_abort_code(random), everybody: true },
        21..24 => Manner::GivesUp,
        _ => Manner::Ends(Ending::Signalled(9)),
    }
}

/// One in three has low 8 bits of 0, which the exit code of a failure must not have.
fn draw_abort_code(random: &mut Random) -> i32 {
    if random.once_in(3) { 256 * random.below(3) as i32 } else { random.below(600) as i32 }
}

/// The number of calls or steps has 1 to 11 binary digits, each length with the same probability.
fn draw_when(random: &mut Random, only_when_ready: bool) -> When {
    let digits = 1 + random.below(11);
    let calls = random.below(1 << digits);
    match random.below(8) {
        0 => When::Call(Milestone::Finishing, random.below(60)),
        1 if !only_when_ready => When::Step(calls),
        2 if !only_when_ready => When::Call(Milestone::Started, random.below(12)),
        _ if only_when_ready => When::Call(Milestone::Ready, calls),
        _ => When::Call(Milestone::Started, calls),
    }
}
