// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contract of a BTL, sentence by sentence, over shared memory: each "process" is an [`Shm`] with an outbox of its
//! own, so that what passes between them is what would pass between processes.

use mend_base::parameter::Settings;
use mend_base::{Duration, Instant};
use mend_btl_shm::{Place, Shm};
use mend_segment::{BellPage, Woken};
use mend_transport::conformance::Fixture;
use std::sync::Arc;

struct Node {
    bells: Arc<BellPage>,
}

impl Fixture for Node {
    type Btl = Shm;

    fn start(count: usize, settings: &Settings) -> (Self, Vec<Shm>) {
        let slots = count as u32;
        let (bells, _descriptor) = BellPage::create(slots).expect("a bell page for a test");
        let bells = Arc::new(bells);
        let make = |slot| {
            let place = Place { slot, slots, bells: Arc::clone(&bells) };
            Shm::new(place, settings, Instant(0)).expect("an outbox for a test")
        };
        let all = (0..slots).map(make).collect();
        (Node { bells }, all)
    }

    fn announce_sleep(&mut self, index: usize) {
        self.bells.announce_sleep(index as u32);
    }

    fn was_woken(&mut self, index: usize) -> Option<bool> {
        let woken = self.bells.sleep(index as u32, Duration(0)) == Woken::Rung;
        self.bells.leave_sleep(index as u32);
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
