// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a communicator is: an ordered [`Group`] of peers, a [`Communicator`] over it, and the [`Failures`] that one of its
//! members knows of. Read [`Group`] first.
//!
//! Plain values: nothing here sends, waits or knows how a peer is reached.
#![forbid(unsafe_code)]

mod communicator;
mod group;

pub use communicator::{Communicator, Congruence};
pub use group::{Comparison, Group, GroupError};
