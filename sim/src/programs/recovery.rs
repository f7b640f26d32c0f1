// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whole recoveries: the members of a communicator work, and whoever sees an error revokes it; all agree whether all went well; if not,
//! the survivors shrink it and go on with the new one. Each rank executes the same [`History`].
//!
//! No schedule and no death can deadlock. In a round, every member executes the same steps until one fails. A member at which one fails
//! revokes all communicators that it uses, so the operations of all others end. Agreements and shrinks wait for no member that is dead,
//! and their results decide alike at all members what comes next.

mod repair;
mod work;

use crate::history::History;
use crate::{Process, Program};
use mend_base::{Identity, Rank};
use mend_mpi::{CommKey, Detail, Error, Hints};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The program of a history.
pub fn of(history: &Rc<History>) -> Program {
    let history = Rc::clone(history);
    super::program(move |process| run(process, Rc::clone(&history)))
}

/// A job has no more rounds than this: then each rank whose planned death has not happened kills itself, unless it is to die in
/// MPI_Finalize.
const ROUNDS_MAX: u64 = 40;

/// One rank.
struct Survivor {
    process: Process,
    history: Rc<History>,
    /// The communicator that the members use and repair.
    comm: CommKey,
    /// Communicators that were created in this round and are not freed.
    children: Vec<CommKey>,
    /// Broken communicators that are freed at the end.
    old: Vec<CommKey>,
    round: u64,
    /// The number of agreements and shrinks on each communicator.
    numbers: BTreeMap<Identity, u64>,
    /// The failed members of each communicator, as get_failed has listed them.
    failed: BTreeMap<Identity, Vec<Rank>>,
}

async fn run(process: Process, history: Rc<History>) {
    let comm = process.mpi.engine().comm_world();
    let mut survivor = Survivor {
        process: process.clone(),
        history: Rc::clone(&history),
        comm,
        children: vec![],
        old: vec![],
        round: 0,
        numbers: BTreeMap::new(),
        failed: BTreeMap::new(),
    };
    process.ready();
    let mut hints = Hints::default();
    loop {
        let round = history.rounds[survivor.round as usize % history.rounds.len()].clone();
        let wanted = repair::hints(round.repair);
        if hints != wanted {
            survivor.set_hints(wanted);
            hints = wanted;
        }
        if survivor.round(&round).await {
            break;
        }
        if survivor.comm != comm {
            hints = survivor.process.mpi.engine().hints(survivor.comm).expect("the communicator exists");
        }
        survivor.round += 1;
    }
    survivor.end().await;
}

impl Survivor {
    /// Names the call of MPI that comes next.
    fn call(&self, name: &'static str) {
        self.process.call(name);
    }

    fn identity(&self, comm: CommKey) -> Identity {
        self.process.mpi.engine().communicator(comm).expect("the communicator exists").identity
    }

    /// The members of a communicator, as ranks of WORLD.
    fn members(&self, comm: CommKey) -> Vec<u32> {
        let engine = self.process.mpi.engine();
        let communicator = engine.communicator(comm).expect("the communicator exists");
        communicator.group.iter().map(|peer| peer.number()).collect()
    }

    fn rank(&self, comm: CommKey) -> Rank {
        self.process.mpi.rank(comm).expect("the communicator exists")
    }

    fn size(&self, comm: CommKey) -> u32 {
        self.process.mpi.size(comm).expect("the communicator exists")
    }

    /// The number of the next agreement or shrink on a communicator: these are called by all members, in the same order.
    fn next_number(&mut self, comm: CommKey) -> (Identity, u64) {
        let identity = self.identity(comm);
        let number = self.numbers.entry(identity).or_default();
        *number += 1;
        (identity, *number)
    }

    /// MPI_Comm_get_failed. Asserts that all in it are dead, and that it only grows (Row AK3).
    fn get_failed(&mut self, comm: CommKey) -> Vec<Rank> {
        self.call("MPI_Comm_get_failed");
        let failed = self.process.mpi.failed(comm).expect("the communicator exists");
        let members = self.members(comm);
        for rank in &failed {
            let died = self.process.death_has_begun(Rank(members[rank.index()]));
            assert!(died, "rank {} of {comm:?} lives, and get_failed names it", rank.0);
        }
        let before = self.failed.insert(self.identity(comm), failed.clone()).unwrap_or_default();
        assert!(failed.starts_with(&before), "get_failed was {before:?} and is {failed:?}");
        failed
    }

    /// Asserts that an error of an operation on `comm` is a failure that get_failed explains, or that a process has revoked `comm`.
    fn assert_explained(&mut self, comm: CommKey, error: Error) {
        match error.detail {
            Detail::ProcFailed(rank) | Detail::SenderMayHaveFailed(Some(rank)) => {
                let failed = self.get_failed(comm);
                assert!(failed.contains(&rank), "{error}, and get_failed is {failed:?}");
            }
            Detail::Revoked => {
                let revoked = self.process.mpi.engine().is_revoked(comm).expect("the communicator exists");
                assert!(revoked, "an operation ended as revoked, and is_revoked is false");
                let by_a_process = self.process.record.borrow().repairs.is_revoked(self.identity(comm));
                assert!(by_a_process, "nobody has revoked {:?}", self.identity(comm));
            }
            _ => panic!("an operation on a communicator with dead members ended with: {error}"),
        }
    }

    /// MPIX_Comm_revoke.
    fn revoke(&self, comm: CommKey) {
        self.process.record.borrow_mut().repairs.revoke(self.identity(comm));
        self.call("MPIX_Comm_revoke");
        self.process.mpi.revoke(comm).expect("the communicator exists");
    }

    /// MPI_Comm_free.
    fn free(&mut self, comm: CommKey) {
        self.call("MPI_Comm_free");
        self.failed.remove(&self.identity(comm));
        self.process.mpi.free(comm).expect("the communicator exists");
    }

    /// All communicators are freed, at each rank in its own order. Nothing is left of them once all living ranks have done so.
    async fn end(mut self) {
        let world = self.process.mpi.engine().comm_world();
        let mut left: Vec<CommKey> = std::mem::take(&mut self.old);
        left.extend((self.comm != world).then_some(self.comm));
        while !left.is_empty() {
            let comm = left.swap_remove(self.process.below(left.len() as u64) as usize);
            self.free(comm);
        }
        self.process.at("all have freed their communicators", 0);
        self.process.agree(u64::MAX, true).await;
        self.process.at("nothing is left of freed communicators", 0);
        let mpi = self.process.mpi.clone();
        // The protocols of WORLD are never over.
        let is_over = || {
            let counts = mpi.engine().open_counts();
            counts.member_protocols <= 1 && counts.unsent_member_messages == 0
        };
        mpi.wait_until(is_over).await;
        self.process.agree(u64::MAX - 1, true).await;
    }
}
