// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a waiting call asks the runtime about an unconnected peer that may be the sender for which the call waits.

/// Counts timed checks, and decides which of them ask.
#[derive(Debug, Default)]
pub(crate) struct UnconnectedQuery {
    /// Timed checks of the process; wraps.
    checks: u32,
    /// Timed checks of the call that waits now.
    checks_of_wait: u32,
}

/// One check of so many asks. The checks of a sleeping thread are up to 100 ms apart, and an answer wakes the thread.
const CHECKS_PER_QUERY: u32 = 16;

/// The checks of one waiting call that ask in addition: after about 15 ms, since most waits are shorter, for about 6 s.
const EARLY_CHECKS: core::ops::Range<u32> = 4..68;

impl UnconnectedQuery {
    // Hot: per blocking receive.
    /// Another call begins to wait.
    #[inline]
    pub fn begin_wait(&mut self) {
        self.checks_of_wait = 0;
    }

    /// Whether the call that waits now was checked once at most.
    pub fn is_first_check(&self) -> bool {
        self.checks_of_wait <= 1
    }

    /// Sets the state after a wait that is longer than [`EARLY_CHECKS`].
    #[cfg(test)]
    pub fn skip_early_checks(&mut self) {
        self.checks_of_wait = EARLY_CHECKS.end;
    }

    /// Counts a timed check. Returns whether it asks.
    pub fn is_due(&mut self) -> bool {
        self.checks = self.checks.wrapping_add(1);
        self.checks_of_wait = self.checks_of_wait.saturating_add(1);
        EARLY_CHECKS.contains(&self.checks_of_wait) || self.checks.is_multiple_of(CHECKS_PER_QUERY)
    }
}

#[cfg(test)]
mod tests {
    use super::UnconnectedQuery;

    #[test]
    fn a_wait_asks_from_its_fourth_check_on_and_later_at_every_sixteenth() {
        let mut unconnected_query = UnconnectedQuery::default();
        let mut asked = |count: u32| (0..count).filter(|_| unconnected_query.is_due()).count();
        assert_eq!(asked(3), 0);
        assert_eq!(asked(64), 64);
        assert_eq!(asked(160), 10);
        unconnected_query.begin_wait();
        assert!(!unconnected_query.is_due());
    }
}
