// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an engine asks of whoever started its process, and what it is told.

use mend_base::Peer;
use mend_transport::{Card, Cause};

/// Whoever started this process: our node daemon, nobody (a singleton), or the simulator. Owned by one engine, so it
/// holds no locks.
///
/// Nothing here blocks: questions are asked once and their answers come as [`Notice`]s. Whether there are any is
/// one load ([`fault_version`](Runtime::fault_version)); only when it has changed is [`notice`](Runtime::notice) asked.
pub trait Runtime {
    /// Who we are, and how many we began as. Never changes.
    fn membership(&self) -> &Membership;
    /// Hands our card in, once, before any [`lookup`](Runtime::lookup): from now on others can be told how to reach us.
    /// The card's descriptor is duplicated; the caller keeps its own.
    fn publish(&mut self, card: &Card) -> Result<(), RuntimeError>;
    /// First contact with `peer`. Asked once; both ends are then told of each other by [`Notice::Contact`], or why
    /// not by [`Notice::Refused`].
    fn lookup(&mut self, peer: Peer) -> Result<(), RuntimeError>;
    /// What `peer`'s card says could not be connected to. Both ends get [`Notice::Refused`].
    fn refuse(&mut self, peer: Peer, cause: Cause);
    /// Evidence against `peer`: is it dead? The answer is [`Notice::Failed`] or [`Notice::Alive`]; of one that has left,
    /// [`Notice::Finalized`]. Who wrote [`Cause::Garbage`] is killed for it, so the answer is its end.
    fn ask(&mut self, peer: Peer, cause: Cause);
    /// Changes whenever [`notice`](Runtime::notice) has something new: one load of a line that nobody writes while
    /// nothing fails.
    fn fault_version(&self) -> u32;
    /// Looks whether whoever started us is still there, and has said something that nobody bumped the version for: then
    /// `fault_version` changes. A system call, mostly: for those who sleep, at each timed look, and about once a millisecond
    /// for those who wait. Without it the loss of a daemon that could tell nobody would never be noticed.
    fn check(&mut self) {}
    /// The next notice; `None` where there is none now. Never blocks. After `fault_version` has changed, asked until it
    /// says `None`.
    fn notice(&mut self) -> Option<Notice>;
    /// We sent everything we will ever send, and need nobody any more.
    fn finalize(&mut self);
    /// Ends the job with `code`. The caller's process is killed with the others; it may be some moments yet.
    fn abort(&mut self, code: i32);
    /// Ends `peers`, the caller perhaps among them: they are killed, and have failed for all others, who go on. `code` counts
    /// for each of them in the exit code of the job. Peers of other jobs are passed over; it may be some moments yet.
    fn abort_some(&mut self, code: i32, peers: &[Peer]);
}

/// Who a process is among those that were started together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    /// This life of this process. Of those started first, [`Peer::number`] is the rank in `MPI_COMM_WORLD`.
    pub peer: Peer,
    /// Size of `MPI_COMM_WORLD`: its ranks are the peers 0 to `size - 1` of the same job.
    pub size: u32,
    /// Our place among the processes of this node: indexes bells, sleep words and the directories of outboxes.
    pub slot: u32,
    /// How many places the node has, those of late joiners included.
    pub slots: u32,
    /// How many ranks were started on this node.
    pub local_ranks: u32,
    /// Whether the job outlives the death of some of its ranks; `false` where its user said `--with-ft no`: then whoever
    /// started us ends it at the first death, before anybody is told.
    pub fault_tolerant: bool,
}

/// What the runtime has to say.
#[derive(Clone, Debug)]
pub enum Notice {
    /// How to reach `peer`, which is being told the same about us. Once for each pair.
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
    /// It is dead, or is not and never will be in MPI (it ended before Init): final. What it had sent whole is in its outbox.
    /// All hear of each death, in one order for all, however it was found, and each behind the contact with who died.
    /// It may be said again to who asks.
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
