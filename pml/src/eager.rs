// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starting: sends, which go at once where they can, and receives, which look first at what has come.

use crate::channel::Route;
use crate::envelope::{self, Envelope, Form, Packet, Place};
use crate::flow::{PeerLink, Queued, SENDS_PER_PROGRESS};
use crate::list::Links;
use crate::matcher::Unexpected;
use crate::request::{Phase, RequestEntry, take_whole};
use crate::{AM_ID, Channel, Error, Ob1, Request, SendMode, Started, Status};
use mend_base::{Key, PeerIndex, Rank, Source, Tag, TagSelector};
use mend_datatype::Typed;
use mend_transport::{Btl, Class, Payload, SendError};

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    // Hot: per message.
    /// Starts a send. `Err` is only for what names nothing; to a peer that is gone it starts and then ends in error
    /// (Row PP1, Row PP3).
    #[inline(always)]
    pub fn send<N: Btl<Endpoint = E>>(
        &mut self,
        net: &mut N,
        on: Channel,
        to: Rank,
        tag: Tag,
        mode: SendMode,
        data: Typed,
    ) -> Result<Started, Error> {
        let bytes = data.packed_bytes();
        if self.congested == 0
            && self.sends_since_progress < SENDS_PER_PROGRESS
            && mode != SendMode::Synchronous
            && let Some(open) = self.channels.get_mut(on.0)
            && let Some(route) = open.routes.get_mut(to.index())
            && let Some(endpoint) = route.endpoint
            && bytes <= usize::from(route.eager_bytes)
        {
            let header = envelope::eager(route.context, route.sequence, tag, open.me);
            let fill = |mut slot: mend_transport::WriteSlot<'_>| data.pack(0, bytes, &mut slot);
            if net.send(endpoint, Class::Data, AM_ID, &header, bytes, fill).is_ok() {
                mend_base::reach!("pml.eager: at once");
                route.sequence = route.sequence.wrapping_add(1);
                self.sends_since_progress += 1;
                return Ok(Started::Done(Status::EMPTY));
            }
        }
        self.send_slowly(net, on, to, tag, mode, data)
    }

    /// Through a request, behind whatever waits for the same peer.
    #[inline(never)]
    fn send_slowly<N: Btl<Endpoint = E>>(
        &mut self,
        net: &mut N,
        on: Channel,
        to: Rank,
        tag: Tag,
        mode: SendMode,
        data: Typed,
    ) -> Result<Started, Error> {
        assert!(tag.0 >= 0, "whoever took the tag from the user checked it");
        let open = self.channels.get_mut(on.0).ok_or(Error::NoSuchChannel)?;
        let peer = open.member(to).ok_or(Error::NoSuchRank(to))?;
        if let Some(rank) = open.broken_by() {
            mend_base::reach!("pml.eager: on a broken context_kind");
            return Ok(self.ended(Err(Error::ProcFailed(rank))));
        }
        if let Some(why) = self.peer(peer).gone {
            mend_base::reach!("pml.eager: to one who is gone");
            return Ok(self.ended(Err(why.error(to))));
        }
        let key = self.enter(on.0, data, Phase::Queued { to, tag, mode });
        self.enqueue(peer, Queued::Send(key));
        if self.sends_since_progress < SENDS_PER_PROGRESS {
            self.sends_since_progress += 1;
            self.flush(net, peer);
        }
        Ok(self.settled(key))
    }

    /// Puts a queued send on the wire: whole, or as an offer.
    pub(crate) fn transmit<N: Btl<Endpoint = E>>(
        &mut self,
        net: &mut N,
        peer: PeerIndex,
        way: PeerLink<E>,
        key: Key,
    ) -> Result<(), SendError> {
        let xoff_received = self.peers[peer.index()].xoff_received;
        // A queued request leaves the queue before it ends.
        let Some(entry) = self.entries.get(key) else { return Ok(()) };
        let Phase::Queued { to, tag, mode } = entry.phase else { return Ok(()) };
        let Some(open) = self.channels.get_mut(entry.channel) else { return Ok(()) };
        let bytes = entry.data.packed_bytes();
        let route = open.route(to);
        let place = if route.named { Place::Context(route.context) } else { Place::Named(open.name) };
        let route = &mut open.routes[to.index()];
        let form = match mode {
            _ if xoff_received || bytes > way.eager_bytes.into() => Form::Rts { key, bytes: bytes as u64 },
            SendMode::Synchronous => Form::Synchronous { key },
            SendMode::Standard | SendMode::Ready => Form::Eager,
        };
        let offer = matches!(form, Form::Rts { .. });
        let envelope = Envelope { place, sequence: route.sequence, tag, source: open.me, form };
        let header = Packet::Message(envelope).write();
        let length = if offer { 0 } else { bytes };
        net.send(way.endpoint, Class::Data, AM_ID, header.as_bytes(), length, |mut slot| {
            entry.data.pack(0, length, &mut slot);
        })?;
        route.sequence = route.sequence.wrapping_add(1);
        speed_up(route, &way);
        match form {
            Form::Eager => {
                mend_base::reach!("pml.eager: from the queue");
                self.finish(key, Ok(Status::EMPTY));
            }
            Form::Synchronous { .. } | Form::Rts { .. } => {
                mend_base::reach!("pml.eager: synchronous, or an offer");
                if let Some(entry) = self.entries.get_mut(key) {
                    entry.phase = Phase::RtsSent { to, offer };
                }
            }
        }
        Ok(())
    }

    // Hot: per message.
    /// Starts a receive; `Done` where its message had come whole.
    #[inline]
    pub fn receive<N: Btl<Endpoint = E>>(
        &mut self,
        net: &mut N,
        on: Channel,
        from: Source,
        tag: TagSelector,
        data: Typed,
    ) -> Result<Started, Error> {
        let open = self.channels.get_mut(on.0).ok_or(Error::NoSuchChannel)?;
        if let Source::Rank(rank) = from
            && rank.index() >= open.members.len()
        {
            return Err(Error::NoSuchRank(rank));
        }
        if !open.arrived.is_empty() {
            let open = &self.channels.get(on.0).ok_or(Error::NoSuchChannel)?;
            if let Some(key) = self.find_unexpected(open, from, tag)
                && let Some(arrived) = self.take_unexpected(on.0, key)
            {
                return Ok(self.receive_unexpected(net, on.0, arrived, data));
            }
        }
        Ok(self.post(on.0, from, tag, data))
    }

    /// A receive for which nothing has come yet.
    #[inline]
    fn post(&mut self, channel: Key, from: Source, tag: TagSelector, data: Typed) -> Started {
        if let Some(error) = self.why_never(channel, from) {
            mend_base::reach!("pml.eager: from one who is gone");
            return self.ended(Err(error));
        }
        let stamp = self.channels.get_mut(channel).map_or(0, |open| {
            open.stamp += 1;
            open.stamp
        });
        let key = self.enter(channel, data, Phase::Posted { from, tag, stamp });
        if let Some(open) = self.channels.get_mut(channel) {
            match from {
                Source::Rank(rank) => open.match_list(rank).posted.push(&mut self.entries, key),
                Source::Any => open.any.push(&mut self.entries, key),
            }
        }
        Started::Running(Request(key))
    }

    /// A receive whose message, or whose offer, had come.
    fn receive_unexpected<N: Btl<Endpoint = E>>(
        &mut self,
        net: &mut N,
        channel: Key,
        arrived: Unexpected,
        data: Typed,
    ) -> Started {
        let Unexpected { source, tag, form, payload, .. } = arrived;
        let Some(peer) = self.channels.get(channel).and_then(|open| open.member(source)) else {
            return self.ended(Err(Error::NoSuchRank(source)));
        };
        if let Form::Rts { key: sender, bytes } = form {
            if let Some(error) = self.why_never(channel, Source::Rank(source)) {
                mend_base::reach!("pml.eager: the offer of one who is gone");
                self.release_stored(peer, payload);
                return self.ended(Err(error));
            }
            mend_base::reach!("pml.eager: an offer had come");
            self.release_stored(peer, payload);
            let unmatched = Phase::Posted { from: Source::Rank(source), tag: TagSelector::Any, stamp: 0 };
            let key = self.enter(channel, data, unmatched);
            self.send_cts(key, peer, source, tag, sender, bytes);
            self.flush(net, peer);
            return self.settled(key);
        }
        let result = take_whole(&data, source, tag, Payload::from(&payload[..]));
        self.release_stored(peer, payload);
        if let Form::Synchronous { key } = form {
            mend_base::reach!("pml.eager: a synchronous message had come");
            self.answer(peer, Packet::Matched { key });
        }
        self.flush(net, peer);
        match result {
            Ok(status) => Started::Done(status),
            Err(_) => self.ended(result),
        }
    }

    /// A new request, active on a channel.
    pub(crate) fn enter(&mut self, channel: Key, data: Typed, phase: Phase) -> Key {
        if let Some(open) = self.channels.get_mut(channel) {
            open.active += 1;
        }
        self.sends += usize::from(phase.is_send());
        let entry = RequestEntry { data, channel, phase, links: Links::ALONE, detached: false, waiter: None };
        let key = self.entries.insert(entry);
        self.lifecycle_check.begin(key);
        key
    }

    /// A request that is over before it began: its error belongs to the wait.
    pub(crate) fn ended(&mut self, result: Result<Status, Error>) -> Started {
        let entry = RequestEntry {
            data: Typed::empty(),
            channel: crate::list::NONE,
            phase: Phase::Done(result),
            links: Links::ALONE,
            detached: false,
            waiter: None,
        };
        let key = self.entries.insert(entry);
        self.lifecycle_check.begin(key);
        self.lifecycle_check.end(key);
        Started::Running(Request(key))
    }

    /// What a request just started has come to: one that is over and well needs no handle.
    fn settled(&mut self, key: Key) -> Started {
        match self.entries.get(key).map(|entry| entry.phase) {
            Some(Phase::Done(Ok(status))) => {
                self.forget(key);
                Started::Done(status)
            }
            _ => Started::Running(Request(key)),
        }
    }
}

/// From now on messages to this rank may take the fast way, if its name for the channel is known.
fn speed_up<E: Copy>(route: &mut Route<E>, way: &PeerLink<E>) {
    if route.named && route.endpoint.is_none() {
        route.endpoint = Some(way.endpoint);
        route.eager_bytes = way.eager_bytes;
    }
}
