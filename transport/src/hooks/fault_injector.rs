// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults that the contract of [`Btl`] allows and that are rare by themselves: refusals, delays, calls of progress
//! that do nothing, mistaken errors. A seed decides when.

use crate::{
    AmId, Btl, Card, Cause, Class, ConnectError, Cookie, Limits, Payload, Pending, SendError, Sink, Stream,
    WakeSet, WriteSlot,
};
use mend_base::{Instant, PeerIndex, Random};

/// A BTL with injected faults.
#[derive(Debug)]
pub struct FaultInjector<B: Btl> {
    inner: B,
    faults: Faults,
    dice: Dice,
    endpoints: Vec<Tracked<B::Endpoint>>,
}

/// How often each fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// `connect` fails, though the peer is there.
    pub connect: OneIn,
    /// `send` answers `Busy`, though there is room; `on_room` follows.
    pub busy: OneIn,
    /// `send_chunk` answers `Busy`, though there is room; `on_room` follows.
    pub chunk_busy: OneIn,
    /// `on_room` is delayed by another call of progress.
    pub late_room: OneIn,
    /// `progress` does nothing.
    pub progress_skipped: OneIn,
    /// `progress` has a budget of one.
    pub budget_one: OneIn,
    /// `progress` reports an error of a peer that did nothing.
    pub error: OneIn,
    /// `ready` answers no.
    pub ready_false: OneIn,
    /// `arm` answers `Pending`.
    pub arm_pending: OneIn,
}

/// Once in so many calls, on average; 0: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OneIn(pub u64);

/// The seed's decisions, in their order.
#[derive(Debug)]
struct Dice {
    random: core::cell::RefCell<Random>,
}

#[derive(Debug)]
struct Tracked<E> {
    peer: PeerIndex,
    endpoint: E,
    state: State,
    /// A send was refused, or an `on_room` is delayed.
    room_owed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Connecting,
    Connected,
    Quarantined,
    Severed,
}

impl Faults {
    /// No faults.
    pub const NONE: Faults = Faults {
        connect: OneIn(0),
        busy: OneIn(0),
        chunk_busy: OneIn(0),
        late_room: OneIn(0),
        progress_skipped: OneIn(0),
        budget_one: OneIn(0),
        error: OneIn(0),
        ready_false: OneIn(0),
        arm_pending: OneIn(0),
    };

    /// Many faults, but `ready` and `arm` are exact: the conformance suite runs with these.
    pub const OFTEN: Faults = Faults {
        connect: OneIn(3),
        busy: OneIn(5),
        chunk_busy: OneIn(5),
        late_room: OneIn(3),
        progress_skipped: OneIn(4),
        budget_one: OneIn(4),
        error: OneIn(50),
        ..Faults::NONE
    };
}

impl<B: Btl> FaultInjector<B> {
    /// `inner`, with faults as `seed` decides.
    pub fn new(inner: B, faults: Faults, seed: u64) -> Self {
        FaultInjector { inner, faults, dice: Dice { random: Random(seed).into() }, endpoints: Vec::new() }
    }

    /// Other faults from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// The BTL without its faults.
    pub fn into_inner(self) -> B {
        self.inner
    }

    fn tracked(&mut self, endpoint: B::Endpoint) -> Option<&mut Tracked<B::Endpoint>> {
        self.endpoints.iter_mut().find(|tracked| tracked.endpoint == endpoint)
    }

    fn set_state(&mut self, endpoint: B::Endpoint, from: &[State], to: State) {
        if let Some(tracked) = self.tracked(endpoint)
            && from.contains(&tracked.state)
        {
            tracked.state = to;
        }
    }

    /// Whether this send is refused, if the endpoint is connected; then `on_room` must follow.
    fn refuses(&mut self, to: B::Endpoint, how_often: OneIn) -> bool {
        let refused = self.dice.strikes(how_often);
        match self.tracked(to) {
            Some(tracked) if refused && tracked.state == State::Connected => {
                tracked.room_owed = true;
                true
            }
            _ => false,
        }
    }

    /// Calls `on_room` where it was delayed, as far as the dice and the budget allow.
    fn deliver_delayed_rooms(&mut self, budget: u32, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        let mut events = 0;
        for tracked in &mut self.endpoints {
            let due = tracked.room_owed && tracked.state == State::Connected && events < budget;
            if due && !self.dice.strikes(self.faults.late_room) {
                tracked.room_owed = false;
                sink.on_room(tracked.peer, tracked.endpoint);
                events += 1;
            }
        }
        events
    }

    /// Injects a false error on a connected endpoint.
    fn inject_error(&mut self, budget: u32, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        if budget == 0 || !self.dice.strikes(self.faults.error) {
            return 0;
        }
        let connected: Vec<_> =
            self.endpoints.iter().filter(|tracked| tracked.state == State::Connected).collect();
        let Some(tracked) = connected.get(self.dice.below(connected.len())) else { return 0 };
        const CAUSES: [Cause; 4] = [Cause::Exited, Cause::LinkDown, Cause::Silent, Cause::Refused];
        sink.on_error(tracked.peer, tracked.endpoint, CAUSES[self.dice.below(CAUSES.len())]);
        1
    }
}

impl<B: Btl> Btl for FaultInjector<B> {
    type Endpoint = B::Endpoint;

    fn advertise(&self, card: &mut Card) {
        self.inner.advertise(card);
    }

    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<B::Endpoint, ConnectError> {
        if self.dice.strikes(self.faults.connect) {
            return Err(ConnectError::NoMemory);
        }
        let endpoint = self.inner.connect(peer, card)?;
        if self.tracked(endpoint).is_none() {
            self.endpoints.push(Tracked { peer, endpoint, state: State::Connecting, room_owed: false });
        }
        Ok(endpoint)
    }

    fn limits(&self, to: B::Endpoint) -> &Limits {
        self.inner.limits(to)
    }

    fn quarantine(&mut self, endpoint: B::Endpoint) {
        self.set_state(endpoint, &[State::Connecting, State::Connected], State::Quarantined);
        self.inner.quarantine(endpoint);
    }

    fn resume(&mut self, endpoint: B::Endpoint) {
        self.set_state(endpoint, &[State::Quarantined], State::Connected);
        self.inner.resume(endpoint);
    }

    fn sever(&mut self, endpoint: B::Endpoint) {
        self.set_state(endpoint, &[State::Connecting, State::Connected, State::Quarantined], State::Severed);
        self.inner.sever(endpoint);
    }

    fn send(
        &mut self,
        to: B::Endpoint,
        class: Class,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> Result<(), SendError> {
        if self.refuses(to, self.faults.busy) {
            return Err(SendError::Busy);
        }
        self.inner.send(to, class, id, header, len, fill)
    }

    fn send_chunk(
        &mut self,
        to: B::Endpoint,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> Result<(), SendError> {
        if self.refuses(to, self.faults.chunk_busy) {
            return Err(SendError::Busy);
        }
        self.inner.send_chunk(to, stream, len, fill)
    }

    fn ready(&self, from: B::Endpoint) -> bool {
        self.inner.ready(from) && !self.dice.strikes(self.faults.ready_false)
    }

    fn has_message(&self, from: B::Endpoint) -> bool {
        self.inner.has_message(from) && !self.dice.strikes(self.faults.ready_false)
    }

    fn take_message(&mut self, now: Instant, from: B::Endpoint, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        if self.dice.strikes(self.faults.progress_skipped) {
            return 0;
        }
        // Nothing but a message comes of it, and messages are not held back.
        self.inner.take_message(now, from, sink)
    }

    fn progress(&mut self, now: Instant, budget: u32, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        if self.dice.strikes(self.faults.progress_skipped) {
            return 0;
        }
        let mut events = self.deliver_delayed_rooms(budget, sink);
        events += self.inject_error(budget - events, sink);
        let rest = budget - events;
        let rest = if self.dice.strikes(self.faults.budget_one) { rest.min(1) } else { rest };
        let mut filter = Filter {
            sink,
            endpoints: &mut self.endpoints,
            dice: &self.dice,
            late: self.faults.late_room,
            held: 0,
        };
        let reported = self.inner.progress(now, rest, &mut filter);
        events + reported - filter.held
    }

    fn check_peers(&mut self) {
        self.inner.check_peers();
    }

    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), Pending> {
        // Nobody will wake this process for the callbacks that were delayed here.
        let owed =
            self.endpoints.iter().any(|tracked| tracked.room_owed && tracked.state == State::Connected);
        if owed || self.dice.strikes(self.faults.arm_pending) {
            return Err(Pending);
        }
        self.inner.arm(wake)
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }
}

/// Between the transport and the layer above: delays some `on_room`.
struct Filter<'a, S, E> {
    sink: &'a mut S,
    endpoints: &'a mut [Tracked<E>],
    dice: &'a Dice,
    late: OneIn,
    /// Events that the transport counted and that were delayed.
    held: u32,
}

impl<S: Sink<E>, E: Copy + Eq> Sink<E> for Filter<'_, S, E> {
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
        self.sink.on_message(from, id, header, payload);
    }

    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        self.sink.on_chunk(from, stream, payload);
    }

    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
        self.sink.on_done(done, result);
    }

    fn on_room(&mut self, to: PeerIndex, endpoint: E) {
        let tracked = self.endpoints.iter_mut().find(|tracked| tracked.endpoint == endpoint);
        let Some(tracked) = tracked else { return self.sink.on_room(to, endpoint) };
        if tracked.state == State::Connecting {
            tracked.state = State::Connected;
        }
        if tracked.state == State::Connected && self.dice.strikes(self.late) {
            tracked.room_owed = true;
            self.held += 1;
            return;
        }
        tracked.room_owed = false;
        self.sink.on_room(to, endpoint);
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        self.sink.on_error(peer, endpoint, cause);
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.sink.on_severed(peer, endpoint);
    }
}

impl Dice {
    fn strikes(&self, how_often: OneIn) -> bool {
        how_often.0 > 0 && self.random.borrow_mut().once_in(how_often.0)
    }

    fn below(&self, bound: usize) -> usize {
        self.random.borrow_mut().below(bound as u64) as usize
    }
}
