// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The model of the vote that creates a communicator ([`mend_proto::vote`]).
//!
//! The owner of each member casts a ballot in each round, at any time or never; with [`Votes::opposes`] each ballot may be no.
//! With [`Votes::revokes`] any member may revoke the parent at any time, which each other member learns at its own time.
//! Members may leave MPI while they have no ballot running. The answer of the node daemon about results that departed members
//! have left takes any time. With [`Votes::leaves`] a member may leave the votes at any time, also while its ballot runs, and cast
//! ballots afterwards.
//!
//! What must hold: after somebody, dead or alive, has returned yes from a round, nobody that lives or has left MPI has returned
//! no from it. Each result has a reason: a yes is no result of a member that voted no, and a no has somebody who voted no, has
//! left the votes or has ended, or a revocation. When nothing can happen any more but choices and crashes: if a member has ended or
//! the parent is revoked, no ballot is running; otherwise a ballot runs only while a member has not voted and has not left the votes.

use super::model::{Effects, MemberOf, Model, Status, View};
use mend_base::Rank;
use mend_proto::tree::Shape;
use mend_proto::vote::{Ballot, Outcome, Reason, Vote};

/// Votes of a few members, with a bounded number of rounds, crashes and departures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Votes {
    /// The number of members.
    pub size: u32,
    /// The shape of the tree.
    pub shape: Shape,
    /// The most ballots of a member.
    pub rounds: u8,
    /// The most members that crash.
    pub crashes: u32,
    /// The most members that leave MPI.
    pub departures: u32,
    /// Whether members may vote no for a reason that is not permanent.
    pub opposes: bool,
    /// Whether a member may revoke the parent.
    pub revokes: bool,
    /// The most members that leave the votes.
    pub leaves: u32,
}

/// What a member's owner remembers. Bit k of a set of rounds is round k.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Owner {
    /// Ballots that were cast.
    cast: u8,
    /// Rounds in which this member voted no.
    opposed: u8,
    /// Rounds from which this member returned yes.
    yes: u8,
    /// Rounds from which this member returned no.
    no: u8,
    /// It knows that the parent is revoked.
    is_revoked: bool,
    /// It has left the votes.
    has_left: bool,
    /// It has asked the node daemon for the result of this round.
    recall: Option<u32>,
}

/// What an owner does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// It casts its next ballot.
    Cast(Ballot),
    /// It learns that the parent is revoked, or revokes it.
    Revoke,
    /// It leaves the votes.
    Leave,
    /// It gets the answer of the node daemon.
    Recalled(u32, Option<Ballot>),
}

impl Model for Votes {
    type Machine = Vote;
    type Owner = Owner;
    type Command = Command;

    fn size(&self) -> u32 {
        self.size
    }

    fn crashes_max(&self) -> u32 {
        self.crashes
    }

    fn departures_max(&self) -> u32 {
        self.departures
    }

    fn start(&self, rank: Rank) -> (Vote, Owner) {
        (Vote::new(rank, self.size, self.shape), Owner::default())
    }

    fn choices(&self, view: &View<'_, Self>, rank: Rank, choices: &mut Vec<Command>) {
        let member = view.member(rank);
        let vote = vote(member);
        if member.owner.cast < self.rounds && !vote.is_running() {
            choices.push(Command::Cast(Ballot::Yes));
            if self.opposes && !vote.is_decided() {
                choices.push(Command::Cast(Ballot::No(Reason::Other)));
            }
        }
        if self.revokes && !is_revoked(view) {
            choices.push(Command::Revoke);
        }
        let left = view.members().filter(|(_, member)| member.owner.has_left).count() as u32;
        if left < self.leaves && !member.owner.has_left {
            choices.push(Command::Leave);
        }
    }

    fn obligations(&self, view: &View<'_, Self>, rank: Rank, obligations: &mut Vec<Command>) {
        let owner = &view.member(rank).owner;
        if is_revoked(view) && !owner.is_revoked {
            obligations.push(Command::Revoke);
        }
        if let Some(round) = owner.recall {
            let departed = view.members().filter(|(_, member)| member.status == Status::Departed);
            let mut left = departed.filter_map(|(_, member)| vote(member).last());
            let result = left.find(|&(last, _)| last == round).map(|(_, result)| result);
            obligations.push(Command::Recalled(round, result));
        }
    }

    fn command(&self, (vote, owner): (&mut Vote, &mut Owner), command: &Command, out: &mut Effects<Self>) {
        match *command {
            Command::Cast(ballot) => {
                owner.opposed |= u8::from(ballot != Ballot::Yes) << owner.cast;
                owner.cast += 1;
                vote.cast(ballot, out);
            }
            Command::Revoke => {
                owner.is_revoked = true;
                vote.refuse(Reason::Revoked, out);
            }
            Command::Leave => {
                owner.has_left = true;
                vote.leave(out);
            }
            Command::Recalled(round, result) => {
                owner.recall = None;
                vote.on_recalled(round, result, out);
            }
        }
    }

    fn after_event(&self, (vote, owner): (&mut Vote, &mut Owner), _told: u32, outcomes: &[Outcome]) {
        owner.recall = vote.take_recall().or(owner.recall);
        for outcome in outcomes {
            let round = 1 << (owner.cast - 1);
            let set = if outcome.result == Ballot::Yes { &mut owner.yes } else { &mut owner.no };
            assert!(*set & round == 0, "a ballot has one outcome");
            *set |= round;
        }
    }

    fn may_depart(&self, vote: &Vote, _owner: &Owner) -> bool {
        !vote.is_running()
    }

    fn on_departure(&self, vote: &mut Vote, departed: Rank, out: &mut Effects<Self>) {
        vote.on_departure(departed, out);
    }

    fn after_crash(&self, owner: &mut Owner) {
        let Owner { yes, is_revoked, has_left, .. } = *owner;
        *owner = Owner { yes, is_revoked, has_left, ..Owner::default() };
    }

    fn check_outcome(&self, view: &View<'_, Self>, rank: Rank, outcome: &Outcome) -> Result<(), String> {
        let owner = &view.member(rank).owner;
        let round = 1u8 << (owner.cast - 1);
        let has_status = |rank: Rank, status| view.member(rank).status == status;
        let is_justified = match outcome.result {
            Ballot::Yes => owner.opposed & round == 0,
            Ballot::No(Reason::Failed(rank)) => has_status(rank, Status::Failed),
            Ballot::No(Reason::Departed(rank)) => {
                has_status(rank, Status::Departed) || view.member(rank).owner.has_left
            }
            Ballot::No(Reason::Revoked) => is_revoked(view),
            Ballot::No(Reason::Other) => {
                // What the dead have voted is not remembered.
                let opposed = || view.members().any(|(_, member)| member.owner.opposed & round != 0);
                self.opposes && (view.count(Status::Failed) > 0 || opposed())
            }
        };
        if is_justified {
            Ok(())
        } else {
            Err(format!("member {} returns {outcome:?} without a cause", rank.0))
        }
    }

    fn safety(&self, view: &View<'_, Self>) -> Result<(), String> {
        let yes = view.members().fold(0, |all, (_, member)| all | member.owner.yes);
        let disagrees = |&(_, member): &(Rank, &MemberOf<Self>)| member.owner.no & yes != 0;
        match view.members().find(disagrees) {
            None => Ok(()),
            Some((rank, _)) => Err(format!("member {} returned no where another one returned yes", rank.0)),
        }
    }

    fn liveness(&self, view: &View<'_, Self>) -> Result<(), String> {
        let living = || view.members().filter(|(_, member)| member.status == Status::Living);
        let may_be_awaited = view.count(Status::Living) == self.size && !is_revoked(view);
        for (rank, member) in living().filter(|(_, member)| vote(member).is_running()) {
            let is_behind = |(_, other): (_, &MemberOf<Self>)| {
                other.owner.cast < member.owner.cast && !other.owner.has_left
            };
            if !(may_be_awaited && living().any(is_behind)) {
                return Err(format!("the ballot of member {} never ends", rank.0));
            }
        }
        Ok(())
    }
}

fn vote(member: &MemberOf<Votes>) -> &Vote {
    member.machine.as_ref().expect("the dead are not asked")
}

fn is_revoked(view: &View<'_, Votes>) -> bool {
    view.members().any(|(_, member)| member.owner.is_revoked)
}
