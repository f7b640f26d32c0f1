// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles as integers (MPI-5.0 §20.4). Predefined handles are their numbers; of ours the lower half is given out, and the
//! whole is remembered by it. Two kinds of objects whose handles share a lower half get different integers.

use crate::books;
use crate::handle::{Handle, PREDEFINED_END};
use core::ffi::c_int;

pub(crate) fn to_int(handle: Handle) -> c_int {
    if handle < PREDEFINED_END {
        return handle as c_int;
    }
    books::with(|books| {
        let integers = &mut books.integers;
        let mut integer = FIRST.wrapping_add(handle as u32) & MASK;
        // The next free one; a handle that is gone keeps its integer only until another wants it.
        while let Some(&standing) = integers.get(&integer) {
            if standing == handle || standing as u32 == handle as u32 && standing >> 32 < handle >> 32 {
                break;
            }
            integer = integer.wrapping_add(STEP) & MASK;
        }
        integers.insert(integer, handle);
        integer as c_int
    })
}

/// An integer that no handle was given for becomes one that no object has.
pub(crate) fn from_int(integer: c_int) -> Handle {
    let plain = integer as u32 as Handle;
    if plain < PREDEFINED_END {
        return plain;
    }
    books::with(|books| books.integers.get(&(plain as u32)).copied().unwrap_or(UNKNOWN))
}

/// Above the predefined handles.
const FIRST: u32 = PREDEFINED_END as u32;

/// Positive, so that nobody takes one for an error; above `FIRST`, since adding wraps at 2^31.
const MASK: u32 = 0x7fff_ffff;

/// Odd and large, so that all integers are tried in the end.
const STEP: u32 = 0x0100_0001;

/// No predefined handle, and of an even generation: nobody's.
const UNKNOWN: Handle = PREDEFINED_END;

#[cfg(test)]
mod tests {
    use super::{from_int, to_int};

    #[test]
    fn handles_come_back_from_their_integers() {
        let handles =
            [0x101, 0x209, 1 << 32, 1 << 32 | 5, 3 << 32 | 0x4000_0005, 7 << 32 | u32::MAX as usize];
        for handle in handles {
            let integer = to_int(handle);
            assert!(integer > 0);
            assert_eq!(from_int(integer), handle);
        }
        for handle in handles {
            assert_eq!(from_int(to_int(handle)), handle);
        }
        assert_eq!(to_int(0x101), 0x101);
        assert_eq!(from_int(0x7654_3210) >> 32, 0);
    }
}
