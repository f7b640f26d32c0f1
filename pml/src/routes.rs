// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the messages of one channel go: for each rank the endpoint, the id by which the receiver knows the channel, and the
//! number of the next message.

use crate::envelope::{self, ChannelName};
use crate::peer_table::PeerLink;
use mend_base::{ContextId, Rank, Tag};
use mend_proto::identity::ContextName;

/// By rank. Grows from empty to the highest rank that was talked to.
#[derive(Debug)]
pub(crate) struct Routes<E>(Vec<Route<E>>);

/// The route to one rank: what an eager send needs, in one load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route<E> {
    /// `None`: sends take the queue. Not connected, no context id announced yet, or the peer has ended.
    endpoint: Option<E>,
    /// The peer's id of the channel, valid if `announced`.
    context: ContextId,
    /// The sequence number of the next message.
    sequence: u16,
    /// The longest message that is sent at once: within the eager limit, and [`AT_ONCE_BYTES_MAX`].
    at_once_bytes: u16,
    announced: bool,
    /// The rank was told that no operation begins here any more.
    poisoned: bool,
}

const _: () = assert!(size_of::<Route<u32>>() <= 16);

/// The longest message, in bytes, that is sent without a request. For longer ones a request costs little beside the copy, and its way
/// through the queue counts bytes (`SendQueues::count_bytes`).
pub(crate) const AT_ONCE_BYTES_MAX: u16 = 4 << 10;

impl<E> Default for Routes<E> {
    fn default() -> Self {
        Routes(Vec::new())
    }
}

impl<E: Copy> Routes<E> {
    // Hot: per message.
    /// The route to a rank, and the endpoint, where a message of so many bytes may go at once.
    #[inline(always)]
    pub(crate) fn at_once(&mut self, to: Rank, bytes: usize) -> Option<(&mut Route<E>, E)> {
        let route = self.0.get_mut(to.index())?;
        let endpoint = route.endpoint?;
        if bytes <= usize::from(route.at_once_bytes) { Some((route, endpoint)) } else { None }
    }

    /// The route to a rank that exists. `None`: there is no memory for it.
    pub(crate) fn to(&mut self, rank: Rank) -> Option<&mut Route<E>> {
        let missing = (rank.index() + 1).saturating_sub(self.0.len());
        if !mend_base::reserve(&mut self.0, missing) {
            return None;
        }
        let route = Route {
            endpoint: None,
            context: ContextId(0),
            sequence: 0,
            at_once_bytes: 0,
            announced: false,
            poisoned: false,
        };
        self.0.resize(self.0.len() + missing, route);
        Some(&mut self.0[rank.index()])
    }

    /// Messages to this rank are queued from now on, and in the queue the end of the peer is checked.
    pub(crate) fn forbid_at_once(&mut self, rank: Rank) {
        if let Some(route) = self.0.get_mut(rank.index()) {
            route.endpoint = None;
        }
    }

    /// The channel is revoked: all sends are queued from now on, and the queue takes none.
    pub(crate) fn forbid_all_at_once(&mut self) {
        self.0.iter_mut().for_each(|route| route.endpoint = None);
    }

    /// How many messages were sent to a rank, modulo 2^16.
    pub(crate) fn sent(&self, rank: Rank) -> u16 {
        self.0.get(rank.index()).map_or(0, |route| route.sequence)
    }
}

impl<E: Copy> Route<E> {
    // Hot: per message.
    /// The header of an eager message, on a route with an endpoint.
    #[inline(always)]
    pub(crate) fn eager_header(&self, tag: Tag, source: Rank) -> [u8; envelope::SHORT_BYTES] {
        envelope::eager(self.context, self.sequence, tag, source)
    }

    // Hot: per message.
    /// A message was sent.
    #[inline(always)]
    pub(crate) fn count_sent(&mut self) {
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// How the next message names the channel, and its number.
    pub(crate) fn next(&self, name: ContextName) -> (ChannelName, u16) {
        let channel =
            if self.announced { ChannelName::Context(self.context) } else { ChannelName::Named(name) };
        (channel, self.sequence)
    }

    /// From now on messages may go at once, if the peer's id for the channel is known.
    pub(crate) fn allow_at_once(&mut self, link: &PeerLink<E>) {
        if self.announced && self.endpoint.is_none() {
            self.endpoint = Some(link.endpoint);
            self.at_once_bytes = link.eager_bytes.min(AT_ONCE_BYTES_MAX.into()) as u16;
        }
    }

    /// The rank is told that no operation begins here any more. `false`: it was told before.
    pub(crate) fn poison_later(&mut self) -> bool {
        !core::mem::replace(&mut self.poisoned, true)
    }

    /// The peer announces its id of the channel. `false`: it has announced one before.
    pub(crate) fn on_announced(&mut self, context: ContextId) -> bool {
        let first = !self.announced;
        if first {
            (self.announced, self.context) = (true, context);
        }
        first
    }

    /// The peer has closed the channel. `false`: it never announced this id.
    pub(crate) fn on_retired(&mut self, context: ContextId) -> bool {
        let known = self.announced && self.context == context;
        if known {
            (self.announced, self.endpoint) = (false, None);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::{AT_ONCE_BYTES_MAX, Routes};
    use crate::envelope::ChannelName;
    use crate::peer_table::PeerLink;
    use mend_base::{ContextId, ContextKind, Identity, Peer, Rank};
    use mend_proto::identity::ContextName;

    const LINK: PeerLink<u32> = PeerLink {
        endpoint: 5,
        message_bytes_max: 4096,
        eager_bytes: 100,
        eager_bytes_max: 100,
        chunk_bytes: 0,
        get_bytes: 0,
    };
    const NAME: ContextName = ContextName {
        identity: Identity { creator: Peer(1), number: 2 },
        context_kind: ContextKind::PointToPoint,
    };

    #[test]
    fn a_route_is_fast_from_the_announcement_to_the_retirement() {
        let mut routes = Routes::default();
        let (rank, id) = (Rank(2), ContextId(7));
        let route = routes.to(rank).unwrap();
        route.allow_at_once(&LINK);
        assert_eq!(route.next(NAME), (ChannelName::Named(NAME), 0));
        assert!(routes.at_once(rank, 1).is_none(), "no id was announced");
        let route = routes.to(rank).unwrap();
        assert!(route.on_announced(id) && !route.on_announced(ContextId(8)));
        route.allow_at_once(&LINK);
        assert!(routes.at_once(rank, 101).is_none(), "too long");
        let (route, endpoint) = routes.at_once(rank, 100).unwrap();
        route.count_sent();
        assert_eq!((endpoint, route.next(NAME)), (5, (ChannelName::Context(id), 1)));
        assert!(!route.on_retired(ContextId(8)) && route.on_retired(id));
        assert!(routes.at_once(rank, 1).is_none());
        assert_eq!((routes.sent(rank), routes.sent(Rank(9))), (1, 0));
    }

    #[test]
    fn a_message_that_takes_long_to_copy_has_a_request_although_it_is_eager() {
        let mut routes = Routes::default();
        let route = routes.to(Rank(0)).unwrap();
        assert!(route.on_announced(ContextId(7)));
        route.allow_at_once(&PeerLink { eager_bytes: 1 << 16, eager_bytes_max: 1 << 16, ..LINK });
        assert!(routes.at_once(Rank(0), AT_ONCE_BYTES_MAX.into()).is_some());
        assert!(routes.at_once(Rank(0), usize::from(AT_ONCE_BYTES_MAX) + 1).is_none());
    }

    #[test]
    fn the_routes_of_a_revoked_channel_are_slow_and_keep_their_ids_and_numbers() {
        let mut routes = Routes::default();
        for rank in [0, 2].map(Rank) {
            let route = routes.to(rank).unwrap();
            assert!(route.on_announced(ContextId(7)));
            route.allow_at_once(&LINK);
            route.count_sent();
        }
        routes.forbid_all_at_once();
        for rank in [0, 2].map(Rank) {
            assert!(routes.at_once(rank, 1).is_none());
            assert_eq!(routes.to(rank).unwrap().next(NAME), (ChannelName::Context(ContextId(7)), 1));
        }
    }
}
