// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Giving up: a request ends now, whatever the other side does, and its buffer is silent from here on (I7).
//!
//! What is on the wire of it cannot be called back, so both ends settle what is left over, without anybody waiting:
//!
//! ```text
//!   sender gives up                                   receiver
//!     an offer not answered: forgotten; the answer that     ──  Matched, Refused: nothing more
//!     still comes is known by its key's generation               Cts: ◀── Cancel(stream, 0)
//!     a stream: ── Cancel(stream, bytes sent) ───────────────▶  takes so many, then forgets the stream
//!   receiver gives up                                 sender
//!     an offer without a stream: ── Refused ──────────────▶  nobody will match it there
//!     a stream: what comes of it is dropped            ══▶   sends on to the end, or gives up too
//! ```
//!
//! So a stream's number is free again when its last byte has come, and never before: a late chunk meets its own stream
//! or none. Everything left over goes with its peer at the latest.
//!
//! Whoever is left waiting by the other's giving up is told at once on the user's context kind. On a collective context kind it waits
//! for its own news: an operation is given up there because a member died, which is heard by all, and nobody may see an
//! error that the registry does not explain yet (I2).

use crate::envelope::{Packet, Reason};
use crate::flow::Queued;
use crate::list::NONE;
use crate::request::Phase;
use crate::{Error, Ob1, Request, Status};
use mend_base::{ContextKind, Key, PeerIndex, Rank};
use mend_transport::Stream;

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// Ends a request in whatever state it is, and forgets it: nobody will ask for it any more.
    pub fn abandon(&mut self, request: Request) {
        let key = request.0;
        let Some(entry) = self.entries.get_mut(key) else { return };
        let (phase, channel) = (entry.phase, entry.channel);
        if let Phase::Done(_) = phase {
            self.forget(key);
            return;
        }
        entry.detached = true;
        match phase {
            Phase::Queued { to, .. } => self.dequeue(channel, to, key),
            Phase::RtsSent { to, .. } => self.withdraw(channel, to),
            Phase::RefusedSend { .. } => mend_base::reach!("pml.abandon: an refused_send send"),
            Phase::Streaming { to, stream, sent, .. } => self.cut(channel, to, stream, sent, key),
            Phase::Posted { .. } => {
                mend_base::reach!("pml.abandon: a posted receive");
                self.unpost(key);
            }
            Phase::CtsSent { from, key: sender, .. } => self.reject(channel, from, sender, key),
            Phase::Done(_) => unreachable!("asked above"),
        }
        self.finish(key, Ok(Status::EMPTY));
    }

    /// A send that has not gone out: it never took a number, so no hole is left (I6).
    fn dequeue(&mut self, channel: Key, to: Rank, key: Key) {
        mend_base::reach!("pml.abandon: a queued send");
        let Some(peer) = self.member(channel, to) else { return };
        self.peer(peer).queues().queued.retain(|queued| !matches!(queued, Queued::Send(of) if *of == key));
        self.update_congested(peer);
    }

    /// A send that waits for an answer, which may still come.
    fn withdraw(&mut self, channel: Key, to: Rank) {
        mend_base::reach!("pml.abandon: an offered send");
        let Some(peer) = self.member(channel, to) else { return };
        self.peer(peer).withdrawn_rts += 1;
    }

    fn cut(&mut self, channel: Key, to: Rank, stream: Stream, sent: u64, key: Key) {
        mend_base::reach!("pml.abandon: a streaming send");
        let Some(peer) = self.member(channel, to) else { return };
        self.peer(peer).queues().streams.retain(|of| *of != key);
        self.answer(peer, Packet::Cancel { stream, sent });
    }

    /// A receive that has matched an offer: its sender has not been asked for the bytes, or they come and are dropped.
    fn reject(&mut self, channel: Key, from: Rank, sender: Key, key: Key) {
        let Some(peer) = self.member(channel, from) else { return };
        let waiting = self.unanswered.len();
        self.unanswered.retain(|(request, _)| *request != key);
        if self.unanswered.len() < waiting {
            mend_base::reach!("pml.abandon: an accepting receive, not answered");
            return self.answer(peer, Packet::Refused { key: sender, reason: Reason::Freed });
        }
        if let Some((_, incoming)) = self.incoming.iter_mut().find(|(_, incoming)| incoming.request == key) {
            mend_base::reach!("pml.abandon: an accepting receive");
            incoming.request = NONE;
        }
    }

    /// Whether an answer is one to a send that was given up: its key was given out, and its peer owes such answers.
    pub(crate) fn is_late_answer(&mut self, from: PeerIndex, key: Key) -> bool {
        let stood = self.entries.was_removed(key);
        let owed = &mut self.peer(from).withdrawn_rts;
        let late = stood && *owed > 0;
        *owed -= u32::from(late);
        late
    }

    /// The sender sends no more of a stream than it has: it has given up.
    pub(crate) fn on_cancel_stream(&mut self, from: PeerIndex, stream: Stream, sent: u64) {
        let Some(place) = self.stream_place(stream) else { return self.garbage(from) };
        let Some(incoming) = self.incoming.get_mut(place) else { return };
        if incoming.from != from || sent < incoming.came || sent >= incoming.wanted {
            return self.garbage(from);
        }
        incoming.wanted = sent;
        let request = core::mem::replace(&mut incoming.request, NONE);
        if incoming.came == sent {
            mend_base::reach!("pml.abandon: cut, and nothing under way");
            self.incoming.remove(place);
            self.send_queued_cts();
        } else {
            mend_base::reach!("pml.abandon: cut, and the rest is dropped");
        }
        self.end_refused(request);
    }

    /// The other end has given up what this request needs, of which nothing can reach its buffer any more.
    pub(crate) fn end_refused(&mut self, request: Key) {
        let Some(entry) = self.entries.get_mut(request) else { return };
        let (Phase::RtsSent { to: rank, .. } | Phase::CtsSent { from: rank, .. }) = entry.phase else {
            return;
        };
        let context_kind = self.channels.get(entry.channel).map(|open| open.name.context_kind);
        match context_kind {
            Some(ContextKind::Collective) if entry.phase.is_send() => {
                mend_base::reach!("pml.abandon: a send that waits for the news");
                entry.phase = Phase::RefusedSend { to: rank };
                self.sends -= 1;
            }
            Some(ContextKind::Collective) => {
                mend_base::reach!("pml.abandon: a receive that waits for the news")
            }
            Some(ContextKind::PointToPoint) | None => {
                mend_base::reach!("pml.abandon: given up by the other end");
                self.finish(request, Err(Error::PeerFreed(rank)));
            }
        }
    }

    fn member(&self, channel: Key, rank: Rank) -> Option<PeerIndex> {
        self.channels.get(channel)?.member(rank)
    }
}
