// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that several processes see: an outbox per process with rings to each peer, a life page per process, the bell page,
//! sleep words, the notice page.
//!
//! Each page has one writer: a process writes only its own outbox and life page, which the others map read-only (sealed memory
//! files). The one exception, the [`BellPage`], holds hints only. The interface is safe: what another process wrote
//! is copied once and checked in the copy before it is used.
//!
//! Not here: which peers are polled, when a process sleeps, what a message means (`btl-shm`, `world`). Read
//! [`Outbox`] and [`BellPage`] first.

mod atomic;
#[cfg(not(loom))]
mod bell;
mod bell_request;
#[cfg(all(feature = "broken_peer", not(loom)))]
pub mod broken_peer;
#[cfg(not(loom))]
pub mod cgroup;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod header;
#[cfg(not(loom))]
mod helper_calls;
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
mod notice_page;
#[cfg(not(loom))]
mod outbox;
#[cfg(not(loom))]
mod peer_block;
#[cfg(not(loom))]
mod reserve;
mod ring;
mod sleep;

#[cfg(not(loom))]
pub use bell::BellPage;
pub use bell_request::BellRequest;
#[cfg(not(loom))]
pub use error::SegmentError;
#[cfg(not(loom))]
pub use helper_calls::HelperCalls;
#[cfg(not(loom))]
pub use layout::{
    CHUNK_AREA, CHUNK_SLOTS, CONTROL_BYTES_MAX, CONTROL_SLOTS, MAILBOXES, MESSAGE_AREA, MESSAGE_SLOTS, Ring,
};
#[cfg(not(loom))]
pub use life::{
    Interrupt, LIFE_WORDS_AT_ONCE, Life, LifeState, LifeView, Seen, can_sleep_on_life_words, sleep_on_life,
    sleep_on_life_words,
};
#[cfg(not(loom))]
pub use limits::bytes_left as memory_left;
#[cfg(not(loom))]
pub use mapping::above_standard_streams;
#[cfg(not(loom))]
pub use notice_page::{NoticePage, NoticeView};
#[cfg(not(loom))]
pub use outbox::{Block, ChunkProducer, Outbox};
#[cfg(not(loom))]
pub use peer_block::{BlockAddress, ChunkConsumer, PeerBlock};
pub use ring::{
    Bounds, Consumer, Garbage, HEADER_BYTES_MAX, PayloadMut, PayloadRef, Producer, RingMessage, SlotHeader,
};
#[cfg(not(loom))]
pub use sleep::timespec;
pub use sleep::{AnnouncedSleep, Woken};
