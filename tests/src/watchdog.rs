// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends a job that makes no progress: a harness that traces a rank waits in the kernel, and cannot look at the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::job::{self, Running};

/// Watches a job until it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    steps: Option<Sender<()>>,
    barked: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Kills all processes of `job` when nothing is heard of it for so long.
    pub fn new(job: &Running, patience: Duration) -> Watchdog {
        let (steps, heard) = mpsc::channel();
        let barked = Arc::new(AtomicBool::new(false));
        let (mark, bark) = (job.mark().to_owned(), Arc::clone(&barked));
        let thread = std::thread::spawn(move || {
            loop {
                match heard.recv_timeout(patience) {
                    Ok(()) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        bark.store(true, Ordering::Release);
                        job::kill(&mark);
                        return;
                    }
                }
            }
        });
        Watchdog { steps: Some(steps), barked, thread: Some(thread) }
    }

    /// There is progress.
    pub fn pat(&self) {
        // It has barked if nobody listens.
        let _ = self.steps.as_ref().map(|steps| steps.send(()));
    }

    /// Whether it has ended the job.
    pub fn barked(&self) -> bool {
        self.barked.load(Ordering::Acquire)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.steps.take());
        if let Some(thread) = self.thread.take() {
            // It panics nowhere.
            let _ = thread.join();
        }
    }
}
