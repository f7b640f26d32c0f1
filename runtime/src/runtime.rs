// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface between an engine and its launcher: calls, and the notices that answer them.

use crate::daemon_protocol::Place;
use crate::transport_view::TransportView;
use mend_base::{Identity, Peer};
use mend_transport::{Card, Cause};

/// A process's connection to its node daemon; without one (a singleton) or in the simulator, what replaces it. Owned by one
/// engine, so it holds no locks.
///
/// No call blocks: a question is asked once, and its answer comes as a [`Notice`]. One load tells whether there are notices
/// ([`notice_version`](Runtime::notice_version)); [`notice`](Runtime::notice) is called only when it has changed.
pub trait Runtime {
    /// Which process this is, and how many were started together. Never changes.
    fn membership(&self) -> &Membership;
    /// Publishes this process's card, once, before any [`lookup`](Runtime::lookup): from then on others can connect to it.
    /// The card's descriptor is duplicated; the caller keeps its own. The runtime adds the life page of the process, whose life must have
    /// begun.
    fn publish(&mut self, card: &Card) -> Result<(), RuntimeError>;
    /// Requests a first contact with `peer`, once. Then both ends get [`Notice::Contact`], or, with the cause,
    /// [`Notice::Refused`].
    fn lookup(&mut self, peer: Peer) -> Result<(), RuntimeError>;
    /// This process could not connect to `peer`, another process. Both ends get [`Notice::Refused`].
    fn refuse(&mut self, peer: Peer, cause: Cause);
    /// Asks whether `peer`, another process, has failed, because it is suspected or waited for ([`Cause::NoEvidence`]): the node
    /// daemon examines it, and answers by [`Notice::Failed`] or [`Notice::Alive`], or by [`Notice::Finalized`] if it has left. A
    /// peer that wrote [`Cause::Garbage`] is killed, so the answer is its end. [`Cause::Refused`]: a message between the two is needed that
    /// cannot be delivered, as they could not connect; this process or the peer is killed, unless the peer has left. [`Cause::Silent`]: after
    /// that answer, the peer itself is asked whether it runs ([`Notice::Running`]).
    fn ask(&mut self, peer: Peer, cause: Cause);
    /// Changes whenever [`notice`](Runtime::notice) has something new. One load of a cache line that is written only for a
    /// notice to this process, and so for no message between ranks.
    fn notice_version(&self) -> u32;
    /// Checks that the node daemon is still there, and that it has sent nothing without changing the version; otherwise
    /// `notice_version` changes. A system call, which a sleeping process makes at each timed check, and a waiting one about once
    /// a millisecond. Without this check the end of the node daemon would never be noticed, as it changes no version.
    fn check(&mut self) {}
    /// Reads the life words of some peers with which there is a contact, round-robin, and names those that have died. A peer is named again
    /// at each call until the contact is over. Evidence, as of a transport: the node daemon decides. A waiting thread calls it about once
    /// a millisecond.
    fn check_peers(&mut self, _on_exited: &mut dyn FnMut(Peer)) {}
    /// A descriptor that is readable while there are notices, or when the node daemon has ended: for a process that sleeps on
    /// descriptors. `None`: no notice comes from another process.
    fn notice_descriptor(&self) -> Option<i32> {
        None
    }
    /// The next notice; `None` if there is none now. Never blocks. After `notice_version` has changed, it must be called until it
    /// returns `None`.
    fn notice(&mut self) -> Option<Notice>;
    /// Leaves `result` with the node daemon, which answers for this process from [`finalize`](Runtime::finalize) on. To be called
    /// right before `finalize`, once for each result that another process may still ask for. Of the results of one communicator
    /// and protocol, the node daemon stores the one with the highest number: a process leaves a higher number only if every
    /// member that has not ended has the results of all lower ones.
    ///
    /// A result has at most [`RESULT_BYTES_MAX`] bytes, and one process leaves at most [`RESULTS_MAX`] results of
    /// [`RESULTS_BYTES_MAX`] bytes together. The node daemon does not store what goes beyond the last two bounds, and answers as
    /// if it had not been left. If this process fails before it has finalized, its results are dropped: only those of processes
    /// that left MPI count.
    fn leave_result(&mut self, key: ResultKey, result: &[u8]);
    /// Asks for the result of `key` that some process has left. The answer is [`Notice::Recalled`], once for each call, in the
    /// order of the calls. A process that was notified that a peer has finalized gets what that peer has left. At most
    /// [`RECALLS_MAX`] calls may be unanswered.
    fn recall_result(&mut self, key: ResultKey);
    /// Says where the program of this process is: because it has been blocked for long, or as the answer to
    /// [`Notice::WhereAreYou`].
    fn sits(&mut self, _place: Place) {}
    /// Says by which transports this process has reached others, for the report of its job. To be called once, before
    /// [`finalize`](Runtime::finalize), and only if the user asks for that report.
    fn report_transports(&mut self, _view: &TransportView) {}
    /// Leaves MPI: this process has sent everything, and needs no other process any more.
    fn finalize(&mut self);
    /// Ends the job with `code`. The caller's process is killed with the others, soon after this call returns.
    fn abort(&mut self, code: i32);
    /// Ends `peers`, which may include the caller: they are killed soon after this call returns, and have failed for all other
    /// processes, which go on. `code` counts for each of them in the exit code of the job. Peers of other jobs are ignored.
    fn abort_some(&mut self, code: i32, peers: &[Peer]);
}

/// Which process this is among those that were started together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    /// This incarnation of this process. For the processes started with the job, [`Peer::number`] is the rank in
    /// `MPI_COMM_WORLD`.
    pub peer: Peer,
    /// Size of `MPI_COMM_WORLD`: its ranks are the peers 0 to `size - 1` of the same job.
    pub size: u32,
    /// Its node slot: indexes bells, sleep words and the directories of outboxes.
    pub node_slot: u32,
    /// How many node slots there are. A node daemon provides more slots than ranks, for processes that are to join the job after
    /// its start. No process can do that yet, so the node slot of each rank is its number in the job.
    pub node_slots: u32,
    /// How many ranks were started on this node.
    pub local_ranks: u32,
    /// Whether the job outlives the death of some of its ranks. `false` with `--with-ft no`: then the node daemon ends the job at
    /// the first death, before any rank is notified.
    pub fault_tolerant: bool,
}

/// The name of a result that a process leaves with the node daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ResultKey {
    /// The communicator whose members agreed on it.
    pub identity: Identity,
    /// The protocol by which they did. Means nothing to the runtime.
    pub protocol: u8,
    /// Which of the results of this communicator and protocol it is. Wraps: two numbers that are in use at the same time differ
    /// by less than half of all numbers.
    pub sequence: u32,
}

/// The longest result, in bytes: a list of 1,024 ranks of four bytes each, which is as many as a node has, and 192 bytes more.
pub const RESULT_BYTES_MAX: usize = 4 * 1024 + 192;

/// How many results one process leaves at most.
pub const RESULTS_MAX: usize = 65_536;

/// How many bytes the results of one process have at most.
pub const RESULTS_BYTES_MAX: usize = 16 << 20;

/// How many questions for results one process may have asked without having taken the answers.
pub const RECALLS_MAX: usize = 65_536;

/// What the runtime reports to an engine.
#[derive(Clone, Debug)]
pub enum Notice {
    /// How to connect to `peer`, which gets the same notice about this process. Once for each pair.
    Contact {
        /// Who it is.
        peer: Peer,
        /// Its card, its outbox's descriptor included, but not that of its life page, which the runtime keeps.
        card: Card,
    },
    /// There is no connection to `peer`, although both processes live: one of the two ends could not connect.
    Refused {
        /// Who it is.
        peer: Peer,
        /// Why.
        cause: Cause,
    },
    /// The peer has finalized. The messages that it had sent completely are in its outbox.
    Finalized(Peer),
    /// The peer has failed, or ended before MPI_Init: final. The messages that it had sent completely are in its outbox. Each
    /// process gets one such notice for each failure, after the [`Notice::Contact`] of that peer if there was one. The order of
    /// failures may differ between processes. A process that asks about the peer may get the notice again.
    Failed(Peer),
    /// The peer, about which this process asked, lives.
    Alive(Peer),
    /// The peer, about which this process asked because of [`Cause::Silent`], has answered since: it runs and takes notices. There is no such
    /// notice for as long as the peer is stopped.
    Running(Peer),
    /// The peer has asked about this process because of [`Cause::Silent`]: it hears nothing of it. The runtime has answered that this process runs.
    Unheard(Peer),
    /// The answer to [`recall_result`](Runtime::recall_result).
    Recalled {
        /// The result that this process asked for.
        key: ResultKey,
        /// What a process has left that has finalized since; `None` if no such process has left a result with exactly this key,
        /// or if one with a higher number has replaced it. At most [`RESULT_BYTES_MAX`] bytes, which are as trustworthy as a
        /// message of the process that left them: the caller checks them.
        result: Option<Vec<u8>>,
    },
    /// The node daemon asks where the program of this process is. The answer is [`sits`](Runtime::sits).
    WhereAreYou,
    /// The job is being ended, with this exit code; also reported when the node daemon has ended.
    JobAborted {
        /// The exit code of the job.
        code: i32,
    },
}

/// Why the runtime refused a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The node daemon has ended, and the job with it.
    #[error("the connection to the node daemon is gone")]
    Lost,
    /// A card was published already.
    #[error("a card was published already")]
    PublishedTwice,
    /// The peer is not of this job.
    #[error("no such process in this job")]
    NoSuchPeer,
}
