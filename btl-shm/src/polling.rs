// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Adaptive polling: which endpoints are polled, and which ring a doorbell when they send.
//!
//! ```text
//!                the peer rang                     idle, and many are polled: request its bell
//!    Doorbell ────────────────────────▶ Polled ────────────────────────────────────────────────▶ Demoting
//!      ▲                                  ▲   a message arrived: clear the request                 │  │
//!      │                                  └────────────────────────────────────────────────────────┘  │
//!      └── a poll at least 1 ms after our last store to the request or the bell finds nothing ────────┘
//! ```
//!
//! A peer publishes a message and then reads our bell request, without a fence between the two: it may read the
//! request before we store it, while its message becomes visible only after our poll. But no store stays in a store
//! buffer for 1 ms, so a poll that much later sees the message. For the same reason a bell is cleared only while its
//! ring is polled: the clear may still be in our store buffer when the peer rings again.
//!
//! Before sleep all bells are requested and every ring is polled once more. The first sleep lasts at most 1 ms, and
//! the poll after it finds what this race has hidden.
//!
//! A call of progress delivers no more than its budget, so a round over many busy endpoints takes several calls, and `fairness`
//! holds some endpoints back. Control messages and mailbox values must not wait for either: an XOFF that comes late costs memory. While a
//! round is not finished or an endpoint is held back, each call takes them from all endpoints first, for up to half its budget.
//!
//! Every process of the node can write the bell page, and a zero over a bell that was rung loses a wake-up. So
//! the rings of endpoints in doorbell mode are polled too: all of them before sleep and at every timed poll while asleep
//! (a sleep has timed out, and the process is still armed); awake, one of them in each 256th call of progress.

use crate::block_pair::ShmEndpoint;
use crate::endpoint::{ArrivalMode, State};
use crate::{NOBODY, Shm};
use mend_base::{Duration, Instant};
use mend_segment::BellRequest;
use mend_transport::Sink;

/// The state of polling.
#[derive(Debug)]
pub(crate) struct Polling {
    /// Endpoints in poll mode.
    pub(crate) polled: Vec<u32>,
    /// Endpoints in poll mode that are not polled now, because others that wait for room have not had their share
    /// yet: see `fairness`.
    pub(crate) held_back: Vec<u32>,
    /// Successive checks that found an endpoint below its share.
    pub(crate) checks_below_share: u32,
    /// When the first of them was.
    pub(crate) behind_since: Instant,
    /// An endpoint goes back to doorbell mode only while more endpoints than this are polled.
    pub(crate) polled_max: usize,
    /// Bells are requested from all peers: the process sleeps, or is about to.
    pub(crate) armed: bool,
    /// The budget ended the last round before all endpoints were polled.
    round_cut: bool,
    /// `armed`, `round_cut`, some endpoint is held back, or some has unconsumed control messages: one test in each call of
    /// progress.
    pub(crate) unusual: bool,
    /// Where the next round over the polled endpoints begins.
    next: usize,
    /// Where the next round over the control messages begins.
    next_control: usize,
    /// Where the next round over the doorbells begins.
    bell: u32,
    /// The endpoint in doorbell mode whose ring is checked next.
    next_check: usize,
    calls: u32,
    /// The clock for demotion: `now` may be stale, and this must not be.
    clock: std::time::Instant,
}

impl Polling {
    pub(crate) fn new() -> Self {
        Polling {
            polled: Vec::new(),
            held_back: Vec::new(),
            checks_below_share: 0,
            behind_since: Instant(0),
            polled_max: POLLED_MAX,
            armed: false,
            round_cut: false,
            unusual: false,
            next: 0,
            next_control: 0,
            bell: 0,
            next_check: 0,
            calls: 0,
            clock: std::time::Instant::now(),
        }
    }

    /// Calls of progress, modulo 2^32.
    pub(crate) fn calls(&self) -> u32 {
        self.calls
    }

    /// Reads the clock, after every store before it.
    pub(crate) fn clock(&self) -> Instant {
        Instant(u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// To poll this many endpoints costs less than their doorbells would cost them.
const POLLED_MAX: usize = 8;
/// An endpoint that is polled for this long without a message may go back to doorbell mode.
const IDLE: Duration = Duration::from_millis(10);
/// The longest time that a store to a bell request or a bell needs until every processor sees it.
const SETTLED: Duration = Duration::from_millis(1);
/// How many calls of progress lie between two polls of the doorbells.
const CALLS_PER_BELL_CHECK: u32 = 4;
/// How many calls of progress lie between two checks of a ring in doorbell mode, and between two demotions of idle endpoints.
const CALLS_PER_RING_CHECK: u32 = 256;

/// A mutation that a test must detect: bells are cleared although their rings are not polled afterwards.
const STOPS_POLLING: bool = cfg!(mend_mutation = "clear_bell_unpolled");

/// Whether rings in doorbell mode are checked although no bell was rung. Not with a mutation that a test must detect:
/// this check would hide its effect.
const CHECKS_RINGS: bool = !cfg!(any(
    mend_mutation = "clear_bell_unpolled",
    mend_mutation = "no_last_look",
    mend_mutation = "no_settle",
));

impl Shm {
    /// Polls this endpoint from now on.
    #[inline]
    pub(crate) fn promote(&mut self, index: usize) {
        if self.endpoints[index].mode == ArrivalMode::Doorbell {
            self.promote_belled(index);
        }
    }

    #[cold]
    fn promote_belled(&mut self, index: usize) {
        let endpoint = &mut self.endpoints[index];
        endpoint.mode = ArrivalMode::Polled { last_arrival: Instant(0) };
        self.polling.polled.push(index as u32);
        self.statistics.promotions += 1;
        if !self.polling.armed
            && !endpoint.blocked
            && !STOPS_POLLING
            && let State::Open(pair) = &endpoint.state
        {
            pair.mine.set_bell_request(BellRequest::NONE);
        }
    }

    /// Polls this endpoint no more, because it is not open.
    pub(crate) fn stop_polling(&mut self, index: usize) {
        self.endpoints[index].mode = ArrivalMode::Doorbell;
        self.polling.polled.retain(|&each| each as usize != index);
        self.polling.held_back.retain(|&each| each as usize != index);
    }

    // Hot: per call of progress.
    /// Returns the number of events: control messages that must not wait for the round over the polled endpoints.
    #[inline]
    pub(crate) fn answer_some_bells(
        &mut self,
        now: Instant,
        budget: u32,
        sink: &mut impl Sink<ShmEndpoint>,
    ) -> u32 {
        self.polling.calls = self.polling.calls.wrapping_add(1);
        if self.polling.unusual {
            return self.answer_unusual(now, budget, sink);
        }
        if self.polling.calls.is_multiple_of(CALLS_PER_BELL_CHECK) {
            self.answer_while_awake(now);
        }
        0
    }

    #[cold]
    fn answer_unusual(&mut self, now: Instant, budget: u32, sink: &mut impl Sink<ShmEndpoint>) -> u32 {
        if self.polling.armed {
            self.answer_while_armed(now);
        } else if self.polling.calls.is_multiple_of(CALLS_PER_BELL_CHECK) {
            self.answer_while_awake(now);
        }
        let mut events = 0;
        if core::mem::take(&mut self.polling.round_cut) || !self.polling.held_back.is_empty() {
            // With a budget of 1, in every second call.
            events = self.take_control(now, (budget + self.polling.calls % 2) / 2, sink);
        }
        if !self.unconsumed.is_empty() {
            self.check_unconsumed();
        }
        self.polling.unusual =
            self.polling.armed || !self.polling.held_back.is_empty() || !self.unconsumed.is_empty();
        events
    }

    /// Delivers control messages and mailbox values of all endpoints in poll mode, also of those that are held back, from where the last
    /// call ended.
    fn take_control(&mut self, now: Instant, budget: u32, sink: &mut impl Sink<ShmEndpoint>) -> u32 {
        let mut events = 0;
        for _ in 0..self.polled() {
            if events == budget {
                break;
            }
            // An endpoint that wrote garbage is polled no more.
            let polled = self.polling.polled.len();
            if self.polling.next_control >= self.polled() {
                self.polling.next_control = 0;
            }
            let at = self.polling.next_control;
            let Some(&index) =
                self.polling.polled.get(at).or_else(|| self.polling.held_back.get(at - polled))
            else {
                break;
            };
            self.polling.next_control += 1;
            match self.endpoints[index as usize].take_control(budget - events, sink) {
                Ok((0, _)) => {}
                Ok((some, must_ring)) => {
                    events += some;
                    self.note_control(index as usize, at < polled, now, must_ring);
                }
                Err(_) => self.found_garbage(index as usize),
            }
        }
        events
    }

    fn note_control(&mut self, index: usize, is_polled: bool, now: Instant, must_ring: bool) {
        if is_polled {
            self.note_arrival(index, now, must_ring);
        } else if must_ring {
            // The arrival does not change the mode of an endpoint that is held back; only its bell is rung, for credit.
            self.ring_bell(index);
        }
    }

    /// The timed poll while asleep.
    #[cold]
    fn answer_while_armed(&mut self, now: Instant) {
        self.share_fairly_while_armed(now);
        self.check_all_rings();
        self.answer_bells(self.node.slots);
    }

    // Hot: every few calls of progress.
    fn answer_while_awake(&mut self, now: Instant) {
        if self.polling.calls.is_multiple_of(CALLS_PER_RING_CHECK) {
            self.check_one_ring();
            self.demote_idle(now);
        }
        if self.node.bells.is_any_rung(self.node.slot) {
            self.answer_bells(self.node.slots);
        }
        if !self.waiting.is_empty() {
            self.clear_waits_for_room();
        }
        if self.polling.polled.len() > 1 || !self.polling.held_back.is_empty() {
            self.share_fairly(now);
        }
    }

    // Hot: every few calls of progress.
    pub(crate) fn answer_bells(&mut self, mut polls: u32) {
        let (me, slots) = (self.node.slot, self.node.slots);
        while polls > 0 {
            let first = self.polling.bell;
            let Some(sender) = self.node.bells.next_rung(me, first, polls) else {
                self.polling.bell = (first + polls) % slots;
                return;
            };
            polls -= ((sender + slots - first) % slots + 1).min(polls);
            self.polling.bell = (sender + 1) % slots;
            self.answer_bell(sender);
        }
    }

    #[cold]
    fn answer_bell(&mut self, sender: u32) {
        let index = self.by_slot[sender as usize];
        // The peer is not connected or not open: its bell stays rung until it is.
        if index == NOBODY || !matches!(self.endpoints[index as usize].state, State::Open(_)) {
            return;
        }
        self.promote(index as usize);
        self.node.bells.clear(self.node.slot, sender);
        if let ArrivalMode::Demoting { since } = &mut self.endpoints[index as usize].mode {
            *since = self.polling.clock();
        }
    }

    /// Checks every ring in doorbell mode: its bell may have been overwritten.
    #[cold]
    pub(crate) fn check_all_rings(&mut self) {
        for index in 0..self.endpoints.len() {
            self.check_ring(index);
        }
    }

    /// Checks one ring in doorbell mode, round robin: for a process that never sleeps.
    #[cold]
    fn check_one_ring(&mut self) {
        if self.polling.next_check >= self.endpoints.len() {
            self.polling.next_check = 0;
        }
        if self.polling.next_check < self.endpoints.len() {
            self.check_ring(self.polling.next_check);
            self.polling.next_check += 1;
        }
    }

    fn check_ring(&mut self, index: usize) {
        if self.endpoints[index].give_overdue_credit() {
            self.ring_bell(index);
        }
        let endpoint = &self.endpoints[index];
        if CHECKS_RINGS && endpoint.mode == ArrivalMode::Doorbell && endpoint.is_ready() {
            self.promote(index);
        }
    }

    // Hot: per call of progress.
    /// One round over the polled endpoints, from where the last one ended.
    pub(crate) fn visit_polled(
        &mut self,
        now: Instant,
        budget: u32,
        sink: &mut impl Sink<ShmEndpoint>,
    ) -> u32 {
        let mut events = 0;
        for _ in 0..self.polling.polled.len() {
            if events == budget {
                (self.polling.round_cut, self.polling.unusual) = (true, true);
                break;
            }
            if self.polling.next >= self.polling.polled.len() {
                self.polling.next = 0;
            }
            let index = self.polling.polled[self.polling.next] as usize;
            self.polling.next += 1;
            match self.endpoints[index].take_some(budget - events, sink) {
                Ok((0, _)) => {}
                Ok((some, must_ring)) => {
                    events += some;
                    self.note_arrival(index, now, must_ring);
                }
                Err(_) => self.found_garbage(index),
            }
        }
        if STOPS_POLLING {
            self.demote_without_poll();
        }
        events
    }

    // Hot: per message.
    /// Delivers the message at the head of one endpoint's ring, if there is one.
    #[inline(always)]
    pub(crate) fn take_one(&mut self, index: usize, now: Instant, sink: &mut impl Sink<ShmEndpoint>) -> u32 {
        match self.endpoints[index].take_message(sink) {
            Ok(None) => 0,
            Ok(Some(must_ring)) => {
                self.promote(index);
                self.note_arrival(index, now, must_ring);
                1
            }
            Err(_) => {
                self.found_garbage(index);
                0
            }
        }
    }

    // Hot: per message.
    #[inline]
    fn note_arrival(&mut self, index: usize, now: Instant, must_ring: bool) {
        let endpoint = &mut self.endpoints[index];
        if let ArrivalMode::Demoting { .. } = endpoint.mode
            && !self.polling.armed
            && !endpoint.blocked
            && let State::Open(pair) = &endpoint.state
        {
            pair.mine.set_bell_request(BellRequest::NONE);
        }
        endpoint.mode = ArrivalMode::Polled { last_arrival: now };
        if self.polling.armed && !self.node.bells.is_rung(self.node.slot, endpoint.slot) {
            self.statistics.found_without_bell += 1;
        }
        if must_ring {
            self.ring_bell(index);
        }
    }

    /// The mutation: bells were cleared, and their rings are not polled any more.
    #[cold]
    fn demote_without_poll(&mut self) {
        for index in core::mem::take(&mut self.polling.polled) {
            self.endpoints[index as usize].mode = ArrivalMode::Doorbell;
        }
    }

    /// Moves idle endpoints one step towards doorbell mode.
    #[cold]
    fn demote_idle(&mut self, now: Instant) {
        if self.polling.polled.len() <= self.polling.polled_max {
            return;
        }
        let clock = self.polling.clock();
        let mut at = 0;
        while at < self.polling.polled.len() {
            let index = self.polling.polled[at] as usize;
            let endpoint = &mut self.endpoints[index];
            match endpoint.mode {
                ArrivalMode::Polled { last_arrival } if now - last_arrival > IDLE => {
                    endpoint.request_bells();
                    endpoint.mode = ArrivalMode::Demoting { since: self.polling.clock() };
                }
                // The clock was read before this poll.
                ArrivalMode::Demoting { since } if clock - since >= SETTLED && !endpoint.is_ready() => {
                    endpoint.mode = ArrivalMode::Doorbell;
                    self.polling.polled.swap_remove(at);
                    self.statistics.demotions += 1;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Shm;
    use crate::endpoint::ArrivalMode;
    use crate::pair::{Delivered, pair, receive_one, send_one, star};
    use mend_base::Instant;
    use mend_transport::{AmId, Btl, MessageClass, WakeSet};

    const LATER: Instant = Instant(1_000_000_000);

    #[test]
    fn a_peer_rings_once_then_is_polled_and_rings_again_after_it_was_idle() {
        let ([mut sender, mut receiver], endpoint) = pair();
        let mut delivered = Delivered::default();
        to_bells(&mut receiver, &mut delivered);
        send_one(&mut sender, endpoint);
        assert_eq!(sender.statistics().bells_rung, 1, "a peer that has long been silent is not polled");
        receive_one(&mut receiver, &mut delivered);
        (0..10).for_each(|_| {
            send_one(&mut sender, endpoint);
            receive_one(&mut receiver, &mut delivered);
        });
        assert_eq!(
            (sender.statistics().bells_rung, receiver.polled()),
            (1, 1),
            "a peer that is polled does not ring"
        );
        receiver.set_polled_max(0);
        while receiver.polled() > 0 {
            receiver.progress(LATER, 100, &mut delivered);
        }
        send_one(&mut sender, endpoint);
        assert_eq!((sender.statistics().bells_rung, receiver.statistics().demotions), (2, 2));
        receive_one(&mut receiver, &mut delivered);
        assert_eq!(delivered.messages.len(), 12);
    }

    #[test]
    fn a_message_that_arrives_while_demoting_clears_the_bell_request() {
        let ([mut sender, mut receiver], endpoint) = pair();
        let mut delivered = Delivered::default();
        receiver.set_polled_max(0);
        while !matches!(receiver.endpoints[0].mode, ArrivalMode::Demoting { .. }) {
            receiver.progress(LATER, 100, &mut delivered);
        }
        send_one(&mut sender, endpoint);
        assert_eq!(sender.statistics().bells_rung, 1);
        receive_one(&mut receiver, &mut delivered);
        assert!(matches!(receiver.endpoints[0].mode, ArrivalMode::Polled { .. }));
        send_one(&mut sender, endpoint);
        assert_eq!(sender.statistics().bells_rung, 1);
    }

    /// Sends a message, and then a corrupted process overwrites the bell with a zero.
    fn send_without_bell(sender: &mut Shm, endpoint: crate::ShmEndpoint) {
        let rings = sender.statistics().bells_rung;
        send_one(sender, endpoint);
        assert_eq!(sender.statistics().bells_rung, rings + 1);
        sender.node.bells.clear(1, 0);
    }

    fn to_bells(receiver: &mut Shm, delivered: &mut Delivered) {
        receiver.set_polled_max(0);
        while receiver.polled() > 0 {
            receiver.progress(LATER, 100, delivered);
        }
    }

    #[test]
    fn control_messages_do_not_wait_for_the_data_of_more_senders_than_a_budget_serves() {
        const SENDERS: u32 = 100;
        let (mut receiver, mut senders, endpoint) = star(SENDERS + 1);
        let mut delivered = Delivered::default();
        for budget in [1, 16, 64] {
            for call in 0..1000 {
                for sender in &mut senders {
                    while sender
                        .send(endpoint, MessageClass::Data, AmId(1), b"", 1, |mut slot| slot.put(&[1]))
                        .is_ok()
                    {}
                    sender.progress(Instant(0), 64, &mut Delivered::default());
                }
                if call == 500 {
                    for sender in &mut senders {
                        sender
                            .send(endpoint, MessageClass::Control, AmId(2), b"", 1, |mut s| s.put(&[2]))
                            .unwrap();
                    }
                    delivered.messages.clear();
                }
                receiver.progress(Instant(0), budget, &mut delivered);
                let control = delivered.messages.iter().filter(|message| message[0] == 2).count();
                if call >= 500 && control == SENDERS as usize {
                    let calls = call - 500 + 1;
                    assert!(calls <= SENDERS * 2 / budget + 2, "{calls} calls with a budget of {budget}");
                    break;
                }
                assert!(call < 999, "{control} control messages with a budget of {budget}");
            }
            let data = delivered.messages.iter().filter(|message| message[0] == 1).count();
            assert!(data >= SENDERS as usize / 2, "{data} messages with a budget of {budget}");
        }
    }

    #[test]
    fn an_overwritten_bell_is_found_before_sleep() {
        let ([mut sender, mut receiver], endpoint) = pair();
        let mut delivered = Delivered::default();
        to_bells(&mut receiver, &mut delivered);
        send_without_bell(&mut sender, endpoint);
        assert!(receiver.arm(&mut WakeSet::default()).is_err());
        receiver.progress(LATER, 100, &mut delivered);
        assert_eq!(delivered.messages.len(), 1);
    }

    #[test]
    fn an_overwritten_bell_is_found_at_the_next_timed_check() {
        let ([mut sender, mut receiver], endpoint) = pair();
        let mut delivered = Delivered::default();
        to_bells(&mut receiver, &mut delivered);
        assert_eq!(receiver.arm(&mut WakeSet::default()), Ok(()));
        send_without_bell(&mut sender, endpoint);
        receiver.progress(LATER, 100, &mut delivered);
        assert_eq!(delivered.messages.len(), 1);
    }

    #[test]
    fn an_overwritten_bell_is_found_by_a_process_that_never_sleeps() {
        let ([mut sender, mut receiver], endpoint) = pair();
        let mut delivered = Delivered::default();
        to_bells(&mut receiver, &mut delivered);
        send_without_bell(&mut sender, endpoint);
        (0..super::CALLS_PER_RING_CHECK).for_each(|_| _ = receiver.progress(LATER, 100, &mut delivered));
        assert_eq!(delivered.messages.len(), 1);
    }
}
