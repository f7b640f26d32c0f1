// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How an endpoint ends: quarantine and resume, garbage, and severing with its drain.

use crate::block_pair::Quota;
use crate::endpoint::State;
use crate::{Callback, NOBODY, Shm, ShmEndpoint};
use mend_segment::{CHUNK_SLOTS, CONTROL_SLOTS, Garbage, MAILBOXES, MESSAGE_SLOTS};
use mend_transport::{Cause, Sink};

/// The most that is drained from a dead peer: one length of each ring, since its threads may still write for a moment.
const RING_LENGTHS: Quota = Quota {
    rings: [CONTROL_SLOTS as u32, MESSAGE_SLOTS as u32, CHUNK_SLOTS as u32],
    mailboxes: MAILBOXES as u32,
};

impl Shm {
    pub(crate) fn quarantine_endpoint(&mut self, index: usize) {
        self.stop_polling(index);
        let state = &mut self.endpoints[index].state;
        *state = match core::mem::replace(state, State::Severed) {
            State::Open(pair) => State::Quarantined(pair),
            other => other,
        };
    }

    /// The peer wrote garbage, which is reported once; nothing more is read from the peer.
    #[cold]
    pub(crate) fn found_garbage(&mut self, index: usize) {
        self.stop_polling(index);
        let endpoint = &mut self.endpoints[index];
        endpoint.invalid_credit = false;
        match core::mem::replace(&mut endpoint.state, State::Severed) {
            State::Open(pair) => endpoint.state = State::Garbled(pair),
            other => {
                endpoint.state = other;
                return;
            }
        }
        self.callbacks.push_back((ShmEndpoint(index as u32), Callback::Error(Cause::Garbage)));
    }

    /// The peer lives: its rings are polled again, and `on_sendable` is called if a send found no room. An endpoint whose peer wrote
    /// garbage is never resumed.
    pub(crate) fn resume_endpoint(&mut self, index: usize) {
        let endpoint = &mut self.endpoints[index];
        match core::mem::replace(&mut endpoint.state, State::Severed) {
            State::Quarantined(pair) => endpoint.state = State::Open(pair),
            other => {
                endpoint.state = other;
                return;
            }
        }
        if endpoint.blocked {
            endpoint.unblock(self.polling.armed);
            self.blocked.retain(|&each| each as usize != index);
            self.callbacks.push_back((ShmEndpoint(index as u32), Callback::Room));
        }
        self.promote(index);
    }

    pub(crate) fn start_to_sever(&mut self, index: usize) {
        self.stop_polling(index);
        let endpoint = &mut self.endpoints[index];
        let none = Quota { rings: [0; 3], mailboxes: 0 };
        endpoint.state = match core::mem::replace(&mut endpoint.state, State::Severed) {
            State::Open(pair) | State::Quarantined(pair) => State::Severing(pair, RING_LENGTHS),
            State::Garbled(pair) => State::Severing(pair, none),
            other => {
                endpoint.state = other;
                return;
            }
        };
        endpoint.blocked = false;
        self.blocked.retain(|&each| each as usize != index);
        // Callbacks about room and errors of this endpoint are no longer needed.
        self.callbacks.retain(|(each, _)| each.0 as usize != index);
        self.severing.push(index as u32);
    }

    /// Goes on severing: delivers complete messages, then calls `on_severed`. Returns the number of events.
    #[cold]
    pub(crate) fn disconnect_some(&mut self, budget: u32, sink: &mut impl Sink<ShmEndpoint>) -> u32 {
        let mut events = 0;
        while events < budget
            && let Some(&index) = self.severing.first()
        {
            events += self.drain(index as usize, budget - events, sink);
            if events == budget {
                break;
            }
            self.severing.remove(0);
            self.unmap_peer(index as usize);
            sink.on_severed(self.endpoints[index as usize].peer, ShmEndpoint(index));
            events += 1;
        }
        events
    }

    /// Delivers complete messages of the dead peer, and returns their number; fewer than `budget` means that none is left.
    fn drain(&mut self, index: usize, budget: u32, sink: &mut impl Sink<ShmEndpoint>) -> u32 {
        let endpoint = &mut self.endpoints[index];
        let State::Severing(pair, quota) = &mut endpoint.state else { return 0 };
        let mut events = 0;
        // Garbage ends the drain.
        while events < budget && pair.theirs.block_exists() == Ok(true) {
            match pair.hand_up(endpoint.peer, budget - events, quota, sink) {
                Ok(0) | Err(Garbage) => break,
                Ok(some) => events += some,
            }
        }
        events
    }

    /// Unmaps the peer's outbox, and removes its block from our directory.
    fn unmap_peer(&mut self, index: usize) {
        let endpoint = &mut self.endpoints[index];
        if let State::Severing(pair, _) = core::mem::replace(&mut endpoint.state, State::Severed) {
            pair.mine.release();
        }
        self.by_slot[endpoint.slot as usize] = NOBODY;
        self.node.bells.clear(self.node.slot, endpoint.slot);
    }
}
