// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All members of a communicator, executing one protocol: each message costs its sender and its receiver work, and takes time.

use super::cost::Cost;
use mend_base::{Duration, Instant, Rank};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// One member's part of a protocol.
pub trait Member {
    /// What members tell each other.
    type Message;

    /// A message has arrived.
    fn on_message(
        &mut self,
        now: Instant,
        from: Rank,
        message: Self::Message,
        sends: &mut Sends<Self::Message>,
    );

    /// The member takes its turn of progress: at the start, after the messages that had arrived, and when it asked for it.
    fn on_turn(&mut self, now: Instant, sends: &mut Sends<Self::Message>);

    /// When the member wants a turn although no message comes.
    fn next_turn(&self) -> Option<Instant> {
        None
    }

    /// Whether the member has what the protocol is for.
    fn is_done(&self) -> bool;

    /// The bytes of a message, without the header of the transport.
    fn bytes(message: &Self::Message) -> usize;

    /// Whether the message counts. Others, such as heartbeats, go on whether or not anything happens.
    fn is_counted(_: &Self::Message) -> bool {
        true
    }
}

/// Messages to be sent, in this order.
pub type Sends<M> = Vec<(Rank, M)>;

/// What one execution has cost.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Totals {
    /// Messages that count.
    pub messages: u64,
    /// Messages that do not (`Member::is_counted`).
    pub background: u64,
    /// The most messages that one member has sent.
    pub sends_max: u64,
    /// Bytes of the messages that count.
    pub bytes: u64,
    /// The most messages one after the other, each sent because the one before had arrived, until a member was done.
    pub depth: u32,
    /// From the start until the last member was done.
    pub time: Duration,
}

/// What happens to a member at some time.
struct Event<M> {
    at: Instant,
    /// Messages that arrive at the time of a turn are handled before it.
    order: (bool, u64),
    member: Rank,
    /// `None`: a turn.
    arrival: Option<Arrival<M>>,
}

struct Arrival<M> {
    from: Rank,
    depth: u32,
    message: M,
}

impl<M> Event<M> {
    fn key(&self) -> (Instant, (bool, u64)) {
        (self.at, self.order)
    }
}

impl<M> PartialEq for Event<M> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<M> Eq for Event<M> {}

impl<M> PartialOrd for Event<M> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> Ord for Event<M> {
    /// The greatest event is the earliest, as the heap wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// Longer than the messages take that are sent when all members are done, for any cost that is used.
const LAST_MESSAGES: Duration = Duration::from_millis(1);

/// An execution that is under way.
pub struct Execution<P: Member> {
    cost: Cost,
    members: Vec<P>,
    /// When each member has done its work so far.
    free_at: Vec<Instant>,
    /// The length of the longest chain of messages that ended at each member.
    depths: Vec<u32>,
    sent: Vec<u32>,
    /// Members that have a turn before their next message, at that time.
    turn_at: Vec<Option<Instant>>,
    /// Members that have crashed.
    crashed: Vec<bool>,
    done: Vec<bool>,
    events: BinaryHeap<Event<P::Message>>,
    events_made: u64,
    totals: Totals,
}

impl<P: Member> Execution<P> {
    /// Members that all enter at time 0.
    pub fn new(cost: Cost, members: Vec<P>) -> Self {
        let count = members.len();
        let mut execution = Execution {
            cost,
            members,
            free_at: vec![Instant(0); count],
            depths: vec![0; count],
            sent: vec![0; count],
            turn_at: vec![None; count],
            crashed: vec![false; count],
            done: vec![false; count],
            events: BinaryHeap::new(),
            events_made: 0,
            totals: Totals::default(),
        };
        (0..count).for_each(|at| execution.plan_turn(at, Instant(0)));
        execution
    }

    /// The member does nothing any more, and is not waited for.
    pub fn crash(&mut self, rank: Rank) {
        self.crashed[rank.index()] = true;
    }

    /// Forgets what was counted, and who is done.
    pub fn restart_counting(&mut self) {
        self.totals = Totals::default();
        self.depths.fill(0);
        self.sent.fill(0);
        self.done.fill(false);
    }

    /// Executes what happens until `end`.
    pub fn run_until(&mut self, end: Instant) {
        while self.events.peek().is_some_and(|event| event.at <= end) {
            self.step();
        }
    }

    /// Executes until every member that has not crashed is done, and then for the time that the last messages take; the totals then have
    /// the time since `start` until the last was done. `false`: nothing can happen any more, and a member is not done.
    pub fn run_until_done(&mut self, start: Instant) -> bool {
        let mut missing = (0..self.members.len()).filter(|&at| !self.crashed[at] && !self.done[at]).count();
        while missing > 0 {
            let Some((member, becomes_done)) = self.step() else { return false };
            if becomes_done {
                missing -= 1;
                self.totals.time = self.totals.time.max(self.free_at[member] - start);
            }
        }
        self.run_until(start + self.totals.time + LAST_MESSAGES);
        true
    }

    /// What was counted since the start.
    pub fn totals(&self) -> Totals {
        let sends_max = self.sent.iter().copied().max().unwrap_or(0);
        Totals { sends_max: u64::from(sends_max), ..self.totals }
    }

    /// The next event. Returns the member, and whether it became done.
    fn step(&mut self) -> Option<(usize, bool)> {
        let Event { at, member, arrival, .. } = self.events.pop()?;
        let member = member.index();
        // A plan for an earlier turn may have replaced the one of this turn.
        let is_void = arrival.is_none() && self.turn_at[member] != Some(at);
        if self.crashed[member] || is_void {
            return Some((member, false));
        }
        match arrival {
            Some(arrival) => self.arrive(member, at, arrival),
            None => self.turn(member, at),
        }
        Some((member, self.note_if_done(member)))
    }

    fn arrive(&mut self, member: usize, at: Instant, Arrival { from, depth, message }: Arrival<P::Message>) {
        let now = self.free_at[member].max(at) + self.cost.work(P::bytes(&message));
        self.free_at[member] = now;
        if P::is_counted(&message) {
            self.depths[member] = self.depths[member].max(depth);
        }
        let mut sends = Sends::new();
        self.members[member].on_message(now, from, message, &mut sends);
        self.send_all(member, sends);
        // The turn comes when the messages that have arrived by then are handled.
        let free_at = self.free_at[member];
        self.plan_turn(member, free_at);
    }

    fn turn(&mut self, member: usize, at: Instant) {
        self.turn_at[member] = None;
        let now = self.free_at[member].max(at);
        self.free_at[member] = now;
        let mut sends = Sends::new();
        self.members[member].on_turn(now, &mut sends);
        self.send_all(member, sends);
        if let Some(next) = self.members[member].next_turn() {
            self.plan_turn(member, next.max(now + Duration(1)));
        }
    }

    fn note_if_done(&mut self, member: usize) -> bool {
        let becomes = !self.done[member] && self.members[member].is_done();
        if becomes {
            self.done[member] = true;
            self.totals.depth = self.totals.depth.max(self.depths[member]);
        }
        becomes
    }

    fn plan_turn(&mut self, member: usize, at: Instant) {
        if self.turn_at[member].is_none_or(|planned| at < planned) {
            self.turn_at[member] = Some(at);
            self.push(at, Rank(member as u32), None);
        }
    }

    fn push(&mut self, at: Instant, member: Rank, arrival: Option<Arrival<P::Message>>) {
        self.events_made += 1;
        let order = (arrival.is_none(), self.events_made);
        self.events.push(Event { at, order, member, arrival });
    }

    fn send_all(&mut self, member: usize, sends: Sends<P::Message>) {
        for (to, message) in sends {
            let bytes = P::bytes(&message);
            self.free_at[member] = self.free_at[member] + self.cost.work(bytes);
            if P::is_counted(&message) {
                self.sent[member] += 1;
                self.totals.messages += 1;
                self.totals.bytes += bytes as u64;
            } else {
                self.totals.background += 1;
            }
            let depth = self.depths[member] + 1;
            let at = self.free_at[member] + self.cost.latency;
            self.push(at, to, Some(Arrival { from: Rank(member as u32), depth, message }));
        }
    }
}
