// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of this BTL that the device accesses.

use core::ptr::NonNull;
use mend_ffi_ofi::bindings::FI_MR_LOCAL;
use mend_ffi_ofi::{Access, Code, Device, Registration};
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// A block of memory that does not move, with its registrations where devices need them.
#[derive(Debug)]
pub struct Memory {
    /// By rail. Dropped first: no device must access memory that was freed.
    registrations: Vec<Option<Registration>>,
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to this value alone.
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        self.registrations.clear();
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Blocks begin at a cache line.
const ALIGNMENT: usize = 64;

impl Memory {
    /// `bytes` zero bytes, more than none; `None`: there is no memory.
    pub fn new(bytes: usize) -> Option<Memory> {
        let layout = Layout::from_size_align(bytes, ALIGNMENT).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Memory { registrations: Vec::new(), start, layout })
    }

    /// Registers the block for messages with the device of a rail, where the device needs that.
    pub fn register(&mut self, rail: usize, device: &Device) -> Result<(), Code> {
        let registration = self.registration(device)?;
        self.set_registration(rail, registration);
        Ok(())
    }

    /// What operations of a rail use from now on. Returns what they used before.
    pub fn set_registration(
        &mut self,
        rail: usize,
        registration: Option<Registration>,
    ) -> Option<Registration> {
        if self.registrations.len() <= rail {
            self.registrations.resize_with(rail + 1, || None);
        }
        core::mem::replace(&mut self.registrations[rail], registration)
    }

    /// A registration of the block for messages with a device, where the device needs one. It must be dropped before the block.
    pub fn registration(&self, device: &Device) -> Result<Option<Registration>, Code> {
        if device.info().registration_mode() & FI_MR_LOCAL == 0 {
            return Ok(None);
        }
        let access = Access { source: true, target: true, remote_read: false, remote_write: false };
        // SAFETY: the block lives longer than its registration (`drop`), and nobody has references to what the device accesses: the users of
        // this type see to that.
        let registration =
            unsafe { Registration::new(device, self.start.as_ptr(), self.layout.size(), access, 0) };
        registration.map(Some)
    }

    /// What operations of a rail name the block by.
    pub fn descriptor(&self, rail: usize) -> *mut core::ffi::c_void {
        let registration = self.registrations.get(rail).and_then(Option::as_ref);
        registration.map_or(core::ptr::null_mut(), Registration::descriptor)
    }

    /// The length, in bytes.
    pub fn len(&self) -> usize {
        self.layout.size()
    }

    /// The address of the byte at `offset`, which is inside.
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len(), "an offset past the end of a block");
        self.start.as_ptr().wrapping_add(offset)
    }

    /// `bytes` bytes from `offset` on. The caller knows that the device does not write them now.
    pub fn bytes(&self, offset: usize, bytes: usize) -> &[u8] {
        assert!(offset <= self.len() && bytes <= self.len() - offset, "a range past the end of a block");
        // SAFETY: inside the block, initialized, and not written while the reference lives: by this process only through `bytes_mut`, which needs
        // `&mut self`.
        unsafe { core::slice::from_raw_parts(self.at(offset), bytes) }
    }

    /// The same, to write to. The caller knows that the device does not access them now.
    pub fn bytes_mut(&mut self, offset: usize, bytes: usize) -> &mut [u8] {
        assert!(offset <= self.len() && bytes <= self.len() - offset, "a range past the end of a block");
        // SAFETY: as in `bytes`, with the only reference.
        unsafe { core::slice::from_raw_parts_mut(self.at(offset), bytes) }
    }
}
