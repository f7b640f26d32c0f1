// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A communicator's context kind, opened: whom it leads to ([`Route`]), and what waits for whom ([`MatchList`]).

use crate::list::List;
use crate::matcher::{BY_CHANNEL, BY_SENDER, POSTED};
use mend_base::{ContextId, ContextKind, PeerIndex, Rank};
use mend_proto::identity::Name;
use std::sync::Arc;

/// A communicator's context kind, opened. Its tables grow from empty to the highest rank that was talked to, so that a
/// duplicate that nobody uses costs nothing.
#[derive(Debug)]
pub(crate) struct ChannelState<E> {
    pub(crate) name: Name,
    pub(crate) me: Rank,
    /// By rank.
    pub(crate) members: Arc<[PeerIndex]>,
    /// What we call it; `None`: ids had run out, and everybody writes the full identity.
    pub(crate) context: Option<ContextId>,
    /// For sending, by rank.
    pub(crate) routes: Vec<Route<E>>,
    /// For receiving, by rank.
    pub(crate) match_lists: Vec<MatchList>,
    /// Receives from anybody, not matched yet.
    pub(crate) any: List<POSTED>,
    /// All messages not matched yet, in the order of arrival.
    pub(crate) arrived: List<BY_CHANNEL>,
    /// Orders posted receives over all queues.
    pub(crate) stamp: u64,
    /// Operations that are not over.
    pub(crate) active: u32,
    /// `close` was called: it goes when the last operation is over.
    pub(crate) closing: bool,
    /// How many other members will never send again.
    pub(crate) gone: u32,
    /// The members that failed, in the order in which this process learned it.
    pub(crate) failed: Vec<Rank>,
    /// So many of them are acknowledged, from the first on.
    pub(crate) acknowledged: u32,
    /// The rank of the member that was last asked about, as somebody waited for anybody.
    pub(crate) asked: u32,
}

/// The way to one rank of a channel: what an eager send needs, in one load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route<E> {
    /// `None`: slow. Not connected, what the peer calls the channel not known yet, gone.
    pub(crate) endpoint: Option<E>,
    /// What the peer calls the channel, where `named` says that it is known.
    pub(crate) context: ContextId,
    /// Of the next message.
    pub(crate) sequence: u16,
    /// The longest message that goes before a match.
    pub(crate) eager_bytes: u16,
    pub(crate) named: bool,
}

const _: () = assert!(size_of::<Route<u32>>() <= 16);

impl<E> Route<E> {
    const SLOW: Self =
        Route { endpoint: None, context: ContextId(0), sequence: 0, eager_bytes: 0, named: false };
}

/// What comes from one rank of a channel.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct MatchList {
    /// Receives that name this rank, not matched yet.
    pub(crate) posted: List<POSTED>,
    /// Its messages not matched yet.
    pub(crate) arrived: List<BY_SENDER>,
    /// The number of its next message: every arrival consumes one (I6).
    pub(crate) sequence: u16,
    /// It has been told our context id.
    pub(crate) told: bool,
}

const _: () = assert!(size_of::<MatchList>() <= 40);

impl<E: Copy> ChannelState<E> {
    pub(crate) fn new(name: Name, me: Rank, members: Arc<[PeerIndex]>, context: Option<ContextId>) -> Self {
        ChannelState {
            name,
            me,
            members,
            context,
            routes: Vec::new(),
            match_lists: Vec::new(),
            any: List::default(),
            arrived: List::default(),
            stamp: 0,
            active: 0,
            closing: false,
            gone: 0,
            failed: Vec::new(),
            acknowledged: 0,
            asked: 0,
        }
    }

    /// The peer at `rank`.
    pub(crate) fn member(&self, rank: Rank) -> Option<PeerIndex> {
        self.members.get(rank.index()).copied()
    }

    /// The way to a rank that exists.
    pub(crate) fn route(&mut self, rank: Rank) -> &mut Route<E> {
        if rank.index() >= self.routes.len() {
            self.routes.resize(rank.index() + 1, Route::SLOW);
        }
        &mut self.routes[rank.index()]
    }

    // Hot: per message.
    /// What comes from a rank that exists.
    #[inline]
    pub(crate) fn match_list(&mut self, rank: Rank) -> &mut MatchList {
        if rank.index() >= self.match_lists.len() {
            self.grow_match_lists(rank);
        }
        &mut self.match_lists[rank.index()]
    }

    #[cold]
    fn grow_match_lists(&mut self, rank: Rank) {
        self.match_lists.resize(rank.index() + 1, MatchList::default());
    }

    /// Whether nobody but ourselves can send here any more, and somebody else could.
    pub(crate) fn is_orphaned(&self) -> bool {
        let others = self.members.len() as u32 - 1;
        others > 0 && self.gone >= others
    }

    /// The first member whose failure is not acknowledged: as long as there is one, it may be the sender that a receive
    /// from anybody waits for.
    pub(crate) fn unacknowledged(&self) -> Option<Rank> {
        self.failed.get(self.acknowledged as usize).copied()
    }

    /// A collective context kind one of whose members failed is broken, for ever: nothing starts on it any more, and nothing is
    /// received, since whatever comes belongs to an operation that was given up. By whom.
    pub(crate) fn broken_by(&self) -> Option<Rank> {
        if self.name.context_kind == ContextKind::Collective { self.failed.first().copied() } else { None }
    }

    /// Whether a message to ourselves is on the wire.
    pub(crate) fn talks_to_itself(&self) -> bool {
        let at = self.me.index();
        let sent = self.routes.get(at).map_or(0, |route| route.sequence);
        let come = self.match_lists.get(at).map_or(0, |match_list| match_list.sequence);
        sent != come
    }

    /// Every rank that is `peer`: one, in an intracommunicator.
    pub(crate) fn ranks_of(&self, peer: PeerIndex) -> impl Iterator<Item = Rank> {
        (0u32..)
            .zip(self.members.iter())
            .filter(move |(_, member)| **member == peer)
            .map(|(rank, _)| Rank(rank))
    }
}
