// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Barrier by a tree, gathered and released: whoever has heard of its subtree tells its parent, and whoever hears back
//! releases its children.
//!
//! Dissemination (Hensgen, Finkel, Manber, 1988) has fewer rounds among many ranks, but n log n messages, and everybody
//! waits in every round. Where ranks share processors each wait is a switch of the kernel's, and those are the price:
//! here there are 2(n - 1) messages, and all but the inner ranks of the tree wait once.

use crate::schedule::Builder;
use mend_datatype::Typed;

pub(crate) fn build(builder: &mut Builder) {
    if builder.size == 2 {
        return exchange(builder);
    }
    let nothing = Typed::empty();
    let children = children(builder.me, builder.size);
    children.clone().for_each(|child| builder.receive(child, &nothing));
    builder.settle();
    if let Some(above) = builder.me.checked_sub(1) {
        let parent = above / CHILDREN;
        builder.send(parent, &nothing);
        builder.receive(parent, &nothing);
        builder.settle();
    }
    children.for_each(|child| builder.send(child, &nothing));
    builder.settle();
}

/// Two ranks tell each other at once: one way instead of two.
fn exchange(builder: &mut Builder) {
    let other = 1 - builder.me;
    builder.receive(other, &Typed::empty());
    builder.send(other, &Typed::empty());
    builder.settle();
}

fn children(rank: u32, size: u32) -> core::ops::Range<u32> {
    let first = u64::from(rank) * u64::from(CHILDREN) + 1;
    let within = |rank: u64| rank.min(u64::from(size)) as u32;
    within(first)..within(first + u64::from(CHILDREN))
}

/// How many ranks tell one. Telling seven one after the other takes about as long as three rounds of one message each.
const CHILDREN: u32 = 7;

#[cfg(test)]
mod tests {
    use super::{CHILDREN, children};

    #[test]
    fn everybody_but_the_root_is_the_child_of_one() {
        for size in 1..200 {
            let mut parents = vec![None; size as usize];
            for rank in 0..size {
                for child in children(rank, size) {
                    assert_eq!(parents[child as usize].replace(rank), None, "{child} of {size}");
                    assert_eq!((child - 1) / CHILDREN, rank);
                }
            }
            assert!(parents[0].is_none() && parents[1..].iter().all(Option::is_some), "{size} ranks");
        }
        assert!(children(u32::MAX - 1, u32::MAX).is_empty(), "the greatest of ranks has none");
    }
}
