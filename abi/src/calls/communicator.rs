// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Communicators (MPI-5.0 §7.4-7.8).

use crate::argument_error::ArgumentError;
use crate::call_error::{CallError, ErrorObject};
use crate::check;
use crate::comm::Comm;
use crate::generated::constants::{
    APPNUM, COMM_NULL, COMM_TYPE_HW_GUIDED, COMM_TYPE_HW_UNGUIDED, COMM_TYPE_RESOURCE_GUIDED,
    COMM_TYPE_SHARED, COMM_WORLD, CONGRUENT, FT, HOST, IDENT, INFO_NULL, IO, KEYVAL_INVALID, LASTUSEDCODE,
    MAX_OBJECT_NAME, PROC_NULL, REQUEST_NULL, SIMILAR, TAG_UB, UNDEFINED, UNEQUAL, UNIVERSE_SIZE,
    WTIME_IS_GLOBAL,
};
use crate::handle::Handle;
use crate::info::{self, Info};
use crate::pointer::{Out, OutText, Text};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, Ordering};
use mend_base::Tag;
use mend_comm::{Communicator, Congruence, Group};
use mend_mpi::{CommunicatorCreation, Detail, Error, Hints, Shared, Started};
use mend_runtime::environment::APP_NUMBER;
use mend_world::{Engine, World};
use std::sync::{Arc, OnceLock};

pub(crate) fn rank(world: &World, comm: Comm, rank: Out<c_int>) -> Result<(), CallError> {
    rank.set(comm.read(world, |communicator| communicator.rank.0 as c_int)?);
    Ok(())
}

pub(crate) fn size(world: &World, comm: Comm, size: Out<c_int>) -> Result<(), CallError> {
    size.set(comm.read(world, |communicator| communicator.size() as c_int)?);
    Ok(())
}

pub(crate) fn test_inter(world: &World, comm: Comm, flag: Out<c_int>) -> Result<(), CallError> {
    flag.set(c_int::from(comm.read(world, Communicator::is_inter)?));
    Ok(())
}

pub(crate) fn remote_size(world: &World, comm: Comm, size: Out<c_int>) -> Result<(), CallError> {
    size.set(remote(world, comm)?.size() as c_int);
    Ok(())
}

pub(crate) fn remote_group(world: &World, comm: Comm, group: Out<Handle>) -> Result<(), CallError> {
    group.set(super::group::insert(remote(world, comm)?));
    Ok(())
}

/// The remote group of an intercommunicator.
fn remote(world: &World, comm: Comm) -> Result<Arc<Group>, CallError> {
    let remote = comm
        .read(world, |communicator| communicator.remote.as_ref().map(|remote| Arc::clone(remote.group())))?;
    remote.ok_or(Error::of(Detail::Intracommunicator).into())
}

/// The peer communicator and the rank of the other leader are significant at the leader only (MPI-5.0 §7.6.2). Its group waits for the
/// leader, so a leader that is given none takes part, too, and then reports that.
pub(crate) fn create_inter(
    world: &World,
    local: Comm,
    leader: c_int,
    peer_comm: Comm,
    other_leader: c_int,
    tag: Tag,
    made: Out<Handle>,
) -> Result<(), CallError> {
    let mut refused = None;
    let result = make(world, made, |engine| {
        let key = local.existing(engine)?;
        let leader = check::leader(leader)?;
        let is_leader = engine.communicator(key).is_some_and(|local| local.rank == leader);
        let mut given = |engine: &Engine| {
            let other = peer_comm.existing(engine).and_then(|key| Ok((key, check::leader(other_leader)?)));
            other.map_err(|error| {
                refused = Some(error);
                Error::of(Detail::CreationRefused)
            })
        };
        let other = is_leader.then(|| given(engine));
        Ok(engine.create_inter(key, leader, other, tag)?)
    });
    refused.map_or(result, Err)
}

/// The group with `high` comes last; its value is the same at all members of a group (MPI-5.0 §7.6.2).
pub(crate) fn merge(world: &World, comm: Comm, high: c_int, made: Out<Handle>) -> Result<(), CallError> {
    make(world, made, |engine| Ok(engine.merge(comm.key(engine)?, high != 0)?))
}

pub(crate) fn group(world: &World, comm: Comm, group: Out<Handle>) -> Result<(), CallError> {
    let members = comm.read(world, |communicator| Arc::clone(&communicator.group))?;
    group.set(super::group::insert(members));
    Ok(())
}

pub(crate) fn compare(world: &World, one: Comm, other: Comm, result: Out<c_int>) -> Result<(), CallError> {
    let other = other.read(world, Communicator::clone)?;
    let congruence = one.read(world, |one| one.compare(&other))?;
    result.set(match congruence {
        Congruence::Identical => IDENT,
        Congruence::Congruent => CONGRUENT,
        Congruence::Similar => SIMILAR,
        Congruence::Unequal => UNEQUAL,
    });
    Ok(())
}

/// Starts the creation of a communicator, and waits for it.
fn make(
    world: &World,
    made: Out<Handle>,
    start: impl FnOnce(&mut Engine) -> Result<Started, CallError>,
) -> Result<(), CallError> {
    made.set(COMM_NULL);
    let Started::Running(request) = world.with(start)? else { return Ok(()) };
    let mut creation = CommunicatorCreation::new(request);
    let key = world.wait(|engine| creation.poll(engine))?;
    made.set(Comm::created(key).0);
    Ok(())
}

pub(crate) fn dup(world: &World, comm: Comm, made: Out<Handle>) -> Result<(), CallError> {
    make(world, made, |engine| Ok(engine.dup(comm.key(engine)?)?))
}

/// The new communicator has the hints of the info object, and not those of `comm` (MPI-5.0 §7.4.2).
pub(crate) fn dup_with_info(
    world: &World,
    comm: Comm,
    info: Handle,
    made: Out<Handle>,
) -> Result<(), CallError> {
    made.set(COMM_NULL);
    let hints = Hints::from_pairs(info::given(info)?.pairs());
    make(world, made, |engine| Ok(engine.dup_with_hints(comm.key(engine)?, hints, None)?))
}

/// The handle of the communicator is written when the operation ends.
fn make_later(
    world: &World,
    comm: Comm,
    hints: Option<Hints>,
    (made, request): (Out<Handle>, Out<Handle>),
) -> Result<(), CallError> {
    made.set(COMM_NULL);
    request.set(REQUEST_NULL);
    let started = world.with(|engine| -> Result<Started, CallError> {
        let key = comm.key(engine)?;
        let hints = hints.map_or_else(|| engine.hints(key), Ok)?;
        Ok(engine.dup_with_hints(key, hints, Some(made.memory()))?)
    })?;
    if let Started::Running(started) = started {
        request.set(started.to_bits() as Handle);
    }
    Ok(())
}

pub(crate) fn idup(
    world: &World,
    comm: Comm,
    made: Out<Handle>,
    request: Out<Handle>,
) -> Result<(), CallError> {
    make_later(world, comm, None, (made, request))
}

pub(crate) fn idup_with_info(
    world: &World,
    comm: Comm,
    info: Handle,
    made: Out<Handle>,
    request: Out<Handle>,
) -> Result<(), CallError> {
    made.set(COMM_NULL);
    request.set(REQUEST_NULL);
    let hints = Hints::from_pairs(info::given(info)?.pairs());
    make_later(world, comm, Some(hints), (made, request))
}

pub(crate) fn split(
    world: &World,
    comm: Comm,
    color: c_int,
    key: c_int,
    made: Out<Handle>,
) -> Result<(), CallError> {
    made.set(COMM_NULL);
    let color = match color {
        UNDEFINED => None,
        color => Some(u32::try_from(color).map_err(|_| ArgumentError::Split)?),
    };
    make(world, made, |engine| Ok(engine.split(comm.key(engine)?, color, key)?))
}

/// The new communicators have the hints of the info object. A process that shares nothing of the kind gets no communicator, as one that
/// passes MPI_UNDEFINED.
pub(crate) fn split_type(
    world: &World,
    comm: Comm,
    split_type: c_int,
    key: c_int,
    info: Handle,
    made: Out<Handle>,
) -> Result<(), CallError> {
    made.set(COMM_NULL);
    let info = info::given(info)?;
    let shared = match split_type {
        UNDEFINED => None,
        COMM_TYPE_SHARED => Some(Shared::Memory),
        // Mend knows no hardware resource within a host.
        COMM_TYPE_HW_UNGUIDED => None,
        COMM_TYPE_HW_GUIDED => by_hardware(&info),
        COMM_TYPE_RESOURCE_GUIDED => by_hardware(&info).or_else(|| by_process_set(&info)),
        _ => return Err(ArgumentError::SplitType.into()),
    };
    let hints = Hints::from_pairs(info.pairs());
    make(world, made, |engine| Ok(engine.split_by(comm.key(engine)?, shared, key, hints)?))
}

/// The hardware resource that an info object names: `mpi_shared_memory` is the one that the standard defines.
fn by_hardware(info: &Info) -> Option<Shared> {
    (info.get(b"mpi_hw_resource_type")? == b"mpi_shared_memory").then_some(Shared::Memory)
}

/// The process set that an info object names: one of the two of the standard (MPI-5.0 §11.3.2).
fn by_process_set(info: &Info) -> Option<Shared> {
    match info.get(b"mpi_pset_name")? {
        b"mpi://WORLD" => Some(Shared::Memory),
        b"mpi://SELF" => Some(Shared::Nothing),
        _ => None,
    }
}

/// Only processes of the group call it (Row CC2).
pub(crate) fn create_group(
    world: &World,
    comm: Comm,
    group: Handle,
    tag: Tag,
    made: Out<Handle>,
) -> Result<(), CallError> {
    made.set(COMM_NULL);
    let members = super::group::group_of(group)?;
    make(world, made, |engine| Ok(engine.create_group(comm.key(engine)?, &members, tag)?))
}

pub(crate) fn create(world: &World, comm: Comm, group: Handle, made: Out<Handle>) -> Result<(), CallError> {
    made.set(COMM_NULL);
    let members = super::group::group_of(group)?;
    make(world, made, |engine| Ok(engine.create(comm.key(engine)?, &members)?))
}

/// Local, so it completes also if members have failed (Trap 11).
pub(crate) fn free(world: &World, comm: Out<Handle>) -> Result<(), CallError> {
    let handle = comm.get();
    let freed = world.with(|engine| -> Result<(), CallError> { Ok(engine.free(Comm(handle).key(engine)?)?) });
    freed.map_err(|error| error.on(ErrorObject::Comm(handle)))?;
    comm.set(COMM_NULL);
    Ok(())
}

/// As [`free`], after all pending operations on the communicator have ended at this process. It waits for no other process, so for none
/// that has failed (Row CC4).
pub(crate) fn disconnect(world: &World, comm: Out<Handle>) -> Result<(), CallError> {
    let handle = comm.get();
    let ended = world.wait(|engine| {
        let has_pending = Comm(handle).key(engine).and_then(|key| Ok(engine.has_pending_operations(key)?));
        match has_pending {
            Ok(true) => None,
            Ok(false) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    });
    ended.map_err(|error| error.on(ErrorObject::Comm(handle)))?;
    free(world, comm)
}

pub(crate) fn get_parent(_world: &World, parent: Out<Handle>) -> Result<(), CallError> {
    parent.set(COMM_NULL);
    Ok(())
}

pub(crate) fn set_name(world: &World, comm: Comm, name: Text) -> Result<(), CallError> {
    let name = name.bytes(MAX_OBJECT_NAME as usize - 1);
    world.with(|engine| Ok(engine.set_name(comm.key(engine)?, &name)?))
}

pub(crate) fn get_name(
    world: &World,
    comm: Comm,
    name: OutText,
    length: Out<c_int>,
) -> Result<(), CallError> {
    length.set(world.inspect(|engine| Ok::<_, CallError>(name.set_bytes(engine.name(comm.key(engine)?)?)))?);
    Ok(())
}

/// Sets the hints that the info object has; the others stay (MPI-5.0 §7.4.4). Keys and values that Mend does not know, and assertions
/// of which it makes no use (`mpi_assert_...`), are ignored.
pub(crate) fn set_info(world: &World, comm: Comm, info: Handle) -> Result<(), CallError> {
    let info = info::given(info)?;
    world.with(|engine| {
        let key = comm.key(engine)?;
        let hints = engine.hints(key)?.updated(info.pairs());
        Ok(engine.set_hints(key, hints)?)
    })
}

/// Row IK4: all hints that Mend knows, also those that have their defaults (MPI-5.0 §7.4.4).
pub(crate) fn get_info(world: &World, comm: Comm, used: Out<Handle>) -> Result<(), CallError> {
    used.set(INFO_NULL);
    let hints = world.inspect(|engine| Ok::<_, CallError>(engine.hints(comm.key(engine)?)?))?;
    let mut info = Info::default();
    for (key, value) in hints.pairs() {
        info.set(key.as_bytes(), value.as_bytes())?;
    }
    super::info::give(info, used)
}

/// The attributes of the environment (MPI-5.0 §9.1.2). The program gets the address of an int of the library.
static TAG_UPPER_BOUND: c_int = c_int::MAX;
static ANY_RANK_DOES_IO: c_int = crate::generated::constants::ANY_SOURCE;
static NO_HOST: c_int = PROC_NULL;
static CLOCKS_DIFFER: c_int = 0;
static TOLERATES_FAILURES: c_int = 1;
static UNIVERSE: AtomicI32 = AtomicI32::new(0);
static LAST_USED_CODE: AtomicI32 = AtomicI32::new(0);

/// The number of this program on the command line of `mpiexec`, if the launcher gives it (MPI-5.0 §11.10.3).
fn application_number() -> Option<&'static c_int> {
    static NUMBER: OnceLock<Option<c_int>> = OnceLock::new();
    NUMBER.get_or_init(|| std::env::var(APP_NUMBER).ok()?.parse().ok()).as_ref()
}

pub(crate) fn get_attr(
    world: &World,
    comm: Comm,
    key: c_int,
    value: Out<*mut c_void>,
    flag: Out<c_int>,
) -> Result<(), CallError> {
    comm.check(world)?;
    flag.set(0);
    if key == KEYVAL_INVALID {
        return Err(ArgumentError::Keyval.into());
    }
    // The standard attaches predefined attributes to MPI_COMM_WORLD, and a duplicate has copies. Here every communicator has them.
    let address: *const c_int = match key {
        TAG_UB => &raw const TAG_UPPER_BOUND,
        IO => &raw const ANY_RANK_DOES_IO,
        HOST => &raw const NO_HOST,
        WTIME_IS_GLOBAL => &raw const CLOCKS_DIFFER,
        UNIVERSE_SIZE => {
            let size = Comm(COMM_WORLD).read(world, |communicator| communicator.size() as i32)?;
            UNIVERSE.store(size, Ordering::Relaxed);
            UNIVERSE.as_ptr()
        }
        LASTUSEDCODE => {
            let last = crate::error_class::with_codes(|codes| codes.last_used());
            LAST_USED_CODE.store(last, Ordering::Relaxed);
            LAST_USED_CODE.as_ptr()
        }
        APPNUM => match application_number() {
            Some(number) => core::ptr::from_ref(number),
            None => return Ok(()),
        },
        // Row CN3: the attribute is not set in a job that the first failure ends.
        FT => match world.inspect(|engine| engine.is_fault_tolerant()) {
            true => &raw const TOLERATES_FAILURES,
            false => return Ok(()),
        },
        _ => return Err(ArgumentError::Keyval.into()),
    };
    value.set(address.cast_mut().cast::<c_void>());
    flag.set(1);
    Ok(())
}
