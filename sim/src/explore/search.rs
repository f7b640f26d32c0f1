// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The visit of all states, depth first, and the search for a shortest way to a violation, breadth first.

use super::fingerprints::Fingerprints;
use super::model::Model;
use super::space::{Event, Fault, Space, State};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

/// What a complete visit has counted.
#[derive(Clone, Debug, Default)]
pub struct Count {
    /// Different states.
    pub states: u64,
    /// Pairs of a state and an event that can happen in it.
    pub transitions: u64,
    /// The longest way without a state twice that was followed.
    pub depth: usize,
    /// States in which nothing can happen but choices and crashes.
    pub quiescent: u64,
    /// Different parts of one member.
    pub parts: usize,
    /// Bytes of the set of visited states.
    pub bytes: usize,
    /// How long it took.
    pub time: Duration,
}

/// Where a visit gives up.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most states.
    pub states: u64,
    /// The most states that the search for a shortest trace stores; without success it is the trace that was found first.
    pub trace_states: usize,
}

/// What must not happen has happened.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What.
    pub fault: Fault,
    /// A way from the start to it.
    pub trace: Trace,
    /// States that were visited before it was found.
    pub states: u64,
}

/// Events in words, from the start.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The events.
    pub events: Vec<String>,
    /// No shorter one leads to a violation of this kind.
    pub is_shortest: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { states: u64::MAX, trace_states: 1 << 23 }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count { states, transitions, depth, quiescent, parts, bytes, time } = self;
        let confusion = (*states as f64).powi(2) / 2f64.powi(65);
        write!(
            f,
            "{states} states, {transitions} transitions, depth {depth}, {quiescent} quiescent, {parts} parts, {} MiB, \
             {:.1} s, confusion {confusion:.0e}",
            bytes >> 20,
            time.as_secs_f64()
        )
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, what) = match &self.fault {
            Fault::Safety(what) => ("safety", what),
            Fault::Liveness(what) => ("liveness", what),
        };
        let Trace { events, is_shortest } = &self.trace;
        let shortest = if *is_shortest { ", a shortest one" } else { "" };
        writeln!(f, "violation of {kind}, after {} states: {what}", self.states)?;
        writeln!(f, "trace of {} events{shortest}:", events.len())?;
        (1..).zip(events).try_for_each(|(number, event)| writeln!(f, "  {number:3}. {event}"))
    }
}

impl Fault {
    fn is_like(&self, other: &Fault) -> bool {
        matches!(self, Fault::Safety(_)) == matches!(other, Fault::Safety(_))
    }
}

/// Visits all states of a model. `None` in place of a count: there are more than the limit.
pub fn check<M: Model>(model: &M, limits: Limits) -> Result<Option<Count>, Box<Violation>> {
    let started = Instant::now();
    let mut visit = Visit::new(model);
    match visit.all(limits.states) {
        Ok(is_complete) => {
            let (parts, _, _) = visit.space.sizes();
            let count = Count { parts, time: started.elapsed(), bytes: visit.visited.bytes(), ..visit.count };
            Ok(is_complete.then_some(count))
        }
        Err(fault) => {
            let states = visit.count.states;
            let events = visit.way();
            let Visit { mut space, visited, .. } = visit;
            drop(visited);
            let (fault, trace) = match shortest(&mut space, &fault, limits.trace_states) {
                Some((fault, events)) => (fault, trace(&mut space, &events, true)),
                None => (fault, trace(&mut space, &events, false)),
            };
            Err(Box::new(Violation { fault, trace, states }))
        }
    }
}

/// A depth-first visit.
struct Visit<'a, M: Model> {
    space: Space<'a, M>,
    visited: Fingerprints,
    /// The states on the way to the current one.
    frames: Vec<Frame>,
    on_the_way: HashSet<u64>,
    /// The events of all these states.
    events: Vec<Event>,
    count: Count,
}

struct Frame {
    state: State,
    fingerprint: u64,
    /// The first of its events, and the next one to follow.
    first: usize,
    next: usize,
}

impl<'a, M: Model> Visit<'a, M> {
    fn new(model: &'a M) -> Self {
        Visit {
            space: Space::new(model),
            visited: Fingerprints::new(),
            frames: Vec::new(),
            on_the_way: HashSet::new(),
            events: Vec::new(),
            count: Count::default(),
        }
    }

    /// Returns whether all states were visited; false: there are more than `states_max`.
    fn all(&mut self, states_max: u64) -> Result<bool, Fault> {
        let start = self.space.start();
        let fingerprint = self.space.fingerprint(&start);
        self.visited.insert(fingerprint);
        self.enter(start, fingerprint)?;
        while let Some(frame) = self.frames.last_mut() {
            let Some(&event) = self.events.get(frame.next) else {
                self.events.truncate(frame.first);
                self.on_the_way.remove(&frame.fingerprint);
                self.frames.pop();
                continue;
            };
            frame.next += 1;
            self.count.transitions += 1;
            let after = self.space.after(&frame.state, event)?;
            let fingerprint = self.space.fingerprint(&after);
            if self.visited.insert(fingerprint) {
                self.enter(after, fingerprint)?;
                if self.count.states > states_max {
                    return Ok(false);
                }
            } else if self.on_the_way.contains(&fingerprint) {
                return Err(Fault::Liveness("this goes on for ever".to_owned()));
            }
        }
        Ok(true)
    }

    fn enter(&mut self, state: State, fingerprint: u64) -> Result<(), Fault> {
        let first = self.events.len();
        let obligatory = self.space.events(&state, &mut self.events);
        self.count.states += 1;
        let liveness = if obligatory == 0 { quiet(&self.space, &state) } else { Ok(()) };
        self.count.quiescent += u64::from(obligatory == 0);
        self.frames.push(Frame { state, fingerprint, first, next: first });
        self.count.depth = self.count.depth.max(self.frames.len() - 1);
        self.on_the_way.insert(fingerprint);
        liveness
    }

    /// The events that lead to the current state, and the one that was being tried.
    fn way(&self) -> Vec<Event> {
        let followed = self.frames.iter().filter(|frame| frame.next > frame.first);
        followed.map(|frame| self.events[frame.next - 1]).collect()
    }
}

/// Asks the oracle of states in which nothing has to happen.
fn quiet<M: Model>(space: &Space<'_, M>, state: &State) -> Result<(), Fault> {
    space.model().liveness(&space.view(state)).map_err(Fault::Liveness)
}

/// The shortest way to a fault of the same kind, if it can be found with so many states.
fn shortest<M: Model>(
    space: &mut Space<'_, M>,
    fault: &Fault,
    states_max: usize,
) -> Option<(Fault, Vec<Event>)> {
    let start = space.start();
    let mut seen: HashMap<u64, u32> = HashMap::from([(space.fingerprint(&start), 0)]);
    // For each state the one before it, and the event between.
    let mut before: Vec<(u32, Option<Event>)> = vec![(0, None)];
    let mut level = vec![(0, start)];
    let mut events = Vec::new();
    while !level.is_empty() && seen.len() < states_max {
        let mut deeper = Vec::new();
        for (number, state) in level {
            events.clear();
            space.events(&state, &mut events);
            for &event in &events {
                let reached = space.after(&state, event).and_then(|after| {
                    let mut events = Vec::new();
                    if space.events(&after, &mut events) == 0 {
                        quiet(space, &after)?;
                    }
                    Ok(after)
                });
                match reached {
                    Ok(after) => {
                        let next = before.len() as u32;
                        if *seen.entry(space.fingerprint(&after)).or_insert(next) == next {
                            before.push((number, Some(event)));
                            deeper.push((next, after));
                        }
                    }
                    Err(found) if found.is_like(fault) => {
                        let mut way = vec![event];
                        let mut at = number;
                        while let (earlier, Some(event)) = before[at as usize] {
                            way.push(event);
                            at = earlier;
                        }
                        way.reverse();
                        return Some((found, way));
                    }
                    Err(_) => {}
                }
            }
        }
        level = deeper;
    }
    None
}

/// A way in words.
fn trace<M: Model>(space: &mut Space<'_, M>, way: &[Event], is_shortest: bool) -> Trace {
    let mut state = space.start();
    let mut events = Vec::new();
    for &event in way {
        events.push(space.words_for(&state, event));
        let Ok(after) = space.after(&state, event) else { break };
        state = after;
    }
    Trace { events, is_shortest }
}

#[cfg(test)]
mod tests {
    use super::{Count, Limits, Violation, check};
    use crate::explore::{Effects, Fault, Model, Status, View};
    use mend_base::Rank;
    use mend_proto::protocol::{Output, Protocol};

    /// Member 0 sends a message to member 1, which answers it.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    enum Defect {
        None,
        /// Member 0 waits for an answer of the dead.
        IgnoresFailure,
        /// Member 0 returns an answer that it did not get.
        Lying,
        /// Answers are answered.
        Endless,
        /// A member panics when it learns of a failure.
        Panicking,
    }

    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    struct Asking {
        defect: Defect,
        is_waiting: bool,
    }

    impl Protocol for Asking {
        type Message = &'static str;
        type Outcome = &'static str;

        fn on_message(
            &mut self,
            from: Rank,
            message: &'static str,
            out: &mut Output<&'static str, &'static str>,
        ) {
            if message == "question" || self.defect == Defect::Endless {
                out.send(from, "answer");
            }
            if message == "answer" {
                self.is_waiting = false;
                out.outcomes.push("answered");
            }
        }

        fn on_failure(&mut self, _failed: Rank, out: &mut Output<&'static str, &'static str>) {
            match self.defect {
                Defect::IgnoresFailure => return,
                Defect::Lying if self.is_waiting => out.outcomes.push("answered"),
                Defect::Panicking => panic!("a planted panic"),
                _ => {}
            }
            self.is_waiting = false;
        }
    }

    /// The owner of member 0 asks once. It remembers whether it has asked; that of member 1 whether an answer was sent.
    struct Question(Defect);

    impl Model for Question {
        type Machine = Asking;
        type Owner = bool;
        type Command = ();

        fn size(&self) -> u32 {
            2
        }

        fn crashes_max(&self) -> u32 {
            1
        }

        fn start(&self, _rank: Rank) -> (Asking, bool) {
            (Asking { defect: self.0, is_waiting: false }, false)
        }

        fn choices(&self, view: &View<'_, Self>, rank: Rank, choices: &mut Vec<()>) {
            let member = view.member(rank);
            if rank == Rank(0) && !member.owner && member.told == 0 {
                choices.push(());
            }
        }

        fn command(&self, (asking, asked): (&mut Asking, &mut bool), _: &(), out: &mut Effects<Self>) {
            (asking.is_waiting, *asked) = (true, true);
            out.send(Rank(1), "question");
        }

        fn after_event(&self, _: (&mut Asking, &mut bool), _told: u32, _outcomes: &[&'static str]) {}

        fn after_crash(&self, _owner: &mut bool) {}

        fn check_outcome(&self, view: &View<'_, Self>, rank: Rank, _: &&'static str) -> Result<(), String> {
            let has_learned = view.member(rank).told != 0;
            if has_learned { Err("an answer came from the dead".to_owned()) } else { Ok(()) }
        }

        fn safety(&self, view: &View<'_, Self>) -> Result<(), String> {
            assert!(view.count(Status::Failed) <= 1, "there is one crash at most");
            Ok(())
        }

        fn liveness(&self, view: &View<'_, Self>) -> Result<(), String> {
            let waits = view.member(Rank(0)).machine.as_ref().is_some_and(|asking| asking.is_waiting);
            if waits { Err("member 0 waits for ever".to_owned()) } else { Ok(()) }
        }
    }

    fn checked(defect: Defect) -> Result<Count, Box<Violation>> {
        check(&Question(defect), Limits::default()).map(|count| count.expect("there is no limit"))
    }

    fn trace(defect: Defect) -> (Fault, Vec<String>) {
        let violation = checked(defect).expect_err("a defect is found");
        (violation.fault, violation.trace.events)
    }

    #[test]
    fn all_states_of_a_correct_protocol_are_visited() {
        let count = checked(Defect::None).unwrap();
        // Counted by hand. Nobody has crashed: idle, asked, answered, returned. Member 0 has: it had asked or not, member 1 knows
        // of it or not, and the question may still arrive. Member 1 has: member 0 is idle and knows of it or not; it waits
        // in vain, the answer will arrive, or it has arrived; member 0 had asked and knows of it.
        assert_eq!((count.states, count.depth), (4 + 5 + 6, 5), "{count}");
        assert!(check(&Question(Defect::None), Limits { states: 3, trace_states: 9 }).unwrap().is_none());
    }

    #[test]
    fn a_defect_is_shown_by_a_shortest_trace() {
        let (fault, events) = trace(Defect::IgnoresFailure);
        assert_eq!(fault, Fault::Liveness("member 0 waits for ever".to_owned()));
        assert_eq!(events.len(), 3, "{events:?}");
        let (fault, events) = trace(Defect::Lying);
        assert_eq!(fault, Fault::Safety("an answer came from the dead".to_owned()));
        let learns = "0 learns that 1 has failed\n        returns \"answered\"";
        assert_eq!(events.last().map(String::as_str), Some(learns));
        assert_eq!(events.len(), 3, "{events:?}");
        let (fault, events) = trace(Defect::Panicking);
        assert_eq!(fault, Fault::Safety("member 1 panics: a planted panic".to_owned()));
        assert_eq!(events, ["0 crashes", "1 learns that 0 has failed"]);
        let (fault, events) = trace(Defect::Endless);
        assert_eq!(fault, Fault::Liveness("this goes on for ever".to_owned()));
        assert!(events.last().is_some_and(|event| event.contains("receives \"answer\"")), "{events:?}");
    }
}
