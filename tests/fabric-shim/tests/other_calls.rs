// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls that Mend does not make: messages with tags, atomic operations, blocking reads, cancellation.

use core::ffi::c_void;
use core::ptr;
use mend_fabric_shim::{Shim, Site};
use mend_ffi_ofi::{Code, Ofi, bindings as fi};
use raw::{Raw, call};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[path = "rig/raw.rs"]
mod raw;

/// Rules belong to the process, so one test has them at a time.
static TURN: Mutex<()> = Mutex::new(());

fn opened(test: &str) -> Option<(Shim, Raw, MutexGuard<'static, ()>)> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let real = std::env::var("MEND_FABRIC_SHIM_LIBRARY").unwrap_or_else(|_| Ofi::DEFAULT_NAME.to_owned());
    if let Err(why) = Ofi::open(&real) {
        mend_testing::skip(test, &format!("{why} (Debian: apt install libfabric1)"));
        return None;
    }
    let shim = Shim::open().unwrap();
    shim.set("");
    let raw = Raw::open();
    if raw.is_none() {
        mend_testing::skip(test, "this libfabric has no tcp;ofi_rxm over lo");
    }
    Some((shim, raw?, turn))
}

fn blank() -> fi::fi_cq_tagged_entry {
    let (op_context, buf) = (ptr::null_mut(), ptr::null_mut());
    fi::fi_cq_tagged_entry { op_context, flags: 0, len: 0, buf, data: 0, tag: 0 }
}

/// Reads until something comes: a completion or the code of the read.
fn completion(raw: &Raw) -> Result<fi::fi_cq_tagged_entry, isize> {
    let mut entry = blank();
    loop {
        match call!(raw.queue, ops, read, ptr::from_mut(&mut entry).cast(), 1) {
            1 => return Ok(entry),
            result if result == -(fi::FI_EAGAIN as isize) => {}
            result => return Err(result),
        }
    }
}

/// Adds 5 to the second word of the memory.
fn add(raw: &mut Raw) -> isize {
    raw.memory[0] = 5;
    let (context, to, key) = (raw.context(0), raw.to, raw.key());
    let (start, descriptor) = (raw.memory.as_ptr().cast::<c_void>(), raw.descriptor());
    let (address, datatype, op) = (raw.remote + 8, fi::FI_UINT64, fi::FI_SUM);
    call!(raw.endpoint, atomic, write, start, 1, descriptor, to, address, key, datatype, op, context)
}

/// Starts an operation, again while there is no connection yet.
fn start(raw: &mut Raw, operation: impl Fn(&mut Raw) -> isize) {
    loop {
        match operation(raw) {
            0 => return,
            result => assert_eq!(result, -(fi::FI_EAGAIN as isize)),
        }
        // Only makes progress.
        call!(raw.queue, ops, read, ptr::null_mut(), 0);
    }
}

fn send_tagged(raw: &mut Raw) -> isize {
    raw.memory[2] = 42;
    let (context, to) = (raw.context(2), raw.to);
    let (start, descriptor) = (raw.memory[2..].as_ptr().cast::<c_void>(), raw.descriptor());
    call!(raw.endpoint, tagged, send, start, 8, descriptor, to, 9, context)
}

fn receive_tagged(raw: &mut Raw) -> isize {
    let (context, descriptor) = (raw.context(3), raw.descriptor());
    let start = raw.memory[3..].as_mut_ptr().cast::<c_void>();
    call!(raw.endpoint, tagged, recv, start, 8, descriptor, u64::MAX, 9, 0, context)
}

#[test]
fn tags_and_atomic_operations_pass_through() {
    let Some((shim, mut raw, _turn)) = opened("tags_and_atomic_operations_pass_through") else { return };
    assert_eq!(receive_tagged(&mut raw), 0);
    start(&mut raw, send_tagged);
    let found = [completion(&raw).unwrap(), completion(&raw).unwrap()];
    let received = found.iter().find(|entry| entry.flags & u64::from(fi::FI_RECV) != 0).unwrap();
    assert_eq!((received.op_context, received.tag, received.len, raw.memory[3]), (raw.context(3), 9, 8, 42));
    for _ in 0..2 {
        start(&mut raw, add);
        assert_eq!(completion(&raw).unwrap().op_context, raw.context(0));
    }
    assert_eq!(raw.memory[1], 10);
    assert!(shim.calls(Site::Atomic) >= 2 && shim.calls(Site::Send) >= 1 && shim.calls(Site::Recv) == 1);
    drop(raw);
    assert_eq!((shim.open_objects(), shim.refused_objects()), (0, 0), "{}", shim.report());
}

#[test]
fn every_code_of_atomic_operations_and_cancellation_reaches_the_caller() {
    let test = "every_code_of_atomic_operations_and_cancellation_reaches_the_caller";
    let Some((shim, mut raw, _turn)) = opened(test) else { return };
    for code in Code::all() {
        shim.set(&format!("site=atomic,code={0},count=1;site=cancel,code={0},count=1", code.0));
        assert_eq!(add(&mut raw), -(code.0 as isize));
        let (fid, context): (fi::fid_t, _) = (raw.endpoint.cast(), raw.context(1));
        // SAFETY: an open endpoint.
        let table = unsafe { (*raw.endpoint).ops };
        // SAFETY: its table.
        let cancel = unsafe { (*table).cancel }.unwrap();
        // SAFETY: an open endpoint; no operation has this context.
        assert_eq!(unsafe { cancel(fid, context) }, -(code.0 as isize));
        shim.set(&format!("site=atomic,code={},mode=completion,count=1", code.0));
        assert_eq!(add(&mut raw), 0);
        assert_eq!(completion(&raw).map(drop), Err(-(fi::FI_EAVAIL as isize)));
        // SAFETY: numbers and pointers, for which zero is none.
        let mut error: fi::fi_cq_err_entry = unsafe { core::mem::zeroed() };
        assert_eq!(call!(raw.queue, ops, readerr, &mut error, 0), 1);
        assert_eq!((error.err, error.prov_errno, error.op_context), (code.0, code.0, raw.context(0)));
        assert_ne!(error.flags & u64::from(fi::FI_ATOMIC), 0);
    }
    assert_eq!(raw.memory[1], 0, "nothing was made");
    drop(raw);
    assert_eq!((shim.open_objects(), shim.refused_objects()), (0, 0), "{}", shim.report());
    mend_testing::say(&format!("figure: {} codes at each of atomic, cancel", Code::all().count()));
}

#[test]
fn a_blocking_read_returns_what_was_injected_or_held_back() {
    let test = "a_blocking_read_returns_what_was_injected_or_held_back";
    let Some((shim, mut raw, _turn)) = opened(test) else { return };
    let mut entry = blank();
    let out: *mut c_void = ptr::from_mut(&mut entry).cast();
    assert_eq!(call!(raw.queue, ops, sread, out, 1, ptr::null(), 1), -(fi::FI_EAGAIN as isize));
    start(&mut raw, add);
    assert_eq!(call!(raw.queue, ops, sread, out, 1, ptr::null(), 30_000), 1);
    shim.set("site=atomic,fault=delay,reads=50,count=1;site=atomic,mode=completion,code=EIO,after=1");
    start(&mut raw, add);
    let mut source = 0;
    assert_eq!(call!(raw.queue, ops, sreadfrom, out, 1, &mut source, ptr::null(), 30_000), 1);
    assert_eq!((entry.op_context, shim.injected(Site::Atomic)), (raw.context(0), 1));
    assert_eq!(add(&mut raw), 0);
    assert_eq!(call!(raw.queue, ops, sread, out, 1, ptr::null(), 30_000), -(fi::FI_EAVAIL as isize));
    shim.set("");
}

/// The inline functions of libfabric's headers call these without a look at the table.
#[test]
fn what_is_not_provided_is_refused_by_a_function() {
    let test = "what_is_not_provided_is_refused_by_a_function";
    let Some((_shim, raw, _turn)) = opened(test) else { return };
    let null = ptr::null_mut();
    let results = [
        call!(raw.fabric, ops, passive_ep, ptr::null_mut(), ptr::null_mut(), null),
        call!(raw.fabric, ops, wait_open, ptr::null_mut(), ptr::null_mut()),
        call!(raw.domain, ops, scalable_ep, ptr::null_mut(), ptr::null_mut(), null),
        call!(raw.domain, ops, poll_open, ptr::null_mut(), ptr::null_mut()),
        call!(raw.domain, ops, stx_ctx, ptr::null_mut(), ptr::null_mut(), null),
        call!(raw.domain, ops, srx_ctx, ptr::null_mut(), ptr::null_mut(), null),
        call!(raw.addresses, ops, av_set, ptr::null_mut(), ptr::null_mut(), null),
        call!(raw.endpoint, ops, tx_ctx, 0, ptr::null_mut(), ptr::null_mut(), null),
        call!(raw.endpoint, cm, join, ptr::null(), 0, ptr::null_mut(), null),
    ];
    assert_eq!(results, [-(fi::FI_ENOSYS as i32); 9]);
    let fid: *mut fi::fid = raw.endpoint.cast();
    assert_eq!(call!(fid, ops, control, fi::FI_ALIAS as i32, null), -(fi::FI_ENOSYS as i32));
}
