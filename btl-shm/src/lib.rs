// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared memory of one node, as a [`Btl`].
//!
//! Each process writes its own outbox (`mend-segment`) and reads those of its peers. This crate decides which peers
//! are polled and which peers must set a doorbell, when credit is given, and how a connection ends when a peer fails. Read
//! [`Shm`] first, then `polling`.
//!
//! Not here: the memory itself, sleeping (`world` does that), matching.
#![forbid(unsafe_code)]

mod block_pair;
mod connect;
mod control_watch;
mod disconnect;
mod endpoint;
mod fairness;
#[cfg(test)]
mod pair;
mod parameters;
mod polling;
mod sleep;

pub use block_pair::ShmEndpoint;
pub use connect::ShmError;
pub use control_watch::ControlWatch;
pub use parameters::PARAMETERS;

use control_watch::UnconsumedControl;
use endpoint::{Endpoint, State};
use mend_base::{Instant, PeerIndex};
use mend_segment::{BellPage, BellRequest, Bounds, Outbox};
use mend_transport::{
    AmId, Btl, Card, Cause, ConnectError, EventPending, Limits, MessageClass, PayloadWriter, SendError, Sink,
    Stream, WakeSet,
};
use polling::Polling;
use std::collections::VecDeque;
use std::sync::Arc;

/// The slot of this process on its node, as the node daemon assigned it.
#[derive(Clone, Debug)]
pub struct NodeSlot {
    /// The index of this process among the processes of its node.
    pub slot: u32,
    /// How many slots the node has.
    pub slots: u32,
    /// The node's bell page.
    pub bells: Arc<BellPage>,
}

/// Shared memory of one node: the endpoints of all its other processes.
#[derive(Debug)]
pub struct Shm {
    node: NodeSlot,
    outbox: Outbox,
    /// The longest payloads that this process accepts, as its card says.
    bounds: Bounds,
    endpoints: Vec<Endpoint>,
    /// The endpoint of each node slot, or [`NOBODY`].
    by_slot: Vec<u32>,
    polling: Polling,
    /// Endpoints with a send that found no room.
    blocked: Vec<u32>,
    /// Endpoints whose peers are asked, in the block that we write for them, to ring when there is room.
    waiting: Vec<u32>,
    /// Endpoints whose peers have not consumed a control message.
    unconsumed: UnconsumedControl,
    /// Endpoints that are being severed.
    severing: Vec<u32>,
    /// Callbacks that the next `progress` makes before it polls any ring.
    callbacks: VecDeque<(ShmEndpoint, Callback)>,
    statistics: Statistics,
}

/// A callback that no message causes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Callback {
    Room,
    Error(Cause),
}

/// Counters since the process began, for tests and reports.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Statistics {
    /// Doorbells that this process rang.
    pub bells_rung: u64,
    /// Changes of an endpoint from doorbell to polling.
    pub promotions: u64,
    /// Changes of an endpoint from polling to doorbell.
    pub demotions: u64,
    /// Calls of `arm` that found nothing: the process could sleep.
    pub armed: u64,
    /// Calls of `arm` that found nothing but messages of endpoints that are held back: see `fairness`.
    pub armed_holding_back: u64,
    /// Calls of `arm` that found something.
    pub pendings: u64,
    /// Messages that were found while armed although no doorbell was rung for them: see `polling`.
    pub found_without_bell: u64,
    /// Sends that found no room.
    pub busy: u64,
    /// Calls of the helper thread of a peer that had not consumed a control message: see `control_watch`.
    pub helpers_called: u64,
    /// Those of them that repeat an earlier one.
    pub helpers_called_again: u64,
}

const NOBODY: u32 = u32::MAX;

impl Shm {
    /// Counters since the process began.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// What the helper thread of this process sees of its unconsumed control messages.
    pub fn control_watch(&self) -> Arc<ControlWatch> {
        self.unconsumed.watch()
    }

    /// Sets how many endpoints are polled before idle ones go back to their doorbells.
    pub fn set_polled_max(&mut self, endpoints: usize) {
        self.polling.polled_max = endpoints;
    }

    /// How many endpoints are polled now.
    pub fn polled(&self) -> usize {
        self.polling.polled.len() + self.polling.held_back.len()
    }

    // Hot: per message.
    /// After something was published for an endpoint: rings its doorbell if the peer requested that.
    #[inline]
    fn notify(&mut self, index: usize, what: BellRequest) {
        if let State::Open(pair) = &mut self.endpoints[index].state
            && pair.theirs.bell_request().has(what)
        {
            self.ring_bell(index);
        }
    }

    #[cold]
    pub(crate) fn ring_bell(&mut self, index: usize) {
        self.node.bells.ring_bell(self.endpoints[index].slot, self.node.slot);
        self.statistics.bells_rung += 1;
    }

    #[cold]
    fn busy(&mut self, index: usize) -> Result<(), SendError> {
        self.statistics.busy += 1;
        let endpoint = &mut self.endpoints[index];
        match endpoint.state {
            State::Severing(..) | State::Severed => return Err(SendError::Severed),
            // The send found no room because the peer's credit word was invalid.
            State::Open(_) if endpoint.invalid_credit => self.found_garbage(index),
            _ => {}
        }
        let endpoint = &mut self.endpoints[index];
        if !endpoint.blocked {
            endpoint.blocked = true;
            self.blocked.push(index as u32);
            self.announce_wait(index);
        }
        Err(SendError::Busy)
    }

    /// Makes the queued callbacks. Returns how many.
    #[cold]
    fn make_callbacks(&mut self, budget: u32, sink: &mut impl Sink<ShmEndpoint>) -> u32 {
        let mut events = 0;
        while events < budget
            && let Some((endpoint, callback)) = self.callbacks.pop_front()
        {
            let peer = self.endpoints[endpoint.0 as usize].peer;
            match callback {
                Callback::Room => sink.on_sendable(peer, endpoint),
                Callback::Error(cause) => sink.on_error(peer, endpoint, cause),
            }
            events += 1;
        }
        events
    }

    /// Reads the credit of peers for which a send found no room; calls `on_sendable` if there is some now.
    #[cold]
    fn check_room(&mut self, budget: u32, sink: &mut impl Sink<ShmEndpoint>) -> u32 {
        let (mut events, mut at) = (0, 0);
        while at < self.blocked.len() && events < budget {
            let index = self.blocked[at] as usize;
            let endpoint = &mut self.endpoints[index];
            let roomy = endpoint.has_room();
            if endpoint.invalid_credit {
                self.found_garbage(index);
            }
            let endpoint = &mut self.endpoints[index];
            match endpoint.state {
                State::Open(_) if roomy => {
                    endpoint.unblock(self.polling.armed);
                    // Removed in order: an endpoint that finds no room again goes to the end of the list.
                    self.blocked.remove(at);
                    sink.on_sendable(endpoint.peer, ShmEndpoint(index as u32));
                    events += 1;
                }
                State::Open(_) | State::Quarantined(_) => at += 1,
                // No send to this endpoint will ever succeed.
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

impl mend_transport::Rdma for Shm {}

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
        class: MessageClass,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        let index = to.0 as usize;
        let sent = match class {
            MessageClass::Data => self.endpoints[index].send(id, header, len, fill),
            MessageClass::Control => self.endpoints[index].send_control(id, header, len, fill),
            MessageClass::Mailbox => self.endpoints[index].put_mailbox(id, header, len, fill),
        };
        if sent {
            self.notify(index, BellRequest::MESSAGES);
            if class == MessageClass::Control {
                self.note_control_sent(index);
            }
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
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        let index = to.0 as usize;
        if self.endpoints[index].send_chunk(stream, len, fill) {
            self.notify(index, BellRequest::MESSAGES);
            return Ok(());
        }
        self.busy(index)
    }

    // Hot: per poll.
    fn ready(&self, from: ShmEndpoint) -> bool {
        self.endpoints[from.0 as usize].is_ready()
    }

    // Hot: per poll.
    #[inline(always)]
    fn has_message(&self, from: ShmEndpoint) -> bool {
        self.endpoints[from.0 as usize].has_message()
    }

    // Hot: per message.
    #[inline(always)]
    fn take_message(&mut self, now: Instant, from: ShmEndpoint, sink: &mut impl Sink<ShmEndpoint>) -> u32 {
        self.take_one(from.0 as usize, now, sink)
    }

    // Hot: per call of progress.
    fn progress(&mut self, now: Instant, budget: u32, sink: &mut impl Sink<ShmEndpoint>) -> u32 {
        let mut events = 0;
        if !self.callbacks.is_empty() {
            events += self.make_callbacks(budget, sink);
        }
        if !self.severing.is_empty() {
            events += self.disconnect_some(budget - events, sink);
        }
        if !self.blocked.is_empty() {
            // Half of the budget, so that a sender that always fills its ring again leaves the other half for
            // arrivals; with a budget of 1, every second call.
            let left = budget - events;
            events += self.check_room((left + self.polling.calls() % 2) / 2, sink);
        }
        events += self.answer_some_bells(now, budget - events, sink);
        events += self.visit_polled(now, budget - events, sink);
        // Garbage that was just found is reported in the same call.
        if !self.callbacks.is_empty() {
            events += self.make_callbacks(budget - events, sink);
        }
        events
    }

    fn call_helpers(&mut self) {
        self.call_helpers_of_peers();
    }

    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        wake.futex = true;
        let armed = self.prepare_to_sleep();
        match armed {
            Ok(()) => self.statistics.armed += 1,
            Err(EventPending) => self.statistics.pendings += 1,
        }
        armed
    }

    fn disarm(&mut self) {
        self.clear_bell_requests();
    }
}
