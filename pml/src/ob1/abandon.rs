// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Giving up: a request ends, whatever the other side does, and its buffer is not touched any more (I7). It ends now, except that one whose
//! memory the transports use ends when they do not any more, for which they need no help of the other side: a send with a remote key when
//! the key is taken back, a receive that takes its bytes when the gets that run have ended.
//!
//! Messages of it that are on the wire arrive later. Both ends handle them without waiting:
//!
//! ```text
//!   sender gives up                                   receiver
//!     an RTS without an answer: forgotten; a late answer    ──  Matched, Refused: nothing more
//!     has a key with an old generation                           CTS: ◀── Cancel(stream, 0)
//!     a stream: ── Cancel(stream, bytes sent) ───────────────▶  receives that many, then forgets the stream
//!     an RTS with a remote key: taken back                        its gets fail: it asks by CTS, as above
//!   receiver gives up                                 sender
//!     an RTS without a stream: ── Refused ────────────────▶  no receive will match it there
//!     gets that run: when they have ended ── Refused ─────▶  as before
//!     a stream: bytes that arrive are dropped          ══▶   sends on to the end, or gives up too
//! ```
//!
//! So a stream's number is free again when its last byte has arrived, and never before: a late chunk belongs to its own stream
//! or to none. The end of the peer removes all such state.
//!
//! The request at the other end ends in error (`PeerFreed`, or `Revoked` on a channel that is revoked), except that a receive of which no
//! byte was sent is matched anew. On a collective context the sender gives up the whole operation, and its poison names the cause: the
//! receive is posted again, and the poison ends it. A send of an operation that its receiver gave up is refused with the cause
//! (`Poisoned`).

use super::Ob1;
use crate::envelope::{Packet, Reason};
use crate::rendezvous::GivenUp;
use crate::request::{Request, Status};
use crate::request_table::{Phase, Then};
use mend_base::{Key, PeerIndex, Rank};
use mend_transport::Stream;

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// Ends a request in whatever state it is, and forgets it: the caller will not ask for it any more.
    pub fn abandon(&mut self, request: Request) {
        let key = request.0;
        let Some(entry) = self.requests.get(key) else { return };
        let (phase, channel) = (*entry.phase(), entry.channel());
        if let Phase::Done(_) = phase {
            return self.requests.forget(key);
        }
        self.requests.release(key);
        match phase {
            Phase::Queued { to, .. } | Phase::CancelQueued { to, .. } | Phase::AboutOperation { to, .. } => {
                mend_base::reach!("pml.abandon: a queued send");
                self.dequeue(channel, to, key);
            }
            Phase::RtsSent { to, .. } => self.abandon_sent(channel, to),
            Phase::Releasing { to, then: Then::Stream { stream, .. } } => {
                self.abandon_asked(channel, to, stream, key);
                return;
            }
            // It ends when its memory is released.
            Phase::Releasing { then: Then::End(_), .. } => return,
            Phase::Matched { transfer: Some(transfer), .. } => {
                mend_base::reach!("pml.abandon: a receive that takes its bytes");
                return self.give_up_get(transfer, self.reason_of_giving_up(key));
            }
            Phase::Streaming { to, stream, sent, .. } => self.cut_stream(channel, to, stream, sent, key),
            Phase::Posted(posted) => {
                mend_base::reach!("pml.abandon: a posted receive");
                self.unpost(channel, posted, key);
            }
            Phase::Matched { from, key: sender, .. } => self.abandon_matched(channel, from, sender, key),
            Phase::Done(_) => unreachable!("asked above"),
        }
        self.end_when_released(key, Ok(Status::EMPTY));
    }

    /// Whether a request that was abandoned has ended: its buffer is not touched any more (I7).
    pub fn has_ended(&self, request: Request) -> bool {
        self.requests.get(request.0).is_none_or(|entry| entry.phase().is_over())
    }

    /// A send whose bytes were asked for as a stream, which has not begun since its memory is being released.
    fn abandon_asked(&mut self, channel: Key, to: Rank, stream: Stream, key: Key) {
        mend_base::reach!("pml.abandon: a send that was asked for its bytes");
        if let Some(peer) = self.member(channel, to) {
            self.rendezvous.on_answered(peer);
            self.answer(peer, Packet::Cancel { stream, sent: 0 });
        }
        self.requests.set_phase(key, Phase::Releasing { to, then: Then::End(Ok(Status::EMPTY)) });
    }

    /// A send that waits for an answer, which may still come.
    fn abandon_sent(&mut self, channel: Key, to: Rank) {
        mend_base::reach!("pml.abandon: a send without an answer");
        if let Some(peer) = self.member(channel, to) {
            self.rendezvous.give_up_send(peer);
        }
    }

    fn cut_stream(&mut self, channel: Key, to: Rank, stream: Stream, sent: u64, key: Key) {
        mend_base::reach!("pml.abandon: a streaming send");
        let Some(peer) = self.member(channel, to) else { return };
        self.queues.remove_stream(peer, key);
        self.answer(peer, Packet::Cancel { stream, sent });
    }

    /// A receive that has matched an RTS: its sender has not been asked for the bytes, or they come and are dropped.
    fn abandon_matched(&mut self, channel: Key, from: Rank, sender: Key, key: Key) {
        if let Some(peer) = self.member(channel, from) {
            self.give_up_stream(key, peer, sender);
        }
    }

    /// The receive `request` needs no stream for the RTS `sender` any more.
    pub(super) fn give_up_stream(&mut self, request: Key, peer: PeerIndex, sender: Key) {
        match self.rendezvous.give_up_receive(request) {
            GivenUp::PendingCts => {
                mend_base::reach!("pml.abandon: a matched receive without a stream");
                let reason = self.reason_of_giving_up(request);
                self.answer(peer, Packet::Refused { key: sender, reason });
            }
            GivenUp::Streaming => mend_base::reach!("pml.abandon: a matched receive"),
        }
    }

    /// Why a receive that has matched takes nothing, for its sender.
    fn reason_of_giving_up(&self, request: Key) -> Reason {
        let channel = self.requests.get(request).and_then(|entry| self.channels.get(entry.channel()));
        channel.map_or(Reason::Freed, |channel| match channel.refusal() {
            // The requests of an operation are given up before the operation is, so its cause is not known yet.
            Reason::Freed if channel.has_operations() => Reason::GivenUp { failed: None },
            reason => reason,
        })
    }
}
