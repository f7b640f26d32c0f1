// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The protocols of one communicator at this member. Each machine exists from its first use on.

use super::left_result;
use super::packet::{About, Message, Packet};
use crate::origin::{Exchange, Origin};
use mend_base::{Identity, Peer, PeerIndex, Rank};
use mend_pml::{End, Ends};
use mend_proto::agreement::{self, Agreement, Contribution, Decision};
use mend_proto::protocol::{Output, Protocol};
use mend_proto::ranks::Ranks;
use mend_proto::spread::{self, Item, Spread};
use mend_proto::tree::Shape;
use mend_proto::vote::{self, Ballot, Reason, Vote};
use mend_runtime::ResultKey;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a protocol of a communicator tells the engine.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The agreement that runs has its result.
    Decided(Identity, Decision),
    /// The vote that runs has its result.
    Voted(Identity, vote::Outcome),
    /// The vote on the communicator itself has its result.
    VotedOnCreation(Identity, Ballot),
    /// News about the communicator.
    Learned(Identity, Item),
    /// The node daemon must be asked for this result: members that left MPI may have had it.
    Recall(ResultKey),
    /// Another member has refused a message because the communicator is revoked there.
    RefusedAsRevoked(Identity),
    /// This member has freed the communicator, and by a message of another one it owes results of the communicator's protocols.
    OwesResults(Identity),
    /// A message for this peer is lost, or may be, as it is unreachable: it or this process must be ended.
    Needed(PeerIndex),
    /// Another member waits for news of this process, which created a communicator that is not known here: it may have failed.
    Suspected(Peer),
}

/// How a member is gone: it will take part in nothing any more, at any member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gone {
    /// It has failed.
    Failed,
    /// It has left MPI, or freed the communicator and owes nothing. It has passed all that it took part in.
    Departed,
}

impl Gone {
    /// `None`: the peer is unreachable for this process, but may take part at other members.
    pub fn of(end: End) -> Option<Gone> {
        match end {
            End::Failed => Some(Gone::Failed),
            End::Finalized => Some(Gone::Departed),
            End::Unreachable(_) => None,
        }
    }
}

/// Which of the two machines for votes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum VoteOn {
    /// Of all votes over the communicator.
    Children,
    /// Of the one vote on the communicator itself.
    Creation,
}

/// The protocols of one communicator.
#[derive(Debug)]
pub(crate) struct Instance {
    identity: Identity,
    me: Rank,
    members: Arc<[PeerIndex]>,
    told: Option<Told>,
    pub(super) agreement: Option<Box<Agreement>>,
    vote: Option<Box<Vote>>,
    /// The vote on the communicator itself, if its creation is decided by its members alone (MPI_COMM_CREATE_GROUP).
    creation: Option<Box<Vote>>,
    spread: Option<Box<Spread>>,
    /// The handle was freed.
    closing: bool,
    /// The handle was freed, and operations on the communicator run, which must hear of a revocation: the part that spreads news stays open.
    in_use: bool,
    /// All members have passed all agreements and votes: nobody needs their results.
    is_closed: bool,
}

/// The origin of a communicator that some members may not have, and to whom it was told.
#[derive(Debug)]
struct Told {
    origin: Origin,
    to: Ranks,
}

/// Where an instance puts what its machines want done.
pub(crate) struct Effects<'a> {
    pub packets: &'a mut VecDeque<Packet>,
    pub events: &'a mut VecDeque<Event>,
    pub scratch: &'a mut Scratch,
}

/// Lists that the machines fill, kept for their memory.
#[derive(Default, Debug)]
pub(crate) struct Scratch {
    agreement: Output<agreement::Message, Decision>,
    vote: Output<vote::Message, vote::Outcome>,
    spread: Output<spread::Message, Item>,
}

impl Instance {
    /// `origin`: if the communicator may exist at some members only.
    pub fn new(identity: Identity, me: Rank, members: Arc<[PeerIndex]>, origin: Option<Origin>) -> Self {
        Instance {
            identity,
            me,
            members,
            told: origin.map(|origin| Told { origin, to: Ranks::new() }),
            agreement: None,
            vote: None,
            creation: None,
            spread: None,
            closing: false,
            in_use: false,
            is_closed: false,
        }
    }

    /// Whether `peer` has this rank.
    pub fn is_member(&self, rank: Rank, peer: PeerIndex) -> bool {
        self.members.get(rank.index()) == Some(&peer)
    }

    /// The rank of a member.
    pub fn rank_of(&self, peer: PeerIndex) -> Option<Rank> {
        self.members.iter().position(|&member| member == peer).map(|at| Rank(at as u32))
    }

    /// The member with this rank.
    pub fn member(&self, rank: Rank) -> Option<PeerIndex> {
        self.members.get(rank.index()).copied()
    }

    /// The communicator, as its messages name it.
    pub fn about(&self) -> About {
        About { identity: self.identity, source: self.me }
    }

    fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// Whether another member may still ask for the result of an agreement or a vote.
    pub fn owes_results(&self) -> bool {
        self.agreement.is_some() || self.vote.is_some() || self.creation.is_some()
    }

    /// Whether this member has voted, and waits for the result.
    pub fn is_voting(&self) -> bool {
        [&self.vote, &self.creation].into_iter().flatten().any(|vote| vote.is_running())
    }

    /// All members have passed all agreements and votes of the communicator.
    pub fn forget_results(&mut self) {
        (self.agreement, self.vote, self.creation) = (None, None, None);
        self.is_closed = true;
    }

    /// Whether all members have passed all agreements and votes.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether the communicator was freed.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether the communicator was freed, and neither has a part that spreads news nor needs one.
    pub fn takes_no_news(&self) -> bool {
        self.closing && !self.in_use && self.spread.is_none()
    }

    /// Whether the communicator was freed and nothing is owed to other members any more.
    pub fn is_over(&self) -> bool {
        let spread_is_over = self.spread.as_ref().is_none_or(|spread| spread.is_over());
        self.closing && !self.in_use && !self.owes_results() && spread_is_over
    }

    fn is_revoked(&self) -> bool {
        self.spread.as_ref().is_some_and(|spread| spread.is_revoked())
    }

    /// Takes part in the next agreement.
    pub fn start_agreement(&mut self, contribution: Contribution, ends: &Ends, fx: &mut Effects<'_>) {
        let asks = self.asks_children();
        self.with_agreement(ends, fx, |agreement, out| {
            agreement.start(contribution, out);
            if asks {
                agreement.ask_children(out);
            }
        });
    }

    /// Whether a child may take no part and not say so unless it is asked: it may have freed the communicator, or never have had it.
    fn asks_children(&self) -> bool {
        self.closing || self.told.is_some()
    }

    /// Takes part in the agreement that closes the communicator. A member that has freed the communicator and owed nothing takes no part:
    /// children are asked, and such a one answers that it is gone.
    pub fn start_closing(&mut self, contribution: Contribution, ends: &Ends, fx: &mut Effects<'_>) {
        self.with_agreement(ends, fx, |agreement, out| {
            agreement.start(contribution, out);
            agreement.ask_children(out);
        });
    }

    /// Calls `visit` for each member for which a protocol waits.
    pub fn awaited(&self, visit: &mut impl FnMut(PeerIndex)) {
        let visit = &mut |rank: Rank| visit(self.members[rank.index()]);
        if let Some(agreement) = &self.agreement {
            agreement.awaited_at_all(visit);
        }
        [&self.vote, &self.creation].into_iter().flatten().for_each(|vote| vote.awaited(visit));
    }

    /// Casts the ballot of the next vote.
    pub fn cast(&mut self, ballot: Ballot, ends: &Ends, fx: &mut Effects<'_>) {
        self.with_vote(VoteOn::Children, ends, fx, |vote, out| vote.cast(ballot, out));
    }

    /// This member will vote, and takes part in the votes of the others from now on.
    pub fn expect_vote(&mut self, ends: &Ends, fx: &mut Effects<'_>) {
        self.with_vote(VoteOn::Children, ends, fx, |_, _| {});
    }

    /// Casts the ballot of the vote on the communicator itself.
    pub fn cast_on_creation(&mut self, ballot: Ballot, ends: &Ends, fx: &mut Effects<'_>) {
        self.with_vote(VoteOn::Creation, ends, fx, |vote, out| vote.cast(ballot, out));
    }

    /// The parent of the communicator is revoked: this member votes no on the communicator, if it still can.
    pub fn on_parent_revoked(&mut self, ends: &Ends, fx: &mut Effects<'_>) {
        if self.creation.as_ref().is_some_and(|vote| vote.is_running()) {
            self.with_vote(VoteOn::Creation, ends, fx, |vote, out| vote.refuse(Reason::Revoked, out));
        }
    }

    /// This member takes part in no vote any more.
    pub fn leave_votes(&mut self, ends: &Ends, fx: &mut Effects<'_>) {
        self.with_vote(VoteOn::Children, ends, fx, |vote, out| vote.leave(out));
    }

    /// The communicator is revoked: from now on this member votes no.
    pub fn on_revoked(&mut self, ends: &Ends, fx: &mut Effects<'_>) {
        if self.vote.is_some() {
            self.with_vote(VoteOn::Children, ends, fx, |vote, out| vote.refuse(Reason::Revoked, out));
        }
    }

    /// This member has learned something about the communicator.
    pub fn add(&mut self, item: Item, ends: &Ends, fx: &mut Effects<'_>) {
        self.with_spread(ends, fx, |spread, out| spread.add(item, out));
    }

    /// A member has failed: whom it has told of a revocation, and no other, may be gone. `proto/src/spread.rs` has the argument.
    pub fn spread_failures(&mut self, ends: &Ends, fx: &mut Effects<'_>) {
        if self.spread.is_none() && !Spread::are_all_neighbours(self.size()) {
            mend_base::reach!("mpi.member_protocols: a failure alone is news");
            // A new part is told of all failures.
            self.with_spread(ends, fx, |_, _| {});
        }
    }

    /// News leaves for the neighbours.
    pub fn flush(&mut self, ends: &Ends, fx: &mut Effects<'_>) {
        if self.spread.is_some() {
            self.with_spread(ends, fx, |spread, out| spread.flush(out));
        }
    }

    /// The communicator was freed. `in_use`: operations on it run, and it is not revoked.
    pub fn close(&mut self, in_use: bool, ends: &Ends, fx: &mut Effects<'_>) {
        (self.closing, self.in_use) = (true, in_use);
        if !in_use {
            self.close_spread(ends, fx);
        }
    }

    /// No operation on the freed communicator needs news any more.
    pub fn end_use(&mut self, ends: &Ends, fx: &mut Effects<'_>) {
        if core::mem::take(&mut self.in_use) {
            self.close_spread(ends, fx);
        }
    }

    fn close_spread(&mut self, ends: &Ends, fx: &mut Effects<'_>) {
        if self.spread.is_some() {
            self.with_spread(ends, fx, |spread, out| spread.close(out));
        }
    }

    /// A message of another member.
    pub fn on_message(&mut self, from: Rank, message: Message, ends: &Ends, fx: &mut Effects<'_>) {
        match message {
            Message::Agreement(message) => {
                self.with_agreement(ends, fx, |agreement, out| agreement.on_message(from, message, out));
            }
            Message::Vote(message) => {
                self.with_vote(VoteOn::Children, ends, fx, |vote, out| vote.on_message(from, message, out));
            }
            Message::Creation(message) => {
                self.with_vote(VoteOn::Creation, ends, fx, |vote, out| vote.on_message(from, message, out));
            }
            Message::Spread(message) => {
                self.with_spread(ends, fx, |spread, out| spread.on_message(from, message, out));
            }
            // The owner of the instances takes it.
            Message::Crossing(_) | Message::Origin(_) => {}
            Message::Gone => {
                mend_base::reach!("mpi.member_protocols: a member is gone");
                if self.is_revoked() {
                    // The reason why that member has left.
                    self.on_revoked(ends, fx);
                }
                self.on_departure(from, ends, fx);
            }
        }
    }

    /// The node daemon's answer: what a member has left, or that none has left this result.
    pub fn on_recalled(&mut self, key: ResultKey, left: Option<&[u8]>, ends: &Ends, fx: &mut Effects<'_>) {
        let sequence = key.sequence;
        if key.protocol == left_result::AGREEMENT && self.agreement.is_some() {
            let decision = left.and_then(|bytes| left_result::decision(bytes, self.size()));
            self.with_agreement(ends, fx, |agreement, out| agreement.on_recalled(sequence, decision, out));
        }
        let on = match key.protocol {
            left_result::VOTE if self.vote.is_some() => VoteOn::Children,
            left_result::CREATION if self.creation.is_some() => VoteOn::Creation,
            _ => return,
        };
        let result = left.and_then(left_result::ballot);
        self.with_vote(on, ends, fx, |vote, out| vote.on_recalled(sequence, result, out));
    }

    /// The results that other members may still ask for.
    pub fn results_to_leave(&self) -> impl Iterator<Item = (ResultKey, Vec<u8>)> {
        let key = |protocol, sequence| ResultKey { identity: self.identity, protocol, sequence };
        let agreement = self.agreement.as_ref().and_then(|agreement| agreement.last());
        let agreement = agreement.map(|(sequence, decision)| {
            (key(left_result::AGREEMENT, sequence), left_result::of_decision(decision))
        });
        let votes = [(left_result::VOTE, &self.vote), (left_result::CREATION, &self.creation)];
        let votes = votes.map(|(protocol, vote)| {
            let (round, result) = vote.as_ref()?.last()?;
            Some((key(protocol, round), left_result::of_ballot(result)))
        });
        agreement.into_iter().chain(votes.into_iter().flatten())
    }

    /// A member has freed the communicator, and owes no result: to agreements and votes it is as if it had left MPI. It may still spread news,
    /// and says itself when it does not (`spread::Message::Gone`).
    fn on_departure(&mut self, rank: Rank, ends: &Ends, fx: &mut Effects<'_>) {
        self.end_results_of(rank, Gone::Departed, ends, fx);
    }

    /// It is published that a peer has failed or left MPI.
    pub fn on_end(&mut self, (who, peer): (Peer, PeerIndex), how: Gone, ends: &Ends, fx: &mut Effects<'_>) {
        if let Some(rank) = self.rank_of(peer) {
            self.tell_who_is_gone(who, fx);
            self.on_gone(rank, how, ends, fx);
        }
    }

    /// Members that do not have the communicator may learn by this one that they never will.
    fn tell_who_is_gone(&mut self, who: Peer, fx: &mut Effects<'_>) {
        let about = self.about();
        let Some(Told { origin, to }) = &mut self.told else { return };
        if let Exchange::Group { gone: gone @ None } = &mut origin.exchange {
            mend_base::reach!("mpi.member_protocols: the first member of a group is gone");
            *gone = Some(who);
            let message = Message::Origin(*origin);
            let packets = to.iter().map(|to| Packet::new(self.members[to.index()], about, &message));
            fx.packets.extend(packets);
        }
    }

    fn on_gone(&mut self, rank: Rank, how: Gone, ends: &Ends, fx: &mut Effects<'_>) {
        self.end_results_of(rank, how, ends, fx);
        if self.spread.is_some() {
            self.with_spread(ends, fx, |spread, out| match how {
                Gone::Failed => spread.on_failure(rank, out),
                Gone::Departed => spread.on_departure(rank, out),
            });
        }
    }

    fn end_results_of(&mut self, rank: Rank, how: Gone, ends: &Ends, fx: &mut Effects<'_>) {
        let asks = self.asks_children();
        if self.agreement.is_some() {
            self.with_agreement(ends, fx, |agreement, out| {
                match how {
                    Gone::Failed => agreement.on_failure(rank, out),
                    Gone::Departed => agreement.on_departure(rank, out),
                }
                if asks {
                    // Its children are those of this member now.
                    agreement.ask_children(out);
                }
            });
        }
        for on in [VoteOn::Children, VoteOn::Creation] {
            if self.vote_on(on).is_some() {
                self.with_vote(on, ends, fx, |vote, out| match how {
                    Gone::Failed => vote.on_failure(rank, out),
                    Gone::Departed => vote.on_departure(rank, out),
                });
            }
        }
    }

    pub(super) fn with_agreement(
        &mut self,
        ends: &Ends,
        fx: &mut Effects<'_>,
        event: impl FnOnce(&mut Agreement, &mut Output<agreement::Message, Decision>),
    ) {
        let out = &mut fx.scratch.agreement;
        if self.agreement.is_none() {
            let mut agreement = Box::new(Agreement::new(self.me, self.size(), Shape::USUAL));
            for (rank, how) in known_ends(&self.members, ends) {
                match how {
                    Gone::Failed => agreement.on_failure(rank, out),
                    Gone::Departed => agreement.on_departure(rank, out),
                }
            }
            self.agreement = Some(agreement);
        }
        if let Some(agreement) = self.agreement.as_deref_mut() {
            event(agreement, out);
        }
        let (about, members) = (self.about(), &self.members);
        for (to, message) in out.sends.drain(..) {
            let to = tell_origin(&mut self.told, to, members, about, fx.packets);
            fx.packets.push_back(Packet::new(to, about, &Message::Agreement(message)));
        }
        if out.outcomes.iter().any(|decision| !decision.departed) {
            // Each living member has contributed. While one has not, perhaps since it does not have the communicator, only the member that
            // asked it knows so: should that one die, another must ask.
            self.told = None;
        }
        for decision in out.outcomes.drain(..) {
            fx.events.push_back(Event::Decided(about.identity, decision));
        }
        let recalled = self.agreement.as_deref_mut().and_then(Agreement::take_recall);
        fx.events.extend(recalled.map(|sequence| recall(about.identity, left_result::AGREEMENT, sequence)));
    }

    fn vote_on(&mut self, on: VoteOn) -> &mut Option<Box<Vote>> {
        match on {
            VoteOn::Children => &mut self.vote,
            VoteOn::Creation => &mut self.creation,
        }
    }

    fn with_vote(
        &mut self,
        on: VoteOn,
        ends: &Ends,
        fx: &mut Effects<'_>,
        event: impl FnOnce(&mut Vote, &mut Output<vote::Message, vote::Outcome>),
    ) {
        let out = &mut fx.scratch.vote;
        if self.vote_on(on).is_none() {
            let mut vote = Box::new(Vote::new(self.me, self.size(), Shape::USUAL));
            for (rank, how) in known_ends(&self.members, ends) {
                match how {
                    Gone::Failed => vote.on_failure(rank, out),
                    Gone::Departed => vote.on_departure(rank, out),
                }
            }
            if on == VoteOn::Children && self.is_revoked() {
                vote.refuse(Reason::Revoked, out);
            }
            *self.vote_on(on) = Some(vote);
        }
        if let Some(vote) = self.vote_on(on).as_deref_mut() {
            event(vote, out);
        }
        let (message, protocol): (fn(vote::Message) -> Message, u8) = match on {
            VoteOn::Children => (Message::Vote, left_result::VOTE),
            VoteOn::Creation => (Message::Creation, left_result::CREATION),
        };
        let about = self.about();
        for (to, content) in out.sends.drain(..) {
            let to = tell_origin(&mut self.told, to, &self.members, about, fx.packets);
            fx.packets.push_back(Packet::new(to, about, &message(content)));
        }
        fx.events.extend(out.outcomes.drain(..).map(|outcome| match on {
            VoteOn::Children => Event::Voted(about.identity, outcome),
            VoteOn::Creation => Event::VotedOnCreation(about.identity, outcome.result),
        }));
        let recalled = self.vote_on(on).as_deref_mut().and_then(Vote::take_recall);
        fx.events.extend(recalled.map(|round| recall(about.identity, protocol, round)));
    }

    fn with_spread(
        &mut self,
        ends: &Ends,
        fx: &mut Effects<'_>,
        event: impl FnOnce(&mut Spread, &mut Output<spread::Message, Item>),
    ) {
        let out = &mut fx.scratch.spread;
        let is_new = self.spread.is_none();
        if is_new {
            let mut spread = Box::new(Spread::new(self.me, self.size()));
            for (rank, how) in known_ends(&self.members, ends) {
                match how {
                    Gone::Failed => spread.on_failure(rank, out),
                    Gone::Departed => spread.on_departure(rank, out),
                }
            }
            self.spread = Some(spread);
        }
        if let Some(spread) = self.spread.as_deref_mut() {
            event(spread, out);
            if is_new && self.closing && !self.in_use {
                // News that comes after the communicator was freed is passed on, and is the last.
                spread.close(out);
            }
        }
        let (about, members) = (self.about(), &self.members);
        for (to, message) in out.sends.drain(..) {
            let to = tell_origin(&mut self.told, to, members, about, fx.packets);
            fx.packets.push_back(Packet::new(to, about, &Message::Spread(message)));
        }
        fx.events.extend(out.outcomes.drain(..).map(|item| Event::Learned(about.identity, item)));
    }
}

/// The member with this rank, which a message is for. The origin of the communicator goes to it first, once.
fn tell_origin(
    told: &mut Option<Told>,
    to: Rank,
    members: &[PeerIndex],
    about: About,
    packets: &mut VecDeque<Packet>,
) -> PeerIndex {
    let peer = members[to.index()];
    if let Some(told) = told
        && told.to.insert(to)
    {
        packets.push_back(Packet::new(peer, about, &Message::Origin(told.origin)));
    }
    peer
}

fn recall(identity: Identity, protocol: u8, sequence: u32) -> Event {
    Event::Recall(ResultKey { identity, protocol, sequence })
}

/// The members of which it was published before that they have failed or left MPI.
fn known_ends<'a>(members: &'a [PeerIndex], ends: &'a Ends) -> impl Iterator<Item = (Rank, Gone)> + 'a {
    let members = if ends.none() { &[] } else { members };
    (0u32..).zip(members).filter_map(|(rank, &member)| Some((Rank(rank), Gone::of(ends.of(member)?)?)))
}
