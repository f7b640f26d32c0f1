// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registered memory.

use crate::bindings as fi;
use crate::device::{Device, Opened, close};
use crate::error::Code;
use core::ffi::c_void;
use core::ptr;
use std::sync::Arc;

/// What registered memory is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// This process sends from it, or writes from it to a peer.
    pub source: bool,
    /// This process receives into it, or reads from a peer into it.
    pub target: bool,
    /// Peers read it.
    pub remote_read: bool,
    /// Peers write it.
    pub remote_write: bool,
}

/// Memory that the device may access for operations until this value is closed or dropped.
#[derive(Debug)]
pub struct Registration {
    region: *mut fi::fid_mr,
    /// Closed after the registration.
    _device: Arc<Opened>,
}

// SAFETY: as for `Device`.
unsafe impl Send for Registration {}

impl Drop for Registration {
    fn drop(&mut self) {
        // If the provider keeps it, peers may still have access: who must know that calls `close`.
        let _ = close(self.region.cast());
    }
}

impl Registration {
    /// Registers the `bytes` bytes at `start`. `key` is the key for peers, if the provider does not choose it.
    ///
    /// # Safety
    /// The range is readable, and writable for `target` and `remote_write`, until the returned value is dropped. Nobody uses references to it
    /// that what the device does with it would violate.
    pub unsafe fn new(
        device: &Device,
        start: *mut u8,
        bytes: usize,
        access: Access,
        key: u64,
    ) -> Result<Registration, Code> {
        let opened = &device.0;
        // SAFETY: an open domain.
        let domain = unsafe { &*opened.domain };
        // SAFETY: the table of functions lives as long as the object.
        let register = unsafe { domain.mr.as_ref() }.and_then(|ops| ops.reg).ok_or(Code::NO_FUNCTION)?;
        let bit = |wanted, bits: u32| if wanted { u64::from(bits) } else { 0 };
        let bits = bit(access.source, fi::FI_SEND | fi::FI_WRITE)
            | bit(access.target, fi::FI_RECV | fi::FI_READ)
            | bit(access.remote_read, fi::FI_REMOTE_READ)
            | bit(access.remote_write, fi::FI_REMOTE_WRITE);
        let mut region = ptr::null_mut();
        let domain: *mut fi::fid = opened.domain.cast();
        // SAFETY: an open domain; the caller vouches for the range; `region` is writable.
        let result = unsafe {
            register(domain, start.cast::<c_void>(), bytes, bits, 0, key, 0, &mut region, ptr::null_mut())
        };
        Code::check(result)?;
        Ok(Registration { region, _device: Arc::clone(opened) })
    }

    /// Ends the access of peers: with most providers for operations that they begin from now on, and providers over sockets go on with those
    /// that were under way. After an error peers may have access until the endpoint is closed.
    pub fn close(mut self) -> Result<(), Code> {
        let region = core::mem::replace(&mut self.region, ptr::null_mut());
        close(region.cast())
    }

    /// What operations of this process name the memory by.
    pub fn descriptor(&self) -> *mut c_void {
        // SAFETY: open as long as this value.
        unsafe { &*self.region }.mem_desc
    }

    /// What operations of peers name the memory by.
    pub fn key(&self) -> u64 {
        // SAFETY: open as long as this value.
        unsafe { &*self.region }.key
    }
}
