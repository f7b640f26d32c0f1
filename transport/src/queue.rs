// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bounded queue of messages in private memory: a byte ring buffer and a ring of descriptors.

use crate::{AmId, Limits, PayloadWriter, SendError, Stream};
use std::collections::VecDeque;

/// A first-in, first-out queue of messages. Its memory grows up to the bound, and is reused.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The messages, oldest first. Their payloads are in `memory` in the same order; `memory` is a ring.
    records: VecDeque<Record>,
    memory: Vec<u8>,
    messages_max: usize,
    bytes_max: usize,
    /// The payload length of the last message that was answered `Busy`, until a report that it would fit.
    refused: Option<usize>,
}

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordKind {
    Message(AmId),
    Chunk(Stream),
}

/// One message of the queue, without its payload.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) kind: RecordKind,
    header: [u8; Limits::HEADER_BYTES_MAX],
    header_bytes: u8,
    /// Where the payload begins in `memory`.
    at: usize,
    payload_bytes: usize,
}

impl Record {
    pub(crate) fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_bytes)]
    }
}

impl Queue {
    /// An empty queue with these bounds; allocates nothing.
    pub(crate) fn new(messages_max: usize, bytes_max: usize) -> Self {
        Queue { records: VecDeque::new(), memory: Vec::new(), messages_max, bytes_max, refused: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    // Hot: per poll.
    /// Whether the oldest record is a message, not a chunk.
    #[inline]
    pub(crate) fn begins_with_message(&self) -> bool {
        self.records.front().is_some_and(|record| matches!(record.kind, RecordKind::Message(_)))
    }

    // Hot: per message.
    /// Appends a message, whose payload `fill` writes. `Busy`: it does not fit now.
    pub(crate) fn push(
        &mut self,
        kind: RecordKind,
        header: &[u8],
        payload_bytes: usize,
        fill: impl FnOnce(PayloadWriter<'_>),
    ) -> Result<(), SendError> {
        let Some(at) = self.place(payload_bytes).or_else(|| self.place_by_growing(payload_bytes)) else {
            self.refused = Some(payload_bytes);
            return Err(SendError::Busy);
        };
        let mut copy = [0; Limits::HEADER_BYTES_MAX];
        copy[..header.len()].copy_from_slice(header);
        fill(PayloadWriter::from(&mut self.memory[at..at + payload_bytes]));
        self.records.push_back(Record {
            kind,
            header: copy,
            header_bytes: header.len() as u8,
            at,
            payload_bytes,
        });
        Ok(())
    }

    // Hot: per message.
    /// Removes the oldest record. Its payload stays in memory until the next `push`.
    pub(crate) fn pop(&mut self) -> Option<(Record, &[u8])> {
        let record = self.records.pop_front()?;
        let payload = &self.memory[record.at..record.at + record.payload_bytes];
        Some((record, payload))
    }

    /// Whether a message that was answered `Busy` would fit now, and this was not reported yet.
    pub(crate) fn has_unreported_space(&self) -> bool {
        self.refused.is_some_and(|bytes| self.place(bytes).is_some() || self.grown(bytes).is_some())
    }

    /// As [`has_unreported_space`](Queue::has_unreported_space), and counts as the report.
    pub(crate) fn take_sendable_report(&mut self) -> bool {
        let sendable = self.has_unreported_space();
        if sendable {
            self.refused = None;
        }
        sendable
    }

    // Hot: per message.
    /// The position in `memory` where a payload of this length fits in one piece now.
    fn place(&self, payload_bytes: usize) -> Option<usize> {
        let needed = occupied(payload_bytes);
        let (Some(oldest), Some(newest)) = (self.records.front(), self.records.back()) else {
            return (needed <= self.memory.len()).then_some(0);
        };
        if self.records.len() >= self.messages_max {
            return None;
        }
        let tail = oldest.at;
        let head = newest.at + occupied(newest.payload_bytes);
        if head <= tail {
            // The newest is before the oldest: the bytes between them are free.
            return (needed <= tail - head).then_some(head);
        }
        if needed <= self.memory.len() - head {
            return Some(head);
        }
        (needed <= tail).then_some(0)
    }

    /// The length to which `memory` must grow for the payload; `None`: the bounds forbid it.
    #[cold]
    fn grown(&self, payload_bytes: usize) -> Option<usize> {
        let live: usize = self.records.iter().map(|record| occupied(record.payload_bytes)).sum();
        let needed = live + occupied(payload_bytes);
        let full = self.records.len() >= self.messages_max || self.memory.len() >= self.bytes_max;
        if full || needed > self.bytes_max {
            return None;
        }
        Some(needed.max(2 * self.memory.len()).next_power_of_two().clamp(FIRST_BYTES, self.bytes_max))
    }

    /// Doubles the memory until the payload fits, within the bound, and moves the payloads to the front.
    #[cold]
    fn place_by_growing(&mut self, payload_bytes: usize) -> Option<usize> {
        let mut memory = vec![0; self.grown(payload_bytes)?];
        let mut at = 0;
        for record in &mut self.records {
            let payload = &self.memory[record.at..record.at + record.payload_bytes];
            memory[at..at + record.payload_bytes].copy_from_slice(payload);
            record.at = at;
            at += occupied(record.payload_bytes);
        }
        self.memory = memory;
        self.place(payload_bytes)
    }
}

/// The bytes of the ring that a payload occupies: never 0, so that a full ring differs from an empty one.
const fn occupied(payload_bytes: usize) -> usize {
    if payload_bytes == 0 { ALIGN } else { payload_bytes.next_multiple_of(ALIGN) }
}

const ALIGN: usize = 8;
const FIRST_BYTES: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::{Queue, RecordKind};
    use crate::{AmId, SendError};
    use mend_base::Random;
    use std::collections::VecDeque;

    fn push(queue: &mut Queue, number: u8, bytes: usize) -> Result<(), SendError> {
        queue.push(RecordKind::Message(AmId(number)), &[number; 3], bytes, |mut slot| {
            slot.put(&vec![number; bytes])
        })
    }

    #[test]
    fn messages_of_all_sizes_come_out_in_order() {
        for seed in 0..50 {
            let mut random = Random(seed);
            let mut queue = Queue::new(16, 4096);
            let mut expected: VecDeque<(u8, usize)> = VecDeque::new();
            for step in 0..2000u32 {
                let number = step as u8;
                let bytes = random.below(1500) as usize * usize::from(!random.once_in(4));
                if random.once_in(2) && push(&mut queue, number, bytes).is_ok() {
                    expected.push_back((number, bytes));
                }
                if random.once_in(2) {
                    let want = expected.pop_front();
                    let got = queue.pop().map(|(record, payload)| {
                        let RecordKind::Message(id) = record.kind else {
                            panic!("seed {seed}: no chunk was sent")
                        };
                        assert_eq!(record.header(), [id.0; 3], "seed {seed}");
                        assert!(payload.iter().all(|&byte| byte == id.0), "seed {seed}");
                        (id.0, payload.len())
                    });
                    assert_eq!(got, want, "seed {seed}");
                }
                assert!(queue.memory.len() <= 4096);
            }
        }
    }

    #[test]
    fn a_full_queue_reports_once_that_the_refused_message_fits() {
        let mut queue = Queue::new(16, 1024);
        push(&mut queue, 1, 500).unwrap();
        push(&mut queue, 2, 500).unwrap();
        assert_eq!(push(&mut queue, 3, 500), Err(SendError::Busy));
        assert!(!queue.take_sendable_report());
        queue.pop();
        assert!(queue.take_sendable_report());
        assert!(!queue.take_sendable_report(), "once");
        push(&mut queue, 3, 500).unwrap();
    }

    #[test]
    fn a_message_that_was_refused_by_count_fits_after_the_memory_has_grown() {
        let mut queue = Queue::new(2, 4096);
        push(&mut queue, 1, 500).unwrap();
        push(&mut queue, 2, 500).unwrap();
        assert_eq!(push(&mut queue, 3, 1500), Err(SendError::Busy));
        assert!(!queue.take_sendable_report());
        queue.pop();
        assert!(queue.take_sendable_report());
        push(&mut queue, 3, 1500).unwrap();
    }

    #[test]
    fn the_steady_state_reuses_its_memory() {
        let mut queue = Queue::new(16, 4096);
        let mut memory = None;
        for step in 0..100 {
            push(&mut queue, step, 700).unwrap();
            push(&mut queue, step, 700).unwrap();
            queue.pop();
            queue.pop();
            if step > 2 {
                assert_eq!(*memory.get_or_insert(queue.memory.as_ptr()), queue.memory.as_ptr());
            }
        }
    }
}
