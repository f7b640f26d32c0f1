// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which receive takes which message (MPI-5.0 §3.5): of the receives that admit a message, the one posted first; of the
//! messages that a receive admits, the one that arrived first. Messages of one sender arrive in the order sent.
//!
//! Receives from a named rank stand in that rank's match list, those from anybody in one queue of the channel; a stamp decides
//! between the two. Messages without a receive stand in two queues at once: their sender's, for receives that name it,
//! and the channel's, for those that do not. So no sender starves: whoever came first is taken first.

use crate::channel::ChannelState;
use crate::envelope::{Envelope, Form, Packet, Place};
use crate::list::{Linked, Links};
use crate::request::{Phase, RequestEntry, take_whole};
use crate::{Channel, Ob1};
use mend_base::{Key, PeerIndex, Rank, Slab, Source, Tag, TagSelector};
use mend_proto::identity::Resolved;
use mend_transport::Payload;

/// Posted receives: a rank's, or the channel's.
pub(crate) const POSTED: u8 = 0;
/// Messages of one rank.
pub(crate) const BY_SENDER: u8 = 1;
/// Messages of a channel.
pub(crate) const BY_CHANNEL: u8 = 2;

/// A message that no receive has taken yet.
#[derive(Debug)]
pub(crate) struct Unexpected {
    pub(crate) source: Rank,
    pub(crate) tag: Tag,
    pub(crate) form: Form,
    /// What came behind the header.
    pub(crate) payload: Vec<u8>,
    by_sender: Links,
    by_channel: Links,
}

/// A message for a communicator that is not open here yet.
#[derive(Debug)]
pub(crate) struct EarlyMessage {
    pub(crate) envelope: Envelope,
    pub(crate) payload: Vec<u8>,
}

impl Linked<BY_SENDER> for Unexpected {
    fn links(&self) -> &Links {
        &self.by_sender
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.by_sender
    }
}

impl Linked<BY_CHANNEL> for Unexpected {
    fn links(&self) -> &Links {
        &self.by_channel
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.by_channel
    }
}

impl Unexpected {
    /// How many bytes its sender sends.
    pub(crate) fn bytes(&self) -> u64 {
        match self.form {
            Form::Eager | Form::Synchronous { .. } => self.payload.len() as u64,
            Form::Rts { bytes, .. } => bytes,
        }
    }
}

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    // Hot: per message.
    /// A message of the matching kinds.
    #[inline]
    pub(crate) fn on_envelope(&mut self, from: PeerIndex, envelope: Envelope, payload: Payload<'_>) {
        let channel = match envelope.place {
            Place::Context(context) => match self.contexts.resolve(context, from) {
                Resolved::Assigned(key) => key,
                Resolved::Retiring => return self.on_late(from, envelope.form),
                Resolved::Unknown => return self.garbage(from),
            },
            Place::Named(name) => match self.names.get(&name) {
                Some(&key) => key,
                None => return self.on_unknown_name(from, envelope, payload),
            },
        };
        self.on_arrival(channel, from, envelope, payload);
    }

    // Hot: per message.
    #[inline]
    fn on_arrival(&mut self, channel: Key, from: PeerIndex, envelope: Envelope, payload: Payload<'_>) {
        let Some(open) = self.channels.get_mut(channel) else {
            return debug_assert!(false, "a name or context of a channel that is closed");
        };
        let Envelope { place, sequence, tag, source, form } = envelope;
        if open.member(source) != Some(from) {
            mend_base::reach!("pml.matching: not its rank");
            return self.garbage(from);
        }
        let match_list = open.match_list(source);
        let known = match_list.told || matches!(place, Place::Named(_));
        let has_bytes = !payload.is_empty() && matches!(form, Form::Rts { .. });
        if sequence != match_list.sequence || !known || has_bytes {
            mend_base::reach!("pml.matching: out of sequence, or by an id it was never told");
            return self.garbage(from);
        }
        match_list.sequence = sequence.wrapping_add(1);
        if !match_list.told {
            self.tell(channel, source, from);
        }
        match self.take_posted(channel, source, tag) {
            Some(key) => self.deliver(key, from, source, tag, form, payload),
            None => self.keep(channel, from, source, tag, form, payload),
        }
    }

    // Hot: per message.
    /// The receive for a message, out of its queue.
    #[inline]
    fn take_posted(&mut self, channel: Key, source: Rank, tag: Tag) -> Option<Key> {
        let open = self.channels.get_mut(channel)?;
        let named = first_posted(open.match_lists[source.index()].posted.iter(&self.entries), tag);
        let any = if open.any.is_empty() { None } else { first_posted(open.any.iter(&self.entries), tag) };
        let (key, from_any) = match (named, any) {
            (None, None) => return None,
            (Some((key, _)), None) => (key, false),
            (None, Some((key, _))) => (key, true),
            (Some((named, first)), Some((any, second))) => {
                if first < second {
                    (named, false)
                } else {
                    (any, true)
                }
            }
        };
        let queue = if from_any { &mut open.any } else { &mut open.match_lists[source.index()].posted };
        queue.remove(&mut self.entries, key);
        Some(key)
    }

    // Hot: per message.
    /// A message for a receive that had been posted.
    #[inline]
    fn deliver(
        &mut self,
        key: Key,
        from: PeerIndex,
        source: Rank,
        tag: Tag,
        form: Form,
        payload: Payload<'_>,
    ) {
        match form {
            Form::Eager => mend_base::reach!("pml.matching: posted, eager"),
            Form::Synchronous { key } => {
                mend_base::reach!("pml.matching: posted, synchronous");
                self.answer(from, Packet::Matched { key });
            }
            Form::Rts { key: sender, bytes } => {
                mend_base::reach!("pml.matching: posted, offer");
                return self.send_cts(key, from, source, tag, sender, bytes);
            }
        }
        let Some(entry) = self.entries.get(key) else { return };
        let result = take_whole(&entry.data, source, tag, payload);
        self.finish(key, result);
    }

    /// A message that nobody has asked for yet.
    fn keep(
        &mut self,
        channel: Key,
        from: PeerIndex,
        source: Rank,
        tag: Tag,
        form: Form,
        payload: Payload<'_>,
    ) {
        if self.channels.get(channel).is_some_and(|open| open.closing || open.broken_by().is_some()) {
            return self.on_late(from, form);
        }
        mend_base::reach!("pml.matching: unexpected");
        let payload = self.store(from, payload);
        let arrived =
            Unexpected { source, tag, form, payload, by_sender: Links::ALONE, by_channel: Links::ALONE };
        let key = self.arrived.insert(arrived);
        let Some(open) = self.channels.get_mut(channel) else { return };
        open.match_lists[source.index()].arrived.push(&mut self.arrived, key);
        open.arrived.push(&mut self.arrived, key);
    }

    /// A message by full identity for nothing that is open here.
    #[cold]
    fn on_unknown_name(&mut self, from: PeerIndex, envelope: Envelope, payload: Payload<'_>) {
        let Place::Named(name) = envelope.place else { return };
        if self.leaving || self.early_messages.is_retired(name) {
            return self.on_late(from, envelope.form);
        }
        mend_base::reach!("pml.matching: for a communicator not yet create_or");
        let payload = self.store(from, payload);
        if let Err(early) = self.early_messages.store(name, from, EarlyMessage { envelope, payload }) {
            self.release_stored(from, early.payload);
            self.garbage(from);
        }
    }

    /// A message for what has been closed here, or cut off by a death: dropped, but who waits gets an answer.
    #[cold]
    fn on_late(&mut self, from: PeerIndex, form: Form) {
        mend_base::reach!("pml.matching: for a communicator freed or broken here");
        self.refuse(from, form);
    }

    /// What came too early for the channel that has just been opened.
    pub(crate) fn on_created(&mut self, channel: Channel, early: Vec<(PeerIndex, EarlyMessage)>) {
        for (from, EarlyMessage { envelope, payload }) in early {
            mend_base::reach!("pml.matching: handed over at birth");
            if !self.is_discarding(from) || self.is_gone(from) {
                self.on_arrival(channel.0, from, envelope, Payload::from(&payload[..]));
            }
            self.release_stored(from, payload);
        }
    }

    /// The first message not matched yet that a receive would take.
    pub(crate) fn find_unexpected(
        &self,
        channel: &ChannelState<E>,
        from: Source,
        tag: TagSelector,
    ) -> Option<Key> {
        let admits = |(_, message): &(Key, &Unexpected)| tag.admits(message.tag);
        let can_come = |(_, message): &(Key, &Unexpected)| !self.is_orphaned_rts(channel, message);
        let found = match from {
            Source::Rank(rank) => {
                channel.match_lists.get(rank.index())?.arrived.iter(&self.arrived).find(admits)
            }
            Source::Any => channel.arrived.iter(&self.arrived).filter(admits).find(can_come),
        };
        found.map(|(key, _)| key)
    }

    /// Takes a message out of both its queues.
    pub(crate) fn take_unexpected(&mut self, channel: Key, key: Key) -> Option<Unexpected> {
        let open = self.channels.get_mut(channel)?;
        let source = self.arrived.get(key)?.source;
        open.match_lists[source.index()].arrived.remove(&mut self.arrived, key);
        open.arrived.remove(&mut self.arrived, key);
        self.arrived.remove(key)
    }
}

// Hot: per message.
#[inline]
fn first_posted<'a>(
    mut queue: impl Iterator<Item = (Key, &'a RequestEntry)>,
    wanted: Tag,
) -> Option<(Key, u64)> {
    queue.find_map(|(key, entry)| match entry.phase {
        Phase::Posted { tag, stamp, .. } if tag.admits(wanted) => Some((key, stamp)),
        _ => None,
    })
}

/// The queue in which a posted receive stands.
pub(crate) fn unlink_posted<E: Copy>(
    open: &mut ChannelState<E>,
    entries: &mut Slab<RequestEntry>,
    from: Source,
    key: Key,
) {
    match from {
        Source::Rank(rank) => open.match_list(rank).posted.remove(entries, key),
        Source::Any => open.any.remove(entries, key),
    }
}
