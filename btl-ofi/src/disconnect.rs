// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Closing a connection for good.
//!
//! Frames that have come to this host are still delivered: none must come in several calls of progress in a row, since a provider
//! needs more than one call to read what lies in a socket. Reads that this process began end with an error of the provider, or the endpoint
//! of transfers is closed: only then nothing of the peer can reach the memory of this process any more (I7).

use crate::connection::State;
use crate::ofi::{Callback, Ofi};
use crate::operations::Operation;
use crate::sequence::Outgoing;

/// In how many calls of progress in a row no frame of the peer must come.
const QUIET: u32 = 64;

/// The most calls of progress until a connection is severed.
const CALLS_MAX: u32 = 20_000;

/// How often in a row it must be empty until outstanding reads are not waited for any longer.
const QUIET_WITH_TRANSFERS: u32 = 256;

impl Ofi {
    /// Begins to sever.
    pub(crate) fn begin_sever(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
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
        for at in (0..self.severing.len()).rev() {
            let index = self.severing[at];
            let connection = &mut self.connections[index as usize];
            let State::Severing { quiet, calls } = &mut connection.state else { continue };
            *calls += 1;
            *quiet += u32::from(!unread);
            // A peer that lives may go on sending, and others may use up every budget: the connection ends all the same.
            let is_over = *calls >= CALLS_MAX;
            let quiet = if is_over { QUIET_WITH_TRANSFERS } else { *quiet };
            if quiet < QUIET || !(is_over || connection.held.is_empty()) {
                continue;
            }
            if self.transfers.posted(index) {
                if quiet < QUIET_WITH_TRANSFERS {
                    continue;
                }
                self.silence_transfers();
            }
            self.severing.swap_remove(at);
            self.finish_sever(index);
        }
    }

    /// Closes the endpoints of transfers. Those of other peers are posted again.
    fn silence_transfers(&mut self) {
        (0..self.rails.len()).for_each(|rail| self.renew_transfers(rail));
    }

    /// Closes the endpoint of transfers of a rail, and has all of them posted again.
    pub(crate) fn renew_transfers(&mut self, rail: usize) {
        self.statistics.transfers_closed += 1;
        for operation in self.rails[rail].close_transfers() {
            if let Operation::Transfer { key } = operation {
                self.transfers.repost(key);
            }
        }
    }

    fn finish_sever(&mut self, index: u32) {
        self.held -= self.connections[index as usize].held.len();
        self.connections[index as usize].held.clear();
        self.transfers.sever(index);
        self.keys.sever(index);
        let connection = &mut self.connections[index as usize];
        connection.state = State::Severed;
        self.by_tag.remove(&connection.tag_from);
        for (rail, path) in self.rails.iter().zip(&mut connection.paths) {
            path.take().and_then(|path| path.address).into_iter().for_each(|address| rail.remove(address));
        }
        self.callbacks.push_back(Callback::Severed(index));
    }
}
