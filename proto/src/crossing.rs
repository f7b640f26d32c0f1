// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recoveries that wait for each other: a program that is blocked in an agreement of communicator A at one process and in one of B at
//! another would wait for ever, if each process is a member of both (R-9). The processes search for such a cycle by edge chasing, after
//! Chandy, Misra, Haas, "Distributed Deadlock Detection", TOCS 1983 (doi:10.1145/357360.357365), in the AND model. Time decides only
//! when a search begins.
//!
//! The nodes of the graph are, at each process, the program and each agreement that runs. Edges are:
//!
//! * from the program, if it is blocked in a wait that ends only when agreements end, to each of these;
//! * from an agreement at one process to the same agreement at each process of which it needs a message: children in the tree that have
//!   not sent up, or the parent. If that process has not started the agreement, the edge leads to its program. This is a *crossing*.
//!
//! ```text
//!   initiator              process 1              process 2
//!   program ─▶ B ──────────▶ B ───────────────▶ program: blocked in A, has not started B (crossing)
//!     ▲                                             │
//!     └──────── A, which the initiator has not started ◀──── A            Search: along the edges
//!                                                                          Check, Conclude: back along the same path
//! ```
//!
//! 1. The initiator is a process whose program is blocked. Its `Search` goes along all edges. Each node forwards it once and keeps
//!    where it came from. It ends where nobody is blocked.
//! 2. It comes back to the program of the initiator: the way is a cycle, perhaps no more. A `Check` goes back along it. At each crossing
//!    the program must be in the same wait as before, and must not have started the agreement. The agreements at crossings are
//!    collected.
//! 3. The `Check` comes back to the initiator, which passes it too: the cycle is proven. `Conclude` goes back along the way with
//!    the list, and each crossing contributes in absentia to its agreement.
//!
//! # Why a proven cycle is a deadlock, also if members fail
//!
//! Let T be the moment at which the `Check` leaves. Each crossing was passed by the `Search` before T and by the `Check` after T, in
//! one wait. So at T all programs at crossings were blocked, each in an agreement that the next one had not started; and no agreement
//! is decided before all that live have started it. Nothing but the death of one of them ends this. (The `Search` alone proves as
//! much while nobody dies: a process that has not started what the sender waits for holds up all before it. But a process may be dead
//! already when the one behind it becomes blocked.)
//!
//! # Why each deadlock is found
//!
//! A blocked program whose wait never ends waits for a process that never starts; if no process is at fault that is not blocked, there is
//! a cycle of programs. The edges of an agreement lead from each member that has started it to each that has not, as in the tree
//! aggregates go up and the decision comes down. Every program of the cycle begins searches again and again, until one finds all of the
//! others blocked, no message of an agreement on its way and all deaths known.

mod message;

#[cfg(test)]
mod job;
#[cfg(test)]
mod tests;

pub use message::{Message, SearchId};

use crate::agreement::{AgreementId, CROSSED_MAX, Expected};
use mend_base::{Identity, Peer, Rank, reach};
use std::collections::VecDeque;

/// What the searches ask of their process.
pub trait Waits {
    /// The wait in which the program of this process is blocked, if nothing but the end of agreements can end it.
    fn program(&self) -> Option<ProgramWait>;
    /// Whether a member, which says that it waits for this process, does so by what is known here.
    fn expected_by(&self, from: Rank, agreement: AgreementId) -> Expected;
    /// Calls `visit` for each member of which the agreement that runs needs a message, with the number of the agreement.
    fn awaited(&self, communicator: Identity, visit: &mut dyn FnMut(Rank, u32));
    /// Whether the agreement is the next one, and has not started.
    fn is_next(&self, agreement: AgreementId) -> bool;
}

/// A wait of a program.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ProgramWait {
    /// Differs from that of each other wait of the process.
    pub number: u32,
    /// Communicators whose running agreements must all end before the wait does.
    pub communicators: Vec<Identity>,
}

/// What the searches want done, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// A message to a member of a communicator.
    Send(Identity, Rank, Message),
    /// A cycle is proven: this process contributes in absentia to the first agreement. The cycle is the second.
    Contribute(AgreementId, Vec<AgreementId>),
}

/// The part of one process in all searches.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Searches {
    me: Peer,
    /// The number of the last own search; wraps.
    number: u32,
    /// The nodes that searches have visited here.
    visits: VecDeque<Visit>,
    /// Agreements that a message to come lists, with its sender.
    listed: Vec<(Identity, Rank, AgreementId)>,
}

/// A search came to a node of this process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Visit {
    search: SearchId,
    node: Node,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Node {
    /// The agreement of this communicator; it came from this member, or from the own program.
    Agreement(Identity, Option<Rank>),
    /// The program, in this wait. `None`: the search begins here, and has not come back.
    Program(u32, Option<Crossing>),
}

/// An edge to a program that has not started the agreement, from this member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Crossing {
    agreement: AgreementId,
    from: Rank,
}

/// So many visits are kept. Older ones are forgotten: their searches find nothing, and later ones may.
const VISITS_MAX: usize = 1024;

impl Searches {
    /// The part of process `me`.
    pub fn new(me: Peer) -> Self {
        Searches { me, number: 0, visits: VecDeque::new(), listed: Vec::new() }
    }

    /// Begins a search, if the program is blocked.
    pub fn begin(&mut self, waits: &impl Waits, out: &mut Vec<Action>) {
        let Some(program) = waits.program() else { return };
        reach!("proto.crossing: a search begins");
        self.number = self.number.wrapping_add(1);
        let search = SearchId { initiator: self.me, number: self.number };
        self.forget_others_of(search);
        self.visit(search, Node::Program(program.number, None));
        self.visit_agreements(search, &program, CROSSED_MAX as u8, waits, out);
    }

    /// A message about a communicator, from a member of it.
    pub fn on_message(
        &mut self,
        (communicator, from): (Identity, Rank),
        message: Message,
        waits: &impl Waits,
        out: &mut Vec<Action>,
    ) {
        match message {
            Message::Search { search, sequence, crossings } => {
                let agreement = AgreementId { communicator, sequence };
                self.on_search(search, Crossing { agreement, from }, crossings, waits, out);
            }
            Message::Listed(agreement) => {
                let is_of = |of: &&(Identity, Rank, _)| (of.0, of.1) == (communicator, from);
                if self.listed.iter().filter(is_of).count() < CROSSED_MAX {
                    self.listed.push((communicator, from, agreement));
                }
            }
            Message::Check(search) => {
                let list = self.take_listed(communicator, from);
                self.on_check(search, communicator, list, waits, out);
            }
            Message::Conclude(search) => {
                let list = self.take_listed(communicator, from);
                self.on_conclude(search, communicator, list, waits, out);
            }
        }
    }

    /// The end of a member is published: what it has begun to list does not go on.
    pub fn on_end(&mut self, communicator: Identity, member: Rank) {
        self.listed.retain(|listed| (listed.0, listed.1) != (communicator, member));
    }

    fn on_search(
        &mut self,
        search: SearchId,
        edge: Crossing,
        crossings: u8,
        waits: &impl Waits,
        out: &mut Vec<Action>,
    ) {
        if self.is_outdated(search) {
            return reach!("proto.crossing: an outdated search comes");
        }
        self.forget_others_of(search);
        match waits.expected_by(edge.from, edge.agreement) {
            Expected::Nothing => reach!("proto.crossing: a search comes where nobody waits for this process"),
            Expected::End => {
                reach!("proto.crossing: a search meets a running agreement");
                let communicator = edge.agreement.communicator;
                self.visit_agreement(search, (communicator, Some(edge.from)), crossings, waits, out);
            }
            Expected::Start => self.on_crossing(search, edge, crossings, waits, out),
        }
    }

    fn on_crossing(
        &mut self,
        search: SearchId,
        edge: Crossing,
        crossings: u8,
        waits: &impl Waits,
        out: &mut Vec<Action>,
    ) {
        let Some(program) = waits.program() else {
            return reach!("proto.crossing: a search meets a program that is not blocked");
        };
        let is_own = search.initiator == self.me;
        match self.program_of(search) {
            Some(Node::Program(wait, came @ None)) if is_own && *wait == program.number => {
                reach!("proto.crossing: a search comes back to its program");
                *came = Some(edge);
                send_back(edge.sender(), Message::Check(search), &[edge.agreement], out);
            }
            None if !is_own && crossings > 1 => {
                reach!("proto.crossing: a search meets a blocked program");
                self.visit(search, Node::Program(program.number, Some(edge)));
                self.visit_agreements(search, &program, crossings - 1, waits, out);
            }
            None if !is_own => reach!("proto.crossing: a search has met too many programs"),
            Some(_) if !is_own => reach!("proto.crossing: a search meets a program again"),
            _ => reach!("proto.crossing: a search comes back again, or to another wait"),
        }
    }

    fn visit_agreements(
        &mut self,
        search: SearchId,
        program: &ProgramWait,
        crossings: u8,
        waits: &impl Waits,
        out: &mut Vec<Action>,
    ) {
        for &communicator in &program.communicators {
            self.visit_agreement(search, (communicator, None), crossings, waits, out);
        }
    }

    fn visit_agreement(
        &mut self,
        search: SearchId,
        (communicator, came): (Identity, Option<Rank>),
        crossings: u8,
        waits: &impl Waits,
        out: &mut Vec<Action>,
    ) {
        if self.agreement_of(search, communicator).is_none() {
            self.visit(search, Node::Agreement(communicator, came));
            waits.awaited(communicator, &mut |to, sequence| {
                out.push(Action::Send(communicator, to, Message::Search { search, sequence, crossings }));
            });
        }
    }

    fn on_check(
        &mut self,
        search: SearchId,
        communicator: Identity,
        mut list: Vec<AgreementId>,
        waits: &impl Waits,
        out: &mut Vec<Action>,
    ) {
        match self.agreement_of(search, communicator) {
            None => reach!("proto.crossing: a check of a forgotten search comes"),
            Some(Some(from)) => {
                reach!("proto.crossing: a check passes a running agreement");
                send_back((communicator, from), Message::Check(search), &list, out);
            }
            Some(None) => match self.unchanged(search, waits) {
                Some(crossing) if search.initiator == self.me => {
                    reach!("proto.crossing: a check comes back, and proves a cycle");
                    list.sort_unstable();
                    out.push(Action::Contribute(crossing.agreement, list.clone()));
                    send_back(crossing.sender(), Message::Conclude(search), &list, out);
                }
                Some(crossing) if list.len() < CROSSED_MAX => {
                    reach!("proto.crossing: a check passes a blocked program");
                    list.push(crossing.agreement);
                    send_back(crossing.sender(), Message::Check(search), &list, out);
                }
                Some(_) => {}
                None => reach!("proto.crossing: a check meets a program in another wait"),
            },
        }
    }

    fn on_conclude(
        &mut self,
        search: SearchId,
        communicator: Identity,
        list: Vec<AgreementId>,
        waits: &impl Waits,
        out: &mut Vec<Action>,
    ) {
        match self.agreement_of(search, communicator) {
            None => reach!("proto.crossing: the conclusion of a forgotten search comes"),
            Some(Some(from)) => {
                reach!("proto.crossing: a conclusion passes a running agreement");
                send_back((communicator, from), Message::Conclude(search), &list, out);
            }
            Some(None) if search.initiator == self.me => {
                reach!("proto.crossing: a conclusion comes back to its initiator");
            }
            Some(None) => match self.unchanged(search, waits) {
                Some(crossing) => {
                    reach!("proto.crossing: a conclusion meets a blocked program");
                    out.push(Action::Contribute(crossing.agreement, list.clone()));
                    send_back(crossing.sender(), Message::Conclude(search), &list, out);
                }
                None => reach!("proto.crossing: a conclusion meets a program in another wait"),
            },
        }
    }

    /// The crossing by which the search came to the program, or came back to it, if the program is still in the same wait and has not
    /// started the agreement.
    fn unchanged(&mut self, search: SearchId, waits: &impl Waits) -> Option<Crossing> {
        let now = waits.program()?.number;
        match self.program_of(search) {
            Some(&mut Node::Program(wait, Some(crossing))) if wait == now => {
                waits.is_next(crossing.agreement).then_some(crossing)
            }
            _ => None,
        }
    }

    fn visit(&mut self, search: SearchId, node: Node) {
        if self.visits.len() == VISITS_MAX {
            reach!("proto.crossing: the oldest visit is forgotten");
            self.visits.pop_front();
        }
        self.visits.push_back(Visit { search, node });
    }

    fn program_of(&mut self, search: SearchId) -> Option<&mut Node> {
        let of = self.visits.iter_mut().filter(|visit| visit.search == search);
        of.map(|visit| &mut visit.node).find(|node| matches!(node, Node::Program(..)))
    }

    /// From whom the search came to the agreement of a communicator.
    fn agreement_of(&self, search: SearchId, communicator: Identity) -> Option<Option<Rank>> {
        let of = self.visits.iter().filter(|visit| visit.search == search);
        of.filter_map(|visit| match visit.node {
            Node::Agreement(of, from) if of == communicator => Some(from),
            _ => None,
        })
        .next()
    }

    /// Whether a later search of this initiator is known here.
    fn is_outdated(&self, search: SearchId) -> bool {
        let of = self.visits.iter().filter(|visit| visit.search.initiator == search.initiator);
        of.map(|visit| visit.search.number).any(|known| known.wrapping_sub(search.number) as i32 > 0)
    }

    /// An initiator searches once at a time.
    fn forget_others_of(&mut self, search: SearchId) {
        self.visits.retain(|visit| visit.search.initiator != search.initiator || visit.search == search);
    }

    fn take_listed(&mut self, communicator: Identity, from: Rank) -> Vec<AgreementId> {
        let mut list = Vec::new();
        self.listed.retain(|&(of, sender, agreement)| {
            let is_taken = (of, sender) == (communicator, from);
            if is_taken {
                list.push(agreement);
            }
            !is_taken
        });
        list
    }
}

impl Crossing {
    fn sender(&self) -> (Identity, Rank) {
        (self.agreement.communicator, self.from)
    }
}

/// Sends the list, and then the message, to the member from which a search came.
fn send_back(
    (communicator, to): (Identity, Rank),
    message: Message,
    list: &[AgreementId],
    out: &mut Vec<Action>,
) {
    let messages = list.iter().map(|&agreement| Message::Listed(agreement)).chain([message]);
    out.extend(messages.map(|message| Action::Send(communicator, to, message)));
}
