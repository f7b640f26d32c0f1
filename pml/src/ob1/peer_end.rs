// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What ends because a peer will never answer again.
//!
//! The engine says so after it has handed up whatever the peer had sent whole, so a message that came in time is still
//! received (Row PP7). A wildcard receive goes on as long as any other member could send; while a failed member is not
//! acknowledged it *stalls*: whether the message that it waits for will ever come cannot be known. Stalled is no state of its
//! own but what a poll finds: the receive stays posted, and a message from another member completes it.
//!
//! A collective context kind with a failed member is broken (design "Interrupted collectives"): its operations are given up by their owner
//! ([`abandon`](Ob1::abandon)), what is here unread is dropped, and so is what still comes; point-to-point between the
//! others is not concerned.

use super::Ob1;
use crate::envelope::Form;
use crate::matcher::Unexpected;
use crate::members::Members;
use crate::peer_table::{Ending, PeerTable};
use crate::request::{Channel, Error, Gone};
use crate::request_table::{Phase, Posted, RequestEntry};
use mend_base::{Key, PeerIndex, Rank, Source};

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// `peer` has ended: it will never send or answer again, and nothing of it is under way. Ends every request that needs
    /// it. The first end of a peer stands, but that one that could not be reached has failed is new to wildcard receives.
    pub fn gone(&mut self, peer: PeerIndex, why: Gone) {
        match self.peers.end(peer, why) {
            Ending::Known => return,
            Ending::NowFailed => {
                mend_base::reach!("pml.end: unreachable, and then failed");
                return self.count_failed(peer);
            }
            Ending::First => {}
        }
        if why == Gone::Failed {
            self.count_failed(peer);
        }
        self.queues.end_peer(peer);
        self.rendezvous.end_peer(peer);
        self.slow_down(peer);
        for (_, channel) in self.channels.iter_mut() {
            channel.members.on_ended(peer);
            self.some_unsatisfiable |= channel.members.all_others_ended();
        }
        let ended: Vec<_> =
            self.requests.iter().filter_map(|(key, entry)| Some((key, self.needs(entry, peer)?))).collect();
        for (key, rank) in ended {
            self.end_request(key, why.error(rank));
        }
        self.send_pending_cts();
        self.contexts.end_peer(peer);
    }

    /// From now on the first `failed` members of this channel that failed are acknowledged: wildcard receives wait for
    /// the others (Row AK7). Never fewer than before, and never more than have failed. Nothing else depends on it
    /// (Row AK8).
    pub fn acknowledge(&mut self, on: Channel, failed: u32) {
        if let Some(channel) = self.channels.get_mut(on.0) {
            channel.members.acknowledge(failed);
        }
    }

    /// The failure that is pending for a wildcard receive or probe (Row PP9): of a member that is not acknowledged.
    pub(super) fn pending_failure(&self, channel: Key) -> Option<Error> {
        self.channels.get(channel)?.members.unacknowledged().map(Error::ProcFailed)
    }

    /// The rank as which a request needs `peer`, if it does.
    fn needs(&self, entry: &RequestEntry, peer: PeerIndex) -> Option<Rank> {
        let rank = match *entry.phase() {
            Phase::Queued { to, .. }
            | Phase::RtsSent { to, .. }
            | Phase::RefusedSend { to }
            | Phase::Streaming { to, .. } => to,
            Phase::Posted(Posted { from: Source::Rank(from), .. }) | Phase::CtsSent { from, .. } => from,
            Phase::Posted(Posted { from: Source::Any, .. }) | Phase::Done(_) => return None,
        };
        (self.member(entry.channel(), rank)? == peer).then_some(rank)
    }

    /// Ends a request in error, in whatever state it is.
    pub(super) fn end_request(&mut self, key: Key, error: Error) {
        let Some(entry) = self.requests.get(key) else { return };
        match *entry.phase() {
            Phase::Queued { .. } => mend_base::reach!("pml.end: a queued send"),
            Phase::RtsSent { .. } => mend_base::reach!("pml.end: a send without an answer"),
            Phase::RefusedSend { .. } => mend_base::reach!("pml.end: a refused send"),
            Phase::Streaming { .. } => mend_base::reach!("pml.end: a streaming send"),
            Phase::Posted(posted) => {
                mend_base::reach!("pml.end: a posted receive");
                let channel = entry.channel();
                self.unpost(channel, posted, key);
            }
            Phase::CtsSent { .. } => mend_base::reach!("pml.end: a matched receive"),
            Phase::Done(_) => return,
        }
        self.finish(key, Err(error));
    }

    fn count_failed(&mut self, peer: PeerIndex) {
        let mut broken = Vec::new();
        for (key, channel) in self.channels.iter_mut() {
            channel.members.on_failed(peer);
            if channel.broken_by().is_some() && channel.matching.has_unexpected() {
                broken.push(key);
            }
        }
        for key in broken {
            mend_base::reach!("pml.end: messages of a broken collective context kind");
            self.drop_unread(key);
        }
    }

    /// Why no message will ever come for such a receive, if so.
    #[inline]
    pub(super) fn why_never(&self, channel: Key, from: Source) -> Option<Error> {
        let channel = self.channels.get(channel)?;
        if let Some(rank) = channel.broken_by() {
            return Some(Error::ProcFailed(rank));
        }
        let Source::Rank(rank) = from else { return None };
        let why = self.peers.ended(channel.members.peer(rank)?)?;
        Some(why.error(rank))
    }
}

/// Whether a message that came is the RTS of a peer that has ended: its bytes never will come. It keeps its place, so that no
/// later message is taken for it: the receive that names its sender and would have matched it ends as the sender did.
/// Wildcard receives pass it over, since they wait for others too (Row AK7).
#[inline]
pub(super) fn is_orphaned_rts<E: Copy + Eq>(
    peers: &PeerTable<E>,
    members: &Members,
    message: &Unexpected,
) -> bool {
    matches!(message.form, Form::Rts { .. })
        && members.peer(message.source).is_some_and(|peer| peers.ended(peer).is_some())
}
