// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unconnected peers for which operations wait: no endpoint reports their deaths, so the runtime must be asked about them. This
//! serves where notices are lost or late.

use super::Ob1;
use crate::request_table::{Phase, Posted};
use crate::unconnected::{PeerWait, SEARCHED_MAX};
use mend_base::{Key, PeerIndex, Source};

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// Called in the timed check: looks at some posted receives, round robin. Unconnected peers that they name are to be connected,
    /// as for a send.
    #[cold]
    pub fn want_awaited(&mut self) {
        if let Some((channel, from)) = self.search.take_probe() {
            self.want_source(channel, from);
        }
        let slots = self.requests.slots();
        for _ in 0..SEARCHED_MAX.min(slots) {
            let Some(entry) = self.requests.at(self.search.next_slot(slots)) else { continue };
            if let Phase::Posted(Posted { from, .. }) = *entry.phase() {
                self.want_source(entry.channel(), from);
            }
        }
    }

    fn want_source(&mut self, channel: Key, from: Source) {
        if let Source::Rank(rank) = from
            && let Some(peer) = self.member(channel, rank)
        {
            self.peers.want(peer);
        }
    }

    /// One unconnected peer for whose end an operation waits: a wildcard receive or a collective operation on a channel with that
    /// peer. The engine asks the runtime about it, and does not connect it, since that would connect all members. Successive calls
    /// return different peers, of different channels if possible. A probe counts as an operation until the next
    /// [`want_awaited`](Ob1::want_awaited).
    #[cold]
    pub fn next_unconnected(&mut self) -> Option<PeerIndex> {
        let slots = self.requests.slots();
        (0..SEARCHED_MAX.min(slots + 1)).find_map(|_| {
            let channel = match self.search.next_wait(slots)? {
                PeerWait::Probe(channel, from) => (from == Source::Any).then_some(channel),
                PeerWait::Operation(slot) => self.waits_for_any(slot),
            }?;
            let peers = &self.peers;
            let members = &mut self.channels.get_mut(channel)?.members;
            members.next_other(SEARCHED_MAX, |peer| peers.is_unconnected(peer))
        })
    }

    /// The channel on which the operation in a slot waits for any member. A collective operation waits for all
    /// members: the member that it waits for may have given up the operation because another one failed.
    fn waits_for_any(&self, slot: u32) -> Option<Key> {
        let entry = self.requests.at(slot)?;
        let waits = match *entry.phase() {
            Phase::Done(_) => false,
            Phase::Posted(Posted { from: Source::Any, .. }) => true,
            _ => !self.channels.get(entry.channel())?.is_point_to_point(),
        };
        waits.then_some(entry.channel())
    }
}
