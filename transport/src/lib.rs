// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a byte transfer layer is. Read [`Btl`] and [`Sink`] first: the contract that every crate above or below agrees
//! on. [`Loopback`] is the smallest of them, [`Bml`] several as one, and [`UserMemory`] the only way to what the user
//! named in a call.
//!
//! Not here: any real device (they are crates of their own, and do not know each other), matching, protocols.
#![deny(unsafe_code)]

mod bml;
mod btl;
mod card;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
#[cfg(any(test, feature = "conformance"))]
mod hooks;
mod loopback;
mod memory;
mod network;
mod queue;
mod rdma;
mod sink;

pub use bml::{Bml, Way};
pub use btl::{Ability, AmId, Btl, Class, ConnectError, Cookie, Limits, Pending, SendError, Stream, WakeSet};
pub use card::{Card, TransportId};
#[cfg(any(test, feature = "conformance"))]
pub use hooks::{Counter, Counts, Event, FaultInjector, Faults, Ledger, OneIn, Tracer};
pub use loopback::Loopback;
pub use memory::{Buffer, Payload, UserMemory, WriteSlot};
pub use network::Network;
pub use rdma::{Access, Atomic, Rdma, RegisterError, RemoteKey, Span};
pub use sink::{Cause, Sink};
