// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The heartbeat ring over the ranks of WORLD (`mend_proto::detector`), for jobs whose launcher does not know who has failed. Without it
//! nothing here runs.
//!
//! ```text
//!   off ─▶ starting: a barrier of all ranks, or a message ─▶ beating ─▶ quit: MPI_Finalize
//!                                                │
//!                                                └─▶ fenced: this process does nothing any more, and its owner ends it
//! ```
//!
//! The ring starts when all ranks have called MPI_Init, since one that has not is silent without having failed. A message of another rank's
//! ring shows that they have.
//!
//! A part of the engine: it owns the detector and the messages that have arrived for it. It calls the PML alone.

use crate::layers::Layers;
use mend_base::{Instant, Key, PeerIndex, Rank, Reader, Writer};
use mend_pml::{Places, Protocol};
use mend_proto::detector::{Config, Detector, Message, Outcome, Output, Presence};
use mend_transport::{AmId, Rdma};
use std::collections::VecDeque;

/// Their active-message id.
pub(crate) const AM_ID: AmId = AmId(4);

/// So many messages may wait for one peer. A peer that takes none is stopped or dead, and the next beat says as much as the lost one.
const WAITING_MAX: u32 = 8;

/// So many messages that have arrived are stored: several of each observer and each observed member.
const INBOX_MAX: usize = 1024;

/// The time of what is never due.
const NEVER: Instant = Instant(u64::MAX);

/// The part of this process in the ring.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    /// When the next call of [`advance`](Heartbeats::advance) is due.
    due: Instant,
    phase: Phase,
    /// The collective operation that ends when all ranks have called MPI_Init, until it has ended here and is released.
    barrier: Option<Key>,
    /// As which the control queue of the PML knows the messages.
    control: Option<Protocol>,
    output: Output,
}

#[derive(Debug)]
enum Phase {
    Off,
    Starting(Start),
    Beating(Box<Ring>),
    Fenced,
}

#[derive(Clone, Copy, Debug)]
struct Start {
    config: Config,
    /// At the calls of progress: others may have started, and listen to this process.
    presence: Presence,
    /// Another rank's ring has started.
    is_heard: bool,
}

#[derive(Debug)]
struct Ring {
    detector: Detector,
    inbox: VecDeque<(Rank, Message)>,
    size: u32,
    /// `Some`: this process leaves, and these are to be told. Until the messages have left, it beats.
    to_tell: Option<Vec<Rank>>,
}

impl Default for Heartbeats {
    fn default() -> Self {
        Heartbeats { due: NEVER, phase: Phase::Off, barrier: None, control: None, output: Output::new() }
    }
}

impl Heartbeats {
    // Hot: per progress.
    /// Whether there is something to do before anything else.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    /// Whether the ring decides who has failed.
    #[inline]
    pub fn decides(&self) -> bool {
        matches!(self.phase, Phase::Beating(_))
    }

    /// Whether this process has fenced itself.
    pub fn is_fenced(&self) -> bool {
        matches!(self.phase, Phase::Fenced)
    }

    /// Whether a peer has said that it leaves, or its end is published: it needs no message any more. One that dies after it has said so is
    /// declared failed by nobody.
    pub fn has_left(&self, peer: PeerIndex) -> bool {
        match &self.phase {
            Phase::Beating(ring) => ring.detector.is_absent(Rank(peer.0)),
            Phase::Off | Phase::Starting(_) | Phase::Fenced => false,
        }
    }

    /// The ring starts when this collective operation has ended.
    pub fn start(&mut self, now: Instant, config: Config, barrier: Key) {
        self.phase = Phase::Starting(Start { config, presence: Presence::new(now), is_heard: false });
        self.barrier = Some(barrier);
        self.due = Instant(0);
    }

    /// The configuration, before the ring has started.
    pub fn starting(&self) -> Option<Config> {
        match &self.phase {
            Phase::Starting(start) => Some(start.config),
            Phase::Off | Phase::Beating(_) | Phase::Fenced => None,
        }
    }

    /// The operation that ends when all ranks have called MPI_Init.
    pub fn barrier(&self) -> Option<Key> {
        self.barrier
    }

    /// That operation has ended here, and is released.
    pub fn on_barrier(&mut self) {
        self.barrier = None;
    }

    /// Begins, once all ranks have called MPI_Init. Returns whether that is now.
    pub fn begin_if_all_started(&mut self, now: Instant, me: Rank, size: u32) -> bool {
        let Phase::Starting(start) = &self.phase else { return false };
        if !start.is_heard && self.barrier.is_some() {
            return false;
        }
        let detector = Detector::new(now, me, size, start.config, start.presence);
        self.phase = Phase::Beating(Box::new(Ring { detector, inbox: VecDeque::new(), size, to_tell: None }));
        true
    }

    /// A message has arrived. `false`: garbage. A rank whose ring has not started yet does not keep an early message: another comes soon.
    pub fn on_message(&mut self, from: PeerIndex, header: &[u8]) -> bool {
        let Some(message) = Message::read(&mut Reader::new(header)) else { return false };
        let ring = match &mut self.phase {
            Phase::Beating(ring) => ring,
            Phase::Starting(start) => {
                start.is_heard = true;
                return true;
            }
            Phase::Off | Phase::Fenced => return true,
        };
        if from.0 >= ring.size {
            return false;
        }
        if ring.inbox.len() < INBOX_MAX {
            ring.inbox.push_back((Rank(from.0), message));
            self.due = Instant(0);
        }
        true
    }

    /// Whether others may have declared this process failed. Before the ring has started here, those that have started may listen to it.
    pub fn lease_is_over(&mut self, now: Instant) -> bool {
        match &mut self.phase {
            Phase::Beating(ring) => ring.detector.lease_is_over(now),
            Phase::Starting(Start { config, presence, .. }) => {
                presence.on_run(now, config);
                presence.lease_is_over(now, config)
            }
            Phase::Off | Phase::Fenced => false,
        }
    }

    /// Looks at the messages that have arrived, then at the time: who was late itself finds beats waiting, and declares nobody for its own
    /// silence. Sends what is to be sent. Returns the next outcome, until there is none.
    pub fn advance<N: Rdma, R>(&mut self, now: Instant, layers: &mut Layers<N, R>) -> Option<Outcome> {
        let Phase::Beating(ring) = &mut self.phase else { return None };
        while let Some((from, message)) = ring.inbox.pop_front() {
            ring.detector.on_message(now, from, message, &mut self.output);
            if let (Message::Observe, Some(to_tell)) = (message, &mut ring.to_tell)
                && !to_tell.contains(&from)
            {
                to_tell.push(from);
            }
        }
        if ring.detector.next_timeout().is_some_and(|due| due <= now) {
            ring.detector.on_timeout(now, &mut self.output);
        }
        self.settle(layers)
    }

    /// The end of a member is published here.
    pub fn on_end<N: Rdma, R>(
        &mut self,
        now: Instant,
        peer: PeerIndex,
        has_failed: bool,
        layers: &mut Layers<N, R>,
    ) {
        let Phase::Beating(ring) = &mut self.phase else { return };
        if peer.0 < ring.size && has_failed {
            ring.detector.on_failure(now, Rank(peer.0), &mut self.output);
        } else if peer.0 < ring.size {
            ring.detector.on_departure(now, Rank(peer.0), &mut self.output);
        }
        self.send(layers);
        // The outcomes are looked at by the next call of progress.
        self.due = Instant(0);
    }

    /// This process leaves MPI: the others are told. Returns whether some were told just now, or are still to be told since the queue to them
    /// is full. Until the messages have left, this process beats, and has a lease: a member that does not hear that it leaves may take it
    /// for dead.
    pub fn quit<N: Rdma, R>(&mut self, layers: &mut Layers<N, R>) -> bool {
        let Phase::Beating(ring) = &mut self.phase else { return false };
        if ring.to_tell.is_none() {
            let mut last = Output::new();
            ring.detector.clone().quit(&mut last);
            ring.to_tell = Some(last.sends.into_iter().map(|(to, _)| to).collect());
        }
        let to_tell = ring.to_tell.as_mut().map(core::mem::take).unwrap_or_default();
        let tells = !to_tell.is_empty();
        let left = to_tell.into_iter().filter(|&to| !self.send_one(to, &Message::Quit, layers)).collect();
        if let Phase::Beating(ring) = &mut self.phase {
            ring.to_tell = Some(left);
        }
        layers.pml.send_waiting(&mut layers.net);
        tells
    }

    /// This process has left MPI.
    pub fn end(&mut self) {
        (self.phase, self.due) = (Phase::Off, NEVER);
    }

    /// Other members say that this process has failed.
    pub fn fence(&mut self) {
        // From now on each call of progress does nothing.
        (self.phase, self.due) = (Phase::Fenced, Instant(0));
    }

    fn settle<N: Rdma, R>(&mut self, layers: &mut Layers<N, R>) -> Option<Outcome> {
        let outcome =
            if self.output.outcomes.is_empty() { None } else { Some(self.output.outcomes.remove(0)) };
        match outcome {
            Some(Outcome::Fence) => self.fence(),
            Some(_) => self.due = Instant(0),
            None => {
                self.send(layers);
                if let Phase::Beating(ring) = &self.phase
                    && self.barrier.is_none()
                {
                    self.due = ring.detector.next_timeout().unwrap_or(NEVER);
                }
            }
        }
        outcome
    }

    /// Messages leave at once, since the program may compute next.
    fn send<N: Rdma, R>(&mut self, layers: &mut Layers<N, R>) {
        if self.output.sends.is_empty() {
            return;
        }
        let mut sends = core::mem::take(&mut self.output.sends);
        for (to, message) in sends.drain(..) {
            // One that finds no place is one of many.
            self.send_one(to, &message, layers);
        }
        self.output.sends = sends;
        layers.pml.send_waiting(&mut layers.net);
    }

    /// Returns whether the message has found a place in the queue.
    fn send_one<N: Rdma, R>(&mut self, to: Rank, message: &Message, layers: &mut Layers<N, R>) -> bool {
        if self.control.is_none() {
            self.control = layers.pml.open_control(AM_ID, Places::OnDemand(WAITING_MAX)).ok();
        }
        let Some(control) = self.control else { return false };
        let mut bytes = [0; Message::BYTES_MAX];
        let mut out = Writer::new(&mut bytes);
        message.write(&mut out);
        let length = out.used();
        layers.pml.send_control(PeerIndex(to.0), control, &bytes[..length]).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Heartbeats;
    use mend_base::{Duration, Instant, Key, PeerIndex, Rank, Writer};
    use mend_proto::detector::{Config, Message};

    const CONFIG: Config = Config {
        period: Duration::from_millis(10),
        timeout: Duration::from_millis(50),
        observers: 1,
        lease: None,
    };

    /// Others listen to it already, and their barrier may have ended long before.
    #[test]
    fn a_rank_starts_its_ring_when_it_hears_that_of_another_one() {
        let mut heartbeats = Heartbeats::default();
        heartbeats.start(Instant(1), CONFIG, Key { index: 0, generation: 0 });
        assert!(!heartbeats.begin_if_all_started(Instant(2), Rank(0), 2));
        let mut bytes = [0; Message::BYTES_MAX];
        let mut out = Writer::new(&mut bytes);
        Message::Observe.write(&mut out);
        let length = out.used();
        assert!(heartbeats.on_message(PeerIndex(1), &bytes[..length]));
        assert!(heartbeats.begin_if_all_started(Instant(3), Rank(0), 2));
        assert!(heartbeats.decides() && heartbeats.barrier().is_some(), "the barrier goes on");
    }
}
