// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The constants of the cost model LogGP.

use mend_base::Duration;

/// What a message costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// L: from the end of the sender's work to the beginning of the receiver's.
    pub latency: Duration,
    /// o: the work of either of them. A member does nothing else meanwhile. The gap between messages is not longer than it.
    pub overhead: Duration,
    /// G: the time of one more byte, in picoseconds.
    pub picoseconds_per_byte: u64,
}

impl Cost {
    /// The work of sending or receiving one message.
    pub fn work(&self, bytes: usize) -> Duration {
        Duration(self.overhead.0 + bytes.saturating_sub(1) as u64 * self.picoseconds_per_byte / 1_000)
    }
}

impl Default for Cost {
    /// Two processes on neighbouring cores of the machines on which Mend is developed, through shared memory: half a round trip of 8
    /// bytes takes 200 ns (L + 2o), and one message of a stream 60 ns (o). `cargo xtask scale` measures those of a host.
    fn default() -> Self {
        Cost { latency: Duration(80), overhead: Duration(60), picoseconds_per_byte: 100 }
    }
}
