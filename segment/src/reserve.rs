// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reserving memory without waking the OOM killer.
//!
//! A memory cgroup kills where it should refuse: fallocate beyond its limit ends in the OOM killer, not in ENOSPC. So the
//! limits up the tree and what is used under them are read first, and what would not fit is refused.

use crate::SegmentError;
use crate::mapping::allocate;
use std::os::fd::OwnedFd;

/// Sets memory aside for a range of `file`, if at least `keep_free` bytes are left under every memory limit afterwards.
pub(crate) fn reserve(file: &OwnedFd, offset: u64, bytes: u64, keep_free: u64) -> Result<(), SegmentError> {
    if let Some(left) = crate::limits::bytes_left() {
        let free = left.saturating_sub(keep_free);
        if bytes > free {
            return Err(SegmentError::NoMemory { wanted: bytes, free });
        }
    }
    allocate(file, offset, bytes)
}
