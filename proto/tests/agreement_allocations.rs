// SPDX-License-Identifier: Apache-2.0 OR MIT
//! After the first agreement of a communicator, an agreement without failures allocates nothing; nor does one after failures
//! that are all decided, but for the list of the failed members in the decision that is returned, and its copy.

use mend_base::Rank;
use mend_proto::agreement::{Agreement, Contribution, Message, Op, Output};
use mend_proto::protocol::Protocol;
use mend_proto::ranks::SetHash;
use mend_proto::tree::Shape;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator, with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises about `layout` are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from `alloc` above, which is that of `System`, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const SIZE: u32 = 64;

/// What one agreement took.
struct Cost {
    allocations: u64,
    messages: usize,
}

/// One agreement of these members, with messages in the order in which they are sent.
fn agree(members: &mut [Agreement], failed: u32, uniform: bool, out: &mut Output) -> Cost {
    let contribution = |rank: u32| Contribution {
        value: u64::from(rank),
        op: Op::Sum,
        acknowledged: SetHash::default(),
        uniform,
    };
    let mut queue: Vec<(Rank, Rank, Message)> = Vec::with_capacity(4 * SIZE as usize);
    let (mut next, mut returned, before) = (0, 0, ALLOCATIONS.get());
    for rank in failed..SIZE {
        members[rank as usize].start(contribution(rank), out);
        queue.extend(out.sends.drain(..).map(|(to, message)| (Rank(rank), to, message)));
        returned += out.outcomes.drain(..).count() as u32;
    }
    while let Some(&(from, to, message)) = queue.get(next) {
        members[to.index()].on_message(from, message, out);
        queue.extend(out.sends.drain(..).map(|(next_to, message)| (to, next_to, message)));
        returned += out.outcomes.drain(..).count() as u32;
        next += 1;
    }
    assert_eq!(returned, SIZE - failed);
    Cost { allocations: ALLOCATIONS.get() - before, messages: next }
}

#[test]
fn an_agreement_after_the_first_allocates_nothing() {
    for shape in [Shape::Chain, Shape::Binary, Shape::Nomial(4)] {
        let mut members: Vec<_> = (0..SIZE).map(|rank| Agreement::new(Rank(rank), SIZE, shape)).collect();
        let mut out = Output::new();
        assert!(agree(&mut members, 0, false, &mut out).allocations > 0, "the counter counts");
        for (uniform, half_trees) in [(false, 2), (true, 4), (false, 2)] {
            let cost = agree(&mut members, 0, uniform, &mut out);
            assert_eq!((cost.allocations, cost.messages), (0, half_trees * (SIZE as usize - 1)));
        }
    }
}

#[test]
fn an_agreement_after_a_decided_failure_allocates_the_lists_of_failed_members_alone() {
    let mut members: Vec<_> =
        (0..SIZE).map(|rank| Agreement::new(Rank(rank), SIZE, Shape::Nomial(4))).collect();
    let mut out = Output::new();
    for rank in 1..SIZE {
        members[rank as usize].on_failure(Rank(0), &mut out);
    }
    // The failure goes up and down in messages of its own, once.
    assert_eq!(agree(&mut members, 1, false, &mut out).messages, 4 * (SIZE as usize - 2));
    agree(&mut members, 1, false, &mut out);
    let steady = agree(&mut members, 1, false, &mut out);
    assert_eq!((steady.allocations, steady.messages), (2 * u64::from(SIZE - 1), 2 * (SIZE as usize - 2)));
    assert_eq!(members[5].last().map(|last| last.1.failed.len()), Some(1));
}
