// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that several processes see: outboxes with their rings, bells, sleep and wake, the fault page, life words.
//!
//! One writer for each page: a process writes only its own outbox, which the others map read-only, and the kernel sees to
//! it (sealed memory files). The one exception, the [`BellPage`], holds hints only. `unsafe` inside, a safe interface
//! outside: what another process wrote is copied once, checked in the copy, and only then believed (Rule 11).
//!
//! Not here: whom to poll, when to sleep, what a message means (`btl-shm`, `world`). Read [`Outbox`] and [`BellPage`] first.

mod atomic;
#[cfg(not(loom))]
mod bell;
#[cfg(all(feature = "broken_peer", not(loom)))]
pub mod broken_peer;
#[cfg(not(loom))]
pub mod cgroup;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod fault_page;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod life;
#[cfg(not(loom))]
mod limits;
mod line;
mod mailbox;
#[cfg(not(loom))]
mod mapping;
#[cfg(all(test, loom))]
mod model;
#[cfg(not(loom))]
mod outbox;
#[cfg(not(loom))]
mod peer_block;
#[cfg(not(loom))]
mod reserve;
mod ring;
mod sleep;
mod wish;

#[cfg(not(loom))]
pub use bell::BellPage;
#[cfg(not(loom))]
pub use error::SegmentError;
#[cfg(not(loom))]
pub use fault_page::{FaultPage, FaultView};
#[cfg(not(loom))]
pub use layout::{
    CHUNK_AREA, CHUNK_SLOTS, CONTROL_BYTES_MAX, CONTROL_SLOTS, MAILBOXES, MESSAGE_AREA, MESSAGE_SLOTS, Ring,
};
#[cfg(not(loom))]
pub use life::{
    Call, LIVES_AT_ONCE, Life, LifeState, LifeView, Seen, can_sleep_on_lives, sleep_on_life, sleep_on_lives,
};
#[cfg(not(loom))]
pub use limits::bytes_left as memory_left;
#[cfg(not(loom))]
pub use mapping::above_standard_streams;
#[cfg(not(loom))]
pub use outbox::{Block, ChunkProducer, Outbox};
#[cfg(not(loom))]
pub use peer_block::{ChunkConsumer, PeerBlock, Site};
pub use ring::{Arrival, Bounds, Consumer, Envelope, Garbage, HEADER_BYTES_MAX, Lent, Producer, Room};
pub use sleep::Woken;
#[cfg(not(loom))]
pub use sleep::timespec;
pub use wish::Wish;
