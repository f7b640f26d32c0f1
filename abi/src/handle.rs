// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles. Predefined handles are the numbers of the ABI, below 0x1000. Other handles are a generation (odd while the object exists, so
//! never zero) above 32 bits of index (I4). A handle is looked up when it is used; a stale handle is an error.

use mend_base::Key;

/// A handle as C passes it: as wide as a pointer, but never dereferenced.
pub(crate) type Handle = usize;

/// Predefined handles are below this.
pub(crate) const PREDEFINED_END: Handle = 0x1000;

/// The handle of an entry of a table.
pub(crate) fn of_key(key: Key) -> Handle {
    (key.generation as usize) << 32 | key.index as usize
}

/// The key of the table entry with this handle; `None`: the handle is predefined.
pub(crate) fn key(handle: Handle) -> Option<Key> {
    let generation = (handle >> 32) as u32;
    (generation % 2 == 1).then_some(Key { index: handle as u32, generation })
}

#[cfg(test)]
mod tests {
    use super::{PREDEFINED_END, key, of_key};
    use mend_base::Key;

    #[test]
    fn our_handles_come_back_as_they_went_and_are_never_predefined() {
        for entry in [Key { index: 0, generation: 1 }, Key { index: u32::MAX, generation: u32::MAX }] {
            assert_eq!(key(of_key(entry)), Some(entry));
            assert!(of_key(entry) >= PREDEFINED_END);
        }
        assert_eq!(key(0x101), None);
        assert_eq!(key(0), None);
        assert_eq!(key(2 << 32), None);
    }
}
