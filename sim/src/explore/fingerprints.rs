// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets of hashes of states, and hashing for tables of small numbers.

use std::hash::{BuildHasherDefault, Hasher};

/// A set of nonzero 64-bit hashes: 8 bytes an entry, at least half full once it has grown.
pub struct Fingerprints {
    /// 0: free. The length is a power of two.
    slots: Vec<u64>,
    used: usize,
}

impl Fingerprints {
    /// An empty set.
    pub fn new() -> Self {
        Fingerprints { slots: vec![0; 1 << 16], used: 0 }
    }

    /// The bytes of memory.
    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<u64>()
    }

    /// Adds a hash. Returns whether it is new.
    pub fn insert(&mut self, fingerprint: u64) -> bool {
        debug_assert_ne!(fingerprint, 0);
        if self.used * 16 >= self.slots.len() * 15 {
            self.grow();
        }
        let slot = slot_of(&self.slots, fingerprint);
        let is_new = self.slots[slot] == 0;
        self.slots[slot] = fingerprint;
        self.used += usize::from(is_new);
        is_new
    }

    fn grow(&mut self) {
        let mut slots = vec![0; self.slots.len() * 2];
        for &fingerprint in self.slots.iter().filter(|&&fingerprint| fingerprint != 0) {
            let slot = slot_of(&slots, fingerprint);
            slots[slot] = fingerprint;
        }
        self.slots = slots;
    }
}

/// Where a hash is, or where it belongs.
fn slot_of(slots: &[u64], fingerprint: u64) -> usize {
    let mut slot = fingerprint as usize & (slots.len() - 1);
    while slots[slot] != 0 && slots[slot] != fingerprint {
        slot = (slot + 1) & (slots.len() - 1);
    }
    slot
}

/// The nonzero hash of a sequence of numbers.
pub fn fingerprint(numbers: impl Iterator<Item = u32>) -> u64 {
    let hash = numbers.fold(0x243f_6a88_85a3_08d3, |hash, number| fold(hash, u64::from(number)));
    fold(hash, 1).max(1)
}

/// One step of a multiplicative hash: both halves of a 128-bit product.
fn fold(hash: u64, number: u64) -> u64 {
    let mixed = hash ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let product = u128::from(mixed) * 0x2d35_8dcc_aa6c_78a5;
    ((product >> 64) as u64 ^ product as u64).rotate_left(29).wrapping_add(0x4cf5_ad43_2745_937f)
}

/// Hashes numbers quickly, for tables that no enemy fills.
#[derive(Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = fold(self.0, number);
    }
}

/// A table of small numbers.
pub type NumberMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<NumberHasher>>;

#[cfg(test)]
mod tests {
    use super::{Fingerprints, fingerprint};

    #[test]
    fn a_set_holds_each_hash_once_and_grows() {
        let mut set = Fingerprints::new();
        for number in 0..200_000 {
            assert!(set.insert(fingerprint([number, 7].into_iter())), "{number}");
        }
        for number in 0..200_000 {
            assert!(!set.insert(fingerprint([number, 7].into_iter())));
        }
        assert_eq!((set.used, set.bytes()), (200_000, 8 << 18));
    }
}
