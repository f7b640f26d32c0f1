// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles: predefined ones are the numbers of the ABI, below 0x1000. Others are a generation (odd while the object exists, so
//! never zero) above 32 bits of index (I4). Each is looked up when it is used; a stale one is an error.

use crate::failure::Failure;
use crate::generated::constants::{COMM_NULL, COMM_SELF, COMM_WORLD};
use mend_base::Key;
use mend_mpi::{CommKey, Detail, Error};
use mend_world::{AbortScope, Engine};

/// A handle as C passes it: as wide as a pointer, never one.
pub(crate) type Handle = usize;

/// Predefined handles are below this.
pub(crate) const PREDEFINED_END: Handle = 0x1000;

/// The handle of all requests that completed when they were started and whose status is empty, such as sends. It takes no slot in
/// any table. An internal number between `MPI_REQUEST_NULL` and the datatypes, which the ABI leaves free.
pub(crate) const REQUEST_DONE: Handle = 0x181;

/// As [`REQUEST_DONE`], for receives from `MPI_PROC_NULL`, whose status differs.
pub(crate) const REQUEST_DONE_PROC_NULL: Handle = 0x182;

/// The handle of an entry of a table.
pub(crate) fn of_key(key: Key) -> Handle {
    (key.generation as usize) << 32 | key.index as usize
}

/// The table entry that a handle names, if it is not predefined.
pub(crate) fn key(handle: Handle) -> Option<Key> {
    let generation = (handle >> 32) as u32;
    (generation % 2 == 1).then_some(Key { index: handle as u32, generation })
}

/// A communicator as the user named it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Comm(pub(crate) Handle);

impl Comm {
    // Hot: per message.
    /// Its key in the engine. The engine checks on use whether the communicator exists.
    #[inline]
    pub(crate) fn key(self, engine: &Engine) -> Result<CommKey, Failure> {
        match self.0 {
            COMM_WORLD => Ok(engine.world()),
            COMM_SELF => Ok(engine.myself()),
            handle => CommKey::from_bits(handle as u64).ok_or_else(no_such_communicator),
        }
    }

    /// Its key, if the communicator exists.
    pub(crate) fn existing(self, engine: &Engine) -> Result<CommKey, Failure> {
        let key = self.key(engine)?;
        if engine.communicator(key).is_some() { Ok(key) } else { Err(no_such_communicator()) }
    }

    /// The abort scope of the communicator's members. Does not enter the engine, since a signal handler may call it; for a handle that
    /// was never issued the scope is the job.
    pub(crate) fn members(self) -> AbortScope {
        match self.0 {
            COMM_WORLD => AbortScope::Everybody,
            COMM_SELF => AbortScope::Myself,
            handle => CommKey::from_bits(handle as u64).map_or(AbortScope::Everybody, AbortScope::Members),
        }
    }

    /// The handle of a created communicator; `None`: this process is not a member.
    pub(crate) fn created(key: Option<CommKey>) -> Handle {
        key.map_or(COMM_NULL, |key| key.to_bits() as Handle)
    }
}

#[cold]
fn no_such_communicator() -> Failure {
    Error::of(Detail::NoSuchCommunicator).into()
}

#[cfg(test)]
mod tests {
    use super::{PREDEFINED_END, key, of_key};
    use mend_base::Key;

    #[test]
    fn our_handles_come_back_as_they_went_and_are_never_predefined() {
        for place in [Key { index: 0, generation: 1 }, Key { index: u32::MAX, generation: u32::MAX }] {
            assert_eq!(key(of_key(place)), Some(place));
            assert!(of_key(place) >= PREDEFINED_END);
        }
        assert_eq!(key(0x101), None);
        assert_eq!(key(0), None);
        assert_eq!(key(2 << 32), None);
    }
}
