// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The user's memory, and bytes on their way: the one file of this crate with `unsafe` (Rule 4).
//!
//! Nothing here lends a reference into memory that somebody else may write: everything is a copy in or out through raw
//! pointers, bounds checked against the length that the memory was made with (Rule 11).
#![allow(unsafe_code, reason = "this file exists to hold it")]

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

/// Memory the user named in an MPI call: an allegation. Its constructor [`from_user`](UserMemory::from_user) is the one
/// `unsafe fn` of this crate; its contract is MPI's own promise to keep the buffer until the request completes
/// (MPI-5.0 §3.7.2). It lends no references, only copies in and out.
#[derive(Debug)]
pub struct UserMemory {
    start: *mut u8,
    bytes: usize,
    /// Keeps memory of our own alive; the user's is kept by the user.
    owner: Option<Arc<Buffer>>,
}

// SAFETY: the pointer is only used by copies whose validity `from_user`'s contract, or the owner, guarantees from any
// thread; moving the value between threads adds no access.
unsafe impl Send for UserMemory {}

impl UserMemory {
    /// No memory.
    pub const EMPTY: UserMemory = UserMemory { start: ptr::null_mut(), bytes: 0, owner: None };

    /// The `bytes` bytes at `start`, as the user named them.
    ///
    /// # Safety
    /// Until the request that uses it is complete, the range must be readable (for sends) or readable and writable (for
    /// receives), and the user must not access it where MPI says so. `bytes` must not exceed `isize::MAX`.
    pub const unsafe fn from_user(start: *mut u8, bytes: usize) -> Self {
        UserMemory { start, bytes, owner: None }
    }

    /// A buffer of our own, kept alive as long as this.
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

    /// The same memory once more: for a second request over the same buffer, as in a collective's rounds.
    pub fn share(&self) -> Self {
        UserMemory { start: self.start, bytes: self.bytes, owner: self.owner.clone() }
    }

    /// The `bytes` bytes from `offset` on, or `None` where they reach past the end.
    pub fn part(&self, offset: usize, bytes: usize) -> Option<Self> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then(|| UserMemory {
            start: self.start.wrapping_add(offset),
            bytes,
            owner: self.owner.clone(),
        })
    }

    // Hot: per message.
    /// Copies `out.len()` bytes from `offset` on. Panics where they reach past the end.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.check(offset, out.len());
        // SAFETY: `check` keeps the range inside what `from_user`'s caller promised to be readable (or the owner's
        // allocation); `out` is a Rust slice and so cannot overlap memory that is only reachable by raw pointer.
        unsafe { ptr::copy_nonoverlapping(self.start.wrapping_add(offset), out.as_mut_ptr(), out.len()) }
    }

    // Hot: per message.
    /// Copies `from` to `offset` and after. Panics where it reaches past the end.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: as in `read`; writable because receives promise it, and `Buffer` is made of atomics.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.start.wrapping_add(offset), from.len()) }
    }

    /// Copies `bytes` bytes from `from`, which may overlap.
    pub fn copy_from(&self, offset: usize, from: &UserMemory, from_offset: usize, bytes: usize) {
        self.check(offset, bytes);
        from.check(from_offset, bytes);
        // SAFETY: both ranges were checked; `copy` allows them to overlap.
        unsafe { ptr::copy(from.start.wrapping_add(from_offset), self.start.wrapping_add(offset), bytes) }
    }

    #[inline]
    fn check(&self, offset: usize, bytes: usize) {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "a copy past the end of a buffer");
    }
}

/// Memory of our own that requests may use like a user's: for futures over requests, collectives' scratch, and tests.
/// Kept alive by every request over it, so that dropping a future in flight leaves nothing dangling.
#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[AtomicU8]>,
}

impl Buffer {
    /// `bytes` zero bytes.
    pub fn zeroed(bytes: usize) -> Arc<Self> {
        Self::from_bytes(&vec![0; bytes])
    }

    /// The same where the length is the user's: `None` where the system would not give so much.
    pub fn try_zeroed(bytes: usize) -> Option<Arc<Self>> {
        let mut all = Vec::new();
        all.try_reserve_exact(bytes).ok()?;
        all.resize_with(bytes, || AtomicU8::new(0));
        Some(Arc::new(Buffer { bytes: all.into_boxed_slice() }))
    }

    /// A copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Arc<Self> {
        Arc::new(Buffer { bytes: bytes.iter().map(|&byte| AtomicU8::new(byte)).collect() })
    }

    /// A copy of what it holds now.
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

/// Bytes that arrived and still lie in the transport's memory, perhaps in another process's outbox: copied out, once,
/// never lent as a slice (Rule 11).
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

    /// The `bytes` bytes from `offset` on. Panics where they reach past the end.
    #[inline]
    pub fn part(&self, offset: usize, bytes: usize) -> Payload<'a> {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "a part past the end of a payload");
        Payload { start: self.start.wrapping_add(offset), bytes, lent: PhantomData }
    }

    // Hot: per message.
    /// Copies the first `out.len()` bytes. Panics where there are fewer.
    pub fn copy_to_slice(&self, out: &mut [u8]) {
        assert!(out.len() <= self.bytes, "a copy past the end of a payload");
        // SAFETY: the source is readable for `bytes` while `'a` lasts (it came from a reference); a peer that writes it
        // meanwhile can only change which bytes are copied. `out` is exclusive.
        unsafe { copy_piece(self.start, out.as_mut_ptr(), out.len()) }
    }

    // Hot: per message.
    /// Copies all of it to `offset` and after. Panics where it reaches past the end of `to`.
    #[inline]
    pub fn copy_to_user(&self, to: &UserMemory, offset: usize) {
        to.check(offset, self.bytes);
        // SAFETY: source as in `copy_to_slice`; target checked against what `from_user`'s caller promised. A user's
        // buffer does not overlap a transport's memory.
        unsafe { copy_piece(self.start, to.start.wrapping_add(offset), self.bytes) }
    }

    /// A private copy.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = vec![0; self.bytes];
        self.copy_to_slice(&mut copy);
        copy
    }
}

/// Where `send` lets its caller write the payload: filled from the front, whole, by the pieces of a datatype.
#[derive(Debug)]
pub struct WriteSlot<'a> {
    start: *mut u8,
    bytes: usize,
    used: usize,
    lent: PhantomData<&'a [AtomicU8]>,
}

impl<'a> From<&'a mut [u8]> for WriteSlot<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        WriteSlot { start: bytes.as_mut_ptr(), bytes: bytes.len(), used: 0, lent: PhantomData }
    }
}

impl<'a> From<&'a [AtomicU8]> for WriteSlot<'a> {
    fn from(bytes: &'a [AtomicU8]) -> Self {
        WriteSlot {
            start: bytes.as_ptr().cast::<u8>().cast_mut(),
            bytes: bytes.len(),
            used: 0,
            lent: PhantomData,
        }
    }
}

impl WriteSlot<'_> {
    /// Bytes still to be written.
    pub fn room(&self) -> usize {
        self.bytes - self.used
    }

    // Hot: per message.
    /// Appends `from`. Panics where there is no room.
    #[inline]
    pub fn put(&mut self, from: &[u8]) {
        let at = self.take(from.len());
        // SAFETY: `take` keeps the range inside the lent memory, which is writable while `'a` lasts: a `&mut [u8]`, or
        // atomics of our own outbox. `from` is a Rust slice, so it does not overlap either.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), at, from.len()) }
    }

    // Hot: per message.
    /// Appends `bytes` bytes of the user's memory from `offset` on. Panics where there are fewer, or no room.
    #[inline]
    pub fn put_user(&mut self, from: &UserMemory, offset: usize, bytes: usize) {
        from.check(offset, bytes);
        let at = self.take(bytes);
        // SAFETY: source checked against what `from_user`'s caller promised; target as in `put`.
        unsafe { copy_piece(from.start.wrapping_add(offset), at, bytes) }
    }

    #[inline]
    fn take(&mut self, bytes: usize) -> *mut u8 {
        assert!(bytes <= self.room(), "a payload longer than the slot it was promised");
        let at = self.start.wrapping_add(self.used);
        self.used += bytes;
        at
    }
}

// Hot: per message.
/// Copies a piece: words where it is short, otherwise one `memcpy`, however long. Most pieces lie dirty in the cache of
/// another processor, a peer's; the C library knows best how to read them (by `rep movsb` where the processor is good at
/// it), and can only do so where it is given the whole. `cargo run --release -p mend-bench --example copies` compares.
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
/// Up to 16 bytes, by two words that may overlap rather than by a call.
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

/// The first and the last `T` of a range of `bytes` bytes, which is as long as one and no longer than two.
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
    use super::{Buffer, Payload, UserMemory, WriteSlot};

    #[test]
    fn a_buffer_that_no_memory_can_hold_is_refused() {
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
            WriteSlot::from(&mut slot[..]).put_user(&target, 3, length);
            assert_eq!(slot[..length], bytes[..]);
            assert_eq!(slot[length..], [0, 0], "{length}");
        }
    }

    #[test]
    fn bytes_go_from_buffer_to_slot_to_payload_to_buffer() {
        let from = UserMemory::of_buffer(&Buffer::from_bytes(b"abcdef"));
        let mut staging = [0u8; 4];
        let mut slot = WriteSlot::from(&mut staging[..]);
        slot.put_user(&from, 1, 3);
        slot.put(b"!");
        assert_eq!(slot.room(), 0);
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
    fn memory_outlives_the_buffer_that_lent_it() {
        let buffer = Buffer::from_bytes(b"xyz");
        let memory = UserMemory::of_buffer(&buffer);
        drop(buffer);
        let mut out = [0; 3];
        memory.read(0, &mut out);
        assert_eq!(&out, b"xyz");
    }
}
