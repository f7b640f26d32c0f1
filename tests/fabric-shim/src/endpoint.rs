// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Endpoints: what they are bound to, and what is injected into the operations that they start.

use crate::addresses::Peers;
use crate::atomics;
use crate::bindings as fi;
use crate::faults::{self, Injected};
use crate::messages;
use crate::object::{
    NO_FUNCTION, Object, Ours, as_ours, fid_ops, forward, function, ours, refuse, table, table_if, wrap,
};
use crate::open::Kind;
use crate::queue::Queue;
use crate::remote_memory;
use crate::rules::Failure;
use crate::site::Site;
use crate::tagged;
use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What we keep of an endpoint.
pub(crate) struct EndpointState {
    bound: Mutex<Bound>,
    /// Whether operations without flags have a completion, if the endpoint is bound so that not all have.
    completes_by_default: bool,
}

/// What an endpoint is bound to.
#[derive(Default)]
struct Bound {
    transmit: Option<Arc<Queue>>,
    receive: Option<Arc<Queue>>,
    peers: Option<Arc<Peers>>,
    /// Only operations with `FI_COMPLETION` have a completion: those that transmit, and those that receive.
    selective: (bool, bool),
}

/// An operation that the program starts.
pub(crate) struct Operation {
    pub(crate) site: Site,
    /// By which address the operation names the peer.
    pub(crate) address: u64,
    pub(crate) context: *mut c_void,
    /// Whether it has a completion when it succeeds.
    pub(crate) completes: Completes,
    /// The flags of its completion.
    pub(crate) flags: u64,
}

/// Whether an operation has a completion when it succeeds.
#[derive(Clone, Copy)]
pub(crate) enum Completes {
    ByDefault,
    /// As these flags say.
    Flags(u64),
    Never,
}

impl Object for fi::fid_ep {
    type State = EndpointState;
    const KIND: Kind = Kind::Endpoint;

    fn fid_ops() -> &'static fi::fi_ops {
        static OPS: fi::fi_ops = fid_ops::<fi::fid_ep>();
        &OPS
    }

    fn replace_tables(&mut self) {
        self.fid.ops = table(Self::fid_ops());
        self.ops = table_if(self.ops, &OPS);
        self.cm = table_if(self.cm, &CONNECTION_OPS);
        self.msg = table_if(self.msg, &messages::OPS);
        self.tagged = table_if(self.tagged, &tagged::OPS);
        self.rma = table_if(self.rma, &remote_memory::OPS);
        self.atomic = table_if(self.atomic, &atomics::OPS);
        // Collective operations are not provided.
        self.collective = ptr::null_mut();
    }

    fn control(_ours: &Ours<Self>, command: c_int) -> Option<c_int> {
        let enables = command.cast_unsigned() == fi::FI_ENABLE;
        enables.then(|| faults::refusal(Site::Enable)).flatten().map(|code| -code.0)
    }

    fn on_bound(ours: &Ours<Self>, other: *mut fi::fid, flags: u64) {
        let mut bound = ours.state.lock();
        // SAFETY: an open object, to which the real endpoint has been bound.
        if let Some(peers) = unsafe { as_ours::<fi::fid_av>(other) } {
            bound.peers = Some(Arc::clone(&peers.state));
        }
        // SAFETY: as above.
        let Some(queue) = (unsafe { as_ours::<fi::fid_cq>(other) }) else { return };
        let selective = flags & fi::FI_SELECTIVE_COMPLETION != 0;
        if flags & u64::from(fi::FI_TRANSMIT) != 0 {
            bound.transmit = Some(Arc::clone(&queue.state));
            bound.selective.0 = selective;
        }
        if flags & u64::from(fi::FI_RECV) != 0 {
            bound.receive = Some(Arc::clone(&queue.state));
            bound.selective.1 = selective;
        }
    }

    fn on_closed(ours: &Ours<Self>) {
        let bound = ours.state.lock();
        let queues = [&bound.transmit, &bound.receive];
        queues.into_iter().flatten().for_each(|queue| queue.forget(identity(ours)));
    }
}

/// Our endpoint in front of the real one.
///
/// # Safety
/// `real` is an endpoint that the real library has opened for `info`.
pub(crate) unsafe fn wrapped(real: *mut fi::fid_ep, info: *const fi::fi_info) -> *mut fi::fid_ep {
    // SAFETY: the caller vouches for it.
    let attr = unsafe { info.as_ref() }.map_or(ptr::null_mut(), |info| info.tx_attr);
    // SAFETY: null, or an attribute of the program's fi_info.
    let flags = unsafe { attr.as_ref() }.map_or(0, |attr| attr.op_flags);
    let completes_by_default = flags & u64::from(fi::FI_COMPLETION) != 0;
    let state = EndpointState { bound: Mutex::default(), completes_by_default };
    // SAFETY: passed on.
    unsafe { wrap(real, state) }
}

/// By what a queue knows an endpoint.
fn identity(ours: &Ours<fi::fid_ep>) -> usize {
    ptr::from_ref(ours).addr()
}

/// Counts an operation that an endpoint starts; what the call returns, if a fault is injected instead of starting it.
pub(crate) fn injected(ours: &Ours<fi::fid_ep>, operation: &Operation) -> Option<isize> {
    let bound = ours.state.lock();
    let known = operation.address != ADDRESS_UNSPECIFIED;
    let number = |address| bound.peers.as_ref().map_or(address, |peers| peers.number(address));
    let peer = known.then(|| number(operation.address));
    let injected = faults::at_call(operation.site, peer)?;
    let receives = operation.site == Site::Recv;
    let queue = if receives { &bound.receive } else { &bound.transmit };
    match injected {
        Injected::Return(code) => return Some(-(code.0 as isize)),
        Injected::Fail(failure) => {
            queue.iter().for_each(|queue| queue.fail(failed(operation, failure), identity(ours)));
        }
        Injected::Complete => {
            let selective = if receives { bound.selective.1 } else { bound.selective.0 };
            let completes = match operation.completes {
                Completes::Never => false,
                Completes::ByDefault => !selective || ours.state.completes_by_default,
                Completes::Flags(flags) => !selective || flags & u64::from(fi::FI_COMPLETION) != 0,
            };
            let queue = queue.as_ref().filter(|_| completes);
            queue.iter().for_each(|queue| queue.complete(completed(operation), identity(ours)));
        }
        Injected::Made(_) => return None,
    }
    Some(0)
}

/// `FI_ADDR_UNSPEC`, which the bindings do not have.
const ADDRESS_UNSPECIFIED: u64 = u64::MAX;

fn completed(operation: &Operation) -> fi::fi_cq_tagged_entry {
    let Operation { context, flags, .. } = *operation;
    fi::fi_cq_tagged_entry { op_context: context, flags, len: 0, buf: ptr::null_mut(), data: 0, tag: 0 }
}

fn failed(operation: &Operation, failure: Failure) -> fi::fi_cq_err_entry {
    let Operation { context, flags, .. } = *operation;
    fi::fi_cq_err_entry {
        op_context: context,
        flags,
        len: 0,
        buf: ptr::null_mut(),
        data: 0,
        tag: 0,
        olen: 0,
        err: failure.code.0,
        prov_errno: failure.provider_code,
        err_data: ptr::null_mut(),
        err_data_size: 0,
    }
}

impl EndpointState {
    fn lock(&self) -> MutexGuard<'_, Bound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A function of our tables that starts an operation: the one of the real object, unless a fault is injected. `$operation` is what
/// is started.
macro_rules! starts {
    ($name:ident, $table:ident: $ops:ty, $function:ident,
     ($($argument:ident: $type:ty),*), $operation:expr) => {
        unsafe extern "C" fn $name(endpoint: *mut crate::bindings::fid_ep $(, $argument: $type)*) -> isize {
            // SAFETY: a function of our tables gets our objects.
            let ours = unsafe { crate::object::ours(endpoint) };
            if let Some(result) = crate::endpoint::injected(ours, &$operation) {
                return result;
            }
            let Some(function) = crate::object::function!(ours.real, $table, $ops, $function) else {
                return crate::object::NO_FUNCTION as isize;
            };
            // SAFETY: the real endpoint, and the arguments of the program.
            unsafe { function(ours.real $(, $argument)*) }
        }
    };
}
pub(crate) use starts;

/// Contexts of scalable endpoints are not provided: they are endpoints.
static OPS: fi::fi_ops_ep = fi::fi_ops_ep {
    size: size_of::<fi::fi_ops_ep>(),
    cancel: Some(cancel),
    getopt: Some(getopt),
    setopt: Some(setopt),
    tx_ctx: Some(tx_ctx),
    rx_ctx: Some(rx_ctx),
    rx_size_left: Some(rx_size_left),
    tx_size_left: Some(tx_size_left),
};

/// Passive endpoints and multicast groups are not provided.
static CONNECTION_OPS: fi::fi_ops_cm = fi::fi_ops_cm {
    size: size_of::<fi::fi_ops_cm>(),
    setname: Some(setname),
    getname: Some(getname),
    getpeer: Some(getpeer),
    connect: Some(connect),
    listen: Some(listen),
    accept: Some(accept),
    reject: Some(reject),
    shutdown: Some(shutdown),
    join: Some(join),
};

refuse!(tx_ctx, (*mut fi::fid_ep, c_int, *mut fi::fi_tx_attr, *mut *mut fi::fid_ep, *mut c_void));
refuse!(rx_ctx, (*mut fi::fid_ep, c_int, *mut fi::fi_rx_attr, *mut *mut fi::fid_ep, *mut c_void));
refuse!(listen, (*mut fi::fid_pep));
refuse!(reject, (*mut fi::fid_pep, fi::fid_t, *const c_void, usize));
refuse!(join, (*mut fi::fid_ep, *const c_void, u64, *mut *mut fi::fid_mc, *mut c_void));

forward!(rx_size_left, fi::fid_ep, ops: fi::fi_ops_ep, rx_size_left, () -> isize, NO_FUNCTION as isize);
forward!(tx_size_left, fi::fid_ep, ops: fi::fi_ops_ep, tx_size_left, () -> isize, NO_FUNCTION as isize);
forward!(getpeer, fi::fid_ep, cm: fi::fi_ops_cm, getpeer,
    (name: *mut c_void, bytes: *mut usize) -> c_int, NO_FUNCTION);
forward!(connect, fi::fid_ep, cm: fi::fi_ops_cm, connect,
    (name: *const c_void, data: *const c_void, bytes: usize) -> c_int, NO_FUNCTION);
forward!(accept, fi::fid_ep, cm: fi::fi_ops_cm, accept,
    (data: *const c_void, bytes: usize) -> c_int, NO_FUNCTION);
forward!(shutdown, fi::fid_ep, cm: fi::fi_ops_cm, shutdown, (flags: u64) -> c_int, NO_FUNCTION);

/// Cancels an operation. One that was injected is over already.
unsafe extern "C" fn cancel(endpoint: fi::fid_t, context: *mut c_void) -> isize {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours::<fi::fid_ep>(endpoint.cast()) }.real;
    if let Some(code) = faults::refusal(Site::Cancel) {
        return -(code.0 as isize);
    }
    let Some(cancel) = function!(real, ops, fi::fi_ops_ep, cancel) else { return NO_FUNCTION as isize };
    // SAFETY: the real endpoint, and the argument of the program.
    unsafe { cancel(real.cast(), context) }
}

unsafe extern "C" fn getopt(
    endpoint: fi::fid_t,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    bytes: *mut usize,
) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours::<fi::fid_ep>(endpoint.cast()) }.real;
    let Some(getopt) = function!(real, ops, fi::fi_ops_ep, getopt) else { return NO_FUNCTION };
    // SAFETY: the real endpoint, and the arguments of the program.
    unsafe { getopt(real.cast(), level, option, value, bytes) }
}

unsafe extern "C" fn setopt(
    endpoint: fi::fid_t,
    level: c_int,
    option: c_int,
    value: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours::<fi::fid_ep>(endpoint.cast()) }.real;
    if let Some(code) = faults::refusal(Site::SetOpt) {
        return -code.0;
    }
    let Some(setopt) = function!(real, ops, fi::fi_ops_ep, setopt) else { return NO_FUNCTION };
    // SAFETY: the real endpoint, and the arguments of the program.
    unsafe { setopt(real.cast(), level, option, value, bytes) }
}

unsafe extern "C" fn setname(endpoint: fi::fid_t, name: *mut c_void, bytes: usize) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours::<fi::fid_ep>(endpoint.cast()) }.real;
    let Some(setname) = function!(real, cm, fi::fi_ops_cm, setname) else { return NO_FUNCTION };
    // SAFETY: the real endpoint, and the arguments of the program.
    unsafe { setname(real.cast(), name, bytes) }
}

unsafe extern "C" fn getname(endpoint: fi::fid_t, name: *mut c_void, bytes: *mut usize) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real = unsafe { ours::<fi::fid_ep>(endpoint.cast()) }.real;
    if let Some(code) = faults::refusal(Site::GetName) {
        return -code.0;
    }
    let Some(getname) = function!(real, cm, fi::fi_ops_cm, getname) else { return NO_FUNCTION };
    // SAFETY: the real endpoint, and the arguments of the program.
    unsafe { getname(real.cast(), name, bytes) }
}
