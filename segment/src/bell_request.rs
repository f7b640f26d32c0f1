// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Doorbell requests: for which events a process asks a peer to ring, read by the peer after each publication.

/// The events for which a process asks a peer to ring. Any bit pattern is valid: a corrupted one causes only a
/// useless bell, or a missing bell for the process that wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BellRequest(pub(crate) u32);

impl BellRequest {
    /// None: the rings are polled.
    pub const NONE: BellRequest = BellRequest(0);
    /// Messages, control messages, chunks and mailbox values.
    pub const MESSAGES: BellRequest = BellRequest(1);
    /// Credit: the process has something to send and no room.
    pub const CREDIT: BellRequest = BellRequest(2);
    /// All events.
    pub const ALL: BellRequest = BellRequest(3);

    // Hot: per message.
    /// Whether the request names `what`.
    pub fn has(self, what: BellRequest) -> bool {
        self.0 & what.0 != 0
    }
}
