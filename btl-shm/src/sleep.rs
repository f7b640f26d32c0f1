// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arming before sleep, when every peer is asked to ring, and disarming after it.

use crate::Shm;
use crate::endpoint::{ArrivalMode, State};
use mend_segment::BellRequest;
use mend_transport::EventPending;
use std::sync::atomic::{Ordering, fence};

impl Shm {
    /// Requests bells from all peers, then polls everything.
    #[cold]
    pub(crate) fn prepare_to_sleep(&mut self) -> Result<(), EventPending> {
        (self.polling.armed, self.polling.unusual) = (true, true);
        self.clear_waits_for_room();
        for &index in self.polling.polled.iter().chain(&self.blocked) {
            self.endpoints[index as usize].request_bells();
        }
        // SYNC: our bell requests before our polls, with no other side: these polls see what a peer published before it
        // read the old request, except what is in its store buffer (the first timed poll sees that).
        fence(Ordering::SeqCst);
        self.answer_bells(self.node.slots);
        if cfg!(mend_mutation = "no_last_look") {
            return Ok(());
        }
        self.check_all_rings();
        let arrived = self.polling.polled.iter().any(|&index| self.endpoints[index as usize].is_ready());
        let control =
            self.polling.held_back.iter().any(|&index| self.endpoints[index as usize].has_control());
        if arrived || control || !self.callbacks.is_empty() || !self.severing.is_empty() || self.is_roomy() {
            return Err(EventPending);
        }
        self.statistics.armed_holding_back += u64::from(!self.polling.held_back.is_empty());
        Ok(())
    }

    #[cold]
    pub(crate) fn clear_bell_requests(&mut self) {
        self.polling.armed = false;
        for &index in &self.polling.polled {
            let endpoint = &self.endpoints[index as usize];
            if let (State::Open(pair), ArrivalMode::Polled { .. }) = (&endpoint.state, endpoint.mode) {
                pair.mine.set_bell_request(BellRequest::NONE);
            }
        }
        for &index in &self.blocked {
            let endpoint = &self.endpoints[index as usize];
            if let (State::Open(pair), ArrivalMode::Doorbell) = (&endpoint.state, endpoint.mode) {
                pair.mine.set_bell_request(BellRequest::MESSAGES);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::pair::{Delivered, pair, receive_one, send_one};
    use mend_base::Instant;
    use mend_transport::{Btl, WakeSet};

    #[test]
    fn a_peer_rings_a_process_that_sleeps_and_not_one_that_is_awake_again() {
        let ([mut sender, mut receiver], endpoint) = pair();
        let mut delivered = Delivered::default();
        receiver.progress(Instant(0), 100, &mut delivered);
        assert_eq!(receiver.arm(&mut WakeSet::default()), Ok(()));
        send_one(&mut sender, endpoint);
        assert_eq!(sender.statistics().bells_rung, 1);
        assert!(receiver.arm(&mut WakeSet::default()).is_err(), "there is something");
        receiver.disarm();
        receive_one(&mut receiver, &mut delivered);
        send_one(&mut sender, endpoint);
        assert_eq!(sender.statistics().bells_rung, 1);
    }
}
