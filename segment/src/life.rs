// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life word: tells whether the process that owns an outbox lives, by the kernel's own hand.
//!
//! It is the lock word of a robust mutex that a thread of the owner holds from Init to Finalize. When that thread dies, by
//! whatever means, the kernel marks the word *before* it tears the address space down, however large that is, and wakes one
//! of those who sleep on it, provided that FUTEX_WAITERS stands in it: the owner sets that itself. Everybody else reads
//! through a read-only mapping, and sleeps through it too.
//!
//! ```text
//!             begin              thread dies
//!   Unheld ───────────▶ Lives ─────────────────▶ Dead
//!     ▲                  │ │ └── say_dying ────▶ Dying      (a core dump follows; the kernel's mark comes after it)
//!     └── release/take ──┘ └──── end ──────────▶ Left
//! ```
//!
//! A forked child is not the owner (the kernel and the C library empty its list of robust mutexes), and has none of this
//! memory; exec is a death, as the thread that held the word does not come back from it.

use crate::layout::{HEADER_LIFE, HEADER_LIFE_STAGE, LIFE_BYTES};
use crate::mapping::{Mapping, View};
use crate::sleep::timespec;
use crate::{SegmentError, peer_block};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use rustix::io::Errno;
use rustix::thread::futex;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The owner's side of its life word. Lies in the outbox, which it keeps mapped.
#[derive(Debug)]
pub struct Life {
    mapping: Option<Arc<Mapping>>,
}

/// How it stands with the owner of an outbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifeState {
    /// Nobody holds the word: it has not begun, or is on its way from one thread to another. Never a death.
    Unheld,
    /// A thread of the owner holds it.
    Lives,
    /// The owner says that it dies of a fatal signal. It may still write a core.
    Dying,
    /// The kernel says that it is dead, or about to be.
    Dead,
    /// It left properly; what becomes of it now is nobody's business.
    Left,
}

impl LifeState {
    /// Whether nothing more will come of it, but it never left.
    pub fn is_marked(self) -> bool {
        matches!(self, LifeState::Dying | LifeState::Dead)
    }
}

/// What the second word says, besides the kernel's.
const NOT_BEGUN: u32 = 0;
const BEGUN: u32 = 1;
const DYING: u32 = 2;
const LEFT: u32 = 3;

impl Life {
    pub(crate) fn new(mapping: Arc<Mapping>) -> Self {
        Life { mapping: Some(mapping) }
    }

    /// The owner lives from now on, and as long as the calling thread does. Once.
    pub fn begin(&self) -> Result<(), SegmentError> {
        assert_eq!(self.stage().load(Ordering::Relaxed), NOT_BEGUN, "a life begins once");
        make_mutex(self.mutex()).map_err(SegmentError::NoLifeWord)?;
        self.take()?;
        self.stage().store(BEGUN, Ordering::Release);
        Ok(())
    }

    /// The calling thread, which holds the word, lets go of it; another one has to [`take`](Life::take) it. In between
    /// nobody would see a death here.
    pub fn release(&self) {
        // SAFETY: the mutex was made in `begin`, before anybody could hold it; who does not hold it is refused (EPERM).
        let refused = unsafe { libc::pthread_mutex_unlock(self.mutex()) };
        debug_assert_eq!(refused, 0, "who releases a life word holds it");
    }

    /// The owner lives as long as the calling thread does. Only after `release`: it waits while another thread has it.
    pub fn take(&self) -> Result<(), SegmentError> {
        // SAFETY: the mutex was made in `begin`, and lies in a mapping that `Life` never unmaps while it is locked.
        match unsafe { libc::pthread_mutex_lock(self.mutex()) } {
            0 | libc::EOWNERDEAD => {}
            error => return Err(SegmentError::NoLifeWord(Errno::from_raw_os_error(error))),
        }
        // Without it the kernel would mark the word and wake nobody.
        self.word().fetch_or(WAITERS, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the calling thread holds the word.
    pub fn is_mine(&self) -> bool {
        let holder = self.word().load(Ordering::Relaxed) & HOLDER;
        holder == rustix::thread::gettid().as_raw_nonzero().get() as u32
    }

    /// The owner leaves properly, on whatever thread. Lets go of the word if the calling thread holds it; another thread
    /// that does may end with it.
    pub fn end(&self) {
        // Who said that it dies stays dying.
        // SYNC: left before the word is let go, with `LifeView::look`.
        let _ = self.stage().compare_exchange(BEGUN, LEFT, Ordering::Release, Ordering::Relaxed);
        if self.is_mine() {
            self.release();
        }
    }

    /// Whether [`end`](Life::end) was called.
    pub fn has_ended(&self) -> bool {
        self.stage().load(Ordering::Relaxed) == LEFT
    }

    /// A fatal signal is about to end this process, perhaps after a core dump, which would come before the kernel's mark:
    /// marks the word itself and wakes who sleeps on it. May be called from a signal handler.
    pub fn say_dying(&self) {
        if self.has_ended() {
            return;
        }
        self.stage().store(DYING, Ordering::Relaxed);
        // SYNC: dying before the mark, with `LifeView::look`.
        self.word().fetch_or(OWNER_DIED, Ordering::Release);
        wake(self.word());
    }

    fn mapping(&self) -> &Mapping {
        self.mapping.as_ref().expect("taken only when it is dropped")
    }

    fn word(&self) -> &AtomicU32 {
        self.mapping().at(HEADER_LIFE)
    }

    fn stage(&self) -> &AtomicU32 {
        self.mapping().at(HEADER_LIFE_STAGE)
    }

    fn mutex(&self) -> *mut libc::pthread_mutex_t {
        // Bytes with interior mutability: others may write through what this gives.
        self.mapping().at::<[AtomicU8; LIFE_BYTES]>(HEADER_LIFE).as_ptr().cast_mut().cast()
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

const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= LIFE_BYTES);
const _: () = assert!(HEADER_LIFE.is_multiple_of(align_of::<libc::pthread_mutex_t>()));

/// What the kernel keeps in the lock word of a robust mutex: see get_robust_list(2) and linux/futex.h.
const HOLDER: u32 = libc::FUTEX_TID_MASK;
const OWNER_DIED: u32 = libc::FUTEX_OWNER_DIED;
const WAITERS: u32 = libc::FUTEX_WAITERS;

/// A mutex that is robust and for several processes.
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

/// The life of another process, read-only. Nothing in it is believed beyond what it is: the owner can mark itself, and
/// nobody else.
#[derive(Debug)]
pub struct LifeView {
    word: View<AtomicU32>,
    stage: View<AtomicU32>,
}

/// What a look saw, to sleep until it is something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen(u32);

impl LifeView {
    /// Maps the head of the outbox of the process at `owner`, on a node with `slots` slots. The descriptor may be closed
    /// afterwards.
    pub fn map(descriptor: BorrowedFd<'_>, owner: u32, slots: u32) -> Result<Self, SegmentError> {
        Ok(Self::of(&Arc::new(peer_block::map_header(descriptor, owner, slots)?)))
    }

    pub(crate) fn of(header: &Arc<Mapping>) -> Self {
        LifeView { word: View::new(header, HEADER_LIFE), stage: View::new(header, HEADER_LIFE_STAGE) }
    }

    /// How it stands with the owner now.
    pub fn state(&self) -> LifeState {
        self.look().0
    }

    /// The same, with what a thread needs to sleep until it is otherwise.
    pub fn look(&self) -> (LifeState, Seen) {
        // SYNC: dying before the mark, with `Life::say_dying`.
        // SYNC: left before the word is let go, with `Life::end`.
        let word = self.word.load(Ordering::Acquire);
        let state = match self.stage.load(Ordering::Relaxed) {
            LEFT => LifeState::Left,
            DYING if word & OWNER_DIED != 0 => LifeState::Dying,
            _ if word & OWNER_DIED != 0 => LifeState::Dead,
            _ if word & HOLDER != 0 => LifeState::Lives,
            _ => LifeState::Unheld,
        };
        (state, Seen(word))
    }
}

/// What a thread that sleeps on lives is called away by: other threads of its process count it up.
#[derive(Debug, Default)]
pub struct Call(AtomicU32);

impl Call {
    /// Ends the sleep of whoever sleeps here, or the next one that begins with an older count.
    pub fn ring(&self) {
        // SYNC: what was done before the call, with `Call::count`.
        self.0.fetch_add(1, Ordering::Release);
        // Nothing to do about an error: the word lies in our own memory.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    /// How often it was rung.
    pub fn count(&self) -> u32 {
        // SYNC: what was done before the call, with `Call::ring`.
        self.0.load(Ordering::Acquire)
    }
}

/// How many lives one thread can sleep on.
pub const LIVES_AT_ONCE: usize = 127;

/// Whether this system lets a thread sleep on several lives at once: futex_waitv came with Linux 5.16, and some sandboxes
/// refuse it.
pub fn can_sleep_on_lives() -> bool {
    // An empty list is an argument that is refused where the call is known.
    let none = futex::waitv(&[], futex::WaitvFlags::empty(), None, futex::ClockId::Monotonic);
    none == Err(Errno::INVAL)
}

/// Sleeps until one of at most [`LIVES_AT_ONCE`] lives is no longer as it was seen, or `call` is rung, which was counted
/// `counted` times. May return without a reason. Only where [`can_sleep_on_lives`].
pub fn sleep_on_lives<'a>(lives: impl Iterator<Item = (&'a LifeView, Seen)>, call: &Call, counted: u32) {
    let own = waiter(&call.0, counted, futex::WaitFlags::PRIVATE);
    let lives = lives.map(|(life, Seen(word))| waiter(&life.word, word, futex::WaitFlags::empty()));
    let all: Vec<futex::Wait> = core::iter::once(own).chain(lives).collect();
    assert!(all.len() <= LIVES_AT_ONCE + 1, "more lives than one thread can sleep on");
    // Woken, another value, or a signal handler ran: all mean "look".
    let _ = futex::waitv(&all, futex::WaitvFlags::empty(), None, futex::ClockId::Monotonic);
}

fn waiter(word: &AtomicU32, seen: u32, flags: futex::WaitFlags) -> futex::Wait {
    let mut wait = futex::Wait::new();
    wait.val = u64::from(seen);
    wait.uaddr = futex::WaitPtr::new(word.as_ptr().cast());
    wait.flags = futex::WaitFlags::SIZE_U32 | flags;
    wait
}

/// Sleeps until this life is no longer as it was seen, but not longer than `at_most`. For systems without the better way:
/// no call reaches who sleeps here.
pub fn sleep_on_life(life: &LifeView, Seen(word): Seen, at_most: mend_base::Duration) {
    // Woken, timed out, another value, or a signal handler ran: all mean "look".
    let _ = futex::wait(&life.word, futex::Flags::empty(), word, Some(&timespec(at_most)));
}

/// Wakes everybody who sleeps on the word, in every process.
fn wake(word: &AtomicU32) {
    // Can only fail for an address that is not mapped, and then nobody sleeps there.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}
