// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The handle of a test on the library that it has opened as libfabric.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::NonNull;
use mend_ffi_dl::Library;
use std::ffi::CString;
use std::path::PathBuf;

/// The opened library. Its rules, counts and objects are those of the process: tests of one process that use it take turns.
#[derive(Debug)]
pub struct Shim {
    set: unsafe extern "C" fn(*const c_char) -> c_int,
    calls: unsafe extern "C" fn(*const c_char, c_int) -> u64,
    objects: unsafe extern "C" fn(c_int) -> i64,
    report: unsafe extern "C" fn(*mut c_char, usize) -> usize,
    /// Stays loaded.
    _library: Library,
}

impl Shim {
    /// The library that cargo has built for the running test, whose crate names `mend-fabric-shim` as a dependency.
    pub fn path() -> PathBuf {
        let program = std::env::current_exe().unwrap_or_default();
        program.with_file_name("libmend_fabric_shim.so")
    }

    /// Opens the library at [`path`](Shim::path), or says why not.
    pub fn open() -> Result<Shim, String> {
        let path = Shim::path();
        let library = Library::open(&path.to_string_lossy()).map_err(|error| error.to_string())?;
        let symbol = |name: &CStr| -> Result<NonNull<c_void>, String> {
            library.symbol(name, c"MEND_1").ok_or_else(|| format!("{} has no {name:?}", path.display()))
        };
        let (set, calls) = (symbol(c"mend_fabric_shim_set")?, symbol(c"mend_fabric_shim_calls")?);
        let (objects, report) = (symbol(c"mend_fabric_shim_objects")?, symbol(c"mend_fabric_shim_report")?);
        Ok(Shim {
            // SAFETY: the type of the function with this name, in `exports.rs`.
            set: unsafe { transmute::<NonNull<c_void>, unsafe extern "C" fn(*const c_char) -> c_int>(set) },
            // SAFETY: as above.
            calls: unsafe {
                transmute::<NonNull<c_void>, unsafe extern "C" fn(*const c_char, c_int) -> u64>(calls)
            },
            // SAFETY: as above.
            objects: unsafe { transmute::<NonNull<c_void>, unsafe extern "C" fn(c_int) -> i64>(objects) },
            // SAFETY: as above.
            report: unsafe {
                transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut c_char, usize) -> usize>(report)
            },
            _library: library,
        })
    }

    /// Replaces the rules, and sets all counts to zero. Panics if the text is no rules.
    pub fn set(&self, rules: &str) {
        let text = CString::new(rules).expect("rules have no zero byte");
        // SAFETY: a C string.
        let result = unsafe { (self.set)(text.as_ptr()) };
        assert_eq!(result, 0, "the shim refuses {rules:?}");
    }

    /// How often a site was called.
    pub fn calls(&self, site: crate::Site) -> u64 {
        self.count(site, 0)
    }

    /// How many faults were injected at a site.
    pub fn injected(&self, site: crate::Site) -> u64 {
        self.count(site, 1)
    }

    fn count(&self, site: crate::Site, injected: c_int) -> u64 {
        let name = CString::new(site.name()).expect("a name has no zero byte");
        // SAFETY: a C string.
        unsafe { (self.calls)(name.as_ptr(), injected) }
    }

    /// How many objects are open that nobody has asked to close.
    pub fn open_objects(&self) -> i64 {
        // SAFETY: takes a number.
        unsafe { (self.objects)(0) }
    }

    /// How many objects are open because their close failed.
    pub fn refused_objects(&self) -> i64 {
        // SAFETY: takes a number.
        unsafe { (self.objects)(1) }
    }

    /// The report.
    pub fn report(&self) -> String {
        let mut text = vec![0_u8; 8_192];
        // SAFETY: so many writable bytes.
        let length = unsafe { (self.report)(text.as_mut_ptr().cast(), text.len()) };
        text.truncate(length.min(text.len() - 1));
        String::from_utf8_lossy(&text).into_owned()
    }
}
