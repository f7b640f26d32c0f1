// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages that we take from the exposed memory of their senders: one *transfer* for each receive that has matched an RTS with a remote
//! key.
//!
//! ```text
//!   New ── key imported, memory registered ──▶ Open ── all gets that were started have ended ──▶ Releasing ── unregistered ──▶ (removed)
//!     └── not possible, or not needed any more ────────────────────────────────────────────────────────────────────────────────▶
//! ```
//!
//! At most [`GETS_MAX`] gets of a transfer run at the same time. How the transfer goes on after the last of them is its [`Fate`], which
//! only changes from `Take`. While a get runs, the transport writes to the buffer of the receive, so the receive does not end before
//! (I7). A receive whose elements are not contiguous takes the pieces through a staging buffer. The transports are lent with the next
//! flush: until then a transfer is *due*.

use crate::cookies::{GETS_MAX, Step, cookie, entry_of, reserve_entry};
use crate::envelope::Reason;
use crate::request::Error;
use mend_base::{Key, PeerIndex, Slab};
use mend_transport::{Cookie, Region, Remote, RemoteKey, Span, UserMemory};
use std::collections::VecDeque;

/// All transfers.
#[derive(Default, Debug)]
pub(crate) struct Gets {
    transfers: Slab<Transfer>,
    /// Transfers that are to go on. The capacity is at least the number of transfers, and each is in it once at most.
    due: VecDeque<Key>,
    /// Transfers whose next get was refused as busy. They are due again when their peer is sendable, or a get from it has ended.
    blocked: usize,
}

/// One transfer.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) request: Key,
    pub(crate) from: PeerIndex,
    /// The request of the sender.
    pub(crate) sender: Key,
    /// The length of the message.
    pub(crate) total: u64,
    /// How many of its bytes are taken.
    pub(crate) bytes: u64,
    pub(crate) fate: Fate,
    stage: Stage,
    is_due: bool,
    is_blocked: bool,
}

/// How a transfer goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// The bytes are taken, and the receive ends.
    Take,
    /// A get has failed, or memory could not be registered: the sender is to send the bytes as a stream.
    Stream,
    /// The endpoint is severed: the receive ends with the end of its sender, which is published soon.
    Lost,
    /// The receive was given up: its sender is refused.
    GivenUp(Reason),
    /// The receive ends with this error, as its sender has ended.
    End(Error),
}

#[derive(Debug)]
enum Stage {
    New(RemoteKey),
    Open(Open),
    Releasing,
}

/// What a transfer needs for its gets.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) remote: Remote,
    pub(crate) region: Region,
    /// The staging buffer that the region is, with a place for each get; `None`: it is the buffer of the receive.
    pub(crate) staging: Option<UserMemory>,
    /// The longest get.
    pub(crate) piece_bytes: u64,
    /// Bytes for which gets were started.
    pub(crate) started: u64,
    /// The gets that run.
    pub(crate) running: [Option<Piece>; GETS_MAX],
}

/// A get that runs: a range of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
}

/// A get that can be started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextGet {
    pub(crate) local: Span,
    pub(crate) remote: Remote,
    pub(crate) at: u64,
    pub(crate) done: Cookie,
    number: u8,
}

/// Bytes that have come into a staging buffer.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) request: Key,
    pub(crate) memory: UserMemory,
    pub(crate) offset: u64,
    pub(crate) piece: Piece,
}

impl Gets {
    /// A receive takes `bytes` bytes of a message of `total` bytes by gets. `None`: there is no memory for the transfer.
    pub(crate) fn begin(
        &mut self,
        (request, from): (Key, PeerIndex),
        sender: Key,
        (bytes, total): (u64, u64),
        key: RemoteKey,
    ) -> Option<Key> {
        let missing = self.transfers.len() + 1 - self.due.len();
        if !reserve_entry(&mut self.transfers) || !mend_base::reserve_queue(&mut self.due, missing) {
            return None;
        }
        let (fate, stage) = (Fate::Take, Stage::New(key));
        let (is_due, is_blocked) = (false, false);
        let transfer = Transfer { request, from, sender, total, bytes, fate, stage, is_due, is_blocked };
        let entry = self.transfers.insert(transfer);
        self.set_due(entry);
        Some(entry)
    }

    pub(crate) fn get(&self, entry: Key) -> Option<&Transfer> {
        self.transfers.get(entry)
    }

    pub(crate) fn len(&self) -> usize {
        self.transfers.len()
    }

    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// How many transfers are to go on.
    pub(crate) fn due(&self) -> usize {
        self.due.len()
    }

    /// The next transfer that is to go on.
    pub(crate) fn next_due(&mut self) -> Option<Key> {
        let entry = self.due.pop_front()?;
        if let Some(transfer) = self.transfers.get_mut(entry) {
            transfer.is_due = false;
        }
        Some(entry)
    }

    /// A transfer is to go on with the next flush.
    pub(crate) fn set_due(&mut self, entry: Key) {
        let Some(transfer) = self.transfers.get_mut(entry) else { return };
        if !core::mem::replace(&mut transfer.is_due, true) {
            self.due.push_back(entry);
        }
    }

    /// The next get of a transfer was refused as busy.
    pub(crate) fn block(&mut self, entry: Key) {
        if let Some(transfer) = self.transfers.get_mut(entry)
            && !core::mem::replace(&mut transfer.is_blocked, true)
        {
            self.blocked += 1;
        }
    }

    /// There may be room again for gets from a peer. Whether a transfer waited for it.
    pub(crate) fn unblock(&mut self, from: PeerIndex) -> bool {
        if self.blocked == 0 {
            return false;
        }
        let before = self.blocked;
        for (entry, transfer) in self.transfers.iter_mut() {
            if transfer.from == from && core::mem::take(&mut transfer.is_blocked) {
                self.blocked -= 1;
                if !core::mem::replace(&mut transfer.is_due, true) {
                    self.due.push_back(entry);
                }
            }
        }
        self.blocked < before
    }

    /// The transfer has what it needs.
    pub(crate) fn open(&mut self, entry: Key, open: Open) {
        if let Some(transfer) = self.transfers.get_mut(entry) {
            transfer.stage = Stage::Open(open);
        }
    }

    /// The bytes are not taken: the first reason counts. No effect when all have come.
    pub(crate) fn stop(&mut self, entry: Key, fate: Fate) {
        let Some(transfer) = self.transfers.get_mut(entry) else { return };
        let is_complete = matches!(transfer.stage, Stage::Releasing) && transfer.fate == Fate::Take;
        let is_final = matches!(transfer.fate, Fate::GivenUp(_) | Fate::End(_));
        if !is_complete && !is_final {
            transfer.fate = fate;
        }
        self.set_due(entry);
    }

    /// The next get to be started, if one may be.
    pub(crate) fn next_get(&self, entry: Key) -> Option<NextGet> {
        let transfer = self.transfers.get(entry)?;
        let Stage::Open(open) = &transfer.stage else { return None };
        let number = open.running.iter().position(Option::is_none)?;
        let left = transfer.bytes - open.started;
        if transfer.fate != Fate::Take || left == 0 {
            return None;
        }
        let (at, bytes) = (open.started, left.min(open.piece_bytes));
        let offset = open.offset(number, at);
        let local = Span { region: open.region, offset, bytes };
        let done = cookie(Step::Get(number as u8), entry);
        Some(NextGet { local, remote: open.remote, at, done, number: number as u8 })
    }

    /// The get was started.
    pub(crate) fn on_started(&mut self, entry: Key, get: &NextGet) {
        let Some(Transfer { stage: Stage::Open(open), .. }) = self.transfers.get_mut(entry) else { return };
        open.running[usize::from(get.number)] = Some(Piece { at: get.at, bytes: get.local.bytes });
        open.started += get.local.bytes;
    }

    /// A get has ended; `failed`: why its bytes have not come. Returns bytes to be copied out of a staging buffer.
    pub(crate) fn on_get_done(&mut self, done: Cookie, number: u8, failed: Option<Fate>) -> Option<Staged> {
        let entry = entry_of(&self.transfers, done);
        debug_assert!(entry.is_some(), "the transfer is there until its gets have ended");
        let entry = entry?;
        if let Some(fate) = failed {
            self.stop(entry, fate);
        }
        self.set_due(entry);
        let from = self.transfers.get(entry)?.from;
        self.unblock(from);
        let transfer = self.transfers.get_mut(entry)?;
        let Stage::Open(open) = &mut transfer.stage else { return None };
        let piece = open.running.get_mut(usize::from(number))?.take()?;
        let memory = open.staging.as_ref()?.share();
        let offset = open.offset(number.into(), piece.at);
        (transfer.fate == Fate::Take).then_some(Staged { request: transfer.request, memory, offset, piece })
    }

    /// The transfer is new: the key that its sender gave.
    pub(crate) fn new_key(&self, entry: Key) -> Option<RemoteKey> {
        match self.transfers.get(entry)?.stage {
            Stage::New(key) => Some(key),
            Stage::Open(_) | Stage::Releasing => None,
        }
    }

    /// If no get runs and none is to be started: the region to be unregistered, with the cookie for it.
    pub(crate) fn begin_release(&mut self, entry: Key) -> Option<(Region, Cookie)> {
        let transfer = self.transfers.get_mut(entry)?;
        let Stage::Open(open) = &transfer.stage else { return None };
        let goes_on = transfer.fate == Fate::Take && open.started < transfer.bytes;
        if goes_on || open.running.iter().any(Option::is_some) {
            return None;
        }
        let region = open.region;
        transfer.stage = Stage::Releasing;
        self.blocked -= usize::from(core::mem::take(&mut transfer.is_blocked));
        Some((region, cookie(Step::ReleaseGet, entry)))
    }

    /// The region is unregistered: the transfer is over.
    pub(crate) fn on_released(&mut self, done: Cookie) -> Option<Transfer> {
        let entry = entry_of(&self.transfers, done);
        debug_assert!(entry.is_some(), "an operation ends once");
        self.remove(entry?)
    }

    fn remove(&mut self, entry: Key) -> Option<Transfer> {
        let transfer = self.transfers.remove(entry)?;
        if transfer.is_due {
            // The queue has room for each transfer that is there, once.
            self.due.retain(|due| *due != entry);
        }
        Some(transfer)
    }

    /// Removes a transfer that is new and is not to be begun: it uses no memory.
    pub(crate) fn remove_new(&mut self, entry: Key) -> Option<Transfer> {
        if self.new_key(entry).is_some() { self.remove(entry) } else { None }
    }
}

impl Open {
    /// Where in the region the get with this number puts the bytes from `at` on.
    fn offset(&self, number: usize, at: u64) -> u64 {
        if self.staging.is_some() { number as u64 * self.piece_bytes } else { at }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fate, GETS_MAX, Gets, Open};
    use crate::cookies::{Step, step_of};
    use crate::request::Error;
    use mend_base::{Key, PeerIndex, Rank};
    use mend_transport::{Buffer, Region, Remote, RemoteKey, UserMemory};

    const REQUEST: Key = Key { index: 8, generation: 3 };
    const SENDER: Key = Key { index: 2, generation: 5 };
    const PIECE: u64 = 10;

    fn opened(bytes: u64, staging: Option<UserMemory>) -> (Gets, Key) {
        let mut gets = Gets::default();
        let key = RemoteKey::new(b"key");
        let entry = gets.begin((REQUEST, PeerIndex(1)), SENDER, (bytes, bytes), key).unwrap();
        assert_eq!((gets.next_due(), gets.next_due()), (Some(entry), None));
        assert_eq!(gets.new_key(entry), Some(key));
        let remote = Remote { bytes, words: Default::default() };
        let open =
            Open { remote, region: Region(4), staging, piece_bytes: PIECE, started: 0, running: [None; 4] };
        gets.open(entry, open);
        (gets, entry)
    }

    fn start_all(gets: &mut Gets, entry: Key) -> Vec<(u64, u64, mend_transport::Cookie)> {
        let mut started = vec![];
        while let Some(get) = gets.next_get(entry) {
            gets.on_started(entry, &get);
            started.push((get.at, get.local.bytes, get.done));
        }
        started
    }

    #[test]
    fn a_few_gets_run_at_a_time_and_the_region_is_released_after_the_last() {
        let (mut gets, entry) = opened(45, None);
        let started = start_all(&mut gets, entry);
        let ranges: Vec<_> = started.iter().map(|&(at, bytes, _)| (at, bytes)).collect();
        assert_eq!(ranges, [(0, 10), (10, 10), (20, 10), (30, 10)]);
        assert_eq!(ranges.len(), GETS_MAX);
        let end = |gets: &mut Gets, done| match step_of(done) {
            Step::Get(number) => assert!(gets.on_get_done(done, number, None).is_none()),
            step => panic!("{step:?}"),
        };
        end(&mut gets, started[2].2);
        assert!(gets.begin_release(entry).is_none());
        let last = start_all(&mut gets, entry);
        assert_eq!((last[0].0, last[0].1, last.len()), (40, 5, 1));
        for done in [started[0].2, started[1].2, last[0].2] {
            end(&mut gets, done);
            assert!(gets.begin_release(entry).is_none());
        }
        end(&mut gets, started[3].2);
        let (region, done) = gets.begin_release(entry).unwrap();
        gets.stop(entry, Fate::End(Error::ProcFailed(Rank(1))));
        assert_eq!((region, gets.on_released(done).unwrap().fate, gets.len()), (Region(4), Fate::Take, 0));
        assert!(!gets.has_due(), "it was to go on");
    }

    #[test]
    fn a_transfer_that_is_stopped_starts_no_get_and_is_released_after_those_that_run() {
        let (mut gets, entry) = opened(100, None);
        let started = start_all(&mut gets, entry);
        assert!(gets.on_get_done(started[0].2, 0, Some(Fate::Stream)).is_none());
        gets.stop(entry, Fate::End(Error::ProcFailed(Rank(1))));
        gets.stop(entry, Fate::Stream);
        for &(_, _, done) in &started[1..] {
            assert!(gets.next_get(entry).is_none() && gets.begin_release(entry).is_none());
            let Step::Get(number) = step_of(done) else { panic!("a get") };
            assert!(gets.on_get_done(done, number, None).is_none());
        }
        let (_, done) = gets.begin_release(entry).unwrap();
        let fate = gets.on_released(done).unwrap().fate;
        assert_eq!(fate, Fate::End(Error::ProcFailed(Rank(1))), "the end is final");
    }

    #[test]
    fn pieces_come_out_of_their_places_in_the_staging_buffer() {
        let memory = UserMemory::of_buffer(&Buffer::zeroed(4 * PIECE as usize));
        let (mut gets, entry) = opened(45, Some(memory));
        let started = start_all(&mut gets, entry);
        let staged = gets.on_get_done(started[1].2, 1, None).unwrap();
        assert_eq!((staged.offset, staged.piece.at, staged.piece.bytes), (10, 10, 10));
        let last = gets.next_get(entry).unwrap();
        assert_eq!((last.local.offset, last.at, last.local.bytes), (10, 40, 5));
    }

    #[test]
    fn a_transfer_that_is_blocked_goes_on_when_its_peer_has_room_and_not_before() {
        let (mut gets, entry) = opened(100, None);
        let started = start_all(&mut gets, entry);
        gets.block(entry);
        assert!(!gets.unblock(PeerIndex(2)) && !gets.has_due());
        assert!(gets.unblock(PeerIndex(1)) && !gets.unblock(PeerIndex(1)));
        assert_eq!((gets.next_due(), gets.next_due()), (Some(entry), None));
        gets.block(entry);
        gets.on_get_done(started[0].2, 0, None);
        assert_eq!((gets.next_due(), gets.next_due(), gets.blocked), (Some(entry), None, 0));
    }

    #[test]
    fn a_new_transfer_that_is_not_begun_leaves_nothing() {
        let mut gets = Gets::default();
        let entry = gets.begin((REQUEST, PeerIndex(1)), SENDER, (5, 5), RemoteKey::new(b"")).unwrap();
        gets.stop(entry, Fate::Stream);
        assert_eq!(gets.remove_new(entry).unwrap().fate, Fate::Stream);
        assert!(!gets.has_due() && gets.len() == 0);
        let (mut gets, entry) = opened(5, None);
        assert!(gets.remove_new(entry).is_none());
    }
}
