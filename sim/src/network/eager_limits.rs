// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The eager limit of each pair of processes, as if they were connected by different transports.

use mend_base::Random;

/// The eager limits of a job.
#[derive(Clone, Copy, Debug, Default)]
pub enum EagerLimits {
    /// The longest message of the transport.
    #[default]
    OfMessages,
    /// Each pair has its own limit; this decides which one.
    Drawn(u64),
}

impl EagerLimits {
    /// The limit from one process to another, in bytes. That in the other direction may be another one. Never below 16.
    pub fn of_pair(self, from: u32, to: u32, message_bytes_max: u32) -> u32 {
        match self {
            EagerLimits::OfMessages => message_bytes_max,
            EagerLimits::Drawn(seed) => {
                let pair = u64::from(from) << 32 | u64::from(to);
                let drawn = Random(seed ^ pair.wrapping_mul(0x9E37_79B9_7F4A_7C15)).below(4);
                [16, 200, 2_000, u32::MAX][drawn as usize].min(message_bytes_max)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::EagerLimits;
    use std::collections::BTreeSet;

    #[test]
    fn pairs_have_different_limits_within_that_of_messages() {
        let limits = EagerLimits::Drawn(7);
        let all: BTreeSet<u32> = (0..8).map(|to| limits.of_pair(0, to, 4096)).collect();
        assert!(all.len() > 2 && all.iter().all(|limit| (16..=4096).contains(limit)), "{all:?}");
        assert_eq!(EagerLimits::OfMessages.of_pair(0, 1, 4096), 4096);
    }
}
