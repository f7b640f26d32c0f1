// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A whole job in one thread: production engines on the simulated network, rank programs as `async fn`s, and a scheduler.
//! The seed of a job decides everything that happens in it.
//!
//! In each step the scheduler selects a rank, and either its engine makes progress, or its program runs if it was woken.
//! When nothing has moved for some steps, everything that can move is moved at once. If nothing moves even then, and a
//! program has not ended, the job hangs (Rule 7): the run fails with a report of what each rank waits for.

mod detection;

use crate::clock::Clock;
use crate::killer::{Killer, Manner, Milestone, Point};
use crate::launcher::{Launcher, SimRuntime};
use crate::network::{EagerLimits, Faults, RemoteAccessFaults, SharedNetwork, SimBtl, SimNetwork, Sizes};
use crate::oracle::{self, EndedBuffers};
use crate::process::{Position, Process, SimMpi, Transports};
use crate::record::JobRecord;
use detection::{Detection, LONG_STOP_STEPS_MAX};
use mend_base::{AllocationFailures, Job, Peer, Random, Rank, reach, replace_allocation_failures};
use mend_daemon::{Ending, Muted, Rules};
use mend_mpi::{Config, Engine, Mpi};
use mend_runtime::Runtime;
use mend_transport::{Loopback, WakeSet};
use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

/// A rank program: what one process does between MPI_Init and MPI_Finalize.
pub type Program = Rc<dyn Fn(Process) -> Pin<Box<dyn Future<Output = ()>>>>;

/// A job.
pub struct Cluster {
    seed: u64,
    random: Random,
    clock: Clock,
    network: SharedNetwork,
    launcher: Rc<RefCell<Launcher>>,
    program: Program,
    ranks: Vec<RankState>,
    /// The ranks whose programs have neither ended nor been killed.
    active: Vec<u32>,
    steps: u64,
    requests: u64,
    trace: bool,
    killer: Rc<Killer>,
    record: Rc<RefCell<JobRecord>>,
    /// In one of so many steps a process is stopped, as by SIGSTOP. 0: never.
    stop_once_in: u64,
    /// A process without work may sleep until its bell is rung.
    sleeps: bool,
    /// A process without work makes timed checks, too, which search for cycles of recoveries.
    looks: bool,
    /// See [`Rules::muted`].
    muted: bool,
    /// The ranks find failures by themselves.
    detection: Option<Detection>,
    /// The allocations that fail, until the job runs.
    allocation_failures: Option<AllocationFailures>,
    eager_bytes_min: u32,
    /// Allocations fail in this job.
    allocations_fail: bool,
    /// Most of the processes can get.
    gets: bool,
}

/// One rank, as the scheduler sees it.
struct RankState {
    running: Option<Running>,
    position: Position,
    woken: Arc<Flag>,
    /// The process is stopped until this step.
    stopped_until: u64,
    /// Of a sleeping process: its notice version when it began to sleep.
    asleep: Option<u32>,
}

struct Running {
    mpi: SimMpi,
    ended_buffers: Rc<RefCell<EndedBuffers>>,
    program: Pin<Box<dyn Future<Output = ()>>>,
}

/// Set by the waker of a rank program.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The counters of a job that passed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Steps of the scheduler.
    pub steps: u64,
    /// Messages and chunks that the network delivered.
    pub delivered: u64,
    /// Failed ranks.
    pub deaths: u64,
    /// Requests of the programs that ended. 0 in a build without the lifecycle check.
    pub requests: u64,
    /// Allocations that failed by injection.
    pub failed_allocations: u64,
}

/// In steps of the scheduler. The lifecycle check takes time linear in the requests.
const LIFECYCLE_CHECK_ONCE_IN: u64 = 64;

/// Distinguishes the random numbers that decide about gets.
const GETS_SEED: u64 = 0x6765_7473;

/// In steps of the scheduler.
const STOP_STEPS_MAX: u64 = 3_000;

/// A sleeping process that is scheduled makes its periodic check once in so many times.
const PERIODIC_CHECK_ONCE_IN: u64 = 20;

/// Timed checks in a row: enough for the node daemon to be asked about each member without an endpoint.
const TIMED_CHECKS: u32 = 16;

/// A process that makes progress without an event makes a timed check once in so many times.
const LOOK_ONCE_IN: u64 = 8;

/// Where processes look, everything is moved so often before a job hangs: a search begins after twice as many looks as the one before.
const UNMOVED_MAX: u32 = 64;

/// An upper bound of the events that arrive at a rank of a small job between two of its steps.
const EVENTS_AT_ONCE_MAX: u32 = 16;

/// A job that takes more steps than this for each rank, and still moves, is reported as endless.
const STEPS_PER_RANK_MAX: u64 = 500_000;

impl Cluster {
    /// A job of `size` ranks, each of which runs `program`.
    pub fn new(seed: u64, size: u32, program: Program) -> Self {
        let mut random = Random(seed);
        let network = SimNetwork::new(random.bits());
        let launcher = Launcher::new(Job(seed as u32), size);
        let state = || RankState {
            running: None,
            position: Rc::new(Cell::new(("not started", 0))),
            woken: Arc::default(),
            stopped_until: 0,
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
            active: (0..size).collect(),
            steps: 0,
            requests: 0,
            trace: false,
            killer: Killer::none(),
            record: Rc::default(),
            stop_once_in: 0,
            sleeps: false,
            looks: false,
            muted: false,
            detection: None,
            allocation_failures: None,
            eager_bytes_min: 0,
            allocations_fail: false,
            gets: false,
        }
        .with_drawn_gets()
    }

    /// In half of the jobs most processes can get from each other. In half of these what was not delivered is lost when its sender
    /// exits, and in half of them each pair has its own eager limit.
    fn with_drawn_gets(mut self) -> Self {
        let mut random = Random(self.seed ^ GETS_SEED);
        self.gets = random.once_in(2);
        if self.gets {
            let mut once_in = || if random.once_in(2) { 0 } else { 2 + random.below(30) };
            let faults = RemoteAccessFaults { refusal_once_in: once_in(), failure_once_in: once_in() };
            let mut network = self.network.borrow_mut();
            network.set_remote_access(faults, random.once_in(2));
            if random.once_in(2) {
                network.eager_limits = EagerLimits::Drawn(random.bits());
            }
        }
        self
    }

    /// Sets the planned deaths of this job, and what its command line requires for deaths.
    pub fn plan_deaths(&mut self, killer: Rc<Killer>, rules: Rules) {
        self.network.borrow_mut().killer = Rc::clone(&killer);
        let mut launcher = self.launcher.borrow_mut();
        launcher.killer = Rc::clone(&killer);
        launcher.set_rules(rules);
        self.muted = rules.muted == Muted::Unasked;
        self.killer = killer;
    }

    /// Lets processes without work arm their transports and sleep, until a bell is rung or a periodic check is due.
    pub fn let_processes_sleep(&mut self) {
        self.sleeps = true;
    }

    /// Lets processes without work make timed checks, as waiting threads do.
    pub fn let_processes_look(&mut self) {
        self.looks = true;
    }

    /// Stops a process for some time in one of `once_in` steps, as SIGSTOP would.
    pub fn stop_processes(&mut self, once_in: u64) {
        self.stop_once_in = once_in;
    }

    /// Sets the faults that the network injects.
    pub fn inject(&mut self, faults: Faults) {
        self.network.borrow_mut().faults = faults;
        let mut launcher = self.launcher.borrow_mut();
        launcher.garbage_writer = faults.garbage_writer.map(|writer| writer.number);
        launcher.lives_are_read = faults.true_evidence_once_in > 0;
    }

    /// One in `once_in` of the allocations whose failure can be reported fails, except in MPI_Init.
    pub fn fail_allocations(&mut self, once_in: u64) {
        let random = Random(self.random.bits());
        self.allocations_fail = true;
        self.allocation_failures = Some(AllocationFailures { random, once_in, failed: 0 });
    }

    /// Messages of so many bytes are always eager: no process has a lower limit.
    pub fn send_eagerly(&mut self, bytes: u32) {
        self.eager_bytes_min = bytes;
    }

    /// What the processes of the job did.
    pub fn record(&self) -> Rc<RefCell<JobRecord>> {
        Rc::clone(&self.record)
    }

    /// The network of the job.
    pub fn network(&self) -> SharedNetwork {
        Rc::clone(&self.network)
    }

    /// The launcher of the job.
    pub fn launcher(&self) -> Rc<RefCell<Launcher>> {
        Rc::clone(&self.launcher)
    }

    /// Prints every step that moves something.
    pub fn trace(&mut self) {
        self.trace = true;
    }

    /// Runs the job until every program has ended. The error is the report of a hang.
    pub fn run(&mut self) -> Result<Summary, String> {
        // What a job that panicked left ends here.
        replace_allocation_failures(self.allocation_failures.take());
        let ended = self.run_to_end();
        let failed = replace_allocation_failures(None).map_or(0, |failures| failures.failed);
        ended.map(|summary| Summary { failed_allocations: failed, ..summary })
    }

    fn run_to_end(&mut self) -> Result<Summary, String> {
        let (mut idle_steps, mut unmoved) = (0, 0);
        while !self.active.is_empty() && !self.launcher.borrow().has_ended() {
            idle_steps = if self.step() { 0 } else { idle_steps + 1 };
            self.remove_fenced();
            self.remove_dead();
            // In this step the last active rank may have died, and then nothing else has to move.
            // Where ranks send heartbeats, time alone moves something.
            let is_idle = self.detection.is_none() && idle_steps > 8 * self.active.len() + 32;
            if !self.active.is_empty() && is_idle {
                idle_steps = 0;
                let moved = self.move_everything() || self.kill_garbage_writer();
                // What waits for memory goes on when an allocation does not fail.
                let goes_on = moved || self.active.iter().any(|&rank| self.lacks_memory(rank));
                unmoved = if goes_on { 0 } else { unmoved + 1 };
                if unmoved > if self.looks { UNMOVED_MAX } else { 0 } {
                    return Err(self.report("nothing moves any more"));
                }
            }
            if self.steps > STEPS_PER_RANK_MAX * self.ranks.len() as u64 {
                return Err(self.report("it moves, but does not end"));
            }
        }
        self.launcher.borrow_mut().finish(&mut self.random);
        let (delivered, deaths) = (self.network.borrow().delivered, self.launcher.borrow().deaths());
        Ok(Summary { steps: self.steps, delivered, deaths, requests: self.requests, failed_allocations: 0 })
    }
}

/// The ends of processes.
impl Cluster {
    /// Removes each process that is dead.
    fn remove_dead(&mut self) {
        self.announce_deaths();
        if self.killer.take_has_died() {
            for number in self.active.clone() {
                if self.killer.is_dead(number) {
                    self.kill(Rank(number));
                }
            }
        }
    }

    /// Tells the launcher of each death that has begun, and records where.
    fn announce_deaths(&mut self) {
        for number in self.killer.take_new_deaths() {
            let manner = self.killer.manner(number).expect("a rank that dies has a manner of death");
            self.launcher.borrow_mut().begin_death(number, manner);
            self.record.borrow_mut().wake();
            let (call, _) = self.ranks[number as usize].position.get();
            let point = self.killer.point(number).unwrap_or(Point::BetweenSteps);
            self.record.borrow_mut().died_at(call, point);
            if self.trace {
                eprintln!("{:8} rank {number} dies", self.steps);
            }
        }
    }

    /// Kills the process between two steps: its program and its engine are dropped.
    pub fn kill(&mut self, rank: Rank) {
        self.announce_deaths();
        self.killer.set_dead(rank.0);
        self.launcher.borrow_mut().begin_death(rank.0, Manner::Ends(Ending::Signalled(9)));
        self.remove(rank, "killed");
    }

    fn remove(&mut self, rank: Rank, why: &'static str) {
        self.ranks[rank.index()].running = None;
        self.ranks[rank.index()].position.set((why, 0));
        self.record.borrow_mut().wake();
        self.active.retain(|active| *active != rank.0);
    }

    /// Removes the processes that the node daemon has killed.
    fn remove_fenced(&mut self) {
        let killed = self.launcher.borrow_mut().take_killed();
        killed.into_iter().for_each(|rank| self.remove(Rank(rank), "fenced"));
    }

    /// A rank that writes garbage may wait for messages that its own garbage prevents, so it is killed when nothing moves.
    /// False where there is none.
    fn kill_garbage_writer(&mut self) -> bool {
        let writer = self.network.borrow().faults.garbage_writer.map(|writer| writer.number);
        let active = writer.filter(|writer| self.active.contains(writer));
        active.inspect(|writer| self.kill(Rank(*writer))).is_some()
    }
}

/// The scheduler.
impl Cluster {
    /// One step. Returns whether anything moved.
    fn step(&mut self) -> bool {
        self.steps += 1;
        self.clock.tick(&mut self.random);
        self.killer.on_step(self.steps);
        let now = self.clock.now();
        if self.random.once_in(8) && self.launcher.borrow_mut().advance(now, &mut self.random, false) > 0 {
            return true;
        }
        let rank = self.active[self.random.below(self.active.len() as u64) as usize];
        if self.is_stopped(rank) {
            return false;
        }
        if self.ranks[rank as usize].running.is_none() {
            self.start(rank);
            return true;
        }
        if self.is_asleep(rank) {
            if !self.random.once_in(PERIODIC_CHECK_ONCE_IN) {
                return false;
            }
            // It makes no calls any more that count down to its death, and the kernel ends its threads within a bounded time.
            if self.killer.death_has_begun(rank) {
                reach!("sim.cluster: it dies while it sleeps");
                self.kill(Rank(rank));
                return true;
            }
            return self.periodic_check(rank);
        }
        if self.detection.is_some() {
            // As a waiting thread and the helper thread do: the clock is read before the program goes on.
            self.progress(rank);
        }
        if self.is_woken(rank) && self.random.once_in(2) {
            self.poll(rank);
            return true;
        }
        let moved = self.progress(rank) > 0;
        if self.looks && !moved && self.random.once_in(LOOK_ONCE_IN) {
            self.look(rank);
        }
        if self.sleeps && !moved && !self.is_woken(rank) && self.random.once_in(3) {
            self.enter_sleep(rank);
        }
        moved
    }

    /// Stops the process, if the seed decides so. Returns whether it is stopped.
    fn is_stopped(&mut self, rank: u32) -> bool {
        let state = &mut self.ranks[rank as usize];
        if self.stop_once_in > 0 && self.random.once_in(self.stop_once_in) {
            reach!("sim.cluster: stopped, and not dead");
            let most = if self.detection.is_some() { LONG_STOP_STEPS_MAX } else { STOP_STEPS_MAX };
            state.stopped_until = self.steps + self.random.below(most);
        }
        state.stopped_until > self.steps
    }

    fn progress(&mut self, rank: u32) -> u32 {
        let Some(running) = &self.ranks[rank as usize].running else { return 0 };
        let events = running.mpi.progress(self.clock.now());
        if self.steps.is_multiple_of(LIFECYCLE_CHECK_ONCE_IN) {
            running.mpi.engine().lifecycle_check();
        }
        if self.trace && events > 0 {
            eprintln!("{:8} rank {rank}: {events} events", self.steps);
        }
        self.observe_detection(rank);
        events
    }

    /// Whether the program is to be polled. The program of a dying process does not run; only calls of progress do.
    fn is_woken(&self, rank: u32) -> bool {
        !self.killer.death_has_begun(rank) && self.ranks[rank as usize].woken.0.load(Ordering::Relaxed)
    }

    /// Polls the program, and ends the process if the program has ended.
    fn poll(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        state.woken.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&state.woken));
        let Some(running) = &mut state.running else { return };
        let ended = running.program.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if self.trace {
            let (what, number) = state.position.get();
            eprintln!("{:8} rank {rank}: at {what} {number}", self.steps);
        }
        // The results of a dead process are not checked: its calls had no effect.
        if !ended || self.killer.is_dead(rank) {
            return;
        }
        if self.killer.death_has_begun(rank) {
            return self.kill(Rank(rank));
        }
        self.requests += oracle::assert_nothing_left(rank, &running.mpi);
        self.network.borrow_mut().exit(rank);
        running.ended_buffers.borrow().assert_unchanged();
        state.running = None;
        state.position.set(("ended", 0));
        self.killer.on_exit(rank);
        self.launcher.borrow_mut().exit(rank, &mut self.random);
        self.active.retain(|active| *active != rank);
    }

    /// Moves everything that can move: all messages, notices and requests, each engine and each program. Then each dying
    /// process is dead. Returns whether anything moved.
    fn move_everything(&mut self) -> bool {
        let mut moved = false;
        self.network.borrow_mut().delivers_all = true;
        for _ in 0..4 {
            moved |= self.launcher.borrow_mut().advance(self.clock.now(), &mut self.random, true) > 0;
            for rank in self.active.clone() {
                if self.ranks[rank as usize].running.is_none() {
                    self.start(rank);
                    moved = true;
                }
                moved |= self.timed_checks(rank);
                moved |=
                    if self.is_asleep(rank) { self.periodic_check(rank) } else { self.progress(rank) > 0 };
                if self.is_woken(rank) {
                    self.poll(rank);
                    moved = true;
                }
            }
        }
        self.network.borrow_mut().delivers_all = false;
        let active = self.active.len();
        for number in self.active.clone() {
            if self.killer.death_has_begun(number) {
                self.kill(Rank(number));
            }
        }
        moved || self.active.len() < active
    }

    /// A timed check of a waiting process.
    fn look(&mut self, rank: u32) {
        let Some(running) = self.ranks[rank as usize].running.as_ref() else { return };
        if !self.killer.death_has_begun(rank) {
            running.mpi.check();
            self.poll(rank);
            self.progress(rank);
        }
    }

    /// The timed checks of a waiting process. Where notices are muted, these find the failures. Returns whether anything moved.
    fn timed_checks(&mut self, rank: u32) -> bool {
        let mut moved = false;
        for _ in 0..TIMED_CHECKS {
            let checks = (self.muted || self.looks) && !self.killer.death_has_begun(rank);
            let running = self.ranks[rank as usize].running.as_ref().filter(|_| checks);
            let Some(running) = running else { break };
            running.mpi.check();
            // A waiting thread repeats its probe after each check.
            self.poll(rank);
            if self.looks {
                // What the look wants to send leaves.
                moved |= self.progress(rank) > 0;
            }
        }
        moved
    }
}

/// Sleep and wake.
impl Cluster {
    /// Does what a waiting thread of `world` does: it arms the transports, which fails if there is something to do, and
    /// sleeps.
    fn enter_sleep(&mut self, rank: u32) {
        let Some(running) = &self.ranks[rank as usize].running else { return };
        let mut engine = running.mpi.engine_mut();
        self.network.borrow_mut().take_bell(rank);
        if engine.arm(&mut WakeSet::default()).is_err() {
            reach!("sim.cluster: something came before it slept");
            return engine.disarm();
        }
        reach!("sim.cluster: asleep");
        let version = engine.runtime().notice_version();
        drop(engine);
        self.ranks[rank as usize].asleep = Some(version);
    }

    /// Whether the process sleeps. It wakes up if its bell was rung, a notice has come, or its program was woken.
    fn is_asleep(&mut self, rank: u32) -> bool {
        let Some(version) = self.ranks[rank as usize].asleep else { return false };
        let Some(running) = &self.ranks[rank as usize].running else { return false };
        let notified = running.mpi.engine().runtime().notice_version() != version;
        let rung = self.network.borrow_mut().take_bell(rank);
        if !(notified || rung || self.is_woken(rank)) {
            return true;
        }
        reach!("sim.cluster: woken");
        running.mpi.engine_mut().disarm();
        self.ranks[rank as usize].asleep = None;
        false
    }

    /// The periodic check of a sleeping process. Returns whether it found anything. In a job without injected evidence, which
    /// rings no bell, it must find nothing: otherwise a wake-up was lost. Memory rings no bell either: where allocations
    /// fail, what could not be queued, or is to be reported, waits for this check.
    fn periodic_check(&mut self, rank: u32) -> bool {
        let events = self.progress(rank);
        let faults = self.network.borrow().faults;
        let no_evidence = faults.false_evidence_once_in == 0 && faults.true_evidence_once_in == 0;
        let no_evidence = no_evidence && !self.allocations_fail;
        let lives = !self.killer.death_has_begun(rank);
        assert!(events == 0 || !no_evidence || !lives, "rank {rank} slept while {events} events waited");
        events > 0
    }
}

/// Allocation failures.
impl Cluster {
    /// Whether allocations fail in this job, and a message of this process waits to be queued.
    fn lacks_memory(&self, rank: u32) -> bool {
        let Some(running) = &self.ranks[rank as usize].running else { return false };
        let counts = running.mpi.engine().open_counts();
        self.allocations_fail && (counts.unsent_member_messages > 0 || counts.pml.unsent > 0)
    }
}

/// The start of processes, and reports.
impl Cluster {
    fn start(&mut self, rank: u32) {
        self.killer.on_milestone(rank, Milestone::Started);
        if self.killer.manner(rank) == Some(Manner::GivesUp) {
            reach!("sim.cluster: MPI_Init fails");
            self.killer.set_dead(rank);
            self.launcher.borrow_mut().give_up(rank, &mut self.random);
            return self.remove(Rank(rank), "without MPI");
        }
        let failures = replace_allocation_failures(None);
        let process = self.init(rank);
        replace_allocation_failures(failures);
        self.ranks[rank as usize].position.set(("started", 0));
        self.ranks[rank as usize].woken.0.store(true, Ordering::Relaxed);
        let (mpi, ended_buffers) = (process.mpi.clone(), Rc::clone(&process.ended_buffers));
        let program = (self.program)(process.clone());
        let program = Box::pin(async move {
            program.await;
            process.at("finish", 0);
            process.killer.on_milestone(rank, Milestone::Finishing);
            process.mpi.finish().await;
        });
        self.ranks[rank as usize].running = Some(Running { mpi, ended_buffers, program });
    }

    /// MPI_Init of the process.
    fn init(&self, rank: u32) -> Process {
        let runtime = SimRuntime::new(&self.launcher, rank);
        let mut random = Random(self.seed ^ u64::from(rank).wrapping_mul(0x9E6D));
        let mut sizes = Sizes::draw(&mut random);
        if self.gets {
            // Not from the random numbers of the process: the seeds of jobs without gets stay what they are.
            sizes.draw_gets(&mut Random(random.0 ^ GETS_SEED));
        }
        let btl = SimBtl::new(&self.network, rank, sizes);
        // In half of the processes, messages to itself go by loopback; in the others by the network.
        let loopback = random.once_in(2).then(|| Loopback::new(Peer::new(Job(self.seed as u32), rank)));
        let mut config = draw_config(&mut random);
        config.eager_bytes = config.eager_bytes.max(self.eager_bytes_min);
        if sizes.can_get() && config.eager_bytes == 4096 {
            // The limits are those of the pairs.
            config.eager_bytes = 1 << 20;
        }
        let receives_own_messages_at_once =
            loopback.is_some() && config.events_per_progress > EVENTS_AT_ONCE_MAX;
        // A process that can get reaches the others by a network, and the others by the transport that is inlined.
        let transports = match sizes.can_get() {
            true => Transports::new(loopback, None, vec![Box::new(btl)]),
            false => Transports::new(loopback, Some(btl), Vec::new()),
        };
        let mut engine =
            Engine::with_config(transports, runtime, config).expect("the launcher takes every card");
        if let Some(detection) = &self.detection {
            engine.detect_failures(self.clock.now(), detection.config).expect("there is memory");
        }
        Process {
            mpi: Mpi::new(engine),
            number: rank,
            rank: Rank(rank),
            size: self.ranks.len() as u32,
            shared_random: Rc::new(RefCell::new(Random(self.seed.wrapping_add(1)))),
            own_random: Rc::new(RefCell::new(random)),
            record: Rc::clone(&self.record),
            ended_buffers: Rc::default(),
            receives_own_messages_at_once,
            killer: Rc::clone(&self.killer),
            position: Rc::clone(&self.ranks[rank as usize].position),
            calls: Rc::default(),
            network: Rc::clone(&self.network),
        }
    }

    /// Describes a job that does not end: what each rank waits for, and which messages are in flight.
    fn report(&self, why: &str) -> String {
        let mut text = format!("seed {}, step {}: {why}\n", self.seed, self.steps);
        for (rank, state) in self.ranks.iter().enumerate() {
            let (what, number) = state.position.get();
            let _ = writeln!(text, "  rank {rank}: at {what} {number}");
            if let Some(running) = &state.running {
                let _ = writeln!(text, "    {}", oracle::describe(&running.mpi));
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

/// Each rank may have its own parameters: both ends of a pair obey the limits of the other.
fn draw_config(random: &mut Random) -> Config {
    Config {
        eager_bytes: [0, 16, 200, 4096][random.below(4) as usize],
        held_bytes_max: [500, 20_000, 4 << 20][random.below(3) as usize],
        events_per_progress: 1 + random.below(64) as u32,
        streams_max: [1, 2, 1 << 10][random.below(3) as usize],
    }
}
