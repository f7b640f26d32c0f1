// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting: one thread cranks (spins, then yields, then sleeps), the others sleep on cells of their own.
//!
//! ```text
//!            nothing for spin_us        nothing for yield_us            armed, nothing there
//!   spinning ──────────────────▶ yielding ──────────────────▶ arming ──────────────────────▶ asleep
//!      ▲                             │                          │                              │
//!      └───────── something came ────┴──────────────────────────┴──── rung, or a look found ───┘
//! ```
//!
//! With more ranks than processors nobody spins: the processor is somebody else's (R-34). A sleep lasts 1 ms at first,
//! then twice as long up to 100 ms, with a look after each: a ring can be lost to a store that was still in the sender's
//! store buffer, and the look after 1 ms finds what it rang for (design "Shared memory").

use crate::cell::Cell;
use crate::clock;
use crate::guard::{Entered, Guard};
use mend_base::{Duration, Instant};
use mend_segment::{BellPage, Woken};
use mend_transport::Pending;
use std::sync::Arc;

/// What waiting needs of an engine.
pub trait Progress {
    /// Makes progress; the number of events. Never blocks.
    fn turn(&mut self, now: Instant) -> u32;
    /// Whether a turn is worth it now, as far as a cheap look tells: the one ring that the caller waits for.
    fn is_ready(&self) -> bool;
    /// Looks whether whoever started us is still there, and whether a peer is dead; a system call and a line for each.
    fn check(&mut self);
    /// No ring counts more than the others.
    fn unwatch(&mut self);
    /// Asks everybody to ring; `Pending` when something is there already.
    fn arm(&mut self) -> Result<(), Pending>;
    /// Asks nobody to ring any more.
    fn disarm(&mut self);
}

/// What the guard keeps: the engine, and who waits for it.
#[derive(Debug)]
pub struct Inside<C> {
    /// The engine.
    pub engine: C,
    /// A thread cranks; the others park.
    progressing: bool,
    /// The progressing thread sleeps on the process's sleep word, outside the guard.
    asleep: bool,
    /// Threads that wait for something of theirs while another cranks.
    parked: Vec<Arc<Cell>>,
    /// When the clock was last read: as stale as a `now` may be.
    now: Instant,
    /// When the last `check` was.
    checked: Instant,
    statistics: Statistics,
}

/// How waiting went, since Init.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Sleeps on the sleep word.
    pub sleeps: u64,
    /// Sleeps that timed out although something had come: a ring was lost, and the look made up for it.
    pub late_wakes: u64,
}

/// How long to do what.
#[derive(Clone, Copy, Debug)]
pub struct SpinPolicy {
    /// Without an event, before yielding; zero with more ranks than processors.
    pub spin: Duration,
    /// Of yields without an event, before sleeping.
    pub yielding: Duration,
}

/// Where the process sleeps.
#[derive(Debug)]
pub struct SleepSlot {
    /// The node's bell page.
    pub bells: Arc<BellPage>,
    /// Our slot in it.
    pub slot: u32,
}

/// Empty turns between two looks at the clock (28 ns each).
const PROGRESS_PER_CLOCK_READ: u32 = 64;

/// Turns with events between two looks at the clock.
const BUSY_PROGRESS_PER_CLOCK_READ: u32 = 1024;

/// Looks at the ring that is waited for between two whole turns: a look is one load, a turn some 40 ns.
const LOOKS_PER_PROGRESS: u32 = 16;

/// Between two checks of those who wait without sleeping.
const CHECK_EVERY: Duration = Duration::from_millis(1);

/// Yields between two whole turns, as long as the ring that is waited for is empty. A turn touches what belongs to every
/// peer, and where processors are shared none of it is in the nearest cache any more.
const YIELDS_PER_PROGRESS: u32 = 4;

/// The first sleep, and the look at what a lost ring was for.
const SLEEP_FIRST: Duration = Duration::from_millis(1);

/// The longest sleep without a look.
const SLEEP_LONGEST: Duration = Duration::from_millis(100);

impl<C> Inside<C> {
    /// Around `engine`, with nobody waiting.
    pub fn new(engine: C) -> Self {
        Inside {
            engine,
            progressing: false,
            asleep: false,
            parked: Vec::new(),
            now: Instant(0),
            checked: Instant(0),
            statistics: Statistics::default(),
        }
    }

    /// How waiting went.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Threads that park look again.
    #[inline]
    fn ring_parked(&mut self) {
        if !self.parked.is_empty() {
            self.ring_all_parked();
        }
    }

    #[cold]
    fn ring_all_parked(&mut self) {
        for cell in self.parked.drain(..) {
            cell.ring();
        }
    }
}

impl<C: Progress> Inside<C> {
    /// The check of those who wait without sleeping, when it is due.
    #[inline]
    pub fn check_now_and_then(&mut self, now: Instant) {
        if now - self.checked >= CHECK_EVERY {
            self.check(now);
        }
    }

    #[cold]
    fn check(&mut self, now: Instant) {
        self.checked = now;
        self.engine.check();
    }
}

/// Waits on `guard` until `poll` gives something.
pub fn wait<C: Progress, T>(
    guard: &Guard<Inside<C>>,
    sleep_slot: &SleepSlot,
    spin_policy: SpinPolicy,
    poll: impl FnMut(&mut C) -> Option<T>,
) -> T {
    let mut inside = guard.enter();
    inside.engine.unwatch();
    wait_inside(inside, sleep_slot, spin_policy, poll)
}

/// What a call that may have to wait has come to at once.
#[derive(Debug)]
pub enum Begun<T, W> {
    /// It is over.
    Over(T),
    /// It goes on; this is what is asked for it.
    Waits(W),
}

// Hot: per message.
/// Begins something on `guard`, and waits for it if it is not over at once, in one entry.
#[inline(always)]
pub fn begin<C: Progress, T, W>(
    guard: &Guard<Inside<C>>,
    sleep_slot: &SleepSlot,
    spin_policy: SpinPolicy,
    start: impl FnOnce(&mut C) -> Begun<T, W>,
    mut poll: impl FnMut(&mut W, &mut C) -> Option<T>,
) -> T {
    let mut inside = guard.enter();
    match start(&mut inside.engine) {
        Begun::Over(result) => {
            leave(inside, sleep_slot);
            result
        }
        Begun::Waits(mut what) => {
            wait_inside(inside, sleep_slot, spin_policy, move |engine| poll(&mut what, engine))
        }
    }
}

#[inline(never)]
fn wait_inside<C: Progress, T>(
    mut inside: Entered<'_, Inside<C>>,
    sleep_slot: &SleepSlot,
    spin_policy: SpinPolicy,
    mut poll: impl FnMut(&mut C) -> Option<T>,
) -> T {
    loop {
        if let Some(result) = poll(&mut inside.engine) {
            leave(inside, sleep_slot);
            return result;
        }
        if inside.progressing {
            park(&mut inside, sleep_slot);
        } else {
            inside.progressing = true;
            let mut crank = ProgressOwner { inside, sleep_slot, spin_policy, busy_since: None };
            return crank.until(&mut poll);
        }
    }
}

/// Leaves after work on the engine that may concern a thread that waits: an operation begun may need the sleeping crank,
/// and a turn may have ended what a parked thread waits for.
// Hot: per message.
#[inline(always)]
pub fn leave<C>(mut inside: Entered<'_, Inside<C>>, sleep_slot: &SleepSlot) {
    if inside.progressing || !inside.parked.is_empty() {
        tell_others(&mut inside, sleep_slot);
    }
}

#[cold]
fn tell_others<C>(inside: &mut Inside<C>, sleep_slot: &SleepSlot) {
    inside.ring_parked();
    if inside.asleep {
        sleep_slot.bells.wake(sleep_slot.slot);
    }
}

/// Sleeps until the progressing thread, or one that came and went, has something new.
fn park<C>(inside: &mut Entered<'_, Inside<C>>, sleep_slot: &SleepSlot) {
    let cell = Cell::mine();
    inside.parked.push(Arc::clone(&cell));
    if inside.asleep {
        // What we wait for may need a turn before anybody can ring for it.
        sleep_slot.bells.wake(sleep_slot.slot);
    }
    inside.while_out(|| cell.sleep());
    inside.parked.retain(|parked| !Arc::ptr_eq(parked, &cell));
}

/// The thread that cranks. Dropping it, also by unwinding, gives the crank to a thread that parks.
struct ProgressOwner<'a, C: Progress> {
    inside: Entered<'a, Inside<C>>,
    sleep_slot: &'a SleepSlot,
    spin_policy: SpinPolicy,
    /// When the last event came, as far as the clock was read.
    busy_since: Option<Instant>,
}

impl<C: Progress> ProgressOwner<'_, C> {
    fn until<T>(&mut self, poll: &mut impl FnMut(&mut C) -> Option<T>) -> T {
        let (mut empty, mut busy) = (0, 0_u32);
        loop {
            let now = self.inside.now;
            let events = self.inside.engine.turn(now);
            if events > 0 {
                (empty, busy) = (0, busy.wrapping_add(1));
                if busy.is_multiple_of(BUSY_PROGRESS_PER_CLOCK_READ) {
                    self.look_up_from_traffic();
                }
                self.busy_since = None;
                self.inside.ring_parked();
            }
            if let Some(result) = poll(&mut self.inside.engine) {
                return result;
            }
            self.inside.hand_over();
            if events == 0 {
                empty += 1;
                self.look();
                if self.spin_policy.spin > Duration(0) && empty % PROGRESS_PER_CLOCK_READ != 0 {
                    continue;
                }
                match self.rest(poll) {
                    Ok(now) => self.inside.now = now,
                    Err(result) => return result,
                }
            }
        }
    }

    /// What others send may never pause, and whom we wait for be dead.
    #[cold]
    fn look_up_from_traffic(&mut self) {
        let now = clock::now();
        self.inside.now = now;
        self.inside.check_now_and_then(now);
    }

    // Hot: per empty turn.
    /// Looks at the one ring that is waited for; not where the processor is somebody else's.
    #[inline]
    fn look(&self) {
        if self.spin_policy.spin == Duration(0) {
            return;
        }
        for _ in 0..LOOKS_PER_PROGRESS {
            if self.inside.engine.is_ready() {
                break;
            }
        }
    }

    /// Nothing came for a while: yields, or sleeps, as long as that has been. Gives the time, or what `poll` found
    /// meanwhile.
    #[cold]
    fn rest<T>(&mut self, poll: &mut impl FnMut(&mut C) -> Option<T>) -> Result<Instant, T> {
        let now = clock::now();
        self.inside.check_now_and_then(now);
        let idle = now - *self.busy_since.get_or_insert(now);
        if idle < self.spin_policy.spin {
            return Ok(now);
        }
        if idle < self.spin_policy.spin + self.spin_policy.yielding {
            self.give_way();
            return Ok(now);
        }
        let found = self.sleep(poll);
        self.busy_since = None;
        found.map_or_else(|| Ok(clock::now()), Err)
    }

    /// Lets others run, more than once where one ring tells whether it is our turn.
    fn give_way(&mut self) {
        for _ in 0..YIELDS_PER_PROGRESS {
            self.inside.while_out(rustix::thread::sched_yield);
            if self.inside.engine.is_ready() || self.inside.is_wanted() {
                return;
            }
        }
    }

    /// Sleeps until something comes, or another thread of this process wants us awake.
    fn sleep<T>(&mut self, poll: &mut impl FnMut(&mut C) -> Option<T>) -> Option<T> {
        let sleep_slot = self.sleep_slot;
        sleep_slot.bells.announce_sleep(sleep_slot.slot);
        let mut found = None;
        if self.inside.engine.arm().is_ok() {
            self.inside.statistics.sleeps += 1;
            let mut span = SLEEP_FIRST;
            loop {
                self.inside.asleep = true;
                let woken = self.inside.while_out(|| sleep_slot.bells.sleep(sleep_slot.slot, span));
                self.inside.asleep = false;
                if woken == Woken::Rung {
                    break;
                }
                let now = clock::now();
                self.inside.check(now);
                let events = self.inside.engine.turn(now);
                found = poll(&mut self.inside.engine);
                if events > 0 {
                    self.inside.statistics.late_wakes += 1;
                    self.inside.ring_parked();
                }
                if events > 0 || found.is_some() {
                    break;
                }
                span = Duration(span.0 * 2).min(SLEEP_LONGEST);
            }
        }
        sleep_slot.bells.leave_sleep(sleep_slot.slot);
        self.inside.engine.disarm();
        found
    }
}

impl<C: Progress> Drop for ProgressOwner<'_, C> {
    fn drop(&mut self) {
        self.inside.progressing = false;
        self.inside.ring_parked();
    }
}

#[cfg(test)]
mod tests {
    use super::{Inside, Progress, SleepSlot, SpinPolicy, leave, wait};
    use crate::guard::{Guard, Threads};
    use mend_base::{Duration, Instant};
    use mend_segment::BellPage;
    use mend_transport::Pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// An engine whose messages are counts: what was sent, and what a turn has taken over.
    struct Counter {
        sent: Arc<AtomicU64>,
        arrived: u64,
        checks: u64,
    }

    impl Progress for Counter {
        fn turn(&mut self, _now: Instant) -> u32 {
            let sent = self.sent.load(Ordering::SeqCst);
            let events = sent - self.arrived;
            self.arrived = sent;
            u32::try_from(events).unwrap()
        }

        fn is_ready(&self) -> bool {
            self.sent.load(Ordering::SeqCst) != self.arrived
        }

        fn check(&mut self) {
            self.checks += 1;
        }

        fn unwatch(&mut self) {}

        fn arm(&mut self) -> Result<(), Pending> {
            if self.sent.load(Ordering::SeqCst) == self.arrived { Ok(()) } else { Err(Pending) }
        }

        fn disarm(&mut self) {}
    }

    fn fixture(spin_us: u64) -> (Arc<AtomicU64>, Guard<Inside<Counter>>, SleepSlot, SpinPolicy) {
        let sent = Arc::new(AtomicU64::new(0));
        let guard =
            Guard::new(Threads::Any, Inside::new(Counter { sent: Arc::clone(&sent), arrived: 0, checks: 0 }));
        let sleep_slot = SleepSlot { bells: Arc::new(BellPage::create(2).unwrap().0), slot: 0 };
        let spin_policy =
            SpinPolicy { spin: Duration::from_micros(spin_us), yielding: Duration::from_micros(1_000) };
        (sent, guard, sleep_slot, spin_policy)
    }

    #[test]
    fn a_sleeping_waiter_is_woken_by_the_bell() {
        let (sent, guard, sleep_slot, spin_policy) = fixture(0);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                wait(&guard, &sleep_slot, spin_policy, |engine| {
                    (engine.arrived == 1).then_some(engine.arrived)
                })
            });
            while guard.enter().statistics().sleeps == 0 {
                std::thread::yield_now();
            }
            sent.fetch_add(1, Ordering::SeqCst);
            sleep_slot.bells.ring(0, 1);
            assert_eq!(waiter.join().unwrap(), 1);
        });
    }

    #[test]
    fn whether_it_spins_yields_or_sleeps_a_waiter_hears_what_only_a_check_finds() {
        let long = Duration::from_millis(1_000_000);
        for (spin, yielding) in [(long, long), (Duration(0), long), (Duration(0), Duration(0))] {
            let (_sent, guard, sleep_slot, _) = fixture(0);
            let spin_policy = SpinPolicy { spin, yielding };
            wait(&guard, &sleep_slot, spin_policy, |engine| (engine.checks >= 3).then_some(()));
        }
    }

    /// An engine to which something comes at every turn.
    struct Chatter {
        checks: u64,
    }

    impl Progress for Chatter {
        fn turn(&mut self, _now: Instant) -> u32 {
            1
        }

        fn is_ready(&self) -> bool {
            true
        }

        fn check(&mut self) {
            self.checks += 1;
        }

        fn unwatch(&mut self) {}

        fn arm(&mut self) -> Result<(), Pending> {
            Err(Pending)
        }

        fn disarm(&mut self) {}
    }

    #[test]
    fn traffic_without_a_pause_keeps_no_waiter_from_what_only_a_check_finds() {
        let (_, _, sleep_slot, spin_policy) = fixture(50);
        let guard = Guard::new(Threads::Any, Inside::new(Chatter { checks: 0 }));
        wait(&guard, &sleep_slot, spin_policy, |engine| (engine.checks >= 3).then_some(()));
    }

    #[test]
    fn eight_threads_wait_for_different_things_and_each_gets_its_own() {
        let (sent, guard, sleep_slot, spin_policy) = fixture(50);
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (1..=8u64)
                .map(|wanted| {
                    let (guard, sleep_slot) = (&guard, &sleep_slot);
                    scope.spawn(move || {
                        wait(guard, sleep_slot, spin_policy, |engine| {
                            (engine.arrived >= 100 * wanted).then_some(())
                        });
                    })
                })
                .collect();
            for _ in 0..800 {
                sent.fetch_add(1, Ordering::SeqCst);
                sleep_slot.bells.ring(0, 1);
            }
            for waiter in waiters {
                waiter.join().unwrap();
            }
        });
    }

    #[test]
    fn an_operation_of_another_thread_wakes_the_sleeping_crank() {
        let (sent, guard, sleep_slot, spin_policy) = fixture(0);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                wait(&guard, &sleep_slot, spin_policy, |engine| (engine.arrived == 1).then_some(()))
            });
            while guard.enter().statistics().sleeps == 0 {
                std::thread::yield_now();
            }
            // A message to oneself: nobody rings a bell for it.
            let mut inside = guard.enter();
            inside.engine.sent.fetch_add(1, Ordering::SeqCst);
            inside.ring_parked();
            leave(inside, &sleep_slot);
            waiter.join().unwrap();
        });
        assert_eq!(sent.load(Ordering::SeqCst), 1);
    }
}
