// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What ends because a peer will never answer again.
//!
//! The engine says so after it has handed up whatever the peer had sent whole, so a message that came in time is still
//! received (Row PP7). A receive from anybody goes on as long as anybody else could send; while a failed member is not
//! acknowledged it *stalls*: nobody can know whether the message it waits for will ever come. Stalled is no state of its
//! own but what a look finds: the receive stands where it stood, and a message from the living completes it.
//!
//! A collective context kind with a failed member is broken (design "Interrupted collectives"): its operations are given up by whoever runs them
//! ([`abandon`](Ob1::abandon)), what lies there unread is dropped, and so is what still comes; point-to-point between the
//! living does not notice.

use crate::channel::ChannelState;
use crate::envelope::Form;
use crate::matcher::Unexpected;
use crate::request::{Phase, RequestEntry};
use crate::{Channel, Error, Gone, Ob1, Request};
use mend_base::{Key, PeerIndex, Rank, Source};

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// `peer` will never send or answer again, and nothing of it is under way: ends every request that needs it. The
    /// first word on a peer stands, but that who could not be reached has failed is news to receives from anybody.
    pub fn gone(&mut self, peer: PeerIndex, why: Gone) {
        let state = self.peer(peer);
        match (state.gone, why) {
            (None, _) => state.gone = Some(why),
            (Some(Gone::Unreachable(_)), Gone::Failed) => {
                mend_base::reach!("pml.failure: out of reach, and then failed");
                state.gone = Some(why);
                return self.count_failed(peer);
            }
            (Some(_), _) => return,
        }
        state.discarding = true;
        if why == Gone::Failed {
            self.count_failed(peer);
        }
        self.forget_queues(peer);
        self.slow_down(peer);
        self.count_gone(peer);
        self.end_streams_of(peer);
        self.unanswered.retain(|&(_, from)| from != peer);
        self.evidence.retain(|&(of, _)| of != peer);
        let ended: Vec<_> =
            self.entries.iter().filter_map(|(key, entry)| Some((key, self.needs(entry, peer)?))).collect();
        for (key, rank) in ended {
            self.end(key, why.error(rank));
        }
        self.send_queued_cts();
        self.contexts.ended(peer);
    }

    /// From now on the first `failed` members of this channel that failed are acknowledged: receives from anybody wait for
    /// the others (Row AK7). Never fewer than before, and never more than have failed. Nothing else depends on it
    /// (Row AK8).
    pub fn acknowledge(&mut self, on: Channel, failed: u32) {
        if let Some(open) = self.channels.get_mut(on.0) {
            open.acknowledged = open.acknowledged.max(failed.min(open.failed.len() as u32));
        }
    }

    /// Whether a receive from anybody on this channel waits in doubt.
    pub(crate) fn stalls(&self, channel: Key) -> bool {
        self.channels.get(channel).is_some_and(|open| open.unacknowledged().is_some())
    }

    /// The rank as which a request needs `peer`, if it does.
    fn needs(&self, entry: &RequestEntry, peer: PeerIndex) -> Option<Rank> {
        let rank = match entry.phase {
            Phase::Queued { to, .. }
            | Phase::RtsSent { to, .. }
            | Phase::RefusedSend { to }
            | Phase::Streaming { to, .. } => to,
            Phase::Posted { from: Source::Rank(from), .. } | Phase::CtsSent { from, .. } => from,
            Phase::Posted { from: Source::Any, .. } | Phase::Done(_) => return None,
        };
        let member = self.channels.get(entry.channel)?.member(rank)?;
        (member == peer).then_some(rank)
    }

    /// Ends a request in error, in whatever state it is.
    fn end(&mut self, key: Key, error: Error) {
        let Some(entry) = self.entries.get(key) else { return };
        match entry.phase {
            Phase::Queued { .. } => mend_base::reach!("pml.failure: a queued send"),
            Phase::RtsSent { .. } => mend_base::reach!("pml.failure: an offered send"),
            Phase::RefusedSend { .. } => mend_base::reach!("pml.failure: an refused_send send"),
            Phase::Streaming { .. } => mend_base::reach!("pml.failure: a streaming send"),
            Phase::Posted { .. } => {
                mend_base::reach!("pml.failure: a posted receive");
                self.unpost(key);
            }
            Phase::CtsSent { .. } => mend_base::reach!("pml.failure: an accepting receive"),
            Phase::Done(_) => return,
        }
        self.finish(key, Err(error));
    }

    /// Whether a message that came is the offer of one who is gone: its bytes never will. It keeps its place, so that no
    /// later message is taken for it: the receive that names its sender and would have matched it ends as the sender did.
    /// Receives from anybody pass it over, since they wait for others too (Row AK7).
    pub(crate) fn is_orphaned_rts(&self, open: &ChannelState<E>, message: &Unexpected) -> bool {
        matches!(message.form, Form::Rts { .. })
            && open.member(message.source).is_some_and(|peer| self.is_gone(peer))
    }

    /// Sends to `peer` take the slow way, which looks at how it is.
    pub(crate) fn slow_down(&mut self, peer: PeerIndex) {
        for (_, open) in self.channels.iter_mut() {
            for (route, member) in open.routes.iter_mut().zip(open.members.iter()) {
                if *member == peer {
                    route.endpoint = None;
                }
            }
        }
    }

    fn count_failed(&mut self, peer: PeerIndex) {
        self.failed.push(peer);
        for (_, open) in self.channels.iter_mut() {
            let ranks: Vec<_> = open.ranks_of(peer).filter(|rank| *rank != open.me).collect();
            open.failed.extend(ranks);
        }
        let broken: Vec<_> = self
            .channels
            .iter()
            .filter(|(_, open)| open.broken_by().is_some() && !open.arrived.is_empty())
            .map(|(key, _)| key)
            .collect();
        for key in broken {
            mend_base::reach!("pml.failure: messages of a collective that was cut off");
            self.drop_unread(key);
        }
    }

    fn count_gone(&mut self, peer: PeerIndex) {
        for (_, open) in self.channels.iter_mut() {
            if open.ranks_of(peer).any(|rank| rank != open.me) {
                open.gone += 1;
                self.some_unsatisfiable |= open.is_orphaned();
            }
        }
    }

    /// Why nothing will ever come for such a receive, if so.
    pub(crate) fn why_never(&self, channel: Key, from: Source) -> Option<Error> {
        let open = self.channels.get(channel)?;
        if let Some(rank) = open.broken_by() {
            return Some(Error::ProcFailed(rank));
        }
        let Source::Rank(rank) = from else { return None };
        let peer = open.member(rank)?;
        let why = self.peers.get(peer.index())?.gone?;
        Some(why.error(rank))
    }

    /// Why a probe from anybody is in doubt (Row PP9): somebody failed, which nobody acknowledged.
    pub(crate) fn why_in_doubt(&self, channel: Key) -> Option<Error> {
        let open = self.channels.get(channel)?;
        open.unacknowledged().map(Error::ProcFailed)
    }

    /// Why nothing will ever come from anybody, if so: everybody else is gone, and no message to ourselves is still on its
    /// way. For a caller that waits for it, while nobody else of this process can send: who only looks may still send
    /// itself what it looks for (Row PP17).
    pub fn unsatisfiable(&self, on: Channel) -> Option<Error> {
        let open = self.channels.get(on.0).filter(|open| open.is_orphaned())?;
        if open.talks_to_itself() || self.keeps_one_to_itself(on.0, open.me) {
            mend_base::reach!("pml.failure: nobody is left, but our own message is on its way");
            return None;
        }
        self.last_word(on.0)
    }

    /// Whether a receive may be unsatisfiable at all.
    #[inline]
    pub fn some_may_be_unsatisfiable(&self) -> bool {
        self.some_unsatisfiable
    }

    /// The same of a receive: one that waits, and is not in doubt.
    #[inline]
    pub fn is_unsatisfiable(&self, request: Request) -> bool {
        self.some_unsatisfiable && self.why_unsatisfiable(request).is_some()
    }

    #[cold]
    fn why_unsatisfiable(&self, request: Request) -> Option<Error> {
        let entry = self.entries.get(request.0)?;
        let Phase::Posted { from: Source::Any, .. } = entry.phase else { return None };
        if self.stalls(entry.channel) {
            mend_base::reach!("pml.failure: nobody is left, but the failed are not acknowledged");
            return None;
        }
        self.unsatisfiable(Channel(entry.channel))
    }

    /// Ends a receive that is unsatisfiable; whether it was. Its caller waits for it, and nobody else of this process can send.
    pub fn end_unsatisfiable(&mut self, request: Request) -> bool {
        let error = if self.some_unsatisfiable { self.why_unsatisfiable(request) } else { None };
        if let Some(error) = error {
            mend_base::reach!("pml.failure: a receive from anybody, and nobody is left");
            self.end(request.0, error);
        }
        error.is_some()
    }

    /// Whether a message to ourselves waits to be sent.
    fn keeps_one_to_itself(&self, channel: Key, me: Rank) -> bool {
        let queued = |entry: &RequestEntry| matches!(entry.phase, Phase::Queued { to, .. } if to == me);
        self.entries.iter().any(|(_, entry)| entry.channel == channel && queued(entry))
    }

    /// Of those gone the last rank: a failed one, if any failed.
    fn last_word(&self, channel: Key) -> Option<Error> {
        let open = self.channels.get(channel)?;
        let gone = (0u32..).zip(open.members.iter()).filter_map(|(rank, peer)| {
            let why = self.peers.get(peer.index())?.gone?;
            Some((why == Gone::Failed, why.error(Rank(rank))))
        });
        gone.reduce(|kept, next| if kept.0 && !next.0 { kept } else { next }).map(|(_, error)| error)
    }
}
