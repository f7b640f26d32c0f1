// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contract of a BTL.

use crate::card::CardEntry;
use crate::connection::{Connection, Mailbox, Path, State};
use crate::family::Family;
use crate::frame::{FrameClass, Kind};
use crate::ofi::{CONTROL_BYTES_MAX, Callback, MESSAGE_BYTES_LEAST, Ofi, TRANSFER_BYTES_MAX};
use crate::posting::Outline;
use crate::rail::Rail;
use mend_base::{Instant, PeerIndex, Reader, Wire, Writer};
use mend_ffi_ofi::Code;
use mend_transport::{
    Ability, AmId, Btl, Card, ConnectError, EventPending, Limits, MessageClass, PayloadWriter, SendError,
    Sink, Stream, TransportId, WakeSet,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use std::os::fd::RawFd;

impl Btl for Ofi {
    type Endpoint = u32;

    fn advertise(&self, card: &mut Card) {
        let mut bytes = [0; CardEntry::BYTES_MAX];
        self.entry.write(&mut Writer::new(&mut bytes));
        card.entries.push((TransportId::OFI, bytes[..self.entry.bytes()].to_vec()));
    }

    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<u32, ConnectError> {
        let entry = read_card(card)?;
        // This process itself, or a second connection to one life of a process, also after the first was severed.
        let tag_from = crate::frame::tag(entry.instance, self.entry.instance);
        let is_known = self.by_tag.contains_key(&tag_from) || self.severed_tags.contains(&tag_from);
        if entry.instance == self.entry.instance || is_known {
            return Err(ConnectError::Unreachable);
        }
        let paths = self.insert_paths(&entry)?;
        let index = u32::try_from(self.connections.len()).map_err(|_| ConnectError::NoMemory)?;
        let limits = self.limits_of(&entry);
        let own = self.entry.instance;
        self.connections.push(Connection::new(peer, own, entry.instance, paths, limits, self.now));
        self.transfers.add_connection();
        self.by_tag.insert(tag_from, index);
        self.next_timer = self.now;
        Ok(index)
    }

    fn limits(&self, to: u32) -> &Limits {
        &self.connections[to as usize].limits
    }

    fn quarantine(&mut self, endpoint: u32) {
        let connection = &mut self.connections[endpoint as usize];
        let state = &mut connection.state;
        match *state {
            State::Connecting => *state = State::Quarantined { connected: false },
            State::Connected => *state = State::Quarantined { connected: true },
            State::Quarantined { .. } | State::Garbage | State::Severing { .. } | State::Severed => return,
        }
        connection.quarantined_at = self.now;
    }

    fn resume(&mut self, endpoint: u32) {
        let now = self.now;
        let connection = &mut self.connections[endpoint as usize];
        let State::Quarantined { connected } = connection.state else { return };
        connection.state = if connected { State::Connected } else { State::Connecting };
        connection.is_reported = false;
        // The next probe is due when it was before: at once after a first piece of evidence. If each probe fails at once, quarantines, whose time
        // does not count, must not follow each other without a pause: the way would be broken for ever.
        connection.on_resumed(now);
        self.next_timer = now;
        self.list(endpoint);
        self.offer_room(endpoint);
    }

    fn on_running(&mut self, endpoint: u32) {
        self.connections[endpoint as usize].on_running(self.now);
        self.next_timer = self.now;
    }

    /// A connection that the other end has closed while the wire was cut is whole for the provider here. It refuses the peer's attempts to connect
    /// anew, until something is sent and the peer's kernel answers that there is no such connection.
    fn on_unheard(&mut self, endpoint: u32) {
        if self.connections[endpoint as usize].is_open() {
            self.send_probe(endpoint);
        }
    }

    fn sever(&mut self, endpoint: u32) {
        self.begin_sever(endpoint, false);
    }

    fn sever_dead(&mut self, endpoint: u32) {
        self.begin_sever(endpoint, true);
    }

    // Hot: per message.
    fn send(
        &mut self,
        to: u32,
        class: MessageClass,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        let (class, kind) = match class {
            MessageClass::Data => (FrameClass::Data, Kind::Data),
            MessageClass::Control => (FrameClass::Control, Kind::Control),
            MessageClass::Mailbox => return self.send_mailbox(to, id, header, len, fill),
        };
        self.send_frame(to, class, &Outline { kind, id: id.0, header, payload_bytes: len }, fill)
    }

    fn send_chunk(
        &mut self,
        to: u32,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        let header = stream.0.to_le_bytes();
        let outline = Outline { kind: Kind::Chunk, id: 0, header: &header, payload_bytes: len };
        self.send_frame(to, FrameClass::Data, &outline, fill)
    }

    fn ready(&self, from: u32) -> bool {
        let connection = &self.connections[from as usize];
        if !connection.is_open() {
            return false;
        }
        let tag = connection.tag_from;
        !connection.held.is_empty() || self.rails.iter().any(|rail| rail.has_unhandled_of(tag))
    }

    // Hot: per call of progress.
    fn progress(&mut self, now: Instant, budget: u32, sink: &mut impl Sink<u32>) -> u32 {
        self.now = self.now.max(now);
        self.rails.iter_mut().for_each(Rail::post_receives);
        let mut events = self.deliver_callbacks(budget, sink);
        events += self.deliver_held(budget - events, sink);
        let delivered = self.take_events(budget - events, sink);
        events += delivered;
        if budget == 0 {
            self.rails.iter_mut().for_each(Rail::look);
        }
        self.run_timers();
        self.look_at_stalls();
        self.post_listed();
        self.post_transfers();
        self.repair_rails();
        self.run_keys_taken_back();
        self.continue_severing(events == budget);
        events
    }

    fn check_peers(&mut self) {
        self.probe_some();
    }

    fn is_flushed(&mut self, needs: &mut dyn FnMut(PeerIndex) -> bool) -> bool {
        self.is_flushing = true;
        (0..).zip(&self.connections).all(|(index, connection)| {
            let is_flushed = connection.is_flushed() && !self.transfers.has_jobs(index);
            connection.state != State::Connected || is_flushed || !needs(connection.peer)
        })
    }

    fn arm(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        let is_pending = !self.callbacks.is_empty()
            || !self.transfers.ended.is_empty()
            || !self.severing.is_empty()
            || self.has_held_to_deliver();
        if is_pending {
            return Err(EventPending);
        }
        self.rails.iter_mut().for_each(Rail::post_receives);
        // Without a descriptor nothing tells of what has come since the last look.
        self.rails.iter_mut().filter(|rail| rail.device().descriptor().is_none()).for_each(Rail::look);
        self.arm_queues(wake)?;
        // What could not be posted is tried again, and a broken way is probed, by progress alone.
        let is_busy = |connection: &Connection| connection.is_open() && connection.needs_progress();
        wake.must_poll |= self.rails.iter().any(|rail| rail.lacks_receives() || rail.broken.is_some())
            || !self.listed.is_empty()
            || !self.transfers.to_post.is_empty()
            || !self.transfers.keys_taken_back.is_empty()
            || self.connections.iter().any(is_busy);
        Ok(())
    }

    fn disarm(&mut self) {}

    fn arm_descriptors(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        self.arm(wake)
    }
}

impl Ofi {
    /// Prepares a sleep on the completion queues.
    fn arm_queues(&mut self, wake: &mut WakeSet) -> Result<(), EventPending> {
        for rail in &self.rails {
            if !rail.unhandled().is_empty() {
                return Err(EventPending);
            }
            match rail.device().try_wait() {
                Ok(()) => {}
                Err(Code::AGAIN) => return Err(EventPending),
                // The device is broken, which the next call of progress finds.
                Err(_) => wake.must_poll = true,
            }
            match rail.device().descriptor() {
                Some(descriptor) if is_readable(descriptor) => return Err(EventPending),
                Some(descriptor) => wake.descriptors.push(descriptor),
                None => wake.must_poll = true,
            }
        }
        Ok(())
    }

    // Hot: per message.
    fn send_frame(
        &mut self,
        to: u32,
        class: FrameClass,
        outline: &Outline<'_>,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        let connection = &mut self.connections[to as usize];
        if !connection.may_send() || !connection.outgoing[class as usize].has_room() {
            return self.refuse(to);
        }
        if self.add_frame(to, class, outline, fill).is_err() {
            // There is no memory: the next call of progress reports room, so that the caller tries again.
            self.list(to);
            return self.refuse(to);
        }
        self.post_frames(to);
        Ok(())
    }

    #[cold]
    fn refuse(&mut self, to: u32) -> Result<(), SendError> {
        let connection = &mut self.connections[to as usize];
        if matches!(connection.state, State::Severing { .. } | State::Severed) {
            return Err(SendError::Severed);
        }
        connection.refused = true;
        Err(SendError::Busy)
    }

    fn send_mailbox(
        &mut self,
        to: u32,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        let connection = &mut self.connections[to as usize];
        if !connection.may_send() {
            return self.refuse(to);
        }
        let mut payload = vec![0; len];
        fill(PayloadWriter::from(&mut payload[..]));
        let newest = Some((header.to_vec(), payload));
        match connection.mailboxes.iter_mut().find(|mailbox| mailbox.id == id.0) {
            Some(mailbox) => mailbox.pending = newest,
            None => connection.mailboxes.push(Mailbox { id: id.0, sent: None, pending: newest }),
        }
        self.add_mailboxes(to);
        self.post_frames(to);
        Ok(())
    }

    /// Makes callbacks that wait. Returns how many.
    fn deliver_callbacks(&mut self, budget: u32, sink: &mut impl Sink<u32>) -> u32 {
        let mut events = 0;
        while events < budget {
            // The ends of operations come before the report that their endpoint is severed.
            if let Some((done, result)) = self.transfers.ended.pop_front() {
                events += 1;
                sink.on_done(done, result);
                continue;
            }
            let Some(callback) = self.callbacks.pop_front() else { break };
            events += self.deliver_callback(callback, sink);
        }
        events
    }

    fn deliver_callback(&mut self, callback: Callback, sink: &mut impl Sink<u32>) -> u32 {
        let state = |index: u32| self.connections[index as usize].state;
        let peer = |index: u32| self.connections[index as usize].peer;
        match callback {
            Callback::Sendable(index) | Callback::Error(index, _)
                if matches!(state(index), State::Severing { .. } | State::Severed) =>
            {
                return 0;
            }
            Callback::Sendable(index) => sink.on_sendable(peer(index), index),
            Callback::Error(index, _) if matches!(state(index), State::Quarantined { .. }) => return 0,
            Callback::Error(index, cause) => sink.on_error(peer(index), index, cause),
            Callback::Severed(index) => sink.on_severed(peer(index), index),
        }
        1
    }

    fn has_held_to_deliver(&self) -> bool {
        let waits = |connection: &Connection| connection.is_open() && !connection.held.is_empty();
        self.held > 0 && self.connections.iter().any(waits)
    }

    /// Adds the addresses of a peer to the rails that it shares with this process.
    fn insert_paths(&mut self, entry: &CardEntry) -> Result<Vec<Option<Path>>, ConnectError> {
        let mut paths = Vec::with_capacity(self.rails.len());
        for (rail, (provider, _)) in self.rails.iter().zip(&self.entry.rails) {
            let theirs =
                entry.rails.get(paths.len()).filter(|(their_provider, _)| their_provider == provider);
            let path = theirs.and_then(|(_, name)| Some(Path::new(rail.insert(name).ok()?, name)));
            paths.push(path);
        }
        if paths.iter().all(Option::is_none) {
            return Err(ConnectError::Unreachable);
        }
        Ok(paths)
    }

    fn limits_of(&self, entry: &CardEntry) -> Limits {
        let own = [Ability::Streams, Ability::Put, Ability::Get, Ability::Atomics, Ability::Flush];
        let sleeps = self.rails.iter().all(|rail| rail.device().descriptor().is_some());
        let bits = |abilities: &[Ability]| abilities.iter().fold(0, |bits, ability| bits | *ability as u32);
        let emulated = bits(&[Ability::Put, Ability::Atomics, Ability::Flush]);
        let gets = if self.gets_natively() { 0 } else { Ability::Get as u32 };
        let message_bytes_max = entry.message_bytes_max.min(self.entry.message_bytes_max);
        Limits {
            abilities: bits(&own) | if sleeps { Ability::SleepDescriptor as u32 } else { 0 },
            emulated: emulated | gets,
            control_bytes_max: CONTROL_BYTES_MAX.min(message_bytes_max),
            message_bytes_max,
            eager_bytes: entry.eager_bytes.min(self.entry.eager_bytes).min(message_bytes_max),
            chunk_bytes: entry.chunk_bytes.min(self.entry.chunk_bytes).min(message_bytes_max),
            transfer_bytes_max: TRANSFER_BYTES_MAX,
        }
    }

    /// Whether the devices do gets. The provider `shm` does not check keys: it would read memory whose key was taken back.
    pub(crate) fn gets_natively(&self) -> bool {
        self.entry.rails.iter().all(|(provider, _)| Family::of(provider) != Family::SharedMemory)
    }
}

/// Whether the device has something to do now: `try_wait` of some providers does not look into their sockets.
fn is_readable(descriptor: RawFd) -> bool {
    // SAFETY: the descriptor belongs to an open device, which the caller has.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok_and(|count| count > 0)
}

fn read_card(card: &Card) -> Result<CardEntry, ConnectError> {
    if card.layout != Card::LAYOUT {
        return Err(ConnectError::LayoutDiffers);
    }
    let bytes = card.entry(TransportId::OFI).ok_or(ConnectError::Unreachable)?;
    let mut reader = Reader::new(bytes);
    let entry = CardEntry::read(&mut reader).ok_or(ConnectError::LayoutDiffers)?;
    let fits =
        reader.rest().is_empty() && entry.message_bytes_max >= MESSAGE_BYTES_LEAST && entry.chunk_bytes > 0;
    if fits { Ok(entry) } else { Err(ConnectError::LayoutDiffers) }
}
