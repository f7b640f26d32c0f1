// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The history of a job of recoveries: all that a seed decides, as a value. So a failing history can be made shorter: fewer ranks,
//! rounds, steps, deaths and disturbances ([`History::shorter`]), as long as it still fails.
//!
//! A job is a list of *rounds*. In each the members of the present communicator work, agree whether all went well, and if not, shrink.
//! The rounds repeat until every planned death has happened and every member has made enough calls.

use crate::killer::{Manner, Milestone, PlannedDeath, When};
use mend_base::Random;
use mend_daemon::Ending;

/// What a seed decides about a job of recoveries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct History {
    /// The seed of the scheduler, the network and all data.
    pub schedule: u64,
    /// The number of ranks.
    pub size: u32,
    /// Repeated in this order.
    pub rounds: Vec<Round>,
    /// The planned deaths.
    pub deaths: Vec<PlannedDeath>,
    /// Each survivor makes at least so many calls.
    pub calls_min: u64,
    /// The rounds go on until each planned death has happened.
    pub waits_for_deaths: bool,
    /// What disturbs the job.
    pub disturbances: Disturbances,
}

/// What disturbs a job, apart from deaths. The default: nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Disturbances {
    /// The notice page is muted: processes learn of deaths only by asking.
    pub muted: bool,
    /// One in so many looks at an endpoint finds false evidence; 0: none.
    pub false_evidence_once_in: u64,
    /// One in so many looks at the endpoint of a dead peer finds that; 0: none.
    pub true_evidence_once_in: u64,
    /// A process is stopped in one of so many steps; 0: never.
    pub stop_once_in: u64,
    /// Processes without work may sleep.
    pub sleeps: bool,
    /// Each process gets its notices up to so many times later than usual, each another time; 0: none.
    pub late_notices: u64,
    /// One pair of processes in four is slower by this factor; 0: none.
    pub slow_pairs: u64,
    /// Each pair of processes has one queue, so that control messages overtake nothing.
    pub one_queue: bool,
}

/// One round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Round {
    /// What the members do, until one of these fails.
    pub steps: Vec<Step>,
    /// How they repair.
    pub repair: Repair,
}

/// One step of a round. Ranks are taken modulo the size of the communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// MPI_Allreduce of so many elements.
    Allreduce(u32),
    /// Any collective operation, drawn from this seed.
    Collective(u64),
    /// One of MPI_Barrier, Bcast, Reduce, Allreduce, Gather, Scatter, Allgather, Alltoall.
    Exactly(u32),
    /// MPI_Send of so many bytes to the next rank, which forwards them after its MPI_Recv.
    Chain(u32),
    /// A message to each neighbour and one from each, and a call that waits for the four.
    Wait(WaitMode),
    /// MPI_Sendrecv of so many bytes around a ring.
    Ring(u32),
    /// MPI_Ssend of so many bytes to the next rank, which has posted a receive.
    Ssend(u32),
    /// Each rank sends to this one, which receives from any source.
    AnySource(u32),
    /// This rank probes for messages from any source before it receives them.
    Probe(u32),
    /// A communicator is created, used, and freed.
    Create(Creation, Use),
}

/// Which call waits for several requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitMode {
    /// MPI_Waitall.
    All,
    /// MPI_Waitany, until all have ended.
    Any,
    /// MPI_Waitsome, until all have ended.
    Some,
}

/// How a communicator is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Creation {
    /// MPI_Comm_dup.
    Dup,
    /// MPI_Comm_dup_with_info.
    DupWithInfo,
    /// MPI_Comm_idup, while a ring of messages runs on the parent.
    Idup,
    /// MPI_Comm_split in two.
    Split,
    /// MPI_Comm_create of every second member.
    Create,
    /// MPI_Comm_create_group of every second member.
    CreateGroup,
}

/// How a created communicator is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// It is freed at once.
    None,
    /// MPI_Barrier.
    Barrier,
    /// A ring of messages; the communicator is freed while they run.
    RingFreed,
    /// MPI_Comm_dup of it, and a ring on that.
    DupAndRing,
    /// Messages run on it, and MPI_Comm_disconnect waits for them.
    Disconnect,
}

/// How the members repair their communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repair {
    /// MPIX_Comm_iagree runs during the steps.
    pub agrees_meanwhile: bool,
    /// The known failures are acknowledged before the agreement.
    pub acknowledges: bool,
    /// MPIX_Comm_agree_failed after the agreement.
    pub agrees_on_failed: bool,
    /// Agreements are uniform (the hint `mpix_agree_uniform`).
    pub uniform: bool,
    /// The hint `mpi_error_range` is `group`: a failure revokes the communicator.
    pub range_group: bool,
    /// MPIX_Comm_ishrink of the same communicator twice at once, one of which is freed unused.
    pub shrinks_twice: bool,
    /// The members shrink also if all went well.
    pub shrinks_always: bool,
    /// The parent is freed while the shrink runs.
    pub frees_parent_meanwhile: bool,
    /// The broken communicator is freed only at the end of the job.
    pub frees_late: bool,
    /// The hint `mpi_error_uniform` is `local`: a creation may succeed at some members only.
    pub local_creation: bool,
}

/// Bounds of what is drawn.
const CALLS_MIN: u64 = 20;

impl History {
    /// The history of a seed, with 2 to 16 ranks.
    pub fn draw(seed: u64) -> History {
        let size = 2 + Random(seed).below(15) as u32;
        History::draw_for(seed, size)
    }

    /// The history of a seed, for a given number of ranks.
    pub fn draw_for(seed: u64, size: u32) -> History {
        let mut random = Random(seed ^ 0x5EED_0F4E_C04E);
        let rounds = 1 + random.below(4);
        let mut rounds: Vec<Round> = (0..rounds).map(|_| Round::draw(&mut random)).collect();
        let disturbances = Disturbances::draw(&mut random);
        let deaths = draw_deaths(&mut random, size);
        let schedule = random.bits();
        rounds.iter_mut().for_each(|round| round.repair.local_creation = random.once_in(5));
        History { schedule, size, rounds, deaths, calls_min: CALLS_MIN, waits_for_deaths: true, disturbances }
    }

    /// Histories that are shorter in one way, the shortest first.
    pub fn shorter(&self) -> Vec<History> {
        let mut all = Vec::new();
        let mut push = |change: &dyn Fn(&mut History)| {
            let mut history = self.clone();
            change(&mut history);
            if history != *self && history.size > 0 && !history.rounds.is_empty() {
                all.push(history);
            }
        };
        for size in [self.size / 2, self.size.saturating_sub(1)] {
            push(&|history| history.resize(size));
        }
        for at in 0..self.deaths.len() {
            push(&|history| _ = history.deaths.remove(at));
        }
        push(&|history| history.calls_min /= 2);
        push(&|history| history.disturbances = Disturbances::default());
        for one in Disturbances::EACH {
            push(&|history| one(&mut history.disturbances));
        }
        for at in 0..self.rounds.len() {
            push(&|history| drop(history.rounds.remove(at)));
            for step in 0..self.rounds[at].steps.len() {
                push(&|history| _ = history.rounds[at].steps.remove(step));
            }
            for plain in Repair::EACH {
                push(&|history| plain(&mut history.rounds[at].repair));
            }
        }
        for at in 0..self.deaths.len() {
            push(&|history| history.deaths[at].calls_while_dying = 0);
            push(&|history| history.deaths[at].manner = Manner::Ends(Ending::Signalled(9)));
        }
        all
    }

    fn resize(&mut self, size: u32) {
        self.size = size.max(1);
        self.deaths.retain(|death| death.number < size);
    }
}

impl core::fmt::Display for History {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        writeln!(f, "{} ranks, schedule {:#x}, {:?}", self.size, self.schedule, self.disturbances)?;
        for (number, round) in self.rounds.iter().enumerate() {
            writeln!(f, "  round {number}: {:?}\n    {:?}", round.steps, round.repair)?;
        }
        for death in &self.deaths {
            writeln!(f, "  rank {} dies: {:?} {:?}", death.number, death.when, death.manner)?;
        }
        write!(f, "  at least {} calls", self.calls_min)
    }
}

impl Disturbances {
    /// Each takes away one.
    const EACH: [fn(&mut Disturbances); 8] = [
        |all| all.muted = false,
        |all| all.false_evidence_once_in = 0,
        |all| all.true_evidence_once_in = 0,
        |all| all.stop_once_in = 0,
        |all| all.sleeps = false,
        |all| all.late_notices = 0,
        |all| all.slow_pairs = 0,
        |all| all.one_queue = false,
    ];

    fn draw(random: &mut Random) -> Disturbances {
        let mut in_one_of = |jobs: u64, least: u64, more: u64| {
            if random.once_in(jobs) { least + random.below(more) } else { 0 }
        };
        let muted = in_one_of(8, 1, 1) > 0;
        let true_evidence = if muted { 1 } else { 3 };
        Disturbances {
            muted,
            false_evidence_once_in: in_one_of(5, 20, 200),
            true_evidence_once_in: in_one_of(true_evidence, 1, 20),
            stop_once_in: in_one_of(6, 50, 500),
            sleeps: in_one_of(2, 1, 1) > 0,
            late_notices: in_one_of(3, 2, 60),
            slow_pairs: in_one_of(3, 2, 40),
            one_queue: in_one_of(4, 1, 1) > 0,
        }
    }
}

impl Round {
    fn draw(random: &mut Random) -> Round {
        let steps = 1 + random.below(5);
        Round { steps: (0..steps).map(|_| Step::draw(random)).collect(), repair: Repair::draw(random) }
    }
}

impl Step {
    fn draw(random: &mut Random) -> Step {
        let bytes = [0, 8, 300, 6_000][random.below(4) as usize];
        match random.below(15) {
            0 | 1 => Step::Allreduce(1 + random.below(40) as u32),
            2 | 3 => Step::Collective(random.bits()),
            4 => Step::Ring(bytes),
            5 => Step::Ssend(bytes),
            6 => Step::AnySource(random.below(16) as u32),
            7 => Step::Probe(random.below(16) as u32),
            8 => Step::Chain(bytes),
            9 => Step::Wait([WaitMode::All, WaitMode::Any, WaitMode::Some][random.below(3) as usize]),
            _ => {
                let creations = [
                    Creation::Dup,
                    Creation::DupWithInfo,
                    Creation::Idup,
                    Creation::Split,
                    Creation::Create,
                    Creation::CreateGroup,
                ];
                let uses = [Use::None, Use::Barrier, Use::RingFreed, Use::DupAndRing, Use::Disconnect];
                Step::Create(creations[random.below(6) as usize], uses[random.below(5) as usize])
            }
        }
    }
}

impl Repair {
    /// Each takes away one.
    const EACH: [fn(&mut Repair); 10] = [
        |repair| repair.agrees_meanwhile = false,
        |repair| repair.acknowledges = false,
        |repair| repair.agrees_on_failed = false,
        |repair| repair.uniform = false,
        |repair| repair.range_group = false,
        |repair| repair.shrinks_twice = false,
        |repair| repair.shrinks_always = false,
        |repair| repair.frees_parent_meanwhile = false,
        |repair| repair.frees_late = false,
        |repair| repair.local_creation = false,
    ];

    fn draw(random: &mut Random) -> Repair {
        let mut once_in = |times: u64| random.once_in(times);
        Repair {
            agrees_meanwhile: once_in(4),
            acknowledges: once_in(3),
            agrees_on_failed: once_in(4),
            uniform: once_in(4),
            range_group: once_in(6),
            shrinks_twice: once_in(6),
            shrinks_always: once_in(8),
            frees_parent_meanwhile: once_in(5),
            frees_late: once_in(3),
            // Drawn after everything else.
            local_creation: false,
        }
    }
}

/// At least one death, half of the time only one, seldom all ranks.
fn draw_deaths(random: &mut Random, size: u32) -> Vec<PlannedDeath> {
    let most = (u64::from(size) - u64::from(!random.once_in(10))).max(1);
    let count = if random.once_in(2) { 1 } else { 1 + random.below(most) };
    let mut numbers: Vec<u32> = (0..size).collect();
    let mut death = |at| {
        let number = numbers.swap_remove(random.below(numbers.len() as u64) as usize);
        let calls_while_dying = if random.once_in(8) { random.below(40) } else { 0 };
        let (manner, mut when) = (draw_manner(random), draw_when(random));
        if let When::Call(Milestone::Finishing, calls) = when
            && at == 0
        {
            // One death happens in each job; a rank may leave MPI with fewer calls.
            when = When::During(random.below(40), calls);
        }
        PlannedDeath { number, manner, when, calls_while_dying }
    };
    (0..count).map(&mut death).collect()
}

fn draw_manner(random: &mut Random) -> Manner {
    match random.below(16) {
        0 => Manner::Ends(Ending::Exited(random.below(256) as i32)),
        1 => Manner::WritesCore,
        2 => Manner::Execs,
        3 => Manner::Aborts { code: random.below(256) as i32, everybody: false },
        _ => Manner::Ends(Ending::Signalled(9)),
    }
}

/// Mostly within one of the first calls of the program, at any call of its engine to transports and runtime.
fn draw_when(random: &mut Random) -> When {
    let digits = 1 + random.below(9);
    let engine_calls = random.below(1 << digits);
    match random.below(12) {
        0 => When::Step(random.below(2_000)),
        1 => When::Call(Milestone::Started, random.below(20)),
        2 => When::Call(Milestone::Finishing, random.below(60)),
        _ => When::During(random.below(40), engine_calls),
    }
}
