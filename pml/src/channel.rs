// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One context of a communicator, opened: its name, and the state of each part for it. [`Ob1`](crate::Ob1) lends the pieces
//! to their parts.

use crate::ends::Ends;
use crate::envelope::Reason;
use crate::matcher::MatchLists;
use crate::members::Members;
use crate::operations::{Operations, Stage};
use crate::request::Error;
use crate::routes::Routes;
use mend_base::{ContextId, ContextKind, Rank, Tag};
use mend_proto::identity::ContextName;

/// One context of a communicator, opened.
#[derive(Debug)]
pub(crate) struct ChannelState<E> {
    name: ContextName,
    /// Our id of it; `None`: ids had run out, and every message carries the full identity.
    context: Option<ContextId>,
    pub(crate) members: Members,
    standing: Standing,
    /// Of a context of collective operations or agreements.
    pub(crate) operations: Operations,
    /// For receiving.
    pub(crate) matching: MatchLists,
    /// For sending.
    pub(crate) routes: Routes<E>,
}

/// Whether operations start on a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Usable,
    /// A collective context of which a member has failed, this one first: broken for ever. No operation begins on it any more; those
    /// that run go on.
    Broken {
        by: Rank,
    },
    /// Revoked for ever, broken before or not (Row RV10). No operation starts, and no message is matched.
    Revoked,
}

impl<E: Copy> ChannelState<E> {
    pub(crate) fn new(name: ContextName, members: Members, ends: &Ends) -> Self {
        let mut channel = ChannelState {
            name,
            context: None,
            members,
            standing: Standing::Usable,
            operations: Operations::default(),
            matching: MatchLists::default(),
            routes: Routes::default(),
        };
        channel.on_end(ends);
        channel
    }

    /// A peer has ended.
    pub(crate) fn on_end(&mut self, ends: &Ends) {
        self.members.on_end(ends);
        // Failures are never acknowledged on a collective context.
        if self.standing == Standing::Usable
            && self.is_collective()
            && let Some(by) = self.members.pending_failure(ends)
        {
            self.standing = Standing::Broken { by };
        }
    }

    /// The communicator is revoked here. The caller ends what is on the channel. `false`: it was revoked before.
    pub(crate) fn revoke(&mut self) -> bool {
        let is_first = !self.is_revoked();
        self.standing = Standing::Revoked;
        self.matching.revoke();
        self.routes.forbid_all_at_once();
        is_first
    }

    #[inline]
    pub(crate) fn name(&self) -> ContextName {
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

    /// Whether its messages are of collective operations, whose numbers are their tags.
    #[inline]
    pub(crate) fn has_operations(&self) -> bool {
        self.is_collective() || self.name.context_kind == ContextKind::Agreement
    }

    #[inline]
    pub(crate) fn is_point_to_point(&self) -> bool {
        self.name.context_kind == ContextKind::PointToPoint
    }

    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self.standing, Standing::Broken { .. })
    }

    #[inline]
    pub(crate) fn is_revoked(&self) -> bool {
        self.standing == Standing::Revoked
    }

    /// The first member that failed, if the channel is broken.
    #[inline]
    pub(crate) fn broken_by(&self) -> Option<Rank> {
        if let Standing::Broken { by } = self.standing { Some(by) } else { None }
    }

    /// Whether no receive will ever take a message with this tag: it is of a collective operation that is over or given up, or that will
    /// never begin.
    #[inline]
    pub(crate) fn refuses(&self, tag: Tag) -> bool {
        self.has_operations()
            && match self.operations.stage(tag) {
                Stage::Running => false,
                Stage::Future => self.is_broken(),
                Stage::GivenUp(_) | Stage::Ended => true,
            }
    }

    /// Why no message is sent or matched here any more.
    #[inline]
    pub(crate) fn why_unusable(&self) -> Option<Error> {
        self.is_revoked().then_some(Error::Revoked)
    }

    /// The error of an operation here that ends with `error` because another process takes no part in it any more: a revocation
    /// has precedence (Row RV10).
    pub(crate) fn error_of(&self, error: Error) -> Error {
        if self.is_revoked() { Error::Revoked } else { error }
    }

    /// Why messages are refused here.
    pub(crate) fn refusal(&self) -> Reason {
        if self.is_revoked() { Reason::Revoked } else { Reason::Freed }
    }

    /// Whether a message of this process to itself is on the wire.
    pub(crate) fn has_own_message_under_way(&self) -> bool {
        self.members.own().is_some_and(|own| self.routes.sent(own) != self.matching.arrived(own))
    }
}

#[cfg(test)]
mod tests {
    use super::ChannelState;
    use crate::ends::{End, Ends};
    use crate::members::Members;
    use crate::request::Error;
    use mend_base::{ContextKind, Identity, Peer, PeerIndex, Rank};
    use mend_proto::identity::ContextName;

    fn channel(context_kind: ContextKind, ends: &Ends) -> ChannelState<u32> {
        let name = ContextName { identity: Identity { creator: Peer(1), number: 16 }, context_kind };
        ChannelState::new(name, Members::new(Rank(0), [PeerIndex(4), PeerIndex(5)].into(), ends), ends)
    }

    #[test]
    fn a_failed_member_breaks_the_collective_context_kind_alone() {
        for (context_kind, broken_by) in [
            (ContextKind::Collective, Some(Rank(1))),
            (ContextKind::PointToPoint, None),
            (ContextKind::Creation, None),
            (ContextKind::Agreement, None),
        ] {
            let mut ends = Ends::default();
            let mut earlier = channel(context_kind, &ends);
            for (peer, end) in [(4, End::Finalized), (6, End::Failed)] {
                ends.add(PeerIndex(peer), end);
                earlier.on_end(&ends);
                assert!(!earlier.is_broken() && earlier.broken_by().is_none());
            }
            ends.add(PeerIndex(5), End::Failed);
            earlier.on_end(&ends);
            let later = channel(context_kind, &ends);
            for channel in [earlier, later] {
                assert_eq!((channel.is_broken(), channel.broken_by()), (broken_by.is_some(), broken_by));
            }
        }
    }

    // Row RV10
    #[test]
    fn a_revocation_has_precedence_over_a_failure_whichever_comes_first() {
        for fails_first in [true, false] {
            let mut ends = Ends::default();
            let mut channel = channel(ContextKind::Collective, &ends);
            for fails in [fails_first, !fails_first] {
                if fails {
                    ends.add(PeerIndex(5), End::Failed);
                    channel.on_end(&ends);
                } else {
                    assert!(channel.revoke() && !channel.revoke());
                }
            }
            assert!(channel.is_revoked() && !channel.is_broken());
            assert_eq!(channel.why_unusable(), Some(Error::Revoked));
            assert_eq!(channel.error_of(Error::ProcFailed(Rank(1))), Error::Revoked);
        }
    }

    #[test]
    fn a_message_to_oneself_is_under_way_until_it_arrives() {
        let mut channel = channel(ContextKind::PointToPoint, &Ends::default());
        channel.routes.to(Rank(0)).unwrap().count_sent();
        assert!(channel.has_own_message_under_way());
        channel.matching.arrive(Rank(0), 0, true);
        assert!(!channel.has_own_message_under_way());
    }
}
