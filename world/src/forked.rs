// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forked processes with a life page, for tests of what other processes see of them.

use crate::fatal::default_all;
use core::ffi::c_int;
use mend_base::{Duration, Job, Peer};
use mend_segment::{Life, LifeState, LifeView, sleep_on_life};
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

/// A forked process with a life page, as its parent sees it. Killed when dropped.
pub(crate) struct Forked {
    pid: libc::pid_t,
    pub(crate) view: LifeView,
    from_child: PipeReader,
    to_child: PipeWriter,
}

const OWNER: Peer = Peer::new(Job(7), 1);

/// The pipes of the forked process to its parent.
pub(crate) struct Steps {
    from_child: PipeWriter,
    to_child: PipeReader,
}

impl Steps {
    /// Tells the parent that this step is reached, and waits until the parent allows the next one.
    pub(crate) fn step(&mut self) {
        self.from_child.write_all(b".").unwrap();
        self.wait();
    }

    fn wait(&mut self) {
        if self.to_child.read(&mut [0]).unwrap_or(0) == 0 {
            // SAFETY: ends the process without the exit functions of the test harness.
            unsafe { libc::_exit(0) };
        }
    }
}

impl Forked {
    pub(crate) fn start(body: impl FnOnce(Life, &mut Steps)) -> Self {
        let ((mut from_child, mut their_words), (their_orders, mut to_child)) =
            (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        // SAFETY: the child takes no lock that another thread of the harness may hold (the C library handles its own locks),
        // and ends by `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            drop((from_child, to_child));
            // SAFETY: takes numbers only.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            // The Rust runtime handles two of the signals.
            default_all();
            let (life, page) = Life::create(OWNER).unwrap();
            their_words.write_all(&page.as_raw_fd().to_ne_bytes()).unwrap();
            let mut steps = Steps { from_child: their_words, to_child: their_orders };
            steps.wait();
            body(life, &mut steps);
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        drop((their_words, their_orders));
        let mut number = [0; 4];
        from_child.read_exact(&mut number).unwrap();
        let file = File::open(format!("/proc/{pid}/fd/{}", i32::from_ne_bytes(number))).unwrap();
        let view = LifeView::map(file.as_fd(), OWNER).unwrap();
        to_child.write_all(b".").unwrap();
        Forked { pid, view, from_child, to_child }
    }

    pub(crate) fn wait_for_step(&mut self) {
        self.from_child.read_exact(&mut [0]).unwrap();
    }

    pub(crate) fn allow_step(&mut self) {
        self.to_child.write_all(b".").unwrap();
    }

    pub(crate) fn kill(&self) {
        self.signal(libc::SIGKILL);
    }

    pub(crate) fn signal(&self, signal: c_int) {
        // SAFETY: takes numbers only; the child is not reaped before it is dropped, so its number is not reused.
        unsafe { libc::kill(self.pid, signal) };
    }

    /// Waits for the end of the process, and returns `si_code` and `si_status` of waitid(2): how it ended, and by which code or signal.
    pub(crate) fn wait_status(&self) -> (c_int, c_int) {
        // SAFETY: zeros are a valid record.
        let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: `info` is writable.
        unsafe { libc::waitid(libc::P_PID, self.pid as libc::id_t, &mut info, flags) };
        // SAFETY: written by the call.
        (info.si_code, unsafe { info.si_status() })
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        self.kill();
        // SAFETY: reaps our child; the status may be null.
        unsafe { libc::waitpid(self.pid, core::ptr::null_mut(), 0) };
    }
}

/// Waits until the life word is in this state.
pub(crate) fn wait_for_state(view: &LifeView, wanted: LifeState) {
    let give_up = Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let (state, seen) = view.read();
        if state == wanted {
            return;
        }
        assert!(Instant::now() < give_up, "{state:?} instead of {wanted:?}");
        sleep_on_life(view, seen, Duration::from_millis(100));
    }
}
