// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the shell above holds of an operation: a [`Request`], and what became of it.

use crate::{Detail, Error};
use mend_base::{Key, Slab};
use mend_pml::Status;

/// An operation under way: which table, which entry, and its generation. A handle that outlived its request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Request {
    /// A send or a receive.
    PointToPoint(Key),
    /// A collective operation, or the making of a communicator.
    Collective(Key),
    /// One that was done when it was started, and is kept for the user's handle.
    Completed(Key),
}

/// A communicator of this process's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct CommKey(pub Key);

/// What starting an operation gave.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Started {
    /// It is done already; no request was made.
    Done(Status),
    /// It goes on; poll it, then release it.
    Running(Request),
}

/// Where an operation stands.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum State {
    /// It goes on.
    Running,
    /// A receive from any source, a possible sender of which failed (`MPI_ERR_PROC_FAILED_PENDING`): it goes on once the
    /// failure is acknowledged.
    PendingFailure,
    /// It ended, well or badly; its buffer is not written any more.
    Done(Result<Status, Error>),
}

/// A request as a program holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestHandle {
    /// `MPI_REQUEST_NULL`.
    Null,
    /// Complete when it was started, with an empty status; no table holds it.
    Done,
    /// One of the engine's.
    Request(Request),
}

/// Requests that were complete when they were started, kept for the user's handles. A part of the engine; calls nothing.
#[derive(Debug, Default)]
pub(crate) struct CompletedRequests(Slab<(Status, CommKey)>);

impl CompletedRequests {
    /// Keeps one that was started on `comm`.
    pub fn add(&mut self, comm: CommKey, status: Status) -> Result<Request, Error> {
        let key = self.0.try_insert((status, comm)).ok_or_else(|| Error::of(Detail::NoMemory))?;
        Ok(Request::Completed(key))
    }

    // Hot: per poll.
    /// What it says.
    pub fn poll(&self, key: Key) -> State {
        State::Done(self.0.get(key).map(|(status, _)| *status).ok_or_else(no_such_request))
    }

    /// Its communicator.
    pub fn communicator_of(&self, key: Key) -> Option<CommKey> {
        self.0.get(key).map(|(_, comm)| *comm)
    }

    /// Forgets it. Its communicator, if it was there.
    pub fn release(&mut self, key: Key) -> Option<CommKey> {
        self.0.remove(key).map(|(_, comm)| comm)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// The handle of the request is stale or was never given out.
#[cold]
pub(crate) fn no_such_request() -> Error {
    Error::of(Detail::NoSuchRequest)
}

const KIND_SHIFT: u32 = 30;
const INDEX_MASK: u32 = (1 << KIND_SHIFT) - 1;

impl Request {
    /// As a C handle: generation, kind, index. A generation of a standing entry is odd, so that the value is above
    /// 2^32 and never a predefined handle (those are below 4096).
    pub fn to_bits(self) -> u64 {
        let (kind, key) = match self {
            Request::PointToPoint(key) => (0, key),
            Request::Collective(key) => (1, key),
            Request::Completed(key) => (2, key),
        };
        assert!(key.index <= INDEX_MASK, "2^30 requests do not fit into memory");
        u64::from(key.generation) << 32 | u64::from(kind << KIND_SHIFT | key.index)
    }

    /// What [`to_bits`](Request::to_bits) made. `None` where it made no such value; whether the request stands is seen
    /// when it is used.
    pub fn from_bits(bits: u64) -> Option<Request> {
        let key = key_from_bits(bits, INDEX_MASK)?;
        match bits as u32 >> KIND_SHIFT {
            0 => Some(Request::PointToPoint(key)),
            1 => Some(Request::Collective(key)),
            2 => Some(Request::Completed(key)),
            _ => None,
        }
    }
}

impl CommKey {
    /// As a C handle, which is never a predefined one.
    pub fn to_bits(self) -> u64 {
        u64::from(self.0.generation) << 32 | u64::from(self.0.index)
    }

    /// What [`to_bits`](CommKey::to_bits) made; validated when used.
    pub fn from_bits(bits: u64) -> Option<CommKey> {
        key_from_bits(bits, u32::MAX).map(CommKey)
    }
}

fn key_from_bits(bits: u64, index_mask: u32) -> Option<Key> {
    let generation = (bits >> 32) as u32;
    (generation % 2 == 1).then_some(Key { index: bits as u32 & index_mask, generation })
}

#[cfg(test)]
mod tests {
    use super::{CommKey, CompletedRequests, Request, State};
    use crate::Detail;
    use mend_base::Key;
    use mend_pml::Status;

    const COMM: CommKey = CommKey(Key { index: 3, generation: 1 });

    #[test]
    fn a_completed_request_says_its_status_until_it_is_released() {
        let mut completed = CompletedRequests::default();
        let status = Status { bytes: 5, ..Status::EMPTY };
        let Request::Completed(key) = completed.add(COMM, status).unwrap() else { panic!("it is complete") };
        assert_eq!((completed.poll(key), completed.len()), (State::Done(Ok(status)), 1));
        assert_eq!((completed.communicator_of(key), completed.release(key)), (Some(COMM), Some(COMM)));
        assert_eq!(completed.release(key), None);
        let State::Done(Err(error)) = completed.poll(key) else { panic!("it was released") };
        assert_eq!((error.detail, completed.len()), (Detail::NoSuchRequest, 0));
    }

    #[test]
    fn handles_come_back_as_they_went_and_never_look_predefined() {
        let key = Key { index: 5, generation: 3 };
        for request in [Request::PointToPoint(key), Request::Collective(key), Request::Completed(key)] {
            assert_eq!(Request::from_bits(request.to_bits()), Some(request));
            assert!(request.to_bits() > u64::from(u32::MAX));
        }
        assert_eq!(CommKey::from_bits(CommKey(key).to_bits()), Some(CommKey(key)));
        assert_eq!(Request::from_bits(0x180), None);
        assert_eq!(Request::from_bits(u64::MAX), None);
    }
}
