// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simulated time: it advances with each step of the scheduler, by an amount that the seed decides.

use mend_base::{Instant, Random};

/// The one clock of a job.
#[derive(Debug, Default)]
pub struct Clock(Instant);

impl Clock {
    /// The longest time between two steps, in nanoseconds.
    const STEP_NS_MAX: u64 = 20_000;

    /// The current time.
    pub fn now(&self) -> Instant {
        self.0
    }

    /// Advances the clock by one step; returns the new time.
    pub fn tick(&mut self, random: &mut Random) -> Instant {
        self.0.0 += 1 + random.below(Clock::STEP_NS_MAX);
        self.0
    }
}
