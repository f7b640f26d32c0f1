// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time: never read here, always handed in.

use core::ops::{Add, Sub};

/// Nanoseconds since some moment that one process, or one simulation, agrees on. May be stale where a function says so.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Instant(pub u64);

/// A span of time, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Duration(pub u64);

impl Duration {
    /// So many microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Duration(us * 1_000)
    }

    /// So many milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Duration(ms * 1_000_000)
    }

    /// For the standard library's calls.
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
