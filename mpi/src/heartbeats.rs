// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The heartbeat ring over the ranks of WORLD (`mend_proto::detector`), for jobs whose launcher does not know who has failed. Without it
//! nothing here runs.
//!
//! ```text
//!   off ─▶ starting: a barrier of all ranks ─▶ beating ─▶ quit: MPI_Finalize
//!                                                │
//!                                                └─▶ fenced: this process does nothing any more, and its owner ends it
//! ```
//!
//! The ring starts when all ranks have called MPI_Init, since one that has not is silent without having failed.
//!
//! A part of the engine: it owns the detector and the messages that have arrived for it. It calls the PML alone.

use crate::layers::Layers;
use mend_base::{Instant, Key, PeerIndex, Rank, Reader, Writer};
use mend_pml::{Places, Protocol};
use mend_proto::detector::{Config, Detector, Message, Outcome, Output};
use mend_transport::{AmId, Btl};
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
    /// As which the control queue of the PML knows the messages.
    control: Option<Protocol>,
    output: Output,
}

#[derive(Debug)]
enum Phase {
    Off,
    /// The collective operation with this key ends when all ranks have called MPI_Init. The time is that of the last call of progress.
    Starting(Config, Key, Instant),
    Beating(Box<Ring>),
    Fenced,
}

#[derive(Debug)]
struct Ring {
    detector: Detector,
    inbox: VecDeque<(Rank, Message)>,
    size: u32,
    /// The others were told that this process leaves. Until the messages have left, it beats.
    has_quit: bool,
}

impl Default for Heartbeats {
    fn default() -> Self {
        Heartbeats { due: NEVER, phase: Phase::Off, control: None, output: Output::new() }
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

    /// The ring starts when this collective operation has ended.
    pub fn start(&mut self, config: Config, barrier: Key) {
        self.phase = Phase::Starting(config, barrier, NEVER);
        self.due = Instant(0);
    }

    /// Looks at the time before the ring has started here. The others may have started: if this process was stopped for longer than a lease,
    /// they may have declared it failed. Returns whether it must fence itself.
    pub fn was_stopped_at_start(&mut self, now: Instant) -> bool {
        let Phase::Starting(config, _, seen) = &mut self.phase else { return false };
        let before = core::mem::replace(seen, now);
        before != NEVER && config.lease.is_some_and(|lease| now - before >= lease.span)
    }

    /// The operation that ends when all ranks have called MPI_Init, and the configuration.
    pub fn starting(&self) -> Option<(Config, Key)> {
        match self.phase {
            Phase::Starting(config, barrier, _) => Some((config, barrier)),
            Phase::Off | Phase::Beating(_) | Phase::Fenced => None,
        }
    }

    /// All ranks have called MPI_Init.
    pub fn begin(&mut self, now: Instant, me: Rank, size: u32, config: Config) {
        let detector = Detector::new(now, me, size, config);
        self.phase =
            Phase::Beating(Box::new(Ring { detector, inbox: VecDeque::new(), size, has_quit: false }));
        self.due = Instant(0);
    }

    /// A message has arrived. `false`: garbage. A rank whose ring has not started yet hears an early beat: the next one comes soon.
    pub fn on_message(&mut self, from: PeerIndex, header: &[u8]) -> bool {
        let Some(message) = Message::read(&mut Reader::new(header)) else { return false };
        let Phase::Beating(ring) = &mut self.phase else { return true };
        if from.0 >= ring.size {
            return false;
        }
        if ring.inbox.len() < INBOX_MAX {
            ring.inbox.push_back((Rank(from.0), message));
            self.due = Instant(0);
        }
        true
    }

    /// Whether others may have declared this process failed.
    pub fn lease_is_over(&self, now: Instant) -> bool {
        matches!(&self.phase, Phase::Beating(ring) if ring.detector.lease_is_over(now))
    }

    /// Looks at the messages that have arrived, then at the time: who was late itself finds beats waiting, and declares nobody for its own
    /// silence. Sends what is to be sent. Returns the next outcome, until there is none.
    pub fn advance<N: Btl, R>(&mut self, now: Instant, layers: &mut Layers<N, R>) -> Option<Outcome> {
        let Phase::Beating(ring) = &mut self.phase else { return None };
        while let Some((from, message)) = ring.inbox.pop_front() {
            ring.detector.on_message(now, from, message, &mut self.output);
        }
        if ring.detector.next_timeout().is_some_and(|due| due <= now) {
            ring.detector.on_timeout(now, &mut self.output);
        }
        self.settle(layers)
    }

    /// The end of a member is published here.
    pub fn on_end<N: Btl, R>(
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

    /// This process leaves MPI: the others are told, once. Returns whether that is now. Until the messages have left, this process beats,
    /// and has a lease: a member that does not hear that it leaves may take it for dead.
    pub fn quit<N: Btl, R>(&mut self, layers: &mut Layers<N, R>) -> bool {
        let Phase::Beating(ring) = &mut self.phase else { return false };
        if core::mem::replace(&mut ring.has_quit, true) {
            return false;
        }
        ring.detector.clone().quit(&mut self.output);
        self.send(layers);
        true
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

    fn settle<N: Btl, R>(&mut self, layers: &mut Layers<N, R>) -> Option<Outcome> {
        let outcome =
            if self.output.outcomes.is_empty() { None } else { Some(self.output.outcomes.remove(0)) };
        match outcome {
            Some(Outcome::Fence) => self.fence(),
            Some(_) => self.due = Instant(0),
            None => {
                self.send(layers);
                if let Phase::Beating(ring) = &self.phase {
                    self.due = ring.detector.next_timeout().unwrap_or(NEVER);
                }
            }
        }
        outcome
    }

    /// Messages leave at once, since the program may compute next.
    fn send<N: Btl, R>(&mut self, layers: &mut Layers<N, R>) {
        if self.output.sends.is_empty() {
            return;
        }
        let Layers { net, pml, .. } = layers;
        if self.control.is_none() {
            self.control = pml.open_control(AM_ID, Places::OnDemand(WAITING_MAX)).ok();
        }
        let Some(control) = self.control else { return };
        for (to, message) in self.output.sends.drain(..) {
            let mut bytes = [0; Message::BYTES_MAX];
            let mut out = Writer::new(&mut bytes);
            message.write(&mut out);
            let length = out.used();
            // A beat that finds no place is one of many.
            _ = pml.send_control(PeerIndex(to.0), control, &bytes[..length]);
        }
        pml.send_waiting(net);
    }
}
