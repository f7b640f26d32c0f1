// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a waiter asks the runtime about a peer that may be the sender that it waits for, and that nobody has connected.

/// Counts timed checks.
#[derive(Debug, Default)]
pub(crate) struct Inquiry {
    /// So far; wraps.
    checks: u32,
    /// Of the call that waits.
    of_wait: u32,
}

/// A sleeper's checks are 100 ms apart in the end, and an answer wakes it.
const CHECKS_PER_QUESTION: u32 = 16;

/// Of the checks of one call that waits, those that ask besides: from some 15 ms on, since most waits are shorter, for some
/// 6 s.
const ASKS_AT: core::ops::Range<u32> = 4..68;

impl Inquiry {
    // Hot: per blocking receive.
    /// Another call waits.
    #[inline]
    pub fn begin_wait(&mut self) {
        self.of_wait = 0;
    }

    /// The wait has lasted longer than it asks on its own account.
    #[cfg(test)]
    pub fn last_long(&mut self) {
        self.of_wait = ASKS_AT.end;
    }

    /// A timed check: whether it asks.
    pub fn is_due(&mut self) -> bool {
        self.checks = self.checks.wrapping_add(1);
        self.of_wait = self.of_wait.saturating_add(1);
        ASKS_AT.contains(&self.of_wait) || self.checks.is_multiple_of(CHECKS_PER_QUESTION)
    }
}

#[cfg(test)]
mod tests {
    use super::Inquiry;

    #[test]
    fn a_wait_asks_from_its_fourth_check_on_and_later_at_every_sixteenth() {
        let mut inquiry = Inquiry::default();
        let mut asked = |count: u32| (0..count).filter(|_| inquiry.is_due()).count();
        assert_eq!(asked(3), 0);
        assert_eq!(asked(64), 64);
        assert_eq!(asked(160), 10);
        inquiry.begin_wait();
        assert!(!inquiry.is_due());
    }
}
