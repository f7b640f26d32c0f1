// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contract of a BTL, requirement by requirement, over shared memory: each "process" is an [`Shm`] with a separate outbox,
//! so that they exchange what processes would exchange.

use mend_base::Duration;
use mend_base::parameter::{Declared, Settings};
use mend_btl_shm::{NodeSlot, PARAMETERS, Shm};
use mend_segment::{AnnouncedSleep, BellPage, Life, Woken};
use mend_transport::conformance::Fixture;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

struct Node {
    bells: Arc<BellPage>,
    processes: Vec<Option<Process>>,
    announced: Vec<Option<AnnouncedSleep>>,
}

/// A thread that holds the life word of a "process". The kernel marks it when the thread ends, as when a process does.
struct Process {
    end: Sender<()>,
    /// Gives back the life word, still held at its end if it was told to end.
    thread: JoinHandle<Option<Life>>,
}

impl Process {
    fn start(life: Life) -> Self {
        let ((end, ended), (begin, begun)) = (channel(), channel());
        let thread = std::thread::spawn(move || {
            life.begin().expect("robust mutexes for a test");
            begin.send(()).expect("somebody waits for it");
            // A message means that the thread ends without `end` and without a release; a dropped sender means `end`.
            ended.recv().is_ok().then_some(life)
        });
        begun.recv().expect("the thread begins");
        Process { end, thread }
    }

    fn end(self) {
        self.end.send(()).expect("the thread waits for it");
        drop(self.thread.join().expect("it only waits"));
    }
}

impl Fixture for Node {
    type Btl = Shm;
    const SEES_DEATHS: bool = true;

    fn start(count: usize) -> (Self, Vec<Shm>) {
        let slots = count as u32;
        let (bells, _descriptor) = BellPage::create(slots).expect("a bell page for a test");
        let bells = Arc::new(bells);
        let make = |slot| {
            let node = NodeSlot { slot, slots, bells: Arc::clone(&bells) };
            Shm::new(node, 4096, &Settings::new(Declared(&[PARAMETERS]))).expect("an outbox for a test")
        };
        let all: Vec<Shm> = (0..slots).map(make).collect();
        let processes = all.iter().map(|shm| Some(Process::start(shm.life()))).collect();
        (Node { bells, processes, announced: vec![None; count] }, all)
    }

    fn abandon(&mut self, index: usize, btl: Shm) {
        self.processes[index].take().expect("a process ends once").end();
        drop(btl);
    }

    fn announce_sleep(&mut self, index: usize) {
        self.announced[index] = Some(self.bells.announce_sleep(index as u32));
    }

    fn was_woken(&mut self, index: usize) -> Option<bool> {
        let announced = self.announced[index].take().expect("a sleep is announced before it ends");
        let woken = self.bells.sleep(index as u32, announced, Duration(0)) == Woken::Rung;
        self.bells.end_sleep(index as u32);
        Some(woken)
    }
}

mod plain {
    mend_transport::conformance!(super::Node);
}

mod injected {
    mend_transport::conformance!(mend_transport::conformance::Injected<super::Node>);
}

mod counted {
    mend_transport::conformance!(mend_transport::conformance::Counted<super::Node>);
}
