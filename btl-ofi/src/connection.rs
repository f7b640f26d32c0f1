// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of one peer: its addresses, the frames in both directions, and whether the way to it works.
//!
//! **Probes.** A probe asks the peer's BTL for an answer. It is sent when a connection begins, when the way to the peer may be broken, when
//! frames were not acknowledged for a while, and when somebody waits for the peer. Probes and answers are in no sequence, and may be
//! lost. The answer to a probe says which frames have arrived; what was posted before the probe and has not arrived is lost, since the
//! provider keeps messages in order, and is posted again.
//!
//! **Trouble.** From the first evidence on that the way is broken until the peer has answered a later probe, no frame of a sequence is
//! posted. The answer begins a new epoch: errors of operations of earlier epochs mean nothing any more.

use crate::frame::{FrameClass, tag};
use crate::sequence::{Incoming, Outgoing};
use mend_base::{Duration, Instant, PeerIndex};
use mend_ffi_ofi::Address;
use mend_transport::Limits;
use std::collections::VecDeque;

/// The connection to one peer: an endpoint of the BTL.
#[derive(Debug)]
pub struct Connection {
    pub(crate) peer: PeerIndex,
    pub(crate) state: State,
    pub(crate) limits: Limits,
    /// The tag of frames to the peer.
    pub(crate) tag_to: u64,
    /// The tag of frames from the peer.
    pub(crate) tag_from: u64,
    /// By rail: where the peer is.
    pub(crate) paths: Vec<Option<Path>>,
    /// The rail of messages.
    pub(crate) rail: usize,
    pub(crate) outgoing: [Outgoing; 2],
    pub(crate) incoming: [Incoming; 2],
    pub(crate) mailboxes: Vec<Mailbox>,
    /// Frames that arrived while the endpoint was quarantined, in order.
    pub(crate) held: VecDeque<HeldFrame>,
    /// A send was `Busy`, and `on_sendable` was not called since.
    pub(crate) refused: bool,
    pub(crate) probe: Probe,
    pub(crate) trouble: Option<Trouble>,
    pub(crate) epoch: u32,
    /// The number of a probe that is to be answered.
    pub(crate) answer: Option<u32>,
    /// An answer is to be sent, because the peer waits for acknowledgements or a frame is missing.
    pub(crate) acknowledge: Acknowledge,
    /// Evidence was reported, and the endpoint was not resumed since.
    pub(crate) is_reported: bool,
    /// When the last quarantine began.
    pub(crate) quarantined_at: Instant,
    /// When a frame of the peer arrived last.
    pub(crate) heard: Instant,
    /// The process of the peer has ended.
    pub(crate) is_dead: bool,
    /// The endpoint is severing, and the peer may be reading memory of this process until the device is opened again.
    pub(crate) may_read: bool,
    /// Whether this connection is in the list of those with something to post.
    pub(crate) is_listed: bool,
    /// Sockets of reads were looked for since the peer has read (0), and since this process has (1): `Ofi::note_read`.
    pub(crate) reads_known: [bool; 2],
}

/// Where the peer is on one rail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// `None`: the device could not take it; it is tried again with the next probe.
    pub(crate) address: Option<Address>,
    /// As the peer advertised it.
    pub(crate) name: Vec<u8>,
}

/// The state of an endpoint (`Btl`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The peer has not been heard of.
    Connecting,
    Connected,
    /// `connected`: what it was before.
    Quarantined {
        connected: bool,
    },
    /// The peer wrote garbage.
    Garbage,
    /// Frames that have arrived are still delivered. `quiet`: in how many calls of progress in a row none came. `calls`: in all.
    Severing {
        quiet: u32,
        calls: u32,
    },
    Severed,
}

/// The newest value of one kind that is to be sent.
#[derive(Debug)]
pub struct Mailbox {
    pub(crate) id: u8,
    /// The frame with an earlier value that is not acknowledged.
    pub(crate) sent: Option<u32>,
    /// Header and payload of a newer value.
    pub(crate) pending: Option<(Vec<u8>, Vec<u8>)>,
}

/// A frame that waits for the end of a quarantine.
#[derive(Debug)]
pub struct HeldFrame {
    pub(crate) class: FrameClass,
    /// The whole frame.
    pub(crate) bytes: Vec<u8>,
}

/// The last probe.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Its number; 0: none was sent.
    pub(crate) number: u32,
    /// By class: which frames were posted before it.
    pub(crate) posted_to: [u32; 2],
    /// Since when probes have no answer.
    pub(crate) unanswered_since: Option<Instant>,
    /// When the next one is due if nothing changes.
    pub(crate) due: Instant,
    /// The time from one to the next.
    pub(crate) interval: Duration,
}

/// The way to the peer may be broken.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// Since when errors say that it is broken, or when the node daemon was last asked whether the peer can be reached. `None`: there was no
    /// error, the peer is silent, as a process is that was stopped or computes.
    pub(crate) broken_since: Option<Instant>,
    /// The last probe before it.
    pub(crate) probe_before: u32,
    /// Probes since it began.
    pub(crate) probes: u32,
}

/// Whether an answer without a probe is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Acknowledge {
    Nothing,
    /// The peer waits for an acknowledgement.
    Progress,
    /// A frame is missing.
    Gap,
}

/// The first interval of probes while a connection begins or is broken; it doubles.
pub const PROBE_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// The longest interval of probes while a connection begins or is broken.
pub const PROBE_INTERVAL_MAX: Duration = Duration::from_millis(250);
/// How long frames may be unacknowledged before the peer is probed; it doubles up to [`SILENCE`].
pub const UNACKNOWLEDGED_MIN: Duration = Duration::from_millis(50);
/// How long a probe may have no answer before the peer is reported as silent. Not a failure detector: a report makes the node daemon look.
pub const SILENCE: Duration = Duration::from_millis(1_000);

/// Frames that may be posted and unacknowledged, and kept: of each class.
pub const WINDOWS: [(usize, usize); 2] = [(64, 128), (32, 64)];

impl Connection {
    /// A connection from the process with instance number `own` to that with `theirs`.
    pub fn new(
        peer: PeerIndex,
        own: u64,
        theirs: u64,
        paths: Vec<Option<Path>>,
        limits: Limits,
        now: Instant,
    ) -> Self {
        let rail = paths.iter().position(Option::is_some).unwrap_or(0);
        Connection {
            peer,
            state: State::Connecting,
            limits,
            tag_to: tag(own, theirs),
            tag_from: tag(theirs, own),
            paths,
            rail,
            outgoing: WINDOWS.map(|(window, capacity)| Outgoing::new(window, capacity)),
            incoming: Default::default(),
            mailboxes: Vec::new(),
            held: VecDeque::new(),
            refused: true,
            probe: Probe {
                number: 0,
                posted_to: [0; 2],
                unanswered_since: None,
                due: now,
                interval: PROBE_INTERVAL_MIN,
            },
            trouble: None,
            epoch: 0,
            answer: None,
            acknowledge: Acknowledge::Nothing,
            is_reported: false,
            quarantined_at: now,
            heard: now,
            is_dead: false,
            may_read: false,
            is_listed: false,
            reads_known: [false; 2],
        }
    }

    // Hot: per message.
    /// Whether a send may be accepted.
    pub fn may_send(&self) -> bool {
        self.state == State::Connected
    }

    // Hot: per message.
    /// Whether frames of the sequences may be posted.
    pub fn may_post(&self) -> bool {
        self.state == State::Connected && self.trouble.is_none()
    }

    /// Whether timers of the connection run.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Connecting | State::Connected)
    }

    // Hot: per message.
    /// What the peer may be told to have arrived: frames that wait for the end of a quarantine do not count, so that the peer's window
    /// bounds them.
    pub fn acknowledged(&self) -> [u32; 2] {
        [FrameClass::Data, FrameClass::Control].map(|class| {
            let next = self.incoming[class as usize].next();
            if self.held.is_empty() {
                return next;
            }
            next.wrapping_sub(self.held.iter().filter(|held| held.class == class).count() as u32)
        })
    }

    // Hot: per message.
    /// The peer is told `acknowledged` now.
    pub fn on_told(&mut self, acknowledged: [u32; 2]) {
        for (incoming, next) in self.incoming.iter_mut().zip(acknowledged) {
            incoming.on_told(next);
        }
        self.acknowledge = Acknowledge::Nothing;
    }

    /// Whether frames were posted that are not acknowledged.
    pub fn has_unacknowledged(&self) -> bool {
        self.outgoing.iter().any(|class| !class.is_empty())
    }

    /// Whether the connection is probed until something changes.
    pub fn needs_progress(&self) -> bool {
        self.state == State::Connecting || self.trouble.is_some()
    }

    /// Whether everything that was accepted has been received by the peer.
    pub fn is_flushed(&self) -> bool {
        !self.has_unacknowledged() && self.mailboxes.iter().all(|mailbox| mailbox.pending.is_none())
    }

    /// The way to the peer may be broken. Returns whether that is new.
    pub fn begin_trouble(&mut self, now: Instant) -> bool {
        if self.trouble.is_some() {
            return false;
        }
        self.trouble = Some(Trouble { broken_since: None, probe_before: self.probe.number, probes: 0 });
        self.probe.interval = PROBE_INTERVAL_MIN;
        self.probe.due = now;
        true
    }

    /// An error says that the way is broken.
    pub fn on_broken(&mut self, now: Instant) {
        if let Some(trouble) = &mut self.trouble {
            trouble.broken_since.get_or_insert(now);
        }
    }

    /// Whether errors say that the way has been broken for as long as `most`. Silence alone, however long, says nothing about the way.
    pub fn is_lost(&self, now: Instant, most: Duration) -> bool {
        self.trouble.and_then(|trouble| trouble.broken_since).is_some_and(|since| now - since >= most)
    }

    /// A quarantine, in which the peer was not probed, is over: its time does not count.
    pub fn on_resumed(&mut self, now: Instant) {
        let pause = now - self.quarantined_at;
        let since = self.trouble.as_mut().and_then(|trouble| trouble.broken_since.as_mut());
        for instant in since.into_iter().chain(&mut self.probe.unanswered_since) {
            *instant = (*instant + pause).min(now);
        }
    }

    /// The peer has answered a probe. Returns whether frames are to be posted again.
    pub fn on_answer(&mut self, number: u32, acknowledged: [u32; 2], now: Instant) -> bool {
        if number == 0 || number != self.probe.number {
            return false;
        }
        self.probe.unanswered_since = None;
        self.probe.interval = UNACKNOWLEDGED_MIN;
        self.probe.due = now + UNACKNOWLEDGED_MIN;
        if let Some(trouble) = self.trouble {
            // An answer to a probe from before the trouble may have been under way.
            if number == trouble.probe_before {
                return false;
            }
            self.trouble = None;
            self.is_reported = false;
            self.begin_epoch();
            return true;
        }
        let is_lost = |class: usize| {
            let missing = self.probe.posted_to[class].wrapping_sub(acknowledged[class]);
            missing > 0 && missing <= u32::MAX / 2
        };
        if is_lost(0) || is_lost(1) {
            self.begin_epoch();
            return true;
        }
        false
    }

    /// Everything unacknowledged is posted again.
    pub fn begin_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.outgoing.iter_mut().for_each(Outgoing::rewind);
        self.incoming.iter_mut().for_each(Incoming::forget_gap);
    }

    /// A frame of the peer has arrived: the way from it works.
    pub fn on_heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Whether a probe is due, and when the next one is if not. `None`: there is nothing to ask.
    pub fn probe_due(&self, is_flushing: bool) -> Option<Instant> {
        if !self.is_open() {
            return None;
        }
        let asks = self.state == State::Connecting
            || self.trouble.is_some()
            || self.probe.unanswered_since.is_some()
            || self.has_unacknowledged();
        if !asks {
            return None;
        }
        let urgent = is_flushing && self.trouble.is_none() && self.probe.unanswered_since.is_none();
        Some(if urgent { Instant(0) } else { self.probe.due })
    }

    /// A probe was sent, or could not be: the next one is due later.
    pub fn on_probed(&mut self, now: Instant) {
        self.probe.unanswered_since.get_or_insert(now);
        self.probe.due = now + self.probe.interval;
        let most = if self.trouble.is_some() || self.state == State::Connecting {
            PROBE_INTERVAL_MAX
        } else {
            SILENCE
        };
        self.probe.interval = Duration(self.probe.interval.0 * 2).min(most);
    }

    /// Frames were acknowledged: those that are left get the whole time again.
    pub fn on_acknowledged(&mut self, now: Instant) {
        if self.trouble.is_none() && self.probe.unanswered_since.is_none() {
            self.probe.interval = UNACKNOWLEDGED_MIN;
            self.probe.due = now + UNACKNOWLEDGED_MIN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Connection, SILENCE, State, UNACKNOWLEDGED_MIN};
    use crate::send_buffers::BufferKey;
    use crate::sequence::Frame;
    use mend_base::{Duration, Instant, PeerIndex};
    use mend_transport::Limits;

    fn connected() -> Connection {
        let limits = Limits {
            abilities: 0,
            emulated: 0,
            control_bytes_max: 1,
            message_bytes_max: 1,
            eager_bytes: 1,
            chunk_bytes: 0,
            transfer_bytes_max: 0,
        };
        let mut connection = Connection::new(PeerIndex(1), 1, 2, Vec::new(), limits, Instant(0));
        connection.state = State::Connected;
        connection
    }

    fn post(connection: &mut Connection) {
        connection.outgoing[0].push(Frame { buffer: BufferKey(0), bytes: 1 });
        connection.outgoing[0].on_posted();
    }

    fn probe(connection: &mut Connection, now: Instant) {
        connection.probe.number += 1;
        connection.probe.posted_to = [0, 1].map(|class: usize| connection.outgoing[class].posted_to());
        connection.on_probed(now);
    }

    #[test]
    fn an_answer_without_what_was_posted_before_its_probe_rewinds() {
        let mut connection = connected();
        post(&mut connection);
        probe(&mut connection, Instant(5));
        post(&mut connection);
        assert!(!connection.on_answer(1, [1, 0], Instant(6)), "the second was posted after the probe");
        probe(&mut connection, Instant(7));
        assert!(connection.on_answer(2, [1, 0], Instant(8)), "the second is lost");
        assert_eq!(connection.outgoing[0].posted_to(), 0);
    }

    #[test]
    fn trouble_ends_with_the_answer_to_a_later_probe() {
        let mut connection = connected();
        post(&mut connection);
        probe(&mut connection, Instant(5));
        assert!(connection.begin_trouble(Instant(6)));
        assert!(!connection.begin_trouble(Instant(6)));
        assert!(!connection.on_answer(1, [0, 0], Instant(7)), "that was under way before");
        assert!(!connection.may_post());
        probe(&mut connection, Instant(8));
        assert!(connection.on_answer(2, [0, 0], Instant(9)));
        assert!(connection.may_post());
        assert_eq!((connection.epoch, connection.outgoing[0].posted_to()), (1, 0));
    }

    #[test]
    fn a_silent_peer_is_never_lost_and_a_quarantine_does_not_count() {
        const MOST: Duration = Duration(1_000);
        let mut connection = connected();
        connection.begin_trouble(Instant(0));
        assert!(!connection.is_lost(Instant(1_000_000), MOST), "it may be stopped");
        connection.on_broken(Instant(1_000_000));
        connection.on_broken(Instant(1_000_900));
        assert!(!connection.is_lost(Instant(1_000_999), MOST));
        assert!(connection.is_lost(Instant(1_001_000), MOST));
        connection.quarantined_at = Instant(1_000_500);
        connection.on_resumed(Instant(1_005_500));
        assert!(!connection.is_lost(Instant(1_005_999), MOST));
        assert!(connection.is_lost(Instant(1_006_000), MOST));
    }

    #[test]
    fn unacknowledged_frames_are_asked_for_more_and_more_rarely() {
        let mut connection = connected();
        assert_eq!(connection.probe_due(false), None);
        assert_eq!(connection.probe_due(true), None);
        post(&mut connection);
        connection.on_acknowledged(Instant(0));
        assert_eq!(connection.probe_due(false), Some(Instant(0) + UNACKNOWLEDGED_MIN));
        assert_eq!(connection.probe_due(true), Some(Instant(0)));
        let mut now = Instant(0);
        for _ in 0..12 {
            now = connection.probe_due(false).unwrap();
            connection.on_probed(now);
        }
        assert_eq!(connection.probe_due(false), Some(now + Duration(SILENCE.0)));
    }
}
