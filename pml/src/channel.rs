// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A communicator's context kind, opened: its name, and what each part keeps for it. [`Ob1`](crate::Ob1) lends the pieces
//! to their parts.

use crate::matcher::MatchLists;
use crate::members::Members;
use crate::routes::Routes;
use mend_base::{ContextId, ContextKind, PeerIndex, Rank};
use mend_proto::identity::Name;
use std::sync::Arc;

/// A communicator's context kind, opened.
#[derive(Debug)]
pub(crate) struct ChannelState<E> {
    name: Name,
    /// Our id of it; `None`: ids had run out, and every message carries the full identity.
    context: Option<ContextId>,
    pub(crate) members: Members,
    /// For receiving.
    pub(crate) matching: MatchLists,
    /// For sending.
    pub(crate) routes: Routes<E>,
}

impl<E: Copy> ChannelState<E> {
    pub(crate) fn new(name: Name, me: Rank, members: Arc<[PeerIndex]>) -> Self {
        ChannelState {
            name,
            context: None,
            members: Members::new(me, members),
            matching: MatchLists::default(),
            routes: Routes::default(),
        }
    }

    #[inline]
    pub(crate) fn name(&self) -> Name {
        self.name
    }

    #[inline(always)]
    pub(crate) fn context(&self) -> Option<ContextId> {
        self.context
    }

    pub(crate) fn set_context(&mut self, context: Option<ContextId>) {
        self.context = context;
    }

    #[inline]
    pub(crate) fn is_collective(&self) -> bool {
        self.name.context_kind == ContextKind::Collective
    }

    /// A collective context kind one of whose members failed is broken for ever: no operation starts on it any more, and
    /// nothing is received, since whatever comes belongs to an operation that was given up. The rank that failed.
    #[inline]
    pub(crate) fn broken_by(&self) -> Option<Rank> {
        if self.is_collective() { self.members.first_failed() } else { None }
    }

    /// Whether a message of this process to itself is on the wire.
    pub(crate) fn has_own_message_under_way(&self) -> bool {
        let me = self.members.me();
        self.routes.sent(me) != self.matching.arrived(me)
    }
}

#[cfg(test)]
mod tests {
    use super::ChannelState;
    use mend_base::{ContextKind, Identity, Peer, PeerIndex, Rank};
    use mend_proto::identity::Name;

    fn channel(context_kind: ContextKind) -> ChannelState<u32> {
        let name = Name { identity: Identity { creator: Peer(1), number: 16 }, context_kind };
        ChannelState::new(name, Rank(0), [PeerIndex(4), PeerIndex(5)].into())
    }

    #[test]
    fn a_failed_member_breaks_the_collective_context_kind_alone() {
        for (context_kind, broken_by) in
            [(ContextKind::Collective, Some(Rank(1))), (ContextKind::PointToPoint, None)]
        {
            let mut channel = channel(context_kind);
            assert_eq!(channel.broken_by(), None);
            channel.members.on_failed(PeerIndex(5));
            assert_eq!(channel.broken_by(), broken_by);
        }
    }

    #[test]
    fn a_message_to_oneself_is_under_way_until_it_arrives() {
        let mut channel = channel(ContextKind::PointToPoint);
        channel.routes.to(Rank(0)).unwrap().count_sent();
        assert!(channel.has_own_message_under_way());
        channel.matching.arrive(Rank(0), 0, true);
        assert!(!channel.has_own_message_under_way());
    }
}
