// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting: one thread makes progress (it polls, yields, then sleeps), the others are blocked on cells of their own.
//!
//! ```text
//!            nothing for spin_us        nothing for yield_us            armed, nothing there
//!   polling ──────────────────▶ yielding ──────────────────▶ arming ──────────────────────▶ asleep
//!      ▲                            │                           │                              │
//!      └──────── something came ────┴───────────────────────────┴──── rung, or a poll found ───┘
//! ```
//!
//! How long it polls and yields is the spin policy's to say: with more ranks than processors, and beside another rank, it
//! yields at once (R-34). A sleep lasts 1 ms at first, then twice as long up to 100 ms, with a poll after each: a bell can
//! be lost to a store that was still in the sender's store buffer, and the poll after 1 ms finds what it rang for (design
//! "Shared memory").

use crate::blocked::Awaits;
use crate::cell::Cell;
use crate::clock;
use crate::guard::{Entered, Guard};
use crate::pace::{Pace, Polls};
use crate::roles::{Duty, Ownership, ProgressWatch, Roles, WATCH};
use crate::sleep_slot::{SleepSlot, SleepSpan};
use crate::spin_policy::{Next, SpinLimits};
use crate::statistics::Statistics;
use mend_base::Instant;
use mend_mpi::Waiter;
use mend_segment::Woken;
use mend_transport::Pending;
use std::sync::Arc;

/// What waiting needs of an engine.
pub trait Progress {
    /// Makes progress; the number of events. Never blocks.
    fn progress(&mut self, now: Instant) -> u32;
    /// Whether progress is worth it now, as far as a cheap poll shows: the rings from which the caller waits for something.
    fn is_ready(&self) -> bool;
    /// The timed check: whether the runtime is still there, and whether a peer is dead; a system call, and a line for each.
    fn check(&mut self);
    /// No ring counts more than the others.
    fn unwatch(&mut self);
    /// Asks everybody to ring; `Pending` when something is there already.
    fn arm(&mut self) -> Result<(), Pending>;
    /// Asks nobody to ring any more.
    fn disarm(&mut self);
    /// From now on requests that are polled and not over are noted.
    fn note_awaited(&mut self);
    /// The end of each request that was noted wakes `waiter`; `false`: none was.
    fn wake_when_over(&mut self, waiter: Waiter) -> bool;
    /// A waiter whose request has ended.
    fn next_ended_waiter(&mut self) -> Option<Waiter>;
    /// Changes when something happened that may concern every waiter.
    fn concerns_all(&self) -> u32;
}

/// What the guard keeps: the engine, and which threads wait for it.
#[derive(Debug)]
pub struct Inside<C> {
    /// The engine.
    pub engine: C,
    roles: Roles,
    pace: Pace,
    /// The thread that makes progress sleeps on the process's sleep word, outside the guard.
    asleep: bool,
    /// The engine's `concerns_all` when all blocked threads were last woken.
    concerned_all: u32,
    sleeps: u64,
    late_wakes: u64,
    /// Blocking receives so far; wraps.
    receives: u32,
}

/// What threads of this process need to wait, besides the guard.
#[derive(Debug)]
pub struct Waiting {
    sleep_slot: SleepSlot,
    polls: Polls,
}

impl Waiting {
    /// Threads of this process sleep in `sleep_slot`.
    pub fn new(sleep_slot: SleepSlot) -> Self {
        Waiting { sleep_slot, polls: Polls::default() }
    }

    /// This process waits no more.
    pub fn end(&self) {
        self.sleep_slot.withdraw();
    }
}

/// Of so many blocking receives one is posted at once, and its caller makes progress.
const RECEIVES_PER_PROGRESS: u32 = 16;

/// Empty calls of progress between two readings of the clock (28 ns each).
const PROGRESS_PER_CLOCK_READ: u32 = 64;

/// Calls of progress with events between two readings of the clock.
const BUSY_PROGRESS_PER_CLOCK_READ: u32 = 1024;

/// Polls of what is waited for between two calls of progress: a poll is a load or some, progress takes some 40 ns.
const POLLS_PER_PROGRESS: u32 = 16;

/// Yields between two calls of progress, as long as what is waited for is not there. Progress touches what belongs to
/// every peer, and where processors are shared none of it is in the nearest cache any more.
const YIELDS_PER_PROGRESS: u32 = 4;

impl<C> Inside<C> {
    /// Around `engine`, with nobody waiting.
    pub fn new(engine: C, limits: SpinLimits, waiting: &Waiting) -> Self {
        Inside {
            engine,
            roles: Roles::default(),
            pace: Pace::new(limits, &waiting.polls),
            asleep: false,
            concerned_all: 0,
            sleeps: 0,
            late_wakes: 0,
            receives: 0,
        }
    }

    /// How waiting went.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            sleeps: self.sleeps,
            late_wakes: self.late_wakes,
            wakes_of_blocked: self.roles.blocked.wakes(),
        }
    }
}

impl<C: Progress> Inside<C> {
    /// The timed check of those who wait without sleeping, when it is due.
    #[inline]
    pub fn check_if_due(&mut self, now: Instant) {
        if self.pace.is_check_due(now) {
            self.check();
        }
    }

    #[cold]
    fn check(&mut self) {
        self.engine.check();
    }

    /// Wakes the blocked threads that what happened concerns.
    #[cold]
    fn notify_blocked(&mut self) {
        while let Some(waiter) = self.engine.next_ended_waiter() {
            self.roles.blocked.wake(waiter);
        }
        let concerns_all = self.engine.concerns_all();
        if self.concerned_all != concerns_all {
            self.concerned_all = concerns_all;
            self.roles.blocked.wake_all();
        }
        self.roles.blocked.wake_for_event();
    }

    /// The thread that makes progress does so no more: the caller is running, and will.
    fn depose_owner(&mut self, waiting: &Waiting) {
        self.roles.depose();
        if core::mem::take(&mut self.asleep) {
            waiting.sleep_slot.leave();
            self.engine.disarm();
            waiting.sleep_slot.wake();
        }
    }
}

/// Waits on `guard` until `poll` gives something.
pub fn wait<C: Progress, T>(
    guard: &Guard<Inside<C>>,
    waiting: &Waiting,
    poll: impl FnMut(&mut C) -> Option<T>,
) -> T {
    let mut inside = guard.enter();
    inside.engine.unwatch();
    wait_inside(inside, waiting, poll)
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
    waiting: &Waiting,
    start: impl FnOnce(&mut C) -> Begun<T, W>,
    mut poll: impl FnMut(&mut W, &mut C) -> Option<T>,
) -> T {
    let mut inside = guard.enter();
    match start(&mut inside.engine) {
        Begun::Over(result) => leave_without_waiting(inside, waiting, result),
        Begun::Waits(mut what) => wait_inside(inside, waiting, move |engine| poll(&mut what, engine)),
    }
}

// Hot: per message.
/// As [`begin`], for a call that may poll one ring before it starts what it waits for: `start` is told how often. Every
/// [`RECEIVES_PER_PROGRESS`]th call it is told not to, so that the call makes progress: two ranks that exchange messages without
/// a pause shall not keep everything else waiting.
#[inline(always)]
pub fn begin_polling<C: Progress, T, W>(
    guard: &Guard<Inside<C>>,
    waiting: &Waiting,
    start: impl FnOnce(&mut C, u32) -> Begun<T, W>,
    mut poll: impl FnMut(&mut W, &mut C) -> Option<T>,
) -> T {
    let mut inside = guard.enter();
    inside.receives = inside.receives.wrapping_add(1);
    let polls = if inside.receives.is_multiple_of(RECEIVES_PER_PROGRESS) { 0 } else { waiting.polls.get() };
    match start(&mut inside.engine, polls) {
        Begun::Over(result) => leave_without_waiting(inside, waiting, result),
        Begun::Waits(mut what) => wait_inside(inside, waiting, move |engine| poll(&mut what, engine)),
    }
}

// Hot: per message.
/// A call that might have waited did not have to.
#[inline(always)]
fn leave_without_waiting<C: Progress, T>(
    mut inside: Entered<'_, Inside<C>>,
    waiting: &Waiting,
    result: T,
) -> T {
    if !inside.roles.is_nobody_waiting() {
        let inside = &mut *inside;
        take_over_progress(inside, waiting);
    }
    result
}

/// The thread that leaves is running, and so is the one to make progress next.
#[cold]
fn take_over_progress<C: Progress>(inside: &mut Inside<C>, waiting: &Waiting) {
    if inside.roles.is_owned() {
        inside.depose_owner(waiting);
    }
    inside.notify_blocked();
    inside.roles.appoint();
}

/// Leaves after work on the engine that may concern a thread that waits: an operation begun may need the thread that makes
/// progress, which may be asleep, and progress may have ended what a blocked thread waits for.
// Hot: per message.
#[inline(always)]
pub fn leave<C: Progress>(mut inside: Entered<'_, Inside<C>>, waiting: &Waiting) {
    if !inside.roles.is_nobody_waiting() {
        notify_others(&mut inside, waiting);
    }
}

#[cold]
fn notify_others<C: Progress>(inside: &mut Inside<C>, waiting: &Waiting) {
    inside.notify_blocked();
    if inside.asleep {
        waiting.sleep_slot.wake();
    }
}

/// Makes progress once and runs `work`, for calls that test without waiting.
pub fn progress_once<C: Progress, R>(
    guard: &Guard<Inside<C>>,
    waiting: &Waiting,
    work: impl FnOnce(&mut C) -> R,
) -> R {
    let now = clock::now();
    let mut inside = guard.enter();
    inside.check_if_due(now);
    let events = inside.engine.progress(now);
    let result = work(&mut inside.engine);
    if !inside.roles.is_nobody_waiting() {
        inside.roles.progress_begins();
        notify_others(&mut inside, waiting);
    }
    let yields = events == 0 && inside.pace.yields_after_test(now, &waiting.sleep_slot, &waiting.polls);
    drop(inside);
    if yields {
        rustix::thread::sched_yield();
    }
    result
}

#[inline(never)]
fn wait_inside<C: Progress, T>(
    inside: Entered<'_, Inside<C>>,
    waiting: &Waiting,
    mut poll: impl FnMut(&mut C) -> Option<T>,
) -> T {
    let mut call = WaitingCall { inside, waiting, ownership: None, cell: None };
    if let Some(result) = poll(&mut call.inside.engine) {
        return result;
    }
    call.own();
    loop {
        if call.ownership.is_some()
            && let Some(result) = call.make_progress(&mut poll)
        {
            return result;
        }
        // Another thread has taken over, or this one was blocked.
        if let Some(result) = call.stand_back(&mut poll) {
            return result;
        }
    }
}

/// A thread that waits. Dropping it, also by unwinding, lets another make progress.
struct WaitingCall<'a, C: Progress> {
    inside: Entered<'a, Inside<C>>,
    waiting: &'a Waiting,
    /// While this thread makes progress.
    ownership: Option<Ownership>,
    /// Where this thread was blocked.
    cell: Option<Arc<Cell>>,
}

impl<C: Progress> Drop for WaitingCall<'_, C> {
    #[inline]
    fn drop(&mut self) {
        let inside = &mut *self.inside;
        self.ownership.into_iter().for_each(|ownership| inside.roles.give_up(ownership));
        if !inside.roles.is_nobody_waiting() || self.cell.is_some() {
            self.leave_others();
        }
    }
}

impl<C: Progress> WaitingCall<'_, C> {
    #[cold]
    fn leave_others(&mut self) {
        let inside = &mut *self.inside;
        self.cell.iter().for_each(|cell| inside.roles.leave(cell.number()));
        inside.notify_blocked();
        inside.roles.appoint();
    }

    /// Makes this thread the one that makes progress.
    fn own(&mut self) {
        if self.inside.roles.is_owned() {
            self.inside.depose_owner(self.waiting);
        }
        self.ownership = Some(self.inside.roles.take());
    }

    /// Another thread makes progress, or is about to: sleeps until something concerns this one.
    #[cold]
    fn stand_back<T>(&mut self, poll: &mut impl FnMut(&mut C) -> Option<T>) -> Option<T> {
        let deposed = self.ownership.take().is_some();
        let cell = Arc::clone(self.cell.get_or_insert_with(Cell::mine));
        let inside = &mut *self.inside;
        inside.engine.note_awaited();
        let found = poll(&mut inside.engine);
        let names_requests = inside.engine.wake_when_over(cell.number());
        if found.is_some() {
            return found;
        }
        let awaits = if names_requests { Awaits::Requests } else { Awaits::AnyEvent };
        match inside.roles.duty(cell.number(), deposed) {
            Duty::Own(ownership) => {
                inside.engine.unwatch();
                self.ownership = Some(ownership);
            }
            Duty::Watch(mut watch) => {
                self.block(&cell, awaits, || while_progress_is_made(&cell, &mut watch));
                self.inside.roles.watched(&watch);
            }
            Duty::Block => self.block(&cell, awaits, || cell.sleep()),
        }
        None
    }

    fn block(&mut self, cell: &Arc<Cell>, awaits: Awaits, sleep: impl FnOnce()) {
        self.inside.roles.blocked.add(cell, awaits);
        self.inside.while_out(sleep);
        self.inside.roles.blocked.remove(cell);
    }

    /// Makes progress until `poll` gives something; `None`: another thread has taken over.
    fn make_progress<T>(&mut self, poll: &mut impl FnMut(&mut C) -> Option<T>) -> Option<T> {
        let (mut empty, mut busy, mut idle_since) = (0, 0_u32, None);
        self.inside.pace.pause();
        loop {
            let now = self.inside.pace.now();
            let events = self.inside.engine.progress(now);
            if events > 0 {
                (empty, busy, idle_since) = (0, busy.wrapping_add(1), None);
                if busy.is_multiple_of(BUSY_PROGRESS_PER_CLOCK_READ) {
                    self.check_in_traffic();
                }
                self.notify_blocked();
            }
            let found = poll(&mut self.inside.engine);
            if found.is_some() {
                return found;
            }
            self.inside.hand_over();
            if events == 0 {
                empty += 1;
                self.poll_rings();
                if empty % PROGRESS_PER_CLOCK_READ == 0 || self.inside.pace.yields_at_once() {
                    let found = self.rest(&mut idle_since, poll);
                    if found.is_some() {
                        return found;
                    }
                }
            }
            if !self.is_owner() {
                return None;
            }
        }
    }

    #[inline]
    fn is_owner(&self) -> bool {
        self.ownership.is_some_and(|ownership| self.inside.roles.holds(ownership))
    }

    #[inline]
    fn notify_blocked(&mut self) {
        if !self.inside.roles.blocked.is_empty() {
            self.inside.notify_blocked();
        }
    }

    /// Other peers may send without a pause, while the one that this thread waits for is dead.
    #[cold]
    fn check_in_traffic(&mut self) {
        let now = clock::now();
        self.inside.pace.set_now(now);
        self.inside.check_if_due(now);
    }

    // Hot: per empty call of progress.
    /// Polls what is waited for; not where another rank waits for this processor.
    #[inline]
    fn poll_rings(&self) {
        if self.inside.pace.yields_at_once() {
            return;
        }
        for _ in 0..POLLS_PER_PROGRESS {
            if self.inside.engine.is_ready() {
                break;
            }
        }
    }

    /// Nothing came for a while: polls on, yields, or sleeps, as long as that has been. What `poll` found meanwhile.
    #[cold]
    fn rest<T>(
        &mut self,
        idle_since: &mut Option<Instant>,
        poll: &mut impl FnMut(&mut C) -> Option<T>,
    ) -> Option<T> {
        let now = clock::now();
        let inside = &mut *self.inside;
        inside.pace.set_now(now);
        inside.check_if_due(now);
        let idle = now - *idle_since.get_or_insert(now);
        match inside.pace.next(now, idle, &self.waiting.sleep_slot, &self.waiting.polls) {
            Next::Poll => {}
            Next::Yield => self.yield_processor(now),
            Next::Sleep => {
                *idle_since = None;
                inside.pace.pause();
                let found = self.sleep(poll);
                self.inside.pace.set_now(clock::now());
                return found;
            }
        }
        None
    }

    /// Lets others run, more than once where a cheap poll shows whether what is waited for has come.
    fn yield_processor(&mut self, before: Instant) {
        for _ in 0..YIELDS_PER_PROGRESS {
            self.inside.while_out(rustix::thread::sched_yield);
            if self.inside.engine.is_ready() || self.inside.is_wanted() {
                break;
            }
        }
        let after = clock::now();
        self.inside.pace.on_yield(before, after);
        self.inside.pace.set_now(after);
    }

    /// Sleeps until something comes, or another thread of this process wants this one awake, or takes over.
    fn sleep<T>(&mut self, poll: &mut impl FnMut(&mut C) -> Option<T>) -> Option<T> {
        let sleep_slot = &self.waiting.sleep_slot;
        sleep_slot.announce();
        let mut found = None;
        if self.inside.engine.arm().is_ok() {
            self.inside.sleeps += 1;
            let mut span = SleepSpan::FIRST;
            loop {
                self.inside.asleep = true;
                let woken = self.inside.while_out(|| sleep_slot.sleep(span));
                if !self.is_owner() {
                    // The thread that took over has left the sleep word and disarmed.
                    return None;
                }
                self.inside.asleep = false;
                if woken == Woken::Rung {
                    break;
                }
                let now = clock::now();
                self.inside.check();
                let events = self.inside.engine.progress(now);
                found = poll(&mut self.inside.engine);
                if events > 0 {
                    self.inside.late_wakes += 1;
                    self.notify_blocked();
                }
                if events > 0 || found.is_some() {
                    break;
                }
                span = span.next();
            }
        }
        sleep_slot.leave();
        self.inside.engine.disarm();
        found
    }
}

/// A deputy sleeps until it is rung, or until no progress was made for some time.
fn while_progress_is_made(cell: &Cell, watch: &mut ProgressWatch) {
    while !cell.sleep_at_most(WATCH) && watch.has_changed() {}
}

#[cfg(test)]
mod tests;
