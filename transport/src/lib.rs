// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface of byte transfer layers (BTLs). Read [`Btl`] and [`Sink`] first: they are the contract between a transport and
//! the layer above. [`Loopback`] is the smallest transport, [`Bml`] combines several transports, and [`UserMemory`] is the only
//! type that accesses user buffers.
//!
//! Not in this crate: transports over shared memory or a device, each of which is a separate crate; matching; protocols.
#![deny(unsafe_code)]

mod atomic;
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
mod regions;
mod sink;

pub use atomic::Atomic;
pub use bml::{Bml, BmlEndpoint, Via};
pub use btl::{
    Ability, AmId, Btl, ConnectError, Cookie, EventPending, Limits, MessageClass, SendError, Stream, WakeSet,
};
pub use card::{Card, TransportId};
#[cfg(any(test, feature = "conformance"))]
pub use hooks::{Counter, Counts, Event, FaultInjector, Faults, InFlight, OneIn, Tracer};
pub use loopback::Loopback;
pub use memory::{Buffer, Payload, PayloadWriter, UserMemory};
pub use network::Network;
pub use rdma::{Exposure, Rdma, Region, RegisterError, Remote, RemoteAccess, RemoteKey, Span};
pub use regions::{AccessKind, Regions};
pub use sink::{Cause, Sink};
