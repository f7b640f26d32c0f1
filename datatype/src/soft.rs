// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `long double` and `REAL*16`, for which Rust has no type: addition, multiplication and order of the x87 format and of
//! IEEE binary128 in software, rounded to nearest even as the hardware does by default. Slower than hardware (tens of
//! nanoseconds a number), and bit for bit the same; of NaN operands, the result is the left one, made quiet.
//!
//! Both formats have 15 bits of exponent. A finite number is `significand x 2^exponent` with exactly `P` bits of
//! significand, subnormals too: they only have a lower exponent than the format can store.

use crate::element::{Arithmetic, Element, Negate, Ordered};

/// The x87 format: an explicit leading bit, 10 bytes of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct X87(Soft);

/// IEEE binary128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binary128(Soft);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Soft {
    negative: bool,
    value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Finite {
        exponent: i32,
        significand: u128,
    },
    Infinite,
    /// The bits below the quiet bit.
    NotANumber(u128),
}

const ZERO: Value = Value::Finite { exponent: 0, significand: 0 };
const BIAS: i32 = 16383;
const EXPONENT_FULL: i32 = 0x7fff;

/// The exponent of the last bit of the smallest number.
const fn least_exponent(precision: u32) -> i32 {
    1 - BIAS - (precision as i32 - 1)
}

impl Soft {
    /// From the fields of the format: `significand` with its leading bit, which is 0 for subnormals.
    fn decode(precision: u32, negative: bool, biased: i32, significand: u128) -> Self {
        let exponent = biased.max(1) - BIAS - (precision as i32 - 1);
        let value = if significand == 0 { ZERO } else { normal(precision, exponent, significand) };
        Soft { negative, value }
    }

    /// The fields of the format: biased exponent, and significand with its leading bit.
    fn encode(self, precision: u32) -> (i32, u128) {
        let leading = 1 << (precision - 1);
        match self.value {
            Value::Finite { significand: 0, .. } => (0, 0),
            Value::Finite { exponent, significand } => {
                let lack = least_exponent(precision) - exponent;
                if lack > 0 {
                    return (0, significand >> lack);
                }
                (exponent + BIAS + precision as i32 - 1, significand)
            }
            Value::Infinite => (EXPONENT_FULL, leading),
            Value::NotANumber(below) => {
                (EXPONENT_FULL, leading | leading >> 1 | below & ((leading >> 1) - 1))
            }
        }
    }

    fn add(self, other: Self, precision: u32) -> Self {
        use Value::{Finite, Infinite, NotANumber};
        match (self.value, other.value) {
            (NotANumber(_), _) => self,
            (_, NotANumber(_)) => other,
            (Infinite, Infinite) if self.negative != other.negative => DEFAULT_NAN,
            (Infinite, _) => self,
            (_, Infinite) => other,
            (Finite { significand: 0, .. }, Finite { significand: 0, .. }) => {
                Soft { negative: self.negative && other.negative, value: ZERO }
            }
            (Finite { significand: 0, .. }, _) => other,
            (_, Finite { significand: 0, .. }) => self,
            (Finite { exponent: a, .. }, Finite { exponent: b, .. }) if a < b => other.add(self, precision),
            (Finite { exponent, significand }, Finite { exponent: lower, significand: smaller }) => {
                // Twelve more bits below the last: the bits that the smaller number loses when it is shifted are combined
                // into a sticky bit, which is enough for correct rounding.
                let big = significand << 12;
                let small = shifted(smaller << 12, exponent.abs_diff(lower));
                let exponent = exponent - 12;
                if self.negative == other.negative {
                    return rounded(precision, self.negative, exponent, big + small);
                }
                match big.checked_sub(small) {
                    Some(0) => Soft { negative: false, value: ZERO },
                    Some(rest) => rounded(precision, self.negative, exponent, rest),
                    None => rounded(precision, other.negative, exponent, small - big),
                }
            }
        }
    }

    fn multiply(self, other: Self, precision: u32) -> Self {
        use Value::{Finite, Infinite, NotANumber};
        let negative = self.negative != other.negative;
        match (self.value, other.value) {
            (NotANumber(_), _) => self,
            (_, NotANumber(_)) => other,
            (Infinite, Finite { significand: 0, .. }) | (Finite { significand: 0, .. }, Infinite) => {
                DEFAULT_NAN
            }
            (Infinite, _) | (_, Infinite) => Soft { negative, value: Infinite },
            (Finite { exponent: a, significand: x }, Finite { exponent: b, significand: y }) => {
                let (high, low) = product(x, y);
                if high == 0 {
                    return rounded(precision, negative, a + b, low);
                }
                let room = high.leading_zeros();
                let top = if room == 0 { high } else { high << room | low >> (128 - room) };
                let sticky = u128::from(low << room != 0);
                rounded(precision, negative, a + b + 128 - room as i32, top | sticky)
            }
        }
    }

    fn less(self, other: Self) -> bool {
        use Value::{Finite, Infinite, NotANumber};
        let magnitude_less = |a: Value, b: Value| match (a, b) {
            (Finite { significand: 0, .. }, Finite { significand, .. }) => significand != 0,
            (_, Finite { significand: 0, .. }) => false,
            (Finite { exponent: a, significand: x }, Finite { exponent: b, significand: y }) => {
                (a, x) < (b, y)
            }
            (Finite { .. }, Infinite) => true,
            _ => false,
        };
        let zero = |value| matches!(value, Finite { significand: 0, .. });
        match (self.value, other.value) {
            (NotANumber(_), _) | (_, NotANumber(_)) => false,
            (a, b) if zero(a) && zero(b) => false,
            (a, b) => match (self.negative, other.negative) {
                (false, false) => magnitude_less(a, b),
                (true, true) => magnitude_less(b, a),
                (negative, _) => negative,
            },
        }
    }
}

/// The result of an invalid operation: the default NaN of x86, which is negative.
const DEFAULT_NAN: Soft = Soft { negative: true, value: Value::NotANumber(0) };

fn normal(precision: u32, exponent: i32, significand: u128) -> Value {
    let lack = significand.leading_zeros() - (128 - precision);
    Value::Finite { exponent: exponent - lack as i32, significand: significand << lack }
}

/// `significand / 2^by`; the last bit is sticky: it is set if any lost bit was.
fn shifted(significand: u128, by: u32) -> u128 {
    if by > 127 {
        return u128::from(significand != 0);
    }
    let upper = significand >> by;
    upper | u128::from(upper << by != significand)
}

/// The number nearest to `significand x 2^exponent`, ties to even, or infinity. The last bit of `significand` may be a
/// sticky bit; it lies below every bit of the result.
fn rounded(precision: u32, negative: bool, exponent: i32, significand: u128) -> Soft {
    let bits = 128 - significand.leading_zeros();
    let drop = (bits as i32 - precision as i32).max(least_exponent(precision) - exponent);
    // Far below the least number: the significand is shortened so far that a shift can be done.
    let far = (drop - 120).max(0);
    let (exponent, drop, significand) = (exponent + far, drop - far, shifted(significand, far as u32));
    let (exponent, shortened) = if drop <= 0 {
        (exponent, significand)
    } else {
        let shortened = significand >> drop;
        let (rest, half) = (significand - (shortened << drop), 1 << (drop - 1));
        let up = rest > half || rest == half && shortened & 1 == 1;
        (exponent + drop, shortened + u128::from(up))
    };
    if shortened == 0 {
        return Soft { negative, value: ZERO };
    }
    // Rounding up may have carried into one bit more, which is then a power of two: nothing is lost.
    let (exponent, shortened) =
        if shortened >> precision != 0 { (exponent + 1, shortened >> 1) } else { (exponent, shortened) };
    let value = normal(precision, exponent, shortened);
    let overflows = matches!(value, Value::Finite { exponent, .. } if exponent + precision as i32 > BIAS + 1);
    Soft { negative, value: if overflows { Value::Infinite } else { value } }
}

/// 256 bits: high and low half.
fn product(x: u128, y: u128) -> (u128, u128) {
    const LOW: u128 = u64::MAX as u128;
    let (x1, x0, y1, y0) = (x >> 64, x & LOW, y >> 64, y & LOW);
    let (cross1, cross2) = (x1 * y0, x0 * y1);
    let middle = ((x0 * y0) >> 64) + (cross1 & LOW) + (cross2 & LOW);
    let low = ((x0 * y0) & LOW) | middle << 64;
    (x1 * y1 + (cross1 >> 64) + (cross2 >> 64) + (middle >> 64), low)
}

impl Element for X87 {
    const BYTES: usize = 16;

    fn get(from: &[u8]) -> Self {
        let significand = u64::get(&from[..8]);
        let head = u16::get(&from[8..10]);
        let (negative, biased) = (head >> 15 == 1, i32::from(head & 0x7fff));
        let below = u128::from(significand & (u64::MAX >> 2));
        X87(match (biased, significand >> 63) {
            (EXPONENT_FULL, 1) if significand << 1 == 0 => Soft { negative, value: Value::Infinite },
            (EXPONENT_FULL, _) => Soft { negative, value: Value::NotANumber(below) },
            // An "unnormal", which is invalid on every processor since the 80387.
            (1.., 0) => DEFAULT_NAN,
            _ => Soft::decode(64, negative, biased, u128::from(significand)),
        })
    }

    fn put(self, to: &mut [u8]) {
        let (biased, significand) = self.0.encode(64);
        to.fill(0);
        (significand as u64).put(&mut to[..8]);
        (biased as u16 | u16::from(self.0.negative) << 15).put(&mut to[8..10]);
    }
}

impl Element for Binary128 {
    const BYTES: usize = 16;

    fn get(from: &[u8]) -> Self {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(from);
        let bits = u128::from_ne_bytes(bytes);
        let (negative, biased) = (bits >> 127 == 1, (bits >> 112) as i32 & EXPONENT_FULL);
        let fraction = bits & ((1 << 112) - 1);
        Binary128(match biased {
            EXPONENT_FULL if fraction == 0 => Soft { negative, value: Value::Infinite },
            EXPONENT_FULL => Soft { negative, value: Value::NotANumber(fraction & ((1 << 111) - 1)) },
            _ => Soft::decode(113, negative, biased, fraction | u128::from(biased != 0) << 112),
        })
    }

    fn put(self, to: &mut [u8]) {
        let (biased, significand) = self.0.encode(113);
        let fraction = significand & ((1 << 112) - 1);
        let bits = u128::from(self.0.negative) << 127 | (biased as u128) << 112 | fraction;
        to.copy_from_slice(&bits.to_ne_bytes());
    }
}

macro_rules! soft {
    ($($number:ident with $precision:literal),*) => { $(
        impl Arithmetic for $number {
            fn add(self, other: Self) -> Self {
                $number(self.0.add(other.0, $precision))
            }
            fn multiply(self, other: Self) -> Self {
                $number(self.0.multiply(other.0, $precision))
            }
        }
        impl Ordered for $number {
            fn less(self, other: Self) -> bool {
                self.0.less(other.0)
            }
        }
        impl Negate for $number {
            fn negate(self) -> Self {
                $number(Soft { negative: !self.0.negative, ..self.0 })
            }
        }
    )* };
}
soft!(X87 with 64, Binary128 with 113);
