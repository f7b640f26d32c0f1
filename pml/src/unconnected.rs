// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The round-robin positions of the two searches for unconnected peers for which an operation, or the last probe, waits. Each
//! call of a search looks at a bounded number of operations, and the next call goes on where it stopped. Both go through the
//! slots of the request table, which holds all operations:
//!
//! * `Ob1::want_awaited` looks for receives that name their sender, so that the engine connects it
//!   ([`UnconnectedSearch::next_slot`]).
//! * `Ob1::next_unconnected` looks for operations that wait for any member, and for the last probe, so that the engine asks about
//!   one member ([`UnconnectedSearch::next_wait`]). Position 0 is the probe, position n + 1 the operation in slot n.

use mend_base::{Key, Source};

/// The positions of the search.
#[derive(Default, Debug)]
pub(crate) struct UnconnectedSearch {
    /// Where the last `want_awaited` stopped: a slot of the request table.
    slot: u32,
    /// Where the last `next_unconnected` stopped: 0 for the probe, one more than its slot for an operation.
    wait: u32,
    /// The channel and source of the last probe that found no message.
    probed: Option<(Key, Source)>,
}

/// A wait that may be for an unconnected peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerWait {
    /// A probe on this channel, for this source.
    Probe(Key, Source),
    /// The operation in this slot.
    Operation(u32),
}

/// One call looks at no more than this many operations, and at no more than this many members of a channel.
pub(crate) const SEARCHED_MAX: u32 = 64;

impl UnconnectedSearch {
    /// A probe found no message.
    pub(crate) fn on_probe(&mut self, channel: Key, from: Source) {
        self.probed = Some((channel, from));
    }

    /// The last probe, once.
    pub(crate) fn take_probe(&mut self) -> Option<(Key, Source)> {
        self.probed.take()
    }

    /// The next slot, of `slots`.
    pub(crate) fn next_slot(&mut self, slots: u32) -> u32 {
        self.slot = (self.slot + 1) % slots;
        self.slot
    }

    /// The next wait, round robin over the probe and `slots` slots. `None`: the probe is the next, and there was none.
    pub(crate) fn next_wait(&mut self, slots: u32) -> Option<PeerWait> {
        self.wait = (self.wait + 1) % (slots + 1);
        match self.wait.checked_sub(1) {
            Some(slot) => Some(PeerWait::Operation(slot)),
            None => self.probed.map(|(channel, from)| PeerWait::Probe(channel, from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PeerWait, UnconnectedSearch};
    use mend_base::{Key, Source};

    const CHANNEL: Key = Key { index: 1, generation: 1 };

    #[test]
    fn every_slot_and_the_probe_come_in_rotation() {
        let mut search = UnconnectedSearch::default();
        assert_eq!([0; 3].map(|_| search.next_slot(2)), [1, 0, 1]);
        let waits = [0; 3].map(|_| search.next_wait(2));
        assert_eq!(waits, [Some(PeerWait::Operation(0)), Some(PeerWait::Operation(1)), None]);
        search.on_probe(CHANNEL, Source::Any);
        let waits = [0; 3].map(|_| search.next_wait(2));
        assert_eq!(waits[2], Some(PeerWait::Probe(CHANNEL, Source::Any)));
        assert_eq!(search.take_probe(), Some((CHANNEL, Source::Any)));
        assert_eq!(search.take_probe(), None);
    }
}
