// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes.

/// The number of a job; drawn at random, so that two jobs on one host differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Job(pub u32);

/// One incarnation of one process: job and number, given by the launcher, never reused (I5). A replacement of a dead process is
/// another peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Peer(pub u64);

impl Peer {
    /// The process that `job` numbered `number`.
    pub const fn new(job: Job, number: u32) -> Self {
        Peer((job.0 as u64) << 32 | number as u64)
    }

    /// Its job.
    pub const fn job(self) -> Job {
        Job((self.0 >> 32) as u32)
    }

    /// Its number in the job: for the processes that the launcher starts at first, the rank in `MPI_COMM_WORLD`.
    pub const fn number(self) -> u32 {
        self.0 as u32
    }
}

/// The index of a peer in this process's tables. Local to the process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PeerIndex(pub u32);

impl PeerIndex {
    /// As an index of a table with one entry a peer.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
