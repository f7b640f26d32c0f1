// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fabrics, and `fi_trywait`.

use crate::bindings as fi;
use crate::faults;
use crate::object::{
    NO_FUNCTION, Object, fid_ops, forward, function, ours, real_of, refuse, replace, table, wrap,
};
use crate::open::Kind;
use crate::queue;
use crate::site::Site;
use core::ffi::{c_int, c_void};

impl Object for fi::fid_fabric {
    type State = ();
    const KIND: Kind = Kind::Fabric;

    fn fid_ops() -> &'static fi::fi_ops {
        static OPS: fi::fi_ops = fid_ops::<fi::fid_fabric>();
        &OPS
    }

    fn replace_tables(&mut self) {
        self.fid.ops = table(Self::fid_ops());
        self.ops = table(&OPS);
    }
}

/// Passive endpoints and wait sets are not provided: they return or take objects that we would have to stand in front of, too.
static OPS: fi::fi_ops_fabric = fi::fi_ops_fabric {
    size: size_of::<fi::fi_ops_fabric>(),
    domain: Some(open_domain),
    passive_ep: Some(passive_ep),
    eq_open: Some(eq_open),
    wait_open: Some(wait_open),
    trywait: Some(trywait),
    domain2: Some(open_domain2),
};

refuse!(passive_ep, (*mut fi::fid_fabric, *mut fi::fi_info, *mut *mut fi::fid_pep, *mut c_void));
refuse!(wait_open, (*mut fi::fid_fabric, *mut fi::fi_wait_attr, *mut *mut fi::fid_wait));

// Event queues are the real ones: their functions take no object of ours.
forward!(eq_open, fi::fid_fabric, ops: fi::fi_ops_fabric, eq_open,
    (attr: *mut fi::fi_eq_attr, eq: *mut *mut fi::fid_eq, context: *mut c_void) -> c_int, NO_FUNCTION);

unsafe extern "C" fn open_domain(
    fabric: *mut fi::fid_fabric,
    info: *mut fi::fi_info,
    out: *mut *mut fi::fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours(fabric) }.real;
    if let Some(code) = faults::refusal(Site::Domain) {
        return -code.0;
    }
    let Some(open) = function!(real, ops, fi::fi_ops_fabric, domain) else { return NO_FUNCTION };
    // SAFETY: the real object, and the arguments of the program.
    let result = unsafe { open(real, info, out, context) };
    // SAFETY: an open domain, when it is called.
    let wrapped = |real| unsafe { wrap::<fi::fid_domain>(real, ()) };
    // SAFETY: as the call left it.
    unsafe { replace(result, out, wrapped) }
}

unsafe extern "C" fn open_domain2(
    fabric: *mut fi::fid_fabric,
    info: *mut fi::fi_info,
    out: *mut *mut fi::fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours(fabric) }.real;
    if let Some(code) = faults::refusal(Site::Domain) {
        return -code.0;
    }
    let Some(open) = function!(real, ops, fi::fi_ops_fabric, domain2) else { return NO_FUNCTION };
    // SAFETY: the real object, and the arguments of the program.
    let result = unsafe { open(real, info, out, flags, context) };
    // SAFETY: an open domain, when it is called.
    let wrapped = |real| unsafe { wrap::<fi::fid_domain>(real, ()) };
    // SAFETY: as the call left it.
    unsafe { replace(result, out, wrapped) }
}

/// Most objects of one `fi_trywait`.
const WAITED_MAX: usize = 64;

unsafe extern "C" fn trywait(fabric: *mut fi::fid_fabric, fids: *mut *mut fi::fid, count: c_int) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours(fabric) }.real;
    if let Some(code) = faults::refusal(Site::TryWait) {
        return -code.0;
    }
    let count = usize::try_from(count).unwrap_or(0);
    if count > WAITED_MAX {
        return -(fi::FI_EINVAL as c_int);
    }
    let mut real_fids = [core::ptr::null_mut(); WAITED_MAX];
    for (index, real_fid) in real_fids[..count].iter_mut().enumerate() {
        // SAFETY: the program gives an array of so many objects.
        let fid = unsafe { fids.add(index) };
        // SAFETY: an element of it.
        let fid = unsafe { *fid };
        // SAFETY: an open object, says the program.
        if unsafe { queue::has_something(fid) } {
            return -(fi::FI_EAGAIN as c_int);
        }
        // SAFETY: as above.
        *real_fid = unsafe { real_of(fid) };
    }
    let Some(trywait) = function!(real, ops, fi::fi_ops_fabric, trywait) else { return NO_FUNCTION };
    // SAFETY: the real object, and an array of real objects.
    unsafe { trywait(real, real_fids.as_mut_ptr(), count as c_int) }
}
