// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared memory of one node, as a [`Btl`].
//!
//! Each process writes its own outbox (`mend-segment`) and reads its peers'; this crate decides whom to poll, whom to let
//! ring, when to give credit, and what a death leaves behind. Read [`Shm`] first, then `polling`.
//!
//! Not here: the memory itself, sleeping (`world` does), matching.
#![forbid(unsafe_code)]

mod connect;
mod death;
mod endpoint;
mod fairness;
#[cfg(test)]
mod pair;
mod parameters;
mod polling;

pub use connect::ShmError;
pub use parameters::PARAMETERS;

use endpoint::{Endpoint, State};
use mend_base::{Instant, PeerIndex};
use mend_segment::{BellPage, Bounds, Life, Outbox, Ring, Wish};
use mend_transport::{
    AmId, Btl, Card, Cause, Class, ConnectError, Limits, Pending, SendError, Sink, Stream, WakeSet, WriteSlot,
};
use polling::Polling;
use std::collections::VecDeque;
use std::sync::Arc;

/// Where this process stands on its node.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its node slot.
    pub slot: u32,
    /// How many slots the node has.
    pub slots: u32,
    /// The node's bell page.
    pub bells: Arc<BellPage>,
}

/// Shared memory of one node: the ways to all its processes but this one.
#[derive(Debug)]
pub struct Shm {
    place: Place,
    outbox: Outbox,
    /// The longest that we take, as our card says.
    bounds: Bounds,
    endpoints: Vec<Endpoint>,
    /// The endpoint of each slot, or [`NOBODY`].
    by_slot: Vec<u32>,
    polling: Polling,
    /// Endpoints with something to send and no room.
    blocked: Vec<u32>,
    /// Endpoints whose peers are told that we wait for room.
    waiting: Vec<u32>,
    /// Endpoints that are being cut off.
    severing: Vec<u32>,
    /// What the next `progress` says first.
    reports: VecDeque<(ShmEndpoint, Report)>,
    /// The endpoint that `check_peers` looks at next.
    checked: usize,
    statistics: Statistics,
}

/// One way to one process of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShmEndpoint(u32);

/// Something to say that no ring holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Report {
    Room,
    Error(Cause),
}

/// What happened so far, for the curious and for tests.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Statistics {
    /// Bells that we rang.
    pub rings: u64,
    /// Peers that rang and are polled since.
    pub promotions: u64,
    /// Peers that were polled and ring since.
    pub demotions: u64,
    /// Times that everything was ready for sleep.
    pub arms: u64,
    /// Times that sleep was called off, because something was there already.
    pub pendings: u64,
    /// Arrivals, while armed, of peers whose bell was not (or not yet) rung: the race that a timed look settles.
    pub unrung: u64,
    /// Sends that found no room.
    pub busy: u64,
}

const NOBODY: u32 = u32::MAX;

impl Shm {
    /// What happened so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// The life of this process, to be begun before anybody is told our card. Asked for once.
    pub fn life(&self) -> Life {
        self.outbox.life()
    }

    /// How many peers are polled before the idle among them are asked to ring instead.
    pub fn poll_always(&mut self, peers: usize) {
        self.polling.always = peers;
    }

    /// How many peers are polled now.
    pub fn polled(&self) -> usize {
        self.polling.polled.len() + self.polling.held_back.len()
    }

    // Hot: per message.
    /// After anything was published for `endpoint`: one look at what it wishes to be rung for.
    #[inline]
    fn notify(&mut self, index: usize, what: Wish) {
        if let State::Open(link) = &mut self.endpoints[index].state
            && link.theirs.wish().has(what)
        {
            self.ring(index);
        }
    }

    #[cold]
    pub(crate) fn ring(&mut self, index: usize) {
        self.place.bells.ring(self.endpoints[index].slot, self.place.slot);
        self.statistics.rings += 1;
    }

    #[cold]
    fn busy(&mut self, index: usize) -> Result<(), SendError> {
        self.statistics.busy += 1;
        let endpoint = &mut self.endpoints[index];
        match endpoint.state {
            State::Severing(..) | State::Severed => return Err(SendError::PeerFailed),
            // The credit that says "no room" was refused just now.
            State::Open(_) if endpoint.suspect_credit => self.found_garbage(index),
            _ => {}
        }
        let endpoint = &mut self.endpoints[index];
        if !endpoint.blocked {
            endpoint.blocked = true;
            self.blocked.push(index as u32);
            self.say_we_wait(index);
        }
        Err(SendError::Busy)
    }

    /// What `progress` says before it looks at any ring. Gives how many events that were.
    #[cold]
    fn report(&mut self, budget: u32, sink: &mut impl Sink<ShmEndpoint>) -> u32 {
        let mut events = 0;
        while events < budget
            && let Some((endpoint, report)) = self.reports.pop_front()
        {
            let peer = self.endpoints[endpoint.0 as usize].peer;
            match report {
                Report::Room => sink.on_room(peer, endpoint),
                Report::Error(cause) => sink.on_error(peer, endpoint, cause),
            }
            events += 1;
        }
        events
    }

    /// Looks for credit where it is waited for; `on_room` where there is some.
    #[cold]
    fn look_for_room(&mut self, budget: u32, sink: &mut impl Sink<ShmEndpoint>) -> u32 {
        let (mut events, mut at) = (0, 0);
        while at < self.blocked.len() && events < budget {
            let index = self.blocked[at] as usize;
            let endpoint = &mut self.endpoints[index];
            let roomy = endpoint.has_room();
            if endpoint.suspect_credit {
                self.found_garbage(index);
            }
            let endpoint = &mut self.endpoints[index];
            match endpoint.state {
                State::Open(_) if roomy => {
                    endpoint.unblock(self.polling.armed);
                    // In order: who is told first waits last when it finds no room again.
                    self.blocked.remove(at);
                    sink.on_room(endpoint.peer, ShmEndpoint(index as u32));
                    events += 1;
                }
                State::Open(_) | State::Quarantined(_) => at += 1,
                // Nobody will ever send to it again.
                _ => {
                    endpoint.blocked = false;
                    self.blocked.swap_remove(at);
                }
            }
        }
        events
    }

    fn is_roomy(&mut self) -> bool {
        self.blocked.iter().any(|&index| self.endpoints[index as usize].has_room())
    }
}

impl Btl for Shm {
    type Endpoint = ShmEndpoint;

    fn advertise(&self, card: &mut Card) {
        self.put_card(card);
    }

    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<ShmEndpoint, ConnectError> {
        self.connect_to(peer, card)
    }

    fn limits(&self, to: ShmEndpoint) -> &Limits {
        &self.endpoints[to.0 as usize].limits
    }

    fn quarantine(&mut self, endpoint: ShmEndpoint) {
        self.quarantine_endpoint(endpoint.0 as usize);
    }

    fn resume(&mut self, endpoint: ShmEndpoint) {
        self.resume_endpoint(endpoint.0 as usize);
    }

    fn sever(&mut self, endpoint: ShmEndpoint) {
        self.start_to_sever(endpoint.0 as usize);
    }

    // Hot: per message.
    #[inline(always)]
    fn send(
        &mut self,
        to: ShmEndpoint,
        class: Class,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> Result<(), SendError> {
        let index = to.0 as usize;
        let sent = match class {
            Class::Data => self.endpoints[index].send(id, header, len, fill),
            Class::Control => self.endpoints[index].send_control(id, header, len, fill),
            Class::Mailbox => self.endpoints[index].put_state(id, header, len, fill),
        };
        if sent {
            self.notify(index, Wish::MESSAGES);
            return Ok(());
        }
        self.busy(index)
    }

    // Hot: per chunk.
    fn send_chunk(
        &mut self,
        to: ShmEndpoint,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> Result<(), SendError> {
        let index = to.0 as usize;
        if self.endpoints[index].send_chunk(stream, len, fill) {
            self.notify(index, Wish::MESSAGES);
            return Ok(());
        }
        self.busy(index)
    }

    // Hot: per look.
    fn ready(&self, from: ShmEndpoint) -> bool {
        self.endpoints[from.0 as usize].is_ready()
    }

    // Hot: per look.
    #[inline(always)]
    fn has_message(&self, from: ShmEndpoint) -> bool {
        self.endpoints[from.0 as usize].has_message()
    }

    // Hot: per message.
    #[inline(always)]
    fn take_message(&mut self, now: Instant, from: ShmEndpoint, sink: &mut impl Sink<ShmEndpoint>) -> u32 {
        self.visit_for_one(from.0 as usize, now, sink)
    }

    // Hot: per turn.
    fn progress(&mut self, now: Instant, budget: u32, sink: &mut impl Sink<ShmEndpoint>) -> u32 {
        let mut events = 0;
        if !self.reports.is_empty() {
            events += self.report(budget, sink);
        }
        if !self.severing.is_empty() {
            events += self.cut(budget - events, sink);
        }
        if !self.blocked.is_empty() {
            // Half of what is left, so that senders that never have enough leave something for arrivals; of 1, every
            // other time.
            let left = budget - events;
            events += self.look_for_room((left + self.polling.turns() % 2) / 2, sink);
        }
        self.answer_some_bells(now);
        events += self.visit_polled(now, budget - events, sink);
        // Garbage found just now is said at once rather than a turn later.
        if !self.reports.is_empty() {
            events += self.report(budget - events, sink);
        }
        events
    }

    fn check_peers(&mut self) {
        self.look_at_lives();
    }

    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), Pending> {
        wake.futex = true;
        let armed = self.prepare_to_sleep();
        match armed {
            Ok(()) => self.statistics.arms += 1,
            Err(Pending) => self.statistics.pendings += 1,
        }
        armed
    }

    fn disarm(&mut self) {
        self.take_wishes_back();
    }
}

/// Which ring a class of credit belongs to, in the order of looks.
const RINGS: [Ring; 3] = [Ring::Control, Ring::Messages, Ring::Chunks];
