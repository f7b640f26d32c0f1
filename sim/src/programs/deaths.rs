// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The victims, ranks with planned deaths, die at any step. All ranks know from the seed which ranks are victims. Each
//! operation ends as its row of the semantics table requires: with success and the right bytes, or with PROC_FAILED that
//! names a rank which has died and is in the list of failures. Operations that do not depend on a dead rank succeed.
//!
//! All ranks draw the same phases and execute them in order. No operation of a phase depends on a later phase, so no schedule
//! and no death can deadlock: consider a rank that is blocked in the earliest phase. Each partner is dead, and the rank
//! will be notified of that; or the partner has begun that phase, in which every operation is started before any is waited
//! for, or in the order of a plan that all ranks share.

mod collective;
mod creation;
mod failure_view;
mod named;
mod wildcard;

use crate::Process;
use failure_view::FailureView;
use mend_base::Rank;
use mend_mpi::CommKey;

/// One rank, victim or survivor.
pub(super) struct Participant {
    process: Process,
    world: CommKey,
    failure_view: FailureView,
    /// The communicator of the ranks that will not die, if all of them could create it.
    survivors: Option<CommKey>,
    /// Operations on communicators that some members may not have.
    unfinished: Vec<creation::Unfinished>,
}

/// One job.
pub async fn run(process: Process) {
    let world = process.mpi.engine().comm_world();
    let failure_view = FailureView::default();
    let mut participant = Participant {
        process: process.clone(),
        world,
        failure_view,
        survivors: None,
        unfinished: Vec::new(),
    };
    participant.create_survivors_comm().await;
    process.ready();
    let phases = 1 + process.shared_random.borrow_mut().below(6);
    for phase in 1..=phases {
        let which = process.shared_random.borrow_mut().below(9);
        match which {
            0..3 => participant.named(phase).await,
            3 => participant.posted_wildcards(phase).await,
            4 => participant.probed_wildcards(phase).await,
            5 => participant.collectives(phase, participant.world).await,
            6 => participant.survivor_collectives(phase).await,
            7 => participant.create_agreed(phase).await,
            _ => participant.create_unagreed(phase).await,
        }
        if participant.chance(3) {
            participant.failed(participant.world);
        }
    }
    participant.end().await;
}

impl Participant {
    fn me(&self) -> Rank {
        self.process.rank
    }

    /// True with probability 1 / `times`; each rank draws for itself.
    fn chance(&self, times: u64) -> bool {
        self.process.below(times) == 0
    }

    /// Whether this rank of WORLD may die.
    fn is_victim(&self, rank: Rank) -> bool {
        self.process.victims().contains(&rank)
    }

    /// The members of a communicator, as ranks of WORLD.
    fn members(&self, comm: CommKey) -> Vec<Rank> {
        let engine = self.process.mpi.engine();
        let communicator = engine.communicator(comm).expect("the communicator exists");
        communicator.group.iter().map(|peer| Rank(peer.number())).collect()
    }

    /// Completes the operations that earlier phases left, and frees the communicator of the survivors.
    async fn end(mut self) {
        self.end_unfinished().await;
        self.failed(self.world);
        if let Some(survivors) = self.survivors {
            self.process.mpi.free(survivors).expect("the communicator exists");
        }
    }
}
