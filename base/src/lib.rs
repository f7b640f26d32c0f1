// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Types that every crate of Mend uses: processes ([`Rank`], [`Peer`], [`Identity`]), time ([`Instant`]), parameters
//! ([`parameter`]), tables of handles ([`Slab`]), and the reading of messages ([`Reader`]).
//!
//! Plain values: no I/O, no clock, no globals, no `unsafe`. Start with [`Peer`] and [`Identity`].
#![forbid(unsafe_code)]

mod allocation_failures;
pub mod branches;
mod identity;
mod lifecycle_check;
pub mod parameter;
mod peer;
mod random;
mod rank;
mod slab;
mod time;
mod wire;

pub use allocation_failures::{
    AllocationFailures, allocation_fails, replace_allocation_failures, reserve, reserve_queue,
};
pub use identity::{ContextId, ContextKind, Identity};
pub use lifecycle_check::{LifecycleCheck, LifecycleCounts};
pub use peer::{Job, Peer, PeerIndex};
pub use random::Random;
pub use rank::{Rank, Source, Tag, TagSelector};
pub use slab::{Key, Slab};
pub use time::{Duration, Instant};
pub use wire::{Reader, Wire, Writer};
