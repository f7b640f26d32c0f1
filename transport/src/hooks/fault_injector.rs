// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Injects what the contract of [`Btl`] allows and what is rare otherwise: refusals, delays, calls of progress that do nothing, wrong
//! evidence. A random generator with a given seed decides when.

use crate::{
    AmId, Atomic, Btl, Card, Cause, ConnectError, Cookie, EventPending, Exposure, Limits, MessageClass,
    Payload, PayloadWriter, Rdma, Region, RegisterError, Remote, RemoteAccess, RemoteKey, SendError, Sink,
    Span, Stream, UserMemory, WakeSet,
};
use mend_base::{Instant, PeerIndex, Random};
use std::collections::VecDeque;

/// A BTL with injected faults.
#[derive(Debug)]
pub struct FaultInjector<B: Btl> {
    inner: B,
    faults: Faults,
    chance: Chance,
    endpoints: Vec<Tracked<B::Endpoint>>,
    /// Operations that have ended, and whose `on_done` was delayed.
    late: VecDeque<(Cookie, Result<(), SendError>)>,
}

/// How often each fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// `connect` fails, though the peer is reachable.
    pub connect: OneIn,
    /// `send` answers `Busy`, though it could send; `on_sendable` follows.
    pub busy: OneIn,
    /// `send_chunk` answers `Busy`, though it could send; `on_sendable` follows.
    pub chunk_busy: OneIn,
    /// A put, a get, an atomic operation or a flush answers `Busy`, though it could start; `on_sendable` follows.
    pub operation_busy: OneIn,
    /// `on_done` is delayed to a later call of progress, though not after `on_severed`.
    pub late_done: OneIn,
    /// `on_sendable` is delayed to a later call of progress.
    pub late_sendable: OneIn,
    /// `progress` does nothing.
    pub progress_skipped: OneIn,
    /// `progress` has a budget of one.
    pub budget_one: OneIn,
    /// `progress` calls `on_error` without a cause.
    pub error: OneIn,
    /// `ready` and `has_message` answer no, though there is something.
    pub ready_false: OneIn,
    /// `arm` answers `EventPending`.
    pub arm_pending: OneIn,
}

/// Once in so many calls, on average; 0: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OneIn(pub u64);

/// Decides whether a fault happens; the same seed gives the same decisions.
#[derive(Debug)]
struct Chance {
    random: core::cell::RefCell<Random>,
}

#[derive(Debug)]
struct Tracked<E> {
    peer: PeerIndex,
    endpoint: E,
    state: State,
    /// `on_sendable` must be called: a send was refused here, or the call was delayed.
    report_is_due: bool,
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
        operation_busy: OneIn(0),
        late_done: OneIn(0),
        late_sendable: OneIn(0),
        progress_skipped: OneIn(0),
        budget_one: OneIn(0),
        error: OneIn(0),
        ready_false: OneIn(0),
        arm_pending: OneIn(0),
    };

    /// Many faults, but `ready` and `arm` are exact. The conformance suite runs with these.
    pub const OFTEN: Faults = Faults {
        connect: OneIn(3),
        busy: OneIn(5),
        chunk_busy: OneIn(5),
        operation_busy: OneIn(5),
        late_done: OneIn(3),
        late_sendable: OneIn(3),
        progress_skipped: OneIn(4),
        budget_one: OneIn(4),
        error: OneIn(50),
        ..Faults::NONE
    };
}

impl<B: Btl> FaultInjector<B> {
    /// Wraps `inner`, with faults at moments that `seed` decides.
    pub fn new(inner: B, faults: Faults, seed: u64) -> Self {
        let chance = Chance { random: Random(seed).into() };
        FaultInjector { inner, faults, chance, endpoints: Vec::new(), late: VecDeque::new() }
    }

    /// Changes how often faults happen from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// The BTL inside.
    pub fn inner_mut(&mut self) -> &mut B {
        &mut self.inner
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

    /// Whether to refuse this send. Only sends of a connected endpoint are refused; then `on_sendable` must follow.
    fn refuses(&mut self, to: B::Endpoint, how_often: OneIn) -> bool {
        let refused = self.chance.happens(how_often);
        match self.tracked(to) {
            Some(tracked) if refused && tracked.state == State::Connected => {
                tracked.report_is_due = true;
                true
            }
            _ => false,
        }
    }

    /// Calls `on_sendable` for endpoints where it is due, unless it is delayed again; at most `budget` calls.
    fn report_delayed_sendable(&mut self, budget: u32, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        let mut events = 0;
        for tracked in &mut self.endpoints {
            let due = tracked.report_is_due && tracked.state == State::Connected && events < budget;
            if due && !self.chance.happens(self.faults.late_sendable) {
                tracked.report_is_due = false;
                sink.on_sendable(tracked.peer, tracked.endpoint);
                events += 1;
            }
        }
        events
    }

    /// Whether `on_done` may be delayed: not any more once an endpoint was severed, so that no cookie ends after `on_severed`.
    fn may_delay_done(&self) -> bool {
        self.endpoints.iter().all(|tracked| tracked.state != State::Severed)
    }

    /// Calls `on_done` for operations where it was delayed, unless it is delayed again; at most `budget` calls.
    fn report_late_done(&mut self, budget: u32, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        let mut events = 0;
        while events < budget
            && !self.late.is_empty()
            && !(self.may_delay_done() && self.chance.happens(self.faults.late_done))
        {
            if let Some((cookie, result)) = self.late.pop_front() {
                sink.on_done(cookie, result);
                events += 1;
            }
        }
        events
    }

    /// Reports wrong evidence on a connected endpoint.
    fn inject_error(&mut self, budget: u32, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        if budget == 0 || !self.chance.happens(self.faults.error) {
            return 0;
        }
        let connected: Vec<_> =
            self.endpoints.iter().filter(|tracked| tracked.state == State::Connected).collect();
        let Some(tracked) = connected.get(self.chance.below(connected.len())) else { return 0 };
        const CAUSES: [Cause; 4] = [Cause::Exited, Cause::LinkDown, Cause::Silent, Cause::Refused];
        sink.on_error(tracked.peer, tracked.endpoint, CAUSES[self.chance.below(CAUSES.len())]);
        1
    }
}

impl<B: Btl> Btl for FaultInjector<B> {
    type Endpoint = B::Endpoint;

    fn advertise(&self, card: &mut Card) {
        self.inner.advertise(card);
    }

    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<B::Endpoint, ConnectError> {
        if self.chance.happens(self.faults.connect) {
            return Err(ConnectError::NoMemory);
        }
        let endpoint = self.inner.connect(peer, card)?;
        if self.tracked(endpoint).is_none() {
            self.endpoints.push(Tracked { peer, endpoint, state: State::Connecting, report_is_due: false });
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

    fn on_running(&mut self, endpoint: B::Endpoint) {
        self.inner.on_running(endpoint);
    }

    fn on_unheard(&mut self, endpoint: B::Endpoint) {
        self.inner.on_unheard(endpoint);
    }

    fn sever(&mut self, endpoint: B::Endpoint) {
        self.set_state(endpoint, &[State::Connecting, State::Connected, State::Quarantined], State::Severed);
        self.inner.sever(endpoint);
    }

    fn sever_dead(&mut self, endpoint: B::Endpoint) {
        self.set_state(endpoint, &[State::Connecting, State::Connected, State::Quarantined], State::Severed);
        self.inner.sever_dead(endpoint);
    }

    fn send(
        &mut self,
        to: B::Endpoint,
        class: MessageClass,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
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
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        if self.refuses(to, self.faults.chunk_busy) {
            return Err(SendError::Busy);
        }
        self.inner.send_chunk(to, stream, len, fill)
    }

    fn ready(&self, from: B::Endpoint) -> bool {
        self.inner.ready(from) && !self.chance.happens(self.faults.ready_false)
    }

    fn has_message(&self, from: B::Endpoint) -> bool {
        self.inner.has_message(from) && !self.chance.happens(self.faults.ready_false)
    }

    fn take_message(&mut self, now: Instant, from: B::Endpoint, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        if self.chance.happens(self.faults.progress_skipped) {
            return 0;
        }
        // Delivers a message at most, and messages are not delayed.
        self.inner.take_message(now, from, sink)
    }

    fn progress(&mut self, now: Instant, budget: u32, sink: &mut impl Sink<B::Endpoint>) -> u32 {
        if self.chance.happens(self.faults.progress_skipped) {
            return 0;
        }
        let mut events = self.report_delayed_sendable(budget, sink);
        events += self.report_late_done(budget - events, sink);
        if !self.late.is_empty() && !self.may_delay_done() {
            return events;
        }
        events += self.inject_error(budget - events, sink);
        let rest = budget - events;
        let rest = if self.chance.happens(self.faults.budget_one) { rest.min(1) } else { rest };
        let may_delay_done = self.may_delay_done();
        let mut delaying = DelayingSink {
            sink,
            endpoints: &mut self.endpoints,
            chance: &self.chance,
            late_sendable: self.faults.late_sendable,
            late_done: if may_delay_done { self.faults.late_done } else { OneIn(0) },
            late: &mut self.late,
            delayed: 0,
        };
        let reported = self.inner.progress(now, rest, &mut delaying);
        events + reported - delaying.delayed
    }

    fn check_peers(&mut self) {
        self.inner.check_peers();
    }

    fn call_helpers(&mut self) {
        self.inner.call_helpers();
    }

    fn is_flushed(&mut self, needs: &mut dyn FnMut(PeerIndex) -> bool) -> bool {
        self.inner.is_flushed(needs)
    }

    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        // No peer wakes this process for callbacks that were delayed here.
        let due =
            self.endpoints.iter().any(|tracked| tracked.report_is_due && tracked.state == State::Connected);
        if due || !self.late.is_empty() || self.chance.happens(self.faults.arm_pending) {
            return Err(EventPending);
        }
        self.inner.arm(wake)
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }
}

impl<B: Rdma> Rdma for FaultInjector<B> {
    fn register(&mut self, with: B::Endpoint, memory: &UserMemory) -> Result<Region, RegisterError> {
        self.inner.register(with, memory)
    }

    fn unregister(&mut self, region: Region, done: Cookie) {
        self.inner.unregister(region, done);
    }

    fn expose(
        &mut self,
        to: B::Endpoint,
        local: Span,
        access: RemoteAccess,
    ) -> Result<(Exposure, RemoteKey), RegisterError> {
        self.inner.expose(to, local, access)
    }

    fn unexpose(&mut self, exposure: Exposure, done: Cookie) {
        self.inner.unexpose(exposure, done);
    }

    fn unexpose_unused(&mut self, exposure: Exposure, done: Cookie) {
        self.inner.unexpose_unused(exposure, done);
    }

    fn import(&mut self, from: B::Endpoint, key: &[u8]) -> Result<Remote, RegisterError> {
        self.inner.import(from, key)
    }

    fn put(
        &mut self,
        to: B::Endpoint,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        if self.refuses(to, self.faults.operation_busy) {
            return Err(SendError::Busy);
        }
        self.inner.put(to, local, remote, remote_offset, done)
    }

    fn get(
        &mut self,
        from: B::Endpoint,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        if self.refuses(from, self.faults.operation_busy) {
            return Err(SendError::Busy);
        }
        self.inner.get(from, local, remote, remote_offset, done)
    }

    fn atomic(
        &mut self,
        to: B::Endpoint,
        operation: Atomic,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        if self.refuses(to, self.faults.operation_busy) {
            return Err(SendError::Busy);
        }
        self.inner.atomic(to, operation, local, remote, remote_offset, done)
    }

    fn flush(&mut self, to: B::Endpoint, done: Cookie) -> Result<(), SendError> {
        if self.refuses(to, self.faults.operation_busy) {
            return Err(SendError::Busy);
        }
        self.inner.flush(to, done)
    }
}

/// Delays some calls of `on_sendable` and `on_done`, and passes all other callbacks on.
struct DelayingSink<'a, S, E> {
    sink: &'a mut S,
    endpoints: &'a mut [Tracked<E>],
    chance: &'a Chance,
    late_sendable: OneIn,
    late_done: OneIn,
    late: &'a mut VecDeque<(Cookie, Result<(), SendError>)>,
    /// Callbacks that the transport counted and that were delayed.
    delayed: u32,
}

impl<S: Sink<E>, E: Copy + Eq> Sink<E> for DelayingSink<'_, S, E> {
    fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
        self.sink.on_message(from, id, header, payload);
    }

    fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
        self.sink.on_chunk(from, stream, payload);
    }

    fn on_done(&mut self, done: Cookie, result: Result<(), SendError>) {
        if self.chance.happens(self.late_done) {
            self.late.push_back((done, result));
            self.delayed += 1;
            return;
        }
        self.sink.on_done(done, result);
    }

    fn on_sendable(&mut self, to: PeerIndex, endpoint: E) {
        let tracked = self.endpoints.iter_mut().find(|tracked| tracked.endpoint == endpoint);
        let Some(tracked) = tracked else { return self.sink.on_sendable(to, endpoint) };
        if tracked.state == State::Connecting {
            tracked.state = State::Connected;
        }
        if tracked.state == State::Connected && self.chance.happens(self.late_sendable) {
            tracked.report_is_due = true;
            self.delayed += 1;
            return;
        }
        tracked.report_is_due = false;
        self.sink.on_sendable(to, endpoint);
    }

    fn on_error(&mut self, peer: PeerIndex, endpoint: E, cause: Cause) {
        self.sink.on_error(peer, endpoint, cause);
    }

    fn on_severed(&mut self, peer: PeerIndex, endpoint: E) {
        self.sink.on_severed(peer, endpoint);
    }
}

impl Chance {
    fn happens(&self, how_often: OneIn) -> bool {
        how_often.0 > 0 && self.random.borrow_mut().once_in(how_often.0)
    }

    fn below(&self, bound: usize) -> usize {
        self.random.borrow_mut().below(bound as u64) as usize
    }
}
