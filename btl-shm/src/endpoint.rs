// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One way to one process: its state, what goes out, and one look at what came in.
//!
//! ```text
//!            quarantine            sever                 drained
//!     Open ◀───────────▶ Quarantined ─────▶ Severing ───────────▶ Severed
//!      │      resume                           ▲
//!      └── wrote garbage ──▶ Garbled ──────────┘   (nothing more of it is read, not even now)
//! ```

use crate::fairness::Share;
use crate::{RINGS, ShmEndpoint, polling::Watch};
use mend_base::PeerIndex;
use mend_segment::{Arrival, Block, Envelope, Garbage, Lent, PeerBlock, Ring, Room, Wish};
use mend_transport::{AmId, Limits, Payload, Sink, Stream, WriteSlot};

/// One way to one process.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) state: State,
    pub(crate) peer: PeerIndex,
    pub(crate) slot: u32,
    pub(crate) limits: Limits,
    pub(crate) watch: Watch,
    /// What fairness among senders knows of it.
    pub(crate) share: Share,
    /// A send found no room since `on_room` was last said.
    pub(crate) blocked: bool,
    /// The peer claims to have read what we have not written.
    pub(crate) suspect_credit: bool,
    /// Its life word is marked, and that was said since it was last resumed.
    pub(crate) said_dead: bool,
    /// What the last send without room wanted, for each ring.
    wanted: [Option<usize>; 3],
    /// Space for chunks was refused: they go with the messages, for as long as this way lives (one order per stream).
    chunks_as_messages: bool,
}

/// What may be done with it.
#[derive(Debug)]
pub(crate) enum State {
    /// Everything.
    Open(Box<Link>),
    /// Nothing, but it stands.
    Quarantined(Box<Link>),
    /// It wrote what no correct peer writes.
    Garbled(Box<Link>),
    /// What it had sent whole is being handed up.
    Severing(Box<Link>, Laps),
    /// Gone.
    Severed,
}

/// Both ends' memory.
#[derive(Debug)]
pub(crate) struct Link {
    /// What we write for the peer.
    pub(crate) mine: Block,
    /// What it writes for us.
    pub(crate) theirs: PeerBlock,
    /// Looks in a row that the budget cut, of four: where the next one begins, see [`Link::hand_up`].
    cuts: u8,
}

/// How much may still be handed up from each ring, and from the mailboxes: a lap each, for threads of the dead may still
/// run for a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Laps {
    pub(crate) rings: [u32; 3],
    pub(crate) states: u32,
}

impl Endpoint {
    pub(crate) fn new(peer: PeerIndex, slot: u32, limits: Limits, link: Link) -> Self {
        Endpoint {
            state: State::Open(Box::new(link)),
            peer,
            slot,
            limits,
            watch: Watch::Belled,
            share: Share::default(),
            blocked: false,
            suspect_credit: false,
            said_dead: false,
            wanted: [None; 3],
            chunks_as_messages: false,
        }
    }

    // Hot: per message.
    /// Whether it went.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> bool {
        assert!(header.len() <= Limits::HEADER_BYTES_MAX && len <= self.limits.packed_bytes_max as usize);
        let envelope = Envelope { id: id.0, header, chunk: false };
        self.push(Ring::Messages, envelope, len, fill)
    }

    // Hot: per control message.
    pub(crate) fn send_control(
        &mut self,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> bool {
        assert!(header.len() <= Limits::HEADER_BYTES_MAX && len <= self.limits.inline_bytes_max as usize);
        let envelope = Envelope { id: id.0, header, chunk: false };
        self.push(Ring::Control, envelope, len, fill)
    }

    // Hot: per message.
    /// Publishes in one of the two rings of messages; without room once more after a look at the peer's credit.
    #[inline(always)]
    fn push(
        &mut self,
        ring: Ring,
        envelope: Envelope<'_>,
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> bool {
        let State::Open(link) = &mut self.state else { return false };
        match link.mine.push(ring, envelope, len, |room| fill(slot(room))) {
            Ok(()) => true,
            Err(fill) => {
                self.refresh(ring, len);
                let State::Open(link) = &mut self.state else { return false };
                link.mine.push(ring, envelope, len, fill).is_ok()
            }
        }
    }

    pub(crate) fn put_state(
        &mut self,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> bool {
        assert!(header.len() <= Limits::HEADER_BYTES_MAX && len <= self.limits.inline_bytes_max as usize);
        let State::Open(link) = &mut self.state else { return false };
        link.mine.put_state(Envelope { id: id.0, header, chunk: false }, len, |room| fill(slot(room)));
        true
    }

    // Hot: per chunk.
    pub(crate) fn send_chunk(
        &mut self,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(WriteSlot<'_>),
    ) -> bool {
        assert!(len <= self.limits.chunk_bytes as usize, "a chunk longer than the receiver takes");
        let State::Open(link) = &mut self.state else { return false };
        if !self.chunks_as_messages && link.mine.chunks().is_err() {
            self.chunks_as_messages = true;
        }
        let stream = stream.0.to_le_bytes();
        let envelope = Envelope { id: 0, header: &stream, chunk: true };
        let fill = |room: Room<'_>| fill(slot(room));
        let (ring, refused) = if self.chunks_as_messages {
            (Ring::Messages, link.mine.push(Ring::Messages, envelope, len, fill))
        } else {
            let Ok(chunks) = link.mine.chunks() else { return false };
            (Ring::Chunks, chunks.push(envelope, len, fill))
        };
        let Err(fill) = refused else { return true };
        self.refresh(ring, len);
        let State::Open(link) = &mut self.state else { return false };
        match (ring, link.mine.made_chunks()) {
            (Ring::Chunks, Some(chunks)) => chunks.push(envelope, len, fill).is_ok(),
            _ => link.mine.messages.push(envelope, len, fill).is_ok(),
        }
    }

    /// Takes the credit that the peer has given since, and keeps what was wanted in case it is not enough.
    #[cold]
    fn refresh(&mut self, ring: Ring, len: usize) {
        self.wanted[ring as usize] = Some(len);
        self.take_credit(ring);
    }

    fn take_credit(&mut self, ring: Ring) {
        let State::Open(link) = &mut self.state else { return };
        let consumed = link.theirs.credit(ring);
        let taken = match ring {
            Ring::Control => link.mine.control.credit(consumed),
            Ring::Messages => link.mine.messages.credit(consumed),
            Ring::Chunks => link.mine.made_chunks().map_or(Ok(()), |chunks| chunks.credit(consumed)),
        };
        self.suspect_credit |= taken == Err(Garbage);
    }

    /// Whether a send that found no room would find some now.
    pub(crate) fn has_room(&mut self) -> bool {
        RINGS.into_iter().any(|ring| {
            let Some(len) = self.wanted[ring as usize] else { return false };
            self.take_credit(ring);
            let State::Open(link) = &mut self.state else { return false };
            match ring {
                Ring::Control => link.mine.control.has_room(len),
                Ring::Messages => link.mine.messages.has_room(len),
                Ring::Chunks => link.mine.made_chunks().is_some_and(|chunks| chunks.has_room(len)),
            }
        })
    }

    /// `on_room` is being said.
    pub(crate) fn unblock(&mut self, armed: bool) {
        self.blocked = false;
        self.wanted = [None; 3];
        let wish = match self.watch {
            Watch::Polled { .. } if !armed => Wish::NOTHING,
            _ => Wish::MESSAGES,
        };
        if let State::Open(link) = &mut self.state {
            link.mine.set_wish(wish);
        }
    }

    /// The peer is to ring for what it sends, and for credit if that is waited for.
    pub(crate) fn wish_for_bells(&self) {
        if let State::Open(link) = &self.state {
            link.mine.set_wish(if self.blocked { Wish::EVERYTHING } else { Wish::MESSAGES });
        }
    }

    // Hot: per look.
    pub(crate) fn is_ready(&self) -> bool {
        let State::Open(link) = &self.state else { return false };
        link.is_ready()
    }

    // Hot: per look.
    #[inline(always)]
    pub(crate) fn has_message(&self) -> bool {
        let State::Open(link) = &self.state else { return false };
        link.theirs.stands() && link.theirs.messages.is_ready()
    }

    // Hot: per message.
    /// Hands up the message that lies at the head of the ring of messages. `None`: none does; else whether the peer has to
    /// be rung for credit.
    #[inline(always)]
    pub(crate) fn take_message(
        &mut self,
        sink: &mut impl Sink<ShmEndpoint>,
    ) -> Result<Option<bool>, Garbage> {
        let State::Open(link) = &mut self.state else { return Ok(None) };
        if !link.theirs.is_made()? {
            return Ok(None);
        }
        let (peer, mut fine) = (self.peer, Ok(()));
        let taken = link.theirs.messages.take(|arrival| fine = any(peer, arrival, sink))?;
        fine?;
        if !taken {
            return Ok(None);
        }
        let messages = &mut link.theirs.messages;
        if !messages.owed(!messages.is_ready()) {
            return Ok(Some(false));
        }
        link.mine.set_credit(Ring::Messages, messages.give_credit());
        Ok(Some(link.theirs.wish().has(Wish::CREDIT)))
    }

    /// Gives all credit that is owed. After a sink has panicked nobody else may do so, for nothing need ever come. Whether the
    /// peer has to be rung for it.
    #[cold]
    pub(crate) fn give_overdue_credit(&mut self) -> bool {
        let State::Open(link) = &mut self.state else { return false };
        link.theirs.is_made() == Ok(true) && link.give_credit(EMPTY)
    }

    // Hot: per look.
    /// Hands up to `budget` arrivals to `sink`, of each kind no more than [`PER_KIND`]. Gives how many, and whether the
    /// peer has to be rung for credit.
    pub(crate) fn look(
        &mut self,
        budget: u32,
        sink: &mut impl Sink<ShmEndpoint>,
    ) -> Result<(u32, bool), Garbage> {
        let State::Open(link) = &mut self.state else { return Ok((0, false)) };
        if !link.theirs.is_made()? {
            return Ok((0, false));
        }
        let mut laps = Laps { rings: [PER_KIND; 3], states: PER_KIND };
        let events = link.hand_up(self.peer, budget, &mut laps, sink)?;
        if events == 0 {
            return Ok((0, false));
        }
        Ok((events, link.give_credit(laps)))
    }
}

/// Nothing is left to hand up, as far as credit goes.
const EMPTY: Laps = Laps { rings: [1; 3], states: 1 };

/// Arrivals of one kind in one look: an endpoint that never falls silent lets the others have their turn.
pub(crate) const PER_KIND: u32 = 16;

impl Link {
    pub(crate) fn new(mine: Block, theirs: PeerBlock) -> Self {
        Link { mine, theirs, cuts: 0 }
    }

    // Hot: per look.
    fn is_ready(&self) -> bool {
        self.theirs.stands()
            && (self.theirs.messages.is_ready()
                || self.theirs.control.is_ready()
                || self.theirs.has_news()
                || self.theirs.chunks.as_ref().is_some_and(|chunks| chunks.is_ready()))
    }

    // Hot: per look.
    /// Hands up what lies ready, as far as `budget` and `laps` allow; takes it off `laps`. States and control first:
    /// they do not wait behind data. But where the budget cuts one look after the other, each ring in turn comes before
    /// them: else what stands last would never be reached.
    pub(crate) fn hand_up(
        &mut self,
        peer: PeerIndex,
        budget: u32,
        laps: &mut Laps,
        sink: &mut impl Sink<ShmEndpoint>,
    ) -> Result<u32, Garbage> {
        let mut events = 0;
        if let Some(ring) = self.cuts.checked_sub(1) {
            events = self.hand_up_ring(usize::from(ring), peer, budget, laps, sink)?;
        }
        if self.theirs.has_news() && laps.states > 0 {
            let most = laps.states.min(budget - events);
            let states = self.theirs.look(most, |state| message(peer, state, sink))?;
            (events, laps.states) = (events + states, laps.states - states);
        }
        for ring in 0..RINGS.len() {
            events += self.hand_up_ring(ring, peer, budget - events, laps, sink)?;
        }
        self.cuts = if events == budget { (self.cuts + 1) % 4 } else { 0 };
        Ok(events)
    }

    // Hot: per look.
    #[inline]
    fn hand_up_ring(
        &mut self,
        ring: usize,
        peer: PeerIndex,
        budget: u32,
        laps: &mut Laps,
        sink: &mut impl Sink<ShmEndpoint>,
    ) -> Result<u32, Garbage> {
        let (theirs, left) = (&mut self.theirs, &mut laps.rings[ring]);
        let most = budget.min(*left);
        let (mut events, mut fine) = (0, Ok(()));
        while events < most {
            let taken = match ring {
                0 => theirs.control.take(|arrival| fine = fine.and(control(peer, arrival, sink)))?,
                1 => theirs.messages.take(|arrival| fine = fine.and(any(peer, arrival, sink)))?,
                _ => {
                    let Some(chunks) = &mut theirs.chunks else { break };
                    chunks.take(|arrival| fine = fine.and(chunk(peer, arrival, sink)))?
                }
            };
            if !taken {
                break;
            }
            events += 1;
        }
        *left -= events;
        fine.map(|()| events)
    }

    /// Gives credit where enough is owed. Whether the peer has to be rung for it.
    #[inline(always)]
    fn give_credit(&mut self, left: Laps) -> bool {
        let (mine, theirs) = (&self.mine, &mut self.theirs);
        let mut given = false;
        if theirs.control.owed(left.rings[0] > 0) {
            mine.set_credit(Ring::Control, theirs.control.give_credit());
            given = true;
        }
        if theirs.messages.owed(left.rings[1] > 0) {
            mine.set_credit(Ring::Messages, theirs.messages.give_credit());
            given = true;
        }
        if let Some(chunks) = &mut theirs.chunks
            && chunks.owed(left.rings[2] > 0)
        {
            mine.set_credit(Ring::Chunks, chunks.give_credit());
            given = true;
        }
        given && theirs.wish().has(Wish::CREDIT)
    }
}

// Hot: per control message.
fn control(peer: PeerIndex, arrival: Arrival<'_>, sink: &mut impl Sink<ShmEndpoint>) -> Result<(), Garbage> {
    // Chunks go with the data.
    if arrival.envelope.chunk {
        return Err(Garbage);
    }
    message(peer, arrival, sink);
    Ok(())
}

// Hot: per message.
#[inline(always)]
fn any(peer: PeerIndex, arrival: Arrival<'_>, sink: &mut impl Sink<ShmEndpoint>) -> Result<(), Garbage> {
    if arrival.envelope.chunk {
        return chunk(peer, arrival, sink);
    }
    message(peer, arrival, sink);
    Ok(())
}

// Hot: per message.
#[inline(always)]
fn message(peer: PeerIndex, arrival: Arrival<'_>, sink: &mut impl Sink<ShmEndpoint>) {
    sink.on_message(peer, AmId(arrival.envelope.id), arrival.envelope.header, payload(arrival.payload));
}

// Hot: per chunk.
fn chunk(peer: PeerIndex, arrival: Arrival<'_>, sink: &mut impl Sink<ShmEndpoint>) -> Result<(), Garbage> {
    let header: [u8; 4] = arrival.envelope.header.try_into().map_err(|_| Garbage)?;
    if !arrival.envelope.chunk {
        return Err(Garbage);
    }
    sink.on_chunk(peer, Stream(u32::from_le_bytes(header)), payload(arrival.payload));
    Ok(())
}

// Hot: per message.
fn slot(room: Room<'_>) -> WriteSlot<'_> {
    match room {
        Room::Private(bytes) => WriteSlot::from(bytes),
        Room::Shared(bytes) => WriteSlot::from(bytes),
    }
}

// Hot: per message.
fn payload(lent: Lent<'_>) -> Payload<'_> {
    match lent {
        Lent::Private(bytes) => Payload::from(bytes),
        Lent::Shared(bytes) => Payload::from(bytes),
    }
}

#[cfg(test)]
mod tests {
    use crate::pair::{Heard, pair};
    use crate::{Shm, ShmEndpoint};
    use mend_base::{Instant, PeerIndex};
    use mend_transport::{AmId, Btl, Cause, Class, Cookie, Payload, SendError, Sink, Stream, WakeSet};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn without_space_for_chunks_they_go_with_the_messages_in_order() {
        let ([mut sender, mut receiver], way) = pair();
        sender.endpoints[0].chunks_as_messages = true;
        let longest = sender.limits(way).chunk_bytes as usize;
        let (mut heard, mut nothing) = (Heard::default(), Heard::default());
        let mut busy = 0;
        for number in 0..100u8 {
            let len = [longest, 1, 2048, 60][usize::from(number) % 4];
            let chunk = vec![number; len];
            while let Err(error) = sender.send_chunk(way, Stream(1), len, |mut slot| slot.put(&chunk)) {
                assert_eq!(error, SendError::Busy);
                busy += 1;
                receiver.progress(Instant(0), 100, &mut heard);
                sender.progress(Instant(0), 100, &mut nothing);
            }
            if number % 10 == 0 {
                let _ = sender.send(way, Class::Data, AmId(1), b"", 1, |mut slot| slot.put(&[number]));
            }
        }
        while receiver.progress(Instant(0), 100, &mut heard) > 0 {}
        assert!(busy > 10 && nothing.room > 10);
        let numbers: Vec<u8> = heard.chunks.iter().map(|chunk| chunk[0]).collect();
        assert!(numbers.iter().copied().eq(0..100));
        assert!(heard.chunks.iter().all(|chunk| chunk.iter().all(|&byte| byte == chunk[0])));
    }

    #[test]
    fn no_kind_starves_however_small_the_budget() {
        for budget in [1, 3, 16, 17, 40] {
            let ([mut sender, mut receiver], way) = pair();
            let (mut heard, mut nothing) = (Heard::default(), Heard::default());
            for _ in 0..400 {
                for (class, said) in [(Class::Control, 1), (Class::Data, 2), (Class::Mailbox, 3)] {
                    (0..32).for_each(|_| {
                        _ = sender.send(way, class, AmId(said), b"", 1, |mut slot| slot.put(&[said]));
                    });
                }
                (0..32).for_each(|_| _ = sender.send_chunk(way, Stream(1), 1, |mut slot| slot.put(&[4])));
                receiver.progress(Instant(0), budget, &mut heard);
                sender.progress(Instant(0), 100, &mut nothing);
            }
            for said in [1, 2, 3] {
                let count = heard.messages.iter().filter(|message| message[0] == said).count();
                assert!(count > 50, "{count} of kind {said} with a budget of {budget}");
            }
            assert!(heard.chunks.len() > 50, "{} chunks with a budget of {budget}", heard.chunks.len());
        }
    }

    /// Panics at each event, after it was noted.
    #[derive(Default)]
    struct Panicking(Heard);

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

        fn on_room(&mut self, _: PeerIndex, _: ShmEndpoint) {
            self.0.room += 1;
            panic!("the sink fails at room");
        }

        fn on_error(&mut self, _: PeerIndex, _: ShmEndpoint, cause: Cause) {
            unreachable!("{cause:?} of a correct peer");
        }

        fn on_severed(&mut self, _: PeerIndex, _: ShmEndpoint) {}
    }

    #[test]
    fn a_sink_that_panics_hears_each_event_once_and_no_peer_is_called_garbage() {
        let ([mut sender, mut receiver], way) = pair();
        let (mut heard, mut nothing) = (Panicking::default(), Heard::default());
        sender.endpoints[0].chunks_as_messages = true;
        let longest = sender.limits(way).chunk_bytes as usize;
        let go_on = |sender: &mut Shm, nothing: &mut Heard, receiver: &mut Shm, heard: &mut Panicking| {
            // Whichever way a receiver takes them, and without a turn that ends well.
            let progress = catch_unwind(AssertUnwindSafe(|| receiver.progress(Instant(0), 100, heard)));
            let taken = catch_unwind(AssertUnwindSafe(|| receiver.take_message(Instant(0), way, heard)));
            _ = (progress, taken);
            sender.progress(Instant(0), 100, nothing);
        };
        go_on(&mut sender, &mut nothing, &mut receiver, &mut heard);
        // All that was heard is credited before sleep at the latest.
        let credit = |receiver: &mut Shm| {
            assert!(receiver.arm(&mut WakeSet::default()).is_ok(), "nothing is left to hear");
            receiver.disarm();
        };
        for number in 0..100u8 {
            credit(&mut receiver);
            for (class, said) in [(Class::Data, number), (Class::Control, 100), (Class::Mailbox, 200)] {
                sender.send(way, class, AmId(said), b"", 60, |mut slot| slot.put(&[said; 60])).unwrap();
            }
            (0..3).for_each(|_| go_on(&mut sender, &mut nothing, &mut receiver, &mut heard));
            // As long as the area for payloads: it needs credit for all that came before.
            let chunk = vec![number; longest];
            credit(&mut receiver);
            sender.send_chunk(way, Stream(1), longest, |mut slot| slot.put(&chunk)).unwrap();
            go_on(&mut sender, &mut nothing, &mut receiver, &mut heard);
        }
        let Heard { messages, chunks, room } = heard.0;
        let data = messages.iter().map(|message| message[0]).filter(|&said| said < 100);
        assert!(data.eq(0..100), "each message once, in order");
        let count = |said| messages.iter().filter(|message| message[0] == said).count();
        assert_eq!((count(100), count(200), room), (100, 100, 1));
        assert!(chunks.iter().map(|chunk| chunk[0]).eq(0..100), "each chunk once, in order");
        let mut calm = Heard::default();
        assert_eq!(receiver.progress(Instant(0), 100, &mut calm), 0, "and nothing comes again");
    }

    #[test]
    fn who_always_has_room_again_still_hears_what_arrives() {
        let ([mut flooder, mut peer], way) = pair();
        let (mut heard, mut nothing) = (Heard::default(), Heard::default());
        for _ in 0..200 {
            while flooder.send(way, Class::Data, AmId(1), b"", 1, |mut slot| slot.put(&[1])).is_ok() {}
            while peer.progress(Instant(0), 100, &mut nothing) > 0 {}
            let _ = peer.send(way, Class::Data, AmId(1), b"", 1, |mut slot| slot.put(&[2]));
            flooder.progress(Instant(0), 1, &mut heard);
        }
        assert!(heard.messages.len() > 50 && heard.room > 50, "{} {}", heard.messages.len(), heard.room);
    }
}
