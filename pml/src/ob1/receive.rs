// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receives: of a message that has come, or posted.

use super::Ob1;
use crate::channel::ChannelState;
use crate::ends::Ends;
use crate::envelope::{Form, Packet};
use crate::lent::Lent;
use crate::matcher::Unexpected;
use crate::request::{Channel, Error, Request, Started, Status, take_whole};
use crate::request_table::{Phase, Posted};
use mend_base::{Key, PeerIndex, Source, TagSelector};
use mend_datatype::TypedBuffer;
use mend_transport::{Payload, Rdma};

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    // Hot: per message.
    /// Starts a receive; `Done` where its message had come whole.
    #[inline]
    pub fn receive<N: Rdma<Endpoint = E>>(
        &mut self,
        lent: Lent<'_, N>,
        on: Channel,
        from: Source,
        tag: TagSelector,
        data: TypedBuffer,
    ) -> Result<Started, Error> {
        let channel = self.channels.get_mut(on.0).ok_or(Error::NoSuchChannel)?;
        if let Source::Rank(rank) = from
            && channel.members.peer(rank).is_none()
        {
            return Err(Error::NoSuchRank(rank));
        }
        if channel.matching.has_unexpected()
            && let Some((key, message)) = self.matcher.find(&channel.matching, from, tag)
        {
            if matches!(message.form, Form::Rts { .. })
                && !(self.requests.reserve() && self.rendezvous.reserve_receive(self.requests.len() as u32))
            {
                return Err(Error::NoMemory);
            }
            if let Some(message) = self.matcher.take(&mut channel.matching, key) {
                let stamp = channel.matching.next_stamp();
                let peer = channel.members.peer(message.source);
                let posted = Posted { from, tag, stamp };
                return self.receive_unexpected(lent, on.0, peer, message, posted, data);
            }
        }
        self.post_receive(on.0, from, tag, data, lent.ends)
    }

    /// Finds the unexpected message that a receive would take.
    pub(super) fn find_unexpected(
        &self,
        channel: &ChannelState<E>,
        from: Source,
        tag: TagSelector,
    ) -> Option<(Key, &Unexpected)> {
        self.matcher.find(&channel.matching, from, tag)
    }

    /// Takes that message out of its queues.
    #[inline]
    pub(super) fn take_unexpected(&mut self, key: Key, from: Source, tag: TagSelector) -> Option<Unexpected> {
        let (found, _) = self.find_unexpected(self.channels.get(key)?, from, tag)?;
        self.matcher.take(&mut self.channels.get_mut(key)?.matching, found)
    }

    /// A receive for which no message has come yet.
    #[inline]
    fn post_receive(
        &mut self,
        key: Key,
        from: Source,
        tag: TagSelector,
        data: TypedBuffer,
        ends: &Ends,
    ) -> Result<Started, Error> {
        if let Some(error) = self.poisoned(key, from, tag) {
            mend_base::reach!("pml.receive: poisoned");
            return self.ended(Channel(key), Err(error));
        }
        if let Some(error) = self.why_never(key, from, ends) {
            mend_base::reach!("pml.receive: from an ended peer");
            return self.ended(Channel(key), Err(error));
        }
        let channel = self.channels.get_mut(key).ok_or(Error::NoSuchChannel)?;
        if !channel.matching.reserve(from) || !self.rendezvous.reserve_receive(self.requests.len() as u32) {
            return Err(Error::NoMemory);
        }
        let stamp = channel.matching.next_stamp();
        let phase = Phase::Posted(Posted { from, tag, stamp });
        let request = self.requests.begin(key, data, phase).ok_or(Error::NoMemory)?;
        channel.matching.post(self.requests.receives(), from, request);
        let is_broken = channel.is_broken();
        self.queues.count_start();
        if is_broken {
            self.inquire(request);
        }
        Ok(Started::Running(Request(request)))
    }

    /// A receive whose message, or whose RTS, had come.
    fn receive_unexpected<N: Rdma<Endpoint = E>>(
        &mut self,
        Lent { net, ends }: Lent<'_, N>,
        key: Key,
        peer: Option<PeerIndex>,
        message: Unexpected,
        posted: Posted,
        data: TypedBuffer,
    ) -> Result<Started, Error> {
        let Unexpected { source, tag, form, payload, .. } = message;
        let peer = peer.ok_or(Error::NoSuchRank(source))?;
        let result = match form {
            Form::Rts { key: sender, bytes } => {
                if let Some(error) = self.why_never(key, Source::Rank(source), ends) {
                    mend_base::reach!("pml.receive: the RTS of an ended peer");
                    self.release_stored(peer, payload, true);
                    self.match_uncovered(key);
                    return self.ended(Channel(key), Err(error));
                }
                mend_base::reach!("pml.receive: an RTS had come");
                let request = self.requests.begin(key, data, Phase::Posted(posted)).ok_or(Error::NoMemory)?;
                self.match_rts(request, peer, source, tag, sender, bytes, Payload::from(&payload[..]));
                self.release_stored(peer, payload, true);
                self.advance_gets(net);
                self.flush(net, peer);
                return Ok(self.started(request));
            }
            Form::Eager | Form::Synchronous { .. } => {
                take_whole(&data, source, tag, Payload::from(&payload[..]))
            }
        };
        self.release_stored(peer, payload, form.request_awaiting_answer().is_some());
        if let Form::Synchronous { key } = form {
            mend_base::reach!("pml.receive: a synchronous message had come");
            self.answer(peer, Packet::Matched { key });
        }
        self.flush(net, peer);
        match result {
            Ok(status) => Ok(Started::Done(status)),
            Err(_) => self.ended(Channel(key), result),
        }
    }

    /// A receive had matched an RTS that its sender then cancelled before a byte was sent. The receive is matched anew as if the RTS
    /// had never been sent, or else is posted again at its old place. The sender has just written, so it has not ended: a
    /// receive that names it can still be served. A receive that was cancelled ends cancelled (MPI-5.0 §3.8.4).
    #[cold]
    pub(super) fn match_anew(&mut self, request: Key) {
        let Some(entry) = self.requests.get(request) else { return };
        let Phase::Matched { posted, .. } = *entry.phase() else { return };
        if entry.is_cancelled() {
            mend_base::reach!("pml.receive: cancelled by both ends");
            return self.end(request, Ok(Status::CANCELLED));
        }
        let key = entry.channel();
        if self.channels.get(key).is_some_and(|channel| channel.is_revoked()) {
            mend_base::reach!("pml.receive: without its match on a revoked channel");
            return self.end(request, Err(Error::Revoked));
        }
        self.requests.set_phase(request, Phase::Posted(posted));
        if let Some(message) = self.take_unexpected(key, posted.from, posted.tag) {
            mend_base::reach!("pml.receive: matched anew");
            return self.deliver_unexpected(request, key, message);
        }
        mend_base::reach!("pml.receive: posted again");
        if let Some(channel) = self.channels.get_mut(key) {
            channel.matching.post_again(self.requests.receives(), posted.from, posted.stamp, request);
        }
    }

    /// Gives a receive that is in no queue a message that has left its queues.
    pub(super) fn deliver_unexpected(&mut self, request: Key, channel: Key, message: Unexpected) {
        let Unexpected { source, tag, form, payload, .. } = message;
        let Some(peer) = self.member(channel, source) else { return };
        self.deliver(request, peer, source, tag, form, Payload::from(&payload[..]));
        self.release_stored(peer, payload, form.request_awaiting_answer().is_some());
    }
}
