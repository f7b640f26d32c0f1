// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which ranks die, how and when: between two steps of the scheduler, or between any two calls that an engine makes to transports and
//! runtime, which are the only steps of it that others can see. Nothing in production code knows of it: from the moment
//! of its death whatever a process asks of the fabric has no effect, and its engine is dropped when the call that was
//! cut short returns.
//!
//! ```text
//!   lives ── its moment has come ──▶ declared ── so many calls later (mostly none) ──▶ dead
//!     └── its program has ended ──▶ exited: its planned death does not happen
//! ```
//! Between the two other threads of the process still run, as the kernel lets them: what they write comes too late.

use mend_base::Random;
use mend_daemon::Ending;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// When somebody dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Before this step of the scheduler; not necessarily started.
    Step(u64),
    /// Before so many calls more to the fabric, once the process has passed a mark.
    Call(Mark, u64),
}

/// What a process passes in its life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mark {
    /// It begins MPI_Init.
    Started,
    /// It has made what it needs, and so has everybody else.
    Ready,
    /// It begins MPI_Finalize.
    Finishing,
}

/// How a process dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// So: SIGKILL, or exit without MPI_Finalize.
    Ends(Ending),
    /// By a signal after which it writes its core.
    WritesCore,
    /// It runs another program.
    Execs,
    /// It asks for its end, or for everybody's, with this code.
    Aborts {
        /// As given to MPI_Abort.
        code: i32,
        /// Of all.
        everybody: bool,
    },
    /// Its MPI_Init fails, and it goes on without MPI.
    GivesUp,
}

/// A death that is planned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedDeath {
    /// Who.
    pub number: u32,
    /// How.
    pub manner: Manner,
    /// When.
    pub when: When,
    /// How many calls it still makes after everybody could know.
    pub lingers: u64,
}

/// The deaths of one job. Shared by all ends of the fabric.
#[derive(Debug, Default)]
pub struct Killer {
    mortals: RefCell<Vec<Mortal>>,
    /// Declared, and not told the launcher.
    news: RefCell<Vec<u32>>,
    /// How many processes are not ready yet.
    unready: Cell<u32>,
}

#[derive(Debug)]
struct Mortal {
    death: PlannedDeath,
    life: Life,
    /// The marks it has passed.
    passed: Vec<Mark>,
    /// Calls since the mark that counts.
    calls: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Lives,
    Declared { left: u64 },
    Dead,
    Exited,
}

impl Killer {
    /// Nobody dies.
    pub fn none() -> Rc<Killer> {
        Rc::default()
    }

    /// These die, of `size`.
    pub fn new(size: u32, planned: Vec<PlannedDeath>) -> Rc<Killer> {
        let mortal = |death| Mortal { death, life: Life::Lives, passed: Vec::new(), calls: 0 };
        let mortals = RefCell::new(planned.into_iter().map(mortal).collect());
        Rc::new(Killer { mortals, news: RefCell::default(), unready: Cell::new(size) })
    }

    /// Some of `size` processes, at least one and seldom all, at moments that the seed draws: most often one.
    pub fn draw(random: &mut Random, size: u32) -> Rc<Killer> {
        let most = u64::from(size) - u64::from(!random.once_in(10));
        let count = if random.once_in(2) { 1 } else { 1 + random.below(most) };
        // Many jobs hold the deaths back until everybody is ready: there is more to meet then.
        let ready = random.once_in(2);
        let mut numbers: Vec<u32> = (0..size).collect();
        let mut death = |_| {
            let number = numbers.swap_remove(random.below(numbers.len() as u64) as usize);
            let manner = draw_manner(random);
            // A program that ends with 0 and without MPI is no failure: often enough before it has begun.
            let when = match manner {
                Manner::Ends(Ending::Exited(0)) if random.once_in(2) => When::Step(random.below(6)),
                _ => draw_when(random, ready),
            };
            let lingers = if random.once_in(8) { random.below(40) } else { 0 };
            PlannedDeath { number, manner, when, lingers }
        };
        let planned = (0..count).map(&mut death).collect();
        Killer::new(size, planned)
    }

    /// The ranks that may fail in this run.
    pub fn mortals(&self) -> Vec<u32> {
        self.mortals.borrow().iter().map(|mortal| mortal.death.number).collect()
    }

    /// Whether everybody may know that `number` has died.
    pub fn is_declared(&self, number: u32) -> bool {
        self.is(number, |life| matches!(life, Life::Declared { .. } | Life::Dead))
    }

    /// Whether nothing of `number` has any effect any more.
    pub fn is_dead(&self, number: u32) -> bool {
        self.is(number, |life| life == Life::Dead)
    }

    fn is(&self, number: u32, what: impl Fn(Life) -> bool) -> bool {
        self.mortals.borrow().iter().any(|mortal| mortal.death.number == number && what(mortal.life))
    }

    /// How `number` dies.
    pub fn manner(&self, number: u32) -> Option<Manner> {
        self.mortals
            .borrow()
            .iter()
            .find(|mortal| mortal.death.number == number)
            .map(|mortal| mortal.death.manner)
    }

    /// Who has been declared since the last call.
    pub fn news(&self) -> Vec<u32> {
        self.news.take()
    }

    /// `number` passes a mark; once in its life each.
    pub fn pass(&self, number: u32, mark: Mark) {
        let unready = self.unready.get() - u32::from(mark == Mark::Ready);
        self.unready.set(unready);
        for mortal in self.mortals.borrow_mut().iter_mut() {
            let concerns = if mark == Mark::Ready { unready == 0 } else { mortal.death.number == number };
            if concerns {
                mortal.passed.push(mark);
            }
        }
    }

    /// `number` calls the fabric. Whether it lives to do so.
    pub fn call(&self, number: u32) -> bool {
        let mut mortals = self.mortals.borrow_mut();
        let Some(mortal) = mortals.iter_mut().find(|mortal| mortal.death.number == number) else {
            return true;
        };
        match mortal.life {
            Life::Lives => {
                if let When::Call(mark, calls) = mortal.death.when
                    && mortal.passed.contains(&mark)
                {
                    mortal.calls += 1;
                    if mortal.calls > calls {
                        self.declare(mortal);
                    }
                }
            }
            Life::Declared { left: 0 } => mortal.life = Life::Dead,
            Life::Declared { left } => {
                mend_base::reach!("sim.killer: its threads still run");
                mortal.life = Life::Declared { left: left - 1 };
            }
            Life::Dead | Life::Exited => {}
        }
        mortal.life != Life::Dead
    }

    /// The scheduler takes a step: who dies before it.
    pub fn step(&self, step: u64) {
        for mortal in self.mortals.borrow_mut().iter_mut() {
            if mortal.life == Life::Lives && matches!(mortal.death.when, When::Step(at) if at <= step) {
                self.declare(mortal);
            }
        }
    }

    fn declare(&self, mortal: &mut Mortal) {
        match mortal.passed.last() {
            None => mend_base::reach!("sim.killer: before MPI_Init"),
            Some(Mark::Started) => mend_base::reach!("sim.killer: before all are ready"),
            Some(Mark::Ready) => mend_base::reach!("sim.killer: at work"),
            Some(Mark::Finishing) => mend_base::reach!("sim.killer: in MPI_Finalize"),
        }
        match (mortal.death.when, mortal.calls) {
            (When::Step(_), _) => mend_base::reach!("sim.killer: between two steps"),
            (When::Call(Mark::Started, _), 1) => {
                mend_base::reach!("sim.killer: before its card is published")
            }
            (When::Call(..), _) => {
                mend_base::reach!("sim.killer: inside a call, between two of the engine's")
            }
        }
        self.news.borrow_mut().push(mortal.death.number);
        mortal.life = match mortal.death.lingers {
            0 => Life::Dead,
            left => Life::Declared { left },
        };
    }

    /// `number` dies at this point of its program.
    pub fn die(&self, number: u32) {
        self.news.borrow_mut().push(number);
        self.end(number);
    }

    /// The program of `number` has ended and its process has exited: a death that was planned for later does not happen.
    pub fn exited(&self, number: u32) {
        let mut mortals = self.mortals.borrow_mut();
        if let Some(mortal) = mortals.iter_mut().find(|mortal| mortal.death.number == number) {
            mend_base::reach!("sim.killer: it exited before its planned death");
            mortal.life = Life::Exited;
        }
    }

    /// `number` is dead, whatever its death was.
    pub fn end(&self, number: u32) {
        let mut mortals = self.mortals.borrow_mut();
        match mortals.iter_mut().find(|mortal| mortal.death.number == number) {
            Some(mortal) => mortal.life = Life::Dead,
            None => {
                let manner = Manner::Ends(Ending::Signalled(9));
                let death = PlannedDeath { number, manner, when: When::Step(0), lingers: 0 };
                mortals.push(Mortal { death, life: Life::Dead, passed: Vec::new(), calls: 0 });
            }
        }
    }
}

/// Mostly by a signal, which others can tell least from a stop.
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

/// Many whose low 8 bits are 0, which no exit code of a failure is.
fn draw_abort_code(random: &mut Random) -> i32 {
    if random.once_in(3) { 256 * random.below(3) as i32 } else { random.below(600) as i32 }
}

/// Early and late moments alike: each number of digits is as likely.
fn draw_when(random: &mut Random, ready: bool) -> When {
    let digits = 1 + random.below(11);
    let calls = random.below(1 << digits);
    match random.below(8) {
        0 => When::Call(Mark::Finishing, random.below(60)),
        1 if !ready => When::Step(calls),
        2 if !ready => When::Call(Mark::Started, random.below(12)),
        _ if ready => When::Call(Mark::Ready, calls),
        _ => When::Call(Mark::Started, calls),
    }
}
