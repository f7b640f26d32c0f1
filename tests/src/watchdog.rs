// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends a job that makes no progress: a harness that traces a rank waits in the kernel, and cannot check a time limit itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::watched_command::{self, Running};

/// Watches a job until it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    steps: Option<Sender<()>>,
    fired: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Kills all processes of `job` when no progress was noted for `limit`.
    pub fn new(job: &Running, limit: Duration) -> Watchdog {
        let (steps, progress) = mpsc::channel();
        let fired = Arc::new(AtomicBool::new(false));
        let (mark, fire) = (job.mark().to_owned(), Arc::clone(&fired));
        let thread = std::thread::spawn(move || {
            loop {
                match progress.recv_timeout(limit) {
                    Ok(()) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        fire.store(true, Ordering::Release);
                        watched_command::kill(&mark);
                        return;
                    }
                }
            }
        });
        Watchdog { steps: Some(steps), fired, thread: Some(thread) }
    }

    /// Notes that there is progress.
    pub fn note_progress(&self) {
        // An error means that the watchdog has fired.
        let _ = self.steps.as_ref().map(|steps| steps.send(()));
    }

    /// Whether it has ended the job.
    pub fn fired(&self) -> bool {
        self.fired.load(Ordering::Acquire)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.steps.take());
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}
