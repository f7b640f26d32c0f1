// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers as bytes, and the arithmetic that reductions do with them.

/// A value that is stored in memory as `BYTES` bytes.
pub(crate) trait Element: Copy {
    const BYTES: usize;
    /// Reads a value from exactly that many bytes.
    fn get(from: &[u8]) -> Self;
    /// Writes the value to exactly that many bytes.
    fn put(self, to: &mut [u8]);
}

/// SUM, PROD. Integers wrap around, as they do in practice in C: an overflow is the user's mistake, and must not abort.
pub(crate) trait Arithmetic: Element {
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
}

/// MIN, MAX, MINLOC, MAXLOC. A comparison with a NaN is false, as in C.
pub(crate) trait Ordered: Element {
    fn less(self, other: Self) -> bool;
}

/// The bitwise and the logical operations.
pub(crate) trait Bits: Element {
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn exclusive_or(self, other: Self) -> Self;
    /// Anything but 0 is true.
    fn is_true(self) -> bool;
    /// 1 or 0.
    fn from_truth(truth: bool) -> Self;
}

macro_rules! element {
    ($($number:ty),*) => { $(
        impl Element for $number {
            const BYTES: usize = size_of::<$number>();
            #[inline(always)]
            fn get(from: &[u8]) -> Self {
                let mut bytes = [0; size_of::<$number>()];
                bytes.copy_from_slice(from);
                <$number>::from_ne_bytes(bytes)
            }
            #[inline(always)]
            fn put(self, to: &mut [u8]) {
                to.copy_from_slice(&self.to_ne_bytes());
            }
        }
        impl Ordered for $number {
            #[inline(always)]
            fn less(self, other: Self) -> bool {
                self < other
            }
        }
    )* };
}
element!(i8, i16, i32, i64, i128, u8, u16, u32, u64, f32, f64);

macro_rules! integer {
    ($($number:ty),*) => { $(
        impl Arithmetic for $number {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }
        impl Bits for $number {
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn exclusive_or(self, other: Self) -> Self {
                self ^ other
            }
            #[inline(always)]
            fn is_true(self) -> bool {
                self != 0
            }
            #[inline(always)]
            fn from_truth(truth: bool) -> Self {
                <$number>::from(truth)
            }
        }
    )* };
}
integer!(i8, i16, i32, i64, i128, u8, u16, u32, u64);

macro_rules! floating {
    ($($number:ty),*) => { $(
        impl Arithmetic for $number {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                self * other
            }
        }
    )* };
}
floating!(f32, f64);

/// Real and imaginary part.
#[derive(Clone, Copy)]
pub(crate) struct Complex<T>(pub(crate) T, pub(crate) T);

impl<T: Element> Element for Complex<T> {
    const BYTES: usize = 2 * T::BYTES;

    #[inline(always)]
    fn get(from: &[u8]) -> Self {
        let (real, imaginary) = from.split_at(T::BYTES);
        Complex(T::get(real), T::get(imaginary))
    }

    #[inline(always)]
    fn put(self, to: &mut [u8]) {
        let (real, imaginary) = to.split_at_mut(T::BYTES);
        self.0.put(real);
        self.1.put(imaginary);
    }
}

impl<T: Arithmetic + Negate> Arithmetic for Complex<T> {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Complex(self.0.add(other.0), self.1.add(other.1))
    }

    /// The textbook formula; infinities are not treated as in Annex G of the C standard.
    #[inline(always)]
    fn multiply(self, other: Self) -> Self {
        let real = self.0.multiply(other.0).add(self.1.multiply(other.1).negate());
        let imaginary = self.0.multiply(other.1).add(self.1.multiply(other.0));
        Complex(real, imaginary)
    }
}

/// Change of sign, which a complex product needs.
pub(crate) trait Negate {
    fn negate(self) -> Self;
}

impl Negate for f32 {
    #[inline(always)]
    fn negate(self) -> Self {
        -self
    }
}

impl Negate for f64 {
    #[inline(always)]
    fn negate(self) -> Self {
        -self
    }
}

/// A value and its index, packed: for MINLOC and MAXLOC.
#[derive(Clone, Copy)]
pub(crate) struct Pair<V, I> {
    pub(crate) value: V,
    pub(crate) index: I,
}

impl<V: Element, I: Element> Element for Pair<V, I> {
    const BYTES: usize = V::BYTES + I::BYTES;

    #[inline(always)]
    fn get(from: &[u8]) -> Self {
        let (value, index) = from.split_at(V::BYTES);
        Pair { value: V::get(value), index: I::get(index) }
    }

    #[inline(always)]
    fn put(self, to: &mut [u8]) {
        let (value, index) = to.split_at_mut(V::BYTES);
        self.value.put(value);
        self.index.put(index);
    }
}

impl<V: Ordered, I: Ordered> Pair<V, I> {
    /// MINLOC: the lesser value; of equal values the lower index (MPI-5.0 §6.9.4).
    #[inline(always)]
    pub(crate) fn minloc(self, other: Self) -> Self {
        if self.value.less(other.value) { self } else { self.rest(other, other.value.less(self.value)) }
    }

    /// MAXLOC: the greater value; of equal values the lower index.
    #[inline(always)]
    pub(crate) fn maxloc(self, other: Self) -> Self {
        if other.value.less(self.value) { self } else { self.rest(other, self.value.less(other.value)) }
    }

    #[inline(always)]
    fn rest(self, other: Self, other_wins: bool) -> Self {
        if other_wins || !self.index.less(other.index) { other } else { self }
    }
}
