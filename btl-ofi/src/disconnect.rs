// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Closing a connection for good.
//!
//! Frames that have come to this host are still delivered: the completion queue must be found empty several times in a row, since a provider
//! needs more than one call to read what lies in a socket. Reads that this process began end with an error of the provider, or the endpoint
//! of transfers is closed: only then nothing of the peer can reach the memory of this process any more (I7).

use crate::connection::State;
use crate::ofi::{Callback, Ofi};
use crate::operations::Operation;
use crate::sequence::Outgoing;

/// How often in a row the completion queue must be empty.
const QUIET: u32 = 64;

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
        connection.state = State::Severing { quiet: 0 };
        connection.trouble = None;
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

    /// Finishes to sever connections whose frames have all been delivered. `any`: completions were read in this call of progress.
    pub(crate) fn continue_severing(&mut self, any: bool) {
        if self.severing.is_empty() {
            return;
        }
        for at in (0..self.severing.len()).rev() {
            let index = self.severing[at];
            let connection = &mut self.connections[index as usize];
            let State::Severing { quiet } = &mut connection.state else { continue };
            *quiet = if any { 0 } else { *quiet + 1 };
            let (quiet, is_empty) = (*quiet, connection.held.is_empty());
            if quiet < QUIET || !is_empty {
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
        for rail in 0..self.rails.len() {
            self.statistics.transfers_closed += 1;
            for operation in self.rails[rail].close_transfers() {
                if let Operation::Transfer { key } = operation {
                    self.transfers.repost(key);
                }
            }
        }
    }

    fn finish_sever(&mut self, index: u32) {
        self.transfers.sever(index);
        self.keys.sever(index);
        let connection = &mut self.connections[index as usize];
        connection.state = State::Severed;
        self.by_tag.remove(&connection.tag_from);
        for (rail, path) in self.rails.iter().zip(&mut connection.paths) {
            path.take().into_iter().for_each(|path| rail.remove(path.address));
        }
        self.callbacks.push_back(Callback::Severed(index));
    }
}
