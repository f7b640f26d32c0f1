// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A message arrives: its channel, the sequence check, the match; a receive takes it, or it is stored as unexpected.

use super::Ob1;
use crate::context_table::{EarlyMessage, Named, Subject};
use crate::envelope::{ChannelName, Envelope, Form, Packet, Reason};
use crate::matcher::{Arrival, Unexpected};
use crate::receive_budget::BudgetError;
use crate::request::{Error, Status, take_whole};
use crate::request_table::{Phase, RequestEntry};
use mend_base::{Key, PeerIndex, Rank, Tag};
use mend_proto::identity::Resolved;
use mend_transport::{Payload, RemoteKey};

/// Which channel a message is for.
pub(super) enum Target {
    Channel(Key),
    /// It was closed here, or will never be opened.
    Closed(Reason),
    NotCreated,
    Garbage,
}

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    // Hot: per message.
    /// A message that takes part in matching: eager, synchronous, or an RTS.
    #[inline]
    pub(super) fn on_message(&mut self, from: PeerIndex, envelope: Envelope, payload: Payload<'_>) {
        match self.target(from, envelope.channel) {
            Target::Channel(key) => self.on_channel_message(key, from, envelope, payload),
            Target::Closed(reason) => self.on_late(from, envelope.form, reason),
            Target::NotCreated => self.on_early(from, envelope, payload, Subject::Message),
            Target::Garbage => self.garbage(from),
        }
    }

    // Hot: per message.
    #[inline(always)]
    pub(super) fn target(&self, from: PeerIndex, channel: ChannelName) -> Target {
        match channel {
            ChannelName::Context(context) => match self.contexts.resolve(context, from) {
                Resolved::Assigned(key) => Target::Channel(key),
                Resolved::Retiring => Target::Closed(self.contexts.refusal(context)),
                Resolved::Unknown => Target::Garbage,
            },
            ChannelName::Named(name) => match self.contexts.find(name) {
                Named::Open(key) => Target::Channel(key),
                Named::Retired(reason) => Target::Closed(reason),
                Named::NotCreated => Target::NotCreated,
            },
        }
    }

    // Hot: per message.
    #[inline]
    fn on_channel_message(&mut self, key: Key, from: PeerIndex, envelope: Envelope, payload: Payload<'_>) {
        let Envelope { channel: name, sequence, tag, source, form } = envelope;
        let Some(channel) = self.channels.get_mut(key) else {
            return debug_assert!(false, "a name or context id of a channel that is closed");
        };
        if channel.members.peer(source) != Some(from) {
            mend_base::reach!("pml.arrival: not its rank");
            return self.garbage(from);
        }
        if payload.len() > RemoteKey::BYTES_MAX && matches!(form, Form::Rts { .. }) {
            return self.garbage(from);
        }
        let by_name = matches!(name, ChannelName::Named(_));
        match channel.matching.arrive(source, sequence, by_name) {
            Arrival::InOrder => {
                let matched = channel.matching.take_match(self.requests.receives(), source, tag);
                self.deliver_or_store(matched, key, from, source, tag, form, payload);
            }
            other => self.on_unusual_message(other, key, from, envelope, payload),
        }
    }

    #[cold]
    fn on_unusual_message(
        &mut self,
        arrival: Arrival,
        key: Key,
        from: PeerIndex,
        envelope: Envelope,
        payload: Payload<'_>,
    ) {
        let Envelope { tag, source, form, .. } = envelope;
        if arrival == Arrival::Revoked {
            mend_base::reach!("pml.arrival: for a communicator that is revoked here");
            return self.refuse(from, form, Reason::Revoked);
        }
        if self.is_accepted(arrival, key, from, source)
            && let Some(channel) = self.channels.get_mut(key)
        {
            let matched = channel.matching.take_match(self.requests.receives(), source, tag);
            self.deliver_or_store(matched, key, from, source, tag, form, payload);
        }
    }

    /// Whether a message is accepted after the sequence check. A message by full identity is accepted, and our id is announced to its
    /// sender, unless the channel is revoked. A message out of sequence is garbage and is not accepted.
    #[cold]
    pub(super) fn is_accepted(&mut self, arrival: Arrival, key: Key, from: PeerIndex, source: Rank) -> bool {
        match arrival {
            Arrival::InOrder | Arrival::Revoked => return true,
            Arrival::Unannounced => {
                self.announce(key, source, from);
                return true;
            }
            Arrival::Garbage => {
                mend_base::reach!("pml.arrival: out of sequence, or by an id that was not announced");
                self.garbage(from);
            }
            Arrival::NoMemory => self.out_of_memory(from),
        }
        false
    }

    // Hot: per message.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "the parts of an envelope, in registers")]
    fn deliver_or_store(
        &mut self,
        matched: Option<Key>,
        channel: Key,
        from: PeerIndex,
        source: Rank,
        tag: Tag,
        form: Form,
        payload: Payload<'_>,
    ) {
        match matched {
            Some(request) => self.deliver(request, from, source, tag, form, payload),
            None => self.store_unexpected(channel, from, source, tag, form, payload),
        }
    }

    // Hot: per message.
    /// A message for a receive that was posted.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        request: Key,
        from: PeerIndex,
        source: Rank,
        tag: Tag,
        form: Form,
        payload: Payload<'_>,
    ) {
        match form {
            Form::Eager => mend_base::reach!("pml.arrival: posted, eager"),
            Form::Synchronous { key } => {
                mend_base::reach!("pml.arrival: posted, synchronous");
                self.answer(from, Packet::Matched { key });
            }
            Form::Rts { key, bytes } => {
                mend_base::reach!("pml.arrival: posted, RTS");
                return self.match_rts(request, from, source, tag, key, bytes, payload);
            }
        }
        let Some(entry) = self.requests.get(request) else { return };
        let result = take_whole(entry.data(), source, tag, payload);
        self.end(request, result);
    }

    // Hot: per message.
    /// Stores a message that no receive has matched yet.
    #[inline(always)]
    fn store_unexpected(
        &mut self,
        key: Key,
        from: PeerIndex,
        source: Rank,
        tag: Tag,
        form: Form,
        payload: Payload<'_>,
    ) {
        let Some(channel) = self.channels.get(key) else { return };
        if channel.refuses(tag) {
            return self.refuse_operation(key, from, tag, form);
        }
        if self.requests.is_closing(key) {
            return self.on_late(from, form, Reason::Freed);
        }
        mend_base::reach!("pml.arrival: unexpected");
        let unanswered = form.request_awaiting_answer().is_some();
        let Some(payload) = self.store(from, payload, unanswered, form) else { return };
        let Some(channel) = self.channels.get_mut(key) else { return };
        let bytes = payload.len();
        if !self.matcher.add(&mut channel.matching, Unexpected::new(source, tag, form, payload)) {
            self.budget.release(from, bytes, unanswered);
            self.out_of_memory(from);
        }
    }

    /// Stores the bytes of a message of this form on its sender's account. `None`: the sender's messages are discarded. An RTS for whose
    /// remote key there is no memory is stored without it: its bytes will come as a stream.
    #[inline]
    pub(super) fn store(
        &mut self,
        from: PeerIndex,
        payload: Payload<'_>,
        unanswered: bool,
        form: Form,
    ) -> Option<Vec<u8>> {
        let short = self.matcher.is_short();
        match self.budget.store(from, payload, unanswered, short) {
            Ok(payload) => {
                if self.budget.is_exceeded() {
                    self.send_xoff(from);
                }
                Some(payload)
            }
            Err(BudgetError::NoMemory) if matches!(form, Form::Rts { .. }) && !payload.is_empty() => {
                mend_base::reach!("pml.arrival: no memory for a remote key");
                self.store(from, payload.part(0, 0), unanswered, form)
            }
            Err(error) => {
                self.not_stored(from, error);
                None
            }
        }
    }

    #[cold]
    fn send_xoff(&mut self, from: PeerIndex) {
        if self.budget.needs_xoff(from) {
            mend_base::reach!("pml.arrival: XOFF");
            self.answer(from, Packet::Xoff);
        }
    }

    #[cold]
    fn not_stored(&mut self, from: PeerIndex, error: BudgetError) {
        match error {
            BudgetError::TooMany => self.garbage(from),
            BudgetError::NoMemory => self.out_of_memory(from),
        }
    }

    /// A stored message has been taken, or is dropped.
    pub(super) fn release_stored(&mut self, from: PeerIndex, payload: Vec<u8>, unanswered: bool) {
        if self.budget.release(from, payload.len(), unanswered) {
            mend_base::reach!("pml.arrival: XON");
            self.answer(from, Packet::Xon);
        }
        self.budget.recycle(payload);
    }

    /// A message by name for a channel that is not created here yet.
    #[cold]
    pub(super) fn on_early(
        &mut self,
        from: PeerIndex,
        envelope: Envelope,
        payload: Payload<'_>,
        subject: Subject,
    ) {
        let ChannelName::Named(name) = envelope.channel else { return };
        mend_base::reach!("pml.arrival: for a communicator that is not created");
        let mut message = EarlyMessage { envelope, payload: Vec::new(), subject };
        let unanswered = message.is_unanswered();
        let Some(payload) = self.store(from, payload, unanswered, envelope.form) else { return };
        message.payload = payload;
        if let Err(message) = self.contexts.store_early(name, from, message) {
            self.release_stored(from, message.payload, unanswered);
            self.out_of_memory(from);
        }
    }

    /// A message for a channel that was closed here: dropped, but a sender that waits gets an answer.
    #[cold]
    fn on_late(&mut self, from: PeerIndex, form: Form, reason: Reason) {
        mend_base::reach!("pml.arrival: for a communicator that is freed here");
        self.refuse(from, form, reason);
    }

    /// A channel has just been opened: its early messages are handled.
    pub(super) fn on_created(&mut self, channel: Key, early: Vec<(PeerIndex, EarlyMessage)>) {
        for (from, message) in early {
            mend_base::reach!("pml.arrival: handed over at the creation");
            let unanswered = message.is_unanswered();
            let EarlyMessage { envelope, payload, subject } = message;
            if self.budget.release(from, payload.len(), unanswered) {
                self.answer(from, Packet::Xon);
            }
            if self.peers.is_discarding(from) && !self.peers.is_closed(from) {
                continue;
            }
            match subject {
                Subject::Message => {
                    self.on_channel_message(channel, from, envelope, Payload::from(&payload[..]));
                }
                Subject::CancelRts => self.on_channel_cancel_rts(channel, from, envelope),
                Subject::Operation(note) => self.on_channel_about_operation(channel, from, envelope, note),
            }
            self.budget.recycle(payload);
        }
    }

    /// Early messages for a channel that will not be opened: a sender that waits gets an answer.
    pub(super) fn refuse_early(&mut self, early: Vec<(PeerIndex, EarlyMessage)>, reason: Reason) {
        for (from, message) in early {
            mend_base::reach!("pml.arrival: early, and never created");
            match message.subject {
                Subject::Message => self.refuse(from, message.envelope.form, reason),
                Subject::CancelRts => {}
                Subject::Operation(note) => self.refuse_note(from, note, reason),
            }
            let unanswered = message.is_unanswered();
            self.release_stored(from, message.payload, unanswered);
        }
    }

    /// The sender has cancelled an RTS: it is removed, as if it had never been sent. A receive that had matched it is matched anew
    /// now, before any later message of this sender arrives, since a later receive would take that message otherwise
    /// (MPI-5.0 §3.5). The sender gets an answer unless it has one already.
    #[cold]
    pub(super) fn on_cancel_rts(&mut self, from: PeerIndex, envelope: Envelope) {
        match self.target(from, envelope.channel) {
            Target::Channel(key) => self.on_channel_cancel_rts(key, from, envelope),
            // The RTS was refused.
            Target::Closed(_) => {}
            Target::NotCreated => {
                self.on_early(from, envelope, Payload::from(&[0u8; 0][..]), Subject::CancelRts)
            }
            Target::Garbage => self.garbage(from),
        }
    }

    fn on_channel_cancel_rts(&mut self, key: Key, from: PeerIndex, envelope: Envelope) {
        let Envelope { channel: name, sequence, source, form, .. } = envelope;
        let Some(channel) = self.channels.get_mut(key) else { return };
        if channel.members.peer(source) != Some(from) {
            return self.garbage(from);
        }
        let by_name = matches!(name, ChannelName::Named(_));
        let arrival = channel.matching.arrive(source, sequence, by_name);
        if !self.is_accepted(arrival, key, from, source) {
            return;
        }
        let (Some(sender), Some(channel)) = (form.request_awaiting_answer(), self.channels.get_mut(key))
        else {
            return;
        };
        let found = self.matcher.find_rts(&channel.matching, source, sender);
        if let Some(message) = found.and_then(|found| self.matcher.take(&mut channel.matching, found)) {
            mend_base::reach!("pml.arrival: an unexpected RTS is cancelled");
            self.answer(from, Packet::Refused { key: sender, reason: Reason::Freed });
            self.release_stored(from, message.payload, true);
        } else if let Some((request, transfer)) = self.find_matched(key, source, sender) {
            if transfer.is_some() {
                // A sender does not cancel what its receiver may have taken.
                return self.garbage(from);
            }
            mend_base::reach!("pml.arrival: a matched RTS is cancelled");
            self.give_up_stream(request, from, sender);
            self.match_anew(request);
        }
    }

    /// The receive that has matched the RTS of `source` for its request `sender`, and its transfer if it takes the bytes by gets.
    fn find_matched(&self, channel: Key, source: Rank, sender: Key) -> Option<(Key, Option<Key>)> {
        let transfer = |entry: &RequestEntry| match *entry.phase() {
            Phase::Matched { from, key, transfer, .. } if from == source && key == sender => Some(transfer),
            _ => None,
        };
        let mut receives = self.requests.iter().filter(|(_, entry)| entry.channel() == channel);
        receives.find_map(|(request, entry)| Some((request, transfer(entry)?)))
    }

    /// The end of every operation.
    #[inline]
    pub(super) fn end(&mut self, key: Key, result: Result<Status, Error>) {
        if let Some(channel) = self.requests.end(key, result) {
            self.shut(channel);
        }
    }
}
