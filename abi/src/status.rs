// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `MPI_Status`: 32 bytes. The five ints at its end are for the library: they have the number of received bytes (64 bits in two ints)
//! and whether the request was cancelled.

use crate::generated::constants::{ANY_SOURCE, ANY_TAG, PROC_NULL, SUCCESS};
use core::ffi::c_int;

/// The status in the layout of C.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    pub(crate) source: c_int,
    pub(crate) tag: c_int,
    pub(crate) error: c_int,
    pub(crate) internal: [c_int; 5],
}

const _: () = assert!(size_of::<Status>() == 32 && align_of::<Status>() == 4);

impl Status {
    /// The empty status (MPI-5.0 §3.7.3).
    pub(crate) const EMPTY: Status =
        Status { source: ANY_SOURCE, tag: ANY_TAG, error: SUCCESS, internal: [0; 5] };

    /// The status of a receive from `MPI_PROC_NULL` (MPI-5.0 §3.10).
    pub(crate) const PROC_NULL: Status = Status { source: PROC_NULL, ..Status::EMPTY };

    // Hot: per message.
    /// A status of the engine, in the layout of C.
    #[inline]
    pub(crate) fn of(status: mend_mpi::Status) -> Status {
        let Some(source) = status.source else {
            return Status::EMPTY.with_cancelled(status.cancelled);
        };
        Status { source: source.0 as c_int, tag: status.tag.0, error: SUCCESS, internal: [0; 5] }
            .with_bytes(status.bytes)
            .with_cancelled(status.cancelled)
    }

    /// Packed bytes that were received.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.internal[1] as u32) << 32 | u64::from(self.internal[0] as u32)
    }

    #[inline]
    pub(crate) fn with_bytes(mut self, bytes: u64) -> Status {
        self.internal[0] = bytes as u32 as c_int;
        self.internal[1] = (bytes >> 32) as u32 as c_int;
        self
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.internal[2] != 0
    }

    #[inline]
    pub(crate) fn with_cancelled(mut self, cancelled: bool) -> Status {
        self.internal[2] = c_int::from(cancelled);
        self
    }
}

/// Pointer to one status or to an array of them; null is `MPI_STATUS_IGNORE`, `MPI_STATUSES_IGNORE`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statuses(*mut Status);

impl Statuses {
    #[inline]
    pub(crate) fn new(pointer: *mut Status) -> Self {
        Statuses(pointer)
    }

    /// Whether the program passed `MPI_STATUS_IGNORE` or `MPI_STATUSES_IGNORE`.
    #[inline]
    pub(crate) fn are_ignored(self) -> bool {
        self.0.is_null()
    }

    // Hot: per message.
    /// Writes all fields but MPI_ERROR, as calls that return one status do (MPI-5.0 §3.2.5).
    #[inline]
    pub(crate) fn set_one(self, status: Status) {
        if self.are_ignored() {
            return;
        }
        // SAFETY: not null; the user promised a status here (the contract of `pointer`).
        let source = unsafe { &raw mut (*self.0).source };
        // SAFETY: as above; MPI_ERROR, which may be uninitialized, is not accessed.
        let tag = unsafe { &raw mut (*self.0).tag };
        // SAFETY: as above.
        let internal = unsafe { &raw mut (*self.0).internal };
        // SAFETY: a field of the status that the user promised.
        unsafe { source.write(status.source) };
        // SAFETY: as above.
        unsafe { tag.write(status.tag) };
        // SAFETY: as above.
        unsafe { internal.write(status.internal) };
    }

    /// Writes all fields of the status at `index` but MPI_ERROR, as calls for several requests do if none of them failed.
    #[inline]
    pub(crate) fn set_without_error(self, index: usize, status: Status) {
        if !self.are_ignored() {
            Statuses(self.0.wrapping_add(index)).set_one(status);
        }
    }

    /// Writes MPI_ERROR of a status that [`set_without_error`](Statuses::set_without_error) wrote.
    #[cold]
    pub(crate) fn set_success(self, index: usize) {
        if !self.are_ignored() {
            let status = self.0.wrapping_add(index);
            // SAFETY: not to be ignored; the user promised as many statuses as requests.
            let error = unsafe { &raw mut (*status).error };
            // SAFETY: a field of the status that the user promised.
            unsafe { error.write(SUCCESS) };
        }
    }

    /// Writes the status at `index` with MPI_ERROR, as calls that return MPI_ERR_IN_STATUS do.
    #[inline]
    pub(crate) fn set(self, index: usize, status: Status) {
        if !self.are_ignored() {
            // SAFETY: not null; the user promised as many statuses as requests.
            unsafe { self.0.wrapping_add(index).write(status) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Status, Statuses};
    use mend_base::{Rank, Tag};

    #[test]
    fn sixty_four_bits_of_bytes_fit_into_a_status() {
        let bytes = 0x1234_5678_9abc_def0;
        let received = mend_mpi::Status { source: Some(Rank(3)), tag: Tag(7), bytes, cancelled: true };
        let status = Status::of(received);
        assert_eq!((status.source, status.tag, status.bytes(), status.is_cancelled()), (3, 7, bytes, true));
    }

    #[test]
    fn the_users_error_field_stays_where_no_call_writes_it() {
        let mut mine = Status { error: 77, ..Status::EMPTY };
        Statuses::new(&raw mut mine).set_one(Status::PROC_NULL);
        assert_eq!((mine.error, mine.source), (77, -3));
        Statuses::new(&raw mut mine).set_without_error(0, Status::EMPTY);
        assert_eq!(mine, Status { error: 77, ..Status::EMPTY });
        Statuses::new(&raw mut mine).set_success(0);
        assert_eq!(mine, Status::EMPTY);
        Statuses::new(core::ptr::null_mut()).set(5, Status::EMPTY);
    }
}
