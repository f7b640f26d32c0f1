// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The times of waiting: when the clock was read, when a timed check is due, and whether a waiting thread yields.

use crate::sleep_slot::{Observed, SleepSlot};
use crate::spin_policy::{Next, Sharing, SpinLimits, SpinPolicy};
use core::sync::atomic::{AtomicU32, Ordering};
use mend_base::{Duration, Instant};

/// How often a blocking receive polls the ring of its sender before it is posted. Read without the guard.
#[derive(Debug, Default)]
pub struct PollsBeforePost(AtomicU32);

impl PollsBeforePost {
    // Hot: per blocking receive.
    /// The number of polls: some 2 us at 4 ns each, or 1 if another rank waits for this processor.
    #[inline]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn adapt(&self, sharing: Sharing) {
        self.0.store(if sharing == Sharing::WithRank { 1 } else { POLLS_BEFORE_POST }, Ordering::Relaxed);
    }
}

/// Polls of a blocking receive that shares its processor with no other rank.
const POLLS_BEFORE_POST: u32 = 500;

/// Time between two timed checks.
const CHECK_EVERY: Duration = Duration::from_millis(1);

/// Tests without an event between two observations of the processor.
const TESTS_PER_OBSERVATION: u32 = 64;

/// After how many calls of progress the clock is read: some microseconds, without a share of them that counts.
#[derive(Clone, Copy, Debug)]
pub struct ClockPace {
    /// Calls without an event.
    pub empty: u32,
    /// Calls with events.
    pub busy: u32,
}

impl ClockPace {
    /// Of memory alone: a call without an event takes 28 ns.
    pub const MEMORY: ClockPace = ClockPace { empty: 64, busy: 1_024 };

    /// With networks: a call is a system call at least, and one that moves long messages takes 100 us and more.
    pub const NETWORKS: ClockPace = ClockPace { empty: 8, busy: 16 };
}

/// When waiting threads read the clock, check, and yield.
#[derive(Debug)]
pub struct WaitTiming {
    pace: ClockPace,
    spin_policy: SpinPolicy,
    sharing: Sharing,
    observed: Observed,
    /// When the clock was last read.
    now: Instant,
    /// When the last timed check was.
    checked: Instant,
    empty_tests: u32,
}

impl WaitTiming {
    /// Without observations.
    pub fn new(limits: SpinLimits, pace: ClockPace, polls_before_post: &PollsBeforePost) -> Self {
        let spin_policy = SpinPolicy::new(limits);
        let sharing = spin_policy.sharing(Instant(0));
        polls_before_post.adapt(sharing);
        WaitTiming {
            pace,
            spin_policy,
            sharing,
            observed: Observed::default(),
            now: Instant(0),
            checked: Instant(0),
            empty_tests: 0,
        }
    }

    /// After how many calls of progress the clock is read.
    #[inline]
    pub fn pace(&self) -> ClockPace {
        self.pace
    }

    /// The time when the clock was last read.
    #[inline]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Sets the time, after the clock was read.
    pub fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Whether a timed check is due. If so, the caller must make it.
    #[inline]
    pub fn is_check_due(&mut self, now: Instant) -> bool {
        let due = now - self.checked >= CHECK_EVERY;
        if due {
            self.checked = now;
        }
        due
    }

    /// Whether a waiting thread yields its processor without polling first.
    #[inline]
    pub fn yields_at_once(&self) -> bool {
        self.sharing == Sharing::WithRank
    }

    /// Observes the processor, and returns what a thread does next that has had no event for `idle`.
    pub fn next(
        &mut self,
        now: Instant,
        idle: Duration,
        sleep_slot: &SleepSlot,
        polls_before_post: &PollsBeforePost,
    ) -> Next {
        self.spin_policy.observe(now, &mut sleep_slot.processor(&mut self.observed));
        self.sharing = self.spin_policy.sharing(now);
        polls_before_post.adapt(self.sharing);
        self.spin_policy.next(now, idle)
    }

    /// Whether a call that tests without waiting, and had no event, yields its processor. Otherwise a loop of such calls would use whole time
    /// slices that other ranks on this processor need.
    pub fn yields_after_test(
        &mut self,
        now: Instant,
        sleep_slot: &SleepSlot,
        polls_before_post: &PollsBeforePost,
    ) -> bool {
        self.empty_tests = self.empty_tests.wrapping_add(1);
        if self.yields_at_once() || self.empty_tests.is_multiple_of(TESTS_PER_OBSERVATION) {
            // The program may compute between two tests, so a gap between them is no sign of a preemption.
            self.spin_policy.polling_stopped();
            self.next(now, Duration(0), sleep_slot, polls_before_post);
        }
        self.yields_at_once()
    }

    /// Notes that a waiting thread yielded from `before` until `after`.
    pub fn on_yield(&mut self, before: Instant, after: Instant) {
        self.spin_policy.on_yield(before, after);
    }

    /// Notes that a waiting thread stops polling: its wait is over, or it sleeps.
    #[inline]
    pub fn polling_stopped(&mut self) {
        self.spin_policy.polling_stopped();
    }
}

#[cfg(test)]
mod tests {
    use super::ClockPace;
    use super::{PollsBeforePost, WaitTiming};
    use crate::sleep_slot::SleepSlot;
    use crate::spin_policy::{Next, SpinLimits};
    use mend_base::{Duration, Instant};
    use mend_segment::BellPage;
    use std::sync::Arc;

    fn timing(spin_us: u64) -> (WaitTiming, PollsBeforePost, SleepSlot) {
        let polls = PollsBeforePost::default();
        let limits =
            SpinLimits { spin: Duration::from_micros(spin_us), yielding: Duration::from_micros(2_000) };
        let sleep_slot = SleepSlot::new(Arc::new(BellPage::create(2).unwrap().0), 0);
        (WaitTiming::new(limits, ClockPace::MEMORY, &polls), polls, sleep_slot)
    }

    #[test]
    fn a_timed_check_is_due_once_a_millisecond() {
        let mut timing = timing(50).0;
        let due = |us| Instant(0) + Duration::from_micros(us);
        let asked = [999, 1_000, 1_001, 1_999, 2_000].map(|us| timing.is_check_due(due(us)));
        assert_eq!(asked, [false, true, false, false, true]);
    }

    #[test]
    fn with_more_ranks_than_processors_a_call_polls_once_and_a_test_yields() {
        let (mut oversubscribed, polls, sleep_slot) = timing(0);
        assert_eq!(polls.get(), 1);
        assert!(oversubscribed.yields_after_test(Instant(1), &sleep_slot, &polls));
        let (mut exclusive, polls, sleep_slot) = timing(50);
        assert!(polls.get() > 1);
        assert!((0..200).all(|ns| !exclusive.yields_after_test(Instant(ns), &sleep_slot, &polls)));
        assert_eq!(exclusive.next(Instant(300), Duration(0), &sleep_slot, &polls), Next::Poll);
    }
}
