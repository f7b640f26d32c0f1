// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles as integers (MPI-5.0 §20.4). The integer of a predefined handle is its number. The integer of another handle is its index, and
//! a table maps it back to the whole handle: an index has one object at a time, so the table is not larger than the tables of objects.

use crate::handle::{Handle, PREDEFINED_END};
use core::ffi::c_int;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Kinds of objects: each has indices of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Comm,
    Errhandler,
    File,
    Group,
    Info,
    Message,
    Op,
    Request,
    Session,
    Type,
    Win,
}

macro_rules! conversions {
    ($($kind:ident $to:ident $from:ident;)*) => { $(
        pub(crate) fn $to(handle: Handle) -> c_int {
            to_int(Kind::$kind, handle)
        }

        pub(crate) fn $from(integer: c_int) -> Handle {
            from_int(Kind::$kind, integer)
        }
    )* };
}

conversions! {
    Comm comm_to_int comm_from_int;
    Errhandler errhandler_to_int errhandler_from_int;
    File file_to_int file_from_int;
    Group group_to_int group_from_int;
    Info info_to_int info_from_int;
    Message message_to_int message_from_int;
    Op op_to_int op_from_int;
    Request request_to_int request_from_int;
    Session session_to_int session_from_int;
    Type type_to_int type_from_int;
    Win win_to_int win_from_int;
}

/// Handles that were converted to integers, by kind and integer.
static INTEGERS: Mutex<BTreeMap<(Kind, u32), Handle>> = Mutex::new(BTreeMap::new());

fn integers() -> MutexGuard<'static, BTreeMap<(Kind, u32), Handle>> {
    // A panic under the lock was a bug that was reported; the table is consistent, since every change of it is one step.
    INTEGERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn to_int(kind: Kind, handle: Handle) -> c_int {
    if handle < PREDEFINED_END {
        return handle as c_int;
    }
    // The two upper bits of the index of a request are its kind. They are rotated down, so that the integer is positive.
    let place = (handle as u32).rotate_left(2) & PLACE_MASK;
    let integer = place + PREDEFINED_END as u32;
    integers().insert((kind, integer), handle);
    integer as c_int
}

/// An integer that is not that of a handle becomes a handle that no object has.
fn from_int(kind: Kind, integer: c_int) -> Handle {
    let integer = integer as u32;
    if (integer as Handle) < PREDEFINED_END {
        return integer as Handle;
    }
    integers().get(&(kind, integer)).copied().unwrap_or(UNKNOWN)
}

/// Leaves room for the predefined handles below 2^31.
const PLACE_MASK: u32 = 0x3fff_ffff;

/// A handle that no object has: it is not predefined, and has an even generation.
const UNKNOWN: Handle = PREDEFINED_END;

#[cfg(test)]
mod tests {
    use super::{comm_from_int, comm_to_int, group_from_int, group_to_int, request_from_int, request_to_int};

    #[test]
    fn handles_come_back_from_their_integers() {
        let handles = [0x101, 0x209, 1 << 32, 1 << 32 | 5, 3 << 32 | 0x4000_0005, 7 << 32 | 0x8000_0005];
        for handle in handles {
            let integer = request_to_int(handle);
            assert!(integer > 0);
            assert_eq!(request_from_int(integer), handle);
        }
        for handle in handles {
            assert_eq!(request_from_int(request_to_int(handle)), handle);
        }
        assert_eq!(comm_to_int(0x101), 0x101);
        assert_eq!(comm_from_int(0x3654_3210) >> 32, 0);
    }

    #[test]
    fn objects_of_two_kinds_at_the_same_place_do_not_disturb_each_other() {
        let (comm, group) = (1 << 32 | 9, 3 << 32 | 9);
        let integers = (comm_to_int(comm), group_to_int(group));
        assert_eq!((comm_from_int(integers.0), group_from_int(integers.1)), (comm, group));
    }
}
