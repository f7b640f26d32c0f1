// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes: completions, and frames of peers.

use crate::connection::{Acknowledge, HeldFrame, Path, State};
use crate::frame::{FLAG_GAP, FrameClass, FrameHeader, Kind, Malformed};
use crate::ofi::{Callback, Ofi};
use crate::operations::Operation;
use crate::rail::Event;
use crate::receive_buffers;
use crate::sequence::Arrival;
use crate::transfers::Transfers;
use mend_ffi_ofi::{Completion, ErrorCompletion};
use mend_transport::{AmId, Cause, Limits, Payload, Sink, Stream};

impl Ofi {
    // Hot: per call of progress.
    /// Handles completions of all rails until `budget` callbacks were made. Returns how many were.
    pub(crate) fn take_events(&mut self, budget: u32, sink: &mut impl Sink<u32>) -> u32 {
        let mut events = 0;
        let count = self.rails.len();
        for step in 0..count {
            let rail = (self.first_rail + step) % count;
            // Once more only if there may be more: to read an empty queue is a system call with some providers.
            let mut may_have_more = true;
            while events < budget {
                if let Some(event) = self.rails[rail].next_event() {
                    events += self.on_event(rail, event, sink);
                } else if core::mem::take(&mut may_have_more) {
                    may_have_more = self.rails[rail].fill();
                } else {
                    break;
                }
            }
        }
        self.first_rail = if count > 1 { (self.first_rail + 1) % count } else { 0 };
        events
    }

    // Hot: per message.
    fn on_event(&mut self, rail: usize, event: Event, sink: &mut impl Sink<u32>) -> u32 {
        match event {
            Event::Completed(completion) => match completion.token {
                Some(token) if token < receive_buffers::COUNT => {
                    self.rails[rail].on_receive_completion(token, &completion);
                    self.on_frame(rail, &completion, sink)
                }
                Some(token) => {
                    self.on_completed(rail, token);
                    0
                }
                None => 0,
            },
            Event::Failed(failure) => {
                self.on_failed(rail, failure);
                0
            }
        }
    }

    // Hot: per message.
    fn on_completed(&mut self, rail: usize, token: u32) {
        match self.rails[rail].operations.end(token) {
            Some(Operation::Frame { buffer, .. }) => self.release(buffer),
            Some(Operation::Transfer { key, .. } | Operation::Unclosed { key, .. }) => {
                if let Some(transfer) = self.transfers.entries.get(key) {
                    self.connections[transfer.connection as usize].on_read_ended(rail, self.now);
                }
                self.end_transfer(key, Ok(()));
            }
            None => {}
        }
    }

    fn on_failed(&mut self, rail: usize, failure: ErrorCompletion) {
        let codes = (failure.code, failure.provider_code);
        let Some(token) = failure.token else {
            // A frame that the device had copied: nobody knows whose.
            self.on_anonymous_error(rail, codes);
            return;
        };
        if token < receive_buffers::COUNT {
            self.on_receive_failed(rail, token, failure);
            return;
        }
        match self.rails[rail].operations.end(token) {
            Some(Operation::Frame { connection, epoch, buffer }) => {
                self.release(buffer);
                if self.connections[connection as usize].epoch == epoch {
                    self.on_error_of(connection, rail, "send", codes);
                }
            }
            Some(Operation::Transfer { key, .. } | Operation::Unclosed { key, .. }) => {
                self.on_transfer_failed(key, rail, "read", codes);
            }
            None => {}
        }
    }

    // Hot: per message.
    /// A frame has come. Returns the number of callbacks.
    fn on_frame(&mut self, rail: usize, completion: &Completion, sink: &mut impl Sink<u32>) -> u32 {
        let Some(frame) = self.rails[rail].frame(completion) else { return 0 };
        let known = FrameHeader::tag_of(frame).and_then(|tag| self.by_tag.get(&tag));
        let Some(&index) = known else {
            self.statistics.strays += 1;
            return 0;
        };
        let connection = &mut self.connections[index as usize];
        if matches!(connection.state, State::Garbage | State::Severed) {
            return 0;
        }
        let (header, own, payload) = match FrameHeader::read(frame) {
            Ok(parts) => parts,
            // The provider cut it: it is missing, so the peer sends it again.
            Err(Malformed::Truncated) => return 0,
            Err(Malformed::Garbage) => {
                self.on_garbage(index);
                return 0;
            }
        };
        connection.on_heard(self.now);
        let Some(class) = header.kind.class() else {
            let name = copy(payload);
            self.on_probe_or_answer(index, rail, &header, &name);
            return 0;
        };
        let mut delivered = Ok(0);
        match connection.incoming[class as usize].on_arrival(header.sequence) {
            // A correct peer sends no more before it is told that some were delivered.
            Arrival::Next if connection.must_hold() && connection.holds_a_window(class) => {
                delivered = Err(crate::transfers::Garbage);
            }
            Arrival::Next if connection.must_hold() => {
                connection.held.push_back(HeldFrame { class, bytes: copy(frame) });
                self.held += 1;
            }
            Arrival::Next => {
                if let State::Severing { quiet, .. } = &mut connection.state {
                    *quiet = 0;
                }
                if connection.wants_acknowledgement(class, header.kind) {
                    connection.acknowledge = connection.acknowledge.max(Acknowledge::Progress);
                    // Before the callback, which may panic.
                    if !core::mem::replace(&mut connection.is_listed, true) {
                        self.listed.push(index);
                    }
                }
                delivered = deliver(&mut self.transfers, connection.peer, index, &header, own, payload, sink);
            }
            Arrival::Duplicate => {
                connection.acknowledge = connection.acknowledge.max(Acknowledge::Progress);
                self.statistics.duplicates += 1;
            }
            Arrival::Gap(true) => connection.acknowledge = Acknowledge::Gap,
            Arrival::Gap(false) => {}
        }
        self.after_frame(index, header.acknowledged);
        if header.kind == Kind::Remote {
            // A transfer may have ended: then another one may begin.
            self.offer_room(index);
        }
        delivered.unwrap_or_else(|_| {
            self.on_garbage(index);
            0
        })
    }

    // Hot: per message.
    fn after_frame(&mut self, index: u32, acknowledged: [u32; 2]) {
        self.on_acknowledged(index, acknowledged);
        let connection = &self.connections[index as usize];
        if connection.acknowledge != Acknowledge::Nothing || self.transfers.has_jobs(index) {
            self.list(index);
        }
        if connection_begins(&self.connections[index as usize].state) {
            self.on_connected(index);
        }
    }

    // Hot: per message.
    /// The peer expects these frames next.
    pub(crate) fn on_acknowledged(&mut self, index: u32, acknowledged: [u32; 2]) {
        let (connection, buffers) = (&mut self.connections[index as usize], &mut self.buffers);
        let mut freed = 0;
        for (outgoing, next) in connection.outgoing.iter_mut().zip(acknowledged) {
            match outgoing.acknowledge(next, |frame| buffers.release(frame.buffer)) {
                Ok(count) => freed += count,
                Err(_) => return self.on_garbage(index),
            }
        }
        if freed > 0 {
            connection.on_acknowledged(self.now);
            if !connection.mailboxes.is_empty() {
                self.add_mailboxes(index);
            }
            let outgoing = &self.connections[index as usize].outgoing;
            if outgoing.iter().any(|class| class.next_to_post().is_some()) || self.transfers.has_jobs(index) {
                self.list(index);
            }
            self.offer_room(index);
        }
    }

    // Hot: per message.
    /// Reports room after a refused send, if there is some.
    pub(crate) fn offer_room(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        if connection.refused
            && connection.may_send()
            && connection.outgoing.iter().all(|class| class.has_room())
        {
            connection.refused = false;
            self.callbacks.push_back(Callback::Sendable(index));
        }
    }

    /// The first frame of the peer has come: both ends know each other.
    fn on_connected(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        match &mut connection.state {
            state @ State::Connecting => *state = State::Connected,
            State::Quarantined { connected } => *connected = true,
            _ => return,
        }
        connection.refused = true;
        self.close_connections_on_exec(index);
        self.list(index);
        self.offer_room(index);
    }

    fn on_probe_or_answer(&mut self, index: u32, rail: usize, header: &FrameHeader, name: &[u8]) {
        self.on_acknowledged(index, header.acknowledged);
        let now = self.now;
        if let Some(path) = &mut self.connections[index as usize].paths[rail] {
            path.is_broken = false;
        }
        if header.kind == Kind::Probe {
            self.on_moved(index, rail, name);
            // Number 0 asks about a rail, and leaves the turn to a probe of the connection.
            let answer = &mut self.connections[index as usize].answer;
            if header.probe != 0 || answer.is_none() {
                *answer = Some((header.probe, rail));
            }
            self.list(index);
        } else {
            let connection = &mut self.connections[index as usize];
            if connection.trouble.is_some() && connection.paths[rail].is_some() {
                connection.rail = rail;
            }
            let was_broken = connection.trouble.is_some();
            let mut rewound = connection.on_answer(header.probe, header.acknowledged, now);
            let is_mended = was_broken && connection.trouble.is_none();
            if header.flags & FLAG_GAP != 0 && !rewound && connection.trouble.is_none() {
                connection.begin_epoch();
                rewound = true;
            }
            if is_mended {
                self.close_connections_on_exec(index);
            }
            if rewound {
                self.statistics.rewinds += 1;
                self.list(index);
            }
        }
        if connection_begins(&self.connections[index as usize].state) {
            self.on_connected(index);
        }
    }

    /// The peer says at which address it is: another one, if it has opened its device again.
    fn on_moved(&mut self, index: u32, rail: usize, name: &[u8]) {
        let connection = &mut self.connections[index as usize];
        let Some(path) = connection.paths[rail].as_mut().filter(|path| path.name != name) else { return };
        if let Ok(address) = self.rails[rail].insert(name) {
            let old = core::mem::replace(path, Path::new(address, name));
            old.address.into_iter().for_each(|old| self.rails[rail].remove(old));
        }
    }

    /// Delivers frames that were held during a quarantine that is over. Returns the number of callbacks.
    pub(crate) fn deliver_held(&mut self, budget: u32, sink: &mut impl Sink<u32>) -> u32 {
        let mut events = 0;
        if self.held == 0 {
            return 0;
        }
        for index in 0..self.connections.len() as u32 {
            while events < budget {
                let connection = &mut self.connections[index as usize];
                if matches!(connection.state, State::Quarantined { .. } | State::Connecting) {
                    break;
                }
                let Some(held) = connection.held.pop_front() else { break };
                self.held -= 1;
                connection.acknowledge = connection.acknowledge.max(Acknowledge::Progress);
                let peer = connection.peer;
                // Read before, when it came.
                let Ok((header, own, payload)) = FrameHeader::read(&held.bytes) else { continue };
                match deliver(&mut self.transfers, peer, index, &header, own, payload, sink) {
                    Ok(count) => events += count,
                    Err(_) => self.on_garbage(index),
                }
                self.list(index);
                self.offer_room(index);
            }
        }
        events
    }

    /// The peer wrote what no correct peer writes.
    pub(crate) fn on_garbage(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        match connection.state {
            State::Garbage | State::Severing { .. } | State::Severed => return,
            State::Connecting | State::Connected | State::Quarantined { .. } => {}
        }
        connection.state = State::Garbage;
        self.held -= connection.held.len();
        connection.held.clear();
        self.callbacks.push_back(Callback::Error(index, Cause::Garbage));
    }
}

/// A copy of a frame that is held, or of a probe: not for each message.
#[cold]
fn copy(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

fn connection_begins(state: &State) -> bool {
    matches!(state, State::Connecting | State::Quarantined { connected: false })
}

impl crate::connection::Connection {
    // Hot: per message.
    /// Whether frames that arrive must wait.
    fn must_hold(&self) -> bool {
        matches!(self.state, State::Quarantined { .. }) || !self.held.is_empty()
    }

    fn holds_a_window(&self, class: FrameClass) -> bool {
        let held = self.held.iter().filter(|held| held.class == class).count();
        held >= crate::connection::WINDOWS[class as usize].0
    }

    // Hot: per message.
    /// Whether the peer is to be told now that a frame has arrived: a quarter of its window is used, or it waits to send a newer state.
    fn wants_acknowledgement(&self, class: FrameClass, kind: Kind) -> bool {
        let incoming = &self.incoming[class as usize];
        kind == Kind::Mailbox || incoming.untold(incoming.next()) >= UNTOLD_MAX[class as usize]
    }
}

/// A quarter of a class's window.
const UNTOLD_MAX: [u32; 2] = [16, 8];

// Hot: per message.
/// Hands a frame up. Returns the number of callbacks.
fn deliver(
    transfers: &mut Transfers,
    peer: mend_base::PeerIndex,
    index: u32,
    header: &FrameHeader,
    own: &[u8],
    payload: &[u8],
    sink: &mut impl Sink<u32>,
) -> Result<u32, crate::transfers::Garbage> {
    match header.kind {
        Kind::Data | Kind::Control | Kind::Mailbox if own.len() <= Limits::HEADER_BYTES_MAX => {
            sink.on_message(peer, AmId(header.id), own, Payload::from(payload));
            Ok(1)
        }
        Kind::Chunk => {
            let number = own.try_into().map_err(|_| crate::transfers::Garbage)?;
            sink.on_chunk(peer, Stream(u32::from_le_bytes(number)), Payload::from(payload));
            Ok(1)
        }
        Kind::Piece => transfers.on_piece(index, own, payload).map(|()| 0),
        Kind::Remote => transfers.on_message(index, payload).map(|_| 0),
        _ => Err(crate::transfers::Garbage),
    }
}
