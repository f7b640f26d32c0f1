// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collective operations while members die: each member gets SUCCESS and the right result, or PROC_FAILED (Row CO1); on the
//! communicator of the survivors always SUCCESS (Row CO5). A member that does not need the dead gets SUCCESS: whose part it needs has
//! begun without knowing of a failure, and lives or has completed the operation. Messages between living ranks go on (Row CO12: other
//! phases).

use super::Participant;
use crate::Process;
use crate::programs::collectives::{CheckedOperation, assert_result, start};
use crate::record::Event;
use mend_base::{Random, Rank};
use mend_mpi::{CommKey, Error, Status};

/// An operation that a rank has started.
pub(super) struct Begun {
    comm: CommKey,
    number: u64,
    failure_was_known: bool,
}

impl Participant {
    /// The same on the communicator of the survivors.
    pub(super) async fn survivor_collectives(&mut self, phase: u64) {
        if let Some(survivors) = self.survivors {
            self.collectives(phase, survivors).await;
        }
    }

    /// Up to four operations, several of them active at once.
    pub(super) async fn collectives(&mut self, phase: u64, comm: CommKey) {
        let view = self.view(comm, phase);
        let count = 1 + view.shared_random.borrow_mut().below(4);
        let mut open = Vec::new();
        for number in phase * 100..phase * 100 + count {
            self.process.at("deaths: collective", number);
            let begun = self.begin_operation(comm, number);
            open.push((begun, start(&view, comm, number as i32)));
            if self.chance(2) {
                self.process.pause().await;
            }
            while open.len() > self.process.below(4) as usize {
                let at = self.process.below(open.len() as u64) as usize;
                let (begun, checked) = open.swap_remove(at);
                self.end_collective(begun, checked).await;
            }
        }
        for (begun, checked) in open {
            self.end_collective(begun, checked).await;
        }
    }

    async fn end_collective(&mut self, begun: Begun, checked: CheckedOperation) {
        self.process.at("deaths: wait for collective", begun.number);
        let result = checked.operation.await;
        self.check_operation(&begun, result.err(), checked.needed.as_deref());
        if result.is_ok() {
            checked.expected.iter().for_each(assert_result);
        }
        // Row CO11.
        if let Some((buffer, _)) = checked.expected {
            self.process.ended_buffers.borrow_mut().add(&buffer);
        }
    }

    /// To be called just before an operation is started.
    pub(super) fn begin_operation(&mut self, comm: CommKey, number: u64) -> Begun {
        let failure_was_known = !self.failed(comm).is_empty();
        self.record(Event::CollectiveEntered, number);
        if !failure_was_known {
            self.record(Event::CollectiveBegun, number);
        }
        Begun { comm, number, failure_was_known }
    }

    /// Checks the result of an operation. `needed`: see [`CheckedOperation`].
    pub(super) fn check_operation(&mut self, begun: &Begun, error: Option<Error>, needed: Option<&[Rank]>) {
        let Begun { comm, number, failure_was_known } = *begun;
        let Some(error) = error else {
            // Row CO4.
            assert!(!failure_was_known, "collective {number} began after a failure was known, and succeeded");
            return self.record(Event::CollectiveCompleted, number);
        };
        let members = self.members(comm);
        assert!(members.iter().any(|rank| self.is_victim(*rank)), "{error}, and no member is a victim");
        self.assert_explained(comm, error);
        let needed: Vec<Rank> = match needed {
            None => members.clone(),
            Some(needed) => needed.iter().map(|rank| members[rank.index()]).collect(),
        };
        let needless = !failure_was_known && needed.iter().all(|rank| self.has_served(number, *rank));
        assert!(!needless, "collective {number} ended with {error}, and did not need the dead: {needed:?}");
    }

    /// Whether a member has done its part of an operation, or will.
    fn has_served(&self, number: u64, rank: Rank) -> bool {
        let record = self.process.record.borrow();
        let contains = |event| record.contains(event, number * 1_000 + u64::from(rank.0));
        contains(Event::CollectiveCompleted)
            || contains(Event::CollectiveBegun) && !self.process.death_has_begun(rank)
    }

    /// A barrier. Asserts that no member leaves it before every member has entered it (Row CO2).
    pub(super) async fn barrier(&mut self, number: u64, comm: CommKey) -> Result<Status, Error> {
        self.process.at("deaths: barrier", number);
        self.record(Event::CollectiveEntered, number);
        let result = self.process.mpi.barrier(comm).await;
        match result {
            Ok(_) => {
                for rank in self.members(comm) {
                    let entered = self
                        .process
                        .record
                        .borrow()
                        .contains(Event::CollectiveEntered, number * 1_000 + u64::from(rank.0));
                    assert!(entered, "a member left the barrier before rank {} had entered it", rank.0);
                }
            }
            Err(error) => drop(self.assert_explained(comm, error)),
        }
        result
    }

    fn record(&self, event: Event, number: u64) {
        self.process.record.borrow_mut().add(event, number * 1_000 + u64::from(self.me().0));
    }

    /// This process as a member of a communicator, with random numbers that all its members share.
    fn view(&self, comm: CommKey, phase: u64) -> Process {
        let (rank, size) = (self.process.mpi.rank(comm), self.process.mpi.size(comm));
        let mut seed = self.process.shared_random.borrow().clone();
        let shared_random = Random(seed.bits() ^ phase);
        self.process.as_member(
            rank.expect("the communicator exists"),
            size.expect("the communicator exists"),
            shared_random,
        )
    }
}
