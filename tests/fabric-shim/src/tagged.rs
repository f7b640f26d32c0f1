// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages with tags.

use crate::bindings as fi;
use crate::endpoint::{Completes, Operation, starts};
use crate::site::Site;
use core::ffi::c_void;
use core::ptr;

pub(crate) static OPS: fi::fi_ops_tagged = fi::fi_ops_tagged {
    size: size_of::<fi::fi_ops_tagged>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    send: Some(send),
    sendv: Some(sendv),
    sendmsg: Some(sendmsg),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
};

fn receives(address: u64, context: *mut c_void) -> Operation {
    Operation { site: Site::Recv, address, context, completes: Completes::ByDefault, flags: RECEIVED }
}

fn sends(address: u64, context: *mut c_void) -> Operation {
    Operation { site: Site::Send, address, context, completes: Completes::ByDefault, flags: SENT }
}

fn injects(address: u64) -> Operation {
    let (site, context) = (Site::Inject, ptr::null_mut());
    Operation { site, address, context, completes: Completes::Never, flags: SENT }
}

/// An operation that is described by a structure and flags.
///
/// # Safety
/// The structure is the program's for this call.
unsafe fn described(by: Operation, message: *const fi::fi_msg_tagged, flags: u64) -> Operation {
    // SAFETY: the caller vouches for it.
    let (address, context) = (unsafe { (*message).addr }, unsafe { (*message).context });
    // A buffer for several messages is given back with the error.
    let returns_buffer = flags & u64::from(fi::FI_MULTI_RECV);
    let completes = Completes::Flags(flags);
    Operation { address, context, completes, flags: by.flags | returns_buffer, ..by }
}

const SENT: u64 = (fi::FI_SEND | fi::FI_TAGGED) as u64;
const RECEIVED: u64 = (fi::FI_RECV | fi::FI_TAGGED) as u64;

starts!(recv, tagged: fi::fi_ops_tagged, recv,
    (buffer: *mut c_void, bytes: usize, descriptor: *mut c_void, source: u64, tag: u64, ignore: u64, context: *mut c_void),
    receives(source, context));
starts!(recvv, tagged: fi::fi_ops_tagged, recvv,
    (ranges: *const fi::iovec, descriptors: *mut *mut c_void, count: usize, source: u64, tag: u64, ignore: u64, context: *mut c_void),
    receives(source, context));
starts!(recvmsg, tagged: fi::fi_ops_tagged, recvmsg, (message: *const fi::fi_msg_tagged, flags: u64),
    // SAFETY: the arguments of the program.
    unsafe { described(receives(0, ptr::null_mut()), message, flags) });
starts!(send, tagged: fi::fi_ops_tagged, send,
    (buffer: *const c_void, bytes: usize, descriptor: *mut c_void, to: u64, tag: u64, context: *mut c_void),
    sends(to, context));
starts!(sendv, tagged: fi::fi_ops_tagged, sendv,
    (ranges: *const fi::iovec, descriptors: *mut *mut c_void, count: usize, to: u64, tag: u64, context: *mut c_void),
    sends(to, context));
starts!(sendmsg, tagged: fi::fi_ops_tagged, sendmsg, (message: *const fi::fi_msg_tagged, flags: u64),
    // SAFETY: the arguments of the program.
    unsafe { described(sends(0, ptr::null_mut()), message, flags) });
starts!(inject, tagged: fi::fi_ops_tagged, inject, (buffer: *const c_void, bytes: usize, to: u64, tag: u64), injects(to));
starts!(senddata, tagged: fi::fi_ops_tagged, senddata,
    (buffer: *const c_void, bytes: usize, descriptor: *mut c_void, data: u64, to: u64, tag: u64, context: *mut c_void),
    sends(to, context));
starts!(injectdata, tagged: fi::fi_ops_tagged, injectdata, (buffer: *const c_void, bytes: usize, data: u64, to: u64, tag: u64), injects(to));
