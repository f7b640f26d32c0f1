// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A whole job in one thread: production engines over the seeded network, rank programs as `async fn`s, and a scheduler
//! that a seed drives. One seed is one history.
//!
//! Each step the scheduler picks a rank and turns its engine, or lets its program run if it was woken. Where nothing has
//! happened for a while everything is hurried along; if even then nobody moves and a program is not over, the job hangs,
//! and that is reported with what each rank was at (the termination oracle).

use crate::board::Board;
use crate::clock::Clock;
use crate::killer::{Killer, Manner, Mark};
use crate::launcher::{FabricRuntime, Launcher};
use crate::network::{FabricBtl, Network, Shared, Sizes, Trouble};
use crate::oracle::{self, Silence};
use mend_base::{Job, Peer, Random, Rank};
use mend_daemon::{Ending, Rules};
use mend_mpi::{Config, Engine, Mpi};
use mend_runtime::Runtime;
use mend_transport::{Bml, Loopback, WakeSet};
use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// The transports of a simulated process.
pub type Net = Bml<Loopback, FabricBtl>;
/// MPI in a simulated process.
pub type SimMpi = Mpi<Net, FabricRuntime>;

/// What a rank program is given.
#[derive(Clone)]
pub struct Process {
    /// Its MPI.
    pub mpi: SimMpi,
    /// Its rank in WORLD.
    pub rank: Rank,
    /// Size of WORLD.
    pub size: u32,
    /// Random numbers that are the same on every rank: what all decide alike.
    pub together: Rc<RefCell<Random>>,
    /// Numbers of its own.
    pub random: Rc<RefCell<Random>>,
    /// What the simulator knows.
    pub board: Rc<RefCell<Board>>,
    /// Its buffers whose requests have ended: looked at when it has left.
    pub silence: Rc<RefCell<Silence>>,
    /// Its messages to itself go by loopback, and one call of progress delivers them whatever else comes.
    pub own_comes_next: bool,
    at: Rc<Cell<(&'static str, u64)>>,
    network: Shared,
    killer: Rc<Killer>,
}

impl Process {
    /// The rank that writes garbage; without one, a rank that does not exist.
    pub fn liar(&self) -> Rank {
        Rank(self.network.borrow().trouble.liar.map_or(self.size, |liar| liar.number))
    }

    /// The ranks that may fail in this run, in their order.
    pub fn mortals(&self) -> Vec<Rank> {
        let mut mortals = self.killer.mortals();
        mortals.sort_unstable();
        mortals.into_iter().map(Rank).collect()
    }

    /// Whether `rank` of WORLD has really died.
    pub fn is_dead(&self, rank: Rank) -> bool {
        self.killer.is_declared(rank.0)
    }

    /// Whether this process is one of the dead, and only runs to the end of its call.
    pub fn is_over(&self) -> bool {
        self.killer.is_dead(self.rank.0)
    }

    /// It dies here, as by SIGKILL.
    pub async fn die(&self) {
        self.killer.die(self.rank.0);
        std::future::pending().await
    }

    /// It has made what it needs: deaths that wait for that may come when everybody has.
    pub fn ready(&self) {
        self.killer.pass(self.rank.0, Mark::Ready);
    }

    /// What all who live agree on, whether everybody has `vote`d yes: told by the simulator, which cannot err.
    pub async fn agree(&self, round: u64, vote: bool) -> bool {
        std::future::poll_fn(|context| {
            let (me, is_dead) = ((self.rank.0, vote), |rank| self.killer.is_declared(rank));
            match self.board.borrow_mut().agree(round, me, self.size, is_dead, context.waker()) {
                Some(decided) => Poll::Ready(decided),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// The same process as a rank of another communicator, with the numbers that its members draw alike.
    pub fn as_member(&self, rank: Rank, size: u32, together: Random) -> Process {
        Process { rank, size, together: Rc::new(RefCell::new(together)), ..self.clone() }
    }

    /// Says what comes next, for reports of a hang.
    pub fn at(&self, what: &'static str, number: u64) {
        self.at.set((what, number));
    }

    /// A number of its own below `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    /// Lets others run for a while, as a computation would.
    pub async fn pause(&self) {
        let mut left = self.below(4);
        std::future::poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }
}

/// A rank program: what one process does between MPI_Init and MPI_Finalize.
pub type Program = Rc<dyn Fn(Process) -> Pin<Box<dyn Future<Output = ()>>>>;

/// A job.
pub struct Cluster {
    seed: u64,
    random: Random,
    clock: Clock,
    network: Shared,
    launcher: Rc<RefCell<Launcher>>,
    program: Program,
    ranks: Vec<RankState>,
    /// Ranks whose programs are not over.
    alive: Vec<u32>,
    steps: u64,
    requests: u64,
    trace: bool,
    killer: Rc<Killer>,
    board: Rc<RefCell<Board>>,
    /// A process is held back once in so many steps; 0: never.
    freezes_once_in: u64,
    /// A process that finds nothing to do may sleep until it is rung.
    sleeps: bool,
    /// The daemon notifies of deaths only the ranks that ask.
    muted: bool,
}

/// One rank, as the scheduler sees it.
struct RankState {
    running: Option<Running>,
    at: Rc<Cell<(&'static str, u64)>>,
    woken: Arc<Flag>,
    /// It is not scheduled before this step, as if stopped by SIGSTOP.
    frozen_until: u64,
    /// It sleeps: what its runtime's version was when it fell asleep.
    asleep: Option<u32>,
}

struct Running {
    mpi: SimMpi,
    silence: Rc<RefCell<Silence>>,
    program: Pin<Box<dyn Future<Output = ()>>>,
}

/// What a waker sets.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A run that ended as it should.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Decisions of the scheduler.
    pub steps: u64,
    /// What the network handed up.
    pub delivered: u64,
    /// How many died, of those that had not left.
    pub deaths: u64,
    /// Requests that began and ended, where the build keeps books: of those who came to their end.
    pub requests: u64,
}

/// In steps of the scheduler: between them a breach is seen where it happens, but not what went past the books.
const AUDIT_ONCE_IN: u64 = 64;

/// In steps of the scheduler. When nobody else moves any more, the stopped go on.
const LONGEST_FREEZE: u64 = 3_000;

/// How often a sleeping process is scheduled for its periodic check.
const CHECK_ONCE_IN: u64 = 20;

/// So many that a member without a connection is asked about.
const CHECKS_AT_ONCE: u32 = 16;

/// More do not come to a rank of a small job between two of its steps.
const EVENTS_AT_ONCE: u32 = 16;

/// Steps per rank after which a job that still moves is taken for one that never ends.
const STEPS_MAX: u64 = 500_000;

impl Cluster {
    /// A job of `size` ranks that all run `program`.
    pub fn new(seed: u64, size: u32, program: Program) -> Self {
        let mut random = Random(seed);
        let network = Network::new(random.bits());
        let launcher = Launcher::new(Job(seed as u32), size);
        let state = || RankState {
            running: None,
            at: Rc::new(Cell::new(("not started", 0))),
            woken: Arc::default(),
            frozen_until: 0,
            asleep: None,
        };
        Cluster {
            seed,
            random,
            clock: Clock::default(),
            network,
            launcher,
            program,
            ranks: (0..size).map(|_| state()).collect(),
            alive: (0..size).collect(),
            steps: 0,
            requests: 0,
            trace: false,
            killer: Killer::none(),
            board: Rc::default(),
            freezes_once_in: 0,
            sleeps: false,
            muted: false,
        }
    }

    /// Which ranks die in this job, and what its command line says of that.
    pub fn deaths(&mut self, killer: Rc<Killer>, rules: Rules) {
        self.network.borrow_mut().killer = Rc::clone(&killer);
        let mut launcher = self.launcher.borrow_mut();
        launcher.killer = Rc::clone(&killer);
        launcher.set_rules(rules);
        self.muted = rules.muted;
        self.killer = killer;
    }

    /// Processes that find nothing to do arm their transports and sleep, until they are rung or make a periodic check.
    pub fn sleeps(&mut self) {
        self.sleeps = true;
    }

    /// Processes are held back for long once in so many steps, as by SIGSTOP.
    pub fn freezes(&mut self, once_in: u64) {
        self.freezes_once_in = once_in;
    }

    /// What else may happen in this job.
    pub fn trouble(&mut self, trouble: Trouble) {
        self.network.borrow_mut().trouble = trouble;
        self.launcher.borrow_mut().liar = trouble.liar.map(|liar| liar.number);
    }

    /// Prints every step that did something.
    pub fn trace(&mut self) {
        self.trace = true;
    }

    /// Runs until every program is over, or nothing moves any more.
    pub fn run(&mut self) -> Result<Summary, String> {
        let mut quiet = 0;
        while !self.alive.is_empty() && !self.launcher.borrow().has_ended() {
            quiet = if self.step() { 0 } else { quiet + 1 };
            self.fence();
            self.bury();
            // The last may have died just now, while nothing else moved.
            if !self.alive.is_empty() && quiet > 8 * self.alive.len() + 32 {
                quiet = 0;
                if !self.sweep() && !self.kill_liar() {
                    return Err(self.report("nothing moves any more"));
                }
            }
            if self.steps > STEPS_MAX * self.ranks.len() as u64 {
                return Err(self.report("it moves, but does not end"));
            }
        }
        self.launcher.borrow_mut().conclude(&mut self.random);
        let (delivered, deaths) = (self.network.borrow().delivered, self.launcher.borrow().deaths());
        Ok(Summary { steps: self.steps, delivered, deaths, requests: self.requests })
    }

    /// A rank whose death was declared begins to die for the launcher; one that is dead is scheduled no more.
    fn bury(&mut self) {
        for number in self.killer.news() {
            let manner = self.killer.manner(number).expect("its death was planned");
            self.launcher.borrow_mut().die(number, manner);
            self.board.borrow_mut().wake();
            if self.trace {
                eprintln!("{:8} rank {number} dies", self.steps);
            }
        }
        for number in self.alive.clone() {
            if self.killer.is_dead(number) {
                self.kill(Rank(number));
            }
        }
    }

    /// The process dies between two steps: its program and engine vanish, its ends of the network fall silent.
    pub fn kill(&mut self, rank: Rank) {
        self.killer.end(rank.0);
        self.launcher.borrow_mut().die(rank.0, Manner::Ends(Ending::Signalled(9)));
        self.remove(rank, "killed");
    }

    /// Nothing of the process runs any more.
    fn remove(&mut self, rank: Rank, why: &'static str) {
        self.ranks[rank.index()].running = None;
        self.ranks[rank.index()].at.set((why, 0));
        self.board.borrow_mut().wake();
        self.alive.retain(|alive| *alive != rank.0);
    }

    /// What the daemon has killed runs no more.
    fn fence(&mut self) {
        let killed = self.launcher.borrow_mut().killed();
        killed.into_iter().for_each(|rank| self.remove(Rank(rank), "fenced"));
    }

    /// A rank that writes garbage may wait for what its own garbage hides: it is killed when nothing moves. Whether it was alive.
    fn kill_liar(&mut self) -> bool {
        let liar = self.network.borrow().trouble.liar.map(|liar| liar.number);
        let lives = liar.filter(|liar| self.alive.contains(liar));
        lives.inspect(|liar| self.kill(Rank(*liar))).is_some()
    }

    /// One decision. Whether anything happened.
    fn step(&mut self) -> bool {
        self.steps += 1;
        self.clock.tick(&mut self.random);
        self.killer.step(self.steps);
        let now = self.clock.now();
        if self.random.once_in(8) && self.launcher.borrow_mut().publish(now, &mut self.random, false) > 0 {
            return true;
        }
        let rank = self.alive[self.random.below(self.alive.len() as u64) as usize];
        if self.is_held_back(rank) {
            return false;
        }
        if self.ranks[rank as usize].running.is_none() {
            self.start(rank);
            return true;
        }
        if self.is_asleep(rank) {
            return self.random.once_in(CHECK_ONCE_IN) && self.check_sleeper(rank);
        }
        if self.woken(rank) && self.random.once_in(2) {
            self.poll(rank);
            return true;
        }
        let moved = self.progress(rank) > 0;
        if self.sleeps && !moved && !self.woken(rank) && self.random.once_in(3) {
            self.enter_sleep(rank);
        }
        moved
    }

    /// As `world`'s waiter does: arms, polls once more, sleeps.
    fn enter_sleep(&mut self, rank: u32) {
        let Some(running) = &self.ranks[rank as usize].running else { return };
        let mut engine = running.mpi.engine_mut();
        self.network.borrow_mut().answer_bell(rank);
        if engine.arm(&mut WakeSet::default()).is_err() {
            mend_base::reach!("sim.cluster: something came before it slept");
            return engine.disarm();
        }
        mend_base::reach!("sim.cluster: asleep");
        let version = engine.runtime().fault_version();
        drop(engine);
        self.ranks[rank as usize].asleep = Some(version);
    }

    /// Whether it sleeps, and was not rung.
    fn is_asleep(&mut self, rank: u32) -> bool {
        let Some(version) = self.ranks[rank as usize].asleep else { return false };
        let Some(running) = &self.ranks[rank as usize].running else { return false };
        let told = running.mpi.engine().runtime().fault_version() != version;
        let rung = self.network.borrow_mut().answer_bell(rank);
        if !(told || rung || self.woken(rank)) {
            return true;
        }
        mend_base::reach!("sim.cluster: woken");
        running.mpi.engine_mut().disarm();
        self.ranks[rank as usize].asleep = None;
        false
    }

    /// The periodic check of a sleeping process. Where there is no evidence, which rings no bell, it finds nothing: else a ring was
    /// lost.
    fn check_sleeper(&mut self, rank: u32) -> bool {
        let events = self.progress(rank);
        let trouble = self.network.borrow().trouble;
        let quiet = trouble.evidence_once_in == 0 && trouble.witness_once_in == 0;
        let lives = !self.killer.is_declared(rank);
        assert!(events == 0 || !quiet || !lives, "rank {rank} slept through {events} events");
        events > 0
    }

    /// Whether the process is stopped, and stays so for now.
    fn is_held_back(&mut self, rank: u32) -> bool {
        let state = &mut self.ranks[rank as usize];
        if self.freezes_once_in > 0 && self.random.once_in(self.freezes_once_in) {
            mend_base::reach!("sim.cluster: stopped, and not dead");
            state.frozen_until = self.steps + self.random.below(LONGEST_FREEZE);
        }
        state.frozen_until > self.steps
    }

    /// Hurries everything along. Whether anything moved.
    fn sweep(&mut self) -> bool {
        let mut moved = false;
        self.network.borrow_mut().hurry = true;
        for _ in 0..4 {
            moved |= self.launcher.borrow_mut().publish(self.clock.now(), &mut self.random, true) > 0;
            for rank in self.alive.clone() {
                if self.ranks[rank as usize].running.is_none() {
                    self.start(rank);
                    moved = true;
                }
                self.check(rank);
                moved |=
                    if self.is_asleep(rank) { self.check_sleeper(rank) } else { self.progress(rank) > 0 };
                if self.woken(rank) {
                    self.poll(rank);
                    moved = true;
                }
            }
        }
        self.network.borrow_mut().hurry = false;
        let alive = self.alive.len();
        for number in self.alive.clone() {
            if self.killer.is_declared(number) {
                self.kill(Rank(number));
            }
        }
        moved || self.alive.len() < alive
    }

    /// The timed checks of a process that waits in vain: where the daemon notifies nobody of deaths, they find them.
    fn check(&mut self, rank: u32) {
        for _ in 0..CHECKS_AT_ONCE {
            let lives = self.muted && !self.killer.is_declared(rank);
            let Some(running) = self.ranks[rank as usize].running.as_ref().filter(|_| lives) else { return };
            running.mpi.engine_mut().check();
            // As a waiter does: a probe is repeated after each check.
            self.poll(rank);
        }
    }

    fn start(&mut self, rank: u32) {
        self.killer.pass(rank, Mark::Started);
        if self.killer.manner(rank) == Some(Manner::GivesUp) {
            mend_base::reach!("sim.cluster: MPI_Init fails");
            self.killer.end(rank);
            self.launcher.borrow_mut().give_up(rank, &mut self.random);
            return self.remove(Rank(rank), "without MPI");
        }
        let state = &self.ranks[rank as usize];
        let runtime = FabricRuntime::new(&self.launcher, rank);
        let mut random = Random(self.seed ^ u64::from(rank).wrapping_mul(0x9E6D));
        let fabric = FabricBtl::new(&self.network, rank, Sizes::random(&mut random));
        // Messages to oneself go by loopback, or by the network like everybody's.
        let own = random.once_in(2).then(|| Loopback::new(Peer::new(Job(self.seed as u32), rank)));
        let config = config(&mut random);
        let own_comes_next = own.is_some() && config.events_per_progress > EVENTS_AT_ONCE;
        let net = Bml::new(own, Some(fabric), Vec::new());
        let engine = Engine::with_config(net, runtime, config).expect("the launcher takes every card");
        let process = Process {
            mpi: Mpi::new(engine),
            rank: Rank(rank),
            size: self.ranks.len() as u32,
            together: Rc::new(RefCell::new(Random(self.seed.wrapping_add(1)))),
            random: Rc::new(RefCell::new(random)),
            board: Rc::clone(&self.board),
            silence: Rc::default(),
            own_comes_next,
            killer: Rc::clone(&self.killer),
            at: Rc::clone(&state.at),
            network: Rc::clone(&self.network),
        };
        state.at.set(("started", 0));
        state.woken.0.store(true, Ordering::Relaxed);
        let mpi = process.mpi.clone();
        let silence = Rc::clone(&process.silence);
        let (program, finished) = ((self.program)(process.clone()), mpi.clone());
        let program = Box::pin(async move {
            program.await;
            process.at("finish", 0);
            process.killer.pass(rank, Mark::Finishing);
            finished.finish().await;
        });
        self.ranks[rank as usize].running = Some(Running { mpi, silence, program });
    }

    fn progress(&mut self, rank: u32) -> u32 {
        let Some(running) = &self.ranks[rank as usize].running else { return 0 };
        let events = running.mpi.progress(self.clock.now());
        if self.steps.is_multiple_of(AUDIT_ONCE_IN) {
            running.mpi.engine().lifecycle_check();
        }
        if self.trace && events > 0 {
            eprintln!("{:8} rank {rank}: {events} events", self.steps);
        }
        events
    }

    /// Whether the program has something to do. That of a process whose death is known has not: only threads that turn
    /// its engine may go on for a moment.
    fn woken(&self, rank: u32) -> bool {
        !self.killer.is_declared(rank) && self.ranks[rank as usize].woken.0.load(Ordering::Relaxed)
    }

    fn poll(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        state.woken.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&state.woken));
        let Some(running) = &mut state.running else { return };
        let over = running.program.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if self.trace {
            let (what, number) = state.at.get();
            eprintln!("{:8} rank {rank}: at {what} {number}", self.steps);
        }
        if over && self.killer.is_declared(rank) && !self.killer.is_dead(rank) {
            // Its threads came to the end of the program before its death was complete.
            return self.kill(Rank(rank));
        }
        // Results of a process that is dead are not checked.
        if over && !self.killer.is_dead(rank) {
            self.requests += oracle::balance(rank, &running.mpi);
            running.silence.borrow().check();
            state.running = None;
            state.at.set(("over", 0));
            self.killer.exited(rank);
            self.launcher.borrow_mut().exit(rank, &mut self.random);
            self.alive.retain(|alive| *alive != rank);
        }
    }

    /// What a run that went wrong looks like.
    fn report(&self, why: &str) -> String {
        let mut text = format!("seed {}, step {}: {why}\n", self.seed, self.steps);
        for (rank, state) in self.ranks.iter().enumerate() {
            let (what, number) = state.at.get();
            let _ = writeln!(text, "  rank {rank}: at {what} {number}");
            if let Some(running) = &state.running {
                let _ = writeln!(text, "    {}", oracle::state(&running.mpi));
                if self.trace {
                    let _ = writeln!(text, "    {:?}", running.mpi.engine());
                }
            }
        }
        for line in self.network.borrow().in_flight() {
            let _ = writeln!(text, "  in flight {line}");
        }
        text
    }
}

/// What a seed may choose, rank by rank: each end obeys the other's word.
fn config(random: &mut Random) -> Config {
    Config {
        eager_bytes: [0, 16, 200, 4096][random.below(4) as usize],
        held_bytes_max: [500, 20_000, 4 << 20][random.below(3) as usize],
        events_per_progress: 1 + random.below(64) as u32,
        streams_max: [1, 2, 1 << 10][random.below(3) as usize],
    }
}
