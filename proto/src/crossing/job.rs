// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A job for the tests of searches: processes, each with a program that agrees on its communicators one after the other, and the
//! channels between them. What the owner of the machines does here, the engine does in production.

use super::{Action, Message, ProgramWait, Searches, Waits};
use crate::agreement::{self, Agreement, AgreementId, Contribution, Decision, Expected, Op};
use crate::protocol::{Output, Protocol};
use crate::ranks::SetHash;
use crate::tree::Shape;
use mend_base::{Identity, Peer, Rank};
use std::collections::{BTreeMap, VecDeque};

/// A communicator: its members, each a process of the job, by their ranks.
pub(super) type Group = Vec<usize>;

/// What goes from one process to another, about a communicator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Packet {
    Agreement(agreement::Message),
    Search(Message),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Job {
    pub groups: Vec<Group>,
    pub processes: Vec<Process>,
    /// The messages from one process to another, with their communicator.
    channels: BTreeMap<(usize, usize), VecDeque<(usize, Packet)>>,
    /// Deaths that are not published yet: at which process, and whose.
    news: Vec<(usize, usize)>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Process {
    pub lives: bool,
    /// The communicators on which the program will call.
    pub calls: VecDeque<usize>,
    /// Where the program is blocked: communicator, and number of the wait.
    blocked: Option<(usize, u32)>,
    waits: u32,
    /// Whether the program was part of a deadlock in this wait.
    was_deadlocked: bool,
    /// Searches that it may still begin at any time.
    pub searches_left: u32,
    agreements: BTreeMap<usize, Agreement>,
    searches: Searches,
    /// Decisions that the program has not called for.
    early: BTreeMap<usize, VecDeque<Decision>>,
    /// What this process will contribute in absentia when the agreements before are passed.
    pending: Vec<(AgreementId, Vec<AgreementId>)>,
    /// What the calls on each communicator have returned: the cycle, if they were crossed.
    pub results: BTreeMap<usize, Vec<Option<Vec<AgreementId>>>>,
    /// The contributions in absentia that were made for a proven cycle.
    pub proofs: u32,
}

/// Something that can happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Call(usize),
    Deliver(usize, usize),
    Publish(usize, usize),
    Begin(usize),
}

fn identity(communicator: usize) -> Identity {
    Identity { creator: Peer(77), number: communicator as u32 }
}

impl Waits for Process {
    fn program(&self) -> Option<ProgramWait> {
        let (communicator, number) = self.blocked?;
        Some(ProgramWait { number, communicators: vec![identity(communicator)] })
    }

    fn expected_by(&self, from: Rank, agreement: AgreementId) -> Expected {
        let of = self.agreements.get(&(agreement.communicator.number as usize));
        of.map_or(Expected::Nothing, |of| of.expected_by(from, agreement.sequence))
    }

    fn awaited(&self, communicator: Identity, visit: &mut dyn FnMut(Rank, u32)) {
        let of = &self.agreements[&(communicator.number as usize)];
        of.awaited(&mut |rank| visit(rank, of.sequence()));
    }

    fn is_next(&self, agreement: AgreementId) -> bool {
        let of = &self.agreements[&(agreement.communicator.number as usize)];
        !of.is_running() && of.sequence() == agreement.sequence
    }
}

impl Job {
    /// `groups` and `calls` name processes and communicators by their numbers.
    pub(super) fn new(groups: &[&[usize]], calls: &[&[usize]], shape: Shape, searches: u32) -> Job {
        let process = |(at, calls): (usize, &&[usize])| {
            let of = groups.iter().enumerate().filter(|(_, group)| group.contains(&at));
            let agreements = of.map(|(communicator, group)| {
                let rank = group.iter().position(|&member| member == at).unwrap() as u32;
                (communicator, Agreement::new(Rank(rank), group.len() as u32, shape))
            });
            Process {
                lives: true,
                calls: calls.iter().copied().collect(),
                blocked: None,
                waits: 0,
                was_deadlocked: false,
                searches_left: searches,
                agreements: agreements.collect(),
                searches: Searches::new(Peer(at as u64)),
                early: BTreeMap::new(),
                pending: Vec::new(),
                results: BTreeMap::new(),
                proofs: 0,
            }
        };
        let processes = calls.iter().enumerate().map(process).collect();
        let groups = groups.iter().map(|group| group.to_vec()).collect();
        Job { groups, processes, channels: BTreeMap::new(), news: Vec::new() }
    }

    /// Everything that can happen, but deaths.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (at, process) in self.processes.iter().enumerate().filter(|(_, process)| process.lives) {
            if process.blocked.is_none() && !process.calls.is_empty() {
                events.push(Event::Call(at));
            }
            if process.blocked.is_some() && process.searches_left > 0 {
                events.push(Event::Begin(at));
            }
        }
        let full = self.channels.iter().filter(|(_, channel)| !channel.is_empty());
        events.extend(full.map(|(&(from, to), _)| Event::Deliver(from, to)));
        let is_empty = |from, to| self.channels.get(&(from, to)).is_none_or(VecDeque::is_empty);
        let news = self.news.iter().filter(|&&(at, ended)| is_empty(ended, at));
        events.extend(news.map(|&(at, ended)| Event::Publish(at, ended)));
        events
    }

    pub(super) fn step(&mut self, event: Event) {
        match event {
            Event::Call(at) => self.call(at),
            Event::Deliver(from, to) => self.deliver(from, to),
            Event::Publish(at, ended) => self.publish(at, ended),
            Event::Begin(at) => {
                self.processes[at].searches_left -= 1;
                self.begin(at);
            }
        }
        self.note_deadlocks();
    }

    /// A process dies. `lost` says how many of its messages to another one are lost with it.
    pub(super) fn crash(&mut self, at: usize, mut lost: impl FnMut(usize) -> usize) {
        self.processes[at].lives = false;
        for (&(from, to), channel) in &mut self.channels {
            if from == at {
                channel.truncate(channel.len() - lost(channel.len()));
            }
            if to == at {
                channel.clear();
            }
        }
        self.news.retain(|&(told, _)| told != at);
        let told = (0..self.processes.len()).filter(|&other| self.processes[other].lives);
        self.news.extend(told.map(|other| (other, at)));
        self.note_deadlocks();
    }

    /// Everything that can happen happens, with searches as often as it takes. All programs end, and all have the same answers.
    pub(super) fn finish(&mut self) {
        for _ in 0..8 {
            self.settle();
            for at in 0..self.processes.len() {
                if self.processes[at].lives && self.processes[at].blocked.is_some() {
                    self.begin(at);
                    self.settle();
                }
            }
        }
        for (at, process) in self.processes.iter().enumerate().filter(|(_, process)| process.lives) {
            assert!(
                process.blocked.is_none() && process.calls.is_empty(),
                "{at} waits for ever: {process:?}"
            );
        }
        for (communicator, group) in self.groups.iter().enumerate() {
            let mut results = group
                .iter()
                .map(|&at| &self.processes[at])
                .filter(|process| process.lives)
                .map(|process| process.results.get(&communicator));
            let first = results.next();
            assert!(results.all(|other| Some(other) == first), "members of {communicator} differ: {self:?}");
        }
    }

    fn settle(&mut self) {
        while let Some(event) = self.events().into_iter().find(|event| !matches!(event, Event::Begin(_))) {
            self.step(event);
        }
    }

    fn begin(&mut self, at: usize) {
        let mut actions = Vec::new();
        let process = &mut self.processes[at];
        let mut searches = process.searches.clone();
        searches.begin(process, &mut actions);
        process.searches = searches;
        self.act(at, actions);
    }

    fn call(&mut self, at: usize) {
        let process = &mut self.processes[at];
        let communicator = process.calls.pop_front().unwrap();
        if let Some(decision) = process.early.get_mut(&communicator).and_then(VecDeque::pop_front) {
            process.results.entry(communicator).or_default().push(decision.crossed);
            return;
        }
        process.waits += 1;
        process.blocked = Some((communicator, process.waits));
        process.was_deadlocked = false;
        if !process.agreements[&communicator].is_running() {
            self.agree(at, communicator, |agreement, out| agreement.start(CONTRIBUTION, out));
        }
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let (communicator, packet) = self.channels.get_mut(&(from, to)).unwrap().pop_front().unwrap();
        let rank = self.rank(communicator, from);
        match packet {
            Packet::Agreement(message) => {
                self.agree(to, communicator, |agreement, out| agreement.on_message(rank, message, out));
            }
            Packet::Search(message) => {
                let mut actions = Vec::new();
                let process = &mut self.processes[to];
                let mut searches = process.searches.clone();
                searches.on_message((identity(communicator), rank), message, process, &mut actions);
                process.searches = searches;
                self.act(to, actions);
            }
        }
    }

    fn publish(&mut self, at: usize, ended: usize) {
        self.news.retain(|&news| news != (at, ended));
        for communicator in 0..self.groups.len() {
            let group = &self.groups[communicator];
            if group.contains(&at) && group.contains(&ended) {
                let rank = self.rank(communicator, ended);
                self.processes[at].searches.on_end(identity(communicator), rank);
                self.agree(at, communicator, |agreement, out| agreement.on_failure(rank, out));
            }
        }
    }

    fn rank(&self, communicator: usize, process: usize) -> Rank {
        Rank(self.groups[communicator].iter().position(|&member| member == process).unwrap() as u32)
    }

    fn agree(
        &mut self,
        at: usize,
        communicator: usize,
        event: impl FnOnce(&mut Agreement, &mut Output<agreement::Message, Decision>),
    ) {
        let mut out = Output::new();
        event(self.processes[at].agreements.get_mut(&communicator).unwrap(), &mut out);
        for (to, message) in out.sends {
            let to = self.groups[communicator][to.index()];
            self.send(at, to, communicator, Packet::Agreement(message));
        }
        out.outcomes.into_iter().for_each(|decision| self.decided(at, communicator, decision));
    }

    fn decided(&mut self, at: usize, communicator: usize, decision: Decision) {
        let process = &mut self.processes[at];
        let cycle = decision.crossed.clone().unwrap_or_default();
        if process.blocked.is_some_and(|blocked| blocked.0 == communicator) {
            process.blocked = None;
            process.results.entry(communicator).or_default().push(decision.crossed);
        } else {
            process.early.entry(communicator).or_default().push_back(decision);
        }
        for &listed in &cycle {
            self.contribute_in_absentia(at, listed, &cycle);
        }
        let pending = core::mem::take(&mut self.processes[at].pending);
        pending.into_iter().for_each(|(listed, cycle)| self.contribute_in_absentia(at, listed, &cycle));
    }

    fn contribute_in_absentia(&mut self, at: usize, to: AgreementId, cycle: &[AgreementId]) {
        let communicator = to.communicator.number as usize;
        let Some(agreement) = self.processes[at].agreements.get(&communicator) else { return };
        if self.processes[at].is_next(to) {
            self.agree(at, communicator, |agreement, out| {
                agreement.contribute_in_absentia(CONTRIBUTION, cycle, out);
            });
        } else if (to.sequence.wrapping_sub(agreement.sequence()) as i32) > 0 {
            self.processes[at].pending.push((to, cycle.to_vec()));
        }
    }

    fn act(&mut self, at: usize, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(communicator, to, message) => {
                    let communicator = communicator.number as usize;
                    let to = self.groups[communicator][to.index()];
                    self.send(at, to, communicator, Packet::Search(message));
                }
                Action::Contribute(agreement, cycle) => {
                    assert!(cycle.contains(&agreement) && cycle.len() > 1);
                    assert!(self.processes[at].was_deadlocked, "a false mark at {at}: {self:?}");
                    self.processes[at].proofs += 1;
                    self.contribute_in_absentia(at, agreement, &cycle);
                }
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, communicator: usize, packet: Packet) {
        assert_ne!(from, to);
        if self.processes[to].lives {
            self.channels.entry((from, to)).or_default().push_back((communicator, packet));
        }
    }

    /// Notes which programs are part of a deadlock, or wait for one: each of them waits for a member that has not started the agreement
    /// and is noted, too.
    fn note_deadlocks(&mut self) {
        let is_blocked = |process: &Process| process.lives && process.blocked.is_some();
        let mut deadlocked: Vec<bool> = self.processes.iter().map(is_blocked).collect();
        loop {
            let waits_for_deadlocked = |at: usize| {
                let (communicator, _) = self.processes[at].blocked.unwrap();
                let sequence = self.processes[at].agreements[&communicator].sequence();
                let next = AgreementId { communicator: identity(communicator), sequence };
                let mut members = self.groups[communicator].iter();
                members.any(|&member| deadlocked[member] && self.processes[member].is_next(next))
            };
            let ends = (0..deadlocked.len()).find(|&at| deadlocked[at] && !waits_for_deadlocked(at));
            let Some(at) = ends else { break };
            deadlocked[at] = false;
        }
        for (process, is_deadlocked) in self.processes.iter_mut().zip(deadlocked) {
            process.was_deadlocked |= is_deadlocked;
        }
    }
}

const CONTRIBUTION: Contribution =
    Contribution { value: 0, op: Op::And, acknowledged: SetHash(0), uniform: false };
