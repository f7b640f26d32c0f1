// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The helper thread. It exists from Init to Finalize, sleeps on the helper bell of the process, and blocks all signals.
//!
//! It makes progress while the program computes outside MPI. It is called
//!
//! * by the node daemon, after a notice;
//! * by a peer, if control messages that this process has not consumed are 100 us old, or the peer's program computes, too
//!   (`btl-shm/src/control_watch.rs`);
//! * by itself, once in each period, where ranks send heartbeats (parameter `detector`);
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
use crate::life::RegisteredLife;
use crate::semaphore::Semaphore;
use crate::threads;
use crate::watch_schedule::WatchSchedule;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use mend_base::Duration;
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

/// Makes progress, if the program is outside MPI. The argument is the `settle` of
/// [`Guard::enter_as_helper`](crate::guard::Guard::enter_as_helper).
pub type Serve = fn(settle: &dyn Fn() -> bool);

#[derive(Debug)]
struct Shared {
    bell: HelperBell,
    serve: Serve,
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
    /// Starts the helper with every signal blocked, so that signal handlers of the user run on threads of the user. It watches the
    /// control messages of `control_watch`, and serves once in each `period`, if there is one.
    pub fn start(
        bell: HelperBell,
        control_watch: Arc<ControlWatch>,
        period: Option<Duration>,
        serve: Serve,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            bell,
            serve,
            control_watch,
            period,
            semaphore: Semaphore::default(),
            leaving: AtomicBool::new(false),
            transferred: AtomicPtr::new(ptr::null_mut()),
        });
        let theirs = Arc::clone(&shared);
        let old = block_signals();
        let thread =
            Builder::new().name("mend-helper".to_owned()).stack_size(STACK_BYTES).spawn(move || theirs.run());
        restore_signals(&old);
        Ok(Helper { shared, thread: Some(thread?) })
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
        let mut held: Option<&RegisteredLife> = None;
        let mut beat_at = self.period.map(|period| clock::now() + period);
        while !self.leaving.load(Ordering::Relaxed) {
            if held.is_some() && is_last_thread() {
                end_with_the_last_thread();
            }
            let now = clock::now();
            let pauses = [schedule.pause(now), held.map(|_| COUNT_PERIOD), beat_at.map(|due| due - now)];
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
            if schedule.look(now, &self.control_watch) || calls.has(HelperCalls::SERVE) || beats {
                (self.serve)(&|| self.settle());
            }
        }
        held.inspect(|registered_life| registered_life.release_if_held());
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

/// Whether all threads of this process except the running one have ended.
fn is_last_thread() -> bool {
    threads::count().is_some_and(|threads| threads.first_has_ended && threads.alive == 1)
}

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

/// Blocks all signals for the running thread, and so for the threads that it starts. Returns the mask from before.
fn block_signals() -> libc::sigset_t {
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut old = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` writes the whole set it is given.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: `all` was filled above; `old` is written on success, and the call cannot fail with SIG_SETMASK.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr()) };
    // SAFETY: the call above has written it.
    unsafe { old.assume_init() }
}

fn restore_signals(old: &libc::sigset_t) {
    // SAFETY: `old` is a set that the kernel gave; the third argument may be null.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old, core::ptr::null_mut()) };
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Helper, HelperBell};
    use mend_segment::BellPage;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A helper of a process alone on its node.
    pub(crate) fn helper() -> Helper {
        let bells = Arc::new(BellPage::create(1).unwrap().0);
        Helper::start(HelperBell::new(bells, 0), Arc::default(), None, |_| ()).unwrap()
    }

    #[test]
    fn the_helper_sleeps_until_it_is_dropped() {
        drop(helper());
    }

    #[test]
    fn a_helper_with_a_period_serves_without_being_called() {
        static SERVED: AtomicU32 = AtomicU32::new(0);
        let bells = Arc::new(BellPage::create(1).unwrap().0);
        let serve: super::Serve = |_| _ = SERVED.fetch_add(1, Ordering::SeqCst);
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
        let serve: super::Serve = |settle| {
            SERVED.fetch_add(1, Ordering::SeqCst);
            while settle() {
                // As long as the helper may stay: until it is dropped, from the third call on.
                if SERVED.load(Ordering::SeqCst) < 3 {
                    return;
                }
            }
            GAVE_UP.fetch_add(1, Ordering::SeqCst);
        };
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
}
