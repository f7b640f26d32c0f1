// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is checked: a protocol, its members and their owners, and what must hold.

use super::space::{Space, State};
use mend_base::Rank;
use mend_proto::protocol::{Output, Protocol};
use std::fmt::Debug;
use std::hash::Hash;

/// A protocol with a bounded use of it.
pub trait Model: Sized {
    /// The part of one member.
    type Machine: Protocol<Message: Clone + Eq + Hash + Debug, Outcome: Clone + Eq + Debug>
        + Clone
        + Eq
        + Hash
        + Debug;
    /// What the owner of a part remembers: what it may still do, and what the oracles need.
    type Owner: Clone + Eq + Hash + Debug;
    /// What an owner does.
    type Command: Clone + Eq + Hash + Debug;

    /// The number of members, at most [`SIZE_MAX`](super::SIZE_MAX).
    fn size(&self) -> u32;

    /// The most members that crash.
    fn crashes_max(&self) -> u32;

    /// The most members that leave MPI.
    fn departures_max(&self) -> u32 {
        0
    }

    /// The number of channels from one member to another, at most [`STREAMS_MAX`](super::STREAMS_MAX). There is no order between messages of
    /// different channels.
    fn streams(&self) -> usize {
        1
    }

    /// The number of the channel of a message.
    fn stream(&self, _message: &MessageOf<Self>) -> usize {
        0
    }

    /// Whether the news of a crash may overtake messages of the dead: these arrive later, or a suffix of them is lost. Otherwise what
    /// has not arrived by then is lost.
    fn news_overtakes(&self) -> bool {
        false
    }

    /// A member at the start.
    fn start(&self, rank: Rank) -> (Self::Machine, Self::Owner);

    /// What the owner of a living member may do now.
    fn choices(&self, view: &View<'_, Self>, rank: Rank, choices: &mut Vec<Self::Command>);

    /// What the owner of a living member will do, sooner or later, unless the member crashes.
    fn obligations(&self, _view: &View<'_, Self>, _rank: Rank, _obligations: &mut Vec<Self::Command>) {}

    /// Does it.
    fn command(
        &self,
        member: (&mut Self::Machine, &mut Self::Owner),
        command: &Self::Command,
        out: &mut Effects<Self>,
    );

    /// After each event of a living member. `told` has the bit of each member whose end is published here.
    fn after_event(
        &self,
        member: (&mut Self::Machine, &mut Self::Owner),
        told: u32,
        outcomes: &[OutcomeOf<Self>],
    );

    /// Whether the member may leave MPI now.
    fn may_depart(&self, _machine: &Self::Machine, _owner: &Self::Owner) -> bool {
        false
    }

    /// Another member has left MPI.
    fn on_departure(&self, _machine: &mut Self::Machine, _departed: Rank, _out: &mut Effects<Self>) {}

    /// A member has crashed: drops what no oracle needs to know about the dead.
    fn after_crash(&self, owner: &mut Self::Owner);

    /// Looks at one result when it is returned to its owner.
    fn check_outcome(
        &self,
        view: &View<'_, Self>,
        rank: Rank,
        outcome: &OutcomeOf<Self>,
    ) -> Result<(), String>;

    /// Looks at each state.
    fn safety(&self, view: &View<'_, Self>) -> Result<(), String>;

    /// Looks at each state in which nothing can happen but choices and crashes.
    fn liveness(&self, view: &View<'_, Self>) -> Result<(), String>;
}

/// What a member's part sends.
pub type MessageOf<M> = <<M as Model>::Machine as Protocol>::Message;

/// What a member's part returns to its owner.
pub type OutcomeOf<M> = <<M as Model>::Machine as Protocol>::Outcome;

/// What a part wants done.
pub type Effects<M> = Output<MessageOf<M>, OutcomeOf<M>>;

/// A member of this model.
pub type MemberOf<M> = Member<<M as Model>::Machine, <M as Model>::Owner>;

/// Whether a member lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// It lives.
    Living,
    /// It has crashed.
    Failed,
    /// It has left MPI.
    Departed,
}

/// One member in one state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Member<P, O> {
    /// Whether it lives.
    pub status: Status,
    /// A bit for each member whose end is published here.
    pub told: u32,
    /// Its part; `None` for the dead.
    pub machine: Option<P>,
    /// What its owner remembers.
    pub owner: O,
}

/// One state, for oracles.
pub struct View<'a, M: Model> {
    pub(super) space: &'a Space<'a, M>,
    pub(super) state: &'a State,
}

impl<M: Model> View<'_, M> {
    /// A member.
    pub fn member(&self, rank: Rank) -> &MemberOf<M> {
        self.space.member(self.state.members[rank.index()])
    }

    /// All members.
    pub fn members(&self) -> impl Iterator<Item = (Rank, &MemberOf<M>)> {
        (0..self.space.size() as u32).map(|rank| (Rank(rank), self.member(Rank(rank))))
    }

    /// How many members have this status.
    pub fn count(&self, status: Status) -> u32 {
        self.members().filter(|(_, member)| member.status == status).count() as u32
    }
}
