// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Atomic operations on remote memory.

use crate::bindings as fi;
use crate::endpoint::{Completes, Operation, starts};
use crate::object::{NO_FUNCTION, forward};
use crate::site::Site;
use core::ffi::{c_int, c_void};
use core::ptr;

pub(crate) static OPS: fi::fi_ops_atomic = fi::fi_ops_atomic {
    size: size_of::<fi::fi_ops_atomic>(),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    readwrite: Some(readwrite),
    readwritev: Some(readwritev),
    readwritemsg: Some(readwritemsg),
    compwrite: Some(compwrite),
    compwritev: Some(compwritev),
    compwritemsg: Some(compwritemsg),
    writevalid: Some(writevalid),
    readwritevalid: Some(readwritevalid),
    compwritevalid: Some(compwritevalid),
};

/// An operation that changes remote memory, or one that fetches what was there before.
fn changes(address: u64, context: *mut c_void, fetches: bool) -> Operation {
    let flags = u64::from(fi::FI_ATOMIC | if fetches { fi::FI_READ } else { fi::FI_WRITE });
    Operation { site: Site::Atomic, address, context, completes: Completes::ByDefault, flags }
}

/// An operation that is described by a structure and flags.
///
/// # Safety
/// The structure is the program's for this call.
unsafe fn described(message: *const fi::fi_msg_atomic, flags: u64, fetches: bool) -> Operation {
    // SAFETY: the caller vouches for it.
    let (address, context) = (unsafe { (*message).addr }, unsafe { (*message).context });
    Operation { completes: Completes::Flags(flags), ..changes(address, context, fetches) }
}

starts!(write, atomic: fi::fi_ops_atomic, write,
    (buffer: *const c_void, count: usize, descriptor: *mut c_void, to: u64, address: u64, key: u64, datatype: fi::fi_datatype, op: fi::fi_op, context: *mut c_void),
    changes(to, context, false));
starts!(writev, atomic: fi::fi_ops_atomic, writev,
    (ranges: *const fi::fi_ioc, descriptors: *mut *mut c_void, count: usize, to: u64, address: u64, key: u64, datatype: fi::fi_datatype, op: fi::fi_op, context: *mut c_void),
    changes(to, context, false));
starts!(writemsg, atomic: fi::fi_ops_atomic, writemsg,
    (message: *const fi::fi_msg_atomic, flags: u64),
    // SAFETY: the arguments of the program.
    unsafe { described(message, flags, false) });
starts!(inject, atomic: fi::fi_ops_atomic, inject,
    (buffer: *const c_void, count: usize, to: u64, address: u64, key: u64, datatype: fi::fi_datatype, op: fi::fi_op),
    Operation { completes: Completes::Never, ..changes(to, ptr::null_mut(), false) });
starts!(readwrite, atomic: fi::fi_ops_atomic, readwrite,
    (buffer: *const c_void, count: usize, descriptor: *mut c_void, result: *mut c_void, result_descriptor: *mut c_void, to: u64, address: u64, key: u64, datatype: fi::fi_datatype, op: fi::fi_op, context: *mut c_void),
    changes(to, context, true));
starts!(readwritev, atomic: fi::fi_ops_atomic, readwritev,
    (ranges: *const fi::fi_ioc, descriptors: *mut *mut c_void, count: usize, results: *mut fi::fi_ioc, result_descriptors: *mut *mut c_void, result_count: usize, to: u64, address: u64, key: u64, datatype: fi::fi_datatype, op: fi::fi_op, context: *mut c_void),
    changes(to, context, true));
starts!(readwritemsg, atomic: fi::fi_ops_atomic, readwritemsg,
    (message: *const fi::fi_msg_atomic, results: *mut fi::fi_ioc, result_descriptors: *mut *mut c_void, result_count: usize, flags: u64),
    // SAFETY: the arguments of the program.
    unsafe { described(message, flags, true) });
starts!(compwrite, atomic: fi::fi_ops_atomic, compwrite,
    (buffer: *const c_void, count: usize, descriptor: *mut c_void, compare: *const c_void, compare_descriptor: *mut c_void, result: *mut c_void, result_descriptor: *mut c_void, to: u64, address: u64, key: u64, datatype: fi::fi_datatype, op: fi::fi_op, context: *mut c_void),
    changes(to, context, true));
starts!(compwritev, atomic: fi::fi_ops_atomic, compwritev,
    (ranges: *const fi::fi_ioc, descriptors: *mut *mut c_void, count: usize, compares: *const fi::fi_ioc, compare_descriptors: *mut *mut c_void, compare_count: usize, results: *mut fi::fi_ioc, result_descriptors: *mut *mut c_void, result_count: usize, to: u64, address: u64, key: u64, datatype: fi::fi_datatype, op: fi::fi_op, context: *mut c_void),
    changes(to, context, true));
starts!(compwritemsg, atomic: fi::fi_ops_atomic, compwritemsg,
    (message: *const fi::fi_msg_atomic, compares: *const fi::fi_ioc, compare_descriptors: *mut *mut c_void, compare_count: usize, results: *mut fi::fi_ioc, result_descriptors: *mut *mut c_void, result_count: usize, flags: u64),
    // SAFETY: the arguments of the program.
    unsafe { described(message, flags, true) });
forward!(writevalid, fi::fid_ep, atomic: fi::fi_ops_atomic, writevalid,
    (datatype: fi::fi_datatype, op: fi::fi_op, count: *mut usize) -> c_int, NO_FUNCTION);
forward!(readwritevalid, fi::fid_ep, atomic: fi::fi_ops_atomic, readwritevalid,
    (datatype: fi::fi_datatype, op: fi::fi_op, count: *mut usize) -> c_int, NO_FUNCTION);
forward!(compwritevalid, fi::fid_ep, atomic: fi::fi_ops_atomic, compwritevalid,
    (datatype: fi::fi_datatype, op: fi::fi_op, count: *mut usize) -> c_int, NO_FUNCTION);
