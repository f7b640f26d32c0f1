// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receiver of an RTS with a remote key takes the bytes itself:
//!
//! ```text
//!   sender: registers, exposes                   receiver
//!     │ ── RTS(key, bytes), remote key ────────▶ │  matched, now or later: imports the key, registers
//!     │                                   gets ◀─│  at most GETS_MAX at a time, each of at most PIECE_BYTES
//!     │ ◀──────────────────── FIN(key, bytes) ── │  all have ended
//!   takes the key back, unregisters; Done                 unregisters; Done
//! ```
//!
//! Instead of FIN the receiver may answer as to an RTS without a remote key (`ob1/streams.rs`): with CTS if it cannot take the bytes,
//! because memory cannot be registered or a get has failed at this end. A sender that gave the message up has taken its key back, and so
//! makes gets fail; it answers the CTS with the cancellation of its stream. The fault of a local device costs the time of a stream, and
//! no request.

use super::Ob1;
use crate::envelope::{Packet, Reason};
use crate::gets::{Fate, Open, Transfer};
use crate::peer_table::PeerLink;
use crate::request::{Error, Status, outcome};
use crate::request_table::Phase;
use mend_base::{Key, PeerIndex};
use mend_transport::{Buffer, Cookie, Payload, Rdma, RegisterError, RemoteKey, SendError, UserMemory};

/// The longest get: long enough that its fixed costs do not count, and short enough that several of a message run at the same time.
const PIECE_BYTES: u64 = 1 << 20;

impl<E: Copy + Eq + core::fmt::Debug> Ob1<E> {
    /// A receive that has matched an RTS with a remote key takes the bytes with the next flush. `false`: there is no memory for the
    /// transfer.
    pub(super) fn begin_get(&mut self, request: Key, from: PeerIndex, remote_key: Payload<'_>) -> bool {
        let Some(entry) = self.requests.get(request) else { return false };
        let Phase::Matched { key: sender, status, total, .. } = *entry.phase() else { return false };
        let mut bytes = [0; RemoteKey::BYTES_MAX];
        let bytes = &mut bytes[..remote_key.len()];
        remote_key.copy_to_slice(bytes);
        let remote_key = RemoteKey::new(bytes);
        let begun = self.gets.begin((request, from), sender, (status.bytes, total), remote_key);
        let Some(transfer) = begun else {
            mend_base::reach!("pml.gets: no memory for a transfer");
            return false;
        };
        self.requests.set_transfer(request, Some(transfer));
        self.queues.want_flush();
        true
    }

    /// Starts what is due of gets. Returns how many were started.
    pub(super) fn advance_gets<N: Rdma<Endpoint = E>>(&mut self, net: &mut N) -> u32 {
        let mut started = 0;
        // One whose get has failed may be due again.
        for _ in 0..self.gets.due() {
            if let Some(transfer) = self.gets.next_due() {
                started += self.advance_get(net, transfer);
            }
        }
        started
    }

    fn advance_get<N: Rdma<Endpoint = E>>(&mut self, net: &mut N, transfer: Key) -> u32 {
        let Some(from) = self.gets.get(transfer).map(|get| get.from) else { return 0 };
        let Some(link) = self.peers.link(from) else {
            // It has written, but is not connected here: it is connected for the answer.
            self.take_by_stream(transfer);
            self.end_new_get(transfer);
            return 0;
        };
        if let Some(remote_key) = self.gets.new_key(transfer) {
            self.open_get(net, link, transfer, &remote_key);
        }
        let mut started = 0;
        while let Some(get) = self.gets.next_get(transfer) {
            let fate = match net.get(link.endpoint, get.local, get.remote, get.at, get.done) {
                Ok(()) => {
                    self.gets.on_started(transfer, &get);
                    started += 1;
                    continue;
                }
                Err(SendError::Busy) => {
                    mend_base::reach!("pml.gets: a get waits");
                    self.gets.block(transfer);
                    break;
                }
                Err(error) => fate_after(error),
            };
            self.gets.stop(transfer, fate);
        }
        self.release_get(net, transfer);
        started
    }

    /// Imports the key of a new transfer and registers memory for it.
    fn open_get<N: Rdma<Endpoint = E>>(
        &mut self,
        net: &mut N,
        link: PeerLink<E>,
        transfer: Key,
        remote_key: &RemoteKey,
    ) {
        let Some(get) = self.gets.get(transfer).filter(|get| get.fate == Fate::Take) else { return };
        let (from, request, bytes, total) = (get.from, get.request, get.bytes, get.total);
        let remote = match net.import(link.endpoint, remote_key.as_bytes()) {
            Ok(remote) if remote.bytes >= total => remote,
            Ok(_) | Err(RegisterError::BadKey) => {
                mend_base::reach!("pml.gets: a key that no correct peer writes");
                return self.garbage(from);
            }
            Err(_) => return self.take_by_stream(transfer),
        };
        let Some(entry) = self.requests.get(request) else { return };
        let piece_bytes = link.get_bytes.clamp(1, PIECE_BYTES);
        let (memory, is_staging) = match entry.data().contiguous() {
            Some(memory) => (memory.part(0, bytes as usize), false),
            None => (staging(bytes, piece_bytes), true),
        };
        let Some(memory) = memory else { return self.take_by_stream(transfer) };
        match net.register(link.endpoint, &memory) {
            Ok(region) => {
                let staging = is_staging.then_some(memory);
                let running = Default::default();
                self.gets.open(transfer, Open { remote, region, staging, piece_bytes, started: 0, running });
            }
            Err(_) => self.take_by_stream(transfer),
        }
    }

    fn take_by_stream(&mut self, transfer: Key) {
        mend_base::reach!("pml.gets: no registered memory");
        self.gets.stop(transfer, Fate::Stream);
    }

    /// If no get runs and none is to be started: tells the sender if all bytes have come, and releases the memory.
    fn release_get<N: Rdma<Endpoint = E>>(&mut self, net: &mut N, transfer: Key) {
        let Some(&Transfer { fate, from, sender, bytes, .. }) = self.gets.get(transfer) else { return };
        if let Some((region, done)) = self.gets.begin_release(transfer) {
            if fate == Fate::Take {
                mend_base::reach!("pml.gets: all taken");
                self.answer(from, Packet::Fin { key: sender, bytes });
            }
            net.unregister(region, done);
        } else if fate != Fate::Take {
            self.end_new_get(transfer);
        }
    }

    /// A get has ended.
    pub(super) fn on_get_done(&mut self, done: Cookie, number: u8, result: Result<(), SendError>) {
        let failed = result.err().map(fate_after);
        if let Some(staged) = self.gets.on_get_done(done, number, failed)
            && let Some(entry) = self.requests.get(staged.request)
        {
            let (at, bytes) = (staged.piece.at as usize, staged.piece.bytes as usize);
            entry.data().unpack_memory(at, &staged.memory, staged.offset as usize, bytes);
        }
        self.queues.want_flush();
    }

    /// The memory of a transfer is released.
    pub(super) fn on_get_released(&mut self, done: Cookie) {
        if let Some(transfer) = self.gets.on_released(done) {
            self.conclude_get(&transfer);
        }
    }

    /// The receive is over for its caller, or its sender has ended: it ends when no get runs any more.
    pub(super) fn stop_get(&mut self, transfer: Key, fate: Fate) {
        self.gets.stop(transfer, fate);
        self.end_new_get(transfer);
        self.queues.want_flush();
    }

    /// Ends a transfer that is new and is not to be begun.
    fn end_new_get(&mut self, transfer: Key) {
        if let Some(transfer) = self.gets.remove_new(transfer) {
            self.conclude_get(&transfer);
        }
    }

    /// A transfer is over, and its buffer is the program's again, or is for a stream.
    fn conclude_get(&mut self, transfer: &Transfer) {
        let (request, from) = (transfer.request, transfer.from);
        let Some(entry) = self.requests.get(request) else { return };
        let Phase::Matched { status, total, .. } = *entry.phase() else { return };
        self.requests.set_transfer(request, None);
        match transfer.fate {
            Fate::Take => self.end(request, outcome(status, total)),
            Fate::Stream => {
                mend_base::reach!("pml.gets: by a stream instead");
                self.rendezvous.queue_cts(request, from);
                self.send_pending_cts();
            }
            Fate::Lost => mend_base::reach!("pml.gets: severed, and the end of the sender comes"),
            Fate::GivenUp(reason) => {
                mend_base::reach!("pml.gets: given up");
                self.answer(from, Packet::Refused { key: transfer.sender, reason });
                self.end(request, Ok(Status::EMPTY));
            }
            Fate::End(error) => self.end(request, Err(error)),
        }
    }

    /// A receive that takes its bytes ends with the error of its sender's end.
    pub(super) fn end_get(&mut self, transfer: Key, error: Error) {
        mend_base::reach!("pml.gets: the sender has ended");
        self.stop_get(transfer, Fate::End(error));
    }

    /// A receive that takes its bytes is given up.
    pub(super) fn give_up_get(&mut self, transfer: Key, reason: Reason) {
        self.stop_get(transfer, Fate::GivenUp(reason));
    }
}

/// How a transfer goes on after this error of a get.
fn fate_after(error: SendError) -> Fate {
    match error {
        SendError::Severed => Fate::Lost,
        // The answer to the CTS tells whether the sender has given the message up.
        SendError::NoAccess => {
            mend_base::reach!("pml.gets: the key was taken back");
            Fate::Stream
        }
        SendError::Busy | SendError::Unknown | SendError::LocalFault | SendError::Unsupported => {
            mend_base::reach!("pml.gets: a get has failed");
            Fate::Stream
        }
    }
}

/// A staging buffer, with a place for each get that may run; `None`: there is no memory.
fn staging(bytes: u64, piece_bytes: u64) -> Option<UserMemory> {
    let places = bytes.div_ceil(piece_bytes).min(crate::cookies::GETS_MAX as u64);
    let buffer = Buffer::try_zeroed((places * piece_bytes.min(bytes)) as usize)?;
    Some(UserMemory::of_buffer(&buffer))
}
