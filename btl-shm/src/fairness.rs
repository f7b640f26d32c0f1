// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fairness among senders that share processors with each other or with the receiver.
//!
//! Each call of progress takes the same from every ring that holds messages. That is fair only while the rings do hold
//! some. If ranks share processors, one sender may fill its ring as fast as it is emptied, while another, whose ring was
//! emptied as well, gets no processor to fill it: the receiver always finds a message, so it never waits and never yields its
//! own processor. (Of 100,000 messages, one sender sent 30 to 500 times as many as another.)
//!
//! So messages are counted in windows. A sender whose ring was full publishes in its block that it waits for room. In each window
//! an endpoint that has had its share is held back while another one that waits for room has not had its own. Progress then
//! delivers nothing but control messages and mailbox values, so that the receiver yields, and sleeps in the end. The window ends when
//! no endpoint is behind, or after [`CHECKS_BEHIND_MAX`] checks, [`TIMED_POLLS_BEHIND_MAX`] timed ones or [`BEHIND_MAX`]. A
//! sender that sent nothing while it was waited for (it computes, or is stopped) is not waited for again until a message of it
//! has arrived.

use crate::Shm;
use crate::endpoint::{Endpoint, State};
use mend_base::{Duration, Instant};

/// The messages after which an endpoint has had its share of a window: as many as a ring holds.
const SHARE: u32 = 64;

/// After this many checks that find an endpoint behind (one check in four calls of progress) the window ends nevertheless. A
/// receiver that spins makes them in 0.1 ms; one that yields sleeps earlier.
const CHECKS_BEHIND_MAX: u32 = 256;

/// The same for the timed polls of a receiver that sleeps. Each sleep is twice as long as the one before, 31 ms in total: by then
/// a sender that can run has run, also on a busy processor.
const TIMED_POLLS_BEHIND_MAX: u32 = 5;

/// The same as a time, for programs that call MPI_Test rarely and so make few checks.
const BEHIND_MAX: Duration = Duration::from_millis(31);

const _: () = assert!(SHARE as usize == mend_segment::MESSAGE_SLOTS);

impl Endpoint {
    /// How many messages were delivered in this window.
    fn had(&self) -> u32 {
        match &self.state {
            State::Open(pair) => pair.theirs.messages.consumed().wrapping_sub(self.share.began),
            _ => 0,
        }
    }

    fn is_behind(&self) -> bool {
        let State::Open(pair) = &self.state else { return false };
        self.had() < SHARE && !self.share.not_waited_for && pair.theirs.waits_for_room()
    }

    fn begin_share(&mut self, behind: bool) {
        self.share.not_waited_for = if behind { true } else { self.share.not_waited_for && self.had() == 0 };
        if let State::Open(pair) = &self.state {
            self.share.began = pair.theirs.messages.consumed();
        }
    }
}

impl Shm {
    /// Holds back endpoints that have had their share while another one is behind; begins a new window when none is.
    pub(crate) fn share_fairly(&mut self, now: Instant) {
        let (polling, endpoints) = (&mut self.polling, &self.endpoints);
        let has_share = |&index: &u32| endpoints[index as usize].had() >= SHARE;
        if polling.held_back.is_empty() && !polling.polled.iter().any(has_share) {
            return;
        }
        let is_behind = |&index: &u32| endpoints[index as usize].is_behind();
        let behind = polling.polled.iter().any(is_behind);
        if polling.checks_below_share == 0 {
            polling.behind_since = now;
        }
        if behind && polling.checks_below_share < CHECKS_BEHIND_MAX && now - polling.behind_since < BEHIND_MAX
        {
            polling.checks_below_share += 1;
            polling.held_back.extend(polling.polled.extract_if(.., |index| has_share(index)));
            polling.unusual = true;
        } else {
            self.begin_shares(behind);
        }
    }

    /// The same in a timed poll while asleep.
    #[cold]
    pub(crate) fn share_fairly_while_armed(&mut self, now: Instant) {
        if !self.polling.held_back.is_empty() {
            self.polling.checks_below_share += CHECKS_BEHIND_MAX.div_ceil(TIMED_POLLS_BEHIND_MAX);
            self.share_fairly(now);
        }
    }

    /// Polls all endpoints again, in a new window. `gave_up`: the receiver has waited long enough for those behind.
    #[cold]
    fn begin_shares(&mut self, gave_up: bool) {
        let polling = &mut self.polling;
        polling.checks_below_share = 0;
        if polling.armed {
            for &index in &polling.held_back {
                self.endpoints[index as usize].request_bells();
            }
        }
        polling.polled.append(&mut polling.held_back);
        for &index in &polling.polled {
            let endpoint = &mut self.endpoints[index as usize];
            endpoint.begin_share(gave_up && endpoint.is_behind());
        }
    }

    /// Publishes to the peer that a send to it found no room.
    #[cold]
    pub(crate) fn announce_wait(&mut self, index: usize) {
        let endpoint = &mut self.endpoints[index];
        endpoint.share.missed_room = true;
        if let State::Open(pair) = &endpoint.state
            && !self.waiting.contains(&(index as u32))
        {
            pair.mine.set_waits_for_room(true);
            self.waiting.push(index as u32);
        }
    }

    /// Takes that back for peers to which no send has missed room since the last call, a few calls of progress ago. (A process
    /// that only sends calls progress whenever a send misses room.) It is not taken back immediately, as the process may be
    /// interrupted between two sends; but before sleep it is, as the process then has nothing to send to such a peer.
    #[cold]
    pub(crate) fn clear_waits_for_room(&mut self) {
        let (armed, endpoints) = (self.polling.armed, &mut self.endpoints);
        let mut waits = |index: u32| {
            let endpoint = &mut endpoints[index as usize];
            let missed_room = core::mem::take(&mut endpoint.share.missed_room) && !armed;
            let waits = endpoint.blocked || missed_room;
            if !waits && let State::Open(pair) = &endpoint.state {
                pair.mine.set_waits_for_room(false);
            }
            waits
        };
        self.waiting.retain(|&index| waits(index));
    }
}

#[cfg(test)]
mod tests {
    use crate::endpoint::State;
    use crate::pair::{Delivered, star};
    use crate::{Shm, ShmEndpoint};
    use mend_base::{Duration, Instant};
    use mend_transport::{AmId, Btl, MessageClass, WakeSet};

    /// Sends until there is no room, also after a call of progress.
    fn fill(sender: &mut Shm, endpoint: ShmEndpoint, number: u8) {
        let mut delivered = Delivered { room: 1, ..Delivered::default() };
        while delivered.room > 0 {
            while sender
                .send(endpoint, MessageClass::Data, AmId(1), b"", 1, |mut slot| slot.put(&[number]))
                .is_ok()
            {}
            delivered.room = 0;
            sender.progress(Instant(0), 64, &mut delivered);
        }
    }

    /// How many of the first `count` messages each of seven senders sent. The first three run beside the receiver; the others run
    /// only when the receiver has found nothing, if `others` allows it.
    fn counts(count: usize, budget: u32, others: impl Fn(u32) -> bool) -> [usize; 7] {
        let (mut receiver, mut senders, endpoint) = star(8);
        let (mut delivered, mut idle_calls) = (Delivered::default(), 0);
        senders.iter_mut().zip(0..).for_each(|(sender, number)| fill(sender, endpoint, number));
        while delivered.messages.len() < count {
            assert!(idle_calls < 100_000, "the receiver only idle_calls");
            let events = receiver.progress(Instant(0), budget, &mut delivered);
            senders[..3].iter_mut().zip(0..).for_each(|(sender, number)| fill(sender, endpoint, number));
            if events == 0 {
                idle_calls += 1;
                if others(idle_calls) {
                    senders[3..]
                        .iter_mut()
                        .zip(3..)
                        .for_each(|(sender, number)| fill(sender, endpoint, number));
                }
            }
        }
        let of =
            |number: u8| delivered.messages[..count].iter().filter(|message| message[0] == number).count();
        core::array::from_fn(|number| of(number as u8))
    }

    fn ratio(counts: [usize; 7]) -> usize {
        counts.iter().max().unwrap() / counts.iter().min().unwrap().max(&1)
    }

    #[test]
    fn senders_that_run_only_while_the_receiver_is_idle_get_a_third_of_what_others_get_or_more() {
        for budget in [1, 16, 64, 1000] {
            let counts = counts(100_000, budget, |_| true);
            assert!(ratio(counts) < 3, "{counts:?} with a budget of {budget}");
        }
        let counts = counts(100_000, 64, |idle_calls| idle_calls % 8 == 0);
        assert!(ratio(counts) < 3, "{counts:?} where one rest in eight lets them run");
    }

    #[test]
    fn senders_that_never_use_their_room_are_waited_for_once() {
        let (mut receiver, mut senders, endpoint) = star(8);
        let mut delivered = Delivered::default();
        senders.iter_mut().zip(0..).for_each(|(sender, number)| fill(sender, endpoint, number));
        let mut idle_calls = 0;
        for _ in 0..20_000 {
            idle_calls += u32::from(receiver.progress(Instant(0), 64, &mut delivered) == 0);
            senders[..3].iter_mut().zip(0..).for_each(|(sender, number)| fill(sender, endpoint, number));
        }
        assert_eq!(idle_calls, 4 * super::CHECKS_BEHIND_MAX, "calls of 20,000 that delivered nothing");
    }

    /// The program calls progress every 10 ms: a limit in calls would be seconds.
    #[test]
    fn a_program_that_rarely_tests_waits_some_calls_for_a_sender_that_computes() {
        let (mut receiver, mut senders, endpoint) = star(3);
        let mut delivered = Delivered::default();
        senders.iter_mut().zip(0..).for_each(|(sender, number)| fill(sender, endpoint, number));
        let mut idle_calls = 0;
        for call in 0..1_000 {
            let now = Instant(0) + Duration::from_millis(10 * call);
            idle_calls += u32::from(receiver.progress(now, 64, &mut delivered) == 0);
            fill(&mut senders[0], endpoint, 0);
        }
        assert!((1..20).contains(&idle_calls), "{idle_calls} calls of 1,000 delivered nothing");
    }

    #[test]
    fn a_sender_that_sleeps_with_nothing_to_send_does_not_wait_for_room() {
        let (mut receiver, mut senders, endpoint) = star(3);
        let mut delivered = Delivered::default();
        fill(&mut senders[0], endpoint, 0);
        while receiver.progress(Instant(0), 64, &mut delivered) > 0 {}
        let waits = |receiver: &Shm| match &receiver.endpoints[0].state {
            State::Open(pair) => pair.theirs.waits_for_room(),
            other => unreachable!("{other:?} of a correct peer"),
        };
        senders[0].progress(Instant(0), 64, &mut delivered);
        assert!(waits(&receiver), "it may have been interrupted between two sends");
        assert_eq!(senders[0].arm(&mut WakeSet::default()), Ok(()));
        assert!(!waits(&receiver));
    }

    #[test]
    fn a_sender_that_is_held_back_is_polled_again_when_all_others_are_severed() {
        let (mut receiver, mut senders, endpoint) = star(3);
        let mut delivered = Delivered::default();
        senders.iter_mut().zip(0..).for_each(|(sender, number)| fill(sender, endpoint, number));
        while receiver.progress(Instant(0), 64, &mut delivered) > 0 {
            assert!(delivered.messages.len() < 10_000, "the first sender is never held back");
            fill(&mut senders[0], endpoint, 0);
        }
        receiver.sever(ShmEndpoint(1));
        let before = delivered.messages.len();
        (0..100).for_each(|_| _ = receiver.progress(Instant(0), 64, &mut delivered));
        assert!(delivered.messages.len() > before);
    }

    /// Sends a control message or a state that [`has_control`] finds.
    fn send_control(sender: &mut Shm, endpoint: ShmEndpoint, class: MessageClass) {
        sender.send(endpoint, class, AmId(2), b"", 1, |mut slot| slot.put(&[200])).unwrap();
    }

    fn has_control(delivered: &Delivered) -> bool {
        delivered.messages.iter().any(|message| message[0] == 200)
    }

    #[test]
    fn control_messages_and_states_of_a_sender_that_is_held_back_are_delivered() {
        for class in [MessageClass::Control, MessageClass::Mailbox] {
            let (mut receiver, mut senders, endpoint) = star(3);
            let mut delivered = Delivered::default();
            senders.iter_mut().zip(0..).for_each(|(sender, number)| fill(sender, endpoint, number));
            while receiver.progress(Instant(0), 64, &mut delivered) > 0 {
                fill(&mut senders[0], endpoint, 0);
            }
            let before = delivered.messages.len();
            assert!(!receiver.polling.held_back.is_empty());
            send_control(&mut senders[0], endpoint, class);
            assert_eq!(receiver.progress(Instant(0), 64, &mut delivered), 1);
            assert!(has_control(&delivered) && delivered.messages.len() == before + 1);
        }
    }

    #[test]
    fn a_receiver_does_not_sleep_while_a_sender_that_is_held_back_has_sent_a_control_message() {
        let (mut receiver, mut senders, endpoint) = star(3);
        let mut delivered = Delivered::default();
        senders.iter_mut().zip(0..).for_each(|(sender, number)| fill(sender, endpoint, number));
        while receiver.progress(Instant(0), 64, &mut delivered) > 0 {
            fill(&mut senders[0], endpoint, 0);
        }
        send_control(&mut senders[0], endpoint, MessageClass::Control);
        assert!(receiver.arm(&mut WakeSet::default()).is_err());
        assert_eq!(receiver.progress(Instant(0), 64, &mut delivered), 1);
        assert!(has_control(&delivered) && receiver.arm(&mut WakeSet::default()).is_ok());
        // Asleep, at the next timed poll.
        send_control(&mut senders[0], endpoint, MessageClass::Control);
        assert_eq!(receiver.progress(Instant(0), 64, &mut delivered), 1);
    }

    #[test]
    fn one_sender_alone_is_never_held_back() {
        let (mut receiver, mut senders, endpoint) = star(2);
        let mut delivered = Delivered::default();
        for _ in 0..1000 {
            fill(&mut senders[0], endpoint, 0);
            assert!(receiver.progress(Instant(0), 64, &mut delivered) > 0);
        }
    }

    #[test]
    fn a_few_timed_polls_after_falling_asleep_no_sender_is_held_back() {
        let (mut receiver, mut senders, endpoint) = star(3);
        let mut delivered = Delivered::default();
        senders.iter_mut().zip(0..).for_each(|(sender, number)| fill(sender, endpoint, number));
        while receiver.progress(Instant(0), 64, &mut delivered) > 0 {
            assert!(delivered.messages.len() < 10_000, "the first sender is never held back");
            fill(&mut senders[0], endpoint, 0);
        }
        assert_eq!(
            receiver.arm(&mut WakeSet::default()),
            Ok(()),
            "it sleeps, so that the other sender may run"
        );
        let checks = (1..100).find(|_| receiver.progress(Instant(0), 64, &mut delivered) > 0);
        assert_eq!(checks, Some(super::TIMED_POLLS_BEHIND_MAX));
        assert!(receiver.arm(&mut WakeSet::default()).is_err(), "something is there");
    }
}
