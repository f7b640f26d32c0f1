// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collective operations begin, are given up, and end (design "Interrupted collectives"); poison and inquiries about them.
//!
//! ```text
//!   member that gives up, or does not begin        member that waits for its message
//!     ── poison(tag, cause) ───────────────────▶   behind the data: posted and later receives of that tag end (`Poisoned`)
//!     ◀── RTS(tag) ── Refused(GivenUp, cause) ─▶   the send ends (`Poisoned`)
//!     ◀── inquiry(tag, receive) ───────────────    a member has failed, and this receive is posted
//!        begun here: no answer, since the message or poison comes
//!        not begun: stored; when a member's failure is published here ── Refused(NeverBegins, cause) ─▶ the receive ends (`Poisoned`)
//! ```
//!
//! Poison and inquiries take sequence numbers of the channel, so no message overtakes them, and they reach a communicator that is
//! not created yet. When a member has failed no operation begins any more, so a rank is told so once, for all later operations.

use super::Ob1;
use super::arrival::Target;
use crate::context_table::Subject;
use crate::envelope::{ChannelName, Envelope, Form, Note, Reason};
use crate::lent::Lent;
use crate::operations::{GivenUp, Inquiry, Poison, Stage};
use crate::request::{Channel, Error};
use crate::request_table::{Phase, Posted, RequestEntry};
use crate::send_queues::QueuedMessage;
use mend_base::{Key, PeerIndex, Rank, Source, Tag, TagSelector};
use mend_datatype::TypedBuffer;
use mend_transport::{Payload, Rdma};

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// Begins a collective operation: the next tag of its channel. No member of the channel has failed. `None`: there is no memory, and
    /// nothing has begun.
    pub fn begin_operation(&mut self, on: Channel) -> Option<Tag> {
        let tag = self.channels.get_mut(on.0)?.operations.begin()?;
        while let Some(inquiry) = self.take_inquiry(on.0, |inquiry| inquiry.tag == tag) {
            self.release_inquiry(on.0, inquiry);
        }
        Some(tag)
    }

    /// The tag of the collective operation that begins next.
    pub fn next_operation(&self, on: Channel) -> Tag {
        self.channels.get(on.0).map_or(Tag(0), |channel| channel.operations.next())
    }

    /// Whether the collective operation with this tag has begun, or is over.
    pub fn has_begun(&self, on: Channel, tag: Tag) -> bool {
        self.channels.get(on.0).is_none_or(|channel| channel.operations.stage(tag) != Stage::Future)
    }

    /// The next collective operation is over before it begins. Its tag.
    pub fn skip_operation(&mut self, on: Channel) -> Tag {
        self.channels.get_mut(on.0).map_or(Tag(0), |channel| channel.operations.skip())
    }

    /// A collective operation is over.
    pub fn end_operation(&mut self, on: Channel, tag: Tag) {
        if let Some(channel) = self.channels.get_mut(on.0) {
            channel.operations.end(tag);
            self.drop_poison_of(on.0, |_, of| of == tag);
        }
    }

    /// A collective operation is given up, of which no request is left: `owed` are the ranks that still expect messages of it; they are
    /// poisoned, once where a rank comes several times in a row. Its unread messages are dropped. `failed`: the failed member that is the cause, whose failure may not be
    /// published here.
    pub fn give_up_operation<N: Rdma<Endpoint = E>>(
        &mut self,
        lent: Lent<'_, N>,
        on: Channel,
        tag: Tag,
        failed: Option<Rank>,
        owed: impl IntoIterator<Item = Rank>,
    ) {
        let Some(channel) = self.channels.get_mut(on.0) else { return };
        mend_base::reach!("pml.operations: given up");
        channel.operations.give_up(tag, GivenUp { failed });
        self.drop_refused(on.0);
        let mut last = None;
        for to in owed {
            if last.replace(to) != Some(to) {
                self.send_about(lent.net, on.0, to, tag, Note::Poison { failed, and_later: false });
            }
        }
    }

    /// A member of the channel has failed, and the next operation does not begin for that reason, nor does a later one: `owed` are the
    /// ranks that expect messages of it. Each rank is poisoned once.
    pub fn refuse_operation_and_later<N: Rdma<Endpoint = E>>(
        &mut self,
        lent: Lent<'_, N>,
        on: Channel,
        owed: impl IntoIterator<Item = Rank>,
    ) {
        for to in owed {
            let Some(channel) = self.channels.get_mut(on.0) else { return };
            let (tag, failed) = (channel.operations.next(), channel.broken_by());
            if channel.routes.to(to).is_none_or(|route| route.poison_later()) {
                mend_base::reach!("pml.operations: never begins");
                self.send_about(lent.net, on.0, to, tag, Note::Poison { failed, and_later: true });
            }
        }
    }

    /// How many messages of this operation from this rank are here whole and unread, if they come before one that is not.
    pub fn whole_messages(&self, on: Channel, from: Rank, tag: Tag) -> usize {
        self.channels.get(on.0).map_or(0, |channel| self.matcher.whole(&channel.matching, from, tag))
    }

    /// Sends a message about an operation. Without memory for it, this process and the peer cannot exchange messages any more.
    fn send_about<N: Rdma<Endpoint = E>>(
        &mut self,
        net: &mut N,
        channel: Key,
        to: Rank,
        tag: Tag,
        note: Note,
    ) {
        if let Some(peer) = self.queue_about(channel, to, tag, note) {
            self.flush(net, peer);
        }
    }

    /// Queues a message about an operation. `None`: nothing was queued.
    fn queue_about(&mut self, channel: Key, to: Rank, tag: Tag, note: Note) -> Option<PeerIndex> {
        let open = self.channels.get(channel)?;
        let peer = open.members.peer(to)?;
        if Some(to) == open.members.own() || self.peers.is_closed(peer) {
            return None;
        }
        let phase = Phase::AboutOperation { to, tag, note };
        let Some(request) = self.requests.begin(channel, TypedBuffer::empty(), phase) else {
            self.out_of_memory(peer);
            return None;
        };
        self.requests.release(request);
        if let Err(error) = self.queues.push(peer, QueuedMessage::Request(request)) {
            self.end(request, Err(Error::NoMemory));
            self.not_queued(peer, error);
            return None;
        }
        self.schedule_flush(peer);
        Some(peer)
    }

    /// The receive is posted, and a member has failed: its sender may never begin the operation, and will say so.
    #[cold]
    pub(super) fn inquire(&mut self, receive: Key) {
        let Some(entry) = self.requests.get(receive) else { return };
        if let Phase::Posted(Posted { from: Source::Rank(from), tag: TagSelector::Tag(tag), .. }) =
            *entry.phase()
        {
            mend_base::reach!("pml.operations: inquiry");
            self.queue_about(entry.channel(), from, tag, Note::Inquiry { key: receive });
        }
    }

    /// A member of a collective channel has failed.
    #[cold]
    pub(super) fn on_broken(&mut self, key: Key) {
        self.drop_refused(key);
        self.drop_poison_of(key, |stage, _| stage == Stage::Future);
        let failed = self.channels.get(key).and_then(|channel| channel.broken_by());
        while let Some(inquiry) = self.take_inquiry(key, |_| true) {
            self.refuse_inquiry(key, inquiry, Reason::NeverBegins { failed });
        }
        let posted =
            |entry: &RequestEntry| entry.channel() == key && matches!(entry.phase(), Phase::Posted(_));
        let receives = self.requests.iter().filter(|(_, entry)| posted(entry));
        let receives: Vec<Key> = receives.map(|(receive, _)| receive).collect();
        receives.into_iter().for_each(|receive| self.inquire(receive));
    }

    /// Drops the unread messages of operations that take none any more, and refuses their senders.
    fn drop_refused(&mut self, key: Key) {
        while let Some(channel) = self.channels.get_mut(key)
            && channel.matching.has_unexpected()
            && let Some(found) = self.matcher.find_tag(&channel.matching, |tag| channel.refuses(tag))
            && let Some(message) = self.matcher.take(&mut channel.matching, found)
        {
            if let Some(from) = channel.members.peer(message.source) {
                mend_base::reach!("pml.operations: an unread message is dropped");
                self.refuse_operation(key, from, message.tag, message.form);
                self.release_stored(from, message.payload, message.form.request_awaiting_answer().is_some());
            }
        }
    }

    /// A message of an operation that takes none any more: dropped, but a sender that waits gets an answer.
    #[cold]
    pub(super) fn refuse_operation(&mut self, key: Key, from: PeerIndex, tag: Tag, form: Form) {
        let Some(channel) = self.channels.get(key) else { return };
        mend_base::reach!("pml.operations: a message comes too late");
        let failed = match channel.operations.stage(tag) {
            Stage::GivenUp(GivenUp { failed }) => failed,
            _ => channel.broken_by(),
        };
        self.refuse(from, form, Reason::GivenUp { failed });
    }

    /// Poison or an inquiry.
    #[cold]
    pub(super) fn on_about_operation(&mut self, from: PeerIndex, envelope: Envelope, note: Note) {
        match self.target(from, envelope.channel) {
            Target::Channel(key) => self.on_channel_about_operation(key, from, envelope, note),
            Target::Closed(reason) => self.refuse_note(from, note, reason),
            Target::NotCreated => self.on_early(from, envelope, nothing(), Subject::Operation(note)),
            Target::Garbage => self.garbage(from),
        }
    }

    pub(super) fn on_channel_about_operation(
        &mut self,
        key: Key,
        from: PeerIndex,
        envelope: Envelope,
        note: Note,
    ) {
        let Envelope { channel: name, sequence, tag, source, .. } = envelope;
        let Some(channel) = self.channels.get_mut(key) else { return };
        let is_member = |rank: Rank| channel.members.peer(rank).is_some();
        let names_member = match note {
            Note::Poison { failed, .. } => failed.is_none_or(is_member),
            Note::Inquiry { .. } => true,
        };
        if channel.members.peer(source) != Some(from) || !channel.has_operations() || !names_member {
            mend_base::reach!("pml.operations: garbage");
            return self.garbage(from);
        }
        let by_name = matches!(name, ChannelName::Named(_));
        let arrival = channel.matching.arrive(source, sequence, by_name);
        if !self.is_accepted(arrival, key, from, source) {
            return;
        }
        if self.channels.get(key).is_some_and(|channel| channel.is_revoked()) {
            mend_base::reach!("pml.operations: on a revoked channel");
            return;
        }
        match note {
            Note::Poison { failed, and_later } => {
                self.on_poison(key, from, Poison { source, tag, and_later, failed });
            }
            Note::Inquiry { key: receive } => {
                self.on_inquiry(key, from, Inquiry { source, tag, key: receive })
            }
        }
    }

    /// The operation will never begin here, or is not known any more: an inquiry is answered. Where the communicator is revoked no
    /// answer is needed: the revocation reaches the other member too.
    #[cold]
    pub(super) fn refuse_note(&mut self, from: PeerIndex, note: Note, reason: Reason) {
        let failed = match reason {
            Reason::Revoked => return,
            Reason::Freed | Reason::Unknown => None,
            Reason::GivenUp { failed } | Reason::NeverBegins { failed } => failed,
        };
        let Some(key) = note.request_awaiting_answer() else { return };
        if self.peers.is_discarding(from) {
            return;
        }
        // The operation may have begun and ended here before the communicator was freed: its message must arrive first, so this is no control
        // message, which overtakes.
        match self.queues.push(from, QueuedMessage::NeverBegins { key, failed }) {
            Ok(()) => self.schedule_flush(from),
            Err(error) => self.not_queued(from, error),
        }
    }

    /// A member sends nothing more for an operation: receives that wait for it end.
    fn on_poison(&mut self, key: Key, from: PeerIndex, poison: Poison) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        let stage = channel.operations.stage(poison.tag);
        let is_needed = match stage {
            Stage::Running => true,
            Stage::Future => !channel.is_broken(),
            Stage::GivenUp(_) | Stage::Ended => false,
        };
        if !poison.and_later && !is_needed || self.requests.is_closing(key) {
            mend_base::reach!("pml.operations: poison that nobody needs");
            return;
        }
        mend_base::reach!("pml.operations: poison");
        if !channel.operations.reserve() {
            return self.out_of_memory(from);
        }
        if self.store(from, nothing(), false, Form::Eager).is_none() {
            return;
        }
        let Some(channel) = self.channels.get_mut(key) else { return };
        channel.operations.add_poison(poison);
        let waits = |entry: &RequestEntry| match *entry.phase() {
            Phase::Posted(Posted { from: Source::Rank(rank), tag: TagSelector::Tag(tag), .. }) => {
                entry.channel() == key && poison.is_about(rank, tag)
            }
            _ => false,
        };
        let receives = self.requests.iter().filter(|(_, entry)| waits(entry));
        let receives: Vec<Key> = receives.map(|(receive, _)| receive).collect();
        for receive in receives {
            self.end_given_up(receive, poison.failed);
        }
    }

    /// A member waits for a message of an operation.
    fn on_inquiry(&mut self, key: Key, from: PeerIndex, inquiry: Inquiry) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        if channel.operations.stage(inquiry.tag) != Stage::Future {
            mend_base::reach!("pml.operations: an inquiry about what has begun");
            return;
        }
        let failed = channel.broken_by();
        if failed.is_some() || self.requests.is_closing(key) {
            mend_base::reach!("pml.operations: an inquiry about what never begins");
            return self.refuse_note(
                from,
                Note::Inquiry { key: inquiry.key },
                Reason::NeverBegins { failed },
            );
        }
        mend_base::reach!("pml.operations: an inquiry waits");
        if !channel.operations.reserve() {
            return self.out_of_memory(from);
        }
        if self.store(from, nothing(), true, Form::Eager).is_some()
            && let Some(channel) = self.channels.get_mut(key)
        {
            channel.operations.add_inquiry(inquiry);
        }
    }

    /// The answer to an inquiry: no message will come for this receive.
    pub(super) fn on_never_begins(&mut self, from: PeerIndex, key: Key, failed: Option<Rank>) {
        let Some(entry) = self.requests.get(key) else {
            if !self.requests.is_over(key) {
                self.garbage(from);
            }
            return;
        };
        if let Phase::Posted(Posted { from: Source::Rank(rank), .. }) = *entry.phase()
            && self.member(entry.channel(), rank) == Some(from)
            && self.has_operations(key)
        {
            mend_base::reach!("pml.operations: a receive from a member that does not begin");
            self.end_given_up(key, failed);
        }
    }

    /// The peer that this request needs has given the operation up.
    pub(super) fn end_given_up(&mut self, key: Key, failed: Option<Rank>) {
        let Some(entry) = self.requests.get(key) else { return };
        let (Phase::RtsSent { to: by, .. }
        | Phase::Matched { from: by, .. }
        | Phase::Posted(Posted { from: Source::Rank(by), .. })) = *entry.phase()
        else {
            return;
        };
        let failed = failed.filter(|rank| self.member(entry.channel(), *rank).is_some());
        self.end_request(key, Error::Poisoned { by, failed });
    }

    /// The sender has given up a message that this receive had matched, and the operation with it: its poison, which may have come
    /// already, names the cause. On a revoked channel no poison is needed.
    pub(super) fn await_poison(&mut self, request: Key) {
        let Some(entry) = self.requests.get(request) else { return };
        let Phase::Matched { from, posted, .. } = *entry.phase() else { return };
        if self.channels.get(entry.channel()).is_some_and(|channel| channel.is_revoked()) {
            return self.end_request(request, Error::Revoked);
        }
        match self.poisoned(entry.channel(), Source::Rank(from), posted.tag) {
            Some(error) => self.end_request(request, error),
            None => self.match_anew(request),
        }
    }

    /// The error of a receive whose sender has given the operation up.
    #[inline]
    pub(super) fn poisoned(&self, channel: Key, from: Source, tag: TagSelector) -> Option<Error> {
        let operations = &self.channels.get(channel)?.operations;
        if !operations.has_poison() {
            return None;
        }
        let (Source::Rank(by), TagSelector::Tag(tag)) = (from, tag) else { return None };
        operations.poison(by, tag).map(|poison| Error::Poisoned { by, failed: poison.failed })
    }

    /// The channel is closed or revoked: forgets what is stored about its operations.
    pub(super) fn forget_operations(&mut self, key: Key) {
        while let Some(channel) = self.channels.get_mut(key)
            && let Some(poison) = channel.operations.take_any_poison()
        {
            self.release_about(key, poison.source, false);
        }
        let reason = self.channels.get(key).map_or(Reason::Freed, |channel| channel.refusal());
        while let Some(inquiry) = self.take_inquiry(key, |_| true) {
            self.refuse_inquiry(key, inquiry, reason);
        }
    }

    /// Forgets the poison about single operations for which this holds.
    fn drop_poison_of(&mut self, key: Key, is_dropped: impl Fn(Stage, Tag) -> bool) {
        while let Some(channel) = self.channels.get_mut(key)
            && channel.operations.has_poison()
            && let Some(poison) = channel.operations.take_poison(&is_dropped)
        {
            self.release_about(key, poison.source, false);
        }
    }

    fn take_inquiry(&mut self, key: Key, is_taken: impl Fn(&Inquiry) -> bool) -> Option<Inquiry> {
        self.channels.get_mut(key)?.operations.take_inquiry(is_taken)
    }

    fn refuse_inquiry(&mut self, channel: Key, inquiry: Inquiry, reason: Reason) {
        if let Some(peer) = self.member(channel, inquiry.source) {
            self.refuse_note(peer, Note::Inquiry { key: inquiry.key }, reason);
        }
        self.release_inquiry(channel, inquiry);
    }

    fn release_inquiry(&mut self, channel: Key, inquiry: Inquiry) {
        self.release_about(channel, inquiry.source, true);
    }

    fn release_about(&mut self, channel: Key, source: Rank, unanswered: bool) {
        if let Some(peer) = self.member(channel, source) {
            self.release_stored(peer, Vec::new(), unanswered);
        }
    }
}

fn nothing() -> Payload<'static> {
    Payload::from(&[0u8; 0][..])
}
