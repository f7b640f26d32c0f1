// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device: fabric, domain, address vector and completion queue of one provider over one interface.

use crate::bindings as fi;
use crate::completion::{Completion, ErrorCompletion, ReadError};
use crate::descriptors::closing_on_exec;
use crate::error::Code;
use crate::info::Info;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a device is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Tokens of operations are below this number: as many operations may be outstanding at once.
    pub tokens: u32,
    /// The completion queue has a descriptor to sleep on.
    pub wait_descriptor: bool,
}

/// An opened device. Clones name the same device, which closes with the last of them, of its endpoints and of its registrations.
///
/// All calls of one device, of its endpoints and of its registrations come from one thread at a time (`FI_THREAD_DOMAIN`): their owner is one
/// engine.
#[derive(Clone, Debug)]
pub struct Device(pub(crate) Arc<Opened>);

/// What libfabric keeps of an outstanding operation (`FI_CONTEXT2`).
type Context = UnsafeCell<MaybeUninit<fi::fi_context2>>;

pub(crate) struct Opened {
    pub(crate) info: Info,
    fabric: *mut fi::fid_fabric,
    pub(crate) domain: *mut fi::fid_domain,
    pub(crate) addresses: *mut fi::fid_av,
    pub(crate) completions: *mut fi::fid_cq,
    contexts: Box<[Context]>,
    descriptor: Option<RawFd>,
    /// An endpoint could not be closed.
    keeps_endpoint: AtomicBool,
}

// SAFETY: libfabric's objects may be used by any thread, and by one at a time, which the documentation of `Device` asks of its owner; the owner is
// an engine behind one guard.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl core::fmt::Debug for Opened {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Device").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Endpoints and registrations hold this value, so they are closed. What the provider keeps stays: nobody uses it any more.
        for object in [self.completions.cast(), self.addresses.cast(), self.domain.cast(), self.fabric.cast()]
        {
            let _ = close(object);
        }
    }
}

/// Closes an object; null is none. After an error nobody knows whether the provider has kept it or freed it, as providers do both: so it is
/// never closed again, and must not be used.
pub(crate) fn close(object: *mut fi::fid) -> Result<(), Code> {
    // SAFETY: null, or an object that libfabric made and the caller closes once: every object begins with its fid.
    let Some(fid) = (unsafe { object.as_ref() }) else { return Ok(()) };
    // SAFETY: the table of functions lives as long as the object.
    let close = unsafe { fid.ops.as_ref() }.and_then(|ops| ops.close).ok_or(Code::NO_FUNCTION)?;
    // SAFETY: the object is open, and is not closed again.
    Code::check(unsafe { close(object) })
}

impl Device {
    /// Opens the device that `info` describes.
    pub fn open(info: Info, options: Options) -> Result<Device, Code> {
        let contexts = (0..options.tokens).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
        let mut opened = Opened {
            info,
            fabric: ptr::null_mut(),
            domain: ptr::null_mut(),
            addresses: ptr::null_mut(),
            completions: ptr::null_mut(),
            contexts,
            descriptor: None,
            keeps_endpoint: AtomicBool::new(false),
        };
        // What is open when a step fails is closed when `opened` is dropped.
        closing_on_exec(|| {
            opened.open_fabric()?;
            opened.open_domain()?;
            opened.open_addresses()?;
            opened.open_completions(options)
        })?;
        Ok(Device(Arc::new(opened)))
    }

    /// What the device offers.
    pub fn info(&self) -> &Info {
        &self.0.info
    }

    /// The descriptor of the completion queue, if there is one. It belongs to the device.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.0.descriptor
    }

    /// Whether the device accesses no memory of endpoints that were dropped. `false`: one of them could not be closed, so their buffers
    /// must never be freed.
    pub fn is_silent(&self) -> bool {
        !self.0.keeps_endpoint.load(Ordering::Relaxed)
    }

    /// Prepares a sleep on the descriptor: `Ok`, if a completion that comes from now on makes it readable; `AGAIN`, if something is to be done
    /// now. `Ok` without a descriptor: some providers end the process when they are asked then.
    pub fn try_wait(&self) -> Result<(), Code> {
        let opened = &*self.0;
        if opened.descriptor.is_none() {
            return Ok(());
        }
        let mut waited: [*mut fi::fid; 1] = [opened.completions.cast()];
        // SAFETY: an open fabric.
        let fabric = unsafe { &*opened.fabric };
        // SAFETY: the table of functions lives as long as the object.
        let trywait = unsafe { fabric.ops.as_ref() }.and_then(|ops| ops.trywait).ok_or(Code::NO_FUNCTION)?;
        // SAFETY: an array of one open object.
        Code::check(unsafe { trywait(opened.fabric, waited.as_mut_ptr(), 1) })
    }

    /// Reads completions into `out`, makes progress by that, and returns how many there were.
    pub fn read(&self, out: &mut [Completion]) -> Result<usize, ReadError> {
        crate::completion::read(&self.0, out)
    }

    /// Reads the completion with an error that [`ReadError::Failed`] announced. `None`: there is none.
    pub fn read_error(&self) -> Result<Option<ErrorCompletion>, Code> {
        crate::completion::read_error(&self.0)
    }
}

impl Opened {
    /// An endpoint could not be closed.
    pub(crate) fn keep_endpoint(&self) {
        // Relaxed: one thread at a time uses a device.
        self.keeps_endpoint.store(true, Ordering::Relaxed);
    }

    /// The address of the context of an operation.
    pub(crate) fn context(&self, token: u32) -> *mut c_void {
        self.contexts[token as usize].get().cast()
    }

    /// The token of a context; `None`: the address is none of ours.
    pub(crate) fn token(&self, context: *mut c_void) -> Option<u32> {
        let offset = context.addr().checked_sub(self.contexts.as_ptr().addr())?;
        let index = offset / size_of::<Context>();
        (offset % size_of::<Context>() == 0 && index < self.contexts.len()).then_some(index as u32)
    }

    fn open_fabric(&mut self) -> Result<(), Code> {
        let open = self.info.ofi().open_fabric;
        let mut fabric = ptr::null_mut();
        // SAFETY: the attributes of an fi_info; `fabric` is writable.
        Code::check(unsafe { open(self.info.fabric_attr(), &mut fabric, ptr::null_mut()) })?;
        // Not before it is open: a provider that fails may leave the pointer to what it has freed. The same holds below.
        self.fabric = fabric;
        Ok(())
    }

    fn open_domain(&mut self) -> Result<(), Code> {
        // SAFETY: open.
        let fabric = unsafe { &*self.fabric };
        // SAFETY: the table of functions lives as long as the object.
        let ops = unsafe { fabric.ops.as_ref() };
        let open = ops.and_then(|ops| ops.domain).ok_or(Code::NO_FUNCTION)?;
        let mut domain = ptr::null_mut();
        // SAFETY: an open fabric, an fi_info of it, a writable pointer.
        Code::check(unsafe { open(self.fabric, self.info.as_ptr(), &mut domain, ptr::null_mut()) })?;
        self.domain = domain;
        Ok(())
    }

    fn domain_ops(&self) -> Result<&fi::fi_ops_domain, Code> {
        // SAFETY: open.
        let domain = unsafe { &*self.domain };
        // SAFETY: the table of functions lives as long as the object.
        unsafe { domain.ops.as_ref() }.ok_or(Code::NO_FUNCTION)
    }

    fn open_addresses(&mut self) -> Result<(), Code> {
        let open = self.domain_ops()?.av_open.ok_or(Code::NO_FUNCTION)?;
        // SAFETY: all fields are numbers and pointers, for which zero is "default".
        let mut attr: fi::fi_av_attr = unsafe { core::mem::zeroed() };
        attr.type_ = fi::FI_AV_TABLE;
        attr.count = 64;
        let mut addresses = ptr::null_mut();
        // SAFETY: an open domain, complete attributes, a writable pointer.
        Code::check(unsafe { open(self.domain, &mut attr, &mut addresses, ptr::null_mut()) })?;
        self.addresses = addresses;
        Ok(())
    }

    fn open_completions(&mut self, options: Options) -> Result<(), Code> {
        let open = self.domain_ops()?.cq_open.ok_or(Code::NO_FUNCTION)?;
        // SAFETY: all fields are numbers and pointers, for which zero is "default".
        let mut attr: fi::fi_cq_attr = unsafe { core::mem::zeroed() };
        attr.format = fi::FI_CQ_FORMAT_DATA;
        // Every operation has one completion at most, and a receive buffer one for each of its messages, which the provider queues.
        attr.size = options.tokens as usize;
        attr.wait_obj = if options.wait_descriptor { fi::FI_WAIT_FD } else { fi::FI_WAIT_NONE };
        let mut completions = ptr::null_mut();
        // SAFETY: an open domain, complete attributes, a writable pointer.
        Code::check(unsafe { open(self.domain, &mut attr, &mut completions, ptr::null_mut()) })?;
        self.completions = completions;
        if options.wait_descriptor {
            self.descriptor = Some(self.wait_descriptor()?);
        }
        Ok(())
    }

    fn wait_descriptor(&self) -> Result<RawFd, Code> {
        let mut descriptor: c_int = -1;
        control(self.completions.cast(), fi::FI_GETWAIT as c_int, (&raw mut descriptor).cast())?;
        if descriptor < 0 { Err(Code::INVALID) } else { Ok(descriptor) }
    }
}

/// Calls `control` of an open object. `argument` is what the command takes (fi_control(3)).
pub(crate) fn control(object: *mut fi::fid, command: c_int, argument: *mut c_void) -> Result<(), Code> {
    // SAFETY: an open object; every object begins with its fid.
    let fid = unsafe { &*object };
    // SAFETY: the table of functions lives as long as the object.
    let control = unsafe { fid.ops.as_ref() }.and_then(|ops| ops.control).ok_or(Code::NO_FUNCTION)?;
    // SAFETY: the caller gives what the command takes.
    Code::check(unsafe { control(object, command, argument) })
}
