// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything that the contract of [`Btl`] allows and that rarely happens by itself: refusals, lateness, idle turns,
//! mistaken evidence. A seed decides.

use crate::{
    AmId, Btl, Card, Cause, Class, ConnectError, Cookie, Limits, Payload, Pending, SendError, Sink, Stream,
    WakeSet, WriteSlot,
};
use mend_base::{Instant, PeerIndex, Random};

/// A BTL that is as difficult as it may be.
#[derive(Debug)]
pub struct FaultInjector<B: Btl> {
    inner: B,
    faults: Faults,
    fate: Fate,
    ways: Vec<Way<B::Endpoint>>,
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
    /// `on_room` stays away for another turn.
    pub late_room: OneIn,
    /// `progress` does nothing.
    pub idle: OneIn,
    /// `progress` has a budget of one.
    pub short: OneIn,
    /// `progress` reports evidence against a peer that did nothing.
    pub error: OneIn,
    /// `ready` says no.
    pub blind: OneIn,
    /// `arm` says `Pending`.
    pub restless: OneIn,
}

/// Once in so many calls, on average; 0: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OneIn(pub u64);

/// The seed's decisions, in their order.
#[derive(Debug)]
struct Fate {
    random: core::cell::RefCell<Random>,
}

#[derive(Debug)]
struct Way<E> {
    peer: PeerIndex,
    endpoint: E,
    state: State,
    /// We refused a send, or hold back an `on_room`.
    room_owed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Connecting,
    Standing,
    Quarantined,
    Severed,
}

impl Faults {
    /// None.
    pub const NONE: Faults = Faults {
        connect: OneIn(0),
        busy: OneIn(0),
        chunk_busy: OneIn(0),
        late_room: OneIn(0),
        idle: OneIn(0),
        short: OneIn(0),
        error: OneIn(0),
        blind: OneIn(0),
        restless: OneIn(0),
    };

    /// Rather often, but `ready` and `arm` tell the truth: what the conformance suite runs with.
    pub const OFTEN: Faults = Faults {
        connect: OneIn(3),
        busy: OneIn(5),
        chunk_busy: OneIn(5),
        late_room: OneIn(3),
        idle: OneIn(4),
        short: OneIn(4),
        error: OneIn(50),
        ..Faults::NONE
    };
}

impl<B: Btl> FaultInjector<B> {
    /// `inner`, with faults as `seed` decides.
    pub fn new(inner: B, faults: Faults, seed: u64) -> Self {
        FaultInjector { inner, faults, fate: Fate { random: Random(seed).into() }, ways: Vec::new() }
    }

    /// Other faults from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// The BTL without its faults.
    pub fn into_inner(self) -> B {
        self.inner
    }

    fn way(&mut self, endpoint: B::Endpoint) -> Option<&mut Way<B::Endpoint>> {
        self.ways.iter_mut().find(|way| way.endpoint == endpoint)
    }

    fn set_state(&mut self, endpoint: B::Endpoint, from: &[State], to: State) {
        if let Some(way) = self.way(endpoint)
            && from.contains(&way.state)
        {
            way.state = to;
        }
    }

    /// Whether a send to a standing way is refused this time; if so, room is owed.
    fn refuses(&mut self, to: B::Endpoint, how_often: OneIn) -> bool {
        let refused = self.fate.strikes(how_often);
        match self.way(to) {
            Some(way) if refused && way.state == State::Standing => {
                way.room_owed = true;
                true
            }
            _ => false,
        }
    }

    /// Pays what is owed, as far as fate and the budget let it.
    fn pay_rooms(&mut self, budget: u32, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        let mut events = 0;
        for way in &mut self.ways {
            let due = way.room_owed && way.state == State::Standing && events < budget;
            if due && !self.fate.strikes(self.faults.late_room) {
                way.room_owed = false;
                sink.on_room(way.peer, way.endpoint);
                events += 1;
            }
        }
        events
    }

    /// Evidence against somebody who stands.
    fn accuse(&mut self, budget: u32, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        if budget == 0 || !self.fate.strikes(self.faults.error) {
            return 0;
        }
        let standing: Vec<_> = self.ways.iter().filter(|way| way.state == State::Standing).collect();
        let Some(way) = standing.get(self.fate.below(standing.len())) else { return 0 };
        const CAUSES: [Cause; 4] = [Cause::Exited, Cause::LinkDown, Cause::Silent, Cause::Refused];
        sink.on_error(way.peer, way.endpoint, CAUSES[self.fate.below(CAUSES.len())]);
        1
    }
}

impl<B: Btl> Btl for FaultInjector<B> {
    type Endpoint = B::Endpoint;

    fn advertise(&self, card: &mut Card) {
        self.inner.advertise(card);
    }

    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<B::Endpoint, ConnectError> {
        if self.fate.strikes(self.faults.connect) {
            return Err(ConnectError::NoMemory);
        }
        let endpoint = self.inner.connect(peer, card)?;
        if self.way(endpoint).is_none() {
            self.ways.push(Way { peer, endpoint, state: State::Connecting, room_owed: false });
        }
        Ok(endpoint)
    }

    fn limits(&self, to: B::Endpoint) -> &Limits {
        self.inner.limits(to)
    }

    fn quarantine(&mut self, endpoint: B::Endpoint) {
        self.set_state(endpoint, &[State::Connecting, State::Standing], State::Quarantined);
        self.inner.quarantine(endpoint);
    }

    fn resume(&mut self, endpoint: B::Endpoint) {
        self.set_state(endpoint, &[State::Quarantined], State::Standing);
        self.inner.resume(endpoint);
    }

    fn sever(&mut self, endpoint: B::Endpoint) {
        self.set_state(endpoint, &[State::Connecting, State::Standing, State::Quarantined], State::Severed);
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
        self.inner.ready(from) && !self.fate.strikes(self.faults.blind)
    }

    fn has_message(&self, from: B::Endpoint) -> bool {
        self.inner.has_message(from) && !self.fate.strikes(self.faults.blind)
    }

    fn take_message(&mut self, now: Instant, from: B::Endpoint, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        if self.fate.strikes(self.faults.idle) {
            return 0;
        }
        // Nothing but a message comes of it, and messages are not held back.
        self.inner.take_message(now, from, sink)
    }

    fn progress(&mut self, now: Instant, budget: u32, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        if self.fate.strikes(self.faults.idle) {
            return 0;
        }
        let mut events = self.pay_rooms(budget, sink);
        events += self.accuse(budget - events, sink);
        let rest = budget - events;
        let rest = if self.fate.strikes(self.faults.short) { rest.min(1) } else { rest };
        let mut filter =
            Filter { sink, ways: &mut self.ways, fate: &self.fate, late: self.faults.late_room, held: 0 };
        let reported = self.inner.progress(now, rest, &mut filter);
        events + reported - filter.held
    }

    fn check_peers(&mut self) {
        self.inner.check_peers();
    }

    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), Pending> {
        // What we owe nobody will wake us for.
        let owed = self.ways.iter().any(|way| way.room_owed && way.state == State::Standing);
        if owed || self.fate.strikes(self.faults.restless) {
            return Err(Pending);
        }
        self.inner.arm(wake)
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }
}

/// Between the transport and the layer above: holds some rooms back.
struct Filter<'a, S, E> {
    sink: &'a mut S,
    ways: &'a mut [Way<E>],
    fate: &'a Fate,
    late: OneIn,
    /// Events that the transport reported and nobody heard yet.
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
        let way = self.ways.iter_mut().find(|way| way.endpoint == endpoint);
        let Some(way) = way else { return self.sink.on_room(to, endpoint) };
        if way.state == State::Connecting {
            way.state = State::Standing;
        }
        if way.state == State::Standing && self.fate.strikes(self.late) {
            way.room_owed = true;
            self.held += 1;
            return;
        }
        way.room_owed = false;
        self.sink.on_room(to, endpoint);
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        self.sink.on_error(peer, endpoint, cause);
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.sink.on_severed(peer, endpoint);
    }
}

impl Fate {
    fn strikes(&self, how_often: OneIn) -> bool {
        how_often.0 > 0 && self.random.borrow_mut().once_in(how_often.0)
    }

    fn below(&self, bound: usize) -> usize {
        self.random.borrow_mut().below(bound as u64) as usize
    }
}
