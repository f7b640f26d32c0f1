// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading and writing remote memory.

use crate::bindings as fi;
use crate::endpoint::{Completes, Operation, starts};
use crate::site::Site;
use core::ffi::c_void;
use core::ptr;

pub(crate) static OPS: fi::fi_ops_rma = fi::fi_ops_rma {
    size: size_of::<fi::fi_ops_rma>(),
    read: Some(read),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    writedata: Some(writedata),
    injectdata: Some(injectdata),
};

fn reads(address: u64, context: *mut c_void) -> Operation {
    let flags = u64::from(fi::FI_RMA | fi::FI_READ);
    Operation { site: Site::Read, address, context, completes: Completes::ByDefault, flags }
}

fn writes(address: u64, context: *mut c_void) -> Operation {
    let flags = u64::from(fi::FI_RMA | fi::FI_WRITE);
    Operation { site: Site::Write, address, context, completes: Completes::ByDefault, flags }
}

fn injects(address: u64) -> Operation {
    Operation { completes: Completes::Never, ..writes(address, ptr::null_mut()) }
}

/// An operation that is described by a structure and flags.
///
/// # Safety
/// The structure is the program's for this call.
unsafe fn described(by: Operation, message: *const fi::fi_msg_rma, flags: u64) -> Operation {
    // SAFETY: the caller vouches for it.
    let (address, context) = (unsafe { (*message).addr }, unsafe { (*message).context });
    Operation { address, context, completes: Completes::Flags(flags), ..by }
}

starts!(read, rma: fi::fi_ops_rma, read,
    (buffer: *mut c_void, bytes: usize, descriptor: *mut c_void, from: u64, address: u64, key: u64, context: *mut c_void),
    reads(from, context));
starts!(readv, rma: fi::fi_ops_rma, readv,
    (ranges: *const fi::iovec, descriptors: *mut *mut c_void, count: usize, from: u64, address: u64, key: u64,
     context: *mut c_void),
    reads(from, context));
starts!(readmsg, rma: fi::fi_ops_rma, readmsg, (message: *const fi::fi_msg_rma, flags: u64),
    // SAFETY: the arguments of the program.
    unsafe { described(reads(0, ptr::null_mut()), message, flags) });
starts!(write, rma: fi::fi_ops_rma, write,
    (buffer: *const c_void, bytes: usize, descriptor: *mut c_void, to: u64, address: u64, key: u64, context: *mut c_void),
    writes(to, context));
starts!(writev, rma: fi::fi_ops_rma, writev,
    (ranges: *const fi::iovec, descriptors: *mut *mut c_void, count: usize, to: u64, address: u64, key: u64,
     context: *mut c_void),
    writes(to, context));
starts!(writemsg, rma: fi::fi_ops_rma, writemsg, (message: *const fi::fi_msg_rma, flags: u64),
    // SAFETY: the arguments of the program.
    unsafe { described(writes(0, ptr::null_mut()), message, flags) });
starts!(inject, rma: fi::fi_ops_rma, inject, (buffer: *const c_void, bytes: usize, to: u64, address: u64, key: u64), injects(to));
starts!(writedata, rma: fi::fi_ops_rma, writedata,
    (buffer: *const c_void, bytes: usize, descriptor: *mut c_void, data: u64, to: u64, address: u64, key: u64, context: *mut c_void),
    writes(to, context));
starts!(injectdata, rma: fi::fi_ops_rma, injectdata,
    (buffer: *const c_void, bytes: usize, data: u64, to: u64, address: u64, key: u64),
    injects(to));
