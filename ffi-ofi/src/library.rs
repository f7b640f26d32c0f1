// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The library and its global functions.

use crate::bindings as fi;
use crate::descriptors::closing_on_exec;
use crate::error::Code;
use crate::info::{Hints, Info};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::ptr::NonNull;
use mend_ffi_dl::{Library, OpenError};
use std::sync::Arc;

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

/// An opened libfabric.
#[derive(Debug)]
pub struct Ofi {
    get_info: GetInfo,
    pub(crate) free_info: FreeInfo,
    pub(crate) dup_info: DupInfo,
    pub(crate) open_fabric: OpenFabric,
    version: u32,
    /// Stays loaded.
    _library: Library,
}

/// Why libfabric cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// The library was not opened.
    #[error("{0}")]
    NotOpened(#[from] OpenError),
    /// The library lacks a function in the version that Mend knows.
    #[error("{library} has no {function} of version {version}; Mend needs libfabric 1.17 or newer")]
    NoSymbol {
        /// The name under which it was opened.
        library: String,
        /// The function.
        function: String,
        /// The symbol version.
        version: String,
    },
    /// The library is too old.
    #[error("{library} is libfabric {major}.{minor}; Mend needs 1.17 or newer")]
    TooOld {
        /// The name under which it was opened.
        library: String,
        /// The major version.
        major: u32,
        /// The minor version.
        minor: u32,
    },
}

/// The version of the interface that is asked for: that of the headers.
const INTERFACE: u32 = fi::FI_MAJOR_VERSION << 16 | fi::FI_MINOR_VERSION;

impl Ofi {
    /// The file name under which libfabric is installed.
    pub const DEFAULT_NAME: &str = "libfabric.so.1";

    /// Opens the library with this name or path. Providers are not looked for yet: [`infos`](Ofi::infos) does that.
    pub fn open(name: &str) -> Result<Arc<Ofi>, LoadError> {
        let library = closing_on_exec(|| Library::open(name))?;
        let symbol = |function: &CStr, version: &CStr| -> Result<NonNull<c_void>, LoadError> {
            library.symbol(function, version).ok_or_else(|| LoadError::NoSymbol {
                library: name.to_owned(),
                function: function.to_string_lossy().into_owned(),
                version: version.to_string_lossy().into_owned(),
            })
        };
        let get_info = symbol(c"fi_getinfo", c"FABRIC_1.3")?;
        let free_info = symbol(c"fi_freeinfo", c"FABRIC_1.3")?;
        let dup_info = symbol(c"fi_dupinfo", c"FABRIC_1.3")?;
        let open_fabric = symbol(c"fi_fabric", c"FABRIC_1.1")?;
        let version = symbol(c"fi_version", c"FABRIC_1.0")?;
        // SAFETY: the function with this name and symbol version has this type (rdma/fabric.h).
        let version: Version = unsafe { core::mem::transmute(version) };
        // SAFETY: takes nothing and returns a number.
        let version = unsafe { version() };
        let (major, minor) = (version >> 16, version & 0xffff);
        if version < INTERFACE {
            return Err(LoadError::TooOld { library: name.to_owned(), major, minor });
        }
        Ok(Arc::new(Ofi {
            // SAFETY: as above.
            get_info: unsafe { core::mem::transmute::<NonNull<c_void>, GetInfo>(get_info) },
            // SAFETY: as above.
            free_info: unsafe { core::mem::transmute::<NonNull<c_void>, FreeInfo>(free_info) },
            // SAFETY: as above.
            dup_info: unsafe { core::mem::transmute::<NonNull<c_void>, DupInfo>(dup_info) },
            // SAFETY: as above.
            open_fabric: unsafe { core::mem::transmute::<NonNull<c_void>, OpenFabric>(open_fabric) },
            version,
            _library: library,
        }))
    }

    /// The version of the library: major and minor number.
    pub fn version(&self) -> (u32, u32) {
        (self.version >> 16, self.version & 0xffff)
    }

    /// What the providers of this host offer for `hints`; none, if nothing fits. This runs code of every provider.
    pub fn infos(self: &Arc<Self>, hints: &Hints) -> Result<Vec<Info>, Code> {
        let asked = hints.build(self).ok_or(Code(fi::FI_ENOMEM as i32))?;
        let mut first = ptr::null_mut();
        let result = closing_on_exec(|| {
            // SAFETY: `asked` is a complete fi_info that lives through the call; `first` is writable; node and service may be null.
            unsafe { (self.get_info)(INTERFACE, ptr::null(), ptr::null(), 0, asked.as_ptr(), &mut first) }
        });
        match Code::check(result) {
            Err(code) if code == Code(fi::FI_ENODATA as i32) => return Ok(Vec::new()),
            answer => answer?,
        }
        let mut infos = Vec::new();
        let mut next = first;
        while let Some(info) = NonNull::new(next) {
            infos.extend(Info::copy_of(self, info));
            // SAFETY: an element of the list that fi_getinfo returned, which is freed below.
            next = unsafe { info.as_ref() }.next;
        }
        if !first.is_null() {
            // SAFETY: the list that fi_getinfo returned, freed once.
            unsafe { (self.free_info)(first) };
        }
        Ok(infos)
    }
}

#[cfg(test)]
mod tests {
    use super::{LoadError, Ofi};

    #[test]
    fn a_library_that_is_not_there_is_one_line() {
        let _turn = crate::descriptors::tests::TURN.lock();
        let error = Ofi::open("libfabric-that-nobody-has.so").unwrap_err();
        assert!(matches!(error, LoadError::NotOpened(_)));
        assert_eq!(error.to_string().lines().count(), 1);
    }

    #[test]
    fn another_library_is_refused_by_the_symbol_that_it_lacks() {
        let _turn = crate::descriptors::tests::TURN.lock();
        let error = Ofi::open("libm.so.6").unwrap_err();
        assert!(matches!(error, LoadError::NoSymbol { .. }), "{error}");
    }
}
