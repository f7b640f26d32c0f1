// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts of waiting, which `MEND_REPORT=statistics` prints at MPI_Finalize.

use core::fmt;

/// Counts since Init.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Sleeps on the sleep word.
    pub sleeps: u64,
    /// Sleeps that timed out although there was an event: the bell was lost, and the poll after the time-out found the event.
    pub late_wakes: u64,
    /// How often a thread that was blocked while another made progress was woken.
    pub wakes_of_blocked: u64,
    /// How often the helper thread made progress, because the program was outside MPI.
    pub turns_of_helper: u64,
    /// How often a call made progress before it returned, because the helper thread had found the program in MPI.
    pub turns_for_helper: u64,
}

impl fmt::Display for Statistics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Statistics { sleeps, late_wakes, wakes_of_blocked, turns_of_helper, turns_for_helper } = self;
        write!(
            out,
            "{sleeps} sleeps, {late_wakes} late wakes, {wakes_of_blocked} wakes of blocked threads, {turns_of_helper} turns of \
             the helper thread, {turns_for_helper} turns for it"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Statistics;

    #[test]
    fn the_report_has_every_count() {
        let statistics = Statistics {
            sleeps: 3,
            late_wakes: 1,
            wakes_of_blocked: 2,
            turns_of_helper: 4,
            turns_for_helper: 5,
        };
        assert_eq!(
            statistics.to_string(),
            "3 sleeps, 1 late wakes, 2 wakes of blocked threads, 4 turns of the helper thread, 5 turns for it"
        );
    }
}
