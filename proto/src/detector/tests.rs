// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whole rings on a simulated clock, in which members die, stop and quit, and single rules of one part.

use super::{Config, Detector, Lease, Message, Outcome, Output, Presence};
use mend_base::{Duration, Instant, Random, Rank, Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const AUTHORITY: Config = Config { period: ms(10), timeout: ms(50), observers: 1, lease: None };
const LEASE: Lease = Lease { span: ms(200), margin: ms(60) };
const ALONE: Config = Config { observers: 3, lease: Some(LEASE), ..AUTHORITY };
/// A message may take so long; with a period and the lateness of a process it is less than the timeout.
const DELAY: Duration = ms(30);
const LATENESS: Duration = ms(5);
/// So many messages of one member wait for another one that takes none; later ones are lost.
const WAITING_MAX: usize = 8;

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Runs,
    Stopped,
    Dead,
    Fenced,
    Quit,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive { from: u32, to: u32, message: Message },
    Timer(u32),
    Kill(u32),
    Stop(u32),
    Continue(u32),
    Quit(u32),
    PublishFailure { of: u32, at: u32 },
    PublishDeparture { of: u32, at: u32 },
}

/// A job: members, their network, clock, and who decides about those that are suspected or expired.
struct Ring {
    random: Random,
    now: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    count: u64,
    members: Vec<Detector>,
    states: Vec<State>,
    armed: Vec<Option<Instant>>,
    /// What came while a member was stopped.
    waiting: Vec<Vec<Event>>,
    /// The arrival of the last message from one member to another: they arrive in order.
    arrivals: BTreeMap<(u32, u32), Instant>,
    published: BTreeSet<u32>,
    /// Members that others suspected.
    suspected: BTreeSet<u32>,
}

impl Ring {
    fn new(seed: u64, size: u32, config: Config) -> Self {
        let now = Instant(0);
        let mut ring = Ring {
            random: Random(seed),
            now,
            events: BTreeMap::new(),
            count: 0,
            members: (0..size)
                .map(|rank| Detector::new(now, Rank(rank), size, config, Presence::new(now)))
                .collect(),
            states: vec![State::Runs; size as usize],
            armed: vec![None; size as usize],
            waiting: vec![Vec::new(); size as usize],
            arrivals: BTreeMap::new(),
            published: BTreeSet::new(),
            suspected: BTreeSet::new(),
        };
        (0..size).for_each(|rank| ring.arm(rank));
        ring
    }

    fn at(&mut self, time: Instant, event: Event) {
        self.count += 1;
        self.events.insert((time, self.count), event);
    }

    fn arm(&mut self, rank: u32) {
        let due = self.members[rank as usize].next_timeout();
        if let Some(due) = due
            && self.armed[rank as usize].is_none_or(|armed| due < armed)
        {
            self.armed[rank as usize] = Some(due);
            let late = Duration(self.random.below(LATENESS.0));
            self.at(due.max(self.now) + late, Event::Timer(rank));
        }
    }

    fn run_until(&mut self, end: Instant) {
        while let Some(((time, _), event)) = self.events.pop_first() {
            if time > end {
                break;
            }
            self.now = time;
            self.on_event(event);
        }
    }

    fn on_event(&mut self, event: Event) {
        let (Event::Arrive { to: rank, .. }
        | Event::Timer(rank)
        | Event::Kill(rank)
        | Event::Stop(rank)
        | Event::Continue(rank)
        | Event::Quit(rank)
        | Event::PublishFailure { at: rank, .. }
        | Event::PublishDeparture { at: rank, .. }) = event;
        let state = &mut self.states[rank as usize];
        match (*state, event) {
            (State::Dead | State::Fenced | State::Quit, _) => {}
            (_, Event::Kill(_)) => *state = State::Dead,
            (State::Stopped, Event::Continue(_)) => {
                *state = State::Runs;
                self.with(rank, |member, now, out| member.on_timeout(now, out));
                let waiting = core::mem::take(&mut self.waiting[rank as usize]);
                waiting.into_iter().for_each(|event| self.on_event(event));
                self.armed[rank as usize] = None;
                self.arm(rank);
            }
            (State::Stopped, Event::Timer(_)) => {}
            (State::Stopped, _) => {
                let waiting = &mut self.waiting[rank as usize];
                let is_full = matches!(event, Event::Arrive { from, .. } if {
                    let is_of = |event: &&Event| matches!(event, Event::Arrive { from: other, .. } if *other == from);
                    waiting.iter().filter(is_of).count() >= WAITING_MAX
                });
                if !is_full {
                    waiting.push(event);
                }
            }
            (State::Runs, Event::Stop(_)) => *state = State::Stopped,
            (State::Runs, _) => self.on_running(rank, event),
        }
    }

    fn on_running(&mut self, rank: u32, event: Event) {
        match event {
            Event::Arrive { from, message, .. } => {
                self.with(rank, |member, now, out| member.on_message(now, Rank(from), message, out));
            }
            Event::Timer(_) => {
                self.armed[rank as usize] = None;
                self.with(rank, |member, now, out| member.on_timeout(now, out));
            }
            Event::Quit(_) => {
                self.with(rank, |member, _, out| member.quit(out));
                self.states[rank as usize] = State::Quit;
            }
            Event::PublishFailure { of, .. } => {
                self.with(rank, |member, now, out| member.on_failure(now, Rank(of), out));
            }
            Event::PublishDeparture { of, .. } => {
                self.with(rank, |member, now, out| member.on_departure(now, Rank(of), out));
            }
            Event::Kill(_) | Event::Stop(_) | Event::Continue(_) => {}
        }
    }

    fn with(&mut self, rank: u32, event: impl FnOnce(&mut Detector, Instant, &mut Output)) {
        let mut out = Output::new();
        event(&mut self.members[rank as usize], self.now, &mut out);
        for outcome in &out.outcomes {
            self.on_outcome(rank, *outcome);
        }
        let fenced = self.states[rank as usize] == State::Fenced;
        assert!(!fenced || out.sends.is_empty(), "a member that fences itself sends nothing");
        for (to, message) in out.sends {
            self.send(rank, to.0, message);
        }
        self.arm(rank);
    }

    fn send(&mut self, from: u32, to: u32, message: Message) {
        assert_ne!(from, to);
        let time = self.now + Duration(self.random.below(DELAY.0));
        let last = self.arrivals.entry((from, to)).or_default();
        *last = time.max(*last);
        let time = *last;
        self.at(time, Event::Arrive { from, to, message });
    }

    fn on_outcome(&mut self, rank: u32, outcome: Outcome) {
        match outcome {
            Outcome::Fence => {
                assert!(self.members[rank as usize].is_ended());
                self.states[rank as usize] = State::Fenced;
            }
            Outcome::Suspect(other) => {
                self.suspected.insert(other.0);
                // The authority looks at the process.
                let has_authority = self.members[rank as usize].config.lease.is_none();
                match self.states[other.index()] {
                    State::Dead if has_authority => self.publish(other.0, false),
                    State::Quit => self.publish(other.0, true),
                    _ => {}
                }
            }
            Outcome::Expired(other) => {
                let (state, member) = (self.states[other.index()], &self.members[other.index()]);
                let cannot_act = match state {
                    State::Runs => false,
                    State::Stopped => member.lease_end().is_some_and(|end| end <= self.now),
                    State::Dead | State::Fenced | State::Quit => true,
                };
                assert!(cannot_act, "{other:?} may act at {:?}: {state:?}, {member:?}", self.now);
                self.publish(other.0, false);
            }
        }
    }

    /// Each member learns of it at its own time.
    fn publish(&mut self, of: u32, is_departure: bool) {
        if self.published.insert(of) {
            for at in (0..self.states.len() as u32).filter(|&at| at != of) {
                let time = self.now + Duration(self.random.below(DELAY.0));
                let event = if is_departure {
                    Event::PublishDeparture { of, at }
                } else {
                    Event::PublishFailure { of, at }
                };
                self.at(time, event);
            }
        }
    }

    fn running(&self) -> impl Iterator<Item = &Detector> {
        let all = self.members.iter().zip(&self.states);
        all.filter(|(_, state)| **state == State::Runs).map(|(member, _)| member)
    }

    /// Every member that runs knows of every one that does not.
    fn check_complete(&self, seed: u64) {
        for member in self.running() {
            for (rank, state) in self.states.iter().enumerate() {
                let is_known = member.absent.contains(Rank(rank as u32));
                assert_eq!(is_known, *state != State::Runs, "seed {seed}: {rank} at {member:?}");
            }
        }
    }
}

#[test]
fn every_death_is_found_and_no_living_member_is_suspected() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let size = 2 + random.below(30) as u32;
        let config = Config { observers: 1 + random.below(3) as u32, ..AUTHORITY };
        let mut ring = Ring::new(seed, size, config);
        for _ in 0..random.below(u64::from(size)) {
            let rank = random.below(u64::from(size)) as u32;
            let event = if random.once_in(4) { Event::Quit(rank) } else { Event::Kill(rank) };
            ring.at(Instant(0) + ms(random.below(600)), event);
        }
        ring.run_until(Instant(0) + ms(1_000 + 200 * u64::from(size)));
        let living = |rank: &u32| ring.states[*rank as usize] == State::Runs;
        assert!(!ring.suspected.iter().any(living), "seed {seed}");
        // A member that quit may be unknown to those that have nothing to do with it.
        for member in ring.running() {
            for rank in (0..size).filter(|&rank| ring.states[rank as usize] == State::Dead) {
                assert!(member.absent.contains(Rank(rank)), "seed {seed}: {rank} at {member:?}");
            }
            assert!(!(0..size).filter(living).any(|rank| member.absent.contains(Rank(rank))));
        }
    }
}

/// Two members at most die or stop, so that each of the others keeps an observer.
#[test]
fn a_member_that_stops_beyond_its_lease_fences_itself_before_it_acts_and_others_keep_theirs() {
    let mut fenced = 0;
    for seed in 0..400 {
        let mut random = Random(seed);
        let size = 4 + random.below(20) as u32;
        // A stop of 120 ms, the settling time, a period, and the delays of a beat and its confirmation are less than the span.
        let lease = Lease { span: ms(270), ..LEASE };
        let mut ring = Ring::new(seed, size, Config { lease: Some(lease), ..ALONE });
        let mut stopped: BTreeMap<u32, u64> = BTreeMap::new();
        for _ in 0..2 {
            let rank = random.below(u64::from(size)) as u32;
            let start = Instant(0) + ms(random.below(600));
            if random.once_in(3) {
                ring.at(start, Event::Kill(rank));
            } else {
                let longest = if random.once_in(2) { 120 } else { 900 };
                let span = random.below(longest);
                *stopped.entry(rank).or_default() += span;
                ring.at(start, Event::Stop(rank));
                ring.at(start + ms(span), Event::Continue(rank));
            }
        }
        ring.run_until(Instant(0) + ms(3_000));
        for rank in 0..size {
            if ring.states[rank as usize] == State::Fenced {
                fenced += 1;
                let span = stopped.get(&rank).copied().unwrap_or(0);
                assert!(span > 120, "seed {seed}: {rank} was stopped for {span} ms only");
            }
        }
        ring.check_complete(seed);
    }
    assert!(fenced > 60, "{fenced}");
}

/// Members may lose all their observers, and then fence themselves. Nobody is declared that may still act.
#[test]
fn no_member_is_declared_that_may_act_however_many_die_or_stop() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let size = 2 + random.below(20) as u32;
        let config = Config { observers: 1 + random.below(3) as u32, ..ALONE };
        let mut ring = Ring::new(seed, size, config);
        for _ in 0..random.below(2 * u64::from(size)) {
            let rank = random.below(u64::from(size)) as u32;
            let start = Instant(0) + ms(random.below(1_500));
            if random.once_in(3) {
                ring.at(start, Event::Kill(rank));
            } else {
                ring.at(start, Event::Stop(rank));
                let end = start + ms(random.below(700));
                ring.at(end, Event::Continue(rank));
                if random.once_in(2) {
                    // Within its lease it goes on for a moment alone.
                    let again = end + ms(random.below(20));
                    ring.at(again, Event::Stop(rank));
                    ring.at(again + ms(random.below(700)), Event::Continue(rank));
                }
            }
        }
        ring.run_until(Instant(0) + ms(4_000 + 300 * u64::from(size)));
        ring.check_complete(seed);
    }
}

fn member(rank: u32, size: u32, config: Config) -> Detector {
    Detector::new(Instant(0), Rank(rank), size, config, Presence::new(Instant(0)))
}

fn after(span: Duration) -> Instant {
    Instant(0) + span
}

/// Calls `on_timeout` as often as it wants until a time, and returns what came.
fn run(member: &mut Detector, until: Instant) -> Output {
    let mut out = Output::new();
    while let Some(due) = member.next_timeout().filter(|&due| due <= until) {
        member.on_timeout(due, &mut out);
    }
    out
}

//
#[test]
fn an_observer_dies_with_the_observed_and_the_adopter_before_its_adoption_message_arrives() {
    let mut ring = Ring::new(1, 6, AUTHORITY);
    ring.at(after(ms(100)), Event::Kill(1));
    ring.at(after(ms(100)), Event::Kill(2));
    ring.run_until(after(ms(100)));
    // Rank 3 adopts rank 0 when both are published, and dies at once.
    let is_adopted = |ring: &Ring| {
        let mut events = ring.events.values();
        events.any(|event| matches!(event, Event::Arrive { to: 0, message: Message::Observe, .. }))
    };
    while !is_adopted(&ring) {
        let ((time, _), event) = ring.events.pop_first().expect("rank 3 adopts rank 0");
        ring.now = time;
        ring.on_event(event);
    }
    ring.events.retain(|_, event| !matches!(event, Event::Arrive { from: 3, .. }));
    ring.at(ring.now, Event::Kill(3));
    ring.run_until(after(ms(1_500)));
    ring.check_complete(1);
    assert_eq!(ring.running().count(), 3);
    ring.at(ring.now, Event::Kill(0));
    ring.run_until(after(ms(2_500)));
    ring.check_complete(1);
}

//
#[test]
fn a_member_with_two_adopters_beats_to_both_until_one_has_failed() {
    let mut adopted = member(0, 4, AUTHORITY);
    let mut out = Output::new();
    adopted.on_failure(after(ms(1)), Rank(1), &mut out);
    // Rank 3 adopts because rank 2 has failed, which rank 0 does not know; the message of rank 2 is older and comes later.
    adopted.on_message(after(ms(2)), Rank(3), Message::Observe, &mut out);
    adopted.on_message(after(ms(3)), Rank(2), Message::Observe, &mut out);
    adopted.on_message(after(ms(3)), Rank(2), Message::Observe, &mut out);
    let beats = |out: &Output| out.sends.iter().filter(|(_, m)| matches!(m, Message::Beat(_))).count();
    let mut out = Output::new();
    adopted.on_timeout(after(ms(3)), &mut out);
    assert_eq!(beats(&out), 2, "to rank 2 and to rank 3");
    adopted.on_failure(after(ms(4)), Rank(2), &mut out);
    let mut out = Output::new();
    adopted.on_timeout(after(ms(13)), &mut out);
    out.sends.retain(|(_, message)| matches!(message, Message::Beat(_)));
    assert_eq!(out.sends, [(Rank(3), Message::Beat(after(ms(13))))]);
}

/// The first message of a new observer may be lost, since the member took none for a while.
#[test]
fn a_member_is_asked_to_beat_with_each_round_until_it_does() {
    let mut observer = member(2, 6, Config { observers: 1, ..ALONE });
    let asked = |out: &Output| out.sends.contains(&(Rank(0), Message::Observe));
    observer.on_failure(after(ms(1)), Rank(1), &mut Output::new());
    for round in 0..5 {
        let mut out = Output::new();
        observer.on_timeout(after(ms(1 + 10 * round)), &mut out);
        assert!(asked(&out), "round {round}");
    }
    let mut out = Output::new();
    observer.on_message(after(ms(42)), Rank(0), Message::Beat(after(ms(42))), &mut out);
    out = Output::new();
    observer.on_timeout(after(ms(51)), &mut out);
    assert!(!out.sends.is_empty() && !asked(&out));
}

/// Between two stops a member may have sent a part of a round alone, or may not know a new observer: then that round extends no lease.
#[test]
fn a_round_right_after_a_stop_does_not_count() {
    let mut one = member(0, 8, ALONE);
    let round = |one: &mut Detector, at: u64| {
        let mut out = Output::new();
        one.on_timeout(after(ms(at)), &mut out);
        let beat = out.sends.iter().find(|(to, _)| *to == Rank(1)).map(|(_, beat)| *beat);
        let Some(Message::Beat(of)) = beat else { panic!("no beat at {at} in {out:?}") };
        one.on_message(after(ms(at)), Rank(1), Message::Confirm(of), &mut out);
        of
    };
    (0..5).for_each(|count| assert_eq!(round(&mut one, 10 * count), after(ms(10 * count))));
    // A stop from 41 to 150 ms.
    assert_eq!(round(&mut one, 150), after(ms(40)));
    assert_eq!(one.lease_end(), Some(after(ms(40) + LEASE.span)));
    (1..6).for_each(|count| assert_eq!(round(&mut one, 150 + 10 * count), after(ms(40))));
    assert_eq!(round(&mut one, 210), after(ms(210)), "after the margin of 60 ms");
    assert_eq!(one.lease_end(), Some(after(ms(210) + LEASE.span)));
}

//
#[test]
fn a_beat_that_arrives_after_the_declaration_counts_no_more() {
    let mut observer = member(1, 4, ALONE);
    let mut out = Output::new();
    observer.on_failure(after(ms(5)), Rank(0), &mut out);
    out = Output::new();
    observer.on_message(after(ms(6)), Rank(0), Message::Beat(after(ms(4))), &mut out);
    assert!(out.sends.is_empty(), "its lease is not extended");
    // The same between the end of its lease and the publication.
    let mut observer =
        member(1, 2, Config { lease: Some(Lease { span: ms(1_000), margin: ms(10) }), ..ALONE });
    observer.on_message(after(ms(990)), Rank(0), Message::Confirm(after(ms(980))), &mut out);
    let mut out = run(&mut observer, after(ms(1_100)));
    assert_eq!(out.outcomes.iter().filter(|o| **o == Outcome::Expired(Rank(0))).count(), 1);
    out = Output::new();
    observer.on_message(after(ms(1_101)), Rank(0), Message::Beat(after(ms(900))), &mut out);
    assert!(out.sends.is_empty());
}

/// A beat that was sent at the end of the lease before may still be on its way: the margin is longer than that.
#[test]
fn an_observer_declares_after_span_and_margin_of_silence_and_not_before() {
    let mut observer = member(1, 2, ALONE);
    let silent = LEASE.span + LEASE.margin;
    let mut out = Output::new();
    while let Some(due) = observer.next_timeout().filter(|&due| due < after(silent)) {
        observer.on_timeout(due, &mut out);
        // Its own lease is not the matter here.
        observer.on_message(due, Rank(0), Message::Confirm(due), &mut out);
    }
    let expired = |out: &Output| out.outcomes.iter().filter(|o| **o == Outcome::Expired(Rank(0))).count();
    assert_eq!(expired(&out), 0);
    observer.on_timeout(after(silent), &mut out);
    assert_eq!(expired(&out), 1);
}

//
#[test]
fn a_member_that_hears_of_its_own_failure_fences_itself() {
    let mut victim = member(2, 4, AUTHORITY);
    let mut out = Output::new();
    victim.on_failure(after(ms(1)), Rank(2), &mut out);
    assert_eq!(out.outcomes, [Outcome::Fence]);
    assert!(victim.is_ended() && victim.next_timeout().is_none());
    out = Output::new();
    victim.on_timeout(after(ms(100)), &mut out);
    victim.on_message(after(ms(100)), Rank(3), Message::Observe, &mut out);
    victim.on_failure(after(ms(100)), Rank(2), &mut out);
    assert!(out.sends.is_empty() && out.outcomes.is_empty());
}

// LC6 of the programs' point of view: a process that was stopped accuses nobody.
#[test]
fn a_member_that_was_late_suspects_nobody_at_once() {
    let mut late = member(1, 3, AUTHORITY);
    let mut out = Output::new();
    late.on_timeout(after(ms(0)), &mut out);
    late.on_message(after(ms(9)), Rank(0), Message::Beat(after(ms(9))), &mut out);
    late.on_timeout(after(ms(30_000)), &mut out);
    assert!(out.outcomes.is_empty());
    let out = run(&mut late, after(ms(30_049)));
    assert!(out.outcomes.is_empty(), "beats that waited have a timeout to be handled");
    let out = run(&mut late, after(ms(30_050)));
    assert_eq!(out.outcomes, [Outcome::Suspect(Rank(0))]);
}

#[test]
fn a_suspicion_is_repeated_until_it_is_answered_and_a_beat_answers_it() {
    let mut observer = member(1, 3, AUTHORITY);
    let out = run(&mut observer, after(ms(201)));
    assert_eq!(out.outcomes, [Outcome::Suspect(Rank(0)); 3], "after 100, 150 and 200 ms");
    observer.on_message(after(ms(202)), Rank(0), Message::Beat(after(ms(202))), &mut Output::new());
    assert!(run(&mut observer, after(ms(251))).outcomes.is_empty());
}

#[test]
fn a_lease_is_extended_by_confirmations_of_observers_alone() {
    let mut out = Output::new();
    let mut one = member(0, 8, ALONE);
    one.on_timeout(after(ms(150)), &mut out);
    // Rank 4 is no observer, and rank 1 cannot have a beat of the future.
    one.on_message(after(ms(151)), Rank(4), Message::Confirm(after(ms(150))), &mut out);
    one.on_message(after(ms(151)), Rank(1), Message::Confirm(after(ms(9_999))), &mut out);
    assert_eq!(one.lease_end(), Some(after(ms(200))));
    one.on_message(after(ms(151)), Rank(3), Message::Confirm(after(ms(150))), &mut out);
    one.on_message(after(ms(152)), Rank(1), Message::Confirm(after(ms(20))), &mut out);
    assert_eq!(one.lease_end(), Some(after(ms(350))));
    // It fences before it handles a message.
    out = Output::new();
    one.on_message(after(ms(350)), Rank(1), Message::Confirm(after(ms(150))), &mut out);
    assert_eq!(out.outcomes, [Outcome::Fence]);
}

#[test]
fn a_member_that_is_alone_needs_no_lease_and_observes_nobody() {
    let mut out = Output::new();
    let one = member(0, 1, ALONE);
    assert_eq!(one.next_timeout(), None);
    let mut two = member(0, 2, ALONE);
    two.on_message(after(ms(1)), Rank(1), Message::Quit, &mut out);
    assert_eq!(two.next_timeout(), None);
    two.on_timeout(after(ms(10_000)), &mut out);
    assert!(out.outcomes.is_empty() && !two.is_ended());
}

#[test]
fn one_that_quits_tells_those_that_count_on_it() {
    let mut out = Output::new();
    let mut one = member(0, 3, ALONE);
    one.quit(&mut out);
    assert_eq!(out.sends.len(), 2, "each once");
    assert!(one.is_ended() && out.outcomes.is_empty());
    one.quit(&mut out);
    assert_eq!(out.sends.len(), 2);
}

#[test]
fn what_was_written_is_read_and_anything_else_is_refused() {
    let at = Instant(0x0102_0304_0506_0708);
    for message in [Message::Beat(at), Message::Confirm(at), Message::Observe, Message::Quit] {
        let mut bytes = [0; Message::BYTES_MAX];
        let mut writer = Writer::new(&mut bytes);
        message.write(&mut writer);
        let used = writer.used();
        assert_eq!(Message::read(&mut Reader::new(&bytes[..used])), Some(message));
        assert_eq!(Message::read(&mut Reader::new(&bytes[..used - 1])), None);
    }
    assert_eq!(Message::read(&mut Reader::new(&[4])), None);
}
