// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the engine owns and lends for the length of a call.

use crate::ends::Ends;

/// The transports, and which peers have ended.
#[derive(Debug)]
pub struct Lent<'a, N> {
    /// The transports.
    pub net: &'a mut N,
    /// Which peers have ended.
    pub ends: &'a Ends,
}
