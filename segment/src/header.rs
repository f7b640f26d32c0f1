// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The head of another process's outbox, mapped read-only once its magic, layout, slot and number of slots are right.

use crate::SegmentError;
use crate::layout::{
    HEADER_LAYOUT, HEADER_MAGIC, HEADER_SLOT, HEADER_SLOTS, LAYOUT, MAGIC, header_bytes, outbox_bytes,
};
use crate::mapping::{self, Access, Mapping};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::os::fd::BorrowedFd;

/// Maps the head of the outbox of the process at node slot `owner_slot`, if it is one of this version.
pub(crate) fn map_header(
    descriptor: BorrowedFd<'_>,
    owner_slot: u32,
    slots: u32,
) -> Result<Mapping, SegmentError> {
    assert!(owner_slot < slots, "a slot that the node does not have");
    mapping::check_file(descriptor, outbox_bytes(slots), true)?;
    let header = Mapping::new(descriptor, 0, header_bytes(slots), Access::Read)?;
    let is_one = header.at::<AtomicU64>(HEADER_MAGIC).load(Ordering::Acquire) == MAGIC
        && header.at::<AtomicU32>(HEADER_LAYOUT).load(Ordering::Relaxed) == LAYOUT
        && header.at::<AtomicU32>(HEADER_SLOT).load(Ordering::Relaxed) == owner_slot
        && header.at::<AtomicU32>(HEADER_SLOTS).load(Ordering::Relaxed) == slots;
    if is_one { Ok(header) } else { Err(SegmentError::LayoutDiffers) }
}
