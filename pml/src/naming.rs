// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening and closing channels, and what both ends call them (`mend_proto::identity` has the rules).

use crate::channel::ChannelState;
use crate::envelope::Packet;
use crate::flow::Queued;
use crate::{Channel, Ob1};
use mend_base::{ContextId, ContextKind, Identity, Key, PeerIndex, Rank};
use mend_proto::identity::Name;
use std::sync::Arc;

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// Opens one context kind of a communicator whose rank `r` is `members[r]`. What came for it too early arrives now, in order.
    pub fn open(
        &mut self,
        identity: Identity,
        context_kind: ContextKind,
        me: Rank,
        members: Arc<[PeerIndex]>,
    ) -> Channel {
        let name = Name { identity, context_kind };
        assert!(me.index() < members.len(), "whoever opens a channel is in it");
        assert!(!self.leaving, "nothing is opened while MPI is finalized");
        assert!(
            !self.names.contains_key(&name) && !self.early_messages.is_retired(name),
            "an identity is used once"
        );
        let mut open = ChannelState::new(name, me, members, None);
        let is_gone = |peer: &PeerIndex| self.peers.get(peer.index()).is_some_and(|peer| peer.gone.is_some());
        if self.peers.iter().any(|peer| peer.gone.is_some()) {
            open.gone = open.members.iter().filter(|peer| is_gone(peer)).count() as u32;
        }
        for peer in &self.failed {
            open.failed.extend(open.ranks_of(*peer).filter(|rank| *rank != me).collect::<Vec<_>>());
        }
        self.some_unsatisfiable |= open.is_orphaned();
        let key = self.channels.insert(open);
        let context = self.contexts.open(key);
        if let Some(open) = self.channels.get_mut(key) {
            open.context = context;
        }
        self.names.insert(name, key);
        let early = self.early_messages.take(name);
        self.on_created(Channel(key), early);
        Channel(key)
    }

    /// Whether this identity is open, or was: it cannot be opened. Identities come from other members, unbelieved.
    pub fn is_used(&self, identity: Identity) -> bool {
        [ContextKind::PointToPoint, ContextKind::Collective].iter().any(|&context_kind| {
            let name = Name { identity, context_kind };
            self.names.contains_key(&name) || self.early_messages.is_retired(name)
        })
    }

    /// Nothing new starts on it. It goes when its last operation is over (MPI-5.0 §7.4.3): what no receive has matched
    /// by now, or will match of those posted, is dropped, and whoever waits for an answer to it is refused. At once: our
    /// own last operation may need a peer that waits for this answer.
    pub fn close(&mut self, channel: Channel) {
        let Some(open) = self.channels.get_mut(channel.0) else { return };
        open.closing = true;
        self.drop_unread(channel.0);
        if self.channels.get(channel.0).is_some_and(|open| open.active == 0) {
            self.shut(channel.0);
        }
    }

    /// This communicator will not be opened here: its making failed. Whoever waits for an answer is refused, now and later.
    pub fn never(&mut self, identity: Identity) {
        for context_kind in [ContextKind::PointToPoint, ContextKind::Collective] {
            let name = Name { identity, context_kind };
            assert!(!self.names.contains_key(&name), "it is open");
            for (from, early) in self.early_messages.retire(name) {
                mend_base::reach!("pml.naming: never create_or");
                self.refuse(from, early.envelope.form);
                self.release_stored(from, early.payload);
            }
        }
    }

    /// MPI_Finalize has begun: nothing more is opened here. Whoever waits for an answer to what came for a communicator
    /// that was create or elsewhere alone is refused, now and later.
    pub fn leave(&mut self) {
        self.leaving = true;
        for (from, early) in self.early_messages.drain() {
            mend_base::reach!("pml.naming: create_or elsewhere alone");
            self.refuse(from, early.envelope.form);
            self.release_stored(from, early.payload);
        }
    }

    pub(crate) fn drop_unread(&mut self, channel: Key) {
        while let Some(key) = self.oldest_unexpected(channel) {
            let Some(message) = self.take_unexpected(channel, key) else { break };
            let from = self.channels.get(channel).and_then(|open| open.member(message.source));
            if let Some(from) = from {
                mend_base::reach!("pml.naming: freed with messages unread");
                self.refuse(from, message.form);
                self.release_stored(from, message.payload);
            }
        }
    }

    /// The last operation is over.
    pub(crate) fn shut(&mut self, channel: Key) {
        self.drop_unread(channel);
        let Some(open) = self.channels.remove(channel) else { return };
        self.names.remove(&open.name);
        let waiting = self.early_messages.retire(open.name);
        debug_assert!(waiting.is_empty(), "nothing is queued for what is open");
        let Some(context) = open.context else { return };
        for peer in self.contexts.close(context) {
            self.answer(peer, Packet::RetireContext { name: open.name, context, rank: open.me });
        }
    }

    fn oldest_unexpected(&self, channel: Key) -> Option<Key> {
        self.channels.get(channel)?.arrived.iter(&self.arrived).next().map(|(key, _)| key)
    }

    /// A peer has written by full identity: tell it, once, what we call the channel.
    #[cold]
    pub(crate) fn tell(&mut self, channel: Key, rank: Rank, peer: PeerIndex) {
        if self.is_gone(peer) {
            mend_base::reach!("pml.naming: nobody is left to be told");
            return;
        }
        let eager_bytes = self.config.eager_bytes;
        let Some(open) = self.channels.get_mut(channel) else { return };
        let Some(context) = open.context else {
            mend_base::reach!("pml.naming: no id left");
            return;
        };
        open.match_list(rank).told = true;
        let packet = Packet::AnnounceContext { name: open.name, context, rank: open.me, eager_bytes };
        self.contexts.announce(context, peer);
        self.answer(peer, packet);
    }

    /// A peer says what it calls a channel.
    pub(crate) fn on_announce_context(
        &mut self,
        from: PeerIndex,
        name: Name,
        context: ContextId,
        rank: Rank,
        eager_bytes: u32,
    ) {
        if let Some(way) = &mut self.peer(from).way {
            way.eager_bytes = eager_bytes.min(way.packed_bytes).min(u32::from(u16::MAX)) as u16;
        }
        let Some(&key) = self.names.get(&name) else {
            // We have freed it meanwhile, and will say so when we are told to forget the id.
            mend_base::reach!("pml.naming: told of what is freed here");
            return;
        };
        let Some(open) = self.channels.get_mut(key) else { return };
        if open.member(rank) != Some(from) || open.route(rank).named {
            return self.garbage(from);
        }
        mend_base::reach!("pml.naming: told");
        let route = open.route(rank);
        route.context = context;
        route.named = true;
    }

    /// A peer has freed a channel, and asks to be called by its id no more.
    pub(crate) fn on_retire_context(&mut self, from: PeerIndex, name: Name, context: ContextId, rank: Rank) {
        if let Some(open) = self.names.get(&name).and_then(|&key| self.channels.get_mut(key)) {
            if open.member(rank) != Some(from) {
                return self.garbage(from);
            }
            let route = open.route(rank);
            if !route.named || route.context != context {
                return self.garbage(from);
            }
            mend_base::reach!("pml.naming: retired");
            route.named = false;
            route.endpoint = None;
        }
        // Behind whatever still uses it, so not as an answer.
        self.enqueue(from, Queued::ContextRetired(context));
    }

    /// A peer will call us so no more.
    pub(crate) fn on_context_retired(&mut self, from: PeerIndex, context: ContextId) {
        if !self.contexts.acknowledged(context, from) {
            self.garbage(from);
        }
    }
}
