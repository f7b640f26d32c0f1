// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations as callers see them: handles, states, results.

use core::fmt;
use core::num::NonZero;
use mend_base::{Key, Rank, Tag};
use mend_datatype::TypedBuffer;
use mend_transport::{Cause, Payload};

/// One context of a communicator, opened: sends and receives name it. A stale one is refused (I4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Channel(pub Key);

/// An operation that was not over when its call returned. Stale ones are refused (I4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Request(pub Key);

/// The communicator to which a channel and its requests belong: an index that the caller of [`Ob1::open`](crate::Ob1::open)
/// chooses, and the PML only gives back. A request has it until its handle is released, also where its channel was removed
/// before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommIndex(pub u32);

/// A sleeping thread, which is woken when a request ends: a number that the layer above has chosen for the thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SleeperId(pub NonZero<u32>);

/// The communicator with an identity, as far as this process knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// Its channels belong to this one.
    Open(CommIndex),
    /// It was freed here, or its creation failed.
    Retired {
        /// It was revoked when it was freed.
        was_revoked: bool,
    },
    /// It is not created here yet.
    NotCreated,
}

/// The result of a call to send or receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Started {
    /// It is over, and took no request.
    Done(Status),
    /// It has a request. Also where it has ended already in error: the wait reports the error (Row PP3).
    Running(Request),
}

/// How far an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not over.
    Running,
    /// A wildcard receive with a pending failure: a member failed and is not acknowledged (`MPI_ERR_PROC_FAILED_PENDING`).
    PendingFailure,
    /// Over; its buffer is not touched any more (I7).
    Done(Result<Status, Error>),
}

/// What `MPI_Status` holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Its sender; `None`: `MPI_PROC_NULL`, and the empty status (whose source the caller reads as any).
    pub source: Option<Rank>,
    /// The tag of the message.
    pub tag: Tag,
    /// How many packed bytes were received.
    pub bytes: u64,
    /// Cancelled before it matched.
    pub cancelled: bool,
}

impl Status {
    /// Of sends, and of operations without a message (MPI-5.0 §3.7.3). The tag means `MPI_ANY_TAG`: it is below all tags.
    pub const EMPTY: Status = Status { source: None, tag: Tag(-1), bytes: 0, cancelled: false };
    /// Of an operation that was cancelled.
    pub const CANCELLED: Status = Status { cancelled: true, ..Status::EMPTY };
}

/// Why an operation ended without doing what it was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The message was longer than the buffer (`MPI_ERR_TRUNCATE`); the status names it, with the bytes that were received.
    Truncated(Status),
    /// The peer at this rank failed.
    ProcFailed(Rank),
    /// The peer at this rank has finalized: it will never complete the operation.
    PeerLeft(Rank),
    /// The peer at this rank cannot be reached.
    Unreachable(Rank, Cause),
    /// The peer at this rank takes no part in this message any more: it freed the communicator, gave the operation up, or had no
    /// memory for it. Ends sends and receives.
    PeerFreed(Rank),
    /// The peer at this rank gave up the collective operation, or will never begin it.
    Poisoned {
        /// That peer.
        by: Rank,
        /// The failed member that is the cause, as the peer says; its failure may not be published here yet. `None`: another cause.
        failed: Option<Rank>,
    },
    /// The peer at this rank never created the communicator, and will not.
    NotCreated(Rank),
    /// The communicator is revoked (`MPI_ERR_REVOKED`), here or at the peer of a send. A send never succeeded then without its receive
    /// (Row RV8), but an eager one that had ended before may have none.
    Revoked,
    /// The communicator has no such rank.
    NoSuchRank(Rank),
    /// There is no such channel.
    NoSuchChannel,
    /// There is no such request.
    NoSuchRequest,
    /// There is no memory for the operation: it was not started, or ended without its message.
    NoMemory,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Truncated(_) => write!(out, "the message is longer than the buffer"),
            Error::ProcFailed(rank) => write!(out, "rank {} failed", rank.0),
            Error::PeerLeft(rank) => write!(out, "rank {} has finalized and will never answer", rank.0),
            Error::Unreachable(rank, cause) => write!(out, "rank {} cannot be reached: {cause:?}", rank.0),
            Error::PeerFreed(rank) => write!(out, "rank {} takes no part in the message any more", rank.0),
            Error::Poisoned { by, .. } => write!(out, "rank {} gave the collective operation up", by.0),
            Error::NotCreated(rank) => write!(out, "rank {} has not created the communicator", rank.0),
            Error::Revoked => write!(out, "the communicator is revoked"),
            Error::NoSuchRank(rank) => write!(out, "the communicator has no rank {}", rank.0),
            Error::NoSuchChannel => write!(out, "the communicator is closed"),
            Error::NoSuchRequest => write!(out, "there is no such request"),
            Error::NoMemory => write!(out, "there is no memory for the operation"),
        }
    }
}

impl std::error::Error for Error {}

/// When a send may end (MPI-5.0 §3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    /// When its buffer may be used again.
    Standard,
    /// When a receive has matched it.
    Synchronous,
    /// As standard: that a receive is posted changes nothing here.
    Ready,
}

// Hot: per message.
/// Copies a message that arrived with its payload to the receive's buffer, as far as the buffer reaches. The result of the receive.
#[inline]
pub(crate) fn take_whole(
    data: &TypedBuffer,
    source: Rank,
    tag: Tag,
    payload: Payload<'_>,
) -> Result<Status, Error> {
    let bytes = payload.len().min(data.packed_bytes());
    data.unpack(0, payload.part(0, bytes));
    let status = Status { source: Some(source), tag, bytes: bytes as u64, cancelled: false };
    outcome(status, payload.len() as u64)
}

/// The result of a receive that received `status.bytes` of `total`.
pub(crate) fn outcome(status: Status, total: u64) -> Result<Status, Error> {
    if total > status.bytes { Err(Error::Truncated(status)) } else { Ok(status) }
}
