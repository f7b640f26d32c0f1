// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Failure detector: a ring of heartbeats, in which each member is observed by the next ones that are present.
//!
//! ```text
//!                silence ≥ timeout               failure published
//!   observing p ───────────────────▶ suspect p ────────────────────▶ observing p′, to which we send Observe
//!      ▲   ▲      a beat of p            │
//!      │   └─────────────────────────────┘
//!      │                                 │ with a lease: silence ≥ span + margin
//!      │ no way back: beats of p         ▼
//!      └──────── are ignored ──────── expired p: p fenced itself before, or is dead
//! ```
//!
//! A member sends a beat every `period` (η in the paper) to the members that observe it, and is suspected after `timeout` (δ) of silence.
//! A suspicion decides nothing: its owner asks an authority, such as a node daemon. A member that is newly observed has 2δ, since
//! `Observe` must reach it first.
//!
//! **Lease**: where there is no authority that can look at the member, time decides, and the observed member takes part. Each beat says
//! when it was sent, on the sender's clock, and the observer confirms it; a member that has no confirmation of a beat younger than
//! `span` fences itself: it ends at once, and acts on nothing any more. An observer declares a member only after
//! `span + margin` of silence. Let s be the time of the youngest confirmed beat of p: p's lease ends at s + span. A round of beats
//! goes to all observers of p in one call, so an observer o has heard p at s or later, or p has died in that call, or the beat is in flight. In the last
//! case p was silent for more than span + margin - delay before s, and would have fenced itself instead of sending. So o declares p
//! at s + span + margin or later. The margin must exceed the delay of a message and the drift of two clocks in a span. A
//! stopped process cannot fence itself, but its lease has ended, and the first thing that it does when it goes on is to fence
//! itself, before it handles a message; until then it does nothing.
//!
//! Several observers (`Config::observers`) keep a member's lease when one of them dies or stops: only if all of them are silent for
//! a span does a living member fence itself. This assumes that messages between members that run arrive; in a partition
//! both sides would fence or declare each other, which is decided where daemons of several hosts do this (X-1.12).
//!
//! A member that was late itself, because it was stopped or had no processor, suspects nobody at once: beats wait in its queue.
//!
//! Spreading the news is not done here; see [`spread`](crate::spread).
//!
//! Bosilca, Bouteiller, Guermouche, Herault, Robert, Sens, Dongarra, "Failure Detection and Propagation in HPC Systems", SC'16,
//! doi:10.1109/SC.2016.26: one observer, no lease.

use crate::protocol;
use crate::ranks::Ranks;
use mend_base::{Duration, Instant, Rank, Reader, Writer};

/// What is to be done: messages for other members, and what the owner must know.
pub type Output = protocol::Output<Message, Outcome>;

/// One member's part: it sends beats to its observers, and listens to the members that it observes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Detector {
    me: Rank,
    size: u32,
    config: Config,
    /// Only what is not as at the start takes memory: those that failed or quit, not all members.
    absent: Ranks,
    phase: Phase,
}

/// How often to beat, and how long to wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// The time between two beats.
    pub period: Duration,
    /// Silence after which a member is suspected: several periods, so that a delay does not look like a death.
    pub timeout: Duration,
    /// How many members observe each member: so many may fail together without the loss of a lease, less one.
    pub observers: u32,
    /// `None`: an authority decides about those that are suspected.
    pub lease: Option<Lease>,
}

/// When a member that nobody hears fences itself, and when it is declared failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lease {
    /// A member may act for so long after it sent the last beat that was confirmed. At least twice the timeout, so that the observers
    /// that take over are known before it ends.
    pub span: Duration,
    /// How much longer an observer waits. More than the delay of a message and the drift of two clocks in a span.
    pub margin: Duration,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Member(Ring),
    /// It quit, or fenced itself: it does nothing any more.
    Ended,
}

/// The relations of a member to others.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Ring {
    /// The members that listen to this one.
    observers: Vec<Rank>,
    observed: Vec<Observed>,
    beat_at: Instant,
    /// When the youngest beat was sent that an observer has confirmed.
    confirmed: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Observed {
    rank: Rank,
    state: Silence,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Silence {
    /// Its last beat came at `heard`.
    Since { heard: Instant, suspect_at: Instant },
    /// It is declared: its beats count no more, and extend no lease.
    Expired,
}

/// What members tell each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// I am alive; I sent this at that time of my clock.
    Beat(Instant),
    /// Your beat of that time of your clock has arrived.
    Confirm(Instant),
    /// I observe you now: beat to me.
    Observe,
    /// I leave MPI: this is no failure.
    Quit,
}

/// What the owner must know.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The member is silent; it may be alive: ask. Comes again after each timeout of silence.
    Suspect(Rank),
    /// The lease of the member is over: it does nothing any more, and may be declared failed. Comes once.
    Expired(Rank),
    /// This process must end at once: others have declared it failed, or may do so.
    Fence,
}

impl Detector {
    /// The part of member `me` of `size` members, which are all made at about the same time (within the timeout).
    pub fn new(now: Instant, me: Rank, size: u32, config: Config) -> Self {
        assert!(me.0 < size && config.observers > 0 && config.period < config.timeout);
        let is_long = |lease: Lease| lease.span >= config.timeout + config.timeout;
        assert!(config.lease.is_none_or(is_long), "a lease is at least twice the timeout");
        let absent = Ranks::new();
        let nearest = |way| nearest(me, size, config.observers, way, &absent);
        let grace = now + config.timeout + config.timeout;
        let state = Silence::Since { heard: now, suspect_at: grace };
        let observed = nearest(Way::Before).map(|rank| Observed { rank, state }).collect();
        let observers = nearest(Way::After).collect();
        let phase = Phase::Member(Ring { observers, observed, beat_at: now, confirmed: now });
        Detector { me, size, config, absent, phase }
    }

    /// A message has arrived.
    pub fn on_message(&mut self, now: Instant, from: Rank, message: Message, out: &mut Output) {
        if self.fences(now, out) || self.absent.contains(from) {
            return;
        }
        let timeout = self.config.timeout;
        let Phase::Member(ring) = &mut self.phase else { return };
        match message {
            Message::Beat(sent) => {
                // A beat from another member is from one that does not know yet whom it beats to.
                let observed = ring.observed.iter_mut().find(|observed| observed.rank == from);
                if let Some(Observed { state: Silence::Since { heard, suspect_at }, .. }) = observed {
                    (*heard, *suspect_at) = (now, now + timeout);
                    if self.config.lease.is_some() {
                        out.send(from, Message::Confirm(sent));
                    }
                }
            }
            Message::Confirm(sent) if ring.observers.contains(&from) && sent <= now => {
                ring.confirmed = ring.confirmed.max(sent);
            }
            Message::Confirm(_) => {}
            Message::Observe => {
                if from != self.me && from.0 < self.size && !ring.observers.contains(&from) {
                    ring.observers.push(from);
                }
                // At the next call of `on_timeout`, to all: the proof needs rounds.
                ring.beat_at = now;
            }
            Message::Quit => self.exclude(now, from, out),
        }
    }

    /// The failure of a member is published here.
    pub fn on_failure(&mut self, now: Instant, failed: Rank, out: &mut Output) {
        if failed == self.me {
            return self.fence(out);
        }
        if !self.fences(now, out) {
            self.exclude(now, failed, out);
        }
    }

    /// It is published here that a member has finalized.
    pub fn on_departure(&mut self, now: Instant, rank: Rank, out: &mut Output) {
        if !self.fences(now, out) {
            self.exclude(now, rank, out);
        }
    }

    /// Time has passed: to be called at `next_timeout`, or later. A process that was stopped calls it before anything else.
    pub fn on_timeout(&mut self, now: Instant, out: &mut Output) {
        let due = self.next_timeout();
        if self.fences(now, out) {
            return;
        }
        let Config { period, timeout, lease, .. } = self.config;
        let Phase::Member(ring) = &mut self.phase else { return };
        if due.is_some_and(|due| now - due >= period) {
            ring.forgive(now, timeout);
        }
        if ring.beat_at <= now {
            ring.observers.iter().for_each(|&rank| out.send(rank, Message::Beat(now)));
            ring.beat_at = now + period;
        }
        for observed in &mut ring.observed {
            let Silence::Since { heard, suspect_at } = &mut observed.state else { continue };
            if lease.is_some_and(|lease| now - *heard >= lease.span + lease.margin) {
                observed.state = Silence::Expired;
                out.outcomes.push(Outcome::Expired(observed.rank));
            } else if *suspect_at <= now {
                *suspect_at = now + timeout;
                out.outcomes.push(Outcome::Suspect(observed.rank));
            }
        }
    }

    /// When `on_timeout` is to be called next.
    pub fn next_timeout(&self) -> Option<Instant> {
        let Phase::Member(ring) = &self.phase else { return None };
        if self.is_alone() {
            return None;
        }
        let lease = self.config.lease;
        let ends = ring.observed.iter().filter_map(|observed| match observed.state {
            Silence::Expired => None,
            Silence::Since { heard, suspect_at } => {
                let expires = lease.map(|lease| heard + lease.span + lease.margin);
                Some(expires.map_or(suspect_at, |expires| expires.min(suspect_at)))
            }
        });
        ends.chain(self.lease_end()).chain([ring.beat_at]).min()
    }

    /// This member leaves MPI. Its observers and those that it observes are told, which are all that have something to do.
    pub fn quit(&mut self, out: &mut Output) {
        if let Phase::Member(ring) = &self.phase {
            let observed = ring.observed.iter().map(|observed| observed.rank);
            let observers = ring.observers.iter().copied();
            let others = observers.filter(|rank| ring.observed.iter().all(|observed| observed.rank != *rank));
            observed.chain(others).for_each(|rank| out.send(rank, Message::Quit));
        }
        self.phase = Phase::Ended;
    }

    /// Whether this member fenced itself or quit.
    pub fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Whether the lease of this member is over: it must not act any more.
    pub fn lease_is_over(&self, now: Instant) -> bool {
        self.lease_end().is_some_and(|end| end <= now)
    }

    /// Fences, if the lease is over. Returns whether this part does nothing any more.
    fn fences(&mut self, now: Instant, out: &mut Output) -> bool {
        if self.lease_is_over(now) {
            self.fence(out);
        }
        self.is_ended()
    }

    fn fence(&mut self, out: &mut Output) {
        if !self.is_ended() {
            self.phase = Phase::Ended;
            out.outcomes.push(Outcome::Fence);
        }
    }

    /// When the lease of this member ends. `None`: it needs none, or is alone.
    fn lease_end(&self) -> Option<Instant> {
        let Phase::Member(ring) = &self.phase else { return None };
        self.config.lease.filter(|_| !self.is_alone()).map(|lease| ring.confirmed + lease.span)
    }

    fn is_alone(&self) -> bool {
        self.absent.len() as u32 + 1 == self.size
    }

    /// Does not count on a member any more, and observes the next ones that are present.
    fn exclude(&mut self, now: Instant, rank: Rank, out: &mut Output) {
        if rank == self.me || rank.0 >= self.size || !self.absent.insert(rank) {
            return;
        }
        let Phase::Member(ring) = &mut self.phase else { return };
        // Who takes its place as an observer says so.
        ring.observers.retain(|&observer| observer != rank);
        let before = ring.observed.len();
        ring.observed.retain(|observed| observed.rank != rank);
        if ring.observed.len() == before {
            return;
        }
        let grace = now + self.config.timeout + self.config.timeout;
        let state = Silence::Since { heard: now, suspect_at: grace };
        for rank in nearest(self.me, self.size, self.config.observers, Way::Before, &self.absent) {
            if ring.observed.iter().all(|observed| observed.rank != rank) {
                ring.observed.push(Observed { rank, state });
                out.send(rank, Message::Observe);
            }
        }
    }
}

impl Ring {
    /// After this member was late: silence counts from now.
    fn forgive(&mut self, now: Instant, timeout: Duration) {
        for observed in &mut self.observed {
            if let Silence::Since { heard, suspect_at } = &mut observed.state {
                *heard = now;
                *suspect_at = (*suspect_at).max(now + timeout);
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Way {
    Before,
    After,
}

/// The nearest `count` members that are present, to one side.
fn nearest(me: Rank, size: u32, count: u32, way: Way, absent: &Ranks) -> impl Iterator<Item = Rank> {
    let at = move |distance: u32| {
        let steps = match way {
            Way::Before => size - distance,
            Way::After => distance,
        };
        Rank(((u64::from(me.0) + u64::from(steps)) % u64::from(size)) as u32)
    };
    (1..size).map(at).filter(|&rank| !absent.contains(rank)).take(count as usize)
}

impl Message {
    /// The most bytes of a message.
    pub const BYTES_MAX: usize = 9;

    /// Appends the message to `out`.
    pub fn write(&self, out: &mut Writer<'_>) {
        match self {
            Message::Observe => out.u8(kind::OBSERVE),
            Message::Quit => out.u8(kind::QUIT),
            Message::Beat(at) => {
                out.u8(kind::BEAT);
                out.u64(at.0);
            }
            Message::Confirm(at) => {
                out.u8(kind::CONFIRM);
                out.u64(at.0);
            }
        }
    }

    /// Reads a message from the front of `from`; `None` if bytes are missing, or are not those of a correct writer.
    pub fn read(from: &mut Reader<'_>) -> Option<Self> {
        match from.u8()? {
            kind::BEAT => Some(Message::Beat(Instant(from.u64()?))),
            kind::CONFIRM => Some(Message::Confirm(Instant(from.u64()?))),
            kind::OBSERVE => Some(Message::Observe),
            kind::QUIT => Some(Message::Quit),
            _ => None,
        }
    }
}

mod kind {
    pub(super) const BEAT: u8 = 0;
    pub(super) const CONFIRM: u8 = 1;
    pub(super) const OBSERVE: u8 = 2;
    pub(super) const QUIT: u8 = 3;
}

#[cfg(test)]
mod tests;
