// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whom receives wait for although nobody has connected them: their deaths show on no way, and are found only if somebody
//! asks. For waiters that nobody tells anything.

use crate::request::Phase;
use crate::{Ob1, PeerState};
use mend_base::{Key, PeerIndex, Plane, Source};

/// Where the last looks ended.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    /// The place of an operation.
    place: u32,
    /// The rank of a member.
    member: u32,
    /// Where and of whom the last probe since found nothing.
    pub(crate) probed: Option<(Key, Source)>,
}

/// Operations, and members of one channel, in one look.
const LOOKS: u32 = 64;

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// A timed look at some posted receives, in a round. Peers that they name and that nobody has connected are wanted, as if
    /// somebody sent to them. Where somebody waits for anybody, gives such a member of that channel, another one each time:
    /// to be asked about, not to be met, since all members would be too many.
    #[cold]
    pub fn look_for_strangers(&mut self) -> Option<PeerIndex> {
        let mut from_anybody = None;
        if let Some((channel, from)) = self.awaited.probed.take() {
            self.look_for(channel, from, &mut from_anybody);
        }
        for _ in 0..LOOKS.min(self.entries.places()) {
            self.awaited.place = (self.awaited.place + 1) % self.entries.places();
            let entry = self.entries.key_at(self.awaited.place).and_then(|key| self.entries.get(key));
            let Some((channel, phase)) = entry.map(|entry| (entry.channel, entry.phase)) else { continue };
            if !matches!(phase, Phase::Done(_)) && self.needs_everybody(channel) {
                from_anybody = Some(channel);
            }
            if let Phase::Posted { from, .. } = phase {
                self.look_for(channel, from, &mut from_anybody);
            }
        }
        self.next_stranger(from_anybody?)
    }

    fn look_for(&mut self, channel: Key, from: Source, from_anybody: &mut Option<Key>) {
        match from {
            Source::Any => *from_anybody = Some(channel),
            Source::Rank(rank) => {
                let peer = self.channels.get(channel).and_then(|open| open.member(rank));
                peer.into_iter().for_each(|peer| self.want(peer));
            }
        }
    }

    /// Whoever takes part in a collective operation waits for all of its members: the one that it waits for may have given
    /// up because of another.
    fn needs_everybody(&self, channel: Key) -> bool {
        self.channels.get(channel).is_some_and(|open| open.name.plane == Plane::Collective)
    }

    fn next_stranger(&mut self, channel: Key) -> Option<PeerIndex> {
        let open = self.channels.get(channel)?;
        let count = open.members.len() as u32;
        for _ in 0..LOOKS.min(count) {
            self.awaited.member = (self.awaited.member + 1) % count;
            let peer = open.members[self.awaited.member as usize];
            if self.awaited.member != open.me.0
                && self.peers.get(peer.index()).is_none_or(PeerState::is_stranger)
            {
                return Some(peer);
            }
        }
        None
    }
}
