// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Closing a connection for good.
//!
//! Frames that have come to this host are still delivered: none must come in several looks at the completion queue in a row, since a provider
//! needs more than one look to read what lies in a socket. Reads that this process began end with an error of the provider, or the endpoint
//! of transfers is closed: only then nothing of the peer can reach the memory of this process any more (I7).

use crate::classify::Class;
use crate::connection::State;
use crate::family::Family;
use crate::ofi::{Callback, Ofi};
use crate::operations::Operation;
use crate::rail::Rail;
use crate::sequence::Outgoing;

/// In how many looks in a row no frame of the peer must come.
const QUIET: u32 = 64;

/// Looks in one call of progress. Between two calls the caller may yield its processor to all other ranks, each of which is severing, too: a look for
/// each call would take milliseconds.
const LOOKS_AT_ONCE: u32 = 16;

/// The most calls of progress until a connection is severed.
const CALLS_MAX: u32 = 20_000;

/// How often in a row it must be empty until outstanding reads are not waited for any longer.
const QUIET_WITH_TRANSFERS: u32 = 256;

impl Ofi {
    /// Begins to sever. `is_dead`: the process of the peer has ended, or must end before its results count.
    pub(crate) fn begin_sever(&mut self, index: u32, is_dead: bool) {
        let connection = &mut self.connections[index as usize];
        connection.is_dead |= is_dead;
        if matches!(connection.state, State::Severing { .. } | State::Severed) {
            return;
        }
        let has_garbage = connection.state == State::Garbage;
        connection.state = State::Severing { quiet: 0, calls: 0 };
        connection.trouble = None;
        self.severed_tags.insert(connection.tag_from);
        if has_garbage {
            // Nothing more is read of this peer.
            self.by_tag.remove(&connection.tag_from);
        }
        for mailbox in &mut connection.mailboxes {
            mailbox.pending = None;
        }
        let buffers = &mut self.buffers;
        connection
            .outgoing
            .iter_mut()
            .for_each(|class: &mut Outgoing| class.clear(|frame| buffers.release(frame.buffer)));
        self.severing.push(index);
    }

    /// Finishes to sever connections whose frames have all been delivered. `unread`: completions may be left, since the budget of this call of
    /// progress was used up.
    pub(crate) fn continue_severing(&mut self, unread: bool) {
        if self.severing.is_empty() {
            return;
        }
        let looks = if unread { 0 } else { self.look_again() };
        for at in (0..self.severing.len()).rev() {
            let index = self.severing[at];
            let connection = &mut self.connections[index as usize];
            let State::Severing { quiet, calls } = &mut connection.state else { continue };
            *calls += 1;
            *quiet += looks;
            // A peer that lives may go on sending, and others may use up every budget: the connection ends all the same.
            let is_over = *calls >= CALLS_MAX;
            let quiet = if is_over { QUIET_WITH_TRANSFERS } else { *quiet };
            let tag = connection.tag_from;
            let is_delivered =
                connection.held.is_empty() && !self.rails.iter().any(|rail| rail.has_unhandled_of(tag));
            if quiet < QUIET || !(is_over || is_delivered) {
                continue;
            }
            if self.transfers.posted(index) {
                if quiet < QUIET_WITH_TRANSFERS {
                    continue;
                }
                self.silence_transfers(index);
                if self.transfers.posted(index) {
                    // An endpoint could not be closed: the memory stays lent until completions come.
                    continue;
                }
            }
            if !self.silence_keys(index) {
                continue;
            }
            self.severing.swap_remove(at);
            self.finish_sever(index);
        }
    }

    /// Looks several times, besides the look of this call. Returns in how many looks in a row nothing came.
    fn look_again(&mut self) -> u32 {
        for looks in 1..LOOKS_AT_ONCE {
            self.rails.iter_mut().for_each(Rail::look);
            if self.rails.iter().any(|rail| !rail.unhandled().is_empty()) {
                return looks;
            }
        }
        LOOKS_AT_ONCE
    }

    /// Ends the reads of a connection that the devices have, and all others of their rails. Those of other peers are posted again.
    fn silence_transfers(&mut self, index: u32) {
        for rail in 0..self.rails.len() {
            if self.transfers.posted_on(index, rail) {
                self.renew_transfers(rail);
            }
        }
    }

    /// Closes the endpoint of transfers of a rail, and has all of them posted again. A device that must not go on
    /// after that (`Family::closes_reads`) is opened again as a whole, at most each 100 ms.
    pub(crate) fn renew_transfers(&mut self, rail: usize) {
        let info = self.rails[rail].device().info();
        let must_reopen = !Family::closes_reads(&info.provider(), info.library_version());
        // Those of an endpoint that could not be closed end by their completions alone.
        let can_end = |operation: &Operation| matches!(operation, Operation::Transfer { .. });
        let has_any = self.rails[rail].operations.count(can_end) > 0;
        if !has_any || must_reopen && self.now < self.next_repair {
            return;
        }
        self.statistics.transfers_closed += 1;
        if let Err(code) = self.rails[rail].close_transfers() {
            if !core::mem::replace(&mut self.keeps_transfers, true) {
                self.report(Class::LocalFault, rail, "closing an endpoint", None, (code, 0));
            }
            return;
        }
        if must_reopen {
            self.rails[rail].is_unsound = true;
            if let Err(code) = self.reopen(rail) {
                self.rails[rail].broken.get_or_insert(code);
            }
            return;
        }
        for operation in self.rails[rail].end_transfers() {
            if let Operation::Transfer { key, .. } = operation {
                self.transfers.repost(key);
            }
        }
    }

    /// Sees to it that the peer reads no memory of this process any more. A process that has ended reads nothing; one that lives may be in the
    /// middle of a read, which only closing the endpoint ends. `false`: the device could not be opened again, which is tried later.
    fn silence_keys(&mut self, index: u32) -> bool {
        // Those of all peers that are being severed, so that the device is opened again once for them.
        for at in 0..self.severing.len() {
            self.close_keys(self.severing[at]);
        }
        if !self.connections[index as usize].may_read {
            self.end_keys_taken_back(Some(index));
            return true;
        }
        let is_silent = self.reopen_all();
        if is_silent {
            self.connections.iter_mut().for_each(|connection| connection.may_read = false);
            self.end_keys_taken_back(None);
        }
        is_silent
    }

    /// Closes the keys of a peer, and notes whether it may be reading by them.
    fn close_keys(&mut self, index: u32) {
        let lives = !self.connections[index as usize].is_dead;
        let had_keys = self.keys.has(index) || self.transfers.keys_taken_back.has(index);
        let closed = self.keys.sever(index);
        if let Err(code) = closed {
            self.report(Class::LocalFault, 0, "closing a registration", Some(index), (code, 0));
        }
        let may_read = had_keys && self.reads_outlive_keys() || closed.is_err();
        self.connections[index as usize].may_read |= lives && may_read;
    }

    fn end_keys_taken_back(&mut self, connection: Option<u32>) {
        let ended = self.transfers.keys_taken_back.end(connection).map(|done| (done, Ok(())));
        self.transfers.ended.extend(ended);
    }

    /// Opens the devices again if a peer has not said that it reads no more.
    pub(crate) fn run_keys_taken_back(&mut self) {
        if self.transfers.keys_taken_back.is_due(self.now) && self.reopen_all() {
            self.end_keys_taken_back(None);
        }
    }

    fn finish_sever(&mut self, index: u32) {
        self.held -= self.connections[index as usize].held.len();
        self.connections[index as usize].held.clear();
        self.transfers.sever(index);
        let connection = &mut self.connections[index as usize];
        connection.state = State::Severed;
        self.by_tag.remove(&connection.tag_from);
        for (rail, path) in self.rails.iter().zip(&mut connection.paths) {
            path.take().and_then(|path| path.address).into_iter().for_each(|address| rail.remove(address));
        }
        self.callbacks.push_back(Callback::Severed(index));
    }
}
