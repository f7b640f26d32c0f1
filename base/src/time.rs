// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time as a value: this crate never reads a clock.

use core::ops::{Add, Sub};

/// Nanoseconds since a moment that is fixed in each process or simulation. May be stale where a function says so.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Instant(pub u64);

/// A span of time, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Duration(pub u64);

impl Duration {
    /// A span of `us` microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Duration(us * 1_000)
    }

    /// A span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Duration(ms * 1_000_000)
    }

    /// The span in the standard library's type.
    pub const fn to_std(self) -> core::time::Duration {
        core::time::Duration::from_nanos(self.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, span: Duration) -> Instant {
        Instant(self.0 + span.0)
    }
}

impl Add for Duration {
    type Output = Duration;
    fn add(self, more: Duration) -> Duration {
        Duration(self.0 + more.0)
    }
}

impl Sub for Instant {
    type Output = Duration;
    /// The time from `earlier` to `self`; zero where a stale `now` makes it negative.
    fn sub(self, earlier: Instant) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}
