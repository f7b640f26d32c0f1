// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rendezvous: the sender sends an RTS, the receiver answers with a CTS that states how many bytes it wants, and the bytes follow as
//! a stream. An RTS with a remote key is answered so only if its receiver cannot take the bytes itself (`ob1/gets.rs`).
//!
//! ```text
//!   sender                                     receiver
//!     │ ── RTS(key, bytes) ──────────────────▶ │  matched, now or later
//!     │ ◀──── CTS(key, stream, bytes_wanted) ─ │  bytes_wanted <= bytes: a shorter buffer asks for less
//!     │ ══ the stream, bytes_wanted bytes ════▶ │
//!   Done: all bytes were sent                  Done: all bytes have arrived
//! ```
//!
//! [`Rendezvous`] knows the streams that come in, the receives that have matched an RTS and wait for a stream's number, and, for
//! each peer, how many of our RTSes and synchronous messages have no answer yet.
//!
//! The receiver chooses a stream's number: index and generation of an entry in its table of streams. A piece with
//! another number, from another peer, or past the end is garbage. A receive that has sent a CTS ends with its last byte,
//! with its sender, or when it is given up. In the last case its stream goes on without a request, and its bytes are dropped: so no
//! byte is written to a buffer that is the user's again (I7).

use crate::list::NONE;
use crate::paged::Paged;
use mend_base::{Key, PeerIndex, Slab};
use mend_transport::Stream;
use std::collections::VecDeque;

/// Streams, and what waits for an answer.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    streams_max: usize,
    incoming: Slab<Incoming>,
    /// Receives that have matched an RTS and wait for a stream's number.
    pending_cts: VecDeque<(Key, PeerIndex)>,
    sent: Paged<Unanswered>,
    /// Sends that were cancelled when their RTS with a remote key had been sent: the key of the RTS, and the request that waits for the
    /// answer.
    moved: Vec<(Key, Key)>,
}

/// A stream that comes in.
#[derive(Debug)]
struct Incoming {
    /// The receive; [`NONE`]: it was given up, and the bytes are dropped.
    request: Key,
    from: PeerIndex,
    /// Bytes that have arrived.
    arrived: u64,
    /// Bytes that were asked for; after a cancellation, those that were sent.
    bytes_wanted: u64,
}

/// Our RTSes and synchronous messages at one peer that it has not answered.
#[derive(Default, Debug)]
struct Unanswered {
    all: u32,
    /// Of these, given up here: the answer is late.
    given_up: u32,
}

/// A piece of a stream, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// [`NONE`]: the piece is dropped.
    pub(crate) request: Key,
    /// Where in the message it belongs.
    pub(crate) at: usize,
    pub(crate) last: bool,
}

/// A stream that its sender has given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CancelledStream {
    /// The receive, if it was not given up too.
    pub(crate) request: Option<Key>,
    /// Not one byte was sent.
    pub(crate) untouched: bool,
    /// Its number is free; else bytes are under way, and dropped when they come.
    pub(crate) over: bool,
}

/// The state of a receive when it was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GivenUp {
    /// It had no stream yet: its sender is to be refused.
    PendingCts,
    /// It had a stream, whose bytes are dropped.
    Streaming,
}

/// A peer wrote what no correct peer writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Garbage;

/// Bits of a stream's number that are its index; the others are its generation's lowest.
const INDEX_BITS: u32 = 20;

/// The most streams that may come in at the same time.
pub(crate) const STREAMS_MAX: u32 = 1 << INDEX_BITS;

/// The most RTSes and synchronous messages of one sender that wait for an answer of one receiver. The next ones wait at the
/// sender.
pub(crate) const RTS_MAX: u32 = 1 << 18;

impl Rendezvous {
    pub(crate) fn new(streams_max: u32) -> Self {
        assert!((1..=STREAMS_MAX).contains(&streams_max), "a stream's number has 20 bits");
        Rendezvous {
            streams_max: streams_max as usize,
            incoming: Slab::new(),
            pending_cts: VecDeque::new(),
            sent: Paged::default(),
            moved: Vec::new(),
        }
    }

    /// Makes room for what is known of a peer.
    pub(crate) fn add_peer(&mut self, peer: PeerIndex) {
        self.sent.at(peer.index());
    }

    // Hot: per receive that waits.
    /// Sees to it that a receive that begins while there are so many requests needs no memory when it matches an RTS: neither to wait
    /// for a stream's number nor, when no other stream comes in, for its stream. `false`: there is none.
    #[inline]
    pub(crate) fn reserve_receive(&mut self, requests: u32) -> bool {
        self.pending_cts.capacity() > requests as usize || self.grow(requests as usize + 1)
    }

    #[cold]
    fn grow(&mut self, requests: usize) -> bool {
        let missing = requests - self.pending_cts.len();
        self.incoming.try_reserve(1) && mend_base::reserve_queue(&mut self.pending_cts, missing)
    }

    /// A receive has matched an RTS of `from`.
    pub(crate) fn queue_cts(&mut self, request: Key, from: PeerIndex) {
        debug_assert!(
            self.pending_cts.len() < self.pending_cts.capacity(),
            "reserved when the receive began"
        );
        self.pending_cts.push_back((request, from));
    }

    /// The next receive to get a stream's number, if one is free.
    pub(crate) fn next_cts(&mut self) -> Option<(Key, PeerIndex)> {
        if self.incoming.len() < self.streams_max && self.incoming.try_reserve(1) {
            self.pending_cts.pop_front()
        } else {
            None
        }
    }

    /// A stream of so many bytes for a receive that [`next_cts`](Rendezvous::next_cts) gave.
    pub(crate) fn begin_stream(&mut self, request: Key, from: PeerIndex, bytes_wanted: u64) -> Stream {
        number(self.incoming.insert(Incoming { request, from, arrived: 0, bytes_wanted }))
    }

    // Hot: per chunk.
    /// A piece of so many bytes has come.
    pub(crate) fn on_piece(&mut self, from: PeerIndex, stream: Stream, bytes: u64) -> Result<Piece, Garbage> {
        let key = self.key_of(stream).ok_or(Garbage)?;
        let incoming = self.incoming.get_mut(key).ok_or(Garbage)?;
        if incoming.from != from || bytes == 0 || bytes > incoming.bytes_wanted - incoming.arrived {
            return Err(Garbage);
        }
        let at = incoming.arrived as usize;
        incoming.arrived += bytes;
        let piece = Piece { request: incoming.request, at, last: incoming.arrived == incoming.bytes_wanted };
        if piece.last {
            self.incoming.remove(key);
        }
        Ok(piece)
    }

    /// The sender of a stream has given it up, having sent so many bytes.
    pub(crate) fn on_cancel(
        &mut self,
        from: PeerIndex,
        stream: Stream,
        sent: u64,
    ) -> Result<CancelledStream, Garbage> {
        let key = self.key_of(stream).ok_or(Garbage)?;
        let incoming = self.incoming.get_mut(key).ok_or(Garbage)?;
        if incoming.from != from || sent < incoming.arrived || sent >= incoming.bytes_wanted {
            return Err(Garbage);
        }
        incoming.bytes_wanted = sent;
        let request = core::mem::replace(&mut incoming.request, NONE);
        let over = incoming.arrived == sent;
        if over {
            self.incoming.remove(key);
        }
        Ok(CancelledStream { request: (request != NONE).then_some(request), untouched: sent == 0, over })
    }

    /// A receive that has matched an RTS is given up, or ended with its sender.
    pub(crate) fn give_up_receive(&mut self, request: Key) -> GivenUp {
        let before = self.pending_cts.len();
        self.pending_cts.retain(|(pending, _)| *pending != request);
        if self.pending_cts.len() < before {
            return GivenUp::PendingCts;
        }
        if let Some((_, incoming)) =
            self.incoming.iter_mut().find(|(_, incoming)| incoming.request == request)
        {
            incoming.request = NONE;
        }
        GivenUp::Streaming
    }

    // Hot: per message, of those that wait for an answer.
    /// How many RTSes and synchronous messages to `peer` have no answer.
    pub(crate) fn unanswered(&self, peer: PeerIndex) -> u32 {
        self.sent.get(peer.index()).map_or(0, |sent| sent.all)
    }

    // Hot: per message, of those that wait for an answer.
    /// Whether one more RTS or synchronous message may go to `peer`.
    pub(crate) fn may_send(&self, peer: PeerIndex) -> bool {
        self.unanswered(peer) < RTS_MAX
    }

    /// An RTS or a synchronous message was sent to `peer`.
    pub(crate) fn on_sent(&mut self, peer: PeerIndex) {
        self.sent.at(peer.index()).all += 1;
    }

    /// `peer` has answered one, and the send waited for it.
    pub(crate) fn on_answered(&mut self, peer: PeerIndex) {
        self.sent.at(peer.index()).all -= 1;
    }

    /// A send that waits for an answer is given up; the answer may still arrive.
    pub(crate) fn give_up_send(&mut self, peer: PeerIndex) {
        self.sent.at(peer.index()).given_up += 1;
    }

    /// Sees to it that the answer to one more RTS can be moved. `false`: there is no memory.
    pub(crate) fn reserve_moved(&mut self) -> bool {
        mend_base::reserve(&mut self.moved, 1)
    }

    /// The answer to the RTS `key` is for the request `by`.
    pub(crate) fn move_answer(&mut self, key: Key, by: Key) {
        self.moved.push((key, by));
    }

    /// The request for which an answer to the RTS `key` is.
    pub(crate) fn waits_for(&self, key: Key) -> Key {
        self.moved.iter().find(|(rts, _)| *rts == key).map_or(key, |(_, by)| *by)
    }

    /// A send waits for its answer no more.
    pub(crate) fn forget_moved(&mut self, request: Key) {
        if !self.moved.is_empty() {
            self.moved.retain(|(_, by)| *by != request);
        }
    }

    /// How many answers are moved.
    #[cfg(test)]
    pub(crate) fn moved(&self) -> usize {
        self.moved.len()
    }

    /// `peer` answers a send that is over. Whether some send was given up whose answer has not arrived.
    pub(crate) fn on_late_answer(&mut self, peer: PeerIndex) -> bool {
        let sent = self.sent.at(peer.index());
        let late = sent.given_up > 0;
        sent.given_up -= u32::from(late);
        sent.all -= u32::from(late);
        late
    }

    /// The peer has ended: no piece and no answer of it arrives any more.
    pub(crate) fn end_peer(&mut self, peer: PeerIndex) {
        let incoming = self.incoming.iter().filter(|(_, incoming)| incoming.from == peer);
        let ended: Vec<_> = incoming.map(|(key, _)| key).collect();
        for key in ended {
            self.incoming.remove(key);
        }
        self.pending_cts.retain(|&(_, from)| from != peer);
        *self.sent.at(peer.index()) = Unanswered::default();
    }

    /// Streams that come in for a receive.
    pub(crate) fn receiving(&self) -> usize {
        self.incoming.iter().filter(|(_, incoming)| incoming.request != NONE).count()
    }

    /// Receives that wait for a stream's number.
    pub(crate) fn pending(&self) -> usize {
        self.pending_cts.len()
    }

    /// The numbers of all streams that come in.
    #[cfg(test)]
    pub(crate) fn streams(&self) -> Vec<Stream> {
        self.incoming.iter().map(|(key, _)| number(key)).collect()
    }

    /// Our sends that were given up and to which `peer` still owes an answer.
    #[cfg(test)]
    pub(crate) fn owed(&self, peer: PeerIndex) -> u32 {
        self.sent.get(peer.index()).map_or(0, |sent| sent.given_up)
    }

    fn key_of(&self, stream: Stream) -> Option<Key> {
        let key = self.incoming.key_at(stream.0 & (STREAMS_MAX - 1));
        key.filter(|&key| number(key) == stream)
    }
}

/// The number of a stream on the wire.
fn number(key: Key) -> Stream {
    debug_assert!(key.index < STREAMS_MAX);
    Stream(key.generation << INDEX_BITS | key.index)
}

#[cfg(test)]
mod tests {
    use super::{CancelledStream, Garbage, GivenUp, Piece, RTS_MAX, Rendezvous};
    use crate::list::NONE;
    use mend_base::{Key, PeerIndex};
    use mend_transport::Stream;

    const PEER: PeerIndex = PeerIndex(1);
    const REQUEST: Key = Key { index: 8, generation: 3 };

    fn streaming(bytes_wanted: u64) -> (Rendezvous, Stream) {
        let mut rendezvous = Rendezvous::new(1);
        assert!(rendezvous.reserve_receive(2), "of three requests");
        rendezvous.queue_cts(REQUEST, PEER);
        assert_eq!(rendezvous.next_cts(), Some((REQUEST, PEER)));
        let stream = rendezvous.begin_stream(REQUEST, PEER, bytes_wanted);
        (rendezvous, stream)
    }

    #[test]
    fn pieces_are_placed_one_behind_the_other_and_the_last_frees_the_number() {
        let (mut rendezvous, stream) = streaming(100);
        rendezvous.queue_cts(REQUEST, PEER);
        assert_eq!(rendezvous.next_cts(), None, "the one number is in use");
        let piece = |at, last| Ok(Piece { request: REQUEST, at, last });
        assert_eq!(rendezvous.on_piece(PEER, stream, 60), piece(0, false));
        assert_eq!(rendezvous.on_piece(PEER, stream, 41), Err(Garbage), "past the end");
        assert_eq!(rendezvous.on_piece(PEER, stream, 40), piece(60, true));
        assert_eq!(rendezvous.on_piece(PEER, stream, 1), Err(Garbage), "over");
        assert_eq!(rendezvous.next_cts(), Some((REQUEST, PEER)));
    }

    #[test]
    fn what_comes_of_another_peer_or_for_another_number_is_garbage() {
        let (mut rendezvous, stream) = streaming(100);
        assert_eq!(rendezvous.on_piece(PeerIndex(2), stream, 1), Err(Garbage));
        assert_eq!(rendezvous.on_piece(PEER, Stream(stream.0 ^ 1 << 25), 1), Err(Garbage));
        assert_eq!(rendezvous.on_cancel(PeerIndex(2), stream, 1), Err(Garbage));
        assert_eq!(rendezvous.on_cancel(PEER, stream, 100), Err(Garbage), "all was sent");
        assert_eq!(rendezvous.on_piece(PEER, stream, 0), Err(Garbage), "an empty piece");
    }

    #[test]
    fn a_cancelled_stream_is_over_when_the_bytes_that_were_sent_have_come() {
        let (mut rendezvous, stream) = streaming(100);
        assert!(rendezvous.on_piece(PEER, stream, 10).is_ok());
        let cancelled = CancelledStream { request: Some(REQUEST), untouched: false, over: false };
        assert_eq!(rendezvous.on_cancel(PEER, stream, 30), Ok(cancelled));
        let dropped = Piece { request: NONE, at: 10, last: true };
        assert_eq!(rendezvous.on_piece(PEER, stream, 20), Ok(dropped));
        let (mut rendezvous, stream) = streaming(100);
        let cancelled = CancelledStream { request: Some(REQUEST), untouched: true, over: true };
        assert_eq!(rendezvous.on_cancel(PEER, stream, 0), Ok(cancelled));
    }

    #[test]
    fn a_receive_that_is_given_up_has_a_stream_or_waits_for_one() {
        let (mut rendezvous, stream) = streaming(100);
        let waiting = Key { index: 9, generation: 1 };
        rendezvous.queue_cts(waiting, PEER);
        assert_eq!(rendezvous.give_up_receive(waiting), GivenUp::PendingCts);
        assert_eq!(rendezvous.give_up_receive(REQUEST), GivenUp::Streaming);
        assert_eq!((rendezvous.receiving(), rendezvous.pending()), (0, 0));
        assert_eq!(rendezvous.on_piece(PEER, stream, 100).unwrap().request, NONE);
    }

    #[test]
    fn each_send_that_was_given_up_explains_one_late_answer() {
        let mut rendezvous = Rendezvous::new(1);
        (0..2).for_each(|_| rendezvous.on_sent(PEER));
        assert!(!rendezvous.on_late_answer(PEER));
        rendezvous.give_up_send(PEER);
        assert!(rendezvous.on_late_answer(PEER) && !rendezvous.on_late_answer(PEER));
        rendezvous.on_answered(PEER);
        assert!(!rendezvous.on_late_answer(PEER));
    }

    #[test]
    fn an_answer_is_moved_to_another_request_until_that_waits_for_it_no_more() {
        let mut rendezvous = Rendezvous::new(1);
        let [rts, other, by] = [1, 2, 3].map(|index| Key { index, generation: 1 });
        assert!(rendezvous.reserve_moved());
        rendezvous.move_answer(rts, by);
        assert_eq!((rendezvous.waits_for(rts), rendezvous.waits_for(other)), (by, other));
        rendezvous.forget_moved(other);
        assert_eq!(rendezvous.moved(), 1);
        rendezvous.forget_moved(by);
        assert_eq!((rendezvous.waits_for(rts), rendezvous.moved()), (rts, 0));
    }

    #[test]
    fn so_many_rtses_without_an_answer_go_to_one_peer_and_no_more() {
        let mut rendezvous = Rendezvous::new(1);
        (0..RTS_MAX).for_each(|_| rendezvous.on_sent(PEER));
        assert!(!rendezvous.may_send(PEER) && rendezvous.may_send(PeerIndex(2)));
        rendezvous.on_answered(PEER);
        assert!(rendezvous.may_send(PEER));
    }

    #[test]
    fn a_peer_that_ends_takes_its_streams_and_what_it_owed_with_it() {
        let (mut rendezvous, stream) = streaming(100);
        rendezvous.on_sent(PEER);
        rendezvous.give_up_send(PEER);
        rendezvous.queue_cts(REQUEST, PEER);
        rendezvous.end_peer(PEER);
        assert_eq!((rendezvous.receiving(), rendezvous.pending(), rendezvous.owed(PEER)), (0, 0, 0));
        assert_eq!(rendezvous.on_piece(PEER, stream, 1), Err(Garbage));
    }
}
