// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conservation: each entry of a table begins once, ends once, and is let go once, in this order. What transports' cookies
//! and messages are to `mend_transport::Counter`, requests are to an [`LifecycleCheck`], which the table's owner keeps beside it.
//!
//! With the feature `lifecycle_check` a breach panics where it happens, and [`LifecycleCheck::assert_agrees`] finds what went past the books;
//! without it an `LifecycleCheck` has no size and its calls are nothing, so that hot paths may keep one.

use crate::Key;
#[cfg(feature = "lifecycle-check")]
use std::collections::BTreeMap;

/// The books of one table, by key.
#[derive(Debug, Default)]
pub struct LifecycleCheck {
    /// Those that stand, and whether each has ended.
    #[cfg(feature = "lifecycle-check")]
    standing: BTreeMap<Key, bool>,
    #[cfg(feature = "lifecycle-check")]
    counts: LifecycleCounts,
}

/// How many entries have done what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LifecycleCounts {
    /// They were made.
    pub begun: u64,
    /// They are over.
    pub ended: u64,
    /// Nobody can name them any more.
    pub forgotten: u64,
}

#[cfg(feature = "lifecycle-check")]
impl LifecycleCheck {
    /// An entry was made.
    pub fn begin(&mut self, key: Key) {
        self.counts.begun += 1;
        let before = self.standing.insert(key, false);
        assert!(before.is_none(), "{key:?} begins, and stands already");
    }

    /// It is over.
    pub fn end(&mut self, key: Key) {
        self.counts.ended += 1;
        match self.standing.insert(key, true) {
            Some(false) => {}
            Some(true) => panic!("{key:?} ends twice"),
            None => panic!("{key:?} ends, and does not stand"),
        }
    }

    /// It leaves the table.
    pub fn forget(&mut self, key: Key) {
        self.counts.forgotten += 1;
        match self.standing.remove(&key) {
            Some(true) => {}
            Some(false) => panic!("{key:?} is lost: it is forgotten, and has not ended"),
            None => panic!("{key:?} is forgotten, and does not stand"),
        }
    }

    /// Asserts that the table holds what the books say, each entry with whether it has ended.
    pub fn assert_agrees(&self, table: impl Iterator<Item = (Key, bool)>) {
        let table: BTreeMap<Key, bool> = table.collect();
        assert_eq!(table, self.standing, "the table, and what the books say of it");
        let LifecycleCounts { begun, ended, forgotten } = self.counts;
        assert!(begun >= ended && ended >= forgotten, "{:?}", self.counts);
        assert_eq!(begun - forgotten, table.len() as u64, "{:?}", self.counts);
    }

    /// So far; all 0 without the feature.
    pub fn counts(&self) -> LifecycleCounts {
        self.counts
    }
}

#[cfg(not(feature = "lifecycle-check"))]
impl LifecycleCheck {
    /// An entry was made.
    #[inline(always)]
    pub fn begin(&mut self, _key: Key) {}

    /// It is over.
    #[inline(always)]
    pub fn end(&mut self, _key: Key) {}

    /// It leaves the table.
    #[inline(always)]
    pub fn forget(&mut self, _key: Key) {}

    /// Asserts nothing, without the feature.
    pub fn assert_agrees(&self, _table: impl Iterator<Item = (Key, bool)>) {}

    /// So far; all 0 without the feature.
    pub fn counts(&self) -> LifecycleCounts {
        LifecycleCounts::default()
    }
}

#[cfg(not(feature = "lifecycle-check"))]
const _: () = assert!(size_of::<LifecycleCheck>() == 0, "a normal build pays nothing for it");

#[cfg(all(test, feature = "lifecycle-check"))]
mod tests {
    use super::{LifecycleCheck, LifecycleCounts};
    use crate::Key;

    const KEY: Key = Key { index: 3, generation: 1 };

    fn begun() -> LifecycleCheck {
        let mut lifecycle_check = LifecycleCheck::default();
        lifecycle_check.begin(KEY);
        lifecycle_check
    }

    #[test]
    fn what_begins_ends_and_is_forgotten_once_balances() {
        let mut lifecycle_check = begun();
        lifecycle_check.assert_agrees([(KEY, false)].into_iter());
        lifecycle_check.end(KEY);
        lifecycle_check.assert_agrees([(KEY, true)].into_iter());
        lifecycle_check.forget(KEY);
        lifecycle_check.assert_agrees([].into_iter());
        assert_eq!(lifecycle_check.counts(), LifecycleCounts { begun: 1, ended: 1, forgotten: 1 });
    }

    #[test]
    #[should_panic(expected = "ends twice")]
    fn a_second_end_is_caught() {
        let mut lifecycle_check = begun();
        lifecycle_check.end(KEY);
        lifecycle_check.end(KEY);
    }

    #[test]
    #[should_panic(expected = "is lost")]
    fn what_is_forgotten_before_its_end_is_caught() {
        begun().forget(KEY);
    }

    #[test]
    #[should_panic(expected = "what the books say of it")]
    fn what_leaves_the_table_past_the_books_is_caught() {
        begun().assert_agrees([].into_iter());
    }

    #[test]
    #[should_panic(expected = "what the books say of it")]
    fn what_ends_past_the_books_is_caught() {
        begun().assert_agrees([(KEY, true)].into_iter());
    }
}
