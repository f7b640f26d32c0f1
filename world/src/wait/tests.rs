// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting, with an engine whose messages are counters: each wait is for the next message of one queue.

use super::{
    Guarded, Progress, StartResult, WaitState, progress_once, serve_before_leaving, start_and_wait,
    unlock_and_notify, wait,
};
use crate::guard::{Guard, Threads};
use crate::sleep_slot::SleepSlot;
use crate::spin_policy::SpinLimits;
use crate::wait_timing::ClockPace;
use core::cell::RefCell;
use mend_base::{Duration, Instant};
use mend_mpi::SleeperId;
use mend_segment::BellPage;
use mend_transport::{EventPending, WakeSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

mod descriptors;

const QUEUES: usize = 20;

/// How many messages were sent to each queue.
type Sent = Arc<[AtomicU64; QUEUES]>;

struct CountingEngine {
    sent: Sent,
    arrived: [u64; QUEUES],
    taken: [u64; QUEUES],
    sleepers: [Option<SleeperId>; QUEUES],
    ended: Vec<SleeperId>,
    noted: RefCell<Option<Vec<usize>>>,
    notify_all_count: u32,
    checks: u64,
    /// Calls of progress.
    calls: u64,
    /// Senders wake this process at its sleep word.
    rings: bool,
    /// A network: senders wake this process by a byte in a pipe, whose end this is.
    network: Option<OwnedFd>,
    /// Readable while there are notices.
    notices: Option<OwnedFd>,
    /// How many events progress had, for a program that is outside.
    events: Arc<AtomicU64>,
}

impl CountingEngine {
    fn new(sent: &Sent) -> Self {
        CountingEngine {
            sent: Arc::clone(sent),
            arrived: [0; QUEUES],
            taken: [0; QUEUES],
            sleepers: [None; QUEUES],
            ended: Vec::new(),
            noted: RefCell::new(None),
            notify_all_count: 0,
            checks: 0,
            calls: 0,
            rings: true,
            network: None,
            notices: None,
            events: Arc::default(),
        }
    }

    /// Takes a message of queue `at`, if there is one.
    fn take(&mut self, at: usize) -> Option<()> {
        if self.arrived[at] > self.taken[at] {
            self.taken[at] += 1;
            return Some(());
        }
        self.noted.get_mut().iter_mut().for_each(|noted| noted.push(at));
        None
    }

    fn pending(&self) -> bool {
        (0..QUEUES).any(|at| self.sent[at].load(Ordering::SeqCst) != self.arrived[at])
    }
}

impl Progress for CountingEngine {
    fn progress(&mut self, _now: Instant) -> u32 {
        self.calls += 1;
        let mut events = 0;
        if let Some(read) = &self.network {
            // Before the queues: a byte that comes after its message makes the pipe readable again.
            let _ = rustix::io::read(read, &mut [0; 1 << 12]);
        }
        for at in 0..QUEUES {
            let sent = self.sent[at].load(Ordering::SeqCst);
            if sent != self.arrived[at] {
                events += 1;
                self.arrived[at] = sent;
                self.ended.extend(self.sleepers[at].take());
            }
        }
        self.events.fetch_add(u64::from(events), Ordering::SeqCst);
        events
    }

    fn is_ready(&self) -> bool {
        self.pending()
    }

    fn check(&mut self) {
        self.checks += 1;
    }

    fn begin_look(&mut self) {}

    fn end_look(&mut self, _is_waiting: bool, _now: Instant) {}

    fn end_wait(&mut self) {}

    fn answer_where(&mut self, _place: &'static str) {}

    fn expect_any(&mut self) {}

    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        wake.futex = self.rings;
        self.arm_descriptors(wake)
    }

    fn arm_descriptors(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        wake.descriptors.extend(self.network.iter().map(|network| network.as_raw_fd()));
        if self.pending() { Err(EventPending) } else { Ok(()) }
    }

    fn notice_descriptor(&self) -> Option<i32> {
        self.notices.as_ref().map(|notices| notices.as_raw_fd())
    }

    fn disarm(&mut self) {}

    fn note_awaited(&mut self) {
        *self.noted.get_mut() = Some(Vec::new());
    }

    fn wake_when_over(&mut self, sleeper: SleeperId) -> bool {
        let noted = self.noted.take().unwrap_or_default();
        noted.iter().for_each(|&at| self.sleepers[at] = Some(sleeper));
        !noted.is_empty()
    }

    fn call_helpers(&mut self) {}

    fn next_to_wake(&mut self) -> Option<SleeperId> {
        self.ended.pop()
    }

    fn notify_all_count(&self) -> u32 {
        self.notify_all_count
    }
}

/// A process with threads that wait.
struct Process {
    sent: Sent,
    guard: Guard<Guarded<CountingEngine>>,
    waiting: WaitState,
    bells: Arc<BellPage>,
}

impl Process {
    fn new(spin: Duration, yielding: Duration) -> Self {
        let sent = Sent::new([const { AtomicU64::new(0) }; QUEUES]);
        let bells = Arc::new(BellPage::create(2).unwrap().0);
        let waiting = WaitState::new(SleepSlot::new(Arc::clone(&bells), 0));
        let engine = CountingEngine::new(&sent);
        let guarded = Guarded::new(engine, SpinLimits { spin, yielding }, ClockPace::MEMORY, &waiting);
        Process { sent, guard: Guard::new(Threads::Multiple, guarded, serve_before_leaving), waiting, bells }
    }

    fn spinning_us(spin_us: u64) -> Self {
        Self::new(Duration::from_micros(spin_us), Duration::from_millis(1))
    }

    /// Sends a message to queue `at`, as another process does.
    fn send(&self, at: usize) {
        self.sent[at].fetch_add(1, Ordering::SeqCst);
        self.bells.ring_bell(0, 1);
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
fn a_waiter_makes_timed_checks_whether_it_polls_yields_or_sleeps() {
    let long = Duration::from_millis(1_000_000);
    for (spin, yielding) in [(long, long), (Duration(0), long), (Duration(0), Duration(0))] {
        let process = Process::new(spin, yielding);
        wait(&process.guard, &process.waiting, |engine| (engine.checks >= 3).then_some(()));
    }
}

#[test]
fn a_waiter_makes_timed_checks_while_events_come_without_a_pause() {
    let process = Process::spinning_us(50);
    wait(&process.guard, &process.waiting, |engine| {
        // Every call of progress has an event.
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
        // A message of this process to itself: no bell is rung.
        let guarded = process.guard.enter();
        guarded.engine.sent[0].fetch_add(1, Ordering::SeqCst);
        unlock_and_notify(guarded, &process.waiting);
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

/// Runs `work` while a thread waits for each queue except the first, and then sends a message to each of these queues. Returns how often a
/// blocked thread was woken during `work`.
fn wakes_beside_blocked_threads(process: &Process, work: impl FnOnce()) -> u64 {
    std::thread::scope(|scope| {
        for at in 1..QUEUES {
            scope.spawn(move || process.receive(at));
        }
        // One of the threads makes progress.
        process.until_blocked(QUEUES - 2);
        let before = process.wakes_of_blocked();
        work();
        let wakes = process.wakes_of_blocked() - before;
        (1..QUEUES).for_each(|at| process.send(at));
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
    // One thread becomes standby; so does another, if this thread was off its processor for longer than a watch period.
    assert!(wakes < 1_000, "{wakes} wakes for 10000 messages");
}

#[test]
fn a_thread_whose_messages_are_there_already_wakes_hardly_any_blocked_thread() {
    let process = Process::spinning_us(50);
    let wakes = wakes_beside_blocked_threads(&process, || {
        for _ in 0..10_000 {
            process.send(0);
            let start = |engine: &mut CountingEngine| {
                engine.progress(Instant(0));
                engine.take(0).map_or(StartResult::Incomplete(()), StartResult::Complete)
            };
            start_and_wait(&process.guard, &process.waiting, start, |(), engine| engine.take(0));
        }
    });
    assert!(wakes < 1_000, "{wakes} wakes for 10000 messages");
}

#[test]
fn a_change_of_notify_all_count_makes_each_blocked_thread_poll_again() {
    let process = Process::spinning_us(50);
    let wakes = wakes_beside_blocked_threads(&process, || {
        let mut guarded = process.guard.enter();
        guarded.engine.notify_all_count += 1;
        unlock_and_notify(guarded, &process.waiting);
    });
    assert!(wakes >= QUEUES as u64 - 2, "{wakes} wakes for {} blocked threads", QUEUES - 2);
}

#[test]
fn a_blocked_thread_gets_its_message_after_the_owner_of_progress_has_left() {
    let process = Process::spinning_us(50);
    for _ in 0..100 {
        std::thread::scope(|scope| {
            scope.spawn(|| process.receive(1));
            process.send(0);
            process.receive(0);
            // No bell is rung: only progress of the other thread finds this message.
            process.sent[1].fetch_add(1, Ordering::SeqCst);
        });
    }
}

/// Runs `work` while a thread waits for each of the queues 1 and 2, and returns how many of the two waits ended within 2 s.
fn ended_beside(process: &Process, wait_for: impl Fn(usize) + Sync, work: impl FnOnce() + Send) -> u64 {
    let ended = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for at in 1..4 {
            let (ended, wait_for) = (&ended, &wait_for);
            scope.spawn(move || {
                wait_for(at);
                ended.fetch_add(1, Ordering::SeqCst);
            });
            // The last one owns progress.
            process.until_blocked(at - 1);
            // Sleeps: after some watch periods without progress no thread is standby.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        scope.spawn(work);
        let begin = std::time::Instant::now();
        while ended.load(Ordering::SeqCst) < 2 && begin.elapsed().as_secs() < 2 {
            std::thread::yield_now();
        }
        let in_time = ended.load(Ordering::SeqCst);
        [0, 1, 2, 3].into_iter().for_each(|at| process.send(at));
        in_time
    })
}

/// A message of queues 1 and 2, without a bell.
fn send_to_blocked(engine: &mut CountingEngine) {
    (1..3).for_each(|at| _ = engine.sent[at].fetch_add(1, Ordering::SeqCst));
}

#[test]
fn a_call_whose_start_takes_messages_of_blocked_threads_wakes_them_before_it_waits() {
    let process = Process::spinning_us(0);
    let begin = || {
        let start = |engine: &mut CountingEngine| {
            send_to_blocked(engine);
            engine.progress(Instant(0));
            StartResult::<(), ()>::Incomplete(())
        };
        start_and_wait(&process.guard, &process.waiting, start, |(), engine| engine.take(0));
    };
    assert_eq!(ended_beside(&process, |at| process.receive(at), begin), 2);
}

/// Waits for queue 0 with a poll that makes progress itself, and takes the messages of queues 1 and 2 in its tenth call.
fn wait_and_progress_in_a_poll(process: &Process) {
    let mut polls = 0;
    wait(&process.guard, &process.waiting, |engine| {
        polls += 1;
        if polls == 10 {
            send_to_blocked(engine);
            engine.progress(Instant(0));
        }
        engine.take(0)
    });
}

#[test]
fn a_poll_that_takes_messages_of_blocked_threads_wakes_them() {
    // The owner of progress polls, yields, or sleeps.
    let long = Duration::from_millis(1_000_000);
    for (spin, yielding) in [(long, long), (Duration(0), long), (Duration(0), Duration(0))] {
        let process = Process::new(spin, yielding);
        let work = || wait_and_progress_in_a_poll(&process);
        assert_eq!(ended_beside(&process, |at| process.receive(at), work), 2);
    }
}

#[test]
fn a_poll_that_takes_messages_of_threads_that_wait_for_any_event_wakes_them() {
    let process = Process::spinning_us(50);
    let probe = |at: usize| {
        wait(&process.guard, &process.waiting, |engine| (engine.arrived[at] > 0).then_some(()));
    };
    assert_eq!(ended_beside(&process, probe, || wait_and_progress_in_a_poll(&process)), 2);
}
