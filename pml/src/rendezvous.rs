// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Large messages, and whatever waits for its match: the sender offers, the receiver says how much it wants, the bytes
//! follow as a stream.
//!
//! ```text
//!   sender                                    receiver
//!     │ ── Rts(key, bytes) ─────────────────▶ │  matched, now or later
//!     │ ◀────────── Cts(key, stream, wanted) │  wanted <= bytes: a shorter buffer asks for less
//!     │ ══ chunks of the stream, wanted bytes ▶ │
//!   Done: all went out of the buffer          Done: all came
//! ```
//!
//! A stream's number is the receiver's own: place and generation of an entry in its table of streams. What comes for
//! another, from another peer, or past the end is garbage. A receive that has accepted ends with its last byte, with its
//! sender, or by being given up; its stream then goes on without a request, and its bytes nowhere: so no byte comes for a
//! buffer that is not ours any more (I7).

use crate::Ob1;
use crate::envelope::Packet;
use crate::flow::PeerLink;
use crate::list::NONE;
use crate::request::{Phase, outcome};
use crate::{AM_ID, Status};
use mend_base::{Key, PeerIndex, Rank, Tag};
use mend_transport::{Btl, Class, Payload, SendError, Stream};

/// A stream that comes in.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Whose bytes they are; [`NONE`]: nobody's any more, they are dropped.
    pub(crate) request: Key,
    pub(crate) from: PeerIndex,
    /// Bytes that have come.
    pub(crate) came: u64,
    /// Bytes that were asked for, or that come at all.
    pub(crate) wanted: u64,
}

/// Bits of a stream's number that say its place; the others are its generation's lowest.
const PLACE_BITS: u32 = 20;

/// The first chunk; each next one is twice as long, up to what the receiver takes. Short ones first, so that receiver
/// and sender soon copy at the same time.
const FIRST_CHUNK: u32 = 2 << 10;

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// A receive has matched an offer.
    pub(crate) fn send_cts(
        &mut self,
        key: Key,
        peer: PeerIndex,
        source: Rank,
        tag: Tag,
        sender: Key,
        total: u64,
    ) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let wanted = total.min(entry.data.packed_bytes() as u64);
        let status = Status { source: Some(source), tag, bytes: wanted, cancelled: false };
        entry.phase = Phase::CtsSent { from: source, key: sender, status, total };
        if wanted == 0 {
            mend_base::reach!("pml.rendezvous: nothing wanted");
            self.answer(peer, Packet::Matched { key: sender });
            self.finish(key, outcome(status, total));
        } else {
            self.unanswered.push_back((key, peer));
            self.send_queued_cts();
        }
    }

    /// Gives the receives that have matched an offer their streams, as far as there are numbers.
    pub(crate) fn send_queued_cts(&mut self) {
        while self.incoming.len() < self.config.streams_max as usize
            && let Some((request, from)) = self.unanswered.pop_front()
        {
            let Some(entry) = self.entries.get(request) else { continue };
            let Phase::CtsSent { key, status, .. } = entry.phase else { continue };
            let wanted = status.bytes;
            let place = self.incoming.insert(Incoming { request, from, came: 0, wanted });
            mend_base::reach!("pml.rendezvous: accepted");
            self.answer(from, Packet::Cts { key, stream: number(place), wanted });
        }
    }

    /// The receiver asks for the bytes of an offer.
    pub(crate) fn on_cts(&mut self, from: PeerIndex, key: Key, stream: Stream, wanted: u64) {
        let Some((to, true)) = self.offered(from, key) else {
            if wanted == 0 || !self.is_late_answer(from, key) {
                return self.garbage(from);
            }
            mend_base::reach!("pml.rendezvous: asked for what was given up");
            return self.answer(from, Packet::Cancel { stream, sent: 0 });
        };
        let Some(entry) = self.entries.get_mut(key) else { return };
        if wanted == 0 || wanted > entry.data.packed_bytes() as u64 {
            return self.garbage(from);
        }
        mend_base::reach!("pml.rendezvous: asked for");
        entry.phase = Phase::Streaming { to, stream, sent: 0, wanted, chunk: FIRST_CHUNK };
        self.peer(from).queues().streams.push_back(key);
        self.list(from);
    }

    /// The receiver has matched a synchronous send, or wants nothing of an offer.
    pub(crate) fn on_matched(&mut self, from: PeerIndex, key: Key) {
        if self.offered(from, key).is_none() {
            return self.on_unasked(from, key);
        }
        mend_base::reach!("pml.rendezvous: matched");
        self.finish(key, Ok(Status::EMPTY));
    }

    /// Nobody will match it there.
    pub(crate) fn on_refused(&mut self, from: PeerIndex, key: Key) {
        if self.offered(from, key).is_none() {
            return self.on_unasked(from, key);
        }
        mend_base::reach!("pml.rendezvous: refused");
        self.end_refused(key);
    }

    /// An answer to a send that waits for none.
    #[cold]
    fn on_unasked(&mut self, from: PeerIndex, key: Key) {
        if self.is_late_answer(from, key) {
            mend_base::reach!("pml.rendezvous: an answer to what was given up");
        } else {
            self.garbage(from);
        }
    }

    /// The send `key`, if it is one that waits for the match of `from`: its rank, and whether its bytes wait too.
    fn offered(&self, from: PeerIndex, key: Key) -> Option<(Rank, bool)> {
        let entry = self.entries.get(key)?;
        let Phase::RtsSent { to, offer } = entry.phase else { return None };
        let peer = self.channels.get(entry.channel)?.member(to)?;
        (peer == from).then_some((to, offer))
    }

    // Hot: per chunk.
    /// Sends the next piece of a stream; true where it was the last.
    pub(crate) fn send_piece<N: Btl<Endpoint = E>>(
        &mut self,
        net: &mut N,
        peer: PeerIndex,
        key: Key,
    ) -> Result<bool, SendError> {
        let Some(way) = self.peers[peer.index()].way else { return Err(SendError::Busy) };
        let Some(entry) = self.entries.get_mut(key) else { return Ok(true) };
        let Phase::Streaming { stream, sent, wanted, chunk, .. } = &mut entry.phase else { return Ok(true) };
        let length = (*wanted - *sent).min(u64::from(*chunk)).min(longest_piece(&way)) as usize;
        let (at, data) = (*sent as usize, &entry.data);
        let fill = |mut slot: mend_transport::WriteSlot<'_>| data.pack(at, length, &mut slot);
        if way.chunk_bytes > 0 {
            net.send_chunk(way.endpoint, *stream, length, fill)?;
        } else {
            mend_base::reach!("pml.rendezvous: a fragment");
            let header = Packet::Fragment { stream: *stream }.write();
            net.send(way.endpoint, Class::Data, AM_ID, header.as_bytes(), length, fill)?;
        }
        *sent += length as u64;
        *chunk = chunk.saturating_mul(2);
        let last = *sent == *wanted;
        if last {
            mend_base::reach!("pml.rendezvous: all sent");
            self.finish(key, Ok(Status::EMPTY));
        }
        Ok(last)
    }

    // Hot: per chunk.
    /// A piece of a stream has come.
    pub(crate) fn on_piece(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        let Some(place) = self.stream_place(stream) else { return self.garbage(from) };
        let Some(incoming) = self.incoming.get_mut(place) else { return };
        let length = payload.len() as u64;
        if incoming.from != from || length == 0 || length > incoming.wanted - incoming.came {
            return self.garbage(from);
        }
        let at = incoming.came as usize;
        incoming.came += length;
        let (request, last) = (incoming.request, incoming.came == incoming.wanted);
        match self.entries.get(request) {
            Some(entry) => entry.data.unpack(at, payload),
            None => debug_assert!(request == NONE, "who ends a receive that accepts sees to its stream"),
        }
        if last {
            self.incoming.remove(place);
            self.on_whole(request);
            self.send_queued_cts();
        }
    }

    /// The stream of this number, if one comes in.
    pub(crate) fn stream_place(&self, stream: Stream) -> Option<Key> {
        let place = self.incoming.key_at(stream.0 & ((1 << PLACE_BITS) - 1));
        place.filter(|&place| number(place) == stream)
    }

    /// All bytes of a receive have come.
    fn on_whole(&mut self, request: Key) {
        let Some(entry) = self.entries.get(request) else { return };
        let Phase::CtsSent { status, total, .. } = entry.phase else { return };
        mend_base::reach!("pml.rendezvous: all came");
        self.finish(request, outcome(status, total));
    }

    /// Nothing comes from `peer` any more.
    pub(crate) fn end_streams_of(&mut self, peer: PeerIndex) {
        let ended: Vec<_> =
            self.incoming.iter().filter(|(_, incoming)| incoming.from == peer).map(|(key, _)| key).collect();
        for key in ended {
            self.incoming.remove(key);
        }
    }
}

fn longest_piece<E>(way: &PeerLink<E>) -> u64 {
    u64::from(if way.chunk_bytes > 0 { way.chunk_bytes } else { way.packed_bytes })
}

/// What the peer is told of a stream.
fn number(place: Key) -> Stream {
    debug_assert!(place.index < 1 << PLACE_BITS);
    Stream(place.generation << PLACE_BITS | place.index)
}

/// The most streams that may come in at once.
pub(crate) const STREAMS_MAX: u32 = 1 << PLACE_BITS;
