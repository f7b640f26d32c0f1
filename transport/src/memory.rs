// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access to user buffers, and to payloads in a transport's memory: the one file of this crate with `unsafe` (Rule 4).
//!
//! No function here returns a reference into memory that another thread or process may write. Bytes are copied through raw pointers,
//! and each copy is checked against the length of the memory (Rule 11).
#![allow(unsafe_code, reason = "the only accesses to user buffers of this crate are in this file")]

use crate::Atomic;
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::Arc;

/// A buffer that the user named in an MPI call, or a [`Buffer`] of the library. Its constructor
/// [`from_user`](UserMemory::from_user) is the one public `unsafe fn` of this crate. The contract of this constructor is what MPI asks
/// of the user: the buffer stays valid until the request completes (MPI-5.0 §3.7.2). The type gives no references, only copies.
#[derive(Debug)]
pub struct UserMemory {
    start: *mut u8,
    bytes: usize,
    /// Owns the memory of a [`Buffer`]; `None` for a user's buffer.
    owner: Option<Arc<Buffer>>,
}

// SAFETY: the pointer is only used by copies whose validity `from_user`'s contract, or the owner, guarantees from any
// thread; moving the value between threads adds no access.
unsafe impl Send for UserMemory {}

impl UserMemory {
    /// No memory.
    pub const EMPTY: UserMemory = UserMemory { start: ptr::null_mut(), bytes: 0, owner: None };

    /// The `bytes` bytes at `start`, which the user named.
    ///
    /// # Safety
    /// Until the request that uses the range is complete, the range must be readable (for sends) or readable and writable (for
    /// receives), and the user must access it only as MPI allows. `bytes` must not exceed `isize::MAX`.
    pub const unsafe fn from_user(start: *mut u8, bytes: usize) -> Self {
        UserMemory { start, bytes, owner: None }
    }

    /// A buffer of the library. It lives at least as long as the returned value.
    pub fn of_buffer(buffer: &Arc<Buffer>) -> Self {
        let start = buffer.bytes.as_ptr().cast::<u8>().cast_mut();
        UserMemory { start, bytes: buffer.bytes.len(), owner: Some(Arc::clone(buffer)) }
    }

    /// How many bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The same memory, for another request over it, as in the rounds of a collective operation.
    pub fn share(&self) -> Self {
        UserMemory { start: self.start, bytes: self.bytes, owner: self.owner.clone() }
    }

    /// The `bytes` bytes from `offset` on; `None`: they reach past the end.
    pub fn part(&self, offset: usize, bytes: usize) -> Option<Self> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then(|| UserMemory {
            start: self.start.wrapping_add(offset),
            bytes,
            owner: self.owner.clone(),
        })
    }

    // Hot: per message.
    /// Copies `out.len()` bytes from `offset` on to `out`. Panics if they reach past the end.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.check(offset, out.len());
        // SAFETY: `check` keeps the range inside what `from_user`'s caller promised to be readable (or the owner's
        // allocation); `out` is a Rust slice and so cannot overlap memory that is only reachable by raw pointer.
        unsafe { ptr::copy_nonoverlapping(self.start.wrapping_add(offset), out.as_mut_ptr(), out.len()) }
    }

    // Hot: per message.
    /// Copies `from` to the bytes from `offset` on. Panics if they reach past the end.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: as in `read`; writable because receives promise it, and `Buffer` is made of atomics.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.start.wrapping_add(offset), from.len()) }
    }

    /// Copies `bytes` bytes of `from`, which may overlap this memory.
    pub fn copy_from(&self, offset: usize, from: &UserMemory, from_offset: usize, bytes: usize) {
        self.check(offset, bytes);
        from.check(from_offset, bytes);
        // SAFETY: both ranges were checked; `copy` allows them to overlap.
        unsafe { ptr::copy(from.start.wrapping_add(from_offset), self.start.wrapping_add(offset), bytes) }
    }

    /// The address of the first byte, for a device.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Executes an atomic operation on the 64-bit word at `offset`, and returns the old value; `None`: the address of the word is not a
    /// multiple of 8. Panics if the word reaches past the end. The processors of this host see one order of all such operations on the
    /// word.
    pub fn atomic(&self, offset: usize, operation: Atomic) -> Option<u64> {
        self.check(offset, size_of::<u64>());
        let word = self.start.wrapping_add(offset).cast::<u64>();
        if !word.is_aligned() {
            return None;
        }
        // SAFETY: `word` is aligned, and `check` keeps it inside memory that stays readable and writable during this call
        // (`from_user`). Whoever exposes memory to atomic operations accesses it meanwhile only as MPI allows: by atomic operations.
        let word = unsafe { AtomicU64::from_ptr(word) };
        // SYNC: a word of user memory, with no other side: in this file: any process may execute such an operation on the same word.
        Some(match operation {
            Atomic::FetchAdd(value) => word.fetch_add(value, Ordering::AcqRel),
            Atomic::Swap(value) => word.swap(value, Ordering::AcqRel),
            Atomic::CompareSwap { expected, desired } => word
                .compare_exchange(expected, desired, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|old| old),
        })
    }

    #[inline]
    fn check(&self, offset: usize, bytes: usize) {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "a copy past the end of a buffer");
    }
}

/// Memory of the library that requests use like a user's buffer: for futures over requests, temporary buffers of collective
/// operations, and tests. Each request over a buffer shares its ownership, so a future may be dropped before its request is complete.
#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[AtomicU8]>,
}

impl Buffer {
    /// `bytes` zero bytes.
    pub fn zeroed(bytes: usize) -> Arc<Self> {
        Self::from_bytes(&vec![0; bytes])
    }

    /// As [`zeroed`](Buffer::zeroed), for a length that the user chose: `None` if the system has not enough memory.
    pub fn try_zeroed(bytes: usize) -> Option<Arc<Self>> {
        if mend_base::allocation_fails() {
            return None;
        }
        let mut all = Vec::new();
        all.try_reserve_exact(bytes).ok()?;
        all.resize_with(bytes, || AtomicU8::new(0));
        Some(Arc::new(Buffer { bytes: all.into_boxed_slice() }))
    }

    /// A copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Arc<Self> {
        Arc::new(Buffer { bytes: bytes.iter().map(|&byte| AtomicU8::new(byte)).collect() })
    }

    /// A copy of the current bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    /// How many bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Bytes that arrived and are still in the transport's memory, perhaps in another process's outbox. They can be copied, but there is
/// no slice of them (Rule 11).
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    start: *const u8,
    bytes: usize,
    lent: PhantomData<&'a [AtomicU8]>,
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Payload { start: bytes.as_ptr(), bytes: bytes.len(), lent: PhantomData }
    }
}

impl<'a> From<&'a [AtomicU8]> for Payload<'a> {
    fn from(bytes: &'a [AtomicU8]) -> Self {
        Payload { start: bytes.as_ptr().cast(), bytes: bytes.len(), lent: PhantomData }
    }
}

impl<'a> Payload<'a> {
    /// How many bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The `bytes` bytes from `offset` on. Panics if they reach past the end.
    #[inline]
    pub fn part(&self, offset: usize, bytes: usize) -> Payload<'a> {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "a part past the end of a payload");
        Payload { start: self.start.wrapping_add(offset), bytes, lent: PhantomData }
    }

    // Hot: per message.
    /// Copies the first `out.len()` bytes. Panics if there are fewer.
    pub fn copy_to_slice(&self, out: &mut [u8]) {
        assert!(out.len() <= self.bytes, "a copy past the end of a payload");
        // SAFETY: the source is readable for `bytes` while `'a` lasts (it came from a reference); a peer that writes it
        // meanwhile can only change which bytes are copied. `out` is exclusive.
        unsafe { copy_piece(self.start, out.as_mut_ptr(), out.len()) }
    }

    // Hot: per message.
    /// Copies all bytes to the bytes of `to` from `offset` on. Panics if they reach past the end of `to`.
    #[inline]
    pub fn copy_to_user(&self, to: &UserMemory, offset: usize) {
        to.check(offset, self.bytes);
        // SAFETY: source as in `copy_to_slice`; target checked against what `from_user`'s caller promised. A user's
        // buffer does not overlap a transport's memory.
        unsafe { copy_piece(self.start, to.start.wrapping_add(offset), self.bytes) }
    }

    /// A private copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = vec![0; self.bytes];
        self.copy_to_slice(&mut copy);
        copy
    }
}

/// The memory into which the caller of `send` writes the payload, piece by piece from the front.
#[derive(Debug)]
pub struct PayloadWriter<'a> {
    start: *mut u8,
    bytes: usize,
    used: usize,
    lent: PhantomData<&'a [AtomicU8]>,
}

impl<'a> From<&'a mut [u8]> for PayloadWriter<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        PayloadWriter { start: bytes.as_mut_ptr(), bytes: bytes.len(), used: 0, lent: PhantomData }
    }
}

impl<'a> From<&'a [AtomicU8]> for PayloadWriter<'a> {
    fn from(bytes: &'a [AtomicU8]) -> Self {
        PayloadWriter {
            start: bytes.as_ptr().cast::<u8>().cast_mut(),
            bytes: bytes.len(),
            used: 0,
            lent: PhantomData,
        }
    }
}

impl PayloadWriter<'_> {
    /// How many bytes are still to be written.
    pub fn remaining(&self) -> usize {
        self.bytes - self.used
    }

    // Hot: per message.
    /// Appends `from`. Panics if fewer bytes remain.
    #[inline]
    pub fn put(&mut self, from: &[u8]) {
        let at = self.take(from.len());
        // SAFETY: `take` keeps the range inside the lent memory, which is writable while `'a` lasts: a `&mut [u8]`, or
        // atomics of our own outbox. `from` is a Rust slice, so it does not overlap either.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), at, from.len()) }
    }

    // Hot: per message.
    /// Appends the `bytes` bytes of `from` from `offset` on. Panics if they reach past the end of `from`, or if fewer bytes remain.
    #[inline]
    pub fn put_user(&mut self, from: &UserMemory, offset: usize, bytes: usize) {
        from.check(offset, bytes);
        let at = self.take(bytes);
        // SAFETY: source checked against what `from_user`'s caller promised; target as in `put`.
        unsafe { copy_piece(from.start.wrapping_add(offset), at, bytes) }
    }

    #[inline]
    fn take(&mut self, bytes: usize) -> *mut u8 {
        assert!(bytes <= self.remaining(), "the payload is longer than its sender said");
        let at = self.start.wrapping_add(self.used);
        self.used += bytes;
        at
    }
}

// Hot: per message.
/// Copies a piece: up to 16 bytes by words, otherwise with one `memcpy` of any length. Most pieces are modified lines in the cache of
/// another processor. The C library chooses the best way to read them (`rep movsb` on some processors), for which it needs the length
/// of the whole piece. `cargo run --release -p mend-bench --example copies` compares ways to copy.
///
/// # Safety
/// As `ptr::copy_nonoverlapping` of bytes: `from` readable and `to` writable for `bytes`, and no overlap.
#[inline]
unsafe fn copy_piece(from: *const u8, to: *mut u8, bytes: usize) {
    if bytes <= 16 {
        // SAFETY: the caller's contract.
        return unsafe { copy_few(from, to, bytes) };
    }
    // SAFETY: the caller's contract.
    unsafe { ptr::copy_nonoverlapping(from, to, bytes) }
}

// Hot: per message.
/// Copies up to 16 bytes by two words that may overlap, without a call.
///
/// # Safety
/// As `copy_piece`; `bytes` is at most 16.
#[inline]
unsafe fn copy_few(from: *const u8, to: *mut u8, bytes: usize) {
    if bytes >= 8 {
        // SAFETY: both words lie inside the range, whose length is 8 to 16.
        unsafe { copy_ends::<u64>(from, to, bytes) }
    } else if bytes >= 4 {
        // SAFETY: as above, 4 to 7.
        unsafe { copy_ends::<u32>(from, to, bytes) }
    } else {
        for at in 0..bytes {
            // SAFETY: inside the range.
            let byte = unsafe { from.wrapping_add(at).read() };
            // SAFETY: inside the range.
            unsafe { to.wrapping_add(at).write(byte) }
        }
    }
}

/// Copies the first and the last `T` of a range of `bytes` bytes, which is at least one `T` long and at most two.
///
/// # Safety
/// `from` readable and `to` writable for `bytes`, which is at least the size of `T`.
#[inline]
unsafe fn copy_ends<T: Copy>(from: *const u8, to: *mut u8, bytes: usize) {
    let last = bytes - size_of::<T>();
    // SAFETY: the first word of the range; unaligned reads take any address.
    let first_word = unsafe { from.cast::<T>().read_unaligned() };
    // SAFETY: the last word of the range.
    let last_word = unsafe { from.wrapping_add(last).cast::<T>().read_unaligned() };
    // SAFETY: the first word of the range.
    unsafe { to.cast::<T>().write_unaligned(first_word) };
    // SAFETY: the last word of the range.
    unsafe { to.wrapping_add(last).cast::<T>().write_unaligned(last_word) }
}

#[cfg(test)]
mod tests {
    use super::{Buffer, Payload, PayloadWriter, UserMemory};
    use crate::Atomic;

    #[test]
    fn a_buffer_larger_than_any_memory_is_refused() {
        assert!(Buffer::try_zeroed(isize::MAX as usize).is_none());
        assert_eq!(Buffer::try_zeroed(3).unwrap().to_vec(), [0; 3]);
    }

    #[test]
    fn every_length_is_copied_whole_and_nothing_behind_it() {
        for length in (0..40).chain([1023, 1024, 1025, 4099, 16384, 16385]) {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251 + 1) as u8).collect();
            let to = Buffer::zeroed(length + 8);
            let target = UserMemory::of_buffer(&to);
            Payload::from(&bytes[..]).copy_to_user(&target, 3);
            let copied = to.to_vec();
            assert_eq!(copied[3..3 + length], bytes[..]);
            assert!(copied[..3].iter().chain(&copied[3 + length..]).all(|&byte| byte == 0), "{length}");
            let mut slot = vec![0; length + 2];
            PayloadWriter::from(&mut slot[..]).put_user(&target, 3, length);
            assert_eq!(slot[..length], bytes[..]);
            assert_eq!(slot[length..], [0, 0], "{length}");
        }
    }

    #[test]
    fn bytes_go_from_buffer_to_slot_to_payload_to_buffer() {
        let from = UserMemory::of_buffer(&Buffer::from_bytes(b"abcdef"));
        let mut staging = [0u8; 4];
        let mut slot = PayloadWriter::from(&mut staging[..]);
        slot.put_user(&from, 1, 3);
        slot.put(b"!");
        assert_eq!(slot.remaining(), 0);
        let to = Buffer::zeroed(5);
        Payload::from(&staging[..]).copy_to_user(&UserMemory::of_buffer(&to), 1);
        assert_eq!(to.to_vec(), b"\0bcd!");
    }

    #[test]
    #[should_panic(expected = "past the end")]
    fn a_copy_past_the_end_panics_before_it_writes() {
        let memory = UserMemory::of_buffer(&Buffer::zeroed(4));
        memory.write(2, b"abc");
    }

    #[test]
    fn an_atomic_operation_returns_the_old_word_and_needs_an_aligned_one() {
        let buffer = Buffer::zeroed(24);
        let memory = UserMemory::of_buffer(&buffer);
        let aligned = memory.start().align_offset(8);
        assert_eq!(memory.atomic(aligned, Atomic::FetchAdd(5)), Some(0));
        assert_eq!(memory.atomic(aligned, Atomic::Swap(9)), Some(5));
        let exchange = |expected| memory.atomic(aligned, Atomic::CompareSwap { expected, desired: 1 });
        assert_eq!((exchange(8), exchange(9), exchange(9)), (Some(9), Some(9), Some(1)));
        assert_eq!(memory.atomic(aligned + 1, Atomic::Swap(7)), None);
        assert_eq!(buffer.to_vec()[aligned..aligned + 9], [1, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn user_memory_shares_the_ownership_of_its_buffer() {
        let buffer = Buffer::from_bytes(b"xyz");
        let memory = UserMemory::of_buffer(&buffer);
        drop(buffer);
        let mut out = [0; 3];
        memory.read(0, &mut out);
        assert_eq!(&out, b"xyz");
    }
}
