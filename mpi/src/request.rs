// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests: what the layer above has of an operation, and the state of the operation.

use crate::{Detail, Error};
use mend_base::{Key, Slab};
use mend_pml::Status;

/// A request: the table and the key of its entry. A request that was released is stale, and refused by its generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Request {
    /// A send or a receive.
    PointToPoint(Key),
    /// A collective operation.
    Collective(Key),
    /// An operation that had ended at its start, with a status, for a handle of the program.
    EndedAtStart(Key),
    /// An agreement, or a shrink.
    Agreement(Key),
    /// The creation of a communicator.
    Creation(Key),
}

/// The key of a communicator in the table of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct CommKey(pub Key);

/// The result of the start of an operation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Started {
    /// The operation has ended; it has no request.
    Done(Status),
    /// The operation runs; poll its request until it is done, then release it.
    Running(Request),
}

/// The state of an operation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum State {
    /// The operation runs.
    Running,
    /// The operation is a receive from any source, and a possible sender has failed (`MPI_ERR_PROC_FAILED_PENDING`). It goes on once
    /// the failure is acknowledged.
    PendingFailure,
    /// The operation has ended with this result; its buffer is not read or written any more (I7).
    Done(Result<Status, Error>),
}

/// The handle of a request, as a program has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestHandle {
    /// `MPI_REQUEST_NULL`.
    Null,
    /// As [`Request::EndedAtStart`], with an empty status: no table has an entry for it.
    EndedAtStart,
    /// A request of the engine.
    Request(Request),
}

/// Requests of operations that had ended at their start, with their communicators. A part of the engine; calls no other part.
#[derive(Debug, Default)]
pub(crate) struct RequestsEndedAtStart(Slab<(Status, CommKey)>);

impl RequestsEndedAtStart {
    /// Adds one that was started on `comm`.
    pub fn add(&mut self, comm: CommKey, status: Status) -> Result<Request, Error> {
        let key = self.0.try_insert((status, comm)).ok_or_else(|| Error::of(Detail::NoMemory))?;
        Ok(Request::EndedAtStart(key))
    }

    // Hot: per message.
    /// Sees to it that the next one finds memory.
    #[inline]
    pub fn reserve(&mut self) -> Result<(), Error> {
        let found = self.0.has_empty_slot() || self.0.try_reserve(1);
        if found { Ok(()) } else { Err(Error::of(Detail::NoMemory)) }
    }

    // Hot: per poll.
    /// Its status; an error if it was released.
    pub fn poll(&self, key: Key) -> State {
        State::Done(self.0.get(key).map(|(status, _)| *status).ok_or_else(no_such_request))
    }

    /// Its communicator.
    pub fn communicator_of(&self, key: Key) -> Option<CommKey> {
        self.0.get(key).map(|(_, comm)| *comm)
    }

    /// Removes it. Returns its communicator, if it was in the table.
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

const KIND_SHIFT: u32 = 29;
const INDEX_MASK: u32 = (1 << KIND_SHIFT) - 1;

impl Request {
    /// As a C handle: generation, kind, index. The generation of an entry is odd, so that the value is above 2^32 and never that of
    /// a predefined handle (those are below 4096).
    pub fn to_bits(self) -> u64 {
        let (kind, key) = match self {
            Request::PointToPoint(key) => (0, key),
            Request::Collective(key) => (1, key),
            Request::EndedAtStart(key) => (2, key),
            Request::Agreement(key) => (3, key),
            Request::Creation(key) => (4, key),
        };
        assert!(key.index <= INDEX_MASK, "2^29 requests do not fit into memory");
        u64::from(key.generation) << 32 | u64::from(kind << KIND_SHIFT | key.index)
    }

    /// The inverse of [`to_bits`](Request::to_bits). `None`: no request has this value. Whether the request is stale is checked when
    /// it is used.
    pub fn from_bits(bits: u64) -> Option<Request> {
        let key = key_from_bits(bits, INDEX_MASK)?;
        match bits as u32 >> KIND_SHIFT {
            0 => Some(Request::PointToPoint(key)),
            1 => Some(Request::Collective(key)),
            2 => Some(Request::EndedAtStart(key)),
            3 => Some(Request::Agreement(key)),
            4 => Some(Request::Creation(key)),
            _ => None,
        }
    }
}

impl CommKey {
    /// As a C handle, which is never that of a predefined object.
    pub fn to_bits(self) -> u64 {
        u64::from(self.0.generation) << 32 | u64::from(self.0.index)
    }

    /// The inverse of [`to_bits`](CommKey::to_bits). Whether the key is stale is checked when it is used.
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
    use super::{CommKey, Request, RequestsEndedAtStart, State};
    use crate::Detail;
    use mend_base::Key;
    use mend_pml::Status;

    const COMM: CommKey = CommKey(Key { index: 3, generation: 1 });

    #[test]
    fn a_request_that_ended_at_its_start_has_its_status_until_it_is_released() {
        let mut ended = RequestsEndedAtStart::default();
        let status = Status { bytes: 5, ..Status::EMPTY };
        let Request::EndedAtStart(key) = ended.add(COMM, status).unwrap() else {
            panic!("it ended at its start")
        };
        assert_eq!((ended.poll(key), ended.len()), (State::Done(Ok(status)), 1));
        assert_eq!((ended.communicator_of(key), ended.release(key)), (Some(COMM), Some(COMM)));
        assert_eq!(ended.release(key), None);
        let State::Done(Err(error)) = ended.poll(key) else { panic!("it was released") };
        assert_eq!((error.detail, ended.len()), (Detail::NoSuchRequest, 0));
    }

    #[test]
    fn handles_survive_a_round_trip_and_are_never_predefined() {
        let key = Key { index: 5, generation: 3 };
        let kinds = [
            Request::PointToPoint,
            Request::Collective,
            Request::EndedAtStart,
            Request::Agreement,
            Request::Creation,
        ];
        for request in kinds.map(|kind| kind(key)) {
            assert_eq!(Request::from_bits(request.to_bits()), Some(request));
            assert!(request.to_bits() > u64::from(u32::MAX));
        }
        assert_eq!(CommKey::from_bits(CommKey(key).to_bits()), Some(CommKey(key)));
        assert_eq!(Request::from_bits(0x180), None);
        assert_eq!(Request::from_bits(u64::MAX), None);
    }
}
