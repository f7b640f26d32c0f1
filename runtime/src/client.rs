// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an engine asks of its launcher, and the notices that it gets.

use mend_base::Peer;
use mend_transport::{Card, Cause};

/// The launcher's end in this process: of the node daemon, of none (a singleton), or of the simulator. Owned by one engine, so
/// it holds no locks.
///
/// Nothing here blocks: questions are asked once and their answers come as [`Notice`]s. Whether there are any is
/// one load ([`fault_version`](Runtime::fault_version)); only when it has changed is [`notice`](Runtime::notice) asked.
pub trait Runtime {
    /// Which process this is, and how many were started together. Never changes.
    fn membership(&self) -> &Membership;
    /// Hands in this process's card, once, before any [`lookup`](Runtime::lookup): from now on others can be told how to reach it.
    /// The card's descriptor is duplicated; the caller keeps its own.
    fn publish(&mut self, card: &Card) -> Result<(), RuntimeError>;
    /// First contact with `peer`. Asked once; both ends are then told of each other by [`Notice::Contact`], or why
    /// not by [`Notice::Refused`].
    fn lookup(&mut self, peer: Peer) -> Result<(), RuntimeError>;
    /// This process could not connect to `peer`. Both ends get [`Notice::Refused`].
    fn refuse(&mut self, peer: Peer, cause: Cause);
    /// `peer` is suspected: the daemon examines it, and answers by [`Notice::Failed`] or [`Notice::Alive`]; of one that has left,
    /// by [`Notice::Finalized`]. A peer that wrote [`Cause::Garbage`] is killed for it, so the answer is its end.
    fn ask(&mut self, peer: Peer, cause: Cause);
    /// Changes whenever [`notice`](Runtime::notice) has something new: one load of a line that nobody writes while
    /// nothing fails.
    fn fault_version(&self) -> u32;
    /// Checks that the daemon is still there, and has sent nothing without bumping the version: else `fault_version` changes. A
    /// system call: a sleeping process makes it at each periodic check, a waiting one about once a millisecond. Without it the loss
    /// of a daemon, which bumps nothing, would never be noticed.
    fn check(&mut self) {}
    /// The next notice; `None` where there is none now. Never blocks. After `fault_version` has changed, asked until it
    /// says `None`.
    fn notice(&mut self) -> Option<Notice>;
    /// This process has sent everything, and needs no other any more.
    fn finalize(&mut self);
    /// Ends the job with `code`. The caller's process is killed with the others; it may be some moments yet.
    fn abort(&mut self, code: i32);
    /// Ends `peers`, the caller perhaps among them: they are killed, and have failed for all others, who go on. `code` counts
    /// for each of them in the exit code of the job. Peers of other jobs are passed over; it may be some moments yet.
    fn abort_some(&mut self, code: i32, peers: &[Peer]);
}

/// Which process this is among those that were started together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    /// This life of this process. Of those started first, [`Peer::number`] is the rank in `MPI_COMM_WORLD`.
    pub peer: Peer,
    /// Size of `MPI_COMM_WORLD`: its ranks are the peers 0 to `size - 1` of the same job.
    pub size: u32,
    /// Its slot on this node: indexes bells, sleep words and the directories of outboxes.
    pub slot: u32,
    /// How many slots the node has, those of late joiners included.
    pub slots: u32,
    /// How many ranks were started on this node.
    pub local_ranks: u32,
    /// Whether the job outlives the death of some of its ranks; `false` where its user said `--with-ft no`: then the
    /// daemon ends it at the first death, before any rank is notified.
    pub fault_tolerant: bool,
}

/// What the runtime has to say.
#[derive(Clone, Debug)]
pub enum Notice {
    /// How to reach `peer`, which gets the same of this process. Once for each pair.
    Contact {
        /// Who it is.
        peer: Peer,
        /// Its card, its outbox's descriptor included.
        card: Card,
    },
    /// There is no way to `peer`, though both live: one of the two ends could not connect.
    Refused {
        /// Who it is.
        peer: Peer,
        /// Why.
        cause: Cause,
    },
    /// It has left; what it sent whole is in its outbox.
    Finalized(Peer),
    /// It has failed, or ended before MPI_Init: final. What it had sent whole is in its outbox. Each process gets one such notice
    /// of each failure, after the [`Notice::Contact`] of that peer if there was one; in an order of its own. A process that asks
    /// may get it again.
    Failed(Peer),
    /// It was asked about, and lives.
    Alive(Peer),
    /// The job is being ended, with this exit code; also when the daemon itself is gone.
    JobAborted {
        /// The exit code of the job.
        code: i32,
    },
}

/// Why the runtime did not take what it was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The daemon is gone, and the job with it.
    #[error("the connection to the node daemon is gone")]
    Lost,
    /// A card was published already.
    #[error("a card was published already")]
    PublishedTwice,
    /// The peer is not of this job.
    #[error("no such process in this job")]
    NoSuchPeer,
}
