// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contract of a BTL, requirement by requirement, over shared memory: each "process" is an [`Shm`] with a separate outbox,
//! so that they exchange what processes would exchange.

use mend_base::Duration;
use mend_base::parameter::{Declared, Settings};
use mend_btl_shm::{NodeSlot, PARAMETERS, Shm};
use mend_segment::{AnnouncedSleep, BellPage, Woken};
use mend_transport::conformance::Fixture;
use std::sync::Arc;

struct Node {
    bells: Arc<BellPage>,
    announced: Vec<Option<AnnouncedSleep>>,
}

impl Fixture for Node {
    type Btl = Shm;

    fn start(count: usize) -> (Self, Vec<Shm>) {
        let slots = count as u32;
        let (bells, _descriptor) = BellPage::create(slots).expect("a bell page for a test");
        let bells = Arc::new(bells);
        let make = |slot| {
            let node = NodeSlot { slot, slots, bells: Arc::clone(&bells) };
            Shm::new(node, &Settings::new(Declared(&[PARAMETERS]))).expect("an outbox for a test")
        };
        let all: Vec<Shm> = (0..slots).map(make).collect();
        (Node { bells, announced: vec![None; count] }, all)
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
