// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of the threads that wait makes progress: one owns it, the others are blocked.
//!
//! ```text
//!   a thread begins to wait ──▶ owner ── done, others are blocked ──▶ no owner: the first blocked thread is its deputy
//!                                 │
//!                                 └── another thread begins to wait, or receives without waiting ──▶ blocked, as deputy
//!                                                                                                    if there is none
//!   deputy ── for one WATCH nobody made progress ──▶ owner
//!      └───── the same owner all the time ─────────▶ blocked
//! ```
//!
//! The thread that came last owns progress: it is running, while those that came before it have waited for some time
//! already. A thread that exchanges messages without a pause therefore makes progress for all and wakes nobody. When it
//! does something else, the deputy notices within two WATCHes; the deputy watches a counter, so it disturbs nobody.

use crate::blocked::BlockedThreads;
use core::sync::atomic::{AtomicU32, Ordering};
use mend_base::Duration;
use mend_mpi::Waiter;
use std::sync::Arc;

/// The roles of the threads that wait.
#[derive(Debug, Default)]
pub struct Roles {
    owner: Option<Ownership>,
    deputy: Option<Deputy>,
    /// How often a thread began to make progress; wraps. Deputies read it without entering the guard.
    begun: Arc<AtomicU32>,
    /// Threads that sleep until somebody has something for them.
    pub blocked: BlockedThreads,
}

/// One thread's time of making progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ownership(u32);

/// A blocked thread that watches whether progress is made.
#[derive(Clone, Copy, Debug)]
struct Deputy {
    thread: Waiter,
    /// `begun` when it last looked.
    seen: u32,
}

/// What a thread does that waits and has found nothing.
#[derive(Debug)]
pub enum Duty {
    /// Make progress.
    Own(Ownership),
    /// Sleep, and watch meanwhile whether progress is made.
    Watch(ProgressWatch),
    /// Sleep until woken.
    Block,
}

/// What a deputy watches.
#[derive(Debug)]
pub struct ProgressWatch {
    begun: Arc<AtomicU32>,
    seen: u32,
}

/// How long a deputy sleeps between two polls: two of them delay a message no longer than a lost bell does (1 ms), and take
/// some hundredths of a processor.
pub const WATCH: Duration = Duration::from_micros(200);

impl ProgressWatch {
    /// Whether a thread began to make progress since the last call.
    pub fn has_changed(&mut self) -> bool {
        let begun = self.begun.load(Ordering::Relaxed);
        core::mem::replace(&mut self.seen, begun) != begun
    }
}

impl Roles {
    // Hot: per message.
    /// Whether no thread waits.
    #[inline]
    pub fn is_nobody_waiting(&self) -> bool {
        self.owner.is_none() && self.blocked.is_empty()
    }

    /// Whether a thread makes progress.
    pub fn is_owned(&self) -> bool {
        self.owner.is_some()
    }

    /// The calling thread owns progress from now on; the thread that did is deposed.
    pub fn take(&mut self) -> Ownership {
        self.progress_begins();
        let ownership = Ownership(self.begun.load(Ordering::Relaxed));
        self.owner = Some(ownership);
        ownership
    }

    /// A thread makes progress: for deputies.
    pub fn progress_begins(&mut self) {
        // Written inside the guard alone.
        self.begun.store(self.begun.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether no other thread has taken progress over.
    #[inline]
    pub fn holds(&self, ownership: Ownership) -> bool {
        self.owner == Some(ownership)
    }

    /// The thread makes no more progress, if it still did.
    pub fn give_up(&mut self, ownership: Ownership) {
        if self.holds(ownership) {
            self.owner = None;
        }
    }

    /// The thread that makes progress does so no more.
    pub fn depose(&mut self) {
        self.owner = None;
    }

    /// What the thread `me` does that has found nothing. `deposed`: it made progress until another took that over.
    pub fn duty(&mut self, me: Waiter, deposed: bool) -> Duty {
        let begun = self.begun.load(Ordering::Relaxed);
        match self.deputy {
            Some(Deputy { thread, seen }) if thread == me => {
                if seen != begun {
                    return self.watch(me, begun);
                }
                self.deputy = None;
                if self.owner.is_some() { Duty::Block } else { Duty::Own(self.take()) }
            }
            None if deposed => self.watch(me, begun),
            None if self.owner.is_none() => Duty::Own(self.take()),
            _ => Duty::Block,
        }
    }

    fn watch(&mut self, thread: Waiter, seen: u32) -> Duty {
        self.deputy = Some(Deputy { thread, seen });
        Duty::Watch(ProgressWatch { begun: Arc::clone(&self.begun), seen })
    }

    /// What the deputy saw last.
    pub fn watched(&mut self, watch: &ProgressWatch) {
        if let Some(deputy) = &mut self.deputy {
            deputy.seen = watch.seen;
        }
    }

    /// The thread `me` waits no more.
    pub fn leave(&mut self, me: Waiter) {
        if self.deputy.is_some_and(|deputy| deputy.thread == me) {
            self.deputy = None;
        }
    }

    /// Where threads are blocked and nobody makes progress, one of them watches.
    pub fn appoint(&mut self) {
        if self.owner.is_none()
            && self.deputy.is_none()
            && let Some(thread) = self.blocked.wake_first()
        {
            self.deputy = Some(Deputy { thread, seen: self.begun.load(Ordering::Relaxed) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Duty, Roles};
    use crate::blocked::Awaits;
    use crate::cell::Cell;
    use std::sync::Arc;

    fn blocked(roles: &mut Roles) -> Arc<Cell> {
        let cell = Arc::new(Cell::default());
        roles.blocked.add(&cell, Awaits::Requests);
        cell
    }

    #[test]
    fn the_thread_that_came_last_owns_progress() {
        let mut roles = Roles::default();
        let (first, last) = (roles.take(), roles.take());
        assert!(!roles.holds(first) && roles.holds(last));
        roles.give_up(first);
        assert!(roles.is_owned());
        roles.give_up(last);
        assert!(roles.is_nobody_waiting());
    }

    #[test]
    fn a_deposed_thread_watches_and_blocks_where_the_new_owner_stays() {
        let mut roles = Roles::default();
        let (me, _old) = (Cell::default().number(), roles.take());
        let _new = roles.take();
        let Duty::Watch(mut watch) = roles.duty(me, true) else { panic!("there is no deputy yet") };
        assert!(!watch.has_changed());
        roles.watched(&watch);
        assert!(matches!(roles.duty(me, false), Duty::Block));
    }

    #[test]
    fn a_deputy_takes_over_when_nobody_has_made_progress() {
        let mut roles = Roles::default();
        let me = Cell::default().number();
        let busy = roles.take();
        let Duty::Watch(mut watch) = roles.duty(me, true) else { panic!("there is no deputy yet") };
        roles.give_up(busy);
        let again = roles.take();
        assert!(watch.has_changed());
        roles.give_up(again);
        assert!(!watch.has_changed());
        roles.watched(&watch);
        assert!(matches!(roles.duty(me, false), Duty::Own(_)));
        assert!(roles.is_owned());
    }

    #[test]
    fn an_appointed_thread_that_comes_after_the_next_owner_watches() {
        let mut roles = Roles::default();
        let waiting = blocked(&mut roles);
        let first = roles.take();
        roles.give_up(first);
        roles.appoint();
        let again = roles.take();
        roles.give_up(again);
        assert!(matches!(roles.duty(waiting.number(), false), Duty::Watch(_)));
    }

    #[test]
    fn one_blocked_thread_is_appointed_where_nobody_makes_progress() {
        let mut roles = Roles::default();
        let (first, second) = (blocked(&mut roles), blocked(&mut roles));
        roles.appoint();
        roles.appoint();
        assert_eq!(roles.blocked.wakes(), 1);
        assert!(matches!(roles.duty(second.number(), false), Duty::Block));
        roles.leave(first.number());
        roles.appoint();
        assert_eq!(roles.blocked.wakes(), 2);
        assert!(matches!(roles.duty(second.number(), false), Duty::Own(_)));
    }
}
