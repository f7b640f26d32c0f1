// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The notice page: the node daemon writes one version word for each slot, and increments it when it has a notice for
//! that rank. The rank polls its word, which has a cache line of its own. The line is written only for a notice to this
//! rank: the contact with a peer, the end of a peer, an answer to a question. No message between ranks writes it.

use crate::mapping::{self, Access, Mapping};
use crate::{SegmentError, reserve};
use core::sync::atomic::{AtomicU32, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The node daemon's end, the only one that can write.
#[derive(Debug)]
pub struct NoticePage {
    mapping: Mapping,
    slots: u32,
}

impl NoticePage {
    /// A page for `slots` slots, all at version 0, and the descriptor that ranks map it from.
    pub fn create(slots: u32) -> Result<(Self, OwnedFd), SegmentError> {
        let bytes = page_bytes_for(slots);
        let file = mapping::make_file("mend-notices", bytes)?;
        reserve::reserve(&file, 0, bytes as u64, 0)?;
        let mapping = Mapping::new(file.as_fd(), 0, bytes, Access::Write)?;
        mapping::seal(&file, true)?;
        Ok((NoticePage { mapping, slots }, file))
    }

    /// Increments the version of the rank at `slot`, after a notice was sent to it. The node daemon wakes the rank afterwards.
    pub fn bump(&self, slot: u32) {
        // SYNC: version, with `NoticeView::version`. One writer, so no locked instruction.
        let word = word(&self.mapping, slot, self.slots);
        word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }
}

/// A rank's end, mapped read-only.
#[derive(Debug)]
pub struct NoticeView {
    mapping: Mapping,
    slots: u32,
}

impl NoticeView {
    /// Maps the page that the node daemon made for `slots` slots. The descriptor may be closed afterwards.
    pub fn map(descriptor: BorrowedFd<'_>, slots: u32) -> Result<Self, SegmentError> {
        let bytes = page_bytes_for(slots);
        mapping::check_file(descriptor, bytes, true)?;
        Ok(NoticeView { mapping: Mapping::new(descriptor, 0, bytes, Access::Read)?, slots })
    }

    /// In place of the page of a node daemon that could make none: the version never changes.
    pub fn without_page(slots: u32) -> Result<Self, SegmentError> {
        Ok(NoticeView { mapping: Mapping::of_one_process(page_bytes_for(slots))?, slots })
    }

    // Hot: per call of progress.
    /// The version, which changes whenever the node daemon has a notice for the rank at `slot`.
    #[inline]
    pub fn version(&self, slot: u32) -> u32 {
        // SYNC: version, with `NoticePage::bump`.
        word(&self.mapping, slot, self.slots).load(Ordering::Acquire)
    }
}

/// One cache line for each word, so that a notice for one rank does not invalidate the line of another.
const STRIDE_BYTES: usize = 64;

fn word(mapping: &Mapping, slot: u32, slots: u32) -> &AtomicU32 {
    assert!(slot < slots, "a slot that the node does not have");
    mapping.at(slot as usize * STRIDE_BYTES)
}

fn page_bytes_for(slots: u32) -> usize {
    mapping::whole_pages((slots.max(1) as usize) * STRIDE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::{NoticePage, NoticeView};
    use std::os::fd::AsFd;

    #[test]
    fn a_bump_is_seen_by_its_rank_alone() {
        let (page, file) = NoticePage::create(100).unwrap();
        let view = NoticeView::map(file.as_fd(), 100).unwrap();
        page.bump(99);
        page.bump(99);
        assert_eq!(view.version(99), 2);
        assert_eq!(view.version(98), 0);
    }

    #[test]
    fn only_the_node_daemon_can_write_it() {
        let (_page, file) = NoticePage::create(1).unwrap();
        assert!(rustix::io::pwrite(&file, b"x", 0).is_err());
        assert!(crate::mapping::Mapping::new(file.as_fd(), 0, 4096, crate::mapping::Access::Write).is_err());
    }
}
