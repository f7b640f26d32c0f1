// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reserves memory without causing the kernel's OOM killer to run.
//!
//! In a memory cgroup a fallocate beyond the limit makes the OOM killer end a process; it does not fail with ENOSPC. So
//! the limits up the tree and the memory used under them are read first, and a reservation that would not fit is
//! refused.
//!
//! No lock is held between that and the fallocate, and all processes of a node may do this at the same time, after they have
//! read the same figure. So each leaves free what all of them together may be about to reserve: [`keep_free`].

use crate::SegmentError;
use crate::layout::{BLOCK_BYTES, BLOCK_CHUNKS, header_bytes};
use crate::mapping::allocate;
use core::sync::atomic::{AtomicU8, Ordering};
use std::os::fd::OwnedFd;

/// What must stay free under every limit on a node with `slots` slots: `requested`, or more: the longest range that an
/// outbox reserves at once, for each process.
pub(crate) fn keep_free(requested: u64, slots: u32) -> u64 {
    let longest = BLOCK_CHUNKS.max(BLOCK_BYTES - BLOCK_CHUNKS).max(header_bytes(slots));
    requested.max(u64::from(slots) * longest as u64)
}

/// Which parts of an outbox are reserved. They stay reserved when a block is released, and are not reserved twice.
#[derive(Debug)]
pub(crate) struct Reserved(Box<[AtomicU8]>);

/// A part of a block that is reserved at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Part {
    First = 1,
    Chunks = 2,
}

impl Reserved {
    pub(crate) fn nothing(slots: u32) -> Self {
        Reserved((0..slots).map(|_| AtomicU8::new(0)).collect())
    }

    /// Calls `reserve`, unless that part was reserved before.
    pub(crate) fn once(
        &self,
        reader_slot: u32,
        part: Part,
        reserve: impl FnOnce() -> Result<(), SegmentError>,
    ) -> Result<(), SegmentError> {
        let parts = &self.0[reader_slot as usize];
        if parts.load(Ordering::Relaxed) & part as u8 == 0 {
            reserve()?;
            parts.fetch_or(part as u8, Ordering::Relaxed);
        }
        Ok(())
    }
}

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

#[cfg(test)]
mod tests {
    use super::{Part, Reserved, keep_free};
    use crate::SegmentError;

    #[test]
    fn a_reserved_part_is_not_reserved_again_and_a_refused_one_is_tried_again() {
        let reserved = Reserved::nothing(2);
        let refusal = SegmentError::NoMemory { wanted: 1, free: 0 };
        assert_eq!(reserved.once(1, Part::First, || Err(refusal)), Err(refusal));
        assert_eq!(reserved.once(1, Part::First, || Ok(())), Ok(()));
        assert_eq!(reserved.once(1, Part::First, || Err(refusal)), Ok(()));
        assert_eq!(reserved.once(1, Part::Chunks, || Err(refusal)), Err(refusal));
        assert_eq!(reserved.once(0, Part::First, || Err(refusal)), Err(refusal));
    }

    #[test]
    fn every_process_of_the_node_may_reserve_at_once() {
        assert_eq!(keep_free(4 << 20, 2), 4 << 20, "the request is larger");
        assert_eq!(keep_free(4 << 20, 256), 256 * (132 << 10));
        // With so many the directory is longer than a block.
        assert!(keep_free(0, 100_000) >= 100_000 * 400_000);
    }
}
