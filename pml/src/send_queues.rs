// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queues of what is to be sent, their order, and when a message may be sent without queueing.
//!
//! Each peer has three queues: control messages (`control_queue`), which never wait behind data; messages, in the order in
//! which they were sent, so that none overtakes another; and streams, which are sent round robin. A peer with anything in them is flush
//! pending: every call of progress flushes its queues until they are empty.
//!
//! A peer is *congested* while messages to it are queued, or while it has sent XOFF: sends to it take the queue, where an
//! XOFF turns them into RTSes. A program that starts operations and never makes progress would not read an XOFF, so after
//! [`STARTS_PER_PROGRESS`] starts no message is sent before the next call of progress. A message that is longer than
//! [`AT_ONCE_BYTES_MAX`] counts as a start for each such part of it.
//!
//! What peers fill is bounded: the PML's answers by [`ANSWERS_MAX`], confirmations of retired ids by [`RETIRED_MAX`], both for
//! each peer and above what a correct one can cause. The list of flush pending peers has one entry for each peer, reserved when
//! it is connected.

use crate::control_queue::{ControlError, ControlQueues, Places, Protocol};
use crate::envelope::AM_ID;
use crate::paged::Paged;
use crate::routes::AT_ONCE_BYTES_MAX;
use mend_base::{ContextId, Key, PeerIndex, Rank};
use mend_transport::AmId;
use std::collections::VecDeque;

/// The queues of all peers.
#[derive(Debug)]
pub(crate) struct SendQueues {
    /// How many peers are congested.
    congested: u32,
    starts_since_progress: u32,
    control: ControlQueues,
    /// The PML itself, as a user of `control`.
    answers: Protocol,
    peers: Paged<PeerQueues>,
    flush_pending: Vec<PeerIndex>,
    /// Some peer is flush pending, or other work needs the transports.
    flush_wanted: bool,
    /// The number of connections made so far.
    connected: usize,
    /// Confirmations of retired ids that are not sent yet.
    retired: usize,
}

/// What waits to go to one peer.
#[derive(Default, Debug)]
struct PeerQueues {
    /// It is in the list of those with something to send.
    flush_pending: bool,
    congested: bool,
    xoff_received: bool,
    queues: Option<Box<Queues>>,
}

#[derive(Default, Debug)]
struct Queues {
    messages: VecDeque<QueuedMessage>,
    streams: VecDeque<Key>,
    /// How many of `messages` are answers: confirmations of retired ids, and of operations that never begin.
    retired: u32,
}

/// An entry of the queue of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueuedMessage {
    /// A request: a send, or the cancellation of an RTS, behind that RTS.
    Request(Key),
    /// The confirmation that the peer's context id is used no more, behind the last message that uses it.
    ContextRetired(ContextId),
    /// The answer to an inquiry that no message will come for this receive of the peer, behind the message that may have left for it.
    NeverBegins { key: Key, failed: Option<Rank> },
}

impl QueuedMessage {
    /// The peer has caused it.
    fn is_answer(self) -> bool {
        match self {
            QueuedMessage::ContextRetired(_) | QueuedMessage::NeverBegins { .. } => true,
            QueuedMessage::Request(_) => false,
        }
    }
}

/// How many operations may start between two calls of progress before those that start wait for one.
pub(crate) const STARTS_PER_PROGRESS: u32 = 256;

impl Default for SendQueues {
    fn default() -> Self {
        let mut control = ControlQueues::default();
        let answers = control.open(AM_ID, Places::OnDemand(ANSWERS_MAX)).expect("no place is reserved");
        SendQueues {
            congested: 0,
            starts_since_progress: 0,
            control,
            answers,
            peers: Paged::default(),
            flush_pending: Vec::new(),
            flush_wanted: false,
            connected: 0,
            retired: 0,
        }
    }
}

/// The most answers that wait to go to one peer. A peer is owed one for each RTS and synchronous message that it may have
/// unanswered, and a few for each of 2^16 context ids.
pub(crate) const ANSWERS_MAX: u32 = 1 << 20;

/// The most confirmations of retired ids that wait to go to one peer: it has 2^16 ids.
pub(crate) const RETIRED_MAX: u32 = 1 << 16;

impl SendQueues {
    // Hot: per message.
    /// Whether a send need not be queued: no message to any peer is queued, no peer has sent XOFF, and the last call of progress
    /// is not long ago.
    #[inline(always)]
    pub(crate) fn may_send_at_once(&self) -> bool {
        self.congested == 0 && self.starts_since_progress < STARTS_PER_PROGRESS
    }

    // Hot: per message.
    /// An operation was started.
    #[inline(always)]
    pub(crate) fn count_start(&mut self) {
        self.starts_since_progress += 1;
    }

    /// So many bytes were sent before a match.
    #[inline]
    pub(crate) fn count_bytes(&mut self, bytes: usize) {
        self.starts_since_progress += (bytes / usize::from(AT_ONCE_BYTES_MAX)) as u32;
    }

    /// Whether the next call is to be one of progress.
    #[inline]
    pub(crate) fn must_progress(&self) -> bool {
        self.starts_since_progress >= STARTS_PER_PROGRESS
    }

    /// A call of progress has begun.
    #[inline]
    pub(crate) fn on_progress(&mut self) {
        self.starts_since_progress = 0;
    }

    /// A peer is connected: makes what its messages need here.
    pub(crate) fn add_peer(&mut self, peer: PeerIndex) {
        self.peers.at(peer.index()).make();
        if !self.control.add_peer(peer) {
            mend_base::reach!("pml.flush: no memory for reserved places");
        }
        self.connected += 1;
        self.flush_pending.reserve(self.connected - self.flush_pending.len());
    }

    /// Whether nothing waits to go to `peer`.
    #[inline]
    pub(crate) fn is_quiet(&self, peer: PeerIndex) -> bool {
        self.queues(peer).is_none_or(Queues::is_empty) && self.control.is_empty(peer)
    }

    /// A protocol begins to send control messages (see `control_queue`).
    pub(crate) fn open_control(&mut self, id: AmId, places: Places) -> Option<Protocol> {
        self.control.open(id, places)
    }

    /// Under which id a control message of a protocol goes to `peer` now; `None`: others wait before it.
    pub(crate) fn next_control(&self, peer: PeerIndex, protocol: Protocol) -> Option<AmId> {
        self.control.is_empty(peer).then(|| self.control.id(protocol))
    }

    /// Queues a control message.
    pub(crate) fn push_control(
        &mut self,
        peer: PeerIndex,
        protocol: Protocol,
        header: &[u8],
    ) -> Result<(), ControlError> {
        self.control.push(peer, protocol, header)
    }

    /// Queues an answer of the PML.
    pub(crate) fn push_answer(&mut self, peer: PeerIndex, header: &[u8]) -> Result<(), ControlError> {
        self.control.push(peer, self.answers, header)
    }

    /// Queues something in the order of the messages.
    pub(crate) fn push(&mut self, peer: PeerIndex, message: QueuedMessage) -> Result<(), ControlError> {
        let queues = self.peers.at(peer.index()).make();
        let is_retired = message.is_answer();
        if is_retired && queues.retired >= RETIRED_MAX {
            return Err(ControlError::TooMany);
        }
        if !mend_base::reserve_queue(&mut queues.messages, 1) {
            return Err(ControlError::NoMemory);
        }
        queues.messages.push_back(message);
        queues.retired += u32::from(is_retired);
        self.retired += usize::from(is_retired);
        self.update_congested(peer);
        Ok(())
    }

    /// Sees to it that so many more sends to `peer` can stream without memory. `false`: there is none.
    pub(crate) fn reserve_streams(&mut self, peer: PeerIndex, count: usize) -> bool {
        mend_base::reserve_queue(&mut self.peers.at(peer.index()).make().streams, count)
    }

    /// Queues the stream of a send, whose place was reserved before its RTS was sent.
    pub(crate) fn push_stream(&mut self, peer: PeerIndex, key: Key) {
        let queues = self.peers.at(peer.index()).make();
        debug_assert!(queues.streams.len() < queues.streams.capacity(), "reserved with the RTS");
        queues.streams.push_back(key);
    }

    /// The first control message for `peer`: the id of its protocol, and its header.
    pub(crate) fn control(&self, peer: PeerIndex) -> Option<(AmId, &[u8])> {
        self.control.first(peer)
    }

    /// The first control message was sent.
    pub(crate) fn pop_control(&mut self, peer: PeerIndex) {
        self.control.pop(peer);
    }

    /// The first message for `peer`.
    pub(crate) fn message(&self, peer: PeerIndex) -> Option<QueuedMessage> {
        self.queues(peer)?.messages.front().copied()
    }

    /// The first message was sent; the caller updates the congestion after the last one.
    pub(crate) fn pop_message(&mut self, peer: PeerIndex) {
        let Some(queues) = self.queues_mut(peer) else { return };
        if queues.messages.pop_front().is_some_and(QueuedMessage::is_answer) {
            queues.retired -= 1;
            self.retired -= 1;
        }
    }

    /// The stream of which a piece is sent next.
    pub(crate) fn stream(&self, peer: PeerIndex) -> Option<Key> {
        self.queues(peer)?.streams.front().copied()
    }

    /// A piece of the first stream was sent: the stream moves to the end of the queue, or leaves it if it is over.
    pub(crate) fn rotate_streams(&mut self, peer: PeerIndex, is_over: bool) {
        let Some(queues) = self.queues_mut(peer) else { return };
        if is_over {
            queues.streams.pop_front();
        } else {
            queues.streams.rotate_left(1);
        }
    }

    /// Removes a request that was not sent. It has no sequence number yet, so the sequence has no gap (I6).
    pub(crate) fn remove_request(&mut self, peer: PeerIndex, key: Key) {
        if let Some(queues) = self.queues_mut(peer) {
            queues.messages.retain(|message| *message != QueuedMessage::Request(key));
        }
        self.update_congested(peer);
    }

    /// Removes the stream of a send: no more of it is sent.
    pub(crate) fn remove_stream(&mut self, peer: PeerIndex, key: Key) {
        if let Some(queues) = self.queues_mut(peer) {
            queues.streams.retain(|stream| *stream != key);
        }
    }

    /// The stream of one request is continued by another request.
    pub(crate) fn replace_stream(&mut self, peer: PeerIndex, key: Key, by: Key) {
        let streams = self.queues_mut(peer).into_iter().flat_map(|queues| &mut queues.streams);
        streams.filter(|stream| **stream == key).for_each(|stream| *stream = by);
    }

    /// The peer has sent XOFF or XON.
    pub(crate) fn set_xoff(&mut self, peer: PeerIndex, xoff: bool) {
        self.peers.at(peer.index()).xoff_received = xoff;
        self.update_congested(peer);
    }

    /// Whether messages to `peer` must be RTSes.
    pub(crate) fn is_xoff(&self, peer: PeerIndex) -> bool {
        self.peers.get(peer.index()).is_some_and(|peer| peer.xoff_received)
    }

    /// Recomputes whether sends to `peer` must take the queue.
    pub(crate) fn update_congested(&mut self, peer: PeerIndex) {
        let state = self.peers.at(peer.index());
        let queued = state.queues.as_ref().is_some_and(|queues| !queues.messages.is_empty());
        let congested = queued || state.xoff_received;
        match (core::mem::replace(&mut state.congested, congested), congested) {
            (false, true) => self.congested += 1,
            (true, false) => self.congested -= 1,
            (true, true) | (false, false) => {}
        }
    }

    /// `peer` is connected, and something waits to go to it.
    pub(crate) fn schedule_flush(&mut self, peer: PeerIndex) {
        let state = self.peers.at(peer.index());
        if !core::mem::replace(&mut state.flush_pending, true) {
            self.flush_pending.push(peer);
        }
        self.flush_wanted = true;
    }

    /// The next call of progress is to flush, though perhaps no peer is flush pending.
    pub(crate) fn want_flush(&mut self) {
        self.flush_wanted = true;
    }

    // Hot: per progress.
    /// Whether the next call of progress is to flush.
    #[inline]
    pub(crate) fn has_flush_pending(&self) -> bool {
        self.flush_wanted
    }

    /// A peer to be tried, by its index in the list.
    pub(crate) fn flush_pending(&self, at: usize) -> Option<PeerIndex> {
        self.flush_pending.get(at).copied()
    }

    /// Those to which nothing waits to go leave the list.
    pub(crate) fn drop_quiet(&mut self) {
        let (peers, control) = (&mut self.peers, &self.control);
        self.flush_pending.retain(|&peer| {
            let state = peers.at(peer.index());
            let queued = state.queues.as_ref().is_some_and(|queues| !queues.is_empty());
            state.flush_pending = queued || !control.is_empty(peer);
            state.flush_pending
        });
        self.flush_wanted = !self.flush_pending.is_empty();
    }

    /// The peer has ended: forgets all that waits to go to it.
    pub(crate) fn end_peer(&mut self, peer: PeerIndex) {
        let state = self.peers.at(peer.index());
        state.xoff_received = false;
        if let Some(queues) = state.queues.take() {
            self.retired -= queues.retired as usize;
        }
        self.control.end_peer(peer);
        self.update_congested(peer);
    }

    /// Control messages and confirmations that are not sent yet.
    pub(crate) fn unsent(&self) -> usize {
        self.control.waiting() + self.retired
    }

    /// How many peers are congested.
    #[cfg(test)]
    pub(crate) fn congested(&self) -> u32 {
        self.congested
    }

    fn queues(&self, peer: PeerIndex) -> Option<&Queues> {
        self.peers.get(peer.index())?.queues.as_deref()
    }

    fn queues_mut(&mut self, peer: PeerIndex) -> Option<&mut Queues> {
        self.peers.get_mut(peer.index())?.queues.as_deref_mut()
    }
}

impl PeerQueues {
    fn make(&mut self) -> &mut Queues {
        self.queues.get_or_insert_default()
    }
}

impl Queues {
    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.streams.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{ANSWERS_MAX, QueuedMessage, RETIRED_MAX, STARTS_PER_PROGRESS, SendQueues};
    use crate::control_queue::ControlError;
    use crate::envelope::Packet;
    use mend_base::{ContextId, Key, PeerIndex};

    const PEER: PeerIndex = PeerIndex(3);

    fn key(index: u32) -> Key {
        Key { index, generation: 1 }
    }

    #[test]
    fn a_peer_is_congested_while_something_is_queued_or_after_an_xoff() {
        let mut queues = SendQueues::default();
        assert!(queues.may_send_at_once());
        queues.push(PEER, QueuedMessage::Request(key(1))).unwrap();
        queues.set_xoff(PEER, true);
        queues.remove_request(PEER, key(1));
        assert!(!queues.may_send_at_once() && queues.is_xoff(PEER));
        queues.set_xoff(PEER, false);
        assert!(queues.may_send_at_once() && queues.is_quiet(PEER));
        queues.set_xoff(PEER, true);
        queues.end_peer(PEER);
        assert_eq!(queues.congested(), 0);
    }

    #[test]
    fn so_many_starts_ask_for_progress_and_it_starts_the_count_anew() {
        let mut queues = SendQueues::default();
        for _ in 0..STARTS_PER_PROGRESS {
            assert!(queues.may_send_at_once() && !queues.must_progress());
            queues.count_start();
        }
        assert!(!queues.may_send_at_once() && queues.must_progress());
        queues.on_progress();
        assert!(queues.may_send_at_once());
    }

    #[test]
    fn streams_take_turns_and_one_that_is_over_leaves() {
        let mut queues = SendQueues::default();
        assert!(queues.reserve_streams(PEER, 3));
        (1..4).for_each(|number| queues.push_stream(PEER, key(number)));
        queues.rotate_streams(PEER, false);
        queues.rotate_streams(PEER, true);
        queues.replace_stream(PEER, key(1), key(9));
        let mut order = vec![];
        while let Some(key) = queues.stream(PEER) {
            order.push(key.index);
            queues.rotate_streams(PEER, true);
        }
        assert_eq!(order, [3, 9]);
    }

    #[test]
    fn more_answers_than_a_correct_peer_is_owed_are_not_queued() {
        let mut queues = SendQueues::default();
        let header = Packet::Matched { key: key(1) }.write();
        (0..ANSWERS_MAX).for_each(|_| queues.push_answer(PEER, header.as_bytes()).unwrap());
        assert_eq!(queues.push_answer(PEER, header.as_bytes()), Err(ControlError::TooMany));
        let retired = QueuedMessage::ContextRetired(ContextId(1));
        (0..RETIRED_MAX).for_each(|_| queues.push(PEER, retired).unwrap());
        assert_eq!(queues.push(PEER, retired), Err(ControlError::TooMany));
        assert_eq!(queues.unsent(), (ANSWERS_MAX + RETIRED_MAX) as usize);
        queues.end_peer(PEER);
        assert_eq!(queues.unsent(), 0);
    }

    #[test]
    fn a_peer_is_listed_once_and_leaves_the_list_when_all_has_gone() {
        let mut queues = SendQueues::default();
        queues.push(PEER, QueuedMessage::Request(key(1))).unwrap();
        (0..2).for_each(|_| queues.schedule_flush(PEER));
        assert_eq!((queues.flush_pending(0), queues.flush_pending(1)), (Some(PEER), None));
        queues.drop_quiet();
        assert!(queues.has_flush_pending());
        queues.pop_message(PEER);
        queues.drop_quiet();
        assert!(!queues.has_flush_pending());
    }
}
