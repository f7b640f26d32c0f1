// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock. Crates below get the time as the argument `now` (Rule 2).

use mend_base::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock, which all processes of one host share.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    Instant(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}
