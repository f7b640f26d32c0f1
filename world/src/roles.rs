// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of the waiting threads makes progress: one thread owns progress, the others are blocked.
//!
//! ```text
//!   a thread begins to wait ──▶ owner ── its call ends, others are blocked ──▶ no owner; the first blocked thread is standby
//!                                 │
//!                                 └── another thread begins to wait, or receives without waiting: ownership is revoked
//!                                                                 ──▶ standby if there is none, else blocked
//!   standby ── counter unchanged for one WATCH_PERIOD, no owner ──▶ owner
//!      └────── counter unchanged for one WATCH_PERIOD, an owner ──▶ blocked
//! ```
//!
//! The thread that began to wait last owns progress: it is running, and the others have waited for some time already. So a thread
//! that exchanges messages without a pause makes progress for all threads and wakes none. When it stops, the standby thread
//! notices within two WATCH_PERIODs. The standby thread watches a counter outside the guard, so it does not slow the owner down.
//! The counter does not count calls of progress: it changes when a thread becomes the owner, and when a thread makes progress
//! without waiting. One long wait of an owner leaves it unchanged; then the standby thread enters the guard, finds the owner
//! there, and becomes blocked, since the end of the owner's wait chooses a new standby thread.

use crate::blocked::BlockedThreads;
use core::sync::atomic::{AtomicU32, Ordering};
use mend_base::Duration;
use mend_mpi::SleeperId;
use std::sync::Arc;

/// The roles of the waiting threads.
#[derive(Debug, Default)]
pub struct Roles {
    owner: Option<Ownership>,
    standby: Option<Standby>,
    /// How often a thread became the owner of progress, or made progress without waiting; wraps. The standby thread reads it without
    /// entering the guard.
    progress_count: Arc<AtomicU32>,
    /// The blocked threads, the standby thread among them.
    pub blocked: BlockedThreads,
}

/// The right of one thread to make progress, until another thread acquires it or it is revoked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ownership(u32);

/// The blocked thread that watches the counter.
#[derive(Clone, Copy, Debug)]
struct Standby {
    thread: SleeperId,
    /// `progress_count` when this thread last read it.
    seen: u32,
}

/// What a waiting thread does next.
#[derive(Debug)]
pub enum Role {
    /// It makes progress.
    Owner(Ownership),
    /// It sleeps, and watches the counter.
    Standby(ProgressWatch),
    /// It sleeps until it is woken.
    Blocked,
}

/// What the standby thread watches.
#[derive(Debug)]
pub struct ProgressWatch {
    progress_count: Arc<AtomicU32>,
    seen: u32,
}

/// How long the standby thread sleeps between two readings of the counter. Two periods delay a message less than a lost bell does
/// (1 ms). The readings cost some hundredths of a processor.
pub const WATCH_PERIOD: Duration = Duration::from_micros(200);

impl ProgressWatch {
    /// Whether the counter changed since the last call.
    pub fn has_changed(&mut self) -> bool {
        let progress_count = self.progress_count.load(Ordering::Relaxed);
        core::mem::replace(&mut self.seen, progress_count) != progress_count
    }
}

impl Roles {
    // Hot: per message.
    /// Whether no thread waits.
    #[inline]
    pub fn no_thread_waits(&self) -> bool {
        self.owner.is_none() && self.blocked.is_empty()
    }

    /// Whether a thread owns progress.
    pub fn is_owned(&self) -> bool {
        self.owner.is_some()
    }

    /// Makes the calling thread the owner of progress; revokes the ownership of another thread.
    pub fn acquire(&mut self) -> Ownership {
        self.count_progress();
        let ownership = Ownership(self.progress_count.load(Ordering::Relaxed));
        self.owner = Some(ownership);
        ownership
    }

    /// Counts that a thread makes progress, for the standby thread.
    pub fn count_progress(&mut self) {
        // Written only by the thread that holds the guard.
        self.progress_count
            .store(self.progress_count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether this ownership is still in force.
    #[inline]
    pub fn holds(&self, ownership: Ownership) -> bool {
        self.owner == Some(ownership)
    }

    /// Ends this ownership, if it is still in force.
    pub fn release(&mut self, ownership: Ownership) {
        if self.holds(ownership) {
            self.owner = None;
        }
    }

    /// Ends the ownership of whichever thread has it.
    pub fn revoke(&mut self) {
        self.owner = None;
    }

    /// The role of the waiting thread `me`. `revoked`: the thread owned progress until now.
    pub fn assign(&mut self, me: SleeperId, revoked: bool) -> Role {
        let progress_count = self.progress_count.load(Ordering::Relaxed);
        match self.standby {
            Some(Standby { thread, seen }) if thread == me => {
                if seen != progress_count {
                    return self.watch(me, progress_count);
                }
                self.standby = None;
                if self.owner.is_some() { Role::Blocked } else { Role::Owner(self.acquire()) }
            }
            None if revoked => self.watch(me, progress_count),
            None if self.owner.is_none() => Role::Owner(self.acquire()),
            _ => Role::Blocked,
        }
    }

    fn watch(&mut self, thread: SleeperId, seen: u32) -> Role {
        self.standby = Some(Standby { thread, seen });
        Role::Standby(ProgressWatch { progress_count: Arc::clone(&self.progress_count), seen })
    }

    /// Notes what the standby thread last read.
    pub fn note_watch(&mut self, watch: &ProgressWatch) {
        if let Some(standby) = &mut self.standby {
            standby.seen = watch.seen;
        }
    }

    /// Removes the thread `me`, which waits no more.
    pub fn remove(&mut self, me: SleeperId) {
        if self.standby.is_some_and(|standby| standby.thread == me) {
            self.standby = None;
        }
    }

    /// If threads are blocked and none owns progress, makes the first of them the standby thread and wakes it.
    pub fn choose_standby(&mut self) {
        if self.owner.is_none()
            && self.standby.is_none()
            && let Some(thread) = self.blocked.wake_first()
        {
            self.standby = Some(Standby { thread, seen: self.progress_count.load(Ordering::Relaxed) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Role, Roles};
    use crate::blocked::WakeCondition;
    use crate::semaphore::Semaphore;
    use std::sync::Arc;

    fn blocked(roles: &mut Roles) -> Arc<Semaphore> {
        let semaphore = Arc::new(Semaphore::default());
        roles.blocked.add(&semaphore, WakeCondition::RequestEnd);
        semaphore
    }

    #[test]
    fn the_thread_that_began_to_wait_last_owns_progress() {
        let mut roles = Roles::default();
        let (first, last) = (roles.acquire(), roles.acquire());
        assert!(!roles.holds(first) && roles.holds(last));
        roles.release(first);
        assert!(roles.is_owned());
        roles.release(last);
        assert!(roles.no_thread_waits());
    }

    #[test]
    fn a_revoked_owner_is_standby_and_then_blocked_while_the_new_owner_stays() {
        let mut roles = Roles::default();
        let (me, _old) = (Semaphore::default().sleeper_id(), roles.acquire());
        let _new = roles.acquire();
        let Role::Standby(mut watch) = roles.assign(me, true) else { panic!("there is no standby yet") };
        assert!(!watch.has_changed());
        roles.note_watch(&watch);
        assert!(matches!(roles.assign(me, false), Role::Blocked));
    }

    #[test]
    fn a_standby_thread_becomes_the_owner_when_no_progress_is_made() {
        let mut roles = Roles::default();
        let me = Semaphore::default().sleeper_id();
        let busy = roles.acquire();
        let Role::Standby(mut watch) = roles.assign(me, true) else { panic!("there is no standby yet") };
        roles.release(busy);
        let again = roles.acquire();
        assert!(watch.has_changed());
        roles.release(again);
        assert!(!watch.has_changed());
        roles.note_watch(&watch);
        assert!(matches!(roles.assign(me, false), Role::Owner(_)));
        assert!(roles.is_owned());
    }

    #[test]
    fn a_standby_thread_that_runs_after_the_next_owner_stays_standby() {
        let mut roles = Roles::default();
        let waiting = blocked(&mut roles);
        let first = roles.acquire();
        roles.release(first);
        roles.choose_standby();
        let again = roles.acquire();
        roles.release(again);
        assert!(matches!(roles.assign(waiting.sleeper_id(), false), Role::Standby(_)));
    }

    #[test]
    fn one_blocked_thread_becomes_standby_when_no_thread_owns_progress() {
        let mut roles = Roles::default();
        let (first, second) = (blocked(&mut roles), blocked(&mut roles));
        roles.choose_standby();
        roles.choose_standby();
        assert_eq!(roles.blocked.wakes(), 1);
        assert!(matches!(roles.assign(second.sleeper_id(), false), Role::Blocked));
        roles.remove(first.sleeper_id());
        roles.choose_standby();
        assert_eq!(roles.blocked.wakes(), 2);
        assert!(matches!(roles.assign(second.sleeper_id(), false), Role::Owner(_)));
    }
}
