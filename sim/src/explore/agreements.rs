// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The model of the agreement among the members of a communicator ([`mend_proto::agreement`]).
//!
//! The owner of each member starts its agreements one after the other, each at any time or never. Member r contributes 16^r to a
//! sum, so that each hexadecimal digit of the value counts the contributions of one member. With [`Agreements::acknowledges`] the
//! program has acknowledged all failures that are published at its rank, or none; otherwise all. Members may leave MPI while no
//! agreement runs; the answer of the node daemon about decisions that departed members have left takes any time.
//!
//! What must hold: of one agreement, all that live or have left MPI return the same decision; in uniform mode the dead, too. A
//! decision counts nobody twice, and everybody who returns it. Whoever is not counted is among the failed members of the decision, or
//! has left MPI, which the decision says. Its failed members have failed, and contain those of the decision before and all whose
//! failure was published at a returning member when it started. It says whether each contributor had acknowledged just these.
//! When nothing can happen any more but choices and crashes, an agreement runs only while a living member has not started it.

use super::model::{Effects, MemberOf, Model, Status, View};
use mend_base::Rank;
use mend_proto::agreement::{Agreement, Contribution, Decision, Op};
use mend_proto::ranks::Ranks;
use mend_proto::tree::Shape;

/// Agreements of a few members, with a bounded number of crashes and departures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreements {
    /// The number of members.
    pub size: u32,
    /// The shape of the tree.
    pub shape: Shape,
    /// The most agreements that a member starts, at most [`AGREEMENTS_MAX`].
    pub agreements: u8,
    /// The most members that crash.
    pub crashes: u32,
    /// The most members that leave MPI.
    pub departures: u32,
    /// Uniform mode.
    pub uniform: bool,
    /// Whether failures may be published and not acknowledged.
    pub acknowledges: bool,
}

/// What a member's owner remembers. Sets of ranks have a bit for each.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Owner {
    me: u32,
    started: u8,
    /// Whose failure the program has acknowledged when it started each agreement.
    acknowledged: [u8; AGREEMENTS_MAX],
    /// Whose failure was published when it started the last one.
    published: u8,
    /// What was decided.
    decisions: [Option<Decision>; AGREEMENTS_MAX],
    /// It has asked the node daemon for the decision of this agreement.
    recall: Option<u32>,
}

/// What an owner does.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// It starts the next agreement.
    Start {
        /// Whose failure is published here.
        published: u8,
        /// Whose failure the program has acknowledged.
        acknowledged: u8,
    },
    /// It gets the answer of the node daemon.
    Recalled(u32, Option<Decision>),
}

/// The most agreements in a row.
pub const AGREEMENTS_MAX: usize = 3;

impl Model for Agreements {
    type Machine = Agreement;
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

    fn start(&self, rank: Rank) -> (Agreement, Owner) {
        (Agreement::new(rank, self.size, self.shape), Owner { me: rank.0, ..Owner::default() })
    }

    fn choices(&self, view: &View<'_, Self>, rank: Rank, choices: &mut Vec<Command>) {
        let member = view.member(rank);
        if member.owner.started == self.agreements || agreement(member).is_running() {
            return;
        }
        let published = member.told as u8 & failed(view);
        choices.push(Command::Start { published, acknowledged: published });
        if self.acknowledges && published != 0 {
            choices.push(Command::Start { published, acknowledged: 0 });
        }
    }

    fn obligations(&self, view: &View<'_, Self>, rank: Rank, obligations: &mut Vec<Command>) {
        if let Some(sequence) = view.member(rank).owner.recall {
            let departed = view.members().filter(|(_, member)| member.status == Status::Departed);
            let mut left = departed.filter_map(|(_, member)| agreement(member).last());
            let decision = left.find(|&(last, _)| last == sequence).map(|(_, decision)| decision.clone());
            obligations.push(Command::Recalled(sequence, decision));
        }
    }

    fn command(
        &self,
        (agreement, owner): (&mut Agreement, &mut Owner),
        command: &Command,
        out: &mut Effects<Self>,
    ) {
        match command {
            &Command::Start { published, acknowledged } => {
                owner.acknowledged[usize::from(owner.started)] = acknowledged;
                owner.published = published;
                owner.started += 1;
                let contribution = Contribution {
                    value: 1 << (4 * owner.me),
                    op: Op::Sum,
                    acknowledged: ranks(acknowledged).hash(),
                    uniform: self.uniform,
                };
                agreement.start(contribution, out);
            }
            Command::Recalled(sequence, decision) => {
                owner.recall = None;
                agreement.on_recalled(*sequence, decision.clone(), out);
            }
        }
    }

    fn after_event(
        &self,
        (agreement, owner): (&mut Agreement, &mut Owner),
        _told: u32,
        outcomes: &[Decision],
    ) {
        owner.recall = agreement.take_recall().or(owner.recall);
        for decision in outcomes {
            let place = &mut owner.decisions[usize::from(owner.started) - 1];
            assert!(place.is_none(), "an agreement has one decision");
            *place = Some(decision.clone());
        }
    }

    fn may_depart(&self, agreement: &Agreement, _owner: &Owner) -> bool {
        !agreement.is_running()
    }

    fn on_departure(&self, agreement: &mut Agreement, departed: Rank, out: &mut Effects<Self>) {
        agreement.on_departure(departed, out);
    }

    fn after_crash(&self, owner: &mut Owner) {
        (owner.published, owner.recall) = (0, None);
        if !self.uniform {
            owner.decisions = Default::default();
        }
    }

    fn check_outcome(&self, view: &View<'_, Self>, rank: Rank, decision: &Decision) -> Result<(), String> {
        let owner = &view.member(rank).owner;
        let index = usize::from(owner.started) - 1;
        let says_failed = decision.failed.iter().fold(0, |set, rank| set | 1 << rank.0);
        let has_departed = view.count(Status::Departed) > 0;
        let before = index.checked_sub(1).and_then(|before| owner.decisions[before].as_ref());
        let complain = |what| Err(format!("member {} returns {decision:x?}: {what}", rank.0));
        if says_failed & !failed(view) != 0 {
            return complain("some of these have not failed");
        }
        if owner.published & !says_failed != 0 {
            return complain("a failure that was published here is missing");
        }
        if before.is_some_and(|before| before.failed.iter().any(|rank| !decision.failed.contains(rank))) {
            return complain("a failure of the decision before is missing");
        }
        if decision.departed && !has_departed {
            return complain("nobody has left MPI");
        }
        let counts = (0..self.size).map(|rank| (Rank(rank), decision.value >> (4 * rank) & 15));
        let mut have_acknowledged = true;
        for (counted, times) in counts {
            let other = &view.member(counted).owner;
            match times {
                0 if counted == rank => return complain("its own contribution is missing"),
                0 if decision.failed.contains(counted) || decision.departed => {}
                0 => return complain("the reason of a missing contribution is missing"),
                1 if usize::from(other.started) <= index => {
                    return complain("it counts what was not contributed");
                }
                1 => have_acknowledged &= other.acknowledged[index] == says_failed,
                _ => return complain("a contribution counts twice"),
            }
        }
        if decision.acknowledged != have_acknowledged {
            return complain("what it says of acknowledged failures is wrong");
        }
        Ok(())
    }

    fn safety(&self, view: &View<'_, Self>) -> Result<(), String> {
        for index in 0..usize::from(self.agreements) {
            let mut decisions = view
                .members()
                .filter_map(|(rank, member)| Some((rank, member.owner.decisions[index].as_ref()?)));
            let Some((first, decision)) = decisions.next() else { continue };
            if let Some((other, differs)) = decisions.find(|(_, other)| *other != decision) {
                let (first, other) = (first.0, other.0);
                return Err(format!(
                    "agreement {index}: member {first} has returned {decision:x?}, member {other} {differs:x?}"
                ));
            }
        }
        Ok(())
    }

    fn liveness(&self, view: &View<'_, Self>) -> Result<(), String> {
        let living = || view.members().filter(|(_, member)| member.status == Status::Living);
        for (rank, member) in living().filter(|(_, member)| agreement(member).is_running()) {
            if !living().any(|(_, other)| other.owner.started < member.owner.started) {
                return Err(format!("the agreement of member {} never ends", rank.0));
            }
        }
        Ok(())
    }
}

fn agreement(member: &MemberOf<Agreements>) -> &Agreement {
    member.machine.as_ref().expect("the dead are not asked")
}

/// The members that have failed.
fn failed(view: &View<'_, Agreements>) -> u8 {
    let failed = view.members().filter(|(_, member)| member.status == Status::Failed);
    failed.fold(0, |set, (rank, _)| set | 1 << rank.0)
}

fn ranks(set: u8) -> Ranks {
    (0..8).filter(|rank| set & 1 << rank != 0).map(Rank).collect()
}
