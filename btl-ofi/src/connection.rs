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
//!
//! **Unreachable.** A peer that is stopped answers no probe, and a wire that was cut may report no error. Only the runtime tells the two apart: it
//! asks the peer on another way whether it runs. So the time of trouble is cut into [`ROUNDS`] rounds. Each ends with that question, and the next
//! begins, with a probe, at the peer's answer. The peer is unreachable when it has answered the runtime in every round, and no probe in any.

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
    /// A probe is due although nothing waits for an acknowledgement.
    pub(crate) is_asking: bool,
    pub(crate) trouble: Option<Trouble>,
    pub(crate) epoch: u32,
    /// The last probe before the epoch began: answers to it and to earlier ones do not know what was posted again.
    probe_before_epoch: u32,
    /// The number of a probe that is to be answered, and the rail by which it came: the way back may be broken on another one.
    pub(crate) answer: Option<(u32, usize)>,
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
#[derive(Default, Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// `None`: the device could not take it; it is tried again with the next probe.
    pub(crate) address: Option<Address>,
    /// As the peer advertised it.
    pub(crate) name: Vec<u8>,
    /// When a read of the peer ended last on this rail.
    pub(crate) read_ended: Instant,
    /// How often the endpoint of reads was closed since then, because they stood still.
    pub(crate) stalls: u32,
    /// When that was last.
    pub(crate) stall_seen: Instant,
    /// Reads stood still here while the peer answered on another rail: no read is posted until it answers here.
    pub(crate) is_broken: bool,
}

impl Path {
    /// The way to a peer that has advertised `name`.
    pub fn new(address: Address, name: &[u8]) -> Self {
        Path { address: Some(address), name: name.to_vec(), ..Path::default() }
    }
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

/// The last probes.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The number of the last one; 0: none was sent.
    pub(crate) number: u32,
    /// The last one that was answered.
    answered: u32,
    /// When that was.
    pub(crate) answered_at: Instant,
    /// Of the last ones, by their numbers, and by class: which frames were posted before.
    posted_to: [[u32; 2]; PROBES_KEPT],
    /// When the last one was sent.
    pub(crate) sent: Instant,
    /// Since when probes have no answer.
    pub(crate) unanswered_since: Option<Instant>,
    /// When the next one is due if nothing changes.
    pub(crate) due: Instant,
    /// The time from one to the next.
    pub(crate) interval: Duration,
    /// When the device, which had no room for the last one, gets it again; it has none while it connects.
    pub(crate) again: Option<Instant>,
}

/// The way to the peer may be broken.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// When the runtime was last asked whether the peer runs; before, when the trouble began. Quarantines do not count.
    round_began: Instant,
    /// The runtime was asked, and has not answered.
    is_asked: bool,
    /// Rounds in which the peer answered the runtime and no probe.
    rounds: u32,
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
/// How soon the device gets a probe again for which it had no room.
pub const PROBE_AGAIN: Duration = Duration::from_millis(10);
/// How long frames may be unacknowledged before the peer is probed; it doubles up to [`SILENCE`].
pub const UNACKNOWLEDGED_MIN: Duration = Duration::from_millis(50);
/// How long a probe may have no answer before the peer is reported as silent. Not a failure detector: a report makes the node daemon look.
pub const SILENCE: Duration = Duration::from_millis(1_000);

/// How often the runtime must say in a row that a peer runs, until the peer is unreachable.
pub const ROUNDS: u32 = 8;
/// An answer to an earlier probe than the last of so many says only that the way works.
const PROBES_KEPT: usize = 8;

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
                answered: 0,
                answered_at: Instant::default(),
                posted_to: [[0; 2]; PROBES_KEPT],
                sent: now,
                unanswered_since: None,
                due: now,
                interval: PROBE_INTERVAL_MIN,
                again: None,
            },
            is_asking: false,
            trouble: None,
            epoch: 0,
            probe_before_epoch: 0,
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
        // That a frame is missing says only an answer.
        if self.acknowledge == Acknowledge::Progress {
            self.acknowledge = Acknowledge::Nothing;
        }
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
        self.trouble = Some(Trouble {
            round_began: now,
            is_asked: false,
            rounds: 0,
            probe_before: self.probe.number,
            probes: 0,
        });
        self.probe.interval = PROBE_INTERVAL_MIN;
        self.probe.due = now;
        true
    }

    /// Whether the runtime is to be asked now if the peer runs, since no probe was answered for a round of this length. The question is repeated
    /// in each round, as it may have been lost.
    pub fn asks_whether_it_runs(&mut self, now: Instant, round: Duration) -> bool {
        let Some(trouble) = self.trouble.as_mut().filter(|trouble| now - trouble.round_began >= round) else {
            return false;
        };
        trouble.round_began = now;
        trouble.is_asked = true;
        true
    }

    /// The peer has answered the runtime. If the runtime was asked, the next round begins, with a probe.
    pub fn on_running(&mut self, now: Instant) {
        let Some(trouble) = self.trouble.as_mut().filter(|trouble| trouble.is_asked) else { return };
        trouble.is_asked = false;
        trouble.rounds += 1;
        self.probe.due = now;
    }

    /// Whether the peer was running all the time and answered no probe. If so, the rounds are counted anew.
    pub fn take_unreachable(&mut self) -> bool {
        match &mut self.trouble {
            Some(trouble) if trouble.rounds >= ROUNDS => {
                trouble.rounds = 0;
                true
            }
            _ => false,
        }
    }

    /// A quarantine, in which the peer was not probed, is over: its time does not count.
    pub fn on_resumed(&mut self, now: Instant) {
        let pause = now - self.quarantined_at;
        let since = self.trouble.as_mut().map(|trouble| &mut trouble.round_began);
        for instant in since.into_iter().chain(&mut self.probe.unanswered_since) {
            *instant = (*instant + pause).min(now);
        }
    }

    /// The peer has answered a probe. Returns whether frames are to be posted again.
    pub fn on_answer(&mut self, number: u32, acknowledged: [u32; 2], now: Instant) -> bool {
        let age = self.probe.number.wrapping_sub(number);
        let is_new = number != 0 && age < self.probe.number.wrapping_sub(self.probe.answered);
        if !is_new {
            return false;
        }
        self.probe.answered = number;
        self.probe.answered_at = now;
        self.probe.unanswered_since = None;
        self.probe.interval = UNACKNOWLEDGED_MIN;
        self.probe.due = now + UNACKNOWLEDGED_MIN;
        if let Some(trouble) = self.trouble {
            // An answer to a probe from before the trouble may have been under way.
            if age >= self.probe.number.wrapping_sub(trouble.probe_before) {
                return false;
            }
            self.trouble = None;
            self.is_reported = false;
            self.begin_epoch();
            return true;
        }
        let is_kept =
            age < PROBES_KEPT as u32 && age < self.probe.number.wrapping_sub(self.probe_before_epoch);
        let is_lost = |class: usize| {
            let posted_to = self.probe.posted_to[number as usize % PROBES_KEPT][class];
            let missing = posted_to.wrapping_sub(acknowledged[class]);
            missing > 0 && missing <= u32::MAX / 2
        };
        if is_kept && (is_lost(0) || is_lost(1)) {
            self.begin_epoch();
            return true;
        }
        false
    }

    /// Everything unacknowledged is posted again.
    pub fn begin_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.probe_before_epoch = self.probe.number;
        self.outgoing.iter_mut().for_each(Outgoing::rewind);
        self.incoming.iter_mut().for_each(Incoming::forget_gap);
    }

    /// Whether a probe has had no answer for so long that it is evidence.
    pub fn is_silent(&self, now: Instant) -> bool {
        let since = self.probe.unanswered_since;
        self.trouble.is_none() && since.is_some_and(|since| now - since >= SILENCE)
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
            || self.is_asking
            || self.probe.unanswered_since.is_some()
            || self.has_unacknowledged();
        if !asks {
            return None;
        }
        let urgent = is_flushing && self.trouble.is_none() && self.probe.unanswered_since.is_none();
        Some(if urgent { Instant(0) } else { self.probe.due })
    }

    /// A probe is sent, or cannot be: the next one is due later. Returns its number.
    pub fn on_probe(&mut self, now: Instant) -> u32 {
        // 0 is no number.
        let number = self.probe.number.wrapping_add(1).max(1);
        self.probe.number = number;
        self.probe.posted_to[number as usize % PROBES_KEPT] =
            [0, 1].map(|class: usize| self.outgoing[class].posted_to());
        self.probe.sent = now;
        self.is_asking = false;
        self.probe.unanswered_since.get_or_insert(now);
        self.probe.due = now + self.probe.interval;
        let most = if self.trouble.is_some() || self.state == State::Connecting {
            PROBE_INTERVAL_MAX
        } else {
            SILENCE
        };
        self.probe.interval = Duration(self.probe.interval.0 * 2).min(most);
        number
    }

    /// A frame may be lost, of this connection or of another one: the next probe comes soon, unless one is under way, which will tell. Its own
    /// answer may be lost in the same way, so two probes are never closer than in trouble.
    pub fn hurry_probe(&mut self, now: Instant) {
        if self.probe.unanswered_since.is_none() {
            self.probe.due = self.probe.due.min(now.max(self.probe.sent + PROBE_INTERVAL_MIN));
        }
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
pub(crate) mod tests {
    use super::{
        Acknowledge, Connection, PROBE_INTERVAL_MIN, Path, ROUNDS, SILENCE, State, UNACKNOWLEDGED_MIN,
    };
    use crate::send_buffers::BufferKey;
    use crate::sequence::Frame;
    use mend_base::{Duration, Instant, PeerIndex};
    use mend_transport::Limits;

    /// A connection with one path.
    pub(crate) fn connected() -> Connection {
        let limits = Limits {
            abilities: 0,
            emulated: 0,
            control_bytes_max: 1,
            message_bytes_max: 1,
            eager_bytes: 1,
            chunk_bytes: 0,
            transfer_bytes_max: 0,
        };
        let paths = vec![Some(Path::default())];
        let mut connection = Connection::new(PeerIndex(1), 1, 2, paths, limits, Instant(0));
        connection.state = State::Connected;
        connection
    }

    fn post(connection: &mut Connection) {
        connection.outgoing[0].push(Frame { buffer: BufferKey(0), bytes: 1 });
        connection.outgoing[0].on_posted();
    }

    #[test]
    fn an_answer_without_what_was_posted_before_its_probe_rewinds() {
        let mut connection = connected();
        post(&mut connection);
        connection.on_probe(Instant(5));
        post(&mut connection);
        assert!(!connection.on_answer(1, [1, 0], Instant(6)), "the second was posted after the probe");
        connection.on_probe(Instant(7));
        assert!(connection.on_answer(2, [1, 0], Instant(8)), "the second is lost");
        assert_eq!(connection.outgoing[0].posted_to(), 0);
    }

    #[test]
    fn trouble_ends_with_the_answer_to_a_later_probe() {
        let mut connection = connected();
        post(&mut connection);
        connection.on_probe(Instant(5));
        assert!(connection.begin_trouble(Instant(6)));
        assert!(!connection.begin_trouble(Instant(6)));
        assert!(!connection.on_answer(1, [0, 0], Instant(7)), "that was under way before");
        assert!(!connection.may_post());
        connection.on_probe(Instant(8));
        assert!(connection.on_answer(2, [0, 0], Instant(9)));
        assert!(connection.may_post());
        assert_eq!((connection.epoch, connection.outgoing[0].posted_to()), (1, 0));
    }

    #[test]
    fn answers_count_that_come_after_later_probes_were_sent() {
        let mut connection = connected();
        post(&mut connection);
        (5..8).for_each(|now| _ = connection.on_probe(Instant(now)));
        assert!(!connection.on_answer(2, [1, 0], Instant(9)));
        assert_eq!(connection.probe.unanswered_since, None);
        assert!(!connection.on_answer(1, [0, 0], Instant(9)), "older than one that was answered");
        assert!(connection.on_answer(3, [0, 0], Instant(10)), "its frame is lost");
        // In trouble each probe after its begin counts.
        connection.begin_trouble(Instant(11));
        (12..22).for_each(|now| _ = connection.on_probe(Instant(now)));
        assert!(!connection.on_answer(3, [0, 0], Instant(23)));
        assert!(!connection.on_answer(14, [0, 0], Instant(23)), "such a probe was never sent");
        assert!(connection.on_answer(4, [0, 0], Instant(23)));
        assert!(connection.trouble.is_none());
        // What they know was posted again since.
        post(&mut connection);
        assert!((5..=13).all(|number| !connection.on_answer(number, [0, 0], Instant(24))));
    }

    #[test]
    fn a_peer_is_unreachable_after_it_was_running_for_all_rounds_and_a_quarantine_does_not_count() {
        const ROUND: Duration = Duration(1_000);
        let mut connection = connected();
        connection.begin_trouble(Instant(0));
        // It is stopped: asked again and again, it answers nothing.
        let mut now = Instant(0);
        for _ in 0..3 * ROUNDS {
            assert!(!connection.asks_whether_it_runs(now + Duration(999), ROUND));
            now = now + ROUND;
            assert!(connection.asks_whether_it_runs(now, ROUND));
            assert!(!connection.take_unreachable());
        }
        for round in 0..ROUNDS {
            assert!(!connection.take_unreachable(), "after {round} rounds");
            connection.on_running(now);
            connection.on_running(now);
            assert_eq!(connection.probe.due, now);
            connection.quarantined_at = now;
            now = now + Duration(5_000);
            connection.on_resumed(now);
            assert!(!connection.asks_whether_it_runs(now + Duration(999), ROUND));
            now = now + ROUND;
            assert!(connection.asks_whether_it_runs(now, ROUND));
        }
        assert!(connection.take_unreachable());
        assert!(!connection.take_unreachable(), "counted anew");
        let number = connection.on_probe(now);
        assert!(connection.on_answer(number, [0, 0], now));
        connection.on_running(now);
        assert!(!connection.take_unreachable());
    }

    #[test]
    fn frames_that_may_be_lost_hurry_a_probe_but_not_without_end() {
        let mut connection = connected();
        post(&mut connection);
        connection.on_acknowledged(Instant(0));
        connection.hurry_probe(Instant(5));
        assert_eq!(connection.probe_due(false), Some(Instant(0) + PROBE_INTERVAL_MIN));
        let now = Instant(0) + PROBE_INTERVAL_MIN;
        connection.on_probe(now);
        let due = connection.probe_due(false);
        connection.hurry_probe(now);
        assert_eq!(connection.probe_due(false), due, "one is under way");
        connection.on_answer(1, [1, 0], now);
        connection.hurry_probe(now);
        assert_eq!(connection.probe_due(false), Some(now + PROBE_INTERVAL_MIN));
    }

    #[test]
    fn that_a_frame_is_missing_is_told_by_an_answer_alone() {
        let mut connection = connected();
        for (before, after) in
            [(Acknowledge::Progress, Acknowledge::Nothing), (Acknowledge::Gap, Acknowledge::Gap)]
        {
            connection.acknowledge = before;
            // As each frame does.
            connection.on_told([1, 0]);
            assert_eq!(connection.acknowledge, after);
        }
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
            connection.on_probe(now);
        }
        assert_eq!(connection.probe_due(false), Some(now + Duration(SILENCE.0)));
    }
}
