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
//! **Messages may be lost** on their way to a member that takes none: one that is stopped, or whose part has not started. A lost beat or
//! confirmation is followed by another one. `Observe` is repeated with each round of beats until the first beat of the observed member comes:
//! without it that member would act and keep its lease by its other observers, and this one would declare it failed.
//!
//! **Lease**: where there is no authority that can look at the member, time decides, and the observed member takes part. Beats leave in
//! rounds, each to all observers. A beat has a time of the sender's clock, that of the youngest round that *counts*, and the observer
//! confirms it; a member that has no confirmation of a time younger than `span` fences itself: it ends at once, and acts on nothing any
//! more. An observer declares a member only after `span + margin` of silence. A round counts if the member was not late (did nothing, for
//! some periods) within the *settling time* before the round ([`Presence`]); this time is at most `margin`, and in it a member that is not late
//! takes what others have sent to it, and what they repeat since it was lost.
//!
//! Let s be the time of the youngest confirmed round of p, so that p's lease ends at s + span, and o an observer, which last heard p at h or, if it
//! has never heard p, asked it first at h. o declares p at h + span + margin or later. If h < s - margin, then p, which was not late from
//! s - margin to s, knew of o at the round that followed h + margin, at s at the latest, and so sent it a beat; what p sends while it is not late
//! arrives within the margin. So h >= s - margin, and o declares p when its lease has ended. A p that was late may have sent only a part of a
//! round before it was stopped again, or may not know of o: hence its rounds do not count at first.
//!
//! So the margin must exceed some periods, the delays of two messages, and the drift of two clocks in a span. A
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
use mend_base::{Duration, Instant, Rank, Reader, Writer, reach};

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
    /// How much longer an observer waits. More than some periods, the delays of two messages and the drift of two clocks in a span.
    pub margin: Duration,
}

/// At which times a process ran and what others had sent to it had arrived.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Presence {
    /// When it ran last.
    ran: Instant,
    /// It was late before; until then it may have missed messages.
    settles_at: Instant,
    /// The youngest time at which it had settled.
    settled: Instant,
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
    /// At the rounds of beats.
    presence: Presence,
    /// The youngest time in a beat that an observer has confirmed.
    confirmed: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Observed {
    rank: Rank,
    state: Silence,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Silence {
    /// It was asked at `asked` to beat to this member, and has not done so yet: it may not have heard.
    Asked { asked: Instant, suspect_at: Instant },
    /// Its last beat came at `heard`.
    Since { heard: Instant, suspect_at: Instant },
    /// It is declared: its beats count no more, and extend no lease.
    Expired,
}

/// What members tell each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// I am alive; my youngest round that counts was at that time of my clock.
    Beat(Instant),
    /// Your beat with that time of your clock has arrived.
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
    /// The part of member `me` of `size` members. Others may have made theirs earlier, and observe this one: `presence` says since when it
    /// could have heard that.
    pub fn new(now: Instant, me: Rank, size: u32, config: Config, presence: Presence) -> Self {
        assert!(me.0 < size && config.observers > 0 && config.period < config.timeout);
        let is_long = |lease: Lease| lease.span >= config.timeout + config.timeout;
        assert!(config.lease.is_none_or(is_long), "a lease is at least twice the timeout");
        let absent = Ranks::new();
        let nearest = |way| nearest(me, size, config.observers, way, &absent);
        let state = Silence::asked(now, config.timeout);
        let observed = nearest(Way::Before).map(|rank| Observed { rank, state }).collect();
        let observers = nearest(Way::After).collect();
        let confirmed = presence.settled;
        let phase = Phase::Member(Ring { observers, observed, beat_at: now, presence, confirmed });
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
                let Some(observed) = observed else { return };
                match observed.state {
                    Silence::Asked { .. } => reach!("proto.detector: the first beat of an observed member"),
                    Silence::Since { .. } => reach!("proto.detector: a beat of an observed member"),
                    Silence::Expired => reach!("proto.detector: a beat of a declared member"),
                }
                if observed.state != Silence::Expired {
                    observed.state = Silence::Since { heard: now, suspect_at: now + timeout };
                    if self.config.lease.is_some() {
                        out.send(from, Message::Confirm(sent));
                    }
                }
            }
            Message::Confirm(sent) if ring.observers.contains(&from) && sent <= now => {
                reach!("proto.detector: an observer confirms a beat");
                ring.confirmed = ring.confirmed.max(sent);
            }
            Message::Confirm(_) => {}
            Message::Observe => {
                if from != self.me && from.0 < self.size && !ring.observers.contains(&from) {
                    reach!("proto.detector: a member becomes an observer");
                    ring.observers.push(from);
                }
                // At the next call of `on_timeout`, to all: the proof needs rounds.
                ring.beat_at = now;
            }
            Message::Quit => {
                reach!("proto.detector: a member quits");
                self.exclude(now, from);
            }
        }
    }

    /// The failure of a member is published here.
    pub fn on_failure(&mut self, now: Instant, failed: Rank, out: &mut Output) {
        if failed == self.me {
            reach!("proto.detector: this member was declared failed");
            return self.fence(out);
        }
        if !self.fences(now, out) {
            reach!("proto.detector: a failure is published");
            self.exclude(now, failed);
        }
    }

    /// It is published here that a member has finalized.
    pub fn on_departure(&mut self, now: Instant, rank: Rank, out: &mut Output) {
        if !self.fences(now, out) {
            reach!("proto.detector: a departure is published");
            self.exclude(now, rank);
        }
    }

    /// Time has passed: to be called at `next_timeout`, or later. A process that was stopped calls it before anything else.
    pub fn on_timeout(&mut self, now: Instant, out: &mut Output) {
        if self.fences(now, out) {
            return;
        }
        let config = self.config;
        let Config { period, timeout, lease, .. } = config;
        let Phase::Member(ring) = &mut self.phase else { return };
        if ring.beat_at <= now {
            ring.beat(now, &config, out);
            ring.beat_at = now + period;
        }
        for observed in &mut ring.observed {
            let Some((heard, suspect_at)) = observed.state.times() else { continue };
            if lease.is_some_and(|lease| now - *heard >= lease.span + lease.margin) {
                reach!("proto.detector: the lease of an observed member is over");
                observed.state = Silence::Expired;
                out.outcomes.push(Outcome::Expired(observed.rank));
            } else if *suspect_at <= now {
                *suspect_at = now + timeout;
                match observed.state {
                    Silence::Asked { .. } => reach!("proto.detector: a member that was asked is suspected"),
                    _ => reach!("proto.detector: a silent member is suspected"),
                }
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
            Silence::Asked { asked: heard, suspect_at } | Silence::Since { heard, suspect_at } => {
                let expires = lease.map(|lease| heard + lease.span + lease.margin);
                Some(expires.map_or(suspect_at, |expires| expires.min(suspect_at)))
            }
        });
        ends.chain(self.lease_end()).chain([ring.beat_at]).min()
    }

    /// This member leaves MPI. Its observers and those that it observes are told, which are all that have something to do now. Others may
    /// have to observe it when these fail; until then they hear of it from the runtime ([`on_departure`](Detector::on_departure)).
    pub fn quit(&mut self, out: &mut Output) {
        if let Phase::Member(ring) = &self.phase {
            let observed = ring.observed.iter().map(|observed| observed.rank);
            let observers = ring.observers.iter().copied();
            let others = observers.filter(|rank| ring.observed.iter().all(|observed| observed.rank != *rank));
            observed.chain(others).for_each(|rank| out.send(rank, Message::Quit));
        }
        self.phase = Phase::Ended;
    }

    /// Whether another member has quit, failed or finalized, as this one has heard.
    pub fn is_absent(&self, rank: Rank) -> bool {
        self.absent.contains(rank)
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
            reach!("proto.detector: the own lease is over");
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
    fn exclude(&mut self, now: Instant, rank: Rank) {
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
        let state = Silence::asked(now, self.config.timeout);
        for rank in nearest(self.me, self.size, self.config.observers, Way::Before, &self.absent) {
            if ring.observed.iter().all(|observed| observed.rank != rank) {
                reach!("proto.detector: the next member is observed");
                ring.observed.push(Observed { rank, state });
                // It is asked at the next call of `on_timeout`.
                ring.beat_at = now;
            }
        }
    }
}

impl Ring {
    /// A round of beats, and of what may have been lost.
    fn beat(&mut self, now: Instant, config: &Config, out: &mut Output) {
        if self.presence.on_run(now, config) {
            reach!("proto.detector: this member was late");
            self.forgive(now, config.timeout);
        }
        self.observers.iter().for_each(|&rank| out.send(rank, Message::Beat(self.presence.settled)));
        for observed in &self.observed {
            if let Silence::Asked { .. } = observed.state {
                reach!("proto.detector: a member is asked to beat");
                out.send(observed.rank, Message::Observe);
            }
        }
    }

    /// After this member was late: silence counts from now.
    fn forgive(&mut self, now: Instant, timeout: Duration) {
        for observed in &mut self.observed {
            if let Some((heard, suspect_at)) = observed.state.times() {
                *heard = now;
                *suspect_at = (*suspect_at).max(now + timeout);
            }
        }
    }
}

impl Silence {
    /// A member that is asked now to beat to this one.
    fn asked(now: Instant, timeout: Duration) -> Self {
        Silence::Asked { asked: now, suspect_at: now + timeout + timeout }
    }

    /// Since when the member is silent, and when it is suspected.
    fn times(&mut self) -> Option<(&mut Instant, &mut Instant)> {
        match self {
            Silence::Asked { asked: since, suspect_at } | Silence::Since { heard: since, suspect_at } => {
                Some((since, suspect_at))
            }
            Silence::Expired => None,
        }
    }
}

impl Presence {
    /// It runs, and nobody has sent anything to it before.
    pub fn new(now: Instant) -> Self {
        Presence { ran: now, settles_at: now, settled: now }
    }

    /// The process runs. Returns whether it was late.
    pub fn on_run(&mut self, now: Instant, config: &Config) -> bool {
        let is_late = now - self.ran >= config.lateness();
        if is_late {
            self.settles_at = now + config.settling();
        }
        if self.settles_at <= now {
            self.settled = now;
        }
        self.ran = now;
        is_late
    }

    /// Whether others may have declared this process failed if they listen to it, and it has confirmed nothing since it had settled.
    pub fn lease_is_over(&self, now: Instant, config: &Config) -> bool {
        config.lease.is_some_and(|lease| now - self.settled >= lease.span)
    }
}

impl Config {
    /// A member that is not late for so long has taken what others have sent to it. Half a span at most, so that a short delay costs no lease.
    fn settling(&self) -> Duration {
        self.lease.map_or(Duration(0), |lease| lease.margin.min(Duration(lease.span.0 / 2)))
    }

    /// After so much time without a round a member is late: it may have missed messages, and finds beats waiting.
    fn lateness(&self) -> Duration {
        Duration(self.settling().0 / 4).max(self.period + self.period)
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
