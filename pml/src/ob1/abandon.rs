// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Giving up: a request ends now, whatever the other side does, and its buffer is not touched any more (I7).
//!
//! Messages of it that are on the wire arrive later. Both ends handle them without waiting:
//!
//! ```text
//!   sender gives up                                   receiver
//!     an RTS without an answer: forgotten; a late answer    ──  Matched, Refused: nothing more
//!     has a key with an old generation                           CTS: ◀── Cancel(stream, 0)
//!     a stream: ── Cancel(stream, bytes sent) ───────────────▶  receives that many, then forgets the stream
//!   receiver gives up                                 sender
//!     an RTS without a stream: ── Refused ────────────────▶  no receive will match it there
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
use crate::request_table::Phase;
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
            Phase::Streaming { to, stream, sent, .. } => self.cut_stream(channel, to, stream, sent, key),
            Phase::Posted(posted) => {
                mend_base::reach!("pml.abandon: a posted receive");
                self.unpost(channel, posted, key);
            }
            Phase::Matched { from, key: sender, .. } => self.abandon_matched(channel, from, sender, key),
            Phase::Done(_) => unreachable!("asked above"),
        }
        self.end(key, Ok(Status::EMPTY));
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
                let channel = self.requests.get(request).and_then(|entry| self.channels.get(entry.channel()));
                let reason = channel.map_or(Reason::Freed, |channel| match channel.refusal() {
                    // The requests of an operation are given up before the operation is, so its cause is not known yet.
                    Reason::Freed if channel.has_operations() => Reason::GivenUp { failed: None },
                    reason => reason,
                });
                self.answer(peer, Packet::Refused { key: sender, reason });
            }
            GivenUp::Streaming => mend_base::reach!("pml.abandon: a matched receive"),
        }
    }
}
