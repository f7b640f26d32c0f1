// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Barrier by a tree: a rank whose subtree has entered sends a message to its parent; then the root releases its children, and so on.
//!
//! Dissemination (Hensgen, Finkel, Manber, 1988) has fewer rounds with many ranks, but n log n messages, and each rank waits in each
//! round. If ranks share processors, each wait is a context switch, which dominates the cost. The tree has 2(n - 1) messages, and its
//! root and leaves wait once.

use crate::schedule::Builder;
use mend_datatype::TypedBuffer;

pub(crate) fn build(builder: &mut Builder) {
    if builder.size == 2 {
        return exchange(builder);
    }
    let nothing = TypedBuffer::empty();
    let children = children(builder.me, builder.size);
    children.clone().for_each(|child| builder.receive(child, &nothing));
    builder.wait_all();
    if let Some(above) = builder.me.checked_sub(1) {
        let parent = above / CHILDREN;
        builder.send(parent, &nothing);
        builder.receive(parent, &nothing);
        builder.wait_all();
    }
    children.for_each(|child| builder.send(child, &nothing));
    builder.wait_all();
}

/// Two ranks send to each other at the same time: one message latency instead of two.
fn exchange(builder: &mut Builder) {
    let other = 1 - builder.me;
    builder.receive(other, &TypedBuffer::empty());
    builder.send(other, &TypedBuffer::empty());
    builder.wait_all();
}

fn children(rank: u32, size: u32) -> core::ops::Range<u32> {
    let first = u64::from(rank) * u64::from(CHILDREN) + 1;
    let within = |rank: u64| rank.min(u64::from(size)) as u32;
    within(first)..within(first + u64::from(CHILDREN))
}

/// The arity of the tree. Sending seven messages one after the other takes about as long as three rounds of one message.
const CHILDREN: u32 = 7;

#[cfg(test)]
mod tests {
    use super::{CHILDREN, children};

    #[test]
    fn every_rank_but_the_root_has_one_parent() {
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
        assert!(children(u32::MAX - 1, u32::MAX).is_empty(), "the greatest rank has no children");
    }
}
