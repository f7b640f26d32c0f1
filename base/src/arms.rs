// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which arms of the state machines a test reached. With the feature `arms` each [`reach`](crate::reach) counts in a
//! table of the running thread; without it the macro is nothing, so hot paths may name their arms.

use std::collections::BTreeMap;

/// Counts one visit of a named arm, as in `mend_base::reach!("pml.matching: posted, eager")`.
#[macro_export]
macro_rules! reach {
    ($arm:literal) => {
        $crate::arms::visit($arm)
    };
}

/// What [`reach`](crate::reach) calls.
#[cfg(feature = "arms")]
pub fn visit(arm: &'static str) {
    TABLE.with_borrow_mut(|table| *table.entry(arm).or_default() += 1);
}

/// What [`reach`](crate::reach) calls: nothing, without the feature.
#[cfg(not(feature = "arms"))]
#[inline(always)]
pub fn visit(_arm: &'static str) {}

/// The arms that this thread reached since the last call, each with its count; empty without the feature.
#[cfg(feature = "arms")]
pub fn take() -> BTreeMap<&'static str, u64> {
    TABLE.take()
}

/// The arms that this thread reached since the last call: none, without the feature.
#[cfg(not(feature = "arms"))]
pub fn take() -> BTreeMap<&'static str, u64> {
    BTreeMap::new()
}

#[cfg(feature = "arms")]
thread_local! {
    // Not state of an engine: a test's tally, thrown away with its thread.
    static TABLE: core::cell::RefCell<BTreeMap<&'static str, u64>> = const { core::cell::RefCell::new(BTreeMap::new()) };
}
