// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cookies of the PML's operations on remote memory: which operation has ended, by the key of its entry.
//!
//! The value of a cookie is the step (6 bits), the lowest 26 bits of the generation, and the index (24 bits) of the entry.

use crate::envelope::AM_ID;
use mend_base::{Key, Slab};
use mend_transport::Cookie;

/// What has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The get with this number, of a transfer (`gets`).
    Get(u8),
    /// The use of the region of a transfer.
    ReleaseGet,
    /// The use of an exposure (`exposures`), or, when no peer has access any more, of its region.
    ReleaseExposure,
}

/// Gets of one transfer that may run at the same time.
pub(crate) const GETS_MAX: usize = 4;

const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 26;
const RELEASE_GET: u8 = 62;
const RELEASE_EXPOSURE: u8 = 63;

const _: () = assert!(GETS_MAX <= RELEASE_GET as usize);
const _: () = assert!(INDEX_BITS + GENERATION_BITS + 6 <= Cookie::VALUE_BITS);

/// Whether the table has room for one more entry that a cookie can name.
pub(crate) fn reserve_entry<T>(table: &mut Slab<T>) -> bool {
    table.len() < 1 << INDEX_BITS && table.try_reserve(1)
}

/// The cookie of a step of an entry.
pub(crate) fn cookie(step: Step, key: Key) -> Cookie {
    let step = match step {
        Step::Get(number) => number,
        Step::ReleaseGet => RELEASE_GET,
        Step::ReleaseExposure => RELEASE_EXPOSURE,
    };
    let value = u64::from(step) << (GENERATION_BITS + INDEX_BITS)
        | u64::from(generation(key)) << INDEX_BITS
        | u64::from(key.index);
    Cookie::new(AM_ID, value).expect("the three parts have 56 bits")
}

/// The step that a cookie names.
pub(crate) fn step_of(done: Cookie) -> Step {
    match (done.value() >> (GENERATION_BITS + INDEX_BITS)) as u8 {
        RELEASE_GET => Step::ReleaseGet,
        RELEASE_EXPOSURE => Step::ReleaseExposure,
        number => Step::Get(number),
    }
}

/// The entry that a cookie names, if it is still in its table.
pub(crate) fn entry_of<T>(table: &Slab<T>, done: Cookie) -> Option<Key> {
    let key = table.key_at(done.value() as u32 & ((1 << INDEX_BITS) - 1))?;
    (cookie(step_of(done), key) == done).then_some(key)
}

fn generation(key: Key) -> u32 {
    key.generation & ((1 << GENERATION_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::{Step, cookie, entry_of, step_of};
    use mend_base::Slab;

    #[test]
    fn a_cookie_names_its_step_and_no_entry_after_its_own() {
        let mut table = Slab::new();
        table.insert(0);
        let key = table.insert(1);
        for step in [Step::Get(0), Step::Get(3), Step::ReleaseGet, Step::ReleaseExposure] {
            let cookie = cookie(step, key);
            assert_eq!((step_of(cookie), entry_of(&table, cookie)), (step, Some(key)));
        }
        let stale = cookie(Step::Get(1), key);
        table.remove(key);
        assert_eq!(entry_of(&table, stale), None);
        assert_eq!(table.insert(2).index, key.index);
        assert_eq!(entry_of(&table, stale), None);
    }
}
