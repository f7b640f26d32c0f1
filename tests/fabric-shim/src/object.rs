// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our objects: what the program holds instead of the objects of the real library. An object begins as libfabric declares it
//! (`fid_ep` and so on), with our tables of functions; behind that is the pointer to the real one. A function of our tables finds
//! it there and calls the function of the real table.

use crate::bindings as fi;
use crate::faults::{self, Injected};
use crate::open::{self, Kind};
use crate::site::Site;
use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Our object.
#[repr(C)]
pub(crate) struct Ours<T: Object> {
    /// What libfabric declares. It comes first, because the program has a pointer to it.
    face: T,
    /// The real object, open as long as this one.
    pub(crate) real: *mut T,
    pub(crate) state: T::State,
    /// Whether the program has asked to close it, and was refused.
    close_failed: AtomicBool,
}

/// An object of libfabric that we stand in front of.
pub(crate) trait Object: Copy + 'static {
    /// What we keep of it.
    type State;
    const KIND: Kind;

    /// Our table of the functions that all objects have. An object with this table is ours.
    fn fid_ops() -> &'static fi::fi_ops;

    /// Replaces the tables of functions in a copy of the real object.
    fn replace_tables(&mut self);

    /// `control` for this object. `None`: the real object's.
    fn control(_ours: &Ours<Self>, _command: c_int) -> Option<c_int> {
        None
    }

    /// What happens after the real object has been bound to another one.
    fn on_bound(_ours: &Ours<Self>, _other: *mut fi::fid, _flags: u64) {}

    /// What happens after a successful `control` of the real object.
    fn on_controlled(_ours: *mut Ours<Self>) {}

    /// What happens when the real object has been closed.
    fn on_closed(_ours: &Ours<Self>) {}
}

/// Puts an object in front of the one that the real library has opened.
///
/// # Safety
/// `real` is an open object of the real library.
pub(crate) unsafe fn wrap<T: Object>(real: *mut T, state: T::State) -> *mut T {
    // SAFETY: the caller vouches for it.
    let mut face = unsafe { *real };
    face.replace_tables();
    open::opened(T::KIND);
    let ours = Ours { face, real, state, close_failed: AtomicBool::new(false) };
    Box::into_raw(Box::new(ours)).cast()
}

/// Ends a call that opens an object: puts the one that `wrapped` makes in front of the real one.
///
/// # Safety
/// `result` and `out` are those of a call of the real library that opens an object; `wrapped` takes such an object.
pub(crate) unsafe fn replace<T>(
    result: c_int,
    out: *mut *mut T,
    wrapped: impl FnOnce(*mut T) -> *mut T,
) -> c_int {
    if result == 0 {
        // SAFETY: success, so the call has written an open object there.
        let real = unsafe { *out };
        let object = wrapped(real);
        // SAFETY: writable, since the call wrote it.
        unsafe { *out = object };
    }
    result
}

/// Our object behind the pointer that the program has.
///
/// # Safety
/// `object` was returned by [`wrap`] and is not closed: functions of our tables get nothing else.
pub(crate) unsafe fn ours<'a, T: Object>(object: *mut T) -> &'a Ours<T> {
    let ours: *const Ours<T> = object.cast();
    // SAFETY: `wrap` made it, and the program uses no closed object.
    unsafe { &*ours }
}

/// The real object, if the given one is ours and of this kind.
///
/// # Safety
/// `fid` is an open object of libfabric or ours.
pub(crate) unsafe fn as_ours<'a, T: Object>(fid: *mut fi::fid) -> Option<&'a Ours<T>> {
    // SAFETY: the caller vouches for it.
    let ops = unsafe { (*fid).ops };
    // SAFETY: only our objects of this kind have this table.
    ptr::eq(ops, T::fid_ops()).then(|| unsafe { ours::<T>(fid.cast()) })
}

/// The real object behind any.
///
/// # Safety
/// As for [`as_ours`].
pub(crate) unsafe fn real_of(fid: *mut fi::fid) -> *mut fi::fid {
    // SAFETY: passed on, here and below.
    let endpoint = unsafe { as_ours::<fi::fid_ep>(fid) }.map(|ours| ours.real.cast());
    // SAFETY: as above.
    let queue = || unsafe { as_ours::<fi::fid_cq>(fid) }.map(|ours| ours.real.cast());
    // SAFETY: as above.
    let addresses = || unsafe { as_ours::<fi::fid_av>(fid) }.map(|ours| ours.real.cast());
    // SAFETY: as above.
    let region = || unsafe { as_ours::<fi::fid_mr>(fid) }.map(|ours| ours.real.cast());
    // SAFETY: as above.
    let domain = || unsafe { as_ours::<fi::fid_domain>(fid) }.map(|ours| ours.real.cast());
    // SAFETY: as above.
    let fabric = || unsafe { as_ours::<fi::fid_fabric>(fid) }.map(|ours| ours.real.cast());
    endpoint.or_else(queue).or_else(addresses).or_else(region).or_else(domain).or_else(fabric).unwrap_or(fid)
}

/// The address of one of our tables, as objects have it. Nobody writes there.
pub(crate) const fn table<T>(table: &'static T) -> *mut T {
    ptr::from_ref(table).cast_mut()
}

/// The same, where the real object has such a table; null where it has none.
pub(crate) fn table_if<T>(real: *mut T, ours: &'static T) -> *mut T {
    if real.is_null() { ptr::null_mut() } else { table(ours) }
}

/// What a function returns that the real library does not have.
pub(crate) const NO_FUNCTION: c_int = -(fi::FI_ENOSYS as c_int);

/// A function of a table of a real object, or `None`: there is no table, it ends before the function, or it has a gap there.
///
/// Every table begins with its size. Libfabric's headers ask for it only before they call functions that were added to a table later;
/// so do we, as a provider may have left the size of an older table wrong.
macro_rules! function {
    ($object:expr, $table:ident, $ops:ty, $function:ident) => {{
        // SAFETY: the real object is open as long as ours.
        let table: *const $ops = unsafe { (*$object).$table };
        let added =
            matches!(stringify!($function), "tostr" | "ops_set" | "query_atomic" | "domain2" | "endpoint2");
        // SAFETY: a table, which begins with its size.
        let ends_before = || unsafe { (*table).size } <= core::mem::offset_of!($ops, $function);
        if table.is_null() || added && ends_before() {
            None
        } else {
            // SAFETY: the table has the function, and lives as long as the object.
            unsafe { (*table).$function }
        }
    }};
}
pub(crate) use function;

/// A function of our tables that does nothing but call the one of the real object. `$missing` is returned where there is none.
macro_rules! forward {
    ($name:ident, $object:ty, $table:ident: $ops:ty, $function:ident,
     ($($argument:ident: $type:ty),*) -> $result:ty, $missing:expr) => {
        unsafe extern "C" fn $name(object: *mut $object $(, $argument: $type)*) -> $result {
            // SAFETY: a function of our tables gets our objects.
            let real = unsafe { crate::object::ours(object) }.real;
            let Some(function) = crate::object::function!(real, $table, $ops, $function) else { return $missing };
            // SAFETY: the real object, and the arguments of the program.
            unsafe { function(real $(, $argument)*) }
        }
    };
}
pub(crate) use forward;

/// A function of our tables that we do not provide. It is no gap in the table: the inline functions of libfabric's headers call some
/// functions without a look.
macro_rules! refuse {
    ($name:ident, ($($argument:ty),*)) => {
        unsafe extern "C" fn $name($(_: $argument),*) -> core::ffi::c_int {
            crate::object::NO_FUNCTION
        }
    };
}
pub(crate) use refuse;

/// The table of the functions that all objects have, for objects of kind `T`.
pub(crate) const fn fid_ops<T: Object>() -> fi::fi_ops {
    fi::fi_ops {
        size: size_of::<fi::fi_ops>(),
        close: Some(close::<T>),
        bind: Some(bind::<T>),
        control: Some(control::<T>),
        ops_open: Some(ops_open::<T>),
        tostr: Some(tostr::<T>),
        ops_set: Some(ops_set::<T>),
    }
}

/// Closes the real object and removes ours. If the real one is not closed, ours stays, so that the program can try again.
unsafe extern "C" fn close<T: Object>(fid: *mut fi::fid) -> c_int {
    let object: *mut Ours<T> = fid.cast();
    // SAFETY: a function of our tables gets our objects.
    let ours = unsafe { ours::<T>(fid.cast()) };
    let injected = faults::at_call(Site::Close, None);
    if let Some(Injected::Return(code)) = injected {
        note_failed_close(ours);
        return -code.0;
    }
    let real: *mut fi::fid = ours.real.cast();
    let Some(close) = function!(real, ops, fi::fi_ops, close) else { return NO_FUNCTION };
    // SAFETY: the real object, closed once: a failure leaves it open.
    let result = unsafe { close(real) };
    if result != 0 {
        note_failed_close(ours);
        return result;
    }
    T::on_closed(ours);
    open::closed(T::KIND, ours.close_failed.load(Ordering::Relaxed));
    // SAFETY: made by `wrap`, and the program does not use a closed object.
    drop(unsafe { Box::from_raw(object) });
    match injected {
        Some(Injected::Made(code)) => -code.0,
        _ => 0,
    }
}

fn note_failed_close<T: Object>(ours: &Ours<T>) {
    if !ours.close_failed.swap(true, Ordering::Relaxed) {
        open::close_failed(T::KIND);
    }
}

unsafe extern "C" fn bind<T: Object>(fid: *mut fi::fid, other: *mut fi::fid, flags: u64) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let ours = unsafe { ours::<T>(fid.cast()) };
    let injected = faults::at_call(Site::Bind, None);
    if let Some(Injected::Return(code)) = injected {
        return -code.0;
    }
    let real: *mut fi::fid = ours.real.cast();
    let Some(bind) = function!(real, ops, fi::fi_ops, bind) else { return NO_FUNCTION };
    // SAFETY: an open object, says the program.
    let real_other = unsafe { real_of(other) };
    // SAFETY: real objects.
    let result = unsafe { bind(real, real_other, flags) };
    if result == 0 {
        T::on_bound(ours, other, flags);
    }
    match injected {
        Some(Injected::Made(code)) => -code.0,
        _ => result,
    }
}

unsafe extern "C" fn control<T: Object>(fid: *mut fi::fid, command: c_int, argument: *mut c_void) -> c_int {
    // These commands return or take objects of the real library.
    if [fi::FI_ALIAS, fi::FI_EXPORT_FID, fi::FI_DUP].contains(&command.cast_unsigned()) {
        return NO_FUNCTION;
    }
    // SAFETY: a function of our tables gets our objects.
    let ours = unsafe { ours::<T>(fid.cast()) };
    if let Some(result) = T::control(ours, command) {
        return result;
    }
    let real: *mut fi::fid = ours.real.cast();
    let Some(control) = function!(real, ops, fi::fi_ops, control) else { return NO_FUNCTION };
    // SAFETY: the real object, and the argument of the program.
    let result = unsafe { control(real, command, argument) };
    if result == 0 {
        T::on_controlled(fid.cast());
    }
    result
}

unsafe extern "C" fn ops_open<T: Object>(
    fid: *mut fi::fid,
    name: *const c_char,
    flags: u64,
    ops: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real: *mut fi::fid = unsafe { ours::<T>(fid.cast()) }.real.cast();
    let Some(open) = function!(real, ops, fi::fi_ops, ops_open) else { return NO_FUNCTION };
    // SAFETY: the real object, and the arguments of the program.
    unsafe { open(real, name, flags, ops, context) }
}

unsafe extern "C" fn tostr<T: Object>(fid: *const fi::fid, out: *mut c_char, bytes: usize) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real: *mut fi::fid = unsafe { ours::<T>(fid.cast_mut().cast()) }.real.cast();
    let Some(tostr) = function!(real, ops, fi::fi_ops, tostr) else { return NO_FUNCTION };
    // SAFETY: the real object, and the arguments of the program.
    unsafe { tostr(real, out, bytes) }
}

unsafe extern "C" fn ops_set<T: Object>(
    fid: *mut fi::fid,
    name: *const c_char,
    flags: u64,
    ops: *mut c_void,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a function of our tables gets our objects.
    let real: *mut fi::fid = unsafe { ours::<T>(fid.cast()) }.real.cast();
    let Some(set) = function!(real, ops, fi::fi_ops, ops_set) else { return NO_FUNCTION };
    // SAFETY: the real object, and the arguments of the program.
    unsafe { set(real, name, flags, ops, context) }
}
