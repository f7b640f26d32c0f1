// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What waits to go out, in which order, and how much of what came may lie here unread.
//!
//! Each peer has three queues: answers, which never wait behind data; messages, in the order in which they were sent, so
//! that none overtakes another; and streams, which take turns. A peer with anything in them is flush pending, and every turn
//! tries again what was `Busy`.
//!
//! Messages that nobody has received yet cost memory here. When those of one peer pass
//! [`Config::held_bytes_max`](crate::Config), it is told to hold: it then offers every message before it sends its bytes,
//! until half of them have been received. A sender that never turns the crank would not read that, so of its immediate
//! sends every [`SENDS_PER_PROGRESS`]th waits for a turn.

use crate::envelope::{Form, Header, Packet, Reason};
use crate::request::{Gone, Phase};
use crate::{Channel, Ob1, Request};
use mend_base::{ContextId, Key, PeerIndex, Rank, Source};
use mend_transport::{Ability, Btl, Cause, Class, Limits, Payload, SendError};
use std::collections::VecDeque;

/// What we know of one peer.
#[derive(Debug)]
pub(crate) struct PeerState<E> {
    /// `None`: not connected.
    pub(crate) way: Option<PeerLink<E>>,
    pub(crate) gone: Option<Gone>,
    /// Nothing it writes is looked at any more: it wrote garbage, or is gone.
    pub(crate) discarding: bool,
    /// Somebody sends to it, or waits for it, and the engine has been asked to connect.
    asked: bool,
    /// It stands in the list of those with something to send.
    flush_pending: bool,
    /// Sends to it take the slow way: others wait before them, or it xoff received.
    congested: bool,
    /// It takes nothing before a match for now.
    pub(crate) xoff_received: bool,
    /// We told it to hold.
    xoff_sent: bool,
    /// Offers to it that were given up, and to which it still owes an answer.
    pub(crate) withdrawn_rts: u32,
    /// What its unread messages cost here.
    pub(crate) held_bytes: u64,
    queues: Option<Box<Queues>>,
}

const _: () = assert!(size_of::<PeerState<u32>>() <= 64);

/// How a peer is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerLink<E> {
    pub(crate) endpoint: E,
    /// The longest payload of a message.
    pub(crate) packed_bytes: u32,
    /// The longest message that it takes before a match, as far as we know.
    pub(crate) eager_bytes: u16,
    /// The longest chunk; 0: the way has no streams.
    pub(crate) chunk_bytes: u32,
}

/// What waits to go to one peer.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    answers: VecDeque<Header>,
    pub(crate) queued: VecDeque<Queued>,
    pub(crate) streams: VecDeque<Key>,
}

/// What goes in the order of the messages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Queued {
    /// A request.
    Send(Key),
    /// Our word that the peer's context id is used no more: behind the last message that uses it.
    ContextRetired(ContextId),
}

/// How many immediate sends may pass between two turns.
pub(crate) const SENDS_PER_PROGRESS: u32 = 256;

/// How many chunks go to one peer in one turn.
const CHUNKS_PER_PROGRESS: u32 = 8;

/// What a message that waits costs besides its bytes.
const MESSAGE_COST: u64 = 128;

/// Buffers of messages once unread, kept for the next.
const SPARE_MAX: usize = 64;

impl<E> Default for PeerState<E> {
    fn default() -> Self {
        PeerState {
            way: None,
            gone: None,
            discarding: false,
            asked: false,
            flush_pending: false,
            congested: false,
            xoff_received: false,
            xoff_sent: false,
            withdrawn_rts: 0,
            held_bytes: 0,
            queues: None,
        }
    }
}

impl<E> PeerState<E> {
    pub(crate) fn queues(&mut self) -> &mut Queues {
        self.queues.get_or_insert_default()
    }

    /// Whether nobody has connected it, and somebody could.
    pub(crate) fn is_unconnected(&self) -> bool {
        self.way.is_none() && self.gone.is_none()
    }

    fn is_quiet(&self) -> bool {
        self.queues.as_ref().is_none_or(|queues| queues.is_empty())
    }
}

impl Queues {
    fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.queued.is_empty() && self.streams.is_empty()
    }
}

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// What we know of `peer`.
    pub(crate) fn peer(&mut self, peer: PeerIndex) -> &mut PeerState<E> {
        self.peers.at(peer.index())
    }

    // Hot: per message.
    /// Whether what `peer` writes is looked at no more.
    #[inline]
    pub(crate) fn is_discarding(&self, peer: PeerIndex) -> bool {
        self.peers.get(peer.index()).is_some_and(|peer| peer.discarding)
    }

    /// Whether `peer` will never send or answer again.
    pub(crate) fn is_gone(&self, peer: PeerIndex) -> bool {
        self.peers.get(peer.index()).is_some_and(|peer| peer.gone.is_some())
    }

    /// `peer` can be reached by `endpoint`. Messages longer than `limits.packed_bytes_max`, or than what the peer says
    /// that it takes unasked, are offered.
    pub fn connected(&mut self, peer: PeerIndex, endpoint: E, limits: &Limits) {
        let streams = limits.can(Ability::Streams);
        let way = PeerLink {
            endpoint,
            packed_bytes: limits.packed_bytes_max,
            eager_bytes: self.config.eager_bytes.min(limits.packed_bytes_max).min(u32::from(u16::MAX)) as u16,
            chunk_bytes: if streams { limits.chunk_bytes } else { 0 },
        };
        let state = self.peer(peer);
        state.asked = false;
        let before = state.way.replace(way);
        if before.is_some_and(|before| before.endpoint != endpoint) {
            self.slow_down(peer);
        }
        self.list(peer);
    }

    /// The way to a rank, if it is connected: for looks at its ring between turns.
    pub fn endpoint(&self, on: Channel, rank: Rank) -> Option<E> {
        let peer = self.channels.get(on.0)?.member(rank)?;
        Some(self.peers.get(peer.index())?.way.as_ref()?.endpoint)
    }

    /// The way on which the message of a receive that names its sender, and waits, will come.
    pub fn awaited_from(&self, request: Request) -> Option<E> {
        let entry = self.entries.get(request.0)?;
        match entry.phase {
            Phase::Posted { from: Source::Rank(rank), .. } => self.endpoint(Channel(entry.channel), rank),
            _ => None,
        }
    }

    /// Peers that somebody sends to, or waits for, and nobody has connected yet, each once.
    pub fn wanted(&mut self) -> Option<PeerIndex> {
        self.wanted.pop_front()
    }

    /// Whether nothing of ours is still to be sent.
    pub fn idle(&self) -> bool {
        self.sends == 0 && self.queued == 0
    }

    /// Something waits to go to `peer`.
    pub(crate) fn list(&mut self, peer: PeerIndex) {
        let state = self.peer(peer);
        if state.is_quiet() || state.gone.is_some() {
            return;
        }
        if state.way.is_none() {
            self.want(peer);
        } else if !core::mem::replace(&mut state.flush_pending, true) {
            self.flush_pending.push(peer);
        }
    }

    /// The engine is to connect `peer`, unless it has, or was asked to, or nobody is left to be connected.
    pub(crate) fn want(&mut self, peer: PeerIndex) {
        let state = self.peer(peer);
        if state.is_unconnected() && !core::mem::replace(&mut state.asked, true) {
            self.wanted.push_back(peer);
        }
    }

    /// Recomputes whether sends to `peer` must take the slow way, which looks at its queues.
    pub(crate) fn update_congested(&mut self, peer: PeerIndex) {
        let state = &mut self.peers[peer.index()];
        let queued = state.queues.as_ref().is_some_and(|queues| !queues.queued.is_empty());
        let congested = state.gone.is_none() && (queued || state.xoff_received);
        match (core::mem::replace(&mut state.congested, congested), congested) {
            (false, true) => self.congested += 1,
            (true, false) => self.congested -= 1,
            (true, true) | (false, false) => {}
        }
    }

    /// Queues something in the order of the messages.
    pub(crate) fn enqueue(&mut self, peer: PeerIndex, queued: Queued) {
        self.peer(peer).queues().queued.push_back(queued);
        self.queued += usize::from(matches!(queued, Queued::ContextRetired(_)));
        self.update_congested(peer);
        self.list(peer);
    }

    /// Queues an answer; nobody answers who is gone.
    pub(crate) fn answer(&mut self, peer: PeerIndex, packet: Packet) {
        let state = self.peer(peer);
        if state.gone.is_some() {
            return;
        }
        state.queues().answers.push_back(packet.write());
        self.queued += 1;
        self.list(peer);
    }

    /// Nobody will match it here.
    pub(crate) fn refuse(&mut self, peer: PeerIndex, form: Form) {
        if let Some(key) = form.waits() {
            self.answer(peer, Packet::Refused { key, reason: Reason::Freed });
        }
    }

    /// The peer wrote what no correct peer writes: nothing more of it is believed.
    #[cold]
    pub(crate) fn garbage(&mut self, peer: PeerIndex) {
        mend_base::reach!("pml.flow: garbage");
        let state = self.peer(peer);
        if !core::mem::replace(&mut state.discarding, true) {
            self.evidence.push((peer, Cause::Garbage));
        }
    }

    /// Tries again what waits, for every flush pending peer.
    pub(crate) fn flush_all<N: Btl<Endpoint = E>>(&mut self, net: &mut N) -> u32 {
        let mut peers = core::mem::take(&mut self.flush_pending);
        let mut sent = 0;
        peers.retain(|&peer| {
            sent += self.flush(net, peer);
            let state = &mut self.peers[peer.index()];
            state.flush_pending = !state.is_quiet() && state.way.is_some();
            state.flush_pending
        });
        peers.append(&mut self.flush_pending);
        self.flush_pending = peers;
        sent
    }

    /// Sends what can be sent to one peer now.
    pub(crate) fn flush<N: Btl<Endpoint = E>>(&mut self, net: &mut N, peer: PeerIndex) -> u32 {
        let state = &self.peers[peer.index()];
        let Some(way) = state.way.filter(|_| !state.is_quiet()) else { return 0 };
        let mut sent = self.flush_answers(net, peer, way);
        sent += self.flush_parked(net, peer, way);
        sent + self.flush_streams(net, peer)
    }

    fn flush_answers<N: Btl<Endpoint = E>>(&mut self, net: &mut N, peer: PeerIndex, way: PeerLink<E>) -> u32 {
        let mut sent = 0;
        let Some(queues) = &mut self.peers[peer.index()].queues else { return 0 };
        while let Some(header) = queues.answers.front() {
            if send_header(net, way.endpoint, Class::Control, header).is_err() {
                mend_base::reach!("pml.flow: an answer waits");
                break;
            }
            queues.answers.pop_front();
            self.queued -= 1;
            sent += 1;
        }
        sent
    }

    fn flush_parked<N: Btl<Endpoint = E>>(&mut self, net: &mut N, peer: PeerIndex, way: PeerLink<E>) -> u32 {
        let mut sent = 0;
        while let Some(&queued) = self.peers[peer.index()].queues().queued.front() {
            let result = match queued {
                Queued::Send(key) => self.transmit(net, peer, way, key),
                Queued::ContextRetired(context) => {
                    send_header(net, way.endpoint, Class::Data, &Packet::ContextRetired { context }.write())
                }
            };
            if result.is_err() {
                mend_base::reach!("pml.flow: a message waits");
                break;
            }
            self.peers[peer.index()].queues().queued.pop_front();
            self.queued -= usize::from(matches!(queued, Queued::ContextRetired(_)));
            sent += 1;
        }
        self.update_congested(peer);
        sent
    }

    /// Large messages to one peer take turns, chunk by chunk.
    fn flush_streams<N: Btl<Endpoint = E>>(&mut self, net: &mut N, peer: PeerIndex) -> u32 {
        let mut sent = 0;
        while sent < CHUNKS_PER_PROGRESS {
            let Some(key) = self.peers[peer.index()].queues().streams.pop_front() else { break };
            match self.send_piece(net, peer, key) {
                Ok(true) => {}
                Ok(false) => self.peers[peer.index()].queues().streams.push_back(key),
                Err(_) => {
                    mend_base::reach!("pml.flow: a stream waits");
                    self.peers[peer.index()].queues().streams.push_front(key);
                    break;
                }
            }
            sent += 1;
        }
        sent
    }

    /// Forgets all that waits to go to `peer`.
    pub(crate) fn forget_queues(&mut self, peer: PeerIndex) {
        let state = self.peer(peer);
        let queues = state.queues.take();
        let lost = queues.map_or(0, |queues| {
            let retired = queues.queued.iter().filter(|queued| matches!(queued, Queued::ContextRetired(_)));
            queues.answers.len() + retired.count()
        });
        self.queued -= lost;
        self.update_congested(peer);
    }

    /// Keeps the bytes of a message that waits here, on its sender's account.
    pub(crate) fn store(&mut self, from: PeerIndex, payload: Payload<'_>) -> Vec<u8> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(payload.len(), 0);
        payload.copy_to_slice(&mut bytes);
        let maximum = self.config.held_bytes_max;
        let state = self.peer(from);
        state.held_bytes += MESSAGE_COST + bytes.len() as u64;
        if state.held_bytes > maximum && !core::mem::replace(&mut state.xoff_sent, true) {
            mend_base::reach!("pml.flow: hold");
            self.answer(from, Packet::Xoff);
        }
        bytes
    }

    /// The message has been taken.
    pub(crate) fn release_stored(&mut self, from: PeerIndex, mut bytes: Vec<u8>) {
        let maximum = self.config.held_bytes_max;
        let state = self.peer(from);
        state.held_bytes -= MESSAGE_COST + bytes.len() as u64;
        if state.held_bytes <= maximum / 2 && core::mem::replace(&mut state.xoff_sent, false) {
            mend_base::reach!("pml.flow: go");
            self.answer(from, Packet::Xon);
        }
        if self.spare.len() < SPARE_MAX && bytes.capacity() > 0 {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// The peer says whether it takes messages before their match.
    pub(crate) fn on_xoff(&mut self, from: PeerIndex, xoff_received: bool) {
        self.peer(from).xoff_received = xoff_received;
        self.update_congested(from);
    }
}

/// Sends a header alone.
fn send_header<N: Btl>(net: &mut N, to: N::Endpoint, class: Class, header: &Header) -> Result<(), SendError> {
    net.send(to, class, crate::AM_ID, header.as_bytes(), 0, |_| {})
}
