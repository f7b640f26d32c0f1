// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations: what callers see of them (handles, states, results), and their entries.

use crate::list::{Linked, Links};
use crate::matcher::POSTED;
use core::fmt;
use core::num::NonZero;
use mend_base::{Key, Rank, Source, Tag, TagSelector};
use mend_datatype::Typed;
use mend_transport::{Cause, Payload, Stream};

/// An operation that was not over when its call returned. Stale ones are refused (I4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Request(pub Key);

/// A sleeper that is woken when a request ends: a number that whoever sleeps has chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiter(pub NonZero<u32>);

/// What a call to send or receive has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Started {
    /// It is over, and took no request.
    Done(Status),
    /// It goes on. Also where it is over already, but in error: the error belongs to the wait (Row PP3).
    Running(Request),
}

/// How far an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Neither over nor in doubt.
    Running,
    /// A receive from anybody while somebody's failure is not acknowledged (`MPI_ERR_PROC_FAILED_PENDING`).
    Stalled,
    /// Over; its buffer is silent (I7).
    Done(Result<Status, Error>),
}

/// What `MPI_Status` xoff received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Who sent it; `None`: `MPI_PROC_NULL`, and the empty status (whose source the caller reads as any).
    pub source: Option<Rank>,
    /// Its label.
    pub tag: Tag,
    /// How many packed bytes were received.
    pub bytes: u64,
    /// Taken back before it matched.
    pub cancelled: bool,
}

impl Status {
    /// Of sends, and of whatever has nothing to say (MPI-5.0 §3.7.3). The tag is `MPI_ANY_TAG`'s place, below all tags.
    pub const EMPTY: Status = Status { source: None, tag: Tag(-1), bytes: 0, cancelled: false };
}

/// Why an operation ended without doing what it was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The message was longer than the buffer (`MPI_ERR_TRUNCATE`); the status names it, with the bytes that were kept.
    Truncated(Status),
    /// The peer at this rank failed.
    ProcFailed(Rank),
    /// The peer at this rank has finalized: nobody is left who could complete it.
    PeerLeft(Rank),
    /// The peer at this rank cannot be reached.
    Unreachable(Rank, Cause),
    /// The peer at this rank has freed the communicator, and will never receive it.
    PeerFreed(Rank),
    /// The communicator has no such rank.
    NoSuchRank(Rank),
    /// No such channel stands.
    NoSuchChannel,
    /// No such request stands.
    NoSuchRequest,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Truncated(_) => write!(out, "the message is longer than the buffer"),
            Error::ProcFailed(rank) => write!(out, "rank {} failed", rank.0),
            Error::PeerLeft(rank) => write!(out, "rank {} has finalized and will never answer", rank.0),
            Error::Unreachable(rank, cause) => write!(out, "rank {} cannot be reached: {cause:?}", rank.0),
            Error::PeerFreed(rank) => write!(out, "rank {} has freed the communicator", rank.0),
            Error::NoSuchRank(rank) => write!(out, "the communicator has no rank {}", rank.0),
            Error::NoSuchChannel => write!(out, "the communicator is closed"),
            Error::NoSuchRequest => write!(out, "there is no such request"),
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
    /// As standard: the caller's word that a receive is posted buys nothing here.
    Ready,
}

/// Why a peer will never answer again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// It has left MPI in order; what it sent has been handed up.
    Finalized,
    /// It is dead, and was severed.
    Failed,
    /// There is no way to it.
    Unreachable(Cause),
}

impl Gone {
    /// What operations that need the peer at `rank` end with.
    pub fn error(self, rank: Rank) -> Error {
        match self {
            Gone::Finalized => Error::PeerLeft(rank),
            Gone::Failed => Error::ProcFailed(rank),
            Gone::Unreachable(cause) => Error::Unreachable(rank, cause),
        }
    }
}

/// An operation that is not over, or whose end nobody has asked for yet.
///
/// ```text
///   sends      Queued ──room──▶ Done (eager)            receives   Posted ──eager──▶ Done
///                └──room──▶ RtsSent ──MATCHED──▶ Done                └──offer──▶ CtsSent ──last chunk──▶ Done
///                              ├──ACCEPT──▶ Streaming ──last chunk──▶ Done
///                              └──REFUSED, of a collective──▶ RefusedSend
/// ```
/// Death of the peer and giving up ([`abandon`](crate::Ob1::abandon)) end every state; cancel ends `Posted`; progress moves
/// the others. Nothing but these two ends `RefusedSend`, and a receive that is `CtsSent` a stream that was cut.
#[derive(Debug)]
pub(crate) struct RequestEntry {
    /// Empty once it is over: its buffer is silent (I7).
    pub(crate) data: Typed,
    /// Where it is counted as active.
    pub(crate) channel: Key,
    pub(crate) phase: Phase,
    pub(crate) links: Links,
    /// `MPI_Request_free` was called: it vanishes when it is over.
    pub(crate) detached: bool,
    /// Who sleeps until it is over.
    pub(crate) waiter: Option<Waiter>,
}

const _: () = assert!(size_of::<RequestEntry>() <= 256);

/// How far an operation is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    /// A send that waits for a connection, for room, or for its turn behind another.
    Queued { to: Rank, tag: Tag, mode: SendMode },
    /// A send that waits for its match; `offer`: its bytes have not gone.
    RtsSent { to: Rank, offer: bool },
    /// A send of a collective operation that nobody will match there: it waits for the news of why.
    RefusedSend { to: Rank },
    /// A send whose bytes go as they are asked for.
    Streaming { to: Rank, stream: Stream, sent: u64, wanted: u64, chunk: u32 },
    /// A receive without a match.
    Posted { from: Source, tag: TagSelector, stamp: u64 },
    /// A receive that has matched the offer `key` of `total` bytes; the status says how many it takes.
    CtsSent { from: Rank, key: Key, status: Status, total: u64 },
    /// Over.
    Done(Result<Status, Error>),
}

impl Phase {
    /// Whether something of it is still to be sent.
    pub(crate) fn is_send(&self) -> bool {
        matches!(self, Phase::Queued { .. } | Phase::RtsSent { .. } | Phase::Streaming { .. })
    }
}

impl Linked<POSTED> for RequestEntry {
    fn links(&self) -> &Links {
        &self.links
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

// Hot: per message.
/// Copies a message that came whole to the receive's buffer, as much as it xoff received; what the receive ends with.
#[inline]
pub(crate) fn take_whole(
    data: &Typed,
    source: Rank,
    tag: Tag,
    payload: Payload<'_>,
) -> Result<Status, Error> {
    let kept = payload.len().min(data.packed_bytes());
    data.unpack(0, payload.part(0, kept));
    let status = Status { source: Some(source), tag, bytes: kept as u64, cancelled: false };
    outcome(status, payload.len() as u64)
}

/// What a receive ends with that kept `status.bytes` of `total`.
pub(crate) fn outcome(status: Status, total: u64) -> Result<Status, Error> {
    if total > status.bytes { Err(Error::Truncated(status)) } else { Ok(status) }
}
