// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real library: which one is opened, and its global functions.

use crate::bindings as fi;
use crate::exports;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::ptr::NonNull;
use mend_ffi_dl::Library;
use std::ffi::CString;
use std::sync::OnceLock;

/// The environment variable that names the real library.
const VARIABLE: &str = "MEND_FABRIC_SHIM_LIBRARY";
const DEFAULT: &str = "libfabric.so.1";

/// The functions of the real library, each with the version that our function of this name has.
pub(crate) struct Real {
    pub(crate) getinfo: GetInfo,
    pub(crate) freeinfo: FreeInfo,
    pub(crate) dupinfo: DupInfo,
    pub(crate) fabric: OpenFabric,
    pub(crate) version: Version,
    pub(crate) strerror: StrError,
    pub(crate) tostr: ToStr,
    pub(crate) tostr_r: ToStrR,
    pub(crate) getparams: GetParams,
    pub(crate) freeparams: FreeParams,
}

type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const fi::fi_info,
    *mut *mut fi::fi_info,
) -> c_int;
type FreeInfo = unsafe extern "C" fn(*mut fi::fi_info);
type DupInfo = unsafe extern "C" fn(*const fi::fi_info) -> *mut fi::fi_info;
type OpenFabric =
    unsafe extern "C" fn(*mut fi::fi_fabric_attr, *mut *mut fi::fid_fabric, *mut c_void) -> c_int;
type Version = unsafe extern "C" fn() -> u32;
type StrError = unsafe extern "C" fn(c_int) -> *const c_char;
type ToStr = unsafe extern "C" fn(*const c_void, fi::fi_type) -> *mut c_char;
type ToStrR = unsafe extern "C" fn(*mut c_char, usize, *const c_void, fi::fi_type) -> *mut c_char;
type GetParams = unsafe extern "C" fn(*mut *mut fi::fi_param, *mut c_int) -> c_int;
type FreeParams = unsafe extern "C" fn(*mut fi::fi_param);

/// The real library. The first call opens it, and says on stderr why it could not.
pub(crate) fn library() -> Option<&'static Real> {
    static REAL: OnceLock<Option<Real>> = OnceLock::new();
    let open = || open().inspect_err(|why| eprintln!("mend-fabric-shim: {why}")).ok();
    REAL.get_or_init(open).as_ref()
}

fn open() -> Result<Real, String> {
    let name = std::env::var(VARIABLE).unwrap_or_else(|_| DEFAULT.to_owned());
    let library = if stands_before_all() {
        if is_loaded(&name) {
            return Err(format!("{name} is loaded, and would call the shim: {LINKED}"));
        }
        Library::open_apart(&name)
    } else {
        Library::open(&name)
    };
    let library = library.map_err(|error| error.to_string())?;
    let symbol = |function: &CStr, version: &CStr| {
        let (function_name, version_name) = (function.to_string_lossy(), version.to_string_lossy());
        let missing = || format!("{name} has no {function_name} of version {version_name}");
        library.symbol(function, version).ok_or_else(missing)
    };
    /// The function with this name, of this type.
    macro_rules! function {
        ($type:ty, $name:literal, $version:literal) => {{
            let symbol: NonNull<c_void> = symbol($name, $version)?;
            // SAFETY: the function with this name and symbol version has this type (rdma/fabric.h).
            unsafe { core::mem::transmute::<NonNull<c_void>, $type>(symbol) }
        }};
    }
    let ours: *const c_void = exports::mend_fabric_shim_getinfo as *const c_void;
    if library.symbol(c"fi_getinfo", c"FABRIC_1.3").is_some_and(|found| ptr::eq(found.as_ptr(), ours)) {
        return Err(format!("{name} is the shim itself: {LINKED}"));
    }
    Ok(Real {
        getinfo: function!(GetInfo, c"fi_getinfo", c"FABRIC_1.3"),
        freeinfo: function!(FreeInfo, c"fi_freeinfo", c"FABRIC_1.3"),
        dupinfo: function!(DupInfo, c"fi_dupinfo", c"FABRIC_1.3"),
        fabric: function!(OpenFabric, c"fi_fabric", c"FABRIC_1.1"),
        version: function!(Version, c"fi_version", c"FABRIC_1.0"),
        strerror: function!(StrError, c"fi_strerror", c"FABRIC_1.0"),
        tostr: function!(ToStr, c"fi_tostr", c"FABRIC_1.0"),
        tostr_r: function!(ToStrR, c"fi_tostr_r", c"FABRIC_1.4"),
        getparams: function!(GetParams, c"fi_getparams", c"FABRIC_1.0"),
        freeparams: function!(FreeParams, c"fi_freeparams", c"FABRIC_1.0"),
    })
}

/// What a user does whose program is linked to libfabric.
const LINKED: &str = "name the real library by its path in MEND_FABRIC_SHIM_LIBRARY, and give the shim its place, not LD_PRELOAD";

/// Whether calls of `fi_getinfo` find the shim first, those of the real library to itself among them: the program is linked to it.
fn stands_before_all() -> bool {
    // SAFETY: null names the program with all that it is linked to. Not RTLD_DEFAULT, which would find what is in the shim itself.
    let program = unsafe { libc::dlopen(ptr::null(), libc::RTLD_LAZY) };
    // SAFETY: an open handle and a C string.
    let found = unsafe { libc::dlsym(program, c"fi_getinfo".as_ptr()) };
    ptr::eq(found, exports::mend_fabric_shim_getinfo as *const c_void)
}

fn is_loaded(name: &str) -> bool {
    let Ok(path) = CString::new(name) else { return false };
    // SAFETY: a C string; nothing is loaded.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    // The handle is kept: the library stays loaded.
    !handle.is_null()
}
