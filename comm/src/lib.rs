// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Communicators as values: an ordered [`Group`] of peers, and a [`Communicator`] over it. Read [`Group`] first.
//!
//! Nothing here communicates, waits or knows the transport of a peer.
#![forbid(unsafe_code)]

mod communicator;
mod group;

pub use communicator::{Communicator, Congruence, Remote};
pub use group::{Comparison, Group, GroupError};
