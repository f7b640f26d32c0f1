// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The biased guard under loom: the production words and transitions, with the smallest program and helper that use them as `guard`
//! does. loom reports a use of the engine that the other side's use does not precede; a claim that nobody serves fails the assertion.
//!
//! There is no time here. The 1 ms that the helper lets pass is the event [`Process::settle`]: a store of the program to `inside` is
//! visible to the helper after that event, or it comes after the claim was visible to the program. Only the store belongs to the event:
//! the load that follows may read any older value that C11 permits. With `RUSTFLAGS='--cfg mend_mutation="no_settle"'`, which removes the
//! event, the models must fail.

mod atomic {
    pub use core::sync::atomic::compiler_fence;
    pub use loom::sync::atomic::{AtomicU32, Ordering, fence};
}
#[path = "../src/bias.rs"]
#[expect(dead_code, reason = "the model has no futex and no signal handler")]
mod bias;

use atomic::{AtomicU32, Ordering};
use bias::{Bias, Entry};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;

struct Process {
    bias: Bias,
    /// Held while a store to `inside` becomes visible.
    step: Mutex<()>,
    /// What the helper was last called for.
    called_for: AtomicU32,
    /// The engine: the last thing that it has served.
    engine: UnsafeCell<u32>,
}

impl Process {
    fn new() -> Arc<Self> {
        Arc::new(Process {
            bias: Bias::new(),
            step: Mutex::new(()),
            called_for: AtomicU32::new(0),
            engine: UnsafeCell::new(0),
        })
    }

    fn visibly(&self, store: impl FnOnce()) {
        let step = self.step.lock().unwrap();
        store();
        drop(step);
    }

    /// A millisecond passes.
    fn settle(&self) {
        if !cfg!(mend_mutation = "no_settle") {
            drop(self.step.lock().unwrap());
        }
    }

    fn serve(&self) {
        // SAFETY: the caller holds the guard; loom fails the test if it does not.
        self.engine.with_mut(|engine| unsafe { *engine = self.called_for.load(Ordering::Relaxed) });
    }

    /// One call of MPI, which makes no progress.
    fn call(&self) {
        self.visibly(|| self.bias.mark_inside());
        if self.bias.is_claimed() {
            while self.bias.enter_slowly() == Entry::HelperInside {
                thread::yield_now();
            }
        }
        // SAFETY: as in `serve`.
        self.engine.with_mut(|engine| unsafe { *engine += 0 });
        self.visibly(|| self.bias.mark_outside());
        if self.bias.is_claimed() {
            while self.bias.leave_slowly() {
                self.serve();
                if self.bias.end_serving() {
                    break;
                }
            }
        }
    }

    /// What the helper does when it is called.
    fn on_call(&self, what: u32) {
        self.called_for.store(what, Ordering::Relaxed);
        self.bias.claim();
        self.settle();
        if self.bias.try_hold() {
            self.serve();
            self.bias.release();
        }
    }
}

fn check(calls: u32, helper_calls: u32) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.max_branches = 10_000;
    builder.check(move || {
        let process = Process::new();
        let helper = {
            let process = process.clone();
            thread::spawn(move || (1..=helper_calls).for_each(|what| process.on_call(what)))
        };
        (0..calls).for_each(|_| process.call());
        helper.join().unwrap();
        // SAFETY: both sides have ended.
        let served = process.engine.with(|engine| unsafe { *engine });
        assert_eq!(served, helper_calls, "the last claim was served by nobody");
    });
}

const PREEMPTIONS: usize = 3;

#[test]
fn program_and_helper_exclude_each_other_and_a_claim_is_served() {
    check(2, 1);
}

#[test]
fn a_claim_that_comes_while_the_program_serves_an_earlier_one_is_served_too() {
    check(1, 2);
}
