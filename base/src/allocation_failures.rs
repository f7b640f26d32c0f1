// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Allocation failures that a test injects. With the feature `allocation-failures`, growth by [`reserve`] and [`reserve_queue`] fails at
//! random in the running thread, as drawn from a seed; without it both are `try_reserve`, and [`allocation_fails`] is a constant.
//!
//! Only growth that would really allocate fails: what is within a capacity is reserved, and stays so.

use crate::Random;
use std::collections::VecDeque;

/// Which allocations of a thread fail.
#[derive(Clone, Debug)]
pub struct AllocationFailures {
    /// Draws the allocations that fail.
    pub random: Random,
    /// One allocation in so many fails.
    pub once_in: u64,
    /// How many have failed.
    pub failed: u64,
}

/// From now on these allocations of the running thread fail; `None`: none. Returns what was set before.
#[cfg(feature = "allocation-failures")]
pub fn replace_allocation_failures(failures: Option<AllocationFailures>) -> Option<AllocationFailures> {
    FAILURES.replace(failures)
}

/// Does nothing, as the feature is off.
#[cfg(not(feature = "allocation-failures"))]
pub fn replace_allocation_failures(_failures: Option<AllocationFailures>) -> Option<AllocationFailures> {
    None
}

/// Whether the allocation that comes next is to fail. To be asked once for each allocation whose failure the caller can report.
#[cfg(feature = "allocation-failures")]
pub fn allocation_fails() -> bool {
    FAILURES.with_borrow_mut(|failures| {
        let Some(failures) = failures else { return false };
        let fails = failures.random.once_in(failures.once_in);
        failures.failed += u64::from(fails);
        fails
    })
}

/// No allocation fails by injection, as the feature is off.
#[cfg(not(feature = "allocation-failures"))]
#[inline(always)]
pub const fn allocation_fails() -> bool {
    false
}

/// Reserves memory for `count` more elements. `false`: there is none.
#[inline]
pub fn reserve<T>(list: &mut Vec<T>, count: usize) -> bool {
    let fails = list.capacity() - list.len() < count && allocation_fails();
    !fails && list.try_reserve(count).is_ok()
}

/// Reserves memory for `count` more elements. `false`: there is none.
#[inline]
pub fn reserve_queue<T>(queue: &mut VecDeque<T>, count: usize) -> bool {
    let fails = queue.capacity() - queue.len() < count && allocation_fails();
    !fails && queue.try_reserve(count).is_ok()
}

#[cfg(feature = "allocation-failures")]
thread_local! {
    // Not state of an engine: what one test injects.
    static FAILURES: core::cell::RefCell<Option<AllocationFailures>> = const { core::cell::RefCell::new(None) };
}

#[cfg(all(test, feature = "allocation-failures"))]
mod tests {
    use super::{AllocationFailures, replace_allocation_failures, reserve, reserve_queue};
    use crate::{Random, Slab};
    use std::collections::VecDeque;

    #[test]
    fn growth_fails_and_what_was_reserved_does_not() {
        let (mut list, mut queue, mut slab) = (Vec::new(), VecDeque::new(), Slab::new());
        assert!(reserve(&mut list, 2) && reserve_queue(&mut queue, 2) && slab.try_reserve(2));
        replace_allocation_failures(Some(AllocationFailures { random: Random(1), once_in: 1, failed: 0 }));
        assert!(reserve(&mut list, 2) && reserve_queue(&mut queue, 2) && slab.try_reserve(2));
        assert!(slab.try_insert(1).is_some() && slab.try_insert(2).is_some());
        list.extend([1, 2]);
        queue.extend([1, 2]);
        assert!(!reserve(&mut list, 1000) && !reserve_queue(&mut queue, 1000) && !slab.try_reserve(1000));
        let failed = replace_allocation_failures(None).map(|failures| failures.failed);
        assert_eq!(failed, Some(3));
        assert!(reserve(&mut list, 1000) && slab.try_reserve(1000));
    }

    #[test]
    fn an_insertion_that_cannot_report_an_error_never_fails_by_injection() {
        let mut slab = Slab::new();
        replace_allocation_failures(Some(AllocationFailures { random: Random(1), once_in: 1, failed: 0 }));
        (0..100).for_each(|number| _ = slab.insert(number));
        assert!(slab.try_insert_with(|_| 0).is_none() || slab.len() > 100);
        replace_allocation_failures(None);
    }
}
