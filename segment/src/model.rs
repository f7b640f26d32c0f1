// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The wake-up protocol under loom: the production ring, bell request, bell and sleep word, with the smallest sender
//! and receiver that do what `btl-shm` and `world` do. A lost wake-up is a deadlock, which loom reports.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p mend-segment --release --lib model`
//!
//! There is no time here. The first sleep lasts 1 ms, in which every store becomes visible; that is the event
//! [`Process::settle`], which joins the sender's current step. Later timed polls are left out, because they would
//! hide a lost wake-up. Each of these mutations must make a test here fail (`--cfg mend_mutation="NAME"` beside
//! `--cfg loom`):
//! `no_settle`, `no_last_look`, `clear_bell_unpolled`.

use crate::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::line::Line;
use crate::ring::{Bounds, Consumer, Producer, START, SlotHeader, prepare};
use crate::sleep::SleepWord;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

const SLOTS: usize = 2;
type Lines = std::sync::Arc<[Line; SLOTS]>;
type Area = std::sync::Arc<[AtomicU8; 0]>;

/// The words of one process in shared memory that belong to the protocol.
struct Process {
    /// Its bell request, in its own segment.
    bell_request: AtomicU32,
    /// The bell of the other process in its row of the bell page.
    bell: AtomicU8,
    sleep: SleepWord,
    /// Held while the *other* process takes a step towards this one.
    step: Mutex<()>,
    /// The kernel's list of threads that wait on the word, and its lock.
    kernel: Mutex<()>,
    sleepers: Condvar,
}

impl Process {
    fn new(bell_request: u32) -> Self {
        Process {
            bell_request: AtomicU32::new(bell_request),
            bell: AtomicU8::new(0),
            sleep: SleepWord::new(),
            step: Mutex::new(()),
            kernel: Mutex::new(()),
            sleepers: Condvar::new(),
        }
    }

    /// One store, one load of the bell request, and a bell if it is requested.
    fn publish_and_notify(&self, publish: impl FnOnce()) {
        let step = self.step.lock().unwrap();
        publish();
        let wake = self.bell_request.load(Ordering::Relaxed) != 0 && self.ring();
        drop(step);
        // The kernel's part is not in the step, since a wake may come at any later time.
        if wake {
            let _lock = self.kernel.lock().unwrap();
            self.sleepers.notify_all();
        }
    }

    /// As `BellPage::ring_bell`.
    fn ring(&self) -> bool {
        self.bell.store(1, Ordering::Release);
        self.sleep.rouse()
    }

    /// A millisecond passes: the other process completes its step, and both see each other's stores.
    fn settle(&self) {
        if !cfg!(mend_mutation = "no_settle") {
            drop(self.step.lock().unwrap());
        }
    }

    /// Sleeps, unless `look` finds something; returns when there may be something.
    fn sleep_unless(&self, look: impl Fn() -> bool) {
        self.bell_request.store(1, Ordering::Release);
        let announced = self.sleep.announce();
        if self.last_look(&look) {
            return self.sleep.end();
        }
        // The first sleep is short, and the owner polls after it.
        self.settle();
        if self.last_look(&look) {
            return self.sleep.end();
        }
        // The kernel compares the word under its lock, and a time-out that never comes is left out.
        let mut lock = self.kernel.lock().unwrap();
        while self.sleep.is_asleep(announced) {
            lock = self.sleepers.wait(lock).unwrap();
        }
        drop(lock);
        self.sleep.end();
    }

    fn last_look(&self, look: &impl Fn() -> bool) -> bool {
        !cfg!(mend_mutation = "no_last_look") && look()
    }

    fn rung(&self) -> bool {
        self.bell.load(Ordering::Acquire) != 0
    }
}

fn ring() -> (Producer<Lines, Area, SLOTS, 0>, Consumer<Lines, Area, SLOTS, 0>) {
    let line = || Line(core::array::from_fn(|_| AtomicU64::new(0)));
    let lines: Lines = std::sync::Arc::new([line(), line()]);
    prepare(&lines);
    let area: Area = std::sync::Arc::new([]);
    let bounds = Bounds { message_bytes: 0, chunk_bytes: 0 };
    (Producer::new(lines.clone(), area.clone()), Consumer::new(lines, area, bounds))
}

fn push(producer: &mut Producer<Lines, Area, SLOTS, 0>) -> bool {
    producer.push(SlotHeader { id: 1, header: &[], chunk: false }, 0, |_| ()).is_ok()
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.max_branches = 10_000;
    builder.check(model);
}

const PREEMPTIONS: usize = 3;

/// A polled ring: the receiver polls, and sleeps where it finds nothing.
#[test]
fn a_receiver_that_polls_and_sleeps_gets_every_message() {
    check(|| {
        const MESSAGES: u32 = 2;
        let receiver = Arc::new(Process::new(0));
        let (mut producer, mut consumer) = ring();
        let sender = {
            let receiver = receiver.clone();
            thread::spawn(move || {
                for _ in 0..MESSAGES {
                    receiver.publish_and_notify(|| assert!(push(&mut producer)));
                }
            })
        };
        let mut taken = 0;
        while taken < MESSAGES {
            if consumer.take(|_| ()).unwrap() {
                taken += 1;
                continue;
            }
            receiver.sleep_unless(|| consumer.is_ready());
            receiver.bell_request.store(0, Ordering::Release);
        }
        sender.join().unwrap();
    });
}

/// A ring in doorbell mode: the receiver polls the bell, polls the ring from then on, and polls it once more before
/// it goes back to the bell, a millisecond after it cleared the bell.
#[test]
fn a_receiver_that_is_rung_and_demotes_again_gets_every_message() {
    check(|| {
        const MESSAGES: u32 = 2;
        let receiver = Arc::new(Process::new(1));
        let (mut producer, mut consumer) = ring();
        let sender = {
            let receiver = receiver.clone();
            thread::spawn(move || {
                for _ in 0..MESSAGES {
                    receiver.publish_and_notify(|| assert!(push(&mut producer)));
                }
            })
        };
        let mut taken = 0;
        while taken < MESSAGES {
            receiver.sleep_unless(|| receiver.rung());
            if !receiver.rung() {
                continue;
            }
            // The ring is polled from here on, so its bell may be cleared.
            receiver.bell.store(0, Ordering::Release);
            while consumer.take(|_| ()).unwrap() {
                taken += 1;
            }
            if cfg!(mend_mutation = "clear_bell_unpolled") {
                continue;
            }
            // Back to the bell: the last poll, which finds nothing, comes a millisecond after the store to the bell.
            receiver.settle();
            while consumer.take(|_| ()).unwrap() {
                taken += 1;
            }
        }
        sender.join().unwrap();
    });
}

/// A full ring: the sender sleeps until it gets credit, and is woken like a receiver.
#[test]
fn a_sender_that_sleeps_on_a_full_ring_gets_its_credit() {
    check(|| {
        let sender = Arc::new(Process::new(0));
        let credit = Arc::new(AtomicU32::new(START));
        let (mut producer, mut consumer) = ring();
        for _ in 0..SLOTS {
            assert!(push(&mut producer));
        }
        let receiver = {
            let (sender, credit) = (sender.clone(), credit.clone());
            thread::spawn(move || {
                assert!(consumer.take(|_| ()).unwrap());
                let consumed = consumer.give_credit();
                sender.publish_and_notify(|| credit.store(consumed, Ordering::Release));
            })
        };
        while !push(&mut producer) {
            producer.credit(credit.load(Ordering::Acquire)).unwrap();
            if !producer.has_room(0) {
                sender.sleep_unless(|| credit.load(Ordering::Acquire) != START);
            }
        }
        receiver.join().unwrap();
    });
}

/// Two wakers and a sleeper: each waker that sees "asleep" or "rung" calls the kernel.
#[test]
fn the_second_waker_wakes_the_sleeper_if_the_first_was_killed() {
    check(|| {
        let owner = Arc::new(Process::new(1));
        let published = Arc::new(AtomicU32::new(0));
        let wakers: Vec<_> = [false, true]
            .into_iter()
            .map(|lives| {
                let (owner, published) = (owner.clone(), published.clone());
                thread::spawn(move || {
                    if lives {
                        owner.publish_and_notify(|| published.store(1, Ordering::Release));
                    } else {
                        // Killed between the word and the kernel.
                        owner.sleep.rouse();
                    }
                })
            })
            .collect();
        while published.load(Ordering::Acquire) == 0 {
            owner.sleep_unless(|| published.load(Ordering::Acquire) != 0);
        }
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
    });
}
