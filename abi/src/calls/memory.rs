// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `MPI_Alloc_mem` (MPI-5.0 §9.2). In this version the memory is private to this process: peers cannot copy from it directly.
//!
//! Under a memory limit the kernel does not refuse memory, but kills the process that touches it. So all pages are touched here, in
//! steps small enough that all ranks of a node may make one at the same time. The limit is read before each step.

use crate::argument_error::ArgumentError;
use crate::call_error::CallError;
use crate::handle::Handle;
use crate::pointer::Out;
use core::ffi::c_void;
use mend_world::World;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The alignment, which is enough for devices and vector instructions, and the unit in which the kernel gives memory.
const PAGE: usize = 4096;
/// So many bytes are touched between two readings of the limit.
const STEP: usize = 256 << 10;

/// An anonymous mapping, unmapped when dropped.
struct Pages {
    start: *mut c_void,
    bytes: usize,
}

impl Pages {
    fn map(bytes: usize) -> Result<Pages, CallError> {
        let bytes = bytes.max(1);
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if start == libc::MAP_FAILED { Err(ArgumentError::Memory.into()) } else { Ok(Pages { start, bytes }) }
    }

    /// Touches all pages, as long as `keep_free` bytes stay under every limit. Without a limit nothing needs to be touched.
    fn reserve(&self, keep_free: u64) -> Result<(), CallError> {
        for step in (0..self.bytes).step_by(STEP) {
            let Some(left) = mend_segment::memory_left() else { return Ok(()) };
            // The first reading is compared with the whole size, so that a request that cannot fit takes no memory from others.
            let wanted = if step == 0 { self.bytes } else { STEP };
            if (wanted as u64).saturating_add(keep_free) > left {
                return Err(ArgumentError::Memory.into());
            }
            for at in (step..self.bytes.min(step + STEP)).step_by(PAGE) {
                // SAFETY: `at` is below the length of the mapping.
                let page = unsafe { self.start.cast::<u8>().add(at) };
                // SAFETY: the page is mapped for writing, and no other thread has its address yet.
                unsafe { page.write_volatile(0) };
            }
        }
        Ok(())
    }

    fn into_raw(self) -> *mut c_void {
        let start = self.start;
        core::mem::forget(self);
        start
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping, and the program gave its address back. The call cannot fail for a whole mapping.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

/// Memory of MPI_Alloc_mem: address and size.
static ALLOCATED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn allocated() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    // A panic under the lock was a bug that was reported; the table is consistent, since every change of it is one step.
    ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn alloc_mem(
    world: &World,
    bytes: usize,
    _info: Handle,
    base: Out<*mut c_void>,
) -> Result<(), CallError> {
    let pages = Pages::map(bytes)?;
    pages.reserve(world.settings().number("btl_shm.memory_reserve_bytes"))?;
    let start = pages.into_raw();
    allocated().insert(start as usize, bytes);
    base.set(start);
    Ok(())
}

pub(crate) fn free_mem(_world: &World, base: *mut c_void) -> Result<(), CallError> {
    if base.is_null() {
        return Ok(());
    }
    let bytes = allocated().remove(&(base as usize)).ok_or(ArgumentError::NotOurMemory)?;
    // It was in the table, so `alloc_mem` mapped it with this length, and it has not been unmapped.
    drop(Pages { start: base, bytes: bytes.max(1) });
    Ok(())
}
