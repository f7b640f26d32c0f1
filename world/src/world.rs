// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one engine of this process: which transports and which runtime it uses, and how it starts and ends.

use crate::clock;
use crate::descriptor_schedule::Watched;
use crate::fork;
use crate::guard::{CriticalSection, Guard, Threads};
use crate::helper::{Helper, HelperBell, Service, Settle};
use crate::life::{self, RegisteredLife};
use crate::parameters::DECLARED;
use crate::polling::poll_then_post;
use crate::processors;
use crate::sleep_slot::SleepSlot;
use crate::spin_policy::SpinLimits;
use crate::statistics::Statistics;
use crate::threads;
use crate::transport_report::{self, ChosenTransports};
use crate::transports::{self, NoTransport, Transports};
use crate::wait::{self, Guarded, Progress, StartResult, WaitState};
use crate::wait_timing::ClockPace;
use core::mem::ManuallyDrop;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use mend_base::parameter::{Assignments, ParameterError, Settings};
use mend_base::{Duration, Instant, Source, TagSelector};
use mend_btl_shm::Shm;
use mend_comm::Group;
use mend_datatype::TypedBuffer;
use mend_mpi::{
    BlockingOperation, CommKey, Framework, JobNotice, PublishedGroups, SelectionError, SleeperId, Started,
    Status,
};
use mend_runtime::environment::InitialErrorHandler;
use mend_runtime::settings::{self, SettingsError};
use mend_runtime::transport_view::TransportView;
use mend_runtime::{AnyRuntime, EmergencyChannel, Launched, Runtime, exit_code};
use mend_segment::{BellPage, Life};
use mend_transport::{Bml, EventPending, Loopback, WakeSet};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// The transports of this process: loopback, shared memory, and networks.
pub type Net = Bml<Loopback, Shm>;

/// The engine of this process.
pub type Engine = mend_mpi::Engine<Net, AnyRuntime>;

/// What a process has between Init and Finalize: the engine behind its guard, how threads wait, and the helper thread.
pub struct World {
    guard: Guard<Guarded<Engine>>,
    waiting: WaitState,
    settings: Settings,
    unknown_parameters: Vec<ParameterError>,
    chosen_transports: ChosenTransports,
    rank: u32,
    error_handler: InitialErrorHandler,
    launched: bool,
    emergency_channel: Option<EmergencyChannel>,
    groups: Arc<PublishedGroups>,
    job_size: u32,
    helper: Mutex<Option<Helper>>,
    /// The life word of this process; `None` for a singleton, and where the system refuses memory files.
    registered_life: Option<&'static RegisteredLife>,
}

/// The stage of this process. Stages follow each other in this order, and none comes again (MPI-5.0 §11.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// `MPI_Init` was not called.
    Before,
    /// `MPI_Init` is complete, and `MPI_Finalize` is not.
    Running,
    /// `MPI_Finalize` is complete.
    After,
    /// This process was forked from one in stage `Running`. It cannot use MPI.
    Forked,
}

/// Which processes an abort ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AbortScope {
    /// All processes of the job.
    Job,
    /// The members of this communicator; all processes of the job, if the communicator does not exist.
    Members(CommKey),
    /// This process only. The others go on, and see that this one has failed.
    ThisProcess,
}

impl AbortScope {
    fn end(self, engine: &mut Engine, code: i32) {
        let done = match self {
            AbortScope::Job => Err(()),
            AbortScope::Members(comm) => engine.abort_members(comm, code).map_err(|_| ()),
            AbortScope::ThisProcess => {
                engine.abort_alone(code);
                Ok(())
            }
        };
        if done.is_err() {
            engine.abort(code);
        }
    }
}

/// The one [`World`]; null outside [`Stage::Running`].
static WORLD: AtomicPtr<World> = AtomicPtr::new(ptr::null_mut());

/// 0 before the world was made, 1 after that, 2 after Finalize.
static STAGE: AtomicU8 = AtomicU8::new(0);

/// The stage of this process.
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

/// The values of all parameters in this process, and an error for each `MEND_` variable that is no parameter. `command_line` is what
/// `mpiexec --mca` was given.
pub fn settings_from_environment(
    command_line: &Assignments,
) -> Result<(Settings, Vec<ParameterError>), SettingsError> {
    settings::from_environment(DECLARED, command_line)
}

/// The world; `None` outside [`Stage::Running`].
#[inline]
pub fn get() -> Option<&'static World> {
    // SYNC: the complete world, with start
    let world = WORLD.load(Ordering::Acquire);
    // SAFETY: null, or the leaked box that `start` stored, which is never freed.
    unsafe { world.as_ref() }
}

/// Makes the world: `MPI_Init`. Once in the life of a process. Communicates with no other rank.
pub fn start(threads: Threads) -> Result<&'static World, InitError> {
    if stage() != Stage::Before {
        return Err(InitError::Again);
    }
    let world: &'static World = Box::leak(Box::new(World::make(threads)?));
    // SYNC: the complete world, with get
    WORLD.store(ptr::from_ref(world).cast_mut(), Ordering::Release);
    STAGE.store(1, Ordering::Release);
    // Until now the helper thread found no world, so it has served no call.
    if let Some(helper) = world.helper.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
        helper.call();
    }
    fork::register_handler();
    Ok(world)
}

/// Removes the world in a forked child, since it is the parent's. Returns whether there was one.
pub(crate) fn clear_in_child() -> bool {
    !WORLD.swap(ptr::null_mut(), Ordering::Relaxed).is_null()
}

/// Why `MPI_Init` failed.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// MPI was initialized before in this process.
    #[error("E-INIT-001: MPI can be initialized once in the life of a process")]
    Again,
    /// A parameter has an invalid value.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The process could not join its job.
    #[error(transparent)]
    Runtime(#[from] mend_runtime::StartError),
    /// The memory of this process that the node shares could not be made.
    #[error("E-INIT-005: {0}")]
    Segment(#[from] mend_segment::SegmentError),
    /// Without shared memory this process reaches no other.
    #[error(transparent)]
    Transports(#[from] NoTransport),
    /// The engine could not be made.
    #[error(transparent)]
    Engine(#[from] mend_mpi::EngineStartError),
    /// The helper thread could not be started.
    #[error(
        "E-INIT-002: the helper thread could not be started: {0}; raise the limit on threads (ulimit -u)"
    )]
    Helper(std::io::Error),
    /// No thread-specific key is left for the life word.
    #[error(
        "E-INIT-004: no thread-specific key is left for this process: {0}; the program, or a library, takes them all"
    )]
    Key(std::io::Error),
    /// The parameters of collective components leave no usable choice.
    #[error(transparent)]
    Collectives(#[from] SelectionError),
}

impl World {
    fn make(threads: Threads) -> Result<World, InitError> {
        let Launched { runtime, data } = mend_runtime::connect_from_environment()?;
        let (settings, unknown_parameters) = settings_from_environment(&data.settings)?;
        let framework = Framework::new(&settings, runtime.membership().fault_tolerant)?;
        let launched = matches!(runtime, AnyRuntime::Daemon(_));
        let emergency_channel = runtime.emergency_channel();
        let local_ranks = runtime.membership().local_ranks;
        let (bells, slot) = (data.bells.map(Arc::new), data.node_slot);
        let Transports { own, shm, networks, chosen } =
            transports::make(&settings, runtime.membership(), bells.as_ref())?;
        // Before `Engine::new`, which publishes the card: from then on others watch the life word.
        let life = data.life;
        let control_watch = shm.as_ref().map(Shm::control_watch).unwrap_or_default();
        life.as_ref().map_or(Ok(()), Life::begin)?;
        let (job_size, rank) = (runtime.membership().size, runtime.membership().peer.number());
        // Without a bell page of the node, notices come through a descriptor alone.
        let has_networks = !networks.is_empty();
        let has_descriptors = has_networks || launched && bells.is_none();
        let watch = has_descriptors.then_some(watch_as_helper as fn(Settle<'_>) -> Watched);
        let service = Service { serve: serve_as_helper, watch, own_threads };
        let transports = Bml::new(own, shm, networks);
        let mut engine = Engine::new(clock::now(), transports, runtime, framework, &settings)?;
        let beats = engine.detector_config().map(|config| config.period);
        let groups = engine.published_groups();
        let hang_report_s = settings.number("hang_report_s");
        engine.report_calls_after((hang_report_s > 0).then(|| Duration::from_millis(1_000 * hang_report_s)));
        let (helper_bell, sleep_slot) = places_to_sleep(bells, slot)?;
        let helper = Helper::start(helper_bell, control_watch, beats, service).map_err(InitError::Helper)?;
        let registered_life =
            life.map(|life| life::register(life, helper.successor())).transpose().map_err(InitError::Key)?;
        let waiting = WaitState::new(sleep_slot);
        let limits = spin_limits(&settings, local_ranks);
        let pace = if has_networks { ClockPace::NETWORKS } else { ClockPace::MEMORY };
        let guarded = Guarded::new(engine, limits, pace, &waiting);
        Ok(World {
            guard: Guard::new(threads, guarded, wait::serve_before_leaving),
            waiting,
            settings,
            unknown_parameters,
            chosen_transports: chosen,
            rank,
            error_handler: data.error_handler,
            launched,
            emergency_channel,
            groups,
            job_size,
            helper: Mutex::new(Some(helper)),
            registered_life,
        })
    }

    // Hot: per message.
    /// Runs `work` on the engine, while no other thread accesses it, and wakes waiting threads that the work concerns.
    #[inline(always)]
    pub fn with<R>(&self, work: impl FnOnce(&mut Engine) -> R) -> R {
        let mut guarded = self.guard.enter();
        let result = work(&mut guarded.engine);
        wait::unlock_and_notify(guarded, &self.waiting);
        result
    }

    /// Runs `work` on the engine, which it cannot change, while no other thread accesses it. Wakes no waiting thread.
    pub fn inspect<R>(&self, work: impl FnOnce(&Engine) -> R) -> R {
        work(&self.guard.enter().engine)
    }

    /// As [`with`](World::with), after one call of progress: for calls that test without waiting, such as `MPI_Test` and `MPI_Iprobe`.
    pub fn with_progress<R>(&self, work: impl FnOnce(&mut Engine) -> R) -> R {
        wait::progress_once(&self.guard, &self.waiting, work)
    }

    // Hot: per message.
    /// Waits until `poll` returns a result, and makes progress meanwhile.
    pub fn wait<R>(&self, poll: impl FnMut(&mut Engine) -> Option<R>) -> R {
        wait::wait(&self.guard, &self.waiting, poll)
    }

    // Hot: per message.
    /// Starts a call, and waits until it is complete, with one entry of the guard.
    #[inline(always)]
    pub fn start_and_wait<R, W>(
        &self,
        start: impl FnOnce(&mut Engine) -> StartResult<R, W>,
        poll: impl FnMut(&mut W, &mut Engine) -> Option<R>,
    ) -> R {
        wait::start_and_wait(&self.guard, &self.waiting, start, poll)
    }

    // Hot: per message.
    /// A blocking receive: polls the ring of the sender for some 2 us, or once if another rank waits for this processor, then posts the
    /// receive and waits for it. `comm` gives the communicator, `data` the buffer.
    #[inline(always)]
    pub fn receive<F: From<mend_mpi::Error>>(
        &self,
        comm: impl FnOnce(&Engine) -> Result<CommKey, F>,
        from: Source,
        tag: TagSelector,
        data: impl FnOnce(&Engine) -> Result<TypedBuffer, F>,
    ) -> Result<Status, F> {
        let start = |engine: &mut Engine, polls: u32| {
            let started = comm(engine).and_then(|comm| {
                let data = data(engine)?;
                let started = poll_then_post(engine, comm, from, tag, data, polls)?;
                if let Started::Running(_) = started {
                    engine.expect_from(comm, from);
                }
                Ok(started)
            });
            match started {
                Err(error) => StartResult::Complete(Err(error)),
                Ok(Started::Done(status)) => StartResult::Complete(Ok(status)),
                Ok(Started::Running(request)) => StartResult::Incomplete(BlockingOperation::new(request)),
            }
        };
        wait::start_and_wait_polling(
            &self.guard,
            &self.waiting,
            start,
            |blocking: &mut BlockingOperation, engine| {
                blocking.poll(engine, || self.program_threads()).map(|result| result.map_err(F::from))
            },
        )
    }

    /// How many threads of the program could start an operation, with the calling one, whose wait is unsatisfiable; `None`: not known. Other
    /// threads in such waits do not count, and the calling one counts as one of them from now on. With `MPI_THREAD_MULTIPLE` it reads a
    /// file of /proc, so it is only for calls that would otherwise wait for ever. Called in the guard.
    #[cold]
    pub fn program_threads(&self) -> Option<u32> {
        let unsatisfiable = self.waiting.unsatisfiable();
        let threads = self.threads_that_may_start(|| unsatisfiable.begin())?;
        if threads == 1 {
            // The wait ends, and this thread may send what another one waits for.
            unsatisfiable.end();
        }
        Some(threads)
    }

    /// The same for a calling thread whose wait others can end: an agreement ends when its other members have called, and this thread may
    /// then send what an unsatisfiable wait needs.
    #[cold]
    fn threads_beside_unsatisfiable(&self) -> Option<u32> {
        self.threads_that_may_start(|| self.waiting.unsatisfiable().others())
    }

    /// `others`: the number of other threads that start nothing.
    fn threads_that_may_start(&self, others: impl FnOnce() -> u32) -> Option<u32> {
        if self.guard.is_serialized() {
            return Some(1);
        }
        let alive = threads::count()?.alive.saturating_sub(own_threads());
        Some(alive.saturating_sub(others()))
    }

    /// `MPI_Finalize`: returns when this process has nothing left that another process waits for. From then on, [`get`] returns `None`.
    pub fn finish(&self) {
        // Nothing may make progress after the engine has finished, and until then this thread does.
        self.guard.enter().end_turns();
        let mut own_view = None;
        self.wait(|engine| {
            let last = |net: &Net, runtime: &mut AnyRuntime| own_view = self.report_transports(net, runtime);
            engine.finish_after(last).then_some(())
        });
        if self.settings.has_word("report", "statistics") {
            eprintln!("mend: {}", self.statistics());
        }
        if let Some(view) = own_view {
            let lines = transport_report::own_lines(self.rank, self.job_size, view);
            // An error means that stderr is closed.
            let _ = std::io::stderr().write_all(lines.as_bytes());
        }
        self.waiting.end();
        self.registered_life.inspect(|registered_life| registered_life.end());
        WORLD.store(ptr::null_mut(), Ordering::Release);
        STAGE.store(2, Ordering::Release);
        drop(self.helper.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// `MPI_Abort` and fatal error handlers: asks the node daemon to end the processes in `scope`, and ends this process if it still lives
    /// after [`ABORT_GRACE`].
    ///
    /// May be called from a signal handler. With the emergency channel, [`AbortScope::Job`] and [`AbortScope::ThisProcess`] take
    /// no lock, allocate nothing and do not use the engine, and so does [`AbortScope::Members`] for a communicator whose handle is valid,
    /// by the published groups. For one that was freed, whose requests the engine alone knows, the whole job is ended if the handler
    /// interrupted this thread in the critical section. A process that had no descriptor left for the emergency channel asks through the
    /// engine, whatever the scope: if it cannot enter the guard, it ends itself alone.
    pub fn abort(&self, scope: AbortScope, code: i32) -> ! {
        let deadline = clock::now() + ABORT_GRACE;
        // Without a node daemon there are no other processes to end.
        let asked = self.launched
            && match &self.emergency_channel {
                Some(channel) => self.request_end(channel, scope, code, deadline),
                None => self.request_end_by_engine(scope, code, deadline),
            };
        // The node daemon kills this process, also while it polls. If the node daemon is gone, this process ends itself.
        while asked && clock::now() < deadline {
            std::thread::yield_now();
        }
        exit_process(code)
    }

    fn request_end(
        &self,
        channel: &EmergencyChannel,
        scope: AbortScope,
        code: i32,
        deadline: Instant,
    ) -> bool {
        let comm = match scope {
            AbortScope::Job => return channel.abort(code),
            AbortScope::ThisProcess => return channel.abort_alone(code),
            AbortScope::Members(comm) => comm,
        };
        let end = |group: &Group| match group.size() {
            size if size == self.job_size => channel.abort(code),
            _ => channel.abort_some(code, group.iter()),
        };
        // To drop the group could free memory, with the allocator interrupted.
        if let Some(group) = self.groups.find(comm).map(ManuallyDrop::new) {
            return end(&group);
        }
        let guarded = self.enter_to_abort(scope, deadline);
        match guarded.as_ref().and_then(|guarded| guarded.engine.members(comm)) {
            Some(group) => end(group),
            None => channel.abort(code),
        }
    }

    /// For a process that had no descriptor left for the emergency channel. False: the guard could not be entered, and nothing
    /// was asked.
    fn request_end_by_engine(&self, scope: AbortScope, code: i32, deadline: Instant) -> bool {
        self.enter_to_abort(scope, deadline).map(|mut guarded| scope.end(&mut guarded.engine, code)).is_some()
    }

    /// Enters the guard if no thread holds it. If the helper thread holds it, waits until `deadline`; if another thread of the program may
    /// hold it, too, but only for the members of a communicator. The guard is not left again: to wake the threads that wait for it takes a lock, which the interrupted thread may hold.
    fn enter_to_abort(
        &self,
        scope: AbortScope,
        deadline: Instant,
    ) -> Option<ManuallyDrop<CriticalSection<'_, Guarded<Engine>>>> {
        loop {
            if let Some(guarded) = self.guard.try_enter() {
                return Some(ManuallyDrop::new(guarded));
            }
            let may_be_left = if self.guard.is_serialized() {
                self.guard.is_held_by_helper()
            } else {
                matches!(scope, AbortScope::Members(_))
            };
            if !may_be_left || clock::now() > deadline {
                return None;
            }
            std::thread::yield_now();
        }
    }

    /// The values of all parameters.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// An error for each `MEND_` variable that is no parameter.
    pub fn unknown_parameters(&self) -> &[ParameterError] {
        &self.unknown_parameters
    }

    /// Tells the node daemon by which transports this process has reached others, if the user asks for it. Without a node daemon: what this
    /// process has to print itself.
    fn report_transports(&self, net: &Net, runtime: &mut AnyRuntime) -> Option<TransportView> {
        if !self.settings.has_word("report", "transports") {
            return None;
        }
        let view = transport_report::view(self.job_size, net.connections(), &self.chosen_transports);
        if !self.launched {
            return Some(view);
        }
        runtime.report_transports(&view);
        None
    }

    /// The initial error handler of the program.
    pub fn initial_error_handler(&self) -> InitialErrorHandler {
        self.error_handler
    }

    /// The counts of waiting since Init.
    pub fn statistics(&self) -> Statistics {
        self.guard.enter().statistics()
    }
}

/// Where the helper thread and the other threads of this process sleep: in its slot of the node's bell page, or, without one, in a page
/// of its own.
fn places_to_sleep(bells: Option<Arc<BellPage>>, slot: u32) -> Result<(HelperBell, SleepSlot), InitError> {
    Ok(match bells {
        Some(bells) => (HelperBell::new(Arc::clone(&bells), slot), SleepSlot::new(bells, slot)),
        None => {
            let own = Arc::new(BellPage::of_one_process(1)?);
            (HelperBell::new(Arc::clone(&own), 0), SleepSlot::of_one_process(own, 0))
        }
    })
}

/// What the helper thread does when it is called. `settle`: as of [`Guard::enter_as_helper`].
fn serve_as_helper(settle: Settle<'_>) {
    if let Some(world) = get() {
        world.guard.enter_as_helper(settle, wait::serve_as_helper);
    }
}

/// As [`serve_as_helper`], for the descriptors of networks. A program in MPI is not disturbed.
fn watch_as_helper(settle: Settle<'_>) -> Watched {
    let mut watched = Watched::InMpi;
    if let Some(world) = get().filter(|world| world.guard.seems_outside()) {
        world.guard.enter_as_helper(settle, |guarded| {
            watched = wait::watch_as_helper(guarded, &world.waiting);
        });
    }
    watched
}

/// Threads of the process that this library started: the helper, and the watcher of descriptors.
fn own_threads() -> u32 {
    1 + get().map_or(0, |world| world.waiting.watcher_threads())
}

/// How long a process that aborts waits to be killed by the node daemon.
const ABORT_GRACE: Duration = Duration::from_millis(5_000);

/// Ends this process if its job was aborted or its node daemon is gone (Rule 7).
#[cold]
fn end_with_the_job(engine: &mut Engine) {
    let pid = std::process::id();
    let (why, code) = match engine.next_job_notice() {
        None => return,
        Some(JobNotice::Aborted { code }) => (
            format!(
                "the job of this process (pid {pid}) has been ended, or its mpiexec is gone; this process ends with it. Look at \
                 mpiexec's own messages [E-JOB-020]"
            ),
            code,
        ),
        Some(JobNotice::Fenced) => (
            format!(
                "no other rank has heard this process (pid {pid}) for longer than its lease, so they may have declared that it has \
                 failed; it ends. Was it stopped, or without a processor? detector.lease_timeouts makes the lease longer [E-JOB-021]"
            ),
            FENCED,
        ),
    };
    // An error means that stderr is closed.
    let _ = writeln!(std::io::stderr(), "mend: {why}");
    exit_process(code)
}

/// The exit code of a process that has fenced itself.
const FENCED: i32 = 1;

/// Ends this process at once, with the exit code of an error.
pub fn exit_process(code: i32) -> ! {
    exit_process_with(exit_code(code))
}

/// Ends this process at once, with this exit code.
pub fn exit_process_with(code: u8) -> ! {
    // SAFETY: ends the process without exit functions of the program, which may have been interrupted at any point.
    unsafe { libc::_exit(i32::from(code)) }
}

/// With more ranks than processors, waiting threads yield without polling.
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
        // A process that was stopped must see first that its lease has ended.
        let now = if self.detects_failures() { clock::now() } else { now };
        let events = Engine::progress(self, now);
        if events > 0 && self.has_job_notices() {
            end_with_the_job(self);
        }
        events
    }

    fn check(&mut self) {
        Engine::check(self);
    }

    fn answer_where(&mut self, place: &'static str) {
        Engine::answer_where(self, place);
    }

    fn begin_look(&mut self) {
        Engine::begin_look(self);
    }

    fn end_look(&mut self, is_waiting: bool, now: Instant) {
        Engine::end_look(self, is_waiting, now, || get().and_then(World::threads_beside_unsatisfiable));
    }

    fn end_wait(&mut self) {
        Engine::end_wait(self);
    }

    #[inline]
    fn is_ready(&self) -> bool {
        Engine::is_ready(self)
    }

    fn expect_any(&mut self) {
        Engine::expect_any(self);
    }

    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        Engine::arm(self, wake)
    }

    fn arm_descriptors(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        Engine::arm_descriptors(self, wake)
    }

    fn notice_descriptor(&self) -> Option<i32> {
        Engine::notice_descriptor(self)
    }

    fn disarm(&mut self) {
        Engine::disarm(self);
    }

    fn note_awaited(&mut self) {
        Engine::note_awaited(self);
    }

    fn wake_when_over(&mut self, sleeper: SleeperId) -> bool {
        Engine::wake_when_over(self, sleeper)
    }

    fn call_helpers(&mut self) {
        Engine::call_helpers(self);
    }

    fn next_to_wake(&mut self) -> Option<SleeperId> {
        Engine::next_to_wake(self)
    }

    fn notify_all_count(&self) -> u32 {
        Engine::notify_all_count(self)
    }
}
