// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends: at once where nothing is before them, else through a request and the queue of their peer.

use super::Ob1;
use crate::envelope::{AM_ID, Envelope, Form, Note, Packet};
use crate::lent::Lent;
use crate::peer_table::PeerLink;
use crate::request::{Channel, Error, Request, SendMode, Started, Status};
use crate::request_table::{Offer, Phase};
use crate::send_queues::QueuedMessage;
use mend_base::{Key, PeerIndex, Rank, Tag};
use mend_datatype::TypedBuffer;
use mend_transport::{MessageClass, PayloadWriter, Rdma, RemoteKey, SendError};

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    // Hot: per message.
    /// Starts a send. `Err` if the channel or the rank does not exist, or there is no memory; to a peer that has ended it starts and
    /// then ends in error (Row PP1, Row PP3).
    #[inline(always)]
    pub fn send<N: Rdma<Endpoint = E>>(
        &mut self,
        lent: Lent<'_, N>,
        on: Channel,
        to: Rank,
        tag: Tag,
        mode: SendMode,
        data: TypedBuffer,
    ) -> Result<Started, Error> {
        let bytes = data.packed_bytes();
        if self.queues.may_send_at_once()
            && mode != SendMode::Synchronous
            && let Some(channel) = self.channels.get_mut(on.0)
            && let Some((route, endpoint)) = channel.routes.at_once(to, bytes)
        {
            let header = route.eager_header(tag, channel.members.me());
            let fill = |mut slot: PayloadWriter<'_>| data.pack(0, bytes, &mut slot);
            if lent.net.send(endpoint, MessageClass::Data, AM_ID, &header, bytes, fill).is_ok() {
                mend_base::reach!("pml.send: at once");
                route.count_sent();
                self.queues.count_start();
                return Ok(Started::Done(Status::EMPTY));
            }
        }
        self.send_queued(lent, on, to, tag, mode, data)
    }

    /// Sends through a request, behind the messages that wait for the same peer.
    #[inline(never)]
    fn send_queued<N: Rdma<Endpoint = E>>(
        &mut self,
        Lent { net, ends }: Lent<'_, N>,
        on: Channel,
        to: Rank,
        tag: Tag,
        mode: SendMode,
        data: TypedBuffer,
    ) -> Result<Started, Error> {
        assert!(tag.0 >= 0, "the tag was checked where it came from the user");
        let channel = self.channels.get(on.0).ok_or(Error::NoSuchChannel)?;
        let peer = channel.members.peer(to).ok_or(Error::NoSuchRank(to))?;
        if let Some(error) = channel.why_unusable() {
            mend_base::reach!("pml.send: on a revoked context");
            return self.ended(on, Err(error));
        }
        if let Some(end) = ends.of(peer) {
            mend_base::reach!("pml.send: to an ended peer");
            return self.ended(on, Err(end.error(to)));
        }
        let key = self
            .requests
            .begin(on.0, data, Phase::Queued { to, tag, mode, held: None })
            .ok_or(Error::NoMemory)?;
        if self.queues.push(peer, QueuedMessage::Request(key)).is_err() {
            self.end(key, Err(Error::NoMemory));
            self.requests.forget(key);
            return Err(Error::NoMemory);
        }
        self.schedule_flush(peer);
        if !self.queues.must_progress() {
            self.queues.count_start();
            self.flush(net, peer);
        }
        Ok(self.started(key))
    }

    /// Puts a queued request on the wire.
    pub(super) fn transmit<N: Rdma<Endpoint = E>>(
        &mut self,
        net: &mut N,
        peer: PeerIndex,
        link: PeerLink<E>,
        key: Key,
    ) -> Result<(), SendError> {
        match self.requests.get(key).map(|entry| entry.phase()) {
            Some(Phase::Queued { .. }) => self.transmit_send(net, peer, link, key),
            Some(&Phase::CancelQueued { to, rts }) => self.transmit_cancel(net, link, key, to, rts),
            Some(&Phase::AboutOperation { to, tag, note }) => {
                self.transmit_about(net, link, key, to, tag, note)
            }
            // A queued request leaves the queue before it ends.
            _ => Ok(()),
        }
    }

    /// Puts a send on the wire: whole, or as an RTS.
    fn transmit_send<N: Rdma<Endpoint = E>>(
        &mut self,
        net: &mut N,
        peer: PeerIndex,
        link: PeerLink<E>,
        key: Key,
    ) -> Result<(), SendError> {
        let Some(entry) = self.requests.get(key) else { return Ok(()) };
        let Phase::Queued { to, tag, mode, held } = *entry.phase() else { return Ok(()) };
        let bytes = entry.data().packed_bytes();
        let form = match mode {
            // The peer may announce a longer eager limit when the memory is exposed already.
            _ if held.is_some() || self.queues.is_xoff(peer) || bytes > link.eager_bytes as usize => {
                Form::Rts { key, bytes: bytes as u64 }
            }
            SendMode::Synchronous => Form::Synchronous { key },
            SendMode::Standard | SendMode::Ready => Form::Eager,
        };
        if form.request_awaiting_answer().is_some() && !self.rendezvous.may_send(peer) {
            mend_base::reach!("pml.send: too many without an answer");
            return Err(SendError::Busy);
        }
        let is_rts = matches!(form, Form::Rts { .. });
        // Once the RTS is sent, a send must not fail by its own process: the receiver counts on it.
        if is_rts && !self.queues.reserve_streams(peer, self.rendezvous.unanswered(peer) as usize + 1) {
            mend_base::reach!("pml.send: no memory for a stream yet");
            return Err(SendError::Busy);
        }
        let offer = if is_rts { self.offer(net, link, key)? } else { Offer::Payload };
        let Some(entry) = self.requests.get(key) else { return Ok(()) };
        let Some(channel) = self.channels.get_mut(entry.channel()) else { return Ok(()) };
        let (name, source) = (channel.name(), channel.members.me());
        let Some(route) = channel.routes.to(to) else { return Err(SendError::Busy) };
        let (channel, sequence) = route.next(name);
        let header = Packet::Message(Envelope { channel, sequence, tag, source, form }).write();
        let header = header.as_bytes();
        let class = MessageClass::Data;
        if is_rts {
            let remote_key = offer.held().and_then(|held| self.exposures.remote_key(held));
            let remote_key = remote_key.as_ref().map_or(&[][..], RemoteKey::as_bytes);
            net.send(link.endpoint, class, AM_ID, header, remote_key.len(), |mut slot| slot.put(remote_key))?;
        } else {
            net.send(link.endpoint, class, AM_ID, header, bytes, |mut slot| {
                entry.data().pack(0, bytes, &mut slot);
            })?;
        }
        route.count_sent();
        route.allow_at_once(&link);
        if !is_rts {
            self.queues.count_bytes(bytes);
        }
        match form {
            Form::Eager => {
                mend_base::reach!("pml.send: from the queue");
                self.end(key, Ok(Status::EMPTY));
            }
            Form::Synchronous { .. } | Form::Rts { .. } => {
                mend_base::reach!("pml.send: synchronous, or an RTS");
                self.requests.set_phase(key, Phase::RtsSent { to, offer });
                self.rendezvous.on_sent(peer);
            }
        }
        Ok(())
    }

    /// Puts on the wire that the RTS `rts` is cancelled.
    fn transmit_cancel<N: Rdma<Endpoint = E>>(
        &mut self,
        net: &mut N,
        link: PeerLink<E>,
        request: Key,
        to: Rank,
        rts: Key,
    ) -> Result<(), SendError> {
        let Some(entry) = self.requests.get(request) else { return Ok(()) };
        let Some(open) = self.channels.get_mut(entry.channel()) else { return Ok(()) };
        let (name, source) = (open.name(), open.members.me());
        let Some(route) = open.routes.to(to) else { return Err(SendError::Busy) };
        let (channel, sequence) = route.next(name);
        // CANCEL_RTS has the layout of a synchronous message; the key is that of the cancelled RTS.
        let form = Form::Synchronous { key: rts };
        let header = Packet::CancelRts(Envelope { channel, sequence, tag: Tag(0), source, form }).write();
        net.send(link.endpoint, MessageClass::Data, AM_ID, header.as_bytes(), 0, |_| {})?;
        route.count_sent();
        self.end(request, Ok(Status::EMPTY));
        Ok(())
    }

    /// Puts a message about a collective operation on the wire.
    fn transmit_about<N: Rdma<Endpoint = E>>(
        &mut self,
        net: &mut N,
        link: PeerLink<E>,
        request: Key,
        to: Rank,
        tag: Tag,
        note: Note,
    ) -> Result<(), SendError> {
        let Some(entry) = self.requests.get(request) else { return Ok(()) };
        let Some(open) = self.channels.get_mut(entry.channel()) else { return Ok(()) };
        let (name, source) = (open.name(), open.members.me());
        let Some(route) = open.routes.to(to) else { return Err(SendError::Busy) };
        let (channel, sequence) = route.next(name);
        let envelope = Envelope { channel, sequence, tag, source, form: Form::Eager };
        let header = Packet::AboutOperation(envelope, note).write();
        net.send(link.endpoint, MessageClass::Data, AM_ID, header.as_bytes(), 0, |_| {})?;
        route.count_sent();
        self.end(request, Ok(Status::EMPTY));
        Ok(())
    }

    /// Starts an operation that has ended in error already: the wait reports the error (Row PP3).
    pub(super) fn ended(&mut self, on: Channel, result: Result<Status, Error>) -> Result<Started, Error> {
        let key = self.requests.begin_ended(on.0, result).ok_or(Error::NoMemory)?;
        Ok(Started::Running(Request(key)))
    }

    /// The result of starting an operation: one that has succeeded already needs no handle.
    pub(super) fn started(&mut self, key: Key) -> Started {
        match self.requests.get(key).map(|entry| entry.phase()) {
            Some(&Phase::Done(Ok(status))) => {
                self.requests.forget(key);
                Started::Done(status)
            }
            _ => Started::Running(Request(key)),
        }
    }
}
