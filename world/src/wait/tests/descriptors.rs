// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sleeps on descriptors, with a network that is a pipe, and the helper thread that watches it.

use super::{CountingEngine, Guarded, Progress, QUEUES, Sent, WaitState, wait};
use crate::descriptor_schedule::Watched;
use crate::guard::{Guard, Threads};
use crate::helper::{Helper, HelperBell, Service, Settle};
use crate::sleep_slot::{SleepSet, SleepSlot, SleepSpan};
use crate::spin_policy::SpinLimits;
use crate::wait::{serve_as_helper, serve_before_leaving, unlock_and_notify, watch_as_helper};
use crate::wait_timing::ClockPace;
use mend_base::Duration;
use mend_segment::BellPage;
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A process with a network.
struct Process {
    sent: Sent,
    guard: Guard<Guarded<CountingEngine>>,
    waiting: WaitState,
    bells: Arc<BellPage>,
    network: OwnedFd,
    notices: OwnedFd,
    /// How many events its progress had.
    events: Arc<AtomicU64>,
}

/// How often a sleeper may find an event by itself: it may be off its processor when it should be woken.
const LATE_WAKES_MAX: u64 = 10;

const MESSAGES: u64 = 100;

impl Process {
    /// `rings`: there is shared memory, too.
    fn new(threads: Threads, rings: bool) -> Self {
        Self::spinning(threads, rings, Duration(0))
    }

    /// A thread that waits polls for so long before it sleeps.
    fn spinning(threads: Threads, rings: bool, spin: Duration) -> Self {
        let sent = Sent::new([const { AtomicU64::new(0) }; QUEUES]);
        let bells = Arc::new(BellPage::create(2).unwrap().0);
        let waiting = WaitState::new(SleepSlot::new(Arc::clone(&bells), 0));
        let (read, network) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let (notice_read, notices) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let engine = CountingEngine {
            rings,
            network: Some(read),
            notices: Some(notice_read),
            ..CountingEngine::new(&sent)
        };
        let events = Arc::clone(&engine.events);
        let limits = SpinLimits { spin, yielding: Duration(0) };
        let guarded = Guarded::new(engine, limits, ClockPace::NETWORKS, &waiting);
        let guard = Guard::new(threads, guarded, serve_before_leaving);
        Process { sent, guard, waiting, bells, network, notices, events }
    }

    /// Sends a message to queue `at` by the network.
    fn send(&self, at: usize) {
        self.sent[at].fetch_add(1, Ordering::SeqCst);
        rustix::io::write(&self.network, b"x").unwrap();
    }

    fn receive(&self, at: usize) {
        wait(&self.guard, &self.waiting, |engine| engine.take(at));
    }

    fn sleeps(&self) -> u64 {
        self.guard.enter().statistics().sleeps
    }

    fn late_wakes(&self) -> u64 {
        self.guard.enter().statistics().late_wakes
    }

    fn fired(&self) -> u64 {
        self.waiting.sleep_slot.descriptor_watch().fired()
    }

    /// Receives so many messages, each of which `send` sends while the receiver sleeps.
    fn receive_asleep(&self, send: impl Fn(&Self)) {
        std::thread::scope(|scope| {
            scope.spawn(|| (0..MESSAGES).for_each(|_| self.receive(0)));
            for _ in 0..MESSAGES {
                let received = self.sent[0].load(Ordering::SeqCst);
                while self.guard.enter().engine.taken[0] < received {
                    std::thread::yield_now();
                }
                let seen = self.sleeps();
                while !self.guard.enter().asleep {
                    std::thread::yield_now();
                }
                assert!(self.sleeps() >= seen);
                send(self);
            }
        });
    }
}

#[test]
fn a_process_without_sleep_word_is_woken_by_its_network_and_needs_no_watcher() {
    let process = Process::new(Threads::Multiple, false);
    process.receive_asleep(|process| process.send(0));
    assert!(process.late_wakes() <= LATE_WAKES_MAX, "{} late wakes", process.late_wakes());
    assert_eq!(process.waiting.watcher_threads(), 0);
}

#[test]
fn a_process_with_both_is_woken_by_its_network_and_by_its_sleep_word() {
    let process = Process::new(Threads::Multiple, true);
    process.receive_asleep(|process| process.send(0));
    assert!(process.late_wakes() <= LATE_WAKES_MAX, "{} late wakes", process.late_wakes());
    let fired = process.fired();
    assert!(
        (MESSAGES / 2..=MESSAGES).contains(&fired),
        "the watcher has found a readable descriptor {fired} times"
    );
    process.receive_asleep(|process| {
        process.sent[0].fetch_add(1, Ordering::SeqCst);
        process.bells.ring_bell(0, 1);
    });
    assert!(process.late_wakes() <= 2 * LATE_WAKES_MAX, "{} late wakes", process.late_wakes());
    assert!(process.fired() <= fired + 1);
}

#[test]
fn a_sleeper_on_descriptors_is_woken_by_an_operation_of_another_thread() {
    for rings in [false, true] {
        let process = Process::new(Threads::Multiple, rings);
        process.receive_asleep(|process| {
            let guarded = process.guard.enter();
            guarded.engine.sent[0].fetch_add(1, Ordering::SeqCst);
            unlock_and_notify(guarded, &process.waiting);
        });
        assert!(process.late_wakes() <= LATE_WAKES_MAX, "{} late wakes", process.late_wakes());
    }
}

#[test]
fn a_sleeper_on_descriptors_is_woken_for_notices() {
    let process = Process::new(Threads::Multiple, false);
    process.receive_asleep(|process| {
        // The engine takes the notice in progress, whose event is the message.
        process.sent[0].fetch_add(1, Ordering::SeqCst);
        rustix::io::write(&process.notices, b"n").unwrap();
        while process.sent[0].load(Ordering::SeqCst) > process.guard.enter().engine.taken[0] {
            std::thread::yield_now();
        }
        let guarded = process.guard.enter();
        let notices = guarded.engine.notices.as_ref().unwrap();
        rustix::io::read(notices, &mut [0; 8]).unwrap();
    });
    assert!(process.late_wakes() <= LATE_WAKES_MAX, "{} late wakes", process.late_wakes());
}

#[test]
fn threads_that_take_progress_from_each_other_on_descriptors_all_get_their_messages() {
    let process = Process::new(Threads::Multiple, false);
    std::thread::scope(|scope| {
        let process = &process;
        for at in 0..6 {
            scope.spawn(move || (0..50).for_each(|_| process.receive(at)));
        }
        for message in 0..300 {
            process.send(message % 6);
        }
    });
}

#[test]
fn a_descriptor_that_is_readable_without_an_event_does_not_make_the_process_poll_again() {
    let process = Process::spinning(Threads::Multiple, false, Duration::from_millis(20));
    let calls = || process.guard.enter().engine.calls;
    std::thread::scope(|scope| {
        scope.spawn(|| process.receive(0));
        while !process.guard.enter().asleep {
            std::thread::yield_now();
        }
        let before = calls();
        for _ in 0..20 {
            let seen = calls();
            rustix::io::write(&process.network, b"?").unwrap();
            while calls() == seen || !process.guard.enter().asleep {
                std::thread::yield_now();
            }
        }
        // Some are those of timed looks. To poll for 20 ms takes thousands.
        let calls = calls() - before;
        process.send(0);
        assert!(calls <= 500, "{calls} calls of progress");
    });
}

#[test]
fn a_device_without_descriptor_lets_the_process_sleep_for_a_millisecond_at_first_and_for_eight_at_last() {
    let slot = SleepSlot::new(Arc::new(BellPage::create(1).unwrap().0), 0);
    let mut set = SleepSet::default();
    set.wake.must_poll = true;
    let mut sleep = slot.begin(slot.announce(), &set, SleepSpan::FIRST);
    (0..20).for_each(|_| _ = slot.sleep(&mut sleep, &mut set));
    assert_eq!(sleep.span(), SleepSpan::FIRST);
    (0..300).for_each(|_| _ = slot.sleep(&mut sleep, &mut set));
    assert_eq!(sleep.span(), SleepSpan::FIRST.next().next().next());
}

/// A process with a helper thread. A static, as the helper is given functions without data.
static SERVED: OnceLock<Process> = OnceLock::new();

fn served() -> &'static Process {
    SERVED.get_or_init(|| Process::new(Threads::Serialized, false))
}

fn watch(settle: Settle<'_>) -> Watched {
    let process = served();
    let mut watched = Watched::InMpi;
    if process.guard.seems_outside() {
        process.guard.enter_as_helper(settle, |guarded| watched = watch_as_helper(guarded, &process.waiting));
    }
    watched
}

#[test]
fn the_helper_serves_the_network_of_a_program_that_computes_and_leaves_one_in_mpi_alone() {
    let process = served();
    let serve = |settle: Settle<'_>| _ = served().guard.enter_as_helper(settle, serve_as_helper);
    let service = Service { serve, watch: Some(watch), own_threads: || 2 };
    let helper =
        Helper::start(HelperBell::new(Arc::clone(&process.bells), 0), Arc::default(), None, service).unwrap();
    // The program computes, and calls nothing.
    let computes_until_served = || {
        let before = process.events.load(Ordering::SeqCst);
        process.send(1);
        while process.events.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
    };
    (0..20).for_each(|_| computes_until_served());
    // The program communicates: its own progress takes the messages.
    let fired = process.fired();
    for _ in 0..10_000 {
        process.send(0);
        let mut guarded = process.guard.enter();
        while guarded.engine.take(0).is_none() {
            guarded.engine.progress(mend_base::Instant(0));
        }
    }
    let wakes = process.fired() - fired;
    assert!(wakes < 500, "{wakes} wakes for 10000 messages of a program in MPI");
    computes_until_served();
    drop(helper);
}
