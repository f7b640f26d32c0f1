// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes out: frames, probes, answers, transfers.

use crate::classify::{Class, classify};
use crate::connection::{Acknowledge, Connection, PROBE_AGAIN, State};
use crate::exposures::device_key;
use crate::frame::{FLAG_GAP, FrameClass, FrameHeader, HEADER_BYTES, Kind};
use crate::ofi::{Ofi, Reader};
use crate::operations::Operation;
use crate::send_buffers::BufferKey;
use crate::sequence::Frame;
use crate::transfers::{Job, MESSAGE_BYTES, PIECE_BYTES, PieceHeader, Transfer, What};
use mend_base::Key;
use mend_ffi_ofi::bindings::FI_MR_LOCAL;
use mend_ffi_ofi::{Access, Code, Registration, Target};
use mend_transport::{PayloadWriter, SendError};

/// What a new frame carries.
pub(crate) struct Outline<'a> {
    pub(crate) kind: Kind,
    pub(crate) id: u8,
    pub(crate) header: &'a [u8],
    pub(crate) payload_bytes: usize,
}

/// Where the acknowledgements stand in a frame.
const ACKNOWLEDGED_AT: core::ops::Range<usize> = 12..20;

/// From which probe of a trouble on connections that stand still are broken: one that has lost a packet or two goes on by itself before.
const PROBES_UNTIL_BREAK: u32 = 8;

impl Ofi {
    // Hot: per message.
    /// Adds a frame to a class that has room. `Err`: there is no memory for it.
    pub(crate) fn add_frame(
        &mut self,
        index: u32,
        class: FrameClass,
        outline: &Outline<'_>,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), Code> {
        let connection = &mut self.connections[index as usize];
        let start = HEADER_BYTES + outline.header.len();
        let bytes = start + outline.payload_bytes;
        let buffer = self.buffers.take(bytes)?;
        let out = self.buffers.bytes_mut(buffer, bytes);
        let header = FrameHeader {
            tag: connection.tag_to,
            sequence: connection.outgoing[class as usize].next_sequence(),
            acknowledged: connection.acknowledged(),
            kind: outline.kind,
            id: outline.id,
            header_bytes: outline.header.len() as u8,
            flags: 0,
            payload_bytes: outline.payload_bytes as u32,
            probe: 0,
        };
        header.write(out);
        out[HEADER_BYTES..start].copy_from_slice(outline.header);
        fill(PayloadWriter::from(&mut out[start..]));
        connection.outgoing[class as usize].push(Frame { buffer, bytes: bytes as u32 });
        Ok(())
    }

    // Hot: per message.
    /// Posts the frames of a connection that its windows allow: control first.
    pub(crate) fn post_frames(&mut self, index: u32) {
        for class in [FrameClass::Control, FrameClass::Data] {
            while let Some(frame) = self.next_frame(index, class) {
                if let Err(code) = self.post_frame(index, frame) {
                    self.on_post_error(index, code);
                    return;
                }
                self.connections[index as usize].outgoing[class as usize].on_posted();
            }
        }
    }

    // Hot: per message.
    fn next_frame(&self, index: u32, class: FrameClass) -> Option<Frame> {
        let connection = &self.connections[index as usize];
        if connection.may_post() { connection.outgoing[class as usize].next_to_post() } else { None }
    }

    // Hot: per message.
    fn post_frame(&mut self, index: u32, frame: Frame) -> Result<(), Code> {
        let connection = &mut self.connections[index as usize];
        let rail = connection.rail;
        let Some(address) = connection.paths[rail].as_ref().and_then(|path| path.address) else {
            return Err(Code::AGAIN);
        };
        // A frame that the device still reads, since it was posted before a break, keeps its acknowledgements: they are late, not wrong.
        if self.buffers.is_idle(frame.buffer) {
            let acknowledged = connection.acknowledged();
            let out = &mut self.buffers.bytes_mut(frame.buffer, HEADER_BYTES)[ACKNOWLEDGED_AT];
            out[..4].copy_from_slice(&acknowledged[0].to_le_bytes());
            out[4..].copy_from_slice(&acknowledged[1].to_le_bytes());
        }
        let operation = Operation::Frame { connection: index, epoch: connection.epoch, buffer: frame.buffer };
        let what = (frame.buffer, frame.bytes as usize);
        self.rails[rail].send(&mut self.buffers, rail, what, address, operation)?;
        let acknowledged = connection.acknowledged();
        connection.on_told(acknowledged);
        self.statistics.posted += 1;
        Ok(())
    }

    fn on_post_error(&mut self, index: u32, code: Code) {
        self.list(index);
        self.on_error_of(index, self.connections[index as usize].rail, "send", (code, 0));
    }

    /// Posts what waits on all listed connections.
    pub(crate) fn post_listed(&mut self) {
        if self.listed.is_empty() {
            return;
        }
        let mut listed = core::mem::take(&mut self.listed);
        for &index in &listed {
            self.connections[index as usize].is_listed = false;
        }
        for index in listed.drain(..) {
            self.run_jobs(index);
            self.add_mailboxes(index);
            self.post_frames(index);
            self.post_answer(index);
            self.offer_room(index);
        }
        // Those that could not post everything have listed themselves again. Keeps the memory of the longer list.
        if self.listed.is_empty() {
            self.listed = listed;
        }
    }

    /// Answers a probe, or tells what has arrived, unless a frame has told it.
    fn post_answer(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        let (answer, told) = (connection.answer, connection.acknowledge);
        if answer.is_none() && told == Acknowledge::Nothing {
            return;
        }
        if !matches!(connection.state, State::Connecting | State::Connected | State::Quarantined { .. }) {
            return;
        }
        let rail = answer.map_or(connection.rail, |(_, rail)| rail);
        let Some(address) = connection.paths[rail].as_ref().and_then(|path| path.address) else { return };
        let acknowledged = connection.acknowledged();
        let header = FrameHeader {
            tag: connection.tag_to,
            sequence: 0,
            acknowledged,
            kind: Kind::Answer,
            id: 0,
            header_bytes: 0,
            flags: if told == Acknowledge::Gap { FLAG_GAP } else { 0 },
            payload_bytes: 0,
            probe: answer.map_or(0, |(number, _)| number),
        };
        let mut frame = [0; HEADER_BYTES];
        header.write(&mut frame);
        match self.rails[rail].inject(&frame, address) {
            Ok(()) => {
                connection.answer = None;
                connection.acknowledge = Acknowledge::Nothing;
                connection.on_told(acknowledged);
            }
            Err(code) => self.on_post_error(index, code),
        }
    }

    /// Sends a probe: with it the peer learns at which address this process is.
    pub(crate) fn send_probe(&mut self, index: u32) {
        self.choose_rail(index);
        self.renew_path(index);
        let connection = &mut self.connections[index as usize];
        connection.on_probe(self.now);
        self.post_probe(index);
    }

    /// Gives the last probe to the device, by the rail of messages.
    pub(crate) fn post_probe(&mut self, index: u32) {
        let Connection { rail, probe, .. } = &self.connections[index as usize];
        let is_full = self.send_probe_by(index, *rail, probe.number);
        self.connections[index as usize].probe.again = is_full.then(|| self.now + PROBE_AGAIN);
    }

    /// Sends a probe by this rail; number 0: only to learn whether the rail works. Returns whether the device had no room for it.
    pub(crate) fn send_probe_by(&mut self, index: u32, rail: usize, number: u32) -> bool {
        let connection = &self.connections[index as usize];
        let Some(address) = connection.paths[rail].as_ref().and_then(|path| path.address) else {
            return false;
        };
        let name = &self.entry.rails[rail].1;
        let header = FrameHeader {
            tag: connection.tag_to,
            sequence: 0,
            acknowledged: connection.acknowledged(),
            kind: Kind::Probe,
            id: 0,
            header_bytes: 0,
            flags: 0,
            payload_bytes: name.len() as u32,
            probe: number,
        };
        let bytes = HEADER_BYTES + name.len();
        let Ok(buffer) = self.buffers.take(bytes) else { return true };
        let out = self.buffers.bytes_mut(buffer, bytes);
        header.write(out);
        out[HEADER_BYTES..].copy_from_slice(name);
        // An error of a probe of a broken rail says nothing new: that is what errors of an earlier epoch are.
        let is_of_rail = number == 0;
        let epoch = connection.epoch.wrapping_sub(u32::from(is_of_rail));
        let operation = Operation::Frame { connection: index, epoch, buffer };
        let posted = self.rails[rail].send(&mut self.buffers, rail, (buffer, bytes), address, operation);
        self.buffers.release(buffer);
        self.statistics.probes += 1;
        match posted.map_err(|code| (code, classify(code))) {
            Err((code, _)) if !is_of_rail => self.on_error_of(index, rail, "send", (code, 0)),
            Err((code, Class::Device)) => _ = self.rails[rail].broken.get_or_insert(code),
            _ => {}
        }
        posted.is_err_and(|code| classify(code) == Class::Again)
    }

    /// While the way is broken, each probe takes the next rail.
    fn choose_rail(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        let is_lost = connection.trouble.is_some() || connection.state == State::Connecting;
        if !is_lost || connection.probe.unanswered_since.is_none() {
            return;
        }
        let count = connection.paths.len();
        let next = (1..=count).map(|step| (connection.rail + step) % count);
        if let Some(rail) = next.into_iter().find(|&rail| connection.paths[rail].is_some()) {
            connection.rail = rail;
        }
    }

    /// While the way is broken, the provider is made to connect anew from time to time, because it may go on with a connection that is dead without
    /// noticing: the address of the peer is removed and added again, and connections over sockets, which outlive that, are broken if they
    /// stand still. The two ends remove the address in different probes, since one may refuse what crosses its own attempt.
    fn renew_path(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        let turn = if connection.tag_to > connection.tag_from { 2 } else { 4 };
        let Some(trouble) = &mut connection.trouble else { return };
        trouble.probes += 1;
        let has_lasted = trouble.probes >= PROBES_UNTIL_BREAK;
        // Not in each fourth turn: an answer that takes long must not be lost with the connection that it comes by.
        let is_turn = trouble.probes % 4 == turn % 4 && trouble.probes / 4 % 4 != 3;
        let rail = connection.rail;
        let Some(path) = &mut connection.paths[rail] else { return };
        if is_turn {
            path.address.take().into_iter().for_each(|address| self.rails[rail].remove(address));
        }
        if path.address.is_none() {
            path.address = self.rails[rail].insert(&path.name).ok();
        }
        if has_lasted {
            self.break_stuck();
        }
    }

    /// Adds frames for transfers that are emulated, as long as the classes have room.
    pub(crate) fn run_jobs(&mut self, index: u32) {
        while self.connections[index as usize].may_send() {
            let done = match self.transfers.job(index) {
                None => return,
                Some(Job::Message(message)) => {
                    let bytes = message.bytes();
                    self.add_job_frame(
                        index,
                        FrameClass::Control,
                        Kind::Remote,
                        &[],
                        MESSAGE_BYTES,
                        |mut out| out.put(&bytes),
                    )
                    .is_some()
                    .then_some(true)
                }
                Some(Job::Pieces { .. }) => self.add_piece(index),
            };
            match done {
                Some(true) => self.transfers.end_job(index),
                Some(false) => {}
                None => {
                    self.list(index);
                    return;
                }
            }
        }
    }

    /// Adds the next piece of the first job. Returns whether it was the last one; `None`: there is no room.
    fn add_piece(&mut self, index: u32) -> Option<bool> {
        let piece_bytes = self.connections[index as usize].limits.message_bytes_max as usize;
        let Some(Job::Pieces { transfer, exposure, offset, memory, sent, put }) = self.transfers.job(index)
        else {
            return None;
        };
        let (from, source) = (*sent, memory.share());
        let bytes = piece_bytes.min(source.len() - from);
        let last = from + bytes == source.len();
        let header = PieceHeader {
            transfer: *transfer,
            exposure: *exposure,
            offset: *offset + from as u64,
            put: *put,
            last,
        };
        let header: [u8; PIECE_BYTES] = header.bytes();
        self.add_job_frame(index, FrameClass::Data, Kind::Piece, &header, bytes, |mut out| {
            out.put_user(&source, from, bytes);
        })?;
        if let Some(Job::Pieces { sent, .. }) = self.transfers.job(index) {
            *sent += bytes;
        }
        Some(last)
    }

    fn add_job_frame(
        &mut self,
        index: u32,
        class: FrameClass,
        kind: Kind,
        header: &[u8],
        payload_bytes: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Option<()> {
        if !self.connections[index as usize].outgoing[class as usize].has_room() {
            return None;
        }
        self.add_frame(index, class, &Outline { kind, id: 0, header, payload_bytes }, fill).ok()
    }

    /// Posts transfers to the devices, in their order, as long as these take them.
    pub(crate) fn post_transfers(&mut self) {
        for _ in 0..self.transfers.to_post.len() {
            let Some(key) = self.transfers.to_post.pop_front() else { return };
            // Its bytes may be sent by the peer instead.
            let of_device = |transfer: &&Transfer| transfer.what == What::DeviceGet;
            let Some(transfer) = self.transfers.entries.get(key).filter(of_device) else { continue };
            let index = transfer.connection;
            if !self.connections[index as usize].may_post() {
                self.transfers.to_post.push_back(key);
                continue;
            }
            let rail = self.transfer_rail(key);
            if let Err(code) = self.post_transfer(key, rail) {
                self.on_transfer_failed(key, rail, "read", (code, 0));
            }
        }
    }

    fn transfer_rail(&self, key: Key) -> usize {
        let Some(transfer) = self.transfers.entries.get(key) else { return 0 };
        let connection = &self.connections[transfer.connection as usize];
        transfer_rail(&connection.paths, key, transfer.failures, connection.rail)
    }

    fn post_transfer(&mut self, key: Key, rail: usize) -> Result<(), Code> {
        let Some(transfer) = self.transfers.entries.get_mut(key) else { return Ok(()) };
        let connection = &self.connections[transfer.connection as usize];
        let peer = connection.paths[rail].as_ref().and_then(|path| path.address).ok_or(Code::AGAIN)?;
        let (device_key, address) = device_key(&transfer.remote, rail);
        let from = Target { peer, address: address + transfer.remote_offset, key: device_key };
        let (start, bytes) = (transfer.local.start(), transfer.local.len());
        let device = self.rails[rail].device();
        if device.info().registration_mode() & FI_MR_LOCAL != 0 && transfer.registration.is_none() {
            let access = Access { source: false, target: true, remote_read: false, remote_write: false };
            // SAFETY: whoever registered the memory promised that it is writable until it is unregistered, and that nobody else accesses
            // it while the transfer is unfinished; the transfer owns the registration.
            transfer.registration = Some(unsafe { Registration::new(device, start, bytes, access, 0) }?);
        }
        let operation = Operation::Transfer { connection: transfer.connection, key };
        let descriptor =
            transfer.registration.as_ref().map_or(core::ptr::null_mut(), Registration::descriptor);
        // SAFETY: as above. The transfer ends only after its completion, or after the rail has closed the endpoint of transfers.
        unsafe { self.rails[rail].read(start, bytes, descriptor, from, operation) }?;
        transfer.posted = Some(rail);
        transfer.waits_for = None;
        transfer.since = self.now;
        Ok(())
    }

    /// The device of a rail did not do a transfer, or does not take it.
    pub(crate) fn on_transfer_failed(
        &mut self,
        key: Key,
        rail: usize,
        operation: &'static str,
        codes: (Code, i32),
    ) {
        let Some(transfer) = self.transfers.entries.get_mut(key) else { return };
        let index = transfer.connection;
        transfer.registration = None;
        let class = classify(codes.0);
        if transfer.posted.take().is_some() || transfer.waits_for != Some(rail) {
            transfer.waits_for = None;
            transfer.since = self.now;
        }
        if self.transfers.is_taken_back(key) {
            // The peer waits for the end of this read, and refuses it when it is asked.
            self.get_by_messages(key, index);
            return;
        }
        match class {
            Class::Again => self.transfers.wait_for(key, rail),
            // Also a device that the peer has opened again does not know its earlier keys. The peer itself knows what it exposes.
            Class::LocalFault if is_key_error(codes.0) => {
                self.transfers.on_key_dead(key);
                self.get_by_messages(key, index);
            }
            Class::LocalFault => {
                self.report(class, rail, operation, Some(index), codes);
                self.end_transfer(key, Err(SendError::LocalFault));
            }
            Class::Hint | Class::Consequence | Class::Device => {
                if class == Class::Device {
                    self.rails[rail].broken.get_or_insert(codes.0);
                }
                let is_over = self.transfers.count_failure(key) > TRIES;
                if is_over {
                    self.report(class, rail, operation, Some(index), codes);
                    self.transfers.on_key_dead(key);
                    self.get_by_messages(key, index);
                } else {
                    self.transfers.to_post.push_back(key);
                    if !self.leave_rail(index, rail) {
                        self.on_error_of(index, rail, operation, codes);
                    }
                }
            }
        }
    }

    pub(crate) fn get_by_messages(&mut self, key: Key, index: u32) {
        self.transfers.get_by_messages(key);
        self.list(index);
    }

    /// A transfer has ended; another one may begin on its connection.
    pub(crate) fn end_transfer(&mut self, key: Key, result: Result<(), SendError>) {
        if let Some(index) = self.transfers.end(key, result) {
            self.note_read(index, Reader::Own);
            self.offer_room(index);
        }
    }

    /// Adds the newest values of mailboxes whose earlier value has arrived.
    pub(crate) fn add_mailboxes(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        let first = connection.outgoing[FrameClass::Control as usize].first();
        for at in 0..connection.mailboxes.len() {
            let connection = &mut self.connections[index as usize];
            let may_add =
                connection.may_send() && connection.outgoing[FrameClass::Control as usize].has_room();
            let mailbox = &mut connection.mailboxes[at];
            if mailbox.sent.is_some_and(|sent| first.wrapping_sub(sent) as i32 > 0) {
                mailbox.sent = None;
            }
            if mailbox.sent.is_some() || !may_add {
                continue;
            }
            let Some((header, payload)) = mailbox.pending.take() else { continue };
            let id = mailbox.id;
            let outline = Outline { kind: Kind::Mailbox, id, header: &header, payload_bytes: payload.len() };
            let sequence = connection.outgoing[FrameClass::Control as usize].next_sequence();
            let added = self.add_frame(index, FrameClass::Control, &outline, |mut out| out.put(&payload));
            let mailbox = &mut self.connections[index as usize].mailboxes[at];
            match added {
                Ok(()) => mailbox.sent = Some(sequence),
                Err(_) => mailbox.pending = Some((header, payload)),
            }
        }
    }

    /// The buffer of a frame that was acknowledged, or dropped.
    pub(crate) fn release(&mut self, buffer: BufferKey) {
        self.buffers.release(buffer);
    }
}

/// Whether the device of the peer has no memory under a key.
fn is_key_error(code: Code) -> bool {
    use mend_ffi_ofi::bindings as fi;
    matches!(code.0 as u32, fi::FI_EKEYREJECTED | fi::FI_ENOKEY | fi::FI_EACCES)
}

/// How often a device may fail to do one transfer. Then the peer is asked for the bytes: with providers over sockets, one that has
/// opened its device again ends the connection of all reads when one comes with an earlier key.
const TRIES: u32 = 2;

/// The rail of a transfer: they take turns over the rails on which the peer is; one that failed takes the next.
fn transfer_rail(
    paths: &[Option<crate::connection::Path>],
    key: Key,
    failures: u32,
    fallback: usize,
) -> usize {
    let may_read = |path: &Option<crate::connection::Path>| path.as_ref().is_some_and(|path| !path.is_broken);
    let count = paths.iter().filter(|path| may_read(path)).count();
    if count == 0 || paths.len() == 1 {
        return fallback;
    }
    let turn = (key.index.wrapping_add(failures)) as usize % count;
    paths.iter().enumerate().filter(|(_, path)| may_read(path)).nth(turn).map_or(fallback, |(rail, _)| rail)
}
