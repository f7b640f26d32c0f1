// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The spin policy: what a waiting thread does next when there was no event. It reads no clock and makes no system call:
//! times and observations are arguments.
//!
//! ```text
//!             another rank of the node waits on this processor              not seen for RANK_EXPIRES_AFTER
//!   exclusive ──────────────────────────────────────────▶ with a rank ──────────────────────────────▶ exclusive
//!    │                                                      │     ▲
//!    │ preempted while polling     late yields in a row     │     │ after NO_YIELD_FOR, if the rank is still there
//!    └──────────────▶ with others ◀─────────────────────────┘     │
//!                       │     └───────────────────────────────────┘
//!                       └── no preemption, no late yield for OTHERS_EXPIRE_AFTER ──▶ exclusive
//! ```
//!
//! On a processor with another rank, a waiting thread yields at once: the message that it waits for may come from that rank, which cannot
//! run meanwhile. On a processor with other threads it must not yield: a yield gives up the rest of the time slice, and the thread runs
//! again milliseconds later. There it polls for a short time and then sleeps: the kernel runs a thread soon that was woken from a sleep.

use mend_base::{Duration, Instant};

/// How long a thread without work polls and yields: the parameters `world.spin_us` and `world.yield_us`.
#[derive(Clone, Copy, Debug)]
pub struct SpinLimits {
    /// How long the thread polls before it yields; zero with more ranks than processors.
    pub spin: Duration,
    /// How long the thread yields before it sleeps.
    pub yielding: Duration,
}

/// What a waiting thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Poll again.
    Poll,
    /// Yield the processor, then poll again.
    Yield,
    /// Sleep until woken.
    Sleep,
}

/// What else runs on the processor of the waiting thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Nothing, as far as it was observed.
    Exclusive,
    /// Another rank of this node, which waits too.
    WithRank,
    /// Other threads, of other programs or of this process.
    WithOthers,
}

/// Observes the processor of the running thread.
pub trait ProcessorObserver {
    /// Whether another rank of the node waits on this processor.
    fn shares_with_rank(&mut self) -> bool;
    /// Whether the kernel preempted a thread of this process since the last call.
    fn was_preempted(&mut self) -> bool;
    /// For how long the running thread has run since it began. A system call.
    fn time_run(&mut self) -> Duration;
}

/// The state of the policy.
#[derive(Debug)]
pub struct SpinPolicy {
    limits: SpinLimits,
    /// When another rank was last seen on this processor.
    rank_seen: Option<Instant>,
    /// Until when other threads are assumed on this processor.
    others_until: Instant,
    /// The number of late yields since the last yield that was not late.
    late_yields: u32,
    /// Until when no yield is tried, after late yields.
    no_yield_until: Instant,
    /// The time of the last observation, if this thread has polled since then.
    polling_since: Option<Instant>,
    /// When the time for which this thread has run was last read, and that time; as long as it polls.
    run: Option<(Instant, Duration)>,
}

/// A time between two observations in which this thread may have been preempted. While polling they are some 5 us apart; an interrupt takes
/// less than this. But progress that moves long messages through a network takes as long, and the kernel's own threads run for some
/// microseconds on behalf of that network meanwhile. So the thread counts as preempted only if it has not run for so long, nor for half of
/// the time: another thread that always runs takes half of a processor or more.
const PREEMPTION_GAP: Duration = Duration::from_micros(500);

/// How old the reading of the thread's time may be that the time after a gap is compared with: far less than a gap.
const RUN_READING_AGE: Duration = Duration::from_micros(50);

/// A yield that takes this long is late. A yield to a rank that waits takes some microseconds, one to a busy process a time slice.
const LATE_YIELD: Duration = Duration::from_millis(1);

/// So many late yields in a row show that the other rank has left the processor or does not wait, and that other threads run. After fewer
/// late yields, yielding goes on: the exchange with the rank is faster than by sleeping.
const LATE_YIELDS_MAX: u32 = 3;

/// How long no yield is tried after late yields.
const NO_YIELD_FOR: Duration = Duration::from_millis(10);

/// How long another rank is assumed on this processor after it was last seen.
const RANK_EXPIRES_AFTER: Duration = Duration::from_micros(50);

/// How long other threads are assumed on this processor after a preemption or a late yield: some time slices.
const OTHERS_EXPIRE_AFTER: Duration = Duration::from_millis(20);

/// How long a thread polls on a processor with other threads: longer than a wake-up takes (some 30 us), far less than a time slice.
const SPIN_WITH_OTHERS: Duration = Duration::from_micros(50);

impl SpinPolicy {
    /// Without observations.
    pub fn new(limits: SpinLimits) -> Self {
        SpinPolicy {
            limits,
            rank_seen: None,
            others_until: Instant(0),
            late_yields: 0,
            no_yield_until: Instant(0),
            polling_since: None,
            run: None,
        }
    }

    /// Observes the processor: a few loads, and a system call now and then.
    pub fn observe(&mut self, now: Instant, observer: &mut impl ProcessorObserver) {
        if self.limits.spin == Duration(0) {
            return;
        }
        if observer.shares_with_rank() {
            self.rank_seen = Some(now);
        } else {
            self.observe_others(now, observer);
        }
        self.polling_since = Some(now);
    }

    fn observe_others(&mut self, now: Instant, observer: &mut impl ProcessorObserver) {
        let earlier = self.run.filter(|_| self.polling_since.is_some());
        let after_gap = self.polling_since.is_some_and(|last| now - last >= PREEMPTION_GAP);
        let is_recent = earlier.is_some_and(|(at, _)| now - at < RUN_READING_AGE);
        if !after_gap && is_recent {
            return;
        }
        let time_run = observer.time_run();
        self.run = Some((now, time_run));
        let was_preempted = after_gap && observer.was_preempted();
        let Some((at, before)) = earlier.filter(|_| was_preempted) else { return };
        let (elapsed, run) = (now - at, Duration(time_run.0.saturating_sub(before.0)));
        if elapsed >= run + PREEMPTION_GAP && elapsed >= run + run {
            self.others_until = now + OTHERS_EXPIRE_AFTER;
        }
    }

    /// Notes that this thread stops polling, so that the time until the next observation is no sign of a preemption.
    pub fn polling_stopped(&mut self) {
        self.polling_since = None;
    }

    /// Notes that one yield or several took from `before` until `after`.
    pub fn on_yield(&mut self, before: Instant, after: Instant) {
        self.polling_since = None;
        if after - before < LATE_YIELD {
            self.late_yields = 0;
            return;
        }
        self.late_yields += 1;
        let with_rank = self.rank_seen.is_some_and(|seen| before - seen < RANK_EXPIRES_AFTER);
        if !with_rank || self.late_yields >= LATE_YIELDS_MAX {
            self.late_yields = 0;
            self.no_yield_until = after + NO_YIELD_FOR;
            self.others_until = after + OTHERS_EXPIRE_AFTER;
        }
    }

    /// What else runs on this processor.
    pub fn sharing(&self, now: Instant) -> Sharing {
        let with_rank = self.rank_seen.is_some_and(|seen| now - seen < RANK_EXPIRES_AFTER);
        if self.limits.spin == Duration(0) || with_rank && now >= self.no_yield_until {
            Sharing::WithRank
        } else if now < self.others_until {
            Sharing::WithOthers
        } else {
            Sharing::Exclusive
        }
    }

    /// What a thread does next that has had no event for `idle`.
    pub fn next(&self, now: Instant, idle: Duration) -> Next {
        let SpinLimits { spin, yielding } = self.limits;
        let (polls, yields) = match self.sharing(now) {
            Sharing::Exclusive => (spin, yielding),
            Sharing::WithRank => (Duration(0), yielding),
            Sharing::WithOthers => (spin.min(SPIN_WITH_OTHERS), Duration(0)),
        };
        if idle < polls {
            Next::Poll
        } else if idle < polls + yields {
            Next::Yield
        } else {
            Next::Sleep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Next, ProcessorObserver, Sharing, SpinLimits, SpinPolicy};
    use mend_base::{Duration, Instant};

    /// An observer whose answers the test sets.
    #[derive(Clone, Copy, Default)]
    struct Script {
        rank: bool,
        preempted: bool,
        run_us: u64,
    }

    impl ProcessorObserver for Script {
        fn shares_with_rank(&mut self) -> bool {
            self.rank
        }
        fn was_preempted(&mut self) -> bool {
            core::mem::take(&mut self.preempted)
        }
        fn time_run(&mut self) -> Duration {
            Duration::from_micros(self.run_us)
        }
    }

    const QUIET: Script = Script { rank: false, preempted: false, run_us: 0 };
    const RANK: Script = Script { rank: true, preempted: false, run_us: 0 };
    const PREEMPTED: Script = Script { rank: false, preempted: true, run_us: 0 };

    fn policy() -> SpinPolicy {
        let (spin, yielding) = (Duration::from_micros(1_000), Duration::from_micros(2_000));
        SpinPolicy::new(SpinLimits { spin, yielding })
    }

    fn at(us: u64) -> Instant {
        Instant(0) + Duration::from_micros(us)
    }

    fn idle(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn a_thread_with_an_exclusive_processor_polls_then_yields_then_sleeps() {
        let mut policy = policy();
        for (now, expected) in
            [(5, Next::Poll), (999, Next::Poll), (1_000, Next::Yield), (3_000, Next::Sleep)]
        {
            policy.observe(at(now), &mut QUIET.clone());
            assert_eq!(policy.next(at(now), idle(now)), expected, "after {now} us");
            policy.polling_stopped();
        }
    }

    #[test]
    fn a_thread_beside_another_rank_yields_at_once() {
        let mut policy = policy();
        policy.observe(at(5), &mut RANK.clone());
        assert_eq!(policy.next(at(5), idle(0)), Next::Yield);
        assert_eq!(policy.next(at(5), idle(2_000)), Next::Sleep);
    }

    #[test]
    fn another_rank_is_assumed_for_some_time_after_it_was_last_seen() {
        let mut policy = policy();
        policy.observe(at(5), &mut RANK.clone());
        policy.observe(at(40), &mut QUIET.clone());
        assert_eq!(policy.sharing(at(40)), Sharing::WithRank);
        assert_eq!(policy.sharing(at(55)), Sharing::Exclusive);
        assert_eq!(policy.next(at(55), idle(50)), Next::Poll);
    }

    #[test]
    fn a_preempted_thread_polls_for_a_short_time_and_sleeps_without_yielding() {
        let mut policy = policy();
        policy.observe(at(5), &mut QUIET.clone());
        policy.observe(at(4_005), &mut PREEMPTED.clone());
        assert_eq!(policy.sharing(at(4_005)), Sharing::WithOthers);
        assert_eq!(policy.next(at(4_005), idle(49)), Next::Poll);
        assert_eq!(policy.next(at(4_005), idle(50)), Next::Sleep);
        assert_eq!(policy.sharing(at(24_004)), Sharing::WithOthers);
        assert_eq!(policy.sharing(at(24_005)), Sharing::Exclusive);
    }

    #[test]
    fn a_gap_without_a_preemption_changes_nothing() {
        let mut policy = policy();
        policy.observe(at(5), &mut QUIET.clone());
        policy.observe(at(4_005), &mut QUIET.clone());
        assert_eq!(policy.sharing(at(4_005)), Sharing::Exclusive);
    }

    #[test]
    fn a_gap_in_which_the_thread_ran_changes_nothing() {
        let sharing = |run_us| {
            let mut policy = policy();
            policy.observe(at(5), &mut QUIET.clone());
            policy.observe(at(4_005), &mut Script { run_us, ..PREEMPTED });
            policy.sharing(at(4_005))
        };
        assert_eq!(sharing(2_000), Sharing::WithOthers);
        assert_eq!((sharing(2_001), sharing(4_000)), (Sharing::Exclusive, Sharing::Exclusive));
    }

    #[test]
    fn the_time_run_is_that_since_a_recent_observation() {
        let mut policy = policy();
        for now in (0..10_000).step_by(40) {
            policy.observe(at(now), &mut Script { run_us: now, ..QUIET });
        }
        policy.observe(at(10_700), &mut Script { run_us: 10_050, ..PREEMPTED });
        assert_eq!(policy.sharing(at(10_700)), Sharing::WithOthers);
    }

    #[test]
    fn a_preemption_counts_only_while_polling() {
        let mut policy = policy();
        policy.observe(at(5), &mut QUIET.clone());
        policy.polling_stopped();
        policy.observe(at(4_005), &mut PREEMPTED.clone());
        policy.on_yield(at(4_010), at(4_011));
        policy.observe(at(9_000), &mut PREEMPTED.clone());
        assert_eq!(policy.sharing(at(9_000)), Sharing::Exclusive);
    }

    #[test]
    fn late_yields_in_a_row_beside_a_rank_are_tried_again_later() {
        let mut policy = policy();
        for now in [0, 4_000, 8_000] {
            policy.observe(at(now), &mut RANK.clone());
            assert_eq!(policy.next(at(now), idle(0)), Next::Yield, "at {now} us");
            policy.on_yield(at(now), at(now + 4_000));
        }
        policy.observe(at(12_000), &mut RANK.clone());
        assert_eq!(policy.sharing(at(12_000)), Sharing::WithOthers);
        assert_eq!(policy.next(at(12_000), idle(0)), Next::Poll);
        policy.observe(at(22_000), &mut RANK.clone());
        assert_eq!(policy.next(at(22_000), idle(0)), Next::Yield);
    }

    #[test]
    fn a_single_late_yield_beside_a_rank_changes_nothing() {
        let mut policy = policy();
        for now in [0, 4_000, 8_000, 12_000, 16_000] {
            policy.observe(at(now), &mut RANK.clone());
            policy.on_yield(at(now), at(now + 3_990));
            policy.observe(at(now + 3_990), &mut RANK.clone());
            policy.on_yield(at(now + 3_990), at(now + 3_992));
            assert_eq!(policy.next(at(now + 3_992), idle(0)), Next::Yield, "at {now} us");
        }
    }

    #[test]
    fn a_late_yield_without_a_rank_shows_other_threads() {
        let mut policy = policy();
        policy.observe(at(5), &mut QUIET.clone());
        policy.on_yield(at(1_500), at(5_500));
        assert_eq!(policy.next(at(5_500), idle(0)), Next::Poll);
        assert_eq!(policy.next(at(5_500), idle(50)), Next::Sleep);
    }

    #[test]
    fn with_more_ranks_than_processors_no_thread_polls_whatever_is_observed() {
        let mut policy = SpinPolicy::new(SpinLimits { spin: Duration(0), yielding: idle(2_000) });
        policy.observe(at(5), &mut QUIET.clone());
        policy.on_yield(at(5), at(8_000));
        policy.observe(at(8_000), &mut PREEMPTED.clone());
        assert_eq!(policy.next(at(8_000), idle(0)), Next::Yield);
        assert_eq!(policy.next(at(8_000), idle(2_000)), Next::Sleep);
    }
}
