// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collective operations while members die: each member gets SUCCESS and the right result, or PROC_FAILED (Row CO1); on the
//! communicator of the survivors always SUCCESS (Row CO5). Messages between living ranks go on (Row CO12: other phases).

use super::Participant;
use crate::Process;
use crate::programs::collectives::{assert_result, start};
use crate::record::Event;
use mend_base::{Random, Rank};
use mend_mpi::{CommKey, Error, Status};
use mend_transport::Buffer;
use std::sync::Arc;

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
            let failure_was_known = !self.failed(comm).is_empty();
            self.enter(number, self.me());
            let (operation, expected) = start(&view, comm, number as i32);
            open.push((number, failure_was_known, operation, expected));
            if self.chance(2) {
                self.process.pause().await;
            }
            while open.len() > self.process.below(4) as usize {
                let at = self.process.below(open.len() as u64) as usize;
                let (number, failure_was_known, operation, expected) = open.swap_remove(at);
                self.process.at("deaths: wait for collective", number);
                let result = operation.await;
                self.end_collective(comm, number, failure_was_known, result, expected);
            }
        }
        for (number, failure_was_known, operation, expected) in open {
            self.process.at("deaths: wait for collective", number);
            let result = operation.await;
            self.end_collective(comm, number, failure_was_known, result, expected);
        }
    }

    fn end_collective(
        &mut self,
        comm: CommKey,
        number: u64,
        failure_was_known: bool,
        result: Result<Status, Error>,
        expected: Option<(Arc<Buffer>, Vec<i32>)>,
    ) {
        match result {
            Ok(_) => {
                // Row CO4.
                assert!(
                    !failure_was_known,
                    "collective {number} began after a failure was known, and succeeded"
                );
                expected.iter().for_each(assert_result);
            }
            Err(error) => {
                let members = self.members(comm);
                assert!(
                    members.iter().any(|rank| self.is_victim(*rank)),
                    "{error}, and no member is a victim"
                );
                self.assert_explained(comm, error);
            }
        }
        // Row CO11.
        if let Some((buffer, _)) = expected {
            self.process.ended_buffers.borrow_mut().add(&buffer);
        }
    }

    /// A barrier. Asserts that no member leaves it before every member has entered it (Row CO2).
    pub(super) async fn barrier(&mut self, number: u64, comm: CommKey) -> Result<Status, Error> {
        self.process.at("deaths: barrier", number);
        self.enter(number, self.me());
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

    fn enter(&self, number: u64, rank: Rank) {
        self.process.record.borrow_mut().add(Event::CollectiveEntered, number * 1_000 + u64::from(rank.0));
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
