// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A check for tests: each entry of a request table begins once, ends once and is released once, in this order. The owner of a
//! table has a [`LifecycleCheck`] for it. (`mend_transport::Counter` does the same for cookies and messages of transports.)
//!
//! With the feature `lifecycle-check` a violation panics immediately, and [`LifecycleCheck::assert_agrees`] finds changes of the
//! table that were not reported. Without the feature a `LifecycleCheck` has no size and its calls are empty.

use crate::Key;
#[cfg(feature = "lifecycle-check")]
use std::collections::BTreeMap;

/// The state of every entry of one table, by key.
#[derive(Debug, Default)]
pub struct LifecycleCheck {
    /// The entries of the table, and whether each has ended.
    #[cfg(feature = "lifecycle-check")]
    entries: BTreeMap<Key, bool>,
    #[cfg(feature = "lifecycle-check")]
    counts: LifecycleCounts,
}

/// How many entries were inserted, ended and removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LifecycleCounts {
    /// Entries that were inserted.
    pub begun: u64,
    /// Entries that ended.
    pub ended: u64,
    /// Entries that were removed.
    pub released: u64,
}

#[cfg(feature = "lifecycle-check")]
impl LifecycleCheck {
    /// An entry was inserted.
    pub fn begin(&mut self, key: Key) {
        self.counts.begun += 1;
        let before = self.entries.insert(key, false);
        assert!(before.is_none(), "{key:?} begins, but is in the table");
    }

    /// The entry ended.
    pub fn end(&mut self, key: Key) {
        self.counts.ended += 1;
        match self.entries.insert(key, true) {
            Some(false) => {}
            Some(true) => panic!("{key:?} ends twice"),
            None => panic!("{key:?} ends, but is not in the table"),
        }
    }

    /// The entry was removed.
    pub fn release(&mut self, key: Key) {
        self.counts.released += 1;
        match self.entries.remove(&key) {
            Some(true) => {}
            Some(false) => panic!("{key:?} is released before it ended"),
            None => panic!("{key:?} is released, but is not in the table"),
        }
    }

    /// Asserts that the table has the entries that were reported, each with the same state.
    pub fn assert_agrees(&self, table: impl Iterator<Item = (Key, bool)>) {
        let table: BTreeMap<Key, bool> = table.collect();
        assert_eq!(table, self.entries, "the table, and what was reported");
        let LifecycleCounts { begun, ended, released } = self.counts;
        assert!(begun >= ended && ended >= released, "{:?}", self.counts);
        assert_eq!(begun - released, table.len() as u64, "{:?}", self.counts);
    }

    /// The counts so far; all 0 without the feature.
    pub fn counts(&self) -> LifecycleCounts {
        self.counts
    }
}

#[cfg(not(feature = "lifecycle-check"))]
impl LifecycleCheck {
    /// An entry was inserted.
    #[inline(always)]
    pub fn begin(&mut self, _key: Key) {}

    /// The entry ended.
    #[inline(always)]
    pub fn end(&mut self, _key: Key) {}

    /// The entry was removed.
    #[inline(always)]
    pub fn release(&mut self, _key: Key) {}

    /// Asserts nothing, without the feature.
    pub fn assert_agrees(&self, _table: impl Iterator<Item = (Key, bool)>) {}

    /// The counts so far; all 0 without the feature.
    pub fn counts(&self) -> LifecycleCounts {
        LifecycleCounts::default()
    }
}

#[cfg(not(feature = "lifecycle-check"))]
const _: () = assert!(size_of::<LifecycleCheck>() == 0, "it takes no space in a normal build");

#[cfg(all(test, feature = "lifecycle-check"))]
mod tests {
    use super::{LifecycleCheck, LifecycleCounts};
    use crate::Key;

    const KEY: Key = Key { index: 3, generation: 1 };

    fn begun() -> LifecycleCheck {
        let mut check = LifecycleCheck::default();
        check.begin(KEY);
        check
    }

    #[test]
    fn what_begins_ends_and_is_released_once_balances() {
        let mut check = begun();
        check.assert_agrees([(KEY, false)].into_iter());
        check.end(KEY);
        check.assert_agrees([(KEY, true)].into_iter());
        check.release(KEY);
        check.assert_agrees([].into_iter());
        assert_eq!(check.counts(), LifecycleCounts { begun: 1, ended: 1, released: 1 });
    }

    #[test]
    #[should_panic(expected = "ends twice")]
    fn a_second_end_is_caught() {
        let mut check = begun();
        check.end(KEY);
        check.end(KEY);
    }

    #[test]
    #[should_panic(expected = "released before it ended")]
    fn a_release_before_the_end_is_caught() {
        begun().release(KEY);
    }

    #[test]
    #[should_panic(expected = "what was reported")]
    fn an_unreported_removal_is_caught() {
        begun().assert_agrees([].into_iter());
    }

    #[test]
    #[should_panic(expected = "what was reported")]
    fn an_unreported_end_is_caught() {
        begun().assert_agrees([(KEY, true)].into_iter());
    }
}
