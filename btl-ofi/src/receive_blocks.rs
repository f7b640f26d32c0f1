// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which blocks of memory receive frames, and when one may receive again.
//!
//! The provider cuts a *slice* for each frame out of a posted block, one behind the other, and says `FI_MULTI_RECV` when it has given the block
//! back. `net` of 1.17, `tcp` before 1.20 and `ofi_rxm` of these versions say so with the frame that has the *last slice*, which need not be the last
//! that completes: slices belong to several peers, and a peer that was stopped in the middle of a frame goes on later. The provider
//! still writes there. So a block receives again only when as many bytes were reported as lie before the end of that last slice.
//!
//! ```text
//!   posted ──last slice──▶ given back, some slices missing ──all reported──▶ complete ──▶ posted
//!                               │ the buffer gets another block meanwhile                   ▲
//!                               └──▶ retired ────────all reported──────────────────────────┘
//! ```
//!
//! A slice that ends in an error has no length, so its block is never complete. It stays retired until the device closes.

use crate::family::GivenBack;
use crate::memory::Memory;
use mend_ffi_ofi::Completion;

/// How many buffers take turns.
pub const COUNT: u32 = 4;

/// How many blocks may be retired. A buffer that would need one more waits for its own block.
pub const RETIRED_MAX: usize = 28;

/// A block, and what was reported of it since it was posted.
#[derive(Debug)]
struct Block {
    memory: Memory,
    /// Bytes of frames.
    reported: usize,
    /// Where the last slice ends; `None`: the provider has not given the block back.
    end: Option<usize>,
    /// The number of its post, counted over all blocks.
    turn: u64,
}

/// The end of a block whose last slice nobody knows.
const UNKNOWN_END: usize = usize::MAX;

impl Block {
    /// A block that may be posted.
    fn new(memory: Memory) -> Block {
        Block { memory, reported: 0, end: Some(0), turn: 0 }
    }

    /// Whether the provider does not access it any more. A provider that counts slices itself names any of them as the last one.
    fn is_complete(&self) -> bool {
        self.end.is_some_and(|end| self.reported >= end)
    }

    // Hot: per message.
    /// Where a frame lies in it.
    fn offset(&self, address: usize, bytes: usize) -> Option<usize> {
        let offset = address.checked_sub(self.memory.at(0).addr())?;
        (offset <= self.memory.len() && bytes <= self.memory.len() - offset).then_some(offset)
    }

    // Hot: per message.
    /// A frame was reported. Returns where it ends; `None`: it is not in this block.
    fn report(&mut self, address: usize, bytes: usize) -> Option<usize> {
        let offset = self.offset(address, bytes)?;
        self.reported += bytes;
        Some(offset + bytes)
    }
}

/// The blocks of the buffers of a rail.
#[derive(Debug)]
pub struct Blocks {
    /// By the number of the buffer.
    current: Vec<Block>,
    /// Those in which slices were missing when their buffer got another block. Complete ones are used again.
    retired: Vec<Block>,
    /// Buffers that were given back.
    returned: Vec<u32>,
    /// Buffers that reported an error and were not given back since: the provider may have lost them.
    failed: [bool; COUNT as usize],
    given_back: GivenBack,
    turns: u64,
}

impl Blocks {
    /// All may be posted.
    pub fn new(blocks: Vec<Memory>, given_back: GivenBack) -> Blocks {
        let returned = (0..blocks.len() as u32).collect();
        let current = blocks.into_iter().map(Block::new).collect();
        let failed = [false; COUNT as usize];
        Blocks { current, retired: Vec::new(), returned, failed, given_back, turns: 0 }
    }

    /// Whether buffers are to be posted.
    pub fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }

    /// Posts the buffers that were given back, each with a block that is complete, which `make` makes if need be. An error leaves those that are
    /// left for the next call.
    pub fn post<E>(
        &mut self,
        make: impl Fn() -> Option<Memory>,
        mut post: impl FnMut(u32, &Memory) -> Result<(), E>,
    ) -> Result<(), E> {
        for at in (0..self.returned.len()).rev() {
            let number = self.returned[at];
            if self.replace_incomplete(number as usize, &make) {
                let block = &mut self.current[number as usize];
                post(number, &block.memory)?;
                self.turns += 1;
                (block.reported, block.end, block.turn) = (0, None, self.turns);
                self.returned.swap_remove(at);
            }
        }
        Ok(())
    }

    /// Gives a buffer another block if its own is not complete. `false`: there is none.
    fn replace_incomplete(&mut self, number: usize, make: impl Fn() -> Option<Memory>) -> bool {
        if self.current[number].is_complete() {
            return true;
        }
        if let Some(complete) = self.retired.iter_mut().find(|block| block.is_complete()) {
            core::mem::swap(complete, &mut self.current[number]);
            return true;
        }
        if self.retired.len() >= RETIRED_MAX {
            return false;
        }
        let Some(memory) = make() else { return false };
        self.retired.push(core::mem::replace(&mut self.current[number], Block::new(memory)));
        true
    }

    // Hot: per message.
    /// A buffer has a completion: with a frame, or to give the buffer back, or both.
    pub fn on_completion(&mut self, number: u32, completion: &Completion) {
        let Some(block) = self.current.get_mut(number as usize) else { return };
        let (address, bytes) = (completion.address, completion.bytes);
        // What comes without a frame is no slice: the provider says by it that there is none left.
        let mut end = 0;
        if completion.is_message() {
            let Some(after) = block.report(address, bytes) else { return self.on_late_frame(completion) };
            end = after;
            if block.reported == bytes {
                self.on_first_frame(number);
            }
        }
        if completion.releases_buffer() {
            self.give_back(number, end);
        }
    }

    /// A frame that is not in the block of its buffer: in one that the buffer had before.
    #[cold]
    fn on_late_frame(&mut self, completion: &Completion) {
        for block in &mut self.retired {
            if let Some(end) = block.report(completion.address, completion.bytes) {
                if completion.releases_buffer() {
                    block.end.get_or_insert(end);
                }
                return;
            }
        }
    }

    /// A buffer has its first frame. If it is the one that was posted last, the provider has cut up all others: the peer that sends the last slice of
    /// one may be stopped. Without other blocks, stopped peers could take all of them from the living.
    #[cold]
    fn on_first_frame(&mut self, number: u32) {
        let is_newest = self.current.iter().all(|block| block.turn <= self.current[number as usize].turn);
        if is_newest && self.given_back == GivenBack::LastSliceInOrder {
            (0..COUNT).filter(|other| *other != number).for_each(|other| self.want_block(other));
        }
    }

    fn want_block(&mut self, number: u32) {
        if !self.returned.contains(&number) {
            self.returned.push(number);
        }
    }

    fn give_back(&mut self, number: u32, end: usize) {
        let end = if self.given_back == GivenBack::AllReported { 0 } else { end };
        self.current[number as usize].end.get_or_insert(end);
        self.failed[number as usize] = false;
        self.want_block(number);
    }

    /// A slice of a buffer ended in an error, and the buffer was given back with it.
    pub fn on_given_back_with_error(&mut self, number: u32) {
        self.give_back(number, UNKNOWN_END);
    }

    /// A slice of a buffer ended in an error, or the buffer itself. Returns whether no buffer is left that may receive.
    pub fn on_failed(&mut self, number: u32) -> bool {
        if !self.returned.contains(&number) {
            self.failed[number as usize] = true;
        }
        self.failed.iter().all(|failed| *failed)
    }

    /// Whether every buffer waits for a block, and as many as may be are retired. Only opening the device again helps.
    pub fn is_starved(&self) -> bool {
        self.returned.len() == self.current.len()
            && self.retired.len() >= RETIRED_MAX
            && !self.current.iter().chain(&self.retired).any(Block::is_complete)
    }

    // Hot: per message.
    /// The frame of `bytes` bytes that a completion reported at `address`; `None`: that is not inside a block.
    pub fn frame(&self, number: u32, address: usize, bytes: usize) -> Option<&[u8]> {
        let block = self.current.get(number as usize)?;
        match block.offset(address, bytes) {
            Some(offset) => Some(block.memory.bytes(offset, bytes)),
            None => self.late_frame(address, bytes),
        }
    }

    #[cold]
    fn late_frame(&self, address: usize, bytes: usize) -> Option<&[u8]> {
        let mut blocks = self.retired.iter();
        blocks.find_map(|block| Some(block.memory.bytes(block.offset(address, bytes)?, bytes)))
    }

    /// Takes all memory, which is never to be freed.
    pub fn forget(&mut self) {
        core::mem::forget((core::mem::take(&mut self.current), core::mem::take(&mut self.retired)));
        self.returned.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{Blocks, COUNT, RETIRED_MAX};
    use crate::family::GivenBack;
    use crate::memory::Memory;
    use mend_ffi_ofi::Completion;
    use mend_ffi_ofi::bindings::{FI_MULTI_RECV, FI_RECV};

    const BYTES: usize = 1024;

    fn make() -> Option<Memory> {
        Memory::new(BYTES)
    }

    /// All posted. Returns where each begins, too.
    fn posted(given_back: GivenBack) -> (Blocks, Vec<usize>) {
        let mut blocks = Blocks::new((0..COUNT).filter_map(|_| make()).collect(), given_back);
        let starts = blocks.current.iter().map(|block| block.memory.at(0).addr()).collect();
        assert_eq!(post(&mut blocks).len(), COUNT as usize);
        (blocks, starts)
    }

    /// Posts what may be posted: numbers and addresses.
    fn post(blocks: &mut Blocks) -> Vec<(u32, usize)> {
        let mut posted = Vec::new();
        let posts = |number, memory: &Memory| {
            posted.push((number, memory.at(0).addr()));
            Ok::<(), ()>(())
        };
        blocks.post(make, posts).unwrap();
        posted
    }

    fn slice(address: usize, bytes: usize) -> Completion {
        Completion { token: None, flags: u64::from(FI_RECV), bytes, address }
    }

    fn last(address: usize, bytes: usize) -> Completion {
        Completion { flags: u64::from(FI_RECV | FI_MULTI_RECV), ..slice(address, bytes) }
    }

    #[test]
    fn a_block_whose_slices_came_in_order_is_posted_again() {
        let (mut blocks, starts) = posted(GivenBack::LastSlice);
        blocks.on_completion(1, &slice(starts[1], 400));
        assert!(!blocks.has_returned());
        // The provider leaves a rest that is too short for the longest frame.
        blocks.on_completion(1, &last(starts[1] + 400, 300));
        assert_eq!(post(&mut blocks), [(1, starts[1])]);
    }

    #[test]
    fn a_block_in_which_a_slice_is_missing_is_not_posted_before_it_was_reported() {
        let (mut blocks, starts) = posted(GivenBack::LastSlice);
        blocks.on_completion(0, &slice(starts[0], 100));
        // From 100 to 400 a frame is half received.
        blocks.on_completion(0, &last(starts[0] + 400, 500));
        let [(0, other)] = post(&mut blocks)[..] else { panic!("the buffer has another block") };
        assert!(!starts.contains(&other));
        assert!(blocks.frame(0, starts[0] + 100, 300).is_some(), "its frame can be read");
        blocks.on_completion(0, &slice(starts[0] + 100, 300));
        assert!(!blocks.has_returned(), "it is of no buffer now");
        // The next buffer in need of a block takes it.
        blocks.on_completion(2, &last(starts[2] + 100, 900));
        assert_eq!(post(&mut blocks), [(2, starts[0])]);
        assert_eq!(blocks.retired.len(), 1);
    }

    #[test]
    fn a_slice_that_is_reported_before_the_next_post_costs_no_other_block() {
        let (mut blocks, starts) = posted(GivenBack::LastSlice);
        blocks.on_completion(3, &last(starts[3] + 24, 1000));
        blocks.on_completion(3, &slice(starts[3], 24));
        assert_eq!(post(&mut blocks), [(3, starts[3])]);
        assert!(blocks.retired.is_empty());
    }

    #[test]
    fn a_provider_that_gives_back_with_whatever_slice_completes_last_costs_no_other_block() {
        let (mut blocks, starts) = posted(GivenBack::LastSlice);
        blocks.on_completion(0, &slice(starts[0] + 24, 1000));
        blocks.on_completion(0, &last(starts[0], 24));
        assert_eq!(post(&mut blocks), [(0, starts[0])]);
        // Or without a frame, also after a slice that ended in an error.
        let alone = Completion { flags: u64::from(FI_MULTI_RECV), ..slice(0, 0) };
        assert!(!blocks.on_failed(0));
        blocks.on_completion(0, &alone);
        assert_eq!(post(&mut blocks), [(0, starts[0])]);
    }

    #[test]
    fn a_provider_that_counts_may_leave_gaps_between_slices() {
        let (mut blocks, starts) = posted(GivenBack::AllReported);
        blocks.on_completion(0, &slice(starts[0], 100));
        blocks.on_completion(0, &last(starts[0] + 128, 800));
        assert_eq!(post(&mut blocks), [(0, starts[0])]);
    }

    #[test]
    fn a_block_with_a_slice_that_ended_in_an_error_is_never_posted_again() {
        let (mut blocks, starts) = posted(GivenBack::LastSlice);
        assert!(!blocks.on_failed(0));
        blocks.on_completion(0, &last(starts[0] + 100, 900));
        blocks.on_given_back_with_error(1);
        let again = post(&mut blocks);
        assert_eq!(again.len(), 2);
        assert!(again.iter().all(|(_, address)| !starts.contains(address)));
        assert_eq!(blocks.retired.len(), 2);
        assert!(!blocks.retired.iter().any(super::Block::is_complete));
    }

    #[test]
    fn a_buffer_is_lost_only_until_it_is_given_back() {
        let (mut blocks, starts) = posted(GivenBack::LastSlice);
        for _ in 0..3 {
            for number in 0..COUNT - 1 {
                assert!(!blocks.on_failed(number));
                blocks.on_completion(number, &last(starts[number as usize], 900));
            }
            assert!(!blocks.on_failed(COUNT - 1), "the others were given back");
            assert_eq!(post(&mut blocks).len(), COUNT as usize - 1);
        }
        let all_lost = (0..COUNT).find(|number| blocks.on_failed(*number));
        assert_eq!(all_lost, Some(COUNT - 2), "the last one was lost before");
    }

    #[test]
    fn the_number_of_blocks_is_bounded_and_buffers_wait_for_their_own() {
        let (mut blocks, _) = posted(GivenBack::LastSlice);
        let mut retired = 0;
        while !blocks.is_starved() {
            (0..COUNT).for_each(|number| blocks.on_given_back_with_error(number));
            retired += post(&mut blocks).len();
            assert!(retired <= RETIRED_MAX);
        }
        assert_eq!((retired, blocks.retired.len()), (RETIRED_MAX, RETIRED_MAX));
        assert!(blocks.has_returned() && post(&mut blocks).is_empty());
    }

    #[test]
    fn a_buffer_that_waits_for_its_own_block_goes_on_when_that_is_complete() {
        let (mut blocks, starts) = posted(GivenBack::LastSlice);
        for _ in 0..RETIRED_MAX {
            blocks.on_given_back_with_error(0);
            post(&mut blocks);
        }
        blocks.on_completion(1, &last(starts[1] + 100, 800));
        assert!(post(&mut blocks).is_empty());
        blocks.on_completion(1, &slice(starts[1], 100));
        assert_eq!(post(&mut blocks), [(1, starts[1])]);
        assert!(!blocks.is_starved());
    }

    #[test]
    fn blocks_whose_last_slices_stopped_peers_send_are_replaced_when_no_other_is_left() {
        let (mut blocks, starts) = posted(GivenBack::LastSliceInOrder);
        // Posted in this order.
        let order = [3, 2, 1, 0];
        for number in &order[..3] {
            blocks.on_completion(*number, &slice(starts[*number as usize], 100));
            assert!(!blocks.has_returned());
        }
        blocks.on_completion(0, &slice(starts[0], 100));
        let mut again = post(&mut blocks);
        again.sort_unstable();
        assert_eq!(again.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(again.iter().all(|(_, address)| !starts.contains(address)));
        // A stopped peer goes on. Its block comes back by its address, not by its token.
        blocks.on_completion(3, &last(starts[3] + 100, 900));
        assert!(!blocks.has_returned());
        blocks.on_completion(3, &last(again[2].1, 900));
        assert_eq!(post(&mut blocks), [(3, again[2].1)], "its own block is complete");
        blocks.on_completion(2, &last(again[1].1 + 100, 900));
        assert_eq!(post(&mut blocks), [(2, starts[3])]);
    }

    #[test]
    fn without_memory_a_buffer_waits_and_the_others_go_on() {
        let (mut blocks, starts) = posted(GivenBack::LastSlice);
        blocks.on_completion(0, &last(starts[0], 900));
        blocks.on_completion(1, &last(starts[1] + 100, 800));
        let mut posted = Vec::new();
        let posts = |number, _: &Memory| {
            posted.push(number);
            Ok::<(), ()>(())
        };
        blocks.post(|| None, posts).unwrap();
        assert_eq!(posted, [0]);
        assert!(blocks.has_returned() && !blocks.is_starved());
    }

    #[test]
    fn frames_outside_of_all_blocks_are_none() {
        let (mut blocks, starts) = posted(GivenBack::LastSlice);
        for (address, bytes) in [(0, 10), (starts[0] + BYTES - 10, 11), (usize::MAX, 2)] {
            blocks.on_completion(0, &slice(address, bytes));
            assert!(blocks.frame(0, address, bytes).is_none());
        }
        assert!(blocks.frame(COUNT, starts[0], 10).is_none());
    }
}
