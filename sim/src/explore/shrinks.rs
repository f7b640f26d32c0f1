// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The model of identities that are decided by agreements, as in MPIX_Comm_shrink: [`mend_proto::agreement`] with
//! [`IdentityAllocator`].
//!
//! Each member proposes an identity that it has allocated. The agreement decides that of the lowest contributor, which the members
//! that return use. A member whose proposal was not decided gives it back, whoever has failed (`mend-mpi`,
//! `commit_shrink`). The owner starts its agreements one after the other, each at any time or never.
//!
//! What must hold: of one agreement, all that live use the same identity; and no identity is used by two agreements, whoever has used
//! it, dead or alive. (The model of agreements itself is in `agreements`.)

use super::model::{Effects, Model, Status, View};
use mend_base::{Identity, Job, Peer, Rank};
use mend_proto::agreement::{Agreement, Contribution, Decision, Message, Op};
use mend_proto::identity::IdentityAllocator;
use mend_proto::protocol::{Output, Protocol};
use mend_proto::ranks::SetHash;
use mend_proto::tree::Shape;

/// Shrinks of a few members, one after the other, with a bounded number of crashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shrinks {
    /// The number of members.
    pub size: u32,
    /// The shape of the tree.
    pub shape: Shape,
    /// The most agreements that a member starts, at most [`SHRINKS_MAX`].
    pub shrinks: u8,
    /// The most members that crash.
    pub crashes: u32,
}

/// The most agreements in a row.
pub const SHRINKS_MAX: usize = 3;

/// A member's agreement and its identities.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Process {
    agreement: Agreement,
    identities: IdentityAllocator,
    proposed: Option<Identity>,
}

/// What a member's owner remembers: how many agreements it has started, and the identity that each has decided.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Owner {
    started: u8,
    used: [Option<Identity>; SHRINKS_MAX],
}

impl Protocol for Process {
    type Message = Message;
    type Outcome = Decision;

    fn on_message(&mut self, from: Rank, message: Message, out: &mut Output<Message, Decision>) {
        self.agreement.on_message(from, message, out);
    }

    fn on_failure(&mut self, failed: Rank, out: &mut Output<Message, Decision>) {
        self.agreement.on_failure(failed, out);
    }
}

impl Model for Shrinks {
    type Machine = Process;
    type Owner = Owner;
    /// It starts its next agreement.
    type Command = ();

    fn size(&self) -> u32 {
        self.size
    }

    fn crashes_max(&self) -> u32 {
        self.crashes
    }

    fn start(&self, rank: Rank) -> (Process, Owner) {
        let agreement = Agreement::new(rank, self.size, self.shape);
        let identities = IdentityAllocator::new(peer(rank));
        (Process { agreement, identities, proposed: None }, Owner::default())
    }

    fn choices(&self, view: &View<'_, Self>, rank: Rank, choices: &mut Vec<()>) {
        let member = view.member(rank);
        let is_running = member.machine.as_ref().is_some_and(|process| process.agreement.is_running());
        if member.owner.started < self.shrinks && !is_running {
            choices.push(());
        }
    }

    fn command(&self, (process, owner): (&mut Process, &mut Owner), (): &(), out: &mut Effects<Self>) {
        owner.started += 1;
        let identity = process.identities.allocate().expect("there are numbers");
        process.proposed = Some(identity);
        let value = u64::from(rank_of(identity).0) << 32 | u64::from(identity.number);
        let contribution = Contribution { value, op: Op::First, acknowledged: SetHash(0), uniform: false };
        process.agreement.start(contribution, out);
    }

    fn after_event(&self, (process, owner): (&mut Process, &mut Owner), _told: u32, outcomes: &[Decision]) {
        for decision in outcomes {
            let creator = peer(Rank((decision.value >> 32) as u32));
            let decided = Identity { creator, number: decision.value as u32 };
            owner.used[usize::from(owner.started) - 1] = Some(decided);
            let proposed = process.proposed.take().expect("it has proposed one");
            if decided != proposed {
                process.identities.give_back(proposed);
            }
        }
    }

    fn after_crash(&self, _owner: &mut Owner) {}

    fn check_outcome(&self, _view: &View<'_, Self>, _rank: Rank, _decision: &Decision) -> Result<(), String> {
        Ok(())
    }

    fn safety(&self, view: &View<'_, Self>) -> Result<(), String> {
        let mut used: Vec<(usize, Identity)> = Vec::new();
        for (rank, member) in view.members() {
            for (index, &identity) in member.owner.used.iter().enumerate() {
                let Some(identity) = identity else { continue };
                if used.iter().any(|&(other, used)| used == identity && other != index) {
                    return Err(format!(
                        "member {} uses {identity:?}, which another communicator has",
                        rank.0
                    ));
                }
                used.push((index, identity));
            }
        }
        let living = view.members().filter(|(_, member)| member.status == Status::Living);
        let mut decided = [None; SHRINKS_MAX];
        for (rank, member) in living {
            for (decided, identity) in decided.iter_mut().zip(member.owner.used) {
                if identity.is_some() && *decided.get_or_insert(identity) != identity {
                    return Err(format!("member {} uses another identity for the same communicator", rank.0));
                }
            }
        }
        Ok(())
    }

    fn liveness(&self, view: &View<'_, Self>) -> Result<(), String> {
        let living = || view.members().filter(|(_, member)| member.status == Status::Living);
        for (rank, member) in living() {
            let is_running = member.machine.as_ref().is_some_and(|process| process.agreement.is_running());
            if is_running && !living().any(|(_, other)| other.owner.started < member.owner.started) {
                return Err(format!("the agreement of member {} never ends", rank.0));
            }
        }
        Ok(())
    }
}

fn peer(rank: Rank) -> Peer {
    Peer::new(Job(1), rank.0)
}

fn rank_of(identity: Identity) -> Rank {
    Rank(identity.creator.number())
}
