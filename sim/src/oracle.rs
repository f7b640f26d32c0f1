// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must hold in every job, whatever its seed: received bytes are right and in order, the library does not write into
//! buffers of ended requests, and an engine holds no state at the end. A violation panics; the runner reports the seed.

pub mod job;
pub mod notices;

use crate::SimMpi;
use mend_base::{LifecycleCounts, Random, Rank, Tag};
use mend_mpi::{OpenCounts, Status};
use mend_transport::{Buffer, UserMemory};
use std::sync::Arc;

/// The initial content of a receive buffer.
pub const POISON: u8 = 0xA5;
/// What a program writes into a send buffer after the send has ended.
pub const OVERWRITTEN: u8 = 0xEE;

/// The bytes of message `id`. The contents of two messages differ, so a test notices when one is received for the other.
pub fn content(id: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(id.wrapping_mul(0x51ED_270B));
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        out.extend_from_slice(&random.bits().to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// A receive buffer filled with [`POISON`].
pub fn poisoned(bytes: usize) -> Arc<Buffer> {
    Buffer::from_bytes(&vec![POISON; bytes])
}

/// Overwrites a send buffer after its send has ended. If the library still reads the buffer, the receiver gets wrong bytes.
pub fn overwrite(buffer: &Arc<Buffer>) {
    UserMemory::of_buffer(buffer).write(0, &vec![OVERWRITTEN; buffer.len()]);
}

/// Asserts that `buffer` holds message `id` of `bytes` bytes, cut to the buffer's length, and [`POISON`] after it.
pub fn assert_content(buffer: &Buffer, id: u64, bytes: usize) {
    let received = bytes.min(buffer.len());
    let found = buffer.to_vec();
    let expected = content(id, bytes);
    assert!(found[..received] == expected[..received], "message {id} of {bytes} bytes arrived changed");
    let is_poison = found[received..].iter().all(|byte| *byte == POISON);
    assert!(is_poison, "message {id} was written past its {received} bytes");
}

/// Asserts source, tag and length in the status of a receive or probe.
pub fn assert_status(status: Status, source: Rank, tag: Tag, bytes: usize) {
    assert_eq!((status.source, status.tag, status.bytes), (Some(source), tag, bytes as u64));
    assert!(!status.cancelled);
}

/// Buffers whose requests have ended, each with its content at that time. The library no longer writes into them (I7).
#[derive(Debug, Default)]
pub struct EndedBuffers(Vec<(Arc<Buffer>, Vec<u8>)>);

impl EndedBuffers {
    /// To be called when the request that used `buffer` has ended.
    pub fn add(&mut self, buffer: &Arc<Buffer>) {
        self.0.push((Arc::clone(buffer), buffer.to_vec()));
    }

    /// Asserts that each buffer has the content that it had when it was added.
    pub fn assert_unchanged(&self) {
        for (buffer, content) in &self.0 {
            assert!(buffer.to_vec() == *content, "a buffer was written after its request had ended");
        }
    }
}

/// Asserts, after the program of `rank` has ended, that its engine holds no state, and that each request began, ended and
/// was released once. Returns the number of requests; 0 in a build without the lifecycle check.
pub fn assert_nothing_left(rank: u32, mpi: &SimMpi) -> u64 {
    let left = OpenCounts { requested_contacts: 0, ..mpi.engine().open_counts() };
    assert_eq!(
        left,
        OpenCounts::default(),
        "the program of rank {rank} has ended, and its engine still holds state"
    );
    let counts = mpi.engine().lifecycle_check();
    let LifecycleCounts { begun, ended, released } = counts;
    assert!(begun == ended && ended == released, "the program of rank {rank} has ended: {counts:?}");
    begun
}

/// The counters of an engine in one line, for reports of a hang.
pub fn describe(mpi: &SimMpi) -> String {
    format!("{:?}", mpi.engine().open_counts())
}
