// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads that a rail holds up without an error, since its wire is cut or its connection is dead.
//!
//! Frames that are not acknowledged are asked for; of a read only the device knows. So a peer whose reads have stood still for a while is probed.
//! If it answers, it is not stopped, and the reads stand still because of their way: the endpoint of reads is closed, so that the device
//! accesses no buffer of them any more, and they are posted again. If messages go by another rail than they did, their rail gets no more
//! reads of this peer until the peer has answered a probe by it.
//!
//! Reads may also wait for a device that does not take them: one that connects says "again" for as long as it tries, also over a dead wire. They
//! go by another rail, or the peer sends the bytes.

use crate::connection::{Connection, State};
use crate::ofi::Ofi;
use crate::transfers::OnDevice;
use mend_base::{Duration, Instant};

/// How often reads are looked at.
const PERIOD: Duration = Duration::from_millis(250);
/// How long the reads of a peer may stand still on a rail before the peer is probed.
const STALL_MIN: Duration = Duration::from_millis(500);
/// How long they may stand still before they are posted again, if the peer answers; at first. Twice as long after each time, so that a read over a slow
/// wire ends at last: a wire that moves 1 MiB in 64 s has 130 kbit/s.
const STALL_MAX: Duration = Duration::from_millis(2_000);
const STALL_DOUBLINGS: u32 = 5;

impl Ofi {
    /// Looks at reads and broken rails, if that is due.
    pub(crate) fn look_at_stalls(&mut self) {
        if self.now < self.next_stall_look {
            return;
        }
        self.next_stall_look = self.now + PERIOD;
        let mut closing = [false; crate::exposures::RAILS_MAX];
        let mut broken: Vec<OnDevice> = Vec::new();
        for transfer in self.transfers.on_devices() {
            let connection = &mut self.connections[transfer.connection as usize];
            match connection.stall(transfer.rail, transfer.since, self.now) {
                Stall::None => {}
                Stall::Doubtful => connection.ask_soon(self.now),
                Stall::Broken => broken.push(transfer),
            }
        }
        for transfer in broken {
            let connection = &mut self.connections[transfer.connection as usize];
            let is_other = transfer.rail != connection.rail;
            connection.on_stall(transfer.rail, self.now);
            if transfer.is_posted {
                closing[transfer.rail] = true;
            } else if !is_other {
                self.get_by_messages(transfer.key, transfer.connection);
            }
        }
        (0..self.rails.len()).filter(|&rail| closing[rail]).for_each(|rail| self.renew_transfers(rail));
        self.probe_broken_paths();
    }

    /// A read of the peer failed on this rail. Returns whether that concerns the rail alone, since messages go by another one.
    pub(crate) fn leave_rail(&mut self, index: u32, rail: usize) -> bool {
        let connection = &mut self.connections[index as usize];
        let is_other = rail != connection.rail;
        if let Some(path) = connection.paths[rail].as_mut().filter(|_| is_other) {
            path.is_broken = true;
        }
        is_other
    }

    /// A peer that answers by a rail may be read by it again.
    fn probe_broken_paths(&mut self) {
        let mut is_any_broken = false;
        for index in 0..self.connections.len() as u32 {
            let connection = &self.connections[index as usize];
            if connection.state != State::Connected {
                continue;
            }
            let is_broken =
                |rail: &usize| connection.paths[*rail].as_ref().is_some_and(|path| path.is_broken);
            let broken: Vec<usize> = (0..connection.paths.len()).filter(is_broken).collect();
            is_any_broken |= !broken.is_empty();
            broken.into_iter().for_each(|rail| _ = self.send_probe_by(index, rail, 0));
        }
        if is_any_broken {
            self.break_stuck();
        }
    }
}

/// What is known of a read that has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stall {
    None,
    /// The peer may be stopped.
    Doubtful,
    /// The peer answers probes, and reads stand still.
    Broken,
}

impl Connection {
    /// A read of this peer has ended.
    pub(crate) fn on_read_ended(&mut self, rail: usize, now: Instant) {
        if let Some(path) = &mut self.paths[rail] {
            path.read_ended = now;
            path.stalls = 0;
        }
    }

    /// Reads of this peer stood still on this rail. Several of them count once.
    fn on_stall(&mut self, rail: usize, now: Instant) {
        let is_broken = rail != self.rail;
        if let Some(path) = &mut self.paths[rail] {
            path.is_broken |= is_broken;
            path.stalls += u32::from(path.stall_seen != now);
            path.stall_seen = now;
        }
    }

    /// The way was broken: reads that stood still then say nothing about how slow it is.
    pub(crate) fn forget_stalls(&mut self) {
        self.paths.iter_mut().flatten().for_each(|path| path.stalls = 0);
    }

    /// Judges a read that the device of a rail has had, or has not taken, since then.
    fn stall(&self, rail: usize, since: Instant, now: Instant) -> Stall {
        let Some(path) = &self.paths[rail] else { return Stall::None };
        let since = since.max(path.read_ended);
        let stall_max = Duration(STALL_MAX.0 << path.stalls.min(STALL_DOUBLINGS));
        // An answer that came soon after the read was posted says nothing, if this process was stopped then: the bytes may be in its socket.
        let has_answered = self.probe.answered_at >= since + STALL_MIN;
        if self.state != State::Connected || self.trouble.is_some() || now - since < STALL_MIN {
            Stall::None
        } else if now - since >= stall_max && has_answered {
            Stall::Broken
        } else {
            Stall::Doubtful
        }
    }

    /// The next probe comes at once, unless one is under way or there was one lately.
    fn ask_soon(&mut self, now: Instant) {
        if self.probe.unanswered_since.is_none() && now - self.probe.sent >= PERIOD {
            self.probe.due = now;
            self.is_asking = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Instant, PERIOD, STALL_MAX, STALL_MIN, Stall};
    use crate::connection::tests::connected;

    #[test]
    fn a_read_over_a_slow_wire_is_given_ever_more_time() {
        let mut connection = connected();
        for stalls in 1..10 {
            connection.on_stall(0, Instant(stalls));
        }
        let path = connection.paths[0].as_ref().unwrap();
        assert_eq!((path.stalls, path.is_broken), (9, false));
        let number = connection.on_probe(Instant(9));
        connection.on_answer(number, [0, 0], Instant(9) + STALL_MAX);
        let at = |seconds: u64| Instant(9) + mend_base::Duration::from_millis(1_000 * seconds);
        assert_eq!(connection.stall(0, Instant(9), at(63)), Stall::Doubtful);
        assert_eq!(connection.stall(0, Instant(9), at(64)), Stall::Broken);
        connection.forget_stalls();
        assert_eq!(connection.stall(0, Instant(9), at(3)), Stall::Broken);
    }

    #[test]
    fn reads_that_stand_still_are_broken_only_if_the_peer_answers_meanwhile() {
        let mut connection = connected();
        let posted = Instant(7);
        let later = posted + STALL_MAX;
        assert_eq!(connection.stall(0, posted, posted), Stall::None);
        assert_eq!(connection.stall(0, posted, posted + STALL_MIN), Stall::Doubtful);
        assert_eq!(connection.stall(0, posted, later), Stall::Doubtful, "it may be stopped");
        connection.ask_soon(later);
        assert_eq!(connection.probe_due(false), Some(later));
        let number = connection.on_probe(later);
        connection.on_answer(number, [0, 0], later + PERIOD);
        assert_eq!(connection.stall(0, posted, later + PERIOD), Stall::Broken);
        connection.on_stall(0, later + PERIOD);
        connection.on_stall(0, later + PERIOD);
        assert_eq!(connection.stall(0, posted, later + PERIOD), Stall::Doubtful, "longer the second time");
        assert_eq!(connection.stall(0, posted, later + STALL_MAX), Stall::Broken);
        connection.on_read_ended(0, later + PERIOD);
        assert_eq!(connection.stall(0, posted, later + PERIOD), Stall::None, "another read has ended");
        assert_eq!(connection.stall(0, posted, later + PERIOD + STALL_MAX), Stall::Doubtful);
        connection.begin_trouble(later);
        assert_eq!(connection.stall(0, posted, later + PERIOD + STALL_MAX), Stall::None, "probed already");
    }
}
