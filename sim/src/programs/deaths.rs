// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Some ranks die, at any step. Everybody knows from the seed who may; each operation ends as its row says: with success
//! and the right bytes, or with PROC_FAILED naming a rank that is really dead and that `failed` lists already. Whatever
//! does not depend on the dead succeeds.
//!
//! All ranks draw the same phases and walk them in order. No phase blocks for what another rank does in a later one, so
//! no schedule and no death can make them wait for each other in a circle: take who is blocked in the earliest phase; each
//! partner of it is dead, which it will hear, or has begun that phase, and there everything is started before anything is
//! waited for, or in the order of a plan that all share.

mod collective;
mod making;
mod named;
mod wildcard;
mod witness;

use crate::Process;
use mend_base::Rank;
use mend_mpi::CommKey;
use witness::Witness;

/// One rank that means to survive.
pub(super) struct Survivor {
    process: Process,
    world: CommKey,
    witness: Witness,
    /// Of the ranks that will not die, if it could be made at all of them.
    safe: Option<CommKey>,
    unfinished: Vec<making::Unfinished>,
}

/// One job.
pub async fn run(process: Process) {
    let world = process.mpi.engine().world();
    let witness = Witness::default();
    let mut survivor =
        Survivor { process: process.clone(), world, witness, safe: None, unfinished: Vec::new() };
    survivor.make_safe().await;
    process.ready();
    let phases = 1 + process.together.borrow_mut().below(6);
    for phase in 1..=phases {
        let which = process.together.borrow_mut().below(9);
        match which {
            0..3 => survivor.named(phase).await,
            3 => survivor.posted_wildcards(phase).await,
            4 => survivor.probed_wildcards(phase).await,
            5 => survivor.collectives(phase, survivor.world).await,
            6 => survivor.safe_collectives(phase).await,
            7 => survivor.make(phase).await,
            _ => survivor.make_alone(phase).await,
        }
        if survivor.chance(3) {
            survivor.failed(survivor.world);
        }
    }
    survivor.end().await;
}

impl Survivor {
    fn me(&self) -> Rank {
        self.process.rank
    }

    /// True once in so many times, for this rank alone.
    fn chance(&self, times: u64) -> bool {
        self.process.below(times) == 0
    }

    /// Whether this rank of WORLD may die.
    fn is_mortal(&self, rank: Rank) -> bool {
        self.process.mortals().contains(&rank)
    }

    /// The ranks of a communicator, as ranks of WORLD.
    fn members(&self, comm: CommKey) -> Vec<Rank> {
        let engine = self.process.mpi.engine();
        let communicator = engine.communicator(comm).expect("it stands");
        communicator.group.iter().map(|peer| Rank(peer.number())).collect()
    }

    /// What is left of earlier phases ends now at the latest, and so does what nobody can free.
    async fn end(mut self) {
        self.end_unfinished().await;
        self.failed(self.world);
        if let Some(safe) = self.safe {
            self.process.mpi.free(safe).expect("it stands");
        }
    }
}
