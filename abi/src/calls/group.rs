// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups (MPI-5.0 §7.3): values of the crate `comm`, with handles. The handle of an empty result is `MPI_GROUP_EMPTY`.

use crate::argument_error::ArgumentError;
use crate::call_error::CallError;
use crate::comm::Comm;
use crate::generated::constants::{
    COMM_WORLD, GROUP_EMPTY, GROUP_NULL, IDENT, PROC_NULL, SIMILAR, UNDEFINED, UNEQUAL,
};
use crate::handle::{self, Handle, key};
use crate::pointer::{Array, Out, OutArray};
use core::ffi::c_int;
use mend_base::{Rank, Slab};
use mend_comm::{Comparison, Group, GroupError};
use mend_mpi::AgreedGroup;
use mend_world::World;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

/// The groups for which the program has handles. Only that of an agreement in progress is not set.
static GROUPS: LazyLock<Mutex<Slab<AgreedGroup>>> = LazyLock::new(Mutex::default);

fn groups() -> MutexGuard<'static, Slab<AgreedGroup>> {
    // A panic under the lock was a bug that was reported; the table is consistent, since every change of it is one step.
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new handle of a group.
pub(super) fn insert(group: Arc<Group>) -> Handle {
    insert_agreed(Arc::new(OnceLock::from(group)))
}

/// A new handle of a group on which the members of a communicator agree.
pub(super) fn insert_agreed(group: AgreedGroup) -> Handle {
    handle::of_key(groups().insert(group))
}

/// The group with this handle.
pub(crate) fn group_of(handle: Handle) -> Result<Arc<Group>, CallError> {
    if handle == GROUP_EMPTY {
        return Ok(Arc::default());
    }
    let found = key(handle).and_then(|key| groups().get(key)?.get().cloned());
    found.ok_or_else(|| ArgumentError::Group.into())
}

/// Writes the handle of a group for the program.
pub(super) fn set_group(group: Group, out: Out<Handle>) {
    out.set(match group.is_empty() {
        true => GROUP_EMPTY,
        false => insert(Arc::new(group)),
    });
}

impl From<GroupError> for CallError {
    fn from(_: GroupError) -> Self {
        ArgumentError::GroupRank.into()
    }
}

pub(crate) fn size(_world: &World, group: Handle, size: Out<c_int>) -> Result<(), CallError> {
    size.set(group_of(group)?.size() as c_int);
    Ok(())
}

pub(crate) fn rank(world: &World, group: Handle, rank: Out<c_int>) -> Result<(), CallError> {
    let group = group_of(group)?;
    let me = Comm(COMM_WORLD).read(world, |world| world.peer(world.rank))?;
    let found = me.and_then(|me| group.rank_of(me));
    rank.set(found.map_or(UNDEFINED, |rank| rank.0 as c_int));
    Ok(())
}

pub(crate) fn compare(
    _world: &World,
    one: Handle,
    other: Handle,
    result: Out<c_int>,
) -> Result<(), CallError> {
    result.set(match group_of(one)?.compare(&*group_of(other)?) {
        Comparison::Identical => IDENT,
        Comparison::Similar => SIMILAR,
        Comparison::Unequal => UNEQUAL,
    });
    Ok(())
}

pub(crate) fn translate_ranks(
    _world: &World,
    from: Handle,
    count: usize,
    ranks: Array<c_int>,
    to: Handle,
    out: OutArray<c_int>,
) -> Result<(), CallError> {
    let (from, to) = (group_of(from)?, group_of(to)?);
    out.check(count)?;
    let ranks = ranks.copy(count)?;
    // MPI_PROC_NULL is translated to itself (MPI-5.0 §7.3.1).
    let real = checked(ranks.iter().copied().filter(|&rank| rank != PROC_NULL))?;
    let mut translated = from.translate(&real, &to)?.into_iter();
    for (index, &rank) in ranks.iter().enumerate() {
        let rank = match rank {
            PROC_NULL => PROC_NULL,
            _ => translated.next().flatten().map_or(UNDEFINED, |rank| rank.0 as c_int),
        };
        out.set(index, rank);
    }
    Ok(())
}

/// Different ranks of a group. A count above its size is refused before the array is read.
fn chosen(group: &Group, count: usize, ranks: Array<c_int>) -> Result<Vec<Rank>, CallError> {
    if count > group.size() as usize {
        return Err(ArgumentError::GroupRank.into());
    }
    checked(ranks.copy(count)?.into_iter())
}

fn checked(ranks: impl Iterator<Item = c_int>) -> Result<Vec<Rank>, CallError> {
    ranks.map(|rank| u32::try_from(rank).map(Rank).map_err(|_| ArgumentError::GroupRank.into())).collect()
}

pub(crate) fn incl(
    _world: &World,
    group: Handle,
    count: usize,
    ranks: Array<c_int>,
    out: Out<Handle>,
) -> Result<(), CallError> {
    out.set(GROUP_NULL);
    let group = group_of(group)?;
    set_group(group.include(&chosen(&group, count, ranks)?)?, out);
    Ok(())
}

pub(crate) fn excl(
    _world: &World,
    group: Handle,
    count: usize,
    ranks: Array<c_int>,
    out: Out<Handle>,
) -> Result<(), CallError> {
    out.set(GROUP_NULL);
    let group = group_of(group)?;
    set_group(group.exclude(&chosen(&group, count, ranks)?)?, out);
    Ok(())
}

/// The ranks of `first, last, stride` triples (MPI-5.0 §7.3.2). A range ends at the first rank that is not in the group, so that its
/// length is bounded.
fn of_ranges(ranges: &[[c_int; 3]], size: u32) -> Result<Vec<Rank>, CallError> {
    let mut ranks = Vec::new();
    for &[first, last, stride] in ranges {
        let (mut rank, last, stride) = (i64::from(first), i64::from(last), i64::from(stride));
        if stride == 0 {
            return Err(ArgumentError::GroupRange.into());
        }
        while (stride > 0 && rank <= last) || (stride < 0 && rank >= last) {
            if rank < 0 || rank >= i64::from(size) || ranks.len() >= size as usize {
                return Err(ArgumentError::GroupRank.into());
            }
            ranks.push(Rank(rank as u32));
            rank += stride;
        }
    }
    Ok(ranks)
}

pub(crate) fn range_incl(
    _world: &World,
    group: Handle,
    count: usize,
    ranges: Array<[c_int; 3]>,
    out: Out<Handle>,
) -> Result<(), CallError> {
    out.set(GROUP_NULL);
    let group = group_of(group)?;
    set_group(group.include(&of_ranges(&ranges.copy(count)?, group.size())?)?, out);
    Ok(())
}

pub(crate) fn range_excl(
    _world: &World,
    group: Handle,
    count: usize,
    ranges: Array<[c_int; 3]>,
    out: Out<Handle>,
) -> Result<(), CallError> {
    out.set(GROUP_NULL);
    let group = group_of(group)?;
    set_group(group.exclude(&of_ranges(&ranges.copy(count)?, group.size())?)?, out);
    Ok(())
}

macro_rules! of_two {
    ($($function:ident)*) => { $(
        pub(crate) fn $function(_world: &World, one: Handle, other: Handle, out: Out<Handle>) -> Result<(), CallError> {
            out.set(GROUP_NULL);
            let (one, other) = (group_of(one)?, group_of(other)?);
            set_group(one.$function(&other), out);
            Ok(())
        }
    )* };
}

of_two! { union intersection difference }

/// Freeing the empty group is legal and has no effect.
pub(crate) fn free(_world: &World, group: Out<Handle>) -> Result<(), CallError> {
    let handle = group.get();
    if handle != GROUP_EMPTY {
        let key = key(handle).ok_or(ArgumentError::Group)?;
        groups().remove(key).ok_or(ArgumentError::Group)?;
    }
    group.set(GROUP_NULL);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::of_ranges;
    use mend_base::Rank;

    #[test]
    fn ranges_count_up_and_down_and_end() {
        let ranks = |ranges: &[[i32; 3]]| of_ranges(ranges, 8).ok();
        assert_eq!(ranks(&[[0, 6, 3]]), Some(vec![Rank(0), Rank(3), Rank(6)]));
        assert_eq!(ranks(&[[5, 4, -1]]), Some(vec![Rank(5), Rank(4)]));
        assert_eq!(ranks(&[[3, 2, 1]]), Some(vec![]));
        assert_eq!(ranks(&[[0, 1, 0]]), None);
        assert_eq!(ranks(&[[0, i32::MAX, 1]]), None);
        assert_eq!(ranks(&[[-1, 1, 1]]), None);
    }
}
