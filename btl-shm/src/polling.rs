// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AbortScope we look at, and who has to ring (design "Shared memory").
//!
//! ```text
//!             it rang                                      idle, and many are polled: wish for its bell
//!    Belled ─────────────────────────────────▶ Polled ────────────────────────────────────────────▶ Demoting
//!      ▲                                          ▲   it sent something: take the wish back            │  │
//!      │                                          └────────────────────────────────────────────────────┘  │
//!      └── a look at least 1 ms after our last store to the wish or the bell finds nothing ───────────────┘
//! ```
//!
//! A peer publishes and then reads our wish, without a fence: its read may come before our store and its slot be visible
//! only later. But no store sits in a store buffer for 1 ms, so a look that much later sees the slot. For the same reason
//! a bell is cleared only while its ring is polled: the clear may sit in our store buffer while the peer rings again.
//!
//! Before sleep all wishes are written, then everything is looked at once more; the first sleep lasts 1 ms at most, and
//! the look after it settles the race.
//!
//! Any process of the node can write a bell, and a zero over one that rang is a message of which nobody hears. So the rings
//! of belled endpoints are looked at too, though seldom: all of them before sleep and in every look while armed, one of
//! them every few hundred turns otherwise.

use crate::endpoint::State;
use crate::{NOBODY, Report, Shm, ShmEndpoint};
use mend_base::{Duration, Instant};
use mend_segment::Wish;
use mend_transport::{Cause, Pending, Sink};
use std::sync::atomic::{Ordering, fence};

/// How one endpoint's arrivals are noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Watch {
    /// It rings.
    Belled,
    /// We look; it was last heard at that time.
    Polled { heard: Instant },
    /// We look, and it has been asked to ring; by our own clock, since then nothing was stored to wish or bell.
    Demoting { since: Instant },
}

/// AbortScope we look at.
#[derive(Debug)]
pub(crate) struct Polling {
    /// Endpoints whose rings we look at.
    pub(crate) polled: Vec<u32>,
    /// Endpoints that are polled, but not now: they are ahead of others that wait for room, see `fairness`.
    pub(crate) held_back: Vec<u32>,
    /// How often in a row somebody was found to be behind.
    pub(crate) checks_behind: u32,
    /// So many may be polled without asking the idle ones to ring.
    pub(crate) always: usize,
    /// Wishes are out for everybody: we sleep, or are about to.
    pub(crate) armed: bool,
    /// Where the next round of looks begins.
    next: usize,
    /// Where the next look at the bells begins.
    bell: u32,
    /// The endpoint whose ring was looked at last though it was to ring.
    doubted: usize,
    turns: u32,
    /// For demotion alone: `now` may be stale, and this may not.
    clock: std::time::Instant,
}

impl Polling {
    pub(crate) fn new() -> Self {
        Polling {
            polled: Vec::new(),
            held_back: Vec::new(),
            checks_behind: 0,
            always: ALWAYS,
            armed: false,
            next: 0,
            bell: 0,
            doubted: 0,
            turns: 0,
            clock: std::time::Instant::now(),
        }
    }

    /// Counts, and wraps.
    pub(crate) fn turns(&self) -> u32 {
        self.turns
    }

    /// Reads the clock, after every store that came before.
    fn clock(&self) -> Instant {
        Instant(u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// So many polled peers cost less to look at than their bells would cost them.
const ALWAYS: usize = 8;
/// Polled peers that were not heard for this long may be asked to ring.
const IDLE: Duration = Duration::from_millis(10);
/// What a store to a wish or a bell needs at most to be visible to everybody.
const SETTLED: Duration = Duration::from_millis(1);
/// Bells are looked at every so many turns.
const BELL_TURNS: u32 = 4;
/// Demotion is thought about every so many turns.
const TEND_TURNS: u32 = 256;

/// A mutation that a test of the race must find: bells are cleared, and their rings not polled afterwards.
const UNPOLLED: bool = cfg!(mend_mutation = "clear_bell_unpolled");

/// Rings are looked at although no bell says so. Not where a test must find a mutation of the race: what such a look repairs
/// is just what the mutation breaks.
const DOUBTS: bool = !cfg!(any(
    mend_mutation = "clear_bell_unpolled",
    mend_mutation = "no_last_look",
    mend_mutation = "no_settle",
));

impl Shm {
    /// Looks at this endpoint from now on.
    #[inline]
    pub(crate) fn promote(&mut self, index: usize) {
        if self.endpoints[index].watch == Watch::Belled {
            self.promote_belled(index);
        }
    }

    #[cold]
    fn promote_belled(&mut self, index: usize) {
        let endpoint = &mut self.endpoints[index];
        endpoint.watch = Watch::Polled { heard: Instant(0) };
        self.polling.polled.push(index as u32);
        self.statistics.promotions += 1;
        if !self.polling.armed
            && !endpoint.blocked
            && !UNPOLLED
            && let State::Open(link) = &endpoint.state
        {
            link.mine.set_wish(Wish::NOTHING);
        }
    }

    /// Looks at it no more: it is not open.
    pub(crate) fn unwatch(&mut self, index: usize) {
        self.endpoints[index].watch = Watch::Belled;
        self.polling.polled.retain(|&each| each as usize != index);
        self.polling.held_back.retain(|&each| each as usize != index);
    }

    // Hot: per turn.
    #[inline]
    pub(crate) fn answer_some_bells(&mut self, now: Instant) {
        self.polling.turns = self.polling.turns.wrapping_add(1);
        if self.polling.armed {
            self.answer_while_armed();
        } else if self.polling.turns.is_multiple_of(BELL_TURNS) {
            self.answer_while_awake(now);
        }
    }

    #[cold]
    fn answer_while_armed(&mut self) {
        self.share_fairly_while_armed();
        self.doubt_all_bells();
        self.answer_bells(self.place.slots);
    }

    // Hot: every few turns.
    fn answer_while_awake(&mut self, now: Instant) {
        if self.polling.turns.is_multiple_of(TEND_TURNS) {
            self.doubt_a_bell();
            self.demote_idle(now);
        }
        if self.place.bells.is_any_rung(self.place.slot) {
            self.answer_bells(self.place.slots);
        }
        if !self.waiting.is_empty() {
            self.say_who_waits_no_more();
        }
        if self.polled() > 1 {
            self.share_fairly();
        }
    }

    // Hot: every few turns.
    fn answer_bells(&mut self, mut looks: u32) {
        let (me, slots) = (self.place.slot, self.place.slots);
        while looks > 0 {
            let first = self.polling.bell;
            let Some(sender) = self.place.bells.next_rung(me, first, looks) else {
                self.polling.bell = (first + looks) % slots;
                return;
            };
            looks -= ((sender + slots - first) % slots + 1).min(looks);
            self.polling.bell = (sender + 1) % slots;
            self.answer_bell(sender);
        }
    }

    #[cold]
    fn answer_bell(&mut self, sender: u32) {
        let index = self.by_slot[sender as usize];
        // Somebody we do not know yet, or are not to listen to: its bell stays until we do.
        if index == NOBODY || !matches!(self.endpoints[index as usize].state, State::Open(_)) {
            return;
        }
        self.promote(index as usize);
        self.place.bells.clear(self.place.slot, sender);
        if let Watch::Demoting { since } = &mut self.endpoints[index as usize].watch {
            *since = self.polling.clock();
        }
    }

    /// Looks at every ring whose bell might have been written over.
    #[cold]
    fn doubt_all_bells(&mut self) {
        for index in 0..self.endpoints.len() {
            self.doubt(index);
        }
    }

    /// The same for one of them, in a round: for who never sleeps.
    #[cold]
    fn doubt_a_bell(&mut self) {
        if self.polling.doubted >= self.endpoints.len() {
            self.polling.doubted = 0;
        }
        if self.polling.doubted < self.endpoints.len() {
            self.doubt(self.polling.doubted);
            self.polling.doubted += 1;
        }
    }

    fn doubt(&mut self, index: usize) {
        if self.endpoints[index].give_overdue_credit() {
            self.ring(index);
        }
        let endpoint = &self.endpoints[index];
        if DOUBTS && endpoint.watch == Watch::Belled && endpoint.is_ready() {
            self.promote(index);
        }
    }

    // Hot: per turn.
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
                break;
            }
            if self.polling.next >= self.polling.polled.len() {
                self.polling.next = 0;
            }
            let index = self.polling.polled[self.polling.next] as usize;
            self.polling.next += 1;
            match self.endpoints[index].look(budget - events, sink) {
                Ok((0, _)) => {}
                Ok((some, ring)) => {
                    events += some;
                    self.heard(index, now, ring);
                }
                Err(_) => self.found_garbage(index),
            }
        }
        if UNPOLLED {
            self.demote_at_once();
        }
        events
    }

    // Hot: per message.
    /// The message at the head of one endpoint's ring, if one is there.
    #[inline(always)]
    pub(crate) fn visit_for_one(
        &mut self,
        index: usize,
        now: Instant,
        sink: &mut impl Sink<ShmEndpoint>,
    ) -> u32 {
        match self.endpoints[index].take_message(sink) {
            Ok(None) => 0,
            Ok(Some(ring)) => {
                self.promote(index);
                self.heard(index, now, ring);
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
    fn heard(&mut self, index: usize, now: Instant, ring: bool) {
        let endpoint = &mut self.endpoints[index];
        if let Watch::Demoting { .. } = endpoint.watch
            && !self.polling.armed
            && !endpoint.blocked
            && let State::Open(link) = &endpoint.state
        {
            link.mine.set_wish(Wish::NOTHING);
        }
        endpoint.watch = Watch::Polled { heard: now };
        if self.polling.armed && !self.place.bells.is_rung(self.place.slot, endpoint.slot) {
            self.statistics.unrung += 1;
        }
        if ring {
            self.ring(index);
        }
    }

    /// What must not be done: the bell was cleared, and the ring is polled no more.
    #[cold]
    fn demote_at_once(&mut self) {
        for index in core::mem::take(&mut self.polling.polled) {
            self.endpoints[index as usize].watch = Watch::Belled;
        }
    }

    /// Moves idle endpoints one step towards their bells.
    #[cold]
    fn demote_idle(&mut self, now: Instant) {
        if self.polling.polled.len() <= self.polling.always {
            return;
        }
        let clock = self.polling.clock();
        let mut at = 0;
        while at < self.polling.polled.len() {
            let index = self.polling.polled[at] as usize;
            let endpoint = &mut self.endpoints[index];
            match endpoint.watch {
                Watch::Polled { heard } if now - heard > IDLE => {
                    endpoint.wish_for_bells();
                    endpoint.watch = Watch::Demoting { since: self.polling.clock() };
                }
                // The clock was read before this look.
                Watch::Demoting { since } if clock - since >= SETTLED && !endpoint.is_ready() => {
                    endpoint.watch = Watch::Belled;
                    self.polling.polled.swap_remove(at);
                    self.statistics.demotions += 1;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// What no correct peer writes: said once, and nothing more of it is read.
    #[cold]
    pub(crate) fn found_garbage(&mut self, index: usize) {
        self.unwatch(index);
        let endpoint = &mut self.endpoints[index];
        endpoint.suspect_credit = false;
        match core::mem::replace(&mut endpoint.state, State::Severed) {
            State::Open(link) => endpoint.state = State::Garbled(link),
            other => {
                endpoint.state = other;
                return;
            }
        }
        self.reports.push_back((ShmEndpoint(index as u32), Report::Error(Cause::Garbage)));
    }

    /// Writes every wish, then looks at everything.
    #[cold]
    pub(crate) fn prepare_to_sleep(&mut self) -> Result<(), Pending> {
        self.polling.armed = true;
        self.say_who_waits_no_more();
        for &index in self.polling.polled.iter().chain(&self.blocked) {
            self.endpoints[index as usize].wish_for_bells();
        }
        // SYNC: our wishes before our looks, with no other side: what the peers publish after reading no wish is
        // seen by the looks, but for what sits in their store buffers (a timed look sees that).
        fence(Ordering::SeqCst);
        self.answer_bells(self.place.slots);
        if cfg!(mend_mutation = "no_last_look") {
            return Ok(());
        }
        self.doubt_all_bells();
        let arrived = self.polling.polled.iter().any(|&index| self.endpoints[index as usize].is_ready());
        if arrived || !self.reports.is_empty() || !self.severing.is_empty() || self.is_roomy() {
            return Err(Pending);
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn take_wishes_back(&mut self) {
        self.polling.armed = false;
        for &index in &self.polling.polled {
            let endpoint = &self.endpoints[index as usize];
            if let (State::Open(link), Watch::Polled { .. }) = (&endpoint.state, endpoint.watch) {
                link.mine.set_wish(Wish::NOTHING);
            }
        }
        for &index in &self.blocked {
            let endpoint = &self.endpoints[index as usize];
            if let (State::Open(link), Watch::Belled) = (&endpoint.state, endpoint.watch) {
                link.mine.set_wish(Wish::MESSAGES);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Watch;
    use crate::Shm;
    use crate::pair::{Heard, pair};
    use mend_base::Instant;
    use mend_transport::{AmId, Btl, Class, WakeSet};

    const LATER: Instant = Instant(1_000_000_000);

    fn say(sender: &mut Shm, way: crate::ShmEndpoint) {
        sender.send(way, Class::Data, AmId(1), b"", 1, |mut slot| slot.put(&[1])).unwrap();
    }

    fn hear(receiver: &mut Shm, heard: &mut Heard) {
        let before = heard.messages.len();
        while heard.messages.len() == before {
            receiver.progress(Instant(0), 100, heard);
        }
    }

    #[test]
    fn a_peer_rings_once_then_is_polled_and_rings_again_after_it_was_idle() {
        let ([mut sender, mut receiver], way) = pair();
        let mut heard = Heard::default();
        to_bells(&mut receiver, &mut heard);
        say(&mut sender, way);
        assert_eq!(sender.statistics().rings, 1, "nobody polls a peer that has long been silent");
        hear(&mut receiver, &mut heard);
        (0..10).for_each(|_| {
            say(&mut sender, way);
            hear(&mut receiver, &mut heard);
        });
        assert_eq!((sender.statistics().rings, receiver.polled()), (1, 1), "who is polled does not ring");
        receiver.poll_always(0);
        while receiver.polled() > 0 {
            receiver.progress(LATER, 100, &mut heard);
        }
        say(&mut sender, way);
        assert_eq!((sender.statistics().rings, receiver.statistics().demotions), (2, 2));
        hear(&mut receiver, &mut heard);
        assert_eq!(heard.messages.len(), 12);
    }

    #[test]
    fn what_arrives_while_demoting_takes_the_wish_back() {
        let ([mut sender, mut receiver], way) = pair();
        let mut heard = Heard::default();
        receiver.poll_always(0);
        while !matches!(receiver.endpoints[0].watch, Watch::Demoting { .. }) {
            receiver.progress(LATER, 100, &mut heard);
        }
        say(&mut sender, way);
        assert_eq!(sender.statistics().rings, 1);
        hear(&mut receiver, &mut heard);
        assert!(matches!(receiver.endpoints[0].watch, Watch::Polled { .. }));
        say(&mut sender, way);
        assert_eq!(sender.statistics().rings, 1);
    }

    /// Says something, and has a vandal write a zero over the bell.
    fn say_unheard(sender: &mut Shm, way: crate::ShmEndpoint) {
        let rings = sender.statistics().rings;
        say(sender, way);
        assert_eq!(sender.statistics().rings, rings + 1);
        sender.place.bells.clear(1, 0);
    }

    fn to_bells(receiver: &mut Shm, heard: &mut Heard) {
        receiver.poll_always(0);
        while receiver.polled() > 0 {
            receiver.progress(LATER, 100, heard);
        }
    }

    #[test]
    fn a_zero_over_a_bell_is_found_before_sleep() {
        let ([mut sender, mut receiver], way) = pair();
        let mut heard = Heard::default();
        to_bells(&mut receiver, &mut heard);
        say_unheard(&mut sender, way);
        assert!(receiver.arm(&mut WakeSet::default()).is_err());
        receiver.progress(LATER, 100, &mut heard);
        assert_eq!(heard.messages.len(), 1);
    }

    #[test]
    fn a_zero_over_a_bell_is_found_by_the_next_timed_look() {
        let ([mut sender, mut receiver], way) = pair();
        let mut heard = Heard::default();
        to_bells(&mut receiver, &mut heard);
        assert_eq!(receiver.arm(&mut WakeSet::default()), Ok(()));
        say_unheard(&mut sender, way);
        receiver.progress(LATER, 100, &mut heard);
        assert_eq!(heard.messages.len(), 1);
    }

    #[test]
    fn a_zero_over_a_bell_is_found_by_who_never_sleeps() {
        let ([mut sender, mut receiver], way) = pair();
        let mut heard = Heard::default();
        to_bells(&mut receiver, &mut heard);
        say_unheard(&mut sender, way);
        (0..super::TEND_TURNS).for_each(|_| _ = receiver.progress(LATER, 100, &mut heard));
        assert_eq!(heard.messages.len(), 1);
    }

    #[test]
    fn sleepers_are_rung_and_who_is_awake_again_is_not() {
        let ([mut sender, mut receiver], way) = pair();
        let mut heard = Heard::default();
        receiver.progress(Instant(0), 100, &mut heard);
        assert_eq!(receiver.arm(&mut WakeSet::default()), Ok(()));
        say(&mut sender, way);
        assert_eq!(sender.statistics().rings, 1);
        assert!(receiver.arm(&mut WakeSet::default()).is_err(), "there is something");
        receiver.disarm();
        hear(&mut receiver, &mut heard);
        say(&mut sender, way);
        assert_eq!(sender.statistics().rings, 1);
    }
}
