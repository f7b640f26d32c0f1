// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Branch coverage of state machines for tests. With the feature `branches` each [`reach`](crate::reach) counts in a table of the
//! running thread; without it the macro is empty, so that hot paths may name their branches.

use std::collections::BTreeMap;

/// Counts in test builds that a named branch was taken, and is empty in production: `mend_base::reach!("pml.matcher: posted, eager")`.
#[macro_export]
macro_rules! reach {
    ($branch:literal) => {
        $crate::branches::visit($branch)
    };
}

/// Counts one visit; called by [`reach`](crate::reach).
#[cfg(feature = "branches")]
pub fn visit(branch: &'static str) {
    TABLE.with_borrow_mut(|table| *table.entry(branch).or_default() += 1);
}

/// Does nothing, as the feature is off; called by [`reach`](crate::reach).
#[cfg(not(feature = "branches"))]
#[inline(always)]
pub fn visit(_arm: &'static str) {}

/// The branches that this thread reached since the last call, each with its count; empty without the feature.
#[cfg(feature = "branches")]
pub fn take() -> BTreeMap<&'static str, u64> {
    TABLE.take()
}

/// The branches that this thread reached since the last call: none without the feature.
#[cfg(not(feature = "branches"))]
pub fn take() -> BTreeMap<&'static str, u64> {
    BTreeMap::new()
}

#[cfg(feature = "branches")]
thread_local! {
    // Not state of an engine: counts of one test, dropped with its thread.
    static TABLE: core::cell::RefCell<BTreeMap<&'static str, u64>> = const { core::cell::RefCell::new(BTreeMap::new()) };
}
