// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a reader wishes to be rung for, as the other end reads it after each publication.

/// What a reader wishes to be rung for. Any bits are a wish: the worst is a useless bell, or one that is missing to whom
/// did not ask properly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish(pub(crate) u32);

impl Wish {
    /// Nothing: the rings are polled.
    pub const NOTHING: Wish = Wish(0);
    /// Messages, control, chunks, states.
    pub const MESSAGES: Wish = Wish(1);
    /// Credit: somebody sleeps with something to send.
    pub const CREDIT: Wish = Wish(2);
    /// All of it.
    pub const EVERYTHING: Wish = Wish(3);

    // Hot: per message.
    /// Whether `what` is in it.
    pub fn has(self, what: Wish) -> bool {
        self.0 & what.0 != 0
    }
}
