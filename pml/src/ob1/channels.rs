// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening and closing channels, and the exchange of their context ids (`mend_proto::identity` has the rules).
//!
//! Each communicator has a point-to-point and a collective channel, and channels for creations and agreements if the engine opens them.

use super::Ob1;
use crate::channel::ChannelState;
use crate::context_table::{Named, names_of};
use crate::ends::Ends;
use crate::envelope::{Packet, Reason};
use crate::members::Members;
use crate::request::{Channel, CommIndex, Lookup};
use crate::send_queues::QueuedMessage;
use mend_base::{ContextId, ContextKind, Identity, Key, PeerIndex, Rank};
use mend_proto::identity::ContextName;
use std::sync::Arc;

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// Opens one context of a communicator whose rank `r` is `members[r]`. Its early messages arrive now, in order. Its
    /// requests belong to `comm`. A communicator that is revoked already is opened and then [revoked](Ob1::revoke) at once, before
    /// anything else is done with its channels: its early messages are refused then (Row RV14). Channels of kinds
    /// [`ContextKind::Creation`], [`ContextKind::Agreement`] and [`ContextKind::Leaders`] are opened when they are needed, at most once, while the point-to-point channel is open.
    pub fn open(
        &mut self,
        identity: Identity,
        context_kind: ContextKind,
        me: Rank,
        members: Arc<[PeerIndex]>,
        comm: CommIndex,
        ends: &Ends,
    ) -> Channel {
        self.open_to(identity, context_kind, Members::new(me, members, ends), comm, ends)
    }

    /// As [`open`](Ob1::open), for messages to and from the remote group of an intercommunicator: its rank `r` is `remote[r]`, and `me` is the
    /// rank of this process in the local group.
    pub fn open_remote(
        &mut self,
        identity: Identity,
        context_kind: ContextKind,
        me: Rank,
        remote: Arc<[PeerIndex]>,
        comm: CommIndex,
        ends: &Ends,
    ) -> Channel {
        self.open_to(identity, context_kind, Members::remote(me, remote, ends), comm, ends)
    }

    fn open_to(
        &mut self,
        identity: Identity,
        context_kind: ContextKind,
        members: Members,
        comm: CommIndex,
        ends: &Ends,
    ) -> Channel {
        let name = ContextName { identity, context_kind };
        let channel = ChannelState::new(name, members, ends);
        self.some_unsatisfiable |= channel.members.all_others_ended();
        let key = self.channels.insert(channel);
        self.requests.open_channel(key, comm);
        let context = self.contexts.open(name, key);
        if let Some(channel) = self.channels.get_mut(key) {
            channel.set_context(context);
        }
        let early = self.contexts.take_early(name);
        if !early.is_empty() {
            self.on_created(key, early);
            self.update_losses(key, ends);
        }
        Channel(key)
    }

    /// Whether this identity is open or was open: then it cannot be opened. Identities come from other members, which are not
    /// trusted. The point-to-point context tells: it is opened first, and retired first.
    pub fn is_used(&self, identity: Identity) -> bool {
        self.contexts.is_used(ContextName { identity, context_kind: ContextKind::PointToPoint })
    }

    /// Which communicator of this process has this identity.
    pub fn find_communicator(&self, identity: Identity) -> Lookup {
        let name = ContextName { identity, context_kind: ContextKind::PointToPoint };
        match self.contexts.find(name) {
            Named::Open(key) => match self.requests.comm_of_channel(key) {
                Some(comm) => Lookup::Open(comm),
                None => Lookup::Retired { was_revoked: false },
            },
            Named::Retired(reason) => Lookup::Retired { was_revoked: reason == Reason::Revoked },
            Named::NotCreated => Lookup::NotCreated,
        }
    }

    /// Closes a channel: no operation starts on it any more, and it is removed with its last operation (MPI-5.0 §7.4.3).
    /// Unexpected messages, and those still to come that no posted receive matches, are dropped, and a sender that waits for an
    /// answer is refused. This happens at once, since the last operation may need a peer that waits for this answer.
    pub fn close(&mut self, channel: Channel) {
        if self.channels.get(channel.0).is_none() {
            return;
        }
        if self.requests.close_channel(channel.0) {
            return self.shut(channel.0);
        }
        self.drop_unread(channel.0);
        self.forget_operations(channel.0);
    }

    /// The communicator will never be opened here: its creation failed. Senders that wait for an answer are refused, now and later, and
    /// end with [`Error::NotCreated`](crate::Error::NotCreated).
    pub fn never_open(&mut self, identity: Identity) {
        for name in names_of(identity) {
            let early = self.contexts.never_open(name);
            self.refuse_early(early, Reason::Unknown);
        }
    }

    /// MPI_Finalize has begun: no channel is opened any more. Where a communicator was created at other members only, senders that
    /// wait for an answer on it are refused, now and later.
    pub fn begin_finalize(&mut self) {
        let early = self.contexts.begin_finalize();
        self.refuse_early(early, Reason::Freed);
    }

    /// The unexpected messages of a channel are dropped, and their senders refused.
    pub(super) fn drop_unread(&mut self, key: Key) {
        while let Some(channel) = self.channels.get_mut(key)
            && let Some(oldest) = self.matcher.oldest(&channel.matching)
            && let Some(message) = self.matcher.take(&mut channel.matching, oldest)
        {
            let reason = channel.refusal();
            if let Some(from) = channel.members.peer(message.source) {
                mend_base::reach!("pml.channels: freed, broken or revoked with messages unread");
                self.refuse(from, message.form, reason);
                self.release_stored(from, message.payload, message.form.request_awaiting_answer().is_some());
            }
        }
    }

    /// The last operation is over.
    pub(super) fn shut(&mut self, key: Key) {
        self.drop_unread(key);
        self.forget_operations(key);
        let Some(channel) = self.channels.remove(key) else { return };
        let (name, rank) = (channel.name(), channel.members.me());
        let closed = self.contexts.close(name, channel.context(), channel.is_revoked());
        self.refuse_early(closed.early, Reason::Freed);
        let Some(context) = channel.context() else { return };
        for peer in closed.announced {
            self.answer(peer, Packet::RetireContext { name, context, rank });
        }
    }

    /// A peer has written by full identity: our id of the channel is announced to it, once.
    #[cold]
    pub(super) fn announce(&mut self, key: Key, rank: Rank, peer: PeerIndex) {
        if self.peers.is_closed(peer) {
            mend_base::reach!("pml.channels: an ended peer is announced nothing");
            return;
        }
        let Some(channel) = self.channels.get_mut(key) else { return };
        let Some(context) = channel.context() else {
            mend_base::reach!("pml.channels: no id left");
            return;
        };
        channel.matching.announce(rank);
        let (name, rank, eager_bytes) = (channel.name(), channel.members.me(), self.config.eager_bytes);
        self.contexts.announce(context, peer);
        self.answer(peer, Packet::AnnounceContext { name, context, rank, eager_bytes });
    }

    /// A peer announces its context id of a channel.
    pub(super) fn on_announce_context(
        &mut self,
        from: PeerIndex,
        name: ContextName,
        context: ContextId,
        rank: Rank,
        eager_bytes: u32,
    ) {
        self.peers.limit_eager(from, eager_bytes);
        let Named::Open(key) = self.contexts.find(name) else {
            // It was freed here meanwhile, and the id is confirmed when the peer retires it.
            mend_base::reach!("pml.channels: the id of a channel that is freed here");
            return;
        };
        let Some(channel) = self.channels.get_mut(key) else { return };
        if channel.members.peer(rank) != Some(from) {
            return self.garbage(from);
        }
        match channel.routes.to(rank).map(|route| route.on_announced(context)) {
            Some(true) => mend_base::reach!("pml.channels: an id is announced"),
            Some(false) => self.garbage(from),
            None => self.out_of_memory(from),
        }
    }

    /// A peer has closed a channel, and asks that its id is used no more.
    pub(super) fn on_retire_context(
        &mut self,
        from: PeerIndex,
        name: ContextName,
        context: ContextId,
        rank: Rank,
    ) {
        if let Named::Open(key) = self.contexts.find(name)
            && let Some(channel) = self.channels.get_mut(key)
        {
            let is_from_rank = channel.members.peer(rank) == Some(from);
            let route = if is_from_rank { channel.routes.to(rank) } else { None };
            if !route.is_some_and(|route| route.on_retired(context)) {
                return self.garbage(from);
            }
            mend_base::reach!("pml.channels: an id is retired");
        }
        // Behind whatever still uses it, so not as an answer.
        match self.queues.push(from, QueuedMessage::ContextRetired(context)) {
            Ok(()) => self.schedule_flush(from),
            Err(error) => self.not_queued(from, error),
        }
    }

    /// A peer uses our id no more.
    pub(super) fn on_context_retired(&mut self, from: PeerIndex, context: ContextId) {
        if !self.contexts.on_retired(context, from) {
            self.garbage(from);
        }
    }
}
