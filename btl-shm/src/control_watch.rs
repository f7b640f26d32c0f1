// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control messages that their receivers have not consumed. A receiver that computes outside MPI consumes none until its helper thread is
//! called, so this process watches what it has sent, and calls the helper.
//!
//! Each endpoint with such messages is in a list from the first of them until the credit of the peer says that all are consumed. Who calls
//! the peer's helper:
//!
//! * A call of progress of this process, if the peer has consumed nothing for 100 us after the first check that has found messages.
//!   Repeated after 200 us, 400 us, and so on up to 64 ms, as long as they are not consumed.
//! * This process's own helper thread ([`Shm::call_helpers_of_peers`]), if the program computes, too. It watches from the first
//!   control message after a pause on ([`ControlWatch`]): that message wakes the helper, those that follow cost no system call.
//!
//! So a call can be late, by a period of the helper thread, but it is not lost: an endpoint leaves the list only when its messages are
//! consumed, or when it is not open. Nothing here is on the path of data: progress looks at the list only where it is not empty.

use crate::Shm;
use crate::endpoint::{Endpoint, State};
use mend_base::{Duration, Instant};
use mend_segment::{HelperCalls, Ring};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

/// What the helper thread of a process sees of its unconsumed control messages, without entering the guard.
#[derive(Debug, Default)]
pub struct ControlWatch {
    /// How many peers have not consumed a control message. Written with the guard held.
    peers: AtomicU32,
    /// How many control messages were sent; wraps. Written with the guard held.
    sent: AtomicU32,
    /// The helper thread looks here periodically, and need not be called.
    watched: AtomicBool,
}

impl ControlWatch {
    /// Whether some peer has not consumed a control message. May be out of date: only a call of progress finds out what was consumed.
    pub fn has_unconsumed(&self) -> bool {
        self.peers.load(Ordering::Relaxed) != 0
    }

    /// How many control messages were sent; wraps.
    pub fn sent(&self) -> u32 {
        self.sent.load(Ordering::Relaxed)
    }

    /// The helper thread looks here periodically from now on.
    pub fn begin(&self) {
        self.watched.store(true, Ordering::Relaxed);
    }

    /// The helper thread will look once more, at least 1 ms from now, and then only when it is called.
    pub fn end(&self) {
        self.watched.store(false, Ordering::Relaxed);
        // SYNC: `watched` before the last look, with no other side: a sender that has read the old value has stored `peers` before, and
        // no store stays in a store buffer for 1 ms.
        fence(Ordering::SeqCst);
    }
}

/// The endpoints with control messages that are not consumed.
#[derive(Debug, Default)]
pub(crate) struct UnconsumedControl {
    entries: Vec<Entry>,
    /// Where the next check begins.
    next: usize,
    calls: u32,
    watch: Arc<ControlWatch>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    endpoint: u32,
    /// When the helper of the peer is called next; `None` before the first check.
    due: Option<Instant>,
    pause: Duration,
    /// What the peer had consumed at the last check: a position in its ring.
    consumed: u32,
}

/// How long a control message may be unconsumed before the helper of its receiver is called.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
/// The longest time between two calls.
const LONGEST_PAUSE: Duration = Duration::from_millis(64);
/// How many endpoints one call of progress checks.
const ENTRIES_PER_CHECK: usize = 16;
/// How many calls of progress lie between two checks, while the process is awake. A check reads the credit that the peer writes with each
/// control message, so a check in each call takes that line away from the peer, which answers later.
const CALLS_PER_CHECK: u32 = 64;

impl UnconsumedControl {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Makes room for one endpoint more, so that a control message allocates nothing.
    pub(crate) fn reserve(&mut self, endpoints: usize) {
        self.entries.reserve(endpoints.saturating_sub(self.entries.len()));
    }

    /// The words for the helper thread.
    pub(crate) fn watch(&self) -> Arc<ControlWatch> {
        Arc::clone(&self.watch)
    }

    fn publish(&self) {
        self.watch.peers.store(self.entries.len() as u32, Ordering::Relaxed);
    }
}

impl Endpoint {
    /// Before which position of its ring the peer has consumed all control messages; `None`: all of them, or it never will.
    fn unconsumed_from(&mut self) -> Option<u32> {
        self.take_credit(Ring::Control);
        match &self.state {
            State::Open(pair) | State::Quarantined(pair) => {
                let ring = &pair.mine.control;
                (!ring.is_idle()).then(|| ring.credited())
            }
            _ => None,
        }
    }
}

impl Shm {
    // Hot: per control message.
    /// A control message was sent.
    pub(crate) fn note_control_sent(&mut self, index: usize) {
        let watch = &self.unconsumed.watch;
        watch.sent.store(watch.sent.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if !core::mem::replace(&mut self.endpoints[index].has_unconsumed_control, true) {
            self.unconsumed.entries.push(Entry {
                endpoint: index as u32,
                due: None,
                pause: FIRST_PAUSE,
                consumed: 0,
            });
            self.unconsumed.publish();
            self.polling.unusual = true;
        }
        if !self.unconsumed.watch.watched.load(Ordering::Relaxed) {
            self.call_own_helper();
        }
    }

    #[cold]
    fn call_own_helper(&mut self) {
        self.unconsumed.watch.begin();
        self.node.bells.call_helper(self.node.slot, HelperCalls::WATCH);
    }

    /// In a call of progress, if a check is due: removes endpoints whose peers have consumed everything, and calls the helpers of peers that are due.
    #[cold]
    pub(crate) fn check_unconsumed(&mut self) {
        self.unconsumed.calls = self.unconsumed.calls.wrapping_add(1);
        if !self.unconsumed.calls.is_multiple_of(CALLS_PER_CHECK) && !self.polling.armed {
            return;
        }
        let now = self.polling.clock();
        for _ in 0..self.unconsumed.entries.len().min(ENTRIES_PER_CHECK) {
            if self.unconsumed.next >= self.unconsumed.entries.len() {
                self.unconsumed.next = 0;
            }
            let at = self.unconsumed.next;
            if self.drop_if_consumed(at) {
                continue;
            }
            self.unconsumed.next += 1;
            match self.unconsumed.entries[at].due {
                None => self.unconsumed.entries[at].due = Some(now + FIRST_PAUSE),
                Some(due) if now >= due => self.call_helper_of(at, now),
                Some(_) => {}
            }
        }
    }

    /// The program is outside MPI: calls the helpers of all peers that have not consumed everything.
    #[cold]
    pub(crate) fn call_helpers_of_peers(&mut self) {
        let now = self.polling.clock();
        let mut at = 0;
        while at < self.unconsumed.entries.len() {
            if !self.drop_if_consumed(at) {
                self.call_helper_of(at, now);
                at += 1;
            }
        }
    }

    /// Removes an endpoint whose peer has consumed everything, and returns whether it did; else notes how far the peer has read.
    fn drop_if_consumed(&mut self, at: usize) -> bool {
        let index = self.unconsumed.entries[at].endpoint as usize;
        let Some(consumed) = self.endpoints[index].unconsumed_from() else {
            self.endpoints[index].has_unconsumed_control = false;
            self.unconsumed.entries.swap_remove(at);
            self.unconsumed.publish();
            return true;
        };
        let entry = &mut self.unconsumed.entries[at];
        if core::mem::replace(&mut entry.consumed, consumed) != consumed {
            // The peer reads, so what it has not consumed is newer than the last check.
            (entry.due, entry.pause) = (None, FIRST_PAUSE);
        }
        false
    }

    fn call_helper_of(&mut self, at: usize, now: Instant) {
        let entry = &mut self.unconsumed.entries[at];
        self.statistics.helpers_called += 1;
        self.statistics.helpers_called_again += u64::from(entry.pause > FIRST_PAUSE);
        entry.pause = Duration(entry.pause.0 * 2).min(LONGEST_PAUSE);
        entry.due = Some(now + entry.pause);
        self.node.bells.call_helper(self.endpoints[entry.endpoint as usize].slot, HelperCalls::SERVE);
    }
}

#[cfg(test)]
mod tests {
    use crate::Shm;
    use crate::pair::{Delivered, pair};
    use mend_base::Instant;
    use mend_segment::HelperCalls;
    use mend_transport::{AmId, Btl, MessageClass, WakeSet};

    fn send_control(sender: &mut Shm, endpoint: crate::ShmEndpoint) {
        sender.send(endpoint, MessageClass::Control, AmId(2), b"h", 0, |_| {}).unwrap();
    }

    fn helper_was_called(shm: &Shm, slot: u32) -> bool {
        shm.node.bells.take_helper_calls(slot).has(HelperCalls::SERVE)
    }

    #[test]
    fn the_helper_of_a_peer_is_called_until_it_has_consumed_a_control_message() {
        let ([mut sender, mut receiver], endpoint) = pair();
        let (mut delivered, mut nothing) = (Delivered::default(), Delivered::default());
        send_control(&mut sender, endpoint);
        for _ in 0..3 {
            while !helper_was_called(&sender, 1) {
                sender.progress(Instant(0), 100, &mut nothing);
            }
        }
        assert_eq!(sender.statistics().helpers_called, 3);
        assert_eq!(sender.statistics().helpers_called_again, 2);
        assert!(sender.control_watch().has_unconsumed());
        while delivered.messages.is_empty() {
            receiver.progress(Instant(0), 100, &mut delivered);
        }
        while sender.control_watch().has_unconsumed() {
            sender.progress(Instant(0), 100, &mut nothing);
        }
        assert!(!sender.polling.unusual || sender.polling.armed);
    }

    #[test]
    fn no_helper_is_called_for_a_control_message_that_is_consumed_at_once() {
        let ([mut sender, mut receiver], endpoint) = pair();
        let (mut delivered, mut nothing) = (Delivered::default(), Delivered::default());
        for _ in 0..100 {
            send_control(&mut sender, endpoint);
            while receiver.progress(Instant(0), 100, &mut delivered) > 0 {}
            while sender.control_watch().has_unconsumed() {
                sender.progress(Instant(0), 100, &mut nothing);
            }
        }
        assert_eq!(sender.statistics().helpers_called, 0);
        assert_eq!(sender.control_watch().sent(), 100);
    }

    #[test]
    fn a_peer_that_reads_is_not_called_because_a_newer_message_is_under_way() {
        let ([mut sender, mut receiver], endpoint) = pair();
        let (mut delivered, mut nothing) = (Delivered::default(), Delivered::default());
        send_control(&mut sender, endpoint);
        while sender.unconsumed.entries[0].due.is_none() {
            sender.progress(Instant(0), 100, &mut nothing);
        }
        while receiver.progress(Instant(0), 100, &mut delivered) > 0 {}
        send_control(&mut sender, endpoint);
        while sender.unconsumed.entries[0].due.is_some_and(|due| sender.polling.clock() < due) {}
        for _ in 0..super::CALLS_PER_CHECK {
            sender.progress(Instant(0), 100, &mut nothing);
        }
        assert_eq!(sender.statistics().helpers_called, 0);
    }

    #[test]
    fn data_calls_no_helper() {
        let ([mut sender, _receiver], endpoint) = pair();
        crate::pair::send_one(&mut sender, endpoint);
        sender.call_helpers();
        assert!(!helper_was_called(&sender, 1) && !sender.control_watch().has_unconsumed());
        assert_eq!(sender.node.bells.take_helper_calls(0), HelperCalls::NONE);
    }

    #[test]
    fn the_own_helper_is_called_by_the_first_control_message_and_calls_that_of_the_peer() {
        let ([mut sender, _receiver], endpoint) = pair();
        let own_calls = |sender: &Shm| sender.node.bells.take_helper_calls(0).has(HelperCalls::WATCH);
        send_control(&mut sender, endpoint);
        assert!(own_calls(&sender));
        send_control(&mut sender, endpoint);
        assert!(!own_calls(&sender), "it watches already");
        sender.call_helpers();
        assert!(helper_was_called(&sender, 1));
        sender.control_watch().end();
        send_control(&mut sender, endpoint);
        assert!(own_calls(&sender));
    }

    #[test]
    fn a_process_that_sleeps_calls_the_helper_at_a_timed_poll() {
        let ([mut sender, _receiver], endpoint) = pair();
        let mut nothing = Delivered::default();
        while sender.progress(Instant(0), 100, &mut nothing) > 0 {}
        send_control(&mut sender, endpoint);
        assert_eq!(sender.arm(&mut WakeSet::default()), Ok(()));
        while !helper_was_called(&sender, 1) {
            sender.progress(Instant(0), 100, &mut nothing);
        }
    }

    #[test]
    fn a_severed_peer_is_called_no_more() {
        let ([mut sender, _receiver], endpoint) = pair();
        let mut nothing = Delivered::default();
        send_control(&mut sender, endpoint);
        sender.sever(endpoint);
        while sender.control_watch().has_unconsumed() {
            sender.progress(Instant(0), 100, &mut nothing);
        }
        assert!(!helper_was_called(&sender, 1));
    }
}
