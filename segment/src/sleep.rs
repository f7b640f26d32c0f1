// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sleep word: generation and state in one, so that a late waker never disturbs a later sleep.
//!
//! ```text
//!          owner: announce            waker: CAS
//!   awake ────────────────▶ asleep ────────────────▶ rung
//!     ▲                        │                       │
//!     └────── owner: end ──────┴───── owner: end ──────┘      (each `end` begins the next generation)
//! ```
//!
//! Only the owner makes the transition from "asleep" to "awake". Each waker that sees "asleep" or "rung" calls the
//! kernel, because the one that changed it to "rung" may have been killed before its call. Neither side has a fence
//! towards the other. A waker that reads the word before the owner's announcement is visible does not wake it; the
//! owner's first sleep lasts at most 1 ms and is followed by a poll, and no store stays in a store buffer that long.
//! In the model that poll comes after `settle()`.

use crate::atomic::{AtomicU32, Ordering, fence};

/// The sleep word of one process. Only hints: whatever another process writes here, the owner polls again when its
/// sleep times out.
#[repr(transparent)]
#[derive(Debug)]
pub struct SleepWord(AtomicU32);

/// An announced sleep: the value of the word until it is rung or ended.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnnouncedSleep(u32);

const STATE: u32 = 0b11;
const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const RUNG: u32 = 2;
const GENERATION: u32 = 4;

impl SleepWord {
    /// A word on its own, for models.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        SleepWord(AtomicU32::new(AWAKE))
    }

    /// The owner will poll once more and then sleep.
    pub(crate) fn announce(&self) -> AnnouncedSleep {
        let asleep = self.0.load(Ordering::Relaxed) & !STATE | ASLEEP;
        // SYNC: asleep before the last poll, with no other side: the word is only a hint, so correctness requires no
        // order. The fence (on a cold path) makes the poll that follows see all but what is in a sender's store buffer.
        self.0.store(asleep, Ordering::Release);
        fence(Ordering::SeqCst);
        AnnouncedSleep(asleep)
    }

    /// Whether this sleep was neither rung nor ended. A later sleep has another generation.
    pub(crate) fn is_asleep(&self, announced: AnnouncedSleep) -> bool {
        self.0.load(Ordering::Acquire) == announced.0
    }

    /// The owner is awake, in the next generation.
    pub(crate) fn end(&self) {
        let word = self.0.load(Ordering::Relaxed);
        self.0.store((word & !STATE).wrapping_add(GENERATION) | AWAKE, Ordering::Release);
    }

    // Hot: per rung message.
    /// The waker's side: marks the word as rung, and returns whether the waker must call the kernel.
    pub(crate) fn rouse(&self) -> bool {
        let word = self.0.load(Ordering::Acquire);
        word & STATE != AWAKE && self.mark_rung(word)
    }

    #[cold]
    fn mark_rung(&self, word: u32) -> bool {
        if word & STATE == ASLEEP {
            // Another waker was faster, or the owner is awake: to call the kernel is right or harmless.
            let _ = self.0.compare_exchange(word, word & !STATE | RUNG, Ordering::AcqRel, Ordering::Relaxed);
        }
        true
    }

    /// The futex word for the kernel.
    #[cfg(not(loom))]
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0
    }
}

#[cfg(not(loom))]
// SAFETY: transparent over an atomic.
unsafe impl crate::mapping::Shared for SleepWord {}

/// How a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// A bell was rung, the sleep was ended, or a signal came.
    Rung,
    /// Nothing came; the caller polls all the same.
    TimedOut,
}

/// Waits on a word while this sleep lasts, across processes. The word is compared with the announcement, and is not read anew: the
/// thread may have been off its processor since, and another thread of the process may have announced the next sleep.
#[cfg(not(loom))]
pub(crate) fn wait(word: &SleepWord, announced: AnnouncedSleep, at_most: mend_base::Duration) -> Woken {
    if !word.is_asleep(announced) {
        return Woken::Rung;
    }
    wait_word(word.word(), announced.0, Some(at_most))
}

/// Waits while the word has this value, across processes.
#[cfg(not(loom))]
pub(crate) fn wait_word(word: &AtomicU32, value: u32, at_most: Option<mend_base::Duration>) -> Woken {
    use rustix::thread::futex;
    match futex::wait(word, futex::Flags::empty(), value, at_most.map(timespec).as_ref()) {
        Err(rustix::io::Errno::TIMEDOUT) => Woken::TimedOut,
        // Woken, another value, or a signal handler ran: the caller polls.
        _ => Woken::Rung,
    }
}

/// Converts a span to the kernel's type.
#[cfg(not(loom))]
pub fn timespec(span: mend_base::Duration) -> rustix::thread::futex::Timespec {
    rustix::thread::futex::Timespec {
        tv_sec: (span.0 / 1_000_000_000) as i64,
        tv_nsec: (span.0 % 1_000_000_000) as _,
    }
}

/// Wakes every thread that sleeps on the word, across processes.
#[cfg(not(loom))]
pub(crate) fn wake(word: &SleepWord) {
    wake_word(word.word());
}

/// Wakes every thread that sleeps on the word, across processes.
#[cfg(not(loom))]
pub(crate) fn wake_word(word: &AtomicU32) {
    // Can only fail for an address that is not mapped, and then nobody sleeps there.
    let _ = rustix::thread::futex::wake(word, rustix::thread::futex::Flags::empty(), i32::MAX as u32);
}
