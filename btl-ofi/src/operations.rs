// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The outstanding operations of a rail: what each token means.

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
        /// The transfer.
        key: Key,
    },
    /// The same on an endpoint that could not be closed: only its completion, if one comes, tells that it accesses no memory any more.
    Unclosed {
        /// The transfer.
        key: Key,
    },
}

/// Tokens below [`receive_buffers::COUNT`] are those of receive buffers; this table has the others.
#[derive(Debug)]
pub struct Operations {
    entries: Vec<Option<Operation>>,
    free: Vec<u32>,
}

/// How many tokens a rail has.
pub const TOKENS: u32 = 2048;

impl Operations {
    /// No operations.
    pub fn new() -> Self {
        let count = (TOKENS - receive_buffers::COUNT) as usize;
        Operations { entries: vec![None; count], free: (0..count as u32).rev().collect() }
    }

    // Hot: per message.
    /// A token for an operation; `None`: too many are outstanding.
    pub fn begin(&mut self, operation: Operation) -> Option<u32> {
        let index = self.free.pop()?;
        self.entries[index as usize] = Some(operation);
        Some(index + receive_buffers::COUNT)
    }

    // Hot: per message.
    /// The operation of a token has ended. `None`: there was none, so the provider reports what was not begun, or reports twice.
    pub fn end(&mut self, token: u32) -> Option<Operation> {
        let index = token.checked_sub(receive_buffers::COUNT)?;
        let operation = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(operation)
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
            if let Operation::Transfer { key } = *entry {
                *entry = Operation::Unclosed { key };
            }
        }
    }

    /// Whether a token is one of an outstanding transfer.
    pub fn is_transfer(&self, token: u32) -> bool {
        let index = token.checked_sub(receive_buffers::COUNT);
        let entry = index.and_then(|index| self.entries.get(index as usize)).copied().flatten();
        matches!(entry, Some(Operation::Transfer { .. }))
    }

    /// Whether no token is free.
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
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
    use super::{Operation, Operations, TOKENS};
    use crate::receive_buffers;
    use mend_base::Key;

    #[test]
    fn a_token_ends_once() {
        let mut operations = Operations::new();
        let transfer = Operation::Transfer { key: Key { index: 1, generation: 1 } };
        let token = operations.begin(transfer).unwrap();
        assert!((receive_buffers::COUNT..TOKENS).contains(&token));
        assert_eq!(operations.end(token), Some(transfer));
        assert_eq!(operations.end(token), None, "twice");
        assert_eq!(operations.end(0), None, "a receive buffer's");
        assert_eq!(operations.end(u32::MAX), None);
    }

    #[test]
    fn a_transfer_is_known_by_its_token_until_it_ends() {
        let mut operations = Operations::new();
        let token = operations.begin(Operation::Transfer { key: Key { index: 1, generation: 1 } }).unwrap();
        let buffer = crate::send_buffers::BufferKey(0);
        let frame = operations.begin(Operation::Frame { connection: 0, epoch: 0, buffer }).unwrap();
        assert!(operations.is_transfer(token) && !operations.is_transfer(frame));
        assert!(!operations.is_transfer(0) && !operations.is_transfer(u32::MAX));
        operations.end(token);
        assert!(!operations.is_transfer(token));
    }

    #[test]
    fn a_transfer_whose_endpoint_was_not_closed_ends_with_its_completion_alone() {
        let mut operations = Operations::new();
        let key = Key { index: 1, generation: 1 };
        let token = operations.begin(Operation::Transfer { key }).unwrap();
        operations.keep_transfers();
        assert!(operations.end_all(|operation| matches!(operation, Operation::Transfer { .. })).is_empty());
        assert!(!operations.is_transfer(token), "its completion is not dropped");
        assert_eq!(operations.end(token), Some(Operation::Unclosed { key }));
    }

    #[test]
    fn the_number_of_operations_is_bounded() {
        let mut operations = Operations::new();
        let transfer = Operation::Transfer { key: Key { index: 1, generation: 1 } };
        let begun = std::iter::from_fn(|| operations.begin(transfer)).count();
        assert_eq!(begun as u32, TOKENS - receive_buffers::COUNT);
        assert_eq!(operations.end_all(|_| true).len(), begun);
        assert_eq!(operations.len(), 0);
    }
}
