// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life word of a process: a robust futex in its life page, which the kernel marks when the process dies.
//!
//! It is the lock word of a robust mutex that a thread of the owner holds from Init to Finalize. When that thread
//! dies, by whatever means, the kernel sets FUTEX_OWNER_DIED *before* it tears the address space down, however large
//! that is, and wakes one of the threads that wait on the word, provided that FUTEX_WAITERS is set: the owner sets
//! that itself. All other processes read the word, and wait on it, through a read-only mapping.
//!
//! ```text
//!             begin              thread dies
//!   Unheld ───────────▶ Alive ─────────────────▶ Dead
//!     ▲                  │ │ └── mark_dying ────▶ Dying      (a core dump follows; the kernel's mark comes after it)
//!     └── release/take ──┘ └──── end ──────────▶ Left
//! ```
//!
//! A forked child is not the owner (the kernel and the C library empty its list of robust mutexes), and has none of
//! this memory. An exec is a death, because the thread that held the word does not return from it.

use crate::mapping::{self, Access, Mapping, View};
use crate::sleep::timespec;
use crate::{SegmentError, reserve};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use mend_base::Peer;
use rustix::io::Errno;
use rustix::thread::futex;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The owner's end of its life word. It keeps the life page mapped.
#[derive(Debug)]
pub struct Life {
    mapping: Option<Mapping>,
}

/// The state of the owner of a life page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifeState {
    /// No thread holds the word: the owner has not begun, or one thread passes the word to another. Never a death.
    Unheld,
    /// A thread of the owner holds it.
    Alive,
    /// The owner has reported that a fatal signal ends it. It may still write a core dump.
    Dying,
    /// The kernel has marked the word: the owner is dead, or about to be.
    Dead,
    /// The owner has finalized: its later exit is not a failure.
    Left,
}

impl LifeState {
    /// Whether the owner died, or is dying, without having finalized.
    pub fn is_marked(self) -> bool {
        matches!(self, LifeState::Dying | LifeState::Dead)
    }
}

/// The values of the second word, which the owner writes.
const NOT_BEGUN: u32 = 0;
const BEGUN: u32 = 1;
const DYING: u32 = 2;
const LEFT: u32 = 3;

impl Life {
    /// The life page of `owner`, which nobody else can write, with its word not held yet, and the descriptor that others map it from.
    pub fn create(owner: Peer) -> Result<(Self, OwnedFd), SegmentError> {
        let bytes = mapping::page_bytes();
        let file = mapping::make_file("mend-life", bytes)?;
        reserve::reserve(&file, 0, bytes as u64, 0)?;
        let mapping = Mapping::new(file.as_fd(), 0, bytes, Access::Write)?;
        mapping.at::<AtomicU32>(PAGE_LAYOUT).store(LAYOUT, Ordering::Relaxed);
        mapping.at::<AtomicU64>(PAGE_OWNER).store(owner.0, Ordering::Relaxed);
        mapping.at::<AtomicU64>(PAGE_MAGIC).store(MAGIC, Ordering::Release);
        mapping::seal(&file, true)?;
        Ok((Life { mapping: Some(mapping) }, file))
    }

    /// Takes the word: the owner lives from now on, as long as the calling thread does. Called once.
    pub fn begin(&self) -> Result<(), SegmentError> {
        assert_eq!(self.stage().load(Ordering::Relaxed), NOT_BEGUN, "a life begins once");
        make_mutex(self.mutex()).map_err(SegmentError::NoLifeWord)?;
        self.take()?;
        self.stage().store(BEGUN, Ordering::Release);
        Ok(())
    }

    /// Releases the word, which the calling thread holds, so that another thread can [`take`](Life::take) it. A
    /// death between the two is not seen.
    pub fn release(&self) {
        // SAFETY: the mutex was made in `begin`, before a thread could hold it; a thread that does not hold it is refused (EPERM).
        let refused = unsafe { libc::pthread_mutex_unlock(self.mutex()) };
        debug_assert_eq!(refused, 0, "the calling thread holds the life word");
    }

    /// Takes the word after `release`: the owner lives as long as the calling thread does. Waits while another thread
    /// holds it.
    pub fn take(&self) -> Result<(), SegmentError> {
        // SAFETY: the mutex was made in `begin`, and lies in a mapping that `Life` never unmaps while it is locked.
        match unsafe { libc::pthread_mutex_lock(self.mutex()) } {
            0 | libc::EOWNERDEAD => {}
            error => return Err(SegmentError::NoLifeWord(Errno::from_raw_os_error(error))),
        }
        // Without this bit the kernel would mark the word and wake no thread.
        self.word().fetch_or(WAITERS, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the calling thread holds the word.
    pub fn is_mine(&self) -> bool {
        let holder = self.word().load(Ordering::Relaxed) & HOLDER;
        holder == rustix::thread::gettid().as_raw_nonzero().get() as u32
    }

    /// The owner finalizes, on any thread. Releases the word if the calling thread holds it; if another thread does,
    /// that one may end.
    pub fn end(&self) {
        // An owner that has reported its death stays dying.
        // SYNC: left before the word is let go, with `LifeView::read`.
        let _ = self.stage().compare_exchange(BEGUN, LEFT, Ordering::Release, Ordering::Relaxed);
        if self.is_mine() {
            self.release();
        }
    }

    /// Whether [`end`](Life::end) was called.
    pub fn has_ended(&self) -> bool {
        self.stage().load(Ordering::Relaxed) == LEFT
    }

    /// Reports that a fatal signal is about to end this process. As a core dump is written before the kernel's mark, this
    /// call marks the word and wakes the threads that wait on it. Async-signal-safe.
    pub fn mark_dying(&self) {
        if self.has_ended() {
            return;
        }
        self.stage().store(DYING, Ordering::Relaxed);
        // SYNC: dying before the mark, with `LifeView::read`.
        self.word().fetch_or(OWNER_DIED, Ordering::Release);
        wake(self.word());
    }

    fn mapping(&self) -> &Mapping {
        self.mapping.as_ref().expect("taken only when it is dropped")
    }

    fn word(&self) -> &AtomicU32 {
        self.mapping().at(PAGE_WORD)
    }

    fn stage(&self) -> &AtomicU32 {
        self.mapping().at(PAGE_STAGE)
    }

    fn mutex(&self) -> *mut libc::pthread_mutex_t {
        // Bytes with interior mutability: the C library and the kernel write through this pointer.
        self.mapping().at::<[AtomicU8; WORD_BYTES]>(PAGE_WORD).as_ptr().cast_mut().cast()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if self.is_mine() {
            return self.release();
        }
        if self.word().load(Ordering::Relaxed) & HOLDER != 0 {
            // The C library and the kernel follow the holder's list of locked mutexes through this memory: it stays.
            core::mem::forget(self.mapping.take());
        }
    }
}

/// "MendLife" in the first eight bytes of a life page.
const MAGIC: u64 = u64::from_le_bytes(*b"MendLife");
/// Version of the layout of a life page.
const LAYOUT: u32 = 1;

const PAGE_MAGIC: usize = 0;
const PAGE_LAYOUT: usize = 8;
/// Whose life it is.
const PAGE_OWNER: usize = 16;
/// The lock word of a robust mutex, and what else the C library keeps of it.
const PAGE_WORD: usize = 64;
const WORD_BYTES: usize = 64;
const PAGE_STAGE: usize = PAGE_WORD + WORD_BYTES;

const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= WORD_BYTES);
const _: () = assert!(PAGE_WORD.is_multiple_of(align_of::<libc::pthread_mutex_t>()));

/// The bits of the lock word of a robust mutex: see get_robust_list(2) and linux/futex.h.
const HOLDER: u32 = libc::FUTEX_TID_MASK;
const OWNER_DIED: u32 = libc::FUTEX_OWNER_DIED;
const WAITERS: u32 = libc::FUTEX_WAITERS;

/// Makes a mutex that is robust and shared between processes.
fn make_mutex(at: *mut libc::pthread_mutex_t) -> Result<(), Errno> {
    let checked = |error: i32| if error == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(error)) };
    let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
    // SAFETY: `init` makes attributes in the memory it is given.
    checked(unsafe { libc::pthread_mutexattr_init(attributes.as_mut_ptr()) })?;
    // SAFETY: the attributes were made above.
    let robust =
        unsafe { libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST) };
    // SAFETY: as above.
    let shared =
        unsafe { libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED) };
    let made = checked(robust).and(checked(shared)).and_then(|()| {
        // SAFETY: `at` is writable memory of the right size and alignment (asserted above), which nobody uses as a
        // mutex yet: `begin` is called once, and this first.
        checked(unsafe { libc::pthread_mutex_init(at, attributes.as_ptr()) })
    });
    // SAFETY: made above, and not used any more.
    unsafe { libc::pthread_mutexattr_destroy(attributes.as_mut_ptr()) };
    made
}

/// The life word of another process, read-only. A mark is only evidence: the owner can mark its own word (no other
/// process can).
#[derive(Debug)]
pub struct LifeView {
    word: View<AtomicU32>,
    stage: View<AtomicU32>,
}

/// The value of a life word, to wait until it changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen(u32);

impl LifeView {
    /// Maps the life page of `owner`, if it is one of this version. The descriptor may be closed afterwards.
    pub fn map(descriptor: BorrowedFd<'_>, owner: Peer) -> Result<Self, SegmentError> {
        let bytes = mapping::page_bytes();
        mapping::check_file(descriptor, bytes, true)?;
        let page = Arc::new(Mapping::new(descriptor, 0, bytes, Access::Read)?);
        let is_one = page.at::<AtomicU64>(PAGE_MAGIC).load(Ordering::Acquire) == MAGIC
            && page.at::<AtomicU32>(PAGE_LAYOUT).load(Ordering::Relaxed) == LAYOUT
            && page.at::<AtomicU64>(PAGE_OWNER).load(Ordering::Relaxed) == owner.0;
        if !is_one {
            return Err(SegmentError::LayoutDiffers);
        }
        Ok(LifeView { word: View::new(&page, PAGE_WORD), stage: View::new(&page, PAGE_STAGE) })
    }

    /// The state of the owner now.
    pub fn state(&self) -> LifeState {
        self.read().0
    }

    /// The same, with the value that a thread needs to wait until it changes.
    pub fn read(&self) -> (LifeState, Seen) {
        // SYNC: dying before the mark, with `Life::mark_dying`.
        // SYNC: left before the word is let go, with `Life::end`.
        let word = self.word.load(Ordering::Acquire);
        let state = match self.stage.load(Ordering::Relaxed) {
            LEFT => LifeState::Left,
            DYING if word & OWNER_DIED != 0 => LifeState::Dying,
            _ if word & OWNER_DIED != 0 => LifeState::Dead,
            _ if word & HOLDER != 0 => LifeState::Alive,
            _ => LifeState::Unheld,
        };
        (state, Seen(word))
    }
}

/// A word that interrupts a thread that waits on life words: other threads of the process increment it.
#[derive(Debug, Default)]
pub struct Interrupt(AtomicU32);

impl Interrupt {
    /// Ends the wait of threads on this word, or their next one with an older count.
    pub fn notify(&self) {
        // SYNC: what was done before the notification, with `Interrupt::count`.
        self.0.fetch_add(1, Ordering::Release);
        // Nothing to do about an error: the word lies in our own memory.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    /// How often it was incremented.
    pub fn count(&self) -> u32 {
        // SYNC: what was done before the notification, with `Interrupt::notify`.
        self.0.load(Ordering::Acquire)
    }
}

/// The most life words on which one thread can wait.
pub const LIFE_WORDS_AT_ONCE: usize = 127;

/// Whether a thread can wait on several life words at once: futex_waitv came with Linux 5.16, and some sandboxes
/// refuse it.
pub fn can_sleep_on_life_words() -> bool {
    // A kernel that has the call refuses an empty list as an invalid argument.
    let none = futex::waitv(&[], futex::WaitvFlags::empty(), None, futex::ClockId::Monotonic);
    none == Err(Errno::INVAL)
}

/// Waits until one of at most [`LIFE_WORDS_AT_ONCE`] words differs from its given value, or `interrupt` from `counted`. May
/// return without a reason. Only where [`can_sleep_on_life_words`].
pub fn sleep_on_life_words<'a>(
    lives: impl Iterator<Item = (&'a LifeView, Seen)>,
    interrupt: &Interrupt,
    counted: u32,
) {
    let own = futex_wait(&interrupt.0, counted, futex::WaitFlags::PRIVATE);
    let lives = lives.map(|(life, Seen(word))| futex_wait(&life.word, word, futex::WaitFlags::empty()));
    let all: Vec<futex::Wait> = core::iter::once(own).chain(lives).collect();
    assert!(all.len() <= LIFE_WORDS_AT_ONCE + 1, "more life words than one thread can sleep on");
    // Woken, another value, or a signal handler ran: the caller reads the words again.
    let _ = futex::waitv(&all, futex::WaitvFlags::empty(), None, futex::ClockId::Monotonic);
}

fn futex_wait(word: &AtomicU32, seen: u32, flags: futex::WaitFlags) -> futex::Wait {
    let mut wait = futex::Wait::new();
    wait.val = u64::from(seen);
    wait.uaddr = futex::WaitPtr::new(word.as_ptr().cast());
    wait.flags = futex::WaitFlags::SIZE_U32 | flags;
    wait
}

/// Waits until this word differs from its given value, but not longer than `at_most`. For systems without futex_waitv: an
/// `Interrupt` does not end this wait.
pub fn sleep_on_life(life: &LifeView, Seen(word): Seen, at_most: mend_base::Duration) {
    // Woken, timed out, another value, or a signal handler ran: in each case the caller reads the word.
    let _ = futex::wait(&life.word, futex::Flags::empty(), word, Some(&timespec(at_most)));
}

/// Wakes all threads that wait on the word, in every process.
fn wake(word: &AtomicU32) {
    // Can only fail for an address that is not mapped, and then nobody sleeps there.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}
