// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collective operations and the making of communicators while members die: success with the right values, or the
//! failure of a member (Row CO1); none that needs everybody succeeds without a member's part (Row CO2). The phases
//! between the living go on before and after (Row CO12).

use super::super::collectives::{Pending, holds, start};
use super::Survivor;
use mend_mpi::{CommKey, Error};

impl Survivor {
    /// Everybody starts the same operations on WORLD, whatever became of those before.
    pub(super) async fn collectives(&mut self, phase: u64) {
        let count = 1 + self.process.together.borrow_mut().below(6);
        // What runs, and whether one had failed before it started: then it must fail too (Row CO4).
        let mut open: Vec<(Pending, bool)> = Vec::new();
        let mut failed = false;
        for number in 0..count {
            self.process.at("deaths: start a collective", number);
            if self.process.together.borrow_mut().below(6) == 0 {
                failed |= self.make(failed).await;
            } else {
                let number = (phase * 100 + number) as i32;
                open.push((start(&self.process, self.world, number), failed));
            }
            while open.len() as u64 > self.process.below(3) {
                let at = self.process.below(open.len() as u64) as usize;
                let (next, must) = open.swap_remove(at);
                failed |= self.end_collective(next, must).await;
            }
            if self.chance(4) {
                self.process.pause().await;
            }
        }
        for (next, must) in open {
            self.end_collective(next, must).await;
        }
    }

    /// Whether it failed, as it `must` where one did before it.
    async fn end_collective(&mut self, (operation, expected): Pending, must: bool) -> bool {
        self.process.at("deaths: a collective", 0);
        let result = operation.await;
        if let Some((buffer, _)) = &expected {
            self.process.silence.borrow_mut().watch(buffer);
        }
        match result {
            Ok(_) => {
                assert!(!must, "it succeeded after one that had failed");
                expected.iter().for_each(holds);
                false
            }
            Err(error) => self.of_a_member(error),
        }
    }

    fn of_a_member(&mut self, error: Error) -> bool {
        self.explained(self.world, error);
        true
    }

    /// A communicator that may be born here alone, and is freed at once; whether its making failed.
    async fn make(&mut self, must: bool) -> bool {
        self.process.at("deaths: make a communicator", 0);
        let split = self.process.together.borrow_mut().below(2) == 0;
        let mpi = self.process.mpi.clone();
        let color = Some(self.me().0 % 2).filter(|_| split);
        let making = if split { mpi.split(self.world, color, 0) } else { mpi.dup(self.world) };
        match making.await {
            Ok(born) => {
                assert!(!must, "it was made after an operation that had failed");
                born.into_iter().for_each(|comm| self.let_go(comm));
                false
            }
            Err(error) => self.of_a_member(error),
        }
    }

    fn let_go(&mut self, comm: CommKey) {
        self.failed(comm);
        self.process.mpi.free(comm).expect("freeing is local");
    }
}
