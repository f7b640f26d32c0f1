// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C symbols: those of libfabric with their versions, and those that control the faults.

use crate::bindings as fi;
use crate::faults;
use crate::object::{NO_FUNCTION, replace, wrap};
use crate::open::{self, Kind};
use crate::real;
use crate::report;
use crate::rules::Rules;
use crate::site::Site;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use std::sync::OnceLock;

// The functions below under the names of libfabric: `NAME@@VERSION` is also what programs without a version get.
core::arch::global_asm!(
    ".symver mend_fabric_shim_getinfo, fi_getinfo@@FABRIC_1.3",
    ".symver mend_fabric_shim_freeinfo, fi_freeinfo@@FABRIC_1.3",
    ".symver mend_fabric_shim_dupinfo, fi_dupinfo@@FABRIC_1.3",
    ".symver mend_fabric_shim_fabric, fi_fabric@@FABRIC_1.1",
    ".symver mend_fabric_shim_version, fi_version@@FABRIC_1.0",
    ".symver mend_fabric_shim_strerror, fi_strerror@@FABRIC_1.0",
    ".symver mend_fabric_shim_tostr, fi_tostr@@FABRIC_1.0",
    ".symver mend_fabric_shim_tostr_r, fi_tostr_r@@FABRIC_1.4",
    ".symver mend_fabric_shim_getparams, fi_getparams@@FABRIC_1.0",
    ".symver mend_fabric_shim_freeparams, fi_freeparams@@FABRIC_1.0",
    ".symver mend_fabric_shim_set_faults, mend_fabric_shim_set@@MEND_1",
    ".symver mend_fabric_shim_count, mend_fabric_shim_calls@@MEND_1",
    ".symver mend_fabric_shim_count_objects, mend_fabric_shim_objects@@MEND_1",
    ".symver mend_fabric_shim_write_report, mend_fabric_shim_report@@MEND_1",
);

/// The environment variable with the rules.
const FAULTS_VARIABLE: &str = "MEND_FABRIC_SHIM_FAULTS";

/// Reads the environment at the first call. `false`: its rules are wrong, which is said on stderr; nothing is opened then, so that
/// no test passes because a rule was misspelled.
fn is_set_up() -> bool {
    static SET_UP: OnceLock<bool> = OnceLock::new();
    *SET_UP.get_or_init(|| {
        report::print_at_exit_if_asked();
        let Ok(text) = std::env::var(FAULTS_VARIABLE) else { return true };
        match Rules::parse(&text) {
            Ok(rules) => faults::set(rules),
            Err(error) => {
                eprintln!("mend-fabric-shim: {FAULTS_VARIABLE}: {}", error.0);
                return false;
            }
        }
        true
    })
}

/// How many elements a list has.
///
/// # Safety
/// The list is complete, or null.
unsafe fn length(mut info: *const fi::fi_info) -> i64 {
    let mut length = 0;
    // SAFETY: the caller vouches for it.
    while let Some(element) = unsafe { info.as_ref() } {
        length += 1;
        info = element.next;
    }
    length
}

/// `fi_getinfo`.
///
/// # Safety
/// As `fi_getinfo(3)` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_fabric_shim_getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi::fi_info,
    out: *mut *mut fi::fi_info,
) -> c_int {
    if !is_set_up() {
        return -(fi::FI_EINVAL as c_int);
    }
    if let Some(code) = faults::refusal(Site::GetInfo) {
        return -code.0;
    }
    let Some(real) = real::library() else { return NO_FUNCTION };
    // SAFETY: the arguments of the program.
    let result = unsafe { (real.getinfo)(version, node, service, flags, hints, out) };
    if result == 0 {
        // SAFETY: success, so the call has written a list there.
        let list = unsafe { *out };
        // SAFETY: as above.
        open::add(Kind::Info, unsafe { length(list) });
    }
    result
}

/// `fi_freeinfo`.
///
/// # Safety
/// As `fi_getinfo(3)` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_fabric_shim_freeinfo(info: *mut fi::fi_info) {
    let Some(real) = real::library() else { return };
    // SAFETY: a list of the program.
    open::add(Kind::Info, -unsafe { length(info) });
    // SAFETY: as above.
    unsafe { (real.freeinfo)(info) };
}

/// `fi_dupinfo`, and `fi_allocinfo`, which calls it with null.
///
/// # Safety
/// As `fi_getinfo(3)` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_fabric_shim_dupinfo(info: *const fi::fi_info) -> *mut fi::fi_info {
    let Some(real) = real::library() else { return ptr::null_mut() };
    // SAFETY: the argument of the program.
    let copy = unsafe { (real.dupinfo)(info) };
    // SAFETY: a list of one element, or null.
    open::add(Kind::Info, unsafe { length(copy) });
    copy
}

/// `fi_fabric`.
///
/// # Safety
/// As `fi_fabric(3)` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_fabric_shim_fabric(
    attr: *mut fi::fi_fabric_attr,
    out: *mut *mut fi::fid_fabric,
    context: *mut c_void,
) -> c_int {
    if !is_set_up() {
        return -(fi::FI_EINVAL as c_int);
    }
    if let Some(code) = faults::refusal(Site::Fabric) {
        return -code.0;
    }
    let Some(real) = real::library() else { return NO_FUNCTION };
    // SAFETY: the arguments of the program.
    let result = unsafe { (real.fabric)(attr, out, context) };
    // SAFETY: an open fabric, when it is called.
    let wrapped = |real| unsafe { wrap::<fi::fid_fabric>(real, ()) };
    // SAFETY: as the call left it.
    unsafe { replace(result, out, wrapped) }
}

/// `fi_version`: that of the real library, or 0.
#[unsafe(no_mangle)]
pub extern "C" fn mend_fabric_shim_version() -> u32 {
    // SAFETY: takes nothing and returns a number.
    real::library().map_or(0, |real| unsafe { (real.version)() })
}

/// `fi_strerror`.
#[unsafe(no_mangle)]
pub extern "C" fn mend_fabric_shim_strerror(code: c_int) -> *const c_char {
    // SAFETY: takes a number.
    real::library().map_or(c"unknown error".as_ptr(), |real| unsafe { (real.strerror)(code) })
}

/// `fi_tostr`.
///
/// # Safety
/// As `fi_tostr(3)` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_fabric_shim_tostr(data: *const c_void, kind: fi::fi_type) -> *mut c_char {
    let Some(real) = real::library() else { return ptr::null_mut() };
    // SAFETY: the arguments of the program.
    unsafe { (real.tostr)(data, kind) }
}

/// `fi_tostr_r`.
///
/// # Safety
/// As `fi_tostr(3)` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_fabric_shim_tostr_r(
    out: *mut c_char,
    bytes: usize,
    data: *const c_void,
    kind: fi::fi_type,
) -> *mut c_char {
    let Some(real) = real::library() else { return ptr::null_mut() };
    // SAFETY: the arguments of the program.
    unsafe { (real.tostr_r)(out, bytes, data, kind) }
}

/// `fi_getparams`.
///
/// # Safety
/// As `fi_getinfo(3)` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_fabric_shim_getparams(out: *mut *mut fi::fi_param, count: *mut c_int) -> c_int {
    let Some(real) = real::library() else { return NO_FUNCTION };
    // SAFETY: the arguments of the program.
    unsafe { (real.getparams)(out, count) }
}

/// `fi_freeparams`.
///
/// # Safety
/// As `fi_getinfo(3)` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_fabric_shim_freeparams(params: *mut fi::fi_param) {
    let Some(real) = real::library() else { return };
    // SAFETY: the argument of the program.
    unsafe { (real.freeparams)(params) };
}

/// `int mend_fabric_shim_set(const char *rules)`: replaces the rules and sets all counts to zero. 0, or `-FI_EINVAL` if the text is
/// no rules, which is said on stderr.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_fabric_shim_set_faults(rules: *const c_char) -> c_int {
    // The rules of the environment must not replace these at the next call.
    is_set_up();
    // SAFETY: the caller vouches for it.
    let text = unsafe { CStr::from_ptr(rules) }.to_string_lossy();
    match Rules::parse(&text) {
        Ok(rules) => faults::set(rules),
        Err(error) => {
            eprintln!("mend-fabric-shim: {}", error.0);
            return -(fi::FI_EINVAL as c_int);
        }
    }
    0
}

/// `uint64_t mend_fabric_shim_calls(const char *site, int injected)`: how often a site was called, or how many faults were injected
/// there. All bits are set where there is no such site.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_fabric_shim_count(site: *const c_char, injected: c_int) -> u64 {
    // SAFETY: the caller vouches for it.
    let name = unsafe { CStr::from_ptr(site) }.to_string_lossy();
    let count = |site: Site| if injected == 0 { site.calls() } else { site.injected() };
    Site::named(&name).map_or(u64::MAX, count)
}

/// `int64_t mend_fabric_shim_objects(int refused)`: how many objects are open that the program has not asked to close, or how many
/// because their close failed.
#[unsafe(no_mangle)]
pub extern "C" fn mend_fabric_shim_count_objects(refused: c_int) -> i64 {
    let count = |(kind, _): &(Kind, _)| if refused == 0 { kind.open() } else { kind.refused() };
    Kind::ALL.iter().map(count).sum()
}

/// `size_t mend_fabric_shim_report(char *out, size_t bytes)`: writes the report as a C string, cut to the buffer, and returns its
/// length.
///
/// # Safety
/// So many writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_fabric_shim_write_report(out: *mut c_char, bytes: usize) -> usize {
    let text = report::text();
    let written = text.len().min(bytes.saturating_sub(1));
    if bytes > 0 {
        // SAFETY: the caller vouches for `bytes` bytes, of which this is one less at most.
        unsafe { ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), written) };
        // SAFETY: the last of them at most.
        let end = unsafe { out.add(written) };
        // SAFETY: as above.
        unsafe { end.write(0) };
    }
    text.len()
}
