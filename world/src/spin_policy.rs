// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The spin policy: what a waiting thread does next when nothing has come. It reads no clock and makes no system call:
//! times and observations are arguments.
//!
//! ```text
//!             another rank of the node waits on this processor              not seen for RANK_HOLDS
//!   own ────────────────────────────────────────────────▶ with a rank ──────────────────────────────▶ own
//!    │                                                      │     ▲
//!    │ preempted while polling     late yields in a row     │     │ after NO_YIELD, if the rank is still there
//!    └──────────────▶ with others ◀─────────────────────────┘     │
//!                       │     └───────────────────────────────────┘
//!                       └── nothing of the kind for OTHERS_HOLD ──▶ own
//! ```
//!
//! Beside another rank a waiting thread yields at once: the message that it waits for may come from that rank, which
//! cannot run meanwhile. Beside others it must not: a yield gives away the rest of the time slice, and the kernel comes
//! back milliseconds later. There it polls for a short time and then sleeps, which the kernel rewards with an early
//! wake-up.

use mend_base::{Duration, Instant};

/// How long a thread without work polls and yields: the parameters `world.spin_us` and `world.yield_us`.
#[derive(Clone, Copy, Debug)]
pub struct SpinLimits {
    /// Polls, before it yields; zero with more ranks than processors.
    pub spin: Duration,
    /// Yields, before it sleeps.
    pub yielding: Duration,
}

/// What a waiting thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Poll again.
    Poll,
    /// Let others run, then poll again.
    Yield,
    /// Sleep until woken.
    Sleep,
}

/// With whom the waiting thread shares its processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// With nobody, as far as it was observed.
    Own,
    /// With another rank of this node.
    WithRank,
    /// With whatever else runs here: other programs, other threads of this process.
    WithOthers,
}

/// What can be observed of the processor.
pub trait Surroundings {
    /// Whether another rank of the node waits on the processor that this thread runs on.
    fn is_beside_rank(&mut self) -> bool;
    /// Whether the kernel has taken the processor away since the last question.
    fn was_preempted(&mut self) -> bool;
}

/// The state of the policy.
#[derive(Debug)]
pub struct SpinPolicy {
    limits: SpinLimits,
    /// When another rank was last seen on this processor.
    rank_seen: Option<Instant>,
    /// Others are assumed on this processor until then.
    others_until: Instant,
    /// Yields in a row that came back late.
    late_yields: u32,
    /// Yielding was of no use: not tried again until then.
    no_yield_until: Instant,
    /// The last observation, if this thread has polled ever since.
    polling_since: Option<Instant>,
}

/// Between two observations while polling, which are some 5 us apart: longer than an interrupt takes.
const GAP: Duration = Duration::from_micros(500);

/// A yield to a rank that waits too comes back after some microseconds, one to a busy process after a time slice.
const LATE_YIELD: Duration = Duration::from_millis(1);

/// So many late yields in a row beside a rank show that the rank is not there any more, or does not wait: others run. One
/// alone means that others run too; the exchange with the rank goes on afterwards, faster than by sleeping.
const LATE_YIELDS_MAX: u32 = 3;

/// How long no yield is tried where yields come back late.
const NO_YIELD: Duration = Duration::from_millis(10);

/// How long another rank counts as being here after it was last seen.
const RANK_HOLDS: Duration = Duration::from_micros(50);

/// How long others count as being here after the last sign of them: some time slices.
const OTHERS_HOLD: Duration = Duration::from_millis(20);

/// Beside others: longer than a wake-up takes (some 30 us), far less than a time slice.
const SPIN_BESIDE_OTHERS: Duration = Duration::from_micros(50);

impl SpinPolicy {
    /// Nothing observed yet.
    pub fn new(limits: SpinLimits) -> Self {
        SpinPolicy {
            limits,
            rank_seen: None,
            others_until: Instant(0),
            late_yields: 0,
            no_yield_until: Instant(0),
            polling_since: None,
        }
    }

    /// Observes the processor: a few loads, and a system call after a gap.
    pub fn observe(&mut self, now: Instant, around: &mut impl Surroundings) {
        if self.limits.spin == Duration(0) {
            return;
        }
        if around.is_beside_rank() {
            self.rank_seen = Some(now);
        } else if self.polling_since.is_some_and(|last| now - last >= GAP) && around.was_preempted() {
            self.others_until = now + OTHERS_HOLD;
        }
        self.polling_since = Some(now);
    }

    /// This thread has not polled since the last observation: a gap says nothing.
    pub fn pause(&mut self) {
        self.polling_since = None;
    }

    /// A yield, or several, took from `before` until `after`.
    pub fn on_yield(&mut self, before: Instant, after: Instant) {
        self.polling_since = None;
        if after - before < LATE_YIELD {
            self.late_yields = 0;
            return;
        }
        self.late_yields += 1;
        let beside_rank = self.rank_seen.is_some_and(|seen| before - seen < RANK_HOLDS);
        if !beside_rank || self.late_yields >= LATE_YIELDS_MAX {
            self.late_yields = 0;
            self.no_yield_until = after + NO_YIELD;
            self.others_until = after + OTHERS_HOLD;
        }
    }

    /// With whom the processor is shared.
    pub fn sharing(&self, now: Instant) -> Sharing {
        let beside_rank = self.rank_seen.is_some_and(|seen| now - seen < RANK_HOLDS);
        if self.limits.spin == Duration(0) || beside_rank && now >= self.no_yield_until {
            Sharing::WithRank
        } else if now < self.others_until {
            Sharing::WithOthers
        } else {
            Sharing::Own
        }
    }

    /// What a thread does next that has found nothing for `idle`.
    pub fn next(&self, now: Instant, idle: Duration) -> Next {
        let SpinLimits { spin, yielding } = self.limits;
        let (polls, yields) = match self.sharing(now) {
            Sharing::Own => (spin, yielding),
            Sharing::WithRank => (Duration(0), yielding),
            Sharing::WithOthers => (spin.min(SPIN_BESIDE_OTHERS), Duration(0)),
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
    use super::{Next, Sharing, SpinLimits, SpinPolicy, Surroundings};
    use mend_base::{Duration, Instant};

    /// What the script says is on this processor.
    #[derive(Clone, Copy, Default)]
    struct Script {
        rank: bool,
        preempted: bool,
    }

    impl Surroundings for Script {
        fn is_beside_rank(&mut self) -> bool {
            self.rank
        }
        fn was_preempted(&mut self) -> bool {
            core::mem::take(&mut self.preempted)
        }
    }

    const QUIET: Script = Script { rank: false, preempted: false };
    const RANK: Script = Script { rank: true, preempted: false };
    const PREEMPTED: Script = Script { rank: false, preempted: true };

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
    fn a_thread_with_its_own_processor_polls_then_yields_then_sleeps() {
        let mut policy = policy();
        for (now, expected) in
            [(5, Next::Poll), (999, Next::Poll), (1_000, Next::Yield), (3_000, Next::Sleep)]
        {
            policy.observe(at(now), &mut QUIET.clone());
            assert_eq!(policy.next(at(now), idle(now)), expected, "after {now} us");
            policy.pause();
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
    fn another_rank_counts_for_a_while_after_it_was_last_seen() {
        let mut policy = policy();
        policy.observe(at(5), &mut RANK.clone());
        policy.observe(at(40), &mut QUIET.clone());
        assert_eq!(policy.sharing(at(40)), Sharing::WithRank);
        assert_eq!(policy.sharing(at(55)), Sharing::Own);
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
        assert_eq!(policy.sharing(at(24_005)), Sharing::Own);
    }

    #[test]
    fn a_gap_without_a_preemption_changes_nothing() {
        let mut policy = policy();
        policy.observe(at(5), &mut QUIET.clone());
        policy.observe(at(4_005), &mut QUIET.clone());
        assert_eq!(policy.sharing(at(4_005)), Sharing::Own);
    }

    #[test]
    fn a_preemption_counts_while_polling_alone() {
        let mut policy = policy();
        policy.observe(at(5), &mut QUIET.clone());
        policy.pause();
        policy.observe(at(4_005), &mut PREEMPTED.clone());
        policy.on_yield(at(4_010), at(4_011));
        policy.observe(at(9_000), &mut PREEMPTED.clone());
        assert_eq!(policy.sharing(at(9_000)), Sharing::Own);
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
    fn a_late_yield_now_and_then_beside_a_rank_changes_nothing() {
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
    fn a_late_yield_without_a_rank_means_others() {
        let mut policy = policy();
        policy.observe(at(5), &mut QUIET.clone());
        policy.on_yield(at(1_500), at(5_500));
        assert_eq!(policy.next(at(5_500), idle(0)), Next::Poll);
        assert_eq!(policy.next(at(5_500), idle(50)), Next::Sleep);
    }

    #[test]
    fn with_more_ranks_than_processors_nobody_polls_whatever_is_observed() {
        let mut policy = SpinPolicy::new(SpinLimits { spin: Duration(0), yielding: idle(2_000) });
        policy.observe(at(5), &mut QUIET.clone());
        policy.on_yield(at(5), at(8_000));
        policy.observe(at(8_000), &mut PREEMPTED.clone());
        assert_eq!(policy.next(at(8_000), idle(0)), Next::Yield);
        assert_eq!(policy.next(at(8_000), idle(2_000)), Next::Sleep);
    }
}
