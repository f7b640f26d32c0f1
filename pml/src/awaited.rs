// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AbortScope receives wait for although nobody has connected them: their deaths show on no way, and are found only if somebody
//! asks. For waiters that nobody tells anything.

use crate::request::{Phase, RequestEntry};
use crate::{Ob1, PeerState};
use mend_base::{ContextKind, Key, PeerIndex, Source};

/// Where the last looks ended.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    /// The place of an operation.
    place: u32,
    /// Whose member was last asked about: 0 for a probe, one more than its place for an operation.
    asked: u32,
    /// Where and of whom the last probe since found nothing.
    pub(crate) probed: Option<(Key, Source)>,
}

/// Operations, and members of one channel, in one look.
const LOOKS: u32 = 64;

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// A timed look at some posted receives, in a round. Peers that they name and that nobody has connected are wanted, as if
    /// somebody sent to them.
    #[cold]
    pub fn want_awaited(&mut self) {
        if let Some((channel, from)) = self.awaited.probed.take() {
            self.look_for(channel, from);
        }
        for _ in 0..LOOKS.min(self.entries.slots()) {
            self.awaited.place = (self.awaited.place + 1) % self.entries.slots();
            let entry = self.entries.key_at(self.awaited.place).and_then(|key| self.entries.get(key));
            if let Some(RequestEntry { channel, phase: Phase::Posted { from, .. }, .. }) = entry {
                self.look_for(*channel, *from);
            }
        }
    }

    fn look_for(&mut self, channel: Key, from: Source) {
        let Source::Rank(rank) = from else { return };
        let peer = self.channels.get(channel).and_then(|open| open.member(rank));
        peer.into_iter().for_each(|peer| self.want(peer));
    }

    /// Where somebody waits for anybody, a member of that channel whom nobody has connected: to be asked about, not to be met,
    /// since all members would be too many. At each call another one, as far as possible of another channel, so that each has
    /// its turn. A probe counts until the next [`want_awaited`](Ob1::want_awaited).
    #[cold]
    pub fn next_unconnected(&mut self) -> Option<PeerIndex> {
        let places = self.entries.slots() + 1;
        (0..LOOKS.min(places)).find_map(|_| {
            self.awaited.asked = (self.awaited.asked + 1) % places;
            let channel = self.waits_for_anybody(self.awaited.asked)?;
            self.stranger_of(channel)
        })
    }

    /// The channel on which a probe (0) or the operation at a place (one more) waits for anybody. Whoever takes part in a
    /// collective operation waits for all of its members: the one that it waits for may have given up because of another.
    fn waits_for_anybody(&self, who: u32) -> Option<Key> {
        let Some(place) = who.checked_sub(1) else {
            return self.awaited.probed.and_then(|(channel, from)| (from == Source::Any).then_some(channel));
        };
        let entry = self.entries.get(self.entries.key_at(place)?)?;
        let context_kind = self.channels.get(entry.channel)?.name.context_kind;
        let waits = match entry.phase {
            Phase::Done(_) => false,
            Phase::Posted { from: Source::Any, .. } => true,
            _ => context_kind == ContextKind::Collective,
        };
        waits.then_some(entry.channel)
    }

    fn stranger_of(&mut self, channel: Key) -> Option<PeerIndex> {
        let open = self.channels.get_mut(channel)?;
        let count = open.members.len() as u32;
        (0..LOOKS.min(count)).find_map(|_| {
            open.asked = (open.asked + 1) % count;
            let peer = open.members[open.asked as usize];
            let stranger = self.peers.get(peer.index()).is_none_or(PeerState::is_unconnected);
            (open.asked != open.me.0 && stranger).then_some(peer)
        })
    }
}
