// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Atomic operations on words of 64 bits.

/// An atomic operation on a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomic {
    /// Adds, and returns the old value.
    FetchAdd(u64),
    /// Replaces the value if it is as expected, and returns the old value.
    CompareSwap {
        /// The value that the word must have.
        expected: u64,
        /// The value that the word gets.
        desired: u64,
    },
    /// Replaces the value, and returns the old one.
    Swap(u64),
}
