// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends the queues of the peers: for each peer control messages first, then messages, then pieces of streams.

use super::Ob1;
use crate::control_queue::{ControlError, Places, Protocol};
use crate::envelope::{AM_ID, Form, Packet, Reason};
use crate::peer_table::PeerLink;
use crate::request::Error;
use crate::send_queues::QueuedMessage;
use mend_base::PeerIndex;
use mend_transport::{AmId, Limits, MessageClass, Rdma, SendError};

/// How many chunks go to one peer in one call of progress.
const CHUNKS_PER_PROGRESS: u32 = 8;

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// `peer` can be reached by `endpoint`. A message longer than `limits.message_bytes_max`, or longer than the peer accepts
    /// before a match, is sent by rendezvous.
    pub fn connected(&mut self, peer: PeerIndex, endpoint: E, limits: &Limits) {
        self.queues.add_peer(peer);
        let eager_bytes = self.config.eager_bytes.min(limits.eager_bytes);
        self.budget.add_peer(peer, eager_bytes);
        self.rendezvous.add_peer(peer);
        if self.peers.connect(peer, endpoint, limits, self.config.eager_bytes) {
            self.forbid_at_once(peer);
        }
        self.schedule_flush(peer);
    }

    /// A peer that a send or a receive needs and that is not connected, each once.
    pub fn next_to_connect(&mut self) -> Option<PeerIndex> {
        self.peers.next_to_connect()
    }

    /// Whether nothing of this process is still to be sent, and no transport uses memory of its requests.
    pub fn idle(&self) -> bool {
        self.requests.sends() == 0
            && self.queues.unsent() == 0
            && self.gets.len() == 0
            && self.exposures.len() == 0
    }

    /// Another protocol begins to send control messages under its id: so many of them may wait for one peer.
    ///
    /// # Errors
    /// [`Error::NoMemory`] where reserved places could not be set aside.
    pub fn open_control(&mut self, id: AmId, places: Places) -> Result<Protocol, Error> {
        self.queues.open_control(id, places).ok_or(Error::NoMemory)
    }

    /// Sends what waits, without polling the transports: for control messages that must leave before the program goes on, since it may
    /// compute next. Returns the number of events.
    pub fn send_waiting<N: Rdma<Endpoint = E>>(&mut self, net: &mut N) -> u32 {
        if self.queues.has_flush_pending() { self.flush_all(net) } else { 0 }
    }

    /// Sends a control message of another protocol, a header of at most [`Limits::HEADER_BYTES_MAX`] bytes, with the next call
    /// of progress that finds room for it, before all data. A peer that is not connected is connected first; one that has
    /// ended gets nothing.
    ///
    /// # Errors
    /// No place of the protocol is free, or there is no memory; neither where the protocol has a reserved place free at a
    /// connected peer.
    pub fn send_control(
        &mut self,
        peer: PeerIndex,
        protocol: Protocol,
        header: &[u8],
    ) -> Result<(), ControlError> {
        if !self.peers.is_closed(peer) {
            self.queues.push_control(peer, protocol, header)?;
            self.schedule_flush(peer);
        }
        Ok(())
    }

    /// As [`send_control`](Ob1::send_control), but a message before which none waits leaves at once if there is room for it: the protocols
    /// whose members wait for each other save the way through the queue.
    ///
    /// # Errors
    /// As of [`send_control`](Ob1::send_control).
    pub fn send_control_at_once<N: Rdma<Endpoint = E>>(
        &mut self,
        net: &mut N,
        peer: PeerIndex,
        protocol: Protocol,
        header: &[u8],
    ) -> Result<(), ControlError> {
        if let Some(link) = self.peers.link(peer)
            && !self.peers.is_closed(peer)
            && let Some(id) = self.queues.next_control(peer, protocol)
            && send_header(net, link.endpoint, MessageClass::Control, id, header).is_ok()
        {
            return Ok(());
        }
        self.send_control(peer, protocol, header)
    }

    /// Schedules `peer` for the next flush if something waits to be sent to it; an unconnected peer is connected first.
    pub(super) fn schedule_flush(&mut self, peer: PeerIndex) {
        if self.queues.is_quiet(peer) || self.peers.is_closed(peer) {
            return;
        }
        if self.peers.link(peer).is_none() {
            self.peers.want(peer);
        } else {
            self.queues.schedule_flush(peer);
        }
    }

    /// Queues an answer; a peer that has ended gets none. Nor does one whose messages are discarded: where an answer before was not queued
    /// for lack of memory, this one would look like garbage to the peer.
    pub(super) fn answer(&mut self, peer: PeerIndex, packet: Packet) {
        if self.peers.is_discarding(peer) {
            return;
        }
        match self.queues.push_answer(peer, packet.write().as_bytes()) {
            Ok(()) => self.schedule_flush(peer),
            Err(error) => self.not_queued(peer, error),
        }
    }

    /// A message to a peer that the peer itself caused cannot be queued.
    pub(super) fn not_queued(&mut self, peer: PeerIndex, error: ControlError) {
        match error {
            ControlError::TooMany => self.garbage(peer),
            ControlError::NoMemory => self.out_of_memory(peer),
        }
    }

    /// No receive will match the message here.
    pub(super) fn refuse(&mut self, peer: PeerIndex, form: Form, reason: Reason) {
        if let Some(key) = form.request_awaiting_answer() {
            self.answer(peer, Packet::Refused { key, reason });
        }
    }

    /// Sends to `peer` take the queue from now on, where the end of the peer is checked.
    pub(super) fn forbid_at_once(&mut self, peer: PeerIndex) {
        for (_, channel) in self.channels.iter_mut() {
            if let Some(rank) = channel.members.rank_of(peer) {
                channel.routes.forbid_at_once(rank);
            }
        }
    }

    /// Goes on with gets and releases, and flushes every flush pending peer.
    pub(super) fn flush_all<N: Rdma<Endpoint = E>>(&mut self, net: &mut N) -> u32 {
        let mut sent = self.advance_gets(net);
        let mut at = 0;
        while let Some(peer) = self.queues.flush_pending(at) {
            sent += self.flush(net, peer);
            at += 1;
        }
        // After the peers: an RTS may have given up memory that it could not expose.
        self.advance_releases(net);
        self.queues.drop_quiet();
        if self.gets.has_due() {
            self.queues.want_flush();
        }
        sent
    }

    /// Sends what can be sent to one peer now.
    pub(super) fn flush<N: Rdma<Endpoint = E>>(&mut self, net: &mut N, peer: PeerIndex) -> u32 {
        if self.queues.is_quiet(peer) {
            return 0;
        }
        let Some(link) = self.peers.link(peer) else { return 0 };
        let mut sent = self.flush_control(net, peer, link);
        sent += self.flush_messages(net, peer, link);
        sent + self.flush_streams(net, peer, link)
    }

    fn flush_control<N: Rdma<Endpoint = E>>(
        &mut self,
        net: &mut N,
        peer: PeerIndex,
        link: PeerLink<E>,
    ) -> u32 {
        let mut sent = 0;
        while let Some((id, header)) = self.queues.control(peer) {
            if send_header(net, link.endpoint, MessageClass::Control, id, header).is_err() {
                mend_base::reach!("pml.flush: a control message waits");
                break;
            }
            self.queues.pop_control(peer);
            sent += 1;
        }
        sent
    }

    fn flush_messages<N: Rdma<Endpoint = E>>(
        &mut self,
        net: &mut N,
        peer: PeerIndex,
        link: PeerLink<E>,
    ) -> u32 {
        let mut sent = 0;
        while let Some(message) = self.queues.message(peer) {
            let result = match message {
                QueuedMessage::Request(key) => self.transmit(net, peer, link, key),
                QueuedMessage::ContextRetired(context) => {
                    let header = Packet::ContextRetired { context }.write();
                    send_header(net, link.endpoint, MessageClass::Data, AM_ID, header.as_bytes())
                }
                QueuedMessage::NeverBegins { key, failed } => {
                    let header = Packet::Refused { key, reason: Reason::NeverBegins { failed } }.write();
                    send_header(net, link.endpoint, MessageClass::Data, AM_ID, header.as_bytes())
                }
            };
            if result.is_err() {
                mend_base::reach!("pml.flush: a message waits");
                break;
            }
            self.queues.pop_message(peer);
            sent += 1;
        }
        self.queues.update_congested(peer);
        sent
    }

    /// Sends pieces of the streams to one peer, round robin.
    fn flush_streams<N: Rdma<Endpoint = E>>(
        &mut self,
        net: &mut N,
        peer: PeerIndex,
        link: PeerLink<E>,
    ) -> u32 {
        let mut sent = 0;
        while sent < CHUNKS_PER_PROGRESS
            && let Some(key) = self.queues.stream(peer)
        {
            let Ok(is_over) = self.send_piece(net, link, key) else {
                mend_base::reach!("pml.flush: a stream waits");
                break;
            };
            self.queues.rotate_streams(peer, is_over);
            sent += 1;
        }
        sent
    }
}

/// Sends a header alone.
fn send_header<N: Rdma>(
    net: &mut N,
    to: N::Endpoint,
    class: MessageClass,
    id: AmId,
    header: &[u8],
) -> Result<(), SendError> {
    net.send(to, class, id, header, 0, |_| {})
}
