// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BAR-2.3: a part of [`Spread`] allocates nothing when it is made, and nothing for what it knows already; the propagation of a
//! revoke allocates only where sets grow.

use core::cell::Cell;
use mend_base::Rank;
use mend_proto::protocol::{Output, Protocol};
use mend_proto::spread::{Item, Message, Spread};
use std::alloc::{GlobalAlloc, Layout, System};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from the system's allocator, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(event: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    event();
    ALLOCATIONS.get() - before
}

/// What goes to one member.
fn to(rank: u32, out: &Output<Message, Item>) -> Message {
    let mut sends = out.sends.iter();
    sends.find(|(to, _)| *to == Rank(rank)).map(|(_, message)| *message).expect("it is a neighbour")
}

#[test]
fn a_part_allocates_nothing_when_it_is_made_and_nothing_for_what_it_knows() {
    let mut out = Output::new();
    out.sends.reserve(100);
    out.outcomes.reserve(100);
    assert_eq!(allocations(|| drop(Spread::new(Rank(1), 1 << 20))), 0);

    let mut other = Spread::new(Rank(0), 16);
    other.add(Item::Revoked, &mut out);
    other.on_failure(Rank(9), &mut out);
    other.flush(&mut out);
    let message = to(1, &out);
    let mut part = Spread::new(Rank(1), 16);
    let grown = allocations(|| {
        part.on_message(Rank(0), message, &mut out);
        part.flush(&mut out);
    });
    assert!(grown <= 3, "{grown}: the items, those that are not sent yet, and the sender's entry");

    let known = allocations(|| {
        for _ in 0..100 {
            part.on_message(Rank(0), message, &mut out);
            part.add(Item::Revoked, &mut out);
            part.flush(&mut out);
            out.sends.clear();
            out.outcomes.clear();
        }
    });
    assert_eq!(known, 0);

    // A revoke of which two neighbours tell has no set that grows.
    let mut revoked = Spread::new(Rank(1), 16);
    let propagation = allocations(|| {
        revoked.add(Item::Revoked, &mut out);
        revoked.flush(&mut out);
    });
    assert_eq!(propagation, 0);
}
