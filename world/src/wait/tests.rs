// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting, with an engine whose messages are counts in boxes: each wait is for the next message of one box.

use super::{Begun, Inside, Progress, Waiting, begin, leave, progress_once, wait};
use crate::guard::{Guard, Threads};
use crate::sleep_slot::SleepSlot;
use crate::spin_policy::SpinLimits;
use core::cell::RefCell;
use mend_base::{Duration, Instant};
use mend_mpi::Waiter;
use mend_segment::BellPage;
use mend_transport::Pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BOXES: usize = 20;

/// What senders see of the boxes.
type Sent = Arc<[AtomicU64; BOXES]>;

struct Boxes {
    sent: Sent,
    arrived: [u64; BOXES],
    taken: [u64; BOXES],
    waiters: [Option<Waiter>; BOXES],
    ended: Vec<Waiter>,
    noted: RefCell<Option<Vec<usize>>>,
    concerns_all: u32,
    checks: u64,
}

impl Boxes {
    /// Takes a message of the box.
    fn take(&mut self, at: usize) -> Option<()> {
        if self.arrived[at] > self.taken[at] {
            self.taken[at] += 1;
            return Some(());
        }
        self.noted.get_mut().iter_mut().for_each(|noted| noted.push(at));
        None
    }

    fn pending(&self) -> bool {
        (0..BOXES).any(|at| self.sent[at].load(Ordering::SeqCst) != self.arrived[at])
    }
}

impl Progress for Boxes {
    fn progress(&mut self, _now: Instant) -> u32 {
        let mut events = 0;
        for at in 0..BOXES {
            let sent = self.sent[at].load(Ordering::SeqCst);
            if sent != self.arrived[at] {
                events += 1;
                self.arrived[at] = sent;
                self.ended.extend(self.waiters[at].take());
            }
        }
        events
    }

    fn is_ready(&self) -> bool {
        self.pending()
    }

    fn check(&mut self) {
        self.checks += 1;
    }

    fn unwatch(&mut self) {}

    fn arm(&mut self) -> Result<(), Pending> {
        if self.pending() { Err(Pending) } else { Ok(()) }
    }

    fn disarm(&mut self) {}

    fn note_awaited(&mut self) {
        *self.noted.get_mut() = Some(Vec::new());
    }

    fn wake_when_over(&mut self, waiter: Waiter) -> bool {
        let noted = self.noted.take().unwrap_or_default();
        noted.iter().for_each(|&at| self.waiters[at] = Some(waiter));
        !noted.is_empty()
    }

    fn next_ended_waiter(&mut self) -> Option<Waiter> {
        self.ended.pop()
    }

    fn concerns_all(&self) -> u32 {
        self.concerns_all
    }
}

/// A process whose threads wait.
struct Process {
    sent: Sent,
    guard: Guard<Inside<Boxes>>,
    waiting: Waiting,
    bells: Arc<BellPage>,
}

impl Process {
    fn new(spin: Duration, yielding: Duration) -> Self {
        let sent = Sent::new([const { AtomicU64::new(0) }; BOXES]);
        let bells = Arc::new(BellPage::create(2).unwrap().0);
        let waiting = Waiting::new(SleepSlot::new(Arc::clone(&bells), 0));
        let engine = Boxes {
            sent: Arc::clone(&sent),
            arrived: [0; BOXES],
            taken: [0; BOXES],
            waiters: [None; BOXES],
            ended: Vec::new(),
            noted: RefCell::new(None),
            concerns_all: 0,
            checks: 0,
        };
        let inside = Inside::new(engine, SpinLimits { spin, yielding }, &waiting);
        Process { sent, guard: Guard::new(Threads::Any, inside), waiting, bells }
    }

    fn spinning_us(spin_us: u64) -> Self {
        Self::new(Duration::from_micros(spin_us), Duration::from_millis(1))
    }

    /// Another process sends to a box.
    fn send(&self, at: usize) {
        self.sent[at].fetch_add(1, Ordering::SeqCst);
        self.bells.ring(0, 1);
    }

    fn receive(&self, at: usize) {
        wait(&self.guard, &self.waiting, |engine| engine.take(at));
    }

    fn until_asleep(&self) {
        while self.guard.enter().statistics().sleeps == 0 {
            std::thread::yield_now();
        }
    }

    fn until_blocked(&self, threads: usize) {
        while self.guard.enter().roles.blocked.len() < threads {
            std::thread::yield_now();
        }
    }

    fn wakes_of_blocked(&self) -> u64 {
        self.guard.enter().statistics().wakes_of_blocked
    }
}

#[test]
fn a_sleeping_waiter_is_woken_by_the_bell() {
    let process = Process::spinning_us(0);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| process.receive(0));
        process.until_asleep();
        process.send(0);
        waiter.join().unwrap();
    });
}

#[test]
fn a_waiter_checks_now_and_then_whether_it_polls_yields_or_sleeps() {
    let long = Duration::from_millis(1_000_000);
    for (spin, yielding) in [(long, long), (Duration(0), long), (Duration(0), Duration(0))] {
        let process = Process::new(spin, yielding);
        wait(&process.guard, &process.waiting, |engine| (engine.checks >= 3).then_some(()));
    }
}

#[test]
fn a_waiter_checks_now_and_then_in_traffic_without_a_pause() {
    let process = Process::spinning_us(50);
    wait(&process.guard, &process.waiting, |engine| {
        // Something comes with every call of progress.
        engine.sent[0].fetch_add(1, Ordering::SeqCst);
        (engine.checks >= 3).then_some(())
    });
}

#[test]
fn eight_threads_wait_for_different_messages_and_each_gets_its_own() {
    let process = Process::spinning_us(50);
    std::thread::scope(|scope| {
        let process = &process;
        for at in 0..8 {
            scope.spawn(move || (0..100).for_each(|_| process.receive(at)));
        }
        for message in 0..800 {
            process.send(message % 8);
        }
    });
}

#[test]
fn an_operation_of_another_thread_wakes_the_sleeper() {
    let process = Process::spinning_us(0);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| process.receive(0));
        process.until_asleep();
        // A message to oneself: nobody rings a bell for it.
        let inside = process.guard.enter();
        inside.engine.sent[0].fetch_add(1, Ordering::SeqCst);
        leave(inside, &process.waiting);
        waiter.join().unwrap();
    });
}

#[test]
fn a_call_that_tests_wakes_the_blocked_thread_whose_message_it_takes() {
    let process = Process::spinning_us(0);
    std::thread::scope(|scope| {
        let blocked = [0, 1].map(|at| {
            scope.spawn({
                let process = &process;
                move || process.receive(at)
            })
        });
        process.until_blocked(1);
        for at in 0..2 {
            process.sent[at].fetch_add(1, Ordering::SeqCst);
        }
        progress_once(&process.guard, &process.waiting, |_| ());
        blocked.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Runs `work` while a thread waits at each box but the first; then each of them gets a message. How often one was woken
/// during `work`.
fn wakes_beside_blocked_threads(process: &Process, work: impl FnOnce()) -> u64 {
    std::thread::scope(|scope| {
        for at in 1..BOXES {
            scope.spawn(move || process.receive(at));
        }
        // One makes progress.
        process.until_blocked(BOXES - 2);
        let before = process.wakes_of_blocked();
        work();
        let wakes = process.wakes_of_blocked() - before;
        (1..BOXES).for_each(|at| process.send(at));
        wakes
    })
}

#[test]
fn a_thread_that_receives_without_a_pause_wakes_hardly_any_blocked_thread() {
    let process = Process::spinning_us(50);
    let wakes = wakes_beside_blocked_threads(&process, || {
        for _ in 0..10_000 {
            process.send(0);
            process.receive(0);
        }
    });
    // One becomes the deputy, and another if this thread was off its processor for longer than the deputy watches.
    assert!(wakes < 1_000, "{wakes} wakes for 10000 messages");
}

#[test]
fn a_thread_whose_messages_are_there_already_wakes_hardly_any_blocked_thread() {
    let process = Process::spinning_us(50);
    let wakes = wakes_beside_blocked_threads(&process, || {
        for _ in 0..10_000 {
            process.send(0);
            let start = |engine: &mut Boxes| {
                engine.progress(Instant(0));
                engine.take(0).map_or(Begun::Waits(()), Begun::Over)
            };
            begin(&process.guard, &process.waiting, start, |(), engine| engine.take(0));
        }
    });
    assert!(wakes < 1_000, "{wakes} wakes for 10000 messages");
}

#[test]
fn what_concerns_all_makes_each_blocked_thread_poll_again() {
    let process = Process::spinning_us(50);
    let wakes = wakes_beside_blocked_threads(&process, || {
        let mut inside = process.guard.enter();
        inside.engine.concerns_all += 1;
        leave(inside, &process.waiting);
    });
    assert!(wakes >= BOXES as u64 - 2, "{wakes} wakes for {} blocked threads", BOXES - 2);
}

#[test]
fn a_blocked_thread_gets_its_message_after_the_thread_that_made_progress_has_left() {
    let process = Process::spinning_us(50);
    for _ in 0..100 {
        std::thread::scope(|scope| {
            scope.spawn(|| process.receive(1));
            process.send(0);
            process.receive(0);
            // Nothing but the other thread's own progress finds this one: nobody rings.
            process.sent[1].fetch_add(1, Ordering::SeqCst);
        });
    }
}
