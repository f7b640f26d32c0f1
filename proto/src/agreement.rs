// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Agreement among the members of one communicator, which outlives the failure of any of them: the early-returning agreement of
//! Herault, Bouteiller, Bosilca, Gamell, Teranishi, Parashar, Dongarra, "Practical Scalable Consensus for Pseudo-Synchronous
//! Distributed Systems", SC'15 (doi:10.1145/2807591.2807665), with a uniform mode and with members that leave MPI.
//!
//! Every member contributes. Aggregates go up a tree, the root decides, and the decision goes down: 2(n-1) messages. A member
//! returns as soon as it has the decision; it answers for that agreement until it passes the next one. Agreements of one
//! communicator are numbered, and the tree of each leaves out the failed members that the one before has decided, alike at all
//! members. Members that have failed since are bridged, at each member by what is published there ([`crate::tree`]).
//!
//! ```text
//!                  start             all children have sent up                 Down
//! NOT_CONTRIBUTED ──────▶ GATHERING ───────────────────────────▶ WAITING ────────────────▶ PASSED
//!                             │        Up to the parent          │     ▲ parent gone: Up    ▲ is NOT_CONTRIBUTED of the next
//!                             │ root                             │     │ to the next one    │ agreement
//!                             │                                  │ root by succession:      │
//!                             │                                  │ Request to whom it takes │
//!                             │                                  │ over; all have sent up   │
//!                             └──────── decide, Down ────────────┴──────────────────────────┘
//!
//! uniform:      decide, or Down           all children have confirmed              released Down
//! GATHERING, WAITING ────────▶ STORED ──────────────────────────▶ CONFIRMED ────────────────▶ PASSED
//!                                 │       Confirm to the parent       │ root by succession: as above
//!                                 └───── root: released Down ─────────┴─────────────────────▶
//! ```
//!
//! # Rules
//!
//! * The aggregate of a member is *frozen* when it is sent. If the parent is gone, the next parent gets the same aggregate.
//!   Aggregates of members that are gone are discarded while gathering; the members below them send anew.
//! * What a member sends up is stored by whoever gets it, child or not, started or not: the sender may know of failures that
//!   are not published here yet. Whoever gets the decision sends it to all that have sent up, and answers those that do so
//!   later.
//! * A root by succession is the lowest member that is not gone. Its own aggregate is frozen if it is WAITING. It *takes over*
//!   the members that have lost all their ancestors and are not below it, and sends a Request to those that have not sent up to
//!   it: they may have passed the agreement already, and would send nothing more.
//!
//! # Why there is one decision
//!
//! *Passed* is used for stored as well. All of it is about one agreement and its tree; an ancestor is one in the tree without
//! gaps.
//!
//! 1. *If a member has passed, so has each ancestor that is not gone.* The decision comes from a member to which the receiver
//!    has sent up: from the nearest ancestor that was not gone in its view, and views hold only what is true; or from a root by
//!    succession, and then no ancestor is left; or, as the answer to a Request, to such a root.
//! 2. *A member that sent up to a root passes by that root alone, while it is not gone.* In the view of the sender all ranks
//!    below the root are gone, so nothing of them will arrive, and decisions come from lower ranks; from higher ones only to
//!    roots.
//! 3. *Let s decide as root. Then no member has passed, or ever will, by the decision of another, unless it is gone in the view
//!    of s.* If s was GATHERING, it had contributed to no other decision, and each decision contains the contributions of all
//!    that are not gone. If s was WAITING: let x have the decision of another root. x is not below s (1, as s has not passed).
//!    If x was taken over, it has sent up to s, which contradicts 2. So x is below some o which sent up to s and has not
//!    passed. The decision came to x around o, sent by some a < o when o was gone, where a is an ancestor of o, or a root and
//!    so a < s. But o sent up to s when everybody below s, and all ancestors of o, were gone. So a sent it after its end.
//! 4. So whoever passed by another decision is gone in the view of s. If it *failed*, it is in the failed set that s decides,
//!    its messages for the next agreement are dropped, and nobody who survives has the other decision. If it *left MPI*, its
//!    decision counts: s asks the node daemon, with which members that leave MPI have left their last decision (`take_recall`),
//!    and adopts what it is told.
//! 5. *Uniform mode:* a decision is released when all that are not gone have stored it. A WAITING member has not, so no
//!    decision of others was released when it decides as root, and there is nothing to recall. For confirmations, 1 to 3 hold
//!    in the same way.
//!
//! # Why each contribution is counted once, and those of all that return are counted
//!
//! An aggregate that was frozen by a member with a parent contains only members below it, and all that are not gone: those of
//! its children, and children bridge only members that are gone. The subtrees of children, or of the members that a root takes
//! over and of the root itself, are disjoint. Members that were bridged have failed, and are in the failed set that goes up
//! before the aggregate; or they left MPI without taking part, which the aggregate says. (Had one taken part, it would have
//! passed, and by 3 and 4 there would be no other decision.)
//!
//! # Why a member is at most one agreement ahead
//!
//! A decision contains the contributions of all that are not gone. So nobody passes an agreement that a living member has not
//! started, and started means that the one before was passed. Therefore the last decision is all that must be kept; a Request
//! for an older one cannot come (X-6.6), and what comes from a member ahead is its aggregate for the next agreement (X-6.5).
//!
//! # Agreements that wait for each other
//!
//! A member that is part of a cycle of agreements ([`crate::crossing`]) *contributes in absentia* to the one that it has not started. To
//! the protocol that is a contribution like any other, with the mark `crossed`, which aggregates and decisions carry on. The mark is
//! part of the decision as `departed` is; so what was said above holds for it. The agreements that belong to the mark are listed
//! before it ([`Body::Listed`]): each list is true, so members unite those that they hear of.
//!
//! The channel must be first in, first out for each pair of members, and the end of a member must be published after its last
//! message. Failures that others report are therefore part of what is decided, but the tree is not mended for them.

mod crossed;
mod members;
mod message;
mod records;
mod value;

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod network;
#[cfg(test)]
mod schedules;

pub use crossed::{AgreementId, CROSSED_MAX};
pub use message::{Body, Down, FAILURES_MAX, Message};
pub use value::{Aggregate, Contribution, Decision, Op};

use crate::protocol::{self, Protocol};
use crate::ranks::Ranks;
use crate::tree::Shape;
use crossed::Crossed;
use members::Members;
use mend_base::{Rank, reach};
use records::{Record, Records};

/// What an agreement wants done.
pub type Output = protocol::Output<Message, Decision>;

/// One member's part of the agreements of one communicator, one after the other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Agreement {
    members: Members,
    /// The number of the agreement that runs, or comes next.
    sequence: u32,
    state: State,
    /// What others have sent up for this agreement and the next.
    records: Records,
    /// Roots by succession that want the decision of the agreement that runs.
    requests: Ranks,
    crossed: Crossed,
    last: Option<Last>,
}

/// Whether another member waits for this one in an agreement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Not by what is known here, or not any more: what it waits for is on its way.
    Nothing,
    /// It waits until this member has started the agreement.
    Start,
    /// It waits until this member has what this member itself waits for ([`Agreement::awaited`]).
    End,
}

/// Where this member is in the agreement.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum State {
    /// The last agreement, if any, was passed.
    NotContributed,
    /// Children have still to send up.
    Gathering {
        contribution: Contribution,
        /// It was made in absentia.
        crossed: bool,
    },
    /// The aggregate was sent up.
    Waiting(Waiting),
    /// Uniform mode: this member has the decision. Children have still to confirm.
    Stored(Decided),
    /// Uniform mode: all below have the decision.
    Confirmed(Decided),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Waiting {
    /// The aggregate of this member and of all below it.
    frozen: Aggregate,
    op: Op,
    uniform: bool,
    recall: Recall,
    /// Failed members of decisions that are still to come, with the sender, sorted.
    announced: Vec<(Rank, Rank)>,
    /// Agreements that such decisions list, with the sender.
    listed: Vec<(Rank, AgreementId)>,
}

/// Whether the node daemon was asked for the decision.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Recall {
    NotNeeded,
    Wanted,
    Asked,
    /// No departed member had the decision.
    NothingKnown,
}

/// A decision, with what it adds to the excluded members.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Decided {
    value: u64,
    /// The failed members that were not excluded before.
    failed: Ranks,
    acknowledged: bool,
    departed: bool,
    crossed: bool,
}

/// The last decision, as it is sent to others that have not passed yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Last {
    decision: Decision,
    /// The failed members that it added.
    added: Ranks,
}

impl Agreement {
    /// The part of member `me` of a communicator of `size` members.
    pub fn new(me: Rank, size: u32, shape: Shape) -> Self {
        Agreement {
            members: Members::new(me, size, shape),
            sequence: 0,
            state: State::NotContributed,
            records: Records::default(),
            requests: Ranks::new(),
            crossed: Crossed::default(),
            last: None,
        }
    }

    /// The number of the agreement that the next `start` takes part in, or that runs; it wraps.
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Whether an agreement was started here and has no outcome yet.
    pub fn is_running(&self) -> bool {
        self.state != State::NotContributed
    }

    /// The last agreement that this member has passed, and its decision. When the member leaves MPI, the node daemon must get
    /// it before any other member hears of the departure.
    pub fn last(&self) -> Option<(u32, &Decision)> {
        self.last.as_ref().map(|last| (self.sequence.wrapping_sub(1), &last.decision))
    }

    /// Takes part in the next agreement. Not while one runs: agreements of one communicator are ordered by the order of calls.
    pub fn start(&mut self, contribution: Contribution, out: &mut Output) {
        self.contribute(contribution, false, out);
    }

    /// Takes part in the next agreement, which the program of this member has not called: agreements wait for each other in this cycle
    /// ([`crate::crossing`]). Its decision names them, at all members. As [`start`](Agreement::start), not while one runs.
    pub fn contribute_in_absentia(
        &mut self,
        contribution: Contribution,
        cycle: &[AgreementId],
        out: &mut Output,
    ) {
        reach!("proto.agreement: a member contributes in absentia");
        cycle.iter().for_each(|&listed| self.crossed.list(listed));
        self.contribute(contribution, true, out);
    }

    fn contribute(&mut self, contribution: Contribution, crossed: bool, out: &mut Output) {
        assert!(!self.is_running(), "agreements of one communicator run one after the other");
        self.state = State::Gathering { contribution, crossed };
        self.proceed(out);
    }

    /// Calls `visit` for each member of which this one needs a message before it passes the agreement that runs here. In uniform mode
    /// for none, once all have contributed.
    pub fn awaited(&self, visit: &mut impl FnMut(Rank)) {
        let missing = &mut |rank| {
            if !matches!(self.records.get(rank), Some(Record::Up(_))) {
                visit(rank);
            }
        };
        match (&self.state, self.members.parent()) {
            (State::Gathering { .. }, _) => self.members.children(missing),
            (State::Waiting(_), None) => self.members.taken_over(missing),
            (State::Waiting(_), Some(parent)) => visit(parent),
            (State::NotContributed | State::Stored(_) | State::Confirmed(_), _) => {}
        }
    }

    /// As [`awaited`](Agreement::awaited), and those whose confirmations this member needs: all that must be known to live.
    pub fn awaited_at_all(&self, visit: &mut impl FnMut(Rank)) {
        let unconfirmed = &mut |rank| {
            if !matches!(self.records.get(rank), Some(Record::Confirmed)) {
                visit(rank);
            }
        };
        match (&self.state, self.members.parent()) {
            (State::Stored(_), _) => self.members.children(unconfirmed),
            (State::Confirmed(_), None) => self.members.taken_over(unconfirmed),
            (State::Confirmed(_), Some(parent)) => visit(parent),
            _ => self.awaited(visit),
        }
    }

    /// Asks the children that have not sent up whether they will. One that takes part does so anyway; one that takes no part any more
    /// must be asked.
    pub fn ask_children(&self, out: &mut Output) {
        if matches!(self.state, State::Gathering { .. }) {
            reach!("proto.agreement: children are asked whether they take part");
            self.awaited(&mut |rank| self.send(rank, Body::Request, out));
        }
    }

    /// Whether `from`, which says that it waits for this member in that agreement, does so by what is known here.
    pub fn expected_by(&self, from: Rank, sequence: u32) -> Expected {
        if sequence != self.sequence || !self.members.is_listened_to(from) {
            return Expected::Nothing;
        }
        match self.state {
            State::NotContributed => Expected::Start,
            State::Gathering { .. } => Expected::End,
            // A lower rank waits for the aggregate, which was sent; a higher one for the decision.
            State::Waiting(_) if from > self.members.me() => Expected::End,
            State::Waiting(_) | State::Stored(_) | State::Confirmed(_) => Expected::Nothing,
        }
    }

    /// A member has left MPI: no message of it will arrive any more, and it had passed all agreements that it took part in. A
    /// second call changes nothing.
    pub fn on_departure(&mut self, departed: Rank, out: &mut Output) {
        self.on_end(departed, false, out);
    }

    /// The agreement for which the node daemon must be asked whether a member that left MPI has passed it; once.
    pub fn take_recall(&mut self) -> Option<u32> {
        match &mut self.state {
            State::Waiting(Waiting { recall: recall @ Recall::Wanted, .. }) => {
                *recall = Recall::Asked;
                Some(self.sequence)
            }
            _ => None,
        }
    }

    /// The node daemon's answer: the decision of any member that *left MPI* after it had passed this agreement. Members that
    /// left a decision with the node daemon and failed then do not count.
    pub fn on_recalled(&mut self, sequence: u32, decision: Option<Decision>, out: &mut Output) {
        let State::Waiting(waiting) = &mut self.state else { return };
        if sequence != self.sequence || waiting.recall != Recall::Asked {
            return;
        }
        waiting.recall = Recall::NothingKnown;
        match decision {
            None => {
                reach!("proto.agreement: no departed member had the decision");
                self.proceed(out);
            }
            Some(decision) => {
                reach!("proto.agreement: a departed member had the decision");
                let added = decision.failed.iter().filter(|&rank| self.members.can_fail(rank)).collect();
                let Decision { value, acknowledged, departed, crossed, .. } = decision;
                self.crossed.decide(crossed.iter().flatten().copied());
                let crossed = crossed.is_some();
                self.pass(Decided { value, failed: added, acknowledged, departed, crossed }, None, out);
            }
        }
    }

    /// Does what the state and the records allow.
    fn proceed(&mut self, out: &mut Output) {
        let parent = self.members.parent();
        match &self.state {
            State::NotContributed => {}
            State::Gathering { contribution, crossed } => {
                let own = Aggregate::new(contribution, self.members.has_departed(), *crossed);
                let Contribution { op, uniform, .. } = *contribution;
                match (self.gathered(own, op, false), parent) {
                    (None, _) => {}
                    (Some(whole), None) => {
                        reach!("proto.agreement: a root that gathers decides");
                        self.decide(&whole, uniform, out);
                    }
                    (Some(frozen), Some(parent)) => {
                        reach!("proto.agreement: a member that gathers sends up");
                        let (recall, announced, listed) = (Recall::NotNeeded, Vec::new(), Vec::new());
                        self.state =
                            State::Waiting(Waiting { frozen, op, uniform, recall, announced, listed });
                        self.send_up(parent, frozen, out);
                    }
                }
            }
            State::Waiting(waiting) if parent.is_none() => self.succeed(waiting.clone(), out),
            State::Stored(decided) if self.all_confirmed(false) => {
                let decided = decided.clone();
                match parent {
                    None => {
                        reach!("proto.agreement: a root that has stored releases the decision");
                        self.pass(decided, None, out);
                    }
                    Some(parent) => {
                        reach!("proto.agreement: a member that has stored confirms");
                        self.state = State::Confirmed(decided);
                        self.send(parent, Body::Confirm, out);
                    }
                }
            }
            State::Confirmed(decided) if parent.is_none() && self.all_confirmed(true) => {
                reach!("proto.agreement: a root by succession that has confirmed releases the decision");
                self.pass(decided.clone(), None, out);
            }
            State::Waiting(_) | State::Stored(_) | State::Confirmed(_) => {}
        }
    }

    /// Decides as root by succession, if all that it takes over have sent up and no departed member knows better.
    fn succeed(&mut self, waiting: Waiting, out: &mut Output) {
        let Some(whole) = self.gathered(waiting.frozen, waiting.op, true) else { return };
        let may_be_known = !waiting.uniform && self.members.has_departed();
        match waiting.recall {
            Recall::NotNeeded if may_be_known => {
                reach!("proto.agreement: a root by succession must ask the node daemon");
                self.state = State::Waiting(Waiting { recall: Recall::Wanted, ..waiting });
            }
            Recall::Wanted | Recall::Asked => reach!("proto.agreement: the node daemon has still to answer"),
            Recall::NotNeeded | Recall::NothingKnown => {
                reach!("proto.agreement: a root by succession that waits decides");
                self.decide(&whole, waiting.uniform, out);
            }
        }
    }

    /// The own aggregate with those of all children; if the own one is frozen, of those taken over. `None`: one is missing.
    fn gathered(&self, own: Aggregate, op: Op, is_frozen: bool) -> Option<Aggregate> {
        let (mut whole, mut missing) = (own, false);
        let add = &mut |rank| match self.records.get(rank) {
            Some(Record::Up(other)) => whole.add(op, other),
            _ => missing = true,
        };
        if is_frozen {
            self.members.taken_over(add);
        } else {
            self.members.children(add);
        }
        (!missing).then_some(whole)
    }

    /// Whether all children have confirmed; if this member has confirmed, those taken over.
    fn all_confirmed(&self, has_confirmed: bool) -> bool {
        let mut all = true;
        let check = &mut |rank| all &= matches!(self.records.get(rank), Some(Record::Confirmed));
        if has_confirmed {
            self.members.taken_over(check);
        } else {
            self.members.children(check);
        }
        all
    }

    /// The root decides.
    fn decide(&mut self, whole: &Aggregate, uniform: bool, out: &mut Output) {
        let failed = self.members.failed().clone();
        let decided = Decided {
            value: whole.value,
            acknowledged: whole.acknowledged == Some(self.members.hash_with(&failed)),
            departed: whole.departed || self.members.has_departed(),
            crossed: whole.crossed,
            failed,
        };
        if uniform {
            self.store(decided, None, out);
        } else {
            self.pass(decided, None, out);
        }
    }

    /// Uniform mode: this member has the decision, and may not return it yet.
    fn store(&mut self, decided: Decided, from: Option<Rank>, out: &mut Output) {
        self.send_decision(&decided, false, from, out);
        self.state = State::Stored(decided);
        self.proceed(out);
    }

    /// The agreement is over at this member.
    fn pass(&mut self, decided: Decided, from: Option<Rank>, out: &mut Output) {
        self.send_decision(&decided, true, from, out);
        self.members.exclude(&decided.failed);
        let members = &self.members;
        self.records.advance(|rank| members.is_listened_to(rank));
        self.requests.clear();
        self.state = State::NotContributed;
        self.sequence = self.sequence.wrapping_add(1);
        let Decided { value, failed: added, acknowledged, departed, crossed } = decided;
        let listed = self.crossed.advance();
        let crossed = crossed.then_some(listed);
        let decision =
            Decision { value, failed: members.excluded().clone(), acknowledged, departed, crossed };
        out.outcomes.push(decision.clone());
        self.last = Some(Last { decision, added });
    }

    /// Sends the decision to all that have sent up, and to roots by succession that asked. A child that has not sent up has
    /// sent to a member that is gone, and will do so.
    fn send_decision(&self, decided: &Decided, released: bool, from: Option<Rank>, out: &mut Output) {
        let down = decided.down(self, released);
        // From the highest rank on, which has the most members below it.
        let senders = self.records.iter().filter(|(_, record)| match record {
            Record::Up(_) => true,
            Record::Confirmed => released,
            Record::Ahead(_) => false,
        });
        for rank in
            senders.map(|(rank, _)| rank).chain(self.requests.iter()).filter(|&rank| Some(rank) != from)
        {
            self.send_down(rank, down, &decided.failed, out);
        }
    }

    /// Sends the decision of the agreement that runs.
    fn send_down(&self, to: Rank, down: Down, failed: &Ranks, out: &mut Output) {
        send_decision(to, self.sequence, down, failed, self.crossed.current(), out);
    }

    fn send_up(&self, parent: Rank, frozen: Aggregate, out: &mut Output) {
        let listed = if frozen.crossed { self.crossed.current() } else { &[] };
        let bodies = Body::failures(self.members.failed(), false).chain(crossed::lists(listed, false));
        let bodies = bodies.chain([Body::Up(frozen)]);
        bodies.for_each(|body| self.send(parent, body, out));
    }

    fn send(&self, to: Rank, body: Body, out: &mut Output) {
        out.send(to, Message { sequence: self.sequence, body });
    }

    fn on_current(&mut self, from: Rank, body: Body, out: &mut Output) {
        let is_lower = from < self.members.me();
        match body {
            Body::Up(up) if !is_lower => self.on_up(from, up, out),
            Body::Down(down) => self.on_down(from, down, out),
            Body::Confirm if !is_lower => self.on_confirm(from, out),
            Body::Request if is_lower => self.on_request(from, out),
            Body::Failures { ranks, decided: true } => self.on_announced(from, &ranks),
            Body::Failures { ranks, decided: false } => self.on_reported(&ranks),
            Body::Listed { agreement, decided } => self.on_listed(from, agreement, decided),
            Body::Up(_) | Body::Confirm | Body::Request => {}
        }
    }

    fn on_up(&mut self, from: Rank, up: Aggregate, out: &mut Output) {
        if self.records.get(from).is_some() {
            return;
        }
        self.records.set(from, Record::Up(up));
        match &self.state {
            State::NotContributed => {
                reach!("proto.agreement: an aggregate comes before the own contribution")
            }
            State::Gathering { .. } => {
                reach!("proto.agreement: an aggregate meets a member that gathers");
                self.proceed(out);
            }
            State::Waiting(_) => {
                reach!("proto.agreement: an aggregate meets a member that waits");
                self.proceed(out);
            }
            State::Stored(decided) => {
                reach!("proto.agreement: an aggregate meets a member that has stored");
                self.send_stored(from, decided, out);
            }
            State::Confirmed(decided) => {
                reach!("proto.agreement: an aggregate meets a member that has confirmed");
                self.send_stored(from, decided, out);
            }
        }
    }

    fn on_down(&mut self, from: Rank, down: Down, out: &mut Output) {
        match &self.state {
            State::Waiting(waiting) => {
                let failed: Ranks =
                    waiting.announced.iter().filter(|pair| pair.0 == from).map(|pair| pair.1).collect();
                if self.members.hash_with(&failed) != down.failed {
                    return;
                }
                let Down { value, acknowledged, departed, crossed, .. } = down;
                if crossed {
                    let listed = waiting.listed.iter().filter(|pair| pair.0 == from);
                    self.crossed.decide(listed.map(|pair| pair.1));
                }
                let decided = Decided { value, failed, acknowledged, departed, crossed };
                if down.released {
                    reach!("proto.agreement: a released decision meets a member that waits");
                    self.pass(decided, Some(from), out);
                } else {
                    reach!("proto.agreement: a decision to store meets a member that waits");
                    self.store(decided, Some(from), out);
                }
            }
            State::Stored(decided) if down.released => {
                reach!("proto.agreement: a release meets a member that has stored");
                self.pass(decided.clone(), Some(from), out);
            }
            State::Confirmed(decided) if down.released => {
                reach!("proto.agreement: a release meets a member that has confirmed");
                self.pass(decided.clone(), Some(from), out);
            }
            State::Stored(_) => reach!("proto.agreement: a decision to store meets a member that has stored"),
            State::Confirmed(_) => {
                reach!("proto.agreement: a decision to store meets a member that has confirmed");
            }
            State::NotContributed | State::Gathering { .. } => {}
        }
    }

    fn on_confirm(&mut self, from: Rank, out: &mut Output) {
        match self.state {
            // Before this member has contributed, nobody has the decision.
            State::NotContributed | State::Gathering { .. } => return,
            State::Waiting(_) => reach!("proto.agreement: a confirmation meets a member that waits"),
            State::Stored(_) => reach!("proto.agreement: a confirmation meets a member that has stored"),
            State::Confirmed(_) => {
                reach!("proto.agreement: a confirmation meets a member that has confirmed")
            }
        }
        if !matches!(self.records.get(from), Some(Record::Ahead(_))) {
            self.records.set(from, Record::Confirmed);
            self.proceed(out);
        }
    }

    /// A member that has not contributed forgets the request: it will send up to this root, or to a later one.
    fn on_request(&mut self, from: Rank, out: &mut Output) {
        match &self.state {
            State::NotContributed => {
                return reach!("proto.agreement: a request comes before the own contribution");
            }
            State::Gathering { .. } => {
                return reach!("proto.agreement: a request meets a member that gathers");
            }
            State::Waiting(_) => reach!("proto.agreement: a request meets a member that waits"),
            State::Stored(decided) => {
                reach!("proto.agreement: a request meets a member that has stored");
                self.send_stored(from, decided, out);
            }
            State::Confirmed(decided) => {
                reach!("proto.agreement: a request meets a member that has confirmed");
                self.send_stored(from, decided, out);
            }
        }
        // The decision, or its release, may still be on its way from a member that has failed.
        self.requests.insert(from);
    }

    fn send_stored(&self, to: Rank, decided: &Decided, out: &mut Output) {
        self.send_down(to, decided.down(self, false), &decided.failed, out);
    }

    /// Failed members of a decision that follows. They count when it has come, since its sender may fail before.
    fn on_announced(&mut self, from: Rank, ranks: &[Option<Rank>]) {
        let State::Waiting(waiting) = &mut self.state else { return };
        reach!("proto.agreement: failures of a decision meet a member that waits");
        for &rank in ranks.iter().flatten().filter(|&&rank| self.members.can_fail(rank)) {
            if let Err(at) = waiting.announced.binary_search(&(from, rank)) {
                waiting.announced.insert(at, (from, rank));
            }
        }
    }

    fn on_reported(&mut self, ranks: &[Option<Rank>]) {
        reach!("proto.agreement: failures of an aggregate come");
        ranks.iter().flatten().for_each(|&rank| self.members.hear_of_failure(rank));
    }

    /// Agreements that a decision lists count when it has come. Those of aggregates count until there is a decision.
    fn on_listed(&mut self, from: Rank, agreement: AgreementId, decided: bool) {
        match &mut self.state {
            State::Waiting(Waiting { listed, .. }) if decided => {
                reach!("proto.agreement: the list of a decision meets a member that waits");
                let has_room = listed.iter().filter(|pair| pair.0 == from).count() < CROSSED_MAX;
                listed.extend(has_room.then_some((from, agreement)));
            }
            State::NotContributed | State::Gathering { .. } | State::Waiting(_) if !decided => {
                reach!("proto.agreement: the list of an aggregate comes before the decision");
                self.crossed.list(agreement);
            }
            _ => {}
        }
    }

    /// From a member that has passed the agreement which runs here.
    fn on_ahead(&mut self, from: Rank, body: Body) {
        let may_be_passed = matches!(self.state, State::Waiting(_) | State::Confirmed(_));
        if may_be_passed && from > self.members.me() {
            match body {
                Body::Up(up) => {
                    match self.state {
                        State::Waiting(_) => {
                            reach!("proto.agreement: the next aggregate meets a member that waits")
                        }
                        _ => reach!("proto.agreement: the next aggregate meets a member that has confirmed"),
                    }
                    self.records.set(from, Record::Ahead(up));
                }
                Body::Failures { ranks, decided: false } => self.on_reported(&ranks),
                Body::Listed { agreement, decided: false } => {
                    reach!("proto.agreement: the list of the next aggregate comes");
                    self.crossed.list_for_next(agreement);
                }
                _ => {}
            }
        }
    }

    /// From a member that has not passed the last agreement yet.
    fn on_behind(&self, from: Rank, body: Body, out: &mut Output) {
        if let (Some(last), Body::Up(_) | Body::Confirm | Body::Request) = (&self.last, body) {
            match body {
                Body::Up(_) => reach!("proto.agreement: an aggregate meets a member that has passed"),
                Body::Confirm => reach!("proto.agreement: a confirmation meets a member that has passed"),
                _ => reach!("proto.agreement: a request meets a member that has passed"),
            }
            let Decision { value, acknowledged, departed, ref crossed, .. } = last.decision;
            let failed = self.members.hash_with(&Ranks::new());
            let (listed, crossed) = (crossed.as_deref().unwrap_or_default(), crossed.is_some());
            let down = Down { value, failed, acknowledged, departed, crossed, released: true };
            send_decision(from, self.sequence.wrapping_sub(1), down, &last.added, listed, out);
        }
    }

    fn on_end(&mut self, rank: Rank, is_failure: bool, out: &mut Output) {
        let was_parent = self.members.parent() == Some(rank);
        let Some(gone_before) = self.members.end(rank, is_failure) else { return };
        self.records.remove(rank);
        self.requests.retain(|root| root != rank);
        if let State::Waiting(waiting) = &mut self.state {
            waiting.announced.retain(|pair| pair.0 != rank);
            waiting.listed.retain(|pair| pair.0 != rank);
        }
        if !is_failure {
            self.state.name_departure();
        }
        match (&self.state, self.members.parent()) {
            (State::Waiting(waiting), Some(parent)) if was_parent => {
                reach!("proto.agreement: the parent of a member that waits ends");
                self.send_up(parent, waiting.frozen, out)
            }
            (State::Confirmed(_), Some(parent)) if was_parent => {
                reach!("proto.agreement: the parent of a member that has confirmed ends");
                self.send(parent, Body::Confirm, out);
            }
            (State::Waiting(_), None) => {
                reach!("proto.agreement: an end meets a root by succession that waits");
                self.request(&gone_before, out);
            }
            (State::Confirmed(_), None) => {
                reach!("proto.agreement: an end meets a root by succession that has confirmed");
                self.request(&gone_before, out);
            }
            (State::NotContributed, _) => reach!("proto.agreement: an end comes before the own contribution"),
            (State::Gathering { .. }, _) => reach!("proto.agreement: an end meets a member that gathers"),
            (State::Stored(_), _) => reach!("proto.agreement: an end meets a member that has stored"),
            (State::Waiting(_), _) => reach!("proto.agreement: an end elsewhere meets a member that waits"),
            (State::Confirmed(_), _) => {
                reach!("proto.agreement: an end elsewhere meets a member that has confirmed");
            }
        }
        self.proceed(out);
    }

    /// A root by succession asks those that it has just taken over. One that has sent up will pass by this root alone.
    fn request(&self, gone_before: &Ranks, out: &mut Output) {
        let has_stored = matches!(self.state, State::Confirmed(_));
        self.members.taken_over(&mut |rank| {
            let is_needed = match self.records.get(rank) {
                Some(Record::Up(_)) => has_stored,
                Some(Record::Confirmed) => !has_stored,
                Some(Record::Ahead(_)) | None => true,
            };
            if is_needed && !self.members.was_child(rank, gone_before) {
                self.send(rank, Body::Request, out);
            }
        });
    }
}

impl Protocol for Agreement {
    type Message = Message;
    type Outcome = Decision;

    fn on_message(&mut self, from: Rank, message: Message, out: &mut Output) {
        if !self.members.is_listened_to(from) {
            return;
        }
        match message.sequence.wrapping_sub(self.sequence) {
            0 => self.on_current(from, message.body, out),
            1 => self.on_ahead(from, message.body),
            u32::MAX => self.on_behind(from, message.body, out),
            _ => {}
        }
    }

    fn on_failure(&mut self, failed: Rank, out: &mut Output) {
        self.on_end(failed, true, out);
    }
}

impl State {
    /// Only a departed member may have left a decision, so departures are counted apart from failures.
    fn name_departure(&self) {
        match self {
            State::NotContributed => reach!("proto.agreement: a departure comes before the own contribution"),
            State::Gathering { .. } => reach!("proto.agreement: a departure meets a member that gathers"),
            State::Waiting(_) => reach!("proto.agreement: a departure meets a member that waits"),
            State::Stored(_) => reach!("proto.agreement: a departure meets a member that has stored"),
            State::Confirmed(_) => reach!("proto.agreement: a departure meets a member that has confirmed"),
        }
    }
}

impl Decided {
    fn down(&self, of: &Agreement, released: bool) -> Down {
        let Decided { value, acknowledged, departed, crossed, .. } = *self;
        Down { value, failed: of.members.hash_with(&self.failed), acknowledged, departed, crossed, released }
    }
}

/// Sends a decision with the failed members that it adds, and if it is marked, the agreements that it lists.
fn send_decision(
    to: Rank,
    sequence: u32,
    down: Down,
    failed: &Ranks,
    listed: &[AgreementId],
    out: &mut Output,
) {
    let listed = if down.crossed { listed } else { &[] };
    let bodies = Body::failures(failed, true).chain(crossed::lists(listed, true)).chain([Body::Down(down)]);
    bodies.for_each(|body| out.send(to, Message { sequence, body }));
}
