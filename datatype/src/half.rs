// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `REAL*2`, for which Rust has no stable type: IEEE binary16, computed as `f32` and rounded to nearest even. Each sum and
//! product is the same as with a single rounding, because 24 >= 2 * 11 + 2 bits (Figueroa, "When is double rounding innocuous?",
//! SIGNUM 1995), and because no product of two halves is below the normal numbers of `f32`.
//!
//! ```text
//!   sign 1 | exponent 5, bias 15 | fraction 10        0: subnormal, in units of 2^-24        31: infinity, or NaN
//! ```

use crate::element::{Arithmetic, Element, Negate, Ordered};

/// A number of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Half(u16);

const SIGN: u16 = 1 << 15;
const INFINITY: u16 = 31 << 10;
const QUIET: u16 = 1 << 9;

impl Half {
    /// The same number, exactly. A NaN stays a NaN with the same sign and bits, but quiet.
    #[inline]
    fn wide(self) -> f32 {
        let sign = u32::from(self.0 & SIGN) << 16;
        let (exponent, fraction) = (u32::from(self.0 >> 10 & 31), u32::from(self.0 & 1023));
        let magnitude = match (exponent, fraction) {
            (0, _) => (fraction as f32 * UNIT).to_bits(),
            (31, 0) => f32::INFINITY.to_bits(),
            (31, _) => f32::NAN.to_bits() | fraction << 13,
            _ => (exponent + 127 - 15) << 23 | fraction << 13,
        };
        f32::from_bits(sign | magnitude)
    }

    /// The nearest half, the even one of two, or infinity. A NaN becomes a quiet NaN of its upper bits.
    #[inline]
    fn nearest(wide: f32) -> Self {
        let bits = wide.to_bits();
        let sign = (bits >> 16) as u16 & SIGN;
        let magnitude = bits & (u32::MAX >> 1);
        let half = if magnitude > f32::INFINITY.to_bits() {
            INFINITY | QUIET | (magnitude >> 13) as u16 & 1023
        } else if magnitude >= BEYOND {
            INFINITY
        } else if magnitude < LEAST_NORMAL {
            // The last bit of the sum is 2^-24, so the addition rounds exactly as the half must be rounded.
            (f32::from_bits(magnitude) + 0.5).to_bits() as u16
        } else {
            let even = magnitude >> 13 & 1;
            // A carry correctly goes into the exponent.
            ((magnitude - ((127 - 15) << 23) + 0xfff + even) >> 13) as u16
        };
        Half(sign | half)
    }
}

/// 2^-24: the least half above 0.
const UNIT: f32 = 1.0 / 16_777_216.0;
/// 2^-14: the least that is not subnormal, as bits of `f32`.
const LEAST_NORMAL: u32 = (127 - 14) << 23;
/// 65,520, as bits of `f32`: midway between the greatest half and 65,536, which would be the next.
const BEYOND: u32 = 0x477f_f000;

impl Element for Half {
    const BYTES: usize = 2;

    #[inline(always)]
    fn get(from: &[u8]) -> Self {
        Half(u16::get(from))
    }

    #[inline(always)]
    fn put(self, to: &mut [u8]) {
        self.0.put(to);
    }
}

impl Arithmetic for Half {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Half::nearest(self.wide() + other.wide())
    }

    #[inline(always)]
    fn multiply(self, other: Self) -> Self {
        Half::nearest(self.wide() * other.wide())
    }
}

impl Ordered for Half {
    #[inline(always)]
    fn less(self, other: Self) -> bool {
        self.wide() < other.wide()
    }
}

impl Negate for Half {
    #[inline(always)]
    fn negate(self) -> Self {
        Half(self.0 ^ SIGN)
    }
}

#[cfg(test)]
mod tests {
    use super::{Half, INFINITY, QUIET, SIGN};
    use crate::element::{Arithmetic, Ordered};
    use mend_base::Random;

    /// The value by the standard's formula, without the code under test.
    fn value(bits: u16) -> f64 {
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
        let magnitude = match exponent {
            0 => fraction * (-24_f64).exp2(),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1024.0 + fraction) * f64::from(exponent - 25).exp2(),
        };
        if bits & SIGN == 0 { magnitude } else { -magnitude }
    }

    /// The nearest of all halves, found by a search; from the last midpoint on, infinity.
    fn looked_up(wide: f64) -> u16 {
        let sign = if wide.is_sign_negative() { SIGN } else { 0 };
        let wide = wide.abs();
        if wide >= 65_520.0 {
            return sign | INFINITY;
        }
        let (mut low, mut high) = (0, INFINITY - 1);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if value(middle) <= wide { low = middle } else { high = middle }
        }
        let (below, above) = (wide - value(low), value(high) - wide);
        let up = above < below || above == below && low % 2 == 1;
        sign | if up { high } else { low }
    }

    #[test]
    fn every_bit_pattern_becomes_the_number_it_names_and_comes_back() {
        for bits in 0..=u16::MAX {
            let wide = Half(bits).wide();
            let back = Half::nearest(wide);
            if value(bits).is_nan() {
                assert!(wide.is_nan());
                assert_eq!(back, Half(bits | QUIET), "{bits:#x}");
            } else {
                assert_eq!(f64::from(wide).to_bits(), value(bits).to_bits(), "{bits:#x}");
                assert_eq!(back, Half(bits), "{bits:#x}");
            }
        }
    }

    #[test]
    fn between_any_two_neighbours_the_midpoint_divides_and_goes_to_the_even_one() {
        let rounds = |wide: f32, to: u16| {
            assert_eq!(Half::nearest(wide), Half(to), "{wide:e}");
            assert_eq!(Half::nearest(-wide), Half(to | SIGN), "-{wide:e}");
        };
        for low in 0..INFINITY {
            // Beyond the greatest the next would be 65,536.
            let next = if low + 1 == INFINITY { 65_536.0 } else { value(low + 1) };
            let midpoint = ((value(low) + next) / 2.0) as f32;
            assert_eq!(f64::from(midpoint), (value(low) + next) / 2.0, "a float has room for it");
            let even = if low % 2 == 0 { low } else { low + 1 };
            rounds(midpoint, even);
            rounds(midpoint.next_down(), low);
            rounds(midpoint.next_up(), low + 1);
            rounds((value(low) as f32).next_up(), low);
            rounds((next as f32).next_down(), low + 1);
        }
        for far in [65_536.0, 1e10, f32::MAX, f32::INFINITY] {
            rounds(far, INFINITY);
        }
        for tiny in [0.0, f32::from_bits(1), f32::MIN_POSITIVE, 1e-10] {
            rounds(tiny, 0);
        }
    }

    #[test]
    fn sums_and_products_are_rounded_once_and_order_is_that_of_the_numbers() {
        let mut random = Random(3);
        let odd = [0, 1, 2, 1023, 1024, 1025, 0x3c00, 0x3c01, 0x4000, 0x7bfe, 0x7bff, INFINITY, 0x7e00];
        let odd = odd.into_iter().flat_map(|bits| [bits, bits | SIGN]).collect::<Vec<u16>>();
        let pairs = odd.iter().flat_map(|&left| odd.iter().map(move |&right| (left, right)));
        let drawn = (0..2_000_000).map(|_| (random.bits() as u16, random.bits() as u16)).collect::<Vec<_>>();
        for (left, right) in pairs.chain(drawn) {
            let (a, b) = (Half(left), Half(right));
            // Exact as doubles: 41 and 22 bits.
            let agree = |ours: Half, exact: f64| {
                let nan = exact.is_nan() && value(ours.0).is_nan();
                assert!(nan || ours.0 == looked_up(exact), "{left:#x}, {right:#x}: {ours:?}, {exact:e}");
            };
            agree(a.add(b), value(left) + value(right));
            agree(a.multiply(b), value(left) * value(right));
            assert_eq!(a.less(b), value(left) < value(right), "{left:#x} < {right:#x}");
        }
    }
}
