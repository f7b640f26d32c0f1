// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a byte transfer layer is. Read [`Btl`] and [`Sink`] first: the contract that every crate above or below agrees
//! on. [`UserMemory`] is the
//! only way to what the user named in a call.
//!
//! Not here: any real device (they are crates of their own, and do not know each other), matching, protocols.

mod btl;
mod card;
mod memory;
mod rdma;
mod sink;

pub use btl::{Ability, AmId, Btl, Class, ConnectError, Cookie, Limits, Pending, SendError, Stream, WakeSet};
pub use card::{Card, TransportId};
pub use memory::{Buffer, Payload, UserMemory, WriteSlot};
pub use rdma::{Access, Atomic, Rdma, RegisterError, RemoteKey, Span};
pub use sink::{Cause, Sink};
