// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must hold, whatever the seed: right bytes in the right order, silence of buffers whose requests have ended, and
//! nothing left over at the end. A breach panics; the runner says with which seed.

pub mod job;
pub mod notices;

use crate::SimMpi;
use mend_base::{LifecycleCounts, Random, Rank, Tag};
use mend_mpi::{Census, Status};
use mend_transport::{Buffer, UserMemory};
use std::sync::Arc;

/// What stands in memory that nobody has written yet.
pub const POISON: u8 = 0xA5;
/// What a sender writes over its buffer once it may.
pub const RECYCLED: u8 = 0xEE;

/// The bytes of message `id`: others for each message, so that no two are mistaken for each other.
pub fn content(id: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(id.wrapping_mul(0x51ED_270B));
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        out.extend_from_slice(&random.bits().to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// Memory full of poison.
pub fn poisoned(bytes: usize) -> Arc<Buffer> {
    Buffer::from_bytes(&vec![POISON; bytes])
}

/// A sender's buffer after its send: whoever still reads it sends wrong bytes.
pub fn recycle(buffer: &Arc<Buffer>) {
    UserMemory::of_buffer(buffer).write(0, &vec![RECYCLED; buffer.len()]);
}

/// Asserts that `buffer` holds message `id` of `bytes` bytes, and poison behind it.
pub fn holds(buffer: &Buffer, id: u64, bytes: usize) {
    let kept = bytes.min(buffer.len());
    let found = buffer.to_vec();
    assert!(found[..kept] == content(id, bytes)[..kept], "message {id} of {bytes} bytes arrived changed");
    assert!(found[kept..].iter().all(|byte| *byte == POISON), "message {id} wrote past its {kept} bytes");
}

/// Asserts what a receive's status says.
pub fn says(status: Status, source: Rank, tag: Tag, bytes: usize) {
    assert_eq!((status.source, status.tag, status.bytes), (Some(source), tag, bytes as u64));
    assert!(!status.cancelled);
}

/// Buffers whose requests have ended: nothing may write into them any more (I7).
#[derive(Debug, Default)]
pub struct Silence(Vec<(Arc<Buffer>, Vec<u8>)>);

impl Silence {
    /// The request over `buffer` has ended.
    pub fn watch(&mut self, buffer: &Arc<Buffer>) {
        self.0.push((Arc::clone(buffer), buffer.to_vec()));
    }

    /// Asserts that nothing was written since.
    pub fn check(&self) {
        for (buffer, then) in &self.0 {
            assert!(buffer.to_vec() == *then, "a buffer was written after its request had ended");
        }
    }
}

/// Asserts that a program that is over has left nothing behind in its engine, and that each of its requests has ended,
/// once. How many there were, where the build keeps books.
pub fn balance(rank: u32, mpi: &SimMpi) -> u64 {
    let census = mpi.engine().census();
    let left = Census { asked: 0, ..census };
    assert_eq!(left, Census::default(), "rank {rank} is over and leaves this");
    let audited = mpi.engine().lifecycle_check();
    let LifecycleCounts { begun, ended, forgotten } = audited;
    assert!(begun == ended && ended == forgotten, "rank {rank} is over: {audited:?}");
    begun
}

/// An engine in one line, for reports of a hang.
pub fn state(mpi: &SimMpi) -> String {
    format!("{:?}", mpi.engine().census())
}
