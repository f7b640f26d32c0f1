// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles of communicators: the predefined handles, and keys of the engine.

use crate::call_error::CallError;
use crate::generated::constants::{COMM_NULL, COMM_SELF, COMM_WORLD};
use crate::handle::Handle;
use mend_comm::Communicator;
use mend_mpi::{CommKey, Detail, Error};
use mend_world::{AbortScope, Engine, World};

/// The handle of a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Comm(pub(crate) Handle);

impl Comm {
    // Hot: per message.
    /// Its key in the engine. The engine checks on use whether the communicator exists.
    #[inline]
    pub(crate) fn key(self, engine: &Engine) -> Result<CommKey, CallError> {
        match self.0 {
            COMM_WORLD => Ok(engine.comm_world()),
            COMM_SELF => Ok(engine.comm_self()),
            handle => CommKey::from_bits(handle as u64).ok_or_else(no_such_communicator),
        }
    }

    /// Its key, if the communicator exists.
    pub(crate) fn existing(self, engine: &Engine) -> Result<CommKey, CallError> {
        let key = self.key(engine)?;
        if engine.communicator(key).is_some() { Ok(key) } else { Err(no_such_communicator()) }
    }

    /// Reads the communicator, if it exists.
    pub(crate) fn read<R>(
        self,
        world: &World,
        read: impl FnOnce(&Communicator) -> R,
    ) -> Result<R, CallError> {
        world.inspect(|engine| {
            let communicator = engine.communicator(self.key(engine)?);
            communicator.map(read).ok_or_else(no_such_communicator)
        })
    }

    /// An error if the communicator does not exist.
    pub(crate) fn check(self, world: &World) -> Result<(), CallError> {
        self.read(world, |_| ())
    }

    /// The handle of a communicator of the engine.
    pub(crate) fn of(engine: &Engine, key: CommKey) -> Comm {
        match key {
            key if key == engine.comm_world() => Comm(COMM_WORLD),
            key if key == engine.comm_self() => Comm(COMM_SELF),
            key => Comm::created(Some(key)),
        }
    }

    /// The abort scope of the communicator's members. Does not enter the engine, since a signal handler may call it; for a handle that
    /// was never issued the scope is the job.
    pub(crate) fn members(self) -> AbortScope {
        match self.0 {
            COMM_WORLD => AbortScope::Job,
            COMM_SELF => AbortScope::ThisProcess,
            handle => CommKey::from_bits(handle as u64).map_or(AbortScope::Job, AbortScope::Members),
        }
    }

    /// The handle of a created communicator; `None`: this process is not a member.
    pub(crate) fn created(key: Option<CommKey>) -> Comm {
        Comm(key.map_or(COMM_NULL, |key| key.to_bits() as Handle))
    }
}

#[cold]
fn no_such_communicator() -> CallError {
    Error::of(Detail::NoSuchCommunicator).into()
}
