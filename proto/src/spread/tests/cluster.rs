// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Members of one communicator, their owners and the network: each event happens when the test says so.

use super::super::{Item, Message, Spread};
use crate::protocol::{Output, Protocol};
use crate::ranks::Ranks;
use mend_base::{Random, Rank};
use std::collections::{BTreeSet, VecDeque};

/// How the communicator exists at a process.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum State {
    /// Not created yet: messages are early.
    Early,
    Open,
    /// Freed, or its creation failed.
    Retired,
    Dead,
}

/// One process: what the engine does around the part.
pub(super) struct Process {
    rank: Rank,
    pub(super) state: State,
    pub(super) part: Option<Spread>,
    early: Vec<(Rank, Message)>,
    published: Ranks,
    pub(super) delivered: BTreeSet<(u32, bool)>,
    /// The bit that the process keeps of a retired identity.
    was_revoked: bool,
    pub(super) sends: usize,
}

pub(super) struct Cluster {
    pub(super) processes: Vec<Process>,
    /// By sender and receiver.
    channels: Vec<VecDeque<Message>>,
    /// Channels that hold messages, in no order.
    busy: Vec<usize>,
    /// Early messages are stored. Otherwise they are lost.
    pub(super) stores_early: bool,
    /// The next flush ends with the death of its process after so many messages.
    pub(super) crash_after: Option<usize>,
}

pub(super) fn key(item: Item) -> (u32, bool) {
    match item {
        Item::Revoked => (0, true),
        Item::Failed(rank) => (rank.0, false),
    }
}

impl Process {
    fn part(&mut self, size: u32) -> &mut Spread {
        let (rank, published) = (self.rank, &self.published);
        self.part.get_or_insert_with(|| {
            let mut part = Spread::new(rank, size);
            published.iter().for_each(|failed| part.on_failure(failed, &mut Output::new()));
            part
        })
    }

    pub(super) fn lives(&self) -> bool {
        self.state != State::Dead
    }
}

impl Cluster {
    pub(super) fn new(size: u32) -> Self {
        let process = |rank| Process {
            rank: Rank(rank),
            state: State::Open,
            part: None,
            early: Vec::new(),
            published: Ranks::new(),
            delivered: BTreeSet::new(),
            was_revoked: false,
            sends: 0,
        };
        Cluster {
            processes: (0..size).map(process).collect(),
            channels: (0..size * size).map(|_| VecDeque::new()).collect(),
            busy: Vec::new(),
            stores_early: true,
            crash_after: None,
        }
    }

    pub(super) fn size(&self) -> u32 {
        self.processes.len() as u32
    }

    pub(super) fn is_dead(&self, rank: u32) -> bool {
        !self.processes[rank as usize].lives()
    }

    /// Something happens to the part of one process, if the process has or makes one.
    fn with(&mut self, rank: u32, event: impl FnOnce(&mut Spread, &mut Output<Message, Item>)) {
        let size = self.size();
        let process = &mut self.processes[rank as usize];
        let mut out = Output::new();
        event(process.part(size), &mut out);
        for item in out.outcomes {
            assert!(process.delivered.insert(key(item)), "{item:?} is an outcome twice at {rank}");
        }
        if process.state == State::Retired && process.part.as_ref().is_some_and(Spread::is_over) {
            process.was_revoked = process.part.take().is_some_and(|part| part.is_revoked());
        }
        let crash = self.crash_after.filter(|&after| after < out.sends.len());
        for (to, message) in out.sends.into_iter().take(crash.unwrap_or(usize::MAX)) {
            self.post(rank, to.0, message);
        }
        if crash.is_some() {
            self.crash_after = None;
            self.die(rank);
        }
    }

    fn post(&mut self, from: u32, to: u32, message: Message) {
        assert_ne!(from, to);
        let mut bytes = [0; Message::BYTES_MAX];
        message.write(&mut mend_base::Writer::new(&mut bytes));
        let message = Message::read(&mut mend_base::Reader::new(&bytes)).expect("what was written is read");
        self.processes[from as usize].sends += 1;
        let channel = (from * self.size() + to) as usize;
        if self.channels[channel].is_empty() {
            self.busy.push(channel);
        }
        self.channels[channel].push_back(message);
    }

    pub(super) fn add(&mut self, rank: u32, item: Item) {
        if self.processes[rank as usize].state == State::Open {
            self.with(rank, |part, out| part.add(item, out));
        }
    }

    /// A turn of progress. Returns whether something was sent.
    pub(super) fn flush(&mut self, rank: u32) -> bool {
        let before = self.processes[rank as usize].sends;
        if self.processes[rank as usize].lives() && self.processes[rank as usize].part.is_some() {
            self.with(rank, |part, out| part.flush(out));
        }
        self.processes[rank as usize].sends > before
    }

    pub(super) fn free(&mut self, rank: u32) {
        let process = &mut self.processes[rank as usize];
        match process.state {
            State::Open => {
                process.state = State::Retired;
                if process.part.is_some() {
                    self.with(rank, |part, out| part.close(out));
                }
            }
            // The creation has failed here.
            State::Early => {
                process.state = State::Retired;
                for (from, message) in core::mem::take(&mut process.early) {
                    self.answer_gone(rank, from.0, message);
                }
            }
            State::Retired | State::Dead => {}
        }
    }

    fn answer_gone(&mut self, rank: u32, to: u32, message: Message) {
        if matches!(message, Message::Items(_)) {
            let was_revoked = self.processes[rank as usize].was_revoked;
            self.post(rank, to, if was_revoked { Message::GoneRevoked } else { Message::Gone });
        }
    }

    pub(super) fn make_early(&mut self, rank: u32) {
        self.processes[rank as usize].state = State::Early;
    }

    pub(super) fn create(&mut self, rank: u32) {
        let size = self.size();
        let process = &mut self.processes[rank as usize];
        if process.state == State::Early {
            process.state = State::Open;
            if !process.published.is_empty() {
                process.part(size);
            }
            for (from, message) in core::mem::take(&mut process.early) {
                self.arrive(from.0, rank, message);
            }
        }
    }

    fn arrive(&mut self, from: u32, to: u32, message: Message) {
        let stores_early = self.stores_early;
        let process = &mut self.processes[to as usize];
        match process.state {
            State::Dead => {}
            State::Early if stores_early => process.early.push((Rank(from), message)),
            State::Early => {}
            State::Retired if process.part.is_none() => self.answer_gone(to, from, message),
            State::Open if process.part.is_none() && message == Message::Gone => {}
            State::Retired | State::Open => {
                self.with(to, |part, out| part.on_message(Rank(from), message, out));
            }
        }
    }

    /// Delivers one message of one channel that has some. Returns whether there was one.
    pub(super) fn deliver(&mut self, random: &mut Random) -> bool {
        if self.busy.is_empty() {
            return false;
        }
        let at = random.below(self.busy.len() as u64) as usize;
        self.deliver_from(at);
        true
    }

    fn deliver_from(&mut self, at: usize) {
        let channel = self.busy[at];
        let message = self.channels[channel].pop_front().expect("a busy channel holds messages");
        if self.channels[channel].is_empty() {
            self.busy.swap_remove(at);
        }
        let (from, to) = (channel as u32 / self.size(), channel as u32 % self.size());
        self.arrive(from, to, message);
    }

    /// Delivers what is in flight now: a round in which each message makes one hop.
    pub(super) fn deliver_all(&mut self) {
        let mut in_flight: Vec<(usize, usize)> =
            self.busy.iter().map(|&channel| (channel, self.channels[channel].len())).collect();
        in_flight.sort_unstable();
        for (channel, count) in in_flight {
            for _ in 0..count {
                if let Some(at) = self.busy.iter().position(|&busy| busy == channel) {
                    self.deliver_from(at);
                }
            }
        }
    }

    pub(super) fn die(&mut self, rank: u32) {
        let process = &mut self.processes[rank as usize];
        process.state = State::Dead;
        process.part = None;
        let size = self.size();
        (0..size).for_each(|other| self.channels[(other * size + rank) as usize].clear());
        self.busy.retain(|&channel| !self.channels[channel].is_empty());
    }

    /// Any suffix of each channel of a dead process may be lost.
    pub(super) fn lose_suffixes(&mut self, rank: u32, random: &mut Random) {
        let size = self.size();
        for other in 0..size {
            let channel = &mut self.channels[(rank * size + other) as usize];
            let keep = random.below(channel.len() as u64 + 1) as usize;
            channel.truncate(keep);
        }
        self.busy.retain(|&channel| !self.channels[channel].is_empty());
    }

    /// Loses everything that a process has sent.
    pub(super) fn lose_all(&mut self, rank: u32) {
        self.keep_only(rank, rank);
    }

    /// Loses everything that a process has sent, but not to `kept`.
    pub(super) fn keep_only(&mut self, rank: u32, kept: u32) {
        let size = self.size();
        for other in (0..size).filter(|&other| other != kept) {
            self.channels[(rank * size + other) as usize].clear();
        }
        self.busy.retain(|&channel| !self.channels[channel].is_empty());
    }

    /// Publishes the failure of `dead` at `rank`, if this has not happened. With `overtakes` it may overtake messages of `dead`,
    /// which arrive later.
    pub(super) fn publish(&mut self, dead: u32, rank: u32, overtakes: bool) {
        let in_flight = !self.channels[(dead * self.size() + rank) as usize].is_empty();
        let process = &mut self.processes[rank as usize];
        if dead == rank
            || !process.lives()
            || (in_flight && !overtakes)
            || !process.published.insert(Rank(dead))
        {
            return;
        }
        let keeps_part = process.state == State::Retired && process.part.is_some();
        if process.state == State::Open || keeps_part {
            // `part` makes one that knows of all that are published.
            self.with(rank, |part, out| part.on_failure(Rank(dead), out));
        }
    }

    pub(super) fn publish_everywhere(&mut self, overtakes: bool) {
        for dead in (0..self.size()).filter(|&rank| self.is_dead(rank)).collect::<Vec<_>>() {
            (0..self.size()).for_each(|rank| self.publish(dead, rank, overtakes));
        }
    }

    /// Lets everything end that goes on: delivers, publishes, makes progress. Panics if this takes too long.
    pub(super) fn settle(&mut self, random: &mut Random) {
        let mut quiet = false;
        let (mut rounds, mut messages) = (0, 0);
        while !quiet {
            rounds += 1;
            assert!(rounds <= 100 + 20 * self.size(), "it does not end");
            while self.deliver(random) {
                messages += 1;
                assert!(messages <= 100_000 + 100 * self.size() * self.size(), "it does not end");
                if random.once_in(4) {
                    self.flush(random.below(u64::from(self.size())) as u32);
                }
            }
            self.publish_everywhere(false);
            quiet = true;
            for rank in 0..self.size() {
                quiet &= !self.flush(rank);
            }
            quiet &= self.busy.is_empty();
        }
    }

    /// The members that have the communicator.
    pub(super) fn open(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|process| process.state == State::Open)
    }

    /// What a process knows.
    pub(super) fn knows(&self, rank: u32, item: Item) -> bool {
        let process = &self.processes[rank as usize];
        let is_published = matches!(item, Item::Failed(rank) if process.published.contains(rank));
        process.delivered.contains(&key(item)) || is_published
    }
}
