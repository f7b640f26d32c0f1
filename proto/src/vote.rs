// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The vote that decides whether a communicator is created: it exists at all survivors or at none, and one that some member
//! returned from exists at all (rows CC1, IK3).
//!
//! A [`Vote`] is one member's part of all votes of one parent communicator, which are held one after the other: *rounds*. In each
//! round every member casts a *ballot*, and the result is yes if all ballots are yes:
//!
//! ```text
//!                    cast             own ballot and those of all children are here
//!            Idle ─────────▶ Gathering ──┬── all yes: Up(yes) to the parent ─▶ Prepared ──┐
//!             ▲                  │       ├── one no: Up(no) to the parent ───▶ Opposed ───┤ Down(result)
//!             │                  │       └── the root decides ────────────────────────────┤
//!             │  a permanent no  ▼                                                        ▼
//!             └────── outcome, Down(result) to all that sent an Up or a Request ◀─────────┘    next round
//! ```
//!
//! Without failures these are 2(n-1) messages a round.
//!
//! # A permanent no
//!
//! After a failure, a departure or a revocation that a member knows of, it *refuses*: it votes no in this and all later rounds,
//! and returns no at once, without waiting for anybody. Its yes can never be given, so the result cannot be yes as long as it
//! lives. A member whose Up(yes) has left is *prepared* (so two-phase commit calls it): the result may be yes already. Such a
//! member waits for the result, and refuses from the next round on.
//!
//! A member that refuses tells its parent once, and only when it takes part in a round: when it votes, or when somebody asks
//! it. So a death causes no messages on communicators whose creation calls nobody has entered. It answers each Up and Request
//! with its no. That every vote ends does not depend on these messages: each permanent reason reaches every living member by
//! itself (the owner calls [`refuse`](Vote::refuse), [`on_failure`](Protocol::on_failure) or
//! [`on_departure`](Vote::on_departure)). The one exception is a member that lives and [leaves the votes](Vote::leave): its parent
//! alone is told, refuses, and tells its own. That no may cross the result of its round on the way; it holds for the later ones all
//! the same.
//!
//! # Rounds
//!
//! A no without a permanent reason is collected like a yes: everybody's ballot is awaited. So when somebody passes a round
//! without a permanent no, all members that live have voted in it. A member that returns a permanent no stays in that round for
//! ever, and all its later ballots return no at once: another member may still be prepared in the round before, and ask for its
//! result. So no member is more than one round ahead of another one that lives and does not refuse, and what is stored is
//! bounded: the senders of Ups and Requests of this round and the next one, and the result of the round before.
//!
//! # Failures
//!
//! The tree has all members, and is mended for the failed ones ([`crate::tree`]). A prepared member whose parent has failed
//! sends its Up to the new parent, which answers with the result if it has passed the round. If no ancestor lives, the lowest
//! living member is the *root by succession*. If it is not prepared it refuses. If it is prepared, it asks (Request) those
//! members whose ancestors have all failed: they are its children now, and any of them may know what the old root decided. One
//! that has passed the round answers with the result. One that is not prepared answers no when it refuses, since it will learn
//! of the failures too. If all answer with an Up(yes), *the result is yes*, although members are dead: the old root may have
//! decided yes, and somebody may have returned it.
//!
//! # Why the results agree
//!
//! In one round:
//!
//! 1. *If a member is prepared, so are all members below it* in the tree of all members, dead or alive. It has become so before
//!    it knew of any failure, with an Up(yes) of each of its children. So if a member is not prepared, none above it is.
//! 2. *A living member above one that lives and is not prepared or has returned no* is not prepared or has returned no itself.
//!    For one that is not prepared this is 1. A prepared member returns no only when a Down(no) arrives. That comes from the
//!    nearest living member above it, or from a root by succession, and then no member above it lives.
//! 3. *When the first root decides yes*, all members are prepared by 1. Nobody has returned no, and nobody will: each no starts
//!    at a member that is not prepared.
//! 4. *When a root by succession R decides yes*, every member o whose ancestors have failed, as R knows, has sent R an Up(yes).
//!    It has sent it knowing of the same failures, since otherwise R would not be its parent. It had not returned no then; and
//!    from then on nobody but R can tell it a result: the messages of all earlier roots have arrived or are lost. Every living
//!    member is R, below R, or one of those, or below one, so all are prepared by 1. None of them has returned no: below R and
//!    below a living o by 2; below an o that has failed since, because only o or an earlier root that knew of its failure could
//!    have told them so, and o had outlived the earlier roots. As in 3, nobody will return no.
//! 5. *Whoever has returned yes*, dead or alive, did so at or after 3 or 4. So no member that lives then returns no.
//!
//! Therefore an Up must not answer a Request while the sender does not know of the failures that made the other one the root: a
//! Down(no) of an earlier root may still arrive. Such a member stores the Request, and answers with the result when it has one.
//! When it learns of the failures, it sends its Up by itself.
//!
//! A member that returned no and then failed binds nobody: the survivors may all be prepared, and return yes.
//!
//! # Departures
//!
//! A member that has left MPI has passed every round in which it voted, and all its messages arrive. It counts as failed for the
//! tree. To a member that is not prepared its departure is a permanent no: had the result been yes, all would be prepared. Only a
//! root by succession can miss a result, if all that know it have departed or failed. So each member leaves its last result
//! ([`last`](Vote::last)) with the node daemon when it leaves MPI, and a root by succession that could decide yes asks the node
//! daemon for those of departed members ([`take_recall`](Vote::take_recall)). If none has left a result of this round, a departed
//! member was not prepared, and the result is no: by 1 and 4 nobody has returned yes.
//!
//! All this is model-checked (`mend-sim`, module `explore`).

use crate::protocol::{Output, Protocol};
use crate::ranks::Ranks;
use crate::tree::{Shape, Tree};
use mend_base::{Rank, reach};

mod message;

pub use message::{Ballot, Message, Reason};

/// The result of one round, for the owner of this member's part.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Outcome {
    /// The round.
    pub round: u32,
    /// Its result. The reason of a no may differ among members.
    pub result: Ballot,
}

/// What is to be done after an event.
pub type Effects = Output<Message, Outcome>;

/// One member's part of the votes of one communicator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Vote {
    me: Rank,
    tree: Tree,
    round: u32,
    stage: Stage,
    /// What has arrived for this round, and for the next one.
    gathered: [Gathered; 2],
    refusal: Option<Refusal>,
    /// The result of the round before this one.
    last: Option<Ballot>,
    /// The members that have failed or departed.
    gone: Ranks,
    departed: Ranks,
}

/// How far this member is in its round.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    /// No ballot was cast here.
    Idle,
    /// A ballot was cast here; an Up of a child is missing.
    Gathering,
    /// Up(no) has left, with a reason that is not permanent.
    Opposed,
    /// Up(yes) has left.
    Prepared(Recall),
}

/// Whether the node daemon was asked for the results that departed members have left.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Recall {
    NotNeeded,
    /// The owner has not taken the question yet.
    Needed,
    Asked,
}

/// What has arrived for one round.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
struct Gathered {
    /// Who has sent an Up or a Request, and waits for the result. A Request never comes from a child.
    senders: Ranks,
    /// One of the ballots is no, without a permanent reason.
    has_no: bool,
}

/// This member votes no from its current round on, or, if it is prepared in the current round, from the next one on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Refusal {
    reason: Reason,
    /// The parent knows.
    is_told: bool,
}

impl Vote {
    /// The part of member `me` of a communicator of `size` members, before the first round.
    pub fn new(me: Rank, size: u32, shape: Shape) -> Self {
        assert!(me.0 < size, "a member has a rank");
        Vote {
            me,
            tree: Tree::new(size, shape),
            round: 0,
            stage: Stage::Idle,
            gathered: [Gathered::default(), Gathered::default()],
            refusal: None,
            last: None,
            gone: Ranks::new(),
            departed: Ranks::new(),
        }
    }

    /// The round of the running ballot, or of the next one. Wraps. A member that refuses stays in the first round that it
    /// refused, whose number all its later outcomes have.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Whether a ballot was cast here that has no outcome yet.
    pub fn is_running(&self) -> bool {
        self.stage != Stage::Idle
    }

    /// Whether the result of the current round is known although no ballot was cast here: the next ballot returns it at once.
    pub fn is_decided(&self) -> bool {
        self.refused(self.round).is_some()
    }

    /// Calls `visit` for each member of which this one needs a message before it has the result of the round that runs here.
    pub fn awaited(&self, visit: &mut impl FnMut(Rank)) {
        let Vote { me, tree, gone, gathered: [Gathered { senders, .. }, _], .. } = self;
        let missing = &mut |rank| {
            if !senders.contains(rank) {
                visit(rank);
            }
        };
        match (self.stage, tree.parent(*me, gone)) {
            (Stage::Idle, _) => {}
            (Stage::Gathering, _) => tree.children(*me, gone, missing),
            (Stage::Opposed | Stage::Prepared(_), Some(parent)) => visit(parent),
            (Stage::Opposed | Stage::Prepared(_), None) => tree.without_ancestors(*me, gone, missing),
        }
    }

    /// The round before this one, with its result: what a member that leaves MPI leaves with the node daemon. Rounds that it
    /// refused are not among these.
    pub fn last(&self) -> Option<(u32, Ballot)> {
        self.last.map(|result| (self.round.wrapping_sub(1), result))
    }

    /// Casts this member's ballot of the current round. No ballot is running here: the owner queues.
    pub fn cast(&mut self, ballot: Ballot, out: &mut Effects) {
        assert!(!self.is_running(), "one ballot at a time");
        if let Some(reason) = ballot.permanent() {
            self.refuse(reason, out);
        }
        if let Some(reason) = self.refused(self.round) {
            reach!("proto.vote: a ballot is cast in a refused round");
            out.outcomes.push(Outcome { round: self.round, result: Ballot::No(reason) });
            self.tell_parent(out);
            return;
        }
        self.stage = Stage::Gathering;
        self.gathered[0].has_no |= ballot != Ballot::Yes;
        self.proceed(out);
    }

    /// From now on this member votes no: in the current round, unless it is prepared, and in all later ones. The reason is
    /// permanent, and will reach all other members without this vote.
    pub fn refuse(&mut self, reason: Reason, out: &mut Effects) {
        assert!(Ballot::No(reason).permanent().is_some(), "only a permanent reason holds for later rounds");
        if self.refusal.is_some() {
            return;
        }
        self.refusal = Some(Refusal { reason, is_told: false });
        match self.stage {
            Stage::Prepared(_) => {
                return reach!("proto.vote: a prepared member refuses from the next round on");
            }
            Stage::Idle => reach!("proto.vote: a member without a ballot refuses"),
            Stage::Gathering => reach!("proto.vote: a member that gathers refuses"),
            Stage::Opposed => reach!("proto.vote: a member that has sent a no refuses"),
        }
        self.refuse_round(reason, out);
    }

    /// As [`refuse`](Self::refuse), where nothing but this vote tells the others the reason: this member casts no ballot any more, so its
    /// parent must not wait for one.
    pub fn leave(&mut self, out: &mut Effects) {
        self.refuse(Reason::Departed(self.me), out);
        if !matches!(self.stage, Stage::Prepared(_)) {
            self.tell_parent(out);
        }
    }

    /// A member has left MPI: no message of it will arrive any more.
    pub fn on_departure(&mut self, rank: Rank, out: &mut Effects) {
        self.departed.insert(rank);
        self.on_end(rank, Reason::Departed(rank), out);
    }

    /// A round for which the owner is to ask the node daemon whether a departed member has left its result; once a round. The
    /// answer goes to [`on_recalled`](Self::on_recalled).
    pub fn take_recall(&mut self) -> Option<u32> {
        (self.stage == Stage::Prepared(Recall::Needed)).then(|| {
            self.stage = Stage::Prepared(Recall::Asked);
            self.round
        })
    }

    /// What departed members have left with the node daemon: the result of a round, or that none of them has passed it. Members
    /// that left a result and then failed do not count.
    pub fn on_recalled(&mut self, round: u32, result: Option<Ballot>, out: &mut Effects) {
        if self.stage == Stage::Prepared(Recall::Asked) && round == self.round {
            match result {
                Some(_) => reach!("proto.vote: a departed member had the result"),
                None => reach!("proto.vote: no departed member had the result"),
            }
            let departed = self.departed.iter().next().map(Reason::Departed);
            let without = Ballot::No(departed.expect("a departed member is the cause of a recall"));
            self.pass(result.unwrap_or(without), out);
        }
    }

    /// A member has failed or departed.
    fn on_end(&mut self, rank: Rank, reason: Reason, out: &mut Effects) {
        if rank == self.me || rank.0 >= self.tree.size() || self.gone.contains(rank) {
            return;
        }
        let before = self.gone.clone();
        self.gone.insert(rank);
        self.refuse(reason, out);
        if !matches!(self.stage, Stage::Prepared(_)) {
            return;
        }
        match self.tree.parent(self.me, &self.gone) {
            Some(parent) if self.tree.parent(self.me, &before) == Some(parent) => {
                reach!("proto.vote: an end elsewhere meets a prepared member");
            }
            Some(parent) => {
                reach!("proto.vote: the parent of a prepared member ends");
                out.send(parent, Message::Up(self.round, Ballot::Yes));
            }
            None => {
                reach!("proto.vote: an end meets a prepared root by succession");
                self.ask_new_children(&before, out);
            }
        }
    }

    /// As the root by succession: asks the children that it has got by the last failure.
    fn ask_new_children(&mut self, before: &Ranks, out: &mut Effects) {
        self.tree.without_ancestors(self.me, &self.gone, &mut |child| {
            let is_new = self.tree.parent(child, before) != Some(self.me);
            if is_new && !self.gathered[0].senders.contains(child) {
                reach!("proto.vote: a root by succession sends a request");
                out.send(child, Message::Request(self.round));
            }
        });
        self.proceed(out);
    }

    /// Goes on if every ballot that is waited for is here.
    fn proceed(&mut self, out: &mut Effects) {
        let Vote { tree, gone, gathered: [Gathered { senders, has_no }, _], .. } = self;
        let result = if *has_no { Ballot::No(Reason::Other) } else { Ballot::Yes };
        let mut is_complete = true;
        let mut visit = |child| is_complete &= senders.contains(child);
        match self.stage {
            Stage::Gathering => {
                debug_assert!(gone.is_empty(), "a member that knows of a failure refuses");
                tree.children(self.me, gone, &mut visit);
                let parent = tree.parent(self.me, gone);
                if is_complete {
                    self.report(parent, result, out);
                }
            }
            Stage::Prepared(Recall::NotNeeded) if tree.root(gone) == Some(self.me) => {
                tree.without_ancestors(self.me, gone, &mut visit);
                if !is_complete {
                } else if self.departed.is_empty() {
                    reach!("proto.vote: a root by succession decides");
                    self.pass(result, out);
                } else {
                    reach!("proto.vote: a root by succession must ask the node daemon");
                    self.stage = Stage::Prepared(Recall::Needed);
                }
            }
            Stage::Idle | Stage::Opposed | Stage::Prepared(_) => {}
        }
    }

    /// Every ballot of this member and those below it is here.
    fn report(&mut self, parent: Option<Rank>, result: Ballot, out: &mut Effects) {
        let Some(parent) = parent else {
            reach!("proto.vote: a root that gathers decides");
            return self.pass(result, out);
        };
        self.stage = if result == Ballot::Yes {
            reach!("proto.vote: a member that gathers is prepared");
            Stage::Prepared(Recall::NotNeeded)
        } else {
            reach!("proto.vote: a member that gathers sends a no");
            Stage::Opposed
        };
        out.send(parent, Message::Up(self.round, result));
    }

    /// The result of the current round, in which this member has voted, is known.
    fn pass(&mut self, result: Ballot, out: &mut Effects) {
        if let Some(reason) = result.permanent() {
            let refusal = self.refusal.get_or_insert(Refusal { reason, is_told: true });
            // The parent has said so, or there is none.
            refusal.is_told = true;
            let reason = refusal.reason;
            return self.refuse_round(reason, out);
        }
        out.outcomes.push(Outcome { round: self.round, result });
        self.answer(0, result, out);
        self.gathered.swap(0, 1);
        self.stage = Stage::Idle;
        self.last = Some(result);
        self.round = self.round.wrapping_add(1);
        if let Some(Refusal { reason, .. }) = self.refusal {
            reach!("proto.vote: a member passes a round and refuses the next");
            self.refuse_round(reason, out);
            if reason == Reason::Departed(self.me) {
                self.tell_parent(out);
            }
        }
    }

    /// The result of the current round and all later ones is no. This member stays in this round, since another one may still be
    /// prepared in the round before, and ask for its result.
    fn refuse_round(&mut self, reason: Reason, out: &mut Effects) {
        let was_running = self.is_running();
        self.stage = Stage::Idle;
        if was_running {
            out.outcomes.push(Outcome { round: self.round, result: Ballot::No(reason) });
        }
        let was_asked = [0, 1].map(|ahead| self.answer(ahead, Ballot::No(reason), out));
        if was_running || was_asked.contains(&true) {
            self.tell_parent(out);
        }
    }

    /// Sends the result of this round or the next one to all that wait for it. Returns whether there are any.
    fn answer(&mut self, ahead: usize, result: Ballot, out: &mut Effects) -> bool {
        let round = self.round.wrapping_add(ahead as u32);
        let Gathered { senders, has_no } = &mut self.gathered[ahead];
        for rank in senders.iter().filter(|&rank| !self.gone.contains(rank)) {
            out.send(rank, Message::Down(round, result));
        }
        let any = !senders.is_empty();
        senders.clear();
        *has_no = false;
        any
    }

    /// Tells the parent, once, that this member refuses its current round.
    fn tell_parent(&mut self, out: &mut Effects) {
        debug_assert!(self.is_decided(), "a prepared member has said yes");
        if let Some(Refusal { reason, is_told: is_told @ false }) = &mut self.refusal
            && let Some(parent) = self.tree.parent(self.me, &self.gone)
        {
            *is_told = true;
            out.send(parent, Message::Up(self.round, Ballot::No(*reason)));
        }
    }

    fn on_up(&mut self, from: Rank, round: u32, ballot: Ballot, out: &mut Effects) {
        if let (Some(reason), Some((passed, _))) = (ballot.permanent(), self.last())
            && passed == round
        {
            reach!("proto.vote: a permanent no comes after the result of its round");
            return self.on_permanent_no(reason, out);
        }
        if let Some(result) = self.result(round) {
            if ballot.permanent().is_none() {
                reach!("proto.vote: a ballot meets a member that knows the result");
                out.send(from, Message::Down(round, result));
            }
            if self.refused(round).is_some() {
                reach!("proto.vote: a ballot meets a member that refuses");
                self.tell_parent(out);
            }
            return;
        }
        match (round.wrapping_sub(self.round), ballot.permanent()) {
            // A prepared member gets this only as the root by succession (point 1).
            (0, Some(_)) if matches!(self.stage, Stage::Prepared(_)) => {
                reach!("proto.vote: a permanent no of a member meets a prepared root by succession");
                self.pass(ballot, out);
            }
            (0, Some(reason)) => {
                reach!("proto.vote: a permanent no comes up");
                self.on_permanent_no(reason, out);
            }
            (1, Some(reason)) => {
                reach!("proto.vote: a permanent no for the next round comes up");
                self.refuse(reason, out);
            }
            (ahead @ (0 | 1), None) => {
                match (ahead, self.stage) {
                    (1, _) => reach!("proto.vote: a ballot for the next round comes up"),
                    (_, Stage::Idle) => reach!("proto.vote: a ballot comes before the own one"),
                    (_, Stage::Gathering) => reach!("proto.vote: a ballot meets a member that gathers"),
                    (_, Stage::Opposed) => reach!("proto.vote: a ballot meets a member that has sent a no"),
                    (_, Stage::Prepared(_)) => reach!("proto.vote: a ballot meets a prepared member"),
                }
                let gathered = &mut self.gathered[ahead as usize];
                gathered.senders.insert(from);
                gathered.has_no |= ballot != Ballot::Yes;
                self.proceed(out);
            }
            _ => {}
        }
    }

    /// A member below this one casts no yes from now on. If it has left the votes, its parent alone is told.
    fn on_permanent_no(&mut self, reason: Reason, out: &mut Effects) {
        self.refuse(reason, out);
        if !matches!(self.stage, Stage::Prepared(_)) {
            self.tell_parent(out);
        }
    }

    fn on_request(&mut self, from: Rank, round: u32, out: &mut Effects) {
        if let Some(result) = self.result(round) {
            reach!("proto.vote: a request meets a member that knows the result");
            return out.send(from, Message::Down(round, result));
        }
        if let Some(gathered) = self.gathered.get_mut(round.wrapping_sub(self.round) as usize) {
            reach!("proto.vote: a request waits for the result");
            gathered.senders.insert(from);
        }
    }

    fn on_down(&mut self, round: u32, result: Ballot, out: &mut Effects) {
        if round != self.round {
            return;
        }
        if self.is_decided() {
            return reach!("proto.vote: a result meets a member that refuses");
        }
        match (self.stage, result) {
            (Stage::Prepared(_), _) => {
                reach!("proto.vote: a result meets a prepared member");
                self.pass(result, out);
            }
            (Stage::Opposed, Ballot::No(Reason::Other)) => {
                reach!("proto.vote: a no without a permanent reason meets a member that has sent a no");
                self.pass(result, out);
            }
            (_, Ballot::Yes | Ballot::No(Reason::Other)) => {}
            (_, Ballot::No(reason)) => {
                reach!("proto.vote: a permanent no comes down");
                self.refuse(reason, out);
            }
        }
    }

    /// The result of a round that this member has passed or refuses. `None`: not known, or so old that all members have passed
    /// it.
    fn result(&self, round: u32) -> Option<Ballot> {
        let refused = self.refused(round).map(Ballot::No);
        refused.or_else(|| self.last.filter(|_| round.wrapping_add(1) == self.round))
    }

    /// Why this member votes no in a round. A prepared member answers for the next round when it has passed its own.
    fn refused(&self, round: u32) -> Option<Reason> {
        let reason = self.refusal.as_ref()?.reason;
        // Rounds wrap.
        let is_reached = round.wrapping_sub(self.round) as i32 >= 0;
        (is_reached && !matches!(self.stage, Stage::Prepared(_))).then_some(reason)
    }
}

impl Protocol for Vote {
    type Message = Message;
    type Outcome = Outcome;

    fn on_message(&mut self, from: Rank, message: Message, out: &mut Effects) {
        let size = self.tree.size();
        let is_member = |rank: Rank| rank.0 < size;
        match message {
            Message::Up(_, ballot) | Message::Down(_, ballot) if !ballot.rank().is_none_or(is_member) => {}
            Message::Up(round, ballot) => self.on_up(from, round, ballot, out),
            Message::Request(round) => self.on_request(from, round, out),
            Message::Down(round, result) => self.on_down(round, result, out),
        }
    }

    fn on_failure(&mut self, failed: Rank, out: &mut Effects) {
        self.on_end(failed, Reason::Failed(failed), out);
    }
}

#[cfg(test)]
mod tests {
    use super::{Ballot, Effects, Message, Outcome, Reason, Vote};
    use crate::protocol::Protocol;
    use crate::tree::Shape;
    use mend_base::Rank;
    use std::collections::VecDeque;

    /// Members and the messages between them, in one order that keeps that of each pair. `mend-sim` tries all orders.
    struct Members {
        votes: Vec<Vote>,
        messages: VecDeque<(Rank, Rank, Message)>,
        sent: usize,
        outcomes: Vec<Vec<Outcome>>,
    }

    impl Members {
        fn new(size: u32, shape: Shape, first_round: u32) -> Self {
            let vote = |rank| Vote { round: first_round, ..Vote::new(Rank(rank), size, shape) };
            let votes: Vec<_> = (0..size).map(vote).collect();
            let outcomes = vec![Vec::new(); votes.len()];
            Members { votes, messages: VecDeque::new(), sent: 0, outcomes }
        }

        fn at(&mut self, rank: u32, event: impl FnOnce(&mut Vote, &mut Effects)) {
            let mut out = Effects::new();
            event(&mut self.votes[rank as usize], &mut out);
            self.sent += out.sends.len();
            self.messages.extend(out.sends.into_iter().map(|(to, message)| (Rank(rank), to, message)));
            self.outcomes[rank as usize].extend(out.outcomes);
        }

        fn deliver_all(&mut self) {
            while let Some((from, to, message)) = self.messages.pop_front() {
                self.at(to.0, |vote, out| vote.on_message(from, message, out));
            }
        }
    }

    const SHAPES: [Shape; 4] = [Shape::Chain, Shape::Binary, Shape::Nomial(2), Shape::Nomial(4)];

    #[test]
    fn a_round_without_failures_takes_two_messages_for_each_member_but_one_also_when_rounds_wrap() {
        for (shape, size) in SHAPES.into_iter().flat_map(|shape| [1, 2, 7, 40].map(|size| (shape, size))) {
            let mut members = Members::new(size, shape, u32::MAX - 1);
            let other = Ballot::No(Reason::Other);
            for (round, opponent, result) in
                [(u32::MAX - 1, None, Ballot::Yes), (u32::MAX, Some(size - 1), other), (0, None, Ballot::Yes)]
            {
                for rank in (0..size).rev() {
                    let ballot = if opponent == Some(rank) { other } else { Ballot::Yes };
                    members.at(rank, |vote, out| vote.cast(ballot, out));
                }
                members.deliver_all();
                for (vote, outcomes) in members.votes.iter().zip(&mut members.outcomes) {
                    assert_eq!(std::mem::take(outcomes), [Outcome { round, result }]);
                    assert_eq!((vote.round(), vote.last()), (round.wrapping_add(1), Some((round, result))));
                }
                assert_eq!(std::mem::take(&mut members.sent), 2 * (size as usize - 1), "{shape:?} {size}");
            }
        }
    }

    #[test]
    fn a_death_causes_no_message_of_a_member_that_nobody_has_asked() {
        let mut members = Members::new(40, Shape::Nomial(4), 0);
        for rank in 0..39 {
            members.at(rank, |vote, out| vote.on_failure(Rank(39), out));
            assert!(members.votes[rank as usize].is_decided());
        }
        assert_eq!(members.sent, 0);
        for _ in 0..1_000 {
            members.at(5, |vote, out| vote.cast(Ballot::Yes, out));
        }
        members.deliver_all();
        // Member 5 tells member 4, which tells the root.
        assert_eq!((members.sent, members.outcomes[5].len()), (2, 1_000));
        assert_eq!(members.outcomes[5][999].result, Ballot::No(Reason::Failed(Rank(39))));
    }

    /// Only its parent hears that a member has left the votes, so that message must not get lost behind the result that it crosses.
    #[test]
    fn a_member_that_leaves_while_a_result_is_on_its_way_to_it_votes_no_in_the_next_round_too() {
        let mut members = Members::new(2, Shape::Chain, 0);
        let other = Ballot::No(Reason::Other);
        members.at(1, |vote, out| vote.cast(other, out));
        members.at(0, |vote, out| vote.cast(Ballot::Yes, out));
        let (from, to, up) = members.messages.pop_front().expect("the ballot of member 1");
        members.at(to.0, |vote, out| vote.on_message(from, up, out));
        members.at(1, |vote, out| vote.leave(out));
        members.deliver_all();
        members.at(0, |vote, out| vote.cast(Ballot::Yes, out));
        members.deliver_all();
        let left = Ballot::No(Reason::Departed(Rank(1)));
        assert_eq!(
            members.outcomes[0],
            [Outcome { round: 0, result: other }, Outcome { round: 1, result: left }]
        );
    }

    #[test]
    fn what_no_correct_member_sends_is_ignored() {
        let no = Ballot::No(Reason::Failed(Rank(3)));
        let (mut vote, mut out) = (Vote::new(Rank(1), 3, Shape::Chain), Effects::new());
        let before = vote.clone();
        for message in [
            Message::Down(0, Ballot::Yes),
            Message::Down(0, Ballot::No(Reason::Other)),
            Message::Down(7, Ballot::Yes),
            Message::Up(0, no),
            Message::Down(0, no),
            Message::Up(2, Ballot::Yes),
            Message::Up(u32::MAX, Ballot::Yes),
            Message::Request(5),
        ] {
            vote.on_message(Rank(0), message, &mut out);
        }
        vote.on_failure(Rank(1), &mut out);
        vote.on_failure(Rank(3), &mut out);
        assert_eq!((vote, out.sends.len(), out.outcomes.len()), (before, 0, 0));
    }
}
