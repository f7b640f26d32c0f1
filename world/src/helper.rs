// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The helper thread. It exists from Init to Finalize, sleeps on the helper bell of the process, and blocks all signals.
//!
//! It makes progress while the program computes outside MPI. It is called
//!
//! * by the node daemon, after a notice;
//! * by a peer, if control messages that this process has not consumed are 100 us old, or the peer's program computes, too
//!   (`btl-shm/src/control_watch.rs`);
//! * by itself, once in each period, where ranks send heartbeats (parameter `detector`);
//! * by the watcher thread, when a descriptor of a network is readable, and by itself when it looks whether the program computes, so that
//!   descriptors must be watched ([`DescriptorSchedule`]);
//! * by this process, with its first control message after a pause: from then on the helper looks from time to time whether the control
//!   messages were consumed ([`WatchSchedule`]).
//!
//! A call is a bit in a word, which the helper takes before it acts. So a call that comes while it acts is not lost: the helper does not
//! sleep before it has taken it. If the program is in MPI, the helper does nothing: the program makes progress, or does so before it leaves
//! ([`Guard::enter_as_helper`](crate::guard::Guard::enter_as_helper)).
//!
//! When the thread that called MPI_Init ends, the helper takes over the life word. A process ends with its last thread, and the helper must
//! not prevent that. While the helper holds the life word, it counts the threads of the process periodically. If none of the program is
//! left, the helper ends the process as the last thread of the program would have.

use crate::clock;
use crate::descriptor_schedule::{DescriptorSchedule, Watched};
use crate::life::RegisteredLife;
use crate::semaphore::Semaphore;
use crate::threads;
use crate::watch_schedule::WatchSchedule;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use mend_base::{Duration, Instant};
use mend_btl_shm::ControlWatch;
use mend_segment::{BellPage, HelperCalls};
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Enough for a call of progress; 256 ranks of a node have a helper each. Only pages that are used take memory.
const STACK_BYTES: usize = 256 << 10;

/// The helper thread. Dropping this ends the thread and joins it.
#[derive(Debug)]
pub struct Helper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The helper as seen by the holder of the life word: the thread that takes the word over.
#[derive(Debug)]
pub struct Successor(Arc<Shared>);

/// Where the helper of this process sleeps: its slot in the bell page.
#[derive(Debug)]
pub struct HelperBell {
    bells: Arc<BellPage>,
    slot: u32,
}

impl HelperBell {
    /// Slot `slot` of `bells`.
    pub fn new(bells: Arc<BellPage>, slot: u32) -> Self {
        HelperBell { bells, slot }
    }
}

/// The `settle` of [`Guard::enter_as_helper`](crate::guard::Guard::enter_as_helper).
pub type Settle<'a> = &'a dyn Fn() -> bool;

/// What the helper does for its process.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// Makes progress, if the program is outside MPI.
    pub serve: fn(Settle<'_>),
    /// As `serve`, and then lets the helper be called when a descriptor of a network is readable. `None`: there are no descriptors.
    pub watch: Option<fn(Settle<'_>) -> Watched>,
    /// How many threads the library has, with the helper.
    pub own_threads: fn() -> u32,
}

#[derive(Debug)]
struct Shared {
    bell: HelperBell,
    service: Service,
    control_watch: Arc<ControlWatch>,
    /// The time between two heartbeats.
    period: Option<Duration>,
    /// Posted when the helper leaves, for the 1 ms that it lets pass.
    semaphore: Semaphore,
    leaving: AtomicBool,
    /// The life word that the helper shall take, or null; a leaked box.
    transferred: AtomicPtr<RegisteredLife>,
}

impl Helper {
    /// Starts the helper. It watches the control messages of `control_watch`, and serves once in each `period`, if there is one.
    pub fn start(
        bell: HelperBell,
        control_watch: Arc<ControlWatch>,
        period: Option<Duration>,
        service: Service,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            bell,
            service,
            control_watch,
            period,
            semaphore: Semaphore::default(),
            leaving: AtomicBool::new(false),
            transferred: AtomicPtr::new(ptr::null_mut()),
        });
        let theirs = Arc::clone(&shared);
        let thread = threads::spawn_without_signals("mend-helper", STACK_BYTES, move || theirs.run())?;
        Ok(Helper { shared, thread: Some(thread) })
    }

    /// The helper as successor of the liveness owner.
    pub fn successor(&self) -> Successor {
        Successor(Arc::clone(&self.shared))
    }

    /// Lets the helper make progress, if the program is outside MPI.
    pub fn call(&self) {
        self.shared.call(HelperCalls::SERVE);
    }
}

impl Successor {
    /// Lets the helper take the life word of `registered_life`, which no thread holds now.
    pub fn transfer(&self, registered_life: &'static RegisteredLife) {
        // SYNC: the word that was released, with `Shared::take_transferred`.
        self.0.transferred.store(ptr::from_ref(registered_life).cast_mut(), Ordering::Release);
        self.0.call(HelperCalls::LOOK);
    }
}

impl Shared {
    fn call(&self, calls: HelperCalls) {
        self.bell.bells.call_helper(self.bell.slot, calls);
    }

    fn run(&self) {
        let HelperBell { bells, slot } = &self.bell;
        let mut schedule = WatchSchedule::new();
        let mut descriptors = DescriptorSchedule::new(clock::now(), self.service.watch.is_some());
        let mut held: Option<&RegisteredLife> = None;
        let mut beat_at = self.period.map(|period| clock::now() + period);
        while !self.leaving.load(Ordering::Relaxed) {
            if held.is_some() && self.is_last_thread() {
                end_with_the_last_thread();
            }
            let now = clock::now();
            let pauses = [
                schedule.pause(now),
                held.map(|_| COUNT_PERIOD),
                beat_at.map(|due| due - now),
                descriptors.pause(now),
            ];
            bells.sleep_of_helper(*slot, pauses.into_iter().flatten().min());
            let calls = bells.take_helper_calls(*slot);
            if let Some(registered_life) = self.take_transferred() {
                registered_life.take();
                held = Some(registered_life);
            }
            let now = clock::now();
            if calls.has(HelperCalls::WATCH) {
                schedule.begin(now);
            }
            let beats = beat_at.is_some_and(|due| due <= now);
            if beats {
                beat_at = self.period.map(|period| now + period);
            }
            let is_readable = calls.has(HelperCalls::DESCRIPTOR);
            let was_served = self.look_at_descriptors(&mut descriptors, now, is_readable);
            if schedule.look(now, &self.control_watch)
                || calls.has(HelperCalls::SERVE) && !was_served
                || beats
            {
                (self.service.serve)(&|| self.settle());
            }
        }
        held.inspect(|registered_life| registered_life.release_if_held());
    }

    /// Looks, if a look is due, whether descriptors must be watched. Returns whether progress was made.
    fn look_at_descriptors(
        &self,
        schedule: &mut DescriptorSchedule,
        now: Instant,
        is_readable: bool,
    ) -> bool {
        let Some(watch) = self.service.watch.filter(|_| schedule.is_due(now, is_readable)) else {
            return false;
        };
        let watched = watch(&|| self.settle());
        schedule.on_look(clock::now(), watched);
        watched != Watched::InMpi
    }

    /// Whether all threads of the program have ended.
    fn is_last_thread(&self) -> bool {
        let own_threads = (self.service.own_threads)();
        threads::count().is_some_and(|threads| threads.first_has_ended && threads.alive == own_threads)
    }

    fn take_transferred(&self) -> Option<&'static RegisteredLife> {
        // SYNC: the word that was released, with `Successor::transfer`.
        let transferred = self.transferred.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: null, or what `Successor::transfer` was given, which is never freed.
        unsafe { transferred.as_ref() }
    }

    /// Lets 1 ms pass, in which every store becomes visible. `false`: the helper is to leave.
    fn settle(&self) -> bool {
        let begun = clock::now();
        let mut left = SETTLED;
        while left > Duration(0) {
            if self.semaphore.wait_at_most(left) {
                return false;
            }
            let passed = clock::now() - begun;
            left = Duration(SETTLED.0.saturating_sub(passed.0));
        }
        true
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.shared.leaving.store(true, Ordering::Relaxed);
        self.shared.semaphore.post();
        self.shared.call(HelperCalls::LOOK);
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked. It is ended in any case.
            let _ = thread.join();
        }
    }
}

/// The longest time that a store of the program stays in a store buffer.
const SETTLED: Duration = Duration::from_millis(1);

/// Time between two counts of the threads of the process.
const COUNT_PERIOD: Duration = Duration::from_millis(500);

/// Ends the process as the C library does when the last thread ends. Does so on another thread, because functions that the program
/// registered with `atexit` may need a larger stack than the helper has.
fn end_with_the_last_thread() {
    // SAFETY: ends the process; no thread of the program is left.
    let exit = || unsafe { libc::exit(0) };
    if let Ok(thread) = Builder::new().spawn(exit) {
        // Does not return: the process ends.
        let _ = thread.join();
    }
    // SAFETY: as above, on this thread, because no other could be started.
    unsafe { libc::exit(0) };
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Helper, HelperBell, Service, Settle};
    use crate::descriptor_schedule::Watched;
    use mend_segment::{BellPage, HelperCalls};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    fn serving(serve: fn(Settle<'_>)) -> Service {
        Service { serve, watch: None, own_threads: || 1 }
    }

    /// A helper of a process alone on its node.
    pub(crate) fn helper() -> Helper {
        let bells = Arc::new(BellPage::create(1).unwrap().0);
        Helper::start(HelperBell::new(bells, 0), Arc::default(), None, serving(|_| ())).unwrap()
    }

    #[test]
    fn the_helper_sleeps_until_it_is_dropped() {
        drop(helper());
    }

    #[test]
    fn a_helper_with_a_period_serves_without_being_called() {
        static SERVED: AtomicU32 = AtomicU32::new(0);
        let bells = Arc::new(BellPage::create(1).unwrap().0);
        let serve = serving(|_| _ = SERVED.fetch_add(1, Ordering::SeqCst));
        let period = Some(mend_base::Duration::from_millis(1));
        let helper = Helper::start(HelperBell::new(bells, 0), Arc::default(), period, serve).unwrap();
        while SERVED.load(Ordering::SeqCst) < 3 {
            std::thread::yield_now();
        }
        drop(helper);
    }

    #[test]
    fn each_call_is_served_and_a_helper_that_leaves_does_not_wait_1_ms() {
        static SERVED: AtomicU32 = AtomicU32::new(0);
        static GAVE_UP: AtomicU32 = AtomicU32::new(0);
        let bells = Arc::new(BellPage::create(1).unwrap().0);
        let serve = serving(|settle| {
            SERVED.fetch_add(1, Ordering::SeqCst);
            while settle() {
                // As long as the helper may stay: until it is dropped, from the third call on.
                if SERVED.load(Ordering::SeqCst) < 3 {
                    return;
                }
            }
            GAVE_UP.fetch_add(1, Ordering::SeqCst);
        });
        let helper = Helper::start(HelperBell::new(bells, 0), Arc::default(), None, serve).unwrap();
        for call in 1..=3 {
            helper.call();
            while SERVED.load(Ordering::SeqCst) < call {
                std::thread::yield_now();
            }
        }
        drop(helper);
        assert_eq!((SERVED.load(Ordering::SeqCst), GAVE_UP.load(Ordering::SeqCst)), (3, 1));
    }

    #[test]
    fn a_helper_with_descriptors_looks_until_the_program_computes_and_then_at_each_call() {
        static LOOKS: AtomicU32 = AtomicU32::new(0);
        static COMPUTES: AtomicBool = AtomicBool::new(false);
        let watch = |_: Settle<'_>| {
            LOOKS.fetch_add(1, Ordering::SeqCst);
            if COMPUTES.load(Ordering::SeqCst) { Watched::Armed { events: true } } else { Watched::InMpi }
        };
        let bells = Arc::new(BellPage::create(1).unwrap().0);
        let service = Service { watch: Some(watch), ..serving(|_| ()) };
        let bell = HelperBell::new(Arc::clone(&bells), 0);
        let helper = Helper::start(bell, Arc::default(), None, service).unwrap();
        let wait_for = |looks| {
            while LOOKS.load(Ordering::SeqCst) < looks {
                std::thread::yield_now();
            }
        };
        wait_for(3);
        COMPUTES.store(true, Ordering::SeqCst);
        // The look after the next one saw the change.
        let seen = LOOKS.load(Ordering::SeqCst);
        wait_for(seen + 1);
        for _ in 0..20 {
            let seen = LOOKS.load(Ordering::SeqCst);
            bells.call_helper(0, HelperCalls::DESCRIPTOR);
            wait_for(seen + 1);
        }
        drop(helper);
    }
}
