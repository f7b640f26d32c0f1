// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is asked of an argument by its kind, before a call's own code runs. What needs the communicator (is the rank below
//! its size?) the engine asks.

use crate::entry::Failure;
use crate::generated::constants::{
    ANY_SOURCE, ANY_TAG, ERR_ARG, ERR_BASE, ERR_BUFFER, ERR_COMM, ERR_COUNT, ERR_ERRHANDLER, ERR_GROUP,
    ERR_INFO, ERR_KEYVAL, ERR_NO_MEM, ERR_OP, ERR_RANK, ERR_REQUEST, ERR_ROOT, ERR_SIZE, ERR_TAG, ERR_TYPE,
    INFO_ENV, INFO_NULL, PROC_NULL,
};
use crate::handle::Handle;
use crate::pointer::{Array, Out, OutArray, OutCount, OutText, Text};
use crate::status::{Status, Statuses};
use core::ffi::{c_char, c_int};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_datatype::{Datatype, Op};

/// What is wrong with an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ArgumentError {
    NegativeCount,
    NullBuffer,
    Datatype,
    Tag,
    Rank,
    Root,
    Op,
    Request,
    NullPointer,
    Group,
    GroupRank,
    Errhandler,
    Info,
    Overlong,
    InPlace,
    ErrorCode,
    Keyval,
    Memory,
    NotOurMemory,
    ThreadLevel,
    Split,
    NegativeSize,
    OpType,
    GroupRange,
    Communicator,
    Acknowledged,
}

impl ArgumentError {
    /// Every one, for tests.
    #[cfg(test)]
    pub(crate) const ALL: [ArgumentError; 26] = [
        ArgumentError::NegativeCount,
        ArgumentError::NullBuffer,
        ArgumentError::Datatype,
        ArgumentError::Tag,
        ArgumentError::Rank,
        ArgumentError::Root,
        ArgumentError::Op,
        ArgumentError::Request,
        ArgumentError::NullPointer,
        ArgumentError::Group,
        ArgumentError::GroupRank,
        ArgumentError::Errhandler,
        ArgumentError::Info,
        ArgumentError::Overlong,
        ArgumentError::InPlace,
        ArgumentError::ErrorCode,
        ArgumentError::Keyval,
        ArgumentError::Memory,
        ArgumentError::NotOurMemory,
        ArgumentError::ThreadLevel,
        ArgumentError::Split,
        ArgumentError::NegativeSize,
        ArgumentError::OpType,
        ArgumentError::GroupRange,
        ArgumentError::Communicator,
        ArgumentError::Acknowledged,
    ];

    /// Class, number of the code E-CALL-..., what is wrong, what to do.
    pub(crate) const fn row(self) -> (c_int, u16, &'static str, &'static str) {
        match self {
            ArgumentError::NegativeCount => (ERR_COUNT, 1, "a count is negative", "counts are 0 or more"),
            ArgumentError::NullBuffer => (
                ERR_BUFFER,
                2,
                "the buffer is null though the count is not 0",
                "give the address of a buffer, or a count of 0",
            ),
            ArgumentError::Datatype => (
                ERR_TYPE,
                3,
                "the handle is no datatype that this version of Mend takes",
                "use a predefined datatype of mpi.h",
            ),
            ArgumentError::Tag => {
                (ERR_TAG, 4, "the tag is negative", "tags go from 0 to MPI_TAG_UB; receives take MPI_ANY_TAG")
            }
            ArgumentError::Rank => (
                ERR_RANK,
                5,
                "the rank is negative and no constant that stands for one here",
                "ranks go from 0 to the size of the communicator less one; MPI_PROC_NULL is taken too, and by receives MPI_ANY_SOURCE",
            ),
            ArgumentError::Root => {
                (ERR_ROOT, 6, "the root is negative", "the root is a rank of the communicator")
            }
            ArgumentError::Op => (
                ERR_OP,
                7,
                "the handle is no reduction operation that this version of Mend takes",
                "use a predefined operation of mpi.h; MPI_REPLACE and MPI_NO_OP are for one-sided calls",
            ),
            ArgumentError::Request => (
                ERR_REQUEST,
                8,
                "the request does not exist, or has ended before",
                "wait for a request once; a completed one is MPI_REQUEST_NULL afterwards",
            ),
            ArgumentError::NullPointer => (ERR_ARG, 9, "a pointer is null", "give the address of a variable"),
            ArgumentError::Group => {
                (ERR_GROUP, 10, "the group does not exist", "use a group that was made and not freed")
            }
            ArgumentError::GroupRank => (
                ERR_RANK,
                11,
                "a rank is not one of the group, or is named twice",
                "ranks go from 0 to the size of the group less one",
            ),
            ArgumentError::Errhandler => (
                ERR_ERRHANDLER,
                12,
                "the error handler does not exist",
                "use one that was made for communicators and not freed, or a predefined one",
            ),
            ArgumentError::Info => (ERR_INFO, 13, "the info object does not exist", "use MPI_INFO_NULL"),
            ArgumentError::Overlong => (
                ERR_COUNT,
                14,
                "the buffer would be longer than an address space",
                "look at count and datatype",
            ),
            ArgumentError::InPlace => (
                ERR_BUFFER,
                15,
                "MPI_IN_PLACE is not allowed as this buffer",
                "see the call's page in the standard for where MPI_IN_PLACE may stand",
            ),
            ArgumentError::ErrorCode => (
                ERR_ARG,
                16,
                "there is no such error class or code, or it is not one that was added",
                "use what MPI_Add_error_class or MPI_Add_error_code gave",
            ),
            ArgumentError::Keyval => {
                (ERR_KEYVAL, 17, "there is no such attribute key", "use a predefined key of mpi.h")
            }
            ArgumentError::Memory => {
                (ERR_NO_MEM, 19, "the memory could not be had", "raise the memory limit, or ask for less")
            }
            ArgumentError::NotOurMemory => (
                ERR_BASE,
                20,
                "the memory is not of MPI_Alloc_mem, or was freed before",
                "free once what MPI_Alloc_mem gave",
            ),
            ArgumentError::ThreadLevel => {
                (ERR_ARG, 21, "there is no such level of thread support", "use a MPI_THREAD_ constant")
            }
            ArgumentError::Split => {
                (ERR_ARG, 22, "the color is negative", "colors are 0 or more, or MPI_UNDEFINED")
            }
            ArgumentError::NegativeSize => (ERR_SIZE, 23, "the size is negative", "sizes are 0 or more"),
            ArgumentError::OpType => (
                ERR_OP,
                24,
                "the operation is not defined for this datatype",
                "MPI-5.0 section 6.9.2 says which datatypes each operation takes",
            ),
            ArgumentError::GroupRange => {
                (ERR_ARG, 25, "the stride of a range is 0", "strides count up or down")
            }
            ArgumentError::Communicator => (
                ERR_COMM,
                26,
                "the communicator does not exist",
                "use a communicator that was made and has not been freed",
            ),
            ArgumentError::Acknowledged => (
                ERR_ARG,
                27,
                "the number of failures to acknowledge is negative, or more than the communicator has members",
                "the size of the communicator acknowledges all failures that are known",
            ),
        }
    }
}

// Hot: per message.
#[inline]
pub(crate) fn count(count: i64) -> Result<u64, Failure> {
    u64::try_from(count).map_err(|_| ArgumentError::NegativeCount.into())
}

#[inline]
pub(crate) fn length(length: c_int) -> Result<usize, Failure> {
    usize::try_from(length).map_err(|_| ArgumentError::NegativeCount.into())
}

pub(crate) fn bytes(bytes: isize) -> Result<usize, Failure> {
    usize::try_from(bytes).map_err(|_| ArgumentError::NegativeSize.into())
}

// Hot: per message.
#[inline]
pub(crate) fn datatype(handle: Handle) -> Result<Datatype, Failure> {
    Datatype::from_handle(handle).ok_or_else(|| ArgumentError::Datatype.into())
}

pub(crate) fn op(handle: Handle) -> Result<Op, Failure> {
    Op::from_handle(handle).ok_or_else(|| ArgumentError::Op.into())
}

// Hot: per message.
/// `None`: MPI_PROC_NULL.
#[inline]
pub(crate) fn dest(rank: c_int) -> Result<Option<Rank>, Failure> {
    match u32::try_from(rank) {
        Ok(rank) => Ok(Some(Rank(rank))),
        Err(_) if rank == PROC_NULL => Ok(None),
        Err(_) => Err(ArgumentError::Rank.into()),
    }
}

// Hot: per message.
/// `None`: MPI_PROC_NULL.
#[inline]
pub(crate) fn source(rank: c_int) -> Result<Option<Source>, Failure> {
    match u32::try_from(rank) {
        Ok(rank) => Ok(Some(Source::Rank(Rank(rank)))),
        Err(_) if rank == ANY_SOURCE => Ok(Some(Source::Any)),
        Err(_) if rank == PROC_NULL => Ok(None),
        Err(_) => Err(ArgumentError::Rank.into()),
    }
}

pub(crate) fn root(rank: c_int) -> Result<Rank, Failure> {
    u32::try_from(rank).map(Rank).map_err(|_| ArgumentError::Root.into())
}

// Hot: per message.
#[inline]
pub(crate) fn tag(tag: c_int) -> Result<Tag, Failure> {
    if tag >= 0 { Ok(Tag(tag)) } else { Err(ArgumentError::Tag.into()) }
}

// Hot: per message.
#[inline]
pub(crate) fn recv_tag(tag: c_int) -> Result<TagSelector, Failure> {
    match tag {
        0.. => Ok(TagSelector::Tag(Tag(tag))),
        ANY_TAG => Ok(TagSelector::Any),
        _ => Err(ArgumentError::Tag.into()),
    }
}

/// No info object can be made in this version; the null one says nothing, and the predefined one may be named.
pub(crate) fn info(handle: Handle) -> Result<Handle, Failure> {
    if matches!(handle, INFO_NULL | INFO_ENV) { Ok(handle) } else { Err(ArgumentError::Info.into()) }
}

pub(crate) fn in_status(status: *const Status) -> Result<Status, Failure> {
    Ok(Out::new(status.cast_mut())?.get())
}

pub(crate) fn text(text: *const c_char) -> Result<Text, Failure> {
    Text::new(text)
}

pub(crate) fn out_text(text: *mut c_char) -> Result<OutText, Failure> {
    OutText::new(text)
}

pub(crate) fn out<T: Copy>(pointer: *mut T) -> Result<Out<T>, Failure> {
    Out::new(pointer)
}

pub(crate) fn out_small(pointer: *mut c_int) -> Result<OutCount, Failure> {
    Out::new(pointer).map(OutCount::Small)
}

pub(crate) fn out_large(pointer: *mut i64) -> Result<OutCount, Failure> {
    Out::new(pointer).map(OutCount::Large)
}

pub(crate) fn array<T: Copy>(pointer: *const T) -> Array<T> {
    Array::new(pointer)
}

pub(crate) fn out_array<T: Copy>(pointer: *mut T) -> OutArray<T> {
    OutArray::new(pointer)
}

#[inline]
pub(crate) fn statuses(pointer: *mut Status) -> Statuses {
    Statuses::new(pointer)
}

#[cfg(test)]
mod tests {
    use super::ArgumentError;
    use std::collections::BTreeSet;

    #[test]
    fn every_cause_has_a_code_of_its_own_that_the_manual_explains() {
        let manual = include_str!("../../docs/errors.md");
        let numbers: BTreeSet<u16> = ArgumentError::ALL.iter().map(|wrong| wrong.row().1).collect();
        assert_eq!(numbers.len(), ArgumentError::ALL.len());
        for wrong in ArgumentError::ALL {
            let (_, number, cause, _) = wrong.row();
            let line = manual.lines().find(|line| line.contains(&format!("E-CALL-{number:03} ")));
            assert!(line.is_some_and(|line| line.contains(cause)), "E-CALL-{number:03}: {cause}");
        }
    }
}
