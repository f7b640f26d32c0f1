// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recoveries of several communicators that wait for each other (R-9, design "Crossed recoveries"): when a search for such a cycle
//! begins, and what a proven cycle does.

use super::Engine;
use super::unsatisfiable::ends_the_wait;
use crate::agreements::{Front, Purpose};
use crate::member_protocols::{Absence, Place};
use crate::program_wait::{Awaited, Due};
use crate::{CommKey, CrossedWith, Detail, Error, Request};
use mend_base::{Instant, Key};
use mend_proto::agreement::{AgreementId, Contribution, Op};
use mend_proto::crossing::ProgramWait;
use mend_proto::ranks::SetHash;
use mend_runtime::Runtime;
use mend_transport::Rdma;
use std::sync::Arc;

impl<N: Rdma, R: Runtime> Engine<N, R> {
    /// Begins a look at what the waiting call waits for: the call is polled once between this and [`end_look`](Engine::end_look).
    pub fn begin_look(&mut self) {
        self.wake_ups.begin_look();
    }

    /// Ends a look, after a timed check, at this time. `is_waiting`: the call goes on. `threads`: the number of threads of the program that may start
    /// operations, which is called if a search is due; the calling thread must not count as one whose wait is unsatisfiable.
    pub fn end_look(&mut self, is_waiting: bool, now: Instant, threads: impl FnOnce() -> Option<u32>) {
        let (noted, needs_all) = self.wake_ups.end_look();
        if !is_waiting {
            return;
        }
        self.report_call(&noted, now);
        let awaited = if needs_all { self.awaited(&noted) } else { Vec::new() };
        let due = self.program_waits.on_look(awaited, &noted);
        if due != Due::Nothing && ends_the_wait(threads()) {
            self.program_waits.note_only_thread();
            if let (Due::Search, Some(program)) = (due, self.program_wait()) {
                self.member_protocols.begin_search(self.layers.runtime.membership().peer, program);
            }
        }
    }

    /// A wait has ended at which there were looks: from now on the program is in no wait that a search could meet.
    pub fn end_wait(&mut self) {
        self.program_waits.end();
    }

    /// Whether a look polls all requests of the waiting call.
    #[inline]
    pub(crate) fn is_looking(&self) -> bool {
        self.wake_ups.is_looking()
    }

    /// A look has found that each of several requests may end the call.
    #[cold]
    pub(crate) fn note_alternatives(&self) {
        self.wake_ups.note_alternatives();
    }

    /// The operations whose end the wait for these requests needs, if it needs agreements alone. A failure that one of the requests reports
    /// ends the wait for all (Row WT5): if just those of one communicator can, which end one after the other, the wait needs the end of these
    /// in any case.
    fn awaited(&self, requests: &[Request]) -> Vec<Awaited> {
        let mut awaited: Vec<(Awaited, bool)> = Vec::new();
        for request in requests {
            let Request::Agreement(operation) = *request else { return Vec::new() };
            let operations = self.agreements.operations();
            let comm = operations.comm_of(operation).and_then(|comm| self.communicators.get(comm));
            let (Some(entry), Some(purpose)) = (comm, operations.running(operation)) else {
                return Vec::new();
            };
            let communicator = entry.communicator().identity;
            let may_raise = matches!(purpose, Purpose::Flag(_));
            if awaited.iter().all(|(before, _)| before.operation != operation) {
                awaited.push((Awaited { operation, communicator }, may_raise));
            }
        }
        let raising = awaited.iter().find(|(_, may_raise)| *may_raise).map(|(one, _)| one.communicator);
        if awaited.iter().any(|(one, may_raise)| *may_raise && Some(one.communicator) != raising) {
            return Vec::new();
        }
        awaited.retain(|(_, may_raise)| raising.is_none() || *may_raise);
        awaited.into_iter().map(|(awaited, _)| awaited).collect()
    }

    /// The wait in which the program is blocked, as a search sees it.
    fn program_wait(&self) -> Option<ProgramWait> {
        let runs = |request: Request| {
            let Request::Agreement(operation) = request else { return false };
            let operations = self.agreements.operations();
            operations.communicator_of(operation).is_some()
                && operations.running(operation).is_some()
                && self.agreements.is_queued(operation)
        };
        let (number, awaited) = self.program_waits.current(runs)?;
        let communicators = awaited.iter().map(|awaited| awaited.communicator).collect();
        Some(ProgramWait { number, communicators })
    }

    /// Takes the messages of searches.
    pub(super) fn progress_searches(&mut self) {
        while self.member_protocols.has_search_message() {
            let (me, program) = (self.layers.runtime.membership().peer, self.program_wait());
            if let Some(absence) = self.member_protocols.take_search_message(me, program) {
                mend_base::reach!("mpi.crossing: a cycle is proven");
                self.contribute_in_absentia(absence);
                self.apply_member_events();
            }
        }
    }

    /// A decision says that these agreements waited for each other: this process contributes in absentia to those that it has not started,
    /// before its call returns. So they end, too.
    pub(super) fn on_crossed(&mut self, cycle: &[AgreementId]) {
        cycle.iter().for_each(|&agreement| self.contribute_in_absentia((agreement, cycle.to_vec())));
    }

    /// The absences that were to wait for a decision of their communicator.
    pub(super) fn repeat_absences(&mut self) {
        for absence in self.agreements.take_absences() {
            self.contribute_in_absentia(absence);
        }
    }

    /// The program's own agreements have precedence: one that is queued and has not started is the agreement that is meant, and takes part in the
    /// cycle by itself; one whose decision has come and is not applied is still in the queue, and would be taken for this contribution.
    fn contribute_in_absentia(&mut self, (agreement, cycle): Absence) {
        let identity = agreement.communicator;
        let Some(comm) = self.open_communicator(identity) else { return };
        // The instance is made if there is none.
        self.with_instance(identity, |_, _, _| {});
        match self.member_protocols.place_of(agreement) {
            Place::Past => return,
            Place::Later => return self.agreements.store_absence((agreement, cycle)),
            Place::Next => match self.agreements.front(identity) {
                Some(Front::Started) => return self.agreements.store_absence((agreement, cycle)),
                Some(Front::Queued) => return,
                None => {}
            },
        }
        mend_base::reach!("mpi.crossing: a contribution in absentia");
        let hints = self.communicators.get(comm).map(|entry| entry.properties().hints());
        let uniform = hints.is_some_and(|hints| hints.agree_uniform);
        let contribution = Contribution { value: 0, op: Op::And, acknowledged: SetHash(0), uniform };
        self.agreements.begin_in_absentia(identity, contribution);
        self.with_instance(identity, |instance, ends, fx| {
            instance.contribute_in_absentia(contribution, &cycle, ends, fx);
        });
    }

    /// Ends an operation whose agreement was part of a cycle (Row AG16): the value means nothing. `is_unknown`: no member knows what this
    /// one proposed.
    pub(super) fn end_crossed(&mut self, operation: Key, cycle: &[AgreementId], is_unknown: bool) {
        let Some(comm) = self.agreements.operations().comm_of(operation) else { return };
        match self.agreements.operations().running(operation) {
            Some(Purpose::Failed(into)) => _ = into.set(Arc::default()),
            Some(&Purpose::Shrink { number, .. }) if is_unknown => {
                if let Some(parent) = self.communicators.get(comm).map(|entry| entry.communicator().clone()) {
                    self.communicators.return_number(&parent, number);
                }
            }
            _ => {}
        }
        let error = Error::of(Detail::Crossed(self.crossed_with(comm, cycle)));
        self.end_agreement(comm, operation, (Err(error), None));
    }

    /// The first communicator of the cycle that is not `comm`.
    fn crossed_with(&self, comm: CommKey, cycle: &[AgreementId]) -> CrossedWith {
        let own = self.communicators.get(comm).map(|entry| entry.communicator().identity);
        let other = cycle.iter().map(|agreement| agreement.communicator).find(|&other| Some(other) != own);
        match other.map(|other| self.open_communicator(other)) {
            Some(Some(other)) if other == self.comm_world() => CrossedWith::World,
            Some(Some(other)) if self.communicators.valid(other).is_ok() => CrossedWith::Comm(other),
            _ => CrossedWith::NotMember,
        }
    }
}
