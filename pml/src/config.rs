// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be chosen about point-to-point.

use crate::parameters::PARAMETERS;
use crate::rendezvous::STREAMS_MAX;
use mend_base::parameter::{Declared, Settings};

/// What can be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The longest message, in bytes, that this process takes before its match, over any transport; it is announced to peers. A peer
    /// without the announcement uses its own value. The eager limit of an endpoint is the lower one of this and
    /// [`Limits::eager_bytes`](mend_transport::Limits::eager_bytes).
    pub eager_bytes: u32,
    /// How many bytes the unexpected messages of one peer may cost before the peer gets an XOFF.
    pub held_bytes_max: u64,
    /// The most events of one call of progress.
    pub events_per_progress: u32,
    /// The most streams that come in at the same time; further CTSes wait.
    pub streams_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config::from(&Settings::new(Declared(&[PARAMETERS])))
    }
}

impl From<&Settings> for Config {
    fn from(settings: &Settings) -> Self {
        Config {
            eager_bytes: settings.number("pml.eager_bytes") as u32,
            held_bytes_max: 4 << 20,
            events_per_progress: 64,
            streams_max: STREAMS_MAX,
        }
    }
}
