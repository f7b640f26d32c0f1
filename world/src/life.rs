// SPDX-License-Identifier: Apache-2.0 OR MIT
//! This process's life word from Init to Finalize: which thread holds it, and what the process says when a fatal signal
//! is about to end it.
//!
//! The thread that calls MPI_Init holds it. When that thread ends and the process does not (pthread_exit), a key destructor
//! lets go of it and has the helper thread take it. A forked child has nothing of it.

use crate::fatal;
use crate::helper::Successor;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use mend_segment::Life;
use std::io;

/// The life of this process.
#[derive(Debug)]
pub struct LivenessOwner {
    life: Life,
    successor: Successor,
    /// The process that it belongs to: a child by vfork or a bare clone sees this memory, and is another process.
    process: libc::pid_t,
}

/// The one [`LivenessOwner`], null before Init and in a forked child. As with the world, a process has one: the kernel's callers
/// (signal handlers, key destructors) carry no pointer of ours.
static LIVENESS_OWNER: AtomicPtr<LivenessOwner> = AtomicPtr::new(ptr::null_mut());

/// From now on `life`, which the calling thread holds, is looked after. Once a process.
pub fn look_after(life: Life, successor: Successor) -> io::Result<&'static LivenessOwner> {
    let key = make_key()?;
    let liveness_owner: &'static LivenessOwner =
        Box::leak(Box::new(LivenessOwner { life, successor, process: own_process() }));
    // SYNC: the life as made, with `mine`.
    LIVENESS_OWNER.store(ptr::from_ref(liveness_owner).cast_mut(), Ordering::Release);
    // SAFETY: the key was just made. The value is never followed: it must only not be null, for the destructor to run.
    let error = unsafe { libc::pthread_setspecific(key, ptr::without_provenance(1)) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    fatal::install();
    Ok(liveness_owner)
}

impl LivenessOwner {
    /// MPI_Finalize: the end of a thread or of the process is no death of a rank from now on.
    pub fn end(&self) {
        fatal::restore();
        self.life.end();
    }
}

/// In a forked child: the life is the parent's, and its memory is not mapped here.
pub fn forget() {
    LIVENESS_OWNER.store(ptr::null_mut(), Ordering::Relaxed);
}

/// A fatal signal ends this process. Async-signal-safe.
pub fn say_dying() {
    if let Some(liveness_owner) = mine() {
        liveness_owner.life.say_dying();
    }
}

/// The life, if it is this process's own: a child that was not forked by the C library may have the pointer, but not the
/// memory.
fn mine() -> Option<&'static LivenessOwner> {
    // SYNC: the life as made, with `look_after`.
    let liveness_owner = LIVENESS_OWNER.load(Ordering::Acquire);
    // SAFETY: null, or the leaked box that `look_after` stored: never freed, so the reference may live for ever.
    let liveness_owner = unsafe { liveness_owner.as_ref() }?;
    (liveness_owner.process == own_process()).then_some(liveness_owner)
}

fn own_process() -> libc::pid_t {
    // SAFETY: reads a number; the C library does not cache it, so a child by vfork is told its own.
    unsafe { libc::getpid() }
}

fn make_key() -> io::Result<libc::pthread_key_t> {
    let mut key = 0;
    // SAFETY: `key` is ours to be written; the destructor is a plain function that stays where it is, as the library is
    // linked with `-z nodelete`.
    match unsafe { libc::pthread_key_create(&mut key, Some(on_thread_end)) } {
        0 => Ok(key),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The thread that called MPI_Init ends, and the process goes on.
unsafe extern "C" fn on_thread_end(_: *mut c_void) {
    let Some(liveness_owner) = mine() else { return };
    if liveness_owner.life.is_mine() {
        liveness_owner.life.release();
        if !liveness_owner.life.has_ended() {
            liveness_owner.successor.inherit(liveness_owner);
        }
    }
}

impl LivenessOwner {
    /// The helper's part: it holds the word from now on.
    pub(crate) fn take(&self) {
        // Refused only by a C library without robust mutexes, and then Init had failed. Should it be all the same, the
        // death of this process shows by its end alone.
        let _ = self.life.take();
    }

    /// The helper ends, and lets go of what it holds.
    pub(crate) fn let_go(&self) {
        if self.life.is_mine() {
            self.life.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LivenessOwner, forget, look_after, on_thread_end, say_dying};
    use crate::forked::{Forked, until};
    use crate::helper::Helper;
    use mend_segment::{Life, LifeState};

    /// Begins a life on a thread of its own, where `then` follows; returns when that thread has ended.
    fn on_a_thread_that_ends<T: Send>(
        life: Life,
        helper: &Helper,
        then: impl FnOnce(&'static LivenessOwner) -> T + Send,
    ) -> T {
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                life.begin().unwrap();
                then(look_after(life, helper.successor()).unwrap())
            });
            // The thread itself, and so its key destructors, not only what it was to do.
            first.join().unwrap()
        })
    }

    #[test]
    fn when_the_thread_of_init_ends_by_itself_the_process_lives_on() {
        let mut forked = Forked::start(|life, steps| {
            let helper = Helper::start().unwrap();
            on_a_thread_that_ends(life, &helper, |_| ());
            steps.step();
        });
        forked.hear();
        // The first holder is gone: now it is the helper's, or about to be.
        until(&forked.view, LifeState::Lives);
        forked.kill();
        until(&forked.view, LifeState::Dead);
    }

    #[test]
    fn when_the_last_thread_of_the_program_ends_so_does_the_process() {
        let forked = Forked::start(|life, _| {
            let helper = core::mem::ManuallyDrop::new(Helper::start().unwrap());
            life.begin().unwrap();
            look_after(life, helper.successor()).unwrap();
            // By hand what pthread_exit does: it would unwind the frames of the test.
            // SAFETY: what the C library calls when this thread ends, as it is about to.
            unsafe { on_thread_end(core::ptr::null_mut()) };
            // SAFETY: ends this thread, whose frames nobody needs.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        });
        until(&forked.view, LifeState::Dead);
        assert_eq!(forked.ending(), (libc::CLD_EXITED, 0));
    }

    #[test]
    fn when_the_thread_of_init_ends_after_finalize_nobody_dies() {
        let mut forked = Forked::start(|life, steps| {
            let helper = Helper::start().unwrap();
            on_a_thread_that_ends(life, &helper, LivenessOwner::end);
            steps.step();
        });
        forked.hear();
        assert_eq!(forked.view.state(), LifeState::Left);
        forked.kill();
        forked.ending();
        assert_eq!(forked.view.state(), LifeState::Left);
    }

    #[test]
    fn the_helper_lets_go_of_what_it_inherited_when_another_thread_finalizes() {
        let mut forked = Forked::start(|life, steps| {
            let helper = Helper::start().unwrap();
            let liveness_owner = on_a_thread_that_ends(life, &helper, |liveness_owner| liveness_owner);
            steps.step();
            liveness_owner.end();
            drop(helper);
            steps.step();
        });
        forked.hear();
        until(&forked.view, LifeState::Lives);
        forked.go_on();
        forked.hear();
        assert_eq!(forked.view.state(), LifeState::Left);
    }

    #[test]
    fn what_ends_in_a_forked_child_concerns_nobody() {
        let mut forked = Forked::start(|life, steps| {
            let helper = Helper::start().unwrap();
            life.begin().unwrap();
            look_after(life, helper.successor()).unwrap();
            // One that knows that it was forked, and one that does not (a bare clone).
            for knows in [true, false] {
                // SAFETY: the child calls what may be called after fork, and leaves by `_exit`.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    if knows {
                        forget();
                    }
                    say_dying();
                    // SAFETY: ends this thread; the child has no other.
                    unsafe { libc::pthread_exit(core::ptr::null_mut()) };
                }
                // SAFETY: our own child.
                unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
            }
            steps.step();
        });
        forked.hear();
        assert_eq!(forked.view.state(), LifeState::Lives);
    }
}
