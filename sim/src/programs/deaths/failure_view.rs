// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a rank knows about failures, compared with the deaths that have happened.

use super::Participant;
use mend_base::{PeerIndex, Rank};
use mend_mpi::{CommKey, Detail, Error, ErrorClass};
use std::collections::BTreeMap;

/// The failures that a rank has seen, by communicator.
#[derive(Debug, Default)]
pub(super) struct FailureView {
    known: BTreeMap<u64, Known>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    failed: Vec<Rank>,
    acknowledged: usize,
}

impl FailureView {
    fn of(&mut self, comm: CommKey) -> &mut Known {
        self.known.entry(comm.to_bits()).or_default()
    }
}

impl Participant {
    /// The failed members of a communicator, as its own ranks, in the order in which this rank learned of them.
    pub(super) fn failed(&mut self, comm: CommKey) -> Vec<Rank> {
        let failed = self.process.mpi.failed(comm).expect("the communicator exists");
        let members = self.members(comm);
        // Row AK4: the list contains members that have died, and no slow or stopped ones.
        for rank in &failed {
            let world = members[rank.index()];
            assert!(self.process.death_has_begun(world), "rank {} is listed as failed, but lives", world.0);
        }
        let engine = self.process.mpi.engine();
        let acknowledged = engine.acknowledged(comm).expect("the communicator exists");
        // Failures are published in the order of their notices.
        let taken = engine.runtime().failures_taken();
        let published: Vec<u32> = engine.ends().failed().iter().map(|place| place.0).collect();
        assert!(taken.starts_with(&published), "{published:?} were published of {taken:?}");
        drop(engine);
        let known = self.failure_view.of(comm);
        // Row AK1.
        assert!(failed.starts_with(&known.failed), "{failed:?} after {:?}", known.failed);
        // Row AK6: only an acknowledgement changes it.
        assert_eq!(acknowledged, failed[..known.acknowledged]);
        known.failed.clone_from(&failed);
        failed
    }

    /// Acknowledges all failures of the communicator, and returns the failed members.
    pub(super) fn acknowledge(&mut self, comm: CommKey) -> Vec<Rank> {
        let failed = self.failed(comm);
        let count = self.process.mpi.acknowledge(comm, None).expect("the communicator exists");
        // Row AK5: the result is the number of known failures, for the query too.
        assert_eq!(count as usize, failed.len());
        assert_eq!(self.process.mpi.acknowledge(comm, Some(0)).expect("the communicator exists"), count);
        self.failure_view.of(comm).acknowledged = failed.len();
        failed
    }

    /// Asserts that an error is PROC_FAILED, and that the rank which it names is in the list of failures now (Row AK3, I2).
    /// Returns that rank.
    pub(super) fn assert_explained(&mut self, comm: CommKey, error: Error) -> Rank {
        let Detail::ProcFailed(rank) = error.detail else {
            panic!("{error}, where only a failure may end the operation")
        };
        assert_eq!(error.class, ErrorClass::ProcFailed);
        // Before `failed` makes progress and takes further notices.
        let place = PeerIndex(self.members(comm)[rank.index()].0);
        let listed = self.process.mpi.engine().ends().failed().contains(&place);
        assert!(listed, "an error names rank {} before it is in the list of failures", rank.0);
        assert!(self.failed(comm).contains(&rank));
        rank
    }

    /// Whether an error means that a wildcard receive has a pending failure.
    pub(super) fn is_pending_failure(error: Error) -> bool {
        error.class == ErrorClass::ProcFailedPending
    }
}
