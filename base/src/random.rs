// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pseudo-random numbers from a seed, for schedulers, fault injectors and tests. Production code uses them only with a seed
//! from its caller (Rule 2).

/// splitmix64 (Steele, Lea, Flood, OOPSLA'14): a seed determines the whole sequence.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.bits() % bound }
    }

    /// True once in `times` on average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
