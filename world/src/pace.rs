// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pace of waiting: when the clock is read, when a timed check is due, and what the spin policy has observed.

use crate::sleep_slot::{Observed, SleepSlot};
use crate::spin_policy::{Next, Sharing, SpinLimits, SpinPolicy};
use core::sync::atomic::{AtomicU32, Ordering};
use mend_base::{Duration, Instant};

/// How often a call that is about to wait may poll one ring before it makes progress. Read outside the guard.
#[derive(Debug, Default)]
pub struct Polls(AtomicU32);

impl Polls {
    // Hot: per blocking receive.
    /// For some 2 us, at 4 ns a poll; once where another rank waits for this processor.
    #[inline]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn adapt(&self, sharing: Sharing) {
        self.0.store(if sharing == Sharing::WithRank { 1 } else { POLLS_BEFORE_PROGRESS }, Ordering::Relaxed);
    }
}

/// See [`Polls`].
const POLLS_BEFORE_PROGRESS: u32 = 500;

/// Between two timed checks.
const CHECK_EVERY: Duration = Duration::from_millis(1);

/// Empty calls that test without waiting between two observations of the processor.
const TESTS_PER_OBSERVATION: u32 = 64;

/// See the module.
#[derive(Debug)]
pub struct Pace {
    spin_policy: SpinPolicy,
    sharing: Sharing,
    observed: Observed,
    /// When the clock was last read: as stale as a `now` may be.
    now: Instant,
    /// When the last timed check was.
    checked: Instant,
    empty_tests: u32,
}

impl Pace {
    /// Nothing was observed.
    pub fn new(limits: SpinLimits, polls: &Polls) -> Self {
        let spin_policy = SpinPolicy::new(limits);
        let sharing = spin_policy.sharing(Instant(0));
        polls.adapt(sharing);
        Pace {
            spin_policy,
            sharing,
            observed: Observed::default(),
            now: Instant(0),
            checked: Instant(0),
            empty_tests: 0,
        }
    }

    /// The time, as stale as it may be.
    #[inline]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The clock was read.
    pub fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Whether a timed check is due; the caller makes it.
    #[inline]
    pub fn is_check_due(&mut self, now: Instant) -> bool {
        let due = now - self.checked >= CHECK_EVERY;
        if due {
            self.checked = now;
        }
        due
    }

    /// Whether a waiting thread leaves its processor at once.
    #[inline]
    pub fn yields_at_once(&self) -> bool {
        self.sharing == Sharing::WithRank
    }

    /// Observes the processor, and says what a thread does next that has found nothing for `idle`.
    pub fn next(&mut self, now: Instant, idle: Duration, sleep_slot: &SleepSlot, polls: &Polls) -> Next {
        self.spin_policy.observe(now, &mut sleep_slot.processor(&mut self.observed));
        self.sharing = self.spin_policy.sharing(now);
        polls.adapt(self.sharing);
        self.spin_policy.next(now, idle)
    }

    /// A call that tests without waiting has found nothing: whether it yields, as a loop of such calls would burn whole time
    /// slices of the other ranks.
    pub fn yields_after_test(&mut self, now: Instant, sleep_slot: &SleepSlot, polls: &Polls) -> bool {
        self.empty_tests = self.empty_tests.wrapping_add(1);
        if self.yields_at_once() || self.empty_tests.is_multiple_of(TESTS_PER_OBSERVATION) {
            // The program may compute between two tests: a gap says nothing.
            self.spin_policy.pause();
            self.next(now, Duration(0), sleep_slot, polls);
        }
        self.yields_at_once()
    }

    /// A waiting thread yielded from `before` until `after`.
    pub fn on_yield(&mut self, before: Instant, after: Instant) {
        self.spin_policy.on_yield(before, after);
    }

    /// A waiting thread stops polling: its wait is over, or it sleeps.
    #[inline]
    pub fn pause(&mut self) {
        self.spin_policy.pause();
    }
}

#[cfg(test)]
mod tests {
    use super::{Pace, Polls};
    use crate::sleep_slot::SleepSlot;
    use crate::spin_policy::{Next, SpinLimits};
    use mend_base::{Duration, Instant};
    use mend_segment::BellPage;
    use std::sync::Arc;

    fn pace(spin_us: u64) -> (Pace, Polls, SleepSlot) {
        let polls = Polls::default();
        let limits =
            SpinLimits { spin: Duration::from_micros(spin_us), yielding: Duration::from_micros(2_000) };
        let sleep_slot = SleepSlot::new(Arc::new(BellPage::create(2).unwrap().0), 0);
        (Pace::new(limits, &polls), polls, sleep_slot)
    }

    #[test]
    fn a_check_is_due_once_a_millisecond() {
        let mut pace = pace(50).0;
        let due = |us| Instant(0) + Duration::from_micros(us);
        let asked = [999, 1_000, 1_001, 1_999, 2_000].map(|us| pace.is_check_due(due(us)));
        assert_eq!(asked, [false, true, false, false, true]);
    }

    #[test]
    fn with_more_ranks_than_processors_a_call_polls_once_and_a_test_yields() {
        let (mut crowded, polls, sleep_slot) = pace(0);
        assert_eq!(polls.get(), 1);
        assert!(crowded.yields_after_test(Instant(1), &sleep_slot, &polls));
        let (mut roomy, polls, sleep_slot) = pace(50);
        assert!(polls.get() > 1);
        assert!((0..200).all(|ns| !roomy.yields_after_test(Instant(ns), &sleep_slot, &polls)));
        assert_eq!(roomy.next(Instant(300), Duration(0), &sleep_slot, &polls), Next::Poll);
    }
}
