// SPDX-License-Identifier: Apache-2.0 OR MIT
//! States and events. A state is a row of small numbers, since the parts of members, messages and contents of channels are stored
//! once each; and what an event does to one member is computed once, and looked up from then on.

use super::fingerprints::{NumberMap, fingerprint};
use super::model::{Effects, Member, MemberOf, MessageOf, Model, OutcomeOf, Status, View};
use mend_base::Rank;
use mend_proto::protocol::Protocol;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// The most members of a model.
pub const SIZE_MAX: usize = 6;
/// The most channels from one member to another.
pub const STREAMS_MAX: usize = 2;

/// One state: numbers of members and of the contents of channels (by stream; row: sender).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    pub(super) members: [u32; SIZE_MAX],
    channels: [[[u32; SIZE_MAX]; SIZE_MAX]; STREAMS_MAX],
}

/// What happens next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The first message of a channel arrives.
    Arrival { from: u8, at: u8, stream: u8 },
    /// What the dead have sent to a member and has not arrived is lost.
    Loss { from: u8, at: u8 },
    /// The end of a member is published at another one.
    End { of: u8, at: u8 },
    /// An owner does something.
    Command { at: u8, command: u32 },
    /// A member crashes.
    Crash(u8),
    /// A member leaves MPI.
    Departure(u8),
}

/// What an event does to one member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    Message { from: u8, message: u32 },
    Failure(u8),
    Departed(u8),
    Command(u32),
    Crash,
    Departure,
}

/// The member after a step, and what comes out of it.
#[derive(Debug)]
struct Stepped<M: Model> {
    member: u32,
    /// Receiver, stream and message.
    sends: Box<[(u8, u8, u32)]>,
    outcomes: Box<[OutcomeOf<M>]>,
}

/// Why a state must not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// An oracle of safety says so, or the part of a member panicked.
    Safety(String),
    /// An oracle of liveness says so, or messages are sent for ever.
    Liveness(String),
}

/// Values, each with a number.
struct Numbered<T> {
    numbers: HashMap<Rc<T>, u32>,
    values: Vec<Rc<T>>,
}

/// The contents of channels: lists of messages. 0 is the empty one.
struct Contents {
    numbers: NumberMap<u64, u32>,
    /// For each content its last message, and the content without it.
    parts: Vec<(u32, u32)>,
    /// For each content its first message, and the content after its arrival.
    firsts: Vec<(u32, u32)>,
}

/// Everything about a model that is not one state.
pub struct Space<'a, M: Model> {
    model: &'a M,
    members: Numbered<MemberOf<M>>,
    messages: Numbered<MessageOf<M>>,
    commands: RefCell<Numbered<M::Command>>,
    contents: Contents,
    steps: NumberMap<(u32, u64), Rc<Stepped<M>>>,
}

impl State {
    /// Whether nothing is on its way from one member to another.
    fn is_empty(&self, from: usize, to: usize) -> bool {
        self.channels.iter().all(|stream| stream[from][to] == 0)
    }

    fn clear(&mut self, from: usize, to: usize) {
        self.channels.iter_mut().for_each(|stream| stream[from][to] = 0);
    }
}

impl<T: Eq + Hash> Numbered<T> {
    fn new() -> Self {
        Numbered { numbers: HashMap::new(), values: Vec::new() }
    }

    fn number(&mut self, value: T) -> u32 {
        if let Some(&number) = self.numbers.get(&value) {
            return number;
        }
        let (value, number) = (Rc::new(value), self.values.len() as u32);
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        number
    }

    fn value(&self, number: u32) -> &T {
        &self.values[number as usize]
    }
}

impl Contents {
    fn new() -> Self {
        Contents { numbers: NumberMap::default(), parts: vec![(0, 0)], firsts: vec![(0, 0)] }
    }

    /// A content with one more message at its end.
    fn with(&mut self, content: u32, message: u32) -> u32 {
        let key = u64::from(content) << 32 | u64::from(message);
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        let first = match self.firsts[content as usize] {
            _ if content == 0 => (message, 0),
            (first, rest) => (first, self.with(rest, message)),
        };
        let number = self.parts.len() as u32;
        self.parts.push((message, content));
        self.firsts.push(first);
        self.numbers.insert(key, number);
        number
    }

    /// The first message of a content that is not empty, and what is left without it.
    fn first(&self, content: u32) -> (u32, u32) {
        self.firsts[content as usize]
    }
}

impl<'a, M: Model> Space<'a, M> {
    /// Nothing is known yet.
    pub fn new(model: &'a M) -> Self {
        assert!(model.size() as usize <= SIZE_MAX, "at most {SIZE_MAX} members");
        Space {
            model,
            members: Numbered::new(),
            messages: Numbered::new(),
            commands: RefCell::new(Numbered::new()),
            contents: Contents::new(),
            steps: NumberMap::default(),
        }
    }

    /// The number of members.
    pub fn size(&self) -> usize {
        self.model.size() as usize
    }

    /// What is checked.
    pub fn model(&self) -> &'a M {
        self.model
    }

    pub(super) fn member(&self, number: u32) -> &MemberOf<M> {
        self.members.value(number)
    }

    /// How many different parts of members, contents of channels, and steps there are.
    pub fn sizes(&self) -> (usize, usize, usize) {
        (self.members.values.len(), self.contents.parts.len(), self.steps.len())
    }

    /// The state at the start.
    pub fn start(&mut self) -> State {
        let mut members = [0; SIZE_MAX];
        for (rank, member) in (0..self.model.size()).zip(&mut members) {
            let (machine, owner) = self.model.start(Rank(rank));
            let start = Member { status: Status::Living, told: 0, machine: Some(machine), owner };
            *member = self.members.number(start);
        }
        State { members, channels: [[[0; SIZE_MAX]; SIZE_MAX]; STREAMS_MAX] }
    }

    /// The hash of a state.
    pub fn fingerprint(&self, state: &State) -> u64 {
        let size = self.size();
        let streams = state.channels[..self.model.streams()].iter();
        let channels = streams.flat_map(|stream| stream[..size].iter().flat_map(|row| &row[..size]));
        fingerprint(state.members[..size].iter().chain(channels).copied())
    }

    /// What the oracles see.
    pub fn view<'s>(&'s self, state: &'s State) -> View<'s, M> {
        View { space: self, state }
    }

    /// All events that can happen. Returns how many of them must happen; these come first.
    pub fn events(&self, state: &State, events: &mut Vec<Event>) -> usize {
        let (before, view, size) = (events.len(), self.view(state), self.model.size());
        let status = |rank: u32| view.member(Rank(rank)).status;
        let living = || (0..size).filter(|&rank| status(rank) == Status::Living);
        for at in living() {
            let told = view.member(Rank(at)).told;
            for from in (0..size).filter(|&from| from != at) {
                let is_empty = state.is_empty(from as usize, at as usize);
                let (from_, at) = (from as u8, at as u8);
                let streams = state.channels.iter().zip(0..);
                let full = streams.filter(|(stream, _)| stream[from as usize][usize::from(at)] != 0);
                events.extend(full.map(|(_, stream)| Event::Arrival { from: from_, at, stream }));
                if told & 1 << from == 0
                    && (status(from) == Status::Failed || status(from) == Status::Departed && is_empty)
                {
                    events.push(Event::End { of: from_, at });
                }
            }
        }
        let mut commands = Vec::new();
        for rank in living() {
            self.model.obligations(&view, Rank(rank), &mut commands);
            self.add_commands(rank, &mut commands, events);
        }
        let obligatory = events.len() - before;
        if self.model.news_overtakes() {
            self.add_losses(state, events);
        }
        for rank in living() {
            self.model.choices(&view, Rank(rank), &mut commands);
            self.add_commands(rank, &mut commands, events);
        }
        if view.count(Status::Failed) < self.model.crashes_max() {
            events.extend(living().map(|rank| Event::Crash(rank as u8)));
        }
        if view.count(Status::Departed) < self.model.departures_max() {
            let may = |&rank: &u32| {
                let member = view.member(Rank(rank));
                member.machine.as_ref().is_some_and(|machine| self.model.may_depart(machine, &member.owner))
            };
            events.extend(living().filter(may).map(|rank| Event::Departure(rank as u8)));
        }
        obligatory
    }

    /// What the dead have sent may be lost. Before the news of the crash it makes no difference: it may as well not arrive.
    fn add_losses(&self, state: &State, events: &mut Vec<Event>) {
        for (at, &member) in state.members[..self.size()].iter().enumerate() {
            let Member { status: Status::Living, told, .. } = self.member(member) else { continue };
            let is_left = |from: &usize| told & 1 << from != 0 && !state.is_empty(*from, at);
            let left = (0..self.size()).filter(is_left);
            events.extend(left.map(|from| Event::Loss { from: from as u8, at: at as u8 }));
        }
    }

    fn add_commands(&self, rank: u32, commands: &mut Vec<M::Command>, events: &mut Vec<Event>) {
        let mut numbered = self.commands.borrow_mut();
        let command = |command| Event::Command { at: rank as u8, command: numbered.number(command) };
        events.extend(commands.drain(..).map(command));
    }

    /// The state after an event.
    pub fn after(&mut self, state: &State, event: Event) -> Result<State, Fault> {
        let mut after = state.clone();
        let Some((at, step)) = self.step_of(&mut after, event) else { return Ok(after) };
        let stepped = self.step(state.members[at], at, step)?;
        after.members[at] = stepped.member;
        for &(to, stream, message) in &stepped.sends {
            let is_living = self.member(after.members[usize::from(to)]).status == Status::Living;
            let channel = &mut after.channels[usize::from(stream)][at][usize::from(to)];
            if is_living {
                *channel = self.contents.with(*channel, message);
            }
        }
        for outcome in &stepped.outcomes {
            let checked = self.model.check_outcome(&self.view(&after), Rank(at as u32), outcome);
            checked.map_err(Fault::Safety)?;
        }
        self.model.safety(&self.view(&after)).map_err(Fault::Safety)?;
        Ok(after)
    }

    /// The member that an event concerns, if it concerns one, and what the event is to it. Takes from the channels what the event
    /// takes.
    fn step_of(&self, state: &mut State, event: Event) -> Option<(usize, Step)> {
        Some(match event {
            Event::Arrival { from, at, stream } => {
                let channel = &mut state.channels[usize::from(stream)][usize::from(from)][usize::from(at)];
                let (message, rest) = self.contents.first(*channel);
                *channel = rest;
                (usize::from(at), Step::Message { from, message })
            }
            Event::Loss { from, at } => {
                state.clear(usize::from(from), usize::from(at));
                return None;
            }
            Event::End { of, at } => {
                let of_ = usize::from(of);
                if !self.model.news_overtakes() {
                    state.clear(of_, usize::from(at));
                }
                let has_failed = self.member(state.members[of_]).status == Status::Failed;
                (usize::from(at), if has_failed { Step::Failure(of) } else { Step::Departed(of) })
            }
            Event::Command { at, command } => (usize::from(at), Step::Command(command)),
            Event::Crash(rank) | Event::Departure(rank) => {
                (0..SIZE_MAX).for_each(|from| state.clear(from, usize::from(rank)));
                let step = if event == Event::Crash(rank) { Step::Crash } else { Step::Departure };
                (usize::from(rank), step)
            }
        })
    }

    fn step(&mut self, member: u32, at: usize, step: Step) -> Result<Rc<Stepped<M>>, Fault> {
        let key = (member, key_of(step));
        if let Some(stepped) = self.steps.get(&key) {
            return Ok(stepped.clone());
        }
        let mut after = self.member(member).clone();
        let mut out = Effects::<M>::new();
        let stepping = AssertUnwindSafe(|| self.change(&mut after, step, &mut out));
        if let Err(panic) = catch_unwind(stepping) {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            return Err(Fault::Safety(format!("member {at} panics: {text}")));
        }
        let mut sends = Vec::new();
        for (to, message) in out.sends {
            if to.index() >= self.size() || to.index() == at {
                return Err(Fault::Safety(format!("member {at} sends {message:?} to {}", to.0)));
            }
            let stream = self.model.stream(&message);
            assert!(stream < self.model.streams(), "a message has one of the channels");
            sends.push((to.0 as u8, stream as u8, self.messages.number(message)));
        }
        let member = self.members.number(after);
        let stepped = Rc::new(Stepped { member, sends: sends.into(), outcomes: out.outcomes.into() });
        self.steps.insert(key, stepped.clone());
        Ok(stepped)
    }

    fn change(&self, member: &mut MemberOf<M>, step: Step, out: &mut Effects<M>) {
        let Member { status, told, machine: part, owner } = member;
        let machine = part.as_mut().expect("a living member has its part");
        match step {
            Step::Message { from, message } => {
                let message = self.messages.value(message).clone();
                machine.on_message(Rank(from.into()), message, out);
            }
            Step::Failure(of) => {
                *told |= 1 << of;
                machine.on_failure(Rank(of.into()), out);
            }
            Step::Departed(of) => {
                *told |= 1 << of;
                self.model.on_departure(machine, Rank(of.into()), out);
            }
            Step::Command(command) => {
                let command = self.commands.borrow().value(command).clone();
                self.model.command((machine, owner), &command, out);
            }
            Step::Crash => {
                (*status, *told, *part) = (Status::Failed, 0, None);
                self.model.after_crash(owner);
                return;
            }
            Step::Departure => {
                *status = Status::Departed;
                *told = 0;
                return;
            }
        }
        self.model.after_event((machine, owner), *told, &out.outcomes);
    }

    /// An event of this state in words.
    pub fn words_for(&mut self, state: &State, event: Event) -> String {
        let what = match event {
            Event::Arrival { from, at, stream } => {
                let content = state.channels[usize::from(stream)][usize::from(from)][usize::from(at)];
                let message = self.messages.value(self.contents.first(content).0);
                format!("{at} receives {message:?} from {from}")
            }
            Event::Loss { from, at } => format!("what is on its way from {from} to {at} is lost"),
            Event::End { of, at } => {
                let lost = match state.is_empty(usize::from(of), usize::from(at)) {
                    true => "",
                    false if self.model.news_overtakes() => "; what is on its way may still arrive",
                    false => "; what was on its way is lost",
                };
                let status = self.member(state.members[usize::from(of)]).status;
                format!("{at} learns that {of} has {}{lost}", format!("{status:?}").to_lowercase())
            }
            Event::Command { at, command } => {
                format!("the owner of {at}: {:?}", self.commands.borrow().value(command))
            }
            Event::Crash(rank) => format!("{rank} crashes"),
            Event::Departure(rank) => format!("{rank} leaves MPI"),
        };
        let Some((at, step)) = self.step_of(&mut state.clone(), event) else { return what };
        let Ok(stepped) = self.step(state.members[at], at, step) else { return what };
        let sends = stepped.sends.iter().map(|&(to, _, message)| {
            let message = self.messages.value(message);
            format!("\n        sends {message:?} to {to}")
        });
        let outcomes = stepped.outcomes.iter().map(|outcome| format!("\n        returns {outcome:?}"));
        what + &sends.chain(outcomes).collect::<String>()
    }
}

/// A step as a number.
fn key_of(step: Step) -> u64 {
    let (kind, rank, number) = match step {
        Step::Message { from, message } => (0, from, message),
        Step::Failure(of) => (1, of, 0),
        Step::Departed(of) => (2, of, 0),
        Step::Command(command) => (3, 0, command),
        Step::Crash => (4, 0, 0),
        Step::Departure => (5, 0, 0),
    };
    kind << 40 | u64::from(rank) << 32 | u64::from(number)
}
