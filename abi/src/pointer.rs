// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pointers of the user, unverified. By the contract of MPI with its caller they point to objects of the types in the prototype until
//! the call returns. Null is refused when one of these types is constructed. Values are copied in and out, without references, because
//! the user may pass one address twice.

use crate::argument_error::ArgumentError;
use crate::call_error::CallError;
use core::ffi::{CStr, c_char, c_int};
use mend_transport::UserMemory;

/// Pointer to one value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// `Err` where the pointer is null.
    pub(crate) fn new(pointer: *mut T) -> Result<Self, CallError> {
        if pointer.is_null() { Err(ArgumentError::NullPointer.into()) } else { Ok(Out(pointer)) }
    }

    pub(crate) fn set(self, value: T) {
        // SAFETY: not null; the user promised that it may be written (the module's contract).
        unsafe { self.0.write(value) }
    }

    pub(crate) fn get(self) -> T {
        // SAFETY: not null; the user promised that it may be read (the module's contract).
        unsafe { self.0.read() }
    }

    /// The place of the value, for an operation that reads or writes it after this call has returned.
    pub(crate) fn memory(self) -> UserMemory {
        // SAFETY: not null; the user keeps the value in place until the request completes (the module's contract).
        unsafe { UserMemory::from_user(self.0.cast(), size_of::<T>()) }
    }

    /// The value as an array of one.
    pub(crate) fn as_array(self) -> OutArray<T> {
        OutArray(self.0)
    }
}

/// Pointer to a count: an int, or an MPI_Count.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OutCount {
    /// An int, in a call with int counts.
    Small(Out<c_int>),
    /// An MPI_Count, in a large-count call.
    Large(Out<i64>),
}

impl OutCount {
    /// Writes `value`; or `otherwise`, if `value` does not fit into an int.
    pub(crate) fn set(self, value: i64, otherwise: c_int) {
        match self {
            OutCount::Small(out) => out.set(c_int::try_from(value).unwrap_or(otherwise)),
            OutCount::Large(out) => out.set(value),
        }
    }
}

/// Pointer to an array to read; its length is an argument of each method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array<T>(*const T);

impl<T: Copy> Array<T> {
    /// Null is refused by `copy`, unless the length is 0.
    pub(crate) fn new(pointer: *const T) -> Self {
        Array(pointer)
    }

    /// A copy of its first `length` values.
    pub(crate) fn copy(self, length: usize) -> Result<Vec<T>, CallError> {
        if length == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(ArgumentError::NullPointer.into());
        }
        // SAFETY: not null; the user promised `length` values (the module's contract).
        Ok((0..length).map(|index| unsafe { self.0.wrapping_add(index).read() }).collect())
    }
}

/// Pointer to an array to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutArray<T>(*mut T);

impl<T: Copy> OutArray<T> {
    /// Null is refused by `check`, unless the length is 0.
    pub(crate) fn new(pointer: *mut T) -> Self {
        OutArray(pointer)
    }

    /// `Err` where the pointer is null and the length is not 0.
    pub(crate) fn check(self, length: usize) -> Result<(), CallError> {
        if length > 0 && self.0.is_null() { Err(ArgumentError::NullPointer.into()) } else { Ok(()) }
    }

    /// Reads one of the values that `check` covered.
    pub(crate) fn get(self, index: usize) -> T {
        // SAFETY: not null by `check`; the user promised as many values as the call's count says.
        unsafe { self.0.wrapping_add(index).read() }
    }

    /// Writes one of the values that `check` covered.
    pub(crate) fn set(self, index: usize, value: T) {
        // SAFETY: as in `get`.
        unsafe { self.0.wrapping_add(index).write(value) }
    }
}

/// Pointer to text that ends with a zero byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// `Err` where the pointer is null.
    pub(crate) fn new(pointer: *const c_char) -> Result<Self, CallError> {
        if pointer.is_null() { Err(ArgumentError::NullPointer.into()) } else { Ok(Text(pointer)) }
    }

    /// A copy of at most `bytes_max` bytes; bytes that are not UTF-8 are replaced.
    pub(crate) fn copy(self, bytes_max: usize) -> String {
        String::from_utf8_lossy(&self.bytes(bytes_max)).into_owned()
    }

    /// A copy of at most `bytes_max` bytes, in any encoding.
    pub(crate) fn bytes(self, bytes_max: usize) -> Vec<u8> {
        // SAFETY: not null; the user promised a zero at its end (the module's contract).
        let bytes = unsafe { CStr::from_ptr(self.0) }.to_bytes();
        bytes[..bytes.len().min(bytes_max)].to_vec()
    }
}

/// Pointer to a buffer for text. A constant of the standard gives its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutText(*mut c_char);

impl OutText {
    /// `Err` where the pointer is null.
    pub(crate) fn new(pointer: *mut c_char) -> Result<Self, CallError> {
        if pointer.is_null() { Err(ArgumentError::NullPointer.into()) } else { Ok(OutText(pointer)) }
    }

    /// Writes `text`, truncated so that it and its zero byte take at most `room` bytes; returns the length without the zero.
    pub(crate) fn set(self, text: &str, room: c_int) -> c_int {
        let mut length = text.len().min(room as usize - 1);
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        self.set_bytes(&text.as_bytes()[..length])
    }

    /// Writes text that is short enough, in any encoding, and its zero byte; returns the length without the zero.
    pub(crate) fn set_bytes(self, text: &[u8]) -> c_int {
        for (index, byte) in text.iter().copied().chain([0]).enumerate() {
            // SAFETY: not null; the user promised as many bytes as the constant says, and the text is shorter.
            unsafe { self.0.wrapping_add(index).write(byte as c_char) }
        }
        text.len() as c_int
    }
}

#[cfg(test)]
mod tests {
    use super::{Array, Out, OutText};
    use core::ffi::c_char;

    #[test]
    fn null_is_refused() {
        assert!(Out::<i32>::new(core::ptr::null_mut()).is_err());
        assert!(Array::<i32>::new(core::ptr::null()).copy(1).is_err());
        assert_eq!(Array::<i32>::new(core::ptr::null()).copy(0).ok(), Some(vec![]));
    }

    #[test]
    fn text_is_cut_at_a_character_and_ended_by_zero() {
        let mut room: [c_char; 5] = [1; 5];
        let length = OutText::new(room.as_mut_ptr()).ok().unwrap().set("abc\u{e9}", 5);
        assert_eq!((length, room[3], room[4]), (3, 0, 1));
    }
}
