// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the helper thread looks whether the control messages of this process were consumed. A program that has sent one and computes does
//! not notice that the receiver computes, too.
//!
//! ```text
//!         the program has sent one                   four looks found nothing
//!   idle ──────────────────────────▶ watching ───────────────────────────────▶ closing ── nothing 1 ms later ──▶ idle
//!                                       ▲                                         │
//!                                       └── a message was not consumed, or sent ──┘
//! ```
//!
//! The first look comes after 1 ms, the next ones at intervals that double: up to 16 ms while the program sends control messages, and up to
//! 64 ms while it only waits for some to be consumed, by a process that is stopped. A program that sends none costs nothing.

use mend_base::{Duration, Instant};
use mend_btl_shm::ControlWatch;

/// When the next look is due.
#[derive(Debug)]
pub struct WatchSchedule {
    state: State,
    /// [`ControlWatch::sent`] at the last look.
    sent: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Not before the program has sent a control message.
    Idle,
    Watching {
        due: Instant,
        pause: Duration,
        /// Successive looks that have found nothing.
        quiet: u32,
    },
    /// The next control message wakes the helper thread, unless the program's load of `watched` came before our store.
    Closing { due: Instant },
}

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(16);
const LONGEST_PAUSE_WITHOUT_NEW: Duration = Duration::from_millis(64);
const QUIET_LOOKS: u32 = 4;

impl WatchSchedule {
    /// Nothing was sent.
    pub fn new() -> Self {
        WatchSchedule { state: State::Idle, sent: 0 }
    }

    /// The program has sent a control message, and has made `watch` watched.
    pub fn begin(&mut self, now: Instant) {
        self.state = State::Watching { due: now + FIRST_PAUSE, pause: FIRST_PAUSE, quiet: 0 };
    }

    /// The time until the next look; `None`: there is none.
    pub fn pause(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Idle => None,
            State::Watching { due, .. } | State::Closing { due } => {
                Some(if due > now { due - now } else { Duration(0) })
            }
        }
    }

    /// Looks, if a look is due. Returns whether a control message may be unconsumed, so that the helper thread must enter the guard.
    pub fn look(&mut self, now: Instant, watch: &ControlWatch) -> bool {
        let has_unconsumed = watch.has_unconsumed();
        match self.state {
            State::Watching { due, pause, quiet } if now >= due => {
                let has_sent = core::mem::replace(&mut self.sent, watch.sent()) != watch.sent();
                let quiet = if has_unconsumed || has_sent { 0 } else { quiet + 1 };
                self.state = if quiet == QUIET_LOOKS {
                    watch.end();
                    State::Closing { due: now + FIRST_PAUSE }
                } else {
                    let longest = if has_sent { LONGEST_PAUSE } else { LONGEST_PAUSE_WITHOUT_NEW };
                    let pause = Duration(pause.0 * 2).min(longest);
                    State::Watching { due: now + pause, pause, quiet }
                };
                has_unconsumed
            }
            State::Closing { due } if now >= due => {
                self.state = State::Idle;
                if has_unconsumed || watch.sent() != self.sent {
                    watch.begin();
                    self.begin(now);
                }
                has_unconsumed
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WatchSchedule;
    use mend_base::parameter::{Declared, Settings};
    use mend_base::{Duration, Instant, PeerIndex};
    use mend_btl_shm::{ControlWatch, NodeSlot, PARAMETERS, Shm};
    use mend_segment::{BellPage, HelperCalls};
    use mend_transport::{AmId, Btl, Card, MessageClass};
    use std::sync::Arc;

    /// Looks as long as one is due. Returns the time between the first and the last look, and how many had to enter the guard.
    fn run(schedule: &mut WatchSchedule, watch: &ControlWatch, looks: u32) -> (Duration, u32) {
        let (mut now, mut entries) = (Instant(0), 0);
        for _ in 0..looks {
            let Some(pause) = schedule.pause(now) else { break };
            now = now + pause;
            entries += u32::from(schedule.look(now, watch));
        }
        (now - Instant(0), entries)
    }

    #[test]
    fn a_watch_that_finds_nothing_ends() {
        let (mut schedule, watch) = (WatchSchedule::new(), ControlWatch::default());
        assert_eq!(schedule.pause(Instant(0)), None);
        watch.begin();
        schedule.begin(Instant(0));
        let (span, entries) = run(&mut schedule, &watch, 100);
        assert_eq!(entries, 0);
        assert_eq!(schedule.pause(Instant(0)), None);
        assert_eq!(span, Duration::from_millis(1 + 2 + 4 + 8 + 1));
    }

    /// A transport that has sent a control message to another one, which has not consumed it.
    fn sender() -> (Shm, Shm, Arc<BellPage>, mend_btl_shm::ShmEndpoint) {
        let bells = Arc::new(BellPage::create(2).unwrap().0);
        let [mut sender, receiver] = [0, 1].map(|slot| {
            let node = NodeSlot { slot, slots: 2, bells: Arc::clone(&bells) };
            Shm::new(node, &Settings::new(Declared(&[PARAMETERS]))).unwrap()
        });
        let mut card = Card { layout: Card::LAYOUT, ..Card::default() };
        receiver.advertise(&mut card);
        let endpoint = sender.connect(PeerIndex(1), &card).unwrap();
        sender.send(endpoint, MessageClass::Control, AmId(1), b"h", 0, |_| {}).unwrap();
        (sender, receiver, bells, endpoint)
    }

    #[test]
    fn the_watch_goes_on_while_a_message_is_not_consumed() {
        let (sender, _receiver, bells, _) = sender();
        let (mut schedule, watch) = (WatchSchedule::new(), sender.control_watch());
        assert!(bells.take_helper_calls(0).has(HelperCalls::WATCH));
        schedule.begin(Instant(0));
        let (span, entries) = run(&mut schedule, &watch, 100);
        assert_eq!(entries, 100);
        assert!(span < Duration::from_millis(100 * 64));
    }

    #[test]
    fn a_message_that_was_sent_as_the_watch_ended_is_found_by_its_last_look() {
        let (mut sender, _receiver, bells, endpoint) = sender();
        let (mut schedule, watch) = (WatchSchedule::new(), ControlWatch::default());
        schedule.begin(Instant(0));
        // Four looks, of which the last one ends the watch.
        run(&mut schedule, &watch, 4);
        let _ = bells.take_helper_calls(0);
        // The sender has read the old value of `watched`: it calls no helper.
        sender.send(endpoint, MessageClass::Control, AmId(1), b"h", 0, |_| {}).unwrap();
        assert_eq!(bells.take_helper_calls(0), HelperCalls::NONE);
        assert!(schedule.look(Instant(1_000_000_000), &sender.control_watch()));
        assert!(schedule.pause(Instant(1_000_000_000)).is_some());
    }
}
