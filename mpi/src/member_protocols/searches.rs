// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The searches for agreements that wait for each other ([`mend_proto::crossing`]), among the instances of all communicators.

use super::instance::Instance;
use super::packet::{Message, Packet};
use super::{Effects, MemberProtocols};
use mend_base::{Identity, Peer, Rank};
use mend_proto::agreement::{AgreementId, Expected};
use mend_proto::crossing::{self, Action, ProgramWait, Searches, Waits};
use std::collections::{BTreeMap, VecDeque};

/// The part of this process in all searches.
#[derive(Default, Debug)]
pub(super) struct CycleSearches {
    /// From the first message or search on.
    searches: Option<Searches>,
    /// Messages that have arrived: the communicator, and the rank of the sender.
    arrived: VecDeque<(Identity, Rank, crossing::Message)>,
    actions: Vec<Action>,
}

/// A contribution in absentia that a proven cycle demands: to which agreement, and the cycle.
pub(crate) type Absence = (AgreementId, Vec<AgreementId>);

/// What a search asks of this process.
struct Local<'a> {
    instances: &'a BTreeMap<Identity, Instance>,
    program: Option<ProgramWait>,
}

impl Waits for Local<'_> {
    fn program(&self) -> Option<ProgramWait> {
        self.program.clone()
    }

    fn expected_by(&self, from: Rank, agreement: AgreementId) -> Expected {
        let instance = self.instances.get(&agreement.communicator);
        instance.map_or(Expected::Nothing, |instance| instance.expected_by(from, agreement.sequence))
    }

    fn awaited(&self, communicator: Identity, visit: &mut dyn FnMut(Rank, u32)) {
        if let Some(instance) = self.instances.get(&communicator) {
            instance.awaited_in_agreement(visit);
        }
    }

    fn is_next(&self, agreement: AgreementId) -> bool {
        let instance = self.instances.get(&agreement.communicator);
        instance.is_some_and(|instance| instance.is_next(agreement.sequence))
    }
}

impl CycleSearches {
    pub(super) fn is_idle(&self) -> bool {
        self.arrived.is_empty()
    }

    pub(super) fn on_arrival(&mut self, communicator: Identity, from: Rank, message: crossing::Message) {
        self.arrived.push_back((communicator, from, message));
    }

    pub(super) fn on_end(&mut self, communicator: Identity, member: Rank) {
        if let Some(searches) = &mut self.searches {
            searches.on_end(communicator, member);
        }
    }
}

impl MemberProtocols {
    /// Begins a search: the program of process `me` is blocked in this wait.
    pub fn begin_search(&mut self, me: Peer, program: ProgramWait) {
        mend_base::reach!("mpi.member_protocols: a search for a cycle begins");
        self.search(me, Some(program), |searches, waits, out| searches.begin(waits, out));
    }

    /// Whether a message of a search waits to be taken. Everything else that has arrived must be applied first.
    pub fn has_search_message(&self) -> bool {
        !self.cycle_searches.arrived.is_empty()
    }

    /// Takes the next message of a search. Returns what this process must contribute in absentia.
    pub fn take_search_message(&mut self, me: Peer, program: Option<ProgramWait>) -> Option<Absence> {
        let (communicator, from, message) = self.cycle_searches.arrived.pop_front()?;
        self.search(me, program, |searches, waits, out| {
            searches.on_message((communicator, from), message, waits, out);
        })
    }

    fn search(
        &mut self,
        me: Peer,
        program: Option<ProgramWait>,
        event: impl FnOnce(&mut Searches, &Local<'_>, &mut Vec<Action>),
    ) -> Option<Absence> {
        let MemberProtocols { instances, packets, cycle_searches, .. } = self;
        let CycleSearches { searches, actions, .. } = cycle_searches;
        let waits = Local { instances, program };
        event(searches.get_or_insert_with(|| Searches::new(me)), &waits, actions);
        let mut absence = None;
        for action in actions.drain(..) {
            match action {
                Action::Send(communicator, to, message) => {
                    let to = instances.get(&communicator).and_then(|instance| instance.member(to));
                    let about = instances.get(&communicator).map(Instance::about);
                    let packet =
                        to.zip(about).map(|(to, about)| Packet::new(to, about, &Message::Crossing(message)));
                    packets.extend(packet);
                }
                Action::Contribute(agreement, cycle) => absence = Some((agreement, cycle)),
            }
        }
        absence
    }

    /// Whether this agreement of the communicator is the next here, and has not started; or is one after it.
    pub fn place_of(&self, agreement: AgreementId) -> Place {
        let Some(instance) = self.instances.get(&agreement.communicator) else { return Place::Past };
        if instance.is_closing() {
            Place::Past
        } else if instance.is_next(agreement.sequence) {
            Place::Next
        } else if instance.is_later(agreement.sequence) {
            Place::Later
        } else {
            Place::Past
        }
    }
}

/// Where an agreement is in the order of those of its communicator, for this member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// It has started here, or is over; or the communicator was freed.
    Past,
    Next,
    Later,
}

impl Instance {
    /// Takes part in the next agreement in absentia.
    pub fn contribute_in_absentia(
        &mut self,
        contribution: mend_proto::agreement::Contribution,
        cycle: &[AgreementId],
        ends: &mend_pml::Ends,
        fx: &mut Effects<'_>,
    ) {
        self.with_agreement(ends, fx, |agreement, out| {
            agreement.contribute_in_absentia(contribution, cycle, out);
        });
    }

    fn expected_by(&self, from: Rank, sequence: u32) -> Expected {
        match &self.agreement {
            Some(agreement) => agreement.expected_by(from, sequence),
            None if sequence == 0 => Expected::Start,
            None => Expected::Nothing,
        }
    }

    fn awaited_in_agreement(&self, visit: &mut dyn FnMut(Rank, u32)) {
        if let Some(agreement) = &self.agreement {
            agreement.awaited(&mut |rank| visit(rank, agreement.sequence()));
        }
    }

    fn is_next(&self, sequence: u32) -> bool {
        match &self.agreement {
            Some(agreement) => !agreement.is_running() && agreement.sequence() == sequence,
            None => sequence == 0,
        }
    }

    fn is_later(&self, sequence: u32) -> bool {
        let next = self.agreement.as_ref().map_or(0, |agreement| agreement.sequence());
        sequence.wrapping_sub(next) as i32 > 0
    }
}
