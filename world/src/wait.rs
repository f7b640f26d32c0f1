// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting. One thread makes progress: it polls, yields, then sleeps. The others are blocked, each on its own semaphore.
//!
//! ```text
//!           no event for spin_us       no event for yield_us            armed, none pending
//!   polling ──────────────────▶ yielding ──────────────────▶ arming ──────────────────────▶ asleep ──┐ time-out,
//!      ▲                            │                           │                             │ ▲────┘ no event
//!      └──────────── event ─────────┴───────────────────────────┴─ woken, or time-out, event ─┘
//! ```
//!
//! The spin policy says how long the thread polls and yields. With more ranks than processors, and beside another rank, it yields
//! at once (R-34). A thread sleeps on the sleep word of the process, or on the descriptors of networks, or on both
//! (`sleep_slot.rs`). The first sleep lasts 1 ms. At its time-out the thread makes progress once (the timed poll), and without an
//! event sleeps again, twice as long, up to 100 ms: a bell can be lost because of a store that is still in the sender's store
//! buffer, and the poll after 1 ms finds what the bell was for (design "Shared memory"). A descriptor that became readable without an event
//! does not end the sleep, nor does it begin with short looks again.

use crate::blocked::WakeCondition;
use crate::clock;
use crate::descriptor_schedule::Watched;
use crate::guard::{CriticalSection, Guard};
use crate::roles::{Ownership, ProgressWatch, Role, Roles, WATCH_PERIOD};
use crate::semaphore::Semaphore;
use crate::sleep_slot::{Sleep, SleepSet, SleepSlot, SleepSpan};
use crate::spin_policy::{Next, SpinLimits};
use crate::statistics::Statistics;
use crate::unsatisfiable_waits::UnsatisfiableWaits;
use crate::wait_timing::{ClockPace, PollsBeforePost, WaitTiming};
use mend_base::Instant;
use mend_mpi::SleeperId;
use mend_segment::Woken;
use mend_transport::{EventPending, WakeSet};
use std::sync::Arc;

/// What waiting needs of an engine. Implemented by the engine of `mpi`, and by tests.
///
/// The caller holds the guard for each call, so no two threads call at the same time. No method blocks, and no method calls user
/// code. A death of a peer shows in two ways: `progress` ends the requests that depend on the peer, whose sleepers `next_to_wake`
/// then names, and `notify_all_count` changes.
pub trait Progress {
    /// Moves transfers on and takes notices, and returns the number of events. 0 means that the caller may yield its processor. `now` may
    /// be stale. May end the process if its job was aborted.
    fn progress(&mut self, now: Instant) -> u32;
    /// Whether `progress` would probably have an event: a cheap poll of the rings that the caller waits for, between two calls of
    /// `progress`. A wrong answer delays an event until the next call of `progress`.
    fn is_ready(&self) -> bool;
    /// The timed check: whether the node daemon is still there, and whether peers live. Called about once a millisecond while a thread
    /// waits, and after each time-out of its sleep. The next `progress` reports what it found. Costs a system call, and a cache line for
    /// each peer that is checked.
    fn check(&mut self);
    /// Begins a look at what the waiting call waits for: the call is polled once before [`end_look`](Progress::end_look). After each timed
    /// check.
    fn begin_look(&mut self);
    /// Ends a look at this time, which is not stale. `is_waiting`: the poll had no result. The next `progress` sends what the look caused.
    fn end_look(&mut self, is_waiting: bool, now: Instant);
    /// The call at which there were looks has ended.
    fn end_wait(&mut self);
    /// The node daemon may have asked where the program is: it is in no call that waits, but here.
    fn answer_where(&mut self, place: &'static str);
    /// A message from any peer is expected, so from now on `is_ready` returns true. Called when a call begins to wait, which then
    /// narrows this down if it waits for known senders, and when a thread takes progress over, as others wait for other senders.
    fn expect_any(&mut self);
    /// Prepares a sleep, and adds to `wake` what to sleep on: from now until `disarm`, every event wakes this process there, except that a
    /// wake-up may be lost. Notices wake it at its sleep word. `EventPending`: there is an event already, so the caller must not sleep.
    /// The caller calls `disarm` in both cases.
    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), EventPending>;
    /// As [`arm`](Progress::arm), for descriptors alone, which are watched while the program computes. `disarm` does not follow.
    fn arm_descriptors(&mut self, wake: &mut WakeSet) -> Result<(), EventPending>;
    /// A descriptor that is readable while there are notices, if they come from another process.
    fn notice_descriptor(&self) -> Option<i32>;
    /// Ends what `arm` began. No effect if nothing is armed.
    fn disarm(&mut self);
    /// From now until [`wake_when_over`](Progress::wake_when_over), notes each active request that is polled: the caller polls its call once,
    /// and so names the requests that it waits for.
    fn note_awaited(&mut self);
    /// Makes `sleeper` the sleeper of each request that was noted. `false`: none was noted, so any event may end the wait.
    fn wake_when_over(&mut self, sleeper: SleeperId) -> bool;
    /// Wakes the helper threads of peers that have not consumed a control message of this process.
    fn call_helpers(&mut self);
    /// The sleeper of a request that has ended; each once for each end. Called until it returns `None`.
    fn next_to_wake(&mut self) -> Option<SleeperId>;
    /// How often every sleeper had to be woken; wraps. It changes with the end of a peer and with an acknowledgement of failures,
    /// which may change the result of any wait (X-8.3).
    fn notify_all_count(&self) -> u32;
}

/// What the guard protects: the engine, and the state of the threads that wait.
#[derive(Debug)]
pub struct Guarded<C> {
    /// The engine.
    pub engine: C,
    roles: Roles,
    timing: WaitTiming,
    /// The owner of progress sleeps, without the guard.
    asleep: bool,
    /// Empty while it sleeps.
    sleep_set: SleepSet,
    /// `notify_all_count` of the engine when all blocked threads were last woken.
    notified_all: u32,
    sleeps: u64,
    late_wakes: u64,
    /// Turns of the helper thread, and for it, make progress: until MPI_Finalize.
    has_turns: bool,
    turns_of_helper: u64,
    turns_for_helper: u64,
    /// Blocking receives so far; wraps.
    receives: u32,
}

/// The state of waiting that is used without the guard.
#[derive(Debug)]
pub struct WaitState {
    sleep_slot: SleepSlot,
    polls_before_post: PollsBeforePost,
    unsatisfiable: UnsatisfiableWaits,
}

impl WaitState {
    /// The owner of progress will sleep in `sleep_slot`.
    pub fn new(sleep_slot: SleepSlot) -> Self {
        WaitState {
            sleep_slot,
            polls_before_post: PollsBeforePost::default(),
            unsatisfiable: UnsatisfiableWaits::default(),
        }
    }

    /// How many threads watch descriptors.
    pub fn watcher_threads(&self) -> u32 {
        self.sleep_slot.descriptor_watch().threads()
    }

    /// The threads whose wait only another thread of this process could end. The caller holds the guard.
    pub fn unsatisfiable(&self) -> &UnsatisfiableWaits {
        &self.unsatisfiable
    }

    /// Ends waiting in this process, at MPI_Finalize.
    pub fn end(&self) {
        self.sleep_slot.clear_processor();
        self.sleep_slot.descriptor_watch().end();
    }
}

/// Every this many blocking receives, one is posted without polling, so that its caller makes progress.
const RECEIVES_PER_PROGRESS: u32 = 16;

/// Polls of the rings that are waited for between two calls of progress. A poll is a few loads; progress takes some 40 ns.
const POLLS_PER_PROGRESS: u32 = 16;

/// Calls of progress in one turn of the helper thread. The program that enters meanwhile waits for all of them. What is left has the next
/// turn: senders of control messages call again.
const PROGRESS_PER_SERVICE: u32 = 64;

/// Successive calls without an event after which nothing is left to do: every fourth call answers bells.
const EMPTY_PROGRESS_PER_SERVICE: u32 = 8;

/// Attempts to arm descriptors in one turn of the helper thread.
const ARMS_PER_SERVICE: u32 = 4;

/// Yields between two calls of progress, if the rings that are waited for stay empty. Progress reads a cache line of every peer, and on a
/// shared processor none of them is in the nearest cache any more.
const YIELDS_PER_PROGRESS: u32 = 4;

impl<C> Guarded<C> {
    /// Around `engine`. No thread waits.
    pub fn new(engine: C, limits: SpinLimits, pace: ClockPace, waiting: &WaitState) -> Self {
        Guarded {
            engine,
            roles: Roles::default(),
            timing: WaitTiming::new(limits, pace, &waiting.polls_before_post),
            asleep: false,
            sleep_set: SleepSet::default(),
            notified_all: 0,
            sleeps: 0,
            late_wakes: 0,
            has_turns: true,
            turns_of_helper: 0,
            turns_for_helper: 0,
            receives: 0,
        }
    }

    /// The helper thread makes no progress from now on: MPI_Finalize.
    pub fn end_turns(&mut self) {
        self.has_turns = false;
    }

    /// The counts since Init.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            sleeps: self.sleeps,
            late_wakes: self.late_wakes,
            wakes_of_blocked: self.roles.blocked.wakes(),
            turns_of_helper: self.turns_of_helper,
            turns_for_helper: self.turns_for_helper,
        }
    }
}

impl<C: Progress> Guarded<C> {
    /// Makes the timed check, if it is due. Returns whether it was.
    #[inline]
    pub fn check_if_due(&mut self, now: Instant) -> bool {
        let is_due = self.timing.is_check_due(now);
        if is_due {
            self.check();
        }
        is_due
    }

    #[cold]
    fn check(&mut self) {
        self.engine.check();
    }

    /// Makes progress until nothing is left to do, for a program that computes. Wakes no thread, as none waits. Returns whether there were
    /// events.
    fn make_progress_for_helper(&mut self) -> bool {
        let (mut empty, mut any) = (0, false);
        for _ in 0..PROGRESS_PER_SERVICE {
            let events = self.engine.progress(clock::now());
            empty = if events == 0 { empty + 1 } else { 0 };
            any |= events > 0;
            if empty == EMPTY_PROGRESS_PER_SERVICE {
                break;
            }
        }
        any
    }

    /// Prepares a sleep. A process that does not sleep on its sleep word, or is not woken there, is woken for notices by their descriptor.
    fn arm(&mut self, wake: &mut WakeSet, waiting: &WaitState) -> Result<(), EventPending> {
        self.engine.arm(wake)?;
        if !wake.futex && (!wake.descriptors.is_empty() || !waiting.sleep_slot.is_shared()) {
            wake.descriptors.extend(self.engine.notice_descriptor());
        }
        Ok(())
    }

    /// Wakes the blocked threads whose wait may be over after the last events.
    #[cold]
    fn notify_blocked(&mut self) {
        self.notify_concerned();
        self.roles.blocked.wake_for_event();
    }

    /// As [`notify_blocked`](Guarded::notify_blocked), except the threads that wait for any event. Wakes no thread if nothing has changed,
    /// so a thread that was woken may call it.
    #[cold]
    fn notify_concerned(&mut self) {
        while let Some(sleeper) = self.engine.next_to_wake() {
            self.roles.blocked.wake(sleeper);
        }
        let notify_all_count = self.engine.notify_all_count();
        if self.notified_all != notify_all_count {
            self.notified_all = notify_all_count;
            self.roles.blocked.wake_all();
        }
    }

    /// Ends the ownership of another thread, and wakes that thread if it sleeps.
    fn revoke_ownership(&mut self, waiting: &WaitState) {
        self.roles.revoke();
        if core::mem::take(&mut self.asleep) {
            waiting.sleep_slot.end_sleep();
            self.engine.disarm();
            waiting.sleep_slot.wake();
        }
    }
}

/// What the helper thread does in the guard. Does nothing while threads wait in MPI: they make progress, and the events are for them.
#[cold]
pub fn serve_as_helper<C: Progress>(guarded: &mut Guarded<C>) {
    serve(guarded);
}

/// `None`: threads wait in MPI. Otherwise whether there were events.
fn serve<C: Progress>(guarded: &mut Guarded<C>) -> Option<bool> {
    if !guarded.has_turns || !guarded.roles.no_thread_waits() {
        return None;
    }
    guarded.turns_of_helper += 1;
    // Only for messages that were sent before: the answers of this turn were given no time to be consumed.
    guarded.engine.call_helpers();
    let events = guarded.make_progress_for_helper();
    guarded.engine.answer_where("outside MPI");
    Some(events)
}

/// As [`serve_as_helper`]. Then lets the watcher thread call the helper thread when a descriptor is readable.
#[cold]
pub fn watch_as_helper<C: Progress>(guarded: &mut Guarded<C>, waiting: &WaitState) -> Watched {
    let is_shared = waiting.sleep_slot.is_shared();
    if !is_shared && guarded.roles.no_thread_waits() {
        // The node daemon does not call the helper thread: its notices are found by a check alone.
        guarded.check();
    }
    let Some(mut events) = serve(guarded) else { return Watched::InMpi };
    let Guarded { engine, sleep_set: SleepSet { wake, .. }, .. } = guarded;
    let is_armed = (0..ARMS_PER_SERVICE).any(|_| {
        wake.clear();
        let is_armed = engine.arm_descriptors(wake).is_ok();
        // A device may have something that makes no event, and is not armed before progress has consumed it.
        events |= !is_armed && engine.progress(clock::now()) > 0;
        is_armed
    });
    if !is_shared {
        wake.descriptors.extend(engine.notice_descriptor());
    }
    let is_watched = is_armed && !wake.must_poll && waiting.sleep_slot.watch_for_helper(&wake.descriptors);
    if is_watched { Watched::Armed { events } } else { Watched::NotArmed { events } }
}

/// What the program does for the helper thread before it leaves the guard.
#[cold]
pub fn serve_before_leaving<C: Progress>(guarded: &mut Guarded<C>) {
    if guarded.has_turns && guarded.roles.no_thread_waits() {
        guarded.turns_for_helper += 1;
        guarded.make_progress_for_helper();
        guarded.engine.answer_where("one MPI call after the other, none of which waits");
    }
}

/// Waits until `poll` returns a result. `poll` is called after each progress that may have changed its answer.
pub fn wait<C: Progress, T>(
    guard: &Guard<Guarded<C>>,
    waiting: &WaitState,
    poll: impl FnMut(&mut C) -> Option<T>,
) -> T {
    let mut guarded = guard.enter();
    guarded.engine.expect_any();
    wait_guarded(guarded, waiting, poll)
}

/// What a call is after its start.
#[derive(Debug)]
pub enum StartResult<T, W> {
    /// The call is complete, with this result.
    Complete(T),
    /// The call must wait. The value is what `poll` needs.
    Incomplete(W),
}

// Hot: per message.
/// Starts a call, and waits until it is complete, with one entry of the guard.
#[inline(always)]
pub fn start_and_wait<C: Progress, T, W>(
    guard: &Guard<Guarded<C>>,
    waiting: &WaitState,
    start: impl FnOnce(&mut C) -> StartResult<T, W>,
    mut poll: impl FnMut(&mut W, &mut C) -> Option<T>,
) -> T {
    let mut guarded = guard.enter();
    match start(&mut guarded.engine) {
        StartResult::Complete(result) => unlock_without_waiting(guarded, waiting, result),
        StartResult::Incomplete(mut what) => {
            wait_guarded(guarded, waiting, move |engine| poll(&mut what, engine))
        }
    }
}

// Hot: per message.
/// As [`start_and_wait`], for a call that may poll one ring before it posts a receive. `start` gets the number of polls. In every
/// [`RECEIVES_PER_PROGRESS`]th call this number is 0, so that the call makes progress: otherwise two ranks that exchange messages without
/// a pause would delay everything else.
#[inline(always)]
pub fn start_and_wait_polling<C: Progress, T, W>(
    guard: &Guard<Guarded<C>>,
    waiting: &WaitState,
    start: impl FnOnce(&mut C, u32) -> StartResult<T, W>,
    mut poll: impl FnMut(&mut W, &mut C) -> Option<T>,
) -> T {
    let mut guarded = guard.enter();
    guarded.receives = guarded.receives.wrapping_add(1);
    let polls = if guarded.receives.is_multiple_of(RECEIVES_PER_PROGRESS) {
        0
    } else {
        waiting.polls_before_post.get()
    };
    match start(&mut guarded.engine, polls) {
        StartResult::Complete(result) => unlock_without_waiting(guarded, waiting, result),
        StartResult::Incomplete(mut what) => {
            wait_guarded(guarded, waiting, move |engine| poll(&mut what, engine))
        }
    }
}

// Hot: per message.
/// Leaves the guard after a call that is complete without waiting.
#[inline(always)]
fn unlock_without_waiting<C: Progress, T>(
    mut guarded: CriticalSection<'_, Guarded<C>>,
    waiting: &WaitState,
    result: T,
) -> T {
    if !guarded.roles.no_thread_waits() {
        let guarded = &mut *guarded;
        revoke_and_notify(guarded, waiting);
    }
    result
}

/// Ends the ownership of a waiting thread, because the calling thread is running and will make progress in its next call.
#[cold]
fn revoke_and_notify<C: Progress>(guarded: &mut Guarded<C>, waiting: &WaitState) {
    if guarded.roles.is_owned() {
        guarded.revoke_ownership(waiting);
    }
    guarded.notify_blocked();
    guarded.roles.choose_standby();
}

/// Leaves the guard after work on the engine, and wakes threads that the work may concern: the owner of progress, if it sleeps, because an
/// operation that was started needs progress; blocked threads whose requests have ended.
// Hot: per message.
#[inline(always)]
pub fn unlock_and_notify<C: Progress>(mut guarded: CriticalSection<'_, Guarded<C>>, waiting: &WaitState) {
    if !guarded.roles.no_thread_waits() {
        notify_others(&mut guarded, waiting);
    }
}

#[cold]
fn notify_others<C: Progress>(guarded: &mut Guarded<C>, waiting: &WaitState) {
    guarded.notify_blocked();
    if guarded.asleep {
        waiting.sleep_slot.wake();
    }
}

/// Makes progress once and runs `work`: for calls that test without waiting.
pub fn progress_once<C: Progress, R>(
    guard: &Guard<Guarded<C>>,
    waiting: &WaitState,
    work: impl FnOnce(&mut C) -> R,
) -> R {
    let now = clock::now();
    let mut guarded = guard.enter();
    guarded.check_if_due(now);
    let events = guarded.engine.progress(now);
    if events > 0 {
        guarded.engine.answer_where("calls that test, one after the other (MPI_Test, MPI_Iprobe)");
    }
    let result = work(&mut guarded.engine);
    if !guarded.roles.no_thread_waits() {
        guarded.roles.count_progress();
        notify_others(&mut guarded, waiting);
    }
    let yields =
        events == 0 && guarded.timing.yields_after_test(now, &waiting.sleep_slot, &waiting.polls_before_post);
    drop(guarded);
    if yields {
        rustix::thread::sched_yield();
    }
    result
}

#[inline(never)]
fn wait_guarded<C: Progress, T>(
    guarded: CriticalSection<'_, Guarded<C>>,
    waiting: &WaitState,
    mut poll: impl FnMut(&mut C) -> Option<T>,
) -> T {
    let mut call = WaitingCall { guarded, waiting, ownership: None, semaphore: None, has_looked: false };
    if let Some(result) = poll(&mut call.guarded.engine) {
        return result;
    }
    call.acquire_ownership();
    loop {
        if call.ownership.is_some()
            && let Some(result) = call.make_progress(&mut poll)
        {
            return result;
        }
        // This thread does not own progress.
        if let Some(result) = call.take_role(&mut poll) {
            return result;
        }
    }
}

/// A call that waits. Dropping it, also by unwinding, lets another thread make progress.
struct WaitingCall<'a, C: Progress> {
    guarded: CriticalSection<'a, Guarded<C>>,
    waiting: &'a WaitState,
    /// While this thread owns progress.
    ownership: Option<Ownership>,
    /// The semaphore of this thread, after it was blocked once.
    semaphore: Option<Arc<Semaphore>>,
    has_looked: bool,
}

impl<C: Progress> Drop for WaitingCall<'_, C> {
    #[inline]
    fn drop(&mut self) {
        if !self.waiting.unsatisfiable.is_empty() {
            self.waiting.unsatisfiable.end();
        }
        let guarded = &mut *self.guarded;
        if self.has_looked {
            guarded.engine.end_wait();
        }
        self.ownership.into_iter().for_each(|ownership| guarded.roles.release(ownership));
        if !guarded.roles.no_thread_waits() || self.semaphore.is_some() {
            self.notify_others_at_end();
        }
    }
}

impl<C: Progress> WaitingCall<'_, C> {
    #[cold]
    fn notify_others_at_end(&mut self) {
        let guarded = &mut *self.guarded;
        self.semaphore.iter().for_each(|semaphore| guarded.roles.remove(semaphore.sleeper_id()));
        notify_others(guarded, self.waiting);
        guarded.roles.choose_standby();
    }

    /// Makes this thread the owner of progress.
    fn acquire_ownership(&mut self) {
        if self.guarded.roles.is_owned() {
            self.guarded.revoke_ownership(self.waiting);
        }
        self.ownership = Some(self.guarded.roles.acquire());
        // The start of the call may have taken messages of blocked threads, or published a death.
        self.notify_blocked();
    }

    /// Gets the role of this thread, which does not own progress: it sleeps as a standby or blocked thread, or becomes the owner. Returns what
    /// `poll` found before that.
    #[cold]
    fn take_role<T>(&mut self, poll: &mut impl FnMut(&mut C) -> Option<T>) -> Option<T> {
        let revoked = self.ownership.take().is_some();
        let semaphore = Arc::clone(self.semaphore.get_or_insert_with(Semaphore::of_thread));
        let guarded = &mut *self.guarded;
        guarded.engine.note_awaited();
        let found = poll(&mut guarded.engine);
        let has_requests = guarded.engine.wake_when_over(semaphore.sleeper_id());
        if found.is_some() {
            return found;
        }
        // The poll may have made progress.
        guarded.notify_concerned();
        let condition = if has_requests { WakeCondition::RequestEnd } else { WakeCondition::AnyEvent };
        match guarded.roles.assign(semaphore.sleeper_id(), revoked) {
            Role::Owner(ownership) => {
                guarded.engine.expect_any();
                self.ownership = Some(ownership);
            }
            Role::Standby(mut watch) => {
                self.block(&semaphore, condition, || watch_progress(&semaphore, &mut watch));
                self.guarded.roles.note_watch(&watch);
            }
            Role::Blocked => self.block(&semaphore, condition, || semaphore.wait()),
        }
        None
    }

    fn block(&mut self, semaphore: &Arc<Semaphore>, condition: WakeCondition, sleep: impl FnOnce()) {
        self.guarded.roles.blocked.add(semaphore, condition);
        self.guarded.while_released(sleep);
        self.guarded.roles.blocked.remove(semaphore);
    }

    /// Makes progress until `poll` returns a result. `None`: another thread owns progress.
    fn make_progress<T>(&mut self, poll: &mut impl FnMut(&mut C) -> Option<T>) -> Option<T> {
        let (mut empty, mut busy, mut idle_since) = (0, 0_u32, None);
        let pace = self.guarded.timing.pace();
        self.guarded.timing.polling_stopped();
        loop {
            let now = self.guarded.timing.now();
            let events = self.guarded.engine.progress(now);
            if events > 0 {
                (empty, busy, idle_since) = (0, busy.wrapping_add(1), None);
                if busy.is_multiple_of(pace.busy) {
                    self.check_while_busy();
                }
                self.notify_blocked();
            }
            let found = poll(&mut self.guarded.engine);
            if found.is_some() {
                return found;
            }
            self.guarded.yield_to_contenders();
            if events == 0 {
                empty += 1;
                self.poll_awaited();
                if empty % pace.empty == 0 || self.guarded.timing.yields_at_once() {
                    let found = self.back_off(&mut idle_since, poll);
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
        self.ownership.is_some_and(|ownership| self.guarded.roles.holds(ownership))
    }

    #[inline]
    fn notify_blocked(&mut self) {
        if !self.guarded.roles.blocked.is_empty() {
            self.guarded.notify_blocked();
        }
    }

    /// Makes the timed check, if it is due, while events come without a pause: the peer that this thread waits for may be dead.
    #[cold]
    fn check_while_busy(&mut self) {
        let now = clock::now();
        self.guarded.timing.set_now(now);
        self.guarded.check_if_due(now);
    }

    // Hot: per empty call of progress.
    /// Polls the rings that are waited for. Does not poll if another rank waits for this processor.
    #[inline]
    fn poll_awaited(&self) {
        if self.guarded.timing.yields_at_once() {
            return;
        }
        for _ in 0..POLLS_PER_PROGRESS {
            if self.guarded.engine.is_ready() {
                break;
            }
        }
    }

    /// Polls on, yields, or sleeps, depending on how long there was no event. Returns what `poll` found during a sleep.
    #[cold]
    fn back_off<T>(
        &mut self,
        idle_since: &mut Option<Instant>,
        poll: &mut impl FnMut(&mut C) -> Option<T>,
    ) -> Option<T> {
        let now = clock::now();
        let guarded = &mut *self.guarded;
        guarded.timing.set_now(now);
        if guarded.check_if_due(now) {
            let found = self.look(poll);
            if found.is_some() {
                return found;
            }
        }
        let guarded = &mut *self.guarded;
        // A poll that returned nothing may have made progress.
        if !guarded.roles.blocked.is_empty() {
            guarded.notify_concerned();
        }
        let idle = now - *idle_since.get_or_insert(now);
        match guarded.timing.next(now, idle, &self.waiting.sleep_slot, &self.waiting.polls_before_post) {
            Next::Poll => {}
            Next::Yield => self.yield_processor(now),
            Next::Sleep => {
                *idle_since = None;
                guarded.timing.polling_stopped();
                let found = self.sleep(poll);
                self.guarded.timing.set_now(clock::now());
                return found;
            }
        }
        None
    }

    /// Looks at what the call waits for. Returns what `poll` found.
    fn look<T>(&mut self, poll: &mut impl FnMut(&mut C) -> Option<T>) -> Option<T> {
        self.has_looked = true;
        let engine = &mut self.guarded.engine;
        engine.begin_look();
        let found = poll(engine);
        engine.end_look(found.is_none(), clock::now());
        found
    }

    /// Yields the processor, more than once as long as no event is to be expected and no thread waits to enter.
    fn yield_processor(&mut self, before: Instant) {
        for _ in 0..YIELDS_PER_PROGRESS {
            self.guarded.while_released(rustix::thread::sched_yield);
            if self.guarded.engine.is_ready() || self.guarded.has_contenders() {
                break;
            }
        }
        let after = clock::now();
        self.guarded.timing.on_yield(before, after);
        self.guarded.timing.set_now(after);
    }

    /// Sleeps until there is an event, another thread of this process wakes this one, or the ownership is revoked.
    fn sleep<T>(&mut self, poll: &mut impl FnMut(&mut C) -> Option<T>) -> Option<T> {
        // A poll may have made progress: also wake the threads that wait for any event. `back_off` does not, because they would be
        // woken in vain too often.
        self.notify_blocked();
        let mut span = SleepSpan::FIRST;
        loop {
            match self.sleep_once(&mut span, poll) {
                SleepEnd::InVain => {}
                SleepEnd::Revoked => return None,
                SleepEnd::Over(found) => return found,
            }
        }
    }

    /// Arms and sleeps, first for `span`, which becomes that of a sleep after it.
    fn sleep_once<T>(
        &mut self,
        span: &mut SleepSpan,
        poll: &mut impl FnMut(&mut C) -> Option<T>,
    ) -> SleepEnd<T> {
        let sleep_slot = &self.waiting.sleep_slot;
        let announced = sleep_slot.announce();
        let mut set = core::mem::take(&mut self.guarded.sleep_set);
        set.wake.clear();
        let mut end = SleepEnd::Over(None);
        if self.guarded.arm(&mut set.wake, self.waiting).is_ok() {
            self.guarded.sleeps += 1;
            let mut sleep = sleep_slot.begin(announced, &set, *span);
            end = self.sleep_on(&mut sleep, &mut set, poll);
            *span = sleep.span();
        }
        self.guarded.sleep_set = set;
        // The thread that revoked the ownership has disarmed the engine and ended the sleep.
        if !matches!(end, SleepEnd::Revoked) {
            sleep_slot.end_sleep();
            self.guarded.engine.disarm();
        }
        end
    }

    /// Sleeps and looks by turns until the sleep is over.
    fn sleep_on<T>(
        &mut self,
        sleep: &mut Sleep,
        set: &mut SleepSet,
        poll: &mut impl FnMut(&mut C) -> Option<T>,
    ) -> SleepEnd<T> {
        let sleep_slot = &self.waiting.sleep_slot;
        loop {
            self.guarded.asleep = true;
            let woken = self.guarded.while_released(|| sleep_slot.sleep(sleep, set));
            if !self.is_owner() {
                return SleepEnd::Revoked;
            }
            self.guarded.asleep = false;
            if woken == Woken::Rung && !sleep.is_ended_by_network() {
                return SleepEnd::Over(None);
            }
            let now = clock::now();
            let mut seen = None;
            // A peer that wakes this one again and again must not keep it from looking.
            if woken == Woken::TimedOut && !sleep.was_short() || self.guarded.timing.is_check_due(now) {
                self.guarded.check();
                seen = self.look(poll);
            }
            let events = self.guarded.engine.progress(now);
            let found = seen.or_else(|| poll(&mut self.guarded.engine));
            self.notify_blocked();
            if events > 0 && woken == Woken::TimedOut {
                self.guarded.late_wakes += 1;
                sleep_slot.on_late_wake(sleep);
            }
            if events > 0 || found.is_some() {
                return SleepEnd::Over(found);
            }
            if woken == Woken::Rung {
                return SleepEnd::InVain;
            }
        }
    }
}

/// How a sleep ended.
enum SleepEnd<T> {
    /// Another thread has revoked the ownership.
    Revoked,
    /// There was an event, or may be one soon. What `poll` found.
    Over(Option<T>),
    /// A descriptor became readable, and there was no event: a peer has asked whether this process lives, or has answered.
    InVain,
}

/// Sleeps as the standby thread: until the semaphore is posted, or the counter has not changed for one period.
fn watch_progress(semaphore: &Semaphore, watch: &mut ProgressWatch) {
    while !semaphore.wait_at_most(WATCH_PERIOD) && watch.has_changed() {}
}

#[cfg(test)]
mod tests;
