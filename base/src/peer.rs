// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes.

/// What one launcher started together; drawn at random, so that two jobs on one host do not meet by accident.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Job(pub u32);

/// One life of one process: job and number, drawn from the launcher, never used again (I5). A replacement is another
/// peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Peer(pub u64);

impl Peer {
    /// The process that `job` numbered `number`.
    pub const fn new(job: Job, number: u32) -> Self {
        Peer((job.0 as u64) << 32 | number as u64)
    }

    /// Whose it is.
    pub const fn job(self) -> Job {
        Job((self.0 >> 32) as u32)
    }

    /// Its number in the job; of the processes that a launcher starts first, the rank in `MPI_COMM_WORLD`.
    pub const fn number(self) -> u32 {
        self.0 as u32
    }
}

/// Where a peer stands in this process's tables: what hot paths index with. Means nothing to anybody else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PeerIndex(pub u32);

impl PeerIndex {
    /// As an index of a table with one entry a peer.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
