// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of arguments by their kind (`abi/table/kinds.table`), before a call's own code runs. The engine checks what depends on the
//! communicator, such as a rank against its size.

pub(crate) use crate::argument_error::ArgumentError;
use crate::call_error::CallError;
use crate::generated::constants::{ANY_SOURCE, ANY_TAG, PROC_NULL};
use crate::handle::Handle;
use crate::info;
use crate::pointer::{Array, Out, OutArray, OutCount, OutText, Text};
use crate::status::{Status, Statuses};
use core::ffi::{c_char, c_int};
use mend_base::{Rank, Source, Tag, TagSelector};

// Hot: per message.
#[inline]
pub(crate) fn count(count: i64) -> Result<u64, CallError> {
    u64::try_from(count).map_err(|_| ArgumentError::NegativeCount.into())
}

#[inline]
pub(crate) fn length(length: c_int) -> Result<usize, CallError> {
    usize::try_from(length).map_err(|_| ArgumentError::NegativeCount.into())
}

pub(crate) fn bytes(bytes: isize) -> Result<usize, CallError> {
    usize::try_from(bytes).map_err(|_| ArgumentError::NegativeSize.into())
}

// Hot: per message.
/// `None`: MPI_PROC_NULL.
#[inline]
pub(crate) fn dest(rank: c_int) -> Result<Option<Rank>, CallError> {
    match u32::try_from(rank) {
        Ok(rank) => Ok(Some(Rank(rank))),
        Err(_) if rank == PROC_NULL => Ok(None),
        Err(_) => Err(ArgumentError::Rank.into()),
    }
}

// Hot: per message.
/// `None`: MPI_PROC_NULL.
#[inline]
pub(crate) fn source(rank: c_int) -> Result<Option<Source>, CallError> {
    match u32::try_from(rank) {
        Ok(rank) => Ok(Some(Source::Rank(Rank(rank)))),
        Err(_) if rank == ANY_SOURCE => Ok(Some(Source::Any)),
        Err(_) if rank == PROC_NULL => Ok(None),
        Err(_) => Err(ArgumentError::Rank.into()),
    }
}

pub(crate) fn root(rank: c_int) -> Result<Rank, CallError> {
    u32::try_from(rank).map(Rank).map_err(|_| ArgumentError::Root.into())
}

/// The leader of a group.
pub(crate) fn leader(rank: c_int) -> Result<Rank, CallError> {
    u32::try_from(rank).map(Rank).map_err(|_| ArgumentError::Rank.into())
}

// Hot: per message.
#[inline]
pub(crate) fn tag(tag: c_int) -> Result<Tag, CallError> {
    if tag >= 0 { Ok(Tag(tag)) } else { Err(ArgumentError::Tag.into()) }
}

// Hot: per message.
#[inline]
pub(crate) fn recv_tag(tag: c_int) -> Result<TagSelector, CallError> {
    match tag {
        0.. => Ok(TagSelector::Tag(Tag(tag))),
        ANY_TAG => Ok(TagSelector::Any),
        _ => Err(ArgumentError::Tag.into()),
    }
}

pub(crate) fn info(handle: Handle) -> Result<Handle, CallError> {
    if info::is_valid(handle) { Ok(handle) } else { Err(ArgumentError::Info.into()) }
}

pub(crate) fn in_status(status: *const Status) -> Result<Status, CallError> {
    Ok(Out::new(status.cast_mut())?.get())
}

pub(crate) fn text(text: *const c_char) -> Result<Text, CallError> {
    Text::new(text)
}

pub(crate) fn out_text(text: *mut c_char) -> Result<OutText, CallError> {
    OutText::new(text)
}

pub(crate) fn out<T: Copy>(pointer: *mut T) -> Result<Out<T>, CallError> {
    Out::new(pointer)
}

pub(crate) fn out_small(pointer: *mut c_int) -> Result<OutCount, CallError> {
    Out::new(pointer).map(OutCount::Small)
}

pub(crate) fn out_large(pointer: *mut i64) -> Result<OutCount, CallError> {
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
