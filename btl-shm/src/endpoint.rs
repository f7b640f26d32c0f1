// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connection to one process: its state, sends, and one poll of its rings.
//!
//! ```text
//!            quarantine            sever                 drained
//!     Open ◀───────────▶ Quarantined ─────▶ Severing ───────────▶ Severed
//!      │      resume                           ▲
//!      └── wrote garbage ──▶ Garbled ──────────┘   (nothing more is read from it, not even while it is severed)
//! ```

use crate::block_pair::{ALL_FOUND_EMPTY, BlockPair, PER_KIND, Quota, RINGS, ShmEndpoint, deliver};
use mend_base::{Instant, PeerIndex};
use mend_segment::{BellRequest, Garbage, PayloadMut, Ring, SlotHeader};
use mend_transport::{AmId, Limits, PayloadWriter, Sink, Stream};

/// The connection to one process.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) state: State,
    pub(crate) peer: PeerIndex,
    pub(crate) slot: u32,
    pub(crate) limits: Limits,
    pub(crate) mode: ArrivalMode,
    /// What it has received in the present window, for fairness among senders.
    pub(crate) share: Share,
    /// A send found no room since the last `on_sendable`.
    pub(crate) blocked: bool,
    /// The peer's credit word is beyond what was written.
    pub(crate) invalid_credit: bool,
    /// The peer has not consumed a control message, as far as is known: see `control_watch`.
    pub(crate) has_unconsumed_control: bool,
    /// For each ring, the payload of the last send that found no room.
    len_refused: [Option<usize>; 3],
    /// Space for a chunk ring was refused: chunks go through the message ring for as long as this endpoint exists, so
    /// that each stream keeps one order.
    chunks_as_messages: bool,
}

/// Which operations are possible on an endpoint.
#[derive(Debug)]
pub(crate) enum State {
    /// Send and receive.
    Open(Box<BlockPair>),
    /// Neither, until `resume` or `sever`.
    Quarantined(Box<BlockPair>),
    /// Neither, until `sever`, as the peer wrote garbage.
    Garbled(Box<BlockPair>),
    /// Complete messages are still delivered, up to the quota.
    Severing(Box<BlockPair>, Quota),
    /// Neither for ever; the peer's memory is unmapped.
    Severed,
}

/// How arrivals of one endpoint are noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ArrivalMode {
    /// The peer rings a doorbell.
    Doorbell,
    /// Its rings are polled.
    Polled { last_arrival: Instant },
    /// Its rings are polled, and the peer has been asked to ring. `since`: when this process last stored to the bell
    /// request or the bell, by its own clock.
    Demoting { since: Instant },
}

/// How much one endpoint has been given of the present window: see `fairness`.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Share {
    /// Messages that its ring had delivered when the window began.
    pub(crate) began: u32,
    /// No other endpoint is held back for this one: the last wait for it brought no message, and none has come since.
    pub(crate) not_waited_for: bool,
    /// In the other direction: a send to it found no room since this was last checked.
    pub(crate) missed_room: bool,
}

impl Endpoint {
    pub(crate) fn new(peer: PeerIndex, slot: u32, limits: Limits, pair: BlockPair) -> Self {
        Endpoint {
            state: State::Open(Box::new(pair)),
            peer,
            slot,
            limits,
            mode: ArrivalMode::Doorbell,
            share: Share::default(),
            blocked: false,
            invalid_credit: false,
            has_unconsumed_control: false,
            len_refused: [None; 3],
            chunks_as_messages: false,
        }
    }

    // Hot: per message.
    /// Returns whether the message was sent.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> bool {
        assert!(header.len() <= Limits::HEADER_BYTES_MAX && len <= self.limits.message_bytes_max as usize);
        let slot_header = SlotHeader { id: id.0, header, chunk: false };
        self.push(Ring::Messages, slot_header, len, fill)
    }

    // Hot: per control message.
    pub(crate) fn send_control(
        &mut self,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> bool {
        assert!(header.len() <= Limits::HEADER_BYTES_MAX && len <= self.limits.control_bytes_max as usize);
        let slot_header = SlotHeader { id: id.0, header, chunk: false };
        self.push(Ring::Control, slot_header, len, fill)
    }

    // Hot: per message.
    /// Publishes in one of the two rings of messages. Without room it reads the peer's credit and tries once more.
    #[inline(always)]
    fn push(
        &mut self,
        ring: Ring,
        slot_header: SlotHeader<'_>,
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> bool {
        let State::Open(pair) = &mut self.state else { return false };
        match pair.mine.push(ring, slot_header, len, |room| fill(slot(room))) {
            Ok(()) => true,
            Err(fill) => {
                self.refresh(ring, len);
                let State::Open(pair) = &mut self.state else { return false };
                pair.mine.push(ring, slot_header, len, fill).is_ok()
            }
        }
    }

    pub(crate) fn put_mailbox(
        &mut self,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> bool {
        assert!(header.len() <= Limits::HEADER_BYTES_MAX && len <= self.limits.control_bytes_max as usize);
        let State::Open(pair) = &mut self.state else { return false };
        pair.mine.put_mailbox(SlotHeader { id: id.0, header, chunk: false }, len, |room| fill(slot(room)));
        true
    }

    // Hot: per chunk.
    pub(crate) fn send_chunk(
        &mut self,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> bool {
        assert!(len <= self.limits.chunk_bytes as usize, "a chunk longer than the receiver takes");
        let State::Open(pair) = &mut self.state else { return false };
        if !self.chunks_as_messages && pair.mine.chunks().is_err() {
            self.chunks_as_messages = true;
        }
        let stream = stream.0.to_le_bytes();
        let slot_header = SlotHeader { id: 0, header: &stream, chunk: true };
        let fill = |room: PayloadMut<'_>| fill(slot(room));
        let (ring, refused) = if self.chunks_as_messages {
            (Ring::Messages, pair.mine.push(Ring::Messages, slot_header, len, fill))
        } else {
            let Ok(chunks) = pair.mine.chunks() else { return false };
            (Ring::Chunks, chunks.push(slot_header, len, fill))
        };
        let Err(fill) = refused else { return true };
        self.refresh(ring, len);
        let State::Open(pair) = &mut self.state else { return false };
        match (ring, pair.mine.chunk_ring()) {
            (Ring::Chunks, Some(chunks)) => chunks.push(slot_header, len, fill).is_ok(),
            _ => pair.mine.messages.push(slot_header, len, fill).is_ok(),
        }
    }

    /// Reads the credit that the peer has given, and stores the refused length in case it is not enough.
    #[cold]
    fn refresh(&mut self, ring: Ring, len: usize) {
        self.len_refused[ring as usize] = Some(len);
        self.take_credit(ring);
    }

    pub(crate) fn take_credit(&mut self, ring: Ring) {
        let State::Open(pair) = &mut self.state else { return };
        let consumed = pair.theirs.credit(ring);
        let taken = match ring {
            Ring::Control => pair.mine.control.credit(consumed),
            Ring::Messages => pair.mine.messages.credit(consumed),
            Ring::Chunks => pair.mine.chunk_ring().map_or(Ok(()), |chunks| chunks.credit(consumed)),
        };
        self.invalid_credit |= taken == Err(Garbage);
    }

    /// Whether the send that found no room would find some now.
    pub(crate) fn has_room(&mut self) -> bool {
        RINGS.into_iter().any(|ring| {
            let Some(len) = self.len_refused[ring as usize] else { return false };
            self.take_credit(ring);
            let State::Open(pair) = &mut self.state else { return false };
            match ring {
                Ring::Control => pair.mine.control.has_room(len),
                Ring::Messages => pair.mine.messages.has_room(len),
                Ring::Chunks => pair.mine.chunk_ring().is_some_and(|chunks| chunks.has_room(len)),
            }
        })
    }

    /// Clears the record of the send that found no room, as `on_sendable` is called.
    pub(crate) fn unblock(&mut self, armed: bool) {
        self.blocked = false;
        self.len_refused = [None; 3];
        let request = match self.mode {
            ArrivalMode::Polled { .. } if !armed => BellRequest::NONE,
            _ => BellRequest::MESSAGES,
        };
        if let State::Open(pair) = &mut self.state {
            pair.mine.set_bell_request(request);
        }
    }

    /// Asks the peer to ring for what it sends, and for credit where a send waits for it.
    pub(crate) fn request_bells(&self) {
        if let State::Open(pair) = &self.state {
            pair.mine.set_bell_request(if self.blocked { BellRequest::ALL } else { BellRequest::MESSAGES });
        }
    }

    // Hot: per poll.
    pub(crate) fn is_ready(&self) -> bool {
        let State::Open(pair) = &self.state else { return false };
        pair.is_ready()
    }

    /// Whether a control message or a mailbox value is there.
    #[cold]
    pub(crate) fn has_control(&self) -> bool {
        let State::Open(pair) = &self.state else { return false };
        pair.theirs.block_may_exist() && (pair.theirs.control.is_ready() || pair.theirs.mailbox_changed())
    }

    // Hot: per poll.
    #[inline(always)]
    pub(crate) fn has_message(&self) -> bool {
        let State::Open(pair) = &self.state else { return false };
        pair.theirs.block_may_exist() && pair.theirs.messages.is_ready()
    }

    // Hot: per message.
    /// Delivers the message at the head of the message ring. `None`: there is none; else whether the peer has to be
    /// rung for credit.
    #[inline(always)]
    pub(crate) fn take_message(
        &mut self,
        sink: &mut impl Sink<ShmEndpoint>,
    ) -> Result<Option<bool>, Garbage> {
        let State::Open(pair) = &mut self.state else { return Ok(None) };
        if !pair.theirs.block_exists()? {
            return Ok(None);
        }
        let (peer, mut fine) = (self.peer, Ok(()));
        let taken = pair.theirs.messages.take(|message| fine = deliver(peer, message, sink))?;
        fine?;
        if !taken {
            return Ok(None);
        }
        let messages = &mut pair.theirs.messages;
        if !messages.owed(!messages.is_ready()) {
            return Ok(Some(false));
        }
        pair.mine.set_credit(Ring::Messages, messages.give_credit());
        Ok(Some(pair.theirs.bell_request().has(BellRequest::CREDIT)))
    }

    /// Gives all credit that is owed, also after a sink has panicked, if no later message may come that would cause it to be
    /// given. Returns whether the peer has to be rung for it.
    #[cold]
    pub(crate) fn give_overdue_credit(&mut self) -> bool {
        let State::Open(pair) = &mut self.state else { return false };
        pair.theirs.block_exists() == Ok(true) && pair.give_credit(ALL_FOUND_EMPTY)
    }

    // Hot: per poll.
    /// Delivers up to `budget` messages, of each kind at most [`PER_KIND`]. Returns how many, and whether the peer
    /// has to be rung for credit.
    pub(crate) fn take_some(
        &mut self,
        budget: u32,
        sink: &mut impl Sink<ShmEndpoint>,
    ) -> Result<(u32, bool), Garbage> {
        let State::Open(pair) = &mut self.state else { return Ok((0, false)) };
        if !pair.theirs.block_exists()? {
            return Ok((0, false));
        }
        let mut quota = Quota { rings: [PER_KIND; 3], mailboxes: PER_KIND };
        let events = pair.hand_up(self.peer, budget, &mut quota, sink)?;
        if events == 0 {
            return Ok((0, false));
        }
        Ok((events, pair.give_credit(quota)))
    }

    /// The same for mailbox values and control messages alone.
    #[cold]
    pub(crate) fn take_control(
        &mut self,
        budget: u32,
        sink: &mut impl Sink<ShmEndpoint>,
    ) -> Result<(u32, bool), Garbage> {
        let State::Open(pair) = &mut self.state else { return Ok((0, false)) };
        if !pair.theirs.block_exists()? {
            return Ok((0, false));
        }
        let mut quota = Quota { rings: [PER_KIND, 0, 0], mailboxes: PER_KIND };
        let events = pair.hand_up_control(self.peer, budget, &mut quota, sink)?;
        if events == 0 {
            return Ok((0, false));
        }
        Ok((events, pair.give_credit(quota)))
    }
}

// Hot: per message.
fn slot(room: PayloadMut<'_>) -> PayloadWriter<'_> {
    match room {
        PayloadMut::Private(bytes) => PayloadWriter::from(bytes),
        PayloadMut::Shared(bytes) => PayloadWriter::from(bytes),
    }
}

#[cfg(test)]
mod tests {
    use crate::pair::{Delivered, pair};
    use crate::{Shm, ShmEndpoint};
    use mend_base::{Instant, PeerIndex};
    use mend_transport::{AmId, Btl, Cause, Cookie, MessageClass, Payload, SendError, Sink, Stream, WakeSet};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn without_space_for_a_chunk_ring_chunks_go_through_the_message_ring_in_order() {
        let ([mut sender, mut receiver], endpoint) = pair();
        sender.endpoints[0].chunks_as_messages = true;
        let longest = sender.limits(endpoint).chunk_bytes as usize;
        let (mut delivered, mut nothing) = (Delivered::default(), Delivered::default());
        let mut busy = 0;
        for number in 0..100u8 {
            let len = [longest, 1, 2048, 60][usize::from(number) % 4];
            let chunk = vec![number; len];
            while let Err(error) = sender.send_chunk(endpoint, Stream(1), len, |mut slot| slot.put(&chunk)) {
                assert_eq!(error, SendError::Busy);
                busy += 1;
                receiver.progress(Instant(0), 100, &mut delivered);
                sender.progress(Instant(0), 100, &mut nothing);
            }
            if number % 10 == 0 {
                let _ = sender
                    .send(endpoint, MessageClass::Data, AmId(1), b"", 1, |mut slot| slot.put(&[number]));
            }
        }
        while receiver.progress(Instant(0), 100, &mut delivered) > 0 {}
        assert!(busy > 10 && nothing.room > 10);
        let numbers: Vec<u8> = delivered.chunks.iter().map(|chunk| chunk[0]).collect();
        assert!(numbers.iter().copied().eq(0..100));
        assert!(delivered.chunks.iter().all(|chunk| chunk.iter().all(|&byte| byte == chunk[0])));
    }

    #[test]
    fn no_kind_starves_however_small_the_budget() {
        for budget in [1, 3, 16, 17, 40] {
            let ([mut sender, mut receiver], endpoint) = pair();
            let (mut delivered, mut nothing) = (Delivered::default(), Delivered::default());
            for _ in 0..400 {
                for (class, kind) in
                    [(MessageClass::Control, 1), (MessageClass::Data, 2), (MessageClass::Mailbox, 3)]
                {
                    (0..32).for_each(|_| {
                        _ = sender.send(endpoint, class, AmId(kind), b"", 1, |mut slot| slot.put(&[kind]));
                    });
                }
                (0..32)
                    .for_each(|_| _ = sender.send_chunk(endpoint, Stream(1), 1, |mut slot| slot.put(&[4])));
                receiver.progress(Instant(0), budget, &mut delivered);
                sender.progress(Instant(0), 100, &mut nothing);
            }
            for kind in [1, 2, 3] {
                let count = delivered.messages.iter().filter(|message| message[0] == kind).count();
                assert!(count > 50, "{count} of kind {kind} with a budget of {budget}");
            }
            assert!(
                delivered.chunks.len() > 50,
                "{} chunks with a budget of {budget}",
                delivered.chunks.len()
            );
        }
    }

    /// Records each event, and panics.
    #[derive(Default)]
    struct Panicking(Delivered);

    impl Sink<ShmEndpoint> for Panicking {
        fn on_message(&mut self, from: PeerIndex, id: AmId, header: &[u8], payload: Payload<'_>) {
            self.0.on_message(from, id, header, payload);
            panic!("the sink fails at a message");
        }

        fn on_chunk(&mut self, from: PeerIndex, stream: Stream, payload: Payload<'_>) {
            self.0.on_chunk(from, stream, payload);
            panic!("the sink fails at a chunk");
        }

        fn on_done(&mut self, _: Cookie, _: Result<(), SendError>) {}

        fn on_sendable(&mut self, _: PeerIndex, _: ShmEndpoint) {
            self.0.room += 1;
            panic!("the sink fails at room");
        }

        fn on_error(&mut self, _: PeerIndex, _: ShmEndpoint, cause: Cause) {
            unreachable!("{cause:?} of a correct peer");
        }

        fn on_severed(&mut self, _: PeerIndex, _: ShmEndpoint) {}
    }

    #[test]
    fn a_sink_that_panics_gets_each_event_once_and_no_garbage_is_reported() {
        let ([mut sender, mut receiver], endpoint) = pair();
        let (mut delivered, mut nothing) = (Panicking::default(), Delivered::default());
        sender.endpoints[0].chunks_as_messages = true;
        let longest = sender.limits(endpoint).chunk_bytes as usize;
        let go_on =
            |sender: &mut Shm, nothing: &mut Delivered, receiver: &mut Shm, delivered: &mut Panicking| {
                // Both ways to receive; every call panics.
                let progress =
                    catch_unwind(AssertUnwindSafe(|| receiver.progress(Instant(0), 100, delivered)));
                let taken =
                    catch_unwind(AssertUnwindSafe(|| receiver.take_message(Instant(0), endpoint, delivered)));
                _ = (progress, taken);
                sender.progress(Instant(0), 100, nothing);
            };
        go_on(&mut sender, &mut nothing, &mut receiver, &mut delivered);
        // Credit for all delivered messages is given before sleep at the latest.
        let credit = |receiver: &mut Shm| {
            assert!(receiver.arm(&mut WakeSet::default()).is_ok(), "nothing is left to receive");
            receiver.disarm();
        };
        for number in 0..100u8 {
            credit(&mut receiver);
            for (class, kind) in
                [(MessageClass::Data, number), (MessageClass::Control, 100), (MessageClass::Mailbox, 200)]
            {
                sender.send(endpoint, class, AmId(kind), b"", 60, |mut slot| slot.put(&[kind; 60])).unwrap();
            }
            (0..3).for_each(|_| go_on(&mut sender, &mut nothing, &mut receiver, &mut delivered));
            // A payload as long as the byte area needs credit for everything before it.
            let chunk = vec![number; longest];
            credit(&mut receiver);
            sender.send_chunk(endpoint, Stream(1), longest, |mut slot| slot.put(&chunk)).unwrap();
            go_on(&mut sender, &mut nothing, &mut receiver, &mut delivered);
        }
        let Delivered { messages, chunks, room } = delivered.0;
        let data = messages.iter().map(|message| message[0]).filter(|&kind| kind < 100);
        assert!(data.eq(0..100), "each message once, in order");
        let count = |kind| messages.iter().filter(|message| message[0] == kind).count();
        assert_eq!((count(100), count(200), room), (100, 100, 1));
        assert!(chunks.iter().map(|chunk| chunk[0]).eq(0..100), "each chunk once, in order");
        let mut calm = Delivered::default();
        assert_eq!(receiver.progress(Instant(0), 100, &mut calm), 0, "and nothing comes again");
    }

    #[test]
    fn a_sender_that_always_finds_room_again_still_receives() {
        let ([mut flooder, mut peer], endpoint) = pair();
        let (mut delivered, mut nothing) = (Delivered::default(), Delivered::default());
        for _ in 0..200 {
            while flooder
                .send(endpoint, MessageClass::Data, AmId(1), b"", 1, |mut slot| slot.put(&[1]))
                .is_ok()
            {}
            while peer.progress(Instant(0), 100, &mut nothing) > 0 {}
            let _ = peer.send(endpoint, MessageClass::Data, AmId(1), b"", 1, |mut slot| slot.put(&[2]));
            flooder.progress(Instant(0), 1, &mut delivered);
        }
        assert!(
            delivered.messages.len() > 50 && delivered.room > 50,
            "{} {}",
            delivered.messages.len(),
            delivered.room
        );
    }
}
