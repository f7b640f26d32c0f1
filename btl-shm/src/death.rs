// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What becomes of a way whose peer is suspected or dead (design "How a death travels"): quarantine, resume, drain and sever.

use crate::endpoint::{Laps, State};
use crate::{NOBODY, Report, Shm, ShmEndpoint};
use mend_segment::{CHUNK_SLOTS, CONTROL_SLOTS, Garbage, MAILBOXES, MESSAGE_SLOTS};
use mend_transport::{Cause, Sink};

/// At most one lap of each ring is handed up: threads of the dead may still run for a moment.
const ONE_LAP: Laps = Laps {
    rings: [CONTROL_SLOTS as u32, MESSAGE_SLOTS as u32, CHUNK_SLOTS as u32],
    states: MAILBOXES as u32,
};

/// Life words in one look: each is a line of its own, in another page.
const LIVES_AT_ONCE: usize = 64;

impl Shm {
    /// Reads the life words of those whom nobody suspects yet, in a round. A mark is evidence like any other: whoever can
    /// write its outbox can mark it.
    #[cold]
    pub(crate) fn look_at_lives(&mut self) {
        for _ in 0..self.endpoints.len().min(LIVES_AT_ONCE) {
            self.checked = (self.checked + 1) % self.endpoints.len();
            let endpoint = &mut self.endpoints[self.checked];
            if let State::Open(link) = &endpoint.state
                && !endpoint.said_dead
                && link.theirs.life().is_marked()
            {
                endpoint.said_dead = true;
                let report = Report::Error(Cause::Exited);
                self.reports.push_back((ShmEndpoint(self.checked as u32), report));
            }
        }
    }

    pub(crate) fn quarantine_endpoint(&mut self, index: usize) {
        self.unwatch(index);
        let state = &mut self.endpoints[index].state;
        *state = match core::mem::replace(state, State::Severed) {
            State::Open(link) => State::Quarantined(link),
            other => other,
        };
    }

    /// It lives: look at it again, and say so to who found it busy. Who wrote garbage is never resumed.
    pub(crate) fn resume_endpoint(&mut self, index: usize) {
        let endpoint = &mut self.endpoints[index];
        match core::mem::replace(&mut endpoint.state, State::Severed) {
            State::Quarantined(link) => {
                endpoint.state = State::Open(link);
                endpoint.said_dead = false;
            }
            other => {
                endpoint.state = other;
                return;
            }
        }
        if endpoint.blocked {
            endpoint.unblock(self.polling.armed);
            self.blocked.retain(|&each| each as usize != index);
            self.reports.push_back((ShmEndpoint(index as u32), Report::Room));
        }
        self.promote(index);
    }

    pub(crate) fn start_to_sever(&mut self, index: usize) {
        self.unwatch(index);
        let endpoint = &mut self.endpoints[index];
        let none = Laps { rings: [0; 3], states: 0 };
        endpoint.state = match core::mem::replace(&mut endpoint.state, State::Severed) {
            State::Open(link) | State::Quarantined(link) => State::Severing(link, ONE_LAP),
            State::Garbled(link) => State::Severing(link, none),
            other => {
                endpoint.state = other;
                return;
            }
        };
        endpoint.blocked = false;
        self.blocked.retain(|&each| each as usize != index);
        // Room, or evidence, means nothing any more.
        self.reports.retain(|(each, _)| each.0 as usize != index);
        self.severing.push(index as u32);
    }

    /// Goes on with cutting off: what was whole, then `on_severed`. Gives how many events that were.
    #[cold]
    pub(crate) fn cut(&mut self, budget: u32, sink: &mut impl Sink<ShmEndpoint>) -> u32 {
        let mut events = 0;
        while events < budget
            && let Some(&index) = self.severing.first()
        {
            events += self.drain(index as usize, budget - events, sink);
            if events == budget {
                break;
            }
            self.severing.remove(0);
            self.end(index as usize);
            sink.on_severed(self.endpoints[index as usize].peer, ShmEndpoint(index));
            events += 1;
        }
        events
    }

    /// Hands up what the dead had sent whole; nothing is left where that is less than `budget`.
    fn drain(&mut self, index: usize, budget: u32, sink: &mut impl Sink<ShmEndpoint>) -> u32 {
        let endpoint = &mut self.endpoints[index];
        let State::Severing(link, laps) = &mut endpoint.state else { return 0 };
        let mut events = 0;
        // Garbage, now as before, ends what is read of it.
        while events < budget && link.theirs.is_made() == Ok(true) {
            match link.hand_up(endpoint.peer, budget - events, laps, sink) {
                Ok(0) | Err(Garbage) => break,
                Ok(some) => events += some,
            }
        }
        events
    }

    /// Unmaps what was its, and takes what was ours for it out of our directory.
    fn end(&mut self, index: usize) {
        let endpoint = &mut self.endpoints[index];
        if let State::Severing(link, _) = core::mem::replace(&mut endpoint.state, State::Severed) {
            link.mine.withdraw();
        }
        self.by_slot[endpoint.slot as usize] = NOBODY;
        self.place.bells.clear(self.place.slot, endpoint.slot);
    }
}
