// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of a process to itself.
//!
//! `send` copies the message into a bounded queue, and the next `progress` delivers it. `send` itself calls no sink, as the contract of
//! [`Btl`] requires. The memory of the queue grows with the traffic and is reused: the steady state does not allocate.
//! Puts, gets and atomic operations happen inside their call, and the next `progress` reports their ends.
//!
//! ```text
//!            connect          progress: on_sendable         quarantine
//!   Absent ──────────▶ Connecting ──────────▶ Connected ◀──────────────▶ Quarantined
//!                          │                     │          resume           │
//!                          └─────────────────────┴────── sever ──────────────┘
//!                                                          ▼   progress: queued messages, then on_severed
//!                                                       Severing ──────────▶ Severed
//! ```

use crate::queue::{Queue, RecordKind};
use crate::{
    Ability, AccessKind, AmId, Atomic, Btl, Card, ConnectError, Cookie, EventPending, Exposure, Limits,
    MessageClass, Payload, PayloadWriter, Rdma, Region, Regions, RegisterError, Remote, RemoteAccess,
    RemoteKey, SendError, Sink, Span, Stream, TransportId, UserMemory, WakeSet,
};
use mend_base::{Instant, Peer, PeerIndex, Reader};
use std::collections::VecDeque;

/// The transport of a process to itself. Its only endpoint is number 0.
///
/// ```
/// use mend_base::{Instant, Job, Peer, PeerIndex};
/// use mend_transport::{AmId, Btl, Card, Cause, Cookie, Loopback, MessageClass, Payload, SendError, Sink, Stream};
///
/// #[derive(Default)]
/// struct Received(Vec<Vec<u8>>);
/// impl<E> Sink<E> for Received {
///     fn on_message(&mut self, _: PeerIndex, _: AmId, _: &[u8], payload: Payload<'_>) { self.0.push(payload.to_vec()) }
///     fn on_chunk(&mut self, _: PeerIndex, _: Stream, _: Payload<'_>) {}
///     fn on_done(&mut self, _: Cookie, _: Result<(), SendError>) {}
///     fn on_sendable(&mut self, _: PeerIndex, _: E) {}
///     fn on_error(&mut self, _: PeerIndex, _: E, _: Cause) {}
///     fn on_severed(&mut self, _: PeerIndex, _: E) {}
/// }
///
/// let mut own = Loopback::new(Peer::new(Job(7), 0));
/// let mut card = Card::default();
/// own.advertise(&mut card);
/// let endpoint = own.connect(PeerIndex(0), &card).unwrap();
/// let mut received = Received::default();
/// own.progress(Instant(0), 8, &mut received); // connected
/// own.send(endpoint, MessageClass::Data, AmId(1), b"header", 5, |mut slot| slot.put(b"hello")).unwrap();
/// assert!(received.0.is_empty(), "nothing is delivered from inside send");
/// own.progress(Instant(1), 8, &mut received);
/// assert_eq!(received.0, [b"hello"]);
/// ```
#[derive(Debug)]
pub struct Loopback {
    me: Peer,
    /// The peer index of this process, as `connect` was given it.
    index: PeerIndex,
    state: State,
    /// Messages and chunks, in one order.
    data: Queue,
    control: Queue,
    /// One mailbox for each id that has sent a mailbox value.
    mailboxes: Vec<Mailbox>,
    regions: Regions,
    /// Operations that have ended, until `on_done`.
    ended: VecDeque<(Cookie, Result<(), SendError>)>,
    /// An operation was answered `Busy`, and `on_sendable` was not called since.
    operation_refused: bool,
    /// The queue that is served first. Changes with each message, so that no queue starves.
    next: QueueKind,
    limits: Limits,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Absent,
    Connecting,
    Connected,
    Quarantined,
    Severing,
    Severed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QueueKind {
    Control,
    Data,
    Mailbox,
    Ended,
}

/// The newest mailbox value of one id.
#[derive(Debug)]
struct Mailbox {
    id: AmId,
    /// The value has not been delivered yet.
    fresh: bool,
    header: [u8; Limits::HEADER_BYTES_MAX],
    header_bytes: u8,
    payload: [u8; CONTROL_BYTES_MAX],
    payload_bytes: u8,
}

impl Loopback {
    /// The transport of process `me` to itself.
    pub fn new(me: Peer) -> Self {
        Loopback {
            me,
            index: PeerIndex(0),
            state: State::Absent,
            data: Queue::new(DATA_MESSAGES_MAX, DATA_BYTES_MAX),
            control: Queue::new(CONTROL_MESSAGES_MAX, CONTROL_QUEUE_BYTES),
            mailboxes: Vec::new(),
            regions: Regions::new(),
            ended: VecDeque::new(),
            operation_refused: false,
            next: QueueKind::Control,
            limits: Limits {
                abilities: ABILITIES,
                emulated: 0,
                control_bytes_max: CONTROL_BYTES_MAX as u32,
                message_bytes_max: MESSAGE_BYTES_MAX as u32,
                eager_bytes: EAGER_BYTES,
                chunk_bytes: CHUNK_BYTES as u32,
                transfer_bytes_max: TRANSFER_BYTES_MAX,
            },
        }
    }

    // Hot: per call of progress.
    /// Whether `progress` has an event to deliver.
    #[inline]
    fn has_events(&self) -> bool {
        match self.state {
            State::Absent | State::Quarantined | State::Severed => !self.ended.is_empty(),
            State::Connecting | State::Severing => true,
            State::Connected => {
                self.holds_messages()
                    || !self.ended.is_empty()
                    || self.operation_refused
                    || self.data.has_unreported_space()
                    || self.control.has_unreported_space()
            }
        }
    }

    fn may_send(&self) -> Result<(), SendError> {
        match self.state {
            State::Connected => Ok(()),
            State::Absent | State::Connecting | State::Quarantined => Err(SendError::Busy),
            State::Severing | State::Severed => Err(SendError::Severed),
        }
    }

    /// Whether messages may be delivered now.
    fn delivers(&self) -> bool {
        matches!(self.state, State::Connected | State::Severing)
    }

    fn holds_messages(&self) -> bool {
        !self.data.is_empty()
            || !self.control.is_empty()
            || self.mailboxes.iter().any(|mailbox| mailbox.fresh)
    }

    fn overwrite(&mut self, id: AmId, header: &[u8], len: usize, fill: impl FnOnce(PayloadWriter<'_>)) {
        let known = self.mailboxes.iter().position(|mailbox| mailbox.id == id);
        let at = known.unwrap_or_else(|| {
            self.mailboxes.push(Mailbox::new(id));
            self.mailboxes.len() - 1
        });
        let mailbox = &mut self.mailboxes[at];
        mailbox.header[..header.len()].copy_from_slice(header);
        mailbox.header_bytes = header.len() as u8;
        mailbox.payload_bytes = len as u8;
        fill(PayloadWriter::from(&mut mailbox.payload[..len]));
        mailbox.fresh = true;
    }

    /// Delivers one message of this queue, if there is one.
    fn deliver(&mut self, kind: QueueKind, sink: &mut impl Sink<u32>) -> bool {
        match kind {
            QueueKind::Control => deliver_first(&mut self.control, self.index, sink),
            QueueKind::Data => deliver_first(&mut self.data, self.index, sink),
            QueueKind::Mailbox => {
                let Some(mailbox) = self.mailboxes.iter_mut().find(|mailbox| mailbox.fresh) else {
                    return false;
                };
                mailbox.fresh = false;
                let header = &mailbox.header[..usize::from(mailbox.header_bytes)];
                let payload = &mailbox.payload[..usize::from(mailbox.payload_bytes)];
                sink.on_message(self.index, mailbox.id, header, Payload::from(payload));
                true
            }
            QueueKind::Ended => {
                let Some((cookie, result)) = self.ended.pop_front() else { return false };
                sink.on_done(cookie, result);
                true
            }
        }
    }

    /// Delivers one message, round-robin over the queues.
    fn deliver_next(&mut self, sink: &mut impl Sink<u32>) -> bool {
        for _ in 0..QueueKind::COUNT {
            let kind = self.next;
            self.next = kind.after();
            if self.deliver(kind, sink) {
                return true;
            }
        }
        false
    }

    /// Whether a send that was `Busy` would succeed now; counts as the report.
    fn takes_sendable_report(&mut self) -> bool {
        // Evaluated for both queues: one callback reports both.
        let data = self.data.take_sendable_report();
        let control = self.control.take_sendable_report();
        let operation = self.operation_refused && self.ended.len() < OPERATIONS_MAX;
        self.operation_refused &= !operation;
        data || control || operation
    }

    /// Whether an operation may start now.
    fn may_operate(&mut self) -> Result<(), SendError> {
        self.may_send()?;
        if self.ended.len() < OPERATIONS_MAX {
            return Ok(());
        }
        self.operation_refused = true;
        Err(SendError::Busy)
    }

    /// The memory that the remote memory and the offset mean. The caller may have made them up.
    fn exposed(
        &self,
        kind: AccessKind,
        remote: Remote,
        offset: u64,
        bytes: u64,
    ) -> Result<UserMemory, SendError> {
        self.regions
            .exposed(ENDPOINT, Exposure(remote.words[0]), kind, offset, bytes)
            .ok_or(SendError::NoAccess)
    }

    /// Copies between local and exposed memory.
    fn copy(&self, kind: AccessKind, local: Span, remote: Remote, offset: u64) -> Result<(), SendError> {
        let own = self.regions.local(local).ok_or(SendError::LocalFault)?;
        let exposed = self.exposed(kind, remote, offset, local.bytes)?;
        let (to, from) = if kind == AccessKind::Read { (own, exposed) } else { (exposed, own) };
        to.copy_from(0, &from, 0, from.len());
        Ok(())
    }

    /// Executes an atomic operation on exposed memory.
    fn operate(&self, operation: Atomic, local: Span, remote: Remote, offset: u64) -> Result<(), SendError> {
        let result = self.regions.local(local).filter(|memory| memory.len() == size_of::<u64>());
        let result = result.ok_or(SendError::LocalFault)?;
        let word = self.exposed(AccessKind::Atomic, remote, offset, size_of::<u64>() as u64)?;
        let old = word.atomic(0, operation).ok_or(SendError::NoAccess)?;
        result.write(0, &old.to_ne_bytes());
        Ok(())
    }

    /// Ends a handle, which the caller found or not.
    fn end_handle(&mut self, found: bool, done: Cookie) {
        self.ended.push_back((done, if found { Ok(()) } else { Err(SendError::LocalFault) }));
    }

    /// Delivers one event, if there is one.
    fn step(&mut self, sink: &mut impl Sink<u32>) -> bool {
        match self.state {
            State::Absent | State::Quarantined | State::Severed => self.deliver(QueueKind::Ended, sink),
            State::Connecting => {
                self.state = State::Connected;
                sink.on_sendable(self.index, ENDPOINT);
                true
            }
            State::Connected => {
                if self.takes_sendable_report() {
                    sink.on_sendable(self.index, ENDPOINT);
                    return true;
                }
                self.deliver_next(sink)
            }
            State::Severing => {
                if !self.deliver_next(sink) {
                    self.state = State::Severed;
                    self.regions.sever(ENDPOINT);
                    sink.on_severed(self.index, ENDPOINT);
                }
                true
            }
        }
    }
}

impl Rdma for Loopback {
    fn register(&mut self, _with: u32, memory: &UserMemory) -> Result<Region, RegisterError> {
        self.regions.register(memory)
    }

    fn unregister(&mut self, region: Region, done: Cookie) {
        let found = self.regions.unregister(region);
        self.end_handle(found, done);
    }

    fn expose(
        &mut self,
        to: u32,
        local: Span,
        access: RemoteAccess,
    ) -> Result<(Exposure, RemoteKey), RegisterError> {
        let exposure = self.regions.expose(to, local, access)?;
        let mut key = [0; KEY_BYTES];
        for (part, word) in key.chunks_exact_mut(8).zip([self.me.0, exposure.0, local.bytes]) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        Ok((exposure, RemoteKey::new(&key)))
    }

    fn unexpose(&mut self, exposure: Exposure, done: Cookie) {
        let found = self.regions.unexpose(exposure);
        self.end_handle(found, done);
    }

    fn import(&mut self, _from: u32, key: &[u8]) -> Result<Remote, RegisterError> {
        let mut words = Reader::new(key);
        match (words.u64(), words.u64(), words.u64(), words.u8()) {
            (Some(owner), Some(exposure), Some(bytes), None) if owner == self.me.0 => {
                Ok(Remote::with_word(bytes, exposure))
            }
            _ => Err(RegisterError::BadKey),
        }
    }

    fn put(
        &mut self,
        _to: u32,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        self.may_operate()?;
        let result = self.copy(AccessKind::Write, local, remote, remote_offset);
        self.ended.push_back((done, result));
        Ok(())
    }

    fn get(
        &mut self,
        _from: u32,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        self.may_operate()?;
        let result = self.copy(AccessKind::Read, local, remote, remote_offset);
        self.ended.push_back((done, result));
        Ok(())
    }

    fn atomic(
        &mut self,
        _to: u32,
        operation: Atomic,
        local: Span,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<(), SendError> {
        self.may_operate()?;
        let result = self.operate(operation, local, remote, remote_offset);
        self.ended.push_back((done, result));
        Ok(())
    }

    fn flush(&mut self, _to: u32, done: Cookie) -> Result<(), SendError> {
        self.may_operate()?;
        self.ended.push_back((done, Ok(())));
        Ok(())
    }
}

impl Btl for Loopback {
    type Endpoint = u32;

    fn advertise(&self, card: &mut Card) {
        card.entries.push((TransportId::SELF, self.me.0.to_le_bytes().to_vec()));
    }

    /// Connected from the next `progress` on. A second call returns the same endpoint. After `sever` the process cannot connect to
    /// itself again.
    fn connect(&mut self, peer: PeerIndex, card: &Card) -> Result<u32, ConnectError> {
        let entry = card.entry(TransportId::SELF).and_then(|bytes| Reader::new(bytes).u64());
        if entry != Some(self.me.0) {
            return Err(ConnectError::Unreachable);
        }
        match self.state {
            State::Absent => {
                self.index = peer;
                self.state = State::Connecting;
                Ok(ENDPOINT)
            }
            State::Connecting | State::Connected | State::Quarantined => Ok(ENDPOINT),
            State::Severing | State::Severed => Err(ConnectError::Unreachable),
        }
    }

    fn limits(&self, _to: u32) -> &Limits {
        &self.limits
    }

    fn quarantine(&mut self, _endpoint: u32) {
        if matches!(self.state, State::Connecting | State::Connected) {
            self.state = State::Quarantined;
        }
    }

    fn resume(&mut self, _endpoint: u32) {
        if self.state == State::Quarantined {
            // A send that was `Busy` meanwhile gets `on_sendable` once more.
            self.state = State::Connecting;
        }
    }

    fn sever(&mut self, _endpoint: u32) {
        if !matches!(self.state, State::Absent | State::Severed) {
            self.state = State::Severing;
        }
    }

    // Hot: per message.
    fn send(
        &mut self,
        _to: u32,
        class: MessageClass,
        id: AmId,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        assert!(header.len() <= Limits::HEADER_BYTES_MAX, "a header longer than the limits");
        let most = if class == MessageClass::Data { MESSAGE_BYTES_MAX } else { CONTROL_BYTES_MAX };
        assert!(len <= most, "a payload longer than the limits");
        self.may_send()?;
        match class {
            MessageClass::Data => self.data.push(RecordKind::Message(id), header, len, fill),
            MessageClass::Control => self.control.push(RecordKind::Message(id), header, len, fill),
            MessageClass::Mailbox => {
                self.overwrite(id, header, len, fill);
                Ok(())
            }
        }
    }

    // Hot: per message.
    fn send_chunk(
        &mut self,
        _to: u32,
        stream: Stream,
        len: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        assert!(len <= CHUNK_BYTES, "a chunk longer than the limits");
        self.may_send()?;
        self.data.push(RecordKind::Chunk(stream), &[], len, fill)
    }

    fn ready(&self, _from: u32) -> bool {
        self.delivers() && self.holds_messages()
    }

    // Hot: per poll.
    #[inline]
    fn has_message(&self, _from: u32) -> bool {
        self.delivers() && self.data.begins_with_message()
    }

    // Hot: per message.
    #[inline]
    fn take_message(&mut self, _now: Instant, from: u32, sink: &mut impl Sink<u32>) -> u32 {
        u32::from(self.has_message(from) && self.deliver(QueueKind::Data, sink))
    }

    #[inline]
    fn progress(&mut self, _now: Instant, budget: u32, sink: &mut impl Sink<u32>) -> u32 {
        if !self.has_events() {
            return 0;
        }
        let mut events = 0;
        while events < budget && self.step(sink) {
            events += 1;
        }
        events
    }

    /// No other process sends here, so no wake-up is needed.
    fn arm(&mut self, _wake: &mut WakeSet) -> Result<(), EventPending> {
        if self.has_events() { Err(EventPending) } else { Ok(()) }
    }

    fn disarm(&mut self) {}
}

impl QueueKind {
    const COUNT: usize = 4;

    fn after(self) -> Self {
        match self {
            QueueKind::Control => QueueKind::Data,
            QueueKind::Data => QueueKind::Mailbox,
            QueueKind::Mailbox => QueueKind::Ended,
            QueueKind::Ended => QueueKind::Control,
        }
    }
}

impl Mailbox {
    fn new(id: AmId) -> Self {
        Mailbox {
            id,
            fresh: false,
            header: [0; Limits::HEADER_BYTES_MAX],
            header_bytes: 0,
            payload: [0; CONTROL_BYTES_MAX],
            payload_bytes: 0,
        }
    }
}

/// Delivers the oldest message of a queue.
fn deliver_first(queue: &mut Queue, from: PeerIndex, sink: &mut impl Sink<u32>) -> bool {
    // Removed first: a sink that panics must not get the message again.
    let Some((record, payload)) = queue.pop() else { return false };
    match record.kind {
        RecordKind::Message(id) => sink.on_message(from, id, record.header(), Payload::from(payload)),
        RecordKind::Chunk(stream) => sink.on_chunk(from, stream, Payload::from(payload)),
    }
    true
}

/// The only endpoint.
const ENDPOINT: u32 = 0;

const ABILITIES: u32 = Ability::Streams as u32
    | Ability::Put as u32
    | Ability::Get as u32
    | Ability::Atomics as u32
    | Ability::Flush as u32
    | Ability::Polling as u32;

/// The longest put or get: a call copies in some 20 us.
const TRANSFER_BYTES_MAX: u64 = 256 << 10;
/// The most operations whose ends are not reported yet.
const OPERATIONS_MAX: usize = 64;
/// The peer that made the key, the exposure, the length.
const KEY_BYTES: usize = 24;
const CONTROL_BYTES_MAX: usize = 192;
const MESSAGE_BYTES_MAX: usize = 8 << 10;
const EAGER_BYTES: u32 = 4 << 10;
const CHUNK_BYTES: usize = 16 << 10;
const DATA_MESSAGES_MAX: usize = 512;
const DATA_BYTES_MAX: usize = 128 << 10;
const CONTROL_MESSAGES_MAX: usize = 128;
const CONTROL_QUEUE_BYTES: usize = CONTROL_MESSAGES_MAX * CONTROL_BYTES_MAX;

const _: () = assert!(CONTROL_BYTES_MAX <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::Loopback;
    use crate::conformance::Fixture;
    use crate::{Btl, Card, ConnectError};
    use mend_base::{Job, Peer, PeerIndex};

    /// One process that sends to itself.
    struct Myself;

    impl Fixture for Myself {
        type Btl = Loopback;
        const ALONE: bool = true;

        fn start(_count: usize) -> (Self, Vec<Loopback>) {
            (Myself, vec![Loopback::new(Peer::new(Job(1), 0))])
        }
    }

    mod conforms {
        crate::conformance!(super::Myself);
    }

    mod conforms_with_faults {
        use crate::conformance::Injected;
        crate::conformance!(Injected<super::Myself>);
    }

    mod counted {
        use crate::conformance::Counted;
        crate::conformance!(Counted<super::Myself>);
    }

    #[test]
    fn loopback_connects_a_process_to_itself_only() {
        let mut other = Card::default();
        Loopback::new(Peer::new(Job(1), 1)).advertise(&mut other);
        let mut mine = Card::default();
        let mut own = Loopback::new(Peer::new(Job(1), 0));
        own.advertise(&mut mine);
        assert_eq!(own.connect(PeerIndex(3), &other), Err(ConnectError::Unreachable));
        assert_eq!(own.connect(PeerIndex(3), &Card::default()), Err(ConnectError::Unreachable));
        assert_eq!(own.connect(PeerIndex(3), &mine), Ok(0));
    }

    #[test]
    fn an_unused_loopback_allocates_nothing() {
        let idle = Loopback::new(Peer::new(Job(1), 0));
        assert!(size_of_val(&idle) <= 512);
        assert!(idle.mailboxes.capacity() == 0 && idle.data.is_empty());
    }
}
