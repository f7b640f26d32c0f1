// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System libraries that are opened at run time, so that a binary starts without them. Symbols are looked up with their version:
//! without one, `dlsym` returns the newest, whose structures may be longer than those that the caller knows.
//!
//! Not here: what the symbols mean. Each library has a crate of its own, `ffi-NAME`.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::NonNull;
use std::ffi::CString;

/// An opened library. It stays loaded until the process ends: libraries of devices start threads and register handlers, which would run
/// code that is not there any more.
#[derive(Debug)]
pub struct Library {
    handle: NonNull<c_void>,
}

// SAFETY: the handle is a name for the dynamic linker, whose functions may be called from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// Why a library was not opened: the words of the dynamic linker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenError(pub String);

impl core::fmt::Display for OpenError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for OpenError {}

impl Library {
    /// Opens the library with this file name, which is searched for as the dynamic linker does, or this path.
    pub fn open(name: &str) -> Result<Library, OpenError> {
        Library::open_with(name, libc::RTLD_LOCAL)
    }

    /// The same, and its own calls find its own symbols before those of the program. AddressSanitizer does not permit it.
    pub fn open_apart(name: &str) -> Result<Library, OpenError> {
        Library::open_with(name, libc::RTLD_LOCAL | libc::RTLD_DEEPBIND)
    }

    fn open_with(name: &str, flags: c_int) -> Result<Library, OpenError> {
        let path = CString::new(name).map_err(|_| OpenError(format!("{name:?} is no file name")))?;
        // SAFETY: the path is a C string. Constructors of the library run; that is what its user asked for.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | flags) };
        NonNull::new(handle).map(|handle| Library { handle }).ok_or_else(last_error)
    }

    /// The address of a symbol with this version.
    pub fn symbol(&self, name: &CStr, version: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: an open handle and two C strings.
        NonNull::new(unsafe { libc::dlvsym(self.handle.as_ptr(), name.as_ptr(), version.as_ptr()) })
    }
}

fn last_error() -> OpenError {
    // SAFETY: takes nothing; the string belongs to the calling thread until its next call of the dynamic linker.
    let words = unsafe { libc::dlerror() };
    if words.is_null() {
        return OpenError("the dynamic linker gives no reason".to_owned());
    }
    // SAFETY: not null, so a C string, which nobody changes before it is copied here.
    let words = unsafe { CStr::from_ptr(words) };
    OpenError(words.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::Library;

    #[test]
    fn a_symbol_is_found_with_its_version_only() {
        let math = Library::open("libm.so.6").unwrap();
        assert!(math.symbol(c"pow", c"GLIBC_2.29").is_some());
        assert!(math.symbol(c"pow", c"GLIBC_1.0").is_none());
        assert!(math.symbol(c"no_such_function", c"GLIBC_2.29").is_none());
    }

    #[test]
    fn what_is_no_library_is_refused_with_the_reason() {
        let error = Library::open("libmend-that-nobody-has.so.9").unwrap_err();
        assert!(error.0.contains("libmend-that-nobody-has.so.9"), "{error}");
        assert!(Library::open("a\0b").is_err());
    }
}
