// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the end of a peer changes.
//!
//! The engine publishes an end after the transports have handed up every message that the peer had sent completely, so those
//! messages are received (Row PP7). A wildcard receive continues while another member can send. It has a *pending failure*
//! while a member has failed and is not acknowledged, since that member may be the sender. A pending failure is not stored for a
//! receive: each poll compares a position with the length of [`Ends::failed`]. The receive stays posted, and a message from
//! another member completes it. What a wildcard receive does with messages that the death cut short is in `lost_messages.rs`.
//!
//! On a collective context of which a member has failed no operation begins any more (design "Interrupted collectives"), and
//! messages of operations that will never begin are dropped. Operations that run go on, unless one of their requests needs the dead.
//! Point-to-point messages between the other members go on.

use super::Ob1;
use crate::ends::Ends;
use crate::request::{Channel, Error};
use crate::request_table::{Phase, Posted, RequestEntry, Then};
use mend_base::{Key, PeerIndex, Rank, Source};

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// The engine publishes the end of `peer`, which is in `ends`: the peer will never send or answer again, and no message of it is
    /// under way. Every request that needs the peer ends. A second call, for a peer that was unreachable and now has failed or left, only
    /// makes a failure pending for wildcard receives.
    pub fn on_end(&mut self, peer: PeerIndex, ends: &Ends) {
        let Some(end) = ends.of(peer) else { return debug_assert!(false, "its end is added first") };
        let is_first = self.peers.close(peer);
        self.update_channels(ends);
        self.find_lost_messages(ends);
        if !is_first {
            mend_base::reach!("pml.end: unreachable, and then failed or left");
            return;
        }
        self.queues.end_peer(peer);
        self.rendezvous.end_peer(peer);
        self.forbid_at_once(peer);
        let ended: Vec<_> =
            self.requests.iter().filter_map(|(key, entry)| Some((key, self.needs(entry, peer)?))).collect();
        for (key, rank) in ended {
            self.end_request(key, end.error(rank));
        }
        self.send_pending_cts();
        self.contexts.end_peer(peer);
    }

    /// Moves the positions of all channels, and ends what waits for operations of collective contexts that will never begin.
    fn update_channels(&mut self, ends: &Ends) {
        let mut broken = Vec::new();
        for (key, channel) in self.channels.iter_mut() {
            let was_broken = channel.is_broken();
            channel.on_end(ends);
            self.some_unsatisfiable |= channel.members.all_others_ended();
            if channel.is_broken() && !was_broken {
                broken.push(key);
            }
        }
        for key in broken {
            self.on_broken(key);
        }
    }

    /// The members of a channel that failed, in the order of their failures.
    pub fn failed(&self, on: Channel, ends: &Ends) -> Vec<Rank> {
        self.channels.get(on.0).map_or(Vec::new(), |channel| channel.members.failed(ends))
    }

    /// Those of them that are acknowledged on this channel.
    pub fn acknowledged(&self, on: Channel, ends: &Ends) -> Vec<Rank> {
        self.channels.get(on.0).map_or(Vec::new(), |channel| channel.members.acknowledged(ends))
    }

    /// Acknowledges the first `at_most` of them, or all: wildcard receives wait for the other members (Row AK7). Returns how
    /// many are acknowledged now, never fewer than before. Nothing else depends on it (Row AK8). A collective
    /// context stays broken; that of an intercommunicator, which has the members of both groups, counts the acknowledgements.
    pub fn acknowledge(&mut self, on: Channel, at_most: Option<u32>, ends: &Ends) -> u32 {
        let Some(channel) = self.channels.get_mut(on.0) else { return 0 };
        let acknowledged = channel.members.acknowledge(at_most, ends);
        if self.update_losses(on.0, ends) {
            self.match_uncovered(on.0);
        }
        acknowledged
    }

    /// Acknowledges on a channel what is acknowledged on another one, which has its members and others: on the channel to the remote group
    /// of an intercommunicator what is acknowledged of both groups (Row AK9).
    pub fn acknowledge_as(&mut self, on: Channel, other: Channel, ends: &Ends) {
        let Some(passed) = self.channels.get(other.0).map(|other| other.members.passed_failures()) else {
            return;
        };
        if let Some(channel) = self.channels.get_mut(on.0) {
            channel.members.acknowledge_before(passed, ends);
        }
        if self.update_losses(on.0, ends) {
            self.match_uncovered(on.0);
        }
    }

    /// The first member that failed, if it broke this channel: a collective context.
    #[inline]
    pub fn broken_by(&self, on: Channel) -> Option<Rank> {
        self.channels.get(on.0)?.broken_by()
    }

    /// The member whose failure is pending for wildcard receives and probes (Row PP9): the first that is not acknowledged.
    pub fn pending_failure(&self, on: Channel, ends: &Ends) -> Option<Rank> {
        self.channels.get(on.0)?.members.pending_failure(ends)
    }

    /// The rank of `peer` in the request's channel, if the request needs that peer.
    fn needs(&self, entry: &RequestEntry, peer: PeerIndex) -> Option<Rank> {
        let rank = match *entry.phase() {
            Phase::Queued { to, .. }
            | Phase::RtsSent { to, .. }
            | Phase::Releasing { to, then: Then::Stream { .. } }
            | Phase::CancelQueued { to, .. }
            | Phase::AboutOperation { to, .. }
            | Phase::Streaming { to, .. } => to,
            Phase::Posted(Posted { from: Source::Rank(from), .. }) | Phase::Matched { from, .. } => from,
            Phase::Posted(Posted { from: Source::Any, .. })
            | Phase::Releasing { then: Then::End(_), .. }
            | Phase::Done(_) => return None,
        };
        (self.member(entry.channel(), rank)? == peer).then_some(rank)
    }

    /// Ends a request in error, in whatever state it is; on a revoked channel with the error of the revocation. One whose memory the
    /// transports use ends when they do not any more.
    pub(super) fn end_request(&mut self, key: Key, error: Error) {
        let Some(entry) = self.requests.get(key) else { return };
        let error = self.channels.get(entry.channel()).map_or(error, |channel| channel.error_of(error));
        match *entry.phase() {
            Phase::Queued { .. } => mend_base::reach!("pml.end: a queued send"),
            Phase::RtsSent { .. } => mend_base::reach!("pml.end: a send without an answer"),
            Phase::Releasing { to, then: Then::Stream { .. } } => {
                mend_base::reach!("pml.end: a send that was asked for its bytes");
                return self.requests.set_phase(key, Phase::Releasing { to, then: Then::End(Err(error)) });
            }
            Phase::Releasing { then: Then::End(_), .. } => return,
            Phase::Matched { transfer: Some(transfer), .. } => return self.end_get(transfer, error),
            Phase::Streaming { .. } => mend_base::reach!("pml.end: a streaming send"),
            Phase::CancelQueued { .. } => mend_base::reach!("pml.end: the cancellation of an RTS"),
            Phase::AboutOperation { .. } => mend_base::reach!("pml.end: poison or an inquiry"),
            Phase::Posted(posted) => {
                mend_base::reach!("pml.end: a posted receive");
                let channel = entry.channel();
                self.unpost(channel, posted, key);
            }
            Phase::Matched { .. } => mend_base::reach!("pml.end: a matched receive"),
            Phase::Done(_) => return,
        }
        self.end_when_released(key, Err(error));
    }

    /// The error of a receive for which no message can come any more.
    #[inline]
    pub(super) fn why_never(&self, channel: Key, from: Source, ends: &Ends) -> Option<Error> {
        if let Some(error) = self.channels.get(channel)?.why_unusable() {
            return Some(error);
        }
        let Source::Rank(rank) = from else { return None };
        let end = ends.of(self.channels.get(channel)?.members.peer(rank)?)?;
        Some(end.error(rank))
    }
}
