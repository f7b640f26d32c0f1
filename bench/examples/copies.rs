// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares ways to copy long messages through chunks that two processors share: `memcpy`, `rep movsb`, or blocks of 1 KiB.
//! Two pinned threads send a message back and forth as `btl-shm` does, and nothing else: the sender copies its memory into
//! chunks of its ring, and the receiver copies each chunk out as soon as it is there, so that every source is dirty in the
//! other processor's cache. The ways of copying are measured alternately, and the transfer time of a cache line between the
//! two processors before and after each.
//!
//! `cargo run --release -p mend-bench --example copies [ROUNDS]`

#[path = "../src/compare/distance.rs"]
#[allow(dead_code, reason = "the example uses a part of it")]
mod distance;
#[path = "../src/compare/line.rs"]
mod line;

use distance::Distance;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ptr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(20, |word| word.parse().expect("a number of rounds"));
    println!("microseconds one way; medians of the rounds at a distance, [least, greatest], (rounds)");
    for bytes in [1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20] {
        let mut found: BTreeMap<(Distance, &str), Vec<f64>> = BTreeMap::new();
        for _ in 0..rounds {
            for (name, copy) in WAYS {
                let before = line::one_way_us(PROCESSORS).expect("two processors");
                let figure = one_way_us(bytes, copy);
                let after = line::one_way_us(PROCESSORS).expect("two processors");
                if let Some(distance) = Distance::unchanged(before, after) {
                    found.entry((distance, name)).or_default().push(figure);
                }
            }
        }
        for ((distance, name), figures) in &mut found {
            figures.sort_by(f64::total_cmp);
            let (count, least) = (figures.len(), figures[0]);
            let (median, most) = (figures[count / 2], figures[count - 1]);
            let (size, distance) = (bytes >> 10, distance.name());
            println!(
                "{size:>5} KiB  {distance:<8}  {name:<15} {median:8.2} [{least:.2}, {most:.2}] ({count})"
            );
        }
    }
}

/// The median over batches of round trips, in microseconds one way.
fn one_way_us(bytes: usize, copy: Copy) -> f64 {
    let rings = [Ring::new(), Ring::new()];
    let ready = Barrier::new(2);
    let batch = (BATCH_BYTES / bytes).max(1);
    let side = |own: usize| {
        line::confine(&[PROCESSORS[own]]).expect("two processors");
        let mut memory = pages(bytes);
        let user = bytes_of(&mut memory, bytes);
        let (mut sent, mut received) = (0, 0);
        ready.wait();
        let mut batches: Vec<f64> = (0..BATCHES)
            .map(|_| {
                let began = Instant::now();
                for _ in 0..batch {
                    if own == 0 {
                        sent = rings[0].send(user, sent, copy);
                    }
                    received = rings[1 - own].receive(user, received, copy);
                    if own == 1 {
                        sent = rings[1].send(user, sent, copy);
                    }
                }
                began.elapsed().as_secs_f64() * 1e6 / (2 * batch) as f64
            })
            .collect();
        batches.sort_by(f64::total_cmp);
        batches[BATCHES / 2]
    };
    std::thread::scope(|scope| {
        scope.spawn(|| side(1));
        scope.spawn(|| side(0)).join().expect("a figure")
    })
}

/// Bytes that begin where a page does, as the chunks of `btl-shm` and the large buffers of programs do.
#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; PAGE_BYTES]);

fn pages(bytes: usize) -> Vec<Page> {
    vec![Page([1; PAGE_BYTES]); bytes.div_ceil(PAGE_BYTES)]
}

fn bytes_of(pages: &mut [Page], bytes: usize) -> &mut [u8] {
    // SAFETY: a page is nothing but its bytes, and the slice ends at or before the last page does.
    unsafe { core::slice::from_raw_parts_mut(pages.as_mut_ptr().cast(), bytes.min(pages.len() * PAGE_BYTES)) }
}

/// A counter in a cache line of its own.
#[repr(align(128))]
struct Counter(AtomicUsize);

/// Chunks from one side to the other, filled and emptied in order.
struct Ring {
    filled: Counter,
    emptied: Counter,
    chunks: UnsafeCell<Vec<Page>>,
}

// SAFETY: a chunk is written by the one sender before it is counted in `filled`, and read by the one receiver after that
// and before it is counted in `emptied`; the sender writes it again only then.
unsafe impl Sync for Ring {}

impl Ring {
    fn new() -> Self {
        let counter = || Counter(AtomicUsize::new(0));
        let chunks = UnsafeCell::new(pages(CHUNKS * CHUNK_BYTES));
        Ring { filled: counter(), emptied: counter(), chunks }
    }

    fn chunk(&self, number: usize) -> *mut u8 {
        // SAFETY: the vector itself is not changed while the ring lives; only its bytes are written, by raw pointer.
        let chunks = unsafe { &*self.chunks.get() };
        chunks.as_ptr().cast::<u8>().cast_mut().wrapping_add(number % CHUNKS * CHUNK_BYTES)
    }

    /// Sends a message as the chunks from `number` on; returns the number after the last.
    fn send(&self, from: &[u8], mut number: usize, copy: Copy) -> usize {
        for piece in from.chunks(CHUNK_BYTES) {
            // SYNC: chunk emptied, with Ring::receive
            while self.emptied.0.load(Ordering::Acquire) + CHUNKS <= number {}
            // SAFETY: the chunk has room for a piece, and is the sender's until it is counted.
            unsafe { copy(piece.as_ptr(), self.chunk(number), piece.len()) }
            number += 1;
            // SYNC: chunk filled, with Ring::receive
            self.filled.0.store(number, Ordering::Release);
        }
        number
    }

    /// The other side of `send`.
    fn receive(&self, to: &mut [u8], mut number: usize, copy: Copy) -> usize {
        for piece in to.chunks_mut(CHUNK_BYTES) {
            // SYNC: chunk filled, with Ring::send
            while self.filled.0.load(Ordering::Acquire) <= number {}
            // SAFETY: the chunk holds a piece, and is the receiver's until it is counted.
            unsafe { copy(self.chunk(number), piece.as_mut_ptr(), piece.len()) }
            number += 1;
            // SYNC: chunk emptied, with Ring::send
            self.emptied.0.store(number, Ordering::Release);
        }
        number
    }
}

type Copy = unsafe fn(*const u8, *mut u8, usize);

/// The C library's `memcpy`.
unsafe fn whole(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's contract is the callee's.
    unsafe { ptr::copy_nonoverlapping(from, to, bytes) }
}

/// As earlier versions of Mend copied: a `memcpy` for each block, short enough to consist of vector stores.
unsafe fn blocks(from: *const u8, to: *mut u8, bytes: usize) {
    for at in (0..bytes).step_by(BLOCK_BYTES) {
        // SAFETY: the block lies inside both ranges.
        unsafe {
            ptr::copy_nonoverlapping(from.wrapping_add(at), to.wrapping_add(at), BLOCK_BYTES.min(bytes - at))
        }
    }
}

/// One string instruction.
#[cfg(target_arch = "x86_64")]
unsafe fn string(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: copies `bytes` bytes upwards, for which the caller guarantees both ranges; the ABI clears the direction flag.
    unsafe {
        core::arch::asm!("rep movsb", inout("rcx") bytes => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags));
    }
}

const WAYS: [(&str, Copy); WAYS_COUNT] = [
    ("memcpy", whole),
    #[cfg(target_arch = "x86_64")]
    ("rep movsb", string),
    ("blocks of 1 KiB", blocks),
];
const WAYS_COUNT: usize = if cfg!(target_arch = "x86_64") { 3 } else { 2 };
const PROCESSORS: [usize; 2] = [0, 1];
const PAGE_BYTES: usize = 4096;
const CHUNK_BYTES: usize = 16 << 10;
/// The number of chunks in a ring of `btl-shm`.
const CHUNKS: usize = 16;
const BLOCK_BYTES: usize = 1024;
const BATCHES: usize = 200;
/// Short, so that an interruption of one batch does not affect most of the others.
const BATCH_BYTES: usize = 256 << 10;
