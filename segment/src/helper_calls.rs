// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of the helper thread of a process: why it is woken.

/// Why a helper thread is called. Any bit pattern is valid: a corrupted one causes a needless call, or one that comes late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HelperCalls(pub(crate) u32);

impl HelperCalls {
    /// No call.
    pub const NONE: HelperCalls = HelperCalls(0);
    /// Make progress if the program computes: a peer has control messages that this process has not consumed, or the node daemon
    /// has notices.
    pub const SERVE: HelperCalls = HelperCalls(1);
    /// This process has sent control messages: watch whether their receivers consume them.
    pub const WATCH: HelperCalls = HelperCalls(2);
    /// Another thread of this process has something for the helper.
    pub const LOOK: HelperCalls = HelperCalls(4);

    /// A descriptor of a network has become readable.
    pub const DESCRIPTOR: HelperCalls = HelperCalls(8);

    pub(crate) const KNOWN: u32 = Self::SERVE.0 | Self::WATCH.0 | Self::LOOK.0 | Self::DESCRIPTOR.0;

    /// Whether the calls contain `call`.
    pub fn has(self, call: HelperCalls) -> bool {
        self.0 & call.0 != 0
    }
}
