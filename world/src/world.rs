// SPDX-License-Identifier: Apache-2.0 OR MIT
//! This process's one engine: which transports and which runtime it is made of, and its beginning and end.

use crate::clock;
use crate::fork;
use crate::guard::{Guard, Threads};
use crate::helper::Helper;
use crate::life::{self, LivenessOwner};
use crate::parameters::DECLARED;
use crate::polling::poll_then_post;
use crate::processors;
use crate::sleep_slot::SleepSlot;
use crate::spin_policy::SpinLimits;
use crate::statistics::Statistics;
use crate::threads;
use crate::wait::{self, Begun, Inside, Progress, Waiting};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use mend_base::parameter::{Assignments, ParameterError, Settings};
use mend_base::{Duration, Instant, Source, TagSelector};
use mend_btl_shm::Shm;
use mend_datatype::Typed;
use mend_mpi::{Blocking, CommKey, JobNotice, Started, Status, Waiter};
use mend_runtime::environment::InitialErrorHandler;
use mend_runtime::settings::{self, SettingsError};
use mend_runtime::{AnyRuntime, EmergencyChannel, Launched, Runtime, exit_code};
use mend_segment::Life;
use mend_transport::{Bml, Loopback, Pending, WakeSet};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// The transports of this process: oneself, the node's shared memory, and networks.
pub type Net = Bml<Loopback, Shm>;

/// The engine of this process.
pub type Engine = mend_mpi::Engine<Net, AnyRuntime>;

/// Between Init and Finalize: the engine behind its guard, and the threads that serve it.
pub struct World {
    guard: Guard<Inside<Engine>>,
    waiting: Waiting,
    settings: Settings,
    unknown_parameters: Vec<ParameterError>,
    error_handler: InitialErrorHandler,
    launched: bool,
    emergency_channel: Option<EmergencyChannel>,
    helper: Mutex<Option<Helper>>,
    /// Holds the life word, from which other processes of the node see that this one has died.
    liveness_owner: Option<&'static LivenessOwner>,
}

/// Where the process stands: before Init, between, after Finalize. Never goes back (MPI-5.0 §11.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// `MPI_Init` was not called.
    Before,
    /// Initialized and not finalized.
    Running,
    /// `MPI_Finalize` was called.
    After,
    /// Forked from a process that was running: MPI is the parent's.
    Forked,
}

/// Which processes end, when one ends itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AbortScope {
    /// The job.
    Everybody,
    /// The members of this communicator; the job, where it does not exist.
    Members(CommKey),
    /// This process; the others go on, and it has failed for them.
    Myself,
}

impl AbortScope {
    fn end(self, engine: &mut Engine, code: i32) {
        let done = match self {
            AbortScope::Everybody => Err(()),
            AbortScope::Members(comm) => engine.abort_members(comm, code).map_err(|_| ()),
            AbortScope::Myself => {
                engine.abort_alone(code);
                Ok(())
            }
        };
        if done.is_err() {
            engine.abort(code);
        }
    }
}

/// The one [`World`], null outside [`Stage::Running`]. A process has one, as MPI says; everything below is a value.
static WORLD: AtomicPtr<World> = AtomicPtr::new(ptr::null_mut());

/// 0 before Init, 1 once it began, 2 once Finalize was through.
static STAGE: AtomicU8 = AtomicU8::new(0);

/// Where the process stands.
pub fn stage() -> Stage {
    if fork::is_child() {
        return Stage::Forked;
    }
    match STAGE.load(Ordering::Acquire) {
        0 => Stage::Before,
        1 => Stage::Running,
        _ => Stage::After,
    }
}

/// The values of all parameters in this process, and `MEND_` variables that are no parameters; `command_line` is what
/// `mpiexec --mca` was given.
pub fn settings_from_environment(
    command_line: &Assignments,
) -> Result<(Settings, Vec<ParameterError>), SettingsError> {
    settings::from_environment(DECLARED, command_line)
}

/// The world, while there is one.
#[inline]
pub fn get() -> Option<&'static World> {
    // SYNC: the world as made, with start
    let world = WORLD.load(Ordering::Acquire);
    // SAFETY: null, or the leaked box that `start` stored: never freed, so the reference may live for ever.
    unsafe { world.as_ref() }
}

/// Makes the world. Once in the life of a process; collective only in that every rank does it.
pub fn start(threads: Threads) -> Result<&'static World, StartError> {
    if stage() != Stage::Before {
        return Err(StartError::Again);
    }
    let world: &'static World = Box::leak(Box::new(World::make(threads)?));
    // SYNC: the world as made, with get
    WORLD.store(ptr::from_ref(world).cast_mut(), Ordering::Release);
    STAGE.store(1, Ordering::Release);
    fork::watch();
    Ok(world)
}

/// In a forked child: the world is the parent's. `true`: there was one.
pub(crate) fn forget() -> bool {
    !WORLD.swap(ptr::null_mut(), Ordering::Relaxed).is_null()
}

/// Why `MPI_Init` failed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// MPI was initialized before in this process.
    #[error("E-INIT-001: MPI can be initialized once in the life of a process")]
    Again,
    /// The parameters.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The launcher, or its absence.
    #[error(transparent)]
    Runtime(#[from] mend_runtime::StartError),
    /// Memory shared with the node.
    #[error("E-INIT-005: {0}")]
    Segment(#[from] mend_segment::SegmentError),
    /// The shared-memory transport.
    #[error("E-INIT-005: {0}")]
    Shm(#[from] mend_btl_shm::ShmError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] mend_mpi::StartError),
    /// The helper thread.
    #[error(
        "E-INIT-002: the helper thread could not be started: {0}; raise the limit on threads (ulimit -u)"
    )]
    Helper(std::io::Error),
    /// The life word's key.
    #[error(
        "E-INIT-004: no thread-specific key is left for this process: {0}; the program, or a library, takes them all"
    )]
    Key(std::io::Error),
    /// The parameter `coll` leaves nothing to carry out collective operations.
    #[error("E-INIT-003: MEND_COLL leaves no component for collective operations; drop it, or name basic")]
    NoCollective,
}

impl World {
    fn make(threads: Threads) -> Result<World, StartError> {
        let Launched { runtime, place } = mend_runtime::connect_from_environment()?;
        let (settings, unknown_parameters) = settings_from_environment(&place.settings)?;
        if !settings.allows("coll", "basic") {
            return Err(StartError::NoCollective);
        }
        let launched = matches!(runtime, AnyRuntime::Daemon(_));
        let emergency_channel = runtime.emergency_channel();
        let local_ranks = runtime.membership().local_ranks;
        let (slot, slots) = (place.slot, place.slots);
        let bells = Arc::new(place.bells);
        let shm = if settings.allows("btl", "shm") && slots > 1 {
            let place = mend_btl_shm::NodeSlot { slot, slots, bells: Arc::clone(&bells) };
            Some(Shm::new(place, settings.number("pml.eager_bytes") as u32, &settings)?)
        } else {
            None
        };
        // Before another process can map it: our card goes with the engine.
        let life = shm.as_ref().map(Shm::life);
        life.as_ref().map_or(Ok(()), Life::begin)?;
        let own = settings.allows("btl", "self").then(|| Loopback::new(runtime.membership().peer));
        let engine = Engine::new(Bml::new(own, shm, Vec::new()), runtime, &settings)?;
        let helper = Helper::start().map_err(StartError::Helper)?;
        let liveness_owner = life
            .map(|life| life::look_after(life, helper.successor()))
            .transpose()
            .map_err(StartError::Key)?;
        let waiting = Waiting::new(SleepSlot::new(bells, slot));
        let limits = spin_limits(&settings, local_ranks);
        Ok(World {
            guard: Guard::new(threads, Inside::new(engine, limits, &waiting)),
            waiting,
            settings,
            unknown_parameters,
            error_handler: place.error_handler,
            launched,
            emergency_channel,
            helper: Mutex::new(Some(helper)),
            liveness_owner,
        })
    }

    // Hot: per message.
    /// Runs `work` on the engine while no other thread does.
    #[inline(always)]
    pub fn with<R>(&self, work: impl FnOnce(&mut Engine) -> R) -> R {
        let mut inside = self.guard.enter();
        let result = work(&mut inside.engine);
        wait::leave(inside, &self.waiting);
        result
    }

    /// The same for work that begins nothing and ends nothing: threads that wait are not disturbed.
    pub fn look<R>(&self, work: impl FnOnce(&Engine) -> R) -> R {
        work(&self.guard.enter().engine)
    }

    /// As [`with`](World::with), after one call of progress: for calls that test without waiting (Test, Iprobe).
    pub fn with_progress<R>(&self, work: impl FnOnce(&mut Engine) -> R) -> R {
        wait::progress_once(&self.guard, &self.waiting, work)
    }

    // Hot: per message.
    /// Waits until `poll` gives something, making progress meanwhile.
    pub fn wait<R>(&self, poll: impl FnMut(&mut Engine) -> Option<R>) -> R {
        wait::wait(&self.guard, &self.waiting, poll)
    }

    // Hot: per message.
    /// Begins something, and waits for it if it is not over at once, in one entry.
    #[inline(always)]
    pub fn begin<R, W>(
        &self,
        start: impl FnOnce(&mut Engine) -> Begun<R, W>,
        poll: impl FnMut(&mut W, &mut Engine) -> Option<R>,
    ) -> R {
        wait::begin(&self.guard, &self.waiting, start, poll)
    }

    // Hot: per message.
    /// Receives: polls the ring of the sender for some 2 us, or once where another rank waits for this processor, then posts the
    /// receive and waits for it. `comm` gives the communicator, `data` the buffer.
    #[inline(always)]
    pub fn receive<F: From<mend_mpi::Error>>(
        &self,
        comm: impl FnOnce(&Engine) -> Result<CommKey, F>,
        from: Source,
        tag: TagSelector,
        data: impl FnOnce(&Engine) -> Result<Typed, F>,
    ) -> Result<Status, F> {
        let start = |engine: &mut Engine, polls: u32| {
            let started = comm(engine).and_then(|comm| {
                let data = data(engine)?;
                let started = poll_then_post(engine, comm, from, tag, data, polls)?;
                if let Started::Running(_) = started {
                    engine.watch(comm, from);
                }
                Ok(started)
            });
            match started {
                Err(error) => Begun::Over(Err(error)),
                Ok(Started::Done(status)) => Begun::Over(Ok(status)),
                Ok(Started::Running(request)) => Begun::Waits(Blocking::new(request)),
            }
        };
        wait::begin_polling(&self.guard, &self.waiting, start, |blocking: &mut Blocking, engine| {
            blocking.poll(engine, || self.program_threads()).map(|result| result.map_err(F::from))
        })
    }

    /// How many threads of the program may enter; `None` where that is not known. Reads the process table where more than one
    /// may: only for calls that would wait for ever otherwise.
    #[cold]
    pub fn program_threads(&self) -> Option<u32> {
        if self.guard.is_for_one() {
            return Some(1);
        }
        threads::count().map(|threads| threads.alive.saturating_sub(OWN_THREADS))
    }

    /// `MPI_Finalize`: returns once nothing that another process waits for is left here. After it, [`get`] gives nothing.
    pub fn finish(&self) {
        self.wait(|engine| engine.finish().then_some(()));
        if self.settings.has_word("report", "statistics") {
            eprintln!("mend: {}", self.statistics());
        }
        self.waiting.end();
        self.liveness_owner.inspect(|liveness_owner| liveness_owner.end());
        WORLD.store(ptr::null_mut(), Ordering::Release);
        STAGE.store(2, Ordering::Release);
        drop(self.helper.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// `MPI_Abort`, and errors that are fatal: asks for the end of the processes in `scope`, this one among them, and ends this
    /// one if that has not come in a moment. May be called from a signal handler that interrupted this very thread
    /// inside: then the engine cannot be asked, and the job is ended, but where this process alone was meant.
    pub fn abort(&self, scope: AbortScope, code: i32) -> ! {
        let deadline = clock::now() + ABORT_GRACE;
        // The engine alone knows the members of a communicator: it is worth waiting for where another thread may be inside.
        let may_wait = !self.guard.is_for_one() && matches!(scope, AbortScope::Members(_));
        let asked = loop {
            if let Some(mut inside) = self.guard.try_enter() {
                scope.end(&mut inside.engine, code);
                break true;
            }
            if !may_wait || clock::now() > deadline {
                break self.emergency_channel.as_ref().is_some_and(|channel| match scope {
                    AbortScope::Everybody | AbortScope::Members(_) => channel.abort(code),
                    AbortScope::Myself => channel.abort_alone(code),
                });
            }
            std::thread::yield_now();
        };
        // The launcher kills us, spinning ranks included. Without one, or should it be gone, we go by ourselves.
        while asked && self.launched && clock::now() < deadline {
            std::thread::yield_now();
        }
        leave_process(code)
    }

    /// The values of all parameters.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// `MEND_` variables that no parameter has.
    pub fn unknown_parameters(&self) -> &[ParameterError] {
        &self.unknown_parameters
    }

    /// With which error handler the program begins.
    pub fn initial_error_handler(&self) -> InitialErrorHandler {
        self.error_handler
    }

    /// How waiting went.
    pub fn statistics(&self) -> Statistics {
        self.guard.enter().statistics()
    }
}

/// Threads that this library started: the helper.
const OWN_THREADS: u32 = 1;

/// How long an aborting process waits to be killed with the others.
const ABORT_GRACE: Duration = Duration::from_millis(5_000);

/// The job is being ended, or nobody is left to end it: Rule 7, no wait outlives what it waits for.
#[cold]
fn end_with_the_job(engine: &mut Engine) {
    if let Some(JobNotice::Aborted { code }) = engine.notices() {
        // An error means that nobody reads stderr any more.
        let _ = writeln!(
            std::io::stderr(),
            "mend: the job of this process (pid {}) has been ended, or its mpiexec is gone; this process ends with \
             it. Look at mpiexec's own messages [E-JOB-020]",
            std::process::id()
        );
        leave_process(code)
    }
}

/// Ends this process at once.
pub fn leave_process(code: i32) -> ! {
    // SAFETY: ends the process; runs nothing of the program's, which may have been interrupted anywhere.
    unsafe { libc::_exit(i32::from(exit_code(code))) }
}

/// With more ranks than processors nobody spins.
fn spin_limits(settings: &Settings, local_ranks: u32) -> SpinLimits {
    let oversubscribed = local_ranks > processors::usable();
    let spin_us = if oversubscribed { 0 } else { settings.number("world.spin_us") };
    SpinLimits {
        spin: Duration::from_micros(spin_us),
        yielding: Duration::from_micros(settings.number("world.yield_us")),
    }
}

impl Progress for Engine {
    #[inline]
    fn progress(&mut self, now: Instant) -> u32 {
        let events = Engine::progress(self, now);
        if events > 0 && self.has_notices() {
            end_with_the_job(self);
        }
        events
    }

    fn check(&mut self) {
        Engine::check(self);
    }

    #[inline]
    fn is_ready(&self) -> bool {
        Engine::is_ready(self)
    }

    fn unwatch(&mut self) {
        Engine::unwatch(self);
    }

    fn arm(&mut self) -> Result<(), Pending> {
        Engine::arm(self, &mut WakeSet::default())
    }

    fn disarm(&mut self) {
        Engine::disarm(self);
    }

    fn note_awaited(&mut self) {
        Engine::note_awaited(self);
    }

    fn wake_when_over(&mut self, waiter: Waiter) -> bool {
        Engine::wake_when_over(self, waiter)
    }

    fn next_ended_waiter(&mut self) -> Option<Waiter> {
        Engine::next_ended_waiter(self)
    }

    fn concerns_all(&self) -> u32 {
        Engine::concerns_all(self)
    }
}
