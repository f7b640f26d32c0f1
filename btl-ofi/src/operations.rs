// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The outstanding operations of a rail: what each token means.
//!
//! A stopped peer takes no frames, so the operations to it stand for as long as it is stopped. It must not cost the others their tokens: the more a
//! connection has, the more must be free, and the last quarter is for connections that have none.

use crate::receive_buffers;
use crate::send_buffers::BufferKey;
use mend_base::Key;

/// What an operation is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A frame of a connection, sent in this epoch of it.
    Frame {
        /// The index of the connection.
        connection: u32,
        /// The epoch in which it was posted.
        epoch: u32,
        /// Its buffer.
        buffer: BufferKey,
    },
    /// A transfer from or to a peer's memory.
    Transfer {
        /// The index of the connection.
        connection: u32,
        /// The transfer.
        key: Key,
    },
    /// The same on an endpoint that could not be closed: only its completion, if one comes, tells that it accesses no memory any more.
    Unclosed {
        /// The index of the connection.
        connection: u32,
        /// The transfer.
        key: Key,
    },
}

impl Operation {
    // Hot: per message.
    /// The connection that it serves.
    fn connection(&self) -> u32 {
        let (Operation::Frame { connection, .. }
        | Operation::Transfer { connection, .. }
        | Operation::Unclosed { connection, .. }) = *self;
        connection
    }
}

/// Tokens below [`receive_buffers::COUNT`] are those of receive buffers; this table has the others.
#[derive(Debug)]
pub struct Operations {
    entries: Vec<Option<Operation>>,
    free: Vec<u32>,
    /// By the index of the connection.
    outstanding: Vec<Outstanding>,
    /// How many operations were refused since this was asked last.
    refused: u32,
}

/// What a connection has outstanding.
#[derive(Clone, Copy, Default, Debug)]
struct Outstanding {
    /// The newest epoch in which it has posted. Frames of earlier ones may never end, and are counted as late (`reclaim_tokens`) instead.
    epoch: u32,
    /// Frames of this epoch.
    frames: u32,
    transfers: u32,
}

/// A connection that has operations may begin another one if this many times what it has is less than what is free and not reserved: one alone gets
/// 170, more than its windows allow.
const SHARE: usize = 8;

/// A connection whose operation was refused tries again in each call of progress, and a look at all operations costs as much as some messages.
const REFUSED_MANY: u32 = 64;

/// Reserved for connections that have no operation: so many peers may be stopped at once.
const RESERVED: usize = TOKENS as usize / 4;

/// How many tokens a rail has.
pub const TOKENS: u32 = 2048;

impl Operations {
    /// No operations.
    pub fn new() -> Self {
        let count = (TOKENS - receive_buffers::COUNT) as usize;
        let free = (0..count as u32).rev().collect();
        Operations { entries: vec![None; count], free, outstanding: Vec::new(), refused: 0 }
    }

    // Hot: per message.
    /// A token for an operation; `None`: too many are outstanding, or too many of its connection.
    pub fn begin(&mut self, operation: Operation) -> Option<u32> {
        let Outstanding { frames, transfers, .. } = *self.outstanding_before(&operation);
        let has = (frames + transfers) as usize;
        if has > 0 && has * SHARE >= self.free.len().saturating_sub(RESERVED) {
            self.refused += 1;
            return None;
        }
        let Some(index) = self.free.pop() else {
            self.refused += 1;
            return None;
        };
        self.count_one(&operation, 1);
        self.entries[index as usize] = Some(operation);
        Some(index + receive_buffers::COUNT)
    }

    // Hot: per message.
    /// The operation of a token has ended. `None`: there was none, so the provider reports what was not begun, or reports twice.
    pub fn end(&mut self, token: u32) -> Option<Operation> {
        let index = token.checked_sub(receive_buffers::COUNT)?;
        let operation = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        self.count_one(&operation, -1);
        Some(operation)
    }

    // Hot: per message.
    /// What the connection of an operation has outstanding, in the epoch of this one if that is new.
    fn outstanding_before(&mut self, operation: &Operation) -> &Outstanding {
        let connection = operation.connection() as usize;
        if connection >= self.outstanding.len() {
            self.outstanding.resize(connection + 1, Outstanding::default());
        }
        let outstanding = &mut self.outstanding[connection];
        if let Operation::Frame { epoch, .. } = *operation
            && epoch.wrapping_sub(outstanding.epoch) as i32 > 0
        {
            (outstanding.epoch, outstanding.frames) = (epoch, 0);
        }
        outstanding
    }

    // Hot: per message.
    /// An operation has begun (1) or ended (-1).
    fn count_one(&mut self, operation: &Operation, change: i32) {
        let Some(outstanding) = self.outstanding.get_mut(operation.connection() as usize) else { return };
        let count = match *operation {
            Operation::Frame { epoch, .. } if epoch != outstanding.epoch => return,
            Operation::Frame { .. } => &mut outstanding.frames,
            Operation::Transfer { .. } | Operation::Unclosed { .. } => &mut outstanding.transfers,
        };
        *count = count.saturating_add_signed(change);
    }

    /// Takes every operation that `which` chooses, with its token free again: the device has forgotten them.
    pub fn end_all(&mut self, which: impl Fn(&Operation) -> bool) -> Vec<Operation> {
        let chosen = |entry: &Option<Operation>| entry.as_ref().is_some_and(&which);
        let indices: Vec<u32> =
            (0..).zip(&self.entries).filter(|(_, entry)| chosen(entry)).map(|(index, _)| index).collect();
        indices.into_iter().filter_map(|index| self.end(index + receive_buffers::COUNT)).collect()
    }

    /// The endpoint of the transfers could not be closed.
    pub fn keep_transfers(&mut self) {
        for entry in self.entries.iter_mut().flatten() {
            if let Operation::Transfer { connection, key } = *entry {
                *entry = Operation::Unclosed { connection, key };
            }
        }
    }

    /// Whether a token is one of an outstanding transfer.
    pub fn is_transfer(&self, token: u32) -> bool {
        let index = token.checked_sub(receive_buffers::COUNT);
        let entry = index.and_then(|index| self.entries.get(index as usize)).copied().flatten();
        matches!(entry, Some(Operation::Transfer { .. }))
    }

    /// Whether many operations were refused since this was so last: then it is worth a look why.
    pub fn were_many_refused(&mut self) -> bool {
        let many = self.refused >= REFUSED_MANY;
        if many {
            self.refused = 0;
        }
        many
    }

    /// How many operations `which` chooses.
    pub fn count(&self, which: impl Fn(&Operation) -> bool) -> usize {
        self.entries.iter().flatten().filter(|operation| which(operation)).count()
    }

    /// How many are outstanding.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Operation, Operations, RESERVED, SHARE, TOKENS};
    use crate::receive_buffers;
    use crate::send_buffers::BufferKey;
    use mend_base::Key;

    const KEY: Key = Key { index: 1, generation: 1 };

    fn transfer(connection: u32) -> Operation {
        Operation::Transfer { connection, key: KEY }
    }

    fn frame(connection: u32, epoch: u32) -> Operation {
        Operation::Frame { connection, epoch, buffer: BufferKey(0) }
    }

    /// Begins as many as it may.
    fn fill(operations: &mut Operations, operation: Operation) -> Vec<u32> {
        core::iter::from_fn(|| operations.begin(operation)).collect()
    }

    #[test]
    fn a_token_ends_once() {
        let mut operations = Operations::new();
        let token = operations.begin(transfer(0)).unwrap();
        assert!((receive_buffers::COUNT..TOKENS).contains(&token));
        assert_eq!(operations.end(token), Some(transfer(0)));
        assert_eq!(operations.end(token), None, "twice");
        assert_eq!(operations.end(0), None, "a receive buffer's");
        assert_eq!(operations.end(u32::MAX), None);
    }

    #[test]
    fn a_transfer_is_known_by_its_token_until_it_ends() {
        let mut operations = Operations::new();
        let token = operations.begin(transfer(0)).unwrap();
        let frame = operations.begin(frame(0, 0)).unwrap();
        assert!(operations.is_transfer(token) && !operations.is_transfer(frame));
        assert!(!operations.is_transfer(0) && !operations.is_transfer(u32::MAX));
        operations.end(token);
        assert!(!operations.is_transfer(token));
    }

    #[test]
    fn a_transfer_whose_endpoint_was_not_closed_ends_with_its_completion_alone() {
        let mut operations = Operations::new();
        let token = operations.begin(transfer(3)).unwrap();
        operations.keep_transfers();
        assert!(operations.end_all(|operation| matches!(operation, Operation::Transfer { .. })).is_empty());
        assert!(!operations.is_transfer(token), "its completion is not dropped");
        assert_eq!(operations.end(token), Some(Operation::Unclosed { connection: 3, key: KEY }));
    }

    #[test]
    fn the_number_of_operations_is_bounded() {
        let mut operations = Operations::new();
        let begun: usize = (0..2 * TOKENS).map(|peer| fill(&mut operations, transfer(peer)).len()).sum();
        assert_eq!(begun as u32, TOKENS - receive_buffers::COUNT);
        assert_eq!(operations.end_all(|_| true).len(), begun);
        assert_eq!(operations.len(), 0);
    }

    #[test]
    fn peers_that_are_stopped_leave_tokens_for_the_living() {
        let mut operations = Operations::new();
        let windows = 64 + 32 + crate::transfers::TRANSFERS_MAX;
        for stopped in 0..RESERVED as u32 {
            let begun = fill(&mut operations, [frame(stopped, 0), transfer(stopped)][stopped as usize % 2]);
            assert!(stopped > 0 || begun.len() > windows, "one alone is not bounded by its share");
        }
        for living in RESERVED as u32..10_000 {
            let token = operations.begin(frame(living, 0)).unwrap();
            assert_eq!(operations.end(token), Some(frame(living, 0)));
        }
        assert!(operations.were_many_refused() && !operations.were_many_refused());
    }

    #[test]
    fn frames_of_earlier_epochs_take_no_share() {
        let mut operations = Operations::new();
        let late = fill(&mut operations, frame(0, 1));
        let newer = fill(&mut operations, frame(0, 2));
        assert!(!newer.is_empty());
        // They end after all; so does a probe that is of no epoch.
        late.into_iter().for_each(|token| _ = operations.end(token));
        let probe = operations.begin(frame(0, 1));
        assert_eq!(operations.outstanding[0].frames as usize, newer.len());
        assert!(probe.is_some() && operations.end(probe.unwrap()).is_some());
        newer.into_iter().for_each(|token| _ = operations.end(token));
        assert_eq!((operations.outstanding[0].frames, operations.len()), (0, 0));
        assert!(fill(&mut operations, frame(0, 2)).len() * (SHARE + 1) >= TOKENS as usize - RESERVED - SHARE);
    }
}
