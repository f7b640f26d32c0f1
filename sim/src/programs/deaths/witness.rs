// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process may be told of failures, compared with who is really dead.

use super::Survivor;
use mend_base::{PeerIndex, Rank};
use mend_mpi::{Class, CommKey, Detail, Error};
use std::collections::BTreeMap;

/// What it was told so far, by communicator.
#[derive(Debug, Default)]
pub(super) struct Witness {
    known: BTreeMap<u64, Known>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    failed: Vec<Rank>,
    acknowledged: usize,
}

impl Witness {
    fn of(&mut self, comm: CommKey) -> &mut Known {
        self.known.entry(comm.to_bits()).or_default()
    }
}

impl Survivor {
    /// Who of the communicator has failed, by its own ranks.
    pub(super) fn failed(&mut self, comm: CommKey) -> Vec<Rank> {
        let failed = self.process.mpi.failed(comm).expect("it stands");
        let members = self.members(comm);
        // Row AK4: members only, and really dead; nobody that is merely slow.
        for rank in &failed {
            let world = members[rank.index()];
            assert!(self.process.is_dead(world), "rank {} is listed as failed, and lives", world.0);
        }
        let engine = self.process.mpi.engine();
        let acknowledged = engine.acknowledged(comm).expect("it stands");
        // Ends are published in the order of their notices.
        let taken = engine.runtime().deaths_taken();
        let published: Vec<u32> = engine.ends().failed().iter().map(|place| place.0).collect();
        assert!(taken.starts_with(&published), "{published:?} were published of {taken:?}");
        drop(engine);
        let known = self.witness.of(comm);
        // Row AK1.
        assert!(failed.starts_with(&known.failed), "{failed:?} after {:?}", known.failed);
        // Row AK6: nothing but an acknowledgement changes it.
        assert_eq!(acknowledged, failed[..known.acknowledged]);
        known.failed.clone_from(&failed);
        failed
    }

    /// Acknowledges all failures of the communicator; who they are.
    pub(super) fn acknowledge(&mut self, comm: CommKey) -> Vec<Rank> {
        let failed = self.failed(comm);
        let count = self.process.mpi.acknowledge(comm, None).expect("it stands");
        // Row AK5: as many as were known; the query says the same.
        assert_eq!(count as usize, failed.len());
        assert_eq!(self.process.mpi.acknowledge(comm, Some(0)).expect("it stands"), count);
        self.witness.of(comm).acknowledged = failed.len();
        failed
    }

    /// Asserts that an error is PROC_FAILED, of a rank that is dead and listed at once (Row AK3, I2); whom it names.
    pub(super) fn explained(&mut self, comm: CommKey, error: Error) -> Rank {
        let Detail::ProcFailed(rank) = error.detail else { panic!("{error}, where only a death may be") };
        assert_eq!(error.class, Class::ProcFailed);
        // Before the list takes what is new.
        let place = PeerIndex(self.members(comm)[rank.index()].0);
        let listed = self.process.mpi.engine().ends().failed().contains(&place);
        assert!(listed, "rank {} is named before it is listed", rank.0);
        assert!(self.failed(comm).contains(&rank));
        rank
    }

    /// Whether an error says that a wildcard is in doubt.
    pub(super) fn is_doubt(error: Error) -> bool {
        error.class == Class::ProcFailedPending
    }
}
