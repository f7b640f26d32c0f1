// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two words by which the program and the helper thread exclude each other, biased to the program: it enters and leaves with plain
//! stores and loads, and the helper thread bears the cost.
//!
//! ```text
//!                    helper: claim               helper, 1 ms later: the program is outside
//!             free ────────────────▶ claimed ─────────────────────────────────────────────▶ held ──▶ (awaited)
//!              ▲                        │ program: enters, or leaves                         │ helper: release
//!              │ program: has served    ▼                                                    ▼
//!              └──────────────────── taken over ◀──▶ again                                  free
//!                                        helper: claims again
//! ```
//!
//! The program stores to `inside` and then loads `claim`, without a fence, when it enters and when it leaves. The helper claims, with a
//! fence, lets 1 ms pass, and then loads `inside`. No store stays in a store buffer for 1 ms, on any processor. So if a load of the program
//! did not see the claim, the store before it, which is older still, is visible to the helper after that 1 ms. It follows:
//!
//! * If the helper finds the program outside, every later entry sees the claim, or what came of it. The two then decide by
//!   compare-and-swap on `claim` (the slow path): the program takes the claim over, or waits until the helper has released.
//! * If the helper finds the program inside, the load with which the program leaves comes later than the claim, and sees it. So the
//!   helper has nothing more to do: the program takes the claim over and serves it, as its last act before it leaves.
//!
//! On x86 the program's store may become visible after its load, as nothing else can be reordered; on processors with weaker orders
//! the same holds for these two accesses, and release and acquire, which cost no fence there either, order all others.
//!
//! What the two sides did before is ordered by release and acquire: the program's store when it leaves with the helper's load of `inside`,
//! and the helper's release of `claim` with the program's load when it enters. `world/tests/guard_model.rs` runs this file under loom,
//! where the 1 ms is an event.
//!
//! Several threads of the program may use this one after another (MPI_THREAD_SERIALIZED): the program orders them.

use crate::atomic::{AtomicU32, Ordering, compiler_fence, fence};

/// The two words.
#[derive(Debug)]
pub struct Bias {
    /// Where the program is. Written by the program alone.
    inside: AtomicU32,
    claim: AtomicU32,
}

/// Where the program is.
const OUTSIDE: u32 = 0;
/// It uses the engine.
const INSIDE: u32 = 1;
/// It waits in a call of MPI, and does not use the engine at this moment. A signal handler that has interrupted it may.
const WAITING: u32 = 2;

/// The helper wants nothing.
const FREE: u32 = 0;
/// The helper wants progress to be made, by itself or by the program.
const CLAIMED: u32 = 1;
/// The program will serve the claim before it leaves.
const TAKEN_OVER: u32 = 2;
/// As [`TAKEN_OVER`], and there is a later claim.
const AGAIN: u32 = 3;
/// The helper uses the engine.
const HELD: u32 = 4;
/// As [`HELD`], and a thread of the program sleeps until the helper releases.
pub const AWAITED: u32 = 5;
/// These words are not used, as several threads of the program may call MPI at once: the program always takes its slow path.
const NOT_BIASED: u32 = 6;

/// The result of the slow path to enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// The program has entered.
    Entered,
    /// The helper is inside: try again when it has released.
    HelperInside,
}

impl Bias {
    /// Program and helper are outside.
    pub fn new() -> Self {
        Bias { inside: AtomicU32::new(OUTSIDE), claim: AtomicU32::new(FREE) }
    }

    /// For a guard that does not use these words: [`is_claimed`](Bias::is_claimed) is always true.
    pub fn not_used() -> Self {
        Bias { inside: AtomicU32::new(OUTSIDE), claim: AtomicU32::new(NOT_BIASED) }
    }

    // Hot: per message.
    /// The program's first step to enter, and after [`mark_waiting`](Bias::mark_waiting).
    ///
    #[inline(always)]
    pub fn mark_inside(&self) {
        self.inside.store(INSIDE, Ordering::Relaxed);
        in_this_order();
    }

    // Hot: per message.
    /// The program's first step to leave.
    #[inline(always)]
    pub fn mark_outside(&self) {
        in_this_order();
        // SYNC: the engine after the program's use, with `try_hold`.
        self.inside.store(OUTSIDE, Ordering::Release);
        in_this_order();
    }

    /// The program waits in MPI without using the engine. The helper does not enter.
    #[inline]
    pub fn mark_waiting(&self) {
        in_this_order();
        self.inside.store(WAITING, Ordering::Relaxed);
    }

    /// Whether the program uses the engine: for a signal handler, which may have interrupted it there.
    pub fn is_program_inside(&self) -> bool {
        self.inside.load(Ordering::Relaxed) == INSIDE
    }

    /// Whether the program seems to be outside, for the helper before it claims. It may have entered since.
    pub fn seems_outside(&self) -> bool {
        self.inside.load(Ordering::Relaxed) == OUTSIDE
    }

    // Hot: per message.
    /// The program's second step to enter and to leave: whether the slow path must be taken.
    #[inline(always)]
    pub fn is_claimed(&self) -> bool {
        // SYNC: the engine after the helper's use, with `release`.
        self.claim.load(Ordering::Acquire) != FREE
    }

    /// Whether the helper is inside.
    pub fn is_held(&self) -> bool {
        matches!(self.claim.load(Ordering::Relaxed), HELD | AWAITED)
    }

    /// The slow path to enter.
    #[cold]
    pub fn enter_slowly(&self) -> Entry {
        loop {
            // SYNC: the engine after the helper's use, with `release`.
            match self.claim.load(Ordering::Acquire) {
                FREE | TAKEN_OVER | AGAIN => return Entry::Entered,
                CLAIMED if self.change(CLAIMED, TAKEN_OVER) => return Entry::Entered,
                CLAIMED => {}
                _ => return Entry::HelperInside,
            }
        }
    }

    /// The program will sleep on [`claim_word`](Bias::claim_word) while it is [`AWAITED`]. `false`: the helper has released.
    #[cold]
    pub fn await_release(&self) -> bool {
        self.change(HELD, AWAITED) || self.claim.load(Ordering::Relaxed) == AWAITED
    }

    /// The word on which the program waits for the helper.
    pub fn claim_word(&self) -> &AtomicU32 {
        &self.claim
    }

    /// The slow path to leave. `true`: the program is inside again. It must serve the claim, and then
    /// [end that](Bias::end_serving).
    #[cold]
    pub fn leave_slowly(&self) -> bool {
        let taken_over = match self.claim.load(Ordering::Acquire) {
            CLAIMED => self.change(CLAIMED, TAKEN_OVER),
            AGAIN => self.change(AGAIN, TAKEN_OVER),
            TAKEN_OVER => true,
            _ => false,
        };
        if taken_over {
            self.mark_inside();
        }
        taken_over
    }

    /// Ends the service of a claim: the program is outside. `false`: there is a later claim, so the slow path to leave must be taken
    /// again.
    #[cold]
    pub fn end_serving(&self) -> bool {
        self.mark_outside();
        self.change(TAKEN_OVER, FREE)
    }

    /// The helper's first step. [`try_hold`](Bias::try_hold) must follow at least 1 ms later, by a clock that is read after this.
    pub fn claim(&self) {
        let mut seen = self.claim.load(Ordering::Relaxed);
        loop {
            let wanted = match seen {
                FREE | CLAIMED => CLAIMED,
                TAKEN_OVER | AGAIN => AGAIN,
                other => unreachable!("the helper has {other}"),
            };
            // Also where nothing changes: what the helper was called for must be visible to the thread that takes the claim over.
            match self.claim.compare_exchange(seen, wanted, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                Err(changed) => seen = changed,
            }
        }
        // SYNC: the claim before the 1 ms, with no other side: that has no fence.
        fence(Ordering::SeqCst);
    }

    /// The helper's second step. `true`: it is inside. `false`: the program is inside, or was and has served; the helper has nothing to
    /// do.
    pub fn try_hold(&self) -> bool {
        // SYNC: the engine after the program's use, with `mark_outside`.
        self.inside.load(Ordering::Acquire) == OUTSIDE && self.change(CLAIMED, HELD)
    }

    /// The helper leaves. Returns whether a thread of the program sleeps on the word.
    pub fn release(&self) -> bool {
        // SYNC: the engine after the helper's use, with `is_claimed` and `enter_slowly`.
        self.claim.swap(FREE, Ordering::AcqRel) == AWAITED
    }

    /// Changes `claim`, if it is `from`.
    fn change(&self, from: u32, to: u32) -> bool {
        self.claim.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

/// Keeps the compiler from moving changes of the engine, or the load of `claim`, past a store to `inside`: a signal handler would find the
/// program in the wrong place. It is no instruction.
#[inline(always)]
fn in_this_order() {
    compiler_fence(Ordering::SeqCst);
}
