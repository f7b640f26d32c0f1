// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations that are decided by an agreement of the members: MPIX_Comm_agree, MPIX_Comm_shrink and their nonblocking forms, and the
//! closing of a freed communicator on which agreements took place.
//!
//! ```text
//!   start ─▶ queued behind earlier ones on its communicator ─▶ runs ─▶ decided ─▶ done
//!                                                                        └─▶ held until each failure that it names is published (I2)
//! ```
//!
//! Agreements of one communicator run one after the other, in the order of the calls, which is the same at all members (X-6.14). So a
//! member is at most one agreement ahead of another, and the last result is all that it must keep. Agreements of different
//! communicators are independent (X-6.10).
//!
//! A part of the engine; it calls no other part.

use crate::member_protocols::Absence;
use crate::operation_table::{Ended, OperationTable};
use crate::{CommKey, Detail, Error};
use mend_base::{Identity, Key};
use mend_comm::Group;
use mend_proto::agreement::{AgreementId, Contribution, Decision};
use mend_transport::UserMemory;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

/// The place of the group on which the members agree. It is set when the operation ends.
pub type AgreedGroup = Arc<OnceLock<Arc<Group>>>;

/// What a decision is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// MPIX_Comm_agree: the int at this place gets the bitwise AND.
    Flag(UserMemory),
    /// MPIX_Comm_agree_failed: this place gets the failed members.
    Failed(AgreedGroup),
    /// MPIX_Comm_shrink. The number is of the identity that this member proposed. `into`: this place gets the handle of the
    /// communicator.
    Shrink { number: u32, into: Option<UserMemory> },
}

/// An agreement that has not been decided, in the queue of its communicator.
#[derive(Debug)]
pub(crate) struct Queued {
    /// Its operation; `None`: the communicator is being closed.
    pub operation: Option<Key>,
    pub contribution: Contribution,
    has_started: bool,
    /// This process has contributed in absentia. It has no operation until the program calls.
    pub is_absent: bool,
}

impl Queued {
    fn new(operation: Option<Key>, contribution: Contribution) -> Self {
        Queued { operation, contribution, has_started: false, is_absent: false }
    }

    /// Whether it closes the communicator.
    fn is_closing(&self) -> bool {
        self.operation.is_none() && !self.is_absent
    }
}

/// So many contributions in absentia may wait.
const ABSENCES_MAX: usize = 64;

/// A decision that names failures which are not published here yet.
#[derive(Debug)]
pub(crate) struct Held {
    pub operation: Key,
    pub decision: Decision,
}

/// All operations that are decided by agreements.
#[derive(Default, Debug)]
pub(crate) struct Agreements {
    operations: OperationTable<Purpose>,
    queues: BTreeMap<Identity, VecDeque<Queued>>,
    held: Vec<Held>,
    /// Results of agreements to which this process has contributed in absentia, and that the program has not called: the agreements
    /// of the cycle.
    answers: Vec<(Identity, Vec<AgreementId>)>,
    /// Contributions in absentia to agreements after one that is not decided here.
    absences: Vec<Absence>,
}

/// The first agreement of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Front {
    /// It runs, or its decision has come and is not applied yet.
    Started,
    Queued,
}

/// What an operation begins with.
#[derive(Debug)]
pub(crate) struct Begun {
    pub operation: Key,
    /// The result is here already: this process has contributed in absentia, and these agreements waited for each other.
    pub answer: Option<Vec<AgreementId>>,
}

impl Agreements {
    /// Reserves memory for one operation on each of so many communicators. `false`: there is none.
    pub fn reserve(&mut self, communicators: usize) -> bool {
        self.operations.try_reserve(communicators)
    }

    /// Begins an operation on `comm`, whose identity is given, and queues its agreement. The first on a communicator has its memory
    /// reserved, so that the other members do not wait for one that cannot begin; `Err`: for another one, besides those that are not
    /// released, there is no memory, and nothing has begun. `communicators`: how many there are.
    pub fn begin(
        &mut self,
        (comm, identity): (CommKey, Identity),
        communicators: usize,
        purpose: Purpose,
        contribution: Contribution,
    ) -> Result<Begun, Error> {
        // What is reserved for others stays so.
        if !self.operations.try_reserve(communicators + 1) && self.operations.has_on(comm) {
            return Err(Error::of(Detail::NoMemory));
        }
        let operation = self.operations.begin(comm, purpose)?;
        if let Some(at) = self.answers.iter().position(|answer| answer.0 == identity) {
            return Ok(Begun { operation, answer: Some(self.answers.remove(at).1) });
        }
        let queue = self.queues.entry(identity).or_default();
        match queue.front_mut() {
            Some(first) if first.is_absent && first.operation.is_none() => first.operation = Some(operation),
            _ => queue.push_back(Queued::new(Some(operation), contribution)),
        }
        Ok(Begun { operation, answer: None })
    }

    /// The first agreement of a communicator that is not over for this process.
    pub fn front(&self, identity: Identity) -> Option<Front> {
        let first = self.queues.get(&identity)?.front()?;
        Some(if first.has_started { Front::Started } else { Front::Queued })
    }

    /// Begins the agreement that comes next in absentia. It starts at once. None is queued.
    pub fn begin_in_absentia(&mut self, identity: Identity, contribution: Contribution) {
        let queued = Queued { operation: None, contribution, has_started: true, is_absent: true };
        let queue = self.queues.entry(identity).or_default();
        debug_assert!(queue.is_empty(), "the program's own agreements have precedence");
        queue.push_front(queued);
    }

    /// The agreement to which this process contributed in absentia is decided, and the program has not called it: its next call gets this
    /// answer.
    pub fn store_answer(&mut self, identity: Identity, cycle: Vec<AgreementId>) {
        self.answers.push((identity, cycle));
    }

    /// The number of results that the program has not called.
    #[cfg(test)]
    pub fn answers(&self) -> usize {
        self.answers.len()
    }

    /// A contribution in absentia waits for the decision before it.
    pub fn store_absence(&mut self, absence: Absence) {
        if self.absences.len() < ABSENCES_MAX && !self.absences.contains(&absence) {
            self.absences.push(absence);
        }
    }

    /// The contributions in absentia that wait.
    pub fn take_absences(&mut self) -> Vec<Absence> {
        core::mem::take(&mut self.absences)
    }

    /// Whether the agreement of an operation has not been decided.
    pub fn is_queued(&self, operation: Key) -> bool {
        self.queues.values().flatten().any(|queued| queued.operation == Some(operation))
    }

    /// Queues the agreement by which all members learn that all have freed the communicator.
    pub fn begin_closing(&mut self, identity: Identity, contribution: Contribution) {
        self.queues.entry(identity).or_default().push_back(Queued::new(None, contribution));
    }

    /// The next agreement of a communicator, if it is to start now: its contribution, and whether it closes the communicator.
    pub fn next_to_start(&mut self, identity: Identity) -> Option<(Contribution, bool)> {
        let first = self.queues.get_mut(&identity)?.front_mut()?;
        let starts = !core::mem::replace(&mut first.has_started, true);
        starts.then_some((first.contribution, first.is_closing()))
    }

    /// Whether the closing of a communicator runs, or waits for agreements before it.
    pub fn has_begun_closing(&self, identity: Identity) -> bool {
        let last = self.queues.get(&identity).and_then(VecDeque::back);
        last.is_some_and(Queued::is_closing)
    }

    /// The agreement that runs is decided.
    pub fn take_decided(&mut self, identity: Identity) -> Option<Queued> {
        let queue = self.queues.get_mut(&identity)?;
        // The queue keeps its memory: an agreement allocates nothing.
        queue.pop_front()
    }

    /// The protocols of the communicator are over.
    pub fn forget(&mut self, identity: Identity) {
        if self.queues.get(&identity).is_some_and(VecDeque::is_empty) {
            self.queues.remove(&identity);
        }
        self.answers.retain(|answer| answer.0 != identity);
    }

    /// The decision waits until its failures are published.
    pub fn hold(&mut self, operation: Key, decision: Decision) {
        self.held.push(Held { operation, decision });
    }

    /// The decisions that wait.
    pub fn take_held(&mut self) -> Vec<Held> {
        core::mem::take(&mut self.held)
    }

    /// Whether no operation runs. Closings are no operations of the program.
    pub fn is_idle(&self) -> bool {
        self.operations.is_idle()
    }

    /// The operations.
    pub fn operations(&self) -> &OperationTable<Purpose> {
        &self.operations
    }

    /// The operations, to be changed.
    pub fn operations_mut(&mut self) -> &mut OperationTable<Purpose> {
        &mut self.operations
    }

    /// Ends an operation.
    pub fn end(&mut self, operation: Key, ended: Ended) {
        self.operations.end(operation, ended);
    }
}
