// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A receive that is not posted at first: a blocking one from a named rank polls the head of that rank's ring, and copies to
//! the user at once where no unexpected message and no posted receive comes first
//! (design "Shared memory"). Any other message at the head is handled as if progress had delivered it.
//!
//! [`begin_polling`](Ob1::begin_polling) says where to poll, [`poll_once`](Ob1::poll_once) polls once, and
//! [`post`](Ob1::post) gives up polling: how often to poll, and what to do in between, is the caller's. The sequence check
//! is the matcher's, as for a message that progress brings.

use super::{Inlet, Ob1};
use crate::envelope::{self, AM_ID};
use crate::lent::Lent;
use crate::matcher::Arrival;
use crate::request::{Channel, Error, Started, Status, take_whole};
use crate::upcalls::Upcalls;
use mend_base::{ContextId, Instant, Key, PeerIndex, Rank, Source, TagSelector};
use mend_datatype::TypedBuffer;
use mend_transport::{AmId, Cause, Cookie, Payload, Rdma, SendError, Sink, Stream};

/// A polling receive: it is not posted yet.
#[derive(Debug)]
pub struct PollingReceive<E> {
    /// `None`: nothing to poll, the receive is to be posted.
    ring: Option<Ring<E>>,
    on: Channel,
    from: Source,
    tag: TagSelector,
    data: TypedBuffer,
}

/// The ring in which the message will come.
#[derive(Clone, Copy, Debug)]
struct Ring<E> {
    endpoint: E,
    /// Our context id of the channel, which the sender writes into its headers.
    context: ContextId,
    rank: Rank,
}

impl<E> PollingReceive<E> {
    /// Whether there is a ring to poll; else the receive is to be posted at once.
    #[inline]
    pub fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// The endpoint that is polled.
    #[inline]
    pub fn endpoint(&self) -> Option<E>
    where
        E: Copy,
    {
        self.ring.map(|ring| ring.endpoint)
    }
}

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    // Hot: per message.
    /// A receive whose caller will wait for it, and may poll for its message before it posts it.
    #[inline(always)]
    pub fn begin_polling(
        &self,
        on: Channel,
        from: Source,
        tag: TagSelector,
        data: TypedBuffer,
    ) -> PollingReceive<E> {
        let ring = match from {
            Source::Rank(rank) => self.ring(on, rank),
            Source::Any => None,
        };
        PollingReceive { ring, on, from, tag, data }
    }

    // Hot: per message.
    /// The ring to poll. `None` if an unexpected message is stored, or there is no connection or context id.
    #[inline(always)]
    fn ring(&self, on: Channel, rank: Rank) -> Option<Ring<E>> {
        let channel = self.channels.get(on.0)?;
        if channel.matching.has_unexpected() {
            return None;
        }
        let endpoint = self.peers.endpoint(channel.members.peer(rank)?)?;
        Some(Ring { endpoint, context: channel.context()?, rank })
    }

    // Hot: per poll.
    /// Polls once. `None`: no message is there, and the receive goes on polling or is [`post`](Ob1::post)ed. `Some`: it has
    /// started as [`receive`](Ob1::receive) would have started it, and the value is used up. The call handles at most one
    /// message of that rank, and makes no other progress.
    #[inline(always)]
    pub fn poll_once<N: Rdma<Endpoint = E>>(
        &mut self,
        lent: Lent<'_, N>,
        now: Instant,
        polling: &mut PollingReceive<E>,
        up: &mut impl Upcalls<E>,
    ) -> Option<Result<Started, Error>> {
        let Some(ring) = polling.ring else { return Some(self.post_rest(lent, polling)) };
        if !lent.net.has_message(ring.endpoint) {
            return None;
        }
        let receive = ReceiveFromRing { ring, channel: polling.on.0, tag: polling.tag, data: &polling.data };
        let mut head = Head { ob1: self, up, receive, result: None };
        lent.net.take_message(now, ring.endpoint, &mut head);
        match head.result {
            Some(Ok(status)) => Some(Ok(Started::Done(status))),
            Some(error) => Some(self.ended(polling.on, error)),
            None => Some(self.post_rest(lent, polling)),
        }
    }

    /// Ends polling: starts the receive as [`receive`](Ob1::receive) does.
    #[inline]
    pub fn post<N: Rdma<Endpoint = E>>(
        &mut self,
        lent: Lent<'_, N>,
        polling: PollingReceive<E>,
    ) -> Result<Started, Error> {
        let PollingReceive { on, from, tag, data, .. } = polling;
        self.receive(lent, on, from, tag, data)
    }

    /// Another message was at the head of the ring, and has been handled.
    #[cold]
    fn post_rest<N: Rdma<Endpoint = E>>(
        &mut self,
        lent: Lent<'_, N>,
        polling: &mut PollingReceive<E>,
    ) -> Result<Started, Error> {
        let data = core::mem::replace(&mut polling.data, TypedBuffer::empty());
        self.receive(lent, polling.on, polling.from, polling.tag, data)
    }

    // Hot: per message.
    /// Takes a message for a receive that polls, if it is an eager one that the receive admits: in its sequence, with the
    /// context id that was announced to the sender, and with no older message unmatched.
    #[inline(always)]
    fn take_polled(
        &mut self,
        receive: &ReceiveFromRing<'_, E>,
        header: &[u8],
        payload: Payload<'_>,
    ) -> Option<Result<Status, Error>> {
        let Ring { context, rank, .. } = receive.ring;
        let (sequence, tag) = envelope::eager_of(header, context, rank)?;
        let matching = &mut self.channels.get_mut(receive.channel)?.matching;
        if !receive.tag.admits(tag) || !matching.may_poll(rank) {
            return None;
        }
        let arrival = matching.arrive(rank, sequence, false);
        if arrival != Arrival::InOrder {
            return not_taken(arrival);
        }
        mend_base::reach!("pml.polling: taken without being posted");
        Some(take_whole(receive.data, rank, tag, payload))
    }
}

/// The message at the head is no message for the receive that polls. `None`: it goes the usual way.
#[cold]
fn not_taken(arrival: Arrival) -> Option<Result<Status, Error>> {
    if arrival != Arrival::Revoked {
        return None;
    }
    // It is dropped, and has consumed its number.
    mend_base::reach!("pml.polling: revoked since the last poll");
    Some(Err(Error::Revoked))
}

/// The receive while one message is taken from the ring.
struct ReceiveFromRing<'a, E> {
    ring: Ring<E>,
    channel: Key,
    tag: TagSelector,
    data: &'a TypedBuffer,
}

/// What the transport calls while one message is taken.
struct Head<'a, E, U> {
    ob1: &'a mut Ob1<E>,
    up: &'a mut U,
    receive: ReceiveFromRing<'a, E>,
    result: Option<Result<Status, Error>>,
}

impl<E: Copy + Eq + core::fmt::Debug, U: Upcalls<E>> Head<'_, E, U> {
    fn usual(&mut self) -> Inlet<'_, E, U> {
        Inlet { ob1: self.ob1, up: self.up }
    }
}

impl<E: Copy + Eq + core::fmt::Debug, U: Upcalls<E>> Sink<E> for Head<'_, E, U> {
    // Hot: per message.
    #[inline(always)]
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
        if id == AM_ID
            && self.result.is_none()
            && !self.ob1.peers.is_discarding(from)
            && let Some(result) = self.ob1.take_polled(&self.receive, header, payload)
        {
            self.result = Some(result);
            return;
        }
        mend_base::reach!("pml.polling: something else was at the head");
        self.usual().on_message(from, id, header, payload);
    }

    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        self.usual().on_chunk(from, stream, payload);
    }

    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
        self.usual().on_done(done, result);
    }

    fn on_sendable(&mut self, to: PeerIndex, endpoint: E) {
        self.usual().on_sendable(to, endpoint);
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        self.usual().on_error(peer, endpoint, cause);
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.usual().on_severed(peer, endpoint);
    }
}
