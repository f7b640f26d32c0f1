// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `MPI_Alloc_mem` (MPI-5.0 §9.2). In this version the memory is ordinary; it becomes the outbox's when peers can copy from
//! it directly.

use crate::books;
use crate::check::Wrong;
use crate::entry::Failure;
use crate::handle::Handle;
use crate::pointer::Out;
use core::ffi::c_void;
use mend_world::World;
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// A page: what devices and vectors want.
const ALIGNMENT: usize = 4096;

fn layout(bytes: usize) -> Result<Layout, Failure> {
    Layout::from_size_align(bytes.max(1), ALIGNMENT).map_err(|_| Wrong::Memory.into())
}

pub(crate) fn alloc_mem(
    _world: &World,
    bytes: usize,
    _info: Handle,
    base: Out<*mut c_void>,
) -> Result<(), Failure> {
    let layout = layout(bytes)?;
    // SAFETY: the layout's size is not zero.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        return Err(Wrong::Memory.into());
    }
    books::with(|books| books.memory.insert(memory as usize, bytes));
    base.set(memory.cast());
    Ok(())
}

pub(crate) fn free_mem(_world: &World, base: *mut c_void) -> Result<(), Failure> {
    if base.is_null() {
        return Ok(());
    }
    let bytes = books::with(|books| books.memory.remove(&(base as usize))).ok_or(Wrong::NotOurMemory)?;
    let layout = layout(bytes)?;
    // SAFETY: it stood in the books, so `alloc_mem` got it with this layout, and nobody has freed it.
    unsafe { dealloc(base.cast(), layout) };
    Ok(())
}
