// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bell page: for each node slot a sleep word, the processor that its process was last seen on, the bell of its helper thread,
//! and a row of doorbell bytes, one for each sender.
//!
//! This is the only memory of Mend that several processes write, and it holds hints only: whatever a process writes
//! into it costs others at most a useless poll or a late one. The node daemon creates it.

use crate::mapping::{self, Access, Mapping};
use crate::sleep::{self, AnnouncedSleep, SleepWord, Woken};
use crate::{HelperCalls, SegmentError, reserve};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use mend_base::Duration;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The bell page of a node. Every process maps it writable.
#[derive(Debug)]
pub struct BellPage {
    mapping: Mapping,
    slots: u32,
}

impl BellPage {
    /// A page for `slots` slots, with every process awake and no bell rung, and the descriptor that others map it
    /// from.
    pub fn create(slots: u32) -> Result<(Self, OwnedFd), SegmentError> {
        let bytes = page_bytes_for(slots);
        let file = mapping::make_file("mend-bells", bytes)?;
        reserve::reserve(&file, 0, bytes as u64, 0)?;
        mapping::seal(&file, false)?;
        Ok((Self::map(file.as_fd(), slots)?, file))
    }

    /// The page that the daemon made for `slots` slots. The descriptor may be closed afterwards.
    pub fn map(descriptor: BorrowedFd<'_>, slots: u32) -> Result<Self, SegmentError> {
        let bytes = page_bytes_for(slots);
        mapping::check_file(descriptor, bytes, false)?;
        Ok(BellPage { mapping: Mapping::new(descriptor, 0, bytes, Access::Write)?, slots })
    }

    /// A page that only this process has, for `slots` slots: its threads sleep and wake each other here, and no other process can.
    pub fn of_one_process(slots: u32) -> Result<Self, SegmentError> {
        Ok(BellPage { mapping: Mapping::of_one_process(page_bytes_for(slots))?, slots })
    }

    /// The number of slots.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    // Hot: per rung message.
    /// Rings the bell of `sender` at `receiver`, and wakes the receiver if it sleeps.
    pub fn ring_bell(&self, receiver: u32, sender: u32) {
        // SYNC: bell byte, with `is_rung`: a receiver that sees the byte sees the slot that was published before it.
        self.bells(receiver)[sender as usize].store(1, Ordering::Release);
        let word = self.sleep_word(receiver);
        if word.rouse() {
            sleep::wake(word);
        }
    }

    // Hot: every few calls of progress.
    /// Whether any bell of `receiver` is rung: eight bells in each 64-bit load.
    #[inline]
    pub fn is_any_rung(&self, receiver: u32) -> bool {
        let words: &[AtomicU64] = self.mapping.slice(self.row(receiver), (self.slots as usize).div_ceil(8));
        // SYNC: bell byte, with `ring_bell`.
        words.iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Whether the bell of `sender` at `receiver` is rung.
    pub fn is_rung(&self, receiver: u32, sender: u32) -> bool {
        // SYNC: bell byte, with `ring_bell`.
        self.bells(receiver)[sender as usize].load(Ordering::Acquire) != 0
    }

    /// Clears a bell. Only the receiver clears it, and only if it polls that sender's ring at least 1 ms later once more: the
    /// sender may ring again while this store is still in our store buffer.
    pub fn clear(&self, receiver: u32, sender: u32) {
        self.bells(receiver)[sender as usize].store(0, Ordering::Release);
    }

    /// The next sender from `first` on, round-robin, whose bell at `receiver` is rung. Reads at most `at_most` bells.
    pub fn next_rung(&self, receiver: u32, first: u32, at_most: u32) -> Option<u32> {
        let bells = self.bells(receiver);
        let (head, tail) = bells.split_at_checked(first as usize)?;
        let round = (first..self.slots).zip(tail).chain((0..first).zip(head));
        // SYNC: bell byte, with `ring_bell`.
        round
            .take(at_most as usize)
            .find(|(_, bell)| bell.load(Ordering::Acquire) != 0)
            .map(|(sender, _)| sender)
    }

    /// Owner only: announces that it polls everything once more and then sleeps.
    pub fn announce_sleep(&self, slot: u32) -> AnnouncedSleep {
        self.sleep_word(slot).announce()
    }

    /// Owner only: sleeps until a bell is rung, but at most for `at_most`. Returns at once if one was rung since the
    /// announcement, or if another thread of the owner has ended this sleep.
    pub fn sleep(&self, slot: u32, announced: AnnouncedSleep, at_most: Duration) -> Woken {
        sleep::wait(self.sleep_word(slot), announced, at_most)
    }

    /// Owner only: whether an announced sleep was neither rung nor ended, for one who sleeps on something else.
    pub fn is_asleep(&self, slot: u32, announced: AnnouncedSleep) -> bool {
        self.sleep_word(slot).is_asleep(announced)
    }

    /// Owner only: announces that it is awake, so that no sender needs to call the kernel.
    pub fn end_sleep(&self, slot: u32) {
        self.sleep_word(slot).end();
    }

    /// Wakes the owner if it sleeps, whatever its sleep word contains: for the node daemon, and for threads of the same
    /// process.
    pub fn wake(&self, slot: u32) {
        let word = self.sleep_word(slot);
        word.rouse();
        sleep::wake(word);
    }

    /// Calls the helper thread of the process at `slot`, for what `calls` names, and wakes it. Costs a system call.
    pub fn call_helper(&self, slot: u32, calls: HelperCalls) {
        let word = self.helper_bell(slot);
        // SYNC: helper bell, with `take_helper_calls`: what was published before the call is visible to the helper that takes it.
        // A call that finds an earlier one there wakes as well, since the earlier caller may have been killed before it could.
        word.fetch_or(calls.0, Ordering::AcqRel);
        sleep::wake_word(word);
    }

    /// Helper thread only: takes the calls that have come.
    pub fn take_helper_calls(&self, slot: u32) -> HelperCalls {
        // SYNC: helper bell, with `call_helper`.
        HelperCalls(self.helper_bell(slot).swap(0, Ordering::AcqRel) & HelperCalls::KNOWN)
    }

    /// Helper thread only: sleeps until it is called, or for `at_most`. Returns at once if a call was not taken yet.
    pub fn sleep_of_helper(&self, slot: u32, at_most: Option<Duration>) {
        sleep::wait_word(self.helper_bell(slot), 0, at_most);
    }

    /// Owner only, and the node daemon once the owner has ended: sets on which processor its waiting thread runs, or has last
    /// waited; `None` before the first wait, while it sleeps, and after its end. A rank that computes after a wait needs its
    /// processor, so others that wait there yield to it as well.
    pub fn set_processor(&self, slot: u32, processor: Option<u32>) {
        let wanted = processor.map_or(NO_PROCESSOR, |processor| processor.wrapping_add(1));
        let word = self.processor(slot);
        // A line that others poll is written when its content changes, not more often.
        if word.load(Ordering::Relaxed) != wanted {
            word.store(wanted, Ordering::Relaxed);
        }
    }

    /// The next slot from `first` on, round-robin, whose process was last seen waiting on `processor`, and is not `slot`;
    /// polls no more than `at_most`, one load each.
    pub fn next_on_processor(&self, slot: u32, processor: u32, first: u32, at_most: u32) -> Option<u32> {
        let wanted = processor.wrapping_add(1);
        let round = (first..self.slots).chain(0..first.min(self.slots));
        round
            .take(at_most as usize)
            .find(|&other| other != slot && self.processor(other).load(Ordering::Relaxed) == wanted)
    }

    #[cfg(feature = "broken_peer")]
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    fn sleep_word(&self, slot: u32) -> &SleepWord {
        assert!(slot < self.slots, "a slot that the node does not have");
        self.mapping.at(slot as usize * row_bytes(self.slots))
    }

    fn processor(&self, slot: u32) -> &AtomicU32 {
        assert!(slot < self.slots, "a slot that the node does not have");
        self.mapping.at(slot as usize * row_bytes(self.slots) + PROCESSOR_AT)
    }

    fn helper_bell(&self, slot: u32) -> &AtomicU32 {
        assert!(slot < self.slots, "a slot that the node does not have");
        self.mapping.at(slot as usize * row_bytes(self.slots) + HELPER_BELL_AT)
    }

    fn bells(&self, slot: u32) -> &[AtomicU8] {
        self.mapping.slice(self.row(slot), self.slots as usize)
    }

    /// Where the bells of `slot` begin: at the beginning of a cache line.
    fn row(&self, slot: u32) -> usize {
        assert!(slot < self.slots, "a slot that the node does not have");
        slot as usize * row_bytes(self.slots) + LINE_BYTES
    }
}

const LINE_BYTES: usize = 64;

/// Offset of the processor number: after the sleep word, in the same cache line.
const PROCESSOR_AT: usize = 4;

/// Offset of the helper bell: after the processor number.
const HELPER_BELL_AT: usize = 8;

/// The value for no processor; processor n is stored as n + 1.
const NO_PROCESSOR: u32 = 0;

/// A cache line for the sleep word, then the bells in whole cache lines: two rows share none.
fn row_bytes(slots: u32) -> usize {
    LINE_BYTES + (slots as usize).next_multiple_of(LINE_BYTES)
}

fn page_bytes_for(slots: u32) -> usize {
    mapping::whole_pages((slots.max(1) as usize) * row_bytes(slots))
}

#[cfg(test)]
mod tests {
    use super::BellPage;
    use crate::{HelperCalls, Woken};
    use mend_base::Duration;
    use std::os::fd::AsFd;

    #[test]
    fn a_bell_is_seen_by_its_receiver_alone_until_it_is_cleared() {
        let (daemons, file) = BellPage::create(70).unwrap();
        let page = BellPage::map(file.as_fd(), 70).unwrap();
        page.ring_bell(3, 69);
        assert!(daemons.is_rung(3, 69));
        assert!(!daemons.is_rung(3, 68));
        assert!(!daemons.is_rung(4, 69));
        assert!(daemons.is_any_rung(3) && !daemons.is_any_rung(4));
        assert_eq!(daemons.next_rung(3, 5, 70), Some(69));
        assert_eq!(daemons.next_rung(3, 5, 10), None);
        daemons.clear(3, 69);
        assert!(!page.is_rung(3, 69));
    }

    #[test]
    fn a_process_that_is_rung_after_its_announcement_does_not_sleep() {
        let (page, _file) = BellPage::create(2).unwrap();
        let announced = page.announce_sleep(0);
        page.ring_bell(0, 1);
        assert_eq!(page.sleep(0, announced, Duration::from_millis(60_000)), Woken::Rung);
        page.end_sleep(0);
    }

    #[test]
    fn a_ring_of_the_last_sleep_does_not_end_the_next() {
        let (page, _file) = BellPage::create(2).unwrap();
        let _ = page.announce_sleep(0);
        page.ring_bell(0, 1);
        page.end_sleep(0);
        let announced = page.announce_sleep(0);
        assert_eq!(page.sleep(0, announced, Duration::from_millis(2)), Woken::TimedOut);
        page.end_sleep(0);
    }

    #[test]
    fn a_thread_does_not_sleep_on_the_announcement_of_another_thread() {
        let (page, _file) = BellPage::create(2).unwrap();
        // The first thread announces its sleep, and is off its processor while the second one takes over.
        let first = page.announce_sleep(0);
        page.end_sleep(0);
        page.wake(0);
        let second = page.announce_sleep(0);
        assert_eq!(page.sleep(0, first, Duration::from_millis(60_000)), Woken::Rung);
        assert_eq!(page.sleep(0, second, Duration::from_millis(2)), Woken::TimedOut);
        page.end_sleep(0);
    }

    #[test]
    fn sleepers_are_woken_through_another_mapping() {
        let (page, file) = BellPage::create(2).unwrap();
        let other = BellPage::map(file.as_fd(), 2).unwrap();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                for _ in 0..1000 {
                    let announced = page.announce_sleep(0);
                    while page.sleep(0, announced, Duration::from_millis(100)) == Woken::TimedOut {}
                    page.end_sleep(0);
                }
            });
            while !sleeper.is_finished() {
                other.wake(0);
            }
        });
    }

    #[test]
    fn a_slot_is_found_on_the_processor_that_it_has_set() {
        let (page, file) = BellPage::create(3).unwrap();
        let other = BellPage::map(file.as_fd(), 3).unwrap();
        page.set_processor(0, Some(0));
        assert_eq!(page.next_on_processor(0, 0, 0, 3), None);
        assert_eq!(other.next_on_processor(1, 0, 1, 3), Some(0));
        assert_eq!(other.next_on_processor(1, 0, 1, 2), None);
        assert_eq!(other.next_on_processor(1, 1, 0, 3), None);
        other.set_processor(2, Some(0));
        assert_eq!(page.next_on_processor(0, 0, 0, 3), Some(2));
        other.set_processor(2, None);
        assert_eq!(page.next_on_processor(0, 0, 0, 3), None);
    }

    #[test]
    fn a_helper_gets_every_call_once_and_does_not_sleep_on_one_that_it_has_not_taken() {
        let (page, file) = BellPage::create(2).unwrap();
        let other = BellPage::map(file.as_fd(), 2).unwrap();
        other.call_helper(1, HelperCalls::SERVE);
        other.call_helper(1, HelperCalls::WATCH);
        page.sleep_of_helper(1, None);
        let calls = page.take_helper_calls(1);
        assert!(calls.has(HelperCalls::SERVE) && calls.has(HelperCalls::WATCH));
        assert_eq!(page.take_helper_calls(1), HelperCalls::NONE);
        assert_eq!(page.take_helper_calls(0), HelperCalls::NONE);
        page.sleep_of_helper(1, Some(Duration::from_millis(1)));
    }

    #[test]
    fn a_helper_that_sleeps_is_woken_by_each_call() {
        let (page, file) = BellPage::create(1).unwrap();
        let other = BellPage::map(file.as_fd(), 1).unwrap();
        std::thread::scope(|scope| {
            let helper = scope.spawn(|| {
                for _ in 0..1000 {
                    while page.take_helper_calls(0) == HelperCalls::NONE {
                        page.sleep_of_helper(0, None);
                    }
                }
            });
            while !helper.is_finished() {
                other.call_helper(0, HelperCalls::SERVE);
            }
        });
    }

    #[test]
    fn a_page_for_fewer_slots_is_refused() {
        let (_page, file) = BellPage::create(2).unwrap();
        assert!(BellPage::map(file.as_fd(), 200).is_err());
    }
}
