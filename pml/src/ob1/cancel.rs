// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cancellation, and release of handles. A wait for a cancelled operation returns whatever other processes do
//! (MPI-5.0 §3.8.4):
//!
//! | operation | what `cancel` does |
//! |---|---|
//! | receive, posted | ends cancelled |
//! | receive, matched | goes on: its message comes, or its sender ends; where its sender cancels the message, the receive ends cancelled |
//! | send, queued | leaves the queue, ends cancelled |
//! | send, RTS sent | ends cancelled; a CANCEL_RTS follows the RTS, and a CTS that was under way is answered by the cancellation of its stream with 0 bytes |
//! | send, RTS with a remote key sent | ends, not cancelled, when the key is taken back: the receiver may have taken the bytes already. If not, it asks for them as a stream, and they are sent from a copy; without memory for a copy the send goes on |
//! | send, synchronous, payload sent | ends, not cancelled: the match is the receiver's |
//! | send, streaming | ends, not cancelled: the rest is sent from a copy; without memory for a copy it goes on |
//!
//! The receiver removes an RTS that is cancelled, as if it had never been sent: from its unexpected messages, or
//! from the receive that had matched it, which is posted again at its old place and matched anew, unless it was cancelled.

use super::Ob1;
use crate::request::{CommIndex, Error, Request, SleeperId, Status};
use crate::request_table::{Offer, Phase, Posted, RequestEntry};
use crate::send_queues::QueuedMessage;
use mend_base::{Key, PeerIndex, Rank};
use mend_datatype::TypedBuffer;

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// Cancels an operation if that is still possible. Its status tells whether it was cancelled.
    pub fn cancel(&mut self, request: Request) {
        let key = request.0;
        self.queues.count_start();
        let Some(entry) = self.requests.get(key) else { return };
        let channel = entry.channel();
        match *entry.phase() {
            Phase::Posted(posted) => {
                mend_base::reach!("pml.cancel: a posted receive");
                self.unpost(channel, posted, key);
                self.end(key, Ok(Status::CANCELLED));
            }
            Phase::Queued { to, .. } => {
                mend_base::reach!("pml.cancel: a queued send");
                self.dequeue(channel, to, key);
                self.end_when_released(key, Ok(Status::CANCELLED));
            }
            Phase::RtsSent { to, offer: Offer::RemoteKey(_) } => self.move_to_copy(channel, to, key),
            Phase::RtsSent { to, offer } => self.cancel_sent(channel, to, offer == Offer::Payload, key),
            Phase::Streaming { to, .. } => self.continue_stream_from_copy(channel, to, key),
            Phase::Matched { .. } => {
                mend_base::reach!("pml.cancel: a matched receive");
                if let Some(entry) = self.requests.get_mut(key) {
                    entry.set_cancelled();
                }
            }
            Phase::Releasing { .. }
            | Phase::CancelQueued { .. }
            | Phase::AboutOperation { .. }
            | Phase::Done(_) => {}
        }
    }

    /// A send that waits for an answer; the answer may be under way.
    fn cancel_sent(&mut self, channel: Key, to: Rank, payload_sent: bool, key: Key) {
        let Some(peer) = self.member(channel, to) else { return };
        self.rendezvous.give_up_send(peer);
        if payload_sent {
            mend_base::reach!("pml.cancel: a synchronous send whose payload has gone");
            return self.end(key, Ok(Status::EMPTY));
        }
        mend_base::reach!("pml.cancel: an RTS");
        self.queue_cancel(channel, peer, to, key);
        self.end_when_released(key, Ok(Status::CANCELLED));
    }

    /// A send whose receiver may take the bytes, or has taken them, so it cannot be cancelled: it ends for its caller when the key is
    /// taken back, and another request with a copy of the bytes waits for the answer to the RTS.
    fn move_to_copy(&mut self, channel: Key, to: Rank, key: Key) {
        let Some(copy) = self.requests.get(key).and_then(|entry| entry.data().copied()) else { return };
        if !self.rendezvous.reserve_moved() {
            return;
        }
        let phase = Phase::RtsSent { to, offer: Offer::RemoteKey(None) };
        let Some(rest) = self.requests.begin(channel, copy, phase) else { return };
        mend_base::reach!("pml.cancel: an RTS with a remote key");
        self.requests.release(rest);
        self.rendezvous.move_answer(key, rest);
        self.end_when_released(key, Ok(Status::EMPTY));
    }

    /// Queues the cancellation of an RTS. Without memory for it the receiver learns of it when it asks for the bytes.
    fn queue_cancel(&mut self, channel: Key, peer: PeerIndex, to: Rank, rts: Key) {
        let phase = Phase::CancelQueued { to, rts };
        let Some(cancel) = self.requests.begin(channel, TypedBuffer::empty(), phase) else { return };
        self.requests.release(cancel);
        match self.queues.push(peer, QueuedMessage::Request(cancel)) {
            Ok(()) => self.schedule_flush(peer),
            Err(_) => self.end(cancel, Ok(Status::EMPTY)),
        }
    }

    /// A send whose stream has begun: it ends for its caller, and the rest is sent from a copy.
    fn continue_stream_from_copy(&mut self, channel: Key, to: Rank, key: Key) {
        let Some(entry) = self.requests.get(key) else { return };
        let (phase, Some(copy)) = (*entry.phase(), entry.data().copied()) else { return };
        let Some(peer) = self.member(channel, to) else { return };
        let Some(rest) = self.requests.begin(channel, copy, phase) else { return };
        mend_base::reach!("pml.cancel: a stream goes on from a copy");
        self.queues.replace_stream(peer, key, rest);
        self.requests.release(rest);
        self.end(key, Ok(Status::EMPTY));
    }

    /// Releases the handle of a request: one that is over is forgotten, another goes on without a handle, and is forgotten at its
    /// end. Returns its communicator, if the handle was not released before.
    #[inline]
    pub fn release(&mut self, request: Request) -> Option<CommIndex> {
        self.requests.release(request.0)
    }

    /// `MPI_Request_free` (Row PP22): as [`release`](Ob1::release), and counted as a start, so that a program that only starts
    /// and frees operations makes progress from time to time.
    pub fn free_request(&mut self, request: Request) -> Option<CommIndex> {
        mend_base::reach!("pml.cancel: freed");
        self.queues.count_start();
        self.requests.release(request.0)
    }

    /// As [`release`](Ob1::release), for a send whose buffer the caller uses again at once: the rest is sent from a copy. `Err`:
    /// there is no memory for a copy, or the buffer is exposed and is being released; the caller calls again after progress.
    pub fn continue_from_copy(&mut self, request: Request) -> Result<Option<CommIndex>, Error> {
        let key = request.0;
        let Some(entry) = self.requests.get(key) else { return Ok(None) };
        if let Phase::Releasing { .. } = entry.phase() {
            return Err(Error::NoMemory);
        }
        if entry.phase().is_send() && !entry.is_copy() {
            let copy = entry.data().copied().ok_or(Error::NoMemory)?;
            mend_base::reach!("pml.cancel: continued from a copy");
            let held = entry.held();
            self.requests.replace_data(key, copy);
            if let Some(held) = held {
                mend_base::reach!("pml.cancel: its buffer was exposed");
                self.exposures.close(held);
                self.queues.want_flush();
            }
        }
        let held = self.requests.get(key).and_then(RequestEntry::held);
        match held.filter(|&held| self.exposures.remote_key(held).is_none()) {
            Some(_) => Err(Error::NoMemory),
            None => Ok(self.requests.release(key)),
        }
    }

    /// The end of `request` will wake `sleeper`. Nothing happens for one that is over already.
    pub fn wake_at_end(&mut self, request: Request, sleeper: SleeperId) {
        self.requests.wake_at_end(request.0, sleeper);
    }

    /// The sleeper of a request that has ended, to be woken; each once.
    #[inline]
    pub fn next_to_wake(&mut self) -> Option<SleeperId> {
        self.requests.next_to_wake()
    }

    /// Removes a posted receive from its queue.
    pub(super) fn unpost(&mut self, channel: Key, posted: Posted, key: Key) {
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.matching.unpost(self.requests.receives(), posted.from, key);
        }
    }

    /// Removes a send that was not sent from its queue.
    pub(super) fn dequeue(&mut self, channel: Key, to: Rank, key: Key) {
        if let Some(peer) = self.member(channel, to) {
            self.queues.remove_request(peer, key);
        }
    }

    pub(super) fn member(&self, channel: Key, rank: Rank) -> Option<PeerIndex> {
        self.channels.get(channel)?.members.peer(rank)
    }
}
