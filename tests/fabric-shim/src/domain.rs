// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Domains: what is opened in them, and registered memory.

use crate::addresses;
use crate::bindings as fi;
use crate::endpoint;
use crate::faults;
use crate::object::{
    NO_FUNCTION, Object, Ours, fid_ops, forward, function, ours, refuse, replace, table, table_if, wrap,
};
use crate::open::Kind;
use crate::queue;
use crate::site::Site;
use core::ffi::{c_int, c_void};
use std::sync::Arc;

impl Object for fi::fid_domain {
    type State = ();
    const KIND: Kind = Kind::Domain;

    fn fid_ops() -> &'static fi::fi_ops {
        static OPS: fi::fi_ops = fid_ops::<fi::fid_domain>();
        &OPS
    }

    fn replace_tables(&mut self) {
        self.fid.ops = table(Self::fid_ops());
        self.ops = table(&OPS);
        self.mr = table_if(self.mr, &REGISTRATION_OPS);
    }
}

/// Scalable endpoints, shared contexts, poll sets and collective operations are not provided: they return or take objects that
/// we would have to stand in front of, too.
static OPS: fi::fi_ops_domain = fi::fi_ops_domain {
    size: size_of::<fi::fi_ops_domain>(),
    av_open: Some(av_open),
    cq_open: Some(cq_open),
    endpoint: Some(endpoint),
    scalable_ep: Some(scalable_ep),
    cntr_open: Some(cntr_open),
    poll_open: Some(poll_open),
    stx_ctx: Some(stx_ctx),
    srx_ctx: Some(srx_ctx),
    query_atomic: Some(query_atomic),
    query_collective: Some(query_collective),
    endpoint2: Some(endpoint2),
};

static REGISTRATION_OPS: fi::fi_ops_mr = fi::fi_ops_mr {
    size: size_of::<fi::fi_ops_mr>(),
    reg: Some(reg),
    regv: Some(regv),
    regattr: Some(regattr),
};

refuse!(scalable_ep, (*mut fi::fid_domain, *mut fi::fi_info, *mut *mut fi::fid_ep, *mut c_void));
refuse!(poll_open, (*mut fi::fid_domain, *mut fi::fi_poll_attr, *mut *mut fi::fid_poll));
refuse!(stx_ctx, (*mut fi::fid_domain, *mut fi::fi_tx_attr, *mut *mut fi::fid_stx, *mut c_void));
refuse!(srx_ctx, (*mut fi::fid_domain, *mut fi::fi_rx_attr, *mut *mut fi::fid_ep, *mut c_void));
refuse!(query_collective, (*mut fi::fid_domain, fi::fi_collective_op, *mut fi::fi_collective_attr, u64));

// Counters are the real ones: their functions take no object of ours. They do not count what is injected.
forward!(cntr_open, fi::fid_domain, ops: fi::fi_ops_domain, cntr_open,
    (attr: *mut fi::fi_cntr_attr, counter: *mut *mut fi::fid_cntr, context: *mut c_void) -> c_int, NO_FUNCTION);
forward!(query_atomic, fi::fid_domain, ops: fi::fi_ops_domain, query_atomic,
    (datatype: fi::fi_datatype, op: fi::fi_op, attr: *mut fi::fi_atomic_attr, flags: u64) -> c_int, NO_FUNCTION);

unsafe extern "C" fn av_open(
    domain: *mut fi::fid_domain,
    attr: *mut fi::fi_av_attr,
    out: *mut *mut fi::fid_av,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours(domain) }.real;
    if let Some(code) = faults::refusal(Site::AvOpen) {
        return -code.0;
    }
    let Some(open) = function!(real, ops, fi::fi_ops_domain, av_open) else { return NO_FUNCTION };
    // SAFETY: the real object, and the arguments of the program.
    let result = unsafe { open(real, attr, out, context) };
    // SAFETY: an open address vector, when it is called.
    let wrapped = |real| unsafe { wrap::<fi::fid_av>(real, Arc::new(addresses::Peers::default())) };
    // SAFETY: as the call left it.
    unsafe { replace(result, out, wrapped) }
}

unsafe extern "C" fn cq_open(
    domain: *mut fi::fid_domain,
    attr: *mut fi::fi_cq_attr,
    out: *mut *mut fi::fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours(domain) }.real;
    if let Some(code) = faults::refusal(Site::CqOpen) {
        return -code.0;
    }
    let Some(open) = function!(real, ops, fi::fi_ops_domain, cq_open) else { return NO_FUNCTION };
    // SAFETY: the attributes of the program.
    let mut format = unsafe { (*attr).format };
    if format == fi::FI_CQ_FORMAT_UNSPEC {
        format = fi::FI_CQ_FORMAT_CONTEXT;
        // The provider must choose what we choose.
        // SAFETY: as above; libfabric may write them, too.
        unsafe { (*attr).format = format };
    }
    let Some(entry_bytes) = queue::entry_bytes(format) else { return NO_FUNCTION };
    // SAFETY: as above.
    let waits = unsafe { (*attr).wait_obj } != fi::FI_WAIT_NONE;
    // SAFETY: the real object, and the arguments of the program.
    let result = unsafe { open(real, attr, out, context) };
    // SAFETY: an open completion queue, when it is called.
    let wrapped = |real| unsafe { wrap::<fi::fid_cq>(real, queue::new(real, entry_bytes, waits)) };
    // SAFETY: as the call left it.
    unsafe { replace(result, out, wrapped) }
}

unsafe extern "C" fn endpoint(
    domain: *mut fi::fid_domain,
    info: *mut fi::fi_info,
    out: *mut *mut fi::fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours(domain) }.real;
    if let Some(code) = faults::refusal(Site::Endpoint) {
        return -code.0;
    }
    let Some(open) = function!(real, ops, fi::fi_ops_domain, endpoint) else { return NO_FUNCTION };
    // SAFETY: the real object, and the arguments of the program.
    let result = unsafe { open(real, info, out, context) };
    // SAFETY: an open endpoint and its description, when it is called.
    let wrapped = |real| unsafe { endpoint::wrapped(real, info) };
    // SAFETY: as the call left it.
    unsafe { replace(result, out, wrapped) }
}

unsafe extern "C" fn endpoint2(
    domain: *mut fi::fid_domain,
    info: *mut fi::fi_info,
    out: *mut *mut fi::fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours(domain) }.real;
    if let Some(code) = faults::refusal(Site::Endpoint) {
        return -code.0;
    }
    let Some(open) = function!(real, ops, fi::fi_ops_domain, endpoint2) else { return NO_FUNCTION };
    // SAFETY: the real object, and the arguments of the program.
    let result = unsafe { open(real, info, out, flags, context) };
    // SAFETY: an open endpoint and its description, when it is called.
    let wrapped = |real| unsafe { endpoint::wrapped(real, info) };
    // SAFETY: as the call left it.
    unsafe { replace(result, out, wrapped) }
}

impl Object for fi::fid_mr {
    type State = ();
    const KIND: Kind = Kind::Registration;

    fn fid_ops() -> &'static fi::fi_ops {
        static OPS: fi::fi_ops = fid_ops::<fi::fid_mr>();
        &OPS
    }

    fn replace_tables(&mut self) {
        self.fid.ops = table(Self::fid_ops());
    }

    /// Providers may choose the key when the registration is enabled.
    fn on_controlled(object: *mut Ours<Self>) {
        let face: *mut fi::fid_mr = object.cast();
        // SAFETY: the caller has our object.
        let real = unsafe { (*object).real };
        // SAFETY: the real object is open as long as ours.
        let (descriptor, key) = (unsafe { (*real).mem_desc }, unsafe { (*real).key });
        // SAFETY: our object begins with its face; the program uses one registration in one thread at a time.
        unsafe { (*face).mem_desc = descriptor };
        // SAFETY: as above.
        unsafe { (*face).key = key };
    }
}

/// Wraps a registration.
///
/// # Safety
/// `result` and `out` are those of a call of the real library that registers memory.
unsafe fn registered(result: c_int, out: *mut *mut fi::fid_mr) -> c_int {
    // SAFETY: an open registration, when it is called.
    let wrapped = |real| unsafe { wrap::<fi::fid_mr>(real, ()) };
    // SAFETY: passed on.
    unsafe { replace(result, out, wrapped) }
}

unsafe extern "C" fn reg(
    domain: *mut fi::fid,
    start: *const c_void,
    bytes: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    out: *mut *mut fi::fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours::<fi::fid_domain>(domain.cast()) }.real;
    if let Some(code) = faults::refusal(Site::MrReg) {
        return -code.0;
    }
    let Some(reg) = function!(real, mr, fi::fi_ops_mr, reg) else { return NO_FUNCTION };
    // SAFETY: the real object, and the arguments of the program.
    let result = unsafe { reg(real.cast(), start, bytes, access, offset, key, flags, out, context) };
    // SAFETY: as the call left it.
    unsafe { registered(result, out) }
}

unsafe extern "C" fn regv(
    domain: *mut fi::fid,
    ranges: *const fi::iovec,
    count: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    out: *mut *mut fi::fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours::<fi::fid_domain>(domain.cast()) }.real;
    if let Some(code) = faults::refusal(Site::MrReg) {
        return -code.0;
    }
    let Some(regv) = function!(real, mr, fi::fi_ops_mr, regv) else { return NO_FUNCTION };
    // SAFETY: the real object, and the arguments of the program.
    let result = unsafe { regv(real.cast(), ranges, count, access, offset, key, flags, out, context) };
    // SAFETY: as the call left it.
    unsafe { registered(result, out) }
}

unsafe extern "C" fn regattr(
    domain: *mut fi::fid,
    attr: *const fi::fi_mr_attr,
    flags: u64,
    out: *mut *mut fi::fid_mr,
) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours::<fi::fid_domain>(domain.cast()) }.real;
    if let Some(code) = faults::refusal(Site::MrReg) {
        return -code.0;
    }
    let Some(regattr) = function!(real, mr, fi::fi_ops_mr, regattr) else { return NO_FUNCTION };
    // SAFETY: the real object, and the arguments of the program.
    let result = unsafe { regattr(real.cast(), attr, flags, out) };
    // SAFETY: as the call left it.
    unsafe { registered(result, out) }
}
