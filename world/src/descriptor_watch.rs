// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The watcher thread: it polls the descriptors of networks for those who sleep on a futex, as no system call sleeps on both.
//!
//! ```text
//!            a sleeper, or the helper thread, wants it            a descriptor is readable: wakes whoever wanted it
//!   idle ───────────────────────────────────────────▶ watching ───────────────────────────────────────────────────▶ idle
//! ```
//!
//! A request is served once. So a descriptor that stays readable, and a program that communicates without a pause, wake the watcher once
//! for each request, and not once for each message. A sleeper that ends its sleep for another reason leaves its request: the next sleep then
//! costs no system call here. A request that no one needs any more wakes its owner needlessly, once.
//!
//! The thread is started with the first request, blocks all signals, and ends at MPI_Finalize. A process without networks has none.

use crate::poll_set::PollSet;
use crate::threads;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use mend_segment::{BellPage, HelperCalls};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The watcher thread of this process, or that there is none yet.
#[derive(Debug)]
pub struct DescriptorWatch {
    bells: Arc<BellPage>,
    slot: u32,
    watcher: Mutex<State>,
}

#[derive(Debug)]
enum State {
    NotStarted,
    Running(Watcher),
    /// It could not be started, or MPI_Finalize has ended it.
    Absent,
}

#[derive(Debug)]
struct Watcher {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    bells: Arc<BellPage>,
    slot: u32,
    /// The [`WakeRequest`]s that are not served yet.
    requests: AtomicU32,
    descriptors: Mutex<Vec<i32>>,
    /// Makes the thread look at the two above.
    signal: OwnedFd,
    leaving: AtomicBool,
    /// How often a descriptor was found readable.
    fired: AtomicU64,
}

/// Who is woken when a descriptor becomes readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum WakeRequest {
    /// The thread that sleeps on the sleep word of this process.
    Sleeper = 1,
    /// The helper thread: it is called in its bell.
    Helper = 2,
}

impl DescriptorWatch {
    /// Wakes sleepers, and the helper thread, in slot `slot` of `bells`. Starts no thread yet.
    pub fn new(bells: Arc<BellPage>, slot: u32) -> Self {
        DescriptorWatch { bells, slot, watcher: Mutex::new(State::NotStarted) }
    }

    /// Serves `request` once, as soon as one of `descriptors` is readable. `false`: there is no thread to watch them. The caller is in the
    /// guard, and names the same descriptors as others do at that time.
    pub fn watch(&self, request: WakeRequest, descriptors: &[i32]) -> bool {
        let mut state = lock(&self.watcher);
        if let State::NotStarted = *state {
            *state = match Watcher::start(&self.bells, self.slot) {
                Ok(watcher) => State::Running(watcher),
                Err(_) => State::Absent,
            };
        }
        let State::Running(watcher) = &*state else { return false };
        watcher.shared.watch(request, descriptors);
        true
    }

    /// Polls the descriptors anew. A transport may have closed one of them and opened another one with the same number, of which a thread
    /// that is in `poll` does not know.
    pub fn restart(&self) {
        if let State::Running(watcher) = &*lock(&self.watcher) {
            watcher.shared.notify();
        }
    }

    /// How many threads this is: 0 or 1.
    pub fn threads(&self) -> u32 {
        u32::from(matches!(*lock(&self.watcher), State::Running(_)))
    }

    /// How often a descriptor was found readable.
    #[cfg(test)]
    pub fn fired(&self) -> u64 {
        match &*lock(&self.watcher) {
            State::Running(watcher) => watcher.shared.fired.load(Ordering::Relaxed),
            _ => 0,
        }
    }

    /// Ends the thread, and joins it. From now on nothing is watched.
    pub fn end(&self) {
        let state = core::mem::replace(&mut *lock(&self.watcher), State::Absent);
        if let State::Running(Watcher { shared, thread }) = state {
            shared.leaving.store(true, Ordering::Relaxed);
            shared.notify();
            // An error means that the thread panicked. It is ended in any case.
            let _ = thread.join();
        }
    }
}

impl Drop for DescriptorWatch {
    fn drop(&mut self) {
        self.end();
    }
}

impl Watcher {
    fn start(bells: &Arc<BellPage>, slot: u32) -> io::Result<Self> {
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            bells: Arc::clone(bells),
            slot,
            requests: AtomicU32::new(0),
            descriptors: Mutex::default(),
            signal: mend_segment::above_standard_streams(signal)?,
            leaving: AtomicBool::new(false),
            fired: AtomicU64::new(0),
        });
        let theirs = Arc::clone(&shared);
        let thread = threads::spawn_without_signals("mend-network", STACK_BYTES, move || theirs.run())?;
        Ok(Watcher { shared, thread })
    }
}

impl Shared {
    fn watch(&self, request: WakeRequest, descriptors: &[i32]) {
        let mut known = lock(&self.descriptors);
        let are_new = *known != descriptors;
        if are_new {
            known.clear();
            known.extend_from_slice(descriptors);
        }
        drop(known);
        // SYNC: the descriptors, with `run`.
        let before = self.requests.fetch_or(request as u32, Ordering::AcqRel);
        // With a request left, the thread polls these descriptors already.
        if are_new || before == 0 {
            self.notify();
        }
    }

    fn notify(&self) {
        // The counter cannot overflow: the thread clears it whenever it is not 0.
        let _ = rustix::io::write(&self.signal, &1_u64.to_ne_bytes());
    }

    /// The thread.
    fn run(&self) {
        let mut poll_set = PollSet::default();
        while !self.leaving.load(Ordering::Relaxed) {
            // SYNC: the descriptors, with `watch`.
            let watches = self.requests.load(Ordering::Acquire) != 0;
            poll_set.clear();
            poll_set.add(self.signal.as_raw_fd());
            if watches {
                lock(&self.descriptors).iter().for_each(|&descriptor| poll_set.add(descriptor));
            }
            poll_set.wait(None);
            if poll_set.is_readable(0) {
                let _ = rustix::io::read(&self.signal, &mut [0; 8]);
            }
            if poll_set.is_any_readable_from(1) {
                self.fire();
            }
        }
    }

    fn fire(&self) {
        let requests = self.requests.swap(0, Ordering::AcqRel);
        self.fired.fetch_add(1, Ordering::Relaxed);
        if requests & WakeRequest::Sleeper as u32 != 0 {
            self.bells.wake(self.slot);
        }
        if requests & WakeRequest::Helper as u32 != 0 {
            self.bells.call_helper(self.slot, HelperCalls::DESCRIPTOR);
        }
    }
}

/// No thread panics while it holds one of these locks, so a poisoned lock cannot occur.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stack of the thread, whose frames are small.
const STACK_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::{DescriptorWatch, WakeRequest};
    use mend_base::Duration;
    use mend_segment::{BellPage, HelperCalls, Woken};
    use rustix::pipe::pipe;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::sync::Arc;

    const LONG: Duration = Duration::from_millis(60_000);

    fn watch() -> (DescriptorWatch, Arc<BellPage>) {
        let bells = Arc::new(BellPage::create(2).unwrap().0);
        (DescriptorWatch::new(Arc::clone(&bells), 1), bells)
    }

    fn sleep_with(watch: &DescriptorWatch, bells: &BellPage, descriptors: &[i32]) {
        let announced = bells.announce_sleep(1);
        assert!(watch.watch(WakeRequest::Sleeper, descriptors));
        assert_eq!(bells.sleep(1, announced, LONG), Woken::Rung);
        bells.end_sleep(1);
    }

    fn readable_pipe() -> (OwnedFd, OwnedFd) {
        let (read, write) = pipe().unwrap();
        rustix::io::write(&write, b"x").unwrap();
        (read, write)
    }

    #[test]
    fn a_sleeper_on_its_sleep_word_is_woken_by_each_descriptor() {
        let (watch, bells) = watch();
        let pipes = [pipe().unwrap(), pipe().unwrap()];
        let descriptors = [pipes[0].0.as_raw_fd(), pipes[1].0.as_raw_fd()];
        for number in 0..100 {
            let (read, write) = &pipes[number % 2];
            std::thread::scope(|scope| {
                scope.spawn(|| rustix::io::write(write, b"x").unwrap());
                sleep_with(&watch, &bells, &descriptors);
            });
            rustix::io::read(read, &mut [0; 1]).unwrap();
        }
        assert_eq!((watch.fired(), watch.threads()), (100, 1));
    }

    #[test]
    fn a_descriptor_that_stays_readable_wakes_once_for_each_request() {
        let (watch, bells) = watch();
        let (read, _write) = readable_pipe();
        for requests in 1..=50 {
            sleep_with(&watch, &bells, &[read.as_raw_fd()]);
            assert_eq!(watch.fired(), requests);
        }
        // Nobody requests anything: the thread has no reason to look at the pipe.
        let announced = bells.announce_sleep(1);
        assert_eq!(bells.sleep(1, announced, Duration::from_millis(20)), Woken::TimedOut);
        assert_eq!(watch.fired(), 50);
    }

    #[test]
    fn the_helper_thread_is_called_and_a_sleeper_is_not_disturbed_for_it() {
        let (watch, bells) = watch();
        let (read, _write) = readable_pipe();
        let announced = bells.announce_sleep(1);
        assert!(watch.watch(WakeRequest::Helper, &[read.as_raw_fd()]));
        bells.sleep_of_helper(1, Some(LONG));
        let calls = bells.take_helper_calls(1);
        assert!(calls.has(HelperCalls::DESCRIPTOR) && !calls.has(HelperCalls::SERVE));
        assert_eq!(bells.sleep(1, announced, Duration::from_millis(1)), Woken::TimedOut);
    }

    #[test]
    fn other_descriptors_replace_the_first_ones() {
        let (watch, bells) = watch();
        let (quiet, _open) = pipe().unwrap();
        let (read, _write) = readable_pipe();
        assert!(watch.watch(WakeRequest::Sleeper, &[quiet.as_raw_fd()]));
        sleep_with(&watch, &bells, &[read.as_raw_fd()]);
    }

    #[test]
    fn a_descriptor_that_was_opened_under_a_known_number_is_found_after_a_restart() {
        let (watch, bells) = watch();
        let (closed, _open) = pipe().unwrap();
        let announced = bells.announce_sleep(1);
        assert!(watch.watch(WakeRequest::Sleeper, &[closed.as_raw_fd()]));
        let (read, _write) = readable_pipe();
        let mut reopened = closed;
        rustix::io::dup2(&read, &mut reopened).unwrap();
        watch.restart();
        assert_eq!(bells.sleep(1, announced, LONG), Woken::Rung);
    }

    #[test]
    fn nothing_is_watched_after_the_end() {
        let (watch, _bells) = watch();
        let (read, _write) = pipe().unwrap();
        assert!(watch.watch(WakeRequest::Helper, &[read.as_raw_fd()]));
        watch.end();
        assert!(!watch.watch(WakeRequest::Helper, &[read.as_raw_fd()]) && watch.threads() == 0);
    }
}
