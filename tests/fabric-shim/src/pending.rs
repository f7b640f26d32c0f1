// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Completions that a queue has read from the real one and not delivered yet, and those that were injected: when each is due, and
//! which may overtake which.
//!
//! A completion of a receive does not overtake an earlier one of a receive: messages of one sender would change their order, which
//! no provider does. All others may overtake each other, as they may in a real queue.

use crate::bindings as fi;
use crate::faults::Change;
use crate::site::Site;
use std::collections::VecDeque;

/// What is pending in one queue.
#[derive(Default)]
pub(crate) struct Pending {
    /// Reads of the queue so far.
    reads: u64,
    held: VecDeque<Held>,
    errors: VecDeque<Failed>,
}

/// A completion.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub(crate) entry: fi::fi_cq_tagged_entry,
    /// The sender of a received message, as a call of `fi_cq_readfrom` returned it.
    pub(crate) source: u64,
    /// The endpoint of an injected completion.
    pub(crate) endpoint: Option<usize>,
    /// The read that delivers it.
    due: u64,
    /// The next completion that is delivered makes it due.
    swapped: bool,
}

/// An error completion.
#[derive(Clone, Copy)]
pub(crate) struct Failed {
    pub(crate) entry: fi::fi_cq_err_entry,
    pub(crate) endpoint: usize,
}

// SAFETY: the pointers in completions belong to the program; here they are numbers.
unsafe impl Send for Pending {}

impl Held {
    pub(crate) fn new(entry: fi::fi_cq_tagged_entry, source: u64, endpoint: Option<usize>) -> Held {
        Held { entry, source, endpoint, due: 0, swapped: false }
    }

    fn is_receive(&self) -> bool {
        self.entry.flags & u64::from(fi::FI_RECV | fi::FI_MULTI_RECV) != 0
    }

    /// Where the operation was started; `None`: the queue's entries do not tell.
    pub(crate) fn site(&self) -> Option<Site> {
        let is = |bit: u32| self.entry.flags & u64::from(bit) != 0;
        match () {
            () if is(fi::FI_ATOMIC) => Some(Site::Atomic),
            () if is(fi::FI_RECV) => Some(Site::Recv),
            () if is(fi::FI_SEND) => Some(Site::Send),
            () if is(fi::FI_READ) => Some(Site::Read),
            () if is(fi::FI_WRITE) => Some(Site::Write),
            () => None,
        }
    }
}

impl Pending {
    /// A read of the queue begins.
    pub(crate) fn on_read(&mut self) {
        self.reads += 1;
    }

    /// A completion comes, with a fault perhaps.
    pub(crate) fn add(&mut self, mut held: Held, change: Option<Change>) {
        held.due = self.reads;
        match change {
            Some(Change::Delay { reads }) => held.due += reads,
            Some(Change::Reorder) => {
                held.due += SWAP_READS_MAX;
                held.swapped = true;
            }
            Some(Change::Truncate { bytes }) => held.entry.len = held.entry.len.saturating_sub(bytes),
            None => {}
        }
        self.held.push_back(held);
    }

    pub(crate) fn add_error(&mut self, failed: Failed) {
        self.errors.push_back(failed);
    }

    /// Removes the injected completions of an endpoint, which is closed: its operations end without one.
    pub(crate) fn forget(&mut self, endpoint: usize) {
        self.held.retain(|held| held.endpoint != Some(endpoint));
        self.errors.retain(|failed| failed.endpoint != endpoint);
    }

    /// The completions that are due, at most `count`.
    pub(crate) fn take(&mut self, count: usize) -> Vec<Held> {
        let mut taken = Vec::new();
        let mut index = 0;
        let mut receive_waits = false;
        while let Some(held) = self.held.get(index).copied()
            && taken.len() < count
        {
            if held.due > self.reads || held.is_receive() && receive_waits {
                receive_waits |= held.is_receive();
                index += 1;
                continue;
            }
            self.held.remove(index);
            taken.push(held);
            // What was to be swapped with it follows.
            let reads = self.reads;
            let before = self.held.iter_mut().take(index).filter(|before| before.swapped);
            let mut released = false;
            before.for_each(|before| {
                before.due = reads;
                released = true;
            });
            if released {
                (index, receive_waits) = (0, false);
            }
        }
        taken
    }

    pub(crate) fn take_error(&mut self) -> Option<Failed> {
        self.errors.pop_front()
    }

    pub(crate) fn has_error(&self) -> bool {
        !self.errors.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.errors.is_empty()
    }
}

/// A completion for which no other comes is delivered after so many reads all the same.
const SWAP_READS_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use super::{Held, Pending, SWAP_READS_MAX};
    use crate::bindings as fi;
    use crate::faults::Change;
    use core::ptr;

    /// A completion that is told apart by its data.
    fn completion(flag: u32, data: u64) -> Held {
        let (op_context, buf) = (ptr::null_mut(), ptr::null_mut());
        let flags = u64::from(flag);
        Held::new(fi::fi_cq_tagged_entry { op_context, flags, len: 8, buf, data, tag: 0 }, 0, None)
    }

    /// What a read delivers.
    fn read(pending: &mut Pending) -> Vec<u64> {
        pending.on_read();
        pending.take(16).iter().map(|held| held.entry.data).collect()
    }

    #[test]
    fn a_delayed_completion_comes_after_so_many_reads() {
        let mut pending = Pending::default();
        pending.on_read();
        pending.add(completion(fi::FI_SEND, 1), Some(Change::Delay { reads: 2 }));
        pending.add(completion(fi::FI_SEND, 2), None);
        assert_eq!(pending.take(16).len(), 1);
        assert_eq!((read(&mut pending), read(&mut pending)), (vec![], vec![1]));
        assert!(pending.is_empty());
    }

    #[test]
    fn receives_stay_behind_a_delayed_receive_and_others_do_not() {
        let mut pending = Pending::default();
        pending.add(completion(fi::FI_RECV, 1), Some(Change::Delay { reads: 2 }));
        pending.add(completion(fi::FI_RECV, 2), None);
        pending.add(completion(fi::FI_READ, 3), None);
        assert_eq!((read(&mut pending), read(&mut pending)), (vec![3], vec![1, 2]));
    }

    #[test]
    fn a_swapped_completion_follows_the_next_of_another_kind() {
        let mut pending = Pending::default();
        pending.add(completion(fi::FI_RECV, 1), Some(Change::Reorder));
        assert_eq!(read(&mut pending), []);
        pending.add(completion(fi::FI_RECV, 2), None);
        assert_eq!(read(&mut pending), []);
        pending.add(completion(fi::FI_SEND, 3), None);
        assert_eq!(read(&mut pending), [3, 1, 2]);
    }

    #[test]
    fn a_swapped_completion_without_another_comes_at_last() {
        let mut pending = Pending::default();
        pending.add(completion(fi::FI_SEND, 1), Some(Change::Reorder));
        let reads = (1..).find(|_| !read(&mut pending).is_empty());
        assert_eq!(reads, Some(SWAP_READS_MAX as usize));
    }

    #[test]
    fn a_cut_message_is_not_shorter_than_nothing() {
        let mut pending = Pending::default();
        pending.add(completion(fi::FI_RECV, 1), Some(Change::Truncate { bytes: 3 }));
        pending.add(completion(fi::FI_RECV, 2), Some(Change::Truncate { bytes: 30 }));
        let lengths: Vec<_> = pending.take(16).iter().map(|held| held.entry.len).collect();
        assert_eq!(lengths, [5, 0]);
    }
}
