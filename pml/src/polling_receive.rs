// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A receive that is never posted: a blocking one from a named rank, for which nothing else waits, looks at the head of
//! that rank's ring and copies to the user at once (design "Shared memory"). Whatever else lies there
//! goes the usual way.

use crate::envelope;
use crate::request::take_whole;
use crate::{AM_ID, Channel, Error, Inlet, Ob1, Started, Status, Upcalls};
use mend_base::{ContextId, Instant, Key, PeerIndex, Rank, Source, TagSelector};
use mend_datatype::Typed;
use mend_transport::{AmId, Btl, Cause, Cookie, Payload, SendError, Sink, Stream};

/// How long a receive looks before it posts.
#[derive(Debug)]
pub struct Patience<'a, U> {
    /// Who hears of what is not ours.
    pub up: &'a mut U,
    /// As stale as for a turn.
    pub now: Instant,
    /// The most looks.
    pub looks: u32,
}

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    // Hot: per message.
    /// As [`receive`](Ob1::receive), for a caller that will wait for it: looks for a while whether the message comes, and
    /// only then posts. Those looks are no turn: nothing but this message moves.
    #[inline(always)]
    pub fn polling_receive<N: Btl<Endpoint = E>>(
        &mut self,
        net: &mut N,
        patience: Patience<'_, impl Upcalls<E>>,
        on: Channel,
        from: Source,
        tag: TagSelector,
        data: Typed,
    ) -> Result<Started, Error> {
        if let Source::Rank(rank) = from
            && let Some((endpoint, context)) = self.direct_way(on.0, rank)
        {
            let Patience { up, now, looks } = patience;
            for _ in 0..looks {
                if net.has_message(endpoint) {
                    let wanted = Wanted { channel: on.0, context, rank, tag, data: &data };
                    let mut direct = Direct { ob1: self, up, wanted, result: None };
                    net.take_message(now, endpoint, &mut direct);
                    match direct.result {
                        Some(Ok(status)) => return Ok(Started::Done(status)),
                        Some(error) => return Ok(self.ended(error)),
                        None => break,
                    }
                }
            }
        }
        self.receive(net, on, from, tag, data)
    }

    // Hot: per message.
    /// The ring to look at, where nothing that came or was posted before comes first.
    #[inline(always)]
    fn direct_way(&self, channel: Key, rank: Rank) -> Option<(E, ContextId)> {
        let open = self.channels.get(channel)?;
        let match_list = open.match_lists.get(rank.index())?;
        if !open.arrived.is_empty()
            || !open.any.is_empty()
            || !match_list.posted.is_empty()
            || !match_list.told
        {
            return None;
        }
        let peer = self.peers.get(open.member(rank)?.index())?;
        if peer.discarding {
            return None;
        }
        Some((peer.way.as_ref()?.endpoint, open.context?))
    }

    // Hot: per message.
    /// Takes an eager message for `wanted`, if this is one: in its sequence, by the context id that the sender was told.
    #[inline(always)]
    fn take_polled(
        &mut self,
        wanted: &Wanted<'_>,
        header: &[u8],
        payload: Payload<'_>,
    ) -> Option<Result<Status, Error>> {
        let match_list = self.channels.get_mut(wanted.channel)?.match_lists.get_mut(wanted.rank.index())?;
        let tag = envelope::eager_tag(header, wanted.context, match_list.sequence, wanted.rank)?;
        if !wanted.tag.admits(tag) {
            return None;
        }
        mend_base::reach!("pml.direct: taken without being posted");
        match_list.sequence = match_list.sequence.wrapping_add(1);
        Some(take_whole(wanted.data, wanted.rank, tag, payload))
    }
}

/// The receive that is not posted.
struct Wanted<'a> {
    channel: Key,
    /// What the sender calls the channel.
    context: ContextId,
    rank: Rank,
    tag: TagSelector,
    data: &'a Typed,
}

/// What the transport calls while one message is taken.
struct Direct<'a, E, U> {
    ob1: &'a mut Ob1<E>,
    up: &'a mut U,
    wanted: Wanted<'a>,
    result: Option<Result<Status, Error>>,
}

impl<E: Copy + Eq + core::fmt::Debug, U: Upcalls<E>> Direct<'_, E, U> {
    fn usual(&mut self) -> Inlet<'_, E, U> {
        Inlet { ob1: self.ob1, up: self.up }
    }
}

impl<E: Copy + Eq + core::fmt::Debug, U: Upcalls<E>> Sink<E> for Direct<'_, E, U> {
    // Hot: per message.
    #[inline(always)]
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
        if id == AM_ID
            && self.result.is_none()
            && let Some(result) = self.ob1.take_polled(&self.wanted, header, payload)
        {
            self.result = Some(result);
            return;
        }
        mend_base::reach!("pml.direct: something else lay there");
        self.usual().on_message(from, id, header, payload);
    }

    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        self.usual().on_chunk(from, stream, payload);
    }

    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
        self.usual().on_done(done, result);
    }

    fn on_room(&mut self, to: PeerIndex, endpoint: E) {
        self.usual().on_room(to, endpoint);
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        self.usual().on_error(peer, endpoint, cause);
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.usual().on_severed(peer, endpoint);
    }
}
