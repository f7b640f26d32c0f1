// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transfers between memory of this process and of peers: those of the device, and those that are emulated by frames.
//!
//! ```text
//!   initiator                                  peer
//!     │ ── Remote: get, atomic ──────────────▶ │  checks the exposure
//!     │ ◀───────────────────── Piece, Piece .. │  (get) ends with its last byte, since control messages may overtake pieces
//!     │ ◀───────────── Remote: ended, result ─ │  (atomic; a get that is refused)
//!     │ ── Piece, Piece .. ──────────────────▶ │  (put) checks the exposure at each piece
//!     │ ◀───────────── Remote: ended, result ─ │  after the last piece
//! ```
//!
//! Frames arrive once, whatever happens to the connection, so an emulated put or atomic operation happens once.

use crate::keys_taken_back::KeysTakenBack;
use mend_base::{Instant, Key, Reader, Slab, Writer};
use mend_transport::{AccessKind, Atomic, Cookie, Exposure, Regions, Remote, SendError, Span, UserMemory};
use std::collections::VecDeque;

/// A transfer that this process began.
#[derive(Debug)]
pub struct Transfer {
    pub(crate) connection: u32,
    pub(crate) done: Cookie,
    pub(crate) what: What,
    pub(crate) local: UserMemory,
    pub(crate) remote: Remote,
    pub(crate) remote_offset: u64,
    /// A flush waits for the puts and atomic operations with lower numbers.
    serial: u64,
    /// Posted to the device of this rail.
    pub(crate) posted: Option<usize>,
    /// It is to be posted to the device of this rail, which has not taken it so far.
    pub(crate) waits_for: Option<usize>,
    /// Since when the device has had it, or has not taken it.
    pub(crate) since: Instant,
    /// How often the device has failed to do it.
    pub(crate) failures: u32,
    /// Bytes of a get that have arrived in pieces.
    arrived: u64,
    /// What the device needs to access the local memory.
    pub(crate) registration: Option<mend_ffi_ofi::Registration>,
}

impl Transfer {
    /// The connection, and the exposure of its peer.
    fn accesses(&self) -> (u32, u64) {
        (self.connection, crate::exposures::handle(&self.remote))
    }
}

/// What a transfer does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The device reads.
    DeviceGet,
    /// The peer sends pieces.
    Get,
    /// This process sends pieces.
    Put,
    /// The peer does it.
    Atomic,
    /// Nothing moves.
    Flush,
}

/// Pieces that are to be sent, or an answer: for as long as the class of the connection is full.
#[derive(Debug)]
pub enum Job {
    /// The request of a get or an atomic operation, or the end of a transfer of the peer.
    Message(Message),
    /// Pieces of `memory`, of which `sent` bytes were sent.
    Pieces {
        /// The number of the transfer at its initiator.
        transfer: u64,
        /// The exposure: at the peer for a put, here for a get.
        exposure: u64,
        /// Where it begins in the exposure, for a put.
        offset: u64,
        /// From where.
        memory: UserMemory,
        /// How far.
        sent: usize,
        /// They belong to a put of this process; else to a get of the peer.
        put: bool,
    },
}

/// A frame of kind `Remote`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    pub(crate) operation: Operation,
    /// The number of the transfer at its initiator.
    pub(crate) transfer: u64,
    pub(crate) exposure: u64,
    pub(crate) offset: u64,
    pub(crate) words: [u64; 2],
}

/// The operations of [`Message`]s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Operation {
    /// `words[0]` bytes are wanted.
    Get = 1,
    FetchAdd = 2,
    CompareSwap = 3,
    Swap = 4,
    /// The transfer has ended; `words[0]` is the old value of an atomic operation.
    Ended = 5,
    /// The transfer is refused.
    Refused = 6,
    /// The key of `exposure` was taken back: the peer answers when its reads by it have ended (`keys_taken_back`).
    TakeBack = 7,
    /// The answer.
    ReadsEnded = 8,
}

/// The header of a frame of kind `Piece`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PieceHeader {
    pub(crate) transfer: u64,
    pub(crate) exposure: u64,
    pub(crate) offset: u64,
    pub(crate) put: bool,
    pub(crate) last: bool,
}

/// A peer sent what no correct peer sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Garbage;

/// Bytes of a message.
pub const MESSAGE_BYTES: usize = 41;
/// Bytes of a piece's header.
pub const PIECE_BYTES: usize = 26;
/// Transfers of one connection that may be unfinished: more are `Busy`. A peer may have asked for as many.
pub const TRANSFERS_MAX: usize = 64;

impl Message {
    /// The answer to the initiator of a transfer.
    fn answer(transfer: u64, operation: Operation, old: u64) -> Message {
        Message { operation, transfer, exposure: 0, offset: 0, words: [old, 0] }
    }

    /// Its bytes.
    pub fn bytes(&self) -> [u8; MESSAGE_BYTES] {
        let mut out = [0; MESSAGE_BYTES];
        let mut writer = Writer::new(&mut out);
        writer.u8(self.operation as u8);
        [self.transfer, self.exposure, self.offset, self.words[0], self.words[1]]
            .into_iter()
            .for_each(|word| writer.u64(word));
        out
    }

    fn read(bytes: &[u8]) -> Option<Message> {
        use Operation::{CompareSwap, Ended, FetchAdd, Get, ReadsEnded, Refused, Swap, TakeBack};
        let mut reader = Reader::new(bytes);
        let number = reader.u8()?;
        let all = [Get, FetchAdd, CompareSwap, Swap, Ended, Refused, TakeBack, ReadsEnded];
        let operation = all.into_iter().find(|operation| *operation as u8 == number)?;
        let mut word = || reader.u64();
        let message = Message {
            operation,
            transfer: word()?,
            exposure: word()?,
            offset: word()?,
            words: [word()?, word()?],
        };
        reader.rest().is_empty().then_some(message)
    }
}

impl PieceHeader {
    /// Its bytes.
    pub fn bytes(&self) -> [u8; PIECE_BYTES] {
        let mut out = [0; PIECE_BYTES];
        let mut writer = Writer::new(&mut out);
        [self.transfer, self.exposure, self.offset].into_iter().for_each(|word| writer.u64(word));
        writer.u8(u8::from(self.put));
        writer.u8(u8::from(self.last));
        out
    }

    fn read(bytes: &[u8]) -> Option<PieceHeader> {
        let mut reader = Reader::new(bytes);
        let (transfer, exposure, offset) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (put, last) = (reader.u8()?, reader.u8()?);
        let header = PieceHeader { transfer, exposure, offset, put: put == 1, last: last == 1 };
        (put <= 1 && last <= 1 && reader.rest().is_empty()).then_some(header)
    }
}

/// The transfers of this process, its registered memory, and what is to be sent for transfers.
#[derive(Debug, Default)]
pub struct Transfers {
    pub(crate) entries: Slab<Transfer>,
    pub(crate) regions: Regions,
    /// Transfers for the devices that are to be posted, in order.
    pub(crate) to_post: VecDeque<Key>,
    /// By connection, what is to be sent.
    jobs: Vec<VecDeque<Job>>,
    /// Connections and exposures of their peers, whose keys were taken back: the peer waits until no transfer that the device has uses them.
    awaited: Vec<(u32, u64)>,
    /// The last connections and exposures whose keys the devices of the peers have not known: they are read by messages.
    by_messages: VecDeque<(u32, u64)>,
    pub(crate) keys_taken_back: KeysTakenBack,
    next_serial: u64,
    /// Cookies that end in the next calls of progress.
    pub(crate) ended: VecDeque<(Cookie, Result<(), SendError>)>,
}

/// So many keys are remembered that a device of a peer did not know. One that was forgotten costs its peer some errors again.
const DEAD_KEYS_MAX: usize = 32;

/// A transfer that a device has, or does not take.
#[derive(Clone, Copy, Debug)]
pub struct OnDevice {
    pub(crate) key: Key,
    pub(crate) connection: u32,
    pub(crate) rail: usize,
    pub(crate) since: Instant,
    pub(crate) is_posted: bool,
}

/// A transfer to begin.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub(crate) connection: u32,
    pub(crate) what: What,
    pub(crate) local: Span,
    pub(crate) remote: Remote,
    pub(crate) remote_offset: u64,
    pub(crate) done: Cookie,
}

fn number(key: Key) -> u64 {
    u64::from(key.generation) << 32 | u64::from(key.index)
}

fn key(number: u64) -> Key {
    Key { index: number as u32, generation: (number >> 32) as u32 }
}

impl Transfers {
    /// Makes room for another connection.
    pub fn add_connection(&mut self) {
        self.jobs.push(VecDeque::new());
    }

    /// The unfinished transfers of a connection.
    pub fn count(&self, connection: u32) -> usize {
        self.entries.iter().filter(|(_, transfer)| transfer.connection == connection).count()
    }

    /// How many transfers, regions and exposures there are.
    pub fn held(&self) -> usize {
        self.entries.len() + self.regions.len()
    }

    /// Begins a transfer.
    pub fn begin(&mut self, wanted: Wanted, atomic: Option<Atomic>) -> Result<(), SendError> {
        let Wanted { connection, mut what, remote, remote_offset, done, .. } = wanted;
        if what == What::DeviceGet && self.is_key_dead(connection, &remote) {
            what = What::Get;
        }
        if self.count(connection) >= TRANSFERS_MAX {
            return Err(SendError::Busy);
        }
        let memory = self.check(wanted)?;
        let key = self.insert(connection, what, memory, remote, remote_offset, done)?;
        match (what, atomic) {
            (What::DeviceGet, _) => self.to_post.push_back(key),
            (What::Put, _) => self.queue_put(key),
            _ => self.queue_request(key, atomic),
        }
        Ok(())
    }

    /// The local memory of a transfer whose ranges and rights are right.
    pub fn check(&self, wanted: Wanted) -> Result<UserMemory, SendError> {
        let Wanted { what, local, remote, remote_offset, .. } = wanted;
        let memory = self.regions.local(local).ok_or(SendError::LocalFault)?;
        let inside = remote_offset.checked_add(local.bytes).is_some_and(|end| end <= remote.bytes);
        if inside && crate::exposures::allows(&remote, what) { Ok(memory) } else { Err(SendError::NoAccess) }
    }

    fn insert(
        &mut self,
        connection: u32,
        what: What,
        local: UserMemory,
        remote: Remote,
        remote_offset: u64,
        done: Cookie,
    ) -> Result<Key, SendError> {
        self.next_serial += 1;
        let transfer = Transfer {
            connection,
            done,
            what,
            local,
            remote,
            remote_offset,
            serial: self.next_serial,
            posted: None,
            waits_for: None,
            since: Instant::default(),
            failures: 0,
            arrived: 0,
            registration: None,
        };
        self.entries.try_insert(transfer).ok_or(SendError::Busy)
    }

    fn queue_put(&mut self, key: Key) {
        let Some(transfer) = self.entries.get(key) else { return };
        let job = Job::Pieces {
            transfer: number(key),
            exposure: crate::exposures::handle(&transfer.remote),
            offset: transfer.remote_offset,
            memory: transfer.local.share(),
            sent: 0,
            put: true,
        };
        self.jobs[transfer.connection as usize].push_back(job);
    }

    fn queue_request(&mut self, key: Key, atomic: Option<Atomic>) {
        let Some(transfer) = self.entries.get(key) else { return };
        let (operation, words) = match atomic {
            None => (Operation::Get, [transfer.local.len() as u64, 0]),
            Some(Atomic::FetchAdd(value)) => (Operation::FetchAdd, [value, 0]),
            Some(Atomic::CompareSwap { expected, desired }) => (Operation::CompareSwap, [expected, desired]),
            Some(Atomic::Swap(value)) => (Operation::Swap, [value, 0]),
        };
        let message = Message {
            operation,
            transfer: number(key),
            exposure: crate::exposures::handle(&transfer.remote),
            offset: transfer.remote_offset,
            words,
        };
        self.jobs[transfer.connection as usize].push_back(Job::Message(message));
    }

    /// Begins a flush: it ends when the puts and atomic operations that began before it have ended.
    pub fn flush(&mut self, connection: u32, done: Cookie) -> Result<(), SendError> {
        if self.count(connection) >= TRANSFERS_MAX {
            return Err(SendError::Busy);
        }
        self.insert(connection, What::Flush, UserMemory::EMPTY, Remote::with_word(0, 0), 0, done)?;
        self.end_flushes(connection);
        Ok(())
    }

    fn end_flushes(&mut self, connection: u32) {
        let of = |transfer: &Transfer| transfer.connection == connection;
        let moves = |transfer: &Transfer| matches!(transfer.what, What::Put | What::Atomic);
        let first = self
            .entries
            .iter()
            .filter(|(_, transfer)| of(transfer) && moves(transfer))
            .map(|(_, transfer)| transfer.serial)
            .min();
        let is_over = |transfer: &Transfer| {
            of(transfer) && transfer.what == What::Flush && first.is_none_or(|first| transfer.serial < first)
        };
        let over: Vec<Key> =
            self.entries.iter().filter(|(_, transfer)| is_over(transfer)).map(|(key, _)| key).collect();
        for key in over {
            if let Some(transfer) = self.entries.remove(key) {
                self.ended.push_back((transfer.done, Ok(())));
            }
        }
    }

    /// A transfer has ended. Returns its connection, on which another may begin.
    pub fn end(&mut self, key: Key, result: Result<(), SendError>) -> Option<u32> {
        let transfer = self.entries.remove(key)?;
        self.ended.push_back((transfer.done, result));
        if transfer.what == What::DeviceGet {
            self.answer_keys_taken_back(transfer.connection);
        }
        if matches!(transfer.what, What::Put | What::Atomic) {
            self.end_flushes(transfer.connection);
        }
        Some(transfer.connection)
    }

    /// The keys of the transfers of a connection that the device has.
    pub fn posted(&self, connection: u32) -> bool {
        self.entries
            .iter()
            .any(|(_, transfer)| transfer.connection == connection && transfer.posted.is_some())
    }

    /// Ends all transfers of a connection, none of which the device has any more.
    pub fn sever(&mut self, connection: u32) {
        self.jobs[connection as usize].clear();
        self.awaited.retain(|(of, _)| *of != connection);
        self.by_messages.retain(|(of, _)| *of != connection);
        self.regions.sever(connection);
        let all: Vec<Key> = self
            .entries
            .iter()
            .filter(|(_, transfer)| transfer.connection == connection)
            .map(|(key, _)| key)
            .collect();
        for key in all {
            if let Some(transfer) = self.entries.remove(key) {
                self.ended.push_back((transfer.done, Err(SendError::Severed)));
            }
        }
    }

    /// An exposure has ended: gets of it that are not sent completely are refused, since its memory may be gone (I7).
    pub fn end_access(&mut self, exposure: Exposure) -> Vec<u32> {
        let mut changed = Vec::new();
        for (connection, jobs) in (0..).zip(&mut self.jobs) {
            for job in jobs.iter_mut() {
                match *job {
                    Job::Pieces { transfer, exposure: of, put: false, .. } if of == exposure.0 => {
                        *job = Job::Message(Message::answer(transfer, Operation::Refused, 0));
                        changed.push(connection);
                    }
                    Job::Pieces { .. } | Job::Message(_) => {}
                }
            }
        }
        changed
    }

    /// The device cannot do this get: the peer sends the bytes, or refuses.
    pub fn get_by_messages(&mut self, key: Key) {
        let Some(transfer) = self.entries.get_mut(key) else { return };
        (transfer.what, transfer.arrived, transfer.waits_for) = (What::Get, 0, None);
        let connection = transfer.connection;
        self.queue_request(key, None);
        self.answer_keys_taken_back(connection);
    }

    /// Each transfer that a device has, or does not take.
    pub fn on_devices(&self) -> impl Iterator<Item = OnDevice> + '_ {
        self.entries.iter().filter_map(|(key, transfer)| {
            let (connection, since) = (transfer.connection, transfer.since);
            let rail = transfer.posted.or(transfer.waits_for)?;
            Some(OnDevice { key, connection, rail, since, is_posted: transfer.posted.is_some() })
        })
    }

    /// Whether the device of a rail has transfers of a connection.
    pub fn posted_on(&self, connection: u32, rail: usize) -> bool {
        self.entries
            .iter()
            .any(|(_, transfer)| transfer.connection == connection && transfer.posted == Some(rail))
    }

    /// The device of the peer does not know the key of a transfer, nor will it know it for further transfers.
    pub fn on_key_dead(&mut self, key: Key) {
        let Some(dead) = self.entries.get(key).map(Transfer::accesses) else { return };
        if !self.by_messages.contains(&dead) {
            self.by_messages.truncate(DEAD_KEYS_MAX - 1);
            self.by_messages.push_front(dead);
        }
    }

    /// Whether the device of the peer is known not to know a key, or the peer has taken it back.
    pub fn is_key_dead(&self, connection: u32, remote: &Remote) -> bool {
        let key = (connection, crate::exposures::handle(remote));
        self.by_messages.contains(&key) || self.awaited.contains(&key)
    }

    /// Whether the peer has taken back the key of a transfer.
    pub fn is_taken_back(&self, key: Key) -> bool {
        self.entries.get(key).is_some_and(|transfer| self.awaited.contains(&transfer.accesses()))
    }

    /// The device of a rail does not take a transfer now: it is tried again.
    pub fn wait_for(&mut self, key: Key, rail: usize) {
        let Some(transfer) = self.entries.get_mut(key) else { return };
        transfer.waits_for = Some(rail);
        self.to_post.push_back(key);
    }

    /// A device has failed to do a transfer. Returns how often that was.
    pub fn count_failure(&mut self, key: Key) -> u32 {
        let Some(transfer) = self.entries.get_mut(key) else { return 0 };
        transfer.failures += 1;
        transfer.failures
    }

    /// A device has forgotten a transfer: it is posted again.
    pub fn repost(&mut self, key: Key) {
        if let Some(transfer) = self.entries.get_mut(key) {
            transfer.posted = None;
            transfer.waits_for = None;
            transfer.registration = None;
            let connection = transfer.connection;
            self.to_post.push_back(key);
            self.answer_keys_taken_back(connection);
        }
    }

    /// Asks the peer of a connection for the end of its reads by a key that was taken back, unless much else is to be sent: then the
    /// device is opened again when that is due.
    pub fn ask_for_end_of_reads(&mut self, connection: u32, exposure: Exposure) {
        if self.jobs[connection as usize].len() >= 2 * TRANSFERS_MAX {
            return;
        }
        let exposure = exposure.0;
        let message =
            Message { operation: Operation::TakeBack, transfer: 0, exposure, offset: 0, words: [0; 2] };
        self.jobs[connection as usize].push_back(Job::Message(message));
    }

    /// Answers the peer of a connection about keys that it took back, and by which the device reads no more.
    pub fn answer_keys_taken_back(&mut self, connection: u32) {
        let entries = &self.entries;
        let reads = |exposure: u64| {
            entries.iter().any(|(_, transfer)| {
                transfer.posted.is_some() && transfer.accesses() == (connection, exposure)
            })
        };
        let over = self.awaited.extract_if(.., |(of, exposure)| *of == connection && !reads(*exposure));
        for (_, exposure) in over.collect::<Vec<_>>() {
            let operation = Operation::ReadsEnded;
            let message = Message { operation, transfer: 0, exposure, offset: 0, words: [0; 2] };
            self.jobs[connection as usize].push_back(Job::Message(message));
        }
    }

    fn on_reads_ended(&mut self, connection: u32, exposure: u64) {
        // An answer may come after the device was opened again instead.
        let done = self.keys_taken_back.on_answer(connection, Exposure(exposure));
        self.ended.extend(done.map(|done| (done, Ok(()))));
    }

    /// What is to be sent to the peer of a connection next.
    pub fn job(&mut self, connection: u32) -> Option<&mut Job> {
        self.jobs[connection as usize].front_mut()
    }

    /// Whether something is to be sent.
    pub fn has_jobs(&self, connection: u32) -> bool {
        !self.jobs[connection as usize].is_empty()
    }

    /// The first job is done.
    pub fn end_job(&mut self, connection: u32) {
        self.jobs[connection as usize].pop_front();
    }

    fn answer(&mut self, connection: u32, transfer: u64, operation: Operation, old: u64) {
        self.jobs[connection as usize].push_back(Job::Message(Message::answer(transfer, operation, old)));
    }

    /// A frame of kind `Remote` has come.
    pub fn on_message(&mut self, connection: u32, bytes: &[u8]) -> Result<Option<Key>, Garbage> {
        let message = Message::read(bytes).ok_or(Garbage)?;
        let bound = self.jobs[connection as usize].len() < 4 * TRANSFERS_MAX;
        match message.operation {
            Operation::Ended => return self.on_ended(connection, message, Ok(())),
            Operation::Refused => return self.on_ended(connection, message, Err(SendError::NoAccess)),
            Operation::ReadsEnded => self.on_reads_ended(connection, message.exposure),
            // A correct peer may take back many keys while answers wait for the way to it. It does not wait long for an answer.
            Operation::TakeBack if !bound => {}
            // A correct peer has no more transfers than that.
            _ if !bound => return Err(Garbage),
            Operation::Get => self.serve_get(connection, message),
            Operation::TakeBack => {
                let awaited = (connection, message.exposure);
                if !self.awaited.contains(&awaited) {
                    self.awaited.push(awaited);
                }
                self.answer_keys_taken_back(connection);
            }
            _ => self.serve_atomic(connection, message),
        }
        Ok(None)
    }

    fn serve_get(&mut self, connection: u32, message: Message) {
        let Message { transfer, exposure, offset, words: [bytes, _], .. } = message;
        let memory = self.regions.exposed(connection, Exposure(exposure), AccessKind::Read, offset, bytes);
        match memory {
            Some(memory) if !memory.is_empty() => {
                let job = Job::Pieces { transfer, exposure, offset: 0, memory, sent: 0, put: false };
                self.jobs[connection as usize].push_back(job);
            }
            // A get of nothing ends at its initiator.
            Some(_) => {}
            None => self.answer(connection, transfer, Operation::Refused, 0),
        }
    }

    fn serve_atomic(&mut self, connection: u32, message: Message) {
        let Message { operation, transfer, exposure, offset, words } = message;
        let atomic = match operation {
            Operation::FetchAdd => Atomic::FetchAdd(words[0]),
            Operation::CompareSwap => Atomic::CompareSwap { expected: words[0], desired: words[1] },
            _ => Atomic::Swap(words[0]),
        };
        let memory = self.regions.exposed(connection, Exposure(exposure), AccessKind::Atomic, offset, 8);
        match memory.and_then(|memory| memory.atomic(0, atomic)) {
            Some(old) => self.answer(connection, transfer, Operation::Ended, old),
            None => self.answer(connection, transfer, Operation::Refused, 0),
        }
    }

    /// The peer says that a transfer of this process has ended.
    fn on_ended(
        &mut self,
        connection: u32,
        message: Message,
        result: Result<(), SendError>,
    ) -> Result<Option<Key>, Garbage> {
        let key = key(message.transfer);
        let transfer = self.entries.get(key).filter(|transfer| transfer.connection == connection);
        let transfer = transfer.ok_or(Garbage)?;
        match (transfer.what, result) {
            (What::Get, Ok(())) => return Err(Garbage),
            (What::Atomic, Ok(())) => transfer.local.write(0, &message.words[0].to_ne_bytes()),
            (What::DeviceGet | What::Flush, _) => return Err(Garbage),
            _ => {}
        }
        // A refusal may come before the last piece of a put was sent.
        let is_of = |job: &Job| matches!(job, Job::Pieces { transfer, put: true, .. } if *transfer == message.transfer);
        self.jobs[connection as usize].retain(|job| !is_of(job));
        self.end(key, result);
        Ok(Some(key))
    }

    // Hot: per piece.
    /// A frame of kind `Piece` has come.
    pub fn on_piece(&mut self, connection: u32, header: &[u8], payload: &[u8]) -> Result<(), Garbage> {
        let header = PieceHeader::read(header).ok_or(Garbage)?;
        if header.put {
            // A correct peer has no more transfers than that.
            if self.jobs[connection as usize].len() >= 4 * TRANSFERS_MAX {
                return Err(Garbage);
            }
            self.on_piece_of_put(connection, header, payload);
            return Ok(());
        }
        // A refusal is a control message: it may have overtaken pieces that the peer had added before.
        let Some(transfer) = self.entries.get_mut(key(header.transfer)) else { return Ok(()) };
        if transfer.connection != connection || transfer.what != What::Get {
            return Err(Garbage);
        }
        let left = transfer.local.len() as u64 - transfer.arrived;
        if payload.len() as u64 > left || header.offset != transfer.arrived {
            return Err(Garbage);
        }
        transfer.local.write(transfer.arrived as usize, payload);
        transfer.arrived += payload.len() as u64;
        if transfer.arrived == transfer.local.len() as u64 {
            self.end(key(header.transfer), Ok(()));
        }
        Ok(())
    }

    /// Writes a piece where the peer may; refuses the put at its last piece otherwise.
    fn on_piece_of_put(&mut self, connection: u32, header: PieceHeader, payload: &[u8]) {
        let PieceHeader { transfer, exposure, offset, last, .. } = header;
        let bytes = payload.len() as u64;
        let memory = self.regions.exposed(connection, Exposure(exposure), AccessKind::Write, offset, bytes);
        let allowed = memory.inspect(|memory| memory.write(0, payload)).is_some();
        if last {
            let operation = if allowed { Operation::Ended } else { Operation::Refused };
            self.answer(connection, transfer, operation, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Job, Message, Operation, Transfers, Wanted, What};
    use crate::exposures::{RAILS_MAX, read_key, write_key};
    use mend_transport::{AmId, Buffer, Cookie, Exposure, RemoteAccess, SendError, Span, UserMemory};

    const READ: RemoteAccess = RemoteAccess { read: true, write: false, atomic: false };

    fn with_one_connection() -> Transfers {
        let mut transfers = Transfers::default();
        transfers.add_connection();
        transfers
    }

    fn span(transfers: &mut Transfers, bytes: usize) -> Span {
        let region = transfers.regions.register(&UserMemory::of_buffer(&Buffer::zeroed(bytes))).unwrap();
        Span { region, offset: 0, bytes: bytes as u64 }
    }

    fn next_message(transfers: &mut Transfers) -> Message {
        let Some(&mut Job::Message(message)) = transfers.job(0) else { panic!("no message is next") };
        transfers.end_job(0);
        message
    }

    #[test]
    fn a_get_of_memory_that_was_taken_back_is_refused() {
        let mut transfers = with_one_connection();
        let local = span(&mut transfers, 100);
        let exposure = transfers.regions.expose(0, local, READ).unwrap();
        for transfer in [7, 8] {
            let words = [100, 0];
            let request =
                Message { operation: Operation::Get, transfer, exposure: exposure.0, offset: 0, words };
            assert_eq!(transfers.on_message(0, &request.bytes()), Ok(None));
        }
        assert!(transfers.regions.unexpose(exposure));
        assert_eq!(transfers.end_access(exposure), [0, 0]);
        for transfer in [7, 8] {
            assert_eq!(next_message(&mut transfers), Message::answer(transfer, Operation::Refused, 0));
        }
        assert!(!transfers.has_jobs(0));
    }

    #[test]
    fn pieces_that_a_refusal_has_overtaken_are_dropped() {
        let mut transfers = with_one_connection();
        let local = span(&mut transfers, 100);
        let remote = read_key(write_key(100, Exposure(5), READ, [(0, 0); RAILS_MAX]).as_bytes()).unwrap();
        let done = Cookie::new(AmId(1), 1).unwrap();
        let wanted = Wanted { connection: 0, what: What::Get, local, remote, remote_offset: 0, done };
        transfers.begin(wanted, None).unwrap();
        let request = next_message(&mut transfers);
        let refused = Message::answer(request.transfer, Operation::Refused, 0).bytes();
        assert!(matches!(transfers.on_message(0, &refused), Ok(Some(_))));
        let transfer = request.transfer;
        let piece = super::PieceHeader { transfer, exposure: 5, offset: 0, put: false, last: false };
        assert_eq!(transfers.on_piece(0, &piece.bytes(), &[1; 50]), Ok(()));
        assert_eq!(transfers.ended, [(done, Err(SendError::NoAccess))]);
    }

    #[test]
    fn a_read_that_failed_is_asked_for_if_its_key_was_taken_back_and_so_are_those_of_a_dead_key() {
        let mut transfers = with_one_connection();
        let local = span(&mut transfers, 100);
        let remote = read_key(write_key(100, Exposure(5), READ, [(0, 0); RAILS_MAX]).as_bytes()).unwrap();
        let done = Cookie::new(AmId(1), 1).unwrap();
        let what = What::DeviceGet;
        let wanted = Wanted { connection: 0, what, local, remote, remote_offset: 0, done };
        transfers.begin(wanted, None).unwrap();
        let key = transfers.to_post.pop_front().unwrap();
        transfers.entries.get_mut(key).unwrap().posted = Some(0);
        let (operation, exposure, words) = (Operation::TakeBack, 5, [0; 2]);
        let take_back = Message { operation, transfer: 0, exposure, offset: 0, words };
        assert_eq!(transfers.on_message(0, &take_back.bytes()), Ok(None));
        assert!(transfers.is_taken_back(key) && !transfers.has_jobs(0), "the device reads");
        transfers.entries.get_mut(key).unwrap().posted = None;
        transfers.on_key_dead(key);
        transfers.get_by_messages(key);
        assert_eq!(next_message(&mut transfers).operation, Operation::Get);
        assert_eq!(next_message(&mut transfers).operation, Operation::ReadsEnded);
        transfers.begin(wanted, None).unwrap();
        assert!(transfers.to_post.is_empty());
        assert_eq!(next_message(&mut transfers).operation, Operation::Get);
    }

    #[test]
    fn a_peer_may_take_back_more_keys_than_answers_can_wait() {
        let mut transfers = with_one_connection();
        for key in 0..5 * super::TRANSFERS_MAX as u64 {
            let take_back = Message {
                operation: Operation::TakeBack,
                transfer: 0,
                exposure: key,
                offset: 0,
                words: [0; 2],
            };
            assert_eq!(transfers.on_message(0, &take_back.bytes()), Ok(None));
        }
        assert_eq!(transfers.jobs[0].len(), 4 * super::TRANSFERS_MAX);
    }

    #[test]
    fn a_get_that_the_device_cannot_do_is_asked_for_and_ends_once() {
        let mut transfers = with_one_connection();
        let local = span(&mut transfers, 100);
        let key = write_key(100, Exposure(5), READ, [(0, 0); RAILS_MAX]);
        let remote = read_key(key.as_bytes()).unwrap();
        let done = Cookie::new(AmId(1), 1).unwrap();
        let what = What::DeviceGet;
        let wanted = Wanted { connection: 0, what, local, remote, remote_offset: 0, done };
        transfers.begin(wanted, None).unwrap();
        let key = transfers.to_post.pop_front().unwrap();
        transfers.get_by_messages(key);
        let request = next_message(&mut transfers);
        assert_eq!((request.operation, request.exposure, request.words[0]), (Operation::Get, 5, 100));
        let refused = Message::answer(request.transfer, Operation::Refused, 0).bytes();
        assert_eq!(transfers.on_message(0, &refused), Ok(Some(key)));
        assert_eq!(transfers.on_message(0, &refused), Err(super::Garbage), "twice");
        assert_eq!(transfers.ended, [(done, Err(SendError::NoAccess))]);
    }
}
