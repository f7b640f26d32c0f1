// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collective operations while members die: SUCCESS with the right result, or PROC_FAILED, at everybody (Row CO1); among
//! those who all live always SUCCESS (Row CO5); and messages between the living go on (Row CO12: the other phases).

use super::Survivor;
use crate::Process;
use crate::board::Deed;
use crate::programs::collectives::{holds, start};
use mend_base::{Random, Rank};
use mend_mpi::{CommKey, Error, Status};
use mend_transport::Buffer;
use std::sync::Arc;

impl Survivor {
    /// The same on the communicator of those who will not die.
    pub(super) async fn safe_collectives(&mut self, phase: u64) {
        if let Some(safe) = self.safe {
            self.collectives(phase, safe).await;
        }
    }

    /// A few, several at once.
    pub(super) async fn collectives(&mut self, phase: u64, comm: CommKey) {
        let view = self.view(comm, phase);
        let count = 1 + view.together.borrow_mut().below(4);
        let mut open = Vec::new();
        for number in phase * 100..phase * 100 + count {
            self.process.at("deaths: collective", number);
            let doomed = !self.failed(comm).is_empty();
            self.enter(number, self.me());
            let (operation, expected) = start(&view, comm, number as i32);
            open.push((number, doomed, operation, expected));
            if self.chance(2) {
                self.process.pause().await;
            }
            while open.len() > self.process.below(4) as usize {
                let at = self.process.below(open.len() as u64) as usize;
                let (number, doomed, operation, expected) = open.swap_remove(at);
                self.process.at("deaths: wait for collective", number);
                let result = operation.await;
                self.end_collective(comm, number, doomed, result, expected);
            }
        }
        for (number, doomed, operation, expected) in open {
            self.process.at("deaths: wait for collective", number);
            let result = operation.await;
            self.end_collective(comm, number, doomed, result, expected);
        }
    }

    fn end_collective(
        &mut self,
        comm: CommKey,
        number: u64,
        doomed: bool,
        result: Result<Status, Error>,
        expected: Option<(Arc<Buffer>, Vec<i32>)>,
    ) {
        match result {
            Ok(_) => {
                // Row CO4.
                assert!(!doomed, "collective {number} began with a known failure, and succeeded");
                expected.iter().for_each(holds);
            }
            Err(error) => {
                let members = self.members(comm);
                assert!(members.iter().any(|rank| self.is_mortal(*rank)), "{error}, and all members live");
                self.explained(comm, error);
            }
        }
        // Row CO11.
        if let Some((buffer, _)) = expected {
            self.process.silence.borrow_mut().watch(&buffer);
        }
    }

    /// A barrier, which shows that it is one: nobody leaves before everybody came (Row CO2).
    pub(super) async fn barrier(&mut self, number: u64, comm: CommKey) -> Result<Status, Error> {
        self.process.at("deaths: barrier", number);
        self.enter(number, self.me());
        let result = self.process.mpi.barrier(comm).await;
        match result {
            Ok(_) => {
                for rank in self.members(comm) {
                    let entered =
                        self.process.board.borrow().reads(Deed::Entered, number * 1_000 + u64::from(rank.0));
                    assert!(entered, "a barrier was left before rank {} had entered it", rank.0);
                }
            }
            Err(error) => drop(self.explained(comm, error)),
        }
        result
    }

    fn enter(&self, number: u64, rank: Rank) {
        self.process.board.borrow_mut().write(Deed::Entered, number * 1_000 + u64::from(rank.0));
    }

    /// This process as its rank in a communicator, with numbers that its members draw alike.
    fn view(&self, comm: CommKey, phase: u64) -> Process {
        let (rank, size) = (self.process.mpi.rank(comm), self.process.mpi.size(comm));
        let mut seed = self.process.together.borrow().clone();
        let together = Random(seed.bits() ^ phase);
        self.process.as_member(rank.expect("it stands"), size.expect("it stands"), together)
    }
}
