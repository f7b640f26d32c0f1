// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The steps of a rendezvous, at both ends (`crate::rendezvous` draws them).

use super::Ob1;
use crate::envelope::{AM_ID, Packet, Reason};
use crate::list::NONE;
use crate::peer_table::PeerLink;
use crate::request::{Error, Status, outcome};
use crate::request_table::{Offer, Phase, RequestEntry, StreamingSend, Then};
use mend_base::{ContextKind, Identity, Key, PeerIndex, Rank, Tag};
use mend_transport::{MessageClass, Payload, PayloadWriter, Rdma, SendError, Stream};

/// The first chunk; each next one is twice as long, up to what the receiver takes. Short ones first, so that receiver
/// and sender soon copy at the same time.
const FIRST_CHUNK: u32 = 2 << 10;

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// A receive has matched the RTS of the request `sender`. `remote_key`: empty if the bytes come as a stream.
    #[expect(clippy::too_many_arguments, reason = "the parts of an envelope, in registers")]
    pub(super) fn match_rts(
        &mut self,
        request: Key,
        peer: PeerIndex,
        source: Rank,
        tag: Tag,
        sender: Key,
        total: u64,
        remote_key: Payload<'_>,
    ) {
        let Some(entry) = self.requests.get(request) else { return };
        let Phase::Posted(posted) = *entry.phase() else { return };
        let bytes_wanted = total.min(entry.data().packed_bytes() as u64);
        let status = Status { source: Some(source), tag, bytes: bytes_wanted, cancelled: false };
        let (from, key, transfer) = (source, sender, None);
        self.requests.set_phase(request, Phase::Matched { from, key, status, total, posted, transfer });
        if bytes_wanted == 0 {
            mend_base::reach!("pml.streams: nothing wanted");
            self.answer(peer, Packet::Matched { key: sender });
            self.end(request, outcome(status, total));
        } else if remote_key.is_empty() || !self.begin_get(request, peer, remote_key) {
            self.rendezvous.queue_cts(request, peer);
            self.send_pending_cts();
        }
    }

    /// Gives the receives that have matched an RTS their streams, as far as there are numbers.
    pub(super) fn send_pending_cts(&mut self) {
        while let Some((request, from)) = self.rendezvous.next_cts() {
            let Some(entry) = self.requests.get(request) else { continue };
            let Phase::Matched { key, status, .. } = *entry.phase() else { continue };
            let bytes_wanted = status.bytes;
            let stream = self.rendezvous.begin_stream(request, from, bytes_wanted);
            mend_base::reach!("pml.streams: CTS");
            self.answer(from, Packet::Cts { key, stream, bytes_wanted });
        }
    }

    /// The receiver asks for the bytes of an RTS.
    pub(super) fn on_cts(&mut self, from: PeerIndex, key: Key, stream: Stream, bytes_wanted: u64) {
        let key = self.rendezvous.waits_for(key);
        let offered = self.unanswered_send(from, key).filter(|(_, offer)| *offer != Offer::Payload);
        let Some((to, _)) = offered else {
            if bytes_wanted == 0 || !self.is_late_answer(from, key) {
                return self.garbage(from);
            }
            mend_base::reach!("pml.streams: asked for what was cancelled or given up");
            return self.answer(from, Packet::Cancel { stream, sent: 0 });
        };
        let Some(entry) = self.requests.get(key) else { return };
        if bytes_wanted == 0 || bytes_wanted > entry.data().packed_bytes() as u64 {
            return self.garbage(from);
        }
        self.set_answered(key);
        if !self.release_for(key, Then::Stream { stream, bytes_wanted }) {
            self.begin_streaming(from, key, to, stream, bytes_wanted);
        }
    }

    /// The bytes of a send are sent as the receiver asked for them.
    pub(super) fn begin_streaming(
        &mut self,
        from: PeerIndex,
        key: Key,
        to: Rank,
        stream: Stream,
        bytes_wanted: u64,
    ) {
        // Until here the place of the stream is reserved with those of the RTSes without an answer.
        self.rendezvous.on_answered(from);
        self.rendezvous.forget_moved(key);
        self.queues.push_stream(from, key);
        mend_base::reach!("pml.streams: asked for");
        self.requests
            .set_phase(key, Phase::Streaming { to, stream, sent: 0, bytes_wanted, chunk: FIRST_CHUNK });
        self.schedule_flush(from);
    }

    /// The receiver has matched a synchronous send, or wants nothing of an RTS.
    pub(super) fn on_matched(&mut self, from: PeerIndex, key: Key) {
        let key = self.rendezvous.waits_for(key);
        if self.unanswered_send(from, key).is_none() {
            return self.on_unasked(from, key);
        }
        mend_base::reach!("pml.streams: matched");
        self.rendezvous.on_answered(from);
        self.set_answered(key);
        self.end_when_released(key, Ok(Status::EMPTY));
    }

    /// The receiver answers that no receive will match this send. Returns the communicator if this is the first news that it is
    /// revoked.
    pub(super) fn on_refused(&mut self, from: PeerIndex, key: Key, reason: Reason) -> Option<Identity> {
        let key = self.rendezvous.waits_for(key);
        if self.unanswered_send(from, key).is_none() {
            self.on_unasked(from, key);
            return None;
        }
        let channel = self.requests.get(key).and_then(|entry| self.channels.get(entry.channel()))?;
        let (name, is_news) = (channel.name(), reason == Reason::Revoked && !channel.is_revoked());
        if is_news && matches!(name.context_kind, ContextKind::Creation | ContextKind::Leaders) {
            self.garbage(from);
            return None;
        }
        mend_base::reach!("pml.streams: refused");
        self.rendezvous.on_answered(from);
        self.set_answered(key);
        match reason {
            Reason::GivenUp { failed } => self.end_given_up(key, failed),
            _ => self.end_refused(key, reason),
        }
        is_news.then_some(name.identity)
    }

    /// An answer to a send that waits for none.
    #[cold]
    pub(super) fn on_unasked(&mut self, from: PeerIndex, key: Key) {
        if self.is_late_answer(from, key) {
            mend_base::reach!("pml.streams: an answer to what was cancelled or given up");
        } else {
            self.garbage(from);
        }
    }

    /// Whether an answer of `from` to the request `key` is late: the request was cancelled or given up before. One late answer is
    /// accepted for each such request.
    fn is_late_answer(&mut self, from: PeerIndex, key: Key) -> bool {
        let entry = self.requests.get(key);
        let is_ending =
            |entry: &RequestEntry| matches!(entry.phase(), Phase::Releasing { then: Then::End(_), .. });
        (entry.is_some_and(is_ending) || self.requests.is_over(key)) && self.rendezvous.on_late_answer(from)
    }

    /// The send `key`, if it waits for the match of `from`: its rank, and what it has sent.
    pub(super) fn unanswered_send(&self, from: PeerIndex, key: Key) -> Option<(Rank, Offer)> {
        let entry = self.requests.get(key)?;
        let Phase::RtsSent { to, offer } = *entry.phase() else { return None };
        let peer = self.channels.get(entry.channel())?.members.peer(to)?;
        (peer == from).then_some((to, offer))
    }

    // Hot: per chunk.
    /// Sends the next piece of a stream; true where it was the last.
    pub(super) fn send_piece<N: Rdma<Endpoint = E>>(
        &mut self,
        net: &mut N,
        link: PeerLink<E>,
        key: Key,
    ) -> Result<bool, SendError> {
        let Some(send) = self.requests.get_mut(key).and_then(|entry| entry.stream_mut()) else {
            return Ok(true);
        };
        let StreamingSend { data, stream, sent, bytes_wanted, chunk } = send;
        let length = (bytes_wanted - *sent).min(u64::from(*chunk)).min(longest_piece(&link)) as usize;
        let at = *sent as usize;
        let fill = |mut slot: PayloadWriter<'_>| data.pack(at, length, &mut slot);
        if link.chunk_bytes > 0 {
            net.send_chunk(link.endpoint, stream, length, fill)?;
        } else {
            mend_base::reach!("pml.streams: a fragment");
            let header = Packet::Fragment { stream }.write();
            net.send(link.endpoint, MessageClass::Data, AM_ID, header.as_bytes(), length, fill)?;
        }
        *sent += length as u64;
        *chunk = chunk.saturating_mul(2);
        let last = *sent == bytes_wanted;
        if last {
            mend_base::reach!("pml.streams: all sent");
            self.end(key, Ok(Status::EMPTY));
        }
        Ok(last)
    }

    // Hot: per chunk.
    /// A piece of a stream has come.
    pub(super) fn on_piece(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        let Ok(piece) = self.rendezvous.on_piece(from, stream, payload.len() as u64) else {
            return self.garbage(from);
        };
        match self.requests.get(piece.request) {
            Some(entry) => entry.data().unpack(piece.at, payload),
            None => debug_assert!(piece.request == NONE, "a receive that ends early leaves its stream"),
        }
        if piece.last {
            self.on_whole(piece.request);
            self.send_pending_cts();
        }
    }

    /// All bytes of a receive have come.
    fn on_whole(&mut self, request: Key) {
        let Some(entry) = self.requests.get(request) else { return };
        let Phase::Matched { status, total, .. } = *entry.phase() else { return };
        mend_base::reach!("pml.streams: all came");
        self.end(request, outcome(status, total));
    }

    /// The sender of a stream has given it up, or has cancelled its send before a byte went.
    pub(super) fn on_cancel_stream(&mut self, from: PeerIndex, stream: Stream, sent: u64) {
        let Ok(cancelled) = self.rendezvous.on_cancel(from, stream, sent) else {
            return self.garbage(from);
        };
        if cancelled.over {
            mend_base::reach!("pml.streams: cancelled, and nothing under way");
            self.send_pending_cts();
        } else {
            mend_base::reach!("pml.streams: cancelled, and the rest is dropped");
        }
        let Some(request) = cancelled.request else { return };
        if self.has_operations(request) {
            self.await_poison(request);
        } else if cancelled.untouched && self.is_point_to_point(request) {
            self.match_anew(request);
        } else {
            self.end_refused(request, Reason::Freed);
        }
    }

    /// The other end has given up what this operation needs, of which nothing can reach its buffer any more. An operation of the
    /// layer above (collective, creation) gets `PeerFreed` also from a peer that never created the communicator: a failure may be the
    /// cause, and the layer asks for it before it reports anything (I2).
    fn end_refused(&mut self, request: Key, reason: Reason) {
        let Some(entry) = self.requests.get(request) else { return };
        let (Phase::RtsSent { to: rank, .. } | Phase::Matched { from: rank, .. }) = *entry.phase() else {
            return;
        };
        let Some(channel) = self.channels.get(entry.channel()) else { return };
        mend_base::reach!("pml.streams: given up by the other end");
        let error = match reason {
            Reason::Revoked => Error::Revoked,
            Reason::Unknown if channel.is_point_to_point() => Error::NotCreated(rank),
            Reason::Freed | Reason::Unknown | Reason::GivenUp { .. } | Reason::NeverBegins { .. } => {
                Error::PeerFreed(rank)
            }
        };
        let error = channel.error_of(error);
        self.end_when_released(request, Err(error));
    }

    pub(super) fn has_operations(&self, request: Key) -> bool {
        let channel = self.requests.get(request).and_then(|entry| self.channels.get(entry.channel()));
        channel.is_some_and(|channel| channel.has_operations())
    }

    fn is_point_to_point(&self, request: Key) -> bool {
        let channel = self.requests.get(request).and_then(|entry| self.channels.get(entry.channel()));
        channel.is_some_and(|channel| channel.is_point_to_point())
    }
}

fn longest_piece<E>(link: &PeerLink<E>) -> u64 {
    u64::from(if link.chunk_bytes > 0 { link.chunk_bytes } else { link.message_bytes_max })
}
