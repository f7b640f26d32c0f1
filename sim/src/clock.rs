// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time as a simulation has it: it goes on when the scheduler says so, by as much as the seed says.

use mend_base::{Instant, Random};

/// The one clock of a run.
#[derive(Debug, Default)]
pub struct Clock(Instant);

impl Clock {
    /// The longest step between two things that happen, in nanoseconds.
    const STEP_NS_MAX: u64 = 20_000;

    /// What time it is.
    pub fn now(&self) -> Instant {
        self.0
    }

    /// Something happens, a little later than the last.
    pub fn tick(&mut self, random: &mut Random) -> Instant {
        self.0.0 += 1 + random.below(Clock::STEP_NS_MAX);
        self.0
    }
}
