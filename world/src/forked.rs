// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forked processes with an outbox, for tests of what others see of them.

use crate::fatal::default_all;
use core::ffi::c_int;
use mend_base::Duration;
use mend_segment::{Life, LifeState, LifeView, Outbox, sleep_on_life};
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

/// A forked process with an outbox, as others see it. Killed when dropped.
pub(crate) struct Forked {
    pid: libc::pid_t,
    pub(crate) view: LifeView,
    words: PipeReader,
    orders: PipeWriter,
}

/// The forked process's own side.
pub(crate) struct Steps {
    words: PipeWriter,
    orders: PipeReader,
}

impl Steps {
    /// Tells that it has come so far, and waits for leave to go on.
    pub(crate) fn step(&mut self) {
        self.words.write_all(b".").unwrap();
        self.wait();
    }

    fn wait(&mut self) {
        if self.orders.read(&mut [0]).unwrap_or(0) == 0 {
            // SAFETY: ends the process without what the test harness does at exit.
            unsafe { libc::_exit(0) };
        }
    }
}

impl Forked {
    pub(crate) fn start(body: impl FnOnce(Life, &mut Steps)) -> Self {
        let ((mut words, mut their_words), (their_orders, mut orders)) =
            (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        // SAFETY: the child takes no lock that another thread of the harness may hold (the C library sees to its
        // own), and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            drop((words, orders));
            // SAFETY: numbers alone.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            // The Rust runtime handles two of them.
            default_all();
            let outbox = Outbox::create(1, 4, 0).unwrap();
            their_words.write_all(&outbox.descriptor().as_raw_fd().to_ne_bytes()).unwrap();
            let mut steps = Steps { words: their_words, orders: their_orders };
            steps.wait();
            body(outbox.life(), &mut steps);
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        drop((their_words, their_orders));
        let mut number = [0; 4];
        words.read_exact(&mut number).unwrap();
        let file = File::open(format!("/proc/{pid}/fd/{}", i32::from_ne_bytes(number))).unwrap();
        let view = LifeView::map(file.as_fd(), 1, 4).unwrap();
        orders.write_all(b".").unwrap();
        Forked { pid, view, words, orders }
    }

    pub(crate) fn hear(&mut self) {
        self.words.read_exact(&mut [0]).unwrap();
    }

    pub(crate) fn go_on(&mut self) {
        self.orders.write_all(b".").unwrap();
    }

    pub(crate) fn kill(&self) {
        self.signal(libc::SIGKILL);
    }

    pub(crate) fn signal(&self, signal: c_int) {
        // SAFETY: numbers; the process is our child, and not reaped before it is dropped.
        unsafe { libc::kill(self.pid, signal) };
    }

    /// Waits for its end, and gives the status as waitid(2) says it: how, and by which code or signal.
    pub(crate) fn ending(&self) -> (c_int, c_int) {
        // SAFETY: an empty record is a value of this type.
        let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: `info` is ours to be written.
        unsafe { libc::waitid(libc::P_PID, self.pid as libc::id_t, &mut info, flags) };
        // SAFETY: written by the call.
        (info.si_code, unsafe { info.si_status() })
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        self.kill();
        // SAFETY: our child; nobody wants its status.
        unsafe { libc::waitpid(self.pid, core::ptr::null_mut(), 0) };
    }
}

/// Until it stands so.
pub(crate) fn until(view: &LifeView, wanted: LifeState) {
    let give_up = Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let (state, seen) = view.look();
        if state == wanted {
            return;
        }
        assert!(Instant::now() < give_up, "{state:?} instead of {wanted:?}");
        sleep_on_life(view, seen, Duration::from_millis(100));
    }
}
