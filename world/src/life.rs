// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life word of this process from Init to Finalize: which thread holds it, and how a fatal signal marks it.
//!
//! The thread that calls MPI_Init holds the life word. If this thread ends and the process goes on (pthread_exit), a key destructor releases
//! the word, and the helper thread takes it. A forked child has no life word.

use crate::fatal;
use crate::helper::Successor;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use mend_segment::Life;
use std::io;

/// The life word of this process, registered with the helper thread that takes it over. The thread that holds it is the liveness
/// owner.
#[derive(Debug)]
pub struct RegisteredLife {
    life: Life,
    successor: Successor,
    /// The process of the life word. A child by vfork or a plain clone sees this memory too, and is another process.
    process: libc::pid_t,
}

/// The one [`RegisteredLife`]; null before Init and in a forked child. A static, because signal handlers and key destructors get
/// no pointer of ours.
static REGISTERED_LIFE: AtomicPtr<RegisteredLife> = AtomicPtr::new(ptr::null_mut());

/// Registers the life word, which the calling thread holds: for transfer to `successor` when this thread ends, and for fatal signals. Called
/// once in a process.
pub fn register(life: Life, successor: Successor) -> io::Result<&'static RegisteredLife> {
    let key = make_key()?;
    let registered_life: &'static RegisteredLife =
        Box::leak(Box::new(RegisteredLife { life, successor, process: own_process() }));
    // SYNC: the complete value, with `mine`.
    REGISTERED_LIFE.store(ptr::from_ref(registered_life).cast_mut(), Ordering::Release);
    // SAFETY: the key is valid. The value is never dereferenced; it is not null, so that the destructor runs.
    let error = unsafe { libc::pthread_setspecific(key, ptr::without_provenance(1)) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    fatal::install();
    Ok(registered_life)
}

impl RegisteredLife {
    /// MPI_Finalize: from now on the end of this process is no failure.
    pub fn end(&self) {
        fatal::restore();
        self.life.end();
    }
}

/// Removes the life word in a forked child: it is the parent's, and its memory is not mapped here.
pub fn clear_in_child() {
    REGISTERED_LIFE.store(ptr::null_mut(), Ordering::Relaxed);
}

/// Marks the life word, because a fatal signal ends this process. Async-signal-safe.
pub fn mark_dying() {
    if let Some(registered_life) = mine() {
        registered_life.life.mark_dying();
    }
}

/// The life word of this process. `None` in a child that was not forked by the C library: it may have the pointer, but not the
/// memory.
fn mine() -> Option<&'static RegisteredLife> {
    // SYNC: the complete value, with `register`.
    let registered_life = REGISTERED_LIFE.load(Ordering::Acquire);
    // SAFETY: null, or the leaked box that `register` stored, which is never freed.
    let registered_life = unsafe { registered_life.as_ref() }?;
    (registered_life.process == own_process()).then_some(registered_life)
}

fn own_process() -> libc::pid_t {
    // SAFETY: reads a number. The C library does not cache it, so a child by vfork gets its own.
    unsafe { libc::getpid() }
}

fn make_key() -> io::Result<libc::pthread_key_t> {
    let mut key = 0;
    // SAFETY: `key` is writable; the destructor is never unloaded, because the library is linked with `-z nodelete`.
    match unsafe { libc::pthread_key_create(&mut key, Some(on_thread_end)) } {
        0 => Ok(key),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Key destructor of the thread that called MPI_Init: this thread ends, and the process may go on.
unsafe extern "C" fn on_thread_end(_: *mut c_void) {
    let Some(registered_life) = mine() else { return };
    if registered_life.life.is_mine() {
        registered_life.life.release();
        if !registered_life.life.has_ended() {
            registered_life.successor.transfer(registered_life);
        }
    }
}

impl RegisteredLife {
    /// Takes the life word for the calling thread, the helper.
    pub(crate) fn take(&self) {
        // Fails only with a C library without robust mutexes, where Init fails. If it failed here, the death of this process
        // would show by its process descriptor only.
        let _ = self.life.take();
    }

    /// Releases the life word, if the calling thread holds it.
    pub(crate) fn release_if_held(&self) {
        if self.life.is_mine() {
            self.life.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{RegisteredLife, clear_in_child, mark_dying, on_thread_end, register};
    use crate::forked::{Forked, wait_for_state};
    use crate::helper::{Helper, tests::helper};
    use mend_segment::{Life, LifeState};

    /// Takes and registers the life word on another thread, runs `then` there, and returns when this thread has ended.
    fn on_a_thread_that_ends<T: Send>(
        life: Life,
        helper: &Helper,
        then: impl FnOnce(&'static RegisteredLife) -> T + Send,
    ) -> T {
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                life.begin().unwrap();
                then(register(life, helper.successor()).unwrap())
            });
            // Waits for the thread, and so for its key destructors, not only for its closure.
            first.join().unwrap()
        })
    }

    #[test]
    fn when_the_thread_of_init_ends_by_itself_the_process_lives_on() {
        let mut forked = Forked::start(|life, steps| {
            let helper = helper();
            on_a_thread_that_ends(life, &helper, |_| ());
            steps.step();
        });
        forked.wait_for_step();
        // The first holder has ended: the helper holds the word, or is about to take it.
        wait_for_state(&forked.view, LifeState::Alive);
        forked.kill();
        wait_for_state(&forked.view, LifeState::Dead);
    }

    #[test]
    fn when_the_last_thread_of_the_program_ends_so_does_the_process() {
        let forked = Forked::start(|life, _| {
            let helper = core::mem::ManuallyDrop::new(helper());
            life.begin().unwrap();
            register(life, helper.successor()).unwrap();
            // Does what pthread_exit does, which would unwind the frames of the test.
            // SAFETY: called as the C library does when a thread ends; this thread ends below.
            unsafe { on_thread_end(core::ptr::null_mut()) };
            // SAFETY: ends this thread, whose frames are needed no more.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        });
        wait_for_state(&forked.view, LifeState::Dead);
        assert_eq!(forked.wait_status(), (libc::CLD_EXITED, 0));
    }

    #[test]
    fn when_the_thread_of_init_ends_after_finalize_the_process_counts_as_left() {
        let mut forked = Forked::start(|life, steps| {
            let helper = helper();
            on_a_thread_that_ends(life, &helper, RegisteredLife::end);
            steps.step();
        });
        forked.wait_for_step();
        assert_eq!(forked.view.state(), LifeState::Left);
        forked.kill();
        forked.wait_status();
        assert_eq!(forked.view.state(), LifeState::Left);
    }

    #[test]
    fn the_helper_releases_the_life_word_when_another_thread_finalizes() {
        let mut forked = Forked::start(|life, steps| {
            let helper = helper();
            let registered_life = on_a_thread_that_ends(life, &helper, |registered_life| registered_life);
            steps.step();
            registered_life.end();
            drop(helper);
            steps.step();
        });
        forked.wait_for_step();
        wait_for_state(&forked.view, LifeState::Alive);
        forked.allow_step();
        forked.wait_for_step();
        assert_eq!(forked.view.state(), LifeState::Left);
    }

    #[test]
    fn the_end_of_a_forked_child_is_no_death_of_its_parent() {
        let mut forked = Forked::start(|life, steps| {
            let helper = helper();
            life.begin().unwrap();
            register(life, helper.successor()).unwrap();
            // One child that ran the fork handler, and one that did not (as after a plain clone).
            for handler_ran in [true, false] {
                // SAFETY: the child calls what may be called after fork, and leaves by `_exit`.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    if handler_ran {
                        clear_in_child();
                    }
                    mark_dying();
                    // SAFETY: ends this thread; the child has no other.
                    unsafe { libc::pthread_exit(core::ptr::null_mut()) };
                }
                // SAFETY: our own child.
                unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
            }
            steps.step();
        });
        forked.wait_for_step();
        assert_eq!(forked.view.state(), LifeState::Alive);
    }
}
